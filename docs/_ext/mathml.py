"""Formulas as MathML, which browsers render without scripts or network access."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def visit_math(writer: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_math_block(writer: Any, node: nodes.math_block) -> None:
    """Write a display formula."""
    writer.body.append(f"<p>{tex2mathml(node.astext(), as_block=True)}</p>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulae as MathML, which browsers show by themselves: no script, no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula that stands by itself."""
    writer.body.append(f"<p>{tex2mathml(node.astext(), as_block=True)}</p>\n")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Take part in the build."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Resolve links from the pages to other files of the repository.

In the repository, ``[times](../benchmarks/scaling.py)`` opens the file; in the built
pages, MyST copies that file next to the page. Links to examples are redirected to their
page in the gallery. Folders cannot be copied, so links to them become plain text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform


class OutsideLinks(SphinxPostTransform):
    """Redirect links to examples to the gallery, and remove links to folders."""

    default_priority = 8  # before MyST looks for the target and warns

    def run(self, **_: Any) -> None:
        """Transform all links of a page."""
        for node in list(self.document.findall(pending_xref)):
            if node.get("reftype") == "myst" and self._is_folder(node):
                node.replace_self(node.children)
        for link in list(self.document.findall(download_reference)):
            path = Path(str(link["reftarget"]))
            page = f"gallery/{path.stem}"
            if path.parent.name == "examples" and page in self.env.found_docs:
                link.replace_self(self._make_reference(page, link))

    def _is_folder(self, node: pending_xref) -> bool:
        """Whether a link points to a folder of the repository."""
        page = Path(self.env.doc2path(node["refdoc"]))
        return (page.parent / str(node["reftarget"])).resolve().is_dir()

    def _make_reference(self, page: str, link: nodes.Element) -> nodes.reference:
        """Create a link to a page of the documentation, with the text of ``link``."""
        uri = self.app.builder.get_relative_uri(self.env.docname, page)
        reference = nodes.reference("", "", internal=True, refuri=uri)
        reference.extend(link.children)
        return reference


def setup(app: Any) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(OutsideLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Links that leave the folder of the pages, so that they lead somewhere here too.

Where the repository is shown, ``[times](../benchmarks/scaling.py)`` opens the file.
Here MyST copies that file beside the page. Examples have a page of their own in the
gallery. A folder cannot be copied, so its name stays and the link goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform


class OutsideLinks(SphinxPostTransform):
    """Leads links to examples into the gallery, and takes links to folders off."""

    default_priority = 8  # before MyST looks for the target and warns

    def run(self, **_: Any) -> None:
        """Change them all."""
        for node in list(self.document.findall(pending_xref)):
            if node.get("reftype") == "myst" and self._is_folder(node):
                node.replace_self(node.children)
        for link in list(self.document.findall(download_reference)):
            path = Path(str(link["reftarget"]))
            page = f"gallery/{path.stem}"
            if path.parent.name == "examples" and page in self.env.found_docs:
                link.replace_self(self._reference(page, link))

    def _is_folder(self, node: pending_xref) -> bool:
        """Whether a link leads to a folder of the repository."""
        page = Path(self.env.doc2path(node["refdoc"]))
        return (page.parent / str(node["reftarget"])).resolve().is_dir()

    def _reference(self, page: str, link: nodes.Element) -> nodes.reference:
        """A link to another page, with the words of this one."""
        uri = self.app.builder.get_relative_uri(self.env.docname, page)
        made = nodes.reference("", "", internal=True, refuri=uri)
        made.extend(link.children)
        return made


def setup(app: Any) -> dict[str, bool]:
    """Take part in the build."""
    app.add_post_transform(OutsideLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Links that leave the folder of the pages: files are copied, folders become text.

Where the repository is shown, ``[times](../benchmarks/scaling.py)`` opens the file.
Here MyST copies that file beside the page. A folder cannot be copied, so its name stays
and the link goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.addnodes import pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform


class FolderLinks(SphinxPostTransform):
    """Puts the words of a link to a folder of the repository in its place."""

    default_priority = 8  # before MyST looks for the target and warns

    def run(self, **_: Any) -> None:
        """Replace them all."""
        for node in list(self.document.findall(pending_xref)):
            if node.get("reftype") != "myst":
                continue
            page = Path(self.env.doc2path(node["refdoc"]))
            if (page.parent / str(node["reftarget"])).resolve().is_dir():
                node.replace_self(node.children)


def setup(app: Any) -> dict[str, bool]:
    """Take part in the build."""
    app.add_post_transform(FolderLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

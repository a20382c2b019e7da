"""Sphinx configuration: ``sphinx-build -W docs docs/_build/html``.

No network is needed to build or read the pages: no web fonts, no external scripts.
They are Markdown that also renders in the repository, so links may leave this folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# Before NumPy is imported: BLAS threads slow down the small examples.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import ncarl  # noqa: E402

project = "ncarl"
author = "The ncarl developers"
copyright = "the ncarl developers, BSD 3-Clause"
release = version = ncarl.__version__

extensions = [
    "mathml",
    "myst_parser",
    "numpydoc",
    "outside_links",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext", "**/sg_execution_times.rst"]
root_doc = "index"
smartquotes = False  # options begin with two hyphens

# --- pages ---------------------------------------------------------------------------
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

# --- the reference -------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"  # types are in numpydoc's sections
autodoc_member_order = "bysource"
# Generated and documented by scikit-learn.
METADATA = ("fit", "transform", "predict", "score", "inverse_transform")
autodoc_default_options = {
    "exclude-members": ", ".join(f"set_{name}_request" for name in METADATA)
}
numpydoc_show_class_members = False  # the template lists them
numpydoc_xref_param_type = False
default_role = "py:obj"

# --- the gallery ---------------------------------------------------------------------
sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"[/\\]plot_",
    "ignore_pattern": r"(?:^|[/\\])(?!plot_)[^/\\]*\.py$",
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "within_subsection_order": "ExampleTitleSortKey",
    "plot_gallery": "True",
    "write_computation_times": False,  # its tables load scripts
}

# --- theme ---------------------------------------------------------------------------
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"ncarl {release}"
html_static_path = ["_static"]
html_css_files = ["ncarl.css"]
html_show_sourcelink = False
# Top-level pages have no section to navigate.
html_sidebars: dict[str, list[str]] = {
    name: [] for name in ("index", "quickstart", "idea", "faq", "search")
}
html_theme_options: dict[str, Any] = {
    "logo": {"text": "ncarl"},
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
}
templates_path = ["_templates"]

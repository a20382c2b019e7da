"""The documentation is built without a warning, with everything in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
#: What a build leaves in the folder of the pages.
MADE = ("_build", "gallery", "generated", "sg_execution_times.rst")
#: Scripts, styles and pictures that a page would fetch from somewhere else.
FETCHED = re.compile(
    r"""<(?:script|link|img)\b[^>]*\b(?:src|href)=["']https?://[^>]*"""
)


def build(folder):
    """Build a copy of the pages, so that nothing is left behind; gives its folder."""
    for path in REPOSITORY.iterdir():
        if path.name == "docs":
            ignored = shutil.ignore_patterns(*MADE)
            shutil.copytree(path, folder / "docs", ignore=ignored)
        elif not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    target = folder / "html"
    # Many cores are no help to examples of seconds, and get in each other's way.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", target],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.mark.slow
def test_the_documentation_is_built_without_a_warning_and_whole(tmp_path):
    """One test, because a build takes a minute and workers share none."""
    for needed in ("sphinx", "sphinx_gallery", "myst_parser", "numpydoc"):
        pytest.importorskip(needed)
    built = build(tmp_path)
    check_every_page_and_every_example_is_there(built)
    check_names_have_pages_with_their_parameters(built)
    check_pages_fetch_nothing_from_elsewhere(built)


def check_every_page_and_every_example_is_there(built):
    pages = list((REPOSITORY / "docs").glob("*.md"))
    assert pages
    for page in pages:
        assert (built / page.with_suffix(".html").name).is_file()
    examples = sorted((REPOSITORY / "examples").glob("plot_*.py"))
    assert examples
    index = (built / "gallery" / "index.html").read_text(encoding="utf-8")
    for example in examples:
        shown = built / "gallery" / f"{example.stem}.html"
        drawn = re.search("sphx-glr-(single|multi)-img", shown.read_text("utf-8"))
        assert drawn, f"{example.name} draws nothing"
        assert f"{example.stem}.html" in index


def check_names_have_pages_with_their_parameters(built):
    page = (built / "generated" / "ncarl.BayesianNCARL.html").read_text("utf-8")
    for word in ("prior_strength", "predict_interval", "kernel_", "Examples"):
        assert word in page
    assert "set_fit_request" not in page


def check_pages_fetch_nothing_from_elsewhere(built):
    for page in built.rglob("*.html"):
        found = FETCHED.findall(page.read_text(encoding="utf-8"))
        assert not found, f"{page.relative_to(built)}: {found[0]}"

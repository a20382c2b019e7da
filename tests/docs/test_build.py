"""Tests that the documentation is built completely and without warnings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
#: Files that a build generates in the source folder.
MADE = ("_build", "gallery", "generated", "sg_execution_times.rst")
#: Scripts, styles and images that a page would load from other hosts.
FETCHED = re.compile(
    r"""<(?:script|link|img)\b[^>]*\b(?:src|href)=["']https?://[^>]*"""
)


def build(folder):
    """Build a copy of the documentation and return the output folder."""
    for path in REPOSITORY.iterdir():
        if path.name == "docs":
            ignored = shutil.ignore_patterns(*MADE)
            shutil.copytree(path, folder / "docs", ignore=ignored)
        elif not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    target = folder / "html"
    # Short examples are faster on one thread.
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
def test_documentation_is_built_completely_without_warnings(tmp_path):
    """A single test since a build takes a minute and workers cannot share it."""
    for needed in ("sphinx", "sphinx_gallery", "myst_parser", "numpydoc"):
        pytest.importorskip(needed)
    built = build(tmp_path)
    check_all_pages_and_examples_exist(built)
    check_reference_pages_list_parameters(built)
    check_pages_load_no_external_files(built)


def check_all_pages_and_examples_exist(built):
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


def check_reference_pages_list_parameters(built):
    for name, words in (
        (
            "BayesianNCARL",
            ("prior_strength", "predict_interval", "kernel_", "Examples"),
        ),
        ("Dask", ("n_workers", "close")),
        ("Torch", ("memory_gb", "describe")),
    ):
        page = (built / "generated" / f"ncarl.{name}.html").read_text("utf-8")
        for word in words:
            assert word in page
        assert "set_fit_request" not in page


def check_pages_load_no_external_files(built):
    for page in built.rglob("*.html"):
        found = FETCHED.findall(page.read_text(encoding="utf-8"))
        assert not found, f"{page.relative_to(built)}: {found[0]}"

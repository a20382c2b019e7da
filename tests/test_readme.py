"""Code in the README and on the pages runs; the commands are the ones we promise."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]
#: Pages whose code wants what a machine may not have.
GPU_PAGES = ("gpu.md",)
BLOCKS = [
    pytest.param(block, id=f"{page.name} {number}")
    for page in PAGES
    if page.name not in GPU_PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_code_on_the_pages_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "a block of code", "exec"), {})


def test_the_readme_prints_the_two_commands():
    text = README.read_text()
    assert "pip install '.[cli]' && ncarl demo" in text
    assert "pip install '.[test]' && pytest" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_exist(page):
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
        assert (page.parent / path).is_file(), path

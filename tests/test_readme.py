"""The README's code runs, and its commands are the ones we promise."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_code_in_the_readme_runs(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {})


def test_the_readme_prints_the_two_commands():
    text = README.read_text()
    assert "pip install '.[cli]' && ncarl demo" in text
    assert "pip install '.[test]' && pytest" in text


def test_pictures_of_the_readme_exist():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README.read_text()):
        assert (README.parent / path).is_file(), path

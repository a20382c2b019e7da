"""The version of the code: what changes figures is in it, words are not."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from ncarl import __version__
from ncarl.study import version
from ncarl.study.version import bare, code_version

SOURCE = '''"""Module."""

# why
import os  # kept


class A:
    """Words."""

    x = 1

    def f(self):
        r"""More
        words.

        # and more
        """
        # reason

        return "# no comment"
'''
CODE = '''import os  # kept
class A:
    x = 1
    def f(self):
        return "# no comment"'''


#: Code that makes data, hides, fits or scores.
MATTERS = (
    *("solver.py", "masks.py", "metrics.py", "core/types.py", "bayes/__init__.py"),
    *("estimators/ncarl.py", "study/problems.py", "study/measure.py"),
    "datasets/synthetic.py",
    *("datasets/pictures.py", "datasets/movielens.py"),
)
ASIDE = (
    *("cli/reproduce.py", "study/pool.py", "study/report.py", "plots/style.py"),
    *("images/field.py", "progress.py"),
)
HERE = Path(version.__file__).parents[1]


@pytest.fixture
def tree(monkeypatch, tmp_path):
    """Part of the package; a function that changes a file and tells the version."""
    for place in (*MATTERS, *ASIDE):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(HERE / place, tmp_path / place)
    monkeypatch.setattr(version, "__file__", str(tmp_path / "study" / "version.py"))

    def after(place, change):
        path = tmp_path / place
        before = path.read_text(encoding="utf-8")
        path.write_text(change(before), encoding="utf-8")
        found = code_version.__wrapped__()
        path.write_text(before, encoding="utf-8")
        return found

    return after


def same(text):
    return text


def reworded(text):
    return "# a remark\n\n" + text.replace('"""', '"""Other words. ', 1)


def changed(text):
    return text + "\nMORE = 1\n"


def test_words_and_empty_lines_are_taken_out_and_nothing_else():
    assert bare(SOURCE) == CODE
    assert bare(CODE) == CODE
    assert bare("") == ""
    assert bare("async def f():\n    'doc'\n    return 1") == (
        "async def f():\n    return 1"
    )
    assert bare('x = 1\n"""no docstring"""\n') == 'x = 1\n"""no docstring"""'


def test_what_is_left_of_the_package_is_the_same_code():
    def code(source):
        tree = ast.parse(source)
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            first = body[0] if isinstance(body, list) and body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                body[:1] = []
        return ast.dump(tree)

    for place in MATTERS:
        text = (HERE / place).read_text(encoding="utf-8")
        assert code(bare(text)) == code(text)
        assert '"""' not in bare(text)


def test_the_version_begins_with_that_of_the_package_and_repeats():
    found = code_version()
    assert code_version.__wrapped__() == code_version.__wrapped__()
    name, _, digest = found.partition("+")
    assert name == __version__
    assert len(digest) == 8


@pytest.mark.parametrize("place", MATTERS[:4])
def test_words_do_not_change_the_version(place, tree):
    assert tree(place, reworded) == tree(place, same)


@pytest.mark.parametrize("place", MATTERS)
def test_code_that_can_change_figures_changes_the_version(place, tree):
    assert tree(place, changed) != tree(place, same)


@pytest.mark.parametrize("place", ASIDE)
def test_code_that_cannot_change_figures_does_not(place, tree):
    assert tree(place, changed) == tree(place, same)


def test_a_file_that_moves_or_goes_changes_the_version(tree, tmp_path):
    found = {tree("solver.py", same)}
    (tmp_path / "masks.py").rename(tmp_path / "maskz.py")  # the order stays
    found.add(tree("solver.py", same))
    (tmp_path / "maskz.py").unlink()
    found.add(tree("solver.py", same))
    assert len(found) == 3

"""Imports point one way, start-up is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ncarl"
MIDDLE = [
    *("observed", "holdout", "metrics", "centering", "blocks", "engines", "loop"),
    *("storage", "solver", "checkpoint", "model", "fitting", "penalties"),
    *("matrix_model", "masks", "containers", "content", "surveys", "streams"),
    *("preparing", "passing", "centre", "two_way", "kernel_file", "temporaries"),
    *("ranking", "progress"),
]
#: Each kind of user has a door; doors do not know each other.
DOORS = ("images", "panel", "ratings", "tables")
#: What shows results: it is asked by those above, and asks none of them.
SHOWN = ("plots", "pages")
UPPER = ("estimators", "cli", "methods", "study", *DOORS, *SHOWN)


def imported(path):
    """Names of the ``ncarl`` modules that a file imports, inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (n.removeprefix("ncarl.") for n in names if n.startswith("ncarl."))


def within(name, packages):
    """Whether a module belongs to one of the packages."""
    return name.split(".")[0] in packages


@pytest.mark.parametrize("path", sorted((SOURCE / "core").glob("*.py")), ids=str)
def test_core_knows_nothing_but_itself_and_the_errors(path):
    assert all(within(name, ("core", "exceptions")) for name in imported(path))


def room(name):
    """The modules of a package."""
    return [f"{name}/{path.stem}" for path in sorted((SOURCE / name).glob("*.py"))]


BAYES, SOLVERS = room("bayes"), room("solvers")
DATASETS, STUDY = room("datasets"), room("study")
SOURCES = [*room("sources"), *room("sinks"), *room("dask_engine"), *room("wide")]


@pytest.mark.parametrize("name", [*MIDDLE, *BAYES, *SOLVERS, *DATASETS, *SOURCES])
def test_the_middle_knows_no_estimator_container_or_command(name):
    found = list(imported(SOURCE / f"{name}.py"))
    assert not [other for other in found if within(other, UPPER)]


@pytest.mark.parametrize("path", sorted((SOURCE / "estimators").glob("*.py")), ids=str)
def test_estimators_know_no_command_study_or_data_set(path):
    above = ("cli", "study", "datasets", *DOORS, *SHOWN)
    assert not [name for name in imported(path) if within(name, above)]


@pytest.mark.parametrize("name", [name for door in DOORS for name in room(door)])
def test_a_front_door_knows_no_other_and_nothing_above_it(name):
    door, found = name.split("/")[0], list(imported(SOURCE / f"{name}.py"))
    above = ("cli", "study", "pages", *(other for other in DOORS if other != door))
    assert not [other for other in found if within(other, above)]


@pytest.mark.parametrize("name", [name for part in SHOWN for name in room(part)])
def test_figures_and_pages_know_no_command_study_or_door(name):
    found = list(imported(SOURCE / f"{name}.py"))
    assert not [other for other in found if within(other, ("cli", "study", *DOORS))]


@pytest.mark.parametrize("name", STUDY)
def test_studies_know_no_command(name):
    found = list(imported(SOURCE / f"{name}.py"))
    assert not [other for other in found if within(other, ("cli",))]


@pytest.mark.parametrize("name", MIDDLE)
def test_what_models_are_made_of_does_not_know_them(name):
    found = list(imported(SOURCE / f"{name}.py"))
    assert not [other for other in found if within(other, ("bayes", "solvers"))]


@pytest.mark.parametrize("name", [*BAYES, *SOLVERS])
def test_the_bayesian_model_and_the_rivals_know_nothing_of_each_other(name):
    found = list(imported(SOURCE / f"{name}.py"))
    other = "solvers" if name.startswith("bayes") else "bayes"
    assert not [module for module in found if within(module, (other,))]


def test_penalties_know_only_numbers():
    found = list(imported(SOURCE / "penalties.py"))
    assert all(within(name, ("core",)) for name in found)


def test_the_walk_sees_the_imports_that_are_there():
    assert any(within(n, ("holdout",)) for n in imported(SOURCE / "bayes/cuts.py"))
    assert any(within(name, ("core",)) for name in imported(SOURCE / "solver.py"))
    assert any(
        within(name, ("penalties",)) for name in imported(SOURCE / "solvers/split.py")
    )
    assert any(
        within(n, ("fitting",)) for n in imported(SOURCE / "estimators/ncarl.py")
    )


def test_importing_the_package_loads_no_numerical_library():
    code = (
        "import sys, ncarl; dir(ncarl); "
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'numba') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

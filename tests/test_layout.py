"""The layout of the package: layers, names, sizes, tests that mirror modules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ncarl"
#: Packages and modules from the lowest layer up. A layer may import those before it;
#: what stands in one layer does not know its neighbors there.
LAYERS = (
    ("exceptions", "registry", "text", "validation"),
    ("core",),
    ("observations", "masks", "metrics", "progress"),
    ("blocks", "io"),
    ("containers", "engines"),
    ("dataset",),
    ("centering", "holdout"),
    ("fitting",),
    ("bayes", "solvers", "wide"),
    ("estimators",),
    ("plots", "datasets"),
    ("images", "panel", "ratings", "tables", "html"),
    ("evaluation",),
    ("reproduce",),
    ("cli",),
)
#: Folders of tests that are about several modules at once.
CROSS_CUTTING = ("contract", "docs", "faults", "streams", "theory")
#: Small modules with one importer that are concepts of their own.
CONCEPTS = (
    "core/graph.py",
    "core/kernel.py",
    "datasets/synthetic.py",
    "estimators/docstrings.py",
    "solvers/bias.py",
    "solvers/regl1.py",
)
#: Backends of one signature, which only the module that dispatches imports.
BACKENDS = ("_numba", "_numpy", "_torch", "cuda", "_triton")


def module_name(path: Path) -> str:
    """The dotted name of a file of the package, without ``ncarl.``."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
PACKAGED = [name for name in MODULES if name not in ("", "__main__")]


@cache
def imported(name: str) -> frozenset[str]:
    """Modules of ours that a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            whole = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for one in whole:
            parts = one.split(".")
            if parts[0] != "ncarl":
                continue
            inner = [".".join(parts[1:k]) for k in range(len(parts), 1, -1)]
            found.update(m for m in inner[:2] if m in MODULES and m)
    return frozenset(found - {name})


def layer(name: str) -> int:
    """The number of the layer that a module belongs to."""
    top = name.split(".")[0]
    found = [k for k, names in enumerate(LAYERS) if top in names]
    assert found, f"{name} is in no layer: add it to LAYERS and to CONTRIBUTING.md"
    return found[0]


@pytest.mark.parametrize("name", PACKAGED)
def test_imports_point_one_way(name):
    own = name.split(".")[0]
    for other in imported(name):
        top = other.split(".")[0]
        assert top == own or layer(other) < layer(name), f"{name} imports {other}"


def test_the_walk_sees_the_imports_that_are_there():
    assert "holdout" in imported("bayes.selection")
    assert "core.weights" in imported("fitting.ncarl")
    assert "solvers.penalties" in imported("solvers.admm")
    assert "cli.options" in imported("cli.complete")


def test_contributing_has_a_line_for_every_package_and_module():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("| `")]
    named = set(
        re.findall(r"`([\w/]+)`", " ".join(line.split("|")[1] for line in table))
    )
    tops = {name.split(".")[0] for name in PACKAGED}
    packages = {top for top in tops if (SOURCE / top).is_dir()}
    assert named == {f"{top}/" if top in packages else top for top in tops}


def test_class_names_are_unique():
    where = defaultdict(list)
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(name)
    assert {c: names for c, names in where.items() if len(names) > 1} == {}


def test_no_small_module_has_a_single_importer():
    importers = defaultdict(set)
    for name in MODULES:
        for other in imported(name):
            importers[other].add(name)
    for name, path in MODULES.items():
        place = path.relative_to(SOURCE).as_posix()
        excepted = path.name == "__init__.py" or place in CONCEPTS
        if excepted or any(mark in path.stem for mark in BACKENDS):
            continue
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines < 150 and len(importers[name]) == 1:
            (only,) = importers[name]
            raise AssertionError(f"{place} belongs into {only}, its only importer")


def test_functions_are_not_named_by_a_bare_participle():
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                bare = node.name.strip("_")
                assert not bare.endswith("ed") or "_" in bare, f"{name}.{node.name}"


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "tests").rglob("test_*.py")),
    ids=lambda path: path.relative_to(ROOT / "tests").as_posix(),
)
def test_every_test_file_mirrors_a_module(path):
    folder, topic = path.parent.relative_to(ROOT / "tests").parts, path.stem[5:]
    if (folder[:1] and folder[0] in CROSS_CUTTING) or path == Path(__file__):
        return
    package = SOURCE / folder[0] if folder else SOURCE
    stems = [file.stem for file in package.glob("*.py")]
    stems += [package.name] if folder else []
    assert any(topic == stem or topic.startswith(f"{stem}_") for stem in stems), (
        f"no module of {package.relative_to(ROOT)} is the one that {path.name} tests"
    )


NUMERICAL = ("numpy", "scipy", "sklearn", "numba")
HELP = (
    "from typer.testing import CliRunner; from ncarl.cli.app import app\n"
    "assert 'complete' in CliRunner().invoke(app, ['--help']).stdout"
)


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import ncarl; dir(ncarl)", NUMERICAL),
        ("import ncarl.datasets", ("PIL", "numba", "sklearn")),
        (HELP, NUMERICAL),
        ("import ncarl.evaluation, ncarl.reproduce.report", ("matplotlib",)),
        ("import ncarl.reproduce.figures", ("matplotlib.pyplot",)),
    ],
    ids=["package", "datasets", "help", "report", "figures"],
)
def test_large_libraries_are_loaded_only_where_they_are_needed(code, unwanted):
    code += f"\nimport sys; print([m for m in {unwanted} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

"""Tests of the package layout: layers, names, module sizes, test files."""

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
#: Packages and modules from the lowest layer up. A layer may import from those before
#: it, but not from other members of the same layer.
LAYERS = (
    ("exceptions", "text"),
    ("registry", "validation"),
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
#: Test folders that cover several modules.
CROSS_CUTTING = ("contract", "docs", "faults", "streams", "theory")
#: Small modules with a single importer that are separate concepts.
CONCEPTS = (
    "core/graph.py",
    "core/kernel.py",
    "datasets/synthetic.py",
    "estimators/docstrings.py",
    "solvers/bias.py",
    "solvers/regl1.py",
)
#: Backends, which only the dispatching module imports.
BACKENDS = ("_numba", "_numpy", "_torch", "cuda", "_triton")


def module_name(path: Path) -> str:
    """The dotted name of a module file, without ``ncarl.``."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
PACKAGED = [name for name in MODULES if name not in ("", "__main__")]


@cache
def imports_of(name: str) -> frozenset[str]:
    """Modules of the package that a module imports, including local imports."""
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
    """The layer index of a module."""
    top = name.split(".")[0]
    found = [k for k, names in enumerate(LAYERS) if top in names]
    assert found, f"{name} is in no layer: add it to LAYERS and to CONTRIBUTING.md"
    return found[0]


@pytest.mark.parametrize("name", PACKAGED)
def test_modules_import_lower_layers_only(name):
    own = name.split(".")[0]
    for other in imports_of(name):
        top = other.split(".")[0]
        assert top == own or layer(other) < layer(name), f"{name} imports {other}"


def test_imports_of_finds_known_imports():
    assert "holdout" in imports_of("bayes.selection")
    assert "core.weights" in imports_of("fitting.ncarl")
    assert "solvers.penalties" in imports_of("solvers.admm")
    assert "cli.options" in imports_of("cli.complete")


def test_contributing_lists_every_package_and_module():
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
        for other in imports_of(name):
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


def test_function_names_are_not_bare_participles():
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
def test_large_libraries_are_imported_lazily(code, unwanted):
    code += f"\nimport sys; print([m for m in {unwanted} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

"""Tests of the wheel: package, type information, study plans, nothing else."""

from __future__ import annotations

import email
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import ncarl

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "ncarl"
#: Maximum file size; larger files are data.
LARGEST = 200_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The opened wheel of the repository."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def members(wheel):
    """Names of the files in the package."""
    return {name for name in wheel.namelist() if name.startswith("ncarl/")}


@pytest.mark.slow
def test_wheel_contains_only_the_package_and_the_plans(wheel):
    sources = {
        f"ncarl/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.suffix in (".py", ".json") or path.name == "py.typed"
    }
    plans = {
        f"ncarl/experiments/{path.name}"
        for path in (REPOSITORY / "experiments").glob("*.toml")
    }
    assert {"ncarl/py.typed", "ncarl/__init__.py"} <= sources
    assert len(plans) >= 13
    assert members(wheel) == sources | plans
    others = {name for name in wheel.namelist() if name not in members(wheel)}
    assert all(".dist-info/" in name for name in others)


@pytest.mark.slow
def test_wheel_contains_no_data(wheel):
    for member in wheel.infolist():
        assert member.file_size < LARGEST, member.filename


@pytest.mark.slow
def test_wheel_metadata(wheel):
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    told = email.message_from_bytes(wheel.read(name))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert told["Name"] == "ncarl"
    assert told["Version"] == ncarl.__version__
    assert told["License-Expression"] == project["license"]
    assert set(told.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    assert told.get_payload().startswith("# ncarl")  # the README
    (points,) = (n for n in wheel.namelist() if n.endswith("entry_points.txt"))
    assert b"ncarl = ncarl.cli:main" in wheel.read(points)
    assert any(n.endswith("licenses/LICENSE") for n in wheel.namelist())

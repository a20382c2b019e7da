"""Tests of ``ncarl`` without a command: version, help, imports."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import ncarl as package
from ncarl.cli.app import COMMANDS, unwrap_paragraphs


def test_version_and_help(ncarl):
    for command in ("complete", "demo"):
        assert command in ncarl("--help").stdout
        assert "Usage" in ncarl(command, "--help").stdout
    command = [sys.executable, "-m", "ncarl", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"ncarl {package.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_is_the_first_sentence_of_the_docstring(name):
    function = getattr(importlib.import_module(f"ncarl.cli.{name}"), name)
    assert (
        unwrap_paragraphs(inspect.getdoc(function)).split("\n\n")[0] == COMMANDS[name]
    )
    assert COMMANDS[name].index(".") == len(COMMANDS[name]) - 1


@pytest.mark.parametrize("arguments", [["--help"], ["complete", "--help"]])
def test_help_loads_no_numerical_library(arguments):
    code = (
        "import sys; from ncarl.cli.app import app\n"
        f"try: app({arguments})\n"
        "except SystemExit: pass\n"
        "heavy = ('numpy', 'scipy', 'sklearn', 'pandas', 'matplotlib')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("absent", ["typer", "rich"])
def test_missing_dependency_prints_install_command(absent):
    code = (
        f"import sys; sys.modules[{absent!r}] = None; import ncarl.cli as c; c.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "the command line needs: pip install 'ncarl[cli]'\n"

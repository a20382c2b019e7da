"""Tests of ``ncarl`` without a command: version, help, imports."""

from __future__ import annotations

import importlib
import inspect
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

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


START = "import sys; from ncarl.cli import main; sys.argv[0] = 'ncarl'; main()"


@pytest.fixture
def shell(tmp_path, csv):
    """Function that runs ``ncarl`` in a shell, with its words and what follows them."""

    def run(words, after=""):
        command = f"{shlex.join([sys.executable, '-c', START])} {words} {after}"
        return subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path
        )

    return run


@pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX")
class TestClosedOutput:
    FIT = "complete in.csv -o out.csv --method bias"

    @pytest.mark.parametrize(
        "words", [FIT, "--help", "complete --help", "doctor --json"]
    )
    @pytest.mark.parametrize("after", ["| true", ">&-", ">&- 2>&-", "2>&-"])
    def test_no_traceback(self, shell, tmp_path, words, after):
        done = shell(words, after)
        assert done.stderr == ""
        if not after.startswith("|"):
            assert done.returncode == 0
        if words == self.FIT:
            assert (tmp_path / "out.csv").stat().st_size

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
    @pytest.mark.parametrize("words", [FIT, "--help"])
    def test_full_output_is_one_line(self, shell, words):
        done = shell(words, "> /dev/full")
        assert done.returncode == 1
        assert done.stderr == "error: [Errno 28] No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("module", ["rich", "typer", "ncarl.cli.complete", "numpy"])
@pytest.mark.parametrize("swallowed", [False, True])
def test_ctrl_c_during_imports(tmp_path, csv, module, swallowed):
    # A module that is interrupted at its import; some turn that into another error.
    finder = f"""
import importlib.abc, os, signal, sys
class Interrupted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if {swallowed}:
                    raise SyntaxError from None
                raise
sys.meta_path.insert(0, Interrupted())
sys.argv[1:] = ["complete", "in.csv", "-o", "out.csv"]
"""
    done = subprocess.run(
        [sys.executable, "-c", finder + START],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr == "\nstopped; no file was left half-written\n"
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_without_a_terminal_is_a_line_now_and_then(
    ncarl, csv, tmp_path, monkeypatch, quiet
):
    monkeypatch.setattr("ncarl.progress.LOG_INTERVAL", 0.02)
    fit = package.BayesianNCARL.fit

    def slow_fit(estimator, X, y=None):
        with estimator._observers(9, "fit") as (show, *_):
            show(SimpleNamespace(change=0.5), None)
            time.sleep(0.3)
        return fit(estimator, X, y)

    monkeypatch.setattr(package.BayesianNCARL, "fit", slow_fit)
    options = ["--max-iter", "2", "--tol", "0"]
    result = ncarl("complete", csv, "-o", tmp_path / "o.csv", *options,
                   *["--quiet"][: int(quiet)])  # fmt: skip
    line = "ncarl complete, fit 1/9 change 5.0e-01, 0 s\n"
    assert (result.stderr.count(line) > 2) == (not quiet)
    assert "ncarl" not in result.stdout


def test_terminals_get_no_commands_from_the_data(ncarl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
    pairs = [(u, i) for u in range(9) for i in range(7) if u != i]
    lines = [f"{u},{i}{evil},{1 + u * i % 5}" for u, i in pairs]
    lists = "\n".join(["user,item,rating", *lines])
    Path("lists.csv").write_text(lists, encoding="utf-8")
    rows = "".join(f"{k},{k * k % 7},{k % 5},x\n" for k in range(60))
    text = f"a{evil},b,c,d{evil}\n{rows},3,2,y\n"
    Path(f"in{evil}.csv").write_text(text, encoding="utf-8")
    shown = []
    for words, code in (
        (["recommend", "lists.csv", "--user", 1, "--explain", "--out", "o.csv"], 0),
        (["recommend", "lists.csv", "--similar-to", f"1{evil}"], 0),
        (["recommend", "lists.csv", "--similar-to", f"z{evil}"], 1),
        (["complete", f"in{evil}.csv", "-o", f"out{evil}.csv", "--method", "bias"], 0),
        (["complete", f"in{evil}.csv", "-o", "o.csv", "--label", f"z{evil}"], 1),
        (["complete", f"no{evil}.csv", "-o", "o.csv", "--overwrite"], 1),
        (["evaluate", f"in{evil}.csv", "--no-compare", "--repeats", 1], 0),
    ):
        shown.append(ncarl(*words, expect=code).output)
        assert not set(shown[-1]) & set("\x1b\x07\x9b\u202e")
    assert r"\x1b[2J\x9b31m" in shown[0]
    # What is written keeps every byte.
    assert evil in Path("o.csv").read_text(encoding="utf-8")
    written = Path(f"out{evil}.csv").read_text(encoding="utf-8")
    assert written.startswith(f"a{evil},b,c,d{evil}\n0,0,0,x\n")


def test_huge_cells_are_shortened(ncarl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    huge = "x" * 1_000_000
    rows = [f"{k},{k * k % 7},{k % 5}," for k in range(60)]
    cells = [f"{row}{huge if k == 2 else k}" for k, row in enumerate(rows)]
    text = "\n".join([f"a,{huge}y,c,d", *cells, ",1,1,1"])
    Path("in.csv").write_text(text)
    Path("lists.csv").write_text(f"user,item,rating\n1,{huge},5\n1,2,4\n2,2,3\n2,3,2")
    Path("bad.csv").write_text(f"user,item,rating\n1,{huge},5\n1,2,{huge}\n")
    label = ["--label", "d"]
    for words, code in (
        (["complete", "in.csv", "-o", "o.csv"], 1),
        (["complete", "in.csv", "-o", "o.csv", *label, "--method", "bias"], 0),
        (["complete", "in.csv", "-o", "o.csv", *label, "--label", huge], 1),
        (["evaluate", "in.csv", *label, "--no-compare", "--repeats", 1], 0),
        (["recommend", "lists.csv", "--user", 2], 0),
        (["recommend", "lists.csv", "--similar-to", huge], 0),
        (["recommend", "lists.csv", "--user", huge], 1),
        (["recommend", "bad.csv", "--user", 1], 1),
    ):
        assert len(ncarl(*words, expect=code).output) < 9000

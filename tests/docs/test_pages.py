"""Tests that code and commands on the pages run and print the documented output."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ncarl.cli.app import app

REPOSITORY = Path(__file__).parents[2]
MADE = ("_build", "gallery", "generated")
PAGES = [
    REPOSITORY / "README.md",
    *(
        page
        for page in sorted((REPOSITORY / "docs").rglob("*.md"))
        if page.relative_to(REPOSITORY / "docs").parts[0] not in MADE
    ),
]
#: Pages whose Python code needs optional packages or data.
NO_PYTHON = ("gpu.md",)
#: Programs that a page may call besides ``ncarl``.
ALLOWED = ("cat", "head", "ls", "python")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Command:
    """A line that begins with ``$``, and its output in the lines below.

    Without output, the command only has to succeed. If the output begins with
    ``error:``, it has to fail.
    """

    line: str
    expected: str

    @property
    def fails(self) -> bool:
        """Whether the command is documented to fail."""
        return self.expected.startswith("error:")


def commands_of(block: str) -> Iterator[Command]:
    """Commands of a console block; a trailing backslash continues a line."""
    joined = re.sub(r"\\\n(?:> )?", "", block)
    before, *pieces = re.split(r"^\$ ", joined, flags=re.MULTILINE)
    assert not before.strip(), f"output without a command: {before!r}"
    for piece in pieces:
        line, _, expected = piece.partition("\n")
        yield Command(line.strip(), expected.strip("\n"))


def run_ncarl(arguments: list[str]) -> tuple[int, str]:
    """Run ``ncarl`` in this process; return its exit code and output."""
    done = CliRunner().invoke(app, arguments, prog_name="ncarl")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def run_program(name: str, arguments: list[str]) -> tuple[int, str]:
    """Run an allowed program without a shell; return its exit code and output."""
    program = sys.executable if name == "python" else name
    done = subprocess.run(
        [program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    return done.returncode, done.stdout


def run_command(command: Command) -> None:
    """Run a command and check its exit code and output against the page."""
    name, *arguments = shlex.split(command.line)
    if name != "ncarl" and name not in ALLOWED:
        known = ", ".join(("ncarl", *ALLOWED))
        pytest.fail(
            f"$ {command.line}\npages may call {known}; what is not to be run belongs "
            "into a block of ```sh"
        )
    code, got = (
        run_ncarl(arguments) if name == "ncarl" else run_program(name, arguments)
    )
    if (code != 0) != command.fails:
        pytest.fail(f"$ {command.line}\nended with exit code {code}:\n{got}")
    same = doctest.OutputChecker().check_output(command.expected, got, LOOSELY)
    if command.expected and not same:
        pytest.fail(
            f"$ {command.line}\nthe page says:\n{command.expected}\n\n"
            f"it printed:\n{got}"
        )


def run_block(kind: str, block: str, where: str) -> None:
    """Run a block of a page in the current folder."""
    if kind == "console":
        for command in commands_of(block):
            run_command(command)
    else:
        # Not "__main__": code that starts processes is guarded by that name, and
        # these processes would import this file.
        module = types.ModuleType("page")
        with pytest.MonkeyPatch.context() as patch:  # classes need their module
            patch.setitem(sys.modules, "page", module)
            exec(compile(block, where, "exec", dont_inherit=True), module.__dict__)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A new working folder, and a terminal of 80 columns without colors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY))
)
def test_code_and_commands_of_a_page_run(page, folder, capsys):
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        kind, block = found.groups()
        if kind == "python" and page.name in NO_PYTHON:
            continue
        line = text.count("\n", 0, found.start()) + 1
        # Blank lines make tracebacks show the line numbers of the page.
        code = block if kind == "console" else "\n" * line + block
        run_block(kind, code, str(page))


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY))
)
def test_images_and_linked_files_exist(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    for path in links:
        if "://" not in path and not path.startswith("mailto:"):
            assert (page.parent / path).exists(), f"{page.name} links to {path}"


def test_readme_shows_the_two_commands():
    text = PAGES[0].read_text(encoding="utf-8")
    assert "pip install '.[cli]' && ncarl demo" in text
    assert "pip install '.[test]' && pytest" in text


@pytest.mark.parametrize(
    "block",
    [
        "$ ncarl --version\nncarl   ...\n",  # dots match any text
        "$ ncarl --version\n$ ls\n",  # without output a command has to succeed
        "$ ncarl complete none.csv -o out.csv\nerror: ...none.csv...\n",
    ],
)
def test_commands_with_the_documented_output_pass(block, folder):
    run_block("console", block, "a page")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("$ ncarl --version\nncarl 0.0\n", r"(?s)says:\nncarl 0\.0.*printed"),
        ("$ ls nothing-here\n", "ended with exit code"),
        ("$ ncarl --version\nerror: ...\n", "ended with exit code 0"),
        ("$ touch file\n", "pages may call"),
    ],
)
def test_commands_with_other_output_fail(block, said, folder):
    with pytest.raises(pytest.fail.Exception, match=said):
        run_block("console", block, "a page")
    assert not list(folder.iterdir())


def test_trailing_backslash_continues_a_line():
    (command,) = commands_of("$ ncarl complete \\\n> in.csv\ndone\n")
    assert (command.line, command.expected) == ("ncarl complete in.csv", "done")


def test_blocks_share_only_the_folder(folder):
    code = "from pathlib import Path; x = Path('a.txt').write_text('said')"
    run_block("python", code, "a page")
    run_block("console", "$ cat a.txt\nsaid\n", "a page")
    with pytest.raises(NameError):  # errors in Python code propagate
        run_block("python", "x", "a page")

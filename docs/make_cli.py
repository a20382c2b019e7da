"""Write the generated parts of ``cli.md``.

``python docs/make_cli.py`` puts the description, the examples and the options of each
command between the two comments of its section; the rest of the page is written by
hand. A test fails when the page and the commands differ.
"""

from __future__ import annotations

import enum
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from ncarl.cli.app import COMMANDS, app, load_command

PAGE = Path(__file__).with_name("cli.md")
#: Comments around a generated part; ``ncarl`` alone is the part of no command.
BEGIN, END = "<!-- ncarl {name} -->", "<!-- / -->"
#: Options added by Typer, which are documented by hand.
OWN = ("help", "install_completion", "show_completion")
HEAD = ("| option | what it does |", "|---|---|")
PART = re.compile(r"<!-- ncarl ?([a-z-]*) -->\n.*?<!-- / -->", flags=re.DOTALL)


def commands() -> dict[str, Any]:
    """Commands by name, in the order of ``ncarl --help``."""
    return {name: load_command(name) for name in COMMANDS}


def kind_of(command: Any, parameter: Any) -> Any:
    """Type of a parameter, without ``None``."""
    hint = typing.get_type_hints(command.callback).get(parameter.name, str)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    return hint


def choices_of(kind: Any) -> list[str]:
    """What may be given, where that is a list."""
    of = typing.get_args(kind)[0] if typing.get_origin(kind) is list else kind
    if isinstance(of, type) and issubclass(of, enum.Enum):
        return [str(one.value) for one in of]
    return list(typing.get_args(of)) if typing.get_origin(of) is typing.Literal else []


def value_of(command: Any, parameter: Any) -> str:
    """What stands behind an option, in capitals; nothing for a flag."""
    kind = kind_of(command, parameter)
    if parameter.metavar:
        return str(parameter.metavar)
    if kind is bool:
        return ""
    if choices_of(kind):
        return "CHOICE"
    return {int: "INT", float: "FLOAT", Path: "PATH"}.get(kind, "TEXT")


def spelled(command: Any, parameter: Any) -> str:
    """How a parameter is written on the command line."""
    value = value_of(command, parameter)
    if not any(flag.startswith("-") for flag in parameter.opts):
        return f"`{value if parameter.metavar else parameter.name.upper()}`"
    flags = sorted([*parameter.opts, *parameter.secondary_opts], key=len)
    return ", ".join(f"`{flag}`" for flag in flags) + (f" `{value}`" if value else "")


def default_of(parameter: Any) -> str:
    """The default, as a bracket; nothing where there is none to name."""
    told = getattr(parameter, "show_default", True)
    if isinstance(told, str):
        return f" (default: {told})"
    value = parameter.default
    if parameter.required:
        return " (required)"
    if told is False or callable(value):
        return ""
    if value is None or value is False or (not value and value != 0):
        return ""
    if isinstance(value, (list, tuple)):
        value = ", ".join(str(getattr(one, "value", one)) for one in value)
    return f" (default: {getattr(value, 'value', value)})"


def cell(text: str) -> str:
    """Text as a cell of a table holds it."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def rows_of(command: Any) -> Iterator[str]:
    """Lines of the table of options, with a line above each group of them."""
    for panel, parameters in groups_of(command).items():
        if panel:
            yield f"| **{cell(panel)}** | |"
        yield from (row_of(command, parameter) for parameter in parameters)


def groups_of(command: Any) -> dict[str, list[Any]]:
    """Parameters by the panel of ``--help`` they stand in; "" for those in none."""
    groups: dict[str, list[Any]] = {"": []}
    for parameter in command.params:
        if parameter.name not in OWN and not getattr(parameter, "hidden", False):
            panel = str(getattr(parameter, "rich_help_panel", None) or "")
            groups.setdefault(panel, []).append(parameter)
    return groups


def row_of(command: Any, parameter: Any) -> str:
    """Line of a table for an argument or option."""
    told = cell(parameter.help or "")
    listed = choices_of(kind_of(command, parameter))
    if listed:
        told += " One of " + ", ".join(f"`{one}`" for one in listed) + "."
    name = spelled(command, parameter).replace("|", "\\|")
    return f"| {name} | {told}{default_of(parameter)} |"


def part(name: str, command: Any) -> str:
    """Everything between the two comments of a command, and these."""
    lines = [BEGIN.format(name=name), ""]
    paragraphs = re.split(r"\n\s*\n", (command.help or "").strip())
    for paragraph in paragraphs:
        if paragraph.strip().lower() != "examples:":
            lines += [" ".join(paragraph.split()).replace("<", "&lt;"), ""]
    home = sys.modules[command.callback.__module__]
    examples = getattr(home, "EXAMPLES", ())
    if examples:
        lines += ["```sh", *examples, "```", ""]
    lines += [*HEAD, *rows_of(command), "", END]
    return "\n".join(lines)


def top() -> str:
    """The part about ``ncarl`` itself: its commands, and the options of all."""
    group = typer.main.get_command(app)
    lines = ["<!-- ncarl -->", "", "| command | what it does |", "|---|---|"]
    for name, command in commands().items():
        first = cell((command.help or "").split("\n\n")[0])
        lines.append(f"| [`ncarl {name}`](#ncarl-{name}) | {first} |")
    lines += ["", "Before the name of a command:", "", *HEAD]
    return "\n".join([*lines, *rows_of(group), "", END])


def renewed(text: str) -> str:
    """The page with its parts written anew."""
    known = commands()

    def fresh(found: re.Match[str]) -> str:
        name = found[1]
        if name and name not in known:
            raise ValueError(f"cli.md has a part for {name!r}, which is no command")
        return part(name, known[name]) if name else top()

    return PART.sub(fresh, text)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""Write the generated parts of ``cli.md``.

``python docs/make_cli.py`` replaces the text between the two comments of each command
by its description, examples and options; the rest of the page is written by hand. A
test fails if the page and the commands differ.
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
#: Comments around a generated part; an empty name is the overview.
BEGIN, END = "<!-- ncarl {name} -->", "<!-- / -->"
#: Options added by Typer, which are documented by hand.
BUILTIN = ("help", "install_completion", "show_completion")
TABLE_HEAD = ("| option | what it does |", "|---|---|")
PART = re.compile(r"<!-- ncarl ?([a-z-]*) -->\n.*?<!-- / -->", flags=re.DOTALL)


def commands() -> dict[str, Any]:
    """Commands by name, in the order of ``ncarl --help``."""
    return {name: load_command(name) for name in COMMANDS}


def get_type(command: Any, parameter: Any) -> Any:
    """Type of a parameter, without ``None``."""
    hint = typing.get_type_hints(command.callback).get(parameter.name, str)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    return hint


def get_choices(kind: Any) -> list[str]:
    """Allowed values, if they are listed."""
    of = typing.get_args(kind)[0] if typing.get_origin(kind) is list else kind
    if isinstance(of, type) and issubclass(of, enum.Enum):
        return [str(one.value) for one in of]
    return list(typing.get_args(of)) if typing.get_origin(of) is typing.Literal else []


def get_metavar(command: Any, parameter: Any) -> str:
    """Placeholder of the value of an option, in capitals; empty for a flag."""
    kind = get_type(command, parameter)
    if parameter.metavar:
        return str(parameter.metavar)
    if kind is bool:
        return ""
    if get_choices(kind):
        return "CHOICE"
    return {int: "INT", float: "FLOAT", Path: "PATH"}.get(kind, "TEXT")


def format_parameter(command: Any, parameter: Any) -> str:
    """Format a parameter as written on the command line."""
    value = get_metavar(command, parameter)
    if not any(flag.startswith("-") for flag in parameter.opts):
        return f"`{value if parameter.metavar else parameter.name.upper()}`"
    flags = sorted([*parameter.opts, *parameter.secondary_opts], key=len)
    return ", ".join(f"`{flag}`" for flag in flags) + (f" `{value}`" if value else "")


def format_default(parameter: Any) -> str:
    """Format the default in parentheses; empty if there is none to show."""
    shown = getattr(parameter, "show_default", True)
    if isinstance(shown, str):
        return f" (default: {shown})"
    value = parameter.default
    if parameter.required:
        return " (required)"
    if shown is False or callable(value):
        return ""
    if value is None or value is False or (not value and value != 0):
        return ""
    if isinstance(value, (list, tuple)):
        value = ", ".join(str(getattr(one, "value", one)) for one in value)
    return f" (default: {getattr(value, 'value', value)})"


def escape_cell(text: str) -> str:
    """Escape text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def format_rows(command: Any) -> Iterator[str]:
    """Yield the rows of the table of options, with a heading for each group."""
    for panel, parameters in group_parameters(command).items():
        if panel:
            yield f"| **{escape_cell(panel)}** | |"
        yield from (format_row(command, parameter) for parameter in parameters)


def group_parameters(command: Any) -> dict[str, list[Any]]:
    """Group parameters by their panel of ``--help``; "" if they have none."""
    groups: dict[str, list[Any]] = {"": []}
    for parameter in command.params:
        if parameter.name not in BUILTIN and not getattr(parameter, "hidden", False):
            panel = str(getattr(parameter, "rich_help_panel", None) or "")
            groups.setdefault(panel, []).append(parameter)
    return groups


def format_row(command: Any, parameter: Any) -> str:
    """Format the table row of an argument or option."""
    text = escape_cell(parameter.help or "")
    listed = get_choices(get_type(command, parameter))
    if listed:
        text += " One of " + ", ".join(f"`{one}`" for one in listed) + "."
    name = format_parameter(command, parameter).replace("|", "\\|")
    return f"| {name} | {text}{format_default(parameter)} |"


def format_part(name: str, command: Any) -> str:
    """Format the generated part of a command, with its two comments."""
    lines = [BEGIN.format(name=name), ""]
    paragraphs = re.split(r"\n\s*\n", (command.help or "").strip())
    for paragraph in paragraphs:
        if paragraph.strip().lower() != "examples:":
            lines += [" ".join(paragraph.split()).replace("<", "&lt;"), ""]
    home = sys.modules[command.callback.__module__]
    examples = getattr(home, "EXAMPLES", ())
    if examples:
        lines += ["```sh", *examples, "```", ""]
    lines += [*TABLE_HEAD, *format_rows(command), "", END]
    return "\n".join(lines)


def format_overview() -> str:
    """Format the part on ``ncarl`` itself: its commands and common options."""
    group = typer.main.get_command(app)
    lines = ["<!-- ncarl -->", "", "| command | what it does |", "|---|---|"]
    for name, command in commands().items():
        first = escape_cell((command.help or "").split("\n\n")[0])
        lines.append(f"| [`ncarl {name}`](#ncarl-{name}) | {first} |")
    lines += ["", "Before the name of a command:", "", *TABLE_HEAD]
    return "\n".join([*lines, *format_rows(group), "", END])


def renewed(text: str) -> str:
    """Regenerate the generated parts of the page."""
    known = commands()

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if name and name not in known:
            raise ValueError(f"cli.md has a part for {name!r}, which is not a command")
        return format_part(name, known[name]) if name else format_overview()

    return PART.sub(replace, text)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

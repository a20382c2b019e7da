"""The application: its commands, loaded when they are called, and their errors."""

from __future__ import annotations

import importlib
import inspect
import re
import signal
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ncarl import __version__
from ncarl.cli import STOPPED, console, exit_at_once
from ncarl.progress import log_progress
from ncarl.text import one_line, to_terminal

#: The commands in the order of the help, each with the first sentence of its own help,
#: so that ``ncarl --help`` need not import the modules of the commands.
COMMANDS = {
    "complete": "Impute the missing entries of a table, and keep the observed ones as "
    "they are.",
    "evaluate": "Measure how accurate the imputed values of a table are.",
    "compare": "Find the method that imputes the missing entries of a table best.",
    "recommend": "Recommend items to users, with explanations.",
    "inpaint": "Fill in the missing pixels of a picture: scratches, text, dead pixels, "
    "holes.",
    "demo": "Complete a photograph and a table with known truth, and draw the results.",
    "doctor": "Show versions, machine and engines, and test each engine on a small "
    "matrix.",
    "reproduce": "Reproduce the paper's tables and figures, and judge each claim.",
}
#: A parameter at the beginning of an error message about it.
PARAMETER_PATTERN = re.compile(r"[a-z]\w*(?= (?:must|cannot|needs|names)\b|=)")
#: How messages of the library advise its parameter ``columns``.
COLUMNS_ADVICE = re.compile(r"with columns=(\[\.\.\.\])?")
#: Errors that a user can cause; any other is a bug, and shows its traceback.
USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError)


def load_command(name: str) -> Any:
    """A command with its options, from the module ``ncarl.cli.<name>``."""
    module = importlib.import_module(f"ncarl.cli.{name}")
    function = getattr(module, name)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    # Old versions of typer let only empty lines survive.
    epilog = "\n\n".join(["Examples:", *module.EXAMPLES])
    text = unwrap_paragraphs(inspect.getdoc(function) or "")
    single.command(name, cls=Command, help=text, epilog=epilog)(function)
    return typer.main.get_command(single)


class Command(TyperCommand):
    """A command that Ctrl-C can stop, with lines of progress where there is no bar."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        import ncarl.estimators.base  # noqa: F401  # NumPy and most of the rest

        if signal.getsignal(signal.SIGINT) is exit_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        quiet = bool(ctx.params.get("quiet"))
        logged = not (quiet or console.is_interactive(quiet))
        with log_progress(logged, f"ncarl {self.name}"):
            return super().invoke(ctx)


class CommandGroup(TyperGroup):
    """The commands, loaded when they are called; errors of the user are a sentence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, summary in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=summary)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, in the order of the help."""
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, with its options."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments; ``--debug`` may stand anywhere before a ``--``."""
        end = args.index("--") if "--" in args else len(args)
        if "--debug" in args[:end]:
            others = [word for word in args[:end] if word != "--debug"]
            args = ["--debug", *others, *args[end:]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo(STOPPED, nl=False, err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise
        except USER_ERRORS as error:
            if ctx.params.get("debug"):
                raise
            typer.secho("error: ", fg="red", err=True, nl=False)
            command = self.commands.get(ctx.invoked_subcommand or "")
            params = command.params if command else ()
            message = use_option_names(format_error(error), params)
            typer.echo(to_terminal(message), err=True)
            raise typer.Exit(1) from None


def format_error(error: BaseException) -> str:
    """The message of an error, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    if isinstance(error, MemoryError):
        return f"not enough memory; {one_line(error)}".rstrip("; ")
    if isinstance(error, ModuleNotFoundError):
        return f"this needs the package {error.name!r}: pip install 'ncarl[cli]'"
    return one_line(error) or type(error).__name__


def use_option_names(text: str, parameters: Sequence[Any]) -> str:
    """A message that names an option, not the parameter that it sets.

    >>> from types import SimpleNamespace
    >>> option = SimpleNamespace(name="max_iter", opts=["--max-iter"])
    >>> use_option_names("max_iter must be at least 1, got 0", [option])
    '--max-iter must be at least 1, got 0'
    """
    text = COLUMNS_ADVICE.sub("with --columns a,b,c", text)
    match = PARAMETER_PATTERN.match(text)
    if match is None:
        return text
    name = "seed" if match[0] == "random_state" else match[0]
    for parameter in parameters:
        flags = [flag for flag in parameter.opts if flag.startswith("--")]
        if parameter.name == name and flags:
            return f"{max(flags, key=len)}{text[match.end() :]}"
    return text


def unwrap_paragraphs(text: str) -> str:
    """A text whose paragraphs are one line each, for terminals of any width."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"ncarl {__version__}")
        raise typer.Exit


@app.callback()
def global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Impute the missing entries of a matrix: ratings, images, sensor logs, tables."""

"""The application: its commands, and what happens to errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ncarl import __version__
from ncarl.cli.compare import EXAMPLES as COMPARE
from ncarl.cli.compare import compare
from ncarl.cli.complete import EXAMPLES as COMPLETE
from ncarl.cli.complete import complete
from ncarl.cli.demo import EXAMPLES as DEMO
from ncarl.cli.demo import demo
from ncarl.cli.doctor import EXAMPLES as DOCTOR
from ncarl.cli.doctor import doctor
from ncarl.cli.evaluate import EXAMPLES as EVALUATE
from ncarl.cli.evaluate import evaluate
from ncarl.cli.inpaint import EXAMPLES as INPAINT
from ncarl.cli.inpaint import inpaint
from ncarl.cli.recommend import EXAMPLES as RECOMMEND
from ncarl.cli.recommend import recommend
from ncarl.cli.reproduce import EXAMPLES as REPRODUCE
from ncarl.cli.reproduce import reproduce

#: A parameter at the beginning of a sentence that says what is wrong with it.
PARAMETER = re.compile(r"[a-z]\w*(?= (?:must|cannot|needs)\b|=)")
#: Parameters that commands call by another name.
ALIASES = {"random_state": "seed"}
#: What a user can cause; anything else is a bug, and shows its traceback.
EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError)


class Commands(TyperGroup):
    """The commands; expected errors become one sentence and exit code 1."""

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
            typer.echo("\nstopped; no file was left half-written", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise
        except EXPECTED as error:
            if ctx.params.get("debug"):
                raise
            typer.secho("error: ", fg="red", err=True, nl=False)
            used = self.commands.get(ctx.invoked_subcommand or "")
            said = with_options(sentence(error), used.params if used else ())
            typer.echo(said, err=True)
            raise typer.Exit(1) from None


def sentence(error: BaseException) -> str:
    """What went wrong, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    if isinstance(error, MemoryError):
        return f"not enough memory; {' '.join(str(error).split())}".rstrip("; ")
    if isinstance(error, ModuleNotFoundError):
        return f"this needs the package {error.name!r}: pip install 'ncarl[cli]'"
    return " ".join(str(error).split()) or type(error).__name__


def with_options(text: str, parameters: Sequence[Any]) -> str:
    """A sentence that begins with an option, not with the parameter that it sets.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> option = SimpleNamespace(name="max_iter", opts=["--max-iter"])
    >>> with_options("max_iter must be at least 1, got 0", [option])
    '--max-iter must be at least 1, got 0'
    >>> with_options("alpha must be at least 0, got -1", [option])
    'alpha must be at least 0, got -1'
    """
    found = PARAMETER.match(text)
    if found is None:
        return text
    name = ALIASES.get(found[0], found[0])
    for parameter in parameters:
        flags = [flag for flag in parameter.opts if flag.startswith("--")]
        if parameter.name == name and flags:
            return f"{max(flags, key=len)}{text[found.end() :]}"
    return text


def unwrapped(text: str) -> str:
    """A text whose paragraphs are one line each, for terminals of any width."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: The commands in the order of the help, and what to type for a start.
COMMANDS = (
    (complete, COMPLETE),
    (evaluate, EVALUATE),
    (compare, COMPARE),
    (recommend, RECOMMEND),
    (inpaint, INPAINT),
    (demo, DEMO),
    (doctor, DOCTOR),
    (reproduce, REPRODUCE),
)
for command, examples in COMMANDS:
    app.command(
        help=unwrapped(inspect.getdoc(command) or ""),
        # Old versions of typer let only empty lines survive.
        epilog="\n\n".join(["Examples:", *examples]),
    )(command)


def _show_version(wanted: bool) -> None:
    """Print the version and end, if asked for."""
    if wanted:
        typer.echo(f"ncarl {__version__}")
        raise typer.Exit


@app.callback()
def top(
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
    """Fill in the missing entries of a matrix: ratings, pictures, logs, tables."""

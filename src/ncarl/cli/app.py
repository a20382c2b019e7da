"""The application: its commands, and what happens to errors."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ncarl import __version__
from ncarl.cli.compare import compare
from ncarl.cli.complete import complete
from ncarl.cli.demo import demo
from ncarl.cli.doctor import doctor
from ncarl.cli.reproduce import reproduce

#: What a user can cause; anything else is a bug, and shows its traceback.
EXPECTED = (ValueError, TypeError, OSError, ImportError, MemoryError)


class Commands(TyperGroup):
    """The commands; expected errors become one sentence and exit code 1."""

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
            typer.echo(sentence(error), err=True)
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


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(complete)
app.command()(compare)
app.command()(demo)
app.command()(doctor)
app.command()(reproduce)


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

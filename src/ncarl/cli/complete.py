"""``ncarl complete``: fill the gaps of a table in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli.models import (
    Center,
    EngineName,
    Method,
    ModelOptions,
    Orientation,
    Precision,
    Scale,
    Weights,
)

TABLE, MODEL, OUTPUT = "How to read IN", "Model", "Output"


def parse_gamma(text: str) -> float | str:
    """A noise level, or "none" for the exact model."""
    if text.lower() == "none":
        return "none"
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(
            f"must be a positive number or 'none', got {text!r}"
        ) from None


def complete(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help="CSV, TSV (also .gz), Parquet, NPY, NPZ or Matrix Market. Entries "
            "that a sparse file does not list are missing, not zero.",
            show_default=False,
        ),
    ],
    target: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="OUT", show_default=False, help="Completed table."
        ),
    ],
    na: Annotated[
        list[str] | None,
        typer.Option(metavar="TOKEN", rich_help_panel=TABLE,
                     help="Another text that means missing. Repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", rich_help_panel=TABLE,
                     help="Column to keep and not to use. Repeatable."),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", rich_help_panel=TABLE,
                     show_default="found out",
                     help="Whether the first line names the columns."),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(rich_help_panel=TABLE, show_default="found out",
                     help="What separates the cells: one character, or 'tab'."),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=TABLE,
                     help="Which array of an NPZ file to complete."),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(rich_help_panel=MODEL,
                     help="ncarl-cv chooses the parameters on held-out entries; a "
                     "parameter given below is not searched."),
    ] = Method.NCARL_CV,
    alpha: Annotated[
        float | None, typer.Option(rich_help_panel=MODEL, help="Weight of the graph.")
    ] = None,
    n_neighbors: Annotated[
        int | None,
        typer.Option(rich_help_panel=MODEL, help="Neighbours of a column."),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(parser=parse_gamma, metavar="FLOAT|none", rich_help_panel=MODEL,
                     help="Noise level; 'none' is the exact model."),
    ] = None,
    center: Annotated[
        Center | None,
        typer.Option(rich_help_panel=MODEL, help="What to take off first."),
    ] = None,
    weights: Annotated[
        Weights | None,
        typer.Option(rich_help_panel=MODEL,
                     help="How small singular values are treated."),
    ] = None,
    max_iter: Annotated[
        int | None, typer.Option(rich_help_panel=MODEL, help="Most steps.")
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(rich_help_panel=MODEL, help="Change that ends the fit."),
    ] = None,
    orientation: Annotated[
        Orientation | None,
        typer.Option(rich_help_panel=MODEL, help="Which side carries the kernel."),
    ] = None,
    scale: Annotated[
        Scale,
        typer.Option(rich_help_panel=MODEL,
                     help="Bring columns to one scale; auto does so in tables whose "
                     "columns differ much."),
    ] = Scale.AUTO,
    seed: Annotated[
        int, typer.Option(rich_help_panel=MODEL, help="Seed of the held-out entries.")
    ] = 0,
    engine: Annotated[
        EngineName,
        typer.Option(rich_help_panel=MODEL,
                     help="Where the work is done; auto takes a GPU if there is one. "
                     "See ncarl doctor."),
    ] = EngineName.AUTO,
    dtype: Annotated[
        Precision,
        typer.Option(rich_help_panel=MODEL, help="Precision of the work."),
    ] = Precision.FLOAT64,
    std: Annotated[
        Path | None,
        typer.Option(metavar="OUT2", rich_help_panel=OUTPUT,
                     help="Write standard deviations too, in the format of IN."),
    ] = None,
    save_model: Annotated[
        Path | None,
        typer.Option(metavar="PATH", rich_help_panel=OUTPUT,
                     help="Write the fitted model, for ncarl.load."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="PATH", rich_help_panel=OUTPUT,
                     help="Keep the state here; an interrupted run goes on from it."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", rich_help_panel=OUTPUT,
                     help="Replace files that exist, IN too."),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", rich_help_panel=OUTPUT,
                     help="Print warnings and errors only."),
    ] = False,
) -> None:  # fmt: skip
    """Fill the missing entries of a table, and leave the others as they are.

    Empty cells and NA, N/A, NaN, nan, null, None, NULL, ?, - are missing in text
    files. Columns of text are kept and not used.
    """
    from ncarl.cli.completion import Job, on_terminal, run
    from ncarl.cli.files import ReadOptions

    model = ModelOptions(
        method=method,
        alpha=alpha,
        n_neighbors=n_neighbors,
        gamma=gamma,
        center=center,
        weights=weights,
        max_iter=max_iter,
        tol=tol,
        orientation=orientation,
        seed=seed,
        checkpoint=checkpoint,
        scale=scale,
        std=std is not None,
        engine=engine,
        dtype=dtype,
    )
    job = Job(
        source=source,
        target=target,
        reading=ReadOptions(na or (), label or (), header, delimiter, array),
        model=model,
        std=std,
        saved=save_model,
        overwrite=overwrite,
        progress=on_terminal() and not quiet,
    )
    _report(run(job), quiet)


def _report(done: object, quiet: bool) -> None:
    """Print the summary, and warnings on the error stream."""
    from rich.console import Console

    from ncarl.cli.completion import Done
    from ncarl.cli.summary import print_summary, warning_lines

    assert isinstance(done, Done)
    for line in warning_lines(done):
        typer.echo(f"warning: {line}", err=True)
    if not quiet:
        print_summary(done, Console())

"""``ncarl complete``: fill the missing entries of a table in a file.

These are the options; `complete_run` does the work. Numerical libraries are imported
when the command runs, so that ``ncarl complete --help`` is fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli.console import check_report_path, is_interactive
from ncarl.cli.options import (
    CenterChoice,
    DtypeChoice,
    FitEngineChoice,
    MethodChoice,
    OrientationChoice,
    QuietOption,
    ReportOption,
    ScaleChoice,
    SidesChoice,
    WeightsChoice,
    number_or,
    parse_clip,
    parse_columns,
    parse_level,
    parse_setting,
)

READ_PANEL, MODEL_PANEL, OUTPUT_PANEL = "How to read IN", "Model", "Output"
BAYES_PANEL, NCARL_PANEL = (
    "Only for --method bayes",
    "Only for --method ncarl and ncarl-cv",
)
BASELINES_PANEL = "Only for the other methods"
EXAMPLES = (
    "ncarl complete table.csv -o filled.csv",
    "ncarl complete table.csv -o filled.csv --lower low.csv --upper high.csv",
    "ncarl complete ratings.npz -o filled.npz --method ncarl-cv --report run.html",
    "ncarl complete huge.parquet -o filled.parquet --stream",
)


def complete(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help="CSV, TSV (also .gz), Parquet, NPY, NPZ or Matrix Market; with "
            "--stream also a folder of Parquet files or Zarr. Entries that a sparse "
            "file does not list are missing, not zero.",
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
        typer.Option(
            metavar="TOKEN",
            rich_help_panel=READ_PANEL,
            help="Another text that means missing. Repeatable.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=READ_PANEL,
            help="Column to keep and not to use. Repeatable.",
        ),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            rich_help_panel=READ_PANEL,
            show_default="found out",
            help="Whether the first line names the columns.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=READ_PANEL,
            show_default="found out",
            help="What separates the cells: one character, or 'tab'.",
        ),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=READ_PANEL,
            show_default=".",
            metavar=".|,",
            help="What decimals follow in a text file, a point or a comma; "
            "filled numbers are written with it too.",
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=READ_PANEL,
            help="Which array of an NPZ file to complete.",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            rich_help_panel=READ_PANEL,
            help="Read and write some rows at a time, again in every step: "
            "for tables larger than memory (bayes, ncarl). OUT may be NPY, "
            "Parquet, CSV, TSV or Zarr, whatever IN is.",
        ),
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            parser=parse_columns,
            metavar="NAME,NAME,...",
            rich_help_panel=READ_PANEL,
            help="Which columns of IN to use and write (only with --stream, "
            "which cannot keep columns of text).",
        ),
    ] = None,
    method: Annotated[
        MethodChoice,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            help="bayes learns the noise and gives error bars, with nothing "
            "to tune; ncarl is the model of the paper, and ncarl-cv chooses "
            "those of its parameters that are not given; the others are "
            "baselines.",
        ),
    ] = "bayes",
    center: Annotated[
        CenterChoice | None,
        typer.Option(rich_help_panel=MODEL_PANEL, help="What to subtract first."),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(rich_help_panel=MODEL_PANEL, help="Maximum number of steps."),
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(rich_help_panel=MODEL_PANEL, help="Change that ends the fit."),
    ] = None,
    scale: Annotated[
        ScaleChoice,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            help="Bring columns to one scale; auto does so in tables whose "
            "columns differ much.",
        ),
    ] = "auto",
    validation: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            help="Part of the entries to hold out first (bayes, ncarl-cv, "
            "soft-impute).",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            help="Seed of the held-out entries and of draws.",
        ),
    ] = 0,
    engine: Annotated[
        FitEngineChoice,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            help="Where the work is done; auto takes a GPU if there is one; "
            "dask the workers of DASK_SCHEDULER_ADDRESS, or threads. See "
            "ncarl doctor.",
        ),
    ] = "auto",
    dtype: Annotated[
        DtypeChoice,
        typer.Option(rich_help_panel=MODEL_PANEL, help="Precision of the work."),
    ] = "float64",
    sides: Annotated[
        SidesChoice | None,
        typer.Option(
            rich_help_panel=BAYES_PANEL,
            help="Which sides of the table explain each other; auto takes "
            "both where that is affordable and pays.",
        ),
    ] = None,
    prior_strength: Annotated[
        str | None,
        typer.Option(
            parser=number_or("auto"),
            metavar="auto|FLOAT",
            rich_help_panel=BAYES_PANEL,
            help="Rows that the prior counts as, over the longer side of the "
            "table; auto tries several on held-out entries.",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            parser=number_or("learn", "per-column"),
            metavar="learn|per-column|FLOAT",
            rich_help_panel=BAYES_PANEL,
            help="One noise for all columns, one for each, or its standard deviation.",
        ),
    ] = None,
    clip: Annotated[
        str | None,
        typer.Option(
            parser=parse_clip,
            metavar="auto|none|LOW,HIGH",
            rich_help_panel=BAYES_PANEL,
            help="Where filled values may lie; auto keeps to an end of the "
            "observed range that is reached often, as in ratings.",
        ),
    ] = None,
    rounding: Annotated[
        bool,
        typer.Option(
            "--round",
            rich_help_panel=BAYES_PANEL,
            help="Round filled values to values that were observed.",
        ),
    ] = False,
    alpha: Annotated[
        float | None,
        typer.Option(rich_help_panel=NCARL_PANEL, help="Weight of the graph."),
    ] = None,
    n_neighbors: Annotated[
        int | None,
        typer.Option(rich_help_panel=NCARL_PANEL, help="Neighbors of a column."),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            parser=number_or("none"),
            metavar="FLOAT|none",
            rich_help_panel=NCARL_PANEL,
            help="Noise level; 'none' is the exact model.",
        ),
    ] = None,
    weights: Annotated[
        WeightsChoice | None,
        typer.Option(
            rich_help_panel=NCARL_PANEL, help="How small singular values are treated."
        ),
    ] = None,
    orientation: Annotated[
        OrientationChoice | None,
        typer.Option(
            rich_help_panel=NCARL_PANEL, help="Which side carries the kernel."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            parser=parse_setting,
            metavar="NAME=VALUE",
            rich_help_panel=BASELINES_PANEL,
            help="A parameter of the estimator, such as p=0.5, rank=20 or "
            "lam=auto. Repeatable.",
        ),
    ] = None,
    std: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT2",
            rich_help_panel=OUTPUT_PANEL,
            help="Write standard deviations too, in the format of IN.",
        ),
    ] = None,
    lower: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=OUTPUT_PANEL,
            help="Write lower ends of intervals, in the format of IN; "
            "observed entries stay as they are (bayes).",
        ),
    ] = None,
    upper: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=OUTPUT_PANEL,
            help="Write upper ends of intervals (bayes).",
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            parser=parse_level,
            metavar="FLOAT",
            rich_help_panel=OUTPUT_PANEL,
            show_default="0.9",
            help="Nominal coverage of the intervals.",
        ),
    ] = None,
    imputations: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            rich_help_panel=OUTPUT_PANEL,
            help="Draw N completed tables, for multiple imputation (bayes).",
        ),
    ] = None,
    imputations_out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH.npz",
            rich_help_panel=OUTPUT_PANEL,
            help="Where they go: an array 'imputations', N x rows x columns.",
        ),
    ] = None,
    save_model: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=OUTPUT_PANEL,
            help="Write the fitted model, for ncarl.load.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=OUTPUT_PANEL,
            help="Keep the state here; an interrupted run goes on from it.",
        ),
    ] = None,
    report: ReportOption = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            rich_help_panel=OUTPUT_PANEL,
            help="Replace files that exist, IN too.",
        ),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Fill the missing entries of a table, and leave the others as they are.

    Empty cells and NA, N/A, NaN, nan, null, None, NULL, ?, - are missing in text
    files. Columns of text are kept and not used.
    """
    from ncarl.cli.complete_report import print_complete_report, write_complete_page
    from ncarl.cli.complete_run import CompleteJob, run_complete, run_complete_stream
    from ncarl.cli.models import ModelOptions, OutputOptions
    from ncarl.io.tables import ReadOptions

    check_report_path(report, source)
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
        sides=sides,
        prior_strength=prior_strength,
        noise=noise,
        clip=clip,
        rounding=rounding,
        validation=validation,
        seed=seed,
        checkpoint=checkpoint,
        scale=scale,
        needs_std=std is not None,
        engine=engine,
        dtype=dtype,
        settings=tuple(settings or ()),  # type: ignore[arg-type]  # parsed to pairs
    )
    outputs = OutputOptions(
        target,
        std,
        lower,
        upper,
        level,
        imputations,
        imputations_out,
        save_model,
        overwrite,
    )
    shown = is_interactive(quiet)
    reading = ReadOptions(
        na or (), label or (), header, delimiter, array, shown, decimal
    )
    job = CompleteJob(
        source, reading, model, outputs, shown, columns, report is not None
    )
    result = run_complete_stream(job) if stream else run_complete(job)
    print_complete_report(result, quiet=quiet)
    if report is not None:
        write_complete_page(result, report, quiet=quiet)

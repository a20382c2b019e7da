"""``ncarl complete``: impute the missing entries of a table in a file.

These are the options; `complete_run` does the work. Numerical libraries are imported
when the command runs, so that ``ncarl complete --help`` is fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli.console import check_report_path, is_interactive
from ncarl.cli.options import (
    FIT_PANEL,
    OUTPUT_PANEL,
    READ_PANEL,
    ArrayOption,
    CenterChoice,
    DecimalOption,
    DelimiterOption,
    DtypeChoice,
    FitEngineChoice,
    HeaderOption,
    LabelOption,
    MethodChoice,
    NaOption,
    OrientationChoice,
    OverwriteOption,
    QuietOption,
    ReportOption,
    ScaleOption,
    SidesChoice,
    WeightsChoice,
    number_or,
    option,
    parse_clip,
    parse_columns,
    parse_level,
    parse_setting,
)

BAYES_PANEL = "Only for --method bayes"
NCARL_PANEL = "Only for --method ncarl and ncarl-cv"
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
    na: NaOption = None,
    label: LabelOption = None,
    header: HeaderOption = None,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = None,
    array: ArrayOption = None,
    stream: Annotated[
        bool,
        option(
            READ_PANEL,
            "Read and write chunks of rows, again in every step: for tables larger "
            "than memory (bayes, ncarl). OUT may be NPY, Parquet, CSV, TSV or Zarr, "
            "whatever IN is.",
            "--stream",
        ),
    ] = False,
    columns: Annotated[
        str | None,
        option(
            READ_PANEL,
            "Columns of IN to use and write (only with --stream, which cannot keep "
            "columns of text).",
            parser=parse_columns,
            metavar="NAME,NAME,...",
        ),
    ] = None,
    method: Annotated[
        MethodChoice,
        option(
            FIT_PANEL,
            "bayes learns the noise and gives error bars, with nothing to tune; ncarl "
            "is the model of the paper, and ncarl-cv cross-validates those of its "
            "parameters that are not given; the others are baselines.",
        ),
    ] = "bayes",
    center: Annotated[
        CenterChoice | None, option(FIT_PANEL, "What to subtract before the fit.")
    ] = None,
    max_iter: Annotated[
        int | None, option(FIT_PANEL, "Maximum number of iterations.")
    ] = None,
    tol: Annotated[
        float | None, option(FIT_PANEL, "Tolerance of the stopping criterion.")
    ] = None,
    scale: ScaleOption = "auto",
    validation: Annotated[
        float | None,
        option(
            FIT_PANEL,
            "Fraction of the entries to hold out for validation (bayes, ncarl-cv, "
            "soft-impute).",
        ),
    ] = None,
    seed: Annotated[
        int, option(FIT_PANEL, "Random seed of the held-out entries and of draws.")
    ] = 0,
    engine: Annotated[
        FitEngineChoice,
        option(
            FIT_PANEL,
            "Where the computation runs; auto uses a GPU if there is one; dask the "
            "workers of DASK_SCHEDULER_ADDRESS, or threads. See ncarl doctor.",
        ),
    ] = "auto",
    dtype: Annotated[
        DtypeChoice, option(FIT_PANEL, "Precision of the computation.")
    ] = "float64",
    sides: Annotated[
        SidesChoice | None,
        option(
            BAYES_PANEL,
            "Whether columns, rows or both have a kernel; auto uses both where that "
            "is affordable and improves the validation error.",
        ),
    ] = None,
    prior_strength: Annotated[
        str | None,
        option(
            BAYES_PANEL,
            "Number of rows that the prior counts as, over the longer side of the "
            "table; auto chooses it on held-out entries.",
            parser=number_or("auto"),
            metavar="auto|FLOAT",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        option(
            BAYES_PANEL,
            "One noise for all columns, one for each, or its standard deviation.",
            parser=number_or("learn", "per-column"),
            metavar="learn|per-column|FLOAT",
        ),
    ] = None,
    clip: Annotated[
        str | None,
        option(
            BAYES_PANEL,
            "Bounds of imputed values; auto uses an end of the observed range that "
            "is reached often, as in ratings.",
            parser=parse_clip,
            metavar="auto|none|LOW,HIGH",
        ),
    ] = None,
    rounding: Annotated[
        bool,
        option(BAYES_PANEL, "Round imputed values to observed values.", "--round"),
    ] = False,
    alpha: Annotated[
        float | None, option(NCARL_PANEL, "Weight of the graph regularization.")
    ] = None,
    n_neighbors: Annotated[
        int | None, option(NCARL_PANEL, "Number of neighbors of a column.")
    ] = None,
    gamma: Annotated[
        str | None,
        option(
            NCARL_PANEL,
            "Noise level; 'none' is the exact model.",
            parser=number_or("none"),
            metavar="FLOAT|none",
        ),
    ] = None,
    weights: Annotated[
        WeightsChoice | None, option(NCARL_PANEL, "Weights of small singular values.")
    ] = None,
    orientation: Annotated[
        OrientationChoice | None, option(NCARL_PANEL, "Which side has the kernel.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        option(
            BASELINES_PANEL,
            "A parameter of the estimator, such as p=0.5, rank=20 or lam=auto. "
            "Repeatable.",
            "--set",
            parser=parse_setting,
            metavar="NAME=VALUE",
        ),
    ] = None,
    std: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL,
            "Write standard deviations, in the format of IN.",
            metavar="PATH",
        ),
    ] = None,
    lower: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL,
            "Write lower bounds of intervals, in the format of IN; observed entries "
            "stay as they are (bayes).",
            metavar="PATH",
        ),
    ] = None,
    upper: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL, "Write upper bounds of intervals (bayes).", metavar="PATH"
        ),
    ] = None,
    level: Annotated[
        float | None,
        option(
            OUTPUT_PANEL,
            "Nominal coverage of the intervals.",
            parser=parse_level,
            metavar="FLOAT",
            show_default="0.9",
        ),
    ] = None,
    imputations: Annotated[
        int | None,
        option(
            OUTPUT_PANEL,
            "Draw N completed tables, for multiple imputation (bayes).",
            min=1,
            metavar="N",
        ),
    ] = None,
    imputations_out: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL,
            "Where they go: an array 'imputations', N x rows x columns.",
            metavar="PATH.npz",
        ),
    ] = None,
    save_model: Annotated[
        Path | None,
        option(OUTPUT_PANEL, "Write the fitted model, for ncarl.load.", metavar="PATH"),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        option(
            OUTPUT_PANEL,
            "Checkpoint of the fit; an interrupted run resumes from it.",
            metavar="PATH",
        ),
    ] = None,
    report: ReportOption = None,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
) -> None:
    """Impute the missing entries of a table, and keep the observed ones as they are.

    Empty cells and NA, N/A, NaN, nan, null, None, NULL, ?, - are missing in text
    files. Columns of text are kept and not used.
    """
    from ncarl.cli.complete_report import print_completion, write_complete_page
    from ncarl.cli.complete_run import CompleteJob, run_complete, run_complete_stream
    from ncarl.cli.models import ModelOptions
    from ncarl.io.tables import ReadOptions

    check_report_path(report, source)
    if columns is not None and not stream:
        raise ValueError(
            "--columns goes with --stream; without it columns of text are kept, and "
            "--label names others to leave out"
        )
    params = {
        "center": center,
        "max_iter": max_iter,
        "tol": tol,
        "validation": validation,
        "sides": sides,
        "prior_strength": prior_strength,
        "noise": noise,
        "clip": clip,
        "round": rounding or None,
        "alpha": alpha,
        "n_neighbors": n_neighbors,
        "gamma": gamma,
        "weights": weights,
        "orientation": orientation,
        "checkpoint": checkpoint,
    }
    outputs = {
        "OUT": target,
        "--std": std,
        "--lower": lower,
        "--upper": upper,
        "--imputations-out": imputations_out,
        "--save-model": save_model,
    }
    progress = is_interactive(quiet)
    job = CompleteJob(
        source,
        ReadOptions(na or (), label or (), header, delimiter, array, progress, decimal),
        ModelOptions(
            method,
            scale,
            seed,
            engine,
            dtype,
            {name: value for name, value in params.items() if value is not None},
            settings or (),  # type: ignore[arg-type]  # parsed to pairs
        ),
        {flag: path for flag, path in outputs.items() if path is not None},
        level,
        imputations,
        overwrite,
        progress,
    )
    if stream:
        result = run_complete_stream(job, columns, with_overview=report is not None)
    else:
        result = run_complete(job)
    print_completion(result, quiet=quiet)
    if report is not None:
        write_complete_page(result, report, quiet=quiet)

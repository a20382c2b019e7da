"""``ncarl complete``: impute the missing entries of a table in a file.

These are the options; `complete_run` does the work. Numerical libraries are imported
when the command runs, so that ``ncarl complete --help`` is fast.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ncarl.cli import console, options as opt
from ncarl.cli.options import fit_option, output_option, read_option

bayes_option = partial(opt.option, "Only for --method bayes")
ncarl_option = partial(opt.option, "Only for --method ncarl and ncarl-cv")
baselines_option = partial(opt.option, "Only for the other methods")
EXAMPLES = (
    "ncarl complete table.csv -o filled.csv",
    "ncarl complete table.csv -o filled.csv --lower low.csv --upper high.csv",
    "ncarl complete ratings.npz -o filled.npz --method ncarl-cv --report run.html",
    "ncarl complete huge.parquet -o filled.parquet --stream",
)


@opt.takes_read_options
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
    reading: Any,  # `ReadOptions`, whose module loads NumPy
    stream: Annotated[
        bool,
        read_option(
            "Read and write chunks of rows, again in every step: for tables larger "
            "than memory (bayes, ncarl). OUT may be NPY, Parquet, CSV, TSV or Zarr, "
            "whatever IN is.",
            "--stream",
        ),
    ] = False,
    columns: Annotated[
        str | None,
        read_option(
            "Columns of IN to use and write (only with --stream, which cannot keep "
            "columns of text).",
            parser=opt.parse_columns,
            metavar="NAME,NAME,...",
        ),
    ] = None,
    method: Annotated[
        opt.MethodChoice,
        fit_option(
            "bayes learns the noise and gives error bars, with nothing to tune; ncarl "
            "is the model of the paper, and ncarl-cv cross-validates those of its "
            "parameters that are not given; the others are baselines."
        ),
    ] = "bayes",
    center: Annotated[
        opt.CenterChoice | None, fit_option("What to subtract before the fit.")
    ] = None,
    max_iter: Annotated[int | None, fit_option("Maximum number of iterations.")] = None,
    tol: Annotated[
        float | None, fit_option("Tolerance of the stopping criterion.")
    ] = None,
    scale: opt.ScaleOption = "auto",
    validation: Annotated[
        float | None,
        fit_option(
            "Fraction of the entries to hold out for validation (bayes, ncarl-cv, "
            "soft-impute)."
        ),
    ] = None,
    seed: Annotated[
        int, fit_option("Random seed of the held-out entries and of draws.")
    ] = 0,
    engine: Annotated[
        opt.FitEngineChoice,
        fit_option(
            "Where the computation runs; auto uses a GPU if there is one; dask the "
            "workers of DASK_SCHEDULER_ADDRESS, or threads. See ncarl doctor."
        ),
    ] = "auto",
    dtype: Annotated[
        opt.DtypeChoice, fit_option("Precision of the computation.")
    ] = "float64",
    sides: Annotated[
        opt.SidesChoice | None,
        bayes_option(
            "Whether columns, rows or both have a kernel; auto uses both where that "
            "is affordable and improves the validation error."
        ),
    ] = None,
    prior_strength: Annotated[
        str | None,
        bayes_option(
            "Number of rows that the prior counts as, over the longer side of the "
            "table; auto chooses it on held-out entries.",
            parser=opt.number_or("auto"),
            metavar="auto|FLOAT",
        ),
    ] = None,
    noise: Annotated[
        str | None,
        bayes_option(
            "One noise for all columns, one for each, or its standard deviation.",
            parser=opt.number_or("learn", "per-column"),
            metavar="learn|per-column|FLOAT",
        ),
    ] = None,
    clip: Annotated[
        str | None,
        bayes_option(
            "Bounds of imputed values; auto uses an end of the observed range that "
            "is reached often, as in ratings.",
            parser=opt.parse_clip,
            metavar="auto|none|LOW,HIGH",
        ),
    ] = None,
    rounding: Annotated[
        bool, bayes_option("Round imputed values to observed values.", "--round")
    ] = False,
    components: Annotated[
        str | None,
        bayes_option(
            "Number of normal distributions of the rows, for tables with several kinds "
            "of rows; auto chooses it on held-out entries.",
            parser=opt.number_or("auto", whole=True),
            metavar="auto|INT",
        ),
    ] = None,
    alpha: Annotated[
        float | None, ncarl_option("Weight of the graph regularization.")
    ] = None,
    n_neighbors: Annotated[
        int | None, ncarl_option("Number of neighbors of a column.")
    ] = None,
    gamma: Annotated[
        str | None,
        ncarl_option(
            "Noise level; 'none' is the exact model.",
            parser=opt.number_or("none"),
            metavar="FLOAT|none",
        ),
    ] = None,
    weights: Annotated[
        opt.WeightsChoice | None, ncarl_option("Weights of small singular values.")
    ] = None,
    orientation: Annotated[
        opt.OrientationChoice | None, ncarl_option("Which side has the kernel.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        baselines_option(
            "A parameter of the estimator, such as p=0.5, rank=20 or lam=auto. "
            "Repeatable.",
            "--set",
            parser=opt.parse_setting,
            metavar="NAME=VALUE",
        ),
    ] = None,
    std: Annotated[
        Path | None,
        output_option(
            "Write standard deviations, in the format of IN.", metavar="PATH"
        ),
    ] = None,
    lower: Annotated[
        Path | None,
        output_option(
            "Write lower bounds of intervals, in the format of IN; observed entries "
            "stay as they are (bayes).",
            metavar="PATH",
        ),
    ] = None,
    upper: Annotated[
        Path | None,
        output_option("Write upper bounds of intervals (bayes).", metavar="PATH"),
    ] = None,
    level: Annotated[float | None, opt.level_option(show_default="0.9")] = None,
    imputations: Annotated[
        int | None,
        output_option(
            "Draw N completed tables, for multiple imputation (bayes).",
            min=1,
            metavar="N",
        ),
    ] = None,
    imputations_out: Annotated[
        Path | None,
        output_option(
            "Write the draws: an array 'imputations', N x rows x columns.",
            metavar="PATH.npz",
        ),
    ] = None,
    save_model: Annotated[
        Path | None,
        output_option("Write the fitted model, for ncarl.load.", metavar="PATH"),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        output_option(
            "Checkpoint of the fit; an interrupted run resumes from it.", metavar="PATH"
        ),
    ] = None,
    report: opt.ReportOption = None,
    overwrite: opt.OverwriteOption = False,
    quiet: opt.QuietOption = False,
) -> None:
    """Impute the missing entries of a table, and keep the observed ones as they are.

    Empty cells and NA, N/A, NaN, nan, null, None, NULL, ?, - are missing in text
    files. Columns of text are kept and not used; rows and columns without any
    observed number stay empty.
    """
    from ncarl.cli import complete_report
    from ncarl.cli.complete_run import CompleteJob, run_complete, run_complete_stream
    from ncarl.cli.models import ModelOptions

    console.check_report_path(report, source)
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
        "components": components,
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
    progress = console.is_interactive(quiet)
    job = CompleteJob(
        source,
        replace(reading, progress=progress),
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
    console.print_warnings(complete_report.warning_lines(result))
    if not quiet:
        console.print_fields(complete_report.summary_fields(result))
    if report is not None:
        complete_report.write_complete_page(result, report, quiet=quiet)

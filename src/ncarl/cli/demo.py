"""``ncarl demo``: complete a photograph and a table whose truth is known."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

from ncarl import __version__
from ncarl.centering import fit_centering
from ncarl.cli.console import check_report_path, is_interactive, write_page
from ncarl.cli.models import ModelOptions, build_estimator
from ncarl.cli.options import ReportOption
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.datasets import load_sample_image
from ncarl.datasets.catalog import dataset_info
from ncarl.html import Page
from ncarl.io.files import atomic_write
from ncarl.metrics import rmse
from ncarl.observations import Observations
from ncarl.plots import (
    ImagePanel,
    before_after,
    convergence,
    error_bars,
    save_figure,
    similarity_map,
)

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = (
    "ncarl demo",
    "ncarl demo --quick --out pictures",
)
PHOTO_CREDIT = dataset_info("china").citation
#: Nominal coverage of the intervals.
INTERVAL_LEVEL = 0.9
#: Hidden cells whose error bars are drawn, at most.
MAX_ERROR_BARS = 60
#: Columns of errors: baselines, then methods of ``ncarl complete``.
METHOD_COLUMNS = ("mean", "two-way", "ncarl-cv", "bayes")
FOOTNOTE = (
    "Errors are root mean squares over the hidden entries: gray levels from 0 to 1 in "
    "the photo, standard deviations of the column in the table (scikit-learn's breast "
    "cancer data). 'mean' and 'two-way' are baselines: the mean (of the column in the "
    "table), and row plus column effects. 'bayes' is the default of ncarl complete; "
    "'in 90%' is the actual coverage of its 90% intervals. No method sees a hidden "
    "entry. ncarl-cv chooses its parameters on entries held out one by one, bayes on "
    "entries held out in the pattern of the missing ones."
)
#: Captions of the figures of a case, by the end of their name.
CAPTIONS = {
    ".png": "{}: before, after, and the truth.",
    "-intervals.png": "{}: hidden cells against what was filled in, with intervals.",
    "-correlation.png": "{}: learned correlation of its {}.",
}


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures and results.json.")
    ] = Path("ncarl-demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller photo, for a first look.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the hidden entries and of the search.")
    ] = 0,
    report: ReportOption = None,
) -> None:
    """Complete a photograph and a table with known truth, and draw the results.

    Everything comes with scikit-learn; nothing is downloaded. Files of the same names
    in the folder are replaced.
    """
    from rich.console import Console

    check_report_path(report)
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    results = []
    for case in make_cases(quick, seed):
        m, n = case.truth.shape
        console.print(f"completing {case.title} ({m} x {n}) ...", highlight=False)
        results.append(run_case(case, seed, is_interactive()))
    files = draw_demo_figures(results, out)
    files.append(write_results(results, out, quick=quick, seed=seed))
    console.print("", results_table(results), "", FOOTNOTE, sep="\n", highlight=False)
    fits = [fit for result in results for fit in result.fits.values()]
    if not all(fit.estimator.converged_ for fit in fits):
        console.print("* not converged within the allowed steps", highlight=False)
    console.print(f"\nwritten to {out}:", highlight=False, soft_wrap=True)
    for path in files:
        console.print(f"  {path.name}", highlight=False)
    if report is not None:
        write_demo_page(results, files, report)


@dataclass(frozen=True)
class DemoCase:
    """A matrix with known truth."""

    name: str  # part of file names
    title: str  # in the printed table
    truth: Array
    hidden: Array  # boolean; entries that the fit does not see, on which errors are
    columns: Sequence[str] = ()  # names; empty for a picture

    @property
    def observed_matrix(self) -> Array:
        """The matrix as the fit sees it, NaN in hidden entries."""
        return np.where(self.hidden, np.nan, self.truth)

    @property
    def is_table(self) -> bool:
        """Whether every column has units of its own."""
        return len(self.columns) > 0

    def column_units(self) -> Array:
        """Units of errors: standard deviations of the columns, or 1 in a picture."""
        n = self.truth.shape[1]
        return np.nanstd(self.observed_matrix, axis=0) if self.is_table else np.ones(n)


@dataclass(frozen=True)
class DemoFit:
    """The fit of one method to a case."""

    estimator: Any
    filled: Array
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The fit as JSON values."""
        est = self.estimator
        return {
            "steps": int(est.n_iter_),
            "converged": bool(est.converged_),
            "seconds": round(self.seconds, 2),
            "engine": est.engine_,
        }


@dataclass(frozen=True)
class DemoResult:
    """A case, its completions, and errors by method.

    Attributes
    ----------
    fits : mapping of str to DemoFit
        By method of ``ncarl complete``.
    errors : mapping of str to float
        Root mean square errors on the hidden entries, those of baselines too.
    lower, upper : arrays of shape (hidden entries,)
        Ends of the intervals of ``bayes_estimator``.
    """

    case: DemoCase
    fits: Mapping[str, DemoFit]
    errors: Mapping[str, float]
    lower: Array
    upper: Array

    @property
    def bayes_estimator(self) -> Any:
        """The fitted default model."""
        return self.fits["bayes"].estimator

    @property
    def completed_matrix(self) -> Array:
        """The matrix as the default model completed it."""
        return self.fits["bayes"].filled

    @property
    def in_interval(self) -> Array:
        """Which hidden entries lie in their interval."""
        truth = self.case.truth[self.case.hidden]
        inside: Array = (truth >= self.lower) & (truth <= self.upper)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON values."""
        case, est = self.case, self.bayes_estimator
        search = self.fits["ncarl-cv"].estimator
        return {
            "name": case.name,
            "data": case.title,
            "shape": list(case.truth.shape),
            "missing_share": float(case.hidden.mean()),
            "error_unit": "column standard deviations" if case.is_table else "gray 0-1",
            "rmse_on_hidden": dict(self.errors),
            "bayes": {
                **self.fits["bayes"].to_dict(),
                "sides": est.sides_,
                "weight_of_columns": float(est.weight_),
                "similar_rows": est.neighbor_correction_,
                "prior_strength": float(est.prior_strength_),
                "calibration": float(est.calibration_),
                "interval_level": INTERVAL_LEVEL,
                "hidden_in_interval": float(self.in_interval.mean()),
            },
            "ncarl-cv": {
                **self.fits["ncarl-cv"].to_dict(),
                "chosen": dict(search.best_params_),
                "relative_error_held_out": float(search.best_error_),
            },
        }


def make_cases(quick: bool, seed: int) -> list[DemoCase]:
    """The three cases; the same seed hides the same entries."""
    picture = load_sample_image("china", step=8 if quick else 2)
    # Separate generators: the table must not depend on the size of the picture.
    pixels, cells = np.random.default_rng(seed).spawn(2)
    half = pixels.random(picture.shape) < 0.5
    side = 12 if quick else 50
    block = np.zeros(picture.shape, dtype=bool)
    top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
    block[top : top + side, left : left + side] = True
    table = load_breast_cancer()
    holes = cells.random(table.data.shape) < 0.2
    names = [str(name) for name in table.feature_names]
    return [
        DemoCase("photo-half", "photo, half hidden", picture, half),
        DemoCase("photo-block", "photo, block hidden", picture, block),
        DemoCase("table", "table, 20% hidden", table.data, holes, names),
    ]


def run_case(case: DemoCase, seed: int, progress: bool) -> DemoResult:
    """Complete a case with the defaults of ``ncarl complete``, and its errors."""
    fits = {
        str(method): fit_case(case, method, seed, progress)
        for method in ("ncarl-cv", "bayes")
    }
    predictions = {
        "mean": mean_fill(case),
        "two-way": two_way_fill(case),
        **{name: fit.filled for name, fit in fits.items()},
    }
    errors = {name: hidden_rmse(case, X) for name, X in predictions.items()}
    places = np.nonzero(case.hidden)
    ends = fits["bayes"].estimator.predict_interval(*places, level=INTERVAL_LEVEL)
    return DemoResult(case, fits, errors, *ends)


def fit_case(case: DemoCase, method: str, seed: int, progress: bool) -> DemoFit:
    """Complete a case by one method."""
    options = ModelOptions(method=method, seed=seed)
    scale = "columns" if case.is_table else None
    estimator = build_estimator(options, scale=scale, progress=progress)
    start = time.perf_counter()
    with warnings.catch_warnings():
        # The table of results says whether the fit converged.
        warnings.simplefilter("ignore")
        filled = estimator.fit_transform(case.observed_matrix)
    return DemoFit(estimator, filled, time.perf_counter() - start)


def hidden_rmse(case: DemoCase, prediction: Array) -> float:
    """Root mean square error on the hidden entries, in the units of the case."""
    units = case.column_units()
    return rmse((case.truth / units)[case.hidden], (prediction / units)[case.hidden])


def mean_fill(case: DemoCase) -> Array:
    """The mean of the observed pixels, or of each column of a table."""
    mean = np.nanmean(case.observed_matrix, axis=0 if case.is_table else None)
    return np.broadcast_to(mean, case.truth.shape)


def two_way_fill(case: DemoCase) -> Array:
    """Row effects plus column effects, in units of the columns."""
    units = case.column_units()
    shift = np.nanmean(case.observed_matrix, axis=0) if case.is_table else 0.0
    observed = Observations.from_dense((case.observed_matrix - shift) / units)
    center = fit_centering(InMemoryDataset(observed), "two-way", scaled=False)
    rows = center.row_effects(observed)
    effects = center.mean + rows[:, None] + center.column_effects[None, :]
    filled: Array = effects * units + shift
    return filled


def results_table(results: Sequence[DemoResult]) -> Table:
    """The results for the terminal, the least error of each case in bold."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("data", no_wrap=True)
    for name in ("missing", *METHOD_COLUMNS[:2]):
        table.add_column(name, justify="right", no_wrap=True)
    for name in METHOD_COLUMNS[2:]:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("sec", justify="right", no_wrap=True)
    table.add_column("in 90%", justify="right", no_wrap=True)
    for result in results:
        row = [result.case.title, f"{result.case.hidden.mean():.1%}"]
        for name in METHOD_COLUMNS:
            row.append(_format_error(result, name))
            if name in result.fits:
                row.append(f"{result.fits[name].seconds:.1f}")
        table.add_row(*row, f"{result.in_interval.mean():.1%}")
    return table


def _format_error(result: DemoResult, name: str) -> str:
    """The error of a method: bold if least, starred if the fit did not converge."""
    text = f"{result.errors[name]:.3f}"
    if result.errors[name] == min(result.errors.values()):
        text = f"[bold]{text}[/bold]"
    fit = result.fits.get(name)
    return text if fit is None or fit.estimator.converged_ else f"{text}*"


def write_results(
    results: Sequence[DemoResult], folder: Path, *, quick: bool, seed: int
) -> Path:
    """Write all results as JSON; the file written."""
    content = {
        "ncarl": __version__,
        "quick": quick,
        "seed": seed,
        "credit": PHOTO_CREDIT,
        "cases": [result.to_dict() for result in results],
    }
    target = folder / "results.json"
    with atomic_write(target) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return target


def draw_demo_figures(results: Sequence[DemoResult], folder: Path) -> list[Path]:
    """Draw all figures into a folder; the files written."""
    figures: dict[str, Figure] = {}
    for result in results:
        name = result.case.name
        if result.case.is_table:
            figures[f"{name}-intervals.png"] = draw_intervals(result)
        else:
            figures[f"{name}.png"] = draw_picture(result)
        figures[f"{name}-correlation.png"] = draw_correlation(result)
    curves = {r.case.title: r.bayes_estimator.history_["change"] for r in results}
    figures["convergence.png"] = convergence(
        curves,
        label="gain in log evidence per observed entry",
        title="Steps of bayes, up to the least error on held-out entries",
    )
    return [save_figure(figure, folder / name) for name, figure in figures.items()]


def draw_picture(result: DemoResult) -> Figure:
    """Before, after and truth of a photograph."""
    case, errors = result.case, result.errors
    share = case.hidden.mean()
    panels = [
        ImagePanel(case.observed_matrix, f"before: {share:.0%} hidden",
              f"errors: mean {errors['mean']:.3f}, two-way {errors['two-way']:.3f}"),
        ImagePanel(result.completed_matrix, "after: completed by bayes",
              f"error {errors['bayes']:.3f}; ncarl-cv {errors['ncarl-cv']:.3f}"),
        ImagePanel(case.truth, "truth", "errors: RMSE on hidden pixels, gray 0 to 1"),
    ]  # fmt: skip
    return before_after(panels, credit=PHOTO_CREDIT)


def draw_intervals(result: DemoResult) -> Figure:
    """Filled values of some hidden cells against the truth, with error bars."""
    case = result.case
    i, j = np.nonzero(case.hidden)
    some = np.random.default_rng(0).permutation(len(i))[:MAX_ERROR_BARS]
    middle, units = np.nanmean(case.observed_matrix, axis=0)[j], case.column_units()[j]
    truth, filled, low, high = (
        ((values - middle) / units)[some]
        for values in (case.truth[i, j], result.completed_matrix[i, j],
                       result.lower, result.upper)
    )  # fmt: skip
    title = (
        f"{INTERVAL_LEVEL:.0%} intervals cover {result.in_interval.mean():.1%} of all "
        f"{len(i)} hidden cells;\n{len(some)} of them, chosen at random"
    )
    unit = "standard deviations from the column's mean"
    return error_bars(truth, filled, low, high, title=title, unit=unit)


def draw_correlation(result: DemoResult) -> Figure:
    """The correlation of columns (or rows) that the fit learned."""
    case, est = result.case, result.bayes_estimator
    side = "row" if est.transposed_ else "column"
    names = None if est.transposed_ or not case.is_table else case.columns
    return similarity_map(
        covariance_to_correlation(est.kernel_),
        title=f"Learned correlation of {side}s: {case.title}",
        names=names,
        label="correlation",
        axis=f"{side} of pixels" if not case.is_table else side,
        vmax=1.0,
    )


def covariance_to_correlation(K: Array) -> Array:
    """The correlation matrix of a covariance."""
    deviations = np.sqrt(np.diag(K))
    scaled: Array = np.clip(K / np.outer(deviations, deviations), -1.0, 1.0)
    return scaled


def write_demo_page(
    results: Sequence[DemoResult], files: Sequence[Path], path: Path
) -> None:
    """Write the page of a demonstration."""
    write_page(build_demo_page(results, files), path, [("photograph", PHOTO_CREDIT)])


def build_demo_page(results: Sequence[DemoResult], files: Sequence[Path]) -> Page:
    """The page of a demonstration, with the pictures that were drawn."""
    best = min(r.errors["bayes"] / r.errors["mean"] for r in results)
    coverages = [float(r.in_interval.mean()) for r in results]
    page = Page(
        "ncarl demo",
        "Entries of a photograph and of a table were hidden and filled in again by the "
        "default model, which left as little as "
        f"{best:.0%} of the error of a plain mean. Its {INTERVAL_LEVEL:.0%} intervals "
        f"covered {min(coverages):.0%} to {max(coverages):.0%} of the hidden entries.",
    )
    page.table(
        ("data", "hidden", *METHOD_COLUMNS, "in 90%"),
        [
            (
                result.case.title,
                f"{result.case.hidden.mean():.1%}",
                *(f"{result.errors[name]:.3f}" for name in METHOD_COLUMNS),
                f"{result.in_interval.mean():.1%}",
            )
            for result in results
        ],
    )
    page.text(FOOTNOTE)
    pictures = {path.name: path for path in files if path.suffix == ".png"}
    for result in results:
        page.heading(result.case.title)
        for ending, words in CAPTIONS.items():
            found = pictures.get(f"{result.case.name}{ending}")
            if found is not None:
                side = "rows" if result.bayes_estimator.transposed_ else "columns"
                page.picture(found, words.format(result.case.title, side))
    if "convergence.png" in pictures:
        page.heading("Convergence")
        page.picture(pictures["convergence.png"], "What each step gained.")
    return page

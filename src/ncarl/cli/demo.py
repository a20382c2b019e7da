"""``ncarl demo``: complete a photograph and a table whose truth is known."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

from ncarl import __version__
from ncarl.centering import fit_centering
from ncarl.cli import console, options as opt
from ncarl.cli.models import ModelOptions, build_estimator
from ncarl.core.linalg import correlation_from_covariance
from ncarl.core.types import Array, cached_property
from ncarl.dataset import InMemoryDataset
from ncarl.datasets import load_sample_image
from ncarl.datasets.catalog import dataset_info
from ncarl.evaluation.comparison import INTERVAL_LEVEL
from ncarl.html import Page
from ncarl.io.files import write_json
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

EXAMPLES = ("ncarl demo", "ncarl demo --quick --out pictures")
PHOTO_CREDIT = dataset_info("china").citation
#: Hidden cells whose error bars are drawn, at most.
MAX_ERROR_BARS = 60
FOOTNOTE = (
    "Errors are root mean squares over the hidden entries: gray levels from 0 to 1 in "
    "the photo, standard deviations of the column in the table (scikit-learn's breast "
    "cancer data). 'mean' and 'two-way' are baselines: the mean (of the column in the "
    "table), and row plus column effects. 'bayes' is the default of ncarl complete; "
    f"'in {INTERVAL_LEVEL:.0%}' is the actual coverage of its intervals. No method "
    "sees a hidden entry. ncarl-cv chooses its parameters on entries held out one by "
    "one, bayes on entries held out in the pattern of the missing ones."
)


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
    report: opt.ReportOption = None,
) -> None:
    """Complete a photograph and a table with known truth, and draw the results.

    Everything comes with scikit-learn; nothing is downloaded. Files of the same names
    in the folder are replaced.
    """
    console.check_report_path(report)
    console.prepare_folder(out, "*.png", "results.json")
    results = []
    for case in make_cases(quick, seed):
        m, n = case.truth.shape
        console.print_text(f"completing {case.title} ({m} x {n}) ...")
        results.append(run_case(case, seed, console.is_interactive()))
    captions = _save_figures(results, out)
    about = {"ncarl": __version__, "quick": quick, "seed": seed}
    about |= {"credit": PHOTO_CREDIT, "cases": [one.to_dict() for one in results]}
    write_json(out / "results.json", about)
    console.print_text()
    console.print_table(*_results_table(results))
    console.print_text(FOOTNOTE)
    fits = [fit for result in results for fit in result.fits.values()]
    if not all(fit.estimator.converged_ for fit in fits):
        console.print_text("* not converged within the allowed steps")
    console.print_text(f"\nwritten to {out}:")
    for name in (*(path.name for path in captions), "results.json"):
        console.print_text(f"  {name}")
    if report is not None:
        page = build_demo_page(results, captions)
        console.write_page(page, report, [("photograph", PHOTO_CREDIT)])


@dataclass(frozen=True)
class DemoCase:
    """A matrix with known truth."""

    name: str  # part of file names
    title: str  # in the printed table
    truth: Array
    hidden: Array  # boolean; held-out entries, on which errors are computed
    columns: Sequence[str] = ()  # names; empty for a picture

    @property
    def is_table(self) -> bool:
        """Whether every column has units of its own."""
        return len(self.columns) > 0

    @cached_property
    def observed_matrix(self) -> Array:
        """The matrix with NaN in hidden entries."""
        return np.where(self.hidden, np.nan, self.truth)

    @cached_property
    def column_units(self) -> Array:
        """Units of errors: standard deviations of the columns, or 1 in a picture."""
        n = self.truth.shape[1]
        return np.nanstd(self.observed_matrix, axis=0) if self.is_table else np.ones(n)


class DemoFit(NamedTuple):
    """The fit of one method to a case."""

    estimator: Any
    filled: Array
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """A case, its fits and their errors."""

    case: DemoCase
    fits: Mapping[str, DemoFit]  # by method of ``ncarl complete``
    errors: Mapping[str, float]  # RMSE on the hidden entries, also of the baselines
    lower: Array  # ends of the intervals of the hidden entries
    upper: Array

    @property
    def bayes(self) -> Any:
        """The fitted default model."""
        return self.fits["bayes"].estimator

    @property
    def is_covered(self) -> Array:
        """Which hidden entries lie in their interval."""
        truth = self.case.truth[self.case.hidden]
        return (truth >= self.lower) & (truth <= self.upper)

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON values."""
        case, bayes = self.case, self.bayes
        fits = {
            method: {
                "steps": int(fit.estimator.n_iter_),
                "converged": bool(fit.estimator.converged_),
                "seconds": round(fit.seconds, 2),
                "engine": fit.estimator.engine_,
            }
            for method, fit in self.fits.items()
        }
        search = self.fits["ncarl-cv"].estimator
        return {
            "name": case.name,
            "data": case.title,
            "shape": list(case.truth.shape),
            "missing_share": float(case.hidden.mean()),
            "error_unit": "column standard deviations" if case.is_table else "gray 0-1",
            "rmse_on_hidden": dict(self.errors),
            "bayes": {
                **fits["bayes"],
                "sides": bayes.sides_,
                "weight_of_columns": float(bayes.weight_),
                "similar_rows": bayes.neighbor_correction_,
                "prior_strength": float(bayes.prior_strength_),
                "calibration": float(bayes.calibration_),
                "interval_level": INTERVAL_LEVEL,
                "hidden_in_interval": float(self.is_covered.mean()),
            },
            "ncarl-cv": {
                **fits["ncarl-cv"],
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
    """Complete a case with the defaults of ``ncarl complete``."""
    fits = {}
    for method in ("ncarl-cv", "bayes"):
        options = ModelOptions(method=method, seed=seed)
        scale = "columns" if case.is_table else None
        estimator = build_estimator(options, scale=scale, progress=progress)
        start = time.perf_counter()
        with warnings.catch_warnings():
            # The table of results says whether the fit converged.
            warnings.simplefilter("ignore")
            filled = estimator.fit_transform(case.observed_matrix)
        fits[method] = DemoFit(estimator, filled, time.perf_counter() - start)
    predictions = {"mean": mean_fill(case), "two-way": two_way_fill(case)}
    predictions |= {method: fit.filled for method, fit in fits.items()}
    errors = {name: hidden_rmse(case, X) for name, X in predictions.items()}
    places = np.nonzero(case.hidden)
    ends = fits["bayes"].estimator.predict_interval(*places, level=INTERVAL_LEVEL)
    return DemoResult(case, fits, errors, *ends)


def hidden_rmse(case: DemoCase, prediction: Array) -> float:
    """Root mean square error on the hidden entries, in the units of the case."""
    units = case.column_units
    return rmse((case.truth / units)[case.hidden], (prediction / units)[case.hidden])


def mean_fill(case: DemoCase) -> Array:
    """The mean of the observed pixels, or of each column of a table."""
    mean = np.nanmean(case.observed_matrix, axis=0 if case.is_table else None)
    return np.broadcast_to(mean, case.truth.shape)


def two_way_fill(case: DemoCase) -> Array:
    """Row effects plus column effects, in units of the columns."""
    units = case.column_units
    shift = np.nanmean(case.observed_matrix, axis=0) if case.is_table else 0.0
    observed = Observations.from_dense((case.observed_matrix - shift) / units)
    center = fit_centering(InMemoryDataset(observed), "two-way", scaled=False)
    rows = center.row_effects(observed)[:, None]
    return center.restore(np.zeros(case.truth.shape), rows) * units + shift


def _results_table(results: Sequence[DemoResult]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of errors; a star if the fit did not converge."""
    heads = ["data", "hidden"]
    for method in results[0].errors:
        heads += [method, "sec"] if method in results[0].fits else [method]
    rows = []
    for result in results:
        row = [result.case.title, f"{result.case.hidden.mean():.1%}"]
        for method, error in result.errors.items():
            row.append(f"{error:.3f}")
            if fit := result.fits.get(method):
                row[-1] += "" if fit.estimator.converged_ else "*"
                row.append(f"{fit.seconds:.1f}")
        rows.append([*row, f"{result.is_covered.mean():.1%}"])
    return [*heads, f"in {INTERVAL_LEVEL:.0%}"], rows


def _save_figures(results: Sequence[DemoResult], folder: Path) -> dict[Path, str]:
    captions = {}
    for result in results:
        case = result.case
        if case.is_table:
            figure, name = _draw_intervals(result), f"{case.name}-intervals.png"
            caption = "imputed values of hidden cells against the truth"
        else:
            figure, name = _draw_picture(result), f"{case.name}.png"
            caption = "before, after, and the truth"
        captions[save_figure(figure, folder / name)] = f"{case.title}: {caption}."
        path = folder / f"{case.name}-correlation.png"
        side = "rows" if result.bayes.transposed_ else "columns"
        caption = f"{case.title}: learned correlation of its {side}."
        captions[save_figure(_draw_correlation(result), path)] = caption
    curves = {result.case.title: result.bayes for result in results}
    title = "Steps of bayes, up to the lowest error on held-out entries"
    figure = convergence(curves, title=title)
    saved = save_figure(figure, folder / "convergence.png")
    return captions | {saved: "Convergence: what each step gained."}


def _draw_picture(result: DemoResult) -> Figure:
    case, errors = result.case, result.errors
    panels = [
        ImagePanel(case.observed_matrix, f"before: {case.hidden.mean():.0%} hidden",
              f"errors: mean {errors['mean']:.3f}, two-way {errors['two-way']:.3f}"),
        ImagePanel(result.fits["bayes"].filled, "after: completed by bayes",
              f"error {errors['bayes']:.3f}; ncarl-cv {errors['ncarl-cv']:.3f}"),
        ImagePanel(case.truth, "truth", "errors: RMSE on hidden pixels, gray 0 to 1"),
    ]  # fmt: skip
    return before_after(panels, credit=PHOTO_CREDIT)


def _draw_intervals(result: DemoResult) -> Figure:
    case, filled = result.case, result.fits["bayes"].filled
    i, j = np.nonzero(case.hidden)
    some = np.random.default_rng(0).permutation(len(i))[:MAX_ERROR_BARS]
    middle, units = np.nanmean(case.observed_matrix, axis=0)[j], case.column_units[j]
    truth, imputed, low, high = (
        ((values - middle) / units)[some]
        for values in (case.truth[i, j], filled[i, j], result.lower, result.upper)
    )
    title = (
        f"{INTERVAL_LEVEL:.0%} intervals cover {result.is_covered.mean():.1%} of all "
        f"{len(i)} hidden cells;\n{len(some)} of them, chosen at random"
    )
    unit = "standard deviations from the column's mean"
    return error_bars(truth, imputed, low, high, title=title, unit=unit)


def _draw_correlation(result: DemoResult) -> Figure:
    case, bayes = result.case, result.bayes
    side = "row" if bayes.transposed_ else "column"
    return similarity_map(
        correlation_from_covariance(bayes.kernel_),
        title=f"Learned correlation of {side}s: {case.title}",
        names=case.columns if case.is_table and not bayes.transposed_ else None,
        label="correlation",
        axis=side if case.is_table else f"{side} of pixels",
        vmax=1.0,
    )


def build_demo_page(
    results: Sequence[DemoResult], captions: Mapping[Path, str]
) -> Page:
    """The page of a demonstration, with the pictures that were drawn."""
    best = min(r.errors["bayes"] / r.errors["mean"] for r in results)
    coverages = [float(r.is_covered.mean()) for r in results]
    page = Page(
        "ncarl demo",
        "Entries of a photograph and of a table were hidden and imputed by the default "
        f"model, which left as little as {best:.0%} of the error of a plain mean. Its "
        f"{INTERVAL_LEVEL:.0%} intervals covered {min(coverages):.0%} to "
        f"{max(coverages):.0%} of the hidden entries.",
    )
    page.table(*_results_table(results)).text(FOOTNOTE).heading("Figures")
    for path, caption in captions.items():
        page.picture(path, caption)
    return page

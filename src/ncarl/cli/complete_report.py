"""The summary that ``ncarl complete`` prints, and the page of --report."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ncarl.centering import root_mean_square
from ncarl.cli.complete_run import Completion, column_units
from ncarl.cli.console import Fields, write_page
from ncarl.containers import as_observations
from ncarl.core.types import Array
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.exceptions import NumericalWarning
from ncarl.html import Page
from ncarl.observations import Observations
from ncarl.plots import (
    convergence,
    draw_pattern,
    draw_uncertainty,
    reliability,
    similarity,
    similarity_graph,
    spectrum,
)
from ncarl.plots.missing import (
    MIN_OBSERVED,
    ImputedEntries,
    MissingPattern,
    group_means,
    missing_pattern,
    sample_imputed_entries,
)
from ncarl.registry import BASELINE_METHODS, METHODS
from ncarl.text import MAX_LISTED, count_of, format_number, join_names, one_line

#: Description of ``BayesianNCARL.sides_``.
SIDES_DESCRIPTIONS = {
    "columns": "kernel of the columns",
    "rows": "kernel of the rows",
    "both": "kernels of columns (weight {:.0%}) and rows ({:.0%})",
}
#: Parameters that the summary shows elsewhere, or that do not describe the model.
OMITTED_PARAMETERS = (
    *("center", "scale", "engine", "progress", "callback", "checkpoint"),
    *("random_state", "max_iter", "tol"),
)
#: Rows of a stream that the page samples.
OVERVIEW_SAMPLE_ROWS = 2000
#: Rows of the table of columns.
MAX_TABLE_COLUMNS = 200
#: An error above this fraction of that of the column means is no improvement.
NO_GAIN_RATIO = 0.97
COLUMN_HEADERS = (
    *("column", "missing", "observed mean", "imputed mean", "observed std"),
    *("imputed std", "ratio of stds"),
)


def warning_lines(result: Completion) -> list[str]:
    """Warnings of a run, in terms of the command's options."""
    est, lines = result.estimator, []
    for warning in result.warnings:
        if isinstance(warning, ConvergenceWarning):
            bayes = isinstance(est, BayesianNCARL)
            steps, kept = (est.max_iter, "best") if bayes else (est.n_iter_, "last")
            lines.append(
                f"not converged after {steps} steps, the {kept} one is kept; raise "
                "--max-iter or --tol"
            )
        elif isinstance(warning, NumericalWarning) or type(warning) is UserWarning:
            lines.append(one_line(warning))
    return list(dict.fromkeys(lines))


def summary_fields(result: Completion) -> Fields:
    """The summary of a run."""
    (m, n), table = result.shape, result.table
    total = f"{m} x {n}, {result.n_missing} missing ({result.n_missing / (m * n):.1%})"
    yield "table", total + (", read in chunks of rows" if table is None else "")
    for note in result.notes:
        yield "", note
    if table is not None and table.unused_columns:
        text = f"kept, not used: {join_names(table.unused_columns, MAX_LISTED)}"
        left = table.n_missing_in_text
        yield "labels", f"{text} ({left} missing in them)" if left else text
    if table is not None and table.columns is not None:
        ids = _names(likely_id_columns(table.values), result.columns)
        if ids:
            text = "used as data, but may be labels (see --label):"
            yield "", f"{text} {join_names(ids, MAX_LISTED)}"
    if result.estimator is None:
        yield "result", "nothing was missing; the table was copied as it is"
    else:
        yield from _model_fields(result)
    yield from _output_fields(result)


def likely_id_columns(values: Array) -> list[int]:
    """Complete columns of increasing whole numbers: more likely ids than data."""
    if len(values) < 3:
        return []
    # NaN is neither whole nor larger than anything.
    whole = (values == np.floor(values)).all(axis=0)
    rising = (np.diff(values, axis=0) > 0).all(axis=0)
    return [int(j) for j in np.flatnonzero(whole & rising)]


def _names(places: Iterable[int], names: Sequence[str] | None) -> list[str]:
    """Names of columns, or else numbers from 1."""
    return [names[k] if names else str(k + 1) for k in places]


def _model_fields(result: Completion) -> Fields:
    est, method = result.estimator, result.job.model.method
    describe, fields = describe_ncarl, _ncarl_fields
    if method == "bayes":
        describe, fields = describe_bayesian_model, _bayesian_fields
    elif method in BASELINE_METHODS:
        describe, fields = describe_baseline, _baseline_fields
    yield "method", f"{method}: {describe(est)}"
    yield "scale", f"{result.scale or 'none'} ({result.scale_reason})"
    yield from fields(result, _error_unit(result))
    # tol=0 asks for a fixed number of steps.
    status = "" if est.converged_ or est.tol == 0.0 else ", not converged"
    yield "steps", f"{est.n_iter_}{status}, {result.seconds:.1f} s in all"
    yield "engine", est.engine_
    for kind, places, names in (
        ("column", est.unidentified_columns_, result.columns),
        ("row", est.unidentified_rows_, None),
    ):
        if len(places):
            listed = join_names(_names(places, names), MAX_LISTED)
            plural = "s" if len(places) > 1 else ""
            yield "empty", f"{kind}{plural} {listed}: nothing observed, left empty"


def _error_unit(result: Completion) -> str:
    return " of a column's standard deviation" if result.scale else ""


def describe_ncarl(est: Any) -> str:
    """The parameters of a fit, whether cross-validated or given."""
    chosen = getattr(est, "best_params_", None) or est.get_params()
    gamma = chosen["gamma"]
    noise = "exact (gamma none)" if gamma is None else f"gamma {gamma:g}"
    return (
        f"alpha {chosen['alpha']:g}, {noise}, center {chosen['center'] or 'none'}, "
        f"{est.n_neighbors_} neighbors"
    )


def _ncarl_fields(result: Completion, unit: str) -> Fields:
    est = result.estimator
    error = getattr(est, "best_error_", math.nan)
    if not math.isnan(error):
        text = f"{error:.3g}{unit or ' relative'}"
        yield "error", f"{text}, on {est.validation:.0%} of the entries held out"


def describe_bayesian_model(est: Any) -> str:
    """The sides of a fit and its prior.

    >>> from ncarl import BayesianNCARL
    >>> est = BayesianNCARL()
    >>> est.sides_, est.weight_, est.prior_strength_ = "both", 0.25, 0.1
    >>> est.neighbor_correction_ = None
    >>> describe_bayesian_model(est)
    'kernels of columns (weight 25%) and rows (75%); prior strength 0.1, center two-way'
    """
    sides = SIDES_DESCRIPTIONS[est.sides_].format(est.weight_, 1.0 - est.weight_)
    if est.neighbor_correction_ is not None:
        count = est.neighbor_correction_["n_neighbors"]
        sides += f", corrected by the {count} most similar rows"
    if (count := getattr(est, "components_", 1)) > 1:
        sides += f", the columns by {count} components"
    strength = f"prior strength {est.prior_strength_:.2g}"
    return f"{sides}; {strength}, center {est.center or 'none'}"


def _bayesian_fields(result: Completion, unit: str) -> Fields:
    est, mean = result.estimator, ""
    if result.mean_std is not None:
        mean = f", mean standard deviation {result.mean_std:.3g}{unit}"
    yield "imputed", count_of(result.n_imputed, "entry", "entries") + mean
    yield "noise", describe_noise(est, unit)
    errors = est.side_errors_
    if not errors:
        return
    text = f"{est.held_out_error_:.3g}{unit}"
    if len(errors) > 1 or est.neighbor_correction_ is not None:
        parts = [f"{error:.3g} by {side}" for side, error in errors.items()]
        text += f" ({join_names(parts, last=' and ')} alone)"
    yield "error", f"{text}, on {est.validation:.0%} of the entries held out"
    if not math.isnan(est.calibration_):
        ends = (f"{end(est.std_factors_):.2f}" for end in (np.min, np.max))
        text = f"held-out errors are {est.calibration_:.2f} times their standard "
        share = f"{est.held_out_coverage_:.1%} of them within 1.96"
        yield "", f"{text}deviations (root mean square), {share};"
        factors = " to ".join(dict.fromkeys(ends))
        yield "", f"these are {factors} times those of the model"


def describe_noise(est: Any, unit: str) -> str:
    """The noise of a fit: one number, or those of the columns (or rows)."""
    noise = np.asarray(est.noise_, dtype=np.float64)
    axis = "row" if est.transposed_ else "column"
    if noise.ndim and est.transposed_:
        noise = noise / (est.model_.scaler.unit if est.scale == "columns" else 1.0)
    elif noise.ndim:
        units = column_units(est)
        noise = noise[units > 0.0] / units[units > 0.0]
    source = "learned" if isinstance(est.noise, str) else "as given"
    low, high = (float(noise.min()), float(noise.max())) if noise.size else (0.0, 0.0)
    if f"{low:.2g}" == f"{high:.2g}":
        return f"{high:.2g}{unit}, {source}"
    return f"{low:.2g} to {high:.2g}{unit}, {source} for each {axis}"


def describe_baseline(est: Any) -> str:
    """A baseline, its centering and its parameters that are not the defaults."""
    kinds = {method.class_name: method.summary for method in METHODS.values()}
    kind, defaults = kinds[type(est).__name__], type(est)().get_params()
    words = [f"center {est.center or 'none'}"] if "center" in defaults else []
    words += [
        f"{name} {value}"
        for name, value in est.get_params().items()
        if name not in OMITTED_PARAMETERS and value != defaults[name]
    ]
    return f"{kind}; {', '.join(words)}" if words else kind


def _baseline_fields(result: Completion, unit: str) -> Fields:
    est = result.estimator
    imputed = count_of(result.n_imputed, "entry", "entries")
    yield "imputed", f"{imputed}, rank {est.rank_}"
    of = "values" if "center" in est.get_params() else "values less their mean"
    yield "residual", f"{est.residual_:.2g} of the observed {of}, relative"
    gap = getattr(est, "gap_", math.nan)
    if not math.isnan(gap):
        yield "objective", f"within {gap:.1e} of the minimum (relative duality gap)"
    path = getattr(est, "path_", [])
    if path:
        error = f"{min(tried['error'] for tried in path):.3g}{unit}"
        yield "strength", f"lam {est.lam_:.3g}, error {error} on held-out entries"


def _output_fields(result: Completion) -> Fields:
    job = result.job
    intervals = f"{job.interval_level * 100:g}% intervals"
    notes = {
        "--std": "standard deviations; 0 at observed entries",
        "--lower": f"lower bounds of {intervals}",
        "--upper": f"upper bounds of {intervals}",
        "--imputations-out": f"draws, {job.n_imputations} completed tables",
        "--save-model": "the model; read it with ncarl.load",
    }
    yield "written", str(job.outputs["OUT"])
    for flag, note in notes.items():
        if flag in job.outputs:
            yield "", f"{job.outputs[flag]} ({note})"


def compute_stream_overview(
    chunks: Iterable[Observations],
    shape: tuple[int, int],
    max_rows: int = OVERVIEW_SAMPLE_ROWS,
) -> tuple[MissingPattern, Observations]:
    """The pattern of a table in chunks, and a sample of evenly spaced rows."""
    m = shape[0]
    wanted = np.unique(np.linspace(0, m - 1, min(m, max_rows)).round().astype(np.int64))
    kept: list[Observations] = []

    def sampling() -> Iterator[Observations]:
        first = 0
        for chunk in chunks:
            end = first + chunk.shape[0]
            some = wanted[(wanted >= first) & (wanted < end)] - first
            if len(some):
                kept.append(chunk.take_rows(some))
            first = end
            yield chunk

    pattern = missing_pattern(sampling(), shape)
    return pattern, Observations.vstack(kept)


def write_complete_page(result: Completion, path: Path, *, quiet: bool) -> None:
    """Write the page of a run, and print its path."""
    name = result.job.source.name
    if result.estimator is None:
        page = Page(name, "Nothing was missing, so the table was copied as it is.")
        write_page(page, path, summary_fields(result), quiet=quiet)
        return
    if result.table is None:
        pattern, sample = result.overview
    else:
        sample = as_observations(result.table.values)
        pattern = missing_pattern([sample], sample.shape)
    in_fit = getattr(result.estimator, "training_", None) is not None
    X = None if in_fit and sample.shape == result.shape else sample.to_csr()
    with warnings.catch_warnings():
        # The columns are those of the fit, though the sample does not name them.
        warnings.filterwarnings("ignore", message="X does not have valid feature")
        imputed = sample_imputed_entries(result.estimator, sample, X=X, skip_empty=True)
    page = Page(f"{name}, completed", summarize_completion(result, sample, imputed))
    page.warning(*page_warnings(result, pattern))
    _add_figures(page, result, pattern, imputed)
    _add_column_table(page, result, sample, pattern, imputed)
    write_page(page, path, summary_fields(result), quiet=quiet)


def summarize_completion(
    result: Completion, sample: Observations, imputed: ImputedEntries
) -> str:
    """What was done and how accurate it is, in two or three sentences."""
    m, n = result.shape
    text = (
        f"{result.n_missing:,} of {m * n:,} entries ({result.n_missing / (m * n):.1%}) "
        f"were missing, and {count_of(result.n_imputed, 'has', 'have')} been imputed "
        f"by {result.job.model.method}."
    )
    error = getattr(result.estimator, "held_out_error_", math.nan)
    if math.isnan(error) and imputed.std is None:
        return (
            f"{text} This method does not estimate their errors; ncarl evaluate "
            "measures them."
        )
    baseline = 1.0 if result.scale else pooled_std(sample)
    if not math.isnan(error) and baseline > 0.0:
        text += (
            " Observed entries that were held out were predicted with an error of "
            f"{error:.3g}{_error_unit(result)} (root mean square); the error of the "
            f"column's mean is {baseline:.3g}."
        )
        if error > NO_GAIN_RATIO * baseline:
            text += (
                " That is no better: the missing entries may not be predictable from "
                "the rest."
            )
    shares = imputed.relative_std
    if np.isfinite(shares).any():
        text += (
            " Half of the imputed entries have a standard deviation below "
            f"{np.nanmedian(shares):.2g} of their column's."
        )
    return text


def pooled_std(sample: Observations) -> float:
    """Root mean square deviation of the observed entries from their column's mean."""
    return root_mean_square(sample.column_stds()[sample.indices])


def page_warnings(result: Completion, pattern: MissingPattern) -> list[str]:
    """Warnings of the run, and rows and columns with too few observed entries."""
    found = [f"Warning: {line}" for line in warning_lines(result)]
    for kind, counts, names in (
        ("column", pattern.column_counts, result.columns),
        ("row", pattern.row_counts, None),
    ):
        for few, amount, advice in (
            (counts == 0, "No entry", "nothing is known there, so it stays empty"),
            (
                (counts > 0) & (counts < MIN_OBSERVED),
                "Only one entry",
                "treat values imputed there with care",
            ),
        ):
            places = np.flatnonzero(few)
            if len(places):
                listed = join_names(_names(places, names), MAX_LISTED)
                found.append(
                    f"{amount} is observed in {count_of(len(places), kind)} "
                    f"({listed}): {advice}."
                )
    return found


def _add_figures(
    page: Page, result: Completion, pattern: MissingPattern, imputed: ImputedEntries
) -> None:
    est, names = result.estimator, result.columns
    page.heading("Missing entries, and the uncertainty of the imputed values")
    caption = "Observed entries (blue), and their share of each row and column."
    if imputed.std is not None:
        caption = (
            "Observed entries (blue). Beside the map: standard deviations of imputed "
            "entries over that of their column; at 1 they are no better than its mean."
        )
    page.try_figure(lambda: draw_pattern(pattern, imputed, names=names), caption)
    if imputed.std is not None and len(imputed.std):
        page.try_figure(
            lambda: draw_uncertainty(imputed, names=names),
            "Standard deviations of imputed entries by column: median, middle half, "
            "and the 5th to 95th percentile.",
        )
    scores = getattr(est, "blended_scores_", None)
    if scores is not None and len(scores.sorted_scores):
        page.heading("Errors on held-out entries")
        page.text(
            f"The error on {est.validation:.0%} of the observed entries, which were "
            f"held out, is {est.held_out_error_:.4g}{_error_unit(result)} (root mean "
            "square). They were also used to choose the prior strength, the number of "
            "steps and the sides, so errors on missing entries may be slightly larger: "
            "ncarl evaluate measures them on entries that no choice depends on."
        )
        page.try_figure(
            lambda: reliability(est),
            "Nominal and actual coverage of normal intervals on held-out entries. "
            "Intervals that ncarl writes (--lower, --upper) are calibrated so that "
            "they meet the dashed line.",
        )
    page.heading("The fitted model")
    side_names = None if getattr(est, "transposed_", False) else names
    page.try_figure(
        lambda: similarity(est, names=side_names),
        "Similarity of columns; similar ones stand next to each other.",
    )
    page.try_figure(
        lambda: similarity_graph(est, names=side_names),
        "The strongest similarities. Broad lines are strong, colors are groups.",
    )
    page.try_figure(lambda: spectrum(est), "Variance of the rows by direction.")
    page.try_figure(lambda: convergence(est), "Change in each step of the fit.")


def _add_column_table(
    page: Page,
    result: Completion,
    sample: Observations,
    pattern: MissingPattern,
    imputed: ImputedEntries,
) -> None:
    m, n = result.shape
    missing = m - pattern.column_counts
    std = np.full(len(imputed.values), np.nan) if imputed.std is None else imputed.std
    spread, std = sample.column_stds(), group_means(imputed.columns, std, n)
    figures = (
        np.where(sample.column_counts > 0, sample.column_means(), np.nan),
        group_means(imputed.columns, imputed.values, n),
        spread,
        std,
    )
    ratio = np.where(spread > 0.0, std / np.where(spread > 0.0, spread, 1.0), np.nan)
    order = np.lexsort((-missing, -np.where(np.isfinite(ratio), ratio, -1.0)))
    shown = [j for j in order if missing[j] > 0][:MAX_TABLE_COLUMNS]
    complete = np.count_nonzero(missing == 0)
    text = "The columns with the most uncertain entries come first."
    if len(shown) < n - complete:
        text += (
            f" These are {len(shown)} of {n - complete:,} columns with missing entries."
        )
    if complete:
        text += f" {complete:,} columns are complete and not shown."
    if sample.shape[0] < m:
        text += f" Means are those of {sample.shape[0]:,} evenly spaced rows."
    rows = [
        [
            name,
            f"{missing[j]:,}",
            *(format_number(array[j], ".5g") for array in figures),
            format_number(ratio[j], ".2f"),
        ]
        for j, name in zip(shown, _names(shown, result.columns), strict=True)
    ]
    page.heading("Columns").text(text).table(COLUMN_HEADERS, rows)

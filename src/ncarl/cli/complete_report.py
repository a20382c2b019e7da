"""The summary that ``ncarl complete`` prints, and the page of --report."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ncarl.cli.complete_run import CompleteResult, StreamedTable, column_units
from ncarl.cli.console import print_fields, print_warnings, write_page
from ncarl.cli.models import DEFAULT_LEVEL, OutputOptions
from ncarl.cli.options import BASELINE_METHODS
from ncarl.core.types import Array
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.exceptions import NumericalWarning
from ncarl.html import Page
from ncarl.io.tables import (
    TableFile,
)
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
from ncarl.plots.fit import (
    as_observations,
    column_means,
    column_stds,
)
from ncarl.plots.missing import (
    MIN_OBSERVED,
    ImputedEntries,
    MissingPattern,
    group_means,
    missing_pattern,
    sample_imputed_entries,
)
from ncarl.registry import METHODS
from ncarl.text import MAX_LISTED, format_number, join_names

#: Description of ``BayesianNCARL.sides_``.
SIDES_DESCRIPTIONS = {
    "columns": "columns explain columns",
    "rows": "rows explain rows",
    "both": "columns and rows, with weights {:.0%} and {:.0%}",
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
#: An error above this part of that of the column means is no gain.
NO_GAIN_RATIO = 0.97
#: Names listed at most.
MAX_LISTED_NAMES = 20


def print_complete_report(result: CompleteResult, *, quiet: bool) -> None:
    """Print the summary, unless quiet, and warnings on the error stream."""
    print_warnings(warning_lines(result))
    if not quiet:
        print_fields(summary_lines(result))


def warning_lines(result: CompleteResult) -> list[str]:
    """Warnings of a run, in terms of the command's options, each once."""
    lines = []
    for warning in result.caught_warnings:
        if isinstance(warning, ConvergenceWarning):
            line = _not_converged_message(result.estimator)
        elif isinstance(warning, NumericalWarning) or type(warning) is UserWarning:
            line = " ".join(str(warning).split())
        else:
            continue
        if line not in lines:
            lines.append(line)
    return lines


def _not_converged_message(est: Any) -> str:
    bayes = isinstance(est, BayesianNCARL)
    steps, kept = (est.max_iter, "best") if bayes else (est.n_iter_, "last")
    return (
        f"not converged after {steps} steps, the {kept} one is kept; raise "
        "--max-iter or --tol"
    )


def summary_lines(result: CompleteResult) -> Iterable[tuple[str, str]]:
    """The summary of a run as names and texts."""
    table = result.table
    streamed = isinstance(table, StreamedTable)
    m, n = table.shape if isinstance(table, StreamedTable) else table.values.shape
    total = f"{m} x {n}, {result.n_missing} missing ({result.n_missing / (m * n):.1%})"
    yield "table", total + (", read in chunks of rows" if streamed else "")
    for note in table.notes:
        yield "", note
    if not isinstance(table, StreamedTable):
        yield from _reading_lines(result, table)
    if result.estimator is None:
        yield "result", "nothing was missing; the table was copied as it is"
    else:
        yield from _model_lines(result)
    yield from _output_lines(result.job.outputs)


def _reading_lines(
    result: CompleteResult, table: TableFile
) -> Iterable[tuple[str, str]]:
    """Columns that were not used, and those that may be labels."""
    if table.unused_columns:
        names = join_names(table.unused_columns, MAX_LISTED)
        yield "labels", f"kept, not used: {names}{_missing_in_text_note(table)}"
    if table.mixed_units and (counting := likely_id_columns(table.values)):
        names = join_names([_column_name(result, j) for j in counting], MAX_LISTED)
        yield "", f"used as data, but may be labels (see --label): {names}"


def _missing_in_text_note(table: TableFile) -> str:
    """The number of missing entries in columns of text, if there are any."""
    gaps = table.n_missing_in_text
    return f" ({gaps} {'gap' if gaps == 1 else 'gaps'} left in them)" if gaps else ""


def likely_id_columns(values: Array) -> list[int]:
    """Complete columns of increasing whole numbers: more likely ids than data.

    Examples
    --------
    >>> import numpy as np
    >>> likely_id_columns(np.array([[1.0, 5.0], [2.0, 4.5], [3.0, 6.0]]))
    [0]
    """
    if sparse.issparse(values) or len(values) < 3:
        return []
    # NaN is neither whole nor larger than anything.
    whole = (values == np.floor(values)).all(axis=0)
    rising = (np.diff(values, axis=0) > 0).all(axis=0)
    return [int(j) for j in np.flatnonzero(whole & rising)]


def _column_name(result: CompleteResult, column: int) -> str:
    names = result.table.columns
    return names[column] if names else str(column + 1)


def _model_lines(result: CompleteResult) -> Iterable[tuple[str, str]]:
    """The part of the summary that describes the fit."""
    est, method = result.estimator, result.job.model.method
    describe: Callable[[Any], str] = describe_parameters
    lines = _error_lines
    if method == "bayes":
        describe, lines = describe_bayesian_model, bayesian_lines
    elif method in BASELINE_METHODS:
        describe, lines = describe_baseline, baseline_lines
    yield "method", f"{method}: {describe(est)}"
    yield "scale", f"{result.scale or 'none'} ({result.scale_reason})"
    yield from lines(result)
    # tol=0 asks for a fixed number of steps.
    status = "" if est.converged_ or est.tol == 0.0 else ", not converged"
    yield "steps", f"{est.n_iter_}{status}, {result.seconds:.1f} s in all"
    yield "engine", est.engine_
    yield from _empty_lines(result)


def describe_parameters(estimator: Any) -> str:
    """The parameters of a fit, whether chosen or given.

    Examples
    --------
    >>> from ncarl import NCARL
    >>> est = NCARL(alpha=10.0)
    >>> est.n_neighbors_ = 10
    >>> describe_parameters(est)
    'alpha 10, exact (gamma none), center none, 10 neighbors'
    """
    chosen = getattr(estimator, "best_params_", None) or estimator.get_params()
    gamma = chosen["gamma"]
    noise = "exact (gamma none)" if gamma is None else f"gamma {gamma:g}"
    return (
        f"alpha {chosen['alpha']:g}, {noise}, center {chosen['center'] or 'none'}, "
        f"{estimator.n_neighbors_} neighbors"
    )


def _error_lines(result: CompleteResult) -> Iterable[tuple[str, str]]:
    """The error of a search on held-out entries."""
    error = getattr(result.estimator, "best_error_", math.nan)
    if not math.isnan(error):
        share = result.estimator.validation
        unit = _error_unit(result) or " relative"
        yield "error", f"{error:.3g}{unit}, on {share:.0%} of the entries held out"


def _error_unit(result: CompleteResult) -> str:
    return " of a column's standard deviation" if result.scale else ""


def describe_bayesian_model(est: Any) -> str:
    """The sides of a fit and its prior.

    Examples
    --------
    >>> from ncarl import BayesianNCARL
    >>> est = BayesianNCARL()
    >>> est.sides_, est.weight_, est.prior_strength_ = "both", 0.25, 0.1
    >>> est.neighbor_correction_ = None
    >>> describe_bayesian_model(est)
    'columns and rows, with weights 25% and 75%; prior strength 0.1, center two-way'
    >>> est.neighbor_correction_ = {"n_neighbors": 5, "weight": 0.9, "std_factor": 0.95}
    >>> est.sides_ = "columns"
    >>> describe_bayesian_model(est).split("; ")[0]
    'columns explain columns, corrected by the 5 most similar rows'
    """
    sides = SIDES_DESCRIPTIONS[est.sides_].format(est.weight_, 1.0 - est.weight_)
    if est.neighbor_correction_ is not None:
        count = est.neighbor_correction_["n_neighbors"]
        sides += f", corrected by the {count} most similar rows"
    strength = f"prior strength {est.prior_strength_:.2g}"
    return f"{sides}; {strength}, center {est.center or 'none'}"


def bayesian_lines(result: CompleteResult) -> Iterable[tuple[str, str]]:
    """Filled entries, noise and held-out errors of a fit."""
    est = result.estimator
    unit = _error_unit(result)
    mean = ""
    if result.mean_std is not None:
        mean = f", mean standard deviation {result.mean_std:.3g}{unit}"
    yield "filled", f"{result.n_missing} entries{mean}"
    yield "noise", describe_noise(est, unit)
    errors = est.side_errors_
    if not errors:
        return
    text = f"{est.held_out_error_:.3g}{unit}"
    if len(errors) > 1 or est.neighbor_correction_ is not None:
        parts = [f"{error:.3g} by {side}" for side, error in errors.items()]
        text += f" ({' and '.join(parts)} alone)"
    yield "error", f"{text}, on {est.validation:.0%} of the entries held out"
    if not math.isnan(est.calibration_):
        yield "", describe_calibration(est.calibration_)


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


def describe_calibration(calibration: float) -> str:
    """How large held-out errors were relative to their standard deviations."""
    return (
        f"there errors were {calibration:.2f} times their standard deviations; "
        "intervals allow for it"
    )


def describe_baseline(estimator: Any) -> str:
    """A baseline, its centering and its parameters that are not the defaults.

    Examples
    --------
    >>> from ncarl import Nuclear
    >>> describe_baseline(Nuclear(solver="svt"))
    'least nuclear norm, with a certificate; center none, solver svt'
    """
    kinds = {method.class_name: method.summary for method in METHODS.values()}
    defaults = type(estimator)().get_params()
    words = []
    if "center" in defaults:
        words.append(f"center {estimator.center or 'none'}")
    words += [
        f"{name} {value}"
        for name, value in estimator.get_params().items()
        if name not in OMITTED_PARAMETERS and value != defaults[name]
    ]
    what = kinds[type(estimator).__name__]
    return f"{what}; {', '.join(words)}" if words else what


def baseline_lines(result: CompleteResult) -> Iterable[tuple[str, str]]:
    """Rank, residual, duality gap and chosen strength of a fit."""
    est = result.estimator
    yield "filled", f"{result.n_missing} entries, rank {est.rank_}"
    of = "values" if "center" in est.get_params() else "values less their mean"
    yield "residual", f"{est.residual_:.2g} of the observed {of}, relative"
    gap = getattr(est, "gap_", math.nan)
    if not math.isnan(gap):
        yield "proof", f"within {gap:.1e} of the least objective, by duality"
    path = getattr(est, "path_", [])
    if path:
        best = min(path, key=lambda tried: tried["error"])
        error = f"{best['error']:.3g}{_error_unit(result)}"
        yield "strength", f"lam {est.lam_:.3g}, error {error} on held-out entries"


def _empty_lines(result: CompleteResult) -> Iterable[tuple[str, str]]:
    """Rows and columns without an observed entry."""
    columns, rows = (
        result.estimator.unidentified_columns_,
        result.estimator.unidentified_rows_,
    )
    if len(columns):
        text = join_names([_column_name(result, j) for j in columns], MAX_LISTED)
        yield "empty", f"columns with nothing observed, filled by the center: {text}"
    if len(rows):
        text = join_names([str(i + 1) for i in rows], MAX_LISTED)
        yield "empty", f"rows with nothing observed, filled by the center: {text}"


def _output_lines(outputs: OutputOptions) -> Iterable[tuple[str, str]]:
    """The files that were written."""
    yield "written", str(outputs.target)
    if outputs.std is not None:
        yield "", f"{outputs.std} (standard deviations; 0 at observed entries)"
    level = DEFAULT_LEVEL if outputs.level is None else outputs.level
    for path, end in ((outputs.lower, "lower"), (outputs.upper, "upper")):
        if path is not None:
            yield "", f"{path} ({end} ends of {level * 100:g}% intervals)"
    if outputs.imputations_path is not None:
        count = outputs.n_imputations
        yield "", f"{outputs.imputations_path} (draws, {count} completed tables)"
    if outputs.model_path is not None:
        yield "", f"{outputs.model_path} (the model; read it with ncarl.load)"


@dataclass(frozen=True)
class TableOverview:
    """What a page shows of a table."""

    pattern: MissingPattern  # which entries are observed
    sample: Observations  # all observed entries, or those of some rows of a stream

    @property
    def n_sampled_rows(self) -> int:
        """Rows of the sample."""
        return self.sample.shape[0]

    @property
    def covers_all_rows(self) -> bool:
        """Whether the sample is the table."""
        return self.n_sampled_rows == self.pattern.shape[0]


def compute_overview(values: Any) -> TableOverview:
    """The overview of a table in memory."""
    observed = as_observations(values)
    return TableOverview(missing_pattern([observed], observed.shape), observed)


def compute_stream_overview(
    chunks: Iterable[Observations],
    shape: tuple[int, int],
    max_rows: int = OVERVIEW_SAMPLE_ROWS,
) -> TableOverview:
    """The overview of a table in chunks, with a sample of evenly spaced rows.

    Examples
    --------
    >>> import numpy as np
    >>> X = Observations.from_dense(np.arange(12.0).reshape(6, 2))
    >>> compute_stream_overview([X], (6, 2), max_rows=3).sample.values.tolist()
    [0.0, 1.0, 4.0, 5.0, 10.0, 11.0]
    """
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
    return TableOverview(pattern, Observations.vstack(kept))


def predict_sample_uncertainty(
    overview: TableOverview, estimator: Any
) -> ImputedEntries:
    """Predictions of a fitted model at missing entries of the sample."""
    fitted_rows = getattr(estimator, "training_", None)
    in_fit = fitted_rows is not None and overview.covers_all_rows
    X = None if in_fit else overview.sample.to_csr()
    with warnings.catch_warnings():
        # The columns are those of the fit, though the sample does not name them.
        warnings.filterwarnings("ignore", message="X does not have valid feature")
        return sample_imputed_entries(estimator, overview.sample, X=X)


@dataclass(frozen=True)
class ColumnSummary:
    """Statistics of each column, as arrays of shape (n,); NaN where there are none."""

    missing: Array  # number of missing entries
    observed_mean: Array
    spread: Array  # standard deviation of the observed entries
    filled_mean: Array
    std: Array  # mean standard deviation of the filled entries

    @property
    def relative_std(self) -> Array:
        """``std`` over ``spread``; NaN where the column does not vary."""
        safe = np.where(self.spread > 0.0, self.spread, 1.0)
        shares: Array = np.where(self.spread > 0.0, self.std / safe, np.nan)
        return shares


def summarize_columns(
    overview: TableOverview, uncertainty: ImputedEntries
) -> ColumnSummary:
    """Statistics of each column."""
    m, n = overview.pattern.shape
    std = (
        np.full(len(uncertainty.values), np.nan)
        if uncertainty.std is None
        else uncertainty.std
    )
    observed_mean = np.where(
        overview.sample.column_counts > 0, column_means(overview.sample), np.nan
    )
    return ColumnSummary(
        m - overview.pattern.column_counts,
        observed_mean,
        column_stds(overview.sample),
        group_means(uncertainty.columns, uncertainty.values, n),
        group_means(uncertainty.columns, std, n),
    )


def pooled_std(sample: Observations) -> float:
    """Root mean square deviation of the observed entries from their column's mean.

    This is about the error of filling missing entries by the mean of their column.
    """
    spreads, counts = column_stds(sample), sample.column_counts
    if counts.sum() == 0:
        return 0.0
    largest = float(spreads.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    parts = (spreads / largest) ** 2 * (counts / counts.sum())
    return largest * float(np.sqrt(parts.sum()))


def write_complete_page(result: CompleteResult, path: Path, *, quiet: bool) -> None:
    """Write the page of a run, and print its path."""
    write_page(build_complete_page(result), path, summary_lines(result), quiet=quiet)


def build_complete_page(result: CompleteResult) -> Page:
    """The page of a run."""
    name = result.job.source.name
    if result.estimator is None:
        return Page(name, "Nothing was missing, so the table was copied as it is.")
    table = result.table
    overview = result.overview
    if overview is None:
        assert not isinstance(table, StreamedTable)
        overview = compute_overview(table.values)
    filled = predict_sample_uncertainty(overview, result.estimator)
    page = Page(f"{name}, completed", summarize_completion(result, overview, filled))
    page.warning(*page_warnings(result, overview))
    _add_figures(page, result, overview, filled)
    columns = summarize_columns(overview, filled)
    _add_column_table(page, columns, table.columns, overview)
    return page


def summarize_completion(
    result: CompleteResult, overview: TableOverview, uncertainty: ImputedEntries
) -> str:
    """What was done and how accurate it is, in two or three sentences."""
    m, n = overview.pattern.shape
    share = result.n_missing / (m * n)
    words = (
        f"{result.n_missing:,} of {m * n:,} entries ({share:.1%}) were missing and "
        f"have been filled in by {result.job.model.method}."
    )
    error, scaled = held_out_error(result.estimator), result.scale is not None
    usual = 1.0 if scaled else pooled_std(overview.sample)
    if error is not None and usual > 0.0:
        words += (
            " Observed entries that were held out were predicted with an error of "
            f"{error:.3g}{_error_unit(result)} (root mean square); the error of the "
            f"column's mean is {usual:.3g}."
        )
        if error > NO_GAIN_RATIO * usual:
            words += (
                " That is no better: the missing entries may not be predictable from "
                "the rest."
            )
    if error is None and uncertainty.std is None:
        return (
            f"{words} This method does not estimate their errors; ncarl evaluate "
            "measures them."
        )
    shares = uncertainty.relative_std
    if np.isfinite(shares).any():
        middle = float(np.nanmedian(shares))
        words += (
            " Half of the filled entries have a standard deviation below "
            f"{middle:.2g} of their column's."
        )
    return words


def held_out_error(estimator: Any) -> float | None:
    """Error of a fit on entries that it held out itself; None if it held out none.

    Only if it is in the units of the values, or in standard deviations of the columns.
    """
    error = getattr(estimator, "held_out_error_", math.nan)
    return None if math.isnan(error) else float(error)


def page_warnings(result: CompleteResult, overview: TableOverview) -> list[str]:
    """Warnings of the run, and rows and columns with too few observed entries."""
    found = [f"Warning: {line}" for line in warning_lines(result)]
    pattern = overview.pattern
    names = result.table.columns
    for counts, kind in (
        (pattern.column_counts, "column"),
        (pattern.row_counts, "row"),
    ):
        nothing = np.flatnonzero(counts == 0)
        little = np.flatnonzero((counts > 0) & (counts < MIN_OBSERVED))
        called = names if kind == "column" else None
        if len(nothing):
            found.append(
                f"No entry is observed in {_format_indices(nothing, kind, called)}: it "
                "was filled with the center of the rest."
            )
        if len(little):
            found.append(
                "Only one entry is observed in "
                f"{_format_indices(little, kind, called)}: treat what was filled in "
                "there with care."
            )
    return found


def _format_indices(indices: Any, kind: str, names: Sequence[str] | None) -> str:
    """Rows or columns by name, or else by number from 1."""
    called = [names[j] if names else str(j + 1) for j in indices[:MAX_LISTED_NAMES]]
    more = len(indices) - len(called)
    ending = f" and {more:,} more" if more else ""
    plural = "" if len(indices) == 1 else "s"
    return f"{len(indices):,} {kind}{plural} ({', '.join(called)}{ending})"


def _add_figures(
    page: Page,
    result: CompleteResult,
    overview: TableOverview,
    uncertainty: ImputedEntries,
) -> None:
    """The figures: missing entries and uncertainty first, then the model."""
    est, names = result.estimator, result.table.columns
    page.heading("What is missing, and how uncertain the filled values are")
    page.try_figure(
        lambda: draw_pattern(overview.pattern, uncertainty, names=names),
        "Observed entries (blue). Beside the map: standard deviations of filled "
        "entries over that of their column; at 1 they are no better than its mean."
        if uncertainty.std is not None
        else "Observed entries (blue), and their share of each row and column.",
    )
    if uncertainty.std is not None and len(uncertainty.std):
        page.try_figure(
            lambda: draw_uncertainty(uncertainty, names=names),
            "Standard deviations of filled entries by column: median, middle half, and "
            "the 5th to 95th percentile.",
        )
    if getattr(est, "blended_scores_", None) is not None and len(
        est.blended_scores_.sorted_scores
    ):
        page.heading("Errors on held-out entries")
        page.facts(held_out_facts(result))
        page.try_figure(
            lambda: reliability(est),
            "Nominal and actual coverage of normal intervals on held-out entries. "
            "Intervals that ncarl writes (--lower, --upper) are widened or narrowed so "
            "that they meet the dashed line.",
        )
    page.heading("What was learned")
    side_names = None if getattr(est, "transposed_", False) else names
    page.try_figure(
        lambda: similarity(est, names=side_names),
        "Similarity of columns; similar ones stand next to each other.",
    )
    page.try_figure(
        lambda: similarity_graph(est, names=side_names),
        "The strongest similarities. Broad lines are strong, colors are groups.",
    )
    page.try_figure(lambda: spectrum(est), "Along how many directions rows vary.")
    page.try_figure(lambda: convergence(est), "What each step of the fit changed.")


def held_out_facts(result: CompleteResult) -> dict[str, str]:
    """Errors on the entries that a Bayesian fit held out itself."""
    est = result.estimator
    unit = _error_unit(result)
    found = {
        "held out": f"{est.validation:.0%} of the observed entries, to choose the "
        "strength of the prior, the steps and the sides",
        "error": f"{est.held_out_error_:.4g}{unit} (root mean square). Since choices "
        "were made by it, errors on missing entries may be a little larger: ncarl "
        "evaluate measures them on entries that nothing was chosen by.",
    }
    for side, error in est.side_errors_.items():
        found[f"by {side} alone"] = f"{error:.4g}{unit}"
    if not math.isnan(est.calibration_):
        found["calibration"] = (
            f"errors were {est.calibration_:.2f} times their standard deviations; "
            "1 is right, and intervals allow for the rest"
        )
    return found


def _add_column_table(
    page: Page,
    summary: ColumnSummary,
    names: Sequence[str] | None,
    overview: TableOverview,
) -> None:
    """The table of columns, the most uncertain first."""
    page.heading("Column by column")
    n = len(summary.missing)
    worth = np.where(np.isfinite(summary.relative_std), summary.relative_std, -1.0)
    order = np.lexsort((-summary.missing, -worth))
    shown = [j for j in order if summary.missing[j] > 0][:MAX_TABLE_COLUMNS]
    complete = int(np.count_nonzero(summary.missing == 0))
    words = "The columns with the most uncertain entries come first."
    if len(shown) < n - complete:
        words += (
            f" These are {len(shown)} of {n - complete:,} columns with missing entries."
        )
    if complete:
        words += f" {complete:,} columns are complete and not shown."
    if not overview.covers_all_rows:
        words += (
            f" Means are those of {overview.n_sampled_rows:,} rows, evenly spaced over "
            "the table."
        )
    page.text(words)
    heads = ("column", "missing", "observed mean", "filled mean", "observed std",
             "filled std", "ratio of stds")  # fmt: skip
    page.table(heads, (_column_cells(summary, j, names) for j in shown))


def _column_cells(
    summary: ColumnSummary, j: int, names: Sequence[str] | None
) -> list[str]:
    figures = (summary.observed_mean, summary.filled_mean, summary.spread, summary.std)
    return [
        names[j] if names else str(j + 1),
        f"{int(summary.missing[j]):,}",
        *(format_number(array[j], ".5g") for array in figures),
        format_number(summary.relative_std[j], ".2f"),
    ]

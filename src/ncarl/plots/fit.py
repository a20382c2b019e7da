"""Figures of a fit: convergence, spectrum, error bars, reliability and residuals.

Also what all figures need of a fitted estimator: its observed entries, predictions,
column statistics and the affinity of its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy import sparse
from scipy.stats import norm

from ncarl.centering import fit_scaler
from ncarl.containers import validate_observations
from ncarl.core.linalg import correlation_from_covariance
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.estimators.other_baselines import BiasModel
from ncarl.observations import Observations
from ncarl.plots.style import (
    BLUE,
    DARK_GRAY,
    GRAY,
    INK,
    MISSING_COLOR,
    RED,
    despine,
    format_label,
    spaced_indices,
)

#: Labels of `convergence` by kind of fit.
GRAM_LABEL, EVIDENCE_LABEL = (
    "relative change of the Gram matrix",
    "gain in log evidence per observed entry",
)
STEP_LABEL = "relative change from step to step"
#: Most directions of a spectrum.
MAX_DIRECTIONS = 100
#: Fraction of the variance in the title of a spectrum.
VARIANCE_FRACTION = 0.9
#: Nominal coverages of the reliability of a fit.
LEVELS = np.arange(0.05, 0.96, 0.05)
#: Colors of curves.
CURVE_COLORS = (BLUE, MISSING_COLOR, "#3a9d8f", "#8e6bb0", INK)
#: Most points of a scatter plot.
MAX_POINTS = 3000


def convergence(
    curves: Any,
    *,
    tol: float | None = None,
    label: str | None = None,
    title: str = "",
) -> Figure:
    """Change in each step of a fit, on a logarithmic axis.

    Parameters
    ----------
    curves : fitted estimator, or mapping of str to array or estimator
        A fit, or several by their names in the legend; or ``history_["change"]`` in
        place of a fit.
    tol : float, optional
        Tolerance at which the fits stop; drawn as a dashed line.
    label : str, optional
        Label of the axis; by default that of the quantity which the estimator records
        (the gain in log evidence per observed entry in fits of `BayesianNCARL`).
    title : str
        Title of the figure.

    Examples
    --------
    >>> import numpy as np
    >>> figure = convergence({"a fit": np.array([1.0, 0.1, 0.01])}, tol=0.05)
    >>> figure.axes[0].get_yscale()
    'log'
    """
    single = not isinstance(curves, Mapping)
    fits = {"": curves} if single else dict(curves)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    ax = figure.add_subplot()
    for name, fit in fits.items():
        change, quantity = _step_changes(fit)
        label = label or quantity
        steps = np.arange(1, len(change) + 1)
        # The first change has no step before it and may be infinite.
        shown = np.isfinite(change) & (change > 0)
        ax.semilogy(steps[shown], change[shown], marker="o", markersize=3.5,
                    label=format_label(name, 60))  # fmt: skip
    if tol:
        ax.axhline(tol, color=GRAY, linestyle="--", linewidth=1)
        ax.annotate(f"tol = {tol:g}", (0.0, tol), xycoords=("axes fraction", "data"),
                    xytext=(5, -5), textcoords="offset points", va="top",
                    color=DARK_GRAY, fontsize=9)  # fmt: skip
        # A curve may fall below the tolerance and rise again: leave room for it.
        ax.set_ylim(bottom=min(tol, ax.get_ylim()[0]) / 3)
    ax.set_xlabel("step")
    ax.set_ylabel(label or GRAM_LABEL)
    ax.set_title(title, fontsize=11)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    despine(ax)
    if not single:
        ax.legend(frameon=False)
    return figure


def _step_changes(fit: Any) -> tuple[Array, str]:
    """Changes in the steps of a fit, and their label."""
    if not is_fitted_estimator(fit):
        return np.asarray(fit, dtype=np.float64), GRAM_LABEL
    change = np.asarray(fit.history_["change"], dtype=np.float64)
    if "log_evidence" in fit.history_:
        return change, EVIDENCE_LABEL
    return change, GRAM_LABEL if hasattr(fit, "kernel_") else STEP_LABEL


def spectrum(
    model: Any, *, max_directions: int = MAX_DIRECTIONS, title: str = ""
) -> Figure:
    """Fraction of the variance of the rows by principal direction.

    Parameters
    ----------
    model : fitted estimator, or array
        A fit; or a covariance of shape (n, n); or a completed matrix of shape (m, n);
        or variances themselves, shape (directions,).
    max_directions : int
        Most directions to draw.
    title : str
        Title of the figure; by default how many directions hold 90%.

    Examples
    --------
    >>> figure = spectrum([8.0, 1.0, 1.0])
    >>> figure.axes[0].get_title()
    '2 directions hold 90% of the variance'
    """
    values = np.sort(_direction_variances(model))[::-1]
    if values.size == 0 or not values.sum() > 0.0:
        raise ValueError("nothing varies, so there is no spectrum to draw")
    values = values / values[0]
    shares = values / values.sum()
    cumulative = np.cumsum(shares)
    # The tolerance allows for rounding in the sums.
    kept = int(np.searchsorted(cumulative, VARIANCE_FRACTION - 1e-12)) + 1
    if not title:
        verb = "s hold" if kept > 1 else " holds"
        title = f"{kept} direction{verb} 90% of the variance"
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    ax = figure.add_subplot()
    _draw_explained_variance(
        ax, shares[:max_directions], cumulative[:max_directions], kept
    )
    ax.set_title(title, fontsize=11, color=INK)
    return figure


def _draw_explained_variance(
    ax: Any, shares: Array, cumulative: Array, n_kept: int
) -> None:
    """Draw bars of single directions, and their cumulative sum as a line."""
    places = np.arange(1, len(shares) + 1)
    kept = places <= n_kept
    ax.bar(places[kept], shares[kept], width=0.8, color=BLUE, label="one direction")
    ax.bar(places[~kept], shares[~kept], width=0.8, color="#c3cbd4")
    ax.plot(places, cumulative, color=INK, linewidth=1.4, marker="o", markersize=3,
            label="cumulative")  # fmt: skip
    ax.axhline(VARIANCE_FRACTION, color=GRAY, linestyle="--", linewidth=1)
    ax.set_ylim(0.0, 1.03)
    ax.set_xlabel("direction, by decreasing variance")
    ax.set_ylabel("fraction of the variance")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    despine(ax, grid="y")
    ax.legend(frameon=False, loc="center right")


def _direction_variances(model: Any) -> Array:
    """Variances by direction of a fit or an array, see `spectrum`."""
    if is_fitted_estimator(model):
        return model_variances(model)
    given = model.toarray() if sparse.issparse(model) else model
    values = np.asarray(given, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(
            "model must be a fitted estimator or an array without gaps, got one with "
            "NaN or infinite entries; fit an estimator first"
        )
    if values.ndim == 1:
        if (values < 0.0).any():
            raise ValueError("variances must not be negative")
        return values
    if values.ndim != 2:
        raise ValueError(f"an array must have one axis or two, got {values.ndim}")
    if values.shape[0] == values.shape[1] and np.allclose(values, values.T):
        return eigenvalues(values)
    centered = values - values.mean(axis=0)
    return np.linalg.svd(centered, compute_uv=False) ** 2


def error_bars(
    truth: Array, filled: Array, low: Array, high: Array, *, title: str, unit: str
) -> Figure:
    """Filled values against true values, with intervals.

    Intervals that miss the true value have a color of their own.

    Parameters
    ----------
    truth, filled, low, high : arrays of shape (entries,)
        True and filled values, and the ends of the intervals.
    title : str
        Title of the figure.
    unit : str
        Unit of the values.

    Examples
    --------
    >>> import numpy as np
    >>> truth, filled = np.array([1.0, 2.0]), np.array([1.1, 2.5])
    >>> ends = filled - 0.2, filled + 0.2
    >>> figure = error_bars(truth, filled, *ends, title="two cells", unit="kg")
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['interval holds the truth: 1', 'interval misses it: 1']
    """
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    ax = figure.add_subplot()
    ends = [float(f(v)) for v in (truth, filled) for f in (np.min, np.max)]
    ax.axline((0, 0), slope=1, color=GRAY, linewidth=1, linestyle="--", zorder=1)
    missed = (truth < low) | (truth > high)
    kinds = ((~missed, BLUE, "interval holds the truth"),
             (missed, RED, "interval misses it"))  # fmt: skip
    for kind, color, label in kinds:
        ax.vlines(truth[kind], low[kind], high[kind], color=color, alpha=0.55,
                  linewidth=1.5, zorder=2)  # fmt: skip
        ax.plot(truth[kind], filled[kind], "o", color=color, markersize=4.5,
                label=f"{label}: {kind.sum()}", zorder=3)  # fmt: skip
    margin = 0.05 * (max(ends) - min(ends))
    ax.set_xlim(min(ends) - margin, max(ends) + margin)
    ax.set_xlabel(f"truth ({unit})")
    ax.set_ylabel(f"filled ({unit})")
    ax.set_title(title, fontsize=11)
    despine(ax)
    ax.legend(frameon=False, loc="upper left")
    return figure


def reliability(
    levels: Any,
    coverage: Any = None,
    *,
    count: int | None = None,
    title: str = "",
) -> Figure:
    """Reliability diagram: actual against nominal coverage of intervals.

    Parameters
    ----------
    levels : fitted `BayesianNCARL`, or array of shape (levels,)
        Nominal coverages, between 0 and 1. Of a fit, normal intervals of its standard
        deviations on its own held-out entries are shown: their miscoverage is what
        `predict_interval` corrects.
    coverage : array of shape (levels,), or mapping of str to such arrays
        Actual coverages, of one model or of several by name.
    count : int, optional
        Number of entries that coverages were measured on; adds the band of 95% of the
        sampling variation.
    title : str
        Title of the figure.

    Examples
    --------
    >>> figure = reliability([0.5, 0.9], [0.52, 0.88], count=200)
    >>> figure.axes[0].get_xlabel()
    'nominal coverage'
    """
    if is_fitted_estimator(levels):
        levels, coverage, count = held_out_coverage(levels)
    nominal = np.asarray(levels, dtype=np.float64)
    curves = coverage if isinstance(coverage, Mapping) else {"": coverage}
    figure = Figure(figsize=(4.8, 4.8), layout="constrained")
    ax = figure.add_subplot()
    ax.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle="--", zorder=1)
    if count:
        _draw_binomial_band(ax, count)
    for place, (name, values) in enumerate(curves.items()):
        actual = np.asarray(values, dtype=np.float64)
        if actual.shape != nominal.shape:
            raise ValueError(
                f"coverage must have one value for each of the {nominal.size} levels, "
                f"got shape {actual.shape}"
            )
        ax.plot(
            nominal,
            actual,
            "o-",
            color=CURVE_COLORS[place % len(CURVE_COLORS)],
            zorder=3,
            linewidth=1.4,
            markersize=5,
            label=format_label(name, 40),
        )
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.set_aspect("equal")
    ax.set_xlabel("nominal coverage")
    ax.set_ylabel("actual coverage")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    ax.set_title(title, fontsize=11, color=INK)
    despine(ax)
    if isinstance(coverage, Mapping):
        ax.legend(frameon=False, loc="upper left")
    return figure


def _draw_binomial_band(ax: Any, count: int) -> None:
    """Draw the 95% band of fractions of ``count`` independent entries."""
    level = np.linspace(0.0, 1.0, 101)
    reach = 1.96 * np.sqrt(level * (1.0 - level) / count)
    ax.fill_between(level, level - reach, level + reach, color="#e9edf2", zorder=0,
                    linewidth=0)  # fmt: skip
    ax.annotate(f"band: 95% of samples of {count:,} entries", (0.97, 0.03), ha="right",
                xycoords="axes fraction", fontsize=8.5, color=DARK_GRAY)  # fmt: skip


def held_out_coverage(model: Any) -> tuple[Array, Array, int]:
    """Nominal and actual coverages on the held-out entries of a fit, their number."""
    scores = getattr(model, "blended_scores_", None)
    if scores is None or len(scores.sorted_scores) == 0:
        raise ValueError(
            f"{type(model).__name__} has no held-out errors with standard deviations; "
            "fit BayesianNCARL with validation above 0, or give levels and coverage"
        )
    sizes = np.abs(scores.sorted_scores)
    quantiles = norm.ppf(0.5 + LEVELS / 2.0)
    coverage = np.array([float(np.mean(sizes <= q)) for q in quantiles])
    return LEVELS, coverage, len(sizes)


def residuals(
    truth: Any,
    filled: Any,
    std: Any = None,
    *,
    unit: str = "",
    title: str = "",
) -> Figure:
    """Errors of filled values: against the filled values, and their distribution.

    Parameters
    ----------
    truth : array of shape (entries,), or a matrix
        True values; a matrix if ``filled`` is an estimator, of which the entries that
        were missing in the fit are used.
    filled : array of shape (entries,), or fitted estimator
        Filled values.
    std : array of shape (entries,), optional
        Standard deviations of the filled values; errors are divided by them and
        compared with a normal distribution.
    unit : str
        Unit of the values.
    title : str
        Title of the figure.

    Examples
    --------
    >>> figure = residuals([1.0, 2.0, 3.0], [1.1, 1.9, 3.2], [0.1, 0.1, 0.2])
    >>> figure.axes[0].get_ylabel()
    'error, in standard deviations'
    """
    if is_fitted_estimator(filled):
        truth, filled, std = _unseen_entries(truth, filled)
        unit = "column standard deviations from the mean"
    t, f = (np.asarray(v, dtype=np.float64).ravel() for v in (truth, filled))
    if t.shape != f.shape or t.size == 0:
        raise ValueError(
            f"truth and filled must be of one length and not empty, got {t.size} and "
            f"{f.size} entries"
        )
    errors, label = f - t, f"error{f' ({unit})' if unit else ''}"
    if std is not None:
        s = np.asarray(std, dtype=np.float64).ravel()
        valid = s > 0.0
        f, errors = f[valid], errors[valid] / s[valid]
        label = "error, in standard deviations"
    limit = _error_limit(errors)
    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2.2, 1.0))
    _draw_scatter(left, f, errors, limit, std is not None)
    _draw_histogram(right, errors, limit, std is not None)
    left.set_xlabel(f"filled value{f' ({unit})' if unit else ''}")
    left.set_ylabel(label)
    figure.suptitle(title, fontsize=11, color=INK)
    return figure


def _unseen_entries(truth: Any, model: Any) -> tuple[Array, Array, Array | None]:
    """Entries that were missing in the fit: truth, predictions, standard deviations.

    All are in standard deviations of the columns, so that columns can share an axis.
    """
    whole, seen = as_observations(truth), getattr(model, "training_", None)
    if seen is None or seen.shape != whole.shape:
        raise ValueError(
            "the entries of the fit are not known, so unseen ones cannot be told; give "
            "truth and filled as arrays of the entries to look at"
        )
    n = whole.shape[1]
    new = ~np.isin(whole.rows * n + whole.indices, seen.rows * n + seen.indices)
    if not new.any():
        raise ValueError("truth has no entry that the fit did not see; hide some first")
    i, j = whole.rows[new], whole.indices[new].astype(np.int64)
    values, std = predict_entries(model, i, j)
    mean, scale = column_means(seen)[j], column_stds(seen)[j]
    varies = scale > 0.0
    if not varies.any():
        raise ValueError("no column of the fit varies, so there is no error to show")
    mean, scale = mean[varies], scale[varies]
    return (
        (whole.values[new][varies] - mean) / scale,
        (values[varies] - mean) / scale,
        None if std is None else std[varies] / scale,
    )


def _error_limit(errors: Array) -> float:
    """Limit of the axis of errors, beyond nearly all of them."""
    sizes = np.abs(errors)
    most = 1.3 * float(np.quantile(sizes, 0.99))
    return min(most, 1.1 * float(sizes.max())) or 1.0


def _draw_scatter(
    ax: Any, filled: Array, errors: Array, limit: float, standardized: bool
) -> None:
    """Draw errors as dots, with lines that should hold 95% of them.

    Errors beyond the axis are triangles at its end.
    """
    order = np.random.default_rng(0).permutation(len(errors))
    drawn = order[spaced_indices(len(order), MAX_POINTS)]
    far = np.abs(errors) > 1.96 if standardized else np.zeros(len(errors), dtype=bool)
    alpha = 0.8 if len(drawn) < 300 else 0.35
    for kind, color in ((drawn[~far[drawn]], BLUE), (drawn[far[drawn]], RED)):
        ax.plot(filled[kind], errors[kind], "o", color=color, alpha=alpha,
                markersize=3.5, markeredgewidth=0)  # fmt: skip
    for beyond, mark, end in (
        (errors > limit, "^", limit),
        (errors < -limit, "v", -limit),
    ):
        ax.plot(filled[beyond], np.full(beyond.sum(), 0.97 * end), mark, color=RED,
                markersize=5, markeredgewidth=0)  # fmt: skip
    ax.set_ylim(-limit, limit)
    ax.axhline(0.0, color=GRAY, linewidth=1)
    if standardized:
        for line in (-1.96, 1.96):
            ax.axhline(line, color=GRAY, linewidth=1, linestyle="--")
    despine(ax)


def _draw_histogram(ax: Any, errors: Array, limit: float, standardized: bool) -> None:
    """Draw a horizontal histogram, and the normal density if standardized."""
    bins = min(60, max(8, round(2 * len(errors) ** (1 / 3))))
    ax.hist(errors, bins=bins, range=(-limit, limit), orientation="horizontal",
            density=True, color="#b9cbe0")  # fmt: skip
    if standardized:
        grid = np.linspace(-limit, limit, 200)
        ax.plot(norm.pdf(grid), grid, color=INK, linewidth=1.2, label="normal")
        ax.legend(frameon=False, fontsize=8.5)
    ax.set_xticks([])
    ax.set_xlabel("density")
    despine(ax)


def is_fitted_estimator(obj: Any) -> bool:
    """Whether this is an estimator and no array; raise if it is not fitted.

    Examples
    --------
    >>> is_fitted_estimator([1.0, 2.0])
    False
    """
    if not hasattr(obj, "get_params"):
        return False
    if not hasattr(obj, "model_"):
        raise ValueError(
            f"{type(obj).__name__} must be fitted before its figures can be drawn; "
            "call fit first"
        )
    return True


def as_observations(X: Any) -> Observations:
    """The observed entries of an array with NaN, a frame or a sparse matrix."""
    if isinstance(X, Observations):
        return X
    if sparse.issparse(X):
        return Observations.from_sparse(X)
    return validate_observations(BiasModel(), X, reset=True)


def find_column_names(*objects: Any) -> list[str] | None:
    """Column names of the first of several frames or estimators that has them."""
    for obj in objects:
        if getattr(obj, "transposed_", False):
            continue
        names = getattr(obj, "feature_names_in_", getattr(obj, "columns", None))
        if names is not None and not callable(names):
            return [str(name) for name in names]
    return None


def supports_std(model: Any) -> bool:
    """Whether a fit has standard deviations of its predictions."""
    return bool(model._noise_level() > 0.0)


def predict_entries(
    model: Any, i: Array, j: Array, X: Any = None
) -> tuple[Array, Array | None]:
    """Predictions of single entries, and standard deviations if the model has them.

    Parameters
    ----------
    model : fitted estimator
        The model.
    i, j : arrays of int, shape (entries,)
        Rows and columns of the entries.
    X : container, optional
        The matrix of the entries; by default that of the fit.
    """
    if not supports_std(model):
        return np.asarray(model.predict(i, j, X=X), dtype=np.float64), None
    values, std = model.predict(i, j, return_std=True, X=X)
    return np.asarray(values, np.float64), np.asarray(std, np.float64)


def column_stds(entries: Observations) -> Array:
    """Standard deviation of each column over its observed entries; 0 for none."""
    scaler = fit_scaler(InMemoryDataset(entries), per_column=True)
    stds: Array = np.where(
        entries.column_counts > 0, scaler.centering.column_scales * scaler.unit, 0.0
    )
    return stds


def column_means(entries: Observations) -> Array:
    """Mean of each column over its observed entries; 0 for none."""
    counts = np.maximum(entries.column_counts, 1)
    # Values are divided before they are added: the sum itself could overflow.
    parts = entries.values / counts[entries.indices]
    means: Array = np.bincount(entries.indices, parts, minlength=entries.shape[1])
    return means


def column_affinity(model: Any) -> Any:
    """Affinity of the columns of a model, shape (n, n).

    Correlations of the kernel if there is one, else the similarity graph (sparse), else
    correlations of the completed columns.
    """
    if hasattr(model, "kernel_"):
        return correlation_from_covariance(_kernel_matrix(model))
    if hasattr(model, "similarity_"):
        graph = sparse.csr_array(model.similarity_)
        return (graph + graph.T) * 0.5
    completed = np.asarray(model.model_.complete(), dtype=np.float64)
    completed = completed - completed.mean(axis=0)
    size = np.max(np.abs(completed), initial=0.0) or 1.0
    completed = completed / size
    return correlation_from_covariance(completed.T @ completed)


def check_affinity(S: Any, names: Sequence[object] | None) -> Any:
    """The affinity matrix; raise if it is not square or the names do not fit."""
    shape = np.shape(S) if not sparse.issparse(S) else S.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(
            f"similarity must be a fitted estimator or a square matrix, got shape "
            f"{shape}"
        )
    if names is not None and len(names) != shape[0]:
        raise ValueError(
            f"names must have one for each of the {shape[0]} columns, got {len(names)}"
        )
    return S if sparse.issparse(S) else np.asarray(S, dtype=np.float64)


def model_variances(model: Any) -> Array:
    """Variances of a model along its principal directions, in decreasing order."""
    if hasattr(model, "kernel_"):
        return eigenvalues(_standardized_kernel(model))
    inner = model.model_
    variances: Array
    if hasattr(inner, "kernel"):  # a low-rank factor of the kernel
        F = np.asarray(inner.kernel.F, dtype=np.float64)
        return eigenvalues(F.T @ F)
    if inner.factors is None:
        X = np.asarray(inner.X, np.float64)
        variances = np.linalg.svd(X, compute_uv=False) ** 2
    else:
        left, right = (np.asarray(part, dtype=np.float64) for part in inner.factors)
        left, right = np.linalg.qr(left)[1], np.linalg.qr(right.T)[1]
        variances = np.linalg.svd(left @ right.T, compute_uv=False) ** 2
    if variances.sum() > 0.0:
        return variances
    # The model has row and column effects only.
    completed = np.asarray(inner.complete(), dtype=np.float64)
    completed = completed - completed.mean(axis=0)
    size = np.max(np.abs(completed), initial=0.0) or 1.0
    return np.linalg.svd(completed / size, compute_uv=False) ** 2


def _standardized_kernel(model: Any) -> Array:
    """The kernel in the units of the scaled columns, if the model scales them."""
    K = _kernel_matrix(model)
    scaler = getattr(model.model_, "scaler", None)
    if scaler is None or model.transposed_:
        return K
    scales = scaler.centering.column_scales
    safe = np.where(scales > 0.0, scales, 1.0)
    return K / safe[:, None] / safe[None, :]


def _kernel_matrix(model: Any) -> Array:
    """The kernel of a model, in internal units if it has a method for that."""
    own = getattr(model, "_kernel_in_internal_unit", None)
    return np.asarray(model.kernel_ if own is None else own(), dtype=np.float64)


def eigenvalues(A: Array) -> Array:
    """Eigenvalues of a symmetric matrix in decreasing order, negative ones as 0."""
    values: Array = np.maximum(np.linalg.eigvalsh(0.5 * (A + A.T))[::-1], 0.0)
    return values

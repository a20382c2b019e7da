"""Figures of a fit, and what all figures read from fitted estimators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy import sparse
from scipy.stats import norm

from ncarl.containers import as_observations
from ncarl.core.linalg import correlation_from_covariance
from ncarl.core.types import Array
from ncarl.observations import check_sparse
from ncarl.plots.style import (
    BLUE,
    DARK_GRAY,
    GRAY,
    INK,
    MISSING_COLOR,
    RED,
    REFERENCE,
    TITLE,
    despine,
    format_label,
    new_axes,
    spaced_indices,
)

#: Labels of `convergence` by kind of fit.
GRAM_LABEL = "relative change of the Gram matrix"
EVIDENCE_LABEL = "gain in log evidence per observed entry"
STEP_LABEL = "relative change from step to step"
#: Maximum directions of a spectrum, and fraction of the variance in its title.
MAX_DIRECTIONS, VARIANCE_FRACTION = 100, 0.9
#: Nominal coverages of the reliability of a fit.
LEVELS = np.arange(0.05, 0.96, 0.05)
CURVE_COLORS = (BLUE, MISSING_COLOR, "#3a9d8f", "#8e6bb0", INK)
#: Maximum number of points of a scatter plot.
MAX_POINTS = 3000


def convergence(
    curves: Any, *, tol: float | None = None, label: str | None = None, title: str = ""
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
        Label of the axis; by default the quantity that the estimator records.
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
    figure, ax = new_axes(6.4, 4.0, title)
    for name, fit in fits.items():
        change, quantity = _step_changes(fit)
        label = label or quantity
        steps = np.arange(1, len(change) + 1)
        # The first change has no step before it and may be infinite.
        shown = np.isfinite(change) & (change > 0)
        ax.semilogy(steps[shown], change[shown], marker="o", markersize=3.5,
                    label=format_label(name, 60))  # fmt: skip
    if tol:
        ax.axhline(tol, **REFERENCE)
        ax.annotate(f"tol = {tol:g}", (0.0, tol), xycoords=("axes fraction", "data"),
                    xytext=(5, -5), textcoords="offset points", va="top",
                    color=DARK_GRAY, fontsize=9)  # fmt: skip
        # A curve may fall below the tolerance and rise again: leave room for it.
        ax.set_ylim(bottom=min(tol, ax.get_ylim()[0]) / 3)
    ax.set(xlabel="step", ylabel=label or GRAM_LABEL)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    despine(ax)
    if not single:
        ax.legend(frameon=False)
    return figure


def _step_changes(fit: Any) -> tuple[Array, str]:
    if not is_fitted_estimator(fit):
        return np.asarray(fit, dtype=np.float64), GRAM_LABEL
    change = np.asarray(fit.history_["change"], dtype=np.float64)
    if "log_evidence" in fit.history_:
        return change, EVIDENCE_LABEL
    return change, GRAM_LABEL if hasattr(fit, "kernel_") else STEP_LABEL


def spectrum(model: Any, *, title: str = "") -> Figure:
    """Fraction of the variance of the rows by principal direction.

    Parameters
    ----------
    model : fitted estimator, or array
        A fit; or a covariance of shape (n, n); or a completed matrix of shape (m, n);
        or variances themselves, shape (directions,).
    title : str
        Title; by default how many directions hold 90%.

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
    figure, ax = new_axes(6.4, 4.0, title)
    shares, cumulative = shares[:MAX_DIRECTIONS], cumulative[:MAX_DIRECTIONS]
    places = np.arange(1, len(shares) + 1)
    among = places <= kept
    ax.bar(places[among], shares[among], width=0.8, color=BLUE, label="one direction")
    ax.bar(places[~among], shares[~among], width=0.8, color="#c3cbd4")
    ax.plot(places, cumulative, color=INK, linewidth=1.4, marker="o", markersize=3,
            label="cumulative")  # fmt: skip
    ax.axhline(VARIANCE_FRACTION, **REFERENCE)
    ax.set(xlabel="direction, by decreasing variance", ylim=(0.0, 1.03),
           ylabel="fraction of the variance")  # fmt: skip
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    despine(ax, grid="y")
    ax.legend(frameon=False, loc="center right")
    return figure


def _direction_variances(model: Any) -> Array:
    if is_fitted_estimator(model):
        return model_variances(model)
    if sparse.issparse(model):
        model = check_sparse(model, "model").toarray()
    values = np.asarray(model, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(
            "model must be a fitted estimator or a complete array, got one with NaN or "
            "infinite entries; fit an estimator first"
        )
    if values.ndim == 1:
        if (values < 0.0).any():
            raise ValueError("variances must not be negative")
        return values
    if values.ndim != 2:
        raise ValueError(f"an array must have one axis or two, got {values.ndim}")
    if values.shape[0] == values.shape[1] and np.allclose(values, values.T):
        return _eigenvalues(values)
    return _squared_singular_values(values - values.mean(axis=0))


def error_bars(
    truth: Array, filled: Array, low: Array, high: Array, *, title: str, unit: str
) -> Figure:
    """Imputed against true values; intervals that miss the truth are red.

    Parameters
    ----------
    truth, filled, low, high : arrays of shape (entries,)
        True and imputed values, and the ends of the intervals.
    title, unit : str
        Title of the figure, and unit of the values.

    Examples
    --------
    >>> import numpy as np
    >>> truth, filled = np.array([1.0, 2.0]), np.array([1.1, 2.5])
    >>> ends = filled - 0.2, filled + 0.2
    >>> figure = error_bars(truth, filled, *ends, title="two cells", unit="kg")
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['interval holds the truth: 1', 'interval misses it: 1']
    """
    figure, ax = new_axes(6.4, 6.0, title)
    ax.axline((0, 0), slope=1, zorder=1, **REFERENCE)
    missed = (truth < low) | (truth > high)
    kinds = ((~missed, BLUE, "interval holds the truth"),
             (missed, RED, "interval misses it"))  # fmt: skip
    for kind, color, label in kinds:
        ax.vlines(truth[kind], low[kind], high[kind], color=color, alpha=0.55,
                  linewidth=1.5, zorder=2)  # fmt: skip
        ax.plot(truth[kind], filled[kind], "o", color=color, markersize=4.5,
                label=f"{label}: {kind.sum()}", zorder=3)  # fmt: skip
    both = np.concatenate([truth, filled])
    margin = 0.05 * np.ptp(both)
    ax.set_xlim(both.min() - margin, both.max() + margin)
    ax.set(xlabel=f"truth ({unit})", ylabel=f"filled ({unit})")
    despine(ax)
    ax.legend(frameon=False, loc="upper left")
    return figure


def reliability(
    levels: Any, coverage: Any = None, *, count: int | None = None, title: str = ""
) -> Figure:
    """Reliability diagram: actual against nominal coverage of intervals.

    Parameters
    ----------
    levels : fitted `BayesianNCARL`, or array of shape (levels,)
        Nominal coverages. Of a fit, normal intervals on its own held-out entries are
        shown, whose miscoverage `predict_interval` corrects.
    coverage : array of shape (levels,), or mapping of str to such arrays
        Actual coverages, of one model or of several by name.
    count : int, optional
        Number of entries measured; adds a band of 95% of the sampling variation.
    title : str
        Title of the figure.

    Examples
    --------
    >>> figure = reliability([0.5, 0.9], [0.52, 0.88], count=200)
    >>> figure.axes[0].get_xlabel()
    'nominal coverage'
    """
    if is_fitted_estimator(levels):
        levels, coverage, count = _held_out_coverage(levels)
    nominal = np.asarray(levels, dtype=np.float64)
    curves = coverage if isinstance(coverage, Mapping) else {"": coverage}
    figure, ax = new_axes(4.8, 4.8, title)
    ax.plot([0, 1], [0, 1], zorder=1, **REFERENCE)
    if count:
        level = np.linspace(0.0, 1.0, 101)
        reach = 1.96 * np.sqrt(level * (1.0 - level) / count)
        ax.fill_between(level, level - reach, level + reach, color="#e9edf2", zorder=0,
                        linewidth=0)  # fmt: skip
        ax.annotate(f"band: 95% of samples of {count:,} entries", (0.97, 0.03),
                    xycoords="axes fraction", ha="right", fontsize=8.5,
                    color=DARK_GRAY)  # fmt: skip
    for place, (name, values) in enumerate(curves.items()):
        actual = np.asarray(values, dtype=np.float64)
        if actual.shape != nominal.shape:
            raise ValueError(
                f"coverage must have one value for each of the {nominal.size} levels, "
                f"got shape {actual.shape}"
            )
        color = CURVE_COLORS[place % len(CURVE_COLORS)]
        ax.plot(nominal, actual, "o-", color=color, linewidth=1.4, markersize=5,
                label=format_label(name, 40), zorder=3)  # fmt: skip
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal",
           xlabel="nominal coverage", ylabel="actual coverage")  # fmt: skip
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    despine(ax)
    if isinstance(coverage, Mapping):
        ax.legend(frameon=False, loc="upper left")
    return figure


def _held_out_coverage(model: Any) -> tuple[Array, Array, int]:
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
    truth: Any, filled: Any, std: Any = None, *, unit: str = "", title: str = ""
) -> Figure:
    """Errors of imputed values: against these values, and their distribution.

    Parameters
    ----------
    truth : array of shape (entries,), or a matrix
        True values; of a matrix, the entries that were missing in the fit.
    filled : array of shape (entries,), or fitted estimator
        Imputed values.
    std : array of shape (entries,), optional
        Standard deviations of the imputed values; errors are divided by them and
        compared with a normal distribution.
    unit, title : str
        Unit of the values, and title of the figure.

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
    sizes = np.abs(errors)
    # Nearly all errors are inside the axis.
    limit = min(1.3 * float(np.quantile(sizes, 0.99)), 1.1 * float(sizes.max())) or 1.0
    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2.2, 1.0))
    _draw_scatter(left, f, errors, limit, std is not None)
    _draw_histogram(right, errors, limit, std is not None)
    left.set(xlabel=f"filled value{f' ({unit})' if unit else ''}", ylabel=label)
    figure.suptitle(title, **TITLE)
    return figure


def _unseen_entries(truth: Any, model: Any) -> tuple[Array, Array, Array | None]:
    """Entries that were missing in the fit: truth, predictions, standard deviations.

    All are in standard deviations of the columns, so that columns can share an axis.
    """
    whole, seen = as_observations(truth), getattr(model, "training_", None)
    if seen is None or seen.shape != whole.shape:
        raise ValueError(
            "the fit did not keep its training entries, or has another shape than "
            "truth; pass truth and filled as arrays of the entries to compare"
        )
    n = whole.shape[1]
    new = ~np.isin(whole.rows * n + whole.indices, seen.rows * n + seen.indices)
    if not new.any():
        raise ValueError("truth has no entry that the fit did not see; hide some first")
    i, j = whole.rows[new], whole.indices[new].astype(np.int64)
    values, std = predict_entries(model, i, j)
    mean, scale = seen.column_means()[j], seen.column_stds()[j]
    varies = scale > 0.0
    if not varies.any():
        raise ValueError("no column of the fit varies, so there is no error to show")
    mean, scale = mean[varies], scale[varies]
    return (
        (whole.values[new][varies] - mean) / scale,
        (values[varies] - mean) / scale,
        None if std is None else std[varies] / scale,
    )


def _draw_scatter(
    ax: Any, filled: Array, errors: Array, limit: float, standardized: bool
) -> None:
    # Standardized errors: 95% should be between the dashed lines.
    order = np.random.default_rng(0).permutation(len(errors))
    drawn = order[spaced_indices(len(order), MAX_POINTS)]
    far = np.abs(errors) > 1.96 if standardized else np.zeros(len(errors), dtype=bool)
    alpha = 0.8 if len(drawn) < 300 else 0.35
    for kind, color in ((drawn[~far[drawn]], BLUE), (drawn[far[drawn]], RED)):
        ax.plot(filled[kind], errors[kind], "o", color=color, alpha=alpha,
                markersize=3.5, markeredgewidth=0)  # fmt: skip
    # Errors beyond the axis are triangles at its end.
    for sign, mark in ((1, "^"), (-1, "v")):
        beyond = sign * errors > limit
        ends = np.full(beyond.sum(), 0.97 * sign * limit)
        ax.plot(filled[beyond], ends, mark, color=RED, markersize=5, markeredgewidth=0)
    ax.set_ylim(-limit, limit)
    ax.axhline(0.0, color=GRAY, linewidth=1)
    if standardized:
        ax.axhline(-1.96, **REFERENCE)
        ax.axhline(1.96, **REFERENCE)
    despine(ax)


def _draw_histogram(ax: Any, errors: Array, limit: float, standardized: bool) -> None:
    bins = min(60, max(8, round(2 * len(errors) ** (1 / 3))))
    ax.hist(errors, bins=bins, range=(-limit, limit), orientation="horizontal",
            density=True, color="#b9cbe0")  # fmt: skip
    if standardized:
        grid = np.linspace(-limit, limit, 200)
        ax.plot(norm.pdf(grid), grid, color=INK, linewidth=1.2, label="normal")
        ax.legend(frameon=False, fontsize=8.5)
    ax.set(xticks=[], xlabel="density")
    despine(ax)


def is_fitted_estimator(obj: Any) -> bool:
    """Whether this is an estimator and no array; raise if it is not fitted."""
    if not hasattr(obj, "get_params"):
        return False
    if not hasattr(obj, "model_"):
        raise ValueError(
            f"{type(obj).__name__} must be fitted before its figures can be drawn; "
            "call fit first"
        )
    return True


def resolve_names(
    names: Sequence[object] | None, *objects: Any
) -> Sequence[object] | None:
    """``names``, or the columns of the first frame or estimator that has some."""
    for obj in objects:
        if names is not None or getattr(obj, "transposed_", False):
            continue
        found = getattr(obj, "feature_names_in_", getattr(obj, "columns", None))
        names = None if callable(found) else found
    return names


def supports_std(model: Any) -> bool:
    """Whether a fit has standard deviations of its predictions."""
    return bool(model._noise_level() > 0.0)


def predict_entries(
    model: Any, i: Array, j: Array, X: Any = None
) -> tuple[Array, Array | None]:
    """Predictions of entries ``(i, j)``, and standard deviations if there are any."""
    if not supports_std(model):
        return np.asarray(model.predict(i, j, X=X), dtype=np.float64), None
    values, std = model.predict(i, j, return_std=True, X=X)
    return np.asarray(values, np.float64), np.asarray(std, np.float64)


def column_affinity(model: Any) -> Any:
    """Correlations of the kernel; else the similarity graph; else of the completion."""
    if hasattr(model, "kernel_"):
        return correlation_from_covariance(_kernel_matrix(model))
    if hasattr(model, "similarity_"):
        graph = sparse.csr_array(model.similarity_)
        return (graph + graph.T) * 0.5
    completed = _centered_completion(model)
    return correlation_from_covariance(completed.T @ completed)


def _centered_completion(model: Any) -> Array:
    completed = np.asarray(model.model_.complete(), dtype=np.float64)
    completed = completed - completed.mean(axis=0)
    # Squares of the largest entries must not overflow.
    return completed / (np.max(np.abs(completed), initial=0.0) or 1.0)


def model_variances(model: Any) -> Array:
    """Variances of a model along its principal directions, in decreasing order."""
    if hasattr(model, "kernel_"):
        K, scaler = _kernel_matrix(model), getattr(model.model_, "scaler", None)
        if scaler is not None and not model.transposed_:
            scales = scaler.centering.column_scales
            safe = np.where(scales > 0.0, scales, 1.0)
            K = K / safe[:, None] / safe[None, :]
        return _eigenvalues(K)
    inner = model.model_
    if hasattr(inner, "kernel"):  # a low-rank factor of the kernel
        F = np.asarray(inner.kernel.F, dtype=np.float64)
        return _eigenvalues(F.T @ F)
    if inner.factors is None:
        variances = _squared_singular_values(np.asarray(inner.X, np.float64))
    else:
        left, right = (np.asarray(part, dtype=np.float64) for part in inner.factors)
        left, right = np.linalg.qr(left)[1], np.linalg.qr(right.T)[1]
        variances = _squared_singular_values(left @ right.T)
    if variances.sum() > 0.0:
        return variances
    # The model has row and column effects only.
    return _squared_singular_values(_centered_completion(model))


def _kernel_matrix(model: Any) -> Array:
    own = getattr(model, "_kernel_in_internal_unit", None)
    return np.asarray(model.kernel_ if own is None else own(), dtype=np.float64)


def _eigenvalues(A: Array) -> Array:
    return np.maximum(np.linalg.eigvalsh(0.5 * (A + A.T))[::-1], 0.0)


def _squared_singular_values(X: Array) -> Array:
    return np.linalg.svd(X, compute_uv=False) ** 2

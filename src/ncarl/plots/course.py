"""How a fit went, and along how many directions its rows vary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy import sparse

from ncarl.core.types import Array
from ncarl.plots.learned import eigenvalues, is_model, variances_of
from ncarl.plots.style import GREY, HELD, INK, SOFT, light, plain

#: What `convergence` measures unless told otherwise, by kind of fit.
GRAM, EVIDENCE = (
    "relative change of the Gram matrix",
    "gain in log evidence per observed entry",
)
STEP = "relative change from step to step"
#: Directions beyond so many are not drawn.
MOST_DIRECTIONS = 100
#: Part of the variance whose directions are counted.
MOST_OF_IT = 0.9


def convergence(
    curves: Any,
    *,
    tol: float | None = None,
    label: str | None = None,
    title: str = "",
) -> Figure:
    """What each step changed, on a logarithmic axis.

    Parameters
    ----------
    curves : fitted estimator, or mapping of str to array or estimator
        A fit, or several by the name that the legend shows; in place of a fit its
        ``history_["change"]`` will do.
    tol : float, optional
        Where the fits stop; drawn as a dashed line.
    label : str, optional
        What is measured; found out for an estimator. ``change`` is the gain in log
        evidence per observed entry in fits of `BayesianNCARL`.
    title : str
        Written above.

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
        change, words = _changes(fit)
        label = label or words
        steps = np.arange(1, len(change) + 1)
        # The first change is measured against nothing and may be infinite.
        shown = np.isfinite(change) & (change > 0)
        ax.semilogy(steps[shown], change[shown], marker="o", markersize=3.5,
                    label=plain(name, 60))  # fmt: skip
    if tol:
        ax.axhline(tol, color=GREY, linestyle="--", linewidth=1)
        ax.annotate(f"tol = {tol:g}", (0.0, tol), xycoords=("axes fraction", "data"),
                    xytext=(5, -5), textcoords="offset points", va="top",
                    color=SOFT, fontsize=9)  # fmt: skip
        # A curve may pass below and come back while the floor still falls: show it.
        ax.set_ylim(bottom=min(tol, ax.get_ylim()[0]) / 3)
    ax.set_xlabel("step")
    ax.set_ylabel(label or GRAM)
    ax.set_title(title, fontsize=11)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    light(ax)
    if not single:
        ax.legend(frameon=False)
    return figure


def _changes(fit: Any) -> tuple[Array, str]:
    """What the steps of a fit changed, and what that is."""
    if not is_model(fit):
        return np.asarray(fit, dtype=np.float64), GRAM
    change = np.asarray(fit.history_["change"], dtype=np.float64)
    if "log_evidence" in fit.history_:
        return change, EVIDENCE
    return change, GRAM if hasattr(fit, "kernel_") else STEP


def spectrum(model: Any, *, most: int = MOST_DIRECTIONS, title: str = "") -> Figure:
    """Along how many directions rows vary: part of the variance by direction.

    Parameters
    ----------
    model : fitted estimator, or array
        A fit; or a covariance of shape (n, n); or a completed matrix of shape (m, n);
        or variances themselves, shape (directions,).
    most : int
        Directions to draw.
    title : str
        Written above; by default how many directions hold 90%.

    Examples
    --------
    >>> figure = spectrum([8.0, 1.0, 1.0])
    >>> figure.axes[0].get_title()
    '2 directions hold 90% of the variance'
    """
    values = np.sort(_variances(model))[::-1]
    if values.size == 0 or not values.sum() > 0.0:
        raise ValueError("nothing varies, so there is no spectrum to draw")
    values = values / values[0]
    shares = values / values.sum()
    held = np.cumsum(shares)
    # Sums of parts lose a digit or two: nine tenths are reached there already.
    enough = int(np.searchsorted(held, MOST_OF_IT - 1e-12)) + 1
    words = (
        f"{enough} direction{'s hold' if enough > 1 else ' holds'} 90% of the variance"
    )
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    ax = figure.add_subplot()
    _draw_shares(ax, shares[:most], held[:most], enough)
    ax.set_title(title or words, fontsize=11, color=INK)
    return figure


def _draw_shares(ax: Any, shares: Array, held: Array, enough: int) -> None:
    """Bars of single directions, and what they add up to."""
    places = np.arange(1, len(shares) + 1)
    kept = places <= enough
    ax.bar(places[kept], shares[kept], width=0.8, color=HELD, label="one direction")
    ax.bar(places[~kept], shares[~kept], width=0.8, color="#c3cbd4")
    ax.plot(places, held, color=INK, linewidth=1.4, marker="o", markersize=3,
            label="all up to it")  # fmt: skip
    ax.axhline(MOST_OF_IT, color=GREY, linestyle="--", linewidth=1)
    ax.set_ylim(0.0, 1.03)
    ax.set_xlabel("direction, the largest first")
    ax.set_ylabel("part of the variance")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    light(ax, grid="y")
    ax.legend(frameon=False, loc="center right")


def _variances(model: Any) -> Array:
    """Variances by direction, whatever was given."""
    if is_model(model):
        return variances_of(model)
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
    centred = values - values.mean(axis=0)
    return np.linalg.svd(centred, compute_uv=False) ** 2

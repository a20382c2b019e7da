"""What the summary of ``ncarl complete`` says of the Bayesian model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ncarl.cli.completion import Done
from ncarl.cli.filling import units_of

#: Sides by their name in the model -> in words.
SIDES = {
    "columns": "columns explain columns",
    "rows": "rows explain rows",
    "both": "columns and rows, counting {:.0%} and {:.0%}",
}


def bayesian_lines(done: Done) -> Iterable[tuple[str, str]]:
    """Filled entries, noise and held-out errors of a fit."""
    est = done.estimator
    unit = " of a column's spread" if done.scale else ""
    mean = ""
    if done.deviation is not None:
        mean = f", standard deviation {done.deviation:.3g}{unit} on average"
    yield "filled", f"{done.missing} entries{mean}"
    yield "noise", noise_words(est, unit)
    errors = est.side_errors_
    if not errors:
        return
    words = f"{est.held_out_error_:.3g}{unit}"
    if len(errors) > 1 or est.near_ is not None:
        parts = [f"{error:.3g} by {side}" for side, error in errors.items()]
        words += f" ({' and '.join(parts)} alone)"
    share = f"{est.validation:.0%}"
    yield "error", f"{words}, on {share} of the entries held out"
    if not math.isnan(est.calibration_):
        yield "", calibration_words(est.calibration_)


def model_words(est: Any) -> str:
    """The sides of a fit and its prior.

    Examples
    --------
    >>> from ncarl import BayesianNCARL
    >>> est = BayesianNCARL()
    >>> est.sides_, est.weight_, est.prior_strength_ = "both", 0.25, 0.1
    >>> est.near_ = None
    >>> model_words(est)
    'columns and rows, counting 25% and 75%; prior strength 0.1, center two-way'
    >>> est.near_ = {"count": 5, "weight": 0.9, "sharper": 0.95}
    >>> est.sides_ = "columns"
    >>> model_words(est).split("; ")[0]
    'columns explain columns, corrected by the 5 most similar rows'
    """
    sides = SIDES[est.sides_].format(est.weight_, 1.0 - est.weight_)
    if est.near_ is not None:
        sides += f", corrected by the {est.near_['count']} most similar rows"
    strength = f"prior strength {est.prior_strength_:.2g}"
    return f"{sides}; {strength}, center {est.center or 'none'}"


def noise_words(est: Any, unit: str) -> str:
    """The noise of a fit: one number, or those of the columns (or rows)."""
    noise = np.asarray(est.noise_, dtype=np.float64)
    axis = "row" if est.transposed_ else "column"
    if noise.ndim and est.transposed_:
        noise = noise / (est.model_.standard.unit if est.scale == "columns" else 1.0)
    elif noise.ndim:
        units = units_of(est)
        noise = noise[units > 0.0] / units[units > 0.0]
    how = "learned" if isinstance(est.noise, str) else "as given"
    low, high = (float(noise.min()), float(noise.max())) if noise.size else (0.0, 0.0)
    if f"{low:.2g}" == f"{high:.2g}":
        return f"{high:.2g}{unit}, {how}"
    return f"{low:.2g} to {high:.2g}{unit}, {how} for each {axis}"


def calibration_words(calibration: float) -> str:
    """How large held-out errors were against the deviations given for them."""
    return (
        f"there errors were {calibration:.2f} times their standard deviations; "
        "intervals allow for it"
    )

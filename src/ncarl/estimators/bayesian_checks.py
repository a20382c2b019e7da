"""Checks of the parameters of `BayesianNCARL`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ncarl.bayes.fit import Plan
from ncarl.core.types import Array
from ncarl.estimators.parameters import (
    DTYPES,
    check_callback,
    check_checkpoint,
    check_choice,
    check_flag,
    check_number,
    check_whole,
)

CENTERS = ("two-way", "columns", "mean", None)
SIDES = ("auto", "columns", "rows", "both")
PRIORS = ("co-observation", "identity")
#: How far a given correlation may be from symmetric, relatively.
ASYMMETRY = 1e-8


def checked_plan(est: Any) -> Plan:
    """What a fit is to do, or an error that names the parameter at fault."""
    check_choice("sides", est.sides, SIDES)
    check_choice("center", est.center, CENTERS)
    check_choice("dtype", est.dtype, DTYPES)
    check_choice("scale", est.scale, ("auto", None, "columns"))
    check_choice("rounding", est.rounding, (None, "observed"))
    check_flag("progress", est.progress)
    check_callback(est.callback)
    check_checkpoint(est.checkpoint)
    strength = est.prior_strength
    if not (isinstance(strength, str) and strength == "auto"):
        strength = check_number(
            "prior_strength", strength, low=0.0, hint="; 'auto' chooses it"
        )
    share = check_number("validation", est.validation, low=0.0)
    if share >= 1.0:
        raise ValueError(f"validation must be below 1, got {est.validation!r}")
    return Plan(
        sides=est.sides,
        strength=None if isinstance(strength, str) else strength,
        validation=share,
        seed=check_whole("random_state", est.random_state, low=0),
        max_iter=check_whole("max_iter", est.max_iter, low=1),
        tol=check_number("tol", est.tol, low=0.0),
    )


def checked_noise(noise: Any) -> str | float:
    """``noise`` as a way to learn it, or as a standard deviation."""
    if isinstance(noise, str):
        return str(check_choice("noise", noise, ("learn", "per-column")))
    hint = "; 'learn' and 'per-column' learn it"
    return check_number("noise", noise, low=0.0, hint=hint)


def checked_clip(clip: Any) -> Any:
    """``clip`` as "auto", None or a pair of numbers."""
    if clip is None or (isinstance(clip, str) and clip == "auto"):
        return clip
    try:
        low, high = (float(end) for end in clip)
    except (TypeError, ValueError):
        raise ValueError(
            f"clip must be 'auto', None or a pair (low, high), got {clip!r}"
        ) from None
    if not low < high:
        raise ValueError(f"clip must be (low, high) with low < high, got {clip!r}")
    return low, high


def checked_prior(prior: Any, n: int, *, rows_only: bool) -> Any:
    """``prior`` as a name, a correlation of n columns, or features of them."""
    if isinstance(prior, str):
        return check_choice("prior", prior, PRIORS)
    if rows_only:
        raise ValueError(
            "prior describes the columns, and sides='rows' has no kernel for them; "
            "use sides='columns' or 'both'"
        )
    dense = prior.toarray() if sparse.issparse(prior) else prior
    try:
        given = np.array(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "prior must be 'co-observation', 'identity', a correlation matrix of the "
            f"columns or features of them, got {type(prior).__name__}"
        ) from None
    if given.ndim != 2 or given.shape[0] != n:
        raise ValueError(
            f"prior must have one row for each of the {n} columns of X, got shape "
            f"{given.shape}"
        )
    if not np.isfinite(given).all():
        raise ValueError("prior must be finite, got NaN or infinite entries")
    return _checked_correlation(given) if given.shape[1] == n else given


def _checked_correlation(given: Array) -> Array:
    """A symmetric positive definite matrix as it is; otherwise an error."""
    size = float(np.abs(given).max())
    if float(np.abs(given - given.T).max()) > ASYMMETRY * size:
        raise ValueError(
            "prior is square but not symmetric; a correlation of the columns is, and "
            "features must not be as many as columns"
        )
    given = (given + given.T) / 2.0
    try:
        np.linalg.cholesky(given)
    except np.linalg.LinAlgError:
        raise ValueError(
            "prior must be positive definite; add a multiple of the identity to it"
        ) from None
    return given

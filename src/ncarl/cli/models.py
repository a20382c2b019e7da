"""From the options of a command to an estimator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncarl.cli.choices import (
    Center,
    FitEngine,
    Method,
    Orientation,
    Precision,
    Scale,
    Sides,
    Weights,
)

if TYPE_CHECKING:
    from ncarl.core.types import Array
    from ncarl.estimators.base import Completer

#: Spreads of columns that differ by more than this factor are brought to one scale.
UNITS_DIFFER = 5.0
#: With ncarl and ncarl-cv, scaling puts the kernel on the columns; a wide table beyond
#: this is too costly.
WIDEST_SCALED = 1000


@dataclass(frozen=True)
class ModelOptions:
    """What the user asked of the model; None leaves it to the estimator.

    Attributes
    ----------
    gamma : float, "none" or None
        "none" asks for the exact model.
    clip : pair of float, "auto", "none" or None
        Bounds of filled values.
    rounding : bool
        Whether filled values are rounded to observed ones.
    std : bool
        Whether standard deviations will be asked for.
    settings : tuple of pairs
        Names and values of parameters of a rival.
    """

    method: Method = Method.BAYES
    alpha: float | None = None
    n_neighbors: int | None = None
    gamma: float | str | None = None
    center: Center | None = None
    weights: Weights | None = None
    max_iter: int | None = None
    tol: float | None = None
    orientation: Orientation | None = None
    sides: Sides | None = None
    prior_strength: float | str | None = None
    noise: float | str | None = None
    clip: tuple[float, float] | str | None = None
    rounding: bool = False
    validation: float | None = None
    seed: int = 0
    checkpoint: Path | None = None
    scale: Scale = Scale.AUTO
    std: bool = False
    engine: FitEngine = FitEngine.AUTO
    dtype: Precision = Precision.FLOAT64
    settings: tuple[tuple[str, Any], ...] = ()


@contextlib.contextmanager
def engine_of(options: ModelOptions) -> Iterator[Any]:
    """The engine that the options name, for as long as it is needed.

    Workers of Dask are those of the scheduler that Dask is configured for
    (``DASK_SCHEDULER_ADDRESS``), or threads of this process.
    """
    if options.engine is not FitEngine.DASK:
        yield str(options.engine)
        return
    try:
        import dask

        from ncarl.dask_engine import Dask, LostWorkersError
    except ImportError as error:
        raise ImportError(
            "--engine dask needs Dask; install it with pip install 'ncarl[dask]'"
        ) from error
    with Dask(dask.config.get("scheduler-address", None)) as engine:
        try:
            _ = engine.link  # workers of another version, say, are found out now
        except RuntimeError as error:
            raise ConnectionError(
                f"--engine dask (set DASK_SCHEDULER_ADDRESS, or unset it for threads "
                f"of this process): {error}"
            ) from error
        try:
            yield engine
        except LostWorkersError as error:
            raise ConnectionError(f"--engine dask: {error}") from error


def build(
    options: ModelOptions, *, scale: str | None, progress: bool, engine: Any = None
) -> Any:
    """The estimator that the options ask for.

    Parameters
    ----------
    options : ModelOptions
        What the user asked for.
    scale : {None, "columns"}
        The scaling, decided.
    progress : bool
        Whether to show a progress bar.
    engine : str or Engine, optional
        The engine, if it has been made already (`engine_of`).
    """
    shared: dict[str, Any] = {
        "weights": options.weights and str(options.weights),
        "max_iter": options.max_iter,
        "tol": options.tol,
        "orientation": options.orientation and str(options.orientation),
        "checkpoint": options.checkpoint,
    }
    given = {name: value for name, value in shared.items() if value is not None}
    given |= {"scale": scale, "progress": progress}
    given["engine"] = str(options.engine) if engine is None else engine
    given["dtype"] = str(options.dtype)
    make = {
        Method.BAYES: _bayesian,
        Method.NCARL_CV: _search,
        Method.NCARL: _one_fit,
    }
    return make.get(options.method, _rival)(options, given)


def _rival(options: ModelOptions, given: dict[str, Any]) -> Completer:
    """A model of the rivals, with the parameters that were set."""
    from ncarl.checkpoint import Checkpoint
    from ncarl.methods import make, parameters_of

    if "checkpoint" in given:  # as large as the table: not after every step
        given["checkpoint"] = Checkpoint(given["checkpoint"], every=2.0)

    name = str(options.method)
    known = parameters_of(name)
    own: dict[str, Any] = {
        "random_state": options.seed,
        "validation": options.validation,
    }
    if options.center is not None:
        own["center"] = _center(options.center)
    elif given["scale"] == "columns" and not dict(options.settings).get("nonnegative"):
        own["center"] = "columns"  # one mean for columns of many units says nothing
    given |= {name: value for name, value in own.items() if value is not None}
    usable = {key: value for key, value in given.items() if key in known}
    return make(name, **usable | dict(options.settings))  # type: ignore[no-any-return]


def _bayesian(options: ModelOptions, given: dict[str, Any]) -> Completer:
    """The model with learned noise, a prior and error bars."""
    from ncarl.estimators.bayesian import BayesianNCARL

    own: dict[str, Any] = {
        "sides": options.sides and str(options.sides),
        "prior_strength": options.prior_strength,
        "noise": options.noise,
        "validation": options.validation,
        "rounding": "observed" if options.rounding else None,
    }
    given |= {name: value for name, value in own.items() if value is not None}
    if options.clip is not None:
        given["clip"] = None if options.clip == "none" else options.clip
    if options.center is not None:
        given["center"] = _center(options.center)
    return BayesianNCARL(random_state=options.seed, **given)


def _one_fit(options: ModelOptions, given: dict[str, Any]) -> Completer:
    """One fit with given parameters."""
    from ncarl.estimators.ncarl import NCARL

    if options.alpha is not None:
        given["alpha"] = options.alpha
    if options.n_neighbors is not None:
        given["n_neighbors"] = options.n_neighbors
    if options.gamma is not None:
        given["gamma"] = _gamma(options.gamma)
    if options.center is not None:
        given["center"] = _center(options.center)
    elif given["scale"] == "columns":
        given["center"] = "columns"  # one mean for columns of many units says nothing
    return NCARL(**given)


def _search(options: ModelOptions, given: dict[str, Any]) -> Completer:
    """A search on held-out entries; what the user fixed is a grid of one value."""
    from ncarl.estimators.search import NCARLCV

    if options.alpha is not None:
        given["alphas"] = (options.alpha,)
    if options.n_neighbors is not None:
        given["n_neighbors"] = (options.n_neighbors,)
    if options.gamma is not None:
        given["gammas"] = (_gamma(options.gamma),)
    elif options.std:
        given["gammas"] = tuple(g for g in NCARLCV().gammas if g is not None)
    if options.center is not None:
        given["centers"] = (_center(options.center),)
    if options.validation is not None:
        given["validation"] = options.validation
    return NCARLCV(random_state=options.seed, **given)


def _gamma(gamma: float | str) -> float | None:
    """The noise level as the estimators write it."""
    return None if gamma == "none" else float(gamma)


def _center(center: Center) -> str | None:
    """The centring as the estimators write it."""
    return None if center is Center.NONE else str(center)


def decide_scale(
    options: ModelOptions, values: Any, mixed_units: bool
) -> tuple[str | None, str]:
    """Whether to bring columns to one scale, and the reason."""
    decided = scale_without_looking(options, mixed_units)
    if decided is not None:
        return decided
    if options.method in (Method.NCARL, Method.NCARL_CV):
        # There scaling puts the kernel on the columns.
        if options.orientation is Orientation.ROWS:
            return None, "the kernel is to sit on the rows"
        m, n = values.shape
        if n > max(m, WIDEST_SCALED):
            return None, f"{n} columns are too many for it"
    return scale_by(spread_factor(values))


def scale_without_looking(
    options: ModelOptions, mixed_units: bool
) -> tuple[str | None, str] | None:
    """The scaling and the reason, where neither depends on the values; else None."""
    if options.scale is not Scale.AUTO:
        return (None if options.scale is Scale.NONE else "columns"), "as asked"
    return None if mixed_units else (None, "a matrix file has one unit")


def scale_by(factor: float | None) -> tuple[str | None, str]:
    """The scaling for columns whose spreads differ by so much, and the reason."""
    if factor is None:
        return None, "too few columns vary"
    reason = f"spreads of columns differ by a factor of {factor:.3g}"
    return ("columns" if factor > UNITS_DIFFER else None), reason


def spread_factor(values: Array) -> float | None:
    """Ratio of the 90th to the 10th percentile of the columns' standard deviations.

    Columns with fewer than two observed values, or that do not vary, do not count;
    None where fewer than two are left.
    """
    import numpy as np

    enough = (~np.isnan(values)).sum(axis=0) >= 2
    # Infinite entries are for the estimator to refuse, in its own words.
    with np.errstate(invalid="ignore"):
        # One column after the other: a copy of a large table would cost too much.
        deviations = [np.nanstd(values[:, j]) for j in np.flatnonzero(enough)]
    return factor_between(np.array(deviations))


def factor_between(deviations: Array) -> float | None:
    """Ratio of the 90th to the 10th percentile of those that are positive."""
    import numpy as np

    positive = deviations[deviations > 0.0]
    if len(positive) < 2:
        return None
    low, high = np.percentile(positive, (10, 90))
    return float(high / low)

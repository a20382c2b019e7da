"""What a fitted model says of a table, and the files that it goes into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.cli.files import Table
from ncarl.cli.large import some_rows
from ncarl.cli.outputs import USUAL_LEVEL, Outputs
from ncarl.core.types import Array
from ncarl.estimators.base import MAX_DENSE_GB
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.observed import Observed
from ncarl.storage import replacing

#: So many gaps stand for all where the mean of their deviations is wanted.
SAMPLED = 1000


@dataclass(frozen=True)
class Results:
    """A completed matrix and what was asked for beside it.

    Attributes
    ----------
    filled : array of shape (m, n)
        The completed matrix.
    std, lower, upper : array of shape (m, n) or None
        Standard deviations, 0 at observed entries; ends of intervals, the observed
        value there.
    draws : array of shape (count, m, n) or None
        Completed matrices as they might be.
    deviation : float or None
        Mean standard deviation of filled entries, in units of `units_of`.
    """

    filled: Array
    std: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    draws: Array | None = None
    deviation: float | None = None


def fill(
    estimator: Any, values: Any, rows: Any, outputs: Outputs, *, seed: int
) -> Results:
    """All that the outputs ask of a fitted model.

    Parameters
    ----------
    estimator : estimator
        The model.
    values : array or sparse matrix
        The table.
    rows : array, sparse matrix or source
        The form of it that was fitted.
    outputs : Outputs
        What is asked for.
    seed : int
        Seed of draws.
    """
    std = lower = upper = draws = deviation = None
    filled = estimator.transform(rows, return_std=outputs.std is not None)
    if outputs.std is not None:
        filled, std = filled
    if isinstance(estimator, BayesianNCARL):
        gaps = gaps_of(values)
        deviation = mean_deviation(estimator, values, gaps, std)
        if outputs.ends:
            level = USUAL_LEVEL if outputs.level is None else outputs.level
            both = estimator.predict_interval(values, level=level)
            ends = (np.where(gaps, end, filled).astype(filled.dtype) for end in both)
            lower, upper = ends
        if outputs.draws is not None:
            draws = estimator.sample(outputs.draws, random_state=seed)
    return Results(filled, std, lower, upper, draws, deviation)


def write(table: Table, outputs: Outputs, results: Results) -> None:
    """Write the results; every file is whole or absent."""
    # Links are followed, so that the file behind them is the one replaced.
    table.write(outputs.target.resolve(), results.filled)
    if outputs.std is not None and results.std is not None:
        table.write(outputs.std.resolve(), results.std, every=True)
    if outputs.lower is not None and results.lower is not None:
        table.write(outputs.lower.resolve(), results.lower)
    if outputs.upper is not None and results.upper is not None:
        table.write(outputs.upper.resolve(), results.upper)
    if outputs.drawn is not None and results.draws is not None:
        write_draws(outputs.drawn.resolve(), results.draws, table)


def write_draws(path: Path, draws: Array, table: Table) -> None:
    """Write draws, and the names of their columns, as an NPZ file."""
    named = {} if table.columns is None else {"columns": np.array(table.columns)}
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, draws=draws, **named)


def check_size(shape: tuple[int, int], outputs: Outputs) -> None:
    """Raise if the draws would be too large, before the time for the fit is spent."""
    m, n = shape
    size = (outputs.draws or 0) * m * n * 8 / 1e9
    if size > MAX_DENSE_GB:
        raise ValueError(
            f"--draws {outputs.draws} of a {m} x {n} table take {size:.3g} GB, more "
            f"than {MAX_DENSE_GB:g}; ask for fewer"
        )


def mean_deviation(
    estimator: BayesianNCARL, values: Any, gaps: Array, std: Array | None
) -> float | None:
    """Mean standard deviation of filled entries, in units of `units_of`.

    Some gaps stand for all if deviations have not been worked out already; None where
    there is no gap, or no noise.
    """
    known = {}
    if std is None and estimator.training_ is None:  # fitted to rows in turn
        values = known["X"] = some_rows(values, gaps)
        gaps = gaps_of(values)
    places = np.flatnonzero(gaps)
    if len(places) == 0 or not np.any(np.asarray(estimator.noise_) > 0.0):
        return None
    if std is None and len(places) > SAMPLED:
        places = np.random.default_rng(0).choice(places, SAMPLED, replace=False)
    i, j = np.unravel_index(np.sort(places), gaps.shape)
    if std is None:
        _, found = estimator.predict(i, j, return_std=True, **known)
    else:
        found = std[i, j]
    units = units_of(estimator)[j]
    varies = units > 0.0
    return float(np.mean(found[varies] / units[varies])) if varies.any() else None


def units_of(estimator: BayesianNCARL) -> Array:
    """What to count deviations of each column in: its spread if columns were scaled."""
    standard = estimator.model_.standard
    spreads: Array = standard.centre.spreads
    scaled = estimator.scale == "columns"
    return spreads * standard.unit if scaled else np.ones(len(spreads))


def gaps_of(values: Any) -> Array:
    """Where a matrix has gaps."""
    if not sparse.issparse(values):
        return np.isnan(values)
    observed = Observed.from_sparse(values)
    gaps = np.ones(observed.shape, dtype=bool)
    gaps[observed.rows, observed.indices] = False
    return gaps


def count_missing(values: Any) -> int:
    """Number of gaps in a matrix."""
    if sparse.issparse(values):
        m, n = values.shape
        return int(m * n - Observed.from_sparse(values).n_observed)
    return int(np.isnan(values).sum())

"""How sensors go together over time: a covariance of every two entries of a log.

The covariance of sensor ``i`` at one step and sensor ``j`` at another, ``h`` steps
away, is ``sum_b W_b[i, j] f_b(h)``. The ``f_b`` are given: noise, memories that fade
within minutes, hours or days, and such that come back every day. The ``W_b`` are
learned: principal components of the sensors, each with the memory that its lagged
covariances show, and what is each sensor's own. All weights are positive, so that the
whole is a covariance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from ncarl.core.types import Array
from ncarl.engines import Engine

#: Memories in steps that are shorter than a cycle.
FADING = (1.5, 4.0, 10.0, 25.0, 60.0, 150.0)
#: Memories in cycles.
LONG = (1.0, 7.0)
#: How sharply what comes back each day is tied to its time, and for how many days.
SHARP, RETURNING = (0.3, 1.0), 3.0
#: Lines that sensors and lags are learned from.
MOST_LINES = 4000
#: Steps of EM that are tried: few suit logs with little to learn from.
STEPS = (15, 40)
#: Noise is at least this part of what is a sensor's own.
LEAST_NOISE = 0.02
#: The whole of a component counts for so much more than a lag of it.
TOTAL_WEIGHT = 3.0
#: Fewer pairs say nothing of a lag.
LEAST_PAIRS = 10


@dataclass(frozen=True)
class Covariance:
    """The covariance of a log's entries.

    Attributes
    ----------
    weights : array of shape (memories, sensors, sensors)
        How much of each memory two sensors share.
    period : int or None
        Steps of a cycle.
    """

    weights: Array
    period: int | None

    def memories(self, longest: int) -> Array:
        """The memories at lags from 0 to the longest, shape (lags, memories)."""
        return memories(np.arange(longest + 1), self.period)

    @property
    def total(self) -> Array:
        """Covariance of the sensors at one time."""
        total: Array = self.weights.sum(axis=0)
        return total


def memories(lags: Array, period: int | None) -> Array:
    """What is left of each memory after some lags; the first is noise."""
    h = np.abs(np.asarray(lags, dtype=np.float64))
    found = [(h == 0.0).astype(np.float64)]
    short = [tau for tau in FADING if period is None or tau < period]
    found += [np.exp(-h / tau) for tau in short]
    if period is None:
        found.append(np.exp(-h / (4.0 * FADING[-1])))
    else:
        found += [np.exp(-h / (cycles * period)) for cycles in LONG]
        for sharp in SHARP:
            again = np.exp(-2.0 * np.square(np.sin(np.pi * h / period) / sharp))
            found.append(again * np.exp(-h / (RETURNING * period)))
    return np.stack(found, axis=1)


def learn_covariance(
    values: Array, period: int | None, steps: int, engine: Engine
) -> Covariance:
    """The covariance of a log of about unit spread, NaN in gaps.

    ``steps`` are those of EM that learn what sensors share at one time.
    """
    there = ~np.isnan(values)
    filled = np.where(there, values, 0.0)
    kernel, noise = _one_time(values, steps, engine)
    sizes, axes = np.linalg.eigh(kernel)
    sizes = np.maximum(sizes, 1e-9 * max(float(sizes[-1]), 1e-9))
    lags = _lags(len(values), period)
    basis = memories(lags, period)
    shared, own = _lagged(filled, there, lags, axes)
    shared[0] = sizes
    trust = 1.0 / np.sqrt(1.0 + lags / ((period or len(values)) / 24.0))
    trust[0] = TOTAL_WEIGHT
    parts = _shares(basis[:, 1:], shared, sizes, trust)
    rest = own - (basis[:, 1:] @ parts) @ np.square(axes.T)
    rest[0] = noise
    alone = _shares(basis, rest, noise, trust)
    alone[0] = np.maximum(alone[0], LEAST_NOISE * noise)
    n = values.shape[1]
    weights = np.zeros((basis.shape[1], n, n))
    for b, part in enumerate(parts, start=1):
        weights[b] = (axes * part) @ axes.T
    weights[:, np.arange(n), np.arange(n)] += alone
    return Covariance(weights, period)


def _one_time(values: Array, steps: int, engine: Engine) -> tuple[Array, Array]:
    """What sensors share at one time, and the variance of what each has alone."""
    n = values.shape[1]
    if n == 1:
        return np.full((1, 1), 0.5), np.full(1, 0.5)
    from ncarl.estimators.bayesian import BayesianNCARL

    known = np.flatnonzero(~np.isnan(values).all(axis=1))
    some = known[:: max(1, -(-len(known) // MOST_LINES))]
    model = BayesianNCARL(
        validation=0, sides="columns", center="columns", scale=None, max_iter=steps,
        tol=0.0, clip=None, engine=engine,
    ).fit(values[some])  # fmt: skip
    noise = np.broadcast_to(np.square(model.noise_), (n,))
    return model.kernel_, np.maximum(noise, 1e-9)


def _lags(steps: int, period: int | None) -> Array:
    """Lags that memories are learned from."""
    most = 0.7 * steps
    far = (period or min(steps, 600)) / 2.0
    lags = {*range(12), *np.geomspace(12.0, max(far, 13.0), 12).astype(int).tolist()}
    if period is not None:
        around = (period // 8, period // 24, 2, 1)
        near = sorted({0, *around, *(-k for k in around)})
        for days in (1, 2, 3, 7):
            lags |= {days * period + k for k in near}
    return np.array(sorted(h for h in lags if h == 0 or h < most))


def _lagged(
    filled: Array, there: Array, lags: Array, axes: Array
) -> tuple[Array, Array]:
    """Lagged covariances along the axes, and of each sensor; a row for each lag."""
    shared, own = (np.empty((len(lags), len(axes))) for _ in range(2))
    every = max(1, len(filled) // MOST_LINES)
    for k, lag in enumerate(lags):
        first = slice(0, len(filled) - lag, every)
        later = slice(lag, None, every)
        pairs = there[first].T.astype(np.float64) @ there[later]
        sums = filled[first].T @ filled[later]
        found = np.where(pairs >= LEAST_PAIRS, sums / np.maximum(pairs, 1.0), 0.0)
        shared[k] = np.einsum("ik,ij,jk->k", axes, found, axes, optimize=True)
        own[k] = np.diag(found)
    return shared, own


def _shares(basis: Array, lagged: Array, sizes: Array, trust: Array) -> Array:
    """Parts of each size that the memories have, shape (memories, sizes)."""
    parts = np.zeros((basis.shape[1], len(sizes)))
    for k, size in enumerate(sizes):
        wanted = np.clip(lagged[:, k] / size, -1.0, 1.0)
        parts[:, k] = nnls(basis * trust[:, None], wanted * trust)[0]
        if parts[:, k].sum() < 1e-6:
            parts[0, k] = 1.0  # no memory shows: the shortest
        parts[:, k] *= size / parts[:, k].sum()
    return parts

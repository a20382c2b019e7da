"""Kriging: conditional means and variances of entries of a log, given nearby entries.

A missing entry is predicted from a few observed ones, its predictors: of the same and
of the most correlated sensors, around its time and at the same time of other days
(`select_predictors`). Their covariance is a sum of temporal basis functions, each with
a covariance of the sensors (`learn_covariance`). Every entry has a small system of its
own, so the row kernels of `ncarl.core`, which share one matrix, do not apply.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from ncarl.core.linalg import correlation_from_covariance
from ncarl.core.rows import row_backend
from ncarl.core.types import Array, cached_property
from ncarl.engines.base import Engine
from ncarl.engines.cores import available_cores
from ncarl.estimators.bayesian import BayesianNCARL

#: Decay times of exponential basis functions, in steps; those below a cycle are used.
DECAY_STEPS = (1.5, 4.0, 10.0, 25.0, 60.0, 150.0)
#: Decay times in cycles.
DECAY_CYCLES = (1.0, 7.0)
#: Widths of the periodic basis functions, and their decay time in cycles.
PERIODIC_WIDTHS, PERIODIC_DECAY_CYCLES = (0.3, 1.0), 3.0
#: Maximum number of rows that covariances are learned from.
MAX_ROWS = 4000
#: Numbers of EM steps that are tried; few are better for short logs.
EM_STEPS_GRID = (15, 40)
#: Minimum noise variance, relative to the variance of a sensor's own part.
MIN_NOISE_FRACTION = 0.02
#: Weight of lag 0 in the fit of the basis functions, where other lags have at most 1.
ZERO_LAG_WEIGHT = 3.0
#: Minimum number of pairs of entries to estimate a covariance at a lag.
MIN_PAIRS = 10
#: Predictors before and as many after the missing entry: of the sensor itself, of close
#: sensors, and of other sensors that have no entry at the time itself.
OWN_ENTRIES, CLOSE_ENTRIES, OTHER_ENTRIES = 4, 2, 1
#: Number of close sensors, and of sensors (itself included) with predictors at other
#: days.
N_CLOSE_SENSORS, N_CYCLE_SENSORS = 3, 3
#: Maximum steps between a predictor at another day and the same time of that day.
MAX_CYCLE_OFFSET = 2
#: Missing entries that are predicted together, which bounds memory.
CHUNK_SIZE, NUMPY_CHUNK_SIZE = 4000, 500


@dataclass(frozen=True)
class Kriging:
    """Predictor of entries of a log from their space-time covariance."""

    weights: Array  # covariances of the sensors, (basis functions, sensors, sensors)
    period: int | None  # steps of a cycle
    n_neighbors: int  # other sensors that each sensor is predicted from
    lags: tuple[int, ...]  # distances in cycles of predictors at other days

    @cached_property
    def neighbor_sensors(self) -> Array:
        """Each sensor and those most correlated with it, (sensors, neighbors + 1)."""
        strength = np.abs(correlation_from_covariance(self.weights.sum(axis=0)))
        np.fill_diagonal(strength, np.inf)
        order = np.argsort(-strength, axis=1, kind="stable")
        return order[:, : self.n_neighbors + 1]

    def predict(
        self, values: Array, observed_mask: Array, t: Array, j: Array
    ) -> tuple[Array, Array]:
        """Means and standard deviations of entries ``(t, j)`` of a standardized log."""
        index = ObservedIndex.from_mask(observed_mask)
        basis = temporal_basis(np.arange(len(values)), self.period)
        values = np.where(observed_mask, values, 0.0)
        solve, size, weights = krige, NUMPY_CHUNK_SIZE, self.weights
        if row_backend().__name__.endswith("numba"):
            from ncarl.panel import kriging_numba

            solve, size = kriging_numba.krige, CHUNK_SIZE
            weights = np.ascontiguousarray(np.moveaxis(weights, 0, 2))

        def predict_chunk(first: int) -> tuple[Array, Array]:
            at = slice(first, first + size)
            steps, sensors = select_predictors(
                index, t[at], j[at], self.neighbor_sensors, self.period, self.lags
            )
            return solve(values, weights, basis, t[at], j[at], steps, sensors)

        with ThreadPoolExecutor(available_cores()) as pool:
            chunks = list(pool.map(predict_chunk, range(0, len(t), size)))
        if not chunks:
            return np.empty(0), np.empty(0)
        means, variances = (np.concatenate(c) for c in zip(*chunks, strict=True))
        return means, np.sqrt(np.maximum(variances, 0.0))


def krige(
    values: Array, weights: Array, basis: Array, t: Array, j: Array, steps: Array,
    sensors: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Conditional means and variances of entries ``(t, j)``, given their predictors.

    ``weights`` has shape (basis functions, sensors, sensors), ``basis`` (lags, basis
    functions); ``steps`` and ``sensors`` of the predictors (entries, predictors), with
    -1 in ``steps`` for none.
    """
    valid = steps >= 0
    when = np.where(valid, steps, t[:, None])
    lag = np.abs(when[:, :, None] - when[:, None, :])
    A, c = np.zeros(lag.shape), np.zeros(when.shape)
    to_target = np.abs(when - t[:, None])
    prior = np.zeros(len(t))
    for b, shared in enumerate(weights):
        A += shared[sensors[:, :, None], sensors[:, None, :]] * basis[lag, b]
        c += shared[j[:, None], sensors] * basis[to_target, b]
        prior += shared[j, j] * basis[0, b]
    # Absent predictors are independent of everything, with unit variance and value 0.
    A *= valid[:, :, None] & valid[:, None, :]
    A += np.where(valid, 0.0, 1.0)[:, :, None] * np.eye(A.shape[1])
    c *= valid
    y = np.where(valid, values[when, sensors], 0.0)
    solved = np.linalg.solve(A, np.stack([y, c], axis=2))
    means = np.einsum("qm,qm->q", c, solved[:, :, 0])
    explained = np.einsum("qm,qm->q", c, solved[:, :, 1])
    return means, prior - explained


@dataclass(frozen=True)
class ObservedIndex:
    """Lookup tables of the observed entries around any step; -1 for none."""

    observed_mask: Array  # shape (steps, sensors)
    last_before: Array  # last entry before step ``t``, shape (steps + 1, sensors)
    first_from: Array  # first entry at ``t`` or later, shape (steps + 1, sensors)

    @classmethod
    def from_mask(cls, observed_mask: Array) -> ObservedIndex:
        """Build the tables of a mask."""
        steps, n = observed_mask.shape
        places = np.arange(steps, dtype=np.int32)[:, None]
        none = np.full((1, n), -1, dtype=np.int32)
        before = np.maximum.accumulate(np.where(observed_mask, places, -1), axis=0)
        far = np.where(observed_mask, places, steps)[::-1]
        after = np.minimum.accumulate(far, axis=0)[::-1]
        after = np.where(after == steps, -1, after)
        tables = np.vstack([none, before]), np.vstack([after, none])
        return cls(observed_mask, *(table.astype(np.int32) for table in tables))


def select_predictors(
    index: ObservedIndex,
    t: Array,
    j: Array,
    neighbor_sensors: Array,
    period: int | None,
    lags: tuple[int, ...],
) -> tuple[Array, Array]:
    """Steps (-1 for none) and sensors of predictors, of shape (entries, predictors)."""
    pairs: list[tuple[Array, Array]] = []
    for rank in range(neighbor_sensors.shape[1]):
        i = neighbor_sensors[j, rank]
        steps = _nearby_entries(index, t, i, rank)
        if period is not None and rank < N_CYCLE_SENSORS:
            for lag in lags:
                if lag * period >= len(index.observed_mask):
                    continue  # the log is shorter
                for away in (-lag * period, lag * period):
                    other = _nearest_entry(index, t + away, i)
                    for taken in steps:
                        other = np.where(taken == other, -1, other)
                    steps.append(other)
        pairs += [(s, i) for s in steps]
    when = np.stack([s for s, _ in pairs], axis=1)
    return when, np.stack([i for _, i in pairs], axis=1)


def _nearby_entries(index: ObservedIndex, t: Array, i: Array, rank: int) -> list[Array]:
    """Steps of entries of sensors ``i`` at and around steps ``t``; -1 for none."""
    here = index.observed_mask[t, i]
    steps = [np.where(here, t, -1)]
    count = OWN_ENTRIES
    if rank > 0:
        count = CLOSE_ENTRIES if rank <= N_CLOSE_SENSORS else OTHER_ENTRIES
    # An entry at the time itself makes those around it redundant, unless it is close.
    redundant = here & (rank > N_CLOSE_SENSORS)
    back, ahead = t.astype(np.int64), t.astype(np.int64)
    for _ in range(count):
        back = np.where(back >= 0, index.last_before[np.maximum(back, 0), i], -1)
        ahead = np.where(ahead >= 0, index.first_from[np.maximum(ahead, -1) + 1, i], -1)
        steps += [np.where(redundant, -1, back), np.where(redundant, -1, ahead)]
    return steps


def _nearest_entry(index: ObservedIndex, t: Array, i: Array) -> Array:
    """Step of the entry of sensors ``i`` nearest to steps ``t``; -1 if it is far."""
    last = len(index.observed_mask) - 1
    inside = (t >= 0) & (t <= last)
    clipped = np.clip(t, 0, last)
    before = index.last_before[clipped + 1, i].astype(np.int64)
    after = index.first_from[clipped, i].astype(np.int64)
    back = np.where(before >= 0, clipped - before, MAX_CYCLE_OFFSET + 1)
    ahead = np.where(after >= 0, after - clipped, MAX_CYCLE_OFFSET + 1)
    nearest = np.where(ahead < back, after, before)
    return np.where(inside & (np.minimum(back, ahead) <= MAX_CYCLE_OFFSET), nearest, -1)


def temporal_basis(lags: Array, period: int | None) -> Array:
    """Basis functions at some lags, one per column; the first is white noise."""
    h = np.abs(np.asarray(lags, dtype=np.float64))
    basis = [(h == 0.0).astype(np.float64)]
    short = [tau for tau in DECAY_STEPS if period is None or tau < period]
    basis += [np.exp(-h / tau) for tau in short]
    if period is None:
        basis.append(np.exp(-h / (4.0 * DECAY_STEPS[-1])))
    else:
        basis += [np.exp(-h / (cycles * period)) for cycles in DECAY_CYCLES]
        for width in PERIODIC_WIDTHS:
            periodic = np.exp(-2.0 * np.square(np.sin(np.pi * h / period) / width))
            basis.append(periodic * np.exp(-h / (PERIODIC_DECAY_CYCLES * period)))
    return np.stack(basis, axis=1)


def learn_covariance(
    values: Array, period: int | None, max_iter: int, engine: Engine
) -> Array:
    """Weights of the covariance of a log of about unit variance, NaN where missing.

    The covariance of the sensors at lag 0 is learned by ``max_iter`` steps of EM; the
    weights of the basis functions are fitted to lagged covariances of its principal
    components, and to what these leave of each sensor.
    """
    observed = ~np.isnan(values)
    filled = np.where(observed, values, 0.0)
    kernel, noise = _fit_zero_lag(values, max_iter, engine)
    sizes, axes = np.linalg.eigh(kernel)
    sizes = np.maximum(sizes, 1e-9 * max(float(sizes[-1]), 1e-9))
    lags = _lags(len(values), period)
    basis = temporal_basis(lags, period)
    shared, own = _lagged_covariances(filled, observed, lags, axes)
    shared[0] = sizes
    lag_weights = 1.0 / np.sqrt(1.0 + lags / ((period or len(values)) / 24.0))
    lag_weights[0] = ZERO_LAG_WEIGHT
    parts = _fit_basis_weights(basis[:, 1:], shared, sizes, lag_weights)
    rest = own - (basis[:, 1:] @ parts) @ np.square(axes.T)
    rest[0] = noise
    own_parts = _fit_basis_weights(basis, rest, noise, lag_weights)
    own_parts[0] = np.maximum(own_parts[0], MIN_NOISE_FRACTION * noise)
    n = values.shape[1]
    weights = np.zeros((basis.shape[1], n, n))
    for b, part in enumerate(parts, start=1):
        weights[b] = (axes * part) @ axes.T
    weights[:, np.arange(n), np.arange(n)] += own_parts
    return weights


def _fit_zero_lag(values: Array, max_iter: int, engine: Engine) -> tuple[Array, Array]:
    """Covariance of the sensors at lag 0, and variances of their own parts."""
    n = values.shape[1]
    if n == 1:
        return np.full((1, 1), 0.5), np.full(1, 0.5)
    nonempty = np.flatnonzero(~np.isnan(values).all(axis=1))
    sample = nonempty[:: max(1, -(-len(nonempty) // MAX_ROWS))]
    model = BayesianNCARL(
        validation=0, sides="columns", center="columns", scale=None, max_iter=max_iter,
        tol=0.0, clip=None, engine=engine,
    ).fit(values[sample])  # fmt: skip
    noise = np.broadcast_to(np.square(model.noise_), (n,))
    return model.kernel_, np.maximum(noise, 1e-9)


def _lags(n_steps: int, period: int | None) -> Array:
    """Lags that the weights of the basis functions are fitted at."""
    most = 0.7 * n_steps
    far = (period or min(n_steps, 600)) / 2.0
    lags = {*range(12), *np.geomspace(12.0, max(far, 13.0), 12).astype(int).tolist()}
    if period is not None:
        around = (period // 8, period // 24, 2, 1)
        near = sorted({0, *around, *(-k for k in around)})
        for days in (1, 2, 3, 7):
            lags |= {days * period + k for k in near}
    return np.array(sorted(h for h in lags if h == 0 or h < most))


def _lagged_covariances(
    filled: Array, observed_mask: Array, lags: Array, axes: Array
) -> tuple[Array, Array]:
    """Lagged covariances of principal components, and of sensors; a row per lag."""
    shared, own = (np.empty((len(lags), len(axes))) for _ in range(2))
    every = max(1, len(filled) // MAX_ROWS)
    for k, lag in enumerate(lags):
        first = slice(0, len(filled) - lag, every)
        later = slice(lag, None, every)
        pairs = observed_mask[first].T.astype(np.float64) @ observed_mask[later]
        sums = filled[first].T @ filled[later]
        lagged = np.where(pairs >= MIN_PAIRS, sums / np.maximum(pairs, 1.0), 0.0)
        shared[k] = np.einsum("ik,ij,jk->k", axes, lagged, axes, optimize=True)
        own[k] = np.diag(lagged)
    return shared, own


def _fit_basis_weights(
    basis: Array, lagged_covariances: Array, variances: Array, lag_weights: Array
) -> Array:
    """Parts of each variance by basis function, shape (basis functions, variances)."""
    parts = np.zeros((basis.shape[1], len(variances)))
    for k, variance in enumerate(variances):
        correlations = np.clip(lagged_covariances[:, k] / variance, -1.0, 1.0)
        parts[:, k] = nnls(basis * lag_weights[:, None], correlations * lag_weights)[0]
        if parts[:, k].sum() < 1e-6:
            parts[0, k] = 1.0  # no correlation over time: the shortest decay
        parts[:, k] *= variance / parts[:, k].sum()
    return parts

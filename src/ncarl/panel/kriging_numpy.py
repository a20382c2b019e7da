"""Gaps from their witnesses, many at a time with NumPy."""

from __future__ import annotations

import numpy as np

from ncarl.core.types import Array

#: Gaps that are solved together.
BATCH = 500


def krige(
    values: Array, weights: Array, memories: Array, t: Array, j: Array, steps: Array,
    sensors: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Conditional means and variances of some entries.

    Parameters
    ----------
    values : array of shape (steps, sensors)
        The log, of mean 0.
    weights : array of shape (memories, sensors, sensors)
        Of the covariance.
    memories : array of shape (lags, memories)
        What is left of each memory after a lag.
    t, j : arrays of int, shape (gaps,)
        The entries that are asked about.
    steps, sensors : arrays of int, shape (gaps, witnesses)
        The entries that speak for them; -1 in ``steps`` for none.
    """
    means, variances = np.empty(len(t)), np.empty(len(t))
    for first in range(0, len(t), BATCH):
        part = slice(first, first + BATCH)
        means[part], variances[part] = _batch(
            values, weights, memories, t[part], j[part], steps[part], sensors[part]
        )
    return means, variances


def _batch(
    values: Array, weights: Array, memories: Array, t: Array, j: Array, steps: Array,
    sensors: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """As `krige`, all at once."""
    known = steps >= 0
    when = np.where(known, steps, t[:, None])
    lag = np.abs(when[:, :, None] - when[:, None, :])
    A, c = np.zeros(lag.shape), np.zeros(when.shape)
    to_gap = np.abs(when - t[:, None])
    prior = np.zeros(len(t))
    for b, shared in enumerate(weights):
        A += shared[sensors[:, :, None], sensors[:, None, :]] * memories[lag, b]
        c += shared[j[:, None], sensors] * memories[to_gap, b]
        prior += shared[j, j] * memories[0, b]
    # Who is not there is independent of all others and has nothing to say.
    A *= known[:, :, None] & known[:, None, :]
    A += np.where(known, 0.0, 1.0)[:, :, None] * np.eye(A.shape[1])
    c *= known
    y = np.where(known, values[when, sensors], 0.0)
    solved = np.linalg.solve(A, np.stack([y, c], axis=2))
    means = np.einsum("qm,qm->q", c, solved[:, :, 0])
    explained = np.einsum("qm,qm->q", c, solved[:, :, 1])
    return means, prior - explained

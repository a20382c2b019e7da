"""Direct reference formulas of the model, row by row, and small data sets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ncarl.bayes.em import NOISE_PSEUDO_COUNT, EMData
from ncarl.bayes.selection import make_validation_splits
from ncarl.blocks import cut_blocks
from ncarl.dataset import InMemoryDataset
from ncarl.engines.threads import Threads
from ncarl.observations import Observations


def conditional(v, K, noise, mean):
    """Mean and covariance of a row given its observed entries."""
    o = ~np.isnan(v)
    gain = K[:, o] @ np.linalg.inv(K[np.ix_(o, o)] + np.diag(noise[o]))
    return mean + gain @ (v - mean)[o], K - gain @ K[o]


def log_evidence(X, K, noise, mean):
    """Log density of all observed entries."""
    total = 0.0
    for v in X:
        o = ~np.isnan(v)
        if o.any():
            A = K[np.ix_(o, o)] + np.diag(noise[o])
            total += multivariate_normal.logpdf(v[o], mean[o], A)
    return total


def em_step(X, K, noise, mean, *, learn_noise, learn_mean, Psi=None, nu=0.0):
    """One EM step; rows without observed entries are skipped."""
    n, rows = X.shape[1], [v for v in X if not np.isnan(v).all()]
    given = [conditional(v, K, noise, mean) for v in rows]
    m = len(rows)
    new_mean = np.mean([e for e, _ in given], axis=0) if learn_mean else mean
    spread = sum(np.outer(e - new_mean, e - new_mean) + C for e, C in given)
    tau = 0.0
    if nu > 0.0:
        tau = n / np.trace(Psi @ np.linalg.inv(K))
        spread = spread + nu * tau * Psi
    squares, counts = np.zeros(n), np.zeros(n)
    for v, (e, C) in zip(rows, given, strict=True):
        o = ~np.isnan(v)
        squares[o] += (v - e)[o] ** 2 + C.diagonal()[o]
        counts[o] += 1
    new_noise = noise
    if learn_noise == "learn":
        new_noise = np.full(n, squares.sum() / counts.sum())
    if learn_noise == "per-column":
        usual = 1.0 / np.mean(1.0 / noise)
        new_noise = (squares + NOISE_PSEUDO_COUNT * usual) / (
            counts + NOISE_PSEUDO_COUNT
        )
    return spread / (m + nu), new_noise, new_mean


def penalty(K, Psi, nu):
    """Negative log prior of the kernel at the optimal tau."""
    n = len(K)
    trace = np.trace(Psi @ np.linalg.inv(K))
    tau = n / trace
    return nu / 2 * (np.linalg.slogdet(K)[1] + tau * trace - n * np.log(tau))


@pytest.fixture(scope="session")
def dense():
    """Reference implementations with dense matrices."""
    return SimpleNamespace(
        conditional=conditional,
        log_evidence=log_evidence,
        em_step=em_step,
        penalty=penalty,
    )


@pytest.fixture(scope="session")
def covariance():
    """Function that draws a covariance with a condition number of about 10."""

    def draw(rng, n):
        B = rng.standard_normal((n, n))
        return B @ B.T / n + 0.5 * np.eye(n)

    return draw


@pytest.fixture(scope="session")
def rows_of():
    """Function that makes the `EMData` of a matrix."""

    def make(X, *, missing_side=False, engine=None, n_blocks=1, least_noise=1e-12):
        observed = Observations.from_dense(X)
        engine = engine or Threads(1)
        return EMData(
            engine=engine,
            blocks=cut_blocks(observed, n_blocks),
            counts=observed.column_counts.astype(float),
            n_rows=int((observed.row_counts > 0).sum()),
            n_observed=observed.n_observed,
            needs_precision=missing_side,
            min_noise=least_noise,
        )

    return make


@pytest.fixture(scope="session")
def low_rank():
    """Function that draws a noisy low-rank matrix with missing entries."""

    def draw(rng, m=40, n=8, rank=2, noise=0.3, seen=0.6):
        truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) + 0.5
        values = truth + noise * rng.standard_normal((m, n))
        there = rng.random((m, n)) < seen
        there[np.arange(m), np.arange(m) % n] = True
        return np.where(there, values, np.nan)

    return draw


@pytest.fixture(name="X")
def incomplete_matrix(rng, low_rank):
    """A 40 x 8 matrix, 40% missing; no row or column is empty."""
    return low_rank(rng)


@pytest.fixture
def observed(X):
    return Observations.from_dense(X)


@pytest.fixture(scope="session")
def make_splits():
    """Function that makes validation splits of `Observations` or a dense matrix."""

    def make(entries, fraction=0.1, seed=0):
        if isinstance(entries, np.ndarray):
            entries = Observations.from_dense(entries)
        identity = lambda observed: observed  # noqa: E731
        return make_validation_splits(
            InMemoryDataset(entries), identity, fraction, seed
        )

    return make


@pytest.fixture
def splits(observed, make_splits):
    return make_splits(observed)

"""Naive reference implementations that are independent of the package."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from ncarl.blocks import cut_blocks
from ncarl.core.kernel import QuadraticPenalty
from ncarl.core.rows import Kernel, complete_rows, observed_gram
from ncarl.engines.threads import Threads
from ncarl.fitting.ncarl import IterationConfig, kernel_iterates
from ncarl.observations import Observations


def nuclear_norm(X):
    return float(np.linalg.svd(X, compute_uv=False).sum())


def shrink(X, threshold):
    """Proximal operator of the nuclear norm."""
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    return (U * np.maximum(s - threshold, 0.0)) @ Vt


def nuclear_completion(M, gap=1e-6, max_iter=20000):
    """Matrix of minimum nuclear norm that equals M where observed, with bounds.

    ADMM on ``min ||X||_* + indicator(Z = M), X = Z``. Multipliers that vanish outside
    the observed entries and have spectral norm 1 give a lower bound.
    """
    seen = ~np.isnan(M)
    Z = np.where(seen, M, 0.0)
    dual, rho = np.zeros(M.shape), 1.0 / np.linalg.norm(Z, 2)
    for step in range(max_iter):
        X = shrink(Z + dual / rho, 1.0 / rho)
        Z = np.where(seen, M, X - dual / rho)
        dual = dual + rho * (Z - X)
        if step % 20 == 0:
            Y = np.where(seen, dual, 0.0)
            Y /= max(1.0, np.linalg.norm(Y, 2))
            lower, upper = float(np.sum(Y[seen] * M[seen])), nuclear_norm(Z)
            if upper - lower < gap * upper:
                return Z, lower, upper
    raise AssertionError(f"no certificate: between {lower} and {upper}")


def soft_impute(M, threshold, steps=5000):
    """Minimizer of ``||Pi(X) - M||^2 / 2 + threshold ||X||_*``."""
    seen = ~np.isnan(M)
    X = np.zeros(M.shape)
    for _ in range(steps):
        new = shrink(np.where(seen, M, X), threshold)
        if np.linalg.norm(new - X) < 1e-12 * np.linalg.norm(new):
            return new
        X = new
    return X


def p_plus(Q, p):
    """Inverse of the submatrix selected by the mask, zero elsewhere."""
    out = np.zeros(Q.shape)
    out[np.ix_(p, p)] = np.linalg.inv(Q[np.ix_(p, p)])
    return out


def project_on_simplex(y):
    """Projection on the probability simplex by bisection."""
    low, high = y.min() - 1.0, y.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(y - middle, 0).sum() > 1 else (low, middle)
        )
    return np.maximum(y - high, 0.0)


def graph_laplacian(X, k, shift=0.0):
    """Laplacian of the k-sparse similarity of the columns, loop by loop."""
    n = X.shape[1]
    S = np.zeros((n, n))
    for i in range(n):
        far = np.array([np.sum((X[:, i] - X[:, j]) ** 2) for j in range(n)])
        order = np.sort(far)
        t = order[k] + shift
        S[i] = np.maximum(t - far, 0.0) / np.sum(t - order[:k])
    W = (S + S.T) / 2
    return np.diag(W.sum(axis=1)) - W


def row_step(M, Q, noisy=False):
    """All rows by the formula of the paper with explicit inverses."""
    seen = ~np.isnan(M)
    V = np.where(seen, M, 0.0)
    if noisy:
        return np.array(
            [V[i] @ np.linalg.inv(np.diag(o * 1.0) + Q) for i, o in enumerate(seen)]
        )
    K = np.linalg.inv(Q)
    return np.array([V[i] @ p_plus(K, o) @ K for i, o in enumerate(seen)])


def library_row_step(M, Q, s=0.0):
    """Rows and dense duals computed by the package from ``K = Q^-1``."""
    (block,) = cut_blocks(Observations.from_dense(M), 1)
    X, Y, _ = complete_rows(block, kernel=Kernel(np.linalg.inv(Q), None, s))
    rows, duals = np.empty(M.shape), np.zeros(M.shape)
    rows[block.rows] = X
    owner = np.repeat(block.rows, np.diff(block.indptr))
    duals[owner, block.indices] = Y
    return rows, duals


def library_iterates(M, rule, steps, gamma=None):
    """Gram matrix of the zero-filled input, and the iterates of the package."""
    engine = Threads(n_jobs=1)
    blocks = engine.place(Observations.from_dense(M))
    start = engine.total(observed_gram, blocks)
    penalty = QuadraticPenalty(0.0, 0.0, gamma)
    config = IterationConfig(penalty, rule, 0, None, always_form_rows=True)
    run = kernel_iterates(engine, blocks, config, start, start)
    return start, [iterate.state for iterate in itertools.islice(run, steps)]


def hide(rng, X, share):
    """``X`` with a share of missing entries and no empty row or column."""
    m, n = X.shape
    seen = rng.random((m, n)) >= share
    seen[np.arange(m), rng.integers(0, n, m)] = True
    seen[rng.integers(0, m, n), np.arange(n)] = True
    return np.where(seen, X, np.nan)


def low_rank(rng, m, n, rank):
    return rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))


def picture(rng, m, n):
    """A full-rank matrix in [0, 1] with the decaying spectrum of a photograph."""
    y, x = np.mgrid[0 : 1 : m * 1j, 0 : 1 : n * 1j]
    image = 0.4 + 0.3 * y + 0.2 * np.sin(6 * x * (1 + y)) + 0.3 * (x + y > 1.1)
    image += 0.2 * ((x - 0.3) ** 2 + (y - 0.6) ** 2 < 0.05)
    image += 0.02 * rng.standard_normal((m, n))
    return np.clip(image / image.max(), 0.0, 1.0)


def positive_definite(rng, n, smallest=0.3):
    B = rng.standard_normal((n, n))
    return B @ B.T / n + smallest * np.eye(n)


@pytest.fixture(scope="session")
def naive():
    """The naive implementations by name."""
    functions = (
        nuclear_norm, nuclear_completion, soft_impute, p_plus, project_on_simplex,
        graph_laplacian, row_step, library_row_step, library_iterates, hide, low_rank,
        picture, positive_definite,
    )  # fmt: skip
    return SimpleNamespace(**{function.__name__: function for function in functions})


@pytest.fixture(autouse=True)
def _one_thread(one_blas_thread):
    """Limit BLAS to one thread."""

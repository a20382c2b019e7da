"""A matrix, its blocks and kernels for tests of wide kernels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from ncarl.blocks import cut_blocks
from ncarl.engines.threads import Threads
from ncarl.observations import Observations
from ncarl.wide.rows import WideKernel


@pytest.fixture(scope="session")
def threads(backend):
    """Engine with two threads and every available row kernel."""
    return Threads(n_jobs=2, kernel=backend)


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(1)
    base = rng.standard_normal((80, 4)) @ rng.standard_normal((4, 45))
    return base + 0.3 * rng.standard_normal((80, 45)) + 0.5


@pytest.fixture(scope="module", name="X")
def incomplete_matrix(truth):
    """An 80 x 45 matrix, 60% missing; no row or column is empty."""
    rng = np.random.default_rng(2)
    seen = rng.random(truth.shape) < 0.4
    seen[np.arange(80), np.arange(80) % 45] = True
    return np.where(seen, truth, np.nan)


@pytest.fixture(scope="module")
def blocks(X):
    return cut_blocks(Observations.from_dense(X), 3)


@pytest.fixture(scope="module", params=["hub", "no hub"])
def kernel(request):
    """A kernel of 45 columns; with a hub, one column of ``T`` is empty."""
    rng = np.random.default_rng(3)
    n = 45
    A = np.where(rng.random((n, n)) < 0.1, -rng.random((n, n)), 0.0)
    T = np.linalg.inv(np.diag(rng.uniform(8.0, 10.0, n)) + (A + A.T))
    T[np.abs(T) < 1e-4] = 0.0
    if request.param == "hub":
        T[7] = T[:, 7] = 0.0
    F = rng.standard_normal((n, 6))
    return WideKernel(F, csr_array(T), 0.0)

"""Low-rank matrices and edge cases for tests of the solvers."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.engines.base import HostDevice
from ncarl.observations import Observations
from ncarl.solvers.base import DenseProblem

EDGE_CASES = {
    "zeros": np.zeros((4, 3)),
    "one row": np.array([[1.0, np.nan, 2.0, 3.0]]),
    "one column": np.array([[1.0], [np.nan], [2.0]]),
    "tiny": np.array([[1.0, 2.0, np.nan], [2.0, np.nan, 3.0]]),
    "one entry": np.array([[np.nan, 1.0], [np.nan, np.nan]]),
    "nothing missing": np.random.default_rng(0).standard_normal((6, 5)),
    "equal columns": np.repeat(np.random.default_rng(0).random((6, 1)), 5, axis=1),
    "empty lines": np.outer(np.arange(1.0, 9.0), np.linspace(-1.0, 1.0, 9)),
}
EDGE_CASES["empty lines"][2], EDGE_CASES["empty lines"][:, 4] = np.nan, np.nan
EDGE_CASES["empty lines"][np.arange(8), np.arange(8)] = np.nan


@pytest.fixture(params=EDGE_CASES)
def edge_case(request):
    return EDGE_CASES[request.param].copy()


@pytest.fixture
def tiny():
    """Two rows with one missing entry each."""
    return EDGE_CASES["tiny"].copy()


def low_rank(m=30, n=20, rank=2, keep=0.6, noise=0.0, seed=0):
    """A low-rank matrix, and the same with missing entries."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    truth += noise * rng.standard_normal((m, n))
    return truth, np.where(rng.random((m, n)) < keep, truth, np.nan)


def hide(truth, share, seed):
    """The matrix with a share of its entries missing, and their mask."""
    hidden = np.random.default_rng(seed).random(truth.shape) < share
    return np.where(hidden, np.nan, truth), hidden


def relative_error(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def problem_of(X):
    """Make a `DenseProblem` of a matrix."""
    return DenseProblem.from_observations(Observations.from_dense(X), HostDevice(1))

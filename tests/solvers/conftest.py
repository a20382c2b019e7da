"""Matrices for the solvers: of low rank, and of odd shapes and contents."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.engines.base import HostDevice
from ncarl.observations import Observations
from ncarl.solvers.base import DenseProblem

ODD = {
    "zeros": np.zeros((4, 3)),
    "one row": np.array([[1.0, np.nan, 2.0, 3.0]]),
    "one column": np.array([[1.0], [np.nan], [2.0]]),
    "tiny": np.array([[1.0, 2.0, np.nan], [2.0, np.nan, 3.0]]),
    "one entry": np.array([[np.nan, 1.0], [np.nan, np.nan]]),
    "nothing missing": np.random.default_rng(0).standard_normal((6, 5)),
    "equal columns": np.repeat(np.random.default_rng(0).random((6, 1)), 5, axis=1),
    "empty lines": np.outer(np.arange(1.0, 9.0), np.linspace(-1.0, 1.0, 9)),
}
ODD["empty lines"][2], ODD["empty lines"][:, 4] = np.nan, np.nan
ODD["empty lines"][np.arange(8), np.arange(8)] = np.nan


@pytest.fixture(params=ODD)
def odd(request):
    """One of the odd matrices."""
    return ODD[request.param].copy()


@pytest.fixture
def tiny():
    """Two rows of which each lacks an entry."""
    return ODD["tiny"].copy()


def low_rank(m=30, n=20, rank=2, keep=0.6, noise=0.0, seed=0):
    """A matrix of some rank, and the same with missing entries."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    truth += noise * rng.standard_normal((m, n))
    return truth, np.where(rng.random((m, n)) < keep, truth, np.nan)


def hidden_part(truth, share, seed):
    """The matrix with a share of its entries hidden, and where they are."""
    hidden = np.random.default_rng(seed).random(truth.shape) < share
    return np.where(hidden, np.nan, truth), hidden


def relative_error(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def problem_of(X):
    """The matrix as a problem of the solvers."""
    return DenseProblem.from_observations(Observations.from_dense(X), HostDevice(1))

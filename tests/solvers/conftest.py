"""Matrices of odd shapes and contents for every solver."""

from __future__ import annotations

import numpy as np
import pytest

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

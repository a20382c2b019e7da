"""Small matrices and kernels for tests of the row step."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
import pytest

from ncarl.core.rows import Kernel
from ncarl.observations import Observations


@pytest.fixture(scope="session")
def well_conditioned():
    """Function that draws a kernel with a condition number of about 10."""

    def draw(rng, n, dtype="float64"):
        B = rng.standard_normal((n, n))
        return ((B @ B.T) / n + 0.5 * np.eye(n)).astype(dtype)

    return draw


@pytest.fixture(scope="session")
def masked():
    """Function that makes `Observations` from values and a mask."""

    def make(values, seen):
        observed = Observations.from_dense(np.where(seen, values, np.nan))
        return observed.with_values(observed.values.astype(values.dtype))

    return make


@pytest.fixture(scope="session")
def solved_on():
    """Function that makes a context in which all rows are solved in one form."""

    def force(side):
        if side != "missing":
            return nullcontext()
        every = lambda r, n: np.ones(len(r), dtype=bool)  # noqa: E731
        return patch("ncarl.core.rows.use_precision_form", every)

    return force


@pytest.fixture(scope="session")
def kernel_for():
    """Function that makes a kernel, with ``P`` unless ``side`` is "observed"."""

    def make(K, s, side):
        if side == "observed":
            return Kernel(K, None, s)
        return Kernel(K, np.linalg.inv(K + s * np.eye(len(K))).astype(K.dtype), s)

    return make


@pytest.fixture
def nearly_singular(rng, well_conditioned):
    """A kernel whose columns 0 and 1 need jitter to be positive definite."""
    K = well_conditioned(rng, 40)
    K[:2], K[:, :2] = 0.0, 0.0
    K[:2, :2] = 3.0 * np.array([[1.0, 1 + 1e-9], [1 + 1e-9, 1.0]])
    return K

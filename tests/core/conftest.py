"""Small matrices and kernels for the row step."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.observations import Observations


@pytest.fixture(scope="session")
def well_conditioned():
    """A function that draws a kernel whose condition number is about ten."""

    def draw(rng, n, dtype="float64"):
        B = rng.standard_normal((n, n))
        return ((B @ B.T) / n + 0.5 * np.eye(n)).astype(dtype)

    return draw


@pytest.fixture(scope="session")
def masked():
    """A function that makes observed entries from values and a mask."""

    def make(values, seen):
        observed = Observations.from_dense(np.where(seen, values, np.nan))
        return observed.with_values(observed.values.astype(values.dtype))

    return make

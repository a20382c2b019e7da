import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def truth(rng):
    return rng.random((24, 3)) @ rng.random((3, 9)) + 0.01 * rng.random((24, 9))


@pytest.fixture(name="X")
def gappy(rng, truth):
    """24 x 9 with 40% gaps; no row or column is empty."""
    seen = rng.random(truth.shape) < 0.6
    seen[np.arange(24), np.arange(24) % 9] = True
    return np.where(seen, truth, np.nan)

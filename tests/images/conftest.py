"""Small images and patch models."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.images.patches import PatchField, make_mixture


@pytest.fixture(scope="session")
def photo():
    """A 32 x 36 part of a color photograph of dtype uint8."""
    pytest.importorskip("PIL")
    from sklearn.datasets import load_sample_image

    whole = load_sample_image("china.jpg")[60:188:4, 230:374:4]
    return np.ascontiguousarray(whole)


@pytest.fixture
def field(rng):
    """A 12 x 14 image with two channels, half observed, two blocks missing."""
    known = rng.random((1, 12, 14)) < 0.5
    known[:, :8, :8] = False
    known[:, 4:, 6:] = True
    values = rng.standard_normal((2, 12 * 14)).astype(np.float32)
    return PatchField(values, known.ravel(), (1, 12, 14))


@pytest.fixture
def gaussians(rng):
    """Three Gaussians of 8 x 8 patches in two channels."""
    A = rng.standard_normal((3, 64, 70))
    K = A @ A.transpose(0, 2, 1) / 70.0
    scales = np.array([[1.0, 0.5], [1.0, 2.0], [1.0, 1.0]])
    return make_mixture(K, scales, np.array([5.0, 10.0, 1.0]), 0.01)

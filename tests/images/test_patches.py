"""Tests of learning Gaussian mixtures of patches with missing pixels."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.images import patches
from ncarl.images.patches import PatchField, fit_mixture, kernel_module, sample_places


def make_field(picture, known):
    """A gray image in the layout of patches."""
    values = np.where(known, picture, 0.0).astype(np.float32)
    return PatchField(values.reshape(1, -1), known.ravel(), (1, *picture.shape))


@pytest.fixture(scope="module")
def columns():
    """An image with constant columns and 30% missing pixels."""
    rng = np.random.default_rng(0)
    picture = np.repeat(rng.standard_normal((1, 22)), 22, axis=0)
    return make_field(picture, rng.random(picture.shape) < 0.7)


def test_one_gaussian_learns_pixel_correlations(columns):
    model = fit_mixture(columns, np.eye(1), np.random.default_rng(0))
    assert len(model.K) == 1
    deviations = np.sqrt(np.diag(model.K[0]))
    found = (model.K[0] / np.outer(deviations, deviations)).reshape(8, 8, 8, 8)
    down = np.array([found[i, j, i + 1, j] for i in range(7) for j in range(8)])
    right = np.array([found[i, j, i, j + 1] for i in range(8) for j in range(7)])
    assert down.min() > 0.9
    assert np.abs(right).mean() < 0.6


def test_several_gaussians_increase_the_likelihood(monkeypatch):
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:34, :34]
    picture = np.where(x < 17, np.sign(np.sin(y / 2.0)), 0.1 * np.sin(x + y))
    field = make_field(picture, rng.random(picture.shape) < 0.7)
    several = fit_mixture(field, np.eye(1), np.random.default_rng(0))
    monkeypatch.setattr(patches, "MIN_MIXTURE_PATCHES", 10**6)
    one = fit_mixture(field, np.eye(1), np.random.default_rng(0))
    assert len(several.K) > len(one.K) == 1
    places, errors = field.places(3), []
    at = places[:, None] + field.offsets
    for model in (several, one):
        _, labels = kernel_module().assign(field, places, model)
        _, completed = kernel_module().second_moments(field, places, labels, model)
        off = (completed[:, 0] - picture.ravel()[at])[~field.observed[at]]
        errors.append(np.sqrt(np.mean(off**2)))
    assert errors[0] < 0.9 * errors[1]


def test_training_patches_have_enough_observed_pixels(rng):
    number = np.arange(600).reshape(20, 30)
    field = make_field(np.ones((20, 30)), number % 30 < 10)
    places = sample_places(field, rng)
    counts = field.observed_counts().ravel()
    assert (counts[places] >= 6.4).all()
    assert len(set(places.tolist())) == len(places)
    sparse = make_field(np.ones((20, 30)), number == 93)
    assert len(sample_places(sparse, rng)) > 0

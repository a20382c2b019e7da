"""Tests of patch kernels: direct formulas, agreement of Numba and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ncarl.images.patches import (
    PatchField,
    PatchSearch,
    kernel_module,
    make_mixture,
    make_sums,
)


@pytest.fixture
def kernels(backend):
    return kernel_module(backend)


def conditional(K, noise, observed, v):
    """Conditional mean and covariance of missing pixels given the observed."""
    A = K + noise * np.eye(len(K))
    between = A[np.ix_(observed, ~observed)]
    weights = np.linalg.solve(A[np.ix_(observed, observed)], between)
    return v[observed] @ weights, A[np.ix_(~observed, ~observed)] - between.T @ weights


def patch(field, place):
    """Values (channels, n) and mask of the observed pixels of a patch."""
    at = place + field.offsets
    return field.values[:, at].astype(np.float64), field.observed[at]


def assert_precision_weighted(sums, field, places, predict, **tolerance):
    """Check sums of ``predict(p, c)``, the mean and covariance of a patch."""
    num, den = np.zeros((2, 168)), np.zeros((2, 168))
    for p, place in enumerate(places):
        at = (place + field.offsets)[~patch(field, place)[1]]
        for c in range(2):
            mean, covariance = predict(p, c)
            num[c, at] += mean / np.diag(covariance)
        den[0, at] += 1.0 / np.diag(covariance)
        den[1, at] += 1.0
    here = slice(sums.first, sums.first + sums.den.shape[1])
    np.testing.assert_allclose(sums.num, num[:, here], **tolerance)
    np.testing.assert_allclose(sums.den, den[:, here], **tolerance)


def test_patches_are_assigned_to_the_most_likely_gaussian(kernels, field, gaussians):
    places = field.places(1)
    energies, labels = kernels.assign(field, places, gaussians)
    assert len(set(labels.tolist())) > 1
    for p, place in enumerate(places):
        values, observed = patch(field, place)
        scores = []
        for g in range(3):
            A = gaussians.K[g] + gaussians.noise * np.eye(64)
            A = A[np.ix_(observed, observed)]
            score = gaussians.log_weights[g]
            for c in range(2):
                v, s = values[c, observed], gaussians.scales[g, c]
                if observed.any():
                    score += multivariate_normal(cov=s * A).logpdf(v)
                    assert np.isclose(energies[p, g, c], v @ np.linalg.solve(A, v))
            scores.append(score)
        assert labels[p] == np.argmax(scores)


def test_missing_pixels_are_precision_weighted_means(kernels, field, gaussians):
    places = field.incomplete_places(3)
    sums = make_sums(field, places)
    _, labels = kernels.assign(field, places, gaussians, sums)

    def predict(p, c):
        values, observed = patch(field, places[p])
        return conditional(gaussians.K[labels[p]], gaussians.noise, observed, values[c])

    assert_precision_weighted(sums, field, places, predict, rtol=1e-9, atol=1e-9)


def test_second_moments_include_the_conditional_covariance(kernels, field, gaussians):
    places = field.places(2)
    labels = np.arange(len(places)) % 3
    S, completed = kernels.second_moments(field, places, labels, gaussians)
    expected = np.zeros((3, 64, 64))
    for p, (place, g) in enumerate(zip(places, labels, strict=True)):
        values, observed = patch(field, place)
        for c in range(2):
            K, noise = gaussians.K[g], gaussians.noise
            mean, covariance = conditional(K, noise, observed, values[c])
            x = values[c].copy()
            x[~observed] = mean
            np.testing.assert_allclose(completed[p, c], x, atol=1e-9)
            expected[g] += np.outer(x, x) / (2 * gaussians.scales[g, c])
        expected[g][np.ix_(~observed, ~observed)] += covariance
    np.testing.assert_allclose(S, expected, atol=1e-8)


def test_later_passes_use_the_gaussian_of_nearest_patches(
    kernels, field, gaussians, rng
):
    estimate = np.where(
        field.observed, field.values, rng.standard_normal(field.values.shape)
    ).astype(np.float32)
    places = field.incomplete_places(4)
    labels = np.arange(len(places)) % 3
    sums = make_sums(field, places)
    search = PatchSearch(radius=3, max_patches=5, prior_count=2.0)
    kernels.refine(field, places, labels, gaussians, estimate, search, sums)

    def predict(p, c):
        y, x = divmod(int(places[p]), 14)
        around = [(i, j) for i in range(5) for j in range(7)
                  if abs(i - y) <= 3 and abs(j - x) <= 3]  # fmt: skip
        cut = np.array([estimate[:, i * 14 + j + field.offsets] for i, j in around],
                       dtype=np.float64)  # fmt: skip
        here = estimate[:, places[p] + field.offsets]
        near = cut[np.argsort(((cut - here) ** 2).sum(axis=(1, 2)))[:5]]
        mean = near.mean(axis=0)
        off = (near - mean).reshape(-1, 64)
        K = (off.T @ off / 2 + 2.0 * gaussians.K[labels[p]]) / (5 + 2.0)
        values, observed = patch(field, places[p])
        m, covariance = conditional(K, gaussians.noise, observed, (values - mean)[c])
        return m + mean[c, ~observed], covariance

    assert_precision_weighted(sums, field, places, predict, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 3, 20), (3, 9, 10), (1, 1, 1)])
def test_kernels_agree_on_layers_and_small_images(size, rng):
    observed = rng.random(size) < 0.6
    observed.flat[0] = True
    values = rng.standard_normal((1, observed.size)).astype(np.float32)
    field = PatchField(values, observed.ravel(), size)
    n = len(field.offsets)
    A = rng.standard_normal((2, n, n + 5))
    model = make_mixture(A @ A.transpose(0, 2, 1), np.ones((2, 1)), np.zeros(2), 0.1)
    found = []
    pytest.importorskip("numba")
    for backend in ("numpy", "numba"):
        sums = make_sums(field, field.places(1))
        kernels = kernel_module(backend)
        kernels.assign(field, field.places(1), model, sums)
        labels = np.zeros(len(field.places(1)), dtype=np.int64)
        search = PatchSearch(radius=2, max_patches=4, prior_count=1.0)
        kernels.refine(field, field.places(1), labels, model, values, search, sums)
        found.append(np.concatenate([sums.num, sums.den]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-8)


def test_patch_grid_covers_all_edges(field):
    last = field.places(5)[-1]
    assert last == 4 * 14 + 6
    covered = np.zeros(168, dtype=bool)
    for place in field.places(5):
        covered[place + field.offsets] = True
    assert covered.all()


def test_observed_pixels_are_counted_per_patch(field):
    counts = field.observed_counts().ravel()
    for place in field.places(1):
        assert counts[place] == field.observed[place + field.offsets].sum()
    missing = [p for p in field.places(2) if counts[p] < 64]
    assert field.incomplete_places(2).tolist() == missing


def test_indefinite_covariances_raise(rng):
    K = np.diag([1.0, 0.0, -2.0])[None]
    model = make_mixture(K, np.ones((1, 1)), np.zeros(1), 0.5)
    assert np.linalg.eigvalsh(model.K[0]).min() > 0.0
    A = model.K[0] + 0.5 * np.eye(3)
    np.testing.assert_allclose(model.P[0] @ A, np.eye(3), atol=1e-12)
    assert np.isclose(model.log_det[0], np.linalg.slogdet(A)[1])

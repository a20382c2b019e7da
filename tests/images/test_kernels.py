"""Work on patches: the textbook's formulas, and Numba's answers beside NumPy's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ncarl.images.field import Field, sums_for
from ncarl.images.gaussians import make_gaussians

KINDS = ["numpy", "numba"]


def kernel(family, kind):
    if kind == "numba":
        pytest.importorskip("numba")
    return importlib.import_module(f"ncarl.images.{family}_{kind}")


@pytest.fixture(params=KINDS)
def patches(request):
    return kernel("patches", request.param)


@pytest.fixture(params=KINDS)
def similar(request):
    return kernel("similar", request.param)


def conditional(K, noise, known, v):
    """Mean and covariance of missing pixels given the known, by the textbook."""
    A = K + noise * np.eye(len(K))
    weights = np.linalg.solve(A[np.ix_(known, known)], A[np.ix_(known, ~known)])
    mean = v[known] @ weights
    spread = A[np.ix_(~known, ~known)] - A[np.ix_(~known, known)] @ weights
    return mean, spread


def patch(field, place):
    """Values (channels, n) and known pixels of a patch."""
    at = place + field.offsets
    return field.values[:, at].astype(np.float64), field.known[at]


def test_patches_go_to_the_gaussian_under_which_they_are_likeliest(
    patches, field, gaussians
):
    places = field.places(1)
    fit, labels = patches.assign(field, places, gaussians)
    assert len(set(labels.tolist())) > 1
    for p, place in enumerate(places):
        values, known = patch(field, place)
        scores = []
        for g in range(3):
            A = (gaussians.K[g] + gaussians.noise * np.eye(64))[np.ix_(known, known)]
            score = gaussians.log_share[g]
            for c in range(2):
                v, s = values[c, known], gaussians.scales[g, c]
                if known.any():
                    score += multivariate_normal(cov=s * A).logpdf(v)
                    assert np.isclose(fit[p, g, c], v @ np.linalg.solve(A, v))
            scores.append(score)
        assert labels[p] == np.argmax(scores)


def test_missing_pixels_are_conditional_means_weighted_by_their_precision(
    patches, field, gaussians
):
    places = field.gaps(3)
    sums = sums_for(field, places)
    _, labels = patches.assign(field, places, gaussians, sums)
    num, den = np.zeros((2, 168)), np.zeros((2, 168))
    for place, g in zip(places, labels, strict=True):
        values, known = patch(field, place)
        at = (place + field.offsets)[~known]
        for c in range(2):
            mean, spread = conditional(
                gaussians.K[g], gaussians.noise, known, values[c]
            )
            num[c, at] += mean / np.diag(spread)
        den[0, at] += 1.0 / np.diag(spread)
        den[1, at] += 1.0
    here = slice(sums.first, sums.first + sums.den.shape[1])
    np.testing.assert_allclose(sums.num, num[:, here], atol=1e-9)
    np.testing.assert_allclose(sums.den, den[:, here], rtol=1e-9)


def test_second_moments_count_what_is_not_known_for_sure(patches, field, gaussians):
    places = field.places(2)
    labels = np.arange(len(places)) % 3
    S, completed = patches.second_moments(field, places, labels, gaussians)
    expected = np.zeros((3, 64, 64))
    for p, (place, g) in enumerate(zip(places, labels, strict=True)):
        values, known = patch(field, place)
        for c in range(2):
            mean, spread = conditional(
                gaussians.K[g], gaussians.noise, known, values[c]
            )
            x = values[c].copy()
            x[~known] = mean
            np.testing.assert_allclose(completed[p, c], x, atol=1e-9)
            expected[g] += np.outer(x, x) / (2 * gaussians.scales[g, c])
        expected[g][np.ix_(~known, ~known)] += spread
    np.testing.assert_allclose(S, expected, atol=1e-8)


def test_later_passes_take_the_gaussian_of_the_nearest_patches(
    similar, field, gaussians, rng
):
    estimate = np.where(
        field.known, field.values, rng.standard_normal(field.values.shape)
    ).astype(np.float32)
    places = field.gaps(4)
    labels = np.arange(len(places)) % 3
    sums = sums_for(field, places)
    similar.refine(field, places, labels, gaussians, estimate, 3, 5, 2.0, sums)
    num, den = np.zeros((2, 168)), np.zeros((2, 168))
    for place, g in zip(places, labels, strict=True):
        y, x = divmod(int(place), 14)
        around = [(i, j) for i in range(5) for j in range(7)
                  if abs(i - y) <= 3 and abs(j - x) <= 3]  # fmt: skip
        cut = np.array([estimate[:, i * 14 + j + field.offsets] for i, j in around],
                       dtype=np.float64)  # fmt: skip
        here = estimate[:, place + field.offsets]
        near = cut[np.argsort(((cut - here) ** 2).sum(axis=(1, 2)))[:5]]
        mean = near.mean(axis=0)
        off = (near - mean).reshape(-1, 64)
        K = (off.T @ off / 2 + 2.0 * gaussians.K[g]) / (5 + 2.0)
        values, known = patch(field, place)
        at = (place + field.offsets)[~known]
        for c in range(2):
            m, spread = conditional(K, gaussians.noise, known, values[c] - mean[c])
            num[c, at] += (m + mean[c, ~known]) / np.diag(spread)
        den[0, at] += 1.0 / np.diag(spread)
        den[1, at] += 1.0
    here = slice(sums.first, sums.first + sums.den.shape[1])
    np.testing.assert_allclose(sums.num, num[:, here], atol=1e-5)
    np.testing.assert_allclose(sums.den, den[:, here], rtol=1e-5)


@pytest.mark.parametrize("size", [(1, 3, 20), (3, 9, 10), (1, 1, 1)])
def test_both_kinds_agree_on_layers_and_on_pictures_smaller_than_a_patch(size, rng):
    known = rng.random(size) < 0.6
    known.flat[0] = True
    values = rng.standard_normal((1, known.size)).astype(np.float32)
    field = Field(values, known.ravel(), size)
    n = len(field.offsets)
    A = rng.standard_normal((2, n, n + 5))
    model = make_gaussians(A @ A.transpose(0, 2, 1), np.ones((2, 1)), np.zeros(2), 0.1)
    found = []
    for kind in KINDS:
        sums = sums_for(field, field.places(1))
        kernel("patches", kind).assign(field, field.places(1), model, sums)
        labels = np.zeros(len(field.places(1)), dtype=np.int64)
        kernel("similar", kind).refine(
            field, field.places(1), labels, model, values, 2, 4, 1.0, sums
        )
        found.append(np.concatenate([sums.num, sums.den]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-8)


def test_the_grid_of_patches_reaches_the_far_edges(field):
    last = field.places(5)[-1]
    assert last == 4 * 14 + 6
    covered = np.zeros(168, dtype=bool)
    for place in field.places(5):
        covered[place + field.offsets] = True
    assert covered.all()


def test_known_pixels_are_counted_patch_by_patch(field):
    counts = field.known_counts().ravel()
    for place in field.places(1):
        assert counts[place] == field.known[place + field.offsets].sum()
    missing = [p for p in field.places(2) if counts[p] < 64]
    assert field.gaps(2).tolist() == missing


def test_covariances_that_are_not_sound_are_raised(rng):
    K = np.diag([1.0, 0.0, -2.0])[None]
    model = make_gaussians(K, np.ones((1, 1)), np.zeros(1), 0.5)
    assert np.linalg.eigvalsh(model.K[0]).min() > 0.0
    np.testing.assert_allclose(
        model.P[0] @ (model.K[0] + 0.5 * np.eye(3)), np.eye(3), atol=1e-12
    )
    assert np.isclose(
        model.log_det[0], np.linalg.slogdet(model.K[0] + 0.5 * np.eye(3))[1]
    )

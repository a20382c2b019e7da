"""Tests of conditional distributions of cells against loops, hiding and drawing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import kstest, multivariate_normal, spearmanr

from ncarl.bayes.mixture import GaussianMixture
from ncarl.tables.conditionals import (
    Target,
    batches,
    category_order,
    category_posterior,
    condition_rows,
    draw_rows,
    mean_of_members,
)
from ncarl.tables.encoding import (
    NumberEncoder,
    fit_category_encoder,
    fit_number_encoder,
)
from ncarl.tables.frames import ColumnData


def column(kind, values):
    values = np.array(values, dtype=float if kind == "number" else object)
    return ColumnData("x", kind, values, np.zeros(len(values), dtype=bool), "any")


def positions(*coordinates):
    return np.array(coordinates)


@pytest.fixture
def cells():
    """Three numbers (one skewed), a category of three labels and a boolean."""
    skewed = column("number", np.exp(np.random.default_rng(5).standard_normal(200)))
    labels = fit_category_encoder(column("category", [*"aaaabbbcc"]))
    flags = fit_category_encoder(
        ColumnData("f", "boolean", np.repeat([0.0, 1.0], [2, 3]), np.zeros(5, bool), 0)
    )
    return [
        Target(0, positions(0), NumberEncoder(-3.0, 3.0, 0.5, 2.0, 0.5, 2.0)),
        Target(1, positions(1, 2), labels),
        Target(4, positions(3), fit_number_encoder(skewed, "power")),
        Target(5, positions(4), flags),
        Target(7, positions(5), NumberEncoder(-3.0, 3.0)),
    ]


def draw_mixture(rng, count, n=6, noise=1e-6):
    B = rng.standard_normal((count, n, n))
    return GaussianMixture(
        rng.dirichlet(5.0 * np.ones(count)),
        0.7 * rng.standard_normal((count, n)),
        B @ np.swapaxes(B, 1, 2) / n + 0.3 * np.eye(n),
        9.0,
        noise,
    )


def draw_table(rng, cells, m=25, seen=0.7):
    """Coordinates of rows, among them complete and empty ones."""
    Z = rng.standard_normal((m, 6))
    for cell in cells:
        b = cell.coordinates
        if not cell.is_number:
            Z[:, b] = rng.permutation(np.resize(cell.encoder.codes, (m, len(b))))
        Z[np.ix_((rng.random(m) > seen) & (np.arange(m) > 2), b)] = np.nan
    Z[3], Z[4, 1:] = np.nan, np.nan
    return Z


@pytest.fixture(params=[1, 3])
def mixture(request, rng):
    """Mixtures of one and of three components."""
    return draw_mixture(rng, request.param)


def naive_row(mixture, z):
    """Weights, means and covariances of the components given a row."""
    o, eye = ~np.isnan(z), mixture.noise * np.eye(len(z))
    logs, means, covariances = np.log(mixture.weights), [], []
    for k, (mean, K) in enumerate(zip(mixture.means, mixture.covariances, strict=True)):
        A = (K + eye)[np.ix_(o, o)]
        gain = K[:, o] @ np.linalg.inv(A)
        means.append(mean + gain @ (z - mean)[o])
        covariances.append(K - gain @ K[o])
        if o.any():
            logs[k] += multivariate_normal.logpdf(z[o], mean[o], A)
    return np.exp(logs - logsumexp(logs)), means, covariances


def naive_number(encoder, weights, means, variances):
    """Mean and variance of standardized values, by first and second moments."""
    first = second = 0.0
    for w, mean, variance in zip(weights, means, variances, strict=True):
        one, spread = encoder.moments(np.array([mean]), np.array([variance**0.5]))
        first += w * one[0]
        second += w * (spread[0] + one[0] ** 2)
    return first, second - first**2


def naive_probabilities(encoder, weights, means, covariances):
    """Frequencies times densities of the codes over those without other cells."""
    eye, total = np.eye(encoder.n_coordinates), 0.0
    for w, mean, K in zip(weights, means, covariances, strict=True):
        alone = multivariate_normal.pdf(encoder.codes, cov=eye)
        ratios = encoder.frequencies * multivariate_normal.pdf(encoder.codes, mean, K)
        ratios /= alone
        total += w * ratios / ratios.sum()
    return total


def check_cell(found, i, cell, mixture, given, noise=0.0):
    """Check the distribution of a cell, missing in ``given``, by naive formulas."""
    weights, means, covariances = naive_row(mixture, given)
    b, j = cell.coordinates, cell.position
    means = [mean[b] for mean in means]
    covariances = [K[np.ix_(b, b)] + noise * np.eye(len(b)) for K in covariances]
    if cell.is_number:
        scalars = [float(K[0, 0]) for K in covariances]
        mean, variance = naive_number(
            cell.encoder, weights, [float(mean[0]) for mean in means], scalars
        )
        assert_allclose(found.numbers[j][0][i], mean, atol=1e-8)
        assert_allclose(found.numbers[j][1][i], variance, atol=1e-8)
    else:
        shares = naive_probabilities(cell.encoder, weights, means, covariances)
        assert_allclose(found.probabilities[j][i], shares, atol=1e-9)


def without(Z, i, cell):
    """Row ``i`` with a cell hidden."""
    z = Z[i].copy()
    z[cell.coordinates] = np.nan
    return z


@pytest.mark.parametrize("leave_out", [False, True])
def test_missing_cells_match_loops(leave_out, mixture, cells, rng, monkeypatch):
    monkeypatch.setattr("ncarl.tables.conditionals.CHUNK_ROWS", 10)
    Z = draw_table(rng, cells)
    found = condition_rows(mixture, cells, Z, leave_out=leave_out)
    for i, z in enumerate(Z):
        weights, means, _ = naive_row(mixture, z)
        expected = np.where(np.isnan(z), weights @ np.array(means), z)
        assert_allclose(found.completed[i], expected, atol=1e-9)
        for cell in cells:
            if np.isnan(z[cell.coordinates[0]]):
                check_cell(found, i, cell, mixture, z)
    assert (found.features is None) == (not leave_out)


def test_rows_without_values_get_the_prior(mixture, cells):
    Z = np.full((2, 6), np.nan)
    found = condition_rows(mixture, cells, Z)
    mean = mixture.weights @ mixture.means
    assert_allclose(found.completed, [mean, mean])
    for cell in cells:
        check_cell(found, 1, cell, mixture, Z[1])


def test_no_rows_have_no_distributions(mixture, cells):
    found = condition_rows(mixture, cells, np.empty((0, 6)))
    assert found.completed.shape == (0, 6)
    assert found.probabilities[1].shape == (0, 3)
    assert found.numbers[0][0].shape == found.numbers[0][1].shape == (0,)


def test_left_out_cells_equal_hidden_ones(mixture, cells, rng):
    Z = draw_table(rng, cells)
    found = condition_rows(mixture, cells, Z, leave_out=True)
    for i in range(len(Z)):
        for cell in cells:
            if not np.isnan(Z[i, cell.coordinates[0]]):
                # Numbers that are left out have the noise of measurements.
                check_cell(found, i, cell, mixture, without(Z, i, cell), mixture.noise)


@pytest.mark.parametrize("noise", [1e-6, 0.1])
def test_features_are_completed_rows_without_the_cell(
    noise, mixture, cells, rng, monkeypatch
):
    monkeypatch.setattr("ncarl.tables.conditionals.MIN_WEIGHT", 0.0)
    Z, mixture = draw_table(rng, cells), replace(mixture, noise=noise)
    found = condition_rows(mixture, cells, Z, leave_out=True).features
    assert found.dtype == np.float32
    for t, cell in enumerate(cells):
        missing = np.isnan(Z[:, cell.coordinates[0]])
        hidden = Z.copy()
        hidden[:, cell.coordinates] = np.nan
        expected = condition_rows(mixture, cells, hidden).completed
        assert_allclose(found[t, ~missing], expected[~missing], atol=1e-5)
        assert_array_equal(found[t, missing], 0.0)


def test_features_do_not_show_a_cell_that_has_a_copy(rng):
    mixture = draw_mixture(rng, 1, n=3)
    K = mixture.covariances[0]
    K[1], K[:, 1], K[1, 1] = K[0], K[:, 0], K[0, 0]
    cells = [Target(j, positions(j), NumberEncoder(-3.0, 3.0)) for j in range(3)]
    Z = rng.standard_normal((4, 3))
    found = condition_rows(mixture, cells, Z, leave_out=True).features
    Z[:, 0] = np.nan
    assert_allclose(found[0], condition_rows(mixture, cells, Z).completed, atol=1e-4)


@pytest.mark.parametrize("noise", [1e-6, 0.1])
def test_features_do_not_depend_on_the_cell(noise, mixture, cells, rng):
    mixture = replace(mixture, noise=noise)
    Z = draw_table(rng, cells, seen=0.8)
    found = condition_rows(mixture, cells, Z, leave_out=True).features
    for t, cell in enumerate(cells):
        changed = Z.copy()
        changed[:, cell.coordinates] += 3.0 * rng.standard_normal((len(Z), 1))
        again = condition_rows(mixture, cells, changed, leave_out=True).features
        assert_allclose(again[t], found[t], rtol=1e-6, atol=1e-6)


def test_features_of_components_of_small_weight_still_have_weight_1(rng):
    # All components are equal, but for those whose weight is too small to count.
    mixture = draw_mixture(rng, 1)
    many = 40
    weights = np.append(1.0, np.full(many, 9e-4))
    mixture = GaussianMixture(
        weights / weights.sum(), np.repeat(mixture.means, many + 1, axis=0) + 5.0,
        np.repeat(mixture.covariances, many + 1, axis=0), 9.0,
        mixture.noise,
    )  # fmt: skip
    cells = [Target(j, positions(j), NumberEncoder(-3.0, 3.0)) for j in range(6)]
    Z = rng.standard_normal((4, 6))
    found = condition_rows(mixture, cells, Z, leave_out=True).features
    hidden = Z.copy()
    hidden[:, 2] = np.nan
    assert_allclose(found[2], condition_rows(mixture, cells, hidden).completed, 1e-4)


def test_mean_of_equal_members_is_one_of_them(mixture, cells, rng):
    Z = draw_table(rng, cells)
    one, *pair = (condition_rows(mixture, cells, Z, leave_out=True) for _ in range(3))
    both = mean_of_members(iter(pair), 2)
    assert_allclose(both.completed, one.completed)
    assert_allclose(both.features, one.features)
    assert both.features.dtype == np.float32
    for j, parts in one.numbers.items():
        assert_allclose(both.numbers[j], parts)
    for j, shares in one.probabilities.items():
        assert_allclose(both.probabilities[j], shares)


def test_mean_of_members_is_a_mixture(cells, rng):
    # The weights of components do not change in rows without values.
    one, two = draw_mixture(rng, 1), draw_mixture(rng, 1)
    Z = np.full((1, 6), np.nan)
    pair = GaussianMixture(
        np.full(2, 0.5), np.vstack([one.means, two.means]),
        np.vstack([one.covariances, two.covariances]), 9.0, 1e-6,
    )  # fmt: skip
    found = mean_of_members((condition_rows(each, cells, Z) for each in (one, two)), 2)
    expected = condition_rows(pair, cells, Z)
    assert_allclose(found.completed, expected.completed)
    for j, parts in expected.numbers.items():
        assert_allclose(found.numbers[j], parts)
    for j, shares in expected.probabilities.items():
        assert_allclose(found.probabilities[j], shares)


def test_posterior_of_uninformative_rows_is_the_frequencies(cells):
    encoder = cells[1].encoder
    shares = category_posterior(np.zeros((1, 2)), np.eye(2)[None], encoder)
    assert_allclose(shares, encoder.frequencies[None])


def test_batches_hold_every_row_with_its_columns_once(rng):
    mask = rng.random((30, 5)) < 0.4
    found = np.zeros_like(mask)
    for at, columns in batches(mask):
        assert_array_equal(mask[at].sum(axis=1), columns.shape[1])
        assert not found[at].any()
        found[at[:, None], columns] = True
    assert_array_equal(found, mask)


COPIES = 20_000


@pytest.fixture
def repeated(cells):
    """Function that repeats a row, in which a number, the labels and the flag lack."""

    def draw(z):
        z = np.array([np.nan, np.nan, np.nan, z, np.nan, -z])
        return np.tile(z, (COPIES, 1))

    return draw


def test_draws_have_the_moments_of_the_mixture(mixture, cells, rng, repeated):
    Z = repeated(0.8)
    drawn, _ = draw_rows(mixture, cells, Z, rng)
    assert_array_equal(drawn[:, [3, 5]], Z[:, [3, 5]])
    weights, means, covariances = naive_row(mixture, Z[0])
    mean = weights @ np.array(means)
    K = sum(
        w * (C + np.outer(x - mean, x - mean))
        for w, x, C in zip(weights, means, covariances, strict=True)
    )
    free = [0, 1, 2, 4]
    size = np.sqrt(K.diagonal()[free])
    error = (drawn.mean(axis=0) - mean)[free] / size
    assert_allclose(error, 0.0, atol=4.5 / np.sqrt(COPIES))
    error = (np.cov(drawn.T) - K)[np.ix_(free, free)] / np.outer(size, size)
    assert_allclose(error, 0.0, atol=0.05)


def test_components_are_drawn_by_their_weights_given_the_row(cells, rng, repeated):
    mixture, Z = draw_mixture(rng, 3), repeated(0.5)
    means = mixture.means.copy()
    means[:, 0] = [-90.0, 0.0, 90.0]
    K = mixture.covariances.copy()
    K[:, 0], K[:, :, 0], K[:, 0, 0] = 0.0, 0.0, 1.0
    mixture = replace(mixture, means=means, covariances=K)
    drawn, _ = draw_rows(mixture, cells, Z, rng)
    component = np.digitize(drawn[:, 0], [-45.0, 45.0])
    shares = np.bincount(component, minlength=3) / COPIES
    assert_allclose(shares, naive_row(mixture, Z[0])[0], atol=4.5 * 0.5 / COPIES**0.5)


def test_draws_of_empty_rows_have_the_moments_of_a_component(cells, rng):
    mixture = draw_mixture(rng, 1)
    drawn, quantiles = draw_rows(mixture, cells, np.full((COPIES, 6), np.nan), rng)
    size = np.sqrt(mixture.covariances[0].diagonal())
    error = (drawn.mean(axis=0) - mixture.means[0]) / size
    assert_allclose(error, 0.0, atol=4.5 / np.sqrt(COPIES))
    error = (np.cov(drawn.T) - mixture.covariances[0]) / np.outer(size, size)
    assert_allclose(error, 0.0, atol=0.05)
    assert all(kstest(u, "uniform").pvalue > 1e-3 for u in quantiles.values())


def test_quantiles_are_uniform_and_follow_the_drawn_numbers(
    mixture, cells, rng, repeated
):
    drawn, quantiles = draw_rows(mixture, cells, repeated(0.3), rng)
    assert sorted(quantiles) == [1, 5]
    for u in quantiles.values():
        assert kstest(u, "uniform").pvalue > 1e-3
    u, flag = quantiles[5], drawn[:, 4]
    assert spearmanr(u, flag).statistic == pytest.approx(1.0, abs=1e-6)
    order = spearmanr(u, drawn[:, 0]).statistic
    assert order == pytest.approx(spearmanr(flag, drawn[:, 0]).statistic, abs=1e-6)


def test_categories_follow_the_direction_that_other_columns_determine(cells, rng):
    # The number equals the coordinates times (0.6, -0.8), plus noise.
    axis = np.array([0.6, -0.8])
    mixture = draw_mixture(rng, 1)
    K = np.eye(6)
    K[0, 1:3] = K[1:3, 0] = 0.9 * axis
    mixture = replace(mixture, covariances=K[None])
    scores = cells[1].encoder.codes @ axis
    order = category_order(mixture, cells[1])
    assert_array_equal(np.sort(order), range(3))
    turned = order[::-1] if scores[order[0]] > scores[order[-1]] else order
    assert_array_equal(turned, np.argsort(scores))
    Z = np.full((COPIES, 6), np.nan)
    drawn, quantiles = draw_rows(mixture, cells, Z, rng)
    sign = np.sign(scores[order[-1]] - scores[order[0]])
    found = spearmanr(quantiles[1], sign * drawn[:, 0]).statistic
    assert found == pytest.approx(6 / np.pi * np.arcsin(0.9 / 2), abs=0.03)

"""Tests of the encoding of columns and the power transform of skewed ones."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm, yeojohnson, yeojohnson_normmax

from ncarl.tables import TableImputer
from ncarl.tables.encoding import (
    fit_category_encoder,
    fit_number_encoder,
    fit_yeo_johnson,
    inverse_yeo_johnson,
    is_skewed,
    normal_scores,
    skewness,
    yeo_johnson,
)
from ncarl.tables.frames import ColumnData, validate_table


def numbers(values):
    values = np.asarray(values, dtype=float)
    return ColumnData("x", "number", values, np.isnan(values), "float64")


def labels(values):
    values = np.array(values, dtype=object)
    return ColumnData("x", "category", values, pd.isna(values), "object")


@pytest.mark.parametrize("exponent", [-2.0, 0.0, 1.0, 2.0])
def test_transform_matches_scipy(exponent):
    x = np.linspace(-3, 5, 41)
    assert_allclose(yeo_johnson(x, exponent), yeojohnson(x, exponent), atol=1e-12)
    up = np.maximum(x, 0.0)
    back = inverse_yeo_johnson(yeo_johnson(up, exponent), exponent)
    assert_allclose(back, up, atol=1e-9)


def test_exponent_maximizes_the_likelihood():
    x = np.exp(np.random.default_rng(0).standard_normal(300))
    assert fit_yeo_johnson(x) == pytest.approx(yeojohnson_normmax(x), abs=5e-3)


def test_only_skewed_columns_are_transformed_by_default():
    rng = np.random.default_rng(0)
    symmetric, skewed = rng.standard_normal(200), np.exp(rng.standard_normal(200))
    assert not is_skewed(symmetric) and is_skewed(skewed) and is_skewed(-skewed)
    assert fit_number_encoder(numbers(symmetric), "auto").exponent is None
    assert fit_number_encoder(numbers(symmetric), "power").exponent is not None
    assert fit_number_encoder(numbers(skewed), None).exponent is None
    few_levels = np.array([0.0] * 95 + [1.0] * 5)
    assert fit_number_encoder(numbers(few_levels), "auto").exponent is None
    code = fit_number_encoder(numbers(skewed), "auto")
    assert abs(skewness(code.transform(skewed))) < 0.2


@pytest.mark.parametrize("how", [None, "power"])
@pytest.mark.parametrize("unit", [1e-9, 1e250])
def test_coordinates_are_standard_and_invertible(how, unit):
    x = unit * np.exp(np.random.default_rng(1).standard_normal(150))
    code = fit_number_encoder(numbers(x), how)
    z = code.transform(x)
    assert z.mean() == pytest.approx(0.0, abs=1e-9)
    assert z.std() == pytest.approx(1.0)
    assert_allclose(code.inverse_transform(z), x, rtol=1e-6)


@pytest.mark.parametrize("how", [None, "power"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_moments_are_those_of_standardized_draws(how, sign):
    rng = np.random.default_rng(2)
    x = 7.0 + sign * np.exp(rng.standard_normal(400))
    code = fit_number_encoder(numbers(x), how)
    centers, deviations = np.array([-0.5, 0.4, 0.9]), np.array([0.3, 0.5, 0.0])
    means, variances = code.moments(centers, deviations)
    for j in range(3):
        z = centers[j] + deviations[j] * rng.standard_normal(200_000)
        drawn = (code.inverse_transform(z) - x.mean()) / x.std()
        assert means[j] == pytest.approx(drawn.mean(), abs=0.01)
        assert variances[j] == pytest.approx(drawn.var(), rel=0.03, abs=1e-12)
    if how:  # the tail counts
        center = code.standardize(code.inverse_transform(centers[:2]))
        assert (sign * (means[:2] - center) > 0.01).all()


@pytest.mark.parametrize("unit", [1e-250, 1e-9, 1.0, 1e250, 1e306])
@pytest.mark.parametrize("how", [None, "power"])
def test_standardized_values_are_restored_in_any_unit(how, unit):
    x = unit * (3.0 + np.exp(np.random.default_rng(1).standard_normal(150)))
    code = fit_number_encoder(numbers(x), how)
    standardized = code.standardize(x)
    assert standardized.mean() == pytest.approx(0.0, abs=1e-9)
    assert standardized.std() == pytest.approx(1.0)
    assert_allclose(code.restore(standardized), x, rtol=1e-12)
    plain = fit_number_encoder(numbers(x / unit), how)
    assert_allclose(standardized, plain.standardize(x / unit), atol=1e-9)
    z = np.linspace(-2.0, 2.0, 9)
    moments = code.moments(z, np.full(9, 0.3))
    assert_allclose(moments, plain.moments(z, np.full(9, 0.3)), atol=1e-6)


def test_restored_values_are_finite():
    code = fit_number_encoder(numbers(np.linspace(-1e300, 1e300, 30)), None)
    assert np.isfinite(code.restore(np.array([-1e9, 1e9]))).all()


@given(
    arrays(float, st.integers(3, 30), elements=st.floats(-1e300, 1e300)),
    st.sampled_from([None, "auto", "power"]),
    st.floats(-1e300, 1e300),
)
def test_finite_numbers_have_finite_coordinates_and_values(x, how, other):
    code = fit_number_encoder(numbers(x), how)
    z = code.transform(np.array([*x, other])) if code.n_coordinates else np.zeros(1)
    assert np.isfinite(z).all()
    assert np.isfinite(code.moments(z, np.ones(len(z)))).all()
    assert (np.diff(code.inverse_transform(np.linspace(-9, 9, 19))) >= 0).all()


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=4, max_size=40))
def test_codes_of_categories_have_mean_0_and_covariance_1(values):
    values = [*values, "a", "b"]
    code = fit_category_encoder(labels(values))
    k = len(code.labels)
    assert code.codes.shape == (k, k - 1)
    z = code.encode(labels(values))
    known = z[[v is not None for v in values]]
    assert_allclose(known.mean(axis=0), 0.0, atol=1e-9)
    assert_allclose(known.T @ known / len(known), np.eye(k - 1), atol=1e-9)
    assert np.isnan(z[[v is None for v in values]]).all()


@pytest.mark.parametrize("far", [1e300, -1e300])
@pytest.mark.parametrize("how", [None, "power"])
def test_values_far_outside_have_finite_coordinates(how, far):
    x = 1e-281 * np.exp(np.random.default_rng(1).standard_normal(50))
    for sign in (1.0, -1.0):
        code = fit_number_encoder(numbers(sign * x), how)
        z = code.transform(np.array([far, sign * x[0]]))
        assert np.isfinite(z).all()
        assert (z[0] > z[1]) == (far > 0)


frequencies = st.lists(st.integers(1, 50), min_size=3, max_size=9).map(
    lambda counts: np.array(counts) / np.sum(counts)
)


@given(frequencies)
def test_scores_are_standard_and_increasing(p):
    scores = normal_scores(p)
    assert scores.shape == (len(p), 1)
    assert p @ scores[:, 0] == pytest.approx(0.0, abs=1e-9)
    assert p @ scores[:, 0] ** 2 == pytest.approx(1.0)
    assert (np.diff(scores[:, 0]) > 0).all()


def test_scores_are_means_of_the_normal_between_quantiles():
    p = np.array([0.1, 0.35, 0.15, 0.4])
    bounds = norm.ppf(np.append(0.0, np.cumsum(p)).clip(0.0, 1.0))
    means = [
        quad(lambda x: x * norm.pdf(x), low, high)[0] / share
        for low, high, share in zip(bounds[:-1], bounds[1:], p, strict=True)
    ]
    size = np.sqrt(p @ np.square(means))
    assert_allclose(normal_scores(p)[:, 0], means / size, atol=1e-9)


def read(series):
    frame = pd.DataFrame({"x": series})
    return validate_table(TableImputer(), frame, reset=True).read_column(0)


def test_ordered_categories_get_one_coordinate():
    sizes = ["small", "medium", "large", "huge"]
    values = ["large", "small", None, "medium", "small"]
    data = read(pd.Series(pd.Categorical(values, sizes, ordered=True)))
    code = fit_category_encoder(data)
    assert code.labels == ("small", "medium", "large")  # that occur, in order
    assert code.is_ordered and code.n_coordinates == 1
    assert_allclose(code.codes, normal_scores(np.array([0.5, 0.25, 0.25])))
    z = code.encode(data)[:, 0]
    assert z[1] == z[4] < z[3] < z[0] and np.isnan(z[2])


def test_unordered_and_two_categories_are_not_ordered():
    unordered = fit_category_encoder(read(pd.Series(pd.Categorical([*"abcab"]))))
    two = read(pd.Series(pd.Categorical([*"abba"], ["b", "a"], ordered=True)))
    assert not unordered.is_ordered and unordered.n_coordinates == 2
    assert not fit_category_encoder(two).is_ordered
    assert fit_category_encoder(two).labels == ("b", "a")


@pytest.mark.parametrize("ordered", [False, True])
def test_one_category_has_no_coordinate(ordered):
    data = read(pd.Series(pd.Categorical([*"aa"], ["b", "a"], ordered=ordered)))
    code = fit_category_encoder(data)
    assert code.n_coordinates == 0 and not code.is_ordered
    assert code.encode(data).shape == (2, 0)


def test_labels_of_any_type_are_sorted():
    encoder = fit_category_encoder(labels(["b", 2, "a", 1.5, None]))
    assert encoder.labels == (1.5, 2, "a", "b")

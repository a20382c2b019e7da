"""Tests of the encoding of columns and the power transform of skewed ones."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.stats import yeojohnson, yeojohnson_normmax

from ncarl.tables.encoding import (
    fit_category_encoder,
    fit_number_encoder,
    fit_yeo_johnson,
    inverse_yeo_johnson,
    is_skewed,
    skewness,
    yeo_johnson,
)
from ncarl.tables.frames import ColumnData


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


def test_expected_value_is_the_mean_in_data_units():
    rng = np.random.default_rng(2)
    x = np.exp(rng.standard_normal(400))
    code = fit_number_encoder(numbers(x), "power")
    drawn = code.inverse_transform(0.4 + 0.5 * rng.standard_normal(200_000))
    (mean,) = code.expected_value(np.array([0.4]), np.array([0.5]))
    assert mean == pytest.approx(drawn.mean(), rel=0.02)
    assert mean > code.inverse_transform(np.array([0.4]))[0] * 1.02


@given(
    arrays(float, st.integers(3, 30), elements=st.floats(-1e300, 1e300)),
    st.sampled_from([None, "auto", "power"]),
    st.floats(-1e300, 1e300),
)
def test_finite_numbers_have_finite_coordinates_and_values(x, how, other):
    code = fit_number_encoder(numbers(x), how)
    z = code.transform(np.array([*x, other])) if code.n_coordinates else np.zeros(1)
    assert np.isfinite(z).all()
    assert np.isfinite(code.expected_value(z, np.ones(len(z)))).all()
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


def test_labels_of_any_type_are_sorted():
    encoder = fit_category_encoder(labels(["b", 2, "a", 1.5, None]))
    assert encoder.labels == (1.5, 2, "a", "b")

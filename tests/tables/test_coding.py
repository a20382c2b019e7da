"""Columns as coordinates, and curves that make them symmetric."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.stats import yeojohnson, yeojohnson_normmax

from ncarl.tables.bending import Power, is_skewed, power_of, skewness
from ncarl.tables.coding import category_code, number_code
from ncarl.tables.given import Given


def numbers(values):
    values = np.asarray(values, dtype=float)
    return Given("x", "number", values, np.isnan(values), "float64")


def labels(values):
    values = np.array(values, dtype=object)
    gaps = np.array([v is None for v in values])
    return Given("x", "category", values, gaps, "object")


@pytest.mark.parametrize("exponent", [-2.0, 0.0, 0.5, 1.0, 2.0, 3.5])
def test_the_curve_is_that_of_yeo_and_johnson(exponent):
    x = np.linspace(-3, 5, 41)
    assert_allclose(Power(exponent).there(x), yeojohnson(x, exponent), atol=1e-12)
    up = np.maximum(x, 0.0)
    assert_allclose(Power(exponent).back(Power(exponent).there(up)), up, atol=1e-9)


def test_the_exponent_is_the_most_likely_one():
    x = np.exp(np.random.default_rng(0).standard_normal(300))
    assert power_of(x).exponent == pytest.approx(yeojohnson_normmax(x), abs=5e-3)


def test_only_skewed_columns_are_bent_unless_all_are_to_be():
    rng = np.random.default_rng(0)
    straight, bent = rng.standard_normal(200), np.exp(rng.standard_normal(200))
    assert not is_skewed(straight) and is_skewed(bent) and is_skewed(-bent)
    assert number_code(numbers(straight), "auto").bend is None
    assert number_code(numbers(straight), "power").bend is not None
    assert number_code(numbers(bent), None).bend is None
    code = number_code(numbers(bent), "auto")
    assert abs(skewness(code.inward(bent))) < 0.2


def test_columns_of_a_few_levels_are_left_as_they_are():
    rare = np.array([0.0] * 95 + [1.0] * 5)
    assert number_code(numbers(rare), "auto").bend is None


@pytest.mark.parametrize("how", [None, "power", "quantile"])
@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e250])
def test_coordinates_are_standard_and_lead_back(how, unit):
    x = unit * np.exp(np.random.default_rng(1).standard_normal(150))
    code = number_code(numbers(x), how)
    z = code.inward(x)
    assert z.mean() == pytest.approx(0.0, abs=1e-9)
    assert z.std() == pytest.approx(1.0)
    assert_allclose(code.outward(z), x, rtol=1e-3 if how == "quantile" else 1e-6)


@pytest.mark.parametrize("how", ["power", "quantile"])
def test_means_of_bent_columns_are_means_of_values_not_of_coordinates(how):
    rng = np.random.default_rng(2)
    x = np.exp(rng.standard_normal(400))
    code = number_code(numbers(x), how)
    drawn = code.outward(0.4 + 0.5 * rng.standard_normal(200_000))
    (mean,) = code.mean(np.array([0.4]), np.array([0.5]))
    assert mean == pytest.approx(drawn.mean(), rel=0.02)
    assert mean > code.outward(np.array([0.4]))[0] * 1.02


@given(
    arrays(float, st.integers(3, 30), elements=st.floats(-1e300, 1e300)),
    st.sampled_from([None, "auto", "power", "quantile"]),
    st.floats(-1e300, 1e300),
)
def test_finite_numbers_have_finite_coordinates_and_values(x, how, other):
    code = number_code(numbers(x), how)
    z = code.inward(np.array([*x, other])) if code.width else np.zeros(1)
    assert np.isfinite(z).all()
    assert np.isfinite(code.mean(z, np.ones(len(z)))).all()
    assert (np.diff(code.outward(np.linspace(-9, 9, 19))) >= 0).all()


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=4, max_size=40))
def test_codes_of_categories_have_mean_0_and_covariance_1(values):
    values = [*values, "a", "b"]
    code = category_code(labels(values))
    k = len(code.labels)
    assert code.codes.shape == (k, k - 1)
    z = code.encode(labels(values))
    known = z[[v is not None for v in values]]
    assert_allclose(known.mean(axis=0), 0.0, atol=1e-9)
    assert_allclose(known.T @ known / len(known), np.eye(k - 1), atol=1e-9)
    assert np.isnan(z[[v is None for v in values]]).all()


def test_labels_are_in_their_order_whatever_their_type():
    assert category_code(labels(["b", 2, "a", 1.5, None])).labels == (1.5, 2, "a", "b")


def test_rare_labels_are_no_further_from_others_by_their_names():
    one = category_code(labels(["a"] * 5 + ["b"] * 3 + ["c"])).codes
    two = category_code(labels(["c"] * 5 + ["a"] * 3 + ["b"])).codes
    apart = [np.linalg.norm(c[:, None] - c[None], axis=2) for c in (one, two)]
    order = [2, 0, 1]
    assert_allclose(apart[0], apart[1][np.ix_(order, order)], atol=1e-9)

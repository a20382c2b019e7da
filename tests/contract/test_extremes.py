"""Tests of extreme valid input: finite output, observed entries kept, no warnings."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import NCARL
from ncarl.exceptions import NumericalWarning

NAN = np.nan
WEIGHTS = ("floor", "pinv", "smooth")
GAMMAS = (None, 0.1)
EPS32 = float(np.finfo(np.float32).max)


def complete(X, **options):
    """Fit and transform, check the output, and allow `NumericalWarning` only."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NumericalWarning)
        estimator = NCARL(**{"max_iter": 6, "tol": 0, **options}).fit(X)
        filled = estimator.transform(X)
        smooth = estimator.transform(X, keep_observed=False)
        some = estimator.predict([0, X.shape[0] - 1], [0, X.shape[1] - 1])
        parts = [filled, smooth, some, estimator.kernel_]
        if options.get("gamma") is not None and X.size < 10_000:
            parts += estimator.transform(X, return_std=True)
    for part in parts:
        assert np.isfinite(part).all()
    seen = ~np.isnan(X)
    assert_array_equal(filled[seen], X[seen])
    assert filled.dtype == (np.float32 if X.dtype == np.float32 else np.float64)
    return filled


def hide(truth, share=0.4, seed=1):
    return np.where(np.random.default_rng(seed).random(truth.shape) < share, NAN, truth)


def set_missing(X, *places):
    for place in places:
        X[place] = NAN
    return X


RNG = np.random.default_rng(0)
BASE = RNG.random((20, 3)) @ RNG.random((3, 8)) + 0.1 * RNG.random((20, 8))
ALONE = np.full((6, 5), NAN)
ALONE[2, 3] = 4.0
SPARSE = np.where(RNG.random((300, 40)) < 0.001, RNG.random((300, 40)), NAN)
WILD = 10.0 ** RNG.uniform(-150, 150, BASE.shape) * RNG.choice([-1, 1], BASE.shape)
CONSTANT_COLUMNS = np.hstack([BASE[:, :4], np.ones((20, 2)), np.zeros((20, 2))])

CASES = {
    "times 1e-300": hide(BASE * 1e-300),
    "times 1e300": hide(BASE * 1e300),
    "subnormal": hide(np.full((6, 4), 5e-324)),
    "the largest floats": hide(np.full((6, 4), np.finfo(float).max)),
    "1e-150 to 1e150": hide(WILD),
    "one huge entry": hide(np.where(BASE[3, 3] == BASE, 1e200, BASE)),
    "columns of all scales": hide(BASE * 10.0 ** np.linspace(-100, 100, 8)),
    "rows of all scales": hide(BASE * 10.0 ** np.linspace(-100, 100, 20)[:, None]),
    "constant": hide(np.full((20, 8), 3.5)),
    "constant columns": hide(CONSTANT_COLUMNS),
    "equal columns and gaps": np.repeat(hide(BASE[:, :2]), 4, axis=1),
    "equal rows": np.repeat(hide(BASE[:2]), 10, axis=0),
    "all zeros": hide(np.zeros((20, 8))),
    "rank one": hide(np.outer(BASE[:, 0], BASE[0])),
    "one row": set_missing(BASE[:1].copy(), (0, 3), (0, 6)),
    "one column": set_missing(BASE[:, :1].copy(), (3, 0)),
    "one entry": np.array([[7.0]]),
    "two by two": np.array([[1.0, NAN], [NAN, 1.0]]),
    "99.9% missing": SPARSE,
    "one observed entry": ALONE,
    "one observed entry, huge": ALONE * 1e157,
    "complete": BASE.copy(),
    "wide": hide(BASE.T),
    "huge offset": hide(1e9 + BASE),
    "float32": hide(BASE).astype(np.float32),
    "float32 at its largest": hide(np.where(BASE > 0.5, EPS32, -EPS32)).astype("f4"),
    "float32 at its smallest": hide(np.full((6, 4), 1e-45)).astype(np.float32),
    "arrow": np.where((np.arange(9) == 0) | (np.arange(9)[:, None] == 0), 1.0, NAN),
    "two blocks": np.where(np.kron(np.eye(2), np.ones((5, 4))) > 0, 2.0, NAN),
}


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", CASES)
def test_extreme_matrix(name, weights, gamma):
    complete(CASES[name], weights=weights, gamma=gamma)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("center", ["mean", "columns", "two-way"])
def test_extreme_matrix_centered_and_scaled(name, center):
    complete(CASES[name], center=center)
    complete(CASES[name], center=center, scale="columns", gamma=0.1)


@pytest.mark.parametrize("name", CASES)
def test_extreme_matrix_in_single_precision(name):
    for gamma in GAMMAS:
        complete(CASES[name], dtype="float32", gamma=gamma, orientation="rows")


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 1e-300},
        {"alpha": 1e100},
        {"alpha": 1e100, "gamma": 0.1},
        {"gamma": 1e-100},
        {"gamma": 1e100},
        {"delta": 1e100},
        {"alpha": 0.0, "delta": 0.0},
        {"delta": 0.0},
        {"n_neighbors": 10**9},
        {"n_neighbors": 1},
        {"graph": np.zeros((8, 8))},
        {"graph": np.full((8, 8), 1e9)},
        {"graph": "fixed", "center": "two-way"},
        {"max_iter": 300, "weights": "smooth"},
    ],
)
def test_extreme_parameters(options):
    complete(hide(BASE), **options)


@pytest.fixture(scope="module", name="middle")
def matrix():
    rng = np.random.default_rng(0)
    truth = rng.random((500, 5)) @ rng.random((5, 300))
    return np.where(rng.random(truth.shape) < 0.2, truth, NAN)


def assert_scales(X, powers, **options):
    usual = complete(X, **options)
    for power in powers:  # powers of two are exact
        filled = complete(np.ldexp(X, power), **options)
        assert_array_equal(np.ldexp(filled, -power), usual)
    return usual


@pytest.mark.parametrize("options", [{}, {"gamma": 0.1, "center": "two-way"}])
def test_result_is_equivariant_to_scale(middle, options):
    options = {"max_iter": 2, "n_neighbors": 20, **options}
    usual = assert_scales(middle, (-498, 498), **options)
    assert_allclose(complete(middle * 1e150, **options) / 1e150, usual, rtol=1e-6)


@pytest.mark.parametrize("weights", ["floor", "smooth"])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_result_is_equivariant_over_the_float_range(weights, gamma):
    assert_scales(hide(BASE), (-1000, 1000), weights=weights, gamma=gamma)


def test_constant_matrix_is_imputed_by_its_constant():
    for center in ("mean", "columns", "two-way"):
        assert_allclose(complete(CASES["constant"], center=center), 3.5, rtol=1e-12)
    assert_array_equal(complete(CASES["all zeros"]), 0.0)


def test_huge_offset_is_removed_by_centering():
    filled = complete(CASES["huge offset"], center="mean", max_iter=20)
    usual = complete(hide(BASE), center="mean", max_iter=20)
    assert_allclose(filled - 1e9, usual, atol=1e-5)


values = st.floats(allow_nan=False, allow_infinity=False, width=64)
tame = st.floats(-100, 100)
matrices = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7),
    elements=st.one_of(st.just(NAN), tame, tame, st.integers(-3, 3).map(float), values),
).filter(lambda X: not np.isnan(X).all())


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)
@given(
    X=matrices,
    alpha=st.sampled_from([0.0, 1e-3, 1.0, 100.0, 1e6]),
    n_neighbors=st.integers(1, 9),
    gamma=st.sampled_from([None, 1e-4, 0.1, 100.0]),
    graph=st.sampled_from(["adaptive", "fixed", None]),
    weights=st.sampled_from(WEIGHTS),
    delta=st.sampled_from([1e-9, 1e-6, 1.0]),
    center=st.sampled_from([None, "mean", "columns", "two-way"]),
    orientation=st.sampled_from(["auto", "columns", "rows"]),
    scale=st.sampled_from([None, "columns"]),
    max_iter=st.integers(1, 12),
)
def test_no_options_ever_give_anything_but_numbers(X, orientation, scale, **options):
    if scale == "columns" and orientation == "rows":
        orientation = "columns"
    complete(X, orientation=orientation, scale=scale, **options)

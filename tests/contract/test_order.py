"""Tests that the order of rows and columns, and the sign of X, make no difference."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import ncarl
from ncarl.registry import METHODS, make

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Every estimator, with its defaults, and variants that choose or draw something.
ESTIMATORS = {
    **{name: make(name) for name in METHODS},
    "wide": ncarl.WideNCARL(),
    "noisy": ncarl.NCARL(gamma=0.1, center="two-way"),
    "both sides": ncarl.BayesianNCARL(sides="both", random_state=3),
    "mixture": ncarl.BayesianNCARL(components=2),
    "rows": ncarl.BayesianNCARL(sides="rows"),
    "apg": ncarl.Nuclear(solver="apg", lam="auto"),
    "svt": ncarl.Nuclear(solver="svt"),
    "wnnm auto": ncarl.WNNM(lam="auto", center="columns"),
    "schatten auto": ncarl.SchattenP(lam="auto"),
    "fgsr auto": ncarl.FGSR(p=0.5, lam="auto", rank=4),
    "learned dictionary": ncarl.LRFD(dictionary="learned"),
    "soft-impute centered": ncarl.SoftImpute(center="two-way", random_state=5),
}
#: Largest change of an imputed value, in standard deviations of the matrix.
TOLERANCE = 1e-6


@pytest.fixture(autouse=True)
def ignore_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (ConvergenceWarning, UserWarning))
        yield


def low_rank(rng):
    truth = 1.0 + rng.standard_normal((40, 3)) @ rng.standard_normal((3, 16))
    truth += 0.3 * rng.standard_normal(truth.shape)
    return np.where(rng.random(truth.shape) < 0.7, truth, np.nan)


def ratings(rng):
    likes = rng.standard_normal((50, 1)) + rng.standard_normal((1, 20))
    stars = np.clip(np.rint(3 + likes + 0.5 * rng.standard_normal((50, 20))), 1, 5)
    return np.where(rng.random(stars.shape) < 0.4, stars, np.nan)


def panel(rng):
    walks = np.cumsum(rng.standard_normal((30, 2)), axis=0)
    X = walks @ rng.standard_normal((2, 20)) + 0.3 * rng.standard_normal((30, 20))
    X[22:, :5] = X[8:12, 8:14] = X[15:18, 16:] = np.nan
    return X


MATRICES = {make_X.__name__: make_X for make_X in (low_rank, ratings, panel)}


@pytest.fixture(scope="module", params=MATRICES, name="X")
def matrix(request):
    return MATRICES[request.param](np.random.default_rng(7))


def change(found, expected, X):
    """Largest change at a missing entry, in standard deviations of the matrix."""
    return np.abs(found - expected)[np.isnan(X)].max() / np.nanstd(X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_permuted_rows_and_columns_give_the_permuted_result(name, X):
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(X.shape[0]), rng.permutation(X.shape[1])
    estimator = ESTIMATORS[name]
    expected = clone(estimator).fit_transform(X)
    for some in (np.ix_(rows, range(X.shape[1])), np.ix_(rows, columns)):
        found = np.empty_like(X)
        found[some] = clone(estimator).fit_transform(X[some])
        assert change(found, expected, X) < TOLERANCE


# Without those whose factors follow rounding errors: their problems are not convex.
@pytest.mark.parametrize(
    "name", sorted({*ESTIMATORS} - {"factored-nuclear", "learned dictionary"})
)
def test_opposite_values_give_the_opposite_result(name, X):
    estimator = ESTIMATORS[name]
    expected = clone(estimator).fit_transform(X)
    assert change(-clone(estimator).fit_transform(-X), expected, X) < TOLERANCE


@pytest.mark.parametrize("name", ["bayes", "ncarl-cv", "soft-impute"])
def test_units_of_columns_do_not_change_what_is_held_out(name, X):
    units = 2.0 ** np.arange(X.shape[1])
    estimator = clone(make(name)).set_params(scale="columns")
    expected = clone(estimator).fit_transform(X)
    found = clone(estimator).fit_transform(X * units) / units
    assert change(found, expected, X) < TOLERANCE


@pytest.mark.parametrize("name", ["s3lr", "lrfd", "nuclear", "bias"])
def test_fitted_attributes_are_in_the_order_of_the_matrix(name):
    rng = np.random.default_rng(2)
    X = low_rank(rng)
    rows, columns = rng.permutation(X.shape[0]), rng.permutation(X.shape[1])
    one = make(name).fit(X)
    other = make(name).fit(X[np.ix_(rows, columns)])
    if name == "s3lr":
        both = np.ix_(columns, columns)
        assert_allclose(other.coefficients_, one.coefficients_[both], atol=1e-9)
        together = one.labels_[:, None] == one.labels_[None, :]
        found = other.labels_[:, None] == other.labels_[None, :]
        assert_array_equal(found, together[both])
    elif name == "lrfd":
        kept = other.dictionary_.shape[1] == X.shape[1]
        expected = one.dictionary_[np.ix_(rows, columns)] if kept else None
        assert_allclose(other.dictionary_, expected, atol=1e-9)
    elif name == "nuclear":
        expected = one.dual_.toarray()[np.ix_(rows, columns)]
        assert_allclose(other.dual_.toarray(), expected, atol=1e-9)
        # Multipliers belong to observed entries.
        assert not one.dual_.toarray()[np.isnan(X)].any()
    else:
        assert_allclose(other.row_effects_, one.row_effects_[rows], atol=1e-12)
        expected = one.column_effects_[columns]
        assert_allclose(other.column_effects_, expected, atol=1e-12)


def test_given_dictionary_keeps_its_rows(X):
    D = np.random.default_rng(3).standard_normal((X.shape[0], 6))
    rows = np.random.default_rng(4).permutation(X.shape[0])
    one = ncarl.LRFD(dictionary=D).fit(X)
    other = ncarl.LRFD(dictionary=D[rows]).fit(X[rows])
    assert_array_equal(one.dictionary_, D)
    expected = one.transform(X)
    found = np.empty_like(X)
    found[rows] = other.transform(X[rows])
    assert change(found, expected, X) < TOLERANCE


def test_a_table_of_mixed_columns_can_be_permuted():
    rng = np.random.default_rng(5)
    size = rng.standard_normal(60)
    table = pd.DataFrame(
        {
            "size": 10.0 * size + 50.0,
            "price": np.exp(size + 0.2 * rng.standard_normal(60)),
            "rooms": np.clip(np.rint(size + 3.0), 1.0, 6.0),
            "town": np.where(size + 0.5 * rng.standard_normal(60) > 0, "Bonn", "Trier"),
        }
    )
    for name in table:
        table.loc[rng.random(60) < 0.2, name] = np.nan
    order, names = rng.permutation(60), ["town", "rooms", "size", "price"]
    one = ncarl.TableImputer().fit_transform(table)
    other = ncarl.TableImputer().fit_transform(table.loc[order, names])
    pd.testing.assert_frame_equal(other.sort_index()[list(table)], one, rtol=1e-6)


def test_streamed_splits_do_not_depend_on_the_order(monkeypatch):
    monkeypatch.setattr("ncarl.bayes.selection.MAX_ENTRIES_IN_MEMORY", 0)
    rng = np.random.default_rng(6)
    X = low_rank(rng)
    rows, columns = rng.permutation(X.shape[0]), rng.permutation(X.shape[1])
    expected = ncarl.BayesianNCARL().fit(ncarl.open_rows(X)).transform(X)
    moved = X[np.ix_(rows, columns)]
    found = np.empty_like(X)
    model = ncarl.BayesianNCARL().fit(ncarl.open_rows(moved, rows_per_chunk=7))
    found[np.ix_(rows, columns)] = model.transform(moved)
    assert change(found, expected, X) < TOLERANCE

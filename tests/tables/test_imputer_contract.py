"""scikit-learn's own checks, and its tools around the imputer of tables."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncarl.tables import TableImputer


@parametrize_with_checks([TableImputer(max_iter=2, tol=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def people():
    """A table with columns of three kinds, and a target that depends on them."""
    rng = np.random.default_rng(1)
    m = 120
    height = rng.normal(170, 10, m)
    weight = height - 100 + rng.normal(0, 5, m)
    kind = np.array(["s", "m", "l"])[np.digitize(weight, [65, 75])]
    frame = pd.DataFrame(
        {
            "height": height,
            "weight": pd.array(np.rint(weight).astype(int), dtype="Int64"),
            "tall": pd.array(height > 170, dtype="boolean"),
            "kind": pd.Categorical(kind, categories=["s", "m", "l"], ordered=True),
        }
    )
    target = weight + rng.normal(0, 3, m) > 70
    return frame.mask(rng.random(frame.shape) < 0.2), target


@pytest.fixture(scope="module")
def fitted(people):
    return TableImputer().fit(people[0])


def test_a_pipeline_with_gaps_is_cross_validated_better_than_chance(people):
    X, y = people
    one_hot = (OneHotEncoder(), make_column_selector(dtype_include="category"))
    coded = ColumnTransformer([("kind", *one_hot)], remainder="passthrough")
    pipe = make_pipeline(
        TableImputer(max_iter=10, tol=0), coded, StandardScaler(), LogisticRegression()
    )
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.75


def test_grid_search_sets_parameters_by_name(people):
    X, y = people
    pipe = make_pipeline(TableImputer(max_iter=3, tol=0), LogisticRegression())
    grid = {"tableimputer__transform_skewed": [None, "quantile"]}
    search = GridSearchCV(pipe, grid, cv=2).fit(X[["height", "weight"]], y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[0].transform_skewed in (None, "quantile")


def test_part_of_a_table_can_be_filled_in_a_column_transformer(people):
    X, _ = people
    both = ColumnTransformer(
        [("numbers", TableImputer(max_iter=3, tol=0), ["height", "weight"])],
        remainder="drop",
    ).set_output(transform="pandas")
    out = both.fit_transform(X)
    assert list(out.columns) == ["numbers__height", "numbers__weight"]
    assert not out.isna().any().any()
    assert out["numbers__weight"].dtype == "Int64"


def test_clone_has_the_same_parameters_and_no_fit(fitted):
    fitted = clone(fitted).set_params(passthrough=["a"], rounding=None, clip=False)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "columns_")


def test_pickled_imputer_fills_the_same_and_holds_no_rows(fitted, people):
    again = pickle.loads(pickle.dumps(fitted))
    X, _ = people
    pd.testing.assert_frame_equal(again.transform(X), fitted.transform(X))
    assert again.model_.training_ is None


def test_rows_are_filled_alone_as_among_others(fitted, people):
    X, _ = people
    whole = fitted.transform(X)
    for i in (0, 7, 30):
        pd.testing.assert_frame_equal(
            fitted.transform(X.iloc[[i]]), whole.iloc[[i]], rtol=1e-10
        )


def test_columns_may_come_in_another_order(fitted, people):
    X, _ = people
    pd.testing.assert_frame_equal(
        fitted.transform(X[X.columns[::-1]]), fitted.transform(X)
    )


def test_index_and_rows_stay_as_they_are(fitted, people):
    X, _ = people
    moved = X.set_axis([f"r{i}" for i in range(len(X))])[::-1]
    out = fitted.transform(moved)
    assert list(out.index) == list(moved.index)
    before = moved.copy()
    assert moved.equals(before)


@pytest.mark.parametrize(("container", "kind"), [("pandas", pd), ("polars", pl)])
def test_set_output_gives_the_container_that_is_asked_for(people, container, kind):
    X, _ = people
    imputer = TableImputer(max_iter=3, tol=0)
    for given in (X, pl.from_pandas(X), X[["height"]].to_numpy()):
        asked = clone(imputer).set_output(transform=container)
        out = asked.fit_transform(given)
        assert isinstance(out, kind.DataFrame)
        assert list(out.columns) == list(asked.get_feature_names_out())
        with config_context(transform_output=container):
            out = clone(imputer).fit_transform(given)
        assert isinstance(out, kind.DataFrame)


def test_indicators_are_those_of_scikit_learn():
    from sklearn.impute import SimpleImputer

    X = np.random.default_rng(0).random((30, 4))
    X[:5, 1] = X[3:9, 3] = np.nan
    ours = TableImputer(add_indicator=True, max_iter=2, tol=0).fit(X)
    theirs = SimpleImputer(add_indicator=True).fit(X)
    new = X.copy()
    new[0, 0] = np.nan  # a gap where the fit had none has no indicator
    assert_array_equal(ours.transform(new)[:, 4:], theirs.transform(new)[:, 4:])
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


def test_arrays_are_filled_without_pandas_polars_and_numba():
    code = (
        "import sys; sys.modules.update(pandas=None, polars=None, numba=None)\n"
        "import numpy as np; from ncarl.tables import TableImputer\n"
        "X = np.random.default_rng(0).random((20, 3)); X[X > 0.8] = np.nan\n"
        "out = TableImputer(max_iter=2, tol=0).fit_transform(X)\n"
        "print(np.isfinite(out).all(), np.array_equal(out[X == X], X[X == X]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]

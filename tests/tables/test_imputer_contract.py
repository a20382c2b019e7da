"""Tests of scikit-learn compatibility of `TableImputer`."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncarl.tables import TableImputer


@parametrize_with_checks([TableImputer(max_iter=2, tol=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def people():
    """A table with columns of three types and a fifth of the cells missing."""
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
    hidden = rng.random(frame.shape) < 0.2
    hidden[hidden.all(axis=1), 0] = False  # no row is empty
    return frame.mask(hidden)


@pytest.fixture(scope="module")
def imputer(people):
    return TableImputer().fit(people)


def test_rows_are_imputed_independently(imputer, people):
    whole = imputer.transform(people)
    for i in (0, 7, 30):
        alone = imputer.transform(people.iloc[[i]])
        pd.testing.assert_frame_equal(alone, whole.iloc[[i]], rtol=1e-10)
    assert imputer.model_.training_ is None  # no training rows are kept


def test_a_pipeline_is_cross_validated(people):
    one_hot = (OneHotEncoder(), make_column_selector(dtype_include="category"))
    coded = ColumnTransformer([("kind", *one_hot)], remainder="passthrough")
    imputer = TableImputer(max_iter=10, tol=0)
    pipe = make_pipeline(imputer, coded, StandardScaler(), LogisticRegression())
    heavy = people["weight"].fillna(70).to_numpy(float) > 70
    assert cross_val_score(pipe, people, heavy, cv=3).mean() > 0.75


def test_columns_may_be_reordered(imputer, people):
    mixed, expected = people[people.columns[::-1]], imputer.transform(people)
    pd.testing.assert_frame_equal(imputer.transform(mixed), expected)
    assert imputer.transform(pl.from_pandas(mixed)).columns == list(people.columns)


@pytest.mark.parametrize(("container", "kind"), [("pandas", pd), ("polars", pl)])
def test_set_output_gives_the_requested_container(people, container, kind):
    imputer = TableImputer(max_iter=3, tol=0)
    array = np.arange(12.0).reshape(6, 2)
    for given in (people, pl.from_pandas(people), array):
        asked = clone(imputer).set_output(transform=container)
        out = asked.fit_transform(given)
        assert isinstance(out, kind.DataFrame)
        assert list(out.columns) == list(asked.get_feature_names_out())
        with config_context(transform_output=container):
            out = clone(imputer).fit_transform(given)
        assert isinstance(out, kind.DataFrame)


@pytest.mark.parametrize("container", ["pandas", "polars", "numpy"])
def test_empty_rows_stay_empty_and_are_named(people, container):
    frame = people.reset_index(drop=True)
    frame["code"] = np.arange(len(frame)) % 5  # a plain integer column with a marker
    frame.loc[::4, "code"] = -999
    frame.loc[[2, 7], [*people.columns]] = None
    frame.loc[[2, 7], "code"] = -999
    if container == "numpy":
        frame = frame[["height", "weight", "code"]].astype("Float64").fillna(np.nan)
    X = {"polars": pl.from_pandas, "numpy": lambda f: f.to_numpy(float)}.get(
        container, lambda f: f
    )(frame)
    imputer = TableImputer(max_iter=3, tol=0, missing_values=-999).fit(X)
    with pytest.warns(UserWarning, match=r"value in 2 rows of X \(at 2, 7, from 0\)"):
        out = imputer.transform(X)
    low, _ = imputer.predict_interval(X)
    if container != "numpy":
        assert [str(kind) for kind in out.dtypes] == [str(kind) for kind in X.dtypes]
    cells, ends = (pd.DataFrame(np.asarray(part)) for part in (out, low))
    left = cells.isna() | (cells == -999)
    assert left.loc[[2, 7]].all(axis=None)
    assert not left.drop(index=[2, 7]).any(axis=None)
    assert ends.loc[[2, 7]].isna().all(axis=None)
    assert ends.drop(index=[2, 7]).notna().all(axis=None)


def test_arrays_are_imputed_without_pandas_polars_and_numba():
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

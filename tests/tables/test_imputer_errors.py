"""Tests of errors and warnings of `TableImputer`."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from ncarl.tables import TableImputer

QUICK = {"max_iter": 2, "tol": 0}


def frame(**more):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.random(8), "y": rng.random(8), **more})


DATES = pd.date_range("2020", periods=8)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dates_raise(library):
    with pytest.raises(ValueError, match="'odd'"):
        TableImputer(**QUICK).fit(frame(odd=["a", 1, None, "b"] * 2))
    given = frame(when=DATES)
    given = given if library == "pandas" else pl.from_pandas(given)
    with pytest.raises(ValueError, match=r"'when' .*passthrough=\['when'\]"):
        TableImputer(**QUICK).fit(given)
    out = TableImputer(**QUICK, passthrough=["when"]).fit_transform(given)
    assert list(out["when"]) == list(given["when"])


def test_ignored_columns_keep_missing_entries_and_must_exist():
    given = frame(name=["a", None] * 4)
    out = TableImputer(**QUICK, passthrough=["name"]).fit_transform(given)
    assert out["name"].isna().sum() == 4
    with pytest.raises(ValueError, match=r"passthrough .*'nome'"):
        TableImputer(**QUICK, passthrough=["nome"]).fit(given)
    with pytest.raises(TypeError, match="passthrough must be a list"):
        TableImputer(**QUICK, passthrough="name").fit(given)


def test_text_columns_are_passed_through_with_a_warning():
    given = frame(name=[*"abcdefg", None])
    imputer = TableImputer(**QUICK, max_categories=5)
    with pytest.warns(UserWarning, match="'name': more than max_categories=5"):
        out = imputer.fit_transform(given)
    assert out["name"].isna().sum() == 1
    assert out["name"].dtype == given["name"].dtype
    assert imputer.columns_[2].role == "ignored"
    filled = TableImputer(**QUICK, max_categories=7).fit_transform(given)
    assert not filled["name"].isna().any()


def test_empty_columns_stay_empty_or_are_dropped():
    given = frame(nothing=[np.nan] * 8)
    with pytest.warns(UserWarning, match="no observed value in columns 'nothing'"):
        imputer = TableImputer(**QUICK).fit(given)
    assert imputer.transform(given)["nothing"].isna().all()
    later = imputer.transform(given.assign(nothing=1.0))
    assert (later["nothing"] == 1.0).all()
    with pytest.warns(UserWarning, match="'nothing': they are dropped$"):
        dropped = TableImputer(**QUICK, keep_empty_features=False).fit(given)
    assert list(dropped.transform(given).columns) == ["x", "y"]
    assert list(dropped.get_feature_names_out()) == ["x", "y"]


def test_array_of_text_raises():
    words = np.array([[1.0, "a"], [2.0, "b"], [np.nan, "a"]], dtype=object)
    with pytest.raises(ValueError, match=r"must be a frame .* 'a' in row 0, column 1"):
        TableImputer(**QUICK).fit(words)
    numbers = np.array([["1", "2"], ["3", "nan"], ["2", "5"]])
    assert TableImputer(**QUICK).fit_transform(numbers).shape == (3, 2)


def test_other_shapes_columns_and_levels_raise():
    imputer = TableImputer(**QUICK).fit(frame())
    for empty, words in ((frame().iloc[:0], "0 sample"), (frame()[[]], "0 feature")):
        with pytest.raises(ValueError, match=words):
            imputer.fit(empty)
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*- z"):
        imputer.transform(frame(z=1.0))
    with pytest.raises(ValueError, match=r"(?s)now missing.*- y"):
        imputer.transform(frame()[["x"]])
    with pytest.raises(ValueError, match="more than once"):
        imputer.transform(frame().set_axis(["x", "x"], axis=1))
    with pytest.raises(ValueError, match="level must be below 1"):
        imputer.predict_interval(frame(), 1.0)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (np.arange(8.0), ["a"] * 8, "held numbers in fit and holds categories"),
        (np.arange(8) > 3, np.arange(8.0), "held booleans in fit and holds numbers"),
        (["a", "b"] * 4, DATES, "held categories in fit and holds neither"),
    ],
)
def test_columns_that_change_their_type_raise(before, after, words):
    imputer = TableImputer(**QUICK).fit(frame(c=before))
    with pytest.raises(ValueError, match=f"column 'c' {words}"):
        imputer.transform(frame(c=after))


def test_zero_and_one_are_boolean_values():
    imputer = TableImputer(**QUICK).fit(frame(c=np.arange(8) > 3))
    out = imputer.transform(frame(c=[0, 1, np.nan, 0, 1, 1, 0, 0]))
    assert set(out["c"]) <= {0.0, 1.0}


def test_infinite_numbers_raise_with_the_column_name():
    with pytest.raises(ValueError, match=r"infinity.*column 'c'"):
        TableImputer(**QUICK).fit(frame(c=[np.inf] * 8))
    imputer = TableImputer(**QUICK).fit(frame())
    with pytest.raises(ValueError, match=r"infinity.*column 'y'"):
        imputer.transform(frame().assign(y=-np.inf))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transform_skewed", "log"), ("rounding", True), ("clip", "yes"),
        ("keep_empty_features", None),
        ("add_indicator", 1), ("max_categories", 0), ("max_iter", 0), ("tol", -1.0),
        ("shrinkage_rows", "many"), ("engine", "abacus"), ("missing_values", [-1]),
        ("missing_values", True), ("missing_values", np.inf),
        ("missing_values", 10**400),
    ],
)  # fmt: skip
def test_invalid_parameters_raise(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        TableImputer(**{**QUICK, name: value}).fit(frame())


def test_prediction_before_fit_raises():
    for ask in ("transform", "predict_interval", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(TableImputer(), ask)(frame())


def test_array_for_a_fit_with_categories_raises():
    imputer = TableImputer(**QUICK).fit(frame(c=["a", "b"] * 4))
    with pytest.raises(ValueError, match="must be a frame: columns 'c'"):
        imputer.transform(np.full((1, 3), np.nan))


def test_unconverged_fit_warns():
    with pytest.warns(ConvergenceWarning, match="TableImputer did not converge"):
        TableImputer(max_iter=2).fit(frame())


def test_columns_named_by_numbers_are_matched_by_name_too():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 1))
    table = pd.DataFrame(np.hstack([x, 10 * x, 100 * x]) + 1e-3)
    imputer = TableImputer().fit(table.mask(rng.random(table.shape) < 0.1))
    gappy = table.mask(np.eye(60, 3, dtype=bool))
    want = imputer.transform(gappy)
    found = imputer.transform(gappy[[2, 0, 1]])
    pd.testing.assert_frame_equal(found[[0, 1, 2]], want)
    words = r"must be those of fit, \[0, 1, 2\], got \[7\]"
    with pytest.raises(ValueError, match=words):
        imputer.transform(gappy.rename(columns={1: 7}))


def test_indicator_names_do_not_collide_with_columns():
    table = pd.DataFrame({"x": [1.0, None, 3.0], "missingindicator_x": [1.0, 2.0, 4.0]})
    imputer = TableImputer(add_indicator=True).fit(table)
    with pytest.raises(ValueError, match="would replace your column"):
        imputer.transform(table)


def test_column_that_varies_by_rounding_is_constant():
    table = pd.DataFrame({"a": [1e10, 1e10 + 2e-6, np.nan, 1e10], "b": [1.0, 2, 3, 4]})
    assert TableImputer(clip=False).fit_transform(table)["a"][2] == pytest.approx(1e10)

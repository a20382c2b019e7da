"""Tests that column types are preserved in pandas and polars."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from ncarl.tables import TableImputer

QUICK = {"max_iter": 2, "tol": 0}
LETTERS = ["b", "a", "c"]
PANDAS = {
    "float64": st.floats(-1e6, 1e6),
    "float32": st.floats(-1e6, 1e6, width=32),
    "Float64": st.floats(-1e6, 1e6),
    "Int64": st.integers(-(2**60), 2**60),
    "UInt8": st.integers(0, 255),
    "Int8": st.integers(-128, 127),
    "int64[pyarrow]": st.integers(-1000, 1000),
    "double[pyarrow]": st.floats(-1e6, 1e6),
    "boolean": st.booleans(),
    "bool[pyarrow]": st.booleans(),
    "str": st.sampled_from(LETTERS),
    "string": st.sampled_from(LETTERS),
    "object": st.sampled_from(LETTERS),
    "category": st.sampled_from(LETTERS),
}
ORDERED = pd.CategoricalDtype(["c", "b", "a", "never"], ordered=True)
POLARS = {
    "Float64": st.floats(-1e6, 1e6),
    "Float32": st.floats(-1e6, 1e6, width=32),
    "Int64": st.integers(-(2**60), 2**60),
    "Int8": st.integers(-128, 127),
    "UInt16": st.integers(0, 2**16 - 1),
    "Boolean": st.booleans(),
    "String": st.sampled_from(LETTERS),
    "Categorical": st.sampled_from(LETTERS),
}
ENUM = pl.Enum(["c", "b", "a", "never"])


def columns(kinds):
    """One column of each type, of equal length, with missing entries."""

    def drawn(m):
        gappy = (
            st.lists(st.none() | k, min_size=m, max_size=m) for k in kinds.values()
        )
        return st.tuples(st.just(list(kinds)), st.tuples(*gappy))

    return st.integers(3, 9).flatmap(drawn)


@given(columns(PANDAS))
@settings(max_examples=8)
@pytest.mark.filterwarnings("ignore:no observed value")
def test_pandas_columns_keep_type_values_and_index(drawn):
    kinds, values = drawn
    index = [f"r{i}" for i in range(len(values[0]))]
    frame = pd.DataFrame(index=index)
    for j, (kind, column) in enumerate(zip(kinds, values, strict=True)):
        frame[f"{kind}{j}"] = pd.Series(column, index, dtype=object).astype(kind)
    out = TableImputer(**QUICK).fit_transform(frame)
    assert list(out.dtypes) == list(frame.dtypes)
    assert out.index.equals(frame.index)
    for name in frame:
        known = frame[name].notna()
        assert out[name][known].equals(frame[name][known])
        assert out[name].notna().all() or not known.any()


@given(columns(POLARS | {"Enum": st.sampled_from(LETTERS)}))
@settings(max_examples=8)
@pytest.mark.filterwarnings("ignore:no observed value")
def test_polars_columns_keep_type_and_values(drawn):
    kinds, values = drawn
    types = [ENUM if kind == "Enum" else getattr(pl, kind) for kind in kinds]
    names = [f"{kind}{j}" for j, kind in enumerate(kinds)]
    frame = pl.DataFrame(list(map(pl.Series, names, values, types)))
    out = TableImputer(**QUICK).fit_transform(frame)
    assert out.schema == frame.schema
    for name in frame.columns:
        known = frame[name].is_not_null()
        assert out[name].filter(known).equals(frame[name].filter(known))
        assert out[name].null_count() == 0 or not known.any()


def make_frame(**more):
    """A small frame of numbers with additional columns."""
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.random(20), "y": rng.random(20), **more})


@pytest.mark.parametrize("fill_value", [np.nan, 0.0])
def test_sparse_columns_are_dense_once_imputed(fill_value):
    x = pd.arrays.SparseArray([np.nan, 0.0, 1.0, 2.0] * 5, fill_value=fill_value)
    frame = make_frame(c=x, d=pd.arrays.SparseArray([0, 1] * 10))
    out = TableImputer(**QUICK).fit_transform(frame)
    assert out.dtypes["c"] == np.float64 and out.dtypes["d"] == frame.dtypes["d"]
    polars = TableImputer(**QUICK).set_output(transform="polars").fit_transform(frame)
    assert polars.equals(pl.from_pandas(out.astype({"d": "int64"})))


def test_order_and_unused_categories_are_kept():
    labels = pd.Series(["a", "b", None, "c"] * 5).astype(ORDERED)
    out = TableImputer(**QUICK).fit_transform(make_frame(c=labels))
    assert out["c"].dtype == ORDERED
    assert not out["c"].isna().any()
    assert "never" not in out["c"].tolist()


def test_object_column_of_booleans_and_none_is_boolean():
    answers = pd.Series([True, None, False, True] * 5, dtype=object)
    out = TableImputer(**QUICK).fit_transform(make_frame(c=answers))
    assert out["c"].dtype == object
    assert {type(value) for value in out["c"]} == {bool}


def test_integer_columns_of_the_fit_are_imputed_by_integers():
    imputer = TableImputer(**QUICK).fit(make_frame(n=np.arange(20)))
    new = make_frame(n=[None, *range(1, 20)])
    assert new["n"].dtype == "float64"  # converted by pandas
    out = imputer.transform(new)
    assert out["n"].dtype == "float64"
    assert float(out["n"][0]).is_integer()


@pytest.mark.parametrize("rounding", ["integers", "whole", None])
def test_rounding(rounding):
    imputer = TableImputer(**QUICK, rounding=rounding)
    integers = pd.array([None, *range(1, 20)], dtype="Int64")
    out = imputer.fit_transform(make_frame(n=integers, f=[np.nan, *range(1, 20)]))
    assert out["n"].dtype == ("Float64" if rounding is None else "Int64")
    assert float(out["n"][0]).is_integer() == (rounding is not None)
    assert float(out["f"][0]).is_integer() == (rounding == "whole")
    assert not float(out["x"][0]).is_integer()
    polars = pl.DataFrame({"x": np.arange(20.0), "n": [None, *range(1, 20)]})
    dtype = imputer.fit_transform(polars)["n"].dtype
    assert dtype == (pl.Float64 if rounding is None else pl.Int64)


@pytest.mark.parametrize("empty", [None, np.nan])
@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (np.arange(20), "int64"),
        (np.arange(20) % 2 == 0, "bool"),
        (pd.Categorical(["a", "b"] * 10), "category"),
        (pd.array(["a", "b"] * 10, dtype="str"), "str"),
    ],
)
def test_empty_column_gets_the_dtype_of_the_fit(column, dtype, empty):
    imputer = TableImputer(**QUICK).fit(make_frame(c=column))
    out = imputer.transform(make_frame(c=pd.Series([empty] * 20)))
    plain = out["c"].dtype == "float64" and dtype == "int64"  # NaN is a float
    assert plain or out["c"].dtype == dtype
    assert not out["c"].isna().any()


def test_polars_null_column_gets_the_dtype_of_the_fit():
    numbers = [float("nan"), *range(1, 8)]
    frame = pl.DataFrame({"x": numbers, "y": [*range(8)], "b": [True, False] * 4})
    frame = frame.with_columns(e=pl.Series(["a", "b"] * 4, dtype=ENUM))
    imputer = TableImputer(**QUICK).fit(frame)
    out = imputer.transform(frame.with_columns(b=pl.lit(None), e=pl.lit(None)))
    assert out.schema == frame.schema
    assert out.null_count().sum_horizontal().item() == 0
    assert out["x"].is_finite().all()


def test_labels_are_shared_between_libraries():
    frame = make_frame(c=pd.Categorical(["a", "b"] * 10))
    imputer = TableImputer(**QUICK).fit(frame)
    new = pl.DataFrame(
        {"x": [0.5], "y": [0.1], "c": pl.Series([None], dtype=pl.String)}
    )
    out = imputer.transform(new)
    assert out["c"].dtype == pl.String
    assert out["c"][0] in ("a", "b")


def test_new_categories_are_kept_and_treated_as_unknown():
    labels = pd.Categorical(["a", "b"] * 10)
    frame = make_frame(c=labels, d=np.where(labels == "a", 0.0, 1.0))
    imputer = TableImputer().fit(frame)
    new = pd.DataFrame({"x": [0.5] * 3, "y": [0.5] * 3, "d": [np.nan, np.nan, 0.0]})
    new["c"] = pd.Categorical(["new", None, None], categories=["new"])
    out = imputer.transform(new[["x", "y", "c", "d"]])
    assert out["c"].tolist()[0] == "new"
    assert out["c"].tolist()[2] == "a"
    assert out["c"].dtype.categories[0] == "new"
    assert out["d"][0] == out["d"][1]


def test_fewer_categories_get_those_of_the_fit():
    frame = make_frame(c=pd.Categorical(["a", "b"] * 10), d=[0.0, 1.0] * 10)
    imputer = TableImputer().fit(frame)
    two = frame.iloc[[1, 1]].assign(c=pd.Categorical(["b", None]), d=[1.0, 0.0])
    out = imputer.transform(two)
    assert out["c"].tolist() == ["b", "a"]
    assert out["c"].dtype.categories.tolist() == ["a", "b"]


def test_numbers_match_numeric_categories():
    frame = make_frame(c=pd.Categorical([1, 2] * 10), d=[0.0, 1.0] * 10)
    imputer = TableImputer().fit(frame)
    new = frame.assign(c=[np.nan, *([2.0, 1.0] * 9), 2.0])
    out = imputer.transform(new)
    assert out["c"].dtype == frame["c"].dtype
    assert out["c"][0] == 1


def test_decimals_keep_their_type_and_places(rng):
    cents = rng.integers(100, 900, 40)
    prices = [Decimal(int(c)) / 100 if i % 7 else None for i, c in enumerate(cents)]
    table = pd.DataFrame({"price": prices, "weight": cents / 50 + rng.random(40)})
    filled = TableImputer().fit_transform(table)["price"]
    assert filled.map(type).eq(Decimal).all()
    assert all(value.as_tuple().exponent >= -2 for value in filled)
    for before, after in zip(prices, filled, strict=True):
        assert before is None or before is after
    assert float(filled[0]) == pytest.approx(cents[0] / 100, abs=1)

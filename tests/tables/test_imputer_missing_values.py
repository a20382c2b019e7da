"""Tests of ``missing_values`` in arrays and in pandas and polars frames."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.impute import MissingIndicator, SimpleImputer

from ncarl.tables import TableImputer

QUICK = {"max_iter": 3, "tol": 0}


@pytest.fixture(scope="module")
def numbers():
    """Correlated positive columns and a mask of missing entries."""
    rng = np.random.default_rng(4)
    values = np.exp(rng.standard_normal((40, 1)) + 0.3 * rng.standard_normal((40, 4)))
    hidden = rng.random(values.shape) < 0.2
    hidden[hidden.all(axis=1), 0] = False  # no row is empty
    return values, hidden


@pytest.fixture(scope="module")
def mixed():
    """A frame with columns of three types and None for missing entries."""
    rng = np.random.default_rng(5)
    size = rng.standard_normal(30)
    frame = pd.DataFrame(
        {
            "x": size,
            "n": pd.array(np.rint(10 * size).astype(int), dtype="Int64"),
            "kind": np.where(size > 0, "large", "small"),
        }
    )
    hidden = rng.random(frame.shape) < 0.2
    hidden[hidden.all(axis=1), 0] = False  # no row is empty
    return frame.mask(hidden)


@pytest.mark.parametrize(
    ("marker", "dtype"),
    [(0, np.float64), (np.int8(-1), np.float64), (np.float32(0.1), np.float32)],
)
def test_marked_entries_of_arrays_are_imputed_like_nan(numbers, marker, dtype):
    values, hidden = numbers[0].astype(dtype), numbers[1]
    imputer = TableImputer(**QUICK, missing_values=marker, add_indicator=True)
    found = imputer.fit_transform(np.where(hidden, dtype(marker), values))
    plain = TableImputer(**QUICK, add_indicator=True)
    gappy = np.where(hidden, dtype(np.nan), values)
    assert found.dtype == dtype
    assert_array_equal(found, plain.fit_transform(gappy))
    gappy[hidden & (np.arange(40) % 2 == 0)[:, None]] = marker  # NaN is also missing
    assert_array_equal(imputer.fit_transform(gappy), found)


@pytest.mark.parametrize("marker", [None, pd.NA])
def test_default_missing_values_are_valid_markers(mixed, marker):
    imputer = TableImputer(**QUICK, missing_values=marker, add_indicator=True)
    expected = TableImputer(**QUICK, add_indicator=True).fit_transform(mixed)
    pd.testing.assert_frame_equal(imputer.fit_transform(mixed), expected)


@pytest.mark.parametrize("kind", ["Float64", "Float32", "Arrow", "polars"])
def test_nan_in_a_nullable_column_is_missing(numbers, kind):
    values, hidden = np.where(numbers[1], np.nan, numbers[0]), numbers[1]

    def column(x):
        if kind == "polars":
            return pl.Series(x, nan_to_null=False)
        if kind == "Arrow":
            return pd.arrays.ArrowExtensionArray(pa.array(x, from_pandas=False))
        return pd.arrays.FloatingArray(x.astype(kind.lower()), np.isnan(x) & (x == 0))

    make = pl.DataFrame if kind == "polars" else pd.DataFrame
    frame = make({f"x{j}": column(values[:, j]) for j in range(4)})
    imputer = TableImputer(**QUICK, add_indicator=True).fit(frame)
    out = imputer.transform(frame)
    assert list(out.dtypes)[:4] == list(frame.dtypes)
    expected = imputer.transform(pd.DataFrame(values, columns=frame.columns))
    assert_allclose(out.to_numpy().astype(float), expected.astype(float), rtol=1e-6)
    assert_array_equal(imputer.indicator_.features_, hidden.any(axis=0).nonzero()[0])


def test_marked_entries_are_missing_in_transform_intervals_and_indicators(numbers):
    values, hidden = numbers
    marked, gappy = (np.where(hidden, x, values) for x in (-1.0, np.nan))
    ours = TableImputer(**QUICK, missing_values=-1, add_indicator=True).fit(marked)
    plain = TableImputer(**QUICK, add_indicator=True).fit(gappy)
    assert_array_equal(ours.transform(marked), plain.transform(gappy))
    assert_array_equal(ours.predict_interval(marked), plain.predict_interval(gappy))
    theirs = MissingIndicator(missing_values=-1).fit(marked)
    assert_array_equal(ours.indicator_.features_, theirs.features_)
    assert_array_equal(ours.indicator_.transform(marked), theirs.transform(marked))
    assert_array_equal(ours.transform(marked)[:, 4:], theirs.transform(marked))


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_columns_of_numbers_keep_their_type_without_a_null(library, dtype):
    x = np.random.default_rng(0).integers(1, 90, 30)
    marked = x.astype(dtype)
    marked[:5] = 99
    frame = pd.DataFrame({"a": marked, "b": 2.0 * x})
    if library == "polars":
        frame = pl.from_pandas(frame)
    out = TableImputer(missing_values=99).fit_transform(frame)
    assert list(out.dtypes) == list(frame.dtypes)
    assert_array_equal(out["a"].to_numpy()[5:], marked[5:])
    assert_allclose(out["a"].to_numpy()[:5], x[:5], atol=4)
    assert_array_equal(frame["a"].to_numpy(), marked)  # the input is not modified


@pytest.mark.parametrize("dtype", ["Int64", "double[pyarrow]", "Sparse[int64]"])
def test_number_marks_entries_of_all_pandas_dtypes(dtype):
    x = np.arange(20)
    frame = pd.DataFrame({"a": pd.Series(x).astype(dtype), "b": 3.0 * x})
    found = TableImputer(**QUICK, missing_values=7).fit(frame)
    assert found.columns_[0].had_missing and not found.columns_[1].had_missing
    assert found.transform(frame)["a"].tolist()[:7] == list(range(7))
    null = pd.Series(x).astype("Int64").mask(x == 7)
    plain = TableImputer(**QUICK).fit_transform(frame.assign(a=null))
    assert found.transform(frame)["a"][7] == pytest.approx(plain["a"][7], abs=0.51)


@pytest.mark.parametrize("dtype", ["object", "str", "category", "string[pyarrow]"])
def test_string_marks_entries_of_text_columns(mixed, dtype):
    text = mixed.assign(kind=mixed["kind"].astype(object).fillna("?").astype(dtype))
    imputer = TableImputer(**QUICK, missing_values="?").fit(text)
    expected = TableImputer(**QUICK).fit_transform(mixed)
    out = imputer.transform(text)
    assert out["kind"].dtype == text["kind"].dtype
    assert out["kind"].tolist() == expected["kind"].tolist()
    assert_array_equal(out["x"], expected["x"])
    assert list(imputer.predict_proba(text)["kind"].columns) == ["large", "small"]


@pytest.mark.parametrize(
    "dtype", [pl.String, pl.Categorical, pl.Enum(["?", "large", "small"])]
)
def test_string_marks_entries_of_polars_columns(mixed, dtype):
    frame = pl.from_pandas(mixed)
    text = frame.with_columns(pl.col("kind").fill_null("?").cast(dtype))
    out = TableImputer(**QUICK, missing_values="?").fit_transform(text)
    expected = TableImputer(**QUICK).fit_transform(frame)
    assert out.schema == text.schema
    assert out["kind"].to_list() == expected["kind"].to_list()


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, 2, "?", 4, 5, 6], "integer"),
        ([1.5, 2.5, "?", 4.0, 5.0, 6.0], "number"),
        ([True, False, "?", True, False, True], "boolean"),
        ([Decimal("1.5"), Decimal("2.5"), "?", *map(Decimal, "456")], "number"),
    ],
)
def test_type_of_object_columns_ignores_a_string_marker(cells, kind):
    frame = pd.DataFrame({"a": pd.Series(cells, dtype=object), "b": np.arange(6.0)})
    with pytest.raises(ValueError, match="'a'"):
        TableImputer(**QUICK).fit(frame)
    imputer = TableImputer(**QUICK, missing_values="?").fit(frame)
    assert imputer.columns_[0].kind == kind
    out = imputer.transform(frame)["a"]
    assert out.dtype == object and isinstance(out[2], float | bool | Decimal)
    assert kind != "integer" or out[2] == int(out[2])
    assert [x for k, x in enumerate(out) if k != 2] == [c for c in cells if c != "?"]
    assert frame["a"][2] == "?"


def test_object_arrays_may_contain_a_string_marker():
    rows = [[1.0, "?"], [2.0, 4.0], ["?", 6.0], [4.0, 8.0]]
    expected = TableImputer(**QUICK).fit_transform(
        [[np.nan if x == "?" else x for x in row] for row in rows]
    )
    imputer = TableImputer(**QUICK, missing_values="?")
    assert_array_equal(imputer.fit_transform(np.array(rows, dtype=object)), expected)
    assert_array_equal(imputer.fit_transform(np.array(rows)), expected)
    assert_array_equal(imputer.fit_transform(rows), expected)
    rows[0][0] = "a"
    with pytest.raises(ValueError, match="must be a frame"):
        imputer.fit(np.array(rows, dtype=object))


def test_marker_matches_entries_of_its_own_type_only():
    frame = pd.DataFrame(
        {
            "yes": [False, True] * 5,
            "text": ["0", "1"] * 5,
            "label": pd.Categorical([0, 1, 2, 1, 2] * 2),
            "x": [0.0, 1.0, 2.0, 3.0, 4.0] * 2,
        }
    )
    imputer = TableImputer(**QUICK, missing_values=0).fit(frame)
    assert [c.had_missing for c in imputer.columns_] == [False, False, True, True]
    assert imputer.columns_[2].encoder.labels == (1, 2)
    imputer = TableImputer(**QUICK, missing_values="0").fit(frame)
    assert [c.had_missing for c in imputer.columns_] == [False, True, False, False]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_markers_get_the_dtype_of_the_fit(library):
    frame = pd.DataFrame({"a": [1, 2, 3, 4] * 3, "b": [2.0, 4.0, 6.0, 8.0] * 3})
    text = pd.DataFrame({"a": ["?"] * 12, "b": frame["b"]})
    if library == "polars":
        frame, text = pl.from_pandas(frame), pl.from_pandas(text)
    imputer = TableImputer(**QUICK, missing_values="?").fit(frame)
    out = imputer.transform(text)
    assert out["a"].dtype == frame["a"].dtype
    assert set(out["a"].to_list()) <= {1, 2, 3, 4}


@pytest.mark.filterwarnings("ignore:no observed value", "ignore:Skipping features")
@pytest.mark.parametrize("marker", [np.nan, -1])
def test_empty_columns_and_indicators_match_scikit_learn(marker):
    X = np.array([[marker, 1.0, 2.0], [marker, marker, 4.0], [marker, 3.0, 5.0]])
    options = {"missing_values": marker, "add_indicator": True}
    for keep in (True, False):
        ours = TableImputer(**QUICK, **options, keep_empty_features=keep).fit(X)
        theirs = SimpleImputer(**options, keep_empty_features=keep).fit(X)
        found, expected = ours.transform(X), theirs.transform(X)
        assert found.shape == expected.shape == (3, 5 if keep else 4)
        assert_array_equal(found[:, -2:], expected[:, -2:])
        names = list(ours.get_feature_names_out())
        assert names == list(theirs.get_feature_names_out())
        assert_array_equal(ours.indicator_.features_, theirs.indicator_.features_)
        if keep:  # unchanged; scikit-learn imputes 0
            assert_array_equal(found[:, 0], X[:, 0])
    assert TableImputer(**QUICK, missing_values=marker).fit(X).indicator_ is None

"""Tests of ``missing_values``, ``add_indicator`` and ``keep_empty_features``."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.impute import MissingIndicator

import ncarl
from ncarl import BayesianNCARL, open_rows

NAN = np.nan
FEW = {"max_iter": 3, "tol": 0, "validation": 0, "sides": "columns"}
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(name="X", scope="module")
def small_integers():
    """Small whole numbers that every container can hold; column 2 is empty."""
    rng = np.random.default_rng(0)
    X = rng.integers(1, 6, (20, 4)).astype(float)
    X[rng.random(X.shape) < 0.3] = NAN
    X[:, 2] = NAN
    X[:, 3] = np.arange(20) % 5 + 1
    return X


def fill(X, number=-1.0):
    return np.where(np.isnan(X), number, X)


def to_coo(X, number=-1.0):
    """Sparse array with missing entries stored in the first two columns only."""
    rows, columns = np.nonzero(~np.isnan(X) | (np.arange(4) < 2))
    return sparse.coo_array((fill(X, number)[rows, columns], (rows, columns)))


def fit(X, **options):
    return BayesianNCARL(**FEW, **options).fit(X)


CONTAINERS = {
    "int": lambda X: fill(X).astype(np.int64),
    "float32": lambda X: fill(X).astype(np.float32),
    "objects": lambda X: fill(X).astype(object),
    "list": lambda X: fill(X).tolist(),
    "NaN too": lambda X: np.where(np.arange(4) == 0, X, fill(X)),
    "masked": lambda X: np.ma.masked_array(fill(X), np.isnan(X) * [1, 0, 0, 0]),
    "pandas": lambda X: pd.DataFrame(fill(X).astype(int), columns=NAMES),
    "nullable": lambda X: pd.DataFrame(fill(X), columns=NAMES).astype("Int16"),
    "null too": lambda X: pd.DataFrame(
        np.where(np.arange(4) == 0, X, fill(X)), columns=NAMES
    ).astype("Int16"),
    "polars": lambda X: pl.DataFrame(fill(X).astype(int), schema=NAMES),
    "coo": to_coo,
    "csr": lambda X: to_coo(X).tocsr(),
}
SOURCES = {
    "blocks": lambda X: [fill(X[:7]), fill(X[7:])],
    "frames": lambda X: [pd.DataFrame(fill(part)) for part in (X[:7], X[7:])],
    "sparse blocks": lambda X: [to_coo(X).tocsr()],
    "source": lambda X: open_rows(fill(X), rows_per_chunk=6),
    "delayed": lambda X: [dask.delayed(fill)(X[:9]), dask.delayed(fill)(X[9:])],
    "dask array": lambda X: da.from_array(fill(X), chunks=(7, 2)),
}


@pytest.fixture(autouse=True)
def synchronous_dask():
    with dask.config.set(scheduler="synchronous"):
        yield


class TestMissingValues:
    @pytest.mark.parametrize("name", CONTAINERS)
    def test_number_is_equivalent_to_nan(self, name, X):
        given = CONTAINERS[name](X)
        model, expected = fit(given, missing_values=-1), fit(X)
        assert_array_equal(model.kernel_, expected.kernel_)
        kind = np.float32 if name == "float32" else np.float64
        filled = np.asarray(model.transform(given), dtype=kind)
        assert_array_equal(filled, expected.transform(X).astype(kind))
        assert_array_equal(model.unidentified_columns_, [2])

    @pytest.mark.parametrize("name", SOURCES)
    def test_in_sources_of_rows(self, name, X):
        given = SOURCES[name](X)
        model = fit(given, missing_values=-1, engine="threads")
        expected = fit([X[:7], X[7:]])
        assert_array_equal(model.kernel_, expected.kernel_)
        filled = model.transform(given)
        assert isinstance(filled, da.Array) == isinstance(given, da.Array)
        np.testing.assert_allclose(filled, expected.transform(X), rtol=1e-12)

    def test_in_streamed_sources(self, X, monkeypatch):
        monkeypatch.setattr("ncarl.bayes.selection.MAX_ENTRIES_IN_MEMORY", 0)
        model = fit(SOURCES["blocks"](X), missing_values=-1)
        expected = fit([X[:7], X[7:]])
        assert_array_equal(model.kernel_, expected.kernel_)

    def test_pickled_loaders_contain_only_their_rows(self, X):
        source = ncarl.estimators.validation.mark_missing(SOURCES["source"](X), -1)
        loaded = [load() for load in source.chunk_loaders()]
        assert [chunk.n_observed for chunk in loaded] == [
            chunk.n_observed for chunk in source
        ]
        assert sum(chunk.n_observed for chunk in loaded) == np.sum(~np.isnan(X))

    def test_in_all_methods(self, X):
        model, expected = fit(fill(X), missing_values=-1), fit(X)
        other, marks = X[:8], fill(X[:8])
        assert_array_equal(model.predict(marks), expected.predict(other))
        for a, b in zip(
            model.predict_interval(marks), expected.predict_interval(other), strict=True
        ):
            assert_array_equal(a, b)
        i, j = [0, 5], [1, 2]
        assert_array_equal(
            model.predict(i, j, X=marks), expected.predict(i, j, X=other)
        )
        assert_array_equal(
            model.predict_interval(i, j, X=marks),
            expected.predict_interval(i, j, X=other),
        )
        assert_array_equal(model.sample(2, X=marks), expected.sample(2, X=other))
        assert_array_equal(model.sample(), expected.sample())
        truth = np.where(np.isnan(X), 3.0, X)
        truth[0] = NAN
        assert model.score(fill(X)) == expected.score(X)
        assert model.score(fill(X), fill(truth)) == expected.score(X, truth)

    def test_is_compared_in_the_precision_of_the_input(self, X):
        given = fill(X, 0.1).astype(np.float32)
        model = fit(given, missing_values=np.float64(0.1))
        assert_array_equal(model.kernel_, fit(X).kernel_)
        blocks = fit([given], missing_values=0.1)
        assert_array_equal(blocks.kernel_, fit([X]).kernel_)

    def test_zero_and_stored_zeros(self, X):
        expected = fit(X).kernel_
        assert_array_equal(fit(fill(X, 0), missing_values=0).kernel_, expected)
        assert_array_equal(fit(to_coo(X, 0), missing_values=0).kernel_, expected)
        # By default stored zeros are observed and entries not stored are missing.
        assert fit(to_coo(X, 0)).training_.n_observed == to_coo(X, 0).nnz

    @pytest.mark.parametrize("value", [NAN, float("nan"), None, pd.NA])
    def test_nan_none_and_na_are_the_default(self, value, X):
        model = fit(X, missing_values=value)
        assert_array_equal(model.kernel_, fit(X).kernel_)
        clone(model)

    def test_input_is_not_modified(self, X):
        for name in ("float32", "masked", "pandas", "polars", "csr"):
            given, before = CONTAINERS[name](X), CONTAINERS[name](X)
            fit(given, missing_values=-1).transform(given)
            if name == "csr":
                given, before = given.toarray(), before.toarray()
            assert_array_equal(np.asarray(given), np.asarray(before))

    @pytest.mark.parametrize(
        "bad",
        [
            [[1.0, 2.0], [3.0]],
            np.array([["a", "b"], ["c", "d"]]),
            np.ones(3),
            np.ones((2, 2), complex),
            sparse.coo_array(np.ones(3)),
            pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
            pl.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
            None,
        ],
        ids=str,
    )
    def test_invalid_input_raises_as_by_default(self, bad):
        with pytest.raises((ValueError, TypeError)) as plain:
            fit(bad)
        with pytest.raises(type(plain.value)) as error:
            fit(bad, missing_values=-1)
        assert str(error.value) == str(plain.value)


class TestAddIndicator:
    @pytest.fixture
    def columns(self, X):
        """The indicator columns of scikit-learn."""
        return MissingIndicator(error_on_new=False).fit_transform(X).astype(float)

    def test_columns_are_appended(self, X, columns):
        plain, model = fit(X), fit(X, add_indicator=True)
        assert plain.indicator_ is None
        assert_array_equal(model.indicator_.features_, [0, 1, 2])
        assert_array_equal(model.transform(X), np.hstack([plain.transform(X), columns]))
        assert_array_equal(model.predict(X), plain.predict(X))

    def test_only_columns_with_missing_training_entries_count(self, X):
        full = np.where(np.isnan(X), 3.0, X)
        model = fit(np.where(np.arange(4) == 1, X, full), add_indicator=True)
        assert_array_equal(model.transform(X)[:, 4], np.isnan(X[:, 1]))
        assert model.transform(full).shape == (20, 5)
        assert fit(full, add_indicator=True).transform(X).shape == (20, 4)

    @pytest.mark.parametrize("name", CONTAINERS)
    def test_in_every_container(self, name, X, columns):
        given = CONTAINERS[name](X)
        model = fit(given, missing_values=-1, add_indicator=True)
        result = model.transform(given)
        assert_array_equal(np.asarray(result, dtype=float)[:, 4:], columns)
        names = [*NAMES, *(f"missingindicator_{name}" for name in NAMES[:3])]
        if name in ("pandas", "nullable", "null too", "polars"):
            assert type(result) is type(given)
            assert list(result.columns) == names
            assert_array_equal(model.get_feature_names_out(), names)
        else:
            assert_array_equal(model.get_feature_names_out(NAMES), names)
            assert isinstance(result, np.ma.MaskedArray) == (name == "masked")
        if name == "float32":
            assert result.dtype == np.float32

    @pytest.mark.parametrize("name", SOURCES)
    def test_in_sources_of_rows(self, name, X, columns):
        given, options = SOURCES[name](X), {"add_indicator": True, "missing_values": -1}
        model, plain = (
            fit(part, **options, keep_empty_features=False, engine="threads")
            for part in (given, fill(X))
        )
        result, std = dask.compute(*model.transform(given, return_std=True))
        expected, expected_std = plain.transform(fill(X), return_std=True)
        np.testing.assert_allclose(result, expected, rtol=1e-12)
        np.testing.assert_allclose(std, expected_std, rtol=1e-12)
        assert_array_equal(result[:, 3:], columns)
        assert model.predict(given).shape == X.shape

    @pytest.mark.parametrize("options", [{}, {"sides": "both"}])
    def test_in_files(self, options, X, tmp_path):
        frame = pd.DataFrame(X, columns=NAMES)
        given = {**FEW, **options, "add_indicator": True, "keep_empty_features": False}
        model = BayesianNCARL(**given).fit(frame)
        out, out_std = tmp_path / "x.csv", tmp_path / "std.csv"
        expected, std = model.transform(frame, return_std=True)
        model.transform(frame, return_std=True, out=out, out_std=out_std)
        written = pd.read_csv(out).astype(float)
        pd.testing.assert_frame_equal(written, expected)
        np.testing.assert_allclose(pd.read_csv(out_std), std)
        model.transform(frame, out=tmp_path / "x.npy")
        np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected)

    @pytest.mark.parametrize("container", ["pandas", "polars"])
    def test_with_set_output(self, container, X):
        frame = pd.DataFrame(X, columns=NAMES)
        model = fit(frame, add_indicator=True, keep_empty_features=False)
        expected = model.transform(frame)
        result = model.set_output(transform=container).transform(frame)
        assert list(result.columns) == list(expected.columns)
        assert_array_equal(np.asarray(result), np.asarray(expected))

    def test_setting_it_after_the_fit_raises(self, X):
        model = fit(X).set_params(add_indicator=True)
        with pytest.raises(ValueError, match=r"add_indicator.*fit again"):
            model.transform(X)


class TestKeepEmptyFeatures:
    def test_empty_training_columns_are_dropped(self, X):
        kept, dropped = fit(X), fit(X, keep_empty_features=False)
        new = np.where(np.isnan(X), 2.0, X)[:5]
        for given in (X, new):
            expected = kept.transform(given)[:, [0, 1, 3]]
            assert_array_equal(dropped.transform(given), expected)
        assert_array_equal(dropped.get_feature_names_out(), ["x0", "x1", "x3"])
        assert_array_equal(dropped.get_feature_names_out(NAMES), ["a", "b", "d"])
        assert dropped.predict(X).shape == dropped.sample()[0].shape == X.shape


@pytest.mark.parametrize("missing_values", [-1, np.float32(-1.0), NAN, None, pd.NA])
def test_parameters_are_saved(missing_values, X, tmp_path):
    number = isinstance(missing_values, int | np.floating) and missing_values == -1
    given = fill(X) if number else X
    options = {"add_indicator": True, "keep_empty_features": False}
    model = fit(given, missing_values=missing_values, **options)
    model.save(tmp_path / "model")
    loaded = ncarl.load(tmp_path / "model")
    assert loaded.add_indicator
    assert not loaded.keep_empty_features
    if number:
        assert loaded.missing_values == -1
    else:
        assert loaded.missing_values is None or np.isnan(loaded.missing_values)
    assert_array_equal(loaded.transform(given), model.transform(given))
    assert_array_equal(loaded.get_feature_names_out(), model.get_feature_names_out())
    assert_array_equal(loaded.indicator_.features_, model.indicator_.features_)
    again = fit(X)
    again.save(tmp_path / "plain")
    assert ncarl.load(tmp_path / "plain").indicator_ is None


@pytest.mark.parametrize(
    ("value", "error"),
    [(np.inf, ValueError), (-np.inf, ValueError), ("?", TypeError), (True, TypeError)],
)
def test_invalid_missing_values_raise(X, value, error):
    with pytest.raises(error, match=r"missing_values must be a finite number.*got"):
        BayesianNCARL(**FEW, missing_values=value).fit(X)

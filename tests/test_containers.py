"""Tests of containers: equal results, returned type, unmodified input."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import ncarl
from ncarl import NCARL, BayesianNCARL, WideNCARL, from_triplets
from ncarl.evaluation import evaluate
from ncarl.observations import Observations

FEW = {"max_iter": 4, "tol": 0, "alpha": 1.0, "n_neighbors": 4}
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")
NAMES = list("abcdefghi")


def to_csr(X):
    """CSR array that stores the observed entries of X, zeros included."""
    rows, cols = np.nonzero(~np.isnan(X))
    return sparse.csr_array((X[rows, cols], (rows, cols)), shape=X.shape)


def as_format(X, name, matrix):
    if name == "dia":  # diagonals store all of their entries, NaN where missing
        found = sparse.dia_array(np.where(np.isnan(X), 1.0, X))
        rows, cols = np.nonzero(np.isnan(X))
        for i, j in zip(rows, cols, strict=True):
            found.data[list(found.offsets).index(j - i), j] = np.nan
    elif name == "bsr":  # 1 x 1 blocks: larger ones would store zeros
        found = to_csr(X).tobsr(blocksize=(1, 1))
    else:
        found = to_csr(X).asformat(name)
    return getattr(sparse, f"{name}_matrix")(found) if matrix else found


@pytest.fixture(name="reference")
def dense_result(X):
    return NCARL(**FEW).fit(X).transform(X)


@pytest.mark.parametrize("matrix", [False, True], ids=["array", "matrix"])
@pytest.mark.parametrize("name", FORMATS)
def test_sparse_format_with_stored_zeros_gives_the_dense_result(X, name, matrix):
    X = X.copy()
    X[0, 0] = X[5, 2] = X[7, 7] = 0.0
    given = as_format(X, name, matrix)
    assert given.format == name
    before = given.copy()
    estimator = NCARL(**FEW).fit(given)
    out = estimator.transform(given)
    assert type(out) is np.ndarray
    assert estimator.training_.n_observed == (~np.isnan(X)).sum()
    assert_array_equal(out, NCARL(**FEW).fit_transform(X))
    assert_array_equal(out[~np.isnan(X)], X[~np.isnan(X)])
    if name in ("dok", "lil"):
        assert (given != before).nnz == 0
    else:
        assert_array_equal(given.data, before.data)


@pytest.mark.parametrize("name", ["csr", "csc", "coo"])
def test_duplicate_entry_raises(X, name):
    whole = to_csr(X)
    if name == "coo":
        coo = whole.tocoo()
        rows, cols = np.append(coo.row, coo.row[3]), np.append(coo.col, coo.col[3])
        twice = sparse.coo_array((np.append(coo.data, 9.0), (rows, cols)), X.shape)
    else:
        twice = whole.asformat(name)
        twice.indices[1] = twice.indices[0]
    with pytest.raises(ValueError, match=r"X stores 1 entries twice.*sum_duplicates"):
        NCARL(**FEW).fit(twice)
    assert twice.nnz == whole.nnz + (name == "coo")


def test_sparse_input_may_be_modified_after_fit(X):
    given = to_csr(X)
    estimator = NCARL(**FEW).fit(given)
    before = estimator.predict([0, 1], [2, 3])
    given.data[:] = 7.0
    assert_array_equal(estimator.predict([0, 1], [2, 3]), before)


def test_masked_array_gives_the_dense_result(X, reference):
    given = np.ma.MaskedArray(np.nan_to_num(X, nan=99.0), mask=np.isnan(X))
    out = NCARL(**FEW).fit(given).transform(given)
    assert isinstance(out, np.ma.MaskedArray)
    assert not np.ma.is_masked(out)
    assert_array_equal(np.asarray(out), reference)
    assert given.mask.sum() == np.isnan(X).sum()
    assert given.data[np.isnan(X)].min() == 99.0


def memory_mapped(X, folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.parametrize(
    "make",
    [
        memory_mapped,
        lambda X, _: np.asfortranarray(X),
        lambda X, _: X.tolist(),
        lambda X, _: np.repeat(X, 2, axis=1)[:, ::2],
        lambda X, _: np.where(np.isnan(X), None, X.astype(object)),
        lambda X, _: np.ma.MaskedArray(np.nan_to_num(X, nan=np.inf), mask=np.isnan(X)),
    ],
    ids=["mapped", "Fortran order", "list", "strided", "objects", "masked infinity"],
)
def test_other_array_types_give_the_dense_result(X, reference, tmp_path, make):
    filled = NCARL(**FEW).fit_transform(make(X, tmp_path))
    assert_array_equal(np.asarray(filled), reference)


def test_integers_are_complete_and_returned_as_floats():
    given = np.arange(12).reshape(4, 3)
    out = NCARL(**FEW).fit_transform(given)
    assert out.dtype == np.float64
    assert_array_equal(out, given)


@pytest.mark.parametrize("sparse_too", [False, True])
def test_float32_is_returned_as_float32(X, sparse_too):
    small = X.astype(np.float32)
    given = to_csr(small) if sparse_too else small
    before = small.copy()
    out = NCARL(**FEW).fit_transform(given)
    assert out.dtype == np.float32
    seen = ~np.isnan(small)
    assert_array_equal(out[seen], small[seen])
    assert_array_equal(small, before)
    # Computed in float64 and rounded at the end.
    assert_array_equal(
        out, NCARL(**FEW).fit_transform(small.astype(float)).astype(np.float32)
    )


def test_from_triplets_gives_the_dense_result(X, reference, rng):
    rows, cols = np.nonzero(~np.isnan(X))
    order = rng.permutation(len(rows))
    given = from_triplets(rows[order], cols[order], X[rows, cols][order], X.shape)
    assert_array_equal(NCARL(**FEW).fit_transform(given), reference)
    assert from_triplets([0], [4], [0.0]).shape == (1, 5)


@pytest.mark.parametrize("keep", [True, False])
def test_input_is_never_modified(X, keep):
    before = X.copy()
    estimator = NCARL(**FEW, gamma=0.1, center="two-way", scale="columns")
    out = estimator.fit(X).transform(X, keep_observed=keep)
    estimator.predict(X)
    estimator.score(X)
    assert not np.shares_memory(out, X)
    assert_array_equal(X, before)
    X.setflags(write=False)
    assert_array_equal(estimator.fit(X).transform(X, keep_observed=keep), out)


class TestPandas:
    def test_labels_are_kept_and_values_equal(self, X, reference):
        index = pd.Index([f"row {i}" for i in range(24)], name="who")
        given = pd.DataFrame(X, index=index, columns=pd.Index(NAMES, name="what"))
        before = given.copy()
        out = NCARL(**FEW).fit(given).transform(given)
        pd.testing.assert_frame_equal(
            out, pd.DataFrame(reference, index=index, columns=given.columns)
        )
        pd.testing.assert_frame_equal(given, before)

    def test_numeric_and_duplicate_labels_are_supported(self, X, reference):
        given = pd.DataFrame(X, columns=range(9), index=[0] * 24)
        out = NCARL(**FEW).fit_transform(given)
        assert list(out.columns) == list(range(9))
        assert_array_equal(out.to_numpy(), reference)

    def test_integer_columns_change_only_if_incomplete(self, X):
        given = pd.DataFrame(X, columns=NAMES)
        given["a"] = np.arange(24)
        given["b"] = pd.array([None, *range(23)], dtype="Int64")
        given["c"] = pd.array(range(24), dtype="Int64")
        given["d"] = np.arange(24, dtype=np.int8)
        given["e"] = np.arange(24) % 2 == 0
        out = NCARL(**FEW).fit_transform(given)
        assert out.dtypes["a"] == np.int64
        assert out.dtypes["b"] == "Float64"
        assert out.dtypes["c"] == "Int64"
        assert out.dtypes["d"] == np.int8
        assert out.dtypes["e"] == np.bool_
        for name in "acde":
            pd.testing.assert_series_equal(out[name], given[name])
        assert list(out["b"][1:]) == list(range(23))
        assert np.isfinite(out.to_numpy(dtype=float)).all()
        dense = given.to_numpy(dtype=float, na_value=np.nan)
        assert_array_equal(out.to_numpy(dtype=float), NCARL(**FEW).fit_transform(dense))

    @pytest.mark.parametrize(
        "kind", ["Float64", "Float32", "float32", "double[pyarrow]"]
    )
    def test_float_columns_keep_their_type(self, X, kind):
        given = pd.DataFrame(X, columns=NAMES).astype({"b": kind})
        out = NCARL(**FEW).fit_transform(given)
        assert out.dtypes["b"] == given.dtypes["b"]
        assert not out["b"].isna().any()
        seen = given["b"].notna()
        assert list(out["b"][seen]) == list(given["b"][seen])
        dense = given.to_numpy(dtype=float, na_value=np.nan)
        assert_allclose(
            out.to_numpy(dtype=float), NCARL(**FEW).fit_transform(dense), rtol=1e-7
        )

    @pytest.mark.parametrize("fill_value", [np.nan, 0.0])
    def test_filled_sparse_columns_are_dense(self, X, reference, fill_value):
        given = pd.DataFrame(X, columns=NAMES)
        given = given.astype(pd.SparseDtype(float, fill_value))
        estimator = NCARL(**FEW).fit(given)
        out = estimator.transform(given)
        assert (out.dtypes == np.float64).all()
        assert_array_equal(out.to_numpy(), reference)
        counts = pd.arrays.SparseArray(np.arange(24) % 3)
        small = given.assign(a=counts, b=given["b"].astype("Sparse[float32]"))
        out = estimator.fit_transform(small)
        assert out.dtypes["a"] == counts.dtype and out.dtypes["b"] == np.float32
        smoothed = estimator.transform(small, keep_observed=False)
        assert_array_equal(smoothed["a"], estimator.predict(small)[:, 0])

    def test_smoothed_values_replace_every_column(self, X):
        given = pd.DataFrame(X, columns=NAMES)
        given["a"] = np.arange(24)
        estimator = NCARL(**FEW, gamma=1.0).fit(given)
        out = estimator.transform(given, keep_observed=False)
        assert out.dtypes["a"] == np.float64
        assert_array_equal(out.to_numpy(), estimator.predict(given))


class TestPolars:
    def test_values_and_names_equal(self, X, reference):
        given = pl.DataFrame(X, schema=NAMES).fill_nan(None)
        before = given.clone()
        out = NCARL(**FEW).fit(given).transform(given)
        assert isinstance(out, pl.DataFrame)
        assert out.columns == NAMES
        assert_array_equal(out.to_numpy(), reference)
        assert given.equals(before)

    def test_dtypes_change_only_if_needed(self, X):
        given = pl.DataFrame(X, schema=NAMES).with_columns(
            pl.Series("a", range(24), dtype=pl.Int16),
            pl.Series("b", [None, *range(23)], dtype=pl.Int64),
            pl.Series("c", X[:, 2], dtype=pl.Float32),
            pl.Series("d", [None, *[True] * 23]),
        )
        out = NCARL(**FEW).fit_transform(given)
        assert out.dtypes[:4] == [pl.Int16, pl.Float64, pl.Float32, pl.Float64]
        assert out["a"].equals(given["a"])
        assert out["b"][1:].to_list() == list(range(23))
        assert out["d"][1:].to_list() == [1.0] * 23
        seen = ~np.isnan(X[:, 2])
        assert_array_equal(out["c"].to_numpy()[seen], X[:, 2].astype(np.float32)[seen])
        assert np.isfinite(out.to_numpy()).all()


def test_dense_result_of_sparse_input_above_the_limit_raises(X):
    given = to_csr(X)
    estimator = NCARL(**FEW).fit(given)
    with pytest.raises(ValueError, match=r"max_dense_gb=1e-06.*predict\(rows, cols\)"):
        estimator.transform(given, max_dense_gb=1e-6)
    size = 24 * 9 * 8 / 1e9
    assert estimator.transform(given, max_dense_gb=size).shape == (24, 9)
    # The limit is checked before any allocation.
    huge = sparse.csr_array((10**9, 9))
    with pytest.raises(ValueError, match="takes 72 GB"):
        estimator.transform(huge)


def invalid_csr():
    """CSR array of shape (9, 9) with a pointer far behind its entries."""
    S = sparse.csr_array(np.eye(9) + np.eye(9, k=2))
    S.indptr[5] = 10**6
    return S


def as_chunk(csr):
    """Observations with the arrays of a CSR array."""
    return Observations(csr.indptr, csr.indices, csr.data, csr.shape)


class InvalidSource:
    """A source of rows as users can write one, with a column that does not exist."""

    n_columns, n_rows, names, dtype = 9, 1, None, np.dtype(np.float64)

    def __iter__(self):
        indptr, columns = np.array([0, 2]), np.array([0, 10**8], dtype=np.int32)
        yield Observations(indptr, columns, np.ones(2), (1, 9))

    def chunk_loaders(self):
        return None


class OtherWidth(InvalidSource):
    def __iter__(self):
        yield Observations.from_dense(np.ones((1, 8)))


@pytest.mark.parametrize(
    "call",
    [
        lambda model, bad: NCARL().fit(bad),
        lambda model, bad: BayesianNCARL(missing_values=-1).fit(bad),
        lambda model, bad: NCARL().fit([bad, bad]),
        lambda model, bad: model.transform(bad),
        lambda model, bad: model.predict([0], [1], X=bad),
        lambda model, bad: model.score(bad),
        lambda model, bad: model.score(np.full((9, 9), np.nan), bad),
        lambda model, bad: model.score([np.ones((9, 9))], bad),
        lambda model, bad: NCARL(graph=bad).fit(np.eye(9)),
        lambda model, bad: WideNCARL(graph=bad).fit(np.eye(9)),
        lambda model, bad: BayesianNCARL(prior=bad).fit(np.eye(9)),
        lambda model, bad: ncarl.plots.similarity(bad),
        lambda model, bad: ncarl.plots.spectrum(bad),
        lambda model, bad: ncarl.plots.identifiability(bad),
        lambda model, bad: evaluate(as_chunk(bad)),
        lambda model, bad: NCARL().fit([as_chunk(bad)]),
        lambda model, bad: NCARL().fit(ncarl.open_rows(as_chunk(bad))),
        lambda model, bad: NCARL().fit(ncarl.open_rows(lambda: iter([as_chunk(bad)]))),
        lambda model, bad: NCARL().fit(InvalidSource()),
        lambda model, bad: model.transform(InvalidSource()),
        lambda model, bad: model.transform(OtherWidth()),
    ],
)
def test_invalid_sparse_matrices_are_refused_at_every_door(call):
    model = NCARL(**FEW).fit(np.random.default_rng(0).standard_normal((9, 9)))
    with pytest.raises(
        ValueError, match=r"is not a valid \w+: |must give Observations"
    ):
        call(model, invalid_csr())


@pytest.mark.parametrize(
    "call",
    [
        lambda bad: ncarl.masks.random(bad, 0.5),
        lambda bad: ncarl.masks.per_row(bad, 2),
        lambda bad: ncarl.plots.before_after(bad),
    ],
)
def test_matrices_in_other_places_raise(call):
    bad = sparse.csc_array(np.eye(9))  # SciPy crashes when it iterates over its rows
    bad.indptr[3] = 10**6
    with pytest.raises(TypeError, match=r"pass X\.shape|must be a list of ImagePanel"):
        call(bad)


@pytest.mark.parametrize("shape", [(10**9, 3), (3, 10**9), (20_000_000, 20_000)])
def test_shapes_of_nearly_empty_rows_or_columns_are_refused(shape):
    X = sparse.coo_array((np.ones(3), ([0, 1, 2], [0, 1, 2])), shape=shape)
    with pytest.raises(ValueError, match=rf"{shape[0]} rows .* for 3 entries; number"):
        NCARL().fit(X)


def test_large_sparse_matrices_are_refused_before_the_fit(monkeypatch):
    monkeypatch.setattr(NCARL, "fit", lambda *_: pytest.fail("it was fitted"))
    with pytest.raises(ValueError, match="takes 20 GB"):
        NCARL().fit_transform(sparse.csr_array((50_000, 50_000)))


@pytest.mark.parametrize("orientation", ["columns", "rows"])
@pytest.mark.parametrize(
    "wrap", ["array", "csr", "pandas", "Float64", "polars", "file"]
)
def test_empty_rows_and_columns_stay_missing_in_every_container(
    X, wrap, orientation, tmp_path
):
    X = X.copy()
    X[3], X[:, 5] = np.nan, np.nan
    frame = pd.DataFrame(X, columns=NAMES)
    given = {
        "csr": to_csr(X), "pandas": frame, "Float64": frame.astype("Float64"),
        "polars": pl.DataFrame(X, schema=NAMES, orient="row", nan_to_null=True),
    }.get(wrap, X)  # fmt: skip
    out = tmp_path / "out.parquet" if wrap == "file" else None
    paths = {} if out is None else {"out": out, "out_std": tmp_path / "std.parquet"}
    model = NCARL(**FEW, gamma=0.1, orientation=orientation).fit(given)
    filled, std = model.transform(given, return_std=True, fill_empty=False, **paths)
    if out is not None:
        assert pd.read_parquet(out)["5"].isna().all()
        filled, std = pl.read_parquet(filled), pl.read_parquet(std).to_numpy()
    if isinstance(filled, pl.DataFrame):
        assert filled.null_count().row(0) == (*[1] * 5, 24, *[1] * 3)
    elif isinstance(filled, pd.DataFrame):
        assert filled.isna().sum().tolist() == [*[1] * 5, 24, *[1] * 3]
    empty = np.zeros(X.shape, dtype=bool)
    empty[3] = empty[:, 5] = True
    for values in (filled, std):
        assert_array_equal(pd.isna(np.asarray(values)), empty)


def test_complete_input_is_returned_unchanged(truth):
    estimator = NCARL(**FEW).fit(truth)
    assert_array_equal(estimator.transform(truth), truth)
    assert_allclose(estimator.transform(truth, keep_observed=False), truth, rtol=1e-9)
    noisy = NCARL(**FEW, gamma=0.1).fit(truth)
    assert_array_equal(noisy.transform(truth), truth)
    assert np.abs(noisy.transform(truth, keep_observed=False) - truth).max() > 1e-6

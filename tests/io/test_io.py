"""Every format gives the same entries, whatever the chunks."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from ncarl.io import RowSource, open_rows
from ncarl.observations import Observations

NAMES = [f"c{j}" for j in range(5)]


def npy(X, folder):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def npy_by_columns(X, folder):
    np.save(folder / "X.npy", np.asfortranarray(X))
    return folder / "X.npy"


def npy_other_bytes(X, folder):
    np.save(folder / "X.npy", X.astype(">f8"))
    return folder / "X.npy"


def npz_dense(X, folder):
    np.savez(folder / "X.npz", anything=X)
    return folder / "X.npz"


def csr_stored(X, folder):
    sparse.save_npz(
        folder / "X.npz", Observations.from_dense(X).to_csr(), compressed=False
    )
    return folder / "X.npz"


def csr_packed(X, folder):
    sparse.save_npz(folder / "X.npz", Observations.from_dense(X).to_csr())
    return folder / "X.npz"


def parquet(X, folder):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns = [pa.array(column, from_pandas=True) for column in X.T.copy()]
    table = pa.Table.from_arrays(columns, NAMES[: X.shape[1]])
    pq.write_table(table, folder / "X.parquet", row_group_size=3)
    return folder / "X.parquet"


def parquet_folder(X, folder):
    parquet(X[: len(X) // 2], folder).rename(folder / "a.parquet")
    parquet(X[len(X) // 2 :], folder).rename(folder / "b.pq")
    return folder


def csv(X, folder):
    pytest.importorskip("pyarrow")
    words = iter(("NA", "", "nan", " ?", "NaN ") * X.size)
    lines = [",".join(NAMES[: X.shape[1]])]
    for row in X:
        cells = [next(words) if np.isnan(x) else repr(float(x)) for x in row]
        lines.append(",".join(cells))
    (folder / "X.csv").write_text("\n".join(lines) + "\n")
    return folder / "X.csv"


def zarr(X, folder):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(
        str(folder / "X.zarr"), shape=X.shape, chunks=(2, 2), dtype="f8"
    )
    array[:] = X
    return folder / "X.zarr"


def dask(X, folder):
    return pytest.importorskip("dask.array").from_array(X, chunks=(3, 2))


def pandas(X, folder):
    return pytest.importorskip("pandas").DataFrame(X)


def polars(X, folder):
    return pytest.importorskip("polars").DataFrame(X)


def masked(X, folder):
    return np.ma.masked_invalid(X)


def column_major_sparse(X, folder):
    return Observations.from_dense(X).to_csr().tocsc()


def blocks(X, folder):
    return [X[:1], X[1:1], X[1:]]


def mapped(X, folder):
    return np.load(npy(X, folder), mmap_mode="r")


WRITERS = [
    *(npy, npy_by_columns, npy_other_bytes, npz_dense, csr_stored, csr_packed, mapped),
    *(parquet, parquet_folder, csv, zarr, dask, pandas, polars, masked, blocks),
    column_major_sparse,
]

numbers = st.floats(allow_nan=True, allow_infinity=False, width=64)
matrices = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=numbers
)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(X=matrices, rows=st.one_of(st.none(), st.integers(1, 12)))
def test_the_chunks_of_a_reader_stack_up_to_the_matrix(write, X, rows):
    if write is parquet_folder and len(X) < 2:
        X = np.concatenate([X, X])
    with tempfile.TemporaryDirectory() as folder:
        source = open_rows(write(X, Path(folder)), rows_per_chunk=rows)
        assert isinstance(source, RowSource)
        _same_twice(source, X, rows)


def _same_twice(source, X, rows):
    wanted = np.where(np.isnan(X), np.nan, X)  # one NaN, not many
    for found in (source, source, pickle.loads(pickle.dumps(source))):
        assert _dense(found, X.shape, rows).tobytes() == wanted.tobytes()
    parts = source.chunk_loaders()
    if parts is not None:
        loaded = [pickle.loads(pickle.dumps(part))() for part in parts]
        assert [part.shape for part in loaded] == [chunk.shape for chunk in source]
        assert _dense(loaded, X.shape, rows).tobytes() == wanted.tobytes()


def _dense(chunks, shape, rows):
    """The matrix that chunks make, written down entry by entry."""
    found = []
    for chunk in chunks:
        assert 0 < chunk.shape[0] <= (rows or shape[0])
        assert chunk.shape[1] == shape[1]
        assert chunk.indptr.dtype == np.int64
        assert chunk.indices.dtype == np.int32
        assert chunk.values.dtype == np.float64
        for i in range(chunk.shape[0]):
            row = np.full(shape[1], np.nan)
            columns = chunk.row_columns(i)
            assert (np.diff(columns) > 0).all()
            row[columns] = chunk.values[chunk.indptr[i] : chunk.indptr[i + 1]]
            found.append(row)
    assert len(found) == shape[0]
    return np.array(found)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "u2", "i8", "?"])
def test_other_numbers_are_read_as_floats(dtype, tmp_path, check, rng):
    X = (rng.random((7, 3)) * 4).astype(dtype)
    check(open_rows(npy(X, tmp_path), rows_per_chunk=2), X, 2)
    check(open_rows(X, rows_per_chunk=2), X, 2)
    small = dtype in ("f2", "f4")
    assert open_rows(X).dtype == (np.float32 if small else np.float64)
    assert open_rows(npy(X, tmp_path)).dtype == (np.float32 if small else np.float64)


def test_infinite_numbers_are_refused_with_their_place(tmp_path, X):
    X[17, 2] = np.inf
    for write in (npy, npy_by_columns, csr_packed, csr_stored, blocks, pandas):
        source = open_rows(write(X, tmp_path), rows_per_chunk=5)
        with pytest.raises(ValueError, match=r"finite.* row 17, column 2"):
            list(source)


def test_a_file_that_changed_between_two_passes_is_refused(tmp_path, X):
    for write in (npy, csr_packed, csr_stored, parquet, csv):
        path = write(X, tmp_path)
        source = open_rows(path)
        parts = source.chunk_loaders()
        list(source)
        write(np.concatenate([X, X]), tmp_path)
        with pytest.raises(ValueError, match="changed since it was opened"):
            list(source)
        if parts is not None:
            with pytest.raises(ValueError, match="changed since"):
                parts[0]()
        path.unlink()
        with pytest.raises(ValueError, match="went away"):
            list(source)


def test_a_file_that_changes_during_a_pass_is_refused(tmp_path, X):
    source = open_rows(npy(X, tmp_path), rows_per_chunk=5)
    chunks = iter(source)
    next(chunks)
    npy(X + 1, tmp_path)
    with pytest.raises(ValueError, match="changed since"):
        list(chunks)


def test_a_source_is_found_from_another_folder(tmp_path, X, monkeypatch, check):
    monkeypatch.chdir(tmp_path)
    source = open_rows(npy(X, Path()))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    check(source, X)

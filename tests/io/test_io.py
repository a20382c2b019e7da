"""Tests that every format gives the same entries for any chunk size."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from ncarl.exceptions import BrokenFileError
from ncarl.io import RowSource, open_rows
from ncarl.io.base import max_entries_per_chunk, resolve_rows_per_chunk
from ncarl.io.tables import ReadOptions, read_table
from ncarl.observations import Observations

NAMES = [f"c{j}" for j in range(5)]


def read_stream(path):
    return list(open_rows(path))


def read_whole(path):
    return read_table(path, ReadOptions())


def npy(X, folder):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def npy_by_columns(X, folder):
    return npy(np.asfortranarray(X), folder)


def npy_other_bytes(X, folder):
    return npy(X.astype(">f8"), folder)


def npz_dense(X, folder):
    np.savez(folder / "X.npz", anything=X)
    return folder / "X.npz"


def csr_packed(X, folder, compressed=True):
    sparse.save_npz(folder / "X.npz", Observations.from_dense(X).to_csr(), compressed)
    return folder / "X.npz"


def csr_stored(X, folder):
    return csr_packed(X, folder, compressed=False)


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
def test_the_chunks_of_a_reader_stack_up_to_the_matrix(check, write, X, rows):
    if write is parquet_folder and len(X) < 2:
        X = np.concatenate([X, X])
    with tempfile.TemporaryDirectory() as folder:
        check(open_rows(write(X, Path(folder)), rows_per_chunk=rows), X, rows)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i8", "?"])
def test_other_dtypes_are_read_as_floats(dtype, tmp_path, check, rng):
    X = (rng.random((7, 3)) * 4).astype(dtype)
    for what in (X, npy(X, tmp_path)):
        source = open_rows(what, rows_per_chunk=2)
        check(source, X, 2)
        assert source.dtype == (np.float32 if dtype in ("f2", "f4") else np.float64)


def test_infinite_entries_raise_with_their_position(tmp_path, X):
    X[17, 2] = np.inf
    for write in (npy, npy_by_columns, csr_packed, csr_stored, blocks, pandas):
        source = open_rows(write(X, tmp_path), rows_per_chunk=5)
        with pytest.raises(ValueError, match=r"finite.* row 17, column 2"):
            list(source)


def test_file_changed_between_passes_raises(tmp_path, X):
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


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_change_with_the_time_stamp_put_back_raises(tmp_path, X, suffix):
    path = tmp_path / f"X{suffix}"
    for values in (X, X + 1.0):
        source = open_rows(path) if path.exists() else None
        stamp = path.stat().st_mtime_ns if source else 0
        if suffix == ".npy":
            np.save(path, np.nan_to_num(values))
        else:
            np.savetxt(path, np.nan_to_num(values), "%20.12f", ",")
        if source:
            os.utime(path, ns=(stamp, stamp))
    assert source.file.state[:3] == open_rows(path).file.state[:3]
    with pytest.raises(ValueError, match="changed since it was opened"):
        list(source)


@pytest.mark.parametrize("name", ["X.csv", "X.npy", "X.npz", "X.parquet", "X.zarr"])
def test_sources_that_can_be_read_once_are_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)  # to open it would wait for ever
    (tmp_path / f"link-{name}").symlink_to(name)
    for path in (tmp_path / name, tmp_path / f"link-{name}"):
        with pytest.raises(ValueError, match=r"X\..*is a FIFO.*copy its content into"):
            open_rows(path)
        if not name.endswith(".zarr"):
            with pytest.raises(ValueError, match="is a FIFO, which cannot be read"):
                read_table(path, ReadOptions())


@pytest.mark.parametrize("place", [4, -60, -9])
def test_damaged_parquet_file_is_named(tmp_path, place):
    path, rng = tmp_path / "X.parquet", np.random.default_rng(0)
    pd.DataFrame(rng.random((200, 3)), columns=list("abc")).to_parquet(path)
    data = bytearray(path.read_bytes())
    data[place : place + 40 if place > 0 else place + 5] = bytes(40 if place > 0 else 5)
    path.write_bytes(data)
    for read in (read_stream, read_whole):
        with pytest.raises(BrokenFileError, match=r"X\.parquet' cannot be read as"):
            read(path)


def test_file_changed_during_a_pass_raises(tmp_path, X):
    chunks = iter(open_rows(npy(X, tmp_path), rows_per_chunk=5))
    next(chunks)
    npy(X + 1, tmp_path)
    with pytest.raises(ValueError, match="changed since"):
        list(chunks)


def test_source_is_independent_of_the_working_folder(tmp_path, X, monkeypatch, check):
    monkeypatch.chdir(tmp_path)
    source = open_rows(npy(X, Path()))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    check(source, X)


def test_source_is_returned_unchanged(X):
    source = open_rows(X)
    assert open_rows(source) is source
    for options in ({"columns": ["a"]}, {"rows_per_chunk": 3}):
        with pytest.raises(ValueError, match="MemoryRows is open"):
            open_rows(source, **options)


def test_custom_class_with_the_source_protocol(X):
    class CustomSource:
        n_columns, n_rows, names, dtype = 4, None, None, np.dtype(float)

        def __iter__(self):
            yield Observations.from_dense(X)

        def chunk_loaders(self):
            return None

    assert isinstance(CustomSource(), RowSource)
    assert isinstance(open_rows(CustomSource()), CustomSource)


def test_list_of_lists_is_a_matrix(check):
    check(open_rows([[1.0, np.nan], [3, 4]]), np.array([[1.0, np.nan], [3.0, 4.0]]))


def test_entries_in_memory_are_split_by_number(rng):
    X = rng.standard_normal((3000, 400))
    source = open_rows(Observations.from_dense(X))
    counts = [chunk.n_observed + chunk.shape[0] for chunk in source]
    assert len(counts) == 13
    assert max(counts) <= 100_000 < counts[0] + 401
    assert sum(chunk.shape[0] for chunk in source) == 3000


@pytest.mark.parametrize(
    ("what", "options", "error", "message"),
    [
        (np.ones((2, 2)), {"rows_per_chunk": 0}, ValueError, "must be a whole number"),
        (np.ones((2, 2)), {"columns": ["a"]}, ValueError, "columns must be left out"),
        (5, {}, TypeError, r"\.parquet.*Dask.*scipy.sparse.*function"),
        (np.zeros(3), {}, TypeError, r"\.parquet.*got ndarray of 1 axes"),
        (Path("X.xlsx"), {}, ValueError, r"\.npy.*ends in '\.xlsx'"),
        (Path("X.npy"), {"columns": ["a"]}, ValueError, r"file with names.*X\.npy"),
        (Path("no.npy"), {}, FileNotFoundError, r"no\.npy"),
        (Path("no.npz"), {}, FileNotFoundError, r"no\.npz"),
        (np.empty((3, 0)), {}, ValueError, "at least one row and one column"),
        (np.empty((0, 3)), {}, ValueError, "at least one row and one column"),
        (np.zeros((2, 2), complex), {}, ValueError, "real numbers, got dtype"),
        (np.array([["a"]]), {}, ValueError, "real numbers, got dtype"),
    ],
)
def test_invalid_input_raises(what, options, error, message):
    with pytest.raises(error, match=message):
        list(open_rows(what, **options))


@pytest.mark.parametrize("name", ["X.npy", "X.npz", "X.parquet", "X.csv.gz"])
def test_file_with_other_content_raises(name, tmp_path):
    if not name.startswith("X.np"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(b"no such thing as this" * 9)
    with pytest.raises(BrokenFileError, match=name):
        open_rows(tmp_path / name)


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("pyarrow", "X.csv", "cli"), ("zarr", "X.zarr", "zarr")],
)
def test_missing_library_error_names_the_extra(
    module, name, extra, tmp_path, monkeypatch
):
    (tmp_path / name).write_text("a,b\n1,2\n")
    for known in [known for known in sys.modules if known.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module}.*ncarl\[{extra}\]"):
        list(open_rows(tmp_path / name))


def test_default_chunk_size():
    for n in (1, 30, 500, 1000, 3000, 100_000, 10**8):
        rows = resolve_rows_per_chunk(None, n)
        assert rows == 1 or 1e6 - n <= rows * n <= 3.2e7
        assert 100_000 <= max_entries_per_chunk(n) <= 4_000_000
    # Half the size of a kernel for dense data, a twentieth for sparse entries.
    assert resolve_rows_per_chunk(None, 4000) == 2000
    assert max_entries_per_chunk(4000) == 800_000


def test_duplicate_entries_raise():
    twice = sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2))
    with pytest.raises(ValueError, match="twice"):
        open_rows(twice)

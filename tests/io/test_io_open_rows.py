"""What `open_rows` accepts, and its errors for anything else."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import sparse

from ncarl.exceptions import BrokenFileError
from ncarl.io import RowSource, open_rows
from ncarl.io.base import max_entries_per_chunk, resolve_rows_per_chunk
from ncarl.observations import Observations


def test_a_source_is_given_back_as_it_is(X):
    source = open_rows(X)
    assert open_rows(source) is source
    for options in ({"columns": ["a"]}, {"rows_per_chunk": 3}):
        with pytest.raises(ValueError, match="MemoryRows is open"):
            open_rows(source, **options)


def test_anything_that_has_the_parts_of_a_source_is_one(X):
    class Mine:
        n_columns, n_rows, names, dtype = 4, None, None, np.dtype(float)

        def __iter__(self):
            yield Observations.from_dense(X)

        def chunk_loaders(self):
            return None

    assert isinstance(Mine(), RowSource)
    assert isinstance(open_rows(Mine()), Mine)


def test_a_list_of_lists_is_a_matrix(check):
    check(open_rows([[1.0, np.nan], [3, 4]]), np.array([[1.0, np.nan], [3.0, 4.0]]))


def test_entries_in_memory_are_cut_by_their_number(rng):
    X = rng.standard_normal((3000, 400))
    source = open_rows(Observations.from_dense(X))
    counts = [chunk.n_observed + chunk.shape[0] for chunk in source]
    assert len(counts) == 13
    assert max(counts) <= 100_000 < counts[0] + 401
    assert sum(chunk.shape[0] for chunk in source) == 3000


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, "5"])
def test_rows_per_chunk_must_be_a_whole_number(rows, X):
    with pytest.raises(
        (TypeError, ValueError), match="rows_per_chunk must be a whole number"
    ):
        open_rows(X, rows_per_chunk=rows)


@pytest.mark.parametrize("what", [5, None, object(), np.zeros(3), np.zeros((2, 2, 2))])
def test_the_error_about_unknown_things_lists_what_is_possible(what):
    with pytest.raises(TypeError, match=r"\.parquet.*Dask.*scipy.sparse.*function"):
        open_rows(what)


def test_an_unknown_ending_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(ValueError, match=r"\.npy.*ends in '\.xlsx'"):
        open_rows(tmp_path / "X.xlsx")


@pytest.mark.parametrize("name", ["X.npy", "X.npz", "X.parquet", "X.csv", "X.zarr"])
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    if name == "X.zarr":
        pytest.importorskip("zarr")
    with pytest.raises(FileNotFoundError, match=name):
        open_rows(tmp_path / name)


@pytest.mark.parametrize("name", ["X.npy", "X.npz", "X.parquet", "X.csv.gz"])
def test_a_file_of_something_else_is_called_broken(name, tmp_path):
    if not name.startswith("X.np"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(b"no such thing as this" * 9)
    with pytest.raises(BrokenFileError, match=name):
        open_rows(tmp_path / name)


def test_columns_need_names(tmp_path, X):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match=r"columns needs a file with names.*X\.npy"):
        open_rows(tmp_path / "X.npy", columns=["a"])
    with pytest.raises(ValueError, match="columns must be left out"):
        open_rows(X, columns=["a"])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_a_matrix_without_rows_or_columns_is_refused(shape, tmp_path):
    np.save(tmp_path / "X.npy", np.empty(shape))
    for what in (np.empty(shape), tmp_path / "X.npy"):
        with pytest.raises(ValueError, match="at least one row and one column"):
            open_rows(what)


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("pyarrow", "X.csv", "cli"), ("zarr", "X.zarr", "zarr")],
)
def test_a_missing_library_is_named_with_the_extra_that_brings_it(
    module, name, extra, tmp_path, monkeypatch
):
    (tmp_path / name).write_text("a,b\n1,2\n")
    for known in [known for known in sys.modules if known.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module}.*ncarl\[{extra}\]"):
        list(open_rows(tmp_path / name))


def test_complex_numbers_and_words_are_refused(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((2, 2), complex))
    for what in (np.zeros((2, 2), complex), np.array([["a"]]), tmp_path / "X.npy"):
        with pytest.raises(ValueError, match="real numbers, got dtype"):
            list(open_rows(what))


def test_usual_chunks_are_neither_small_nor_large():
    for n in (1, 30, 500, 1000, 3000, 100_000, 10**8):
        rows = resolve_rows_per_chunk(None, n)
        assert rows == 1 or 1e6 - n <= rows * n <= 3.2e7
        assert 100_000 <= max_entries_per_chunk(n) <= 4_000_000
    # As many numbers as half a kernel, as many entries as a twentieth of it.
    assert resolve_rows_per_chunk(None, 4000) == 2000
    assert max_entries_per_chunk(4000) == 800_000


def test_entries_stored_twice_are_refused():
    twice = sparse.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2))
    with pytest.raises(ValueError, match="twice"):
        open_rows(twice)

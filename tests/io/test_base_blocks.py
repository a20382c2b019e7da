"""Tests of blocks of rows from lists, objects and functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ncarl.io import map_rows, open_rows
from ncarl.observations import Observations

ROW = np.ones((1, 4))


class Blocks:
    """Iterable of blocks."""

    def __init__(self, *blocks):
        self.blocks = blocks

    def __iter__(self):
        return iter(self.blocks)


def test_blocks_of_all_types_form_one_matrix(X, check):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    blocks = [
        X[:5],
        Observations.from_dense(X[5:9]).to_csr().tocoo(),
        np.ma.masked_invalid(X[9:12]),
        pd.DataFrame(X[12:15]),
        pl.DataFrame(X[15:20]),
        Observations.from_dense(X[20:]),
    ]
    for what in (blocks, tuple(blocks), Blocks(*blocks), lambda: iter(blocks)):
        for rows in (None, 1, 2, 100):
            check(open_rows(what, rows_per_chunk=rows), X, rows)
    assert open_rows(blocks).n_rows == 23
    assert open_rows(lambda: blocks).n_rows is None
    assert len(open_rows(blocks).chunk_loaders()) == 6


def test_blocks_are_requested_one_at_a_time(X):
    given = []

    def blocks():
        for k in range(5):
            given.append(k)
            yield X[k : k + 1]

    chunks = iter(open_rows(blocks))
    given.clear()
    next(chunks)
    assert given == [0]


def test_generator_raises(X):
    with pytest.raises(TypeError, match=r"generator gives them once.*the function"):
        open_rows(block for block in [X])


def test_function_returning_the_same_iterator_raises(X):
    spent = iter([X, X])
    with pytest.raises(TypeError, match="must give its blocks in every pass"):
        open_rows(lambda: spent)
    left = [iter([X]), iter([X]), iter([X]), iter([])]
    source = open_rows(lambda: left.pop(0))
    list(source)
    with pytest.raises(ValueError, match="yielded no block"):
        list(source)


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        (lambda: 5, TypeError, r"must return an iterator.*got int"),
        ([], ValueError, "at least one block"),
        (lambda: [], ValueError, "at least one block"),
        ([ROW, ROW, ROW[:, :3]], ValueError, "block 2 of X has 3 columns, block 0 has"),
        (lambda: [ROW, ROW[0]], TypeError, r"block 1: .*got an array of 1 axes"),
        ({"a": ROW}, TypeError, r"2-D array.*got str"),
    ],
)
def test_invalid_blocks_raise(what, error, message):
    with pytest.raises(error, match=message):
        list(open_rows(what))


def test_frames_must_agree_on_their_names(X):
    pd = pytest.importorskip("pandas")
    one, other = pd.DataFrame(X, columns=list("abcd")), pd.DataFrame(X)
    assert open_rows([one, X]).names == tuple("abcd")
    assert sum(chunk.shape[0] for chunk in open_rows([one, X])) == 46
    with pytest.raises(ValueError, match="block 1 of X has other column names"):
        list(open_rows([one, one[list("badc")]]))
    with pytest.raises(ValueError, match="block 1 of X has other column names"):
        list(open_rows([one, other]))


def test_error_names_a_text_column(X):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0], "t": ["x"]})
    with pytest.raises(ValueError, match="'t'"):
        list(open_rows(frame))


def test_dtype_is_that_of_the_first_block(X):
    assert open_rows([X.astype(np.float32), X]).dtype == np.float32
    assert open_rows([X, X.astype(np.float32)]).dtype == np.float64
    small = sparse.csr_array(np.eye(2, dtype=np.float32))
    assert open_rows(small).dtype == np.float32


def test_chunks_are_views_of_entries_in_memory(X):
    observed = Observations.from_dense(X)
    first, *_ = open_rows(observed, rows_per_chunk=5)
    assert np.shares_memory(first.values, observed.values)


def test_changes_of_a_private_memory_map_are_kept(X, tmp_path, check):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="c")
    mapped[:] = X + 1
    check(open_rows(mapped, rows_per_chunk=5), X + 1, 5)


def test_a_function_of_rows_is_applied_to_every_chunk(X, check):
    da = pytest.importorskip("dask.array")
    wanted = np.where(X < 0, np.nan, X)
    for what in (X, [X[:9], X[9:]], da.from_array(X, chunks=(5, 4))):
        check(map_rows(open_rows(what), drop_negative), wanted)
    assert map_rows(open_rows(lambda: [X]), drop_negative).chunk_loaders() is None


def drop_negative(observed):
    return observed.drop_entries(observed.values < 0)

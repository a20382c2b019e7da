"""An incomplete matrix, and a function to compare sources with it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ncarl.io import RowSource


def dense(chunks):
    """Matrix of the rows of all chunks."""
    rows = []
    for chunk in chunks:
        assert chunk.shape[0] > 0
        kinds = (chunk.indptr.dtype, chunk.indices.dtype, chunk.values.dtype)
        assert kinds == (np.int64, np.int32, np.float64)
        for i in range(chunk.shape[0]):
            row, columns = np.full(chunk.shape[1], np.nan), chunk.row_columns(i)
            assert (np.diff(columns) > 0).all()
            row[columns] = chunk.values[chunk.indptr[i] : chunk.indptr[i + 1]]
            rows.append(row)
    return np.array(rows)


def assert_gives(source, X, rows_per_chunk=None):
    """Check two passes, a pickled copy and the loaders of a source against a matrix."""
    wanted = np.asarray(X, dtype=np.float64)
    wanted = np.where(np.isnan(wanted), np.nan, wanted)  # one NaN bit pattern
    assert isinstance(source, RowSource)
    assert source.n_columns == wanted.shape[1]
    assert source.n_rows in (None, wanted.shape[0])
    passes = [list(source), list(source)]
    try:
        passes.append(list(pickle.loads(pickle.dumps(source))))
    except (AttributeError, pickle.PicklingError):  # local functions or classes
        assert callable(source.blocks) or hasattr(source.blocks, "blocks")
    parts = source.chunk_loaders()
    if parts is not None:
        loaded = [pickle.loads(pickle.dumps(part))() for part in parts]
        assert [part.shape for part in loaded] == [part.shape for part in passes[0]]
        passes.append(loaded)
    for found in passes:
        assert dense(found).tobytes() == wanted.tobytes()
        assert max(chunk.shape[0] for chunk in found) <= (rows_per_chunk or len(X))


@pytest.fixture(scope="session")
def check():
    """Function that compares a source with a matrix."""
    return assert_gives


@pytest.fixture(scope="session", name="dense")
def make_dense():
    """Function that stacks chunks."""
    return dense


@pytest.fixture(name="X")
def incomplete_matrix(rng):
    """A 23 x 4 matrix, half of it missing."""
    found = rng.standard_normal((23, 4))
    found[rng.random(found.shape) < 0.5] = np.nan
    return found

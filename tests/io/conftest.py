"""Ways to look at a source, and matrices to make one of."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ncarl.observations import Observations


def stacked(chunks):
    """Entries of chunks one below the other, by plain concatenation."""
    chunks = list(chunks)
    assert all(isinstance(chunk, Observations) for chunk in chunks)
    counts = np.concatenate([chunk.row_counts for chunk in chunks])
    return Observations(
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([chunk.indices for chunk in chunks]),
        np.concatenate([chunk.values for chunk in chunks]),
        (len(counts), chunks[0].shape[1]),
    )


def same(one, other):
    """Whether two sets of entries are the same bit for bit."""
    return (
        one.shape == other.shape
        and np.array_equal(one.indptr, other.indptr)
        and np.array_equal(one.indices, other.indices)
        and one.values.tobytes() == other.values.tobytes()
    )


def assert_gives(source, X, rows_per_chunk=None):
    """Check two passes, a pickled copy and the parts of a source against a matrix."""
    wanted = Observations.from_dense(np.asarray(X, dtype=np.float64))
    assert source.n_columns == wanted.shape[1]
    assert source.n_rows in (None, wanted.shape[0])
    for _ in range(2):
        found = list(source)
        assert same(stacked(found), wanted)
        assert all(chunk.shape[0] > 0 for chunk in found)
        if rows_per_chunk is not None:
            assert max(chunk.shape[0] for chunk in found) <= rows_per_chunk
    parts = source.chunk_loaders()
    if parts is not None:
        loaded = [pickle.loads(pickle.dumps(part))() for part in parts]
        assert len(loaded) == len(found)
        assert all(same(one, other) for one, other in zip(loaded, found, strict=True))


@pytest.fixture
def check():
    """The function that compares a source with a matrix."""
    return assert_gives


@pytest.fixture(name="X")
def incomplete(rng):
    """A matrix of 23 rows and 4 columns, half of it missing."""
    found = rng.standard_normal((23, 4))
    found[rng.random(found.shape) < 0.5] = np.nan
    return found

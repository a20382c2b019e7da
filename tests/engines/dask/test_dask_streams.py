"""Tests of row sources on workers, and of Dask arrays as input and output."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.blocks import as_one_block
from ncarl.core.rows import observed_gram
from ncarl.dataset import summarize_chunk
from ncarl.engines.base import LazyBlocks
from ncarl.observations import Observations

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")
import dask  # noqa: E402

from ncarl.engines.dask import Dask, complete_dask_array, place_blocks  # noqa: E402


def as_blocks(source):
    return LazyBlocks(source, (as_one_block,))


def gram_of(X):
    filled = np.nan_to_num(X)
    return filled.T @ filled


@dataclass(frozen=True)
class Delayed:
    """A source with delayed chunks."""

    delayed_chunks: list[Any]

    def chunk_loaders(self):
        raise AssertionError("delayed chunks come first")


def make_source(chunks, kind):
    """The chunks as a source of the given kind."""
    if kind == "delayed":
        make = dask.delayed(Observations.from_dense)
        return Delayed([make(chunk) for chunk in chunks.chunks])
    return chunks.with_loaders() if kind == "parts" else chunks


@pytest.mark.parametrize("kind", ["read", "parts", "delayed"])
def test_all_chunks_of_a_source_are_processed(engine, chunks, kind, X):
    def rows_of(block, *, backend):  # local: workers cannot import this module
        return block.n_rows

    placed = engine.place(as_blocks(make_source(chunks, kind)))
    assert_allclose(engine.total(observed_gram, placed), gram_of(X), rtol=1e-12)
    assert list(engine.map(rows_of, placed)) == [len(c) for c in chunks.chunks]
    assert len(chunks.reads) == (kind == "read")


@pytest.mark.parametrize("kind", ["read", "parts", "delayed"])
def test_lost_chunks_are_recreated_by_number(threads, chunks, kind):
    placed = threads.place(as_blocks(make_source(chunks, kind)))
    again = [future.result() for future in placed.recreate([1, 4, 5])]
    for block, k in zip(again, (1, 4, 5), strict=True):
        expected = as_one_block(Observations.from_dense(chunks.chunks[k]))
        assert_array_equal(block.values, expected.values)


def test_chunks_are_loaded_by_workers(processes, chunks, delay):
    def load():
        time.sleep(0.1)
        return os.getpid()

    source = replace(chunks, loaders=[load] * 6)
    placed = processes.place(LazyBlocks(source, (lambda pid: pid,)))
    pids = set(processes.map(delay(0.0), placed))
    assert os.getpid() not in pids
    assert len(pids) == 2


def test_error_of_a_source_is_raised_unchanged(engine, chunks):
    def load():
        raise ValueError("row 3 holds inf")

    source = replace(chunks, loaders=[load])
    with pytest.raises(ValueError, match="row 3 holds inf"):
        engine.total(observed_gram, engine.place(as_blocks(source)))


def test_only_sums_over_blocks_go_to_the_device(threads, chunks):
    pytest.importorskip("torch")
    engine = Dask(threads.link.client, device="cpu:0")
    placed = engine.place(LazyBlocks(chunks))
    summary = engine.total(summarize_chunk, placed, with_fingerprint=False)
    assert isinstance(summary.column_counts, np.ndarray)
    gram = engine.total(observed_gram, engine.place(as_blocks(chunks)))
    assert not isinstance(gram, np.ndarray)
    assert engine.compute_device.to_numpy(gram).shape == (12, 12)


@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_contiguous_blocks_are_distributed_evenly(processes, count):
    placed = place_blocks(processes.link, range(count))
    holders = processes.link.client.who_has(placed.futures)
    owners = [holders[future.key][0] for future in placed.futures]
    assert owners == sorted(owners)
    most = max(owners.count(owner) for owner in owners)
    assert most <= (count + 1) // 2


class TestCompleteDaskArray:
    def test_function_gets_whole_rows(self, X):
        array = da.from_array(X, chunks=(7, 5))

        def wide(rows):
            assert rows.shape[1] == 12
            return np.nan_to_num(rows)

        result = complete_dask_array(array, wide)
        assert result.shape == X.shape
        found = result.compute(scheduler="synchronous")
        assert_array_equal(found, np.nan_to_num(X))

    def test_is_lazy(self, X):
        def never(rows):
            raise AssertionError("too early")

        result = complete_dask_array(
            da.from_array(X, chunks=(7, 12)), never, np.float32
        )
        assert result.dtype == np.float32

    def test_unknown_numbers_of_rows_are_supported(self, X):
        array = da.from_array(X, chunks=(7, 12))
        some = array[da.isfinite(array[:, 0])]
        assert np.isnan(some.shape[0])
        result = complete_dask_array(some, np.nan_to_num)
        assert np.isnan(result.shape[0])
        found = result.compute(scheduler="synchronous")
        assert_array_equal(found, np.nan_to_num(X[np.isfinite(X[:, 0])]))

    def test_result_has_the_given_dtype(self, X):
        array = da.from_array(X, chunks=(7, 12))
        result = complete_dask_array(array, lambda x: x.astype(np.float32), np.float32)
        assert result.compute(scheduler="synchronous").dtype == np.float32

    def test_array_of_other_dimension_raises(self):
        with pytest.raises(ValueError, match="2 dimensions, got 1"):
            complete_dask_array(da.zeros(3), np.nan_to_num)

    def test_unknown_number_of_columns_raises(self, X):
        array = da.from_array(X, chunks=(7, 12))
        with pytest.raises(ValueError, match=r"known number of columns.*chunk_sizes"):
            complete_dask_array(array[:, da.isfinite(array[0])], np.nan_to_num)

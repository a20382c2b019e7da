"""Tests of Zarr and Dask arrays as row sources."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ncarl.io import open_rows
from ncarl.observations import Observations


def test_dask_blocks_are_merged_to_whole_rows(X, check):
    da = pytest.importorskip("dask.array")
    array = da.from_array(X, chunks=(10, 3))
    for rows in (None, 4, 30):
        source = open_rows(array, rows_per_chunk=rows)
        check(source, X, rows)
        assert (source.n_rows, source.chunk_loaders()) == (23, None)
    source = open_rows(array)
    computed = [chunk.compute() for chunk in source.delayed_chunks]
    assert [chunk.shape for chunk in computed] == [(10, 4), (10, 4), (3, 4)]
    assert all(isinstance(chunk, Observations) for chunk in computed)


def test_dask_arrays_of_unknown_length_are_read(X, check):
    da = pytest.importorskip("dask.array")
    array = da.from_array(X, chunks=(10, 2))
    some = array[da.from_array(np.arange(23) > 11, chunks=10)]
    source = open_rows(some)
    assert source.n_rows is None
    check(source, X[12:])
    assert source.delayed_chunks[0].compute().shape == (0, 4)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        open_rows(some, rows_per_chunk=3)


def test_large_dask_blocks_are_split():
    da = pytest.importorskip("dask.array")
    source = open_rows(da.zeros((4000, 1000), chunks=(4000, 1000)))
    assert len(source.delayed_chunks) == 4


def test_delayed_blocks_of_any_type_are_computed_in_order(X, check):
    dask = pytest.importorskip("dask")
    rest = Observations.from_dense(X[9:]).to_csr()
    blocks = [dask.delayed(X[:9]), dask.delayed(sparse.csr_array(rest))]
    source = open_rows(blocks)
    check(source, X)
    assert len(source.delayed_chunks) == 2
    with pytest.raises(ValueError, match="rows_per_chunk must be left out"):
        open_rows(blocks, rows_per_chunk=2)
    with pytest.raises(TypeError, match="block 1 of X must be delayed"):
        open_rows([blocks[0], X])
    with pytest.raises(ValueError, match="block 1 of X has 2 columns"):
        list(open_rows([blocks[0], dask.delayed(X[:, :2])]))


def test_dask_arrays_of_other_dimension_raise():
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="2 dimensions"):
        open_rows(da.zeros(3))
    with pytest.raises(ValueError, match="real numbers"):
        open_rows(da.zeros((3, 3), dtype=complex))


@pytest.fixture
def zarr():
    """The zarr module, if available."""
    return pytest.importorskip("zarr")


def store(zarr, path, X, chunks, **options):
    array = zarr.create_array(
        path, shape=X.shape, chunks=chunks, dtype=X.dtype, **options
    )
    array[:] = X
    return array


def test_zarr_arrays_and_paths_are_read(zarr, X, tmp_path, check):
    array = store(zarr, str(tmp_path / "X.zarr"), X, (4, 3))
    plain = tmp_path / "plain"
    store(zarr, str(plain), X.astype("f4"), (5, 4), attributes={"names": list("abcd")})
    for rows in (None, 3, 4, 50):
        check(open_rows(tmp_path / "X.zarr", rows_per_chunk=rows), X, rows)
        check(open_rows(array, rows_per_chunk=rows), X, rows)
    source = open_rows(plain)
    check(source, X.astype("f4"))
    assert (source.names, source.dtype) == (tuple("abcd"), np.float32)


def test_chunks_align_with_zarr_chunks(zarr):
    X = np.zeros((3000, 1000), np.float32)
    source = open_rows(store(zarr, {}, X, (300, 1000)))
    assert [chunk.shape[0] for chunk in source] == [900, 900, 900, 300]


def test_group_of_zarr_arrays_raises_with_their_names(zarr, X, tmp_path):
    group = zarr.create_group(str(tmp_path / "G.zarr"))
    group.create_array("inner", shape=X.shape, dtype=X.dtype)
    with pytest.raises(ValueError, match="group with the arrays 'inner'"):
        open_rows(tmp_path / "G.zarr")


def test_changed_or_invalid_zarr_array_raises(zarr, X, tmp_path):
    array = store(zarr, str(tmp_path / "X.zarr"), X, (4, 4))
    source = open_rows(tmp_path / "X.zarr")
    array[0] = 5.0
    with pytest.raises(ValueError, match="changed since"):
        list(source)
    with pytest.raises(ValueError, match=r"2 dimensions.*\(3,\)"):
        open_rows(store(zarr, {}, np.zeros(3), (3,)))

"""An incomplete matrix with edge cases, and all readers of row sources."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ncarl.io import open_rows
from ncarl.observations import Observations


@pytest.fixture(scope="session", name="X_nan")
def incomplete_matrix():
    """Noisy low-rank matrix with row effects, empty row and column, equal masks."""
    rng = np.random.default_rng(3)
    truth = rng.random((150, 3)) @ rng.random((3, 14)) + rng.normal(0, 0.3, (150, 1))
    X = truth + 0.05 * rng.standard_normal(truth.shape)
    X[rng.random(X.shape) < 0.4] = np.nan
    X[40:52, 5:9] = np.nan
    X[60:64] = np.where(np.isnan(X[60]), np.nan, X[60:64] * 0.0 + 1.5)
    X[17], X[:, 11] = np.nan, np.nan
    return X


def npy(X, folder):
    np.save(folder / "x.npy", X)
    return open_rows(folder / "x.npy", rows_per_chunk=31)


def npz(X, folder, compressed=False):
    sp.save_npz(folder / "x.npz", Observations.from_dense(X).to_csr(), compressed)
    return open_rows(folder / "x.npz", rows_per_chunk=31)


def squeezed_npz(X, folder):
    return npz(X, folder, compressed=True)


def frame(X):
    pytest.importorskip("pyarrow")
    return pytest.importorskip("pandas").DataFrame(X).add_prefix("c")


def parquet(X, folder):
    frame(X).to_parquet(folder / "x.parquet", row_group_size=40)
    return open_rows(folder / "x.parquet", rows_per_chunk=31)


def csv(X, folder):
    frame(X).to_csv(folder / "x.csv", index=False)
    return open_rows(folder / "x.csv", rows_per_chunk=31)


def zarr(X, folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(
        str(folder / "x.zarr"), shape=X.shape, chunks=(29, 5), dtype="f8"
    )
    made[:] = X
    return open_rows(folder / "x.zarr")


def dask_array(X, folder):
    da = pytest.importorskip("dask.array")
    return da.from_array(X, chunks=(37, 6))


def delayed_blocks(X, folder):
    dask = pytest.importorskip("dask")
    return [dask.delayed(np.asarray)(part) for part in np.array_split(X, 4)]


def list_of_blocks(X, folder):
    parts = np.array_split(X, 5)
    return [parts[0], Observations.from_dense(parts[1]).to_csr(), *parts[2:]]


def function(X, folder):
    return open_rows(lambda: iter(np.array_split(X, 3)))


def in_memory(X, folder):
    return open_rows(X, rows_per_chunk=9)


READERS = {
    read.__name__: read
    for read in (
        *(npy, npz, squeezed_npz, parquet, csv, zarr, dask_array, delayed_blocks),
        *(list_of_blocks, function, in_memory),
    )
}


@pytest.fixture(scope="session")
def open_reader(X_nan, tmp_path_factory):
    """Function that opens the matrix with the named reader."""

    def open_by_name(name):
        return READERS[name](X_nan, tmp_path_factory.mktemp("rows"))

    return open_by_name

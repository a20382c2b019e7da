"""Fixtures that run commands on a small table with missing entries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io, sparse
from typer.testing import CliRunner

import ncarl as package
from ncarl.cli.app import app
from ncarl.io.tables import ReadOptions, read_table


def list_names(folder):
    """Sorted file names of a folder."""
    return sorted(path.name for path in folder.iterdir())


def write(path, X):
    """Write a matrix with five columns in the format of the suffix."""
    frame = pd.DataFrame(X, columns=list("abcde"))
    name = path.name
    if name == "folder":
        path.mkdir()
        frame[:9].to_parquet(path / "1.parquet")
        frame[9:].to_parquet(path / "2.pq")
    elif name.endswith((".npz", ".mtx")):
        seen = ~np.isnan(X)
        S = sparse.coo_array((X[seen], np.nonzero(seen)), shape=X.shape)
        if name.endswith(".npz"):
            sparse.save_npz(path, S.tocsr())
        else:
            scipy_io.mmwrite(path, S)
    elif name.endswith(".npy"):
        np.save(path, X)
    elif name.endswith(".zarr"):
        zarr = pytest.importorskip("zarr")
        zarr.create_array(str(path), data=X, chunks=(3, 5))
    elif name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        sep = "\t" if ".tsv" in name else ","
        frame.to_csv(path, index=False, sep=sep, na_rep="NA")


def read(path):
    """Read a matrix and its column names (None if there are none)."""
    if path.suffix == ".npy":
        return np.load(path), None
    if path.suffix == ".npz":
        return sparse.load_npz(path).toarray(), None
    if path.suffix == ".mtx":
        return scipy_io.mmread(path), None
    if path.suffix == ".zarr":
        array = pytest.importorskip("zarr").open_array(str(path), mode="r")
        return array[:], array.attrs.get("names")
    if path.suffix == ".parquet":
        frame = pd.read_parquet(path)
    else:
        frame = pd.read_csv(path, sep="\t" if ".tsv" in path.name else ",")
    return frame.to_numpy(), list(frame.columns)


def read_numbers(path):
    """Read the numeric columns of a CSV file with a "name" column."""
    return pd.read_csv(path).drop(columns="name").to_numpy()


@pytest.fixture
def ncarl():
    """Function that runs ``ncarl`` and checks the exit code ``expect``."""

    def invoke(*arguments, expect=0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == expect, result.output + repr(result.exception)
        return result

    return invoke


@pytest.fixture
def fails(ncarl):
    """Function that runs ``ncarl``, which must fail, and returns the error message."""

    def invoke(*arguments):
        result = ncarl(*arguments, expect=1)
        assert isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert not result.stdout
        return result.stderr.removeprefix("error: ").strip()

    return invoke


@pytest.fixture(name="X_nan")
def incomplete_matrix(rng):
    """A 14 x 5 incomplete matrix of rank 2; no row or column is empty."""
    X = rng.random((14, 2)) @ rng.random((2, 5)) + 0.1
    X[rng.random(X.shape) < 0.25] = np.nan
    X[:, 0] = np.arange(14) / 7 + 0.5
    X[3, 1] = X[5, 4] = np.nan
    X[0] = [0.5, 0.25, np.nan, 1.0, 0.75]
    return X


@pytest.fixture
def csv(tmp_path, X_nan):
    """The matrix as a CSV file with a header and a "name" column."""
    frame = pd.DataFrame(X_nan, columns=list("abcde"))
    frame.insert(0, "name", [f"row {i}" for i in range(14)])
    path = tmp_path / "in.csv"
    frame.to_csv(path, index=False, na_rep="NA", float_format="%.4f")
    return path


@pytest.fixture
def table(tmp_path):
    """Function that writes text or bytes to a file and reads it as a table."""

    def make(content, name="in.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path, ReadOptions(**options))

    return make


@pytest.fixture
def no_fit(monkeypatch):
    """Fail if anything is fitted."""
    for estimator in (package.BayesianNCARL, package.NCARLCV, package.NCARL):
        monkeypatch.setattr(estimator, "fit", lambda *_: pytest.fail("it was fitted"))

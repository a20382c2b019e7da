"""A table with gaps, and a way to run commands on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ncarl as package
from ncarl.cli.app import app


def names_in(folder):
    """Names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def numbers(path):
    """The numbers of a CSV file that has a column of names."""
    return pd.read_csv(path).drop(columns="name").to_numpy()


@pytest.fixture
def ncarl():
    """Run ``ncarl`` with arguments; ``expect`` is the exit code that must come back."""

    def invoke(*arguments, expect=0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == expect, result.output + repr(result.exception)
        return result

    return invoke


@pytest.fixture
def fails(ncarl):
    """Run ``ncarl`` and give the one sentence that it must fail with."""

    def invoke(*arguments):
        result = ncarl(*arguments, expect=1)
        assert isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert not result.stdout
        return result.stderr.removeprefix("error: ").strip()

    return invoke


@pytest.fixture
def gappy(rng):
    """A 14 x 5 matrix of rank two with gaps; no row or column is empty."""
    X = rng.random((14, 2)) @ rng.random((2, 5)) + 0.1
    X[rng.random(X.shape) < 0.25] = np.nan
    X[:, 0] = np.arange(14) / 7 + 0.5
    X[3, 1] = X[5, 4] = np.nan
    X[0] = [0.5, 0.25, np.nan, 1.0, 0.75]
    return X


@pytest.fixture
def csv(tmp_path, gappy):
    """The matrix as a CSV file with a header and a column of names."""
    lines = ["name,a,b,c,d,e"]
    for i, row in enumerate(gappy):
        cells = ["NA" if np.isnan(v) else f"{v:.4f}" for v in row]
        lines.append(",".join([f"row {i}", *cells]))
    path = tmp_path / "in.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def no_fit(monkeypatch):
    """Fail if anything is fitted."""
    for estimator in (package.BayesianNCARL, package.NCARLCV, package.NCARL):
        monkeypatch.setattr(estimator, "fit", lambda *_: pytest.fail("it was fitted"))

"""Fixtures that isolate tests from local data and the network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL = os.environ.get("NCARL_DATA")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache folder; no data folder and no network."""
    monkeypatch.delenv("NCARL_DATA", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("ncarl.datasets.files.open_url", _no_network)
    return tmp_path / "cache" / "ncarl"


@pytest.fixture
def data(monkeypatch, tmp_path):
    """An empty folder that NCARL_DATA refers to."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("NCARL_DATA", str(folder))
    return folder


@pytest.fixture
def real_data(monkeypatch):
    """Function that skips a test unless a file of the real data is available."""

    def require(file: str) -> Path:
        if REAL is None or not (Path(REAL) / file).exists():
            pytest.skip(f"NCARL_DATA names no folder with {file}")
        monkeypatch.setenv("NCARL_DATA", REAL)
        return Path(REAL) / file

    return require


def _no_network(url):
    raise OSError("no network in tests")

"""Clusters that the tests of the Dask engine share; all of them stay on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ncarl.observations import Observations

pytest.importorskip("distributed")
from ncarl.engines.dask import Dask


@pytest.fixture(scope="session", autouse=True)
def several_blocks() -> Iterator[None]:
    """Small matrices are cut into as many blocks as large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncarl.engines.dask.MIN_ROWS_PER_TASK", 5)
        patch.setattr("ncarl.engines.dask.ROWS_PER_SUM_ENTRY", 0.0)
        patch.setattr("ncarl.engines.dask.MAX_INLINE_BYTES", 1000)
        yield


@pytest.fixture(scope="session")
def threads() -> Iterator[Dask]:
    """An engine of two threads."""
    with Dask("threads", n_workers=2, device="cpu") as engine:
        yield engine


@pytest.fixture(scope="session")
def processes() -> Iterator[Dask]:
    """An engine of two processes, none of which is harmed."""
    with Dask("processes", n_workers=2, device="cpu") as engine:
        yield engine


@pytest.fixture(params=["threads", "processes"])
def engine(request: pytest.FixtureRequest) -> Any:
    """Both kinds of local workers."""
    return request.getfixturevalue(request.param)


@pytest.fixture(name="X")
def gappy() -> np.ndarray:
    """Rows from nearly empty to full, in 12 columns."""
    rng = np.random.default_rng(0)
    truth = 1.0 + rng.standard_normal((60, 3)) @ rng.standard_normal((3, 12))
    truth += 0.05 * rng.standard_normal(truth.shape)
    seen = rng.random(truth.shape) < np.linspace(0.2, 1.0, 60)[:, None]
    return np.where(seen, truth, np.nan)


@dataclass(frozen=True)
class Chunks:
    """A source of dense chunks, which counts how often it is read."""

    chunks: list[np.ndarray]
    reads: list[int] = field(default_factory=list)
    names = None
    dtype = np.dtype(np.float64)

    @property
    def n_columns(self) -> int:
        return int(self.chunks[0].shape[1])

    @property
    def n_rows(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    def __iter__(self) -> Iterator[Observations]:
        self.reads.append(1)
        return (Observations.from_dense(chunk) for chunk in self.chunks)

    def chunk_loaders(self) -> Any:
        return None


@pytest.fixture
def chunks(X: np.ndarray) -> Chunks:
    """The matrix in nine chunks, to be read in turn."""
    return Chunks(np.array_split(X, 9))

"""Shared local clusters and matrices for tests of the Dask engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from ncarl.blocks import cut_blocks
from ncarl.observations import Observations

pytest.importorskip("distributed")
from ncarl.engines.dask import Dask


@pytest.fixture(scope="session", autouse=True)
def several_blocks() -> Iterator[None]:
    """Cut small matrices into several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ncarl.engines.dask.MIN_ROWS_PER_TASK", 5)
        patch.setattr("ncarl.engines.dask.ROWS_PER_SUM_ENTRY", 0.0)
        patch.setattr("ncarl.engines.dask.MAX_INLINE_BYTES", 1000)
        yield


@pytest.fixture(scope="session")
def threads() -> Iterator[Dask]:
    """Engine with two threads."""
    with Dask("threads", n_workers=2, device="cpu") as engine:
        yield engine


@pytest.fixture(scope="session")
def processes() -> Iterator[Dask]:
    """Engine with two processes; tests must not kill them."""
    with Dask("processes", n_workers=2, device="cpu") as engine:
        yield engine


@pytest.fixture(params=["threads", "processes"])
def engine(request: pytest.FixtureRequest) -> Any:
    """Engines with both kinds of local workers."""
    return request.getfixturevalue(request.param)


@pytest.fixture(name="X")
def incomplete_matrix() -> np.ndarray:
    """A matrix with 12 columns and rows from nearly empty to complete."""
    rng = np.random.default_rng(0)
    truth = 1.0 + rng.standard_normal((60, 3)) @ rng.standard_normal((3, 12))
    truth += 0.05 * rng.standard_normal(truth.shape)
    seen = rng.random(truth.shape) < np.linspace(0.2, 1.0, 60)[:, None]
    return np.where(seen, truth, np.nan)


@dataclass(frozen=True)
class Chunks:
    """A source of dense chunks that counts its passes."""

    chunks: list[np.ndarray]
    reads: list[int] = field(default_factory=list)
    loaders: Any = None
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
        return self.loaders

    def with_loaders(self) -> Chunks:
        """The same source with loaders for workers."""
        loaders = [partial(Observations.from_dense, chunk) for chunk in self.chunks]
        return replace(self, loaders=loaders)


@pytest.fixture
def chunks(X: np.ndarray) -> Chunks:
    """The matrix as a source of nine chunks."""
    return Chunks(np.array_split(X, 9))


@pytest.fixture
def blocks(X: np.ndarray) -> list[Any]:
    """The matrix as seven blocks."""
    return cut_blocks(Observations.from_dense(X), 7)


@pytest.fixture(scope="session")
def delay() -> Callable[[float], Callable[..., Any]]:
    """Function that makes a task that returns its block after some seconds."""

    def make(seconds: float) -> Callable[..., Any]:
        def return_block(block: Any, *, backend: str) -> Any:
            time.sleep(seconds)
            return block

        return return_block

    return make

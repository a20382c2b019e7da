"""Tests that blocks kept on a device are not read again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ncarl import NCARL
from ncarl.observations import Observations

torch = pytest.importorskip("torch")

from ncarl.engines import torch as torch_engine  # noqa: E402
from ncarl.engines.base import in_order  # noqa: E402
from ncarl.engines.torch import Torch  # noqa: E402

RUN = {"max_iter": 4, "tol": 0, "alpha": 1.0}


@dataclass
class CountingSource:
    """A source that counts the reads of each chunk."""

    X: np.ndarray
    anywhere: bool
    reads: dict = field(default_factory=dict)
    n_rows = None
    names = None
    dtype = np.dtype(float)

    @property
    def n_columns(self):
        return self.X.shape[1]

    def load(self, k):
        self.reads[k] = self.reads.get(k, 0) + 1
        return Observations.from_dense(self.X[10 * k : 10 * k + 10])

    def __iter__(self):
        return (self.load(k) for k in range(len(self.X) // 10))

    def chunk_loaders(self):
        if not self.anywhere:
            return None
        return [lambda k=k: self.load(k) for k in range(len(self.X) // 10)]


@pytest.fixture(autouse=True)
def one_thread(one_torch_thread, monkeypatch):
    monkeypatch.setattr(torch_engine, "ENTRIES_PER_BLOCK", 150)  # two chunks per block


@pytest.mark.parametrize("anywhere", [True, False])
@pytest.mark.parametrize("room", [0, 3, 100])
def test_blocks_that_fit_are_kept(X_nan, anywhere, room, monkeypatch):
    left = [room]

    def has_room(self):
        left[0] -= 1
        return left[0] >= 0

    monkeypatch.setattr(Torch, "has_room", has_room)
    source = CountingSource(X_nan, anywhere)
    found = NCARL(**RUN, engine=Torch("cpu")).fit(source)
    known = NCARL(**RUN, orientation="columns").fit(X_nan)
    assert_allclose(found.kernel_, known.kernel_, rtol=1e-9, atol=1e-9)
    last = source.reads[14]
    if room == 0:
        assert last >= 5  # a survey, the start, and every step
    if room == 100:
        assert last == 3  # survey, mean, one pass of blocks
    if room == 3 and anywhere:
        assert source.reads[2] < last  # its block was kept


def test_results_keep_the_order_and_errors_propagate():
    def work(k):
        time.sleep(0.002 * (5 - k % 5))
        if k == 17:
            raise RuntimeError("no such rows")
        return k

    with ThreadPoolExecutor(4) as pool:

        def results(count):
            return in_order((pool.submit(work, k) for k in range(count)), 4)

        assert list(results(12)) == list(range(12))
        with pytest.raises(RuntimeError, match="no such rows"):
            list(results(30))
        made = results(12)
        assert next(made) == 0
        made.close()
        assert pool._work_queue.empty()

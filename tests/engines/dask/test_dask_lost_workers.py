"""Tests of lost workers: blocks are recreated, and the fit continues."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ncarl import NCARL
from ncarl.blocks import as_one_block
from ncarl.core.rows import observed_gram
from ncarl.engines.base import LazyBlocks
from ncarl.observations import Observations

distributed = pytest.importorskip("distributed")
from ncarl.engines.dask import (  # noqa: E402
    MAX_ATTEMPTS,
    Dask,
    LostDataError,
    LostWorkersError,
    WorkerBlocks,
    place_blocks,
)

FEW = {"max_iter": 5, "tol": 0, "alpha": 1.0, "n_neighbors": 4}


def make_killer(path, victim):
    """Function that kills its worker once, at the block ``victim``."""

    def work(block, *, backend, **shared):
        if block.n_rows and int(block.values[0] * 1e9) == victim:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return observed_gram(block, backend=backend)

    return work


def block_key(block):
    return int(block.values[0] * 1e9)


@pytest.fixture(name="processes", scope="module")
def killable_processes():
    with Dask("processes", n_workers=2, device="cpu") as engine:
        yield engine


def test_worker_killed_between_steps_does_not_change_the_result(processes, X):
    undisturbed = NCARL(engine=processes, **FEW).fit(X)
    killed = []

    def kill(info):
        if info.step == 2:
            workers = processes.link.owned[1].workers
            killed.append(workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    disturbed = NCARL(engine=processes, callback=kill, **FEW).fit(X)
    assert killed
    assert_array_equal(disturbed.kernel_, undisturbed.kernel_)
    assert_array_equal(disturbed.transform(X), undisturbed.transform(X))


@pytest.mark.parametrize("way", ["total", "map"])
def test_worker_killed_during_a_step_does_not_change_the_result(
    processes, blocks, tmp_path, way
):
    placed = place_blocks(processes.link, blocks)
    big = np.zeros(3000)  # stored on a worker, so it is lost too
    work = make_killer(str(tmp_path / "dead"), block_key(blocks[3]))

    def run(function, **shared):
        found = getattr(processes, way)(function, placed, **shared)
        return [found] if way == "total" else list(found)

    expected = run(observed_gram)
    found = run(work, big=big)
    assert (tmp_path / "dead").exists()
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("loaders", [True, False])
def test_streamed_chunks_of_a_dead_worker_are_recreated(
    processes, chunks, tmp_path, loaders
):
    source = chunks.with_loaders() if loaders else chunks
    placed = processes.place(LazyBlocks(source, (as_one_block,)))
    expected = processes.total(observed_gram, placed)
    victim = block_key(as_one_block(Observations.from_dense(chunks.chunks[4])))
    work = make_killer(str(tmp_path / "dead"), victim)
    assert_array_equal(processes.total(work, placed), expected)
    assert (tmp_path / "dead").exists()
    assert len(chunks.reads) == (0 if loaders else 2)


def test_no_workers_raises(blocks):
    with Dask("threads", n_workers=1, device="cpu", timeout=0.5) as engine:
        placed = place_blocks(engine.link, blocks)
        engine.link.owned[1].scale(0)
        while engine.link.client.nthreads():
            time.sleep(0.05)
        start = time.monotonic()
        with pytest.raises(LostWorkersError, match=r"no Dask worker is left.*0.5 sec"):
            engine.total(observed_gram, placed)
        with pytest.raises(LostWorkersError, match=r"no Dask worker is left.*0.5 sec"):
            list(engine.map(observed_gram, placed, big=np.zeros(3000)))
        with pytest.raises(LostWorkersError, match=r"no Dask worker is left.*0.5 sec"):
            place_blocks(engine.link, blocks)
        assert time.monotonic() - start < 15.0


def test_workers_leaving_during_a_step_raise(blocks, monkeypatch):
    monkeypatch.setattr("ncarl.engines.dask.POLL_SECONDS", 0.2)
    with Dask("threads", n_workers=1, device="cpu", timeout=0.5) as engine:
        cluster = engine.link.owned[1]

        def leave(block, *, backend):
            cluster.loop.add_callback(cluster.scale, 0)
            time.sleep(1.0)
            return 1.0

        function = _by_reference(leave)
        with pytest.raises(LostWorkersError, match="no Dask worker is left"):
            engine.total(function, place_blocks(engine.link, blocks))


def test_workers_paused_for_lack_of_memory_raise(blocks, monkeypatch):
    monkeypatch.setattr("ncarl.engines.dask.POLL_SECONDS", 0.2)
    with Dask("threads", n_workers=1, device="cpu", timeout=1.0) as engine:
        placed = place_blocks(engine.link, blocks)
        cluster = engine.link.owned[1]
        (worker,) = cluster.workers.values()

        def set_status(status):
            cluster.loop.add_callback(setattr, worker, "status", status)
            info = engine.link.client.scheduler_info
            while {w["status"] for w in info()["workers"].values()} != {status.name}:
                time.sleep(0.05)

        set_status(distributed.Status.paused)
        start = time.monotonic()
        with pytest.raises(LostWorkersError, match=r"paused for 1 sec.*memory is full"):
            engine.total(observed_gram, placed)
        assert time.monotonic() - start < 20.0
        set_status(distributed.Status.running)
        assert engine.total(observed_gram, placed).shape == (12, 12)


def test_paused_workers_may_finish_their_tasks(blocks, monkeypatch):
    monkeypatch.setattr("ncarl.engines.dask.POLL_SECONDS", 0.2)
    # Longer than it takes a worker to report that it runs a task.
    with Dask("threads", n_workers=1, device="cpu", timeout=2.0) as engine:
        cluster = engine.link.owned[1]
        (worker,) = cluster.workers.values()

        def work(block, *, backend):
            paused = distributed.Status.paused
            cluster.loop.add_callback(setattr, worker, "status", paused)
            time.sleep(4.0)
            return 1.0

        placed = place_blocks(engine.link, blocks[:1])
        assert engine.total(_by_reference(work), placed) == 1.0


def _by_reference(function):
    """Make a picklable function that calls a closure of this process."""
    _FUNCTIONS["function"] = function
    return _call_function


_FUNCTIONS = {}


def _call_function(block, *, backend):
    return _FUNCTIONS["function"](block, backend=backend)


def test_blocks_are_recreated_on_new_workers(blocks):
    with Dask("threads", n_workers=2, device="cpu", timeout=20) as engine:
        placed = place_blocks(engine.link, blocks)
        expected = engine.total(observed_gram, placed)
        cluster = engine.link.owned[1]
        cluster.scale(0)
        while engine.link.client.nthreads():
            time.sleep(0.05)
        cluster.scale(1)
        assert_array_equal(engine.total(observed_gram, placed), expected)


def test_closed_client_raises(blocks):
    with Dask("threads", n_workers=1) as owner:
        engine = Dask(owner.link.client, device="cpu")
        placed = place_blocks(engine.link, blocks)
        owner.link.client.close()
        with pytest.raises(LostWorkersError, match="client is closed"):
            engine.total(observed_gram, placed)


class KilledFuture:
    """A fake future of a task that Dask aborted with `KilledWorker`."""

    status = "error"

    def done(self):
        return True

    def exception(self):
        return distributed.KilledWorker("a task", SimpleNamespace(address="tcp://x"), 3)

    def result(self, timeout):
        raise self.exception()


def test_tasks_aborted_by_dask_are_restarted(threads):
    with pytest.raises(LostDataError, match="a task"):
        threads.link.result(KilledFuture())
    placed = WorkerBlocks(
        threads.link, [KilledFuture()], lambda lost: [f"again {k}" for k in lost]
    )
    placed.recover()
    assert placed.futures == ["again 0"]


def test_retries_are_limited(threads, monkeypatch):
    attempts, mended = [], []
    monkeypatch.setattr(time, "sleep", lambda seconds: None)

    def attempt():
        attempts.append(1)
        raise LostDataError("gone")

    with pytest.raises(LostWorkersError, match=rf"{MAX_ATTEMPTS} times.*gone.*memory"):
        threads.link.retry(attempt, lambda: mended.append(1))
    assert (len(attempts), len(mended)) == (MAX_ATTEMPTS, MAX_ATTEMPTS - 1)

"""Tests of the threads engine: parameters, BLAS threads, host memory."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from ncarl.core.types import cached_property
from ncarl.engines import pick_engine
from ncarl.engines.cores import limit_blas_threads
from ncarl.engines.threads import Threads
from ncarl.io.base import host_memory


def blas_settings():
    return [
        lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"
    ]


@pytest.mark.parametrize("n_jobs", [0, -1, 2.5, "x", True])
def test_invalid_n_jobs_raises(n_jobs):
    with pytest.raises((TypeError, ValueError), match="n_jobs must be a whole number"):
        Threads(n_jobs=n_jobs)


def test_unknown_row_kernel_raises():
    with pytest.raises(ValueError, match="kernel must be"):
        Threads(kernel="numbaa")


def test_overlapping_contexts_restore_blas_settings():
    before = blas_settings()
    second_entered, first_left = threading.Event(), threading.Event()
    inside = []

    def first():
        with limit_blas_threads(1):
            inside.append(blas_settings())
            assert second_entered.wait(10)
        first_left.set()

    def second():
        with limit_blas_threads(1):
            second_entered.set()
            assert first_left.wait(10)
            inside.append(blas_settings())

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == [[1] * len(before)] * 2
    assert blas_settings() == before


class SlowValue:
    """An object with a value that takes until an event to compute."""

    def __init__(self):
        self.begun, self.finish = threading.Event(), threading.Event()

    @cached_property
    def value(self):
        self.begun.set()
        return self.finish.wait(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_does_not_wait_for_threads_of_its_parent():
    slow, lock = SlowValue(), limit_blas_threads.__self__.lock

    def hold():
        with lock:
            assert slow.value

    holder = threading.Thread(target=hold)
    holder.start()
    assert slow.begun.wait(10)
    # The fork waits for the lock, but not for the value.
    threading.Timer(0.2, slow.finish.set).start()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        other = SlowValue()
        other.finish.set()
        with limit_blas_threads(1):
            os._exit(0 if other.value else 1)
    assert os.waitpid(child, 0)[1] == 0
    holder.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_computes_a_value_that_a_thread_is_computing():
    slow = SlowValue()
    holder = threading.Thread(target=lambda: slow.value)
    holder.start()
    assert slow.begun.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        slow.finish.set()
        os._exit(0 if slow.value else 1)
    slow.finish.set()
    assert os.waitpid(child, 0)[1] == 0
    holder.join()


@pytest.mark.parametrize(
    ("given", "name"), [(object(), "object"), (Threads, "the class Threads")]
)
def test_invalid_engine_raises(given, name):
    with pytest.raises(TypeError, match=f"engine must be .* Engine object, got {name}"):
        pick_engine(given)


@pytest.mark.parametrize(
    ("limit", "expected"), [("4096\n", 4096), ("max\n", None), (None, None)]
)
def test_host_memory_respects_the_cgroup_limit(limit, expected, monkeypatch, tmp_path):
    whole, file = host_memory(), tmp_path / "memory.max"
    if limit is None:
        file.mkdir()  # cannot be read
    else:
        file.write_text(limit)
    monkeypatch.setattr("ncarl.io.base.CGROUP_LIMIT_FILES", (file,))
    assert host_memory() == (expected or whole)


def test_kernel_larger_than_host_memory_raises(monkeypatch):
    from ncarl import NCARL, WideNCARL

    monkeypatch.setattr("ncarl.engines.base.host_memory", lambda: 3 * 8 * 30 * 30 - 1)
    X = np.random.default_rng(0).random((60, 30))
    X[::3, ::2] = np.nan
    with pytest.raises(MemoryError, match=r"30 columns.*at least 3.*ncarl\.WideNCARL"):
        NCARL(orientation="columns").fit(X)
    WideNCARL(max_iter=2, tol=0).fit(X)  # forms no dense kernel
    monkeypatch.setattr("ncarl.engines.base.host_memory", lambda: 3 * 8 * 30 * 30)
    NCARL(orientation="columns", max_iter=2, tol=0).fit(X)
    monkeypatch.setattr("ncarl.engines.base.host_memory", lambda: None)  # unknown
    NCARL(orientation="columns", max_iter=2, tol=0).fit(X)

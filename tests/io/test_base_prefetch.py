"""Tests of prefetching: order, bounded queue, no remaining threads."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from ncarl.io import prefetch


@pytest.fixture(autouse=True)
def check_threads():
    yield
    assert not [t for t in threading.enumerate() if t.name == "ncarl-prefetch"]


def wait_until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_items_are_yielded_in_order():
    for items in (range(100), [], [None, 0]):
        assert list(prefetch(items)) == list(items)


def test_two_items_are_fetched_ahead():
    fetched = []

    def items():
        for k in range(50):
            fetched.append(k)
            yield k

    with contextlib.closing(prefetch(items())) as found:
        for k in found:
            time.sleep(0.002)
            # The item in use and the queued ones.
            assert len(fetched) <= k + 1 + 2
            if k == 0:
                wait_until(lambda: len(fetched) == 3)


def test_items_are_released_by_the_thread():
    class Item:
        pass

    found = prefetch(Item() for _ in range(9))
    used = [weakref.ref(next(found)) for _ in range(3)]
    time.sleep(0.02)
    gc.collect()
    assert [item() for item in used] == [None] * 3
    found.close()


def test_is_lazy():
    before = threading.active_count()
    prefetch(iter(int, 1)).close()
    assert threading.active_count() == before


def test_exception_is_raised_after_the_preceding_items():
    def items():
        yield 1
        yield 2
        raise KeyError("gone")

    found = prefetch(items())
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(KeyError, match="gone") as caught:
        next(found)
    assert "items" in [entry.name for entry in caught.traceback]
    assert list(found) == []


@pytest.mark.parametrize("taken", [0, 5])
def test_closing_early_stops_the_thread_and_closes_the_iterator(taken):
    closed = threading.Event()

    def items():
        try:
            while True:
                yield 1
        finally:
            closed.set()

    found = prefetch(items())
    for _ in range(taken):
        next(found)
    time.sleep(0.02)  # the queue is full and the thread waits
    started = time.perf_counter()
    found.close()
    assert time.perf_counter() - started < 2
    assert closed.is_set() or taken == 0


def test_iterator_is_closed_by_the_thread():
    class Lines:
        closed_by = None

        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def close(self):
            self.closed_by = threading.current_thread().name

    lines = Lines()
    found = prefetch(lines)
    next(found)
    found.close()
    assert lines.closed_by == "ncarl-prefetch"


def test_garbage_collected_iterator_stops_its_thread():
    found = prefetch(iter(int, 1))
    next(found)
    del found
    gc.collect()


def test_ctrl_c_while_the_thread_starts_ends_it(monkeypatch):
    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            raise KeyboardInterrupt

    monkeypatch.setattr("ncarl.io.base.Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(prefetch(iter(int, 1)))


def run_script(code):
    """Standard output, error output and exit status of a script."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout.strip(), done.stderr, done.returncode


def test_ctrl_c_while_waiting_for_an_item_ends_the_thread():
    code = """
import contextlib, os, signal, threading, time
from ncarl.io import prefetch
signal.signal(signal.SIGINT, signal.default_int_handler)

def items():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    while True:
        yield 1

try:
    with contextlib.closing(prefetch(items())) as found:
        for item in found:
            pass
except KeyboardInterrupt:
    print(threading.active_count())
"""
    assert run_script(code) == ("1", "", 0)


def test_open_iterator_does_not_block_exit():
    code = (
        "from ncarl.io import prefetch\n"
        "found = prefetch(iter(int, 1)); next(found); print('over')"
    )
    assert run_script(code)[::2] == ("over", 0)

"""Prefetching: items in order, a bounded number of them, no thread left behind."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import time

import pytest

from ncarl.io import prefetch


@pytest.fixture(autouse=True)
def no_thread_stays():
    yield
    assert not [t for t in threading.enumerate() if t.name == "ncarl-prefetch"]


@pytest.mark.parametrize("ahead", [1, 2, 7, 1000])
def test_items_come_in_order(ahead):
    assert list(prefetch(range(100), ahead)) == list(range(100))
    assert list(prefetch([], ahead)) == []
    assert list(prefetch([None, 0], ahead)) == [None, 0]


def test_no_more_than_so_many_items_are_fetched_ahead():
    fetched = []

    def items():
        for k in range(50):
            fetched.append(k)
            yield k

    for ahead in (1, 3):
        fetched.clear()
        with contextlib.closing(prefetch(items(), ahead)) as found:
            for k in found:
                time.sleep(0.002)
                # The one that is out, and those that wait.
                assert len(fetched) <= k + 1 + ahead


def test_items_are_fetched_while_others_are_worked_on():
    second = threading.Event()

    def items():
        yield 1
        second.set()
        yield 2

    with contextlib.closing(prefetch(items())) as found:
        assert next(found) == 1
        assert second.wait(5)


def test_nothing_happens_before_the_first_item_is_asked_for():
    before = threading.active_count()
    found = prefetch(iter(int, 1))
    assert threading.active_count() == before
    found.close()


def test_an_exception_comes_out_after_the_items_before_it():
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


def test_something_that_cannot_be_looped_over_raises_at_the_first_item():
    with pytest.raises(TypeError, match="not iterable"):
        next(prefetch(5))


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_leaving_early_stops_the_thread_and_closes_the_iterator(taken):
    closed = threading.Event()

    def items():
        try:
            while True:
                yield 1
        finally:
            closed.set()

    found = prefetch(items(), buffer_size=2)
    for _ in range(taken):
        next(found)
    time.sleep(0.02)  # the shelf is full by now, and the thread waits
    started = time.perf_counter()
    found.close()
    assert time.perf_counter() - started < 2
    assert closed.is_set() or taken == 0


def test_an_iterator_that_can_be_closed_is_closed_by_the_thread():
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


def test_an_iterator_that_is_forgotten_stops_its_thread():
    found = prefetch(iter(int, 1))
    next(found)
    del found
    gc.collect()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_of_the_one_who_asks_stops_the_thread(error):
    with pytest.raises(error), contextlib.closing(prefetch(iter(int, 1))) as found:
        for _ in found:
            raise error


def test_ctrl_c_while_the_thread_is_started_ends_it(monkeypatch):
    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            raise KeyboardInterrupt

    monkeypatch.setattr("ncarl.io.base.Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(prefetch(iter(int, 1)))


def test_ctrl_c_while_an_item_is_awaited_ends_the_thread():
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
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_an_open_iterator_does_not_keep_python_from_ending():
    code = (
        "from ncarl.io import prefetch\n"
        "found = prefetch(iter(int, 1)); next(found); print('over')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.returncode) == ("over", 0)


@pytest.mark.parametrize("ahead", [0, -1, 1.5, True])
def test_ahead_must_be_a_whole_number(ahead):
    with pytest.raises(ValueError, match="buffer_size must be a whole number"):
        prefetch([], ahead)

"""Tests of the Dask engine: agreement with other engines, reproducibility."""

from __future__ import annotations

import _thread
import gc
import threading
import time
from functools import reduce
from operator import iadd

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import ncarl
from ncarl import NCARL, BayesianNCARL, Threads
from ncarl.core.rows import Kernel, row_gram

pytest.importorskip("distributed")
from ncarl.engines.dask import Dask, place_blocks

FEW = {"max_iter": 5, "tol": 0, "alpha": 1.0, "n_neighbors": 4}
OPTIONS = {
    "floor": FEW,
    "pinv": {**FEW, "weights": "pinv"},
    "noisy": {**FEW, "gamma": 0.1},
}


def all_results(model, X):
    """All results of a fitted estimator on a matrix."""
    i, j = np.arange(20) % len(X), np.arange(20) % X.shape[1]
    std = {} if getattr(model, "gamma", 1.0) is None else {"return_std": True}
    found = [model.transform(X, **std), model.predict(i, j, **std)]
    flat = [array for part in found for array in (part if std else (part,))]
    return [*flat, model.kernel_]


def assert_same_as_threads(estimator, engine, options, X):
    ours, theirs = (
        all_results(estimator(engine=e, **options).fit(X), X)
        for e in (engine, Threads(1))
    )
    for found, expected in zip(ours, theirs, strict=True):
        assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@pytest.fixture
def kernel(X):
    return Kernel(np.eye(12) + 0.5, None, 0.1)


@pytest.mark.parametrize("options", OPTIONS)
def test_results_equal_those_of_threads(engine, options, X):
    assert_same_as_threads(NCARL, engine, OPTIONS[options], X)


@pytest.mark.parametrize("validation", [0, None])
def test_bayesian_results_equal_those_of_threads(threads, validation, X):
    options = {"max_iter": 2, "tol": 0}
    if validation is not None:
        options["validation"] = validation
    assert_same_as_threads(BayesianNCARL, threads, options, X[:30, :6])


def test_results_are_bit_identical_for_threads_and_processes(threads, processes, X):
    engines = (threads, threads, processes)
    first, *others = (NCARL(engine=e, **FEW).fit(X) for e in engines)
    for other in others:
        assert_array_equal(first.kernel_, other.kernel_)
        assert_array_equal(first.transform(X), other.transform(X))


def test_matrix_has_several_blocks(threads, X):
    assert threads._n_blocks(*X.shape) == 8


def test_map_returns_results_in_block_order(engine, blocks):
    def slow_first(block, *, backend):
        time.sleep(0.1 if block.rows[0] == first else 0.0)
        return block.rows

    first = blocks[0].rows[0]
    found = list(engine.map(slow_first, place_blocks(engine.link, blocks)))
    assert [rows.tolist() for rows in found] == [b.rows.tolist() for b in blocks]


def test_total_is_the_sum_over_blocks(engine, blocks, kernel):
    placed = place_blocks(engine.link, blocks)
    total = engine.total(row_gram, placed, kernel=kernel)
    by_hand = reduce(iadd, (row_gram(b, kernel=kernel) for b in blocks))
    assert_allclose(total.gram, by_hand.gram, rtol=1e-12)
    assert_allclose(total.fit, by_hand.fit, rtol=1e-12)
    assert len(total.timestamps) == len(by_hand.timestamps)


@pytest.mark.parametrize("count", [1, 2, 8, 9, 65])
def test_total_adds_in_block_order(threads, count):
    def as_list(number, *, backend):
        return [number]  # lists are concatenated

    found = threads.total(as_list, place_blocks(threads.link, range(count)))
    assert found == list(range(count))


def test_total_does_not_modify_its_terms(threads, delay):
    given = [np.full(3, float(k)) for k in range(4)]
    placed = place_blocks(threads.link, given)
    first, second = (threads.total(delay(0.0), placed) for _ in range(2))
    assert_array_equal(first, second)
    assert_array_equal(given[0], np.zeros(3))


def test_blas_uses_one_thread_in_tasks(engine, blocks):
    def most_threads(block, *, backend):
        from threadpoolctl import threadpool_info

        found = threadpool_info()
        return max(p["num_threads"] for p in found if p["user_api"] == "blas")

    assert set(engine.map(most_threads, place_blocks(engine.link, blocks[:2]))) == {1}


@pytest.mark.parametrize("error", [OSError, TimeoutError])
def test_task_error_is_raised_unchanged(engine, blocks, error):
    def fail(block, *, backend):
        raise error(f"no file for row {block.rows[0]}")

    for run in (engine.total, lambda *a: list(engine.map(*a))):
        with pytest.raises(error, match=f"no file for row {blocks[0].rows[0]}"):
            run(fail, place_blocks(engine.link, blocks[:1]))


@pytest.fixture
def holds_at_most(engine):
    """Function that checks that workers become idle and hold at most some results."""
    client = engine.link.client
    gc.collect()  # tracebacks of other tests may hold futures
    before = set(client.who_has())

    def check(most):
        for _ in range(200):
            new = set(client.who_has()) - before
            if len(new) <= most and not any(client.processing().values()):
                return True
            time.sleep(0.02)
        return False

    return check


def test_results_are_released_after_a_pass(engine, blocks, kernel, holds_at_most):
    placed = place_blocks(engine.link, blocks)
    engine.total(row_gram, placed, kernel=kernel)
    list(engine.map(row_gram, placed, kernel=kernel))
    assert holds_at_most(len(blocks))
    del placed
    assert holds_at_most(0)


def test_map_limits_the_number_of_pending_results(threads, delay):
    placed = place_blocks(threads.link, range(40))
    before = len(threads.link.client.futures)
    results = threads.map(delay(0.0), placed)
    next(results)
    for _ in range(100):  # futures are released asynchronously
        if len(threads.link.client.futures) <= before + 2 * 2 + 1:
            break
        time.sleep(0.02)
    assert len(threads.link.client.futures) <= before + 2 * 2 + 1
    results.close()


@pytest.mark.parametrize("engine", ["threads"], indirect=True)
def test_closing_the_results_cancels_pending_tasks(engine, holds_at_most, delay):
    placed = place_blocks(engine.link, range(40))
    results = engine.map(delay(0.2), placed)
    next(results)
    results.close()
    assert holds_at_most(40)


@pytest.mark.parametrize("engine", ["threads"], indirect=True)
def test_ctrl_c_cancels_a_pass_and_keeps_the_engine(engine, holds_at_most, delay, X):
    def press_ctrl_c():
        # Repeatedly, since Python drops interrupts that arrive inside a finalizer.
        for pause in (0.3, *[1.0] * 8):
            if ended.wait(pause):
                return
            pressed.append(time.monotonic())
            _thread.interrupt_main()

    placed = place_blocks(engine.link, range(400))
    ended, pressed = threading.Event(), []
    threading.Thread(target=press_ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        engine.total(delay(0.1), placed)
    ended.set()
    assert time.monotonic() - pressed[-1] < 5.0  # all tasks take 20 seconds
    assert holds_at_most(400)
    assert np.isfinite(NCARL(engine=engine, **FEW).fit_transform(X)).all()


@given(rows=st.integers(1, 10**7), columns=st.integers(1, 10**4))
def test_blocks_are_enough_for_all_threads_and_no_more_than_pay(threads, rows, columns):
    wanted = threads._n_blocks(rows, columns)
    assert 1 <= wanted <= min(rows, 8)


def test_number_of_blocks_grows_with_the_matrix(threads, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("ncarl.engines.dask.MIN_ROWS_PER_TASK", 500)
    monkeypatch.setattr("ncarl.engines.dask.ROWS_PER_SUM_ENTRY", 0.01)
    assert threads._n_blocks(60, 12) == 1
    assert threads._n_blocks(2000, 2000) == 2
    assert threads._n_blocks(10**6, 500) == 8


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (NCARL, FEW),
        (NCARL, OPTIONS["noisy"]),
        (BayesianNCARL, {"max_iter": 3, "tol": 0, "validation": 0}),
    ],
)
def test_n_by_n_work_on_a_device_gives_the_same_results(threads, X, estimator, options):
    pytest.importorskip("torch")
    engine = Dask(threads.link.client, device="cpu:0")
    assert_same_as_threads(estimator, engine, options, X)
    assert engine.describe().endswith("n x n work on cpu:0")


def test_model_is_saved_without_its_engine(threads, X, tmp_path):
    model = NCARL(engine=threads, **FEW).fit(X)
    model.save(tmp_path / "model")
    loaded = ncarl.load(tmp_path / "model")
    assert loaded.engine == "auto"
    assert_allclose(loaded.transform(X), model.transform(X), rtol=0, atol=1e-12)


def test_clones_share_the_connection(threads, X):
    model = clone(NCARL(engine=threads, **FEW))
    assert model.engine is threads
    assert np.isfinite(model.fit_transform(X)).all()


def test_describe(engine):
    said = engine.describe()
    assert said.startswith("dask: ")
    assert "2 workers with 2 threads" in said
    assert engine.link.client.scheduler.address in said
    assert engine.cluster in said

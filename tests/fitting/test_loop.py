"""Tests of the loop that runs every solver."""

from __future__ import annotations

import contextlib

import pytest

from ncarl.fitting.loop import Iterate, drive
from ncarl.progress import percent_bar, progress_bar


def Step(step, change=1.0, may_stop=True):  # noqa: N802
    return Iterate(None, 2.0, change, {}, may_stop, step, {"rows": 0.5})


def steps(*changes, first=1):
    """Iterates with the given changes; raise if more are requested."""
    for number, change in enumerate(changes, start=first):
        yield Step(number, change)
    raise AssertionError("the loop asked for a step too many")


def run(iterates, *, max_iter=10, tol=0.0, **options):
    return drive(lambda last: iterates, max_iter=max_iter, tol=tol, **options)


def test_stops_at_the_first_change_below_tol():
    result = run(steps(1.0, 0.1, 0.01), tol=0.1)
    assert result.last.step == 3  # the change must be below tol
    assert result.converged
    assert not result.interrupted


def test_continues_while_the_solver_does_not_allow_stopping():
    iterates = iter([Step(1, 0.01, may_stop=False), Step(2, 0.01)])
    result = run(iterates, tol=0.1)
    assert result.last.step == 2
    assert result.converged


def test_stops_unconverged_after_max_iter():
    result = run(steps(1.0, 1.0), max_iter=2, tol=1e-3)
    assert result.last.step == 2
    assert not result.converged


def test_zero_tol_runs_all_steps():
    result = run(steps(0.0, 0.0, 0.0), max_iter=3, tol=0.0)
    assert result.last.step == 3
    assert not result.converged


def test_max_iter_refers_to_the_step_of_the_iterates():
    result = run(steps(1.0, 1.0, first=9), max_iter=10)
    assert result.last.step == 10


def test_history_has_one_entry_per_step_in_data_units():
    result = run(steps(1.0, 0.5), max_iter=2, scale=100.0)
    assert result.history == {
        "step": [1, 2],
        "objective": [200.0, 200.0],
        "change": [1.0, 0.5],
        "jitter": [0.0, 0.0],
        "seconds_rows": [0.5, 0.5],
    }


def test_observers_are_called_after_each_recorded_step():
    seen = []
    run(
        steps(1.0, 1.0),
        max_iter=2,
        observers=[
            lambda it, history: seen.append((it.step, history.columns["step"][-1]))
        ],
    )
    assert seen == [(1, 1), (2, 2)]


def test_observer_returning_true_stops_after_all_are_called():
    seen = []
    result = run(
        steps(1.0, 1.0),
        observers=[lambda it, _: it.step == 2, lambda it, _: seen.append(it.step)],
    )
    assert result.last.step == 2
    assert seen == [1, 2]
    assert not result.converged


def test_observer_must_return_true_to_stop():
    result = run(steps(1.0, 1.0), max_iter=2, observers=[lambda it, _: "yes"])
    assert result.last.step == 2


def test_interruption_keeps_the_last_complete_step():
    def interrupt():
        yield Step(1)
        yield Step(2)
        raise KeyboardInterrupt

    result = run(interrupt())
    assert result.interrupted
    assert result.last.step == 2
    assert result.history["step"] == [1, 2]


def test_interruption_in_an_observer_keeps_its_step():
    def interrupt_at_two(iterate, history):
        if iterate.step == 2:
            raise KeyboardInterrupt

    result = run(steps(1.0, 1.0), observers=[interrupt_at_two])
    assert result.interrupted
    assert result.last.step == 2


def test_interruption_before_the_first_step_propagates():
    def interrupt():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        run(interrupt())


def test_solver_without_steps_raises():
    with pytest.raises(ValueError, match="no step"):
        run(iter(()))


def test_progress_bar_that_ends_early_shows_completion(capsys):
    with progress_bar(True, 100, "fit") as advance:
        for _ in range(3):
            advance("change 1e-3")
    assert "3/3" in capsys.readouterr().err


def test_percent_bar_goes_from_0_to_100(monkeypatch):
    moved = []
    monkeypatch.setattr(
        "ncarl.progress.progress_bar", lambda *_: contextlib.nullcontext(moved.append)
    )
    with percent_bar(True, 7, "writing") as reached:
        for done in range(1, 8):
            reached(done)
            assert len(moved) == 100 * done // 7
            reached(done - 1)  # never backwards
    assert len(moved) == 100

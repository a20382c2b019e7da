"""The loop that drives every solver."""

from __future__ import annotations

import contextlib

import pytest

from ncarl.fitting.loop import Iterate, drive
from ncarl.progress import percent_bar, progress_bar


def Step(step, change=1.0, may_stop=True):  # noqa: N802
    return Iterate(None, 2.0, change, {}, may_stop, step, {"rows": 0.5})


def steps(*changes, first=1):
    """Iterates with these changes, and more than anybody should ask for."""
    for number, change in enumerate(changes, start=first):
        yield Step(number, change)
    raise AssertionError("the loop asked for a step too many")


def run(iterates, *, max_iter=10, tol=0.0, **options):
    return drive(lambda last: iterates, max_iter=max_iter, tol=tol, **options)


def test_it_stops_at_the_first_change_below_the_tolerance():
    result = run(steps(1.0, 0.1, 0.01), tol=0.1)
    assert result.last.step == 3  # 0.1 is not below 0.1
    assert result.converged
    assert not result.interrupted


def test_it_goes_on_while_the_solver_says_that_a_small_change_means_nothing():
    iterates = iter([Step(1, 0.01, may_stop=False), Step(2, 0.01)])
    result = run(iterates, tol=0.1)
    assert result.last.step == 2
    assert result.converged


def test_it_stops_after_the_most_steps_without_claiming_to_have_converged():
    result = run(steps(1.0, 1.0), max_iter=2, tol=1e-3)
    assert result.last.step == 2
    assert not result.converged


def test_a_tolerance_of_zero_runs_all_steps_even_if_nothing_changes():
    result = run(steps(0.0, 0.0, 0.0), max_iter=3, tol=0.0)
    assert result.last.step == 3
    assert not result.converged


def test_the_most_steps_are_counted_by_the_iterates_themselves():
    result = run(steps(1.0, 1.0, first=9), max_iter=10)
    assert result.last.step == 10


def test_history_has_one_entry_a_step_in_the_units_of_the_user():
    result = run(steps(1.0, 0.5), max_iter=2, scale=100.0)
    assert result.history == {
        "step": [1, 2],
        "objective": [200.0, 200.0],
        "change": [1.0, 0.5],
        "jitter": [0.0, 0.0],
        "seconds_rows": [0.5, 0.5],
    }


def test_observers_see_every_step_after_it_was_recorded():
    seen = []
    run(
        steps(1.0, 1.0),
        max_iter=2,
        observers=[
            lambda it, history: seen.append((it.step, history.columns["step"][-1]))
        ],
    )
    assert seen == [(1, 1), (2, 2)]


def test_an_observer_that_returns_true_stops_the_run_and_all_are_still_called():
    seen = []
    result = run(
        steps(1.0, 1.0),
        observers=[lambda it, _: it.step == 2, lambda it, _: seen.append(it.step)],
    )
    assert result.last.step == 2
    assert seen == [1, 2]
    assert not result.converged


def test_an_observer_must_say_true_and_not_merely_something():
    result = run(steps(1.0, 1.0), max_iter=2, observers=[lambda it, _: "yes"])
    assert result.last.step == 2


def test_an_interruption_keeps_the_last_whole_step():
    def interrupted():
        yield Step(1)
        yield Step(2)
        raise KeyboardInterrupt

    result = run(interrupted())
    assert result.interrupted
    assert result.last.step == 2
    assert result.history["step"] == [1, 2]


def test_an_interruption_inside_an_observer_keeps_the_step_it_saw():
    def press(iterate, history):
        if iterate.step == 2:
            raise KeyboardInterrupt

    result = run(steps(1.0, 1.0), observers=[press])
    assert result.interrupted
    assert result.last.step == 2


def test_an_interruption_before_the_first_step_is_passed_on():
    def interrupted():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        run(interrupted())


def test_a_solver_without_steps_is_an_error():
    with pytest.raises(ValueError, match="no step"):
        run(iter(()))


def test_a_bar_whose_work_ends_sooner_shows_all_of_it_as_done(capsys):
    with progress_bar(True, 100, "fit") as advance:
        for _ in range(3):
            advance("change 1e-3")
    assert "3/3" in capsys.readouterr().err


def test_a_bar_of_work_of_known_size_goes_from_nothing_to_all(monkeypatch):
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

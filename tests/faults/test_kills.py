"""Tests that fits killed at any time resume to bit-identical results."""

from __future__ import annotations

import signal

import numpy as np
import pytest

pytestmark = pytest.mark.slow

#: Where a child kills itself: during a write, before a file is synced (or its folder,
#: after the move), before it is moved, before it is locked.
TRAPS = ("write", "sync", "move", "write", "lock", "write", "sync", "write")


def kill(case, rng, longest, traps, others, most=30):
    """Kill a fit at random times, sometimes while it writes."""
    plan = [*traps, *[None] * others]
    for trap in rng.permutation(np.array(plan, dtype=object)):
        if trap is None:
            status = case.run(send=signal.SIGKILL, after=rng.uniform(0.0, longest))
        else:
            status = case.run(trap=(trap, int(rng.integers(1, most))))
            # The partial file is kept until the next successful write.
            assert case.names[0].startswith(".state") or trap == "sync"
        assert status == -signal.SIGKILL
        yield trap


@pytest.mark.parametrize("every", [0.0, 0.015])
def test_fit_killed_twenty_times(case, every):
    options = {"max_iter": 500, "tol": 0, "alpha": 1.0, "n_neighbors": 4}
    found = case("NCARL", options, every=every, pause=0.004)
    kills = list(kill(found, np.random.default_rng(7), 0.1, TRAPS, 12))
    assert len(kills) == 20
    # Only the last kill may leave a partial file: each successful write cleans up.
    assert len(found.names) <= 2
    found.assert_resumes_exactly()
    assert found.names == ["state"]


def test_search_killed_six_times(case):
    options = {"alphas": (0.0, 1.0, 10.0), "gammas": (None, 0.1), "centers": (None,),
               "search_iter": 10, "max_iter": 300, "tol": 0}  # fmt: skip
    found = case("NCARLCV", options, pause=0.004)
    for _ in kill(found, np.random.default_rng(3), 0.1, ("write", "sync"), 4):
        pass
    found.assert_resumes_exactly()
    assert found.names == ["state", "state.fit"]


def test_bayesian_fit_killed_nine_times(case):
    # Too many steps to be finished in nine runs.
    options = {"max_iter": 300, "tol": 0, "sides": "both", "validation": 0}
    found = case("BayesianNCARL", options, pause=0.004)
    traps = ("write", "sync", "move", "move", "lock")
    kills = list(kill(found, np.random.default_rng(5), 0.15, traps, 4, most=12))
    assert len(kills) == 9
    assert "state.columns" in found.names  # reached, but not finished
    found.assert_resumes_exactly()
    assert found.names == ["state.columns", "state.rows"]


def test_bayesian_search_killed_at_every_stage(case):
    options = {"max_iter": 60, "tol": 0, "sides": "both", "prior_strength": 0.1}
    found = case("BayesianNCARL", options, pause=0.001)
    # Each run adds at most one of the four stages before the final fits.
    for trap in (("move", 1), ("lock", 1), ("move", 2), ("sync", 3), ("move", 2)):
        assert found.run(trap=trap) == -signal.SIGKILL
    assert "state" in found.names
    assert "state.columns" not in found.names
    found.assert_resumes_exactly()
    assert found.names == ["state", "state.columns", "state.rows"]

"""The self-test of ``ncarl doctor``: one small matrix, completed by every engine."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ncarl import gpu
from ncarl.cli.devices import telling
from ncarl.core.types import Array
from ncarl.engines import Engine, Threads
from ncarl.estimators.ncarl import NCARL

ROWS, COLUMNS, RANK, STEPS = 300, 120, 4, 8
#: A sound fit comes to 0.002 after so many steps; guessing zero is 1.
MOST_ERROR = 0.02
#: Engines sum in another order, which after so many steps is 1e-12 of the largest
#: entry.
MOST_DISAGREEMENT = 1e-9


@dataclass(frozen=True)
class Check:
    """One thing that has to hold, and what was found."""

    passed: bool
    detail: str


@dataclass(frozen=True)
class Trial:
    """The checks of one engine.

    Attributes
    ----------
    skipped : str or None
        Why it was not tried.
    step_seconds : float or None
        Time of a step once everything is loaded and compiled.
    seconds : float or None
        Time of the whole trial, loading and compiling counted in.
    """

    engine: str
    checks: tuple[Check, ...] = ()
    skipped: str | None = None
    step_seconds: float | None = None
    seconds: float | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing went wrong; what was skipped did not."""
        return all(check.passed for check in self.checks)


@dataclass(frozen=True)
class Problem:
    """A matrix of low rank, and which of its entries are hidden."""

    truth: Array
    hidden: Array

    @property
    def seen(self) -> Array:
        """The matrix with gaps."""
        return np.where(self.hidden, np.nan, self.truth)


def problem() -> Problem:
    """The matrix of the self-test, always the same; 40 % of it is hidden.

    Rows have from few to many gaps, so that both ways to solve a row are tried.
    """
    rng = np.random.default_rng(0)
    left, right = (
        rng.standard_normal((ROWS, RANK)),
        rng.standard_normal((RANK, COLUMNS)),
    )
    gaps = np.linspace(0.1, 0.7, ROWS)[:, None]
    return Problem(left @ right, rng.random((ROWS, COLUMNS)) < gaps)


def self_test(*, full: bool = False) -> tuple[Trial, ...]:
    """Try the threads, and PyTorch on the GPU where there is one.

    ``full`` tries PyTorch on the processor too, which takes seconds to load.
    """
    given = problem()
    threads, reference = attempt("threads", Threads, given)
    trials = [threads]
    trouble = gpu.gpu_trouble()
    if trouble is None:
        trials.append(attempt("torch (cuda)", _torch("cuda"), given, reference)[0])
    else:
        trials.append(Trial("torch (cuda)", skipped=trouble))
    if importlib.util.find_spec("torch") is None:
        return tuple(trials)
    if full:
        trials.append(attempt("torch (cpu)", _torch("cpu"), given, reference)[0])
    elif trouble is not None:
        why = "PyTorch loads slowly; ncarl doctor --full tries it"
        trials.append(Trial("torch (cpu)", skipped=why))
    return tuple(trials)


def _torch(device: str) -> Callable[[], Engine]:
    """What makes a torch engine; PyTorch is loaded when it is called."""

    def make() -> Engine:
        from ncarl.torch_engine import Torch

        return Torch(device=device)

    return make


def attempt(
    name: str,
    make: Callable[[], Engine],
    given: Problem,
    reference: Array | None = None,
) -> tuple[Trial, Array | None]:
    """The checks of one engine, and the matrix as it completed it.

    Parameters
    ----------
    name : str
        What to call the engine.
    make : callable
        Gives the engine; that may fail, too.
    given : Problem
        What to complete.
    reference : array, optional
        What another engine made of it.
    """
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            estimator = NCARL(alpha=1.0, max_iter=STEPS, tol=0.0, engine=make())
            filled = estimator.fit_transform(given.seen)
    except Exception as error:  # whatever it is, it belongs in the report
        failure = f"{type(error).__name__}: {gpu.first_line(error)}"
        return Trial(name, (Check(False, failure),)), None
    checks = [check_hidden(filled, given), check_observed(filled, given)]
    if reference is not None:
        checks.append(check_agreement(filled, reference))
    checks += [Check(True, f"but warned: {line}") for line in telling(warned)]
    seconds = time.perf_counter() - start
    return Trial(name, tuple(checks), None, step_time(estimator), seconds), filled


def step_time(estimator: NCARL) -> float:
    """Median seconds of a step; the first, in which code is compiled, is left out."""
    parts = [v for k, v in estimator.history_.items() if k.startswith("seconds_")]
    return float(np.median(np.sum(parts, axis=0)[1:]))


def check_hidden(filled: Array, given: Problem) -> Check:
    """Whether hidden entries were found."""
    truth = given.truth[given.hidden]
    gap = np.linalg.norm(filled[given.hidden] - truth) / np.linalg.norm(truth)
    # NaN is not below anything.
    found = f"error {gap:.1e} on hidden entries (must be below {MOST_ERROR:g})"
    return Check(bool(gap < MOST_ERROR), found)


def check_observed(filled: Array, given: Problem) -> Check:
    """Whether observed entries are what they were, to the last bit."""
    kept = filled[~given.hidden].tobytes() == given.truth[~given.hidden].tobytes()
    words = "kept bit for bit" if kept else "changed"
    return Check(kept, f"observed entries {words}")


def check_agreement(filled: Array, reference: Array) -> Check:
    """Whether two engines agree."""
    gap = np.abs(filled - reference).max() / np.abs(reference).max()
    found = f"agrees with threads to {gap:.1e} (must be below {MOST_DISAGREEMENT:g})"
    return Check(bool(gap < MOST_DISAGREEMENT), found)

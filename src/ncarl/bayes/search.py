"""How strong the prior is and when to stop, by the errors on held-out entries.

EM left alone fits the noise of a sparse matrix: the error on hidden entries falls,
turns, and rises. The number of steps at the turn is what is learned here. Where the
error does turn, the strength of the prior hardly matters (MovieLens-100K: from 0.03 to
0.5 the best error moves by 0.001); where it settles, strengths are tried until one is
better than its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ncarl.bayes.cuts import Cut, for_choice, for_weighing
from ncarl.bayes.held_out import HeldOut
from ncarl.bayes.journal import Arrays, Journal
from ncarl.bayes.side import Side, Ways, step_cost
from ncarl.bayes.state import Iterate, State
from ncarl.bayes.weighing import Held
from ncarl.core.linalg import mean_diagonal
from ncarl.engines import Engine
from ncarl.loop import History, Result

#: Pseudo-rows of the prior over the longer side: first try, factor between tries.
FIRST_STRENGTH, FACTOR = 0.1, 3.0
#: Strengths beyond these are not tried.
WEAKEST, STRONGEST = 1e-3, 30.0
#: Gains below this part of the error are none.
GAIN = 1e-3
#: Flops of a step from which a strength that needs no better one is not questioned:
#: some tenths of a second on two cores.
DEAR = 5e9
#: Where steps are dear, trials are made in single precision, unless some column has a
#: noise below this part of the kernel's diagonal, which takes more digits.
NOISE_FOR_SINGLE = 0.02
#: Steps without a new best that end a run, and what counts as one.
PATIENCE, NEW_BEST = 4, 3e-4
#: An error that has risen by this part of itself is not waited for if steps are dear.
RISEN = 5e-3

#: Observers of a run, made for its label.
Watch = Callable[[str], AbstractContextManager[list[object]]]


@dataclass
class _Run:
    """Squared error on the hidden entries after every step of one run."""

    held_out: HeldOut
    hasty: bool = False
    curve: list[float] = field(default_factory=list)
    best: State | None = None

    def __call__(self, iterate: Iterate, history: History) -> bool:
        """Observe a step; True where enough has been seen."""
        errors = self.held_out.errors(iterate.found)
        self.curve.append(float(errors @ errors))
        if self.step == len(self.curve):
            self.best = iterate.found.state
        least = self.curve[self.step - 1]
        if self.hasty and self.curve[-1] > least * (1.0 + 2 * RISEN):
            return True
        enough = least * (1.0 + 2 * NEW_BEST)
        since = next(k for k, error in enumerate(self.curve, 1) if error <= enough)
        return len(self.curve) - since >= PATIENCE

    @property
    def noisy_enough(self) -> bool:
        """Whether the noise of the best state leaves digits to single precision."""
        assert self.best is not None
        noise, K = self.best.noise, self.best.K
        return float(noise.min()) >= NOISE_FOR_SINGLE * mean_diagonal(K)

    @property
    def step(self) -> int:
        """The step with the least error."""
        return int(np.argmin(self.curve)) + 1


@dataclass(frozen=True)
class Trial:
    """What one strength came to.

    Attributes
    ----------
    strength : float
        Strength of the prior.
    error : float
        Root mean square error on the hidden entries of all cuts.
    steps : int
        Steps after which it was least.
    turned : bool
        Whether it has risen again since.
    settled : bool
        Whether the run ended by itself, not at its last allowed step.
    """

    strength: float
    error: float
    steps: int
    turned: bool
    settled: bool


class SideSearch:
    """Trials of one side of a matrix.

    Parameters
    ----------
    name : {"columns", "rows"}
        The side.
    cuts : list of Cut
        In the orientation of the side.
    ways : Ways
        The model.
    engine : Engine
        Where to work.
    max_iter, tol
        Most steps of a run, and the gain that ends it.
    journal : Journal
        Where results are kept.
    watch : callable
        Observers of a run by its label.
    near : tuple of int
        Numbers of nearest rows to be heard about held-out entries.
    """

    def __init__(
        self, name: str, cuts: list[Cut], ways: Ways, engine: Engine, *,
        max_iter: int, tol: float, journal: Journal, watch: Watch,
        near: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.name, self.cuts, self.ways, self.engine = name, cuts, ways, engine
        self.max_iter, self.tol = max_iter, tol
        self.journal, self.watch, self.near = journal, watch, near
        # The rows seldom have the larger say, and their steps can be dear.
        self.tried_on = for_choice(cuts) if name == "columns" else 1
        self.dear = step_cost(cuts[0].kept.survey) > DEAR
        self.single = self.dear and _few_digits_do(ways, engine)
        self.asked: dict[int, HeldOut] = {}
        self.runs: list[_Run] = []
        self.trials: list[Trial] = []

    def choose(self, strength: float | None) -> Trial:
        """The best trial; only the given strength is tried if there is one."""
        best = self.trial(FIRST_STRENGTH if strength is None else strength)
        if strength is not None or (best.turned and self.dear):
            return best
        for factor in (1.0 / FACTOR, FACTOR):
            moved = False
            while WEAKEST <= best.strength * factor <= STRONGEST:
                tried = self.trial(best.strength * factor)
                if tried.error >= best.error * (1.0 - GAIN):
                    break
                best, moved = tried, True
            if moved:
                break
        return best

    def trial(self, strength: float) -> Trial:
        """Run the cuts with one strength."""
        label = f"{self.name} {strength:.3g}"
        found = self.journal(f"trial {label}", lambda: self._tried(strength, label))
        self.single = bool(found["single"])
        trial = Trial(
            strength,
            float(found["error"]),
            int(found["steps"]),
            bool(found["turned"]),
            bool(found["settled"]),
        )
        self.trials.append(trial)
        return trial

    def _tried(self, strength: float, label: str) -> Arrays:
        """Curves of the cuts, added up."""
        settled = self._all_ended(strength, label)
        if self.single and not all(run.noisy_enough for run in self.runs):
            self.single = False
            self.asked.clear()
            settled = self._all_ended(strength, label)
        length = max(len(run.curve) for run in self.runs)
        curves = [
            np.pad(r.curve, (0, length - len(r.curve)), "edge") for r in self.runs
        ]
        hidden = sum(run.held_out.hidden.n_observed for run in self.runs)
        curve = np.sqrt(np.sum(curves, axis=0) / hidden)
        steps = int(np.argmin(curve)) + 1
        turned = curve[-1] > curve[steps - 1] * (1.0 + GAIN)
        settled |= steps < length  # the least error has been passed
        error = curve[steps - 1]
        return {
            "error": error, "steps": steps, "turned": turned, "settled": settled,
            "single": self.single,
        }  # fmt: skip

    def _all_ended(self, strength: float, label: str) -> bool:
        """Whether the runs of all cuts ended before their last allowed step."""
        self.runs = [self._run(k) for k in range(self.tried_on)]
        ended = [self._ended(run, strength, label) for run in self.runs]
        return all(ended)

    def _run(self, k: int) -> _Run:
        """A run of one cut, which is made ready once."""
        cut = self.cuts[k]
        if k not in self.asked:
            dtype = "float32" if self.single else self.ways.dtype
            side = Side(cut.kept, replace(self.ways, dtype=dtype), self.engine)
            self.asked[k] = HeldOut(side, cut.asked, cut.hidden)
        return _Run(self.asked[k], hasty=self.dear)

    def _ended(self, run: _Run, strength: float, label: str) -> bool:
        """Whether a run, watched by itself, ended before its last allowed step."""
        result = self._climbed(run, strength, self.max_iter, [run], label)
        return result.converged or result.last.step < self.max_iter

    def _climbed(
        self, run: _Run, strength: float, steps: int, observers: list[Any], label: str
    ) -> Result[Iterate]:
        """Where a climb of so many steps ends."""
        with self.watch(label) as seen:
            result = run.held_out.side.run(
                strength, max_iter=steps, tol=self.tol, observers=[*observers, *seen]
            )
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def held_out(self, trial: Trial) -> list[Held]:
        """What the side makes of the hidden entries, cut by cut."""
        found = self.journal(f"held out {self.name}", lambda: self._held_out(trial))
        return [
            Held(
                found[f"errors {k}"],
                found[f"deviations {k}"],
                {
                    c: found[f"near {c} {k}"]
                    for c in self.near
                    if f"near {c} {k}" in found
                },
            )
            for k in for_weighing(self.cuts)
        ]

    def _held_out(self, trial: Trial) -> Arrays:
        """As `held_out`, from runs that end where the trial was best."""
        arrays: Arrays = {}
        fresh = self.runs if self.trials[-1] == trial else []
        for k in for_weighing(self.cuts):
            run = fresh[k] if k < len(fresh) else self._run(k)
            state = run.best if run.curve and run.step == trial.steps else None
            if state is None:
                label = f"{self.name} again"
                end = self._climbed(run, trial.strength, trial.steps, [], label)
                state = end.last.found.state
            errors, spread = run.held_out.errors_and_deviations(state)
            arrays |= {f"errors {k}": errors, f"deviations {k}": spread}
            terms = run.held_out.near_terms(state, self.near)
            arrays |= {f"near {count} {k}": term for count, term in terms.items()}
        return arrays


def _few_digits_do(ways: Ways, engine: Engine) -> bool:
    """Whether single precision may do for a trial, and is faster.

    A prior that is given may be all but singular. A GPU for numbers of this size is as
    fast in double precision.
    """
    named, noisy = isinstance(ways.prior, str), ways.noise != 0.0
    return ways.dtype == "float64" and named and noisy and not engine.home.queued

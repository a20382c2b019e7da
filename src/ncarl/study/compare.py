"""Which method suits a matrix: hide some of what is known, and see who finds it.

Every fit has a process of its own, so that its memory is its own, and neither a crash
nor a fit without end takes the others down.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncarl import __version__
from ncarl.containers import read
from ncarl.engines import available_cores
from ncarl.gpu import torch_installed
from ncarl.observed import Observed
from ncarl.study.cells import DONE
from ncarl.study.compare_advice import Recommendation, recommend
from ncarl.study.compare_draws import draws_of, units_of
from ncarl.study.compare_fit import mean_fit, read_draw, write_data, write_mask
from ncarl.study.compare_lines import LEVEL, Fit, Line, fit_of, lines_of
from ncarl.study.compare_plan import DEFAULT, Plan
from ncarl.study.pool import Answer, Job, Lane, Pool

#: A process that has not ended by itself is ended this long after its budget: a part
#: of that, and seconds to start and to compile.
GRACE, START = 0.1, 30.0
LANE = "fits"
Progress = Callable[[Fit], object]


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes
    ----------
    plan : Plan
        What was asked for.
    shape : tuple of int
        Of the matrix.
    known : int
        Entries that are not missing.
    hidden : tuple of int
        How many of them each draw hid.
    lines : tuple of Line
        Methods and the yardstick "mean", the least error first.
    recommendation : Recommendation
        Which method to go on with.
    """

    plan: Plan
    shape: tuple[int, int]
    known: int
    hidden: tuple[int, ...]
    lines: tuple[Line, ...]
    recommendation: Recommendation

    @property
    def unit(self) -> str:
        """What errors are counted in."""
        scaled = self.plan.by_column
        return "standard deviations of the column" if scaled else "the data's own units"

    def record(self) -> dict[str, Any]:
        """The comparison as JSON can hold it."""
        return {
            "ncarl": __version__,
            "plan": self.plan.record(),
            "shape": list(self.shape),
            "known": self.known,
            "hidden": list(self.hidden),
            "error_unit": self.unit,
            "interval_level": LEVEL,
            "recommendation": self.recommendation.record(),
            "lines": [line.record() for line in self.lines],
        }


def compare(
    X: Any,
    methods: str | Iterable[str] = DEFAULT,
    hide: float = 0.1,
    repeats: int = 3,
    pattern: str = "alike",
    random_state: int = 0,
    engine: str = "auto",
    budget: float = 120.0,
    scale: str | Mapping[str, str | None] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """How well methods find entries of a matrix that are hidden from them.

    Parameters
    ----------
    X : array, masked array, frame or sparse matrix of shape (m, n)
        Matrix, with gaps or without: NaN, masked, null, or not stored.
    methods : iterable of str, or "all"
        Names of `ncarl.available_methods`; the yardstick "mean" is always there.
    hide : float
        Share of the known entries to hide; no row or column loses its last one.
    repeats : int
        How often; all methods see the same draws.
    pattern : {"alike", "random"}
        Hide entries as the gaps lie, in blocks where they do, or one by one.
    random_state : int
        Seed of what is hidden and of the methods.
    engine : {"auto", "threads", "torch"}
        Where the work is done.
    budget : float
        Seconds that a fit may take. A method that goes beyond, or fails, is not tried
        on the draws that are left.
    scale : {None, "columns"}, or mapping of names of methods to these
        Bring columns to one scale. Errors are in column standard deviations then.
    jobs : int
        Fits that run side by side; with more than one, times are no longer fair.
    progress : callable, optional
        Called with every `Fit` as it comes.

    Returns
    -------
    Comparison
        A line for each method, and a recommendation.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.study.compare import compare
    >>> X = np.add.outer(np.arange(12.0), np.arange(10.0))
    >>> found = compare(X, methods=["bias"], repeats=1)
    >>> found.recommendation.method, found.hidden
    ('bias', (12,))
    """
    plan = Plan(
        methods, hide, repeats, pattern, random_state, engine, budget, scale, jobs
    )
    return carry_out(plan, observed_of(X), progress)


def observed_of(X: Any) -> Observed:
    """The known entries of any container that the estimators read."""
    from ncarl.estimators.bias import BiasModel

    return read(BiasModel(), X, reset=True)


def carry_out(
    plan: Plan, observed: Observed, progress: Progress | None = None
) -> Comparison:
    """What a comparison of the observed entries of a matrix finds."""
    if plan.engine == "torch" and not torch_installed():
        raise ImportError(
            "engine='torch' needs PyTorch; install it with pip install 'ncarl[gpu]', "
            "or use engine='threads'"
        )
    heard = progress or (lambda fit: None)
    units = units_of(observed) if plan.by_column else np.ones(observed.shape[1])
    masks = draws_of(plan, observed, units)
    with tempfile.TemporaryDirectory(prefix="ncarl-compare-") as name:
        folder = Path(name)
        write_data(folder, observed, units)
        for draw, mask in enumerate(masks):
            write_mask(folder, draw, mask)
        fits = [
            mean_fit(read_draw(folder, draw), draw, by_column=plan.by_column)
            for draw in range(plan.repeats)
        ]
        fits += fits_of(payloads(plan, folder), plan.jobs, heard)
    lines = lines_of(fits)
    return Comparison(
        plan,
        observed.shape,
        observed.n_observed,
        tuple(int(np.count_nonzero(mask)) for mask in masks),
        lines,
        recommend(lines, by_column=plan.by_column),
    )


def payloads(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    """All fits of a plan, draw by draw."""
    shared = {
        "folder": str(folder),
        "seed": plan.random_state,
        "engine": plan.engine,
        "threads": max(1, available_cores() // plan.jobs),
        "budget": plan.budget,
    }
    return [
        {**shared, "method": method, "draw": draw, "scale": plan.scale_of(method)}
        for draw in range(plan.repeats)
        for method in plan.methods
    ]


def fits_of(
    wanted: Sequence[Mapping[str, Any]], jobs: int, heard: Progress
) -> list[Fit]:
    """What comes of fits, each in a process of its own.

    Once a method is over its budget or fails, its other fits are left out.
    """
    waiting, found, lost = deque(wanted), list[Fit](), set[str]()
    threads = max((payload["threads"] for payload in wanted), default=1)
    with Pool([Lane(LANE, jobs, threads)], fresh=True) as pool:
        while waiting or pool.running:
            while waiting and pool.has_room(LANE):
                payload = waiting.popleft()
                if payload["method"] not in lost:
                    pool.start(_job(payload))
            for fit in _fits(pool.wait()):
                found.append(fit)
                if fit.status != DONE:
                    lost.add(fit.method)
                heard(fit)
    return found


def _job(payload: Mapping[str, Any]) -> Job:
    """A fit as work for a process."""
    limit = payload["budget"] * (1.0 + GRACE) + START
    return Job("ncarl.study.compare_fit:fit_one", dict(payload), LANE, limit)


def _fits(answers: Iterable[Answer]) -> Iterator[Fit]:
    """Fits by their answers."""
    for answer in answers:
        if answer.trouble:
            asked = answer.job.payload
            yield Fit(
                asked["method"],
                asked["draw"],
                answer.trouble,
                message=answer.message,
            )
        else:
            yield fit_of(answer.value)

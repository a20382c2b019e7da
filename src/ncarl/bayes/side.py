"""One side of a matrix made ready for EM: its rows placed, its prior, its start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ncarl.bayes.em import em_iterates, in_noise_units
from ncarl.bayes.prior import prior_correlation
from ncarl.bayes.state import Belief, Climb, Iterate, Rows, State
from ncarl.blocks import group_costs
from ncarl.centering import mean_value, square_sum
from ncarl.centre import Centre
from ncarl.core.types import Array, Block
from ncarl.engines import Engine
from ncarl.loop import History, Result, drive
from ncarl.model import KernelModel
from ncarl.observed import Observed
from ncarl.preparing import as_one_block
from ncarl.surveys import Entries, Survey
from ncarl.two_way import two_way_columns

#: Where EM begins: so much of the variance about the effects in the kernel, so much in
#: the noise. They need not add up; the kernel's own grows in the first steps.
KERNEL_SHARE, NOISE_SHARE = 0.3, 0.8
#: No noise below this part of the variance: numbers have only so many digits.
LEAST_NOISE = 1e-8
#: And none below this part of the squares about the columns' means, which a kernel with
#: row effects has to hold too, or below so many units in the last place of the values.
LEAST_SHARE, DIGITS = 1e-10, 8.0
#: How far above rounding the variance of constant data is held.
NO_SPREAD = 1e-12


@dataclass(frozen=True)
class Ways:
    """How a side is modelled.

    Attributes
    ----------
    prior : {"co-observation", "identity"} or array
        Prior correlation of the columns; see `prior_correlation`.
    center : {"none", "mean", "columns", "two-way"}
        What varies about what: "two-way" means column means, and effects of rows as
        part of the kernel.
    noise : {"learn", "per-column"} or float
        Noise to learn, or its standard deviation.
    dtype : {"float64", "float32"}
        Precision of the work.
    """

    prior: Any = "co-observation"
    center: str = "two-way"
    noise: Any = "learn"
    dtype: str = "float64"


class Side:
    """Rows of a matrix whose columns carry a kernel, ready to be learned from.

    Parameters
    ----------
    entries : Entries
        Values of about unit size.
    ways : Ways
        The model.
    engine : Engine
        Where to work.
    """

    def __init__(self, entries: Entries, ways: Ways, engine: Engine) -> None:
        self.entries, self.ways, self.engine = entries, ways, engine
        survey = entries.survey
        self.n = n = len(survey.column_counts)
        engine.home.expect_fit(n, np.dtype(ways.dtype).itemsize)
        self.missing_side = survey.missing_side(n) and ways.noise != 0.0
        mean, row_variance, variance = self._effects()
        self.least_noise = self._least_noise(mean, variance)
        entries.let_go()
        counts = survey.column_counts.astype(ways.dtype)
        self.rows = Rows(
            engine=engine,
            blocks=entries.placed(engine, Cast(ways.dtype)),
            counts=engine.home.send(counts),
            n_rows=survey.seen_rows,
            n_observed=survey.n_observed,
            missing_side=self.missing_side,
            least_noise=self.least_noise,
        )
        self._start = (mean, row_variance, variance)

    def _least_noise(self, mean: Array, variance: float) -> float:
        """The least noise that numbers of this size and precision can tell."""
        count = self.entries.survey.n_observed
        about, size = self.entries.total(square_sum, centre=_about(mean)).added
        digits = DIGITS * float(np.finfo(self.ways.dtype).eps)
        return max(
            LEAST_NOISE * variance,
            LEAST_SHARE * float(about) / count,
            digits**2 * float(size) / count,
        )

    def _effects(self) -> tuple[Array, float, float]:
        """Means of the columns, variance of the rows' effects, and what is left."""
        entries, center, n = self.entries, self.ways.center, self.n
        count = entries.survey.n_observed
        overall = 0.0 if center == "none" else mean_value(entries)
        mean, ridge = np.full(n, overall), np.inf
        if center in ("columns", "two-way"):
            found = two_way_columns(entries, _about(mean))
            mean, ridge = overall + found.columns, found.row_ridge
        left, size = entries.total(square_sum, centre=_about(mean)).added
        if center == "two-way":
            left = found.squares
        total = max(size / count, NO_SPREAD)
        variance = max(left / count, NO_SPREAD * total)
        return mean, variance / ridge if center == "two-way" else 0.0, variance

    @cached_property
    def prior(self) -> Array:
        """Prior correlation, with what the rows' effects add to it."""
        _, row_variance, variance = self._start
        psi = prior_correlation(self.entries, self.ways.prior, self.engine)
        with self.engine.home.work(self.n):
            psi = psi + row_variance / (KERNEL_SHARE * variance)
        return self._in_dtype(psi)

    def _in_dtype(self, array: Array) -> Array:
        """An array of the home in the precision of the work."""
        if self.ways.dtype == "float64":
            return array
        home = self.engine.home
        return home.send(home.fetch(array).astype(self.ways.dtype))

    def start(self) -> State:
        """Where EM begins."""
        mean, _, variance = self._start
        given = self.ways.noise
        level = NOISE_SHARE * variance if isinstance(given, str) else float(given) ** 2
        send, dtype, n = self.engine.home.send, self.ways.dtype, len(mean)
        with self.engine.home.work(n):
            K = self.prior * (KERNEL_SHARE * variance)
        noise = send(np.full(n, level, dtype=dtype))
        return State(K, noise, send(mean.astype(dtype)), level > 0.0)

    def belief(self, strength: float) -> Belief:
        """The prior, worth ``strength`` times the longer side in rows."""
        learned = self.ways.noise if isinstance(self.ways.noise, str) else None
        learn_mean = self.ways.center in ("columns", "two-way")
        pseudo_rows = strength * max(self.rows.n_rows, self.n)
        return Belief(self.prior, pseudo_rows, learned, learn_mean)

    def run(
        self,
        strength: float,
        *,
        max_iter: int,
        tol: float,
        observers: list[Any],
        kept: tuple[Climb, int, History] | None = None,
    ) -> Result[Iterate]:
        """Climb from the start, or from where an earlier climb was kept."""
        climb, step, history = kept or (Climb(self.start()), 0, History())
        return drive(
            em_iterates(self.rows, self.belief(strength), climb, step),
            max_iter=max_iter,
            tol=tol,
            observers=observers,
            history=history,
        )

    def model(self, state: State, *, fetched: bool = True) -> KernelModel:
        """The fitted model of a state: rows in, completed rows out."""
        home, n = self.engine.home, self.n
        with home.work(n):
            kernel, scales = in_noise_units(state, missing_side=self.missing_side)
        mean = home.fetch(state.mean).astype(np.float64)
        spreads = np.ones(n)
        if scales is not None:
            spreads = 1.0 / home.fetch(scales).astype(np.float64)
        return KernelModel(
            kernel=kernel.moved(home.fetch) if fetched else kernel,
            centre=Centre(0.0, mean, None, spreads),
            unit=1.0,
            sigma=1.0,
            empty=np.zeros(n, dtype=bool),
            fallback=np.zeros(n),
            dtype=self.ways.dtype,
        )


def covariance_of(model: KernelModel) -> Array:
    """The kernel of a model in the units of its values, as a NumPy array."""
    spreads = model.centre.spreads
    K: Array = model.kernel.K * spreads[:, None] * spreads[None, :]
    return K


def step_cost(survey: Survey) -> float:
    """Flops of a step with the kernel on the columns, about."""
    sizes, n = survey.by_size, len(survey.column_counts)
    costs = group_costs(np.arange(n + 1), np.ones(n + 1), n)
    return 3.0 * float(sizes @ costs) + 6.0 * n**3


def _about(mean: Array) -> Centre:
    """A centre of column means alone."""
    return Centre(0.0, mean, None, np.ones(len(mean)))


@dataclass(frozen=True)
class Cast:
    """Values in the precision of the row work."""

    dtype: str

    def rows(self, observed: Observed) -> Observed:
        """The entries in that precision."""
        return observed.with_values(observed.values.astype(self.dtype, copy=False))

    def __call__(self, chunk: Observed) -> Block:
        """A chunk of them as one block."""
        return as_one_block(self.rows(chunk))

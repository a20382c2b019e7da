"""The model that says what a panel would have been: chosen once, fitted often.

A panel with entries hidden is completed by two kernels: that of the times fills a unit
from its own other times, that of the units fills a time from the other units. How
strong their priors are and how the two are weighed is chosen on control units that get
the gaps of the treated ones. The choice is then kept for the treated units and for
every placebo, so that all are treated alike.

Priors are strong and EM runs until it settles: a panel has few units, and stopping
early, which serves large matrices well, was found to depend on which units were hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ncarl.bayes.fit import ways_of_sides
from ncarl.bayes.intervals import Scores
from ncarl.bayes.near import left_out_errors
from ncarl.bayes.side import Side, Ways
from ncarl.bayes.standard import Standard, fit_standard, units_differ
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.model import KernelModel
from ncarl.observed import Observed
from ncarl.panel.scale import held
from ncarl.surveys import InMemory

#: The kernel of the times, and that of the units.
SIDES = ("columns", "rows")
#: Most steps of EM, and the gain of one that ends them.
MOST_STEPS, TOLERANCE = 25, 1e-4
#: Rows that the prior counts as, over the longer side of the panel. The first is the
#: usual one; the next are tried as long as each is better than the one before.
STRENGTHS = (3.0, 1.0, 0.3, 0.1)
#: Control units are hidden in so many groups, all of a group together.
GROUPS = 5


@dataclass(frozen=True)
class Choice:
    """What was chosen on control units with the gaps of treated ones.

    Attributes
    ----------
    strengths : dict of float
        Strength of the prior, by side: the times are the columns.
    weight : float
        Part of the kernel of the times; the kernel of the units has the rest.
    error : float
        Root mean square error on the hidden entries of control units; NaN where there
        are too few to hide any.
    by_side : dict of float
        The same of either side alone.
    scores, block_scores : Scores
        Errors over their standard deviations, of entries and of the mean of a unit's
        hidden entries, for intervals.
    """

    strengths: dict[str, float]
    weight: float
    error: float
    by_side: dict[str, float]
    scores: Scores
    block_scores: Scores

    def in_units(self, unit: float) -> Choice:
        """The same with errors in larger units."""
        by_side = {name: error * unit for name, error in self.by_side.items()}
        return replace(self, error=self.error * unit, by_side=by_side)


@dataclass(frozen=True)
class Completed:
    """A completed panel.

    Attributes
    ----------
    values, deviations : arrays of shape (units, times)
        What the model says of every entry, and how far off that may be.
    left_out : array of shape (units, times)
        Errors of observed entries, each as predicted without itself; NaN in gaps.
    """

    values: Array
    deviations: Array
    left_out: Array

    def in_units(self, unit: float) -> Completed:
        """The same in larger units."""
        with np.errstate(over="ignore"):
            tables = (self.values, self.deviations, self.left_out)
            return Completed(*(held(table * unit) for table in tables))


class Completer:
    """Completes one panel with various gaps.

    Parameters
    ----------
    observed : array of shape (units, times)
        The panel with what happened to the treated units hidden; NaN in gaps.
    engine : Engine
        Where to work.
    """

    def __init__(self, observed: Array, engine: Engine) -> None:
        self.values, self.engine = observed, engine
        entries = InMemory(Observed.from_dense(observed))
        self.standard: Standard = fit_standard(entries, scaled=units_differ(entries))
        self.ways: dict[str, Ways] = ways_of_sides(
            prior="co-observation", center="two-way", noise="per-column",
            dtype="float64",
        )  # fmt: skip

    def choose(
        self, gaps: Sequence[Array], controls: Array, rng: np.random.Generator
    ) -> Choice:
        """Strengths and weights that complete control units best.

        Parameters
        ----------
        gaps : sequence of boolean arrays of shape (times,)
            What is hidden of each treated unit.
        controls : array of int
            Units that are never treated.
        rng : numpy.random.Generator
            Which control units are hidden together.
        """
        masks = self._masks(gaps, controls, rng)
        if not masks:
            usual, none = dict.fromkeys(SIDES, STRENGTHS[0]), Scores(np.empty(0), 0.0)
            return Choice(usual, 0.5, float("nan"), {}, none, none)
        strengths, errors, spreads = {}, {}, {}
        for name in SIDES:
            strengths[name], errors[name], spreads[name] = self._best(name, masks)
        weight = _weight(errors["columns"], errors["rows"])
        whole = weight * errors["columns"] + (1.0 - weight) * errors["rows"]
        squares = (
            weight * spreads["columns"] ** 2 + (1.0 - weight) * spreads["rows"] ** 2
        )
        rows, columns = np.concatenate([np.nonzero(mask) for mask in masks], axis=1)
        unit = self.standard.error_unit
        return Choice(
            strengths,
            weight,
            _rms(whole) * unit,
            {name: _rms(found) * unit for name, found in errors.items()},
            Scores.of(whole, np.sqrt(squares), rows, columns),
            _block_scores(whole, squares, rows),
        )

    def _masks(
        self, gaps: Sequence[Array], controls: Array, rng: np.random.Generator
    ) -> list[Array]:
        """Entries to hide: groups of control units with the gaps of treated ones."""
        order = rng.permutation(controls)
        there, masks = ~np.isnan(self.values), []
        for group in np.array_split(order, min(GROUPS, len(order))):
            hidden = np.zeros(self.values.shape, dtype=bool)
            for unit in group:
                hidden[unit] = gaps[int(rng.integers(len(gaps)))]
            hidden &= there
            left = there & ~hidden
            # Of a unit or a time without any other entry nothing can be said.
            hidden &= left.any(axis=1)[:, None] & left.any(axis=0)
            if hidden.any():
                masks.append(hidden)
        return masks

    def _best(self, name: str, masks: list[Array]) -> tuple[float, Array, Array]:
        """The best strength of a side, its errors and their deviations."""
        strength = STRENGTHS[0]
        errors, spreads = self._tried(name, strength, masks)
        for weaker in STRENGTHS[1:]:
            found, around = self._tried(name, weaker, masks)
            if found @ found >= errors @ errors:
                break
            strength, errors, spreads = weaker, found, around
        return strength, errors, spreads

    def _tried(
        self, name: str, strength: float, masks: list[Array]
    ) -> tuple[Array, Array]:
        """Errors on hidden entries, and their deviations, as the model sees them."""
        errors, spreads = [], []
        truth = self._inner(self.values)
        for hidden in masks:
            inner = self.standard.inward(
                Observed.from_dense(np.where(hidden, np.nan, self.values))
            )
            x, spread, _ = self._side(name, inner, strength, left_out=False)
            errors.append((truth - x)[hidden])
            spreads.append(spread[hidden])
        return np.concatenate(errors), np.concatenate(spreads)

    def _inner(self, values: Array) -> Array:
        """Values as the model sees them, NaN in gaps."""
        inner = self.standard.inward(Observed.from_dense(values))
        dense = np.full(values.shape, np.nan)
        dense[inner.rows, inner.indices] = inner.values
        return dense

    def complete(self, choice: Choice, hidden: Array | None = None) -> Completed:
        """The panel completed as was chosen, with further entries hidden if any."""
        values = self.values
        if hidden is not None:
            values = np.where(hidden, np.nan, values)
        inner = self.standard.inward(Observed.from_dense(values))
        means, squares, errors = (np.zeros(values.shape) for _ in range(3))
        shares = {"columns": choice.weight, "rows": 1.0 - choice.weight}
        for name, share in shares.items():
            x, spread, left_out = self._side(name, inner, choice.strengths[name])
            means += share * x
            squares += share * spread**2
            errors += share * left_out
        return Completed(
            self.standard.outward(means),
            self.standard.deviations(np.sqrt(squares)),
            self.standard.deviations(errors),
        )

    def _side(
        self, name: str, inner: Observed, strength: float, *, left_out: bool = True
    ) -> tuple[Array, Array, Array]:
        """Values, deviations and left-out errors of one side, units in rows."""
        observed = inner if name == "columns" else inner.transposed()
        model = self._model(name, observed, strength)
        x, spread = model.complete(observed, self.engine, std="observed")
        assert spread is not None
        errors = np.full(observed.shape, np.nan)
        if left_out:
            found = left_out_errors(model, observed, self.engine)
            assert found is not None
            errors[observed.rows, observed.indices] = found.values
        if name == "columns":
            return x, spread, errors
        return x.T, spread.T, errors.T

    def _model(self, name: str, observed: Observed, strength: float) -> KernelModel:
        """A side after its fit."""
        side = Side(InMemory(observed), self.ways[name], self.engine)
        result = side.run(strength, max_iter=MOST_STEPS, tol=TOLERANCE, observers=[])
        if result.interrupted:
            raise KeyboardInterrupt
        return side.model(result.last.found.state)


def _weight(by_columns: Array, by_rows: Array) -> float:
    """Part of the columns: half way from equal parts to what suits best.

    What suits a few dozen units best need not suit the next one.
    """
    gap = by_columns - by_rows
    square = float(gap @ gap)
    best = -float(gap @ by_rows) / square if square > 0.0 else 0.5
    return (min(1.0, max(0.0, best)) + 0.5) / 2.0


def _block_scores(errors: Array, squares: Array, rows: Array) -> Scores:
    """Mean error of each unit, which is hidden once, over its deviation."""
    counts = np.maximum(np.bincount(rows), 1)
    means = np.bincount(rows, errors) / counts
    deviations = np.sqrt(np.bincount(rows, squares) / counts)
    found = deviations > 0.0
    ranked = np.sort(means[found] / deviations[found])
    return Scores(ranked, float(len(ranked)))


def _rms(errors: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))

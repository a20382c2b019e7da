"""Row and column effects by turns, as a solver like the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncarl.core.singular import frobenius
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.solvers.problem import Clock, Ending, Step, ratio
from ncarl.two_way import TwoWay


@dataclass(frozen=True)
class Sweeps:
    """The solver; its state is a `TwoWay`.

    Attributes
    ----------
    observed : Observed
        The entries.
    row_ridge, column_ridge : float or None
        Ridges of the effects; None learns them.
    """

    observed: Observed
    row_ridge: float | None
    column_ridge: float | None
    degree: float = 2.0

    def begin(self) -> TwoWay:
        """No effects."""
        none = TwoWay.nothing(self.observed.shape)
        given = (self.row_ridge, self.column_ridge)
        ridges = [1.0 if ridge is None else ridge for ridge in given]
        return TwoWay(none.a, none.b, *ridges)

    def steps(self, state: TwoWay, step: int) -> Iterator[Step]:
        """Turns for ever."""
        clock = Clock()
        o = self.observed
        rms = frobenius(o.values) / np.sqrt(o.n_observed)
        while True:
            step += 1
            learned = (self.row_ridge is None, self.column_ridge is None)
            new = state.swept(o, rows=learned[0], columns=learned[1])
            moved = max(_largest(new.a - state.a), _largest(new.b - state.b))
            left = o.values - new.a[o.rows] - new.b[o.indices]
            objective = float(
                left @ left + new.ridge_a * new.a @ new.a + new.ridge_b * new.b @ new.b
            )
            notes = {"row_ridge": new.ridge_a, "column_ridge": new.ridge_b}
            change = ratio(moved, float(rms))
            yield Step(step, new, objective / 2.0, change, notes, clock.look())
            state = new

    def end(self, last: Step) -> Ending:
        """The effects; nothing is left for factors."""
        found: TwoWay = last.state
        o = self.observed
        left = o.values - found.a[o.rows] - found.b[o.indices]
        residual = ratio(frobenius(left), frobenius(o.values))
        nothing = (np.zeros((o.shape[0], 0)), np.zeros((0, o.shape[1])))
        return Ending(None, nothing, residual, 0, {"effects_": found})


def _largest(values: Array) -> float:
    """Largest absolute value; 0 of none."""
    return float(np.max(np.abs(values), initial=0.0))

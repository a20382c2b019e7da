"""Trials of a search: fit a point to the kept entries, score the hidden ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ncarl.centering import fit_centre
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.grid import Point
from ncarl.fitting import Settings, Workspace
from ncarl.holdout import hold_out
from ncarl.metrics import relative_rmse
from ncarl.observed import Observed
from ncarl.surveys import InMemory

#: A small matrix is split again until so many hidden entries have been scored.
ENOUGH, MOST_SPLITS = 50, 10


def splits(
    observed: Observed, share: float, rng: np.random.Generator
) -> list[tuple[Observed, Observed]]:
    """Pairs of kept and hidden entries; none where no entry can be spared."""
    first = hold_out(observed, share, rng)
    hidden = first[1].n_observed
    if hidden == 0:
        return []
    count = min(MOST_SPLITS, math.ceil(ENOUGH / hidden))
    return [first, *(hold_out(observed, share, rng) for _ in range(count - 1))]


@dataclass
class Trials:
    """Fits points of a grid and scores them, all splits together.

    Attributes
    ----------
    parts : list of pairs of Observed
        Kept and hidden entries.
    make_space : callable
        Entries and a centring to a workspace.
    settings : callable
        A point of the grid to the settings of its fit.
    scaled : bool
        Whether each column counts in units of its own spread, about its mean.
    engine : Engine
        Where to work.
    """

    parts: list[tuple[Observed, Observed]]
    make_space: Callable[[Observed, str | None], Workspace]
    settings: Callable[[Point], Settings]
    scaled: bool
    engine: Engine
    spaces: dict[str | None, list[Workspace]] = field(default_factory=dict)

    def __call__(
        self, point: Point, grams: Sequence[Array] | None
    ) -> tuple[float, int, list[Array]]:
        """Error, steps (the most of all splits) and Gram matrices at a point."""
        if point.center not in self.spaces:
            self.spaces = {
                point.center: [
                    self.make_space(kept, point.center) for kept, _ in self.parts
                ]
            }
        truths, guesses, steps, ends = [], [], 0, []
        for k, space in enumerate(self.spaces[point.center]):
            settings = self.settings(point)
            result = space.run(settings, gram=None if grams is None else grams[k])
            if result.interrupted:
                raise KeyboardInterrupt
            kept, hidden = self.parts[k]
            i, j = hidden.rows, hidden.indices.astype(np.int64)
            model = space.model(settings, result, fetched=False)
            guess, _ = model.predict(kept, i, j, self.engine)
            truths.append(self._in_units(kept, j, hidden.values))
            guesses.append(self._in_units(kept, j, guess))
            steps = max(steps, result.last.step)
            ends.append(result.last.gram)
        error = relative_rmse(np.concatenate(truths), np.concatenate(guesses))
        return error, steps, ends

    def _in_units(self, kept: Observed, columns: Array, values: Array) -> Array:
        """Values as they count in the score."""
        if not self.scaled:
            return values
        centre = fit_centre(InMemory(kept), "columns", scaled=True)
        spreads = np.where(centre.spreads > 0.0, centre.spreads, 1.0)
        middle = centre.mean + centre.columns
        return (values - middle[columns]) / spreads[columns]

"""How the parts of a model are put together, by their errors on held-out entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ncarl.bayes.cuts import Cut
from ncarl.bayes.intervals import Scores, independent_count
from ncarl.bayes.near import NearChoice
from ncarl.core.types import Array

#: A side that counts for less than this is left out.
LEAST_WEIGHT = 0.02
#: The nearest rows are heard if they take so much off the squared error: this part
#: of it, and so many times what chance takes off.
LEAST_GAIN, TIMES_CHANCE = 4e-3, 6.0


@dataclass(frozen=True)
class Held:
    """What one side makes of held-out entries.

    Attributes
    ----------
    errors, deviations : arrays of shape (entries,)
        Errors, and the standard deviations that the side gives them.
    near : dict of arrays
        What the nearest rows add there, by their number.
    """

    errors: Array
    deviations: Array
    near: Mapping[int, Array] = field(default_factory=dict)

    def turned_back(self, cut: Cut) -> Held:
        """Entries of the transposed cut in the order of the cut."""
        places = np.arange(cut.hidden.n_observed)
        there = cut.hidden.with_values(places).transposed().values
        back = np.empty_like(there)
        back[there] = places
        return Held(self.errors[back], self.deviations[back])


@dataclass(frozen=True)
class Weighed:
    """How the parts are put together, and how well that does.

    Attributes
    ----------
    weight : float
        Part of the columns.
    near : NearChoice or None
        How the nearest rows are heard, if they are.
    error : float
        Root mean square error of the whole; NaN if nothing was held out.
    by_side : dict of float
        The same of each side alone, on the same entries.
    scores, blended_scores : Scores
        Of the column side (or the only one), and of the whole.
    """

    weight: float
    near: NearChoice | None
    error: float
    by_side: Mapping[str, float]
    scores: Scores
    blended_scores: Scores


def joined(parts: list[Held]) -> Held:
    """The entries of all cuts, one cut after the other."""
    near = {
        count: np.concatenate([part.near[count] for part in parts])
        for count in parts[0].near
    }
    return Held(
        np.concatenate([part.errors for part in parts]),
        np.concatenate([part.deviations for part in parts]),
        near,
    )


def weighed(
    held: Mapping[str, Held], cuts: list[Cut], wanted: list[str], *, droppable: bool
) -> Weighed:
    """How to put the sides together; ``droppable`` says that rows may be left out."""
    weight = column_weight(held, wanted)
    if droppable and weight > 1.0 - LEAST_WEIGHT:
        weight = 1.0
    if not held:
        none = Scores(np.empty(0), 0.0)
        return Weighed(weight, None, float("nan"), {}, none, none)
    rows = np.concatenate([cut.hidden.rows for cut in cuts])
    columns = np.concatenate([cut.hidden.indices for cut in cuts])
    single = held["columns" if "columns" in held else "rows"]
    whole = _blended(held, weight) if len(held) > 1 and weight < 1.0 else single
    near = chosen_near(whole.errors, single.near, (rows, columns))
    if near is not None:
        # What is added to a value is taken off its error.
        errors, spread = near.corrected(
            -single.near[near.count], whole.errors, whole.deviations
        )
        assert spread is not None
        whole = Held(errors, spread)
    by_side = {name: _rms(side.errors) for name, side in held.items()}
    error = _rms(whole.errors)
    scores = Scores.of(single.errors, single.deviations, rows, columns)
    if whole is single:
        return Weighed(weight, near, error, by_side, scores, scores)
    blended = Scores.of(whole.errors, whole.deviations, rows, columns)
    return Weighed(weight, near, error, by_side, scores, blended)


def _rms(errors: Array) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def column_weight(held: Mapping[str, Held], wanted: list[str]) -> float:
    """Part of the columns that makes the squared error of the blend least."""
    if len(wanted) == 1:
        return 1.0 if wanted == ["columns"] else 0.0
    if not held:
        return 0.5
    by_columns, by_rows = held["columns"].errors, held["rows"].errors
    gap = by_columns - by_rows
    square = float(gap @ gap)
    best = -float(gap @ by_rows) / square if square > 0.0 else 1.0
    return min(1.0, max(0.0, best))


def _blended(held: Mapping[str, Held], weight: float) -> Held:
    """Both sides together, as `TwoSided` puts them."""
    one, other = held["columns"], held["rows"]
    errors = weight * one.errors + (1.0 - weight) * other.errors
    squares = weight * one.deviations**2 + (1.0 - weight) * other.deviations**2
    return Held(errors, np.sqrt(squares))


def chosen_near(
    errors: Array, near: Mapping[int, Array], places: tuple[Array, Array]
) -> NearChoice | None:
    """The number of nearest rows that takes most off the errors, if it is enough."""
    before = float(errors @ errors)
    least, best = before, None
    for count, term in near.items():
        square = float(term @ term)
        weight = float(term @ errors) / square if square > 0.0 else 0.0
        weight = min(1.0, max(0.0, weight))
        left = errors - weight * term
        after = float(left @ left)
        if after < least:
            least = after
            best = NearChoice(count, weight, float(np.sqrt(after / before)))
    chance = TIMES_CHANCE / independent_count(errors, *places)
    enough = before - least > before * max(LEAST_GAIN, chance)
    return best if enough else None

"""The model of a table's coordinates, and what it puts into the gaps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ncarl.bayes.intervals import Scores
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.tables.coding import CategoryCode, NumberCode
from ncarl.tables.given import Given
from ncarl.tables.joint import Joint, posterior
from ncarl.tables.schema import Column

#: Tables with fewer cells are not worth the way to a GPU.
SMALL = 5_000_000
#: Rows whose values are left out to find out how wide intervals must be.
ROWS_LEFT_OUT = 5_000
#: Columns with fewer of these values share what is found in all columns.
ENOUGH_SCORES = 50

Columns = Sequence[Column]
Values = Sequence[Given | None]


@dataclass(frozen=True)
class Guess:
    """What is known of the gaps of some rows.

    Attributes
    ----------
    means, deviations : arrays of shape (m, n)
        Of every coordinate that is missing; 0 elsewhere.
    chances : dict of arrays of shape (m, k)
        Probabilities of the categories of a column, by its position; 0 where a
        coordinate of it is there.
    """

    means: Array
    deviations: Array
    chances: dict[int, Array]


@dataclass(frozen=True)
class Filler:
    """A fitted model of coordinates.

    Attributes
    ----------
    model : BayesianNCARL or None
        What learned the distribution; None where no column varies.
    joint : Joint
        The distribution.
    scores : dict of Scores
        By coordinate: errors of values left out, for intervals.
    whole : frozenset of int
        Columns that are filled with whole numbers.
    clip : bool
        Whether numbers stay within the range of the fit.
    """

    model: Any
    joint: Joint
    scores: dict[int, Scores]
    whole: frozenset[int]
    clip: bool

    def fill(self, columns: Columns, given: Values, Z: Array) -> list[Array | None]:
        """What goes into the gaps of each column; None where there are none."""
        guess = self._guess(columns, Z)
        new: list[Array | None] = [None] * len(columns)
        for j, column, values in used(columns, given):
            gaps = values.gaps
            if not gaps.any():
                continue
            if isinstance(column.code, NumberCode):
                new[j] = self._numbers(j, column, guess, gaps)
            else:
                assert isinstance(column.code, CategoryCode)
                labels = np.empty(len(column.code.labels), dtype=object)
                labels[:] = column.code.labels
                new[j] = labels[guess.chances[j][gaps].argmax(axis=1)]
        return new

    def intervals(
        self, columns: Columns, given: Values, Z: Array, level: float
    ) -> dict[int, tuple[Array, Array]]:
        """Ends of intervals of the columns of numbers, by position."""
        guess = self._guess(columns, Z)
        found = {}
        for j, column, values in used(columns, given):
            code, gaps = column.code, values.gaps
            if not isinstance(code, NumberCode):
                continue
            low, high = values.values.copy(), values.values.copy()
            if code.width == 0:
                low[gaps] = high[gaps] = code.low
            else:
                at = int(column.places[0])
                down, up = self.scores[at].reach(level)
                middle, sd = guess.means[gaps, at], guess.deviations[gaps, at]
                low[gaps] = self._settled(j, code, code.outward(middle - down * sd))
                high[gaps] = self._settled(j, code, code.outward(middle + up * sd))
            found[j] = low, high
        return found

    def probabilities(
        self, columns: Columns, given: Values, Z: Array
    ) -> dict[int, Array]:
        """Probabilities of categories, by the position of their column."""
        guess = self._guess(columns, Z)
        found = {}
        for j, column, values in used(columns, given):
            if not isinstance(column.code, CategoryCode):
                continue
            chances = guess.chances[j] * values.gaps[:, None]
            places = column.code.places(values)
            known = np.flatnonzero(places >= 0)
            chances[known, places[known]] = 1.0
            found[j] = chances
        return found

    def _guess(self, columns: Columns, Z: Array) -> Guess:
        """What the distribution says of the gaps."""
        means, deviations = np.zeros(Z.shape), np.zeros(Z.shape)
        coded = [
            (j, column, column.code)
            for j, column in enumerate(columns)
            if isinstance(column.code, CategoryCode)
        ]
        chances = {j: np.zeros((len(Z), len(c.labels))) for j, _, c in coded}
        for j, _, code in coded:
            if code.width == 0:
                chances[j][:] = 1.0
        for part in self.joint.unseen(Z):
            at = part.rows[:, None], part.places
            means[at] = part.means
            deviations[at] = np.sqrt(np.diagonal(part.spreads, axis1=1, axis2=2))
            for j, column, code in coded:
                if code.width == 0:
                    continue
                first = int(column.places[0])
                rows, middle, spread = part.block(first, code.width)
                if len(rows):
                    chances[j][rows] = self._chances(column, middle, spread)
        return Guess(means, deviations, chances)

    def _chances(self, column: Column, means: Array, spreads: Array) -> Array:
        """Probabilities of the categories of a column from its coordinates."""
        code, places = column.code, column.places
        assert isinstance(code, CategoryCode)
        middle = self.joint.mean[places]
        before = self.joint.covariance[np.ix_(places, places)]
        away = code.codes - middle
        return posterior(means - middle, spreads, before, away, code.shares)

    def _numbers(self, j: int, column: Column, guess: Guess, gaps: Array) -> Array:
        """What goes into the gaps of a column of numbers."""
        code = column.code
        assert isinstance(code, NumberCode)
        if code.width == 0:
            return np.full(int(gaps.sum()), code.low)
        at = int(column.places[0])
        values = code.mean(guess.means[gaps, at], guess.deviations[gaps, at])
        return self._settled(j, code, values)

    def _settled(self, j: int, code: NumberCode, values: Array) -> Array:
        """Numbers within their range, whole where they are to be."""
        if self.clip:
            values = np.clip(values, code.low, code.high)
        return np.rint(values) if j in self.whole else values


def used(columns: Columns, given: Values) -> Iterator[tuple[int, Column, Given]]:
    """Columns that are filled, with their positions and values."""
    for j, (column, values) in enumerate(zip(columns, given, strict=True)):
        if values is not None:
            yield j, column, values


@dataclass(frozen=True)
class Ways:
    """How the distribution is learned, and how numbers are settled.

    ``prior_rows`` None is as many as coordinates.
    """

    engine: str | Engine
    prior_rows: float | None
    max_iter: int
    tol: float
    clip: bool
    rounding: str | None


def fit_filler(columns: Columns, given: Values, Z: Array, ways: Ways) -> Filler:
    """Learn the distribution of the coordinates ``Z`` of a table."""
    whole = frozenset(
        j for j, c, x in used(columns, given) if _is_whole(c, x, ways.rounding)
    )
    n = Z.shape[1]
    if n == 0:
        nothing = Joint(np.zeros(0), np.zeros((0, 0)))
        return Filler(None, nothing, {}, whole, ways.clip)
    seen = int((~np.isnan(Z)).any(axis=1).sum())
    rows = float(n) if ways.prior_rows is None else ways.prior_rows
    auto = isinstance(ways.engine, str) and ways.engine == "auto"
    model = BayesianNCARL(
        prior="identity", prior_strength=rows / max(seen, n), center="columns",
        sides="columns", scale=None, clip=None, validation=0.0,
        max_iter=ways.max_iter, tol=ways.tol,
        engine="threads" if auto and Z.size < SMALL else ways.engine,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # said in our own words
        model.fit(Z)
    model.training_ = None  # rows of the fit are not needed any more
    mean = model.predict(np.full((1, n), np.nan))[0]
    joint = Joint(mean, model.kernel_ + np.diag(np.broadcast_to(model.noise_, n) ** 2))
    return Filler(model, joint, _scores(columns, joint, Z), whole, ways.clip)


def _is_whole(column: Column, values: Given, rounding: str | None) -> bool:
    """Whether a column is to be filled with whole numbers."""
    if not column.is_number or rounding is None:
        return False
    known = values.known
    return column.kind == "integer" or (
        rounding == "whole" and bool(np.all(known == np.rint(known)))
    )


def _scores(columns: Columns, joint: Joint, Z: Array) -> dict[int, Scores]:
    """Errors of numbers that are left out, one by one, by coordinate.

    The distribution was learned with these values in sight, by which errors are too
    small: in a regression of ``N`` rows on ``n`` columns by ``1 + n / N``, about.
    """
    places = [int(c.places[0]) for c in columns if c.is_number and len(c.places)]
    if not places:
        return {}
    counts = (~np.isnan(Z)).sum(axis=0)
    step = -(-len(Z) // ROWS_LEFT_OUT)
    errors, spread = joint.left_out(Z[::step])
    errors = errors * (1.0 + Z.shape[1] / np.maximum(counts, Z.shape[1]))
    errors, spread = errors[:, places], spread[:, places]
    rows, at = np.nonzero(~np.isnan(errors))
    shared = Scores.of(errors[rows, at], spread[rows, at], rows, at)
    found = {}
    for k, place in enumerate(places):
        own = rows[at == k]
        found[place] = shared
        if len(own) >= ENOUGH_SCORES:
            # Every row has one error here: none of them are alike.
            apart = np.arange(len(own))
            found[place] = Scores.of(errors[own, k], spread[own, k], apart, apart)
    return found

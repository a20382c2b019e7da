"""What a fitted model says of one user, quickly: no fit, no copy of the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from scipy.sparse import csr_array

from ncarl.bayes.intervals import Scores
from ncarl.bayes.model import TwoSided
from ncarl.bayes.range import Range
from ncarl.bayes.standard import Standard
from ncarl.blocks import cut
from ncarl.centre import Centre
from ncarl.core.linalg import factorised
from ncarl.core.rows import row_duals, row_module
from ncarl.core.types import Array, Block
from ncarl.engines import Engine, Threads
from ncarl.model import KernelModel
from ncarl.observed import Observed

#: One user is no work for many threads.
ALONE = Threads(n_jobs=1)


@dataclass(frozen=True)
class Parts:
    """What a prediction is made of, in stars.

    Attributes
    ----------
    item_level : float
        What the item gets from users of whom nothing is known.
    user_level : float
        How far the user rates above that, on average over all items.
    contributions : array of shape (rated,)
        What each rating of the user adds for this item.
    similar_users : float
        What other users with the same taste add to it.
    """

    item_level: float
    user_level: float
    contributions: Array
    similar_users: float

    @property
    def value(self) -> float:
        """Their sum."""
        own = float(self.contributions.sum())
        return self.item_level + self.user_level + own + self.similar_users


@dataclass(frozen=True, eq=False)
class Server:
    """A fitted model and the ratings of its fit, ready to answer.

    Attributes
    ----------
    two : TwoSided
        The model; its columns are the items.
    training : Observed
        Ratings of the fit.
    engine : Engine
        Where many answers at once are worked out.
    scores, blended_scores : Scores
        How far errors reach: of new users, and of those of the fit.
    level_apart : bool
        Whether how generous a user is is apart from taste.
    """

    two: TwoSided
    training: Observed
    engine: Engine
    scores: Scores
    blended_scores: Scores
    level_apart: bool

    @property
    def items(self) -> KernelModel:
        """The kernel of the items."""
        assert self.two.columns is not None
        return self.two.columns

    @property
    def blends(self) -> bool:
        """Whether more is known of users of the fit than their own ratings."""
        return self.two.rows is not None or self.two.near is not None

    def one_row(self, items: Any, values: Any) -> Observed:
        """Ratings of one user, places of items in increasing order."""
        ends = np.array([0, len(items)], dtype=np.int64)
        columns = np.asarray(items, dtype=np.int32)
        shape = (1, self.training.shape[1])
        return Observed(ends, columns, np.asarray(values, dtype=np.float64), shape)

    def row_of(self, user: int) -> Observed:
        """Ratings of a user of the fit."""
        part = slice(
            int(self.training.indptr[user]), int(self.training.indptr[user + 1])
        )
        return self.one_row(self.training.indices[part], self.training.values[part])

    def all_items(
        self, row: Observed, user: int | None, std: str | None = None
    ) -> tuple[Array, Array | None]:
        """Ratings that a user would give, not yet held within bounds; deviations.

        ``user`` is the place of a user of the fit whose ratings are these, or None.
        """
        standard = self.two.standard
        if user is None or not self.blends:
            x, spread = self.two.complete(row, ALONE, std=std, both=False)
            x, spread = x[0], None if spread is None else spread[0]
        elif std is None:
            x, spread = self._blended(row, user), None
        else:
            j = np.arange(self.training.shape[1])
            x, spread = self.two.predict(
                self.training, np.full(len(j), user), j, self.engine, std=std, both=True
            )
        values = standard.outward(x)
        return values, None if spread is None else standard.deviations(spread)

    def entries(
        self, observed: Observed, i: Array, j: Array, std: str | None, *, both: bool
    ) -> tuple[Array, Array | None]:
        """Single entries, not yet held within bounds, and their deviations."""
        x, spread = self.two.predict(observed, i, j, self.engine, std=std, both=both)
        standard = self.two.standard
        values = standard.outward(x, j)
        return values, None if spread is None else standard.deviations(spread, j)

    def _blended(self, row: Observed, user: int) -> Array:
        """All items as both sides and similar users see them, in inner units."""
        two = self.two
        x, _ = two.complete(row, ALONE, std=None, both=False)
        values: Array = x[0]
        if two.rows is not None:
            values = two.weight * values + (1.0 - two.weight) * self._by_users(user)
        if two.near is not None:
            near = two._near(two.standard.inward(self.training), self.engine)
            terms = near.terms(np.array([user]), two.near.count)[0]
            values, _ = two.near.corrected(terms, values, None)
        return values

    def _by_users(self, user: int) -> Array:
        """All items as the kernel of the users sees them."""
        side = self.two.rows
        assert side is not None
        duals, effects = self.user_duals
        # A row of the kernel, which is symmetric: rows lie in one piece.
        sums = duals @ np.asarray(side.kernel.K[user], dtype=np.float64)
        centre = side.centre
        inner = (sums + effects) * centre.spreads[user]
        inner += centre.mean + centre.columns[user] + side.fallback[user] * self._silent
        values: Array = inner * side.unit
        return values

    @cached_property
    def _silent(self) -> Array:
        """Items without ratings."""
        return self.training.column_counts == 0

    @cached_property
    def user_duals(self) -> tuple[Any, Array]:
        """Duals of the items on the side of the users, and the items' effects.

        With them a user costs one product with a sparse matrix, not a factorisation
        for every item.
        """
        side = self.two.rows
        assert side is not None
        turned = self.two.standard.inward(self.training).transposed()
        residuals, effects = side.prepare(turned)
        duals = np.empty(residuals.n_observed)
        blocks = cut(residuals, self.engine.blocks_wanted(*residuals.shape))
        done = self.engine.map(
            duals_of_block, self.engine.place(blocks), kernel=side.kernel
        )
        for block, part in zip(blocks, done, strict=True):
            counts = np.diff(block.indptr)
            starts = residuals.indptr[block.rows] - block.indptr[:-1]
            duals[np.arange(len(part)) + np.repeat(starts, counts)] = part
        ends, columns = residuals.indptr, residuals.indices
        return csr_array((duals, columns, ends), shape=residuals.shape), effects

    def parts(
        self, row: Observed, user: int | None, item: int, *, by_kernel: bool = False
    ) -> Parts:
        """What the prediction of one item for one user is made of.

        ``by_kernel`` cuts it into ``y_j K_jc``, which leave nothing to the user's
        level but an effect that the model has apart from the kernel.
        """
        side, standard = self.items, self.two.standard
        inner, (effect,) = side.prepare(standard.inward(row))
        o, z = inner.indices, inner.values.astype(np.float64)
        pull = float(self.pulls[item])
        level = side.centre.mean + side.centre.columns[item]
        if len(o) == 0:
            level += side.fallback[item]
        base = float(standard.outward(np.array([level * side.unit]), [item])[0])
        general = own = np.zeros(len(o))
        if len(o):
            near = pull * side.kernel.K[o, item]
            if by_kernel:
                own = self._solved(o, z[None])[0] * near
            else:
                right = np.stack([self.level_kernel[o], near])
                general, own = z * self._solved(o, right)
        user_level = float(general.sum() + pull * effect)
        others = 0.0
        if user is not None and self.blends:
            alone, _ = self.all_items(row, None)
            together, _ = self.all_items(row, user)
            others = float(together[item] - alone[item])
        return Parts(base, user_level, own - general, others)

    def _solved(self, o: Array, right: Array) -> Array:
        """``right (K_oo + s I)^-1``."""
        kernel = self.items.kernel
        factor, _ = factorised(kernel.K, o, kernel.s)
        solved: Array = cho_solve((factor, True), right.T, check_finite=False).T
        return solved.astype(np.float64)

    @cached_property
    def pulls(self) -> Array:
        """Stars that a unit of the kernel is worth, by item."""
        standard, side = self.two.standard, self.items
        units = side.unit * standard.unit * standard.centre.spreads
        pulls: Array = units * side.centre.spreads
        return pulls

    @cached_property
    def level_kernel(self) -> Array:
        """Covariance of each item with how generous a user is on average."""
        if not self.level_apart:
            return np.zeros(len(self.pulls))
        level: Array = self.items.kernel.K @ (self.pulls / len(self.pulls))
        return level

    def similarities(self, item: int) -> Array:
        """Correlation of one item with all: of taste, without general generosity."""
        # Correlations have no unit; with one of about 1 nothing can overflow.
        unit = float(np.max(self.pulls))
        pulls, K = self.pulls / unit, self.items.kernel.K
        shared = pulls * (self.level_kernel / unit)
        middle = float(shared.mean())
        row = pulls[item] * pulls * K[item] - shared[item] - shared + middle
        squares = pulls * pulls * K.diagonal() - 2.0 * shared + middle
        spreads = np.sqrt(np.maximum(squares, 0.0))
        together = spreads[item] * spreads
        close: Array = np.divide(
            row, together, out=np.zeros(len(row)), where=together > 0.0
        )
        return np.clip(close, -1.0, 1.0)


def duals_of_block(block: Block, *, kernel: Any, kind: str = "auto") -> Array:
    """Duals of a block, aligned with its values."""
    Y, _ = row_duals(block, kernel=kernel, kind=kind)
    return row_module(kind).fetched(Y)


def as_two_sided(model: Any, n: int) -> TwoSided:
    """A model of the columns alone in the form of one with two sides."""
    if isinstance(model, TwoSided):
        return model
    plain = Centre(0.0, np.zeros(n), None, np.ones(n))
    free = Range(
        np.full(n, -np.inf),
        np.full(n, np.inf),
        np.empty(0),
        np.zeros((n, 2), dtype=np.int64),
    )
    return TwoSided(Standard(1.0, plain), free, model, None, 1.0)

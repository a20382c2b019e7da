"""Predictions of a fitted model for one user, for all items, and for pairs.

`Scorer` holds the model and the ratings of its fit, `UserStore` the ratings of all
users, and `predict_pairs` combines both; nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import numpy as np
from scipy.linalg import cho_solve
from scipy.sparse import csr_array

from ncarl.bayes.model import ConformalScores, TwoSidedModel
from ncarl.centering import Centering, Scaler, ValueBounds
from ncarl.containers import clip_to_float_range
from ncarl.core.linalg import cholesky_with_jitter
from ncarl.core.rows import row_backend, row_duals
from ncarl.core.types import Array, Block, cached_property
from ncarl.engines.base import Engine
from ncarl.engines.threads import Threads
from ncarl.fitting.kernel_model import KernelModel
from ncarl.observations import Observations
from ncarl.ratings.data import UnknownIdError, Vocabulary

#: Engine for a single user, for whom threads do not pay.
SINGLE_THREAD = Threads(n_jobs=1)


@dataclass(frozen=True, eq=False)
class Scorer:
    """A fitted model and the ratings of its fit."""

    model: TwoSidedModel  # rows are users, columns are items
    training: Observations  # ratings of the fit
    engine: Engine  # for many predictions at once
    conformal_scores: ConformalScores  # of users without a row in the fit
    blended_conformal_scores: ConformalScores  # of users of the fit

    @property
    def item_model(self) -> KernelModel:
        """Model of the item side."""
        assert isinstance(self.model.columns, KernelModel)
        return self.model.columns

    @property
    def is_blended(self) -> bool:
        """Whether predictions for users of the fit also depend on other users."""
        return self.model.rows is not None or self.model.neighbor_correction is not None

    def make_row(self, items: Any, values: Any) -> Observations:
        """Ratings of one user; positions of items in increasing order."""
        return Observations(
            np.array([0, len(items)], dtype=np.int64),
            np.asarray(items, dtype=np.int32),
            np.asarray(values, dtype=np.float64),
            (1, self.training.shape[1]),
        )

    def training_row(self, user: int) -> Observations:
        """Ratings of the user at a position of the fit."""
        part = slice(*map(int, self.training.indptr[user : user + 2]))
        return self.make_row(self.training.indices[part], self.training.values[part])

    def predict_all_items(
        self, row: Observations, user: int | None, std: str | None = None
    ) -> tuple[Array, Array | None]:
        """Predictions of all items, not yet clipped, and their standard deviations.

        ``user`` is the position in the fit of the user with these ratings, None for
        users added later.
        """
        scaler = self.model.scaler
        blended = user is not None and self.is_blended
        if blended and std is not None:
            j = np.arange(self.training.shape[1])
            i = np.full(len(j), user)
            return self.predict_entries(self.training, i, j, std, both=True)
        if blended:
            assert user is not None
            return scaler.inverse_transform(self._predict_blended(row, user)), None
        x, x_std = self.model.complete(row, SINGLE_THREAD, std=std, transductive=False)
        values = scaler.inverse_transform(x[0])
        return values, None if x_std is None else scaler.inverse_transform_std(x_std[0])

    def predict_entries(
        self, observed: Observations, i: Array, j: Array, std: str | None, *, both: bool
    ) -> tuple[Array, Array | None]:
        """Predictions of single entries, not yet clipped, and standard deviations.

        With ``both`` the users are those of the fit, and other users contribute.
        """
        x, x_std = self.model.predict(
            observed, i, j, self.engine, std=std, transductive=both
        )
        scaler = self.model.scaler
        values = scaler.inverse_transform(x, j)
        return values, None if x_std is None else scaler.inverse_transform_std(x_std, j)

    def _predict_blended(self, row: Observations, user: int) -> Array:
        model, correction = self.model, self.model.neighbor_correction
        x, _ = model.complete(row, SINGLE_THREAD, std=None, transductive=False)
        values = x[0]
        if model.rows is not None:
            by_users = self._predict_from_users(user)
            values = model.weight * values + (1.0 - model.weight) * by_users
        if correction is not None:
            scaled = model.scaler.transform(self.training)
            neighbors = model._row_neighbors(scaled, self.engine)
            terms = neighbors.mean_errors(np.array([user]), correction.n_neighbors)[0]
            values, _ = correction.correct(terms, values, None)
        return values

    def _predict_from_users(self, user: int) -> Array:
        side = self.model.rows
        assert side is not None
        duals, effects = self.user_duals
        # K is symmetric: a row, which is contiguous, stands for a column.
        sums = duals @ np.asarray(side.kernel.K[user], dtype=np.float64)
        center = side.centering
        level = center.mean + center.column_effects[user]
        unrated = self.training.column_counts == 0
        inner = (sums + effects) * center.column_scales[user]
        inner += level + side.fallback[user] * unrated
        return inner * side.unit

    @cached_property
    def user_duals(self) -> tuple[Any, Array]:
        """Dual variables of the user side (items x users, sparse) and item effects.

        With them a user costs one sparse matrix-vector product instead of a
        factorization for every item.
        """
        side = self.model.rows
        assert side is not None
        transposed = self.model.scaler.transform(self.training).transpose()
        residuals, effects = side.prepare(transposed)
        duals = np.empty(residuals.n_observed)
        blocks = self.engine.place(residuals)
        for rows, part in self.engine.map(block_duals, blocks, kernel=side.kernel):
            counts = residuals.row_counts[rows]
            starts = residuals.indptr[rows] - (np.cumsum(counts) - counts)
            duals[np.arange(len(part)) + np.repeat(starts, counts)] = part
        csr = duals, residuals.indices, residuals.indptr
        return csr_array(csr, shape=residuals.shape), effects

    def decompose(
        self, row: Observations, user: int | None, item: int
    ) -> tuple[float, float, Array, float]:
        """Item level, user level, contributions of ratings, and of similar users."""
        side, scaler = self.item_model, self.model.scaler
        residuals, (effect,) = side.prepare(scaler.transform(row))
        o, z = residuals.indices, residuals.values.astype(np.float64)
        scale = float(self.item_scales[item])
        level = side.centering.mean + side.centering.column_effects[item]
        if len(o) == 0:
            level += side.fallback[item]
        inner = np.array([level * side.unit])
        item_level = float(scaler.inverse_transform(inner, [item])[0])
        general = own = np.zeros(len(o))
        if len(o):
            kernel = side.kernel
            covariance = scale * kernel.K[o, item]
            right = np.stack([self.user_level_covariance[o], covariance])
            factor, _ = cholesky_with_jitter(kernel.K, o, kernel.s)
            solved = cho_solve((factor, True), right.T, check_finite=False).T
            general, own = z * solved.astype(np.float64)
        user_level = float(general.sum() + scale * effect)
        similar_users = 0.0
        if user is not None and self.is_blended:
            alone, _ = self.predict_all_items(row, None)
            blended, _ = self.predict_all_items(row, user)
            similar_users = float(blended[item] - alone[item])
        return item_level, user_level, own - general, similar_users

    @cached_property
    def item_scales(self) -> Array:
        """Rating units per unit of the kernel, by item."""
        scaler, side = self.model.scaler, self.item_model
        units = side.unit * scaler.unit * scaler.centering.column_scales
        return np.asarray(units * side.centering.column_scales)

    @cached_property
    def user_level_covariance(self) -> Array:
        """Covariance of each item with the user's mean over all items."""
        scales = self.item_scales
        if len(scales) <= 2:  # too few items to tell the general level from taste
            return np.zeros(len(scales))
        return np.asarray(self.item_model.kernel.K @ (scales / len(scales)))

    def similarities(self, item: int) -> Array:
        """Correlation of one item with all items, without the user level."""
        # Correlations have no unit; with scales of at most 1 nothing can overflow.
        unit = float(np.max(self.item_scales))
        scales, K = self.item_scales / unit, self.item_model.kernel.K
        shared = scales * (self.user_level_covariance / unit)
        mean = float(shared.mean())
        row = scales[item] * scales * K[item] - shared[item] - shared + mean
        variances = scales * scales * K.diagonal() - 2.0 * shared + mean
        std = np.sqrt(np.maximum(variances, 0.0))
        norms = std[item] * std
        correlations = np.divide(row, norms, out=0.0 * norms, where=norms > 0.0)
        return np.clip(correlations, -1.0, 1.0)


def block_duals(
    block: Block, *, kernel: Any, backend: str = "auto"
) -> tuple[Array, Array]:
    """Indices of the rows of a block, and dual variables of its entries."""
    Y, _ = row_duals(block, kernel=kernel, backend=backend)
    return block.rows, row_backend(backend).to_numpy(Y)


def build_scorer(model: Any) -> Scorer:
    """`Scorer` of a fitted `BayesianNCARL`, `NCARL` or `NCARLCV`."""
    if model.transposed_:
        raise ValueError(
            "model was fitted without a kernel of the items; use sides='columns'"
        )
    if getattr(model, "components_", 1) > 1:
        raise ValueError(
            "model was fitted with several kernels of the items; use components=1"
        )
    training: Observations = model.training_
    none = ConformalScores(np.empty(0), 0.0)
    return Scorer(
        model=_as_two_sided(model.model_, training.shape[1]),
        training=training,
        engine=model._resolve_engine(),
        conformal_scores=getattr(model, "scores_", none),
        blended_conformal_scores=getattr(model, "blended_scores_", none),
    )


def _as_two_sided(model: Any, n: int) -> TwoSidedModel:
    """A model of the columns alone as a `TwoSidedModel` without a row side."""
    if isinstance(model, TwoSidedModel):
        return model
    identity = Centering.at_means(np.zeros(n))
    infinite, no_levels = np.full(n, np.inf), np.zeros((n, 2), dtype=np.int64)
    unbounded = ValueBounds(-infinite, infinite, np.empty(0), no_levels)
    return TwoSidedModel(Scaler(1.0, identity), unbounded, model, None, 1.0)


@dataclass(frozen=True, eq=False)
class UserStore:
    """Users seen in fit, users added later, and the anonymous user (None)."""

    scorer: Scorer
    vocabulary: Vocabulary  # users of the fit
    #: Ratings of users who were added, or given further ratings, after the fit.
    added: dict[Any, Observations] = field(default_factory=dict)

    def __contains__(self, user: Any) -> bool:
        return self._is_added(user) or self.vocabulary.find(user) is not None

    def __iter__(self) -> Iterator[Any]:
        yield from self.vocabulary.values
        yield from (u for u in self.added if u not in self.vocabulary.positions)

    def look_up(self, user: Any) -> tuple[Observations, int | None]:
        """Ratings of a user, and position in the fit (None: added or anonymous)."""
        if user is None:
            return self.scorer.make_row([], []), None
        if self._is_added(user):
            return self.added[user], None
        position = self.vocabulary.find(user)
        if position is None:
            raise UnknownIdError(
                f"{self.vocabulary.unknown_message(user)}; add_user(ratings, user) "
                "adds a user, and None is an anonymous user"
            )
        return self.scorer.training_row(position), position

    def _is_added(self, user: Any) -> bool:
        try:
            return not isinstance(user, bool) and user in self.added
        except TypeError:  # it cannot be hashed
            return False

    def locate(self, users: Iterable[Any]) -> tuple[Array, list[Observations]]:
        """Position of each user: a row of the fit, or one of the extra rows returned.

        The k-th extra row has position ``-1 - k``. Unknown users share one row without
        ratings.
        """
        extra_rows: list[Observations] = []
        position_of: dict[Any, int] = {}
        positions = []
        for user in users:
            known = user is not None and user in self
            key = user if known else None
            if key not in position_of:
                row, position = self.look_up(key)
                if position is None:
                    extra_rows.append(row)
                    position = -len(extra_rows)
                position_of[key] = position
            positions.append(position_of[key])
        return np.array(positions, dtype=np.int64), extra_rows

    def add_ratings(
        self, user: Any, items: Array, values: Array, *, replace: bool
    ) -> None:
        """Add ratings to those of a user, or ``replace`` all of them."""
        ratings = {}
        if not replace and user in self:
            row, _ = self.look_up(user)
            ratings = dict(zip(row.indices.tolist(), row.values.tolist(), strict=True))
        ratings |= dict(zip(items.tolist(), values.tolist(), strict=True))
        order = sorted(ratings)
        self.added[user] = self.scorer.make_row(order, [ratings[j] for j in order])

    def new_id(self) -> Any:
        """An unused id of the kind of the other ids."""
        if self.vocabulary.kind == "uuid":
            return uuid4()
        if self.vocabulary.kind == "int":
            return max([*self.vocabulary.values, *self.added], default=-1) + 1
        names = (f"new user {k}" for k in count(len(self.added) + 1))
        return next(name for name in names if name not in self)


@dataclass(frozen=True)
class PairPredictions:
    """Predictions of pairs, not yet clipped; all arrays have shape (pairs,)."""

    values: Array
    deviations: Array  # standard deviations, 0 if not computed
    item_positions: Array  # -1 for unknown items
    is_blended: Array  # whether other users of the fit contribute

    def clip(
        self, values: Array, bounds: ValueBounds, *, round_values: bool = False
    ) -> Array:
        """Values within the bounds of their items, rounded if the model does that."""
        known = self.item_positions >= 0
        clip = bounds.clip_and_round if round_values else bounds.clip
        out = np.clip(values, np.min(bounds.low), np.max(bounds.high))
        out[known] = clip(values[known], self.item_positions[known])
        return clip_to_float_range(out)


def predict_pairs(
    user_store: UserStore,
    vocabulary: Vocabulary,
    user_ids: list[Any],
    item_ids: list[Any],
    std: str | None,
) -> PairPredictions:
    """Predictions of pairs, not yet clipped.

    An unknown user is one without ratings, an unknown item one drawn at random. ``std``
    is the kind of the standard deviations, None for none.
    """
    scorer = user_store.scorer
    i, extra_rows = user_store.locate(user_ids)
    j = vocabulary.encode(item_ids)
    values, deviations = np.empty(len(j)), np.zeros(len(j))

    def assign(mask: Array, found: tuple[Any, Any]) -> None:
        values[mask] = found[0]
        if std is not None:
            deviations[mask] = found[1]

    fitted, added = (i >= 0) & (j >= 0), (i < 0) & (j >= 0)
    if fitted.any():
        observed, rows, both = scorer.training, i[fitted], scorer.is_blended
        if not both:
            # Predictions depend on the users' own ratings only: leave out other rows.
            users, rows = np.unique(rows, return_inverse=True)
            observed = observed.take_rows(users)
        found = scorer.predict_entries(observed, rows, j[fitted], std, both=both)
        assign(fitted, found)
    if added.any():
        observed, rows = Observations.vstack(extra_rows), -1 - i[added]
        assign(added, scorer.predict_entries(observed, rows, j[added], std, both=False))
    for position in np.unique(i[j < 0]):
        user = None if position < 0 else int(position)
        row = extra_rows[-1 - position] if user is None else scorer.training_row(user)
        assign((i == position) & (j < 0), _predict_random_item(scorer, row, user, std))
    return PairPredictions(values, deviations, j, fitted & scorer.is_blended)


def _predict_random_item(
    scorer: Scorer, row: Observations, user: int | None, std: str | None
) -> tuple[float, float | None]:
    """Mean and standard deviation of a user's rating of an item drawn at random."""
    values, deviations = scorer.predict_all_items(row, user, std)
    mean = float(np.mean(values))
    if deviations is None:
        return mean, None
    # In units of the largest, whose square is 1, so that none can overflow.
    unit = max(float(np.max(np.abs(values))), float(np.max(deviations))) or 1.0
    within, between = np.mean((deviations / unit) ** 2), np.var(values / unit)
    return mean, unit * float(np.sqrt(within + between))

"""A fitted model of one or both sides of a matrix, apart from any estimator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import cholesky

from ncarl.bayes.near import Near, NearChoice, nearest
from ncarl.bayes.range import Range
from ncarl.bayes.standard import Standard
from ncarl.centre import Centre
from ncarl.core.linalg import add_diagonal, jitter_steps, mean_diagonal
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.exceptions import NotPositiveDefiniteError
from ncarl.model import KernelModel
from ncarl.observed import Observed

#: Draws are made so many numbers at a time.
DRAW_ROOM = 20_000_000


@dataclass(frozen=True)
class TwoSided:
    """Kernels of columns and rows, and how much each of them says.

    Attributes
    ----------
    standard : Standard
        Units of the values.
    range : Range
        Where filled values may lie.
    columns, rows : KernelModel or None
        The sides; that of the rows works on the transposed matrix.
    weight : float
        Part of the column side in the entries of the matrix of the fit.
    near : NearChoice or None
        How the nearest rows are heard about entries of that matrix.
    """

    standard: Standard
    range: Range
    columns: KernelModel | None
    rows: KernelModel | None
    weight: float
    near: NearChoice | None = None
    #: The nearest rows of the matrix of the fit, once they have been asked for.
    found: list[Near] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def complete(
        self, observed: Observed, engine: Engine, *, std: str | None, both: bool
    ) -> tuple[Array, Array | None]:
        """All entries as the model sees them, and their standard deviations.

        ``both`` asks for all that is known of the matrix of the fit, and only of that:
        both sides, and the nearest rows.
        """
        inner = self.standard.inward(observed)
        answers = []
        for side, share in self._shares(both):
            turned = inner.transposed() if side is self.rows else inner
            X, spread = side.complete(turned, engine, std=std)
            if side is self.rows:
                X, spread = X.T, None if spread is None else spread.T
            answers.append((share, X, spread))
        X, spread = _mixed(answers)
        if both and self.near is not None:
            near = self._near(inner, engine)
            for rows, terms in near.strips(self.near.count):
                part = None if spread is None else spread[rows]
                X[rows], part = self.near.corrected(terms, X[rows], part)
                if spread is not None:
                    spread[rows] = part
        return X, spread

    def predict(
        self, observed: Observed, i: Array, j: Array, engine: Engine, *,
        std: str | None, both: bool,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Single entries as the model sees them, and their standard deviations."""
        inner = self.standard.inward(observed)
        answers = []
        for side, share in self._shares(both):
            if side is self.rows:
                x, spread = side.predict(inner.transposed(), j, i, engine, std=std)
            else:
                x, spread = side.predict(inner, i, j, engine, std=std)
            answers.append((share, x, spread))
        x, spread = _mixed(answers)
        if both and self.near is not None:
            terms = self._near(inner, engine).terms_at(i, j, self.near.count)
            x, spread = self.near.corrected(terms, x, spread)
        return x, spread

    def _near(self, inner: Observed, engine: Engine) -> Near:
        """The nearest rows of the matrix of the fit; they are looked for once."""
        if not self.found:
            assert self.columns is not None
            assert self.near is not None
            near = nearest(self.columns, inner, engine, self.near.count)
            assert near is not None  # chosen by a model with noise
            self.found.append(near)
        return self.found[0]

    def _shares(self, both: bool) -> Iterator[tuple[KernelModel, float]]:
        """The sides that have a say, and how much."""
        if self.columns is None or self.rows is None:
            only = self.columns or self.rows
            assert only is not None
            yield only, 1.0
        elif not both:
            yield self.columns, 1.0
        else:
            yield self.columns, self.weight
            yield self.rows, 1.0 - self.weight

    def draws(
        self, observed: Observed, count: int, rng: np.random.Generator, engine: Engine
    ) -> Array:
        """Completed matrices as they might be, shape (count, m, n).

        A draw of the prior is corrected by what the entries say against it: rows are
        completed from the difference. All draws of a row share its factorisation.
        """
        assert self.columns is not None
        m, n = observed.shape
        model = self.columns
        inner, _ = model.prepare(self.standard.inward(observed))
        plain = replace(model, centre=_no_centre(n))
        root = _root(model.kernel.K)
        drawn = np.empty((count, m, n))
        step = max(1, DRAW_ROOM // max(1, count * n))
        for first in range(0, m, step):
            part = inner.take_rows(np.arange(first, min(first + step, m)))
            X = _posterior_draws(part, count, rng, plain, root, engine)
            rows = X * model.centre.spreads + (model.centre.mean + model.centre.columns)
            rows = self.range.settled_rows(self.standard.outward(rows))
            drawn[:, first : first + step] = rows.reshape(count, -1, n)
        drawn[:, observed.rows, observed.indices] = observed.values
        return drawn


def _posterior_draws(
    part: Observed, count: int, rng: np.random.Generator, model: KernelModel,
    root: Array, engine: Engine,
) -> Array:  # fmt: skip
    """Draws of some rows as they would be observed, one below the other."""
    m, n = part.shape
    many = part.take_rows(np.tile(np.arange(m), count))
    prior = rng.standard_normal((count * m, n)) @ root.T
    spread = np.sqrt(model.kernel.s)
    noise = spread * rng.standard_normal(many.n_observed)
    against = many.values - prior[many.rows, many.indices] - noise
    correction, _ = model.complete(many.with_values(against), engine)
    further = spread * rng.standard_normal(prior.shape)
    drawn: Array = prior + correction + further
    return drawn


def _root(K: Array) -> Array:
    """Lower factor of the kernel, which may be all but singular."""
    for jitter in jitter_steps(K.dtype):
        try:
            return cholesky(add_diagonal(K, jitter * mean_diagonal(K)), lower=True)
        except np.linalg.LinAlgError:
            continue
    raise NotPositiveDefiniteError("the kernel has no root: it is not a covariance")


def _no_centre(n: int) -> Centre:
    """A centre that changes nothing."""
    return Centre(0.0, np.zeros(n), None, np.ones(n))


def _mixed(
    answers: list[tuple[float, Array, Array | None]],
) -> tuple[Array, Array | None]:
    """Weighted mean of values, and of variances."""
    if len(answers) == 1:
        _, x, spread = answers[0]
        return x, spread
    values = sum(share * x for share, x, _ in answers)
    if answers[0][2] is None:
        return values, None
    squares = sum(share * s**2 for share, _, s in answers if s is not None)
    return values, np.sqrt(squares)

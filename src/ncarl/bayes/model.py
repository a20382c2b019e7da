"""`TwoSidedModel`: fitted kernels of the columns and rows of a matrix.

Also in this module: the nearest-neighbor correction of its residuals (`RowNeighbors`),
draws from its posterior, calibrated standard deviations (`fit_std_factors`), and
conformal intervals (`ConformalScores`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from ncarl.bayes.mixture_model import MixtureModel
from ncarl.centering import Centering, Scaler, ValueBounds
from ncarl.core.linalg import cholesky_with_jitter
from ncarl.core.types import Array
from ncarl.engines.base import Engine
from ncarl.exceptions import NotPositiveDefiniteError
from ncarl.fitting.kernel_model import KernelModel
from ncarl.observations import Observations

#: Numbers of nearest rows that are tried.
N_NEIGHBORS_GRID = (5, 10, 20)
#: Errors of 0 added to those of the nearest rows before their mean is taken.
SHRINKAGE_COUNT = 1.0
#: Rows are not compared if that takes more flops, or the completed matrix is larger.
MAX_FLOPS, MAX_ENTRIES = 5e11, 1e8
#: Minimum mean number of the nearest rows (of the largest grid value) that must have
#: observed an entry: in a sparse matrix (MovieLens has 5% of its entries) they do not
#: help.
MIN_OBSERVED_NEIGHBORS = 2.0
#: Minimum ``1 - c / s`` of an entry with a leave-one-out error; below it rounding
#: dominates.
MIN_LOO_DENOMINATOR = 1e-4
#: Entries whose neighbor corrections are computed at a time.
NEIGHBOR_CHUNK_SIZE = 20_000_000
#: Numbers that are drawn at a time.
SAMPLE_CHUNK_SIZE = 20_000_000
#: Scores that are kept; more would not change the quantiles.
MAX_SCORES = 100_000
#: Largest share of one held-out entry in the sum of squared z: a wrong value widens all
#: deviations by a fifth at most. On a table with gross outliers (breast cancer, 40
#: masks) 0.1 gives a mean squared z of 1.09, this and no limit 1.06.
MAX_SQUARE_SHARE = 0.3
#: Largest tail probability from which intervals are extrapolated.
MAX_TAIL = 1.0 / 3.0
#: Tolerance of a rank below the next integer.
RANK_EPS = 1e-9


@dataclass(frozen=True)
class NeighborCorrection:
    """Correction of predictions by the mean error of the nearest rows."""

    n_neighbors: int
    weight: float  # of the mean error
    std_factor: float  # of the standard deviations of corrected predictions

    def correct(
        self, mean_errors: Array, x: Array, std: Array | None
    ) -> tuple[Array, Array | None]:
        """Corrected predictions; unchanged where ``mean_errors`` is NaN."""
        unchanged = np.isnan(mean_errors)
        x = x + self.weight * np.where(unchanged, 0.0, mean_errors)
        if std is not None:
            std = std * np.where(unchanged, 1.0, self.std_factor)
        return x, std


@dataclass(frozen=True)
class RowNeighbors:
    """The nearest rows of every row of a matrix, and the errors of their entries."""

    neighbors: Array  # (m, count), the nearest first; arbitrary for an empty row
    loo_errors: Observations  # of entries predicted from the others of their row

    def mean_errors(self, rows: Array, n_neighbors: int) -> Array:
        """Mean errors of the nearest rows of some rows, in all columns.

        NaN at observed entries and in empty rows.
        """
        m = self.loo_errors.shape[0]
        nearest = self.neighbors[rows, :n_neighbors]
        indptr = nearest.shape[1] * np.arange(len(rows) + 1)
        chosen = csr_array(
            (np.ones(nearest.size), nearest.ravel(), indptr), shape=(len(rows), m)
        )
        ones = self.loo_errors.with_values(np.ones(self.loo_errors.n_observed))
        sums: Array = (chosen @ self.loo_errors.to_csr()).toarray()
        sums /= (chosen @ ones.to_csr()).toarray() + SHRINKAGE_COUNT
        own = self.loo_errors.take_rows(rows)
        sums[own.rows, own.indices] = np.nan
        sums[own.row_counts == 0] = np.nan
        return sums

    def iter_mean_errors(self, n_neighbors: int) -> Iterator[tuple[slice, Array]]:
        """Mean errors for all rows, a slice of rows at a time."""
        m, n = self.loo_errors.shape
        step = max(1, NEIGHBOR_CHUNK_SIZE // n)
        for first in range(0, m, step):
            rows = slice(first, min(first + step, m))
            yield rows, self.mean_errors(np.arange(rows.start, rows.stop), n_neighbors)

    def mean_errors_at(self, i: Array, j: Array, n_neighbors: int) -> Array:
        """Mean errors at single entries."""
        distinct, position = np.unique(i, return_inverse=True)
        order = np.argsort(position, kind="stable")
        errors = np.empty(len(i))
        step = max(1, NEIGHBOR_CHUNK_SIZE // self.loo_errors.shape[1])
        for first in range(0, len(distinct), step):
            part = self.mean_errors(distinct[first : first + step], n_neighbors)
            ends = np.searchsorted(position[order], [first, first + step])
            entries = order[slice(*ends)]
            errors[entries] = part[position[entries] - first, j[entries]]
        return errors


def can_compare_rows(observed: Observations) -> bool:
    """Whether comparing all rows is affordable, and neighbors share enough columns."""
    m = int(np.count_nonzero(observed.row_counts))
    n = int(np.count_nonzero(observed.column_counts))
    affordable = 2.0 * m * m * n <= MAX_FLOPS and m * n <= MAX_ENTRIES
    neighbors = N_NEIGHBORS_GRID[-1] * observed.n_observed / max(1, m * n)
    enough = m > 2 * N_NEIGHBORS_GRID[0] and neighbors >= MIN_OBSERVED_NEIGHBORS
    return affordable and enough


def find_row_neighbors(
    model: KernelModel, observed: Observations, engine: Engine, n_neighbors: int
) -> RowNeighbors | None:
    """Nearest completed rows of each row; None for a model without noise."""
    from sklearn.neighbors import NearestNeighbors  # takes half a second to import

    errors = leave_one_out_errors(model, observed, engine)
    if errors is None:
        return None
    X, _ = model.complete(observed, engine)
    nonempty = np.flatnonzero(observed.row_counts)
    n_neighbors = min(n_neighbors, len(nonempty) - 1)
    search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute")
    rows = np.zeros((len(X), n_neighbors), dtype=np.int64)
    threads = getattr(engine.compute_device, "n_jobs", None)
    with threadpool_limits(threads, user_api="openmp"):
        nearest = search.fit(X[nonempty]).kneighbors(return_distance=False)
    rows[nonempty] = nonempty[nearest]
    return RowNeighbors(rows, errors)


def leave_one_out_errors(
    model: KernelModel, observed: Observations, engine: Engine
) -> Observations | None:
    """Errors of the entries, each predicted from the others of its row.

    With latent variance ``c`` and noise ``s``, an entry contributes ``c / s`` of itself
    to its own prediction, so that its leave-one-out error is its residual over
    ``1 - c / s``. None for a model without noise.
    """
    if model.kernel.s == 0.0:
        return None
    j = observed.indices.astype(np.int64)
    x, std = model.predict(observed, observed.rows, j, engine, std="latent")
    assert std is not None
    noise = model.kernel.s * model.centering.column_scales[j] ** 2
    denominator = 1.0 - std**2 / noise
    valid = denominator > MIN_LOO_DENOMINATOR
    residuals = np.where(valid, observed.values - x, 0.0)
    return observed.with_values(residuals / np.where(valid, denominator, 1.0))


@dataclass(frozen=True)
class TwoSidedModel:
    """Kernel models of columns and rows, and how their predictions are combined."""

    scaler: Scaler  # units of the values
    bounds: ValueBounds  # of imputed values
    columns: KernelModel | MixtureModel | None
    rows: KernelModel | None  # of the transposed matrix
    weight: float  # of the column side in entries of the matrix of the fit
    neighbor_correction: NeighborCorrection | None = None  # of entries of that matrix
    #: (n,): factors of standard deviations by column; None if nothing was held out.
    std_factors: Array | None = None
    blended_std_factors: Array | None = None  # in entries of the matrix of the fit
    #: The nearest rows of the matrix of the fit, once they have been computed.
    neighbor_cache: list[RowNeighbors] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def complete(
        self, observed: Observations, engine: Engine, *, std: str | None,
        transductive: bool,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """All entries in the units of the model, and their standard deviations.

        ``transductive`` uses both sides and the nearest rows; ``observed`` must then
        be the matrix of the fit.
        """
        inner = self.scaler.transform(observed)
        predictions = []
        for side, weight in self._side_weights(transductive):
            oriented = inner.transpose() if side is self.rows else inner
            X, deviations = side.complete(oriented, engine, std=std)
            if side is self.rows:
                X, deviations = X.T, None if deviations is None else deviations.T
            predictions.append((weight, X, deviations))
        X, deviations = average_predictions(predictions)
        correction = self.neighbor_correction
        if transductive and correction is not None:
            neighbors = self._row_neighbors(inner, engine)
            for rows, errors in neighbors.iter_mean_errors(correction.n_neighbors):
                part = None if deviations is None else deviations[rows]
                X[rows], part = correction.correct(errors, X[rows], part)
                if deviations is not None:
                    deviations[rows] = part
        return X, self._calibrate(deviations, transductive)

    def predict(
        self, observed: Observations, i: Array, j: Array, engine: Engine, *,
        std: str | None, transductive: bool,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Single entries in the units of the model, and their standard deviations."""
        inner = self.scaler.transform(observed)
        predictions = []
        for side, weight in self._side_weights(transductive):
            entries = (inner.transpose(), j, i) if side is self.rows else (inner, i, j)
            predictions.append((weight, *side.predict(*entries, engine, std=std)))
        x, deviations = average_predictions(predictions)
        correction = self.neighbor_correction
        if transductive and correction is not None:
            neighbors = self._row_neighbors(inner, engine)
            errors = neighbors.mean_errors_at(i, j, correction.n_neighbors)
            x, deviations = correction.correct(errors, x, deviations)
        return x, self._calibrate(deviations, transductive, j)

    def _calibrate(
        self, deviations: Array | None, transductive: bool, columns: Any = slice(None)
    ) -> Array | None:
        factors = self.blended_std_factors if transductive else self.std_factors
        if deviations is None or factors is None:
            return deviations
        return deviations * factors[columns]

    def _row_neighbors(self, inner: Observations, engine: Engine) -> RowNeighbors:
        if not self.neighbor_cache:
            assert isinstance(self.columns, KernelModel)
            assert self.neighbor_correction is not None
            neighbors = find_row_neighbors(
                self.columns, inner, engine, self.neighbor_correction.n_neighbors
            )
            assert neighbors is not None  # the correction needs a model with noise
            self.neighbor_cache.append(neighbors)
        return self.neighbor_cache[0]

    def _side_weights(
        self, transductive: bool
    ) -> Iterator[tuple[KernelModel | MixtureModel, float]]:
        if self.columns is None or self.rows is None:
            only = self.columns or self.rows
            assert only is not None
            yield only, 1.0
        elif not transductive:
            yield self.columns, 1.0
        else:
            yield self.columns, self.weight
            yield self.rows, 1.0 - self.weight

    def sample_posterior(
        self, observed: Observations, n_draws: int, rng: np.random.Generator,
        engine: Engine, *, transductive: bool,
    ) -> Array:  # fmt: skip
        """Draws of the completed matrix, shape (n_draws, m, n).

        Deviations from the mean are draws of the prior minus their completion from
        their observed entries (Matheron's rule); all draws of a row share its
        factorization. They have the correlations of the column side, and the means and
        standard deviations of `complete`.
        """
        assert self.columns is not None
        m, n = observed.shape
        model = self.columns
        inner = self.scaler.transform(observed)
        # If other sides contribute, deviations are rescaled to their standard ones.
        kind = "observed" if transductive and model.kernel.s > 0.0 else None
        means, stds = self.complete(
            observed, engine, std=kind, transductive=transductive
        )
        factors = np.ones(n) if self.std_factors is None else self.std_factors
        drawn = np.empty((n_draws, m, n))
        step = max(1, SAMPLE_CHUNK_SIZE // max(1, n_draws * n))
        for first in range(0, m, step):
            chunk = slice(first, min(first + step, m))
            part = inner.take_rows(np.arange(chunk.start, chunk.stop))
            if isinstance(model, MixtureModel):
                X = _sample_mixture(part, n_draws, rng, model, engine)
            else:
                X = _sample_deviations(part, n_draws, rng, model, engine)
            X = X.reshape(n_draws, -1, n)
            if stds is None:
                X *= factors
            else:
                _, own = model.complete(part, engine, std=kind)
                assert own is not None
                X *= np.divide(stds[chunk], own, out=np.zeros_like(own), where=own > 0)
            rows = self.scaler.inverse_transform((X + means[chunk]).reshape(-1, n))
            rows = self.bounds.clip_and_round_rows(rows)
            drawn[:, chunk] = rows.reshape(n_draws, -1, n)
        drawn[:, observed.rows, observed.indices] = observed.values
        return drawn


def _sample_deviations(
    observed: Observations, n_draws: int, rng: np.random.Generator, model: KernelModel,
    engine: Engine,
) -> Array:  # fmt: skip
    """Draws of the deviations of some rows with noise, shape (n_draws * m, n)."""
    m, n = observed.shape
    try:
        factor, _ = cholesky_with_jitter(model.kernel.K, np.arange(n), 0.0)
    except NotPositiveDefiniteError as error:
        message = "the kernel of the columns is not positive semidefinite"
        raise NotPositiveDefiniteError(message) from error
    uncentered = replace(model, centering=Centering.at_means(np.zeros(n)))
    repeated = observed.take_rows(np.tile(np.arange(m), n_draws))
    prior = rng.standard_normal((n_draws * m, n)) @ factor.T
    noise_std = np.sqrt(model.kernel.s)
    noise = noise_std * rng.standard_normal(repeated.n_observed)
    seen = prior[repeated.rows, repeated.indices] + noise
    completed, _ = uncentered.complete(repeated.with_values(seen), engine)
    X = prior - completed + noise_std * rng.standard_normal(prior.shape)
    return np.asarray(X * model.centering.column_scales)


def _sample_mixture(
    observed: Observations, n_draws: int, rng: np.random.Generator, model: MixtureModel,
    engine: Engine,
) -> Array:  # fmt: skip
    """Draws of the deviations of some rows from their means under a mixture.

    Each row of each draw is of one component, drawn by its responsibilities.
    """
    m, n = observed.shape
    bounds = np.cumsum(model.responsibilities(observed, engine), axis=1)[:, :-1]
    labels = (rng.random((n_draws, m, 1)) > bounds).sum(axis=2)
    X = np.empty((n_draws, m, n))
    for k, component in enumerate(model.components):
        draws, rows = np.nonzero(labels == k)
        if len(rows) == 0:
            continue
        distinct, position = np.unique(rows, return_inverse=True)
        means, _ = component.complete(observed.take_rows(distinct), engine)
        part = observed.take_rows(rows)
        deviations = _sample_deviations(part, 1, rng, component, engine)
        X[draws, rows] = means[position] + deviations
    X -= model.complete(observed, engine)[0]
    return X


def average_predictions(
    predictions: list[tuple[float, Array, Array | None]],
) -> tuple[Array, Array | None]:
    """Weighted means, and standard deviations from the means of the variances."""
    if len(predictions) == 1:
        _, x, std = predictions[0]
        return x, std
    values = sum(weight * x for weight, x, _ in predictions)
    if predictions[0][2] is None:
        return values, None
    variances = sum(weight * s**2 for weight, _, s in predictions if s is not None)
    return values, np.sqrt(variances)


@dataclass(frozen=True)
class ConformalScores:
    """Errors on held-out entries over their standard deviations."""

    sorted_scores: Array  # increasing; empty if no entry was held out
    effective_size: float  # number of independent errors that they are worth

    @classmethod
    def from_errors(
        cls, errors: Array, deviations: Array, rows: Array, columns: Array
    ) -> ConformalScores:
        """Scores of the errors whose standard deviation is not 0."""
        valid = deviations > 0.0
        scores = errors[valid] / deviations[valid]
        size = effective_sample_size(scores, rows[valid], columns[valid])
        ordered = np.sort(scores)
        if len(ordered) > MAX_SCORES:
            positions = np.linspace(0, len(ordered) - 1, MAX_SCORES).round()
            ordered = ordered[positions.astype(np.int64)]
        return cls(ordered, min(size, float(len(ordered))))

    def quantiles(self, level: float) -> tuple[float, float]:
        """Lengths of an interval below and above, in standard deviations.

        Both tails have the same probability. If there are too few scores for such a
        rank, the outermost ones are extrapolated by a normal distribution; without
        scores its quantiles are returned.
        """
        tail = (1.0 - level) / 2.0
        normal = float(norm.ppf(1.0 - tail))
        if len(self.sorted_scores) < 2:
            return normal, normal
        n, count = len(self.sorted_scores), self.effective_size
        # The smallest tail that the scores determine: beyond one independent score.
        smallest = min((2.0 - count / n) / (count + 1.0), MAX_TAIL)
        used = max(tail, smallest)
        # Scores beyond the interval; (n + 1) tail - 1 if all scores are independent.
        beyond = n * (used - (1.0 - used) / count)
        rank = max(0, math.floor(beyond + RANK_EPS))
        low = -float(self.sorted_scores[rank])
        high = float(self.sorted_scores[-1 - rank])
        if used == tail:
            return low, high
        factor = max(1.0, normal / float(norm.ppf(1.0 - smallest)))
        # An outermost score on the wrong side of 0 does not determine its tail.
        return max(low, 1.0) * factor, max(high, 1.0) * factor

    @property
    def rms(self) -> float:
        """Root mean square of the scores: 1 if the standard deviations are right."""
        if len(self.sorted_scores) == 0:
            return float("nan")
        return float(np.sqrt(np.mean(self.sorted_scores**2)))

    @property
    def normal_coverage(self) -> float:
        """Share of the scores within 1.96: 0.95 if they are normal."""
        if len(self.sorted_scores) == 0:
            return float("nan")
        return float(np.mean(np.abs(self.sorted_scores) <= norm.ppf(0.975)))


def fit_std_factors(
    errors: Array, deviations: Array, rows: Array, columns: Array, splits: Array, n: int
) -> Array | None:
    """Factors of the standard deviations of ``n`` columns, from held-out errors.

    With them the mean squared z (error over standard deviation) of other entries is 1.
    They have a common part, and one for each column that is shrunk toward 1. ``splits``
    is the position of the split that held an entry out. None without errors.
    """
    valid = deviations > 0.0
    scores = errors[valid] / deviations[valid]
    # An entry that several splits hold out counts once.
    places = rows[valid].astype(np.int64) * n + columns[valid]
    _, first, copies = np.unique(places, return_index=True, return_inverse=True)
    squares = np.bincount(copies, scores**2) / np.bincount(copies)
    squares = limit_shares(np.append(squares, 1.0))[:-1]
    common = float(np.mean(squares)) if len(squares) else 0.0
    if common == 0.0:
        return None
    rows, columns, splits = (x[valid][first] for x in (rows, columns, splits))
    squares = squares / common
    ratio = column_variance_ratio(squares, columns, splits)
    sums = ratio * np.bincount(columns, squares, minlength=n)
    counts = ratio * np.bincount(columns, minlength=n)
    # What the other entries predict for each one.
    squares /= (1.0 + sums[columns] - ratio * squares) / (1.0 + counts[columns] - ratio)
    mean = float(np.mean(squares))
    size = effective_sample_size(squares - mean, rows, columns)
    # The mean of a new square over their mean exceeds 1 by its relative variance, that
    # of squared normal numbers at least. One square of 1 is added, for very few.
    relative_variance = max(2.0, float(np.var(squares)) / mean**2) / size
    variance = (size * mean * common + 1.0) / (size + 1.0) * (1.0 + relative_variance)
    return np.asarray(np.sqrt(variance * (1.0 + sums) / (1.0 + counts)))


def limit_shares(squares: Array) -> Array:
    """Squares of which none is more than `MAX_SQUARE_SHARE` of their sum.

    Of few squares each may be ten times the mean of the others.
    """
    share = max(MAX_SQUARE_SHARE, 10.0 / (10.0 + len(squares)))
    ordered, limit = np.sort(squares), np.inf
    sums = np.cumsum(ordered)
    for count in range(min(len(squares), math.ceil(1.0 / share - RANK_EPS))):
        # With the ``count`` largest at the limit, which is a share of the new sum.
        limit = share * float(sums[-1 - count]) / (1.0 - share * count)
        if ordered[-1 - count] <= limit:
            break
    return np.minimum(squares, limit)


def column_variance_ratio(squares: Array, columns: Array, splits: Array) -> float:
    """Variance of the means of columns over that of single squares (random effects).

    Held-out entries of a column may come in a block, in which they are correlated: how
    much is seen from how its mean varies between splits. 0 if there is only one, and 1
    at most: squares of normal numbers vary by more than their mean.
    """
    n_splits, count = int(splits.max()) + 1, len(squares)
    counts = np.bincount(columns)
    means = np.bincount(columns, squares) / np.maximum(counts, 1)
    residuals = squares - means[columns]
    n_columns = int(np.count_nonzero(counts))
    if n_splits == 1 or n_columns == 1 or n_columns == count:
        return 0.0
    blocks = np.bincount(columns * n_splits + splits, residuals)
    within = max(
        float(residuals @ residuals) / (count - n_columns),
        float(blocks @ blocks) / count * n_splits / (n_splits - 1),
    )
    spread = float(counts @ (means - np.mean(squares)) ** 2) - (n_columns - 1) * within
    between = spread / (count - float(counts @ counts) / count)
    return min(1.0, max(0.0, between) / within) if within > 0.0 else 0.0


def effective_sample_size(errors: Array, rows: Array, columns: Array) -> float:
    """Number of independent errors that correlated errors are worth.

    The squared sum of ``k`` independent errors is about the sum of their squares; if
    the errors of a row are all the same, it is ``k`` times as much. The inflation is
    the larger one of rows and columns.
    """
    total = float(errors @ errors)
    if total == 0.0:
        return float(len(errors))
    inflation = 1.0
    for owner in (rows, columns):
        sums = np.bincount(owner, errors)
        inflation = max(inflation, float(sums @ sums) / total)
    return max(1.0, len(errors) / inflation)

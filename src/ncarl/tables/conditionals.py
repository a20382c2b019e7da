"""Conditional distributions of the cells of a table under mixtures of normals.

`condition_rows` gives the distribution of every cell given the other cells of its row:
of missing cells as they are, and on request of observed ones as if they were missing.
With ``A = K_oo``, ``y = A^-1 (v - mean_o)`` and a cell with coordinates ``b`` the error
of its prediction is ``(A^-1)_bb^-1 y_b`` and the missing coordinates change by
``-K_uo A^-1_ob`` times that. Nothing else of the cell may remain in the completed row,
not even in the last digits: trees would find it in rows that are equal otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtr

from ncarl.bayes.mixture import GaussianMixture, total_moments
from ncarl.core.types import Array
from ncarl.tables.encoding import CategoryEncoder, NumberEncoder

#: Rows that are conditioned at a time.
CHUNK_ROWS = 2_000
#: Number of elements of a batch of small matrices.
MAX_BATCH_ELEMENTS = 4_000_000
#: Components with a smaller weight do not count for the features of a row.
MIN_WEIGHT = 1e-3


@dataclass(frozen=True)
class Target:
    """A column whose cells are predicted."""

    position: int  # of the column in the table
    coordinates: Array  # of the column in the model, adjacent
    encoder: NumberEncoder | CategoryEncoder

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers."""
        return isinstance(self.encoder, NumberEncoder)


@dataclass(frozen=True)
class RowConditionals:
    """Conditional distributions of the cells of some rows."""

    completed: Array  # (m, n): observed coordinates, expected ones where missing
    #: By position of the column: expected numbers and their variances, in units of the
    #: column, or probabilities of the categories, (m, k).
    numbers: dict[int, tuple[Array, Array]]
    probabilities: dict[int, Array]
    #: Completed rows without the cell itself, float32, (cells, m, n); rows in which it
    #: is missing are 0. None unless observed cells are left out.
    features: Array | None = None


def mean_of_members(parts: Iterable[RowConditionals], count: int) -> RowConditionals:
    """Equal mixture of the conditional distributions under ``count`` models."""
    completed: Any = 0.0
    moments: dict[int, tuple[Array, Array]] = {}
    probabilities: dict[int, Array] = {}
    features: Array | None = None
    for part in parts:  # one at a time, as the features may be large
        completed = completed + part.completed / count
        for j, (mean, variance) in part.numbers.items():
            first, second = moments.get(j, (0.0, 0.0))
            square = variance + mean**2
            moments[j] = first + mean / count, second + square / count
        for j, shares in part.probabilities.items():
            probabilities[j] = probabilities.get(j, 0.0) + shares / count
        if (added := part.features) is not None:
            added /= count
            features = added if features is None else np.add(features, added, features)
    numbers = {j: (m, np.maximum(s - m**2, 0.0)) for j, (m, s) in moments.items()}
    return RowConditionals(completed, numbers, probabilities, features)


def condition_rows(
    mixture: GaussianMixture, cells: Sequence[Target], Z: Array, *,
    leave_out: bool = False, features: bool = True,
) -> RowConditionals:  # fmt: skip
    """Conditional distributions of all cells of rows with missing coordinates (NaN).

    With ``leave_out`` observed cells are predicted too, and there are ``features``.
    """
    parts = []
    step = len(Z) + 1 if leave_out else CHUNK_ROWS  # features are for few rows
    for first in range(0, max(1, len(Z)), step):
        work = _Conditioning(mixture, cells, Z[first : first + step], leave_out)
        for k in range(mixture.n_components):
            work.add_component(k)
        parts.append(work.collect(features=features))
    return parts[0] if len(parts) == 1 else _concatenate(parts)


def _concatenate(parts: Sequence[RowConditionals]) -> RowConditionals:
    numbers = {}
    for j in parts[0].numbers:
        means, variances = zip(*(part.numbers[j] for part in parts), strict=True)
        numbers[j] = np.concatenate(means), np.concatenate(variances)
    probabilities = {
        j: np.concatenate([part.probabilities[j] for part in parts])
        for j in parts[0].probabilities
    }
    completed = np.concatenate([part.completed for part in parts])
    return RowConditionals(completed, numbers, probabilities)


class _Conditioning:
    def __init__(
        self,
        mixture: GaussianMixture,
        cells: Sequence[Target],
        Z: Array,
        leave_out: bool,
    ) -> None:
        self.mixture, self.cells, self.Z, self.leave_out = mixture, cells, Z, leave_out
        m, n = Z.shape
        count, self.noise = mixture.n_components, mixture.noise
        self.observed = ~np.isnan(Z)
        self.scalars = [t for t, cell in enumerate(cells) if len(cell.coordinates) == 1]
        self.blocks = [t for t in range(len(cells)) if t not in self.scalars]
        self.scalar_columns = np.array(
            [cells[t].coordinates[0] for t in self.scalars], dtype=np.int64
        )
        #: Position of the cell of a scalar coordinate, -1 for those of blocks.
        self.cell_of = np.full(n, -1)
        self.cell_of[self.scalar_columns] = self.scalars
        # Without the own cell at observed coordinates if these are left out.
        self.means = np.empty((count, m, n))
        self.variances = np.empty((count, m, n))
        self.errors = np.zeros((count, m, n)) if leave_out else None
        #: Log density of a row, and log density of each observed cell given the others.
        self.log_weights = np.empty((count, m))
        self.own_density = np.zeros((count, m, len(cells)))
        self.probabilities = {
            t: np.empty((count, m, len(cells[t].encoder.labels)))  # type: ignore[union-attr]
            for t, cell in enumerate(cells)
            if not cell.is_number
        }
        #: Directions in which categories follow each other, and the variances there.
        self.axes = {t: self._axis(t) for t in self.probabilities}
        self.axis_variances = {t: np.ones((count, m)) for t in self.probabilities}

    def _axis(self, t: int) -> Array:
        """Direction of the coordinates that depends most on the others."""
        b = self.cells[t].coordinates
        others = np.setdiff1d(np.arange(self.Z.shape[1]), b)
        if len(b) == 1 or len(others) == 0:
            return np.eye(len(b))[0]
        K = total_moments(self.mixture)[1]
        return np.linalg.svd(K[np.ix_(b, others)])[0][:, 0]

    def _factorize(self, k: int, index: Array) -> tuple[Array, Array, Array]:
        """Rows of the covariance, inverse Cholesky factors and log-determinants."""
        K = self.mixture.covariances[k]
        A = K[index[:, :, None], index[:, None, :]]
        diagonal = np.arange(index.shape[1])
        A[:, diagonal, diagonal] += self.noise
        half = np.linalg.inv(np.linalg.cholesky(A))
        log_dets = -2.0 * np.log(np.diagonal(half, axis1=1, axis2=2)).sum(axis=1)
        return K[index], half, log_dets

    def add_component(self, k: int) -> None:
        """Condition the rows under one component."""
        mixture, K = self.mixture, self.mixture.covariances[k]
        self.means[k] = mixture.means[k]
        self.variances[k] = K.diagonal()
        self.log_weights[k] = np.log(mixture.weights[k])
        empty = np.flatnonzero(~self.observed.any(axis=1))
        for t in self.probabilities:
            means, covariances = self._prior_of(k, t, len(empty))
            self._set_probabilities(k, t, empty, means, covariances)
            self.axis_variances[t][k, empty] = covariances @ self.axes[t] @ self.axes[t]
        for at, index in batches(self.observed):
            self._add_batch(k, at, index)

    def _prior_of(self, k: int, t: int, count: int) -> tuple[Array, Array]:
        b, mixture = self.cells[t].coordinates, self.mixture
        covariance = mixture.covariances[k][np.ix_(b, b)]
        means = np.broadcast_to(mixture.means[k][b], (count, len(b)))
        return means, np.broadcast_to(covariance, (count, *covariance.shape))

    def _add_batch(self, k: int, at: Array, index: Array) -> None:
        mixture = self.mixture
        C, half, log_dets = self._factorize(k, index)
        v = self.Z[at[:, None], index] - mixture.means[k][index]
        Ai = np.swapaxes(half, 1, 2) @ half
        y = np.einsum("gab,gb->ga", Ai, v)
        G = Ai @ C  # derivatives of all coordinates with respect to observed ones
        self.means[k][at] += np.einsum("ga,gan->gn", y, C)
        self.variances[k][at] -= np.einsum("gan,gan->gn", C, G)
        for t in self.probabilities:
            self._add_missing_categories(k, t, at, C, G)
        fits = np.einsum("ga,ga->g", v, y)
        self.log_weights[k, at] -= 0.5 * (fits + log_dets)
        if self.leave_out:
            self._leave_out_scalars(k, at, index, Ai, y)
            for t in self.blocks:
                self._leave_out_block(k, t, at, Ai, y)

    def _leave_out_scalars(
        self, k: int, at: Array, index: Array, Ai: Array, y: Array
    ) -> None:
        variances = 1.0 / np.diagonal(Ai, axis1=1, axis2=2)
        errors = y * variances
        rows, positions = np.nonzero(self.cell_of[index] >= 0)
        i, j = at[rows], index[rows, positions]
        e, variance = errors[rows, positions], variances[rows, positions]
        assert self.errors is not None
        self.errors[k, i, j] = e
        self.means[k, i, j] = self.Z[i, j] - e
        self.variances[k, i, j] = variance
        density = -0.5 * (np.log(variance) + e**2 / variance)
        self.own_density[k, i, self.cell_of[j]] = density
        for t in self.scalars:
            if self.cells[t].is_number:
                continue
            some = np.flatnonzero(self.cell_of[j] == t)
            means = self.means[k, i[some], j[some]][:, None]
            covariances = variance[some][:, None, None]
            self._set_probabilities(k, t, i[some], means, covariances)

    def _leave_out_block(self, k: int, t: int, at: Array, Ai: Array, y: Array) -> None:
        b = self.cells[t].coordinates
        has = np.flatnonzero(self.observed[at, b[0]])
        if len(has) == 0:
            return
        rows = at[has]
        span = self._span(rows, b)
        y_b = y[has[:, None], span]
        P = Ai[has[:, None, None], span[:, :, None], span[:, None, :]]
        covariances = np.linalg.inv(P)
        e = np.einsum("gab,gb->ga", covariances, y_b)
        assert self.errors is not None
        self.errors[k][rows[:, None], b] = e
        means = self.Z[rows[:, None], b] - e
        self.means[k][rows[:, None], b] = means
        log_dets = np.linalg.slogdet(covariances)[1]
        fits = np.einsum("ga,ga->g", e, y_b)
        self.own_density[k, rows, t] = -0.5 * (log_dets + fits)
        self._set_probabilities(k, t, rows, means, covariances)

    def _span(self, rows: Array, b: Array) -> Array:
        """Positions of the coordinates ``b`` among the observed ones of rows."""
        return self.observed[rows, : b[0]].sum(axis=1)[:, None] + np.arange(len(b))

    def _add_missing_categories(
        self, k: int, t: int, at: Array, C: Array, G: Array
    ) -> None:
        b = self.cells[t].coordinates
        lacks = np.flatnonzero(~self.observed[at, b[0]])
        if len(lacks) == 0:
            return
        K = self.mixture.covariances[k][np.ix_(b, b)]
        parts = np.ix_(lacks, np.arange(C.shape[1]), b)
        covariances = K - np.swapaxes(C[parts], 1, 2) @ G[parts]
        means = self.means[k][np.ix_(at[lacks], b)]
        axis = self.axes[t]
        self.axis_variances[t][k, at[lacks]] = covariances @ axis @ axis
        self._set_probabilities(k, t, at[lacks], means, covariances)

    def _set_probabilities(
        self, k: int, t: int, rows: Array, means: Array, covariances: Array
    ) -> None:
        if len(rows):
            encoder: Any = self.cells[t].encoder
            shares = category_posterior(means, covariances, encoder)
            self.probabilities[t][k, rows] = shares

    def collect(self, *, features: bool) -> RowConditionals:
        """Average over the components, with their weights given the other cells."""
        count = len(self.log_weights)
        logs = self.log_weights[:, :, None] - self.own_density
        W = np.exp(logs - logsumexp(logs, axis=0))  # (k, m, cells)
        numbers: dict[int, tuple[Array, Array]] = {}
        probabilities: dict[int, Array] = {}
        completed = self.Z.copy()
        for t, cell in enumerate(self.cells):
            weights, b = W[:, :, t], cell.coordinates
            missing = ~self.observed[:, b[0]]
            expected = np.einsum("km,kmb->mb", weights, self.means[:, :, b])
            completed[np.ix_(missing, b)] = expected[missing]
            if isinstance(cell.encoder, NumberEncoder):
                j = b[0]
                means, stds = (
                    self.means[:, :, j],
                    np.sqrt(self.variances[:, :, j].clip(0)),
                )
                moments = [
                    cell.encoder.moments(means[k], stds[k]) for k in range(count)
                ]
                first = sum(
                    w * mean for w, (mean, _) in zip(weights, moments, strict=True)
                )
                variance = sum(
                    w * (var + (mean - first) ** 2)
                    for w, (mean, var) in zip(weights, moments, strict=True)
                )
                numbers[cell.position] = np.asarray(first), np.asarray(variance)
            else:
                parts = self.probabilities[t]
                probabilities[cell.position] = np.einsum("km,kmc->mc", weights, parts)
        left_out = self._features(W) if self.leave_out and features else None
        return RowConditionals(completed, numbers, probabilities, left_out)

    def _features(self, W: Array) -> Array:
        """Completed rows without each of their observed cells."""
        m, n = self.Z.shape
        features = np.zeros((len(self.cells), m, n), dtype=np.float32)
        assert self.errors is not None
        least = min(MIN_WEIGHT, 0.5 / len(W))
        W = np.where(least < W, W, 0.0)
        W /= W.sum(axis=0)
        for k in range(self.mixture.n_components):
            full = np.where(self.observed, self.Z, self.means[k])
            for at, index in batches(self.observed & W[k].any(axis=1)[:, None]):
                C, half, _ = self._factorize(k, index)
                G = np.swapaxes(half, 1, 2) @ (half @ C)
                cells = self.cell_of[index]
                weights = W[k][at[:, None], np.maximum(cells, 0)] * (cells >= 0)
                e = self.errors[k][at[:, None], index]
                parts = full[at][:, None, :] - e[:, :, None] * G
                parts *= weights[:, :, None]
                rows, positions = np.nonzero(cells >= 0)
                features[cells[rows, positions], at[rows]] += parts[rows, positions]
                for t in self.blocks:
                    b = self.cells[t].coordinates
                    has = np.flatnonzero(self.observed[at, b[0]])
                    rows = at[has]
                    e = self.errors[k][np.ix_(rows, b)]
                    G_b = G[has[:, None], self._span(rows, b)]
                    shift = np.einsum("gb,gbn->gn", e, G_b)
                    features[t, rows] += W[k, rows, t, None] * (full[rows] - shift)
        for t, cell in enumerate(self.cells):
            b, own = cell.coordinates, self.observed[:, cell.coordinates[0]]
            known = self.observed & own[:, None]
            features[t][known] = self.Z[known]
            means = self.means[:, own][:, :, b]  # G contains a part of the noise
            features[t][np.ix_(own, b)] = np.einsum("km,kmb->mb", W[:, own, t], means)
        return features


def batches(mask: Array) -> Iterator[tuple[Array, Array]]:
    """Rows with equally many True, and their columns; rows without any are left out."""
    counts = mask.sum(axis=1)
    for count in np.unique(counts[counts > 0]):
        same = np.flatnonzero(counts == count)
        step = max(1, MAX_BATCH_ELEMENTS // (int(count) * mask.shape[1]))
        for first in range(0, len(same), step):
            at = same[first : first + step]
            yield at, np.nonzero(mask[at])[1].reshape(len(at), int(count))


def category_posterior(
    means: Array, covariances: Array, encoder: CategoryEncoder
) -> Array:
    """Probabilities of categories, shape (m, k), from the distribution of their codes.

    By Bayes' rule the likelihood of a row given a category is proportional to the
    density of the category's code given the row over its density alone, which has mean
    0 and the variances of the codes. Times the frequencies of the categories it gives
    their probabilities, as in linear discriminant analysis.
    """
    codes = encoder.codes
    residuals = codes[None, :, :] - means[:, None, :]
    solved = np.linalg.solve(covariances, np.swapaxes(residuals, 1, 2))
    conditional = np.einsum("mkj,mjk->mk", residuals, solved)
    alone = np.einsum("kj,j->k", codes**2, 1.0 / (encoder.frequencies @ codes**2))
    logits = np.log(encoder.frequencies) - 0.5 * (conditional - alone)
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def draw_rows(
    mixture: GaussianMixture,
    cells: Sequence[Target],
    Z: Array,
    rng: np.random.Generator,
) -> tuple[Array, dict[int, Array]]:
    """One draw of the missing coordinates (NaN) of each row, given the others.

    Also returned are uniform numbers by position of the columns of categories: the
    quantiles of the drawn coordinates in the direction of `category_order`.
    """
    drawn, missing = Z.copy(), np.isnan(Z)
    work = _Conditioning(mixture, cells, Z, leave_out=False)
    for k in range(mixture.n_components):
        work.add_component(k)
    logs = work.log_weights - logsumexp(work.log_weights, axis=0)
    chosen = np.argmax(logs + rng.gumbel(size=logs.shape), axis=0)
    for k in np.unique(chosen):
        K = mixture.covariances[k] + mixture.noise * np.eye(Z.shape[1])
        P = np.linalg.inv(K)
        P = (P + P.T) / 2.0
        for at, index in batches(missing & (chosen == k)[:, None]):
            factor = np.linalg.cholesky(P[index[:, :, None], index[:, None, :]])
            noise = rng.standard_normal((*index.shape, 1))
            deviations = np.linalg.solve(np.swapaxes(factor, 1, 2), noise)[:, :, 0]
            drawn[at[:, None], index] = work.means[k][at[:, None], index] + deviations
    quantiles = {}
    for t, axis in work.axes.items():
        b = cells[t].coordinates
        away = drawn[:, b] @ axis - work.means[:, :, b] @ axis
        stds = np.sqrt(work.axis_variances[t].clip(1e-12))
        quantiles[cells[t].position] = np.einsum(
            "km,km->m", np.exp(logs), ndtr(away / stds)
        )
    return drawn, quantiles


def category_order(mixture: GaussianMixture, cell: Target) -> Array:
    """Order of the categories in the direction that depends most on other columns."""
    n = mixture.means.shape[1]
    work = _Conditioning(mixture, [cell], np.empty((0, n)), leave_out=False)
    encoder: Any = cell.encoder
    return np.argsort(encoder.codes @ work.axes[0], kind="stable")

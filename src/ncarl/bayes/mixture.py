"""Mixtures of normal distributions of incomplete rows, fitted by EM.

A row is a draw ``x ~ N(mean_k, K_k)`` of component ``k``, of which some coordinates are
observed. Covariances are shrunk to a pooled one: with the responsibilities ``r`` of a
component, ``N = sum r``, and sums over the rows with these weights (`LikelihoodSums`),

    S = N K - K B K,   d = K sum_y,   g = (d + mean_0 - mean) / (N + 1),
    K <- (S - d g^T - g d^T + N g g^T + nu K_0 + (mean + g - mean_0)(...)^T) / (N + nu),

which maximizes the likelihood times a normal-inverse-Wishart prior of each component
and a Dirichlet prior of the weights.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from ncarl.bayes.em import combine_row_forms
from ncarl.blocks import as_one_block
from ncarl.core.linalg import mean_diagonal, sandwich, spd_inverse, symmetrize
from ncarl.core.rows import (
    Kernel,
    row_likelihood,
    row_log_likelihoods,
    use_precision_form,
)
from ncarl.core.types import Array, Block, LikelihoodSums
from ncarl.engines.base import Engine
from ncarl.engines.threads import Threads
from ncarl.observations import Observations

#: Noise variance without noise, as a fraction of the mean variance.
RELATIVE_NOISE = 1e-6
#: Rows with a smaller responsibility do not count for a component.
MIN_RESPONSIBILITY = 1e-5
#: Initial responsibility of the component of the nearest center; the others share the
#: rest.
INITIAL_SHARE = 0.9


@dataclass(frozen=True)
class GaussianMixture:
    """Mixture of normal distributions, the covariances shrunk to a pooled one."""

    weights: Array  # (k,)
    means: Array  # (k, n)
    covariances: Array  # (k, n, n)
    shrinkage_rows: float  # rows with the pooled covariance that each component gets
    noise: float  # noise variance of the observed coordinates, which is not learned

    @classmethod
    def single(
        cls, mean: Array, covariance: Array, shrinkage_rows: float,
        noise: float | None = None,
    ) -> GaussianMixture:  # fmt: skip
        """One normal distribution, by default without noise.

        A small number then stands for it, so that all systems are well-conditioned.
        """
        if noise is None:
            noise = RELATIVE_NOISE * float(mean_diagonal(covariance))
        weights, means, covariances = np.ones(1), mean[None], covariance[None]
        return cls(weights, means, covariances, shrinkage_rows, noise)

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.weights)

    def kernels(self, *, with_precision: bool) -> list[Kernel]:
        """Row kernels of the components."""
        s, eye = self.noise, np.eye(self.means.shape[1])
        return [
            Kernel(K, spd_inverse(K + s * eye) if with_precision else None, s)
            for K in self.covariances
        ]

    def log_likelihoods(self, observed: Observations, engine: Engine) -> Array:
        """Log weight plus log likelihood of each row and component, shape (m, k)."""
        logs = np.empty((observed.shape[0], self.n_components))
        parts = engine.map(
            _log_likelihoods_of_block,
            _place(observed, engine),
            kernels=self.kernels(with_precision=needs_precision(observed)),
            means=self.means,
            log_weights=np.log(self.weights),
        )
        for rows, part in parts:
            logs[rows] = part
        return logs


@dataclass(frozen=True)
class MixtureSums:
    """Sums of an E-step over some rows."""

    components: list[LikelihoodSums]
    counts: Array  # (k,): sums of the responsibilities
    log_likelihood: float

    def __iadd__(self, other: MixtureSums) -> MixtureSums:
        components = self.components
        for k, part in enumerate(other.components):
            components[k] += part
        return MixtureSums(
            components,
            self.counts + other.counts,
            self.log_likelihood + other.log_likelihood,
        )


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture, and the objective at each step."""

    mixture: GaussianMixture
    objective: list[float]  # log likelihood minus the penalty of the prior


def _place(observed: Observations, engine: Engine) -> Any:
    # Each block has its sums of all components, which takes longer than the rows.
    single = isinstance(engine, Threads) and engine.n_jobs == 1
    return [as_one_block(observed)] if single else engine.place(observed)


def needs_precision(observed: Observations) -> bool:
    """Whether the precision form is cheaper for some row."""
    counts = np.unique(observed.row_counts)
    return bool(use_precision_form(counts[counts > 0], observed.shape[1]).any())


def initial_mixture(
    completed: Array, pooled: GaussianMixture, n_components: int,
    shrinkage_rows: float, seed: int, units: Array | float = 1.0,
) -> GaussianMixture:  # fmt: skip
    """Mixture around the centers of k-means of completed rows over ``units``."""
    from sklearn.cluster import KMeans  # slow to import

    kmeans = KMeans(n_components, n_init=2, random_state=seed)
    # Threads of OpenMP wait in busy loops, and the order of their sums is not fixed.
    with warnings.catch_warnings(), threadpool_limits(1, user_api="openmp"):
        # There are fewer different rows than components, which then coincide.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = kmeans.fit(completed / units).labels_
    rest = (1.0 - INITIAL_SHARE) / n_components
    R = np.eye(n_components)[clusters] * INITIAL_SHARE + rest
    counts, mean_0, K_0 = R.sum(axis=0), pooled.means[0], pooled.covariances[0]
    means = (R.T @ completed + mean_0) / (counts[:, None] + 1.0)
    covariances = np.empty((n_components, *K_0.shape))
    for k, (mean, count) in enumerate(zip(means, counts, strict=True)):
        D = completed - mean
        scatter = (D * R[:, [k]]).T @ D + shrinkage_rows * K_0
        covariances[k] = symmetrize(scatter / (count + shrinkage_rows))
    weights = counts / counts.sum()
    return GaussianMixture(weights, means, covariances, shrinkage_rows, pooled.noise)


def component_shrinkages(n: int) -> tuple[float, float]:
    """Numbers of pseudo-rows of a component of ``n`` columns that are tried."""
    return 0.5 * n + 3.0, 3.0 * n + 10.0


def fit_mixture(
    observed: Observations, start: GaussianMixture, pooled: GaussianMixture,
    engine: Engine, *, max_iter: int, tol: float,
) -> MixtureFit:  # fmt: skip
    """EM from ``start``, until a step gains less than ``tol`` per observed entry."""
    blocks, with_precision = _place(observed, engine), needs_precision(observed)
    mixture, objective = start, []
    for _ in range(max_iter):
        kernels = mixture.kernels(with_precision=with_precision)
        sums = engine.total(
            mixture_sums,
            blocks,
            kernels=kernels,
            means=mixture.means,
            log_weights=np.log(mixture.weights),
        )
        objective.append(sums.log_likelihood - prior_penalty(mixture, pooled))
        if len(objective) > 1:
            gain = objective[-1] - objective[-2]
            if gain < tol * max(1, observed.n_observed):
                return MixtureFit(mixture, objective)
        mixture = m_step(mixture, kernels, sums, pooled)
    return MixtureFit(mixture, objective)


def mixture_sums(
    block: Block, *, kernels: list[Kernel], means: Array, log_weights: Array,
    backend: str = "auto",
) -> MixtureSums:  # fmt: skip
    """E-step on a block: responsibilities, and the sums of all components."""
    logs = _log_likelihoods_of_block(
        block, kernels=kernels, means=means, log_weights=log_weights, backend=backend
    )[1]
    total = logsumexp(logs, axis=1)
    R = np.exp(logs - total[:, None])
    R[R < MIN_RESPONSIBILITY] = 0.0
    components = []
    for k, kernel in enumerate(kernels):
        kept = R[:, k] > 0.0
        components.append(
            row_likelihood(
                block.take_rows(kept),
                kernel=kernel,
                offsets=means[k],
                backend=backend,
                weights=R[kept, k],
            )
        )
    return MixtureSums(components, R.sum(axis=0), float(total.sum()))


def _log_likelihoods_of_block(
    block: Block, *, kernels: list[Kernel], means: Array, log_weights: Array,
    backend: str = "auto",
) -> tuple[Array, Array]:  # fmt: skip
    logs = np.empty((block.n_rows, len(kernels)))
    for k, kernel in enumerate(kernels):
        logs[:, k] = log_weights[k] + row_log_likelihoods(
            block, kernel=kernel, offsets=means[k], backend=backend
        )
    return block.rows, logs


def m_step(
    mixture: GaussianMixture, kernels: list[Kernel], sums: MixtureSums,
    pooled: GaussianMixture,
) -> GaussianMixture:  # fmt: skip
    """Parameters that maximize the expected penalized log likelihood."""
    mean_0, K_0, nu = pooled.means[0], pooled.covariances[0], mixture.shrinkage_rows
    means, covariances = mixture.means.copy(), mixture.covariances.copy()
    for k, part in enumerate(sums.components):
        N, K = float(sums.counts[k]), mixture.covariances[k]
        B, _ = combine_row_forms(part, kernels[k])
        d = K @ part.sum_y
        g = (d + mean_0 - means[k]) / (N + 1.0)
        means[k] = means[k] + g
        scatter = N * K - sandwich(K, B) - np.outer(d, g) - np.outer(g, d)
        away = means[k] - mean_0
        scatter += N * np.outer(g, g) + np.outer(away, away) + nu * K_0
        covariances[k] = symmetrize(scatter / (N + nu))
    weights = (sums.counts + 1.0) / (sums.counts.sum() + len(means))
    return GaussianMixture(weights, means, covariances, nu, mixture.noise)


def prior_penalty(mixture: GaussianMixture, pooled: GaussianMixture) -> float:
    """Minus the log prior density, up to a constant."""
    penalty = -float(np.log(mixture.weights).sum())
    for mean, K in zip(mixture.means, mixture.covariances, strict=True):
        away = mean - pooled.means[0]
        target = mixture.shrinkage_rows * pooled.covariances[0] + np.outer(away, away)
        _, log_det = np.linalg.slogdet(K)
        trace = np.einsum("ij,ji->", np.linalg.inv(K), target)
        penalty += 0.5 * float(mixture.shrinkage_rows * log_det + trace)
    return penalty


def total_moments(mixture: GaussianMixture) -> tuple[Array, Array]:
    """Mean and covariance of the whole mixture."""
    mean = mixture.weights @ mixture.means
    D = mixture.means - mean
    within = np.tensordot(mixture.weights, mixture.covariances, axes=1)
    return mean, within + (D.T * mixture.weights) @ D

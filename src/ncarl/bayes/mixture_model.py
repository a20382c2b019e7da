"""`MixtureModel`: a fitted mixture that completes rows and predicts single entries.

It has the interface of `KernelModel`. Its components are in units of the noise of the
single normal distribution that it is fitted around (`fit_mixture_model`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from ncarl.bayes.mixture import (
    GaussianMixture,
    fit_mixture,
    initial_mixture,
    total_moments,
)
from ncarl.centering import Centering
from ncarl.core.linalg import add_diagonal, mean_diagonal, symmetrize
from ncarl.core.rows import Kernel
from ncarl.core.types import Array, cached_property
from ncarl.engines.base import Engine
from ncarl.fitting.kernel_model import KernelModel
from ncarl.observations import Observations, canonical_order

#: Steps of EM, and the gain per entry that ends it.
MAX_ITER, TOL = 15, 2e-4
#: Components with a smaller responsibility for a row do not predict it.
MIN_RESPONSIBILITY = 1e-10
#: Added to the diagonal of the single kernel, in noise variances and as a fraction of
#: its mean, so that it has an inverse.
JITTER, RELATIVE_JITTER = 1e-6, 1e-12
#: Smallest log likelihood of a row, so that rows of huge values have responsibilities.
MIN_LOG_LIKELIHOOD = -1e300


@dataclass(frozen=True)
class MixtureModel:
    """A mixture of normal distributions of the rows."""

    mixture: GaussianMixture  # in units of the noise
    column_scales: Array  # (n,): standard deviation of the noise of each column

    @cached_property
    def components(self) -> list[KernelModel]:
        """The components; each completes rows as if all were its own."""
        kernels = self.mixture.kernels(with_precision=True)
        means, zeros = self.mixture.means, np.zeros(len(self.column_scales))
        return [
            KernelModel(
                kernel=kernel,
                centering=self._centering(mean),
                unit=1.0,
                sigma=1.0,
                empty_columns=zeros.astype(bool),
                fallback=zeros,
                dtype="float64",
            )
            for kernel, mean in zip(kernels, means, strict=True)
        ]

    @cached_property
    def kernel(self) -> Kernel:
        """Covariance of the whole mixture, in units of the noise."""
        return Kernel(total_moments(self.mixture)[1], None, self.mixture.noise)

    @cached_property
    def centering(self) -> Centering:
        """Mean of the whole mixture, and the units."""
        return self._centering(total_moments(self.mixture)[0])

    def _centering(self, mean: Array) -> Centering:
        return Centering(0.0, mean * self.column_scales, None, self.column_scales)

    def log_likelihoods(self, observed: Observations, engine: Engine) -> Array:
        """Log weight plus log density of each row and component, shape (m, k)."""
        scales = self.column_scales[observed.indices]
        inner = observed.with_values(observed.values / scales)
        logs = self.mixture.log_likelihoods(inner, engine)
        logs -= np.bincount(observed.rows, np.log(scales), len(logs))[:, None]
        return np.nan_to_num(logs, nan=MIN_LOG_LIKELIHOOD, neginf=MIN_LOG_LIKELIHOOD)

    def responsibilities(self, observed: Observations, engine: Engine) -> Array:
        """Probabilities of the components of each row, shape (m, k)."""
        return np.asarray(softmax(self.log_likelihoods(observed, engine), axis=1))

    def complete(
        self, observed: Observations, engine: Engine, *, std: str | None = None
    ) -> tuple[Array, Array | None]:
        """Means of the completed rows, and their standard deviations."""
        R = self.responsibilities(observed, engine)

        def predictions() -> Iterator[_Prediction]:
            for k, component in enumerate(self.components):
                rows = np.flatnonzero(R[:, k] > MIN_RESPONSIBILITY)
                part = observed.take_rows(rows)
                yield rows, R[rows, k, None], *component.complete(part, engine, std=std)

        return _average(predictions(), observed.shape, std)

    def predict(
        self, observed: Observations, rows: Array, columns: Array, engine: Engine, *,
        std: str | None = None,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Means of single entries, and their standard deviations."""
        distinct, position = np.unique(rows, return_inverse=True)
        R = self.responsibilities(observed.take_rows(distinct), engine)[position]

        def predictions() -> Iterator[_Prediction]:
            for k, component in enumerate(self.components):
                some = np.flatnonzero(R[:, k] > MIN_RESPONSIBILITY)
                entries = rows[some], columns[some]
                x, s = component.predict(observed, *entries, engine, std=std)
                yield some, R[some, k], x, s

        return _average(predictions(), (len(rows),), std)


#: Positions along the first axis, the shares of a component there, its means and its
#: standard deviations.
_Prediction = tuple[Array, Array, Array, Array | None]


def _average(
    predictions: Iterator[_Prediction], shape: tuple[int, ...], std: str | None
) -> tuple[Array, Array | None]:
    """Means and standard deviations of mixtures, those between components included."""
    mean, variance = np.zeros(shape), np.zeros(shape if std else 0)
    total = np.zeros((shape[0], *(1 for _ in shape[1:])))
    for some, share, x, deviations in predictions:
        total[some] += share
        # Running moments: sums of squares would lose a small variance to rounding.
        gap = x - mean[some]
        step = gap * (share / total[some])
        mean[some] += step
        if deviations is not None:
            variance[some] += share * (deviations**2 + gap * (gap - step))
    return mean, np.sqrt(variance / total) if std else None


def fit_mixture_model(
    single: KernelModel, observed: Observations, n_components: int,
    shrinkage_rows: float, engine: Engine, seed: int,
) -> MixtureModel:  # fmt: skip
    """Fit a mixture around a single normal distribution with noise."""
    # In this order k-means does not depend on that of the rows.
    rows = canonical_order(observed)[0]
    some = observed.take_rows(rows[observed.row_counts[rows] > 0])
    scales, mean = single.centering.column_scales, single.centering.column_effects
    K = symmetrize(np.asarray(single.kernel.K, dtype=np.float64))
    K = add_diagonal(K, JITTER + RELATIVE_JITTER * float(mean_diagonal(K)))
    m, noise = some.shape[0], float(single.kernel.s)
    pooled = GaussianMixture.single(mean / scales, K, shrinkage_rows, noise)
    completed, _ = single.complete(some, engine)
    # k-means compares columns in units of their own, not in those of their noise.
    spread = np.sqrt(K.diagonal() + noise)
    start = initial_mixture(
        completed / scales, pooled, min(n_components, m), shrinkage_rows, seed,
        units=spread,
    )  # fmt: skip
    inner = some.with_values(some.values / scales[some.indices])
    fit = fit_mixture(inner, start, pooled, engine, max_iter=MAX_ITER, tol=TOL)
    return MixtureModel(fit.mixture, scales)

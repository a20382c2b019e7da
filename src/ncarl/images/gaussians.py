"""The model of patches: several Gaussians, each with one kernel for all channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from ncarl.core.types import Array

#: Least eigenvalue of a kernel, over the noise.
FLAT = 1e-3


@dataclass(frozen=True)
class Gaussians:
    """Patches with mean 0: ``x ~ N(0, scale K)``, seen through noise.

    Attributes
    ----------
    K : array of shape (gaussians, n, n)
        Covariances of the pixels of a patch, of the first channel.
    P : array of shape (gaussians, n, n)
        Inverses of ``K + noise I``.
    log_det : array of shape (gaussians,)
        ``log|K + noise I|``.
    scales : array of shape (gaussians, channels)
        Variances of the channels, in those of the first.
    log_share : array of shape (gaussians,)
        Logarithms of how often each one occurs.
    noise : float
        Variance of what neighbours cannot tell.
    """

    K: Array
    P: Array
    log_det: Array
    scales: Array
    log_share: Array
    noise: float

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.K)


def make_gaussians(K: Array, scales: Array, counts: Array, noise: float) -> Gaussians:
    """Gaussians with these covariances, whatever their least eigenvalues.

    Parameters
    ----------
    K : array of shape (gaussians, n, n)
        Covariances; eigenvalues near 0 or below are raised.
    scales : array of shape (gaussians, channels)
        Variances of the channels.
    counts : array of shape (gaussians,)
        How many patches each one was learned from.
    noise : float
        Variance of the noise.
    """
    found = [_shifted(k, noise) for k in K]
    shares = (counts + 1.0) / (counts + 1.0).sum()
    return Gaussians(
        K=np.stack([one[0] for one in found]),
        P=np.stack([one[1] for one in found]),
        log_det=np.array([one[2] for one in found]),
        scales=np.ascontiguousarray(scales),
        log_share=np.log(shares),
        noise=noise,
    )


def _shifted(K: Array, noise: float) -> tuple[Array, Array, float]:
    """A sound covariance, the inverse of it with noise, and the log determinant."""
    values, vectors = eigh(0.5 * (K + K.T))
    values = np.maximum(values, FLAT * noise)
    sound = (vectors * values) @ vectors.T
    inverse = (vectors / (values + noise)) @ vectors.T
    volume = float(np.sum(np.log(values + noise)))
    return 0.5 * (sound + sound.T), 0.5 * (inverse + inverse.T), volume

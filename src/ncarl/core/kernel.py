"""The column kernel ``K = Q^-1`` from spectral weights and the graph Laplacian."""

from __future__ import annotations

from dataclasses import dataclass

from ncarl.core.linalg import add_diagonal, congruence, spd_inverse
from ncarl.core.types import Array, Kernel
from ncarl.core.weights import Spectrum


@dataclass(frozen=True)
class QuadraticPenalty:
    """Quadratic penalty ``x Q x^T`` on a completed row.

    Exact model: ``Q = D + alpha L + delta I``. Noisy model, with a squared loss of
    weight one: ``Q = gamma (D + delta I) + alpha L``; the authors' code has delta
    outside the parentheses (``unscaled_delta``).
    """

    alpha: float
    delta: float
    gamma: float | None = None
    unscaled_delta: bool = False

    @property
    def noise_variance(self) -> float:
        """``s``: 1 in the noisy model, 0 in the exact one."""
        return 0.0 if self.gamma is None else 1.0

    def spectral_eigenvalues(self, weights: Array) -> Array:
        """Eigenvalues of ``Q`` without its graph term."""
        if self.gamma is None:
            return weights + self.delta
        if self.unscaled_delta:
            return self.gamma * weights + self.delta
        return self.gamma * (weights + self.delta)


def column_kernel(
    basis: Spectrum,
    weights: Array,
    L: Array | None,
    penalty: QuadraticPenalty,
    *,
    needs_precision: bool,
    checked: bool = True,
) -> Kernel:
    """Kernel ``K = Q^-1`` from weights of eigenvectors and the Laplacian ``L``.

    ``needs_precision``: some row is solved in the precision form, so ``P = (K + s
    I)^-1`` is computed as well. ``checked`` is that of `spd_inverse`.
    """
    U, eigenvalues = basis.vectors, penalty.spectral_eigenvalues(weights)
    s = penalty.noise_variance
    del basis  # free n x n arrays as early as possible
    if L is None or penalty.alpha == 0.0:
        # Without a graph Q and K have the same eigenvectors: no inverse is needed.
        K = congruence(U, 1.0 / eigenvalues)
        P = congruence(U, 1.0 / (1.0 / eigenvalues + s)) if needs_precision else None
        return Kernel(K, P, s)
    Q = congruence(U, eigenvalues)
    del U
    Q += penalty.alpha * L
    del L
    K = spd_inverse(Q, checked=checked)
    if not needs_precision:
        return Kernel(K, None, s)
    if s == 0.0:
        return Kernel(K, Q, s)
    return Kernel(K, spd_inverse(add_diagonal(K, s), checked=checked), s)

"""From the Gram matrix of the rows to the kernel that completes them."""

from __future__ import annotations

from dataclasses import dataclass

from ncarl.core.linalg import add_diagonal, congruence, spd_inverse
from ncarl.core.types import Array, Kernel
from ncarl.core.weights import Spectrum


@dataclass(frozen=True)
class Penalty:
    """The quadratic form that a completed row pays, ``x Q x^T``.

    Exact model: ``Q = D + alpha L + delta I``. Noisy model, against a squared loss of
    weight one: ``Q = gamma (D + delta I) + alpha L``; the authors' code leaves delta
    outside the bracket (``bare_delta``).
    """

    alpha: float
    delta: float
    gamma: float | None = None
    bare_delta: bool = False

    @property
    def noise(self) -> float:
        """``s``: 1 in the noisy model, 0 in the exact one."""
        return 0.0 if self.gamma is None else 1.0

    def spectral(self, weights: Array) -> Array:
        """Eigenvalues of ``Q`` without its graph term."""
        if self.gamma is None:
            return weights + self.delta
        if self.bare_delta:
            return self.gamma * weights + self.delta
        return self.gamma * (weights + self.delta)


def column_kernel(
    basis: Spectrum,
    weights: Array,
    L: Array | None,
    penalty: Penalty,
    *,
    missing_side: bool,
    checked: bool = True,
) -> Kernel:
    """Kernel ``K = Q^-1`` of the columns, and what the missing side needs.

    Parameters
    ----------
    basis : Spectrum
        Eigenvectors of the Gram matrix.
    weights : array of shape (n,)
        Weights of its directions.
    L : array of shape (n, n) or None
        Laplacian of the graph.
    penalty : Penalty
        How weights and graph make ``Q``.
    missing_side : bool
        Whether some row is cheaper to solve for its missing entries; then
        ``P = (K + s I)^-1`` is formed too.
    checked : bool
        Whether to make sure of each inverse; see `ncarl.core.linalg.spd_inverse`.
    """
    U, eigenvalues = basis.vectors, penalty.spectral(weights)
    s = penalty.noise
    del basis  # n x n arrays are freed as soon as they have served
    if L is None or penalty.alpha == 0.0:
        # Without a graph Q and K share the basis: no inverse, no loss of digits.
        K = congruence(U, 1.0 / eigenvalues)
        P = congruence(U, 1.0 / (1.0 / eigenvalues + s)) if missing_side else None
        return Kernel(K, P, s)
    Q = congruence(U, eigenvalues)
    del U
    Q += penalty.alpha * L
    del L
    K = spd_inverse(Q, checked=checked)
    if not missing_side:
        return Kernel(K, None, s)
    if s == 0.0:
        return Kernel(K, Q, s)
    return Kernel(K, spd_inverse(add_diagonal(K, s), checked=checked), s)

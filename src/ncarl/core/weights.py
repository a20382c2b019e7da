"""Weights of the rank surrogate, from the spectrum of the Gram matrix.

With singular values ``sigma`` and ``lambda = sigma / sum(sigma)`` the surrogate is
``tr(X D X^T)``, ``D = U diag(w(lambda)) U^T``. At ``w = 1 / lambda`` its value is the
squared nuclear norm; the rules below differ in what they do where lambda is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace, device

from ncarl.core.linalg import bordered_by_identity, symmetric_eigen
from ncarl.core.types import Array


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues (increasing) and eigenvectors of a Gram matrix."""

    eigenvalues: Array
    vectors: Array


def spectrum(G: Array, zero: Array | None = None) -> Spectrum:
    """Spectrum of the Gram matrix ``G``, shape (n, n).

    Rounding can make the smallest eigenvalues of a positive semi-definite matrix
    negative; they are clipped at 0. Columns that are 0 are eigenvectors of their own,
    exactly: a rule may leave them all but free, and then rounding would grow.
    ``zero`` says which those are, as a NumPy array, where that is known already.
    """
    xp = array_namespace(G)
    if zero is None:
        zero = np.asarray([bool(g <= 0.0) for g in xp.linalg.diagonal(G)])
    count = int(zero.sum())
    if count == 0:
        eigenvalues, vectors = symmetric_eigen(G)
        return Spectrum(xp.clip(eigenvalues, 0.0, None), vectors)
    order = xp.asarray(np.argsort(~zero, stable=True), device=device(G))
    others = order[count:]
    inner = xp.take(xp.take(G, others, axis=0), others, axis=1)
    values, U = symmetric_eigen(inner, overwrite=True)
    eigenvalues = xp.concat([0.0 * xp.linalg.diagonal(G)[:count], values])
    vectors = bordered_by_identity(U, order)
    return Spectrum(xp.clip(eigenvalues, 0.0, None), vectors)


def shares(eigenvalues: Array) -> Array:
    """``sigma / sum(sigma)``; equal shares where the spectrum is 0.

    Examples
    --------
    >>> import numpy as np
    >>> shares(np.array([1.0, 9.0]))
    array([0.25, 0.75])
    """
    xp = array_namespace(eigenvalues)
    sigma = xp.sqrt(eigenvalues)
    total = xp.sum(sigma)
    some = total > 0.0
    equal = xp.full_like(sigma, 1.0 / sigma.shape[0])
    return xp.where(some, sigma / xp.where(some, total, xp.ones_like(total)), equal)


class WeightRule(Protocol):
    """How a direction is punished, given its share of the spectrum."""

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order, at step 1, 2, ..."""
        ...

    def settled(self, eigenvalues: Array, step: int) -> Any:
        """Whether later steps would weigh the same eigenvalues in the same way."""
        ...


@dataclass(frozen=True)
class Floor:
    """``1 / max(lambda, f)``: no direction is punished more than ``1 / f``.

    ``f = min(c / n, lambda_(q+1))``, taken afresh each step. The data pin down at
    most about ``observed / (m + n)`` directions, so no more than ``q`` are judged by
    their own size; when the matrix becomes low-rank, ``f`` falls with the tail. Early
    estimates deserve less trust: ``q`` grows from half that number to all of it.

    Attributes
    ----------
    directions : int
        Number of directions that the data can pin down.
    share : float
        ``c``, as a part of the mean share ``1 / n``.
    trusted_after : int
        Step from which on ``q`` is the whole of ``directions``.
    lowest : float
        ``f`` never falls below this, which bounds the condition of the kernel.
    """

    directions: int
    share: float = 0.3
    trusted_after: int = 30
    lowest: float = 1e-10

    def floor(self, lam: Array, step: int) -> Array:
        """The floor ``f`` for shares in increasing order, at step 1, 2, ..."""
        xp, n = array_namespace(lam), lam.shape[0]
        share = min(1.0, 0.5 + 0.5 * step / self.trusted_after)
        trusted = math.ceil(self.directions * share)
        # lambda_(q+1) counts from the largest, the array from the smallest.
        place = max(0, n - 1 - trusted)
        return xp.clip(lam[place : place + 1], self.lowest, self.share / int(n))

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        xp = array_namespace(eigenvalues)
        lam = shares(eigenvalues)
        return 1.0 / xp.maximum(lam, self.floor(lam, step))

    def settled(self, eigenvalues: Array, step: int) -> Array:
        """Whether trust in more directions would leave the floor where it is."""
        lam = shares(eigenvalues)
        return self.floor(lam, step) == self.floor(lam, self.trusted_after)


@dataclass(frozen=True)
class Smooth:
    """``1 / sqrt(lambda^2 + e^2)`` with ``e`` falling: the nuclear-norm limit."""

    start: float = 1.0
    decay: float = 0.9
    lowest: float = 1e-9

    def epsilon(self, step: int) -> float:
        """The smoothing ``e`` at a step."""
        return max(self.lowest, self.start * self.decay**step)

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        xp = array_namespace(eigenvalues)
        lam = shares(eigenvalues)
        return 1.0 / xp.sqrt(lam * lam + self.epsilon(step) ** 2)

    def settled(self, eigenvalues: Array, step: int) -> bool:
        """A limit is approached; the change tells how near it is."""
        return True


@dataclass(frozen=True)
class PseudoInverse:
    """``1 / lambda``, and 0 where lambda <= cutoff: the paper's noiseless rule."""

    cutoff: float = 1e-5

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        xp = array_namespace(eigenvalues)
        lam = shares(eigenvalues)
        kept = lam > self.cutoff
        safe = xp.where(kept, lam, xp.ones_like(lam))
        return xp.where(kept, 1.0 / safe, xp.zeros_like(lam))

    def settled(self, eigenvalues: Array, step: int) -> bool:
        """The rule is the same in all steps."""
        return True


@dataclass(frozen=True)
class ShiftedInverse:
    """``(A / tr A)^-1`` with ``A = (G + shift I)^(1/2)``: the paper's noisy rule."""

    shift: float

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        return 1.0 / shares(eigenvalues + self.shift)

    def settled(self, eigenvalues: Array, step: int) -> bool:
        """The rule is the same in all steps."""
        return True

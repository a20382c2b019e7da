"""Weights of the rank surrogate, from the spectrum of the Gram matrix.

With singular values ``sigma`` and ``lambda = sigma / sum(sigma)`` the surrogate is
``tr(X D X^T)``, ``D = U diag(w(lambda)) U^T``. At ``w = 1 / lambda`` its value is the
squared nuclear norm; the weight rules differ in how they treat small ``lambda``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from ncarl.core.linalg import pad_with_identity, symmetric_eigen
from ncarl.core.types import Array


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues (increasing) and eigenvectors of a Gram matrix."""

    eigenvalues: Array
    vectors: Array


def spectrum(G: Array, zero_columns: Array | None = None) -> Spectrum:
    """Spectrum of the Gram matrix ``G``, shape (n, n).

    Rounding can make the smallest eigenvalues of a positive semi-definite matrix
    negative; they are clipped at 0. Zero columns get unit vectors as exact
    eigenvectors: a rule may hardly penalize them, and then rounding errors would grow.
    ``zero_columns`` is their mask, a NumPy array, if it is known already.
    """
    xp = array_namespace(G)
    if zero_columns is None:
        zero_columns = np.asarray([bool(g <= 0.0) for g in xp.linalg.diagonal(G)])
    count = int(zero_columns.sum())
    if count == 0:
        eigenvalues, vectors = symmetric_eigen(G)
        return Spectrum(xp.clip(eigenvalues, 0.0, None), vectors)
    order = xp.asarray(np.argsort(~zero_columns, stable=True), device=device(G))
    others = order[count:]
    inner = xp.take(xp.take(G, others, axis=0), others, axis=1)
    values, U = symmetric_eigen(inner, overwrite=True)
    eigenvalues = xp.concat([0.0 * xp.linalg.diagonal(G)[:count], values])
    vectors = pad_with_identity(U, order)
    return Spectrum(xp.clip(eigenvalues, 0.0, None), vectors)


def singular_value_shares(eigenvalues: Array) -> Array:
    """``sigma / sum(sigma)``; equal shares where the spectrum is 0."""
    xp = array_namespace(eigenvalues)
    sigma = xp.sqrt(eigenvalues)
    total = xp.sum(sigma)
    some = total > 0.0
    equal = xp.full_like(sigma, 1.0 / sigma.shape[0])
    return xp.where(some, sigma / xp.where(some, total, xp.ones_like(total)), equal)


class WeightRule(ABC):
    """Penalty weight of an eigenvector, given its share of the spectrum."""

    @abstractmethod
    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order, at step 1, 2, ..."""

    def is_stationary(self, eigenvalues: Array, step: int) -> Any:
        """Whether later steps would give the same weights to the same eigenvalues."""
        return True


@dataclass(frozen=True)
class FloorWeights(WeightRule):
    """``1 / max(lambda, f)``: no weight exceeds ``1 / f``.

    ``f = min(c / n, lambda_(q+1))``, updated in each step. The data determine at most
    about ``observed / (m + n)`` directions, so no more than ``q`` are weighted by their
    own share; when the matrix becomes low-rank, ``f`` falls with the tail. Early
    estimates are less reliable: ``q`` grows from half that number to all of it.
    """

    identifiable_rank: int  # number of directions that the data can determine
    relative_floor: float = 0.3  # c, in units of the mean share 1 / n
    warmup_steps: int = 30  # step from which on q is the whole identifiable rank
    min_floor: float = 1e-10  # lower bound of f, and so of the kernel's condition

    def floor(self, lam: Array, step: int) -> Array:
        """The floor ``f`` for shares in increasing order, at step 1, 2, ..."""
        xp, n = array_namespace(lam), lam.shape[0]
        share = min(1.0, 0.5 + 0.5 * step / self.warmup_steps)
        trusted = math.ceil(self.identifiable_rank * share)
        # lambda_(q+1) counts from the largest, the array from the smallest.
        place = max(0, n - 1 - trusted)
        tail = lam[place : place + 1]
        return xp.clip(tail, self.min_floor, self.relative_floor / int(n))

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        xp = array_namespace(eigenvalues)
        lam = singular_value_shares(eigenvalues)
        return 1.0 / xp.maximum(lam, self.floor(lam, step))

    def is_stationary(self, eigenvalues: Array, step: int) -> Array:
        """Whether the floor stays the same after the warm-up."""
        lam = singular_value_shares(eigenvalues)
        return self.floor(lam, step) == self.floor(lam, self.warmup_steps)


@dataclass(frozen=True)
class SmoothWeights(WeightRule):
    """``1 / sqrt(lambda^2 + e^2)`` with ``e`` decreasing: the nuclear-norm limit.

    Stationary at all steps: the change of the iterates shows how near the limit is.
    """

    initial_epsilon: float = 1.0
    decay: float = 0.9
    min_epsilon: float = 1e-9

    def epsilon(self, step: int) -> float:
        """The smoothing ``e`` at a step."""
        return max(self.min_epsilon, self.initial_epsilon * self.decay**step)

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        xp = array_namespace(eigenvalues)
        lam = singular_value_shares(eigenvalues)
        return 1.0 / xp.sqrt(lam * lam + self.epsilon(step) ** 2)


@dataclass(frozen=True)
class PseudoInverseWeights(WeightRule):
    """``1 / lambda``, and 0 where lambda <= cutoff: the paper's noiseless rule."""

    cutoff: float = 1e-5

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        xp = array_namespace(eigenvalues)
        lam = singular_value_shares(eigenvalues)
        kept = lam > self.cutoff
        safe = xp.where(kept, lam, xp.ones_like(lam))
        return xp.where(kept, 1.0 / safe, xp.zeros_like(lam))


@dataclass(frozen=True)
class ShiftedInverseWeights(WeightRule):
    """``(A / tr A)^-1`` with ``A = (G + shift I)^(1/2)``: the paper's noisy rule."""

    shift: float

    def __call__(self, eigenvalues: Array, step: int) -> Array:
        """Weights for eigenvalues in increasing order."""
        return 1.0 / singular_value_shares(eigenvalues + self.shift)

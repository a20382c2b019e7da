"""Theorems 3 to 5 of the paper, checked numerically on small random matrices."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from ncarl.core.svd import nuclear_norm
from ncarl.core.types import Array
from ncarl.estimators.low_rank import Nuclear
from ncarl.estimators.ncarl import NCARL
from ncarl.exceptions import NumericalWarning

#: Values added to the diagonal of ``D``.
DELTAS = tuple(10.0**-k for k in range(2, 9))
#: Numbers of steps after which the nuclear norm is compared with the least one.
CHECKED_STEPS = (5, 15, 50, 150)
#: Weight rules of `NCARL`: the one that converges to the nuclear norm, and the printed
#: one.
WEIGHT_RULES = ("smooth", "pinv")
#: Tolerance of the solver for the least nuclear norm; smaller excesses over this norm
#: are not significant.
CERTIFICATE_TOL = 1e-6


@dataclass(frozen=True)
class TheoremFacts:
    """Numbers that the theorems make statements about."""

    # ``tr(X D X^T) / ||X||_*^2`` for drawn ``D > 0`` with ``tr(D^-1) = 1``, sorted;
    # theorem 3 says at least 1.
    ratios: tuple[float, ...]
    # The same at ``D = (|X| / tr |X|)^-1``; theorem 3 says 1.
    ratio_at_formula: float
    # ``tr(X D X^T)`` and ``||X||_*^2`` for ``X = I`` and ``D = diag(1, 0)``, which the
    # printed theorem allows since ``tr(D^+) = 1``.
    singular: tuple[float, float]
    deltas: tuple[float, ...]  # values added to ``D``
    # Norm of the gradient of ``tr(X D X^T)`` at the free entries over that of the
    # observed matrix; theorem 4 says at most a constant times ``delta``.
    gradients: tuple[float, ...]
    gradient_errors: tuple[float, ...]  # relative distance from ``-2 delta X``
    steps: tuple[int, ...]  # numbers of steps at which ``excess`` is computed
    # By kind of matrix and weight rule: nuclear norm over the least one, minus 1.
    excess: Mapping[str, Mapping[str, tuple[float, ...]]]

    @property
    def slope(self) -> float:
        """Slope of the gradient against ``delta``, in logarithms."""
        logs = np.log(self.deltas), np.log(self.gradients)
        return float(np.polyfit(*logs, 1)[0])


def check_theorems(
    seed: int = 0, size: tuple[int, int] = (40, 25), rank: int = 3
) -> TheoremFacts:
    """Compute the numbers behind theorems 3 to 5 on small random matrices.

    One matrix has the given rank and can be recovered exactly, the other full rank.
    Both have at least as many rows as columns.
    """
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((size[0], rank)) @ rng.standard_normal((rank, size[1]))
    full = _make_full_rank(rng, size)
    observed = rng.random(size) < 0.6
    # A row or column without observed entries would not be determined.
    observed[np.arange(max(size)) % size[0], np.arange(max(size)) % size[1]] = True
    drawn = (_draw_weight(rng, full) for _ in range(200))
    ratios = sorted(surrogate_ratio(full, D) for D in drawn)
    after = [free_gradient(full, observed, delta) for delta in DELTAS]
    eye, singular = np.eye(2), np.diag([1.0, 0.0])
    kinds = {f"rank {rank}, recoverable": low, "full rank": full}
    return TheoremFacts(
        ratios=tuple(ratios),
        ratio_at_formula=surrogate_ratio(full, best_weight(full)),
        singular=(float(np.trace(eye @ singular @ eye.T)), nuclear_norm(eye) ** 2),
        deltas=DELTAS,
        gradients=tuple(norm for norm, _ in after),
        gradient_errors=tuple(distance for _, distance in after),
        steps=CHECKED_STEPS,
        excess={name: _excess(X, observed) for name, X in kinds.items()},
    )


def surrogate_ratio(X: Array, D: Array) -> float:
    """``tr(X D X^T)`` over the squared nuclear norm of ``X``."""
    return float(np.trace(X @ D @ X.T)) / nuclear_norm(X) ** 2


def best_weight(X: Array) -> Array:
    """``D = (|X| / tr |X|)^-1``, the minimizer of theorem 3, of ``X`` of full rank."""
    _, sigma, V = np.linalg.svd(X, full_matrices=False)
    return (V.T * (sigma.sum() / sigma)) @ V


def free_gradient(X: Array, observed: Array, delta: float) -> tuple[float, float]:
    """Gradient at the free entries after a step, and its distance from ``-2 delta X``.

    Rows are completed by the kernel ``(D + delta I)^-1``, with ``D`` that of the
    zero-filled matrix. The norm is relative to that of the observed matrix, the
    distance to that of ``2 delta X``.
    """
    zero_filled = np.where(observed, X, 0.0)
    D = best_weight(zero_filled)
    K = np.linalg.inv(D + delta * np.eye(len(D)))
    rows = zip(zero_filled, observed, strict=True)
    filled = np.array([x[p] @ np.linalg.solve(K[np.ix_(p, p)], K[p]) for x, p in rows])
    free = ~observed
    gradient = (2.0 * filled @ D)[free]
    expected = -2.0 * delta * filled[free]
    norm = np.linalg.norm
    distance = float(norm(gradient - expected) / norm(expected))
    return float(norm(gradient) / norm(zero_filled)), distance


def _make_full_rank(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    """A matrix of full rank whose singular values decay like those of a picture."""
    U, _, V = np.linalg.svd(rng.standard_normal(size), full_matrices=False)
    falling: Array = (U / np.arange(1, min(size) + 1)) @ V
    return falling * np.sqrt(size[0] * size[1])


def _draw_weight(rng: np.random.Generator, X: Array) -> Array:
    """A random positive definite ``D`` with ``tr(D^-1) = 1``.

    Draws that are independent of ``X`` are far above the bound; mixing their inverse
    with the best one keeps the trace and comes arbitrarily close.
    """
    n = X.shape[1]
    B = rng.standard_normal((n, n + 2))
    random = B @ B.T / np.trace(B @ B.T)
    part = rng.uniform() ** 2
    best = np.linalg.inv(best_weight(X))
    return np.linalg.inv(part * random + (1.0 - part) * best)


def _excess(X: Array, observed: Array) -> dict[str, tuple[float, ...]]:
    """Nuclear norms of iterates over the least one, minus 1, by weight rule."""
    X_missing = np.where(observed, X, np.nan)
    solver = Nuclear(tol=CERTIFICATE_TOL, max_iter=20_000, engine="threads")
    least = nuclear_norm(solver.fit_transform(X_missing))
    excess: dict[str, list[float]] = {rule: [] for rule in WEIGHT_RULES}
    for rule, steps in product(WEIGHT_RULES, CHECKED_STEPS):
        model = NCARL(
            alpha=0.0, weights=rule, max_iter=steps, tol=0.0, engine="threads",
            orientation="columns",
        )  # fmt: skip
        with warnings.catch_warnings():
            # The printed rule gives nearly singular systems, whose repair is expected.
            warnings.simplefilter("ignore", NumericalWarning)
            norm = nuclear_norm(model.fit_transform(X_missing))
        excess[rule].append(norm / least - 1.0)
    return {rule: tuple(values) for rule, values in excess.items()}

"""The paper's chain of theorems, checked by numbers.

The paper draws how its theorems follow from each other. Here each link is computed:
the surrogate bounds the squared nuclear norm (theorem 3), a step solves its problem up
to ``delta`` (theorem 4), and the steps end at the least nuclear norm (corollary 1,
theorem 5).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array
from ncarl.estimators.ncarl import NCARL
from ncarl.estimators.nuclear import Nuclear
from ncarl.exceptions import NumericalWarning

#: How many matrices ``D`` are drawn.
DRAWS = 200
DELTAS = tuple(10.0**-k for k in range(2, 9))
STEPS = (5, 15, 50, 150)
#: The rule that tends to the nuclear norm, and the printed one.
RULES = ("smooth", "pinv")
#: Tolerance of the least nuclear norm.
CERTIFIED = 1e-6
#: Part of the entries that is observed.
OBSERVED = 0.6


@dataclass(frozen=True)
class Facts:
    """What the theorems say, in numbers.

    Attributes
    ----------
    ratios : tuple of float
        ``tr(X D X^T) / ||X||_*^2`` for drawn ``D > 0`` with ``tr(D^-1) = 1``, sorted;
        theorem 3 says at least 1.
    at_formula : float
        The same at ``D = (|X| / tr |X|)^-1``; theorem 3 says 1.
    singular : tuple of two floats
        ``tr(X D X^T)`` and ``||X||_*^2`` for ``X = I`` and ``D = diag(1, 0)``, which
        the printed theorem allows since ``tr(D^+) = 1``.
    deltas, gradients : tuples of float
        What is added to ``D``, and the norm of the gradient of ``tr(X D X^T)`` at the
        entries that are free, over the norm of the observed matrix; theorem 4 says at
        most a constant times ``delta``.
    identity : tuple of float
        How far, relatively, that gradient is from ``-2 delta X``.
    steps : tuple of int
        After how many steps ``excess`` is taken.
    excess : mapping of str to mapping of str to tuple of float
        By kind of matrix and by weight rule: nuclear norm of the iterate over the
        least one, minus 1.
    certified : float
        Tolerance of the least norm; smaller excesses mean nothing.
    """

    ratios: tuple[float, ...]
    at_formula: float
    singular: tuple[float, float]
    deltas: tuple[float, ...]
    gradients: tuple[float, ...]
    identity: tuple[float, ...]
    steps: tuple[int, ...]
    excess: Mapping[str, Mapping[str, tuple[float, ...]]]
    certified: float

    @property
    def slope(self) -> float:
        """Slope of the gradient against ``delta``, both as logarithms."""
        logs = np.log(self.deltas), np.log(self.gradients)
        return float(np.polyfit(*logs, 1)[0])


def check_chain(
    seed: int = 0, size: tuple[int, int] = (40, 25), rank: int = 3
) -> Facts:
    """The numbers behind theorems 3 to 5, on small random matrices.

    Parameters
    ----------
    seed : int
        Of matrices, gaps and draws.
    size : tuple of two ints
        Rows and columns.
    rank : int
        Of the matrix that can be recovered exactly; the other has full rank.

    Examples
    --------
    >>> facts = check_chain()
    >>> facts.ratios[0] >= 1.0, round(facts.at_formula, 9), round(facts.slope, 3)
    (True, 1.0, 1.0)
    """
    if not 1 <= rank <= size[1] or not 2 <= size[1] <= size[0]:
        raise ValueError(
            "size must have two columns or more and no fewer rows than columns, and "
            f"rank lie between 1 and the columns, got size={size} and rank={rank}; "
            "the usual ones are (40, 25) and 3"
        )
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((size[0], rank)) @ rng.standard_normal((rank, size[1]))
    full = _decaying(rng, size)
    seen = rng.random(size) < OBSERVED
    # Nothing may be unobserved as a whole: then nothing would pin it down.
    seen[np.arange(max(size)) % size[0], np.arange(max(size)) % size[1]] = True
    drawn = (_drawn_weight(rng, full) for _ in range(DRAWS))
    ratios = sorted(surrogate_ratio(full, D) for D in drawn)
    after = [free_gradient(full, seen, delta) for delta in DELTAS]
    kinds = {f"rank {rank}, recoverable": low, "full rank": full}
    return Facts(
        ratios=tuple(ratios),
        at_formula=surrogate_ratio(full, best_weight(full)),
        singular=_counterexample(),
        deltas=DELTAS,
        gradients=tuple(norm for norm, _ in after),
        identity=tuple(distance for _, distance in after),
        steps=STEPS,
        excess={name: _excess(X, seen) for name, X in kinds.items()},
        certified=CERTIFIED,
    )


def nuclear_norm(X: Array) -> float:
    """The sum of the singular values of ``X``.

    Examples
    --------
    >>> nuclear_norm(np.diag([3.0, -4.0]))
    7.0
    """
    return float(np.linalg.svd(X, compute_uv=False).sum())


def surrogate_ratio(X: Array, D: Array) -> float:
    """``tr(X D X^T)`` over the squared nuclear norm of ``X``."""
    return float(np.trace(X @ D @ X.T)) / nuclear_norm(X) ** 2


def best_weight(X: Array) -> Array:
    """``D = (|X| / tr |X|)^-1``, where theorem 3 has its minimum.

    Parameters
    ----------
    X : array of shape (m, n)
        Of rank n.
    """
    _, sigma, V = np.linalg.svd(X, full_matrices=False)
    weight: Array = (V.T * (sigma.sum() / sigma)) @ V
    return weight


def free_gradient(X: Array, seen: Array, delta: float) -> tuple[float, float]:
    """Gradient at the free entries after a step, and its distance from ``-2 delta X``.

    Rows are completed by the kernel ``(D + delta I)^-1``, with ``D`` that of the
    zero-filled matrix.

    Parameters
    ----------
    X : array of shape (m, n)
        The matrix.
    seen : array of bool of shape (m, n)
        Which entries are observed.
    delta : float
        Added to the diagonal of ``D``.

    Returns
    -------
    norm, distance : float
        The norm over that of the observed matrix; the distance over that of
        ``2 delta X``.
    """
    known = np.where(seen, X, 0.0)
    D = best_weight(known)
    K = np.linalg.inv(D + delta * np.eye(len(D)))
    filled = np.array(
        [
            row[p] @ np.linalg.solve(K[np.ix_(p, p)], K[p])
            for row, p in zip(known, seen, strict=True)
        ]
    )
    free = ~seen
    gradient = (2.0 * filled @ D)[free]
    said = -2.0 * delta * filled[free]
    norm = np.linalg.norm
    distance = float(norm(gradient - said) / norm(said))
    return float(norm(gradient) / norm(known)), distance


def _decaying(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    """A matrix of full rank whose spectrum falls as that of a picture does."""
    U, _, V = np.linalg.svd(rng.standard_normal(size), full_matrices=False)
    falling: Array = (U / np.arange(1, min(size) + 1)) @ V
    return falling * np.sqrt(size[0] * size[1])


def _drawn_weight(rng: np.random.Generator, X: Array) -> Array:
    """A random positive definite ``D`` with ``tr(D^-1) = 1``, near the best or far.

    Draws that have nothing to do with ``X`` are far above the bound; mixing the
    inverses keeps the trace and comes as near as one likes.
    """
    n = X.shape[1]
    B = rng.standard_normal((n, n + 2))
    wild = B @ B.T / np.trace(B @ B.T)
    part = rng.uniform() ** 2
    near = np.linalg.inv(best_weight(X))
    D: Array = np.linalg.inv(part * wild + (1.0 - part) * near)
    return D


def _counterexample() -> tuple[float, float]:
    """Surrogate and squared nuclear norm of the identity, with a singular ``D``."""
    X, D = np.eye(2), np.diag([1.0, 0.0])
    return float(np.trace(X @ D @ X.T)), nuclear_norm(X) ** 2


def _excess(X: Array, seen: Array) -> dict[str, tuple[float, ...]]:
    """Nuclear norms of iterates over the least one, minus 1, by weight rule."""
    gappy = np.where(seen, X, np.nan)
    solver = Nuclear(tol=CERTIFIED, max_iter=20_000, engine="threads")
    least = nuclear_norm(solver.fit_transform(gappy))
    return {
        rule: tuple(_norm_after(gappy, rule, n) / least - 1.0 for n in STEPS)
        for rule in RULES
    }


def _norm_after(gappy: Array, rule: str, steps: int) -> float:
    """Nuclear norm of what algorithm 1 has after so many steps."""
    model = NCARL(
        alpha=0.0, weights=rule, max_iter=steps, tol=0.0, engine="threads",
        orientation="columns",
    )  # fmt: skip
    with warnings.catch_warnings():
        # The printed rule leaves directions all but free: repairs are to be expected.
        warnings.simplefilter("ignore", NumericalWarning)
        return nuclear_norm(model.fit_transform(gappy))

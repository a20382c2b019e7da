"""Dictionaries: matrices whose columns make up those of the completed matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import like, triplets
from ncarl.core.types import Array
from ncarl.solvers.problem import Problem, ratio

#: Directions that observed rows of a dictionary hold less of than this are not used.
FLAT = 1e-6
#: Most memory for what every column says of its coefficients.
MOST_GB = 8.0


class Reduced(NamedTuple):
    """A dictionary in coordinates of its rank, of spectral norm 1.

    ``D = norm * base @ W`` with orthonormal rows of ``W``: where ``D Z`` is wanted with
    the least nuclear norm, ``Z = W^T z / norm`` with ``base z`` is as good as any.

    Attributes
    ----------
    base : array of shape (m, r)
        Orthogonal columns, the longest of length 1.
    norm : float
        Largest singular value of the dictionary; 1 if that is 0.
    """

    base: Array
    norm: float


def reduced(D: Array) -> Reduced:
    """A dictionary with as many columns as its rank, at least one."""
    found = triplets(D)
    top = float(found.s[0])
    if top == 0.0:
        return Reduced(0.0 * D[:, :1], 1.0)
    floor = np.finfo(np.float64).eps * max(D.shape)
    s = found.s[found.s > floor * top] / top
    return Reduced(found.U[:, : len(s)] * like(D, s), top)


def from_completion(X: Array, kind: str, rank_tol: float) -> Array:
    """The dictionary that a completed matrix gives.

    Parameters
    ----------
    X : array of shape (m, n)
        The completed matrix.
    kind : {"columns", "basis"}
        Columns of the best approximation of its rank, of length 1, or a basis of them.
    rank_tol : float
        Singular values below this part of the largest do not count for the rank.
    """
    found = triplets(X)
    top = float(found.s[0])
    if top == 0.0:
        return 0.0 * X[:, :1]
    s = found.s[found.s > rank_tol * top]
    if kind == "basis":
        return found.U[:, : len(s)]
    near = found.product(s)
    xp = array_namespace(X)
    lengths = xp.linalg.vector_norm(near, axis=0)
    # Lengths down to rounding, of columns that are 0, would be blown up.
    kept = lengths > 1e-12 * top
    return near[:, kept] / lengths[kept]


@dataclass(frozen=True, eq=False)
class Reach:
    """Which coefficients meet the observed entries, column by column.

    Attributes
    ----------
    shortest : array of shape (r, n)
        The shortest coefficients that are nearest to the observed values.
    spaces : array of shape (n, r, r)
        Projectors on what the observed entries of a column say of its coefficients.
    left : float
        Distance of what these give to the observed values, over their size.
    """

    shortest: Array
    spaces: Array
    left: float

    @classmethod
    def of(cls, problem: Problem, base: Array) -> Reach:
        """From one small decomposition a column."""
        rows: Any = problem.home.fetch(base)
        r, n = rows.shape[1], problem.shape[1]
        _refuse_large(n, r)
        entries = problem.observed.to_csr().tocsc()
        shortest, spaces, left = np.zeros((r, n)), np.zeros((n, r, r)), 0.0
        for j in np.flatnonzero(np.diff(entries.indptr)):
            own = slice(int(entries.indptr[j]), int(entries.indptr[j + 1]))
            values = entries.data[own]
            U, s, Vt = triplets(rows[entries.indices[own]])
            kept = s > FLAT * s[0]
            U, s, Vt = U[:, kept], s[kept], Vt[kept]
            along = U.T @ values
            shortest[:, j] = Vt.T @ (along / s)
            spaces[j] = Vt.T @ Vt
            left += float(np.sum((values - U @ along) ** 2))
        send = problem.home.send
        share = ratio(math.sqrt(left), problem.size)
        return cls(send(shortest), send(spaces), share)

    def nearest(self, Z: Array) -> Array:
        """The coefficients nearest to ``Z`` that meet the observed entries."""
        xp = array_namespace(Z)
        along = xp.matmul(self.spaces, Z.T[:, :, None])[:, :, 0]
        return Z - along.T + self.shortest


def _refuse_large(n: int, r: int) -> None:
    """Raise where projectors of all columns are too large."""
    size = n * r * r * 8 / 1e9
    if size > MOST_GB:
        raise ValueError(
            f"LRFD with a dictionary of rank {r} needs {size:.3g} GB for {n} columns, "
            f"more than {MOST_GB:g}; raise rank_tol for a smaller rank, or set lam"
        )

"""What a normal distribution of all coordinates says of rows that are seen in part.

With ``P`` the inverse of the covariance, what a row has not seen (``u``) has the
covariance ``P_uu^-1`` and the mean ``-P_uu^-1 P_uo v`` about the means, and what it has
seen in part ``o`` the error ``(A^-1 v)_j / (A^-1)_jj`` from all of its other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ncarl.core.types import Array

#: Numbers that a batch of small matrices may hold.
ROOM = 4_000_000


@dataclass(frozen=True)
class Unseen:
    """What some rows, which miss equally many coordinates, say of these.

    Attributes
    ----------
    rows : array of int, shape (g,)
        The rows.
    places : array of int, shape (g, u)
        The coordinates that each of them misses, in increasing order.
    means : array of shape (g, u)
        What is to be expected there.
    spreads : array of shape (g, u, u)
        Covariances, noise included.
    """

    rows: Array
    places: Array
    means: Array
    spreads: Array

    def block(self, first: int, width: int) -> tuple[Array, Array, Array]:
        """Rows that miss some coordinates next to each other; means, covariances."""
        which, start = np.nonzero(self.places == first)
        span = start[:, None] + np.arange(width)
        spreads = self.spreads[which[:, None, None], span[:, :, None], span[:, None, :]]
        return self.rows[which], self.means[which[:, None], span], spreads


@dataclass(frozen=True)
class Joint:
    """Mean and covariance of rows as they would be observed.

    Attributes
    ----------
    mean : array of shape (n,)
        Means of the coordinates.
    covariance : array of shape (n, n)
        Their covariance, noise included.
    """

    mean: Array
    covariance: Array

    @cached_property
    def precision(self) -> Array:
        """The inverse of the covariance."""
        P: Array = np.linalg.inv(self.covariance)
        return (P + P.T) / 2.0

    def unseen(self, rows: Array) -> Iterator[Unseen]:
        """What is known of the gaps of rows (NaN), batch by batch."""
        P = self.precision
        gaps = np.isnan(rows)
        pull = np.where(gaps, 0.0, rows - self.mean) @ P
        for at, places in _batches(gaps):
            inverse = np.linalg.inv(P[places[:, :, None], places[:, None, :]])
            moved = inverse @ pull[at[:, None], places][:, :, None]
            means = self.mean[places] - moved[:, :, 0]
            yield Unseen(at, places, means, inverse)

    def left_out(self, rows: Array) -> tuple[Array, Array]:
        """Errors at every known value from the others of its row, and deviations.

        Both have the shape of ``rows``, NaN in the gaps.
        """
        errors, deviations = np.full(rows.shape, np.nan), np.full(rows.shape, np.nan)
        for at, seen in _batches(~np.isnan(rows)):
            A = self.covariance[seen[:, :, None], seen[:, None, :]]
            inverse = np.linalg.inv(A)
            values = rows[at[:, None], seen] - self.mean[seen]
            weights = np.diagonal(inverse, axis1=1, axis2=2)
            pulls = (inverse @ values[:, :, None])[:, :, 0]
            errors[at[:, None], seen] = pulls / weights
            deviations[at[:, None], seen] = 1.0 / np.sqrt(weights)
        return errors, deviations


def _batches(marks: Array) -> Iterator[tuple[Array, Array]]:
    """Rows with equally many marks, and where these are; rows without are left out."""
    counts = marks.sum(axis=1)
    for count in np.unique(counts[counts > 0]):
        same = np.flatnonzero(counts == count)
        step = max(1, ROOM // int(count) ** 2)
        for first in range(0, len(same), step):
            at = same[first : first + step]
            yield at, np.nonzero(marks[at])[1].reshape(len(at), int(count))


def posterior(
    means: Array, spreads: Array, before: Array, codes: Array, shares: Array
) -> Array:
    """Probabilities of categories, shape (m, k), from what rows say of their codes.

    The normal distribution gives the density of a row for each category by Bayes' rule:
    that of the code given the row over that of the code alone (mean 0, covariance
    ``before``). Times the shares of the categories it is their probability, as in
    linear discriminant analysis.
    """
    away = codes[None, :, :] - means[:, None, :]
    solved = np.linalg.solve(spreads, np.swapaxes(away, 1, 2))
    given = np.einsum("mkj,mjk->mk", away, solved)
    alone = np.einsum("kj,jk->k", codes, np.linalg.solve(before, codes.T))
    logs = np.log(shares) - 0.5 * (given - alone)
    logs -= logs.max(axis=1, keepdims=True)
    found: Array = np.exp(logs)
    return found / found.sum(axis=1, keepdims=True)

"""Ratings as a list: who gave what how many stars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import from_triplets


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of items by users, one entry each.

    Attributes
    ----------
    users, items : int arrays of shape (entries,)
        Rows and columns, counted from 0.
    ratings : float array of shape (entries,)
        What was given.
    timestamps : int array of shape (entries,) or None
        Seconds since 1970, where the source has them.
    shape : tuple of int
        Users and items.
    user_ids, item_ids : int arrays of shape (users,), (items,)
        What the source calls each row and column.
    name : str
        The data set, as `describe` knows it.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.datasets import Ratings
    >>> who, what, ids = np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([1, 2])
    >>> stars = np.array([5.0, 3.0, 4.0])
    >>> few = Ratings(who, what, stars, None, (2, 2), ids, ids, "few")
    >>> few.matrix().toarray()
    array([[5., 0.],
           [3., 4.]])
    >>> few.matrix([True, False, False]).nnz
    1
    """

    users: Array
    items: Array
    ratings: Array
    timestamps: Array | None
    shape: tuple[int, int]
    user_ids: Array
    item_ids: Array
    name: str

    def __len__(self) -> int:
        return len(self.ratings)

    def matrix(self, entries: Any = None) -> Any:
        """The ratings as a sparse matrix, whose stored entries are the known ones.

        Parameters
        ----------
        entries : boolean array of shape (entries,) or int array, optional
            Only these entries; by default all of them.

        Returns
        -------
        scipy.sparse.csr_array
            Of the full shape, ready for ``fit``.
        """
        chosen: Any = slice(None)
        if entries is not None:
            chosen = np.asarray(entries)
            if chosen.dtype == bool and chosen.shape != self.ratings.shape:
                raise ValueError(
                    "entries must say yes or no to each of the "
                    f"{len(self.ratings)} ratings, got shape {chosen.shape}"
                )
            if chosen.dtype != bool and chosen.size and chosen.dtype.kind not in "iu":
                raise ValueError(
                    "entries must be booleans or positions in the list, got dtype "
                    f"{chosen.dtype}"
                )
            chosen = chosen if chosen.size else chosen.astype(np.intp)
        triples = (self.users[chosen], self.items[chosen], self.ratings[chosen])
        return from_triplets(*triples, shape=self.shape)

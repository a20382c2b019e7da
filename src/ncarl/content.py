"""A name for what a matrix holds, which chunks of its rows can find out one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ncarl.core.types import Array

if TYPE_CHECKING:
    from ncarl.observed import Observed

#: Odd factors of the two halves of a name; rows count by powers of them, so that
#: their order counts too.
FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
BITS = 2**64


def mixed(bits: Array) -> Array:
    """64 bits stirred well: each bit of the result depends on all those given."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def row_codes(observed: Observed, salt: int = 0) -> Array:
    """A number of 64 bits for each row, by its columns and the values there."""
    values = observed.values.astype(np.float64) + 0.0  # one zero, not two
    columns = mixed(observed.indices.astype(np.uint64) + np.uint64(salt))
    entries = mixed(values.view(np.uint64) ^ columns)
    counts = observed.row_counts
    codes = counts.astype(np.uint64)
    some = np.flatnonzero(counts)
    if len(some):
        codes[some] += np.add.reduceat(entries, observed.indptr[some])
    return mixed(codes)


@dataclass(frozen=True)
class Content:
    """What some rows hold, in two numbers of 64 bits.

    Attributes
    ----------
    n_rows : int
        How many rows.
    halves : tuple of int
        The numbers.
    """

    n_rows: int
    halves: tuple[int, int]

    @classmethod
    def of(cls, observed: Observed) -> Content:
        """The content of some rows.

        Examples
        --------
        >>> import numpy as np
        >>> from ncarl.observed import Observed
        >>> X = np.arange(6.0).reshape(3, 2)
        >>> top, low = (Content.of(Observed.from_dense(x)) for x in (X[:1], X[1:]))
        >>> top + low == Content.of(Observed.from_dense(X))
        True
        """
        m = observed.shape[0]
        halves = []
        for salt, factor in enumerate(FACTORS):
            powers = np.full(m, factor, dtype=np.uint64)
            powers[-1:] = 1
            powers = np.multiply.accumulate(powers[::-1])[::-1]
            halves.append(int((row_codes(observed, salt) * powers).sum()))
        return cls(m, (halves[0], halves[1]))

    def __add__(self, other: Content) -> Content:
        """The content of these rows and then those."""
        first, second = (
            (mine * pow(factor, other.n_rows, BITS) + theirs) % BITS
            for mine, theirs, factor in zip(
                self.halves, other.halves, FACTORS, strict=True
            )
        )
        return Content(self.n_rows + other.n_rows, (first, second))

    def name(self, n_columns: int) -> str:
        """The content in letters, with the shape."""
        first, second = self.halves
        return f"{self.n_rows}x{n_columns}-{first:016x}{second:016x}"

"""What the rows most like a row say of it beyond what a kernel can.

A kernel explains columns by columns in one way for all rows. Where that way differs
from one kind of row to another (a motorway at night and in a jam), rows of one kind
err alike. So the errors of the most similar rows, each with its own entry left out,
are averaged and taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.model import KernelModel
from ncarl.observed import Observed

#: Numbers of nearest rows that are tried.
COUNTS = (5, 10, 20)
#: The mean error of the nearest rows is taken as if so many more of them had none.
DOUBT = 1.0
#: Rows are not compared where that takes more flops, or larger a completed matrix.
MOST_WORK, MOST_ENTRIES = 5e11, 1e8
#: Of the most rows that are asked so many must know an entry on average: in a sparse
#: matrix (MovieLens has 5% of its entries) nothing is gained by asking.
LEAST_KNOWN = 2.0
#: An entry that fixes its own value up to this part of the noise has no error of its
#: own that digits can tell.
LEAST_FREEDOM = 1e-4
#: Terms are worked out for so many entries at a time.
ROOM = 20_000_000


@dataclass(frozen=True)
class NearChoice:
    """How the nearest rows are heard.

    Attributes
    ----------
    count : int
        How many of them.
    weight : float
        Part of their mean error that is taken off.
    sharper : float
        Factor of the standard deviations that comes with it.
    """

    count: int
    weight: float
    sharper: float

    def corrected(
        self, terms: Array, x: Array, spread: Array | None
    ) -> tuple[Array, Array | None]:
        """Values and deviations with what the rows say; NaN where they say nothing."""
        silent = np.isnan(terms)
        x = x + self.weight * np.where(silent, 0.0, terms)
        if spread is not None:
            spread = spread * np.where(silent, 1.0, self.sharper)
        return x, spread


@dataclass(frozen=True)
class Near:
    """The nearest rows of every row of a matrix, and how they err.

    Attributes
    ----------
    rows : array of int, shape (m, count)
        Nearest rows, the nearest first; anything for a row without entries.
    errors : Observed
        Errors of the entries, each predicted from the others of its row.
    """

    rows: Array
    errors: Observed

    def terms(self, rows: Array, count: int) -> Array:
        """Mean errors about some rows, all columns.

        NaN where an entry is known, and in rows of which nothing is.
        """
        m = self.errors.shape[0]
        places = self.rows[rows, :count]
        ends = places.shape[1] * np.arange(len(rows) + 1)
        chosen = csr_array(
            (np.ones(places.size), places.ravel(), ends), shape=(len(rows), m)
        )
        ones = self.errors.with_values(np.ones(self.errors.n_observed))
        sums: Array = (chosen @ self.errors.to_csr()).toarray()
        sums /= (chosen @ ones.to_csr()).toarray() + DOUBT
        own = self.errors.take_rows(rows)
        sums[own.rows, own.indices] = np.nan
        sums[own.row_counts == 0] = np.nan
        return sums

    def strips(self, count: int) -> Iterator[tuple[slice, Array]]:
        """Terms of all rows, some rows at a time."""
        m, n = self.errors.shape
        step = max(1, ROOM // n)
        for first in range(0, m, step):
            rows = slice(first, min(first + step, m))
            yield rows, self.terms(np.arange(rows.start, rows.stop), count)

    def terms_at(self, i: Array, j: Array, count: int) -> Array:
        """The same at single entries."""
        wanted, position = np.unique(i, return_inverse=True)
        order = np.argsort(position, kind="stable")
        found = np.empty(len(i))
        step = max(1, ROOM // self.errors.shape[1])
        for first in range(0, len(wanted), step):
            part = self.terms(wanted[first : first + step], count)
            ends = np.searchsorted(position[order], [first, first + step])
            asked = order[slice(*ends)]
            found[asked] = part[position[asked] - first, j[asked]]
        return found


def comparable(observed: Observed) -> bool:
    """Whether rows have neighbours that know something, and can all be compared."""
    m = int(np.count_nonzero(observed.row_counts))
    n = int(np.count_nonzero(observed.column_counts))
    affordable = 2.0 * m * m * n <= MOST_WORK and m * n <= MOST_ENTRIES
    known = COUNTS[-1] * observed.n_observed / max(1, m * n)
    return affordable and m > 2 * COUNTS[0] and known >= LEAST_KNOWN


def nearest(
    model: KernelModel, observed: Observed, engine: Engine, count: int
) -> Near | None:
    """Nearest rows by their completed form; None for a model without noise."""
    from sklearn.neighbors import NearestNeighbors  # half a second to load

    errors = left_out_errors(model, observed, engine)
    if errors is None:
        return None
    X, _ = model.complete(observed, engine)
    some = np.flatnonzero(observed.row_counts)  # an empty row knows nothing of others
    count = min(count, len(some) - 1)
    search = NearestNeighbors(n_neighbors=count, algorithm="brute")
    rows = np.zeros((len(X), count), dtype=np.int64)
    threads = getattr(engine.home, "n_jobs", None)
    with threadpool_limits(threads, user_api="openmp"):
        rows[some] = some[search.fit(X[some]).kneighbors(return_distance=False)]
    return Near(rows, errors)


def left_out_errors(
    model: KernelModel, observed: Observed, engine: Engine
) -> Observed | None:
    """Errors of the entries, each as predicted from the others of its row.

    With latent variance ``c`` and noise ``s`` at an entry it moves its own value by
    ``c / s`` of itself, so that its error without itself is what it has over
    ``1 - c / s``.
    """
    if model.kernel.s == 0.0:
        return None
    j = observed.indices.astype(np.int64)
    x, spread = model.predict(observed, observed.rows, j, engine, std="latent")
    assert spread is not None
    noise = model.kernel.s * model.centre.spreads[j] ** 2
    freedom = 1.0 - spread**2 / noise
    known = freedom > LEAST_FREEDOM
    error = np.where(known, observed.values - x, 0.0) / np.where(known, freedom, 1.0)
    return observed.with_values(error)

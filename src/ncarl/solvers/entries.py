"""Observed entries as a sparse matrix that is worked on where its home is.

Solvers that keep the completed matrix as a product of factors need only this: the
product at the observed entries, and a sparse matrix times a thin one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ncarl.core.singular import frobenius, spectral_norm
from ncarl.core.types import Array
from ncarl.homes import Home
from ncarl.observed import Observed

#: From this density on all entries of a product are had sooner than some of them.
DENSE = 0.03
#: From this density on, and up to so many entries, a product with zeros filled in is
#: quicker than a sparse one.
FULL, MOST_FULL = 0.1, 4_000_000
#: Numbers of a product, or of gathered factors, that are held at a time.
CHUNK = 8_000_000


@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries, ready for products with thin matrices.

    Attributes
    ----------
    observed : Observed
        The entries, in the memory of this process.
    home : Home
        Where arrays are worked on.
    """

    observed: Observed
    home: Home

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.observed.shape

    @cached_property
    def values(self) -> Array:
        """The observed values, at home."""
        return self.home.send(self.observed.values)

    @cached_property
    def seen(self) -> tuple[Array, Array]:
        """Rows, and columns, in which something is observed."""
        return self.observed.row_counts > 0, self.observed.column_counts > 0

    @cached_property
    def size(self) -> float:
        """Length of the observed values."""
        return frobenius(self.observed.values)

    @cached_property
    def top(self) -> float:
        """Largest singular value of the zero-filled matrix; 1 if it is 0."""
        return spectral_norm(self.observed.to_csr()) or 1.0

    @cached_property
    def _tensors(self) -> Any:
        """The pattern as tensors, where the home is not the memory of this process."""
        return _Tensors(self.observed, self.values)

    @cached_property
    def _elsewhere(self) -> bool:
        """Whether arrays are tensors."""
        return not isinstance(self.values, np.ndarray)

    @cached_property
    def _places(self) -> Array:
        """Positions of the entries in the flat matrix."""
        return self.observed.rows * self.shape[1] + self.observed.indices

    def product_at(self, A: Array, B: Array) -> Array:
        """``A @ B`` at the observed entries."""
        if self._elsewhere:
            return self._tensors.product_at(A, B)
        o, (m, n) = self.observed, self.shape
        if o.n_observed < DENSE * m * n:
            return _gathered(o, A, B)
        out = np.empty(o.n_observed)
        step = max(1, CHUNK // max(1, n))
        for first in range(0, m, step):
            last = min(m, first + step)
            part = slice(int(o.indptr[first]), int(o.indptr[last]))
            block = (A[first:last] @ B).ravel()
            block.take(self._places[part] - first * n, out=out[part])
        return out

    def times(self, values: Array, V: Array) -> Array:
        """The sparse matrix with these values, times ``V``."""
        if self._elsewhere:
            return self._tensors.times(values, V)
        return self._matrix(values) @ V

    def turned_times(self, values: Array, U: Array) -> Array:
        """The transposed sparse matrix with these values, times ``U``."""
        if self._elsewhere:
            return self._tensors.turned_times(values, U)
        return self._matrix(values).T @ U

    def _matrix(self, values: Array) -> Any:
        """The matrix with these values: sparse, or dense where that is quicker."""
        o, (m, n) = self.observed, self.shape
        if o.n_observed < FULL * m * n or m * n > MOST_FULL:
            return csr_array((values, o.indices, o.indptr), shape=self.shape)
        full = np.zeros(m * n)
        full[self._places] = values
        return full.reshape(m, n)


def _gathered(o: Observed, A: Array, B: Array) -> Array:
    """``A @ B`` at few of its entries, a chunk of them at a time."""
    rows, Bt = o.rows, np.ascontiguousarray(B.T)
    out = np.empty(o.n_observed)
    step = max(1, CHUNK // max(1, A.shape[1]))
    for first in range(0, o.n_observed, step):
        part = slice(first, first + step)
        out[part] = np.einsum("ek,ek->e", A[rows[part]], Bt[o.indices[part]])
    return out


class _Tensors:
    """The same products on tensors."""

    def __init__(self, observed: Observed, values: Any) -> None:
        import torch

        def there(array: Any) -> Any:
            return torch.tensor(array, device=values.device)

        self.torch, self.shape = torch, observed.shape
        self.rows, self.columns = there(observed.rows), there(observed.indices).long()
        self.starts = there(observed.indptr)
        places = observed.with_values(np.arange(observed.n_observed)).transposed()
        self.order = there(places.values)
        self.turned_starts, self.turned_rows = (
            there(places.indptr),
            there(places.indices).long(),
        )

    def product_at(self, A: Any, B: Any) -> Any:
        """``A @ B`` at the observed entries."""
        Bt, width = B.T.contiguous(), max(1, A.shape[1])
        parts = zip(
            self.rows.split(CHUNK // width + 1),
            self.columns.split(CHUNK // width + 1),
            strict=True,
        )
        return self.torch.cat([(A[i] * Bt[j]).sum(1) for i, j in parts])

    def times(self, values: Any, V: Any) -> Any:
        """The sparse matrix with these values, times ``V``."""
        return self._matrix(self.starts, self.columns, values, self.shape) @ V

    def turned_times(self, values: Any, U: Any) -> Any:
        """The transposed sparse matrix with these values, times ``U``."""
        turned = values[self.order]
        shape = (self.shape[1], self.shape[0])
        return self._matrix(self.turned_starts, self.turned_rows, turned, shape) @ U

    def _matrix(self, starts: Any, columns: Any, values: Any, shape: Any) -> Any:
        """A sparse tensor by rows."""
        import warnings

        with warnings.catch_warnings():  # torch calls its sparse rows a prototype
            warnings.simplefilter("ignore", UserWarning)
            return self.torch.sparse_csr_tensor(starts, columns, values, size=shape)

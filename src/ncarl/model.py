"""A fitted kernel and what it can say about rows, apart from any estimator.

All methods work in the orientation of the kernel: its columns are the model's columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.blocks import cut
from ncarl.centre import Centre
from ncarl.core.rows import (
    complete_rows,
    entry_variances,
    row_entries,
    row_module,
    row_variances,
)
from ncarl.core.types import Array, Block, Kernel
from ncarl.engines import Engine
from ncarl.observed import Observed


@dataclass(frozen=True)
class KernelModel:
    """Kernel, additive part and units of a fit.

    Attributes
    ----------
    kernel : Kernel
        Covariance of the columns.
    centre : Centre
        Additive part, in internal units.
    unit : float
        What the user's values are divided by.
    sigma : float
        Internal size of one unit of the kernel's standard deviation.
    empty : array of bool, shape (n,)
        Columns in which the fit observed nothing.
    fallback : array of shape (n,)
        Added where a row or column says nothing of itself (internal units).
    dtype : str
        Precision of the row work.
    """

    kernel: Kernel
    centre: Centre
    unit: float
    sigma: float
    empty: Array
    fallback: Array
    dtype: str

    def prepare(self, observed: Observed) -> tuple[Observed, Array]:
        """Observed residuals in internal units, and the effect of each row."""
        inner = observed.with_values(observed.values / self.unit)
        effects = self.centre.row_effects(inner)
        residuals = self.centre.residuals(inner, effects).astype(self.dtype, copy=False)
        return inner.with_values(residuals), effects

    def complete(
        self, observed: Observed, engine: Engine, *, std: str | None = None
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix in the user's units, and its standard deviations.

        Parameters
        ----------
        observed : Observed
            Rows to complete.
        engine : Engine
            Where to work.
        std : {"observed", "latent"}, optional
            Standard deviation of an entry as it would be observed, or of the value
            behind it.
        """
        residuals, effects = self.prepare(observed)
        X = np.empty(observed.shape)
        deviations = None if std is None else np.empty(observed.shape)
        blocks = cut(residuals, engine.blocks_wanted(*residuals.shape))
        shared = {"kernel": self.kernel, "std": std}
        done = engine.map(completed_block, engine.place(blocks), **shared)
        for block, (rows, variances) in zip(blocks, done, strict=True):
            X[block.rows] = self._in_units(rows, effects[block.rows], block)
            if deviations is not None:
                deviations[block.rows] = self._deviations(variances)
        return _finite(X), None if deviations is None else _finite(deviations)

    def predict(
        self,
        observed: Observed,
        rows: Array,
        columns: Array,
        engine: Engine,
        *,
        std: str | None = None,
    ) -> tuple[Array, Array | None]:
        """Smoothed values at single entries, from the duals of their rows."""
        wanted, position = np.unique(rows, return_inverse=True)
        part = observed.take_rows(wanted)
        residuals, effects = self.prepare(part)
        values = np.empty(len(rows))
        deviations = None if std is None else np.empty(len(rows))
        blocks = cut(residuals, engine.blocks_wanted(*residuals.shape))
        order = np.argsort(position, kind="stable")
        bounds = np.searchsorted(position[order], np.arange(len(wanted) + 1))
        done = engine.map(
            entry_terms, engine.place(blocks), kernel=self.kernel, std=std,
            columns=columns[order], bounds=bounds,
        )  # fmt: skip
        for places, sums, variances in done:
            asked = order[places]
            j, i = columns[asked], position[asked]
            centre = self.centre.mean + self.centre.columns[j]
            silent = self.empty[j] | (part.row_counts[i] == 0)
            inner = (sums + effects[i]) * self.centre.spreads[j] + centre
            inner += self.fallback[j] * silent
            with np.errstate(over="ignore"):
                values[asked] = inner * self.unit
            if deviations is not None:
                deviations[asked] = self._deviations(variances, j)
        return _finite(values), None if deviations is None else _finite(deviations)

    def _in_units(self, rows: Array, effects: Array, block: Block) -> Array:
        """Completed residual rows in the user's units, additive part included."""
        X = rows.astype(np.float64, copy=False) + effects[:, None]
        X *= self.centre.spreads
        X += self.centre.mean + self.centre.columns
        silent = np.diff(block.indptr) == 0
        X[:, self.empty] += self.fallback[self.empty]
        X[np.ix_(silent, ~self.empty)] += self.fallback[~self.empty]
        with np.errstate(over="ignore"):  # held at the largest float in the end
            X *= self.unit
        return X

    def _deviations(self, variances: Array, columns: Any = slice(None)) -> Array:
        """Standard deviations in the user's units."""
        spreads = self.centre.spreads[columns]
        with np.errstate(over="ignore"):
            return np.sqrt(variances) * (self.sigma * spreads) * self.unit


def completed_block(
    block: Block, *, kernel: Kernel, std: str | None, kind: str = "auto"
) -> tuple[Array, Array | None]:
    """Completed rows of a block, and the variances of their entries if asked for."""
    module = row_module(kind)
    rows, spreads = [], []
    for part in module.parts_to_fetch(block):
        X, _, _ = complete_rows(part, kernel=kernel, kind=kind)
        rows.append(module.fetched(X))
        if std is not None:
            variances = row_variances(part, kernel=kernel, kind=kind)
            noise = kernel.s if std == "latent" else 0.0
            spreads.append(module.fetched(variances) - noise)
    return joined(rows), joined(spreads) if spreads else None


def joined(parts: list[Array]) -> Array:
    """Rows one below the other; a single part as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def entry_terms(
    block: Block,
    *,
    kernel: Kernel,
    columns: Array,
    bounds: Array,
    std: str | None,
    kind: str = "auto",
) -> tuple[Array, Array, Array]:
    """``y_i K_oj`` for the columns asked of each row of a block, and variances.

    Row ``block.rows[i]`` is asked for ``columns[bounds[row]:bounds[row + 1]]``.

    Returns
    -------
    places : array of int, shape (asked,)
        Positions in ``columns`` that the block answers.
    sums, variances : arrays of shape (asked,)
        The answers; variances are 0 where they were not asked for.
    """
    parts = row_module(kind).pieces(block)
    answers = [_answers(part, kernel, columns, bounds, std, kind) for part in parts]
    places, sums, variances = (joined(list(a)) for a in zip(*answers, strict=True))
    return places, sums, variances


def _answers(
    block: Block, kernel: Kernel, columns: Array, bounds: Array,
    std: str | None, kind: str,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Places, values and variances that are asked of the rows of a small block."""
    counts = (bounds[1:] - bounds[:-1])[block.rows]
    i = np.repeat(np.arange(block.n_rows), counts)
    within = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = bounds[block.rows][i] + within
    j = columns[places]
    fetched = row_module(kind).fetched
    values = fetched(row_entries(block, i, j, kernel=kernel, kind=kind))
    if std is None:
        return places, values, np.zeros(len(j))
    spread = entry_variances(block, i, j, kernel=kernel, kind=kind)
    noise = kernel.s if std == "latent" else 0.0
    return places, values, fetched(spread) - noise


def _finite(values: Array) -> Array:
    """Values with overflow held at the largest float."""
    largest = np.finfo(np.float64).max
    return np.clip(values, -largest, largest, out=values)

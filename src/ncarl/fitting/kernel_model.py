"""`KernelModel`: a fitted kernel that completes rows and predicts single entries.

Its methods work in the orientation of the kernel: the columns of their input are those
of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.blocks import cut_blocks
from ncarl.centering import Centering
from ncarl.containers import clip_to_float_range
from ncarl.core.rows import (
    complete_rows,
    entry_variances,
    row_backend,
    row_entries,
    row_variances,
)
from ncarl.core.types import Array, Block, Kernel
from ncarl.engines.base import Engine
from ncarl.observations import Observations


@dataclass(frozen=True)
class KernelModel:
    """Kernel, centering and units of a fit."""

    kernel: Kernel  # covariance of the columns
    centering: Centering  # additive part, in internal units
    unit: float  # what the user's values are divided by
    sigma: float  # standard deviation of the kernel's unit, in internal units
    empty_columns: Array  # bool, shape (n,): columns without entries in the fit
    fallback: Array  # shape (n,): added in empty rows and columns, internal units
    dtype: str  # precision of the row work

    def prepare(self, observed: Observations) -> tuple[Observations, Array]:
        """Observed residuals in internal units, and the effect of each row."""
        inner = observed.with_values(observed.values / self.unit)
        effects = self.centering.row_effects(inner)
        residuals = self.centering.residuals(inner, effects).astype(
            self.dtype, copy=False
        )
        return inner.with_values(residuals), effects

    def complete(
        self, observed: Observations, engine: Engine, *, std: str | None = None
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix in the user's units, and its standard deviations.

        Parameters
        ----------
        observed : Observations
            Rows to complete.
        engine : Engine
            Where to work.
        std : {"observed", "latent"}, optional
            Standard deviation of an entry as it would be observed, or of its value
            without noise.
        """
        residuals, effects = self.prepare(observed)
        X = np.empty(observed.shape)
        deviations = None if std is None else np.empty(observed.shape)
        blocks = cut_blocks(residuals, engine.choose_n_blocks(*residuals.shape))
        shared = {"kernel": self.kernel, "std": std}
        done = engine.map(complete_block, engine.place(blocks), **shared)
        for block, (rows, variances) in zip(blocks, done, strict=True):
            X[block.rows] = self._to_user_units(rows, effects[block.rows], block)
            if deviations is not None:
                deviations[block.rows] = self._to_user_std(variances)
        if deviations is not None:
            deviations = clip_to_float_range(deviations, out=deviations)
        return clip_to_float_range(X, out=X), deviations

    def predict(
        self,
        observed: Observations,
        rows: Array,
        columns: Array,
        engine: Engine,
        *,
        std: str | None = None,
    ) -> tuple[Array, Array | None]:
        """Smoothed values at single entries, and their standard deviations."""
        distinct, position = np.unique(rows, return_inverse=True)
        part = observed.take_rows(distinct)
        residuals, effects = self.prepare(part)
        values = np.empty(len(rows))
        deviations = None if std is None else np.empty(len(rows))
        blocks = cut_blocks(residuals, engine.choose_n_blocks(*residuals.shape))
        order = np.argsort(position, kind="stable")
        bounds = np.searchsorted(position[order], np.arange(len(distinct) + 1))
        done = engine.map(
            predict_block_entries, engine.place(blocks), kernel=self.kernel, std=std,
            columns=columns[order], bounds=bounds,
        )  # fmt: skip
        for places, sums, variances in done:
            entries = order[places]
            j, i = columns[entries], position[entries]
            center = self.centering.mean + self.centering.column_effects[j]
            empty = self.empty_columns[j] | (part.row_counts[i] == 0)
            inner = (sums + effects[i]) * self.centering.column_scales[j] + center
            inner += self.fallback[j] * empty
            with np.errstate(over="ignore"):
                values[entries] = inner * self.unit
            if deviations is not None:
                deviations[entries] = self._to_user_std(variances, j)
        if deviations is not None:
            deviations = clip_to_float_range(deviations, out=deviations)
        return clip_to_float_range(values, out=values), deviations

    def _to_user_units(self, rows: Array, effects: Array, block: Block) -> Array:
        """Completed residual rows in the user's units, additive part included."""
        X = rows.astype(np.float64, copy=False) + effects[:, None]
        X *= self.centering.column_scales
        X += self.centering.mean + self.centering.column_effects
        empty_rows = np.diff(block.indptr) == 0
        X[:, self.empty_columns] += self.fallback[self.empty_columns]
        X[np.ix_(empty_rows, ~self.empty_columns)] += self.fallback[~self.empty_columns]
        with np.errstate(over="ignore"):  # clipped to the largest float in the end
            X *= self.unit
        return X

    def _to_user_std(self, variances: Array, columns: Any = slice(None)) -> Array:
        """Standard deviations in the user's units."""
        scales = self.centering.column_scales[columns]
        with np.errstate(over="ignore"):
            return np.sqrt(variances) * (self.sigma * scales) * self.unit


def complete_block(
    block: Block, *, kernel: Kernel, std: str | None, kind: str = "auto"
) -> tuple[Array, Array | None]:
    """Completed rows of a block, and with ``std`` the variances of their entries."""
    module = row_backend(kind)
    rows, row_vars = [], []
    for part in module.transfer_pieces(block):
        X, _, _ = complete_rows(part, kernel=kernel, kind=kind)
        rows.append(module.to_numpy(X))
        if std is not None:
            variances = row_variances(part, kernel=kernel, kind=kind)
            noise = kernel.s if std == "latent" else 0.0
            row_vars.append(module.to_numpy(variances) - noise)
    return concatenate_rows(rows), concatenate_rows(row_vars) if row_vars else None


def concatenate_rows(parts: list[Array]) -> Array:
    """``np.concatenate`` without the copy of a single part."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def predict_block_entries(
    block: Block,
    *,
    kernel: Kernel,
    columns: Array,
    bounds: Array,
    std: str | None,
    kind: str = "auto",
) -> tuple[Array, Array, Array]:
    """``y_i K_oj`` at some columns of each row of a block, and variances.

    In row ``block.rows[i]`` these are ``columns[bounds[row]:bounds[row + 1]]``.

    Returns
    -------
    places : array of int, shape (entries,)
        Positions in ``columns`` that belong to rows of the block.
    sums, variances : arrays of shape (entries,)
        Predictions and variances there; variances are 0 without ``std``.
    """
    parts = [
        _predict_piece_entries(piece, kernel, columns, bounds, std, kind)
        for piece in row_backend(kind).pieces(block)
    ]
    places, sums, variances = (
        concatenate_rows(list(part)) for part in zip(*parts, strict=True)
    )
    return places, sums, variances


def _predict_piece_entries(
    block: Block, kernel: Kernel, columns: Array, bounds: Array,
    std: str | None, kind: str,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """As `predict_block_entries`, for a block that is worked on as a whole."""
    counts = (bounds[1:] - bounds[:-1])[block.rows]
    i = np.repeat(np.arange(block.n_rows), counts)
    within = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = bounds[block.rows][i] + within
    j = columns[places]
    to_numpy = row_backend(kind).to_numpy
    values = to_numpy(row_entries(block, i, j, kernel=kernel, kind=kind))
    if std is None:
        return places, values, np.zeros(len(j))
    variances = entry_variances(block, i, j, kernel=kernel, kind=kind)
    noise = kernel.s if std == "latent" else 0.0
    return places, values, to_numpy(variances) - noise

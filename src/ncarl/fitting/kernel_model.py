"""`KernelModel`: a fitted kernel that completes rows and predicts single entries.

Its methods work in the orientation of the kernel: the columns of their input are those
of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.centering import Centering, rescale, to_user_units
from ncarl.core.types import Array, Block
from ncarl.engines.base import Engine
from ncarl.observations import Observations


@dataclass(frozen=True)
class KernelModel:
    """Kernel, centering and units of a fit."""

    kernel: Any  # `Kernel` or `WideKernel`: covariance of the columns
    centering: Centering  # additive part, in internal units
    unit: float  # what the user's values are divided by
    sigma: float  # factor from standard deviations under the kernel to internal units
    empty_columns: Array  # bool, shape (n,): columns without entries in the fit
    fallback: Array  # shape (n,): added in empty rows and columns, internal units
    dtype: str  # precision of the row work

    def prepare(self, observed: Observations) -> tuple[Observations, Array]:
        """Observed residuals in internal units, and the effect of each row."""
        inner = rescale(observed, self.unit)
        effects = self.centering.row_effects(inner)
        residuals = self.centering.residuals(inner, effects).astype(
            self.dtype, copy=False
        )
        return inner.with_values(residuals), effects

    def complete(
        self, observed: Observations, engine: Engine, *, std: str | None = None
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix in the user's units, and its standard deviations.

        ``std="observed"`` is for entries as they would be observed, "latent" for their
        values without noise.
        """
        residuals, effects = self.prepare(observed)
        X = np.empty(observed.shape)
        deviations = None if std is None else np.empty(observed.shape)
        empty_rows = residuals.row_counts == 0
        done = engine.map(
            complete_block,
            engine.place(residuals),
            kernel=self.kernel,
            variances=std is not None,
        )
        for i, rows, variances in done:
            X[i] = self._to_user_units(rows, effects[i], empty_rows[i])
            if deviations is not None:
                deviations[i] = self._to_user_std(variances, std)
        return X, deviations

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
        order = np.argsort(position, kind="stable")
        bounds = np.searchsorted(position[order], np.arange(len(distinct) + 1))
        done = engine.map(
            predict_block,
            engine.place(residuals),
            kernel=self.kernel,
            columns=columns[order],
            bounds=bounds,
            variances=std is not None,
        )
        for places, sums, variances in done:
            entries = order[places]
            j, i = columns[entries], position[entries]
            inner = self.centering.restore(sums, effects[i], j)
            empty = self.empty_columns[j] | (part.row_counts[i] == 0)
            inner += self.fallback[j] * empty
            values[entries] = to_user_units(inner, self.unit)
            if deviations is not None:
                deviations[entries] = self._to_user_std(variances, std, j)
        return values, deviations

    def _to_user_units(self, rows: Array, effects: Array, empty_rows: Array) -> Array:
        """Completed residual rows in the user's units, additive part included."""
        X = self.centering.restore(rows, effects[:, None])
        X[:, self.empty_columns] += self.fallback[self.empty_columns]
        X[np.ix_(empty_rows, ~self.empty_columns)] += self.fallback[~self.empty_columns]
        return to_user_units(X, self.unit, out=X)

    def _to_user_std(
        self, variances: Any, std: str | None, columns: Any = slice(None)
    ) -> Array:
        """Standard deviations in the units of the data; "latent" is without noise."""
        if std == "latent":
            variances = variances - self.kernel.s
        scales = self.centering.column_scales[columns]
        with np.errstate(over="ignore"):
            inner = np.sqrt(variances) * (self.sigma * scales)
        return to_user_units(inner, self.unit)


def complete_block(
    block: Block, *, kernel: Any, variances: bool, backend: str = "auto"
) -> tuple[Array, Array, Array | None]:
    """Indices of the rows of a block, the completed rows, and their variances."""
    return block.rows, *kernel.complete(block, variances=variances, backend=backend)


def predict_block(
    block: Block, *, kernel: Any, columns: Array, bounds: Array, variances: bool,
    backend: str = "auto",
) -> tuple[Array, Array, Array | None]:  # fmt: skip
    """`Kernel.predict` for a block."""
    predicted: tuple[Array, Array, Array | None] = kernel.predict(
        block, columns, bounds, variances=variances, backend=backend
    )
    return predicted

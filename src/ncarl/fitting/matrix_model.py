"""`MatrixModel`: a completed matrix, or its factors, as the model of a baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ncarl.centering import Centering, fit_centering, rescale, to_user_units
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset, rms_unit
from ncarl.observations import Observations


@dataclass(frozen=True)
class PreprocessedData:
    """Observed entries in the units of a solver."""

    residuals: Observations  # entries without the additive part, of about unit size
    unit: float  # what the user's values are divided by
    centering: Centering  # the additive part, in these units
    effects: Array  # shape (m,): effect of each row
    scaled: bool = False  # whether columns were divided by their standard deviations

    @classmethod
    def from_observations(
        cls, observed: Observations, center: str | None, scaled: bool
    ) -> PreprocessedData:
        """Divide entries by their unit and subtract the additive part."""
        unit = rms_unit(observed.values)
        inner = rescale(observed, unit)
        centering = fit_centering(InMemoryDataset(inner), center or "none", scaled)
        effects = centering.row_effects(inner)
        residuals = inner.with_values(centering.residuals(inner, effects))
        return cls(residuals, unit, centering, effects, scaled)

    def reorder(self, rows: Array, columns: Array) -> PreprocessedData:
        """The data with their rows and columns in other orders."""
        centering = replace(
            self.centering,
            column_effects=self.centering.column_effects[columns],
            column_scales=self.centering.column_scales[columns],
        )
        residuals = self.residuals.reorder(rows, columns)
        effects = self.effects[rows]
        return replace(self, residuals=residuals, centering=centering, effects=effects)

    def value_unit(self, degree: float = 1.0) -> float:
        """One unit of the residuals in the units of the user, to the power ``degree``.

        Residuals of scaled columns have no unit. Powers of 2 out of range are clipped.
        """
        power = 0.0 if self.scaled else degree * math.log2(self.unit)
        return float(2.0 ** min(max(power, -1000.0), 1000.0))

    def model(
        self, X: Array | None, factors: tuple[Array, Array] | None, ridge: float | None
    ) -> MatrixModel:
        """The model whose completed residuals, or factors of them, are given."""
        return MatrixModel(X, factors, self.unit, self.centering, self.effects, ridge)


@dataclass(frozen=True)
class MatrixModel:
    """Completed residuals, with the centering and unit of the user's values."""

    X: Array | None  # completed residuals, shape (m, n); None if there are factors
    factors: tuple[Array, Array] | None  # (m, d) and (d, n), whose product they are
    unit: float  # see `PreprocessedData`
    centering: Centering
    effects: Array
    ridge: float | None  # of the factors of new rows; None if these are not possible

    @property
    def supports_new_rows(self) -> bool:
        """Whether rows that were not in the fit can be completed."""
        return self.ridge is not None

    def complete(self) -> Array:
        """The completed matrix in the user's units."""
        if self.factors is not None:
            residuals = self.factors[0] @ self.factors[1]
        else:
            assert self.X is not None
            residuals = self.X
        X = self.centering.restore(residuals, self.effects[:, None])
        return to_user_units(X, self.unit, out=X)

    def predict(self, i: Array, j: Array) -> Array:
        """Completed values at single entries in the user's units."""
        if self.factors is not None:
            A, B = self.factors
            values = np.einsum("ek,ek->e", A[i], B.T[j])
        else:
            assert self.X is not None
            values = self.X[i, j]
        x = self.centering.restore(values, self.effects[i], j)
        return to_user_units(x, self.unit, out=x)

    def fold_in(self, observed: Observations) -> MatrixModel:
        """The model of new rows, fitted with the factors of the columns fixed."""
        assert self.ridge is not None and self.factors is not None
        inner = rescale(observed, self.unit)
        effects = self.centering.row_effects(inner)
        values = self.centering.residuals(inner, effects)
        B = self.factors[1]
        A = row_factors(inner.with_values(values), B, self.ridge)
        return replace(self, factors=(A, B), effects=effects)


def row_factors(observed: Observations, B: Array, ridge: float) -> Array:
    """``argmin_a 1/2 |v - a B_o|^2 + ridge/2 |a|^2`` for every row.

    Rows without entries get 0.
    """
    d = B.shape[0]
    A = np.zeros((observed.shape[0], d))
    if d == 0:
        return A
    Bt = np.ascontiguousarray(B.T)
    for i in np.flatnonzero(observed.row_counts):
        entries = slice(int(observed.indptr[i]), int(observed.indptr[i + 1]))
        C, v = Bt[observed.indices[entries]], observed.values[entries]
        if ridge == 0.0:
            A[i] = np.linalg.lstsq(C, v, rcond=None)[0]
        elif len(v) < d:  # the smaller of two equivalent systems
            gram = C @ C.T
            gram.flat[:: len(v) + 1] += ridge
            A[i] = C.T @ np.linalg.solve(gram, v)
        else:
            gram = C.T @ C
            gram.flat[:: d + 1] += ridge
            A[i] = np.linalg.solve(gram, C.T @ v)
    return A

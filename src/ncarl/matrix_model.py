"""A completed matrix as a model: what it says of its entries, and of new rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.centering import fit_centre
from ncarl.centre import Centre
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.surveys import InMemory, unit_of


@dataclass(frozen=True)
class Ready:
    """Observed entries made ready for a solver.

    Attributes
    ----------
    residuals : Observed
        Entries without the additive part, of a size near 1.
    unit : float
        What the user's values are divided by.
    centre : Centre
        The additive part, in these units.
    effects : array of shape (m,)
        Effect of each row.
    scaled : bool
        Whether columns were divided by their spreads.
    """

    residuals: Observed
    unit: float
    centre: Centre
    effects: Array
    scaled: bool = False

    @classmethod
    def of(cls, observed: Observed, center: str | None, scaled: bool) -> Ready:
        """Entries divided by their unit, with the additive part taken off."""
        unit = unit_of(observed.values)
        inner = observed.with_values(observed.values / unit)
        centre = fit_centre(InMemory(inner), center or "none", scaled)
        effects = centre.row_effects(inner)
        residuals = inner.with_values(centre.residuals(inner, effects))
        return cls(residuals, unit, centre, effects, scaled)

    def value_unit(self, degree: float = 1.0) -> float:
        """What one unit of the residuals is in those of the user, to some power.

        Residuals that were divided by spreads have no unit. Powers out of range are
        held at the ends of it.
        """
        power = 0.0 if self.scaled else degree * math.log2(self.unit)
        return float(2.0 ** min(max(power, -1000.0), 1000.0))

    def model(
        self, X: Array | None, factors: tuple[Array, Array] | None, ridge: float | None
    ) -> MatrixModel:
        """The model that completed residuals stand for."""
        return MatrixModel(X, factors, self.unit, self.centre, self.effects, ridge)


@dataclass(frozen=True)
class MatrixModel:
    """Completed residuals, and what brings them to the user's units.

    Attributes
    ----------
    X : array of shape (m, n), or None
        The completed residuals; None where ``factors`` stand for them.
    factors : pair of arrays of shape (m, d) and (d, n), or None
        Matrices whose product they are.
    unit, centre, effects
        See `Ready`.
    ridge : float or None
        Ridge with which the factors of a new row are found, where ``factors`` are
        balanced; None where there is no rule for new rows.
    """

    X: Array | None
    factors: tuple[Array, Array] | None
    unit: float
    centre: Centre
    effects: Array
    ridge: float | None

    @property
    def new_rows(self) -> bool:
        """Whether there is a rule for rows that were not in the fit."""
        return self.ridge is not None

    def complete(self) -> Array:
        """The completed matrix in the user's units."""
        if self.factors is not None:
            X = self.factors[0] @ self.factors[1]
        else:
            assert self.X is not None
            X = self.X.copy()
        X += self.effects[:, None]
        X *= self.centre.spreads
        X += self.centre.mean + self.centre.columns
        return self._held(X)

    def predict(self, i: Array, j: Array) -> Array:
        """Completed values at single entries in the user's units."""
        if self.factors is not None:
            A, B = self.factors
            values = np.einsum("ek,ek->e", A[i], B.T[j])
        else:
            assert self.X is not None
            values = self.X[i, j]
        inner = (values + self.effects[i]) * self.centre.spreads[j]
        return self._held(inner + self.centre.mean + self.centre.columns[j])

    def _held(self, inner: Array) -> Array:
        """Values in the user's units, overflow held at the largest float."""
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            inner *= self.unit
        return np.clip(inner, -largest, largest, out=inner)

    def for_rows(self, observed: Observed) -> MatrixModel:
        """The model of other rows, by the rule for new ones."""
        assert self.ridge is not None and self.factors is not None
        inner = observed.with_values(observed.values / self.unit)
        effects = self.centre.row_effects(inner)
        values = self.centre.residuals(inner, effects)
        B = self.factors[1]
        A = row_factors(inner.with_values(values), B, self.ridge)
        return replace(self, factors=(A, B), effects=effects)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The model as what JSON can hold, and arrays."""
        header = {
            "unit": self.unit,
            "mean": self.centre.mean,
            "row_ridge": self.centre.row_ridge,
            "ridge": self.ridge,
        }
        arrays = {
            "columns": self.centre.columns,
            "spreads": self.centre.spreads,
            "effects": self.effects,
        }
        if self.X is not None:
            arrays["X"] = self.X
        if self.factors is not None:
            arrays["A"], arrays["B"] = self.factors
        return header, arrays

    @classmethod
    def restored(cls, header: dict[str, Any], arrays: dict[str, Array]) -> MatrixModel:
        """The model that `state` described."""
        centre = Centre(
            header["mean"], arrays["columns"], header["row_ridge"], arrays["spreads"]
        )
        factors = (arrays["A"], arrays["B"]) if "A" in arrays else None
        return cls(
            arrays.get("X"), factors, header["unit"], centre, arrays["effects"],
            header["ridge"],
        )  # fmt: skip


def row_factors(observed: Observed, B: Array, ridge: float) -> Array:
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
        elif len(v) < d:  # the smaller of two systems with the same answer
            gram = C @ C.T
            gram.flat[:: len(v) + 1] += ridge
            A[i] = C.T @ np.linalg.solve(gram, v)
        else:
            gram = C.T @ C
            gram.flat[:: d + 1] += ridge
            A[i] = np.linalg.solve(gram, C.T @ v)
    return A

"""Means and deviations of entries of a log, from the entries that speak for them."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.engines import available_cores
from ncarl.panel.covariance import Covariance
from ncarl.panel.witnesses import Records, witnesses

#: Gaps whose witnesses are looked up together; memory does not grow with their number.
TOGETHER = 4000


@dataclass(frozen=True)
class Kriging:
    """A covariance ready to be asked.

    Attributes
    ----------
    covariance : Covariance
        Of the entries of a log.
    neighbours : int
        Other sensors that are asked for each sensor.
    lags : tuple of int
        Cycles away that are looked at.
    """

    covariance: Covariance
    neighbours: int
    lags: tuple[int, ...]

    @cached_property
    def near(self) -> Array:
        """Each sensor, and those most strongly correlated with it."""
        total = self.covariance.total
        spread = np.sqrt(np.diag(total))
        strength = np.abs(total / spread[:, None] / spread)
        np.fill_diagonal(strength, np.inf)
        order = np.argsort(-strength, axis=1, kind="stable")
        return order[:, : self.neighbours + 1]

    def ask(
        self, values: Array, there: Array, t: Array, j: Array
    ) -> tuple[Array, Array]:
        """Means and standard deviations of some entries, as they would be recorded.

        Parameters
        ----------
        values : array of shape (steps, sensors)
            The log without means and effects of the time of day.
        there : boolean array of this shape
            Entries that may be used.
        t, j : arrays of int
            The entries that are asked about.
        """
        records = Records.of(there)
        solve, weights = _solver(self.covariance.weights)
        fading = self.covariance.memories(len(values) - 1)
        values = np.where(there, values, 0.0)

        def part(first: int) -> tuple[Array, Array]:
            some = slice(first, first + TOGETHER)
            steps, sensors = witnesses(
                records, t[some], j[some], self.near, self.covariance.period, self.lags
            )
            found: tuple[Array, Array] = solve(
                values, weights, fading, t[some], j[some], steps, sensors
            )
            return found

        firsts = range(0, len(t), TOGETHER)
        with ThreadPoolExecutor(available_cores()) as pool:
            answers = list(pool.map(part, firsts))
        if not answers:
            return np.empty(0), np.empty(0)
        means, variances = (np.concatenate(a) for a in zip(*answers, strict=True))
        return means, np.sqrt(np.maximum(variances, 0.0))


def _solver(weights: Array) -> tuple[Any, Array]:
    """Compiled code where Numba is installed, NumPy elsewhere; weights as it likes."""
    if importlib.util.find_spec("numba") is None:
        from ncarl.panel import kriging_numpy

        return kriging_numpy.krige, weights
    from ncarl.panel import kriging_numba

    return kriging_numba.krige, np.ascontiguousarray(np.moveaxis(weights, 0, 2))

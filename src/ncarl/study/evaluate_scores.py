"""What an evaluation finds: errors, intervals and columns of the hidden entries."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ncarl import __version__
from ncarl.core.types import Array
from ncarl.metrics import coverage, interval_width, mae, relative_rmse, rmse
from ncarl.study.compare import Comparison
from ncarl.study.compare_lines import LEVEL
from ncarl.study.evaluate_parts import LEVELS, ColumnScore, LevelScore, Tried
from ncarl.study.jsonable import jsonable

__all__ = ["LEVELS", "ColumnScore", "Evaluation", "LevelScore", "Tried"]


@dataclass(frozen=True)
class Evaluation:
    """How well a method found entries that were hidden from it.

    Attributes
    ----------
    method : str
        Its name.
    tried : tuple of Tried
        What it said, draw by draw.
    spreads : array of shape (n,)
        Standard deviation of each column; 0 for one that does not vary.
    names : sequence of str or None
        Names of the columns.
    comparison : Comparison
        The method beside others on the same draws, and a recommendation.
    gaps : array of int, shape (n,), or None
        How many entries of each column are missing from the matrix itself.
    """

    method: str
    tried: tuple[Tried, ...]
    spreads: Array
    names: Sequence[str] | None
    comparison: Comparison
    gaps: Array | None = None

    @cached_property
    def all(self) -> Tried:
        """All draws together."""
        parts = self.tried
        ends = {
            level: (
                np.concatenate([part.ends[level][0] for part in parts]),
                np.concatenate([part.ends[level][1] for part in parts]),
            )
            for level in parts[0].ends
        }
        stds = [part.std for part in parts if part.std is not None]

        def joined(name: str) -> Array:
            return np.concatenate([getattr(part, name) for part in parts])

        return Tried(
            joined("rows"),
            joined("columns"),
            joined("truth"),
            joined("guess"),
            joined("mean"),
            np.concatenate(stds) if len(stds) == len(parts) else None,
            ends,
            sum(part.seconds for part in parts) / len(parts),
        )

    @property
    def error(self) -> tuple[float, float]:
        """Root mean square error, of the method and of the columns' means."""
        return self._both(lambda part, guess: rmse(part.truth, guess))

    @property
    def absolute_error(self) -> tuple[float, float]:
        """Mean absolute error, of the method and of the columns' means."""
        return self._both(lambda part, guess: mae(part.truth, guess))

    @property
    def relative_error(self) -> tuple[float, float]:
        """Relative error as in the paper, of the method and of the columns' means."""
        return self._both(lambda part, guess: relative_rmse(part.truth, guess))

    @property
    def error_in_spreads(self) -> tuple[float, float] | None:
        """Root mean square error in spreads of the columns; None if none varies."""
        if not any((self.spreads[part.columns] > 0.0).any() for part in self.tried):
            return None
        return self._both(self._in_spreads)

    @property
    def variation(self) -> float | None:
        """Standard deviation of `error_in_spreads` over the draws; None for one."""
        if len(self.tried) < 2 or self.error_in_spreads is None:
            return None
        return statistics.stdev(self._in_spreads(p, p.guess) for p in self.tried)

    @property
    def explained(self) -> float | None:
        """Part of the means' squared error, in spreads, that the method takes away."""
        both = self.error_in_spreads
        if both is None or both[1] == 0.0:
            return None
        return 1.0 - (both[0] / both[1]) ** 2

    @property
    def error_on_gaps(self) -> float | None:
        """`error_in_spreads` with every column counted as often as it has gaps.

        What is hidden does not lie in the columns that lack most as often as the gaps
        do. None where there are no gaps, or none of the columns that have some varies.
        """
        gaps = np.zeros(len(self.spreads)) if self.gaps is None else self.gaps
        scored = [
            (float(gaps[one.column]), one.error_in_spreads)
            for one in self.columns
            if one.error_in_spreads is not None
        ]
        total = sum(count for count, _ in scored)
        if total == 0.0:
            return None
        return float(np.sqrt(sum(count / total * error**2 for count, error in scored)))

    @cached_property
    def levels(self) -> tuple[LevelScore, ...]:
        """Intervals by what they promise; none for a method without error bars.

        Columns that do not vary are held by any interval: where others do, those count.
        """
        whole = self.all
        unit = self.spreads[whole.columns]
        varies = unit > 0.0
        some = varies if varies.any() else np.ones_like(varies)
        found = []
        for level, ends in whole.ends.items():
            low, high = (end[some] for end in ends)
            found.append(
                LevelScore(
                    level,
                    coverage(whole.truth[some], low, high),
                    interval_width(low, high),
                    float(np.mean((high - low) / unit[some])) if varies.any() else None,
                )
            )
        return tuple(found)

    @cached_property
    def columns(self) -> tuple[ColumnScore, ...]:
        """Columns that had entries hidden, those with the largest errors first."""
        hidden = self.all.columns
        order = np.argsort(hidden, kind="stable")
        found, firsts = np.unique(hidden[order], return_index=True)
        parts = np.split(order, firsts[1:])
        scores = [
            self._column(int(j), some) for j, some in zip(found, parts, strict=True)
        ]
        return tuple(sorted(scores, key=_worst))

    def _column(self, j: int, some: Array) -> ColumnScore:
        """What there is to say of a column, by its hidden entries."""
        whole, spread = self.all, float(self.spreads[j])
        truth = whole.truth[some]
        error, usual = rmse(truth, whole.guess[some]), rmse(truth, whole.mean[some])
        held = None
        if LEVEL in whole.ends:
            low, high = whole.ends[LEVEL]
            held = coverage(truth, low[some], high[some])
        return ColumnScore(
            j,
            self.names[j] if self.names is not None else str(j + 1),
            len(some),
            error,
            error / spread if spread > 0.0 else None,
            usual / spread if spread > 0.0 else None,
            1.0 - (error / usual) ** 2 if spread > 0.0 and usual > 0.0 else None,
            held,
        )

    def _in_spreads(self, part: Tried, guess: Array) -> float:
        """Error of guesses in spreads; columns without one do not count."""
        unit = self.spreads[part.columns]
        some = unit > 0.0
        if not some.any():
            return 0.0
        return rmse(part.truth[some] / unit[some], guess[some] / unit[some])

    def _both(self, score: Callable[[Tried, Array], float]) -> tuple[float, float]:
        """A score of the method and of the columns' means, averaged over the draws."""
        count = len(self.tried)
        # Parts are added up: a sum of the largest floats has no room.
        own = sum(score(part, part.guess) / count for part in self.tried)
        usual = sum(score(part, part.mean) / count for part in self.tried)
        return own, usual

    def record(self) -> dict[str, Any]:
        """The evaluation as JSON can hold it."""
        figures = {
            name: dict(zip(("method", "column_means"), both, strict=True))
            for name, both in (
                ("rmse", self.error),
                ("mae", self.absolute_error),
                ("relative_error", self.relative_error),
                ("rmse_in_spreads", self.error_in_spreads or (None, None)),
            )
        }
        return {
            "ncarl": __version__,
            "method": self.method,
            "hidden": [len(part.truth) for part in self.tried],
            "errors": jsonable(figures),
            "variation_over_draws": self.variation,
            "explained": self.explained,
            "rmse_in_spreads_by_gaps": self.error_on_gaps,
            "intervals": [jsonable(asdict(one)) for one in self.levels],
            "seconds": self.all.seconds,
            "columns": [jsonable(asdict(one)) for one in self.columns],
            "comparison": self.comparison.record(),
        }


def _worst(score: ColumnScore) -> tuple[float, int]:
    """What columns are sorted by: errors in spreads, columns without one last."""
    error = score.error_in_spreads
    return (0.0 if error is None else -error), score.column

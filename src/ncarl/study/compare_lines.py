"""What a comparison finds: single fits, and a line of the table for each method."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ncarl.study.cells import DONE, FAILED, OVER
from ncarl.study.jsonable import jsonable

#: Part of the hidden entries that intervals are to hold.
LEVEL = 0.9


@dataclass(frozen=True)
class Fit:
    """One method on one draw of hidden entries.

    Attributes
    ----------
    method : str
        Its name.
    draw : int
        Which draw, from 0.
    status : str
        "done", "over budget" (figures, if any, are those of the last step) or
        "failed".
    error : float or None
        Root mean square error on the hidden entries, in the unit of the comparison.
    relative_error : float or None
        ``||truth - guess|| / ||truth||`` over them, the paper's metric.
    coverage : float or None
        Part of the hidden entries in their 90% intervals, where there are some.
    seconds : float or None
        Of the fit alone.
    memory_gb : float or None
        The most memory that the process of the fit took, Python included.
    settled : bool or None
        Whether the steps ended by themselves.
    engine : str
        What did the work.
    message : str
        What went wrong.
    """

    method: str
    draw: int
    status: str = DONE
    error: float | None = None
    relative_error: float | None = None
    coverage: float | None = None
    seconds: float | None = None
    memory_gb: float | None = None
    settled: bool | None = None
    engine: str = ""
    message: str = ""

    def record(self) -> dict[str, Any]:
        """The fit as JSON can hold it."""
        record: dict[str, Any] = jsonable(asdict(self))
        return record


@dataclass(frozen=True)
class Line:
    """A method, over all draws.

    Attributes
    ----------
    method : str
        Its name.
    fits : tuple of Fit
        What came of it, in the order of the draws. A method that fails or goes over
        its budget is not tried on further draws.

    Examples
    --------
    >>> line = Line("bias", (Fit("bias", 0, error=0.5), Fit("bias", 1, error=0.7)))
    >>> round(line.error, 6), round(line.spread, 6)
    (0.6, 0.141421)
    """

    method: str
    fits: tuple[Fit, ...]

    @property
    def status(self) -> str:
        """The worst that came of the fits."""
        found = {fit.status for fit in self.fits}
        return next((word for word in (FAILED, OVER) if word in found), DONE)

    @property
    def errors(self) -> dict[int, float]:
        """Errors by draw."""
        return {fit.draw: fit.error for fit in self.fits if fit.error is not None}

    @property
    def error(self) -> float | None:
        """Mean error."""
        return self._mean("error")

    @property
    def spread(self) -> float | None:
        """Standard deviation of the errors; None for a single one."""
        errors = [*self.errors.values()]
        return statistics.stdev(errors) if len(errors) > 1 else None

    @property
    def relative_error(self) -> float | None:
        """Mean relative error."""
        return self._mean("relative_error")

    @property
    def coverage(self) -> float | None:
        """Mean part of the hidden entries in their intervals."""
        return self._mean("coverage")

    @property
    def seconds(self) -> float | None:
        """Mean seconds."""
        return self._mean("seconds")

    @property
    def memory_gb(self) -> float | None:
        """The most memory of any fit."""
        found = [fit.memory_gb for fit in self.fits if fit.memory_gb is not None]
        return max(found, default=None)

    @property
    def settled(self) -> float | None:
        """Share of the fits that settled, of those that can tell."""
        return self._mean("settled")

    @property
    def message(self) -> str:
        """What went wrong first."""
        return next((fit.message for fit in self.fits if fit.message), "")

    def _mean(self, name: str) -> float | None:
        """Mean of a figure over the fits that have it."""
        found = [getattr(fit, name) for fit in self.fits]
        known = [float(value) for value in found if value is not None]
        # Parts are added up: a sum of the largest floats has no room.
        return sum(value / len(known) for value in known) if known else None

    def record(self) -> dict[str, Any]:
        """The line as JSON can hold it."""
        figures = {
            "error": self.error,
            "spread": self.spread,
            "relative_error": self.relative_error,
            "coverage": self.coverage,
            "seconds": self.seconds,
            "memory_gb": self.memory_gb,
            "settled": self.settled,
        }
        return {
            "method": self.method,
            "status": self.status,
            **jsonable(figures),
            "message": self.message,
            "fits": [fit.record() for fit in self.fits],
        }


def lines_of(fits: Iterable[Fit]) -> tuple[Line, ...]:
    """The lines of a table, the least error first and methods without one last."""
    found: dict[str, list[Fit]] = {}
    for fit in sorted(fits, key=lambda fit: fit.draw):
        found.setdefault(fit.method, []).append(fit)
    lines = [Line(method, tuple(some)) for method, some in found.items()]
    return tuple(sorted(lines, key=_place))


def _place(line: Line) -> tuple[float, str]:
    """What lines are sorted by."""
    return (math.inf if line.error is None else line.error), line.method


def fit_of(record: Mapping[str, Any]) -> Fit:
    """The fit that a record describes."""
    return Fit(**record)

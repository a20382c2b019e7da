"""One fit of a study, what came of it, and the name by which it is found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ncarl.study.jsonable import jsonable

#: What can come of a cell.
DONE, OVER, FAILED, ABSENT = "done", "over budget", "failed", "no data"
#: What a cell is for: to choose parameters, or to be shown.
SEARCH, FINAL = "search", "final"


@dataclass(frozen=True)
class Problem:
    """Data, and what is hidden of it.

    Attributes
    ----------
    data : str
        Kind of data: a name that `ncarl.study.problems` knows.
    options : mapping
        What that kind of data needs to be made or found.
    missing : float
        Share of the known entries that is hidden.
    mask : str
        How hidden entries lie: "random" or "block".
    """

    data: str
    options: Mapping[str, Any] = field(default_factory=dict)
    missing: float = 0.5
    mask: str = "random"

    def record(self) -> dict[str, Any]:
        """The problem as JSON can hold it."""
        return {**asdict(self), "options": dict(self.options)}


@dataclass(frozen=True)
class Cell:
    """One fit.

    Attributes
    ----------
    problem : Problem
        What is completed.
    method : str
        The contender, by its name in the study.
    estimator : str
        A name that `ncarl.make` knows, or "mean".
    params : mapping
        Parameters of the estimator.
    seed : int
        Seed of the data and of what is hidden.
    role : {"search", "final"}
        A search hides a tenth of the observed entries too, to choose by.
    keep : {"", "curve", "picture"}
        What is kept beside the figures: the objective of every step, or the
        completed matrix.
    """

    problem: Problem
    method: str
    estimator: str
    params: Mapping[str, Any]
    seed: int = 0
    role: str = FINAL
    keep: str = ""

    def record(self) -> dict[str, Any]:
        """The cell as JSON can hold it."""
        return {
            "problem": self.problem.record(),
            "method": self.method,
            "estimator": self.estimator,
            "params": dict(self.params),
            "seed": self.seed,
            "role": self.role,
            "keep": self.keep,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Cell:
        """The cell that a record describes."""
        return cls(**{**record, "problem": Problem(**record["problem"])})

    @cached_property
    def key(self) -> str:
        """A name that is the same wherever the same fit is asked for.

        The contender's name is left out: tables that call one fit by two names share
        it.

        Examples
        --------
        >>> problem = Problem("low-rank", {"m": 20, "n": 10, "rank": 2}, 0.5)
        >>> one = Cell(problem, "NCARL", "ncarl", {"alpha": 1, "gamma": None})
        >>> one.key == Cell(problem, "ours", "ncarl", {"gamma": None, "alpha": 1.0}).key
        True
        """
        content = self.record()
        del content["method"]
        text = json.dumps(_plain(content), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Numbers that are equal look equal: 1 and 1.0, tuples and lists."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


@dataclass(frozen=True)
class Result:
    """What came of a cell.

    Attributes
    ----------
    cell : Cell
        The fit.
    status : str
        "done", "over budget" (figures, if any, are those of the last step), "failed"
        or "no data".
    version : str
        Of the results of the code that ran; see `ncarl.study.store`.
    error : float or None
        Relative error on the hidden entries, the paper's metric.
    validation : float or None
        The same on the observed entries that a search holds out.
    scores : mapping of str to float
        Further measures of the hidden entries: "rmse", and "psnr" of pictures.
    seconds : float or None
        Of the fit alone.
    steps, converged : int or None, bool or None
        As the estimator tells.
    facts : mapping
        Further figures, such as ranks and what the estimator chose itself.
    curve : sequence of float or None
        Objective of every step, if it was to be kept; None where it is no number.
    machine : str
        Processor or GPU, and how many fits ran side by side.
    message : str
        What went wrong.
    """

    cell: Cell
    status: str
    version: str = ""
    error: float | None = None
    validation: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    steps: int | None = None
    converged: bool | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    curve: tuple[float | None, ...] = ()
    machine: str = ""
    message: str = ""

    def record(self) -> dict[str, Any]:
        """The result as JSON can hold it."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        record: dict[str, Any] = jsonable({**content, "cell": self.cell.record()})
        return {**record, "key": self.cell.key}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Result:
        """The result that a record describes.

        Fields that this version does not know are passed over: an older or a later one
        may have written them.
        """
        known = cls.__dataclass_fields__
        content = {name: item for name, item in record.items() if name in known}
        content["cell"] = Cell.from_record(record["cell"])
        content["curve"] = tuple(record.get("curve", ()))
        return cls(**content)

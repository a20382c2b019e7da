"""What a study consists of: rows, columns, and the table or figure they make."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncarl.study.cells import Problem


@dataclass(frozen=True)
class Contender:
    """A row of a table.

    Attributes
    ----------
    name, label : str
        Its name in TOML files, and how tables call it.
    printed : str
        Its name in the paper; "" if it is not there.
    estimator : str
        A name that `ncarl.make` knows, or "mean".
    params : mapping
        Parameters that are given.
    grid : mapping of str to sequence
        Parameters that are chosen, and their values.
    """

    name: str
    label: str
    estimator: str
    printed: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid, with the given parameters.

        Examples
        --------
        >>> Contender("a", "A", "ncarl", grid={"alpha": [1, 2]}).points()
        [{'alpha': 1}, {'alpha': 2}]
        """
        return [
            {**self.params, **dict(zip(self.grid, values, strict=True))}
            for values in itertools.product(*self.grid.values())
        ]


@dataclass(frozen=True)
class Setting:
    """A column of a table: a problem, and who competes on it.

    Attributes
    ----------
    label, group : str
        The column, and the columns it belongs to.
    problem : Problem
        What is completed.
    printed : str
        Name of the set in the paper.
    contenders : tuple of Contender
        Rows, with what this setting changes of them.
    heavy : bool
        Whether a GPU is worth it.
    seeds : int
        How many draws.
    further : bool
        Whether it is not one of the paper's columns.
    """

    label: str
    group: str
    problem: Problem
    printed: str
    contenders: tuple[Contender, ...]
    heavy: bool = False
    seeds: int = 5
    further: bool = False


@dataclass(frozen=True)
class Plan:
    """A table or figure: its words, and its settings.

    Attributes
    ----------
    name : str
        "table1" to "fig8", or the name of the file.
    kind : str
        How it is shown: one of `KINDS`.
    title, text : str
        Its heading, and what to know to read it.
    measure : {"error", "seconds"}
        What its table shows.
    printed : str
        The table of the paper whose figures stand beside ours.
    keep : str
        What every fit keeps; see `Cell`.
    settings : tuple of Setting
        Its columns.
    notes : tuple of str
        Further remarks, shown below.
    options : mapping
        What figures with pictures need: "photos" and "step".
    own : bool
        Whether it is one of the package's, on which there are verdicts.
    whole : bool
        Whether all of its rows are to be run.
    """

    name: str
    kind: str
    title: str
    text: str = ""
    measure: str = "error"
    printed: str = ""
    keep: str = ""
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    own: bool = False
    whole: bool = True

"""A grid of settings, its table of scores, and the walk along it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import CheckpointMismatchError
from ncarl.storage import read_archive, write_archive

KIND = "search"


@dataclass(frozen=True)
class Point:
    """One point of the grid."""

    center: str | None
    gamma: float | None
    n_neighbors: int
    alpha: float

    def same_path(self, other: Point) -> bool:
        """Whether the two differ in alpha only."""
        return (self.center, self.gamma, self.n_neighbors) == (
            other.center,
            other.gamma,
            other.n_neighbors,
        )


@dataclass
class Table:
    """Scores of the points tried so far, and where the last fit ended."""

    errors: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    grams: Sequence[Array] | None = None

    def results(self, points: list[Point]) -> dict[str, Any]:
        """The table as columns, in the manner of scikit-learn's searches."""
        errors = np.asarray(self.errors)
        columns: dict[str, Any] = {"params": [asdict(point) for point in points]}
        for name in ("alpha", "n_neighbors", "gamma", "center"):
            values = [getattr(point, name) for point in points]
            columns[f"param_{name}"] = np.asarray(values, dtype=object)
        order = np.argsort(errors, kind="stable")
        ranks = np.empty(len(points), dtype=np.int64)
        ranks[order] = np.arange(1, len(points) + 1)
        return columns | {
            "error": errors,
            "mean_test_score": -errors,
            "rank_test_score": ranks,
            "n_iter": np.asarray(self.steps),
            "seconds": np.asarray(self.seconds),
        }


def grid(
    centers: Iterable[str | None],
    gammas: Iterable[float | None],
    n_neighbors: Iterable[int],
    alphas: Iterable[float],
) -> list[Point]:
    """Points in the order they are tried: alpha falls along each path.

    A strong graph gives a smooth matrix, and going from smooth to rough needs fewer
    steps than the way back.
    """
    falling = sorted(set(alphas), reverse=True)
    paths = itertools.product(centers, gammas, n_neighbors)
    return [
        Point(center, gamma, k, alpha)
        for (center, gamma, k) in paths
        for alpha in falling
    ]


#: Fits a point from Gram matrices (or from nothing), one for each split; gives error,
#: steps, Gram matrices.
Trial = Callable[[Point, Sequence[Array] | None], tuple[float, int, Sequence[Array]]]


def walk(
    points: list[Point],
    trial: Trial,
    *,
    tried: Callable[[Point, float], None],
    kept: SearchFile | None,
) -> Table:
    """Try every point, each from where the one before on its path ended."""
    table = kept.read() if kept else Table()
    for k in range(len(table.errors), len(points)):
        point = points[k]
        warm = k > 0 and point.same_path(points[k - 1])
        start = time.perf_counter()
        error, steps, grams = trial(point, table.grams if warm else None)
        table.errors.append(error)
        table.steps.append(steps)
        table.seconds.append(time.perf_counter() - start)
        table.grams = grams
        if kept:
            kept.write(table)
        tried(point, error)
    return table


@dataclass(frozen=True)
class SearchFile:
    """Where a search keeps its table, whose table it is, how to get its arrays."""

    path: Path
    owner: dict[str, Any]
    fetch: Callable[[Array], Array]

    def read(self) -> Table:
        """The table kept in the file, or an empty one."""
        if not self.path.exists():
            return Table()
        header, arrays = read_archive(self.path, KIND)
        if header["owner"] != self.owner:
            names = [k for k, v in self.owner.items() if header["owner"].get(k) != v]
            raise CheckpointMismatchError(
                f"checkpoint {str(self.path)!r} belongs to another search; it differs "
                f"in {', '.join(names)}. Remove the file or name another one."
            )
        return Table(**header["table"], grams=arrays["gram"])

    def write(self, table: Table) -> None:
        """Put the table in place of the one before."""
        columns = {
            "errors": table.errors,
            "steps": table.steps,
            "seconds": table.seconds,
        }
        header = {"kind": KIND, "owner": self.owner, "table": columns}
        grams = np.stack([self.fetch(gram) for gram in table.grams or ()])
        write_archive(self.path, header, {"gram": grams})

"""A grid of settings, its table of scores, and the walk along it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ncarl.checkpoint import Checkpoint, Keeper
from ncarl.core.types import Array

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

    def with_point(
        self, error: float, steps: int, seconds: float, grams: Sequence[Array]
    ) -> Table:
        """The table with one point more; all of it or none, if interrupted."""
        return Table(
            [*self.errors, error],
            [*self.steps, steps],
            [*self.seconds, seconds],
            grams,
        )

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
    try:
        for k in range(len(table.errors), len(points)):
            point = points[k]
            warm = k > 0 and point.same_path(points[k - 1])
            start = time.perf_counter()
            error, steps, grams = trial(point, table.grams if warm else None)
            table = table.with_point(error, steps, time.perf_counter() - start, grams)
            if kept:
                kept.keep(table)
            tried(point, error)
    except KeyboardInterrupt:
        if kept:
            kept.keep(table, last=True)
        raise
    if kept:
        kept.keep(table, last=True)
    return table


class SearchFile(Keeper):
    """Where a search keeps its table, whose table it is, how to get its arrays.

    Parameters
    ----------
    place : Checkpoint
        The file, and how often it is written.
    owner : mapping
        Whose table it is; see `Keeper`.
    fetch : callable
        Brings an array into the memory of this process.
    """

    def __init__(
        self,
        place: Checkpoint,
        owner: Mapping[str, Any],
        fetch: Callable[[Array], Array],
    ) -> None:
        super().__init__(place, KIND, owner)
        self.fetch = fetch

    def read(self) -> Table:
        """The table kept in the file, or an empty one."""
        kept = self.get()
        if kept is None:
            return Table()
        header, arrays = kept
        with self.sound():
            columns = header["table"]
            # Files of earlier versions have all Gram matrices in one array.
            names = [f"gram/{k}" for k in range(len(arrays))]
            grams = arrays["gram"] if "gram" in arrays else [arrays[n] for n in names]
            table = Table(**columns, grams=grams)
        self.at = _where(table)
        return table

    def keep(self, table: Table, *, last: bool = False) -> None:
        """Write the table if it is time to, or if the search ends here."""
        if table.errors and self.due(_where(table), last=last):
            self.write(table)

    def write(self, table: Table) -> None:
        """Put the table in place of the one before."""
        columns = {
            "errors": table.errors,
            "steps": table.steps,
            "seconds": table.seconds,
        }
        grams = enumerate(table.grams or ())
        arrays = {f"gram/{k}": self.fetch(gram) for k, gram in grams}
        self.put(_where(table), {"table": columns}, arrays)


def _where(table: Table) -> str:
    """Where a search stands."""
    return f"point {len(table.errors)} of the search"

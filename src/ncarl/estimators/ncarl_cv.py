"""`NCARLCV`: a grid search over the parameters of `NCARL` on held-out entries."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self, cast

import numpy as np

from ncarl.centering import fit_centering
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.estimators.ncarl import KernelEstimator
from ncarl.estimators.persistence import to_builtin
from ncarl.estimators.validation import (
    CENTERS,
    check_graph_size,
    check_run_options,
    make_settings,
    open_checkpoint,
)
from ncarl.fitting.checkpoint import CheckpointContents, CheckpointFile
from ncarl.fitting.ncarl import KernelProblem, Settings
from ncarl.holdout import random_splits
from ncarl.metrics import relative_rmse
from ncarl.observations import Observations
from ncarl.progress import progress_bar
from ncarl.validation import (
    as_list,
    check_choice,
    check_fraction,
    check_integer,
    check_number,
)


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid."""

    center: str | None
    gamma: float | None
    n_neighbors: int
    alpha: float


@dataclass
class GridResults:
    """Scores of the points fitted so far."""

    errors: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    grams: Sequence[Array] | None = None  # of the last fit, one for each split

    @property
    def position(self) -> str:
        """The position of the search, for messages."""
        return f"point {len(self.errors)} of the search"

    def cv_results(self, points: list[GridPoint]) -> dict[str, Any]:
        """The results as columns, as ``cv_results_`` of scikit-learn's searches."""
        errors = np.asarray(self.errors)
        columns: dict[str, Any] = {"params": [asdict(point) for point in points]}
        for name in ("alpha", "n_neighbors", "gamma", "center"):
            values = [getattr(point, name) for point in points]
            columns[f"param_{name}"] = np.asarray(values, dtype=object)
        order = np.argsort(errors, kind="stable")
        return columns | {
            "error": errors,
            "mean_test_score": -errors,
            "rank_test_score": np.argsort(order) + 1,
            "n_iter": np.asarray(self.steps),
            "seconds": np.asarray(self.seconds),
        }


def fit_grid(
    points: list[GridPoint],
    score_point: HoldoutScorer,
    *,
    on_point: Callable[[GridPoint, float], None],
    checkpoint: CheckpointFile | None,
    fetch: Callable[[Array], Array],
) -> GridResults:
    """Fit every point, warm-started from the one before it on its path.

    ``fetch`` copies an array of the device to a NumPy array, for the checkpoint.
    """
    results = GridResults()
    if checkpoint is not None and (kept := checkpoint.load()) is not None:
        header, arrays = kept
        with checkpoint.corrupt_on_error():
            dtype, count = score_point.estimator.dtype, len(score_point.splits)
            kept_grams = [arrays[f"gram/{k}"].astype(dtype) for k in range(count)]
            results = GridResults(**header["results"], grams=kept_grams)
            table = np.array([results.errors, results.steps, results.seconds], float)
            if not (0 < table.shape[1] <= len(points) and np.isfinite(table).all()):
                raise ValueError("its table is not one of this grid")
        checkpoint.position = results.position

    def make_contents() -> CheckpointContents:
        columns = {k: getattr(results, k) for k in ("errors", "steps", "seconds")}
        arrays = {f"gram/{k}": fetch(g) for k, g in enumerate(results.grams or ())}
        return {"results": columns}, arrays

    def save(*, last: bool = False) -> None:
        if checkpoint is not None and results.errors:
            checkpoint.maybe_save(results.position, make_contents, last=last)

    try:
        for k in range(len(results.errors), len(points)):
            point = points[k]
            # Points that differ in alpha alone are on one path.
            warm = k > 0 and replace(points[k - 1], alpha=point.alpha) == point
            start = time.perf_counter()
            error, steps, grams = score_point(point, results.grams if warm else None)
            seconds = time.perf_counter() - start
            # A copy, as an interruption may come between its columns.
            results = GridResults(
                [*results.errors, error],
                [*results.steps, steps],
                [*results.seconds, seconds],
                grams,
            )
            save()
            on_point(point, error)
    except KeyboardInterrupt:
        save(last=True)
        raise
    save(last=True)
    return results


@dataclass
class HoldoutScorer:
    """Fits points of a grid and scores them on the held-out entries of all splits."""

    estimator: NCARLCV
    splits: list[tuple[Observations, Observations]]  # kept and held-out entries
    engine: Engine
    problems: dict[str | None, list[KernelProblem]] = field(default_factory=dict)

    def __call__(
        self, point: GridPoint, grams: Sequence[Array] | None
    ) -> tuple[float, int, list[Array]]:
        """Error, steps (the most of all splits) and Gram matrices at a point.

        The fits are warm-started from the Gram matrices of the splits, if given.
        """
        if point.center not in self.problems:
            self.problems = {
                point.center: [
                    self.estimator._make_problem(
                        InMemoryDataset(kept), point.center, self.engine
                    )
                    for kept, _ in self.splits
                ]
            }
        search = self.estimator
        settings = replace(
            search._settings(point),
            max_iter=int(search.search_iter),
            tol=float(search.search_tol),
        )
        truths, guesses, steps, ends = [], [], 0, []
        for k, problem in enumerate(self.problems[point.center]):
            result = problem.run(settings, gram=None if grams is None else grams[k])
            if result.interrupted:
                raise KeyboardInterrupt
            kept, hidden = self.splits[k]
            i, j = hidden.rows, hidden.indices.astype(np.int64)
            model = problem.model(settings, result, to_host=False)
            guess, _ = model.predict(kept, i, j, self.engine)
            truths.append(self._to_score_units(kept, j, hidden.values))
            guesses.append(self._to_score_units(kept, j, guess))
            steps = max(steps, result.last.step)
            ends.append(result.last.state.gram)
        error = relative_rmse(np.concatenate(truths), np.concatenate(guesses))
        return error, steps, ends

    def _to_score_units(
        self, kept: Observations, columns: Array, values: Array
    ) -> Array:
        """Values in the units of the score: standardized if columns are scaled."""
        if self.estimator.scale != "columns":
            return values
        centering = fit_centering(InMemoryDataset(kept), "columns", scaled=True)
        scales = centering.column_scales
        safe = np.where(scales > 0.0, scales, 1.0)
        means = centering.mean + centering.column_effects
        return (values - means[columns]) / safe[columns]


@dataclass(eq=False, repr=False)
class NCARLCV(KernelEstimator):
    """NCARL with alpha, n_neighbors, gamma and center chosen on held-out entries.

    A fraction of the observed entries is held out (entries, not rows; no row or column
    loses its last one), every point of the grid is fitted to the rest, and the point
    with the smallest error on the held-out entries is fitted to all of them. Along
    alpha each fit is warm-started from the one before.

    Parameters
    ----------
    alphas : sequence of float
        Weights of the graph to try; 0 is the rank surrogate alone.
    n_neighbors : int or sequence of int
        Neighbors to try.
    gammas : sequence of float or None
        Noise levels to try; None is the exact model.
    centers : "auto" or sequence of {None, "mean", "columns", "two-way"}
        Centerings to try; "auto" tries None and "two-way", and "columns" in place of
        None where columns are scaled.
    validation : float, default=0.1
        Fraction of the observed entries that is held out. Matrices of fewer than 20,000
        entries are split several times.
    search_iter, search_tol : int, default=15, and float, default=1e-3
        Maximum number of steps, and tolerance, at a point of the grid.
    random_state : int, default=0
        Seed of the split.
    graph, weights, delta, orientation, max_iter, tol, engine, dtype
        As in `NCARL`.
    progress, callback, checkpoint, scale
        As in `NCARL`; ``max_iter``, ``tol`` and ``callback`` belong to the final fit.
        The search keeps its state in the checkpoint file too.

    Attributes
    ----------
    alpha_, gamma_, center_ : float, float or None, str or None
        The choice; ``n_neighbors_`` and ``best_params_`` belong to it.
    best_error_ : float
        Relative error on the held-out entries there; with scaled columns 1 is the
        error of the column means.
    cv_results_ : dict
        The whole table: ``params``, ``param_alpha``, ``param_n_neighbors``,
        ``param_gamma``, ``param_center``, ``error``, ``mean_test_score`` (minus the
        error), ``rank_test_score``, ``n_iter`` and ``seconds``.

    See Also
    --------
    NCARL : One fit with given parameters; describes the other attributes.

    Examples
    --------
    >>> from ncarl import NCARLCV
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(60, 30, rank=2, missing=0.4)
    >>> search = NCARLCV(alphas=(0, 100), gammas=(None,), centers=(None,)).fit(data.X)
    >>> search.best_params_["alpha"]
    0.0
    """

    alphas: Sequence[float] = (0.0, 10.0, 100.0, 1000.0)
    n_neighbors: int | Sequence[int] = (10,)
    gammas: Sequence[float | None] = (None, 0.01, 0.1)
    centers: str | Sequence[str | None] = "auto"
    validation: float = 0.1
    search_iter: int = 15
    search_tol: float = 1e-3
    random_state: int = 0
    graph: Any = "adaptive"
    weights: str = "floor"
    delta: float = 1e-6
    orientation: str = "auto"
    max_iter: int = 50
    tol: float = 1e-4
    dtype: str = "float64"
    scale: str | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose parameters on held-out entries of ``X``, then fit all of it.

        Parameters
        ----------
        %(X y)s
        """
        points = self._check_all_params()
        engine = pick_engine(self.engine)
        data = self._load_in_memory(X)
        dataset = cast(InMemoryDataset, data.dataset)
        check_graph_size(self._settings(points[0]).graph, dataset.observed.shape[1])
        best = self._select_point(points, dataset, engine)
        settings = self._settings(best)
        problem = self._make_problem(dataset, best.center, engine)
        checkpoint = self._open_checkpoint(dataset, "checkpoint", part="fit")
        with self._observers(settings.max_iter, "fit") as observers:
            result = problem.run(settings, checkpoint=checkpoint, observers=observers)
        return self._finalize_fit(data, problem, settings, result)

    def _select_point(
        self, points: list[GridPoint], dataset: InMemoryDataset, engine: Engine
    ) -> GridPoint:
        splits = random_splits(
            dataset.observed, float(self.validation), int(self.random_state)
        )
        if not splits:
            warnings.warn(
                "X has too few observed entries to hold some of them out; the first "
                "point of the grid is taken without a search",
                UserWarning,
                stacklevel=4,
            )
            self._set_search_attributes(
                points[:1], GridResults([float("nan")], [0], [0.0])
            )
            return points[0]
        scorer = HoldoutScorer(self, splits, engine)
        with progress_bar(self.progress, len(points), "search") as advance:
            table = fit_grid(
                points,
                scorer,
                on_point=lambda point, error: advance(f"error {error:.4f}"),
                checkpoint=self._open_checkpoint(dataset, "search"),
                fetch=engine.compute_device.to_numpy,
            )
        return self._set_search_attributes(points, table)

    def _set_search_attributes(
        self, points: list[GridPoint], results: GridResults
    ) -> GridPoint:
        self.cv_results_ = results.cv_results(points)
        position = int(np.argmin(results.errors))
        best = points[position]
        self.best_index_ = position
        self.best_error_ = results.errors[position]
        self.best_params_ = asdict(best)
        self.alpha_, self.gamma_, self.center_ = best.alpha, best.gamma, best.center
        return best

    def _check_all_params(self) -> list[GridPoint]:
        check_fraction("validation", self.validation, strict=True)
        check_integer("search_iter", self.search_iter, low=1)
        check_number("search_tol", self.search_tol, low=0.0)
        check_integer("random_state", self.random_state, low=0)
        check_run_options(self)
        alphas = {
            check_number("alphas", a, low=0.0) for a in self._grid_values("alphas")
        }
        # A strong graph gives a smooth matrix, and warm starts from smooth to rough
        # need fewer steps than the other way round.
        grid = itertools.product(
            self._center_grid(),
            self._grid_values("gammas"),
            self._grid_values("n_neighbors"),
            sorted(alphas, reverse=True),
        )
        points = [GridPoint(*values) for values in grid]
        for point in points:
            check_choice("centers", point.center, CENTERS)
            self._settings(point)
        return points

    def _grid_values(self, name: str) -> list[Any]:
        return [to_builtin(value) for value in as_list(name, getattr(self, name))]

    def _center_grid(self) -> list[Any]:
        if isinstance(self.centers, str) and self.centers == "auto":
            return ["columns" if self.scale == "columns" else None, "two-way"]
        return self._grid_values("centers")

    def _settings(self, point: GridPoint) -> Settings:
        params = asdict(point)
        del params["center"]
        return make_settings(self, **params)

    def _open_checkpoint(
        self, dataset: InMemoryDataset, kind: str, part: str | None = None
    ) -> CheckpointFile | None:
        return open_checkpoint(
            self,
            dataset,
            kind,
            part,
            alphas=self._grid_values("alphas"),
            gammas=self._grid_values("gammas"),
            n_neighbors=self._grid_values("n_neighbors"),
            centers=self._center_grid(),
            orientation="rows" if self.transposed_ else "columns",
        )

"""NCARLCV: alpha, neighbours, noise and centring chosen on held-out entries."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np

from ncarl.checkpoint import Checkpoint
from ncarl.engines import Engine, pick_engine
from ncarl.estimators.base import CENTERS
from ncarl.estimators.grid import Point, SearchFile, Table, grid, walk
from ncarl.estimators.kernel_base import KernelEstimator
from ncarl.estimators.parameters import (
    check_choice,
    check_graph_size,
    check_number,
    check_run_options,
    check_whole,
    checked_settings,
    listed,
    run_owner,
)
from ncarl.estimators.trials import Trials, splits
from ncarl.estimators.watching import watchers
from ncarl.fitting import Settings, Workspace, checkpoint_for
from ncarl.loop import StepInfo
from ncarl.observed import Observed
from ncarl.progress import progress_bar
from ncarl.saving import plain
from ncarl.surveys import InMemory


class NCARLCV(KernelEstimator):
    """NCARL with alpha, n_neighbors, gamma and center chosen on held-out entries.

    A share of the observed entries is hidden (entries, not rows; no row or column loses
    its last one), every point of the grid is fitted to the rest, and the point with the
    smallest error on the hidden entries is fitted to all of them. Along alpha each fit
    starts where the one before ended.

    Parameters
    ----------
    alphas : sequence of float
        Weights of the graph to try; 0 is the rank surrogate alone.
    n_neighbors : int or sequence of int
        Neighbours to try.
    gammas : sequence of float or None
        Noise levels to try; None is the exact model.
    centers : "auto" or sequence of {None, "mean", "columns", "two-way"}
        Centrings to try; "auto" tries None and "two-way", and "columns" in place of
        None where columns are scaled.
    validation : float, default=0.1
        Share of the observed entries that is hidden. Small matrices are split several
        times, until some fifty hidden entries have been scored.
    search_iter : int, default=15
        Most steps at a point of the grid.
    search_tol : float, default=1e-3
        Tolerance at a point of the grid.
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
        Relative error on the hidden entries there; with scaled columns 1 is the error
        of the column means.
    cv_results_ : dict
        The whole table: ``params``, ``param_alpha``, ``param_n_neighbors``,
        ``param_gamma``, ``param_center``, ``error``, ``mean_test_score`` (minus the
        error), ``rank_test_score``, ``n_iter`` and ``seconds``.

    See Also
    --------
    NCARL : One fit with given parameters; describes the other attributes.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import NCARLCV
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
    >>> search = NCARLCV(alphas=(0, 100), gammas=(None,), centers=(None,)).fit(X)
    >>> search.best_params_["alpha"]
    0.0
    """

    def __init__(
        self,
        alphas: Sequence[float] = (0.0, 10.0, 100.0, 1000.0),
        n_neighbors: int | Sequence[int] = (10,),
        gammas: Sequence[float | None] = (None, 0.01, 0.1),
        centers: str | Sequence[str | None] = "auto",
        validation: float = 0.1,
        search_iter: int = 15,
        search_tol: float = 1e-3,
        random_state: int = 0,
        graph: Any = "adaptive",
        weights: str = "floor",
        delta: float = 1e-6,
        orientation: str = "auto",
        max_iter: int = 50,
        tol: float = 1e-4,
        engine: str | Engine = "auto",
        dtype: str = "float64",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        scale: str | None = None,
    ) -> None:
        self.alphas = alphas
        self.n_neighbors = n_neighbors
        self.gammas = gammas
        self.centers = centers
        self.validation = validation
        self.search_iter = search_iter
        self.search_tol = search_tol
        self.random_state = random_state
        self.graph = graph
        self.weights = weights
        self.delta = delta
        self.orientation = orientation
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.dtype = dtype
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint
        self.scale = scale

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose on held-out entries of ``X``, then learn the kernel of all of it.

        Parameters
        ----------
        X : array, masked array, frame or sparse matrix of shape (m, n)
            Matrix with gaps: NaN, masked, null, or not stored.
        y : ignored
            For scikit-learn's interface.
        """
        points = self._points()
        engine = pick_engine(self.engine)
        begun = self._begin_in_memory(X)
        turned = begun.turned
        graph = self._settings(points[0]).graph
        if graph is not None and not isinstance(graph, str):
            check_graph_size(graph, turned.shape[1])
        best = self._choose(points, turned, engine)
        settings = self._settings(best)
        workspace = self._workspace(turned, best.center, engine)
        checkpoint = None
        if self.checkpoint is not None:
            part = Checkpoint.of(self.checkpoint).beside("fit")
            checkpoint = checkpoint_for(part, begun.entries, self._owner([best]))
        with watchers(self.progress, self.callback, settings.max_iter, "fit") as seen:
            result = workspace.run(settings, checkpoint=checkpoint, observers=seen)
        return self._finish(begun, workspace, settings, result)

    def _choose(self, points: list[Point], turned: Observed, engine: Engine) -> Point:
        """Try all points on held-out entries and set the attributes of the choice."""
        rng = np.random.default_rng(int(self.random_state))
        parts = splits(turned, float(self.validation), rng)
        if not parts:
            warnings.warn(
                "X has too few observed entries to hide some of them; the first point "
                "of the grid is taken without a search",
                UserWarning,
                stacklevel=3,
            )
            self._set_choice(points[:1], Table([float("nan")], [0], [0.0]))
            return points[0]
        file = None
        if self.checkpoint is not None:
            data = {"shape": list(turned.shape), "data": turned.fingerprint()}
            owner = {**self._owner(points), **data}
            fetch = engine.home.fetch
            file = SearchFile(Checkpoint.of(self.checkpoint), owner, fetch)
        trials = Trials(
            parts,
            lambda kept, center: self._workspace(kept, center, engine),
            self._search_settings,
            self.scale == "columns",
            engine,
        )
        with progress_bar(self.progress, len(points), "search") as advance:
            table = walk(
                points,
                trials,
                tried=lambda point, error: advance(f"error {error:.4f}"),
                kept=file,
            )
        return self._set_choice(points, table)

    def _set_choice(self, points: list[Point], table: Table) -> Point:
        """Set the attributes that tell of the search; the best point."""
        self.cv_results_ = table.results(points)
        position = int(np.argmin(table.errors))
        best = points[position]
        self.best_index_ = position
        self.best_error_ = table.errors[position]
        self.best_params_ = asdict(best)
        self.alpha_, self.gamma_, self.center_ = best.alpha, best.gamma, best.center
        return best

    def _workspace(
        self, data: Observed, center: str | None, engine: Engine
    ) -> Workspace:
        """The data made ready for fits with one centring."""
        mode = self._center_mode(center)
        scaled, keep = self.scale == "columns", self._keeps_empty()
        entries = InMemory(data)
        return Workspace(entries, mode, scaled, self.dtype, engine, keep_empty=keep)

    def _points(self) -> list[Point]:
        """The grid, checked."""
        share = check_number("validation", self.validation, low=0.0, strict=True)
        if share >= 1.0:
            raise ValueError(f"validation must be below 1, got {self.validation!r}")
        check_whole("search_iter", self.search_iter, low=1)
        check_number("search_tol", self.search_tol, low=0.0)
        check_whole("random_state", self.random_state, low=0)
        check_run_options(self)
        alphas = [check_number("alphas", a, low=0.0) for a in self._listed("alphas")]
        points = grid(
            self._centers(),
            self._listed("gammas"),
            self._listed("n_neighbors"),
            alphas,
        )
        for point in points:
            check_choice("centers", point.center, CENTERS)
            self._settings(point)
        return points

    def _listed(self, name: str) -> list[Any]:
        """The values that a parameter of the grid lists, as plain Python."""
        return [plain(value) for value in listed(name, getattr(self, name))]

    def _centers(self) -> list[Any]:
        """Centrings to try."""
        if isinstance(self.centers, str) and self.centers == "auto":
            return ["columns" if self.scale == "columns" else None, "two-way"]
        return self._listed("centers")

    def _settings(self, point: Point) -> Settings:
        """Settings of the final fit at a point."""
        return checked_settings(
            alpha=point.alpha,
            n_neighbors=point.n_neighbors,
            gamma=point.gamma,
            graph=self.graph,
            weights=self.weights,
            delta=self.delta,
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def _search_settings(self, point: Point) -> Settings:
        """Settings of a trial at a point."""
        return replace(
            self._settings(point),
            max_iter=int(self.search_iter),
            tol=float(self.search_tol),
        )

    def _owner(self, points: list[Point]) -> dict[str, Any]:
        """Parameters that a checkpoint must share, as JSON can hold them."""
        return {
            "grid": [asdict(point) for point in points],
            "validation": float(self.validation),
            "search_iter": int(self.search_iter),
            "search_tol": float(self.search_tol),
            "random_state": int(self.random_state),
            **run_owner(self),
        }

    def _extra_state(self) -> dict[str, Any]:
        """What a saved model keeps of the search."""
        table = {k: plain(v) for k, v in self.cv_results_.items()}
        return {"cv_results": table, "best_index": self.best_index_}

    def _set_extra_state(self, state: dict[str, Any]) -> None:
        """Take up what a saved model kept of the search."""
        columns = state["cv_results"]
        points = [Point(**params) for params in columns["params"]]
        table = Table(columns["error"], columns["n_iter"], columns["seconds"])
        self._set_choice(points, table)

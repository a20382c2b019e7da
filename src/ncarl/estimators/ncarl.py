"""NCARL and NCARL-noisy, the systems of the paper."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

from ncarl.engines import Engine, pick_engine
from ncarl.estimators.base import CENTERS
from ncarl.estimators.kernel_base import KernelEstimator
from ncarl.estimators.parameters import (
    check_choice,
    check_graph_size,
    check_run_options,
    checked_settings,
    run_owner,
)
from ncarl.estimators.watching import watchers
from ncarl.fitting import Settings, Workspace, checkpoint_for
from ncarl.loop import StepInfo


class NCARL(KernelEstimator):
    r"""Matrix completion by a non-convex surrogate and adaptive correlation learning.

    Every row is an incomplete draw whose columns correlate. The kernel ``K = Q^-1`` of
    the columns and the completed rows are improved in turn.

    Parameters
    ----------
    alpha : float, default=100.0
        Weight of the graph; 0 leaves the rank surrogate alone.
    n_neighbors : int, default=10
        Neighbours of a column in the graph, itself counted; lowered to one less than
        the number of columns where it is larger.
    gamma : float or None, default=None
        None for the exact model, which keeps observed values. A positive number for
        the noisy one (NCARL-noisy), which smooths them; larger is smoother.
    graph : {"adaptive", "fixed", None} or array of shape (n, n), default="adaptive"
        Similarity of the columns: learned in every step, learned once from the
        zero-filled input, none, or given (dense or sparse, not negative).
    weights : {"floor", "pinv", "smooth"}, default="floor"
        How small singular values are treated: held at a floor that follows from the
        degrees of freedom; cut off, as the authors' code does; or smoothed less and
        less, which tends to the nuclear norm.
    delta : float, default=1e-6
        Added to the diagonal of ``Q``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off before and put back after: nothing, the mean of all observed
        entries, column means, or row and column effects.
    orientation : {"auto", "columns", "rows"}, default="auto"
        Which side carries the kernel; "auto" takes the shorter one. New rows can be
        completed only if the columns carry it.
    max_iter : int, default=50
        Most steps.
    tol : float, default=1e-4
        Stop once the Gram matrix changes by less than this, relatively; 0 runs all
        steps.
    engine : {"auto", "threads", "torch", "dask"} or Engine, default="auto"
        Where the work is done. "auto" takes a GPU if PyTorch has one that works, else
        the threads of this machine, and workers of Dask for Dask input; "torch" asks
        for the GPU, "dask" for workers; `Threads`, `Torch` and `Dask` have options of
        their own. ``engine_`` says what ran, and why.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the work; results have the float type of the input.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state after each step, or less often (`Checkpoint`). If it
        exists, the fit goes on from it, to the same numbers as if it had never stopped.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first: for tables whose columns
        have different units. The kernel then sits on the columns.

    Attributes
    ----------
    kernel_ : array of shape (n, n)
        Covariance of the columns (of the rows if ``transposed_``).
    similarity_ : scipy.sparse.csr_array of shape (n, n)
        The graph that made ``kernel_``; rows sum to one.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``jitter`` and seconds by part.
    n_iter_ : int
        Steps made.
    converged_ : bool
        Whether the change fell below ``tol``.
    n_neighbors_ : int
        Neighbours used; 0 where one column leaves no graph.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre.
    transposed_ : bool
        Whether the kernel sits on the rows.
    engine_ : str
        The engine that ran, and why.

    Notes
    -----
    Minimises :math:`\mathrm{tr}\, X (D + \alpha L) X^T` subject to the observed
    entries, where ``D`` weighs the directions of ``X`` by their singular values and
    ``L`` is the Laplacian of a k-sparse similarity of its columns. In the noisy model
    the constraint becomes a squared loss against
    :math:`\gamma D + \alpha L`. Entries that a sparse matrix does not store are
    missing, never zero.

    References
    ----------
    X. Li, H. Zhang, R. Zhang, "Matrix Completion via Non-Convex Relaxation and
    Adaptive Correlation Learning", IEEE TPAMI 45(2), 1981-1991, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import NCARL
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((60, 3)) @ rng.random((3, 40))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> filled = NCARL(alpha=0).fit_transform(X)
    >>> bool(np.abs(filled - truth).max() < 0.1)
    True
    """

    def __init__(
        self,
        alpha: float = 100.0,
        n_neighbors: int = 10,
        gamma: float | None = None,
        graph: Any = "adaptive",
        weights: str = "floor",
        delta: float = 1e-6,
        center: str | None = None,
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
        self.alpha = alpha
        self.n_neighbors = n_neighbors
        self.gamma = gamma
        self.graph = graph
        self.weights = weights
        self.delta = delta
        self.center = center
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
        """Learn the kernel of ``X``.

        Parameters
        ----------
        X : array, masked array, frame, sparse matrix or source of rows
            Matrix with gaps: NaN, masked, null, or not stored. A source
            (`ncarl.open_rows`), a Dask array or a collection of row blocks is read
            once in every step and never held as a whole.
        y : ignored
            For scikit-learn's interface.
        """
        settings = self._settings()
        engine = pick_engine(self.engine, given=X)
        begun = self._begin(X, engine, named=self.checkpoint is not None)
        entries = begun.entries
        if settings.graph is not None and not isinstance(settings.graph, str):
            check_graph_size(settings.graph, entries.survey.shape[1])
        center = self._center_mode(self.center)
        workspace = Workspace(
            entries, center, self.scale == "columns", self.dtype, engine,
            keep_empty=self._keeps_empty(),
        )  # fmt: skip
        checkpoint = None
        if self.checkpoint is not None:
            checkpoint = checkpoint_for(self.checkpoint, entries, self._owner())
        with watchers(self.progress, self.callback, settings.max_iter, "NCARL") as seen:
            result = workspace.run(settings, checkpoint=checkpoint, observers=seen)
        return self._finish(begun, workspace, settings, result)

    def _settings(self) -> Settings:
        """The parameters, checked."""
        check_choice("center", self.center, CENTERS)
        check_run_options(self)
        return checked_settings(
            alpha=self.alpha,
            n_neighbors=self.n_neighbors,
            gamma=self.gamma,
            graph=self.graph,
            weights=self.weights,
            delta=self.delta,
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def _owner(self) -> dict[str, Any]:
        """Parameters that a checkpoint must share, as JSON can hold them."""
        return {
            "alpha": float(self.alpha),
            "n_neighbors": int(self.n_neighbors),
            "gamma": None if self.gamma is None else float(self.gamma),
            "center": self.center,
            **run_owner(self),
        }

"""NCARL and NCARL-noisy for very many columns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, Self, cast

from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ncarl.checkpoint import Checkpoint
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.asked import position_pair
from ncarl.estimators.base import CENTERS
from ncarl.estimators.kernel_base import Begun, KernelEstimator
from ncarl.estimators.parameters import (
    DTYPES,
    check_callback,
    check_checkpoint,
    check_choice,
    check_flag,
    check_graph_size,
    check_whole,
    checked_settings,
    digest,
)
from ncarl.estimators.watching import watchers
from ncarl.fitting import Settings
from ncarl.loop import StepInfo
from ncarl.observed import Observed
from ncarl.surveys import InMemory
from ncarl.wide.fitting import WideWorkspace, wide_threads
from ncarl.wide.given import given_graph
from ncarl.wide.keeping import WideFile
from ncarl.wide.kernel import WideKernel
from ncarl.wide.saving import model_from, model_parts
from ncarl.wide.solver import WideRecipe


class WideNCARL(KernelEstimator):
    r"""`NCARL` for more columns than an n x n kernel allows: 50,000 and more.

    The kernel is kept as a sparse matrix plus thin factors, ``K = T + F F^T``, and all
    steps work with products only. Memory grows with the columns times ``rank``, the
    edges of the graph, and the observed entries.

    Parameters
    ----------
    alpha : float, default=100.0
        Weight of the graph; 0 leaves the rank surrogate alone.
    n_neighbors : int, default=10
        Neighbours of a column in the graph, itself counted; lowered to one less than
        the number of columns where it is larger.
    gamma : float or None, default=None
        None for the exact model, which keeps observed values. A positive number for
        the noisy one, which smooths them; larger is smoother.
    graph : {"adaptive", "fixed", None} or sparse array (n, n), default="adaptive"
        Similarity of the columns: learned in every step, learned once from the
        zero-filled input, none, or given (not negative).
    delta : float, default=1e-6
        Added to the diagonal of ``Q``.
    rank : int or None, default=None
        Directions that get a weight of their own; all others share one, which keeps
        their part in the trace of the kernel. With as many as columns the model is
        that of `NCARL`. None takes 32 more than the data can pin down, and at least
        128; fewer than the data can pin down are never taken.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off before and put back after: nothing, the mean of all observed
        entries, column means, or row and column effects.
    max_iter : int, default=50
        Most steps.
    tol : float, default=1e-4
        Stop once the Gram matrix changes by less than this, relatively; 0 runs all
        steps. The change is that of its leading part and its diagonal.
    engine : {"auto", "threads"} or Threads, default="auto"
        Threads of this machine, which both names mean; `Threads` has options.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the work; results have the float type of the input.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state after each step. If it exists, the fit goes on from
        it, to the same numbers as if it had never stopped.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.

    Attributes
    ----------
    kernel_factors_ : pair of csr_array (n, n) and array (n, p)
        ``T`` and ``F``; the kernel of the columns is ``T + F F^T``.
    kernel_error_ : float
        Bound on the relative error of ``T``, from entries left out of it.
    rank_ : int
        Directions with a weight of their own.
    similarity_ : scipy.sparse.csr_array of shape (n, n)
        The graph that made the kernel; rows sum to one.
    history_, n_iter_, converged_, n_neighbors_, engine_
        As in `NCARL`; seconds are those of graph, kernel, rows and Gram matrix.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre.

    Notes
    -----
    Weights are those of ``NCARL(weights="floor")``: directions below a floor all weigh
    the same, and only those above it need to be known. Where more than ``rank`` lie
    above it (data with a flat spectrum, and the first steps of any fit) the model is
    an approximation of that of `NCARL`; the docs say how near it comes.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.estimators.wide import WideNCARL
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((60, 3)) @ rng.random((3, 40))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> filled = WideNCARL(alpha=0).fit_transform(X)
    >>> bool(np.abs(filled - truth).max() < 0.1)
    True
    """

    _scalars = (*KernelEstimator._scalars, "rank_")

    def __init__(
        self,
        alpha: float = 100.0,
        n_neighbors: int = 10,
        gamma: float | None = None,
        graph: Any = "adaptive",
        delta: float = 1e-6,
        rank: int | None = None,
        center: str | None = None,
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
        self.delta = delta
        self.rank = rank
        self.center = center
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
        X : array, masked array, frame or sparse matrix of shape (m, n)
            Matrix with gaps: NaN, masked, null, or not stored.
        y : ignored
            For scikit-learn's interface.
        """
        settings, rank = self._settings()
        engine = self._engine()
        observed = self._read_fit(X)
        begun = Begun(observed, InMemory(observed))
        self.transposed_ = False
        given = settings.graph is not None and not isinstance(settings.graph, str)
        if given:
            check_graph_size(settings.graph, observed.shape[1])
        workspace = WideWorkspace(
            begun.entries, self.center or "none", self.scale == "columns",
            self.dtype, engine, keep_empty=given,
        )  # fmt: skip
        recipe = workspace.wide_recipe(settings, rank)
        file = self._file(observed, settings, recipe)
        name = type(self).__name__
        with watchers(self.progress, self.callback, settings.max_iter, name) as seen:
            result = workspace.run_wide(
                settings, recipe, checkpoint=file, observers=seen
            )
        self.rank_ = recipe.rank
        return self._finish(begun, workspace, settings, cast(Any, result))

    @property
    def kernel_(self) -> NoReturn:
        """Not there: see ``kernel_factors_`` and ``kernel(rows, cols)``."""
        check_is_fitted(self)
        raise AttributeError(
            f"{type(self).__name__} never forms its n x n kernel; take parts of it by "
            "kernel(rows, cols), or kernel_factors_ = (T, F), which make it T + F F^T"
        )

    @property
    def kernel_factors_(self) -> tuple[Any, Array]:
        """Sparse part ``T`` and thin factor ``F`` of the kernel ``T + F F^T``."""
        kernel = self._kernel()
        F = kernel.F.view()
        F.flags.writeable = False  # the model works with it
        return kernel.T.copy(), F

    @property
    def kernel_error_(self) -> float:
        """Bound on the relative error of the sparse part."""
        return self._kernel().error

    def kernel(self, rows: Any, cols: Any) -> Array:
        """Covariances of some columns with others.

        Parameters
        ----------
        rows, cols : array-like of int
            Columns of the matrix, counted from 0.

        Returns
        -------
        array of shape (len(rows), len(cols))
            The part of the n x n kernel at these rows and columns of it.
        """
        found = self._kernel()
        n = len(found.F)
        i, _ = position_pair(rows, rows, (n, n))
        j, _ = position_pair(cols, cols, (n, n))
        return found.part(i, j)

    def _kernel(self) -> WideKernel:
        """The fitted kernel."""
        check_is_fitted(self)
        kernel: WideKernel = self.model_.kernel
        return kernel

    def _engine(self) -> Engine:
        """Threads, as the parameter asks for them."""
        return wide_threads(self.engine)

    def _kernel_size(self) -> int:
        """Columns that the kernel has."""
        return len(self._kernel().F)

    def _settings(self) -> tuple[Settings, int | None]:
        """The parameters, checked."""
        check_choice("center", self.center, CENTERS)
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("scale", self.scale, (None, "columns"))
        check_flag("progress", self.progress)
        check_callback(self.callback)
        check_checkpoint(self.checkpoint)
        rank = self.rank
        if rank is not None:
            rank = check_whole("rank", rank, low=1, hint="; None chooses one")
        named = self.graph is None or isinstance(self.graph, str)
        settings = checked_settings(
            alpha=self.alpha,
            n_neighbors=self.n_neighbors,
            gamma=self.gamma,
            graph=self.graph if named else None,
            weights="floor",
            delta=self.delta,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        if not named:
            settings = replace(settings, graph=given_graph(self.graph))
        return settings, rank

    def _file(
        self, observed: Observed, settings: Settings, recipe: WideRecipe
    ) -> WideFile | None:
        """The checkpoint of a fit of these data, if one is asked for."""
        if self.checkpoint is None:
            return None
        graph = settings.graph
        if sparse.issparse(graph):
            graph = [digest(part) for part in (graph.data, graph.indices, graph.indptr)]
        owner = {
            "class": type(self).__name__,
            "alpha": settings.alpha,
            "n_neighbors": settings.n_neighbors,
            "gamma": settings.gamma,
            "graph": graph,
            "delta": settings.delta,
            "rank": recipe.rank,
            "center": self.center,
            "scale": self.scale,
            "dtype": self.dtype,
            "shape": list(observed.shape),
            "data": observed.fingerprint(),
        }
        return WideFile(Checkpoint.of(self.checkpoint), owner)

    def _model_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The model as a saved file holds it."""
        return model_parts(self.model_)

    def _set_model_state(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Take up the model that a saved file holds."""
        self.model_ = model_from(header, arrays)

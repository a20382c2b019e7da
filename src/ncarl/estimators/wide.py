"""WideNCARL: NCARL and NCARL-noisy for more columns than an n x n kernel allows."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, Self, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncarl.core.rows import Kernel
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines.base import Engine
from ncarl.estimators.base import CENTERS, progress_callbacks
from ncarl.estimators.ncarl import KernelEstimator, TrainingData
from ncarl.estimators.persistence import kernel_model_from_state, kernel_model_state
from ncarl.estimators.validation import (
    DTYPES,
    check_callback,
    check_checkpoint,
    check_graph_size,
    check_positions,
    make_settings,
    open_checkpoint,
)
from ncarl.fitting.kernel_model import KernelModel
from ncarl.fitting.loop import StepInfo
from ncarl.fitting.ncarl import Settings
from ncarl.validation import check_choice, check_flag, check_integer
from ncarl.wide.kernel import validate_graph
from ncarl.wide.rows import WideKernel
from ncarl.wide.solver import (
    WideKernelProblem,
    pick_wide_engine,
    wide_kernel_from_state,
    wide_kernel_state,
)

#: Placeholder with which `kernel_model_state` saves all of a model but its kernel.
EMPTY_KERNEL = Kernel(np.zeros((0, 0)), None, 0.0)


class WideNCARL(KernelEstimator):
    r"""`NCARL` for more columns than an n x n kernel allows: 50,000 and more.

    The kernel is kept as a sparse matrix plus thin factors, ``K = T + F F^T``, and all
    steps only multiply by it. Memory grows with the columns times ``rank``, the edges
    of the graph, and the observed entries.

    Parameters
    ----------
    alpha : float, default=100.0
        Weight of the graph; 0 leaves the rank surrogate alone.
    n_neighbors : int, default=10
        Number of neighbors of a column in the graph, including itself; at most one
        less than the number of columns.
    gamma : float or None, default=None
        None for the exact model, which keeps observed values. A positive number for
        the noisy model, which smooths them; larger is smoother.
    graph : {"adaptive", "fixed", None} or sparse array (n, n), default="adaptive"
        Similarity of the columns: learned in every step, learned once from the
        zero-filled input, none, or given (nonnegative).
    delta : float, default=1e-6
        Added to the diagonal of ``Q``.
    rank : int or None, default=None
        Number of directions with a weight of their own; all others share one weight,
        which preserves their part of the trace of the kernel. With as many directions
        as columns the model is that of `NCARL`. None is 32 more than the data can
        determine, and at least 128; a smaller number than the data can determine is
        raised to that.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract before and add back after: nothing, the mean of all observed
        entries, column means, or row and column effects.
    max_iter : int, default=50
        Maximum number of steps.
    tol : float, default=1e-4
        Stop once the relative change of the Gram matrix is below this; 0 runs all
        steps. The change is that of its leading part and its diagonal.
    engine : {"auto", "threads"} or Threads, default="auto"
        Both names mean threads on this machine; `Threads` has options.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computation; results have the float type of the input.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state after each step. If it exists, the fit resumes from
        it, with the same result as if it had never stopped.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.

    Attributes
    ----------
    kernel_factors_ : pair of csr_array (n, n) and array (n, p)
        ``T`` and ``F``; the kernel of the columns is ``T + F F^T``.
    kernel_error_ : float
        Bound on the relative error of ``T``, from entries dropped from it.
    rank_ : int
        Number of directions with a weight of their own.
    similarity_ : scipy.sparse.csr_array of shape (n, n)
        The graph that made the kernel; rows sum to one.
    history_, n_iter_, converged_, n_neighbors_, engine_
        As in `NCARL`; seconds are those of graph, kernel, rows and Gram matrix.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center.

    Notes
    -----
    Weights are those of ``NCARL(weights="floor")``: directions below a floor all have
    the same weight, and only those above it need to be computed. If more than ``rank``
    lie above it (data with a flat spectrum, and the first steps of any fit) the model
    approximates that of `NCARL`; the docs say how well.

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

    _saved_scalars = (*KernelEstimator._saved_scalars, "rank_")

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
            Matrix with missing entries: NaN, masked, null, or not stored.
        y : ignored
            For scikit-learn's interface.
        """
        settings, rank = self._settings()
        engine = self._resolve_engine()
        observed = self._read_training_matrix(X)
        training = TrainingData(observed, InMemoryDataset(observed))
        self.transposed_ = False
        given = settings.graph is not None and not isinstance(settings.graph, str)
        if given:
            check_graph_size(settings.graph, observed.shape[1])
        problem = WideKernelProblem(
            training.dataset,
            self.center or "none",
            self.scale == "columns",
            self.dtype,
            engine,
            keep_empty=given,
        )
        config = problem.wide_config(settings, rank)
        checkpoint = open_checkpoint(
            self, training.dataset, rank=config.rank, graph=settings.graph
        )
        name = type(self).__name__
        with progress_callbacks(
            self.progress, self.callback, settings.max_iter, name
        ) as observers:
            result = problem.run_wide(
                settings, config, checkpoint=checkpoint, observers=observers
            )
        self.rank_ = config.rank
        return self._finalize_fit(training, problem, settings, cast(Any, result))

    @property
    def kernel_(self) -> NoReturn:
        """Not available: see ``kernel_factors_`` and ``kernel(rows, cols)``."""
        check_is_fitted(self)
        raise AttributeError(
            f"{type(self).__name__} never forms its n x n kernel; take parts of it by "
            "kernel(rows, cols), or kernel_factors_ = (T, F), which make it T + F F^T"
        )

    @property
    def kernel_factors_(self) -> tuple[Any, Array]:
        """Sparse part ``T`` and thin factor ``F`` of the kernel ``T + F F^T``."""
        kernel = self._fitted_kernel()
        F = kernel.F.view()
        F.flags.writeable = False  # it is the array of the model
        return kernel.T.copy(), F

    @property
    def kernel_error_(self) -> float:
        """Bound on the relative error of the sparse part."""
        return self._fitted_kernel().error

    def kernel(self, rows: Any, cols: Any) -> Array:
        """Covariances of some columns with others.

        Parameters
        ----------
        rows, cols : array-like of int
            Columns of the matrix, counted from 0.

        Returns
        -------
        array of shape (len(rows), len(cols))
            These rows and columns of the n x n kernel.
        """
        kernel = self._fitted_kernel()
        n = len(kernel.F)
        i, _ = check_positions(rows, rows, (n, n))
        j, _ = check_positions(cols, cols, (n, n))
        return kernel.submatrix(i, j)

    def _fitted_kernel(self) -> WideKernel:
        check_is_fitted(self)
        kernel: WideKernel = self.model_.kernel
        return kernel

    def _resolve_engine(self) -> Engine:
        return pick_wide_engine(self.engine)

    def _kernel_size(self) -> int:
        """Number of columns of the kernel."""
        return len(self._fitted_kernel().F)

    def _settings(self) -> tuple[Settings, int | None]:
        """Check the parameters; the settings and the rank."""
        check_choice("center", self.center, CENTERS)
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("scale", self.scale, (None, "columns"))
        check_flag("progress", self.progress)
        check_callback(self.callback)
        check_checkpoint(self.checkpoint)
        rank = self.rank
        if rank is not None:
            rank = check_integer("rank", rank, low=1, hint="; None chooses one")
        named = self.graph is None or isinstance(self.graph, str)
        settings = make_settings(
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
            settings = replace(settings, graph=validate_graph(self.graph))
        return settings, rank

    def _model_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Header and arrays of the model for a saved file."""
        return wide_model_state(self.model_)

    def _set_model_state(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Restore the model from a saved file."""
        self.model_ = wide_model_from_state(header, arrays)


def wide_model_state(model: KernelModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Split a model into a JSON header and arrays."""
    header, arrays = kernel_model_state(replace(model, kernel=EMPTY_KERNEL))
    del arrays["K"]
    kernel_header, factors = wide_kernel_state(cast(Any, model.kernel))
    return {**header, **kernel_header}, {**arrays, **factors}


def wide_model_from_state(
    header: dict[str, Any], arrays: dict[str, Array]
) -> KernelModel:
    """Rebuild the model from the output of `wide_model_state`."""
    model = kernel_model_from_state(header, {**arrays, "K": EMPTY_KERNEL.K})
    return replace(model, kernel=cast(Any, wide_kernel_from_state(header, arrays)))

"""`NCARL` (NCARL and NCARL-noisy of the paper), and the base of kernel estimators."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncarl.containers import as_source, validate_observations
from ncarl.core.types import Array
from ncarl.dataset import Dataset, InMemoryDataset, StreamedDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.estimators.base import (
    CENTERS,
    BaseCompleter,
    progress_callbacks,
    set_feature_names,
    warn_if_not_converged,
)
from ncarl.estimators.persistence import kernel_model_from_state, kernel_model_state
from ncarl.estimators.validation import (
    ORIENTATIONS,
    check_graph_size,
    check_run_options,
    make_settings,
    no_entries_message,
    open_checkpoint,
)
from ncarl.fitting.kernel_model import KernelModel
from ncarl.fitting.loop import FitResult, StepInfo
from ncarl.fitting.ncarl import (
    KernelProblem,
    KernelState,
    Settings,
)
from ncarl.io import RowSource
from ncarl.observations import Observations
from ncarl.validation import check_choice


@dataclass(frozen=True)
class TrainingData:
    """A matrix read for a fit."""

    observed: Observations | None  # entries as they were given, if in memory
    dataset: Dataset  # the same in the orientation of the kernel

    @property
    def oriented_entries(self) -> Observations:
        """The entries in memory, in the orientation of the kernel."""
        assert isinstance(self.dataset, InMemoryDataset)
        return self.dataset.observed


class KernelEstimator(BaseCompleter):
    """Base of `NCARL`, `NCARLCV`, `WideNCARL` and `BayesianNCARL`.

    Subclasses store their parameters and implement ``fit``; ``model_`` is a
    `KernelModel` unless they override what reads it.
    """

    _saved_scalars: tuple[str, ...] = (
        "n_iter_",
        "converged_",
        "n_neighbors_",
        "transposed_",
        "engine_",
    )
    _has_graph = True
    #: Whether the columns must be those of the fit even with a kernel of the rows.
    _requires_same_columns = False
    #: Hint of errors: the parameter that puts the kernel on the columns.
    _columns_hint = "orientation='columns'"
    _noise_hint = "gamma=None has none; set gamma to a positive number"

    @property
    def kernel_(self) -> Array:
        """Covariance of the columns (of the rows if ``transposed_``), (n, n)."""
        check_is_fitted(self)
        K = self.model_.kernel.K.view()
        K.flags.writeable = False  # the model works with it
        return K

    def _complete(
        self, observed: Observations, std: str | None, *, inductive: bool = False
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix and its standard deviations."""
        oriented = observed.transpose() if self.transposed_ else observed
        filled, deviations = self.model_.complete(
            oriented, self._resolve_engine(), std=std
        )
        if not self.transposed_:
            return filled, deviations
        filled = np.ascontiguousarray(filled.T)
        return filled, None if deviations is None else np.array(deviations.T, order="C")

    def _predict_entries(
        self, observed: Observations, i: Array, j: Array, std: str | None, *,
        inductive: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Smoothed values at single entries, and their standard deviations."""
        if self.transposed_:
            observed, i, j = observed.transpose(), j, i
        model: KernelModel = self.model_
        return model.predict(observed, i, j, self._resolve_engine(), std=std)

    def _noise_level(self) -> float:
        """Noise variance in the units of the kernel; 0 without noise."""
        return float(self.model_.kernel.s)

    def _kernel_size(self) -> int:
        """Number of columns (rows, if ``transposed_``) of the kernel."""
        return int(self.model_.kernel.K.shape[0])

    def _read_rows(self, X: Any) -> Observations:
        """Entries of a matrix that the fitted kernel can complete."""
        same = self._requires_same_columns or not self.transposed_
        observed = validate_observations(self, X, reset=False, same_columns=same)
        wanted = self._kernel_size()
        if self.transposed_ and observed.shape[0] != wanted:
            raise ValueError(
                f"the kernel sits on the rows, so X must have the {wanted} rows of the "
                f"fit, got {observed.shape[0]}; fit with {self._columns_hint} to "
                "complete new rows"
            )
        return observed

    def _model_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The model as what JSON can hold, and arrays."""
        return kernel_model_state(self.model_)

    def _set_model_state(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Set the model that `_model_state` described."""
        self.model_ = kernel_model_from_state(header, arrays)

    def _load_training_data(
        self, X: Any, engine: Engine, *, with_fingerprint: bool
    ) -> TrainingData:
        """Read ``X`` for a fit; ``with_fingerprint`` also hashes a source.

        Matrices in memory are hashed when their fingerprint is needed.
        """
        source = as_source(X)
        if source is None:
            return self._load_in_memory(X)
        if check_choice("orientation", self.orientation, ORIENTATIONS) == "rows":
            raise ValueError(
                "orientation='rows' needs the matrix in memory; a source of rows is "
                "fitted with the kernel on the columns"
            )
        self.transposed_ = False
        return TrainingData(
            None,
            self._make_streamed_dataset(
                source, engine, with_fingerprint=with_fingerprint
            ),
        )

    def _load_in_memory(self, X: Any) -> TrainingData:
        """Read a matrix for a fit, and choose the side that carries the kernel."""
        observed = self._read_training_matrix(X)
        orientation = check_choice("orientation", self.orientation, ORIENTATIONS)
        wide = observed.shape[0] < observed.shape[1]
        self.transposed_ = orientation == "rows" or (
            orientation == "auto" and wide and not self._requires_column_kernel()
        )
        oriented = observed.transpose() if self.transposed_ else observed
        return TrainingData(observed, InMemoryDataset(oriented))

    def _make_streamed_dataset(
        self, source: RowSource, engine: Engine, *, with_fingerprint: bool
    ) -> StreamedDataset:
        """Entries of a source, summarized in a first pass."""
        set_feature_names(self, source)
        dataset = StreamedDataset.from_source(
            source, engine, with_fingerprint=with_fingerprint
        )
        if dataset.summary.n_observed == 0:
            raise ValueError(no_entries_message(dataset.summary.shape))
        return dataset

    def _completes_row_by_row(self, observed: Observations) -> bool:
        """Whether the columns carry the kernel."""
        return not self.transposed_

    def _check_row_by_row(self, what: str) -> None:
        """Raise if the kernel is that of the rows; ``what`` goes row by row."""
        if self.transposed_:
            raise ValueError(
                f"the kernel sits on the rows, and {what} is completed row by row; fit "
                f"with {self._columns_hint}"
            )

    def _keep_empty_columns(self) -> bool:
        """Whether columns without observed entries take part in the fit."""
        given = self.graph is not None and not isinstance(self.graph, str)
        return self.weights == "pinv" or given

    def _requires_column_kernel(self) -> bool:
        """Whether the parameters need the kernel on the columns."""
        return getattr(self, "scale", None) == "columns"

    def _center_mode(self, center: Any) -> str:
        """The name of the centering in the orientation of the kernel."""
        check_choice("center", center, CENTERS)
        if center == "columns" and self.transposed_:
            return "rows"
        return center or "none"

    def _finalize_fit(
        self,
        data: TrainingData,
        problem: KernelProblem,
        settings: Settings,
        result: FitResult[KernelState],
    ) -> Self:
        """Set the fitted attributes from a run."""
        self.model_ = problem.model(settings, result)
        self.training_ = data.observed
        self.history_ = {name: np.asarray(col) for name, col in result.history.items()}
        self.n_iter_ = int(result.last.step)
        self.converged_ = result.converged
        self.n_neighbors_ = problem.effective_n_neighbors(settings)
        self.engine_ = problem.engine.describe()
        self._engine_picked = True
        self.similarity_ = problem.similarity(result)
        summary = data.dataset.summary
        empty = summary.empty_rows, np.flatnonzero(summary.column_counts == 0)
        rows, columns = empty[::-1] if self.transposed_ else empty
        self.unidentified_rows_, self.unidentified_columns_ = rows, columns
        if result.interrupted:
            raise KeyboardInterrupt
        warn_if_not_converged(type(self).__name__, settings, result)
        return self


class NCARL(KernelEstimator):
    r"""Matrix completion by a non-convex surrogate and adaptive correlation learning.

    Every row is an incomplete draw whose columns are correlated. The kernel
    ``K = Q^-1`` of the columns and the completed rows are updated in turn.

    Parameters
    ----------
    alpha : float, default=100.0
        Weight of the graph; 0 leaves the rank surrogate alone.
    n_neighbors : int, default=10
        Neighbors of a column in the graph, itself counted; lowered to one less than
        the number of columns where it is larger.
    gamma : float or None, default=None
        None for the exact model, which keeps observed values. A positive number for
        the noisy one (NCARL-noisy), which smooths them; larger is smoother.
    graph : {"adaptive", "fixed", None} or array of shape (n, n), default="adaptive"
        Similarity of the columns: learned in every step, learned once from the
        zero-filled input, none, or given (dense or sparse, not negative).
    weights : {"floor", "pinv", "smooth"}, default="floor"
        How small singular values are treated: clipped to a floor that follows from
        the degrees of freedom; cut off, as the authors' code does; or smoothed by a
        parameter that decreases from step to step, which tends to the nuclear norm.
    delta : float, default=1e-6
        Added to the diagonal of ``Q``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What is subtracted before and added back after: nothing, the mean of all
        observed entries, column means, or row and column effects.
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
        "columns" divides every column by its standard deviation first: for tables
        whose columns have different units. The kernel is then that of the columns.

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
        Neighbors used; 0 where one column leaves no graph.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the center.
    transposed_ : bool
        Whether the kernel sits on the rows.
    engine_ : str
        The engine that ran, and why.

    Notes
    -----
    Minimizes :math:`\mathrm{tr}\, X (D + \alpha L) X^T` subject to the observed
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
            Matrix with missing entries: NaN, masked, null, or not stored. A source
            (`ncarl.open_rows`), a Dask array or a collection of row blocks is read
            once in every step and never held as a whole.
        y : ignored
            For scikit-learn's interface.
        """
        settings = self._settings()
        engine = pick_engine(self.engine, data=X)
        data = self._load_training_data(
            X, engine, with_fingerprint=self.checkpoint is not None
        )
        dataset = data.dataset
        if settings.graph is not None and not isinstance(settings.graph, str):
            check_graph_size(settings.graph, dataset.summary.shape[1])
        problem = KernelProblem(
            dataset,
            self._center_mode(self.center),
            self.scale == "columns",
            self.dtype,
            engine,
            keep_empty=self._keep_empty_columns(),
        )
        orientation = "rows" if self.transposed_ else "columns"
        checkpoint = open_checkpoint(self, dataset, orientation=orientation)
        with progress_callbacks(
            self.progress, self.callback, settings.max_iter, "NCARL"
        ) as observers:
            result = problem.run(settings, checkpoint=checkpoint, observers=observers)
        return self._finalize_fit(data, problem, settings, result)

    def _settings(self) -> Settings:
        """The checked parameters."""
        check_choice("center", self.center, CENTERS)
        check_run_options(self)
        return make_settings(
            alpha=self.alpha,
            n_neighbors=self.n_neighbors,
            gamma=self.gamma,
            graph=self.graph,
            weights=self.weights,
            delta=self.delta,
            max_iter=self.max_iter,
            tol=self.tol,
        )

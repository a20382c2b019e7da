"""`NCARL` (NCARL and NCARL-noisy of the paper), and the base of kernel estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncarl.containers import as_source, validate_observations
from ncarl.core.types import Array
from ncarl.dataset import Dataset, InMemoryDataset, StreamedDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.estimators.base import BaseCompleter, Prediction
from ncarl.estimators.validation import (
    check_any_observed,
    check_graph_size,
    check_run_options,
    make_settings,
    open_checkpoint,
)
from ncarl.fitting.kernel_model import KernelModel
from ncarl.fitting.loop import FitResult
from ncarl.fitting.ncarl import KernelProblem, KernelState, Settings
from ncarl.io import RowSource
from ncarl.observations import Observations


class TrainingData(NamedTuple):
    """A matrix read for a fit."""

    observed: Observations | None  # entries as they were given, if in memory
    dataset: Dataset  # the same in the orientation of the kernel


class KernelEstimator(BaseCompleter):
    """Base of `NCARL`, `NCARLCV`, `WideNCARL` and `BayesianNCARL`.

    Subclasses store their parameters and implement ``fit``; ``model_`` is a
    `KernelModel` unless they override what reads it.
    """

    _problem_class = KernelProblem
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
    ) -> Prediction:
        model: KernelModel = self.model_
        engine = self._resolve_engine()
        if not self.transposed_:
            return model.complete(observed, engine, std=std)
        filled, stds = model.complete(observed.transpose(), engine, std=std)
        filled = np.ascontiguousarray(filled.T)
        return filled, None if stds is None else np.array(stds.T, order="C")

    def _predict_entries(
        self, observed: Observations, i: Array, j: Array, std: str | None, *,
        inductive: bool = False,
    ) -> Prediction:  # fmt: skip
        if self.transposed_:
            observed, i, j = observed.transpose(), j, i
        model: KernelModel = self.model_
        return model.predict(observed, i, j, self._resolve_engine(), std=std)

    def _noise_level(self) -> float:
        return float(self.model_.kernel.s)

    def _kernel_size(self) -> int:
        return int(self.model_.kernel.K.shape[0])

    def _read_rows(self, X: Any) -> Observations:
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

    def _load_training_data(self, X: Any, engine: Engine) -> TrainingData:
        source = as_source(X)
        if source is None:
            return self._load_in_memory(X)
        if self.orientation == "rows":
            raise ValueError(
                "orientation='rows' needs the matrix in memory; a source of rows is "
                "fitted with the kernel on the columns"
            )
        self.transposed_ = False
        return TrainingData(None, self._make_streamed_dataset(source, engine))

    def _load_in_memory(self, X: Any) -> TrainingData:
        observed = self._read_training_matrix(X)
        self.transposed_ = self.orientation == "rows" or (
            self.orientation == "auto"
            and observed.shape[0] < observed.shape[1]
            and self.scale != "columns"
        )
        oriented = observed.transpose() if self.transposed_ else observed
        return TrainingData(observed, InMemoryDataset(oriented))

    def _make_streamed_dataset(
        self, source: RowSource, engine: Engine
    ) -> StreamedDataset:
        """Entries of a source, summarized, and hashed for a checkpoint, in a pass."""
        self.n_features_in_ = source.n_columns
        if source.names is not None:
            self.feature_names_in_ = np.asarray(source.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        dataset = StreamedDataset.from_source(
            source, engine, with_fingerprint=self.checkpoint is not None
        )
        check_any_observed(dataset.summary.n_observed, dataset.summary.shape)
        return dataset

    def _completes_row_by_row(self, observed: Observations) -> bool:
        return not self.transposed_

    def _check_row_by_row(self, what: str) -> None:
        if self.transposed_:
            raise ValueError(
                f"the kernel sits on the rows, and {what} is completed row by row; fit "
                f"with {self._columns_hint}"
            )

    def _make_problem(
        self, dataset: Dataset, center: str | None, engine: Engine
    ) -> Any:
        if center == "columns" and self.transposed_:
            center = "rows"
        given = self.graph is not None and not isinstance(self.graph, str)
        return self._problem_class(
            dataset,
            center or "none",
            self.scale == "columns",
            self.dtype,
            engine,
            keep_empty=given or self.weights == "pinv",
        )

    def _finalize_fit(
        self,
        data: TrainingData,
        problem: KernelProblem,
        settings: Settings,
        result: FitResult[KernelState],
    ) -> Self:
        self.model_ = problem.model(settings, result)
        self.training_ = data.observed
        self._set_run_attributes(
            problem.engine, result.history, result.last.step, result.converged
        )
        self.n_neighbors_ = problem.effective_n_neighbors(settings)
        self.similarity_ = problem.similarity(result)
        summary = data.dataset.summary
        empty = summary.empty_rows, np.flatnonzero(summary.column_counts == 0)
        rows, columns = empty[::-1] if self.transposed_ else empty
        self.unidentified_rows_, self.unidentified_columns_ = rows, columns
        return self._end_fit(result, settings.max_iter, settings.tol)


@dataclass(eq=False, repr=False)
class NCARL(KernelEstimator):
    r"""Matrix completion by a non-convex surrogate and adaptive correlation learning.

    Every row is an incomplete draw whose columns are correlated. The kernel
    ``K = Q^-1`` of the columns and the completed rows are updated in turn.

    Parameters
    ----------
    %(alpha n_neighbors gamma)s
    graph : {"adaptive", "fixed", None} or array of shape (n, n), default="adaptive"
        Similarity of the columns: learned in every step, learned once from the
        zero-filled input, none, or given (dense or sparse, nonnegative).
    weights : {"floor", "pinv", "smooth"}, default="floor"
        How small singular values are treated: clipped to a floor that follows from
        the degrees of freedom; cut off, as the authors' code does; or smoothed by a
        parameter that decreases from step to step, which tends to the nuclear norm.
    delta : float, default=1e-6
        Added to the diagonal of ``Q``.
    %(center)s
    orientation : {"auto", "columns", "rows"}, default="auto"
        Which side carries the kernel; "auto" takes the shorter one. New rows can be
        completed only if the columns carry it.
    max_iter : int, default=50
        Maximum number of steps.
    tol : float, default=1e-4
        Stop once the relative change of the Gram matrix is below this; 0 runs all
        steps.
    engine : {"auto", "threads", "torch", "dask"} or Engine, default="auto"
        Where the computation runs. "auto" takes a GPU if PyTorch has one that works,
        else the threads of this machine, and Dask workers for Dask input; `Threads`,
        `Torch` and `Dask` have options.
    %(dtype progress callback checkpoint)s
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first, which tables
        with columns of different units need. The kernel is then that of the columns.

    Attributes
    ----------
    kernel_ : array of shape (n, n)
        Covariance of the columns (of the rows if ``transposed_``).
    similarity_ : scipy.sparse.csr_array of shape (n, n)
        The graph that made ``kernel_``; rows sum to one.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``jitter`` and seconds by part.
    n_iter_, converged_ : int and bool
        Number of steps, and whether the change fell below ``tol``.
    n_neighbors_ : int
        Neighbors used; 0 without a graph.
    %(unidentified_rows_)s
    transposed_ : bool
        Whether the kernel is that of the rows.
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
    >>> from ncarl import NCARL
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(60, 40, rank=3, missing=0.5)
    >>> filled = NCARL(alpha=0).fit_transform(data.X)
    >>> bool(abs(filled - data.truth).max() < 0.1)
    True
    """

    alpha: float = 100.0
    n_neighbors: int = 10
    gamma: float | None = None
    graph: Any = "adaptive"
    weights: str = "floor"
    delta: float = 1e-6
    center: str | None = None
    orientation: str = "auto"
    max_iter: int = 50
    tol: float = 1e-4
    dtype: str = "float64"
    scale: str | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the kernel of ``X``.

        Parameters
        ----------
        X : array, masked array, frame, sparse matrix or source of rows
            Matrix with missing entries: NaN, masked, null, or not stored. A source
            (`ncarl.open_rows`), a Dask array or a collection of row blocks is read
            once in every step and never held as a whole.
        %(y)s
        """
        settings = self._check_all_params()
        engine = pick_engine(self.engine, data=X)
        data = self._load_training_data(X, engine)
        dataset = data.dataset
        check_graph_size(settings.graph, dataset.summary.shape[1])
        problem = self._make_problem(dataset, self.center, engine)
        orientation = "rows" if self.transposed_ else "columns"
        checkpoint = open_checkpoint(self, dataset, orientation=orientation)
        with self._observers(settings.max_iter, "NCARL") as observers:
            result = problem.run(settings, checkpoint=checkpoint, observers=observers)
        return self._finalize_fit(data, problem, settings, result)

    def _check_all_params(self) -> Settings:
        check_run_options(self)
        return make_settings(self)

"""WideNCARL: NCARL and NCARL-noisy for more columns than an n x n kernel allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, Self

from sklearn.utils.validation import check_is_fitted

from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines.base import Engine
from ncarl.estimators.ncarl import KernelEstimator, TrainingData
from ncarl.estimators.validation import (
    check_graph_size,
    check_positions,
    check_run_options,
    make_settings,
    open_checkpoint,
)
from ncarl.fitting.ncarl import Settings
from ncarl.validation import check_integer
from ncarl.wide.rows import WideKernel
from ncarl.wide.solver import WideKernelProblem, pick_wide_engine


@dataclass(eq=False, repr=False)
class WideNCARL(KernelEstimator):
    r"""`NCARL` for more columns than an n x n kernel allows: 50,000 and more.

    The kernel is kept as a sparse matrix plus thin factors, ``K = T + F F^T``, and all
    steps only multiply by it. Memory grows with the columns times ``rank``, the edges
    of the graph, and the observed entries.

    Parameters
    ----------
    %(alpha n_neighbors gamma)s
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
    %(center)s
    max_iter : int, default=50
        Maximum number of steps.
    tol : float, default=1e-4
        Stop once the relative change of the Gram matrix is below this; 0 runs all
        steps. The change is that of its leading part and its diagonal.
    engine : {"auto", "threads"} or Threads, default="auto"
        Both names mean threads on this machine; `Threads` has options.
    %(dtype progress callback checkpoint scale)s

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
    %(unidentified_rows_)s

    Notes
    -----
    Weights are those of ``NCARL(weights="floor")``: directions below a floor all have
    the same weight, and only those above it need to be computed. If more than ``rank``
    lie above it (data with a flat spectrum, and the first steps of any fit) the model
    approximates that of `NCARL`; the docs say how well.

    Examples
    --------
    >>> from ncarl import WideNCARL
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(60, 40, rank=3, missing=0.5)
    >>> filled = WideNCARL(alpha=0).fit_transform(data.X)
    >>> bool(abs(filled - data.truth).max() < 0.1)
    True
    """

    alpha: float = 100.0
    n_neighbors: int = 10
    gamma: float | None = None
    graph: Any = "adaptive"
    delta: float = 1e-6
    rank: int | None = None
    center: str | None = None
    max_iter: int = 50
    tol: float = 1e-4
    dtype: str = "float64"
    scale: str | None = None

    weights = "floor"
    _problem_class = WideKernelProblem

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the kernel of ``X``.

        Parameters
        ----------
        %(X y)s
        """
        settings, rank = self._check_all_params()
        engine = self._resolve_engine()
        observed = self._read_training_matrix(X)
        training = TrainingData(observed, InMemoryDataset(observed))
        self.transposed_ = False
        check_graph_size(settings.graph, observed.shape[1])
        problem = self._make_problem(training.dataset, self.center, engine)
        config = problem.wide_config(settings, rank)
        checkpoint = open_checkpoint(
            self, training.dataset, rank=config.rank, graph=settings.graph
        )
        with self._observers(settings.max_iter, "WideNCARL") as observers:
            result = problem.run_wide(
                settings, config, checkpoint=checkpoint, observers=observers
            )
        self.rank_ = config.rank
        return self._finalize_fit(training, problem, settings, result)

    def _check_all_params(self) -> tuple[Settings, int | None]:
        check_run_options(self)
        rank = self.rank
        if rank is not None:
            rank = check_integer("rank", rank, low=1, hint="; None chooses one")
        return make_settings(self, sparse_graph=True), rank

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
        return len(self._fitted_kernel().F)

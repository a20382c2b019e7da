"""What all kernel estimators share: completion, prediction, score, saving."""

from __future__ import annotations

import os
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ncarl.containers import give_back, read
from ncarl.core.types import Array
from ncarl.engines import Engine, pick_engine
from ncarl.estimators.asked import (
    is_matrix,
    known_in,
    position_pair,
    refuse_large,
    std_kind,
)
from ncarl.estimators.outcome import report
from ncarl.estimators.parameters import ORIENTATIONS, check_choice, check_flag
from ncarl.fitting import Settings, Workspace
from ncarl.holdout import hold_out
from ncarl.loop import Result
from ncarl.metrics import relative_rmse
from ncarl.model import KernelModel
from ncarl.observed import Observed
from ncarl.solver import Iterate

#: Dense results of sparse input are refused above this size unless asked for.
MAX_DENSE_GB = 8.0
CENTERS = (None, "mean", "columns", "two-way")


class KernelEstimator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators whose whole state is one kernel.

    Subclasses store their parameters and implement ``fit``.
    """

    engine: str | Engine
    model_: Any
    #: Fitted attributes that a saved model keeps as they are.
    _scalars: tuple[str, ...] = (
        "n_iter_",
        "converged_",
        "n_neighbors_",
        "transposed_",
        "engine_",
    )
    #: Whether columns have something of their own, so that others cannot be completed.
    _own_columns = False
    #: What puts the kernel on the columns.
    _columns_hint = "orientation='columns'"
    #: What to do where standard deviations are asked of a model without noise.
    _noise_hint = "gamma=None has none; set gamma to a positive number"

    def __sklearn_tags__(self) -> Any:
        """Gaps are welcome, sparse input too, float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """Fit to ``X`` and complete it; options are those of ``transform``."""
        return self.fit(X, y).transform(X, **options)

    def transform(
        self,
        X: Any,
        keep_observed: bool = True,
        return_std: bool | Literal["latent"] = False,
        max_dense_gb: float = MAX_DENSE_GB,
    ) -> Any:
        """Complete the rows of ``X``, which need not be those of the fit.

        Parameters
        ----------
        X : array, masked array, frame or sparse matrix of shape (m, n)
            Rows with gaps. With the kernel on the rows (``orientation``), columns
            with gaps: the rows must then be those of the fit.
        keep_observed : bool
            Give observed entries back bit for bit; otherwise the smoothed values of
            the model (they differ from the observed ones only if ``gamma`` is set).
        return_std : bool or "latent"
            Give standard deviations too: of an entry as it would be observed, or of
            the value behind it. Needs ``gamma``.
        max_dense_gb : float
            A dense result of sparse input larger than this is refused.

        Returns
        -------
        filled : container like ``X``; a dense array if ``X`` is sparse
            The completed matrix.
        std : array of shape (m, n)
            Only if asked for; 0 at observed entries that were kept.
        """
        check_is_fitted(self)
        keep = check_flag("keep_observed", keep_observed)
        std = std_kind(return_std, self._noise_level(), self._noise_hint)
        if sparse.issparse(X):
            refuse_large(X.shape, max_dense_gb)
        observed = self._read_rows(X)
        filled, deviations = self._completed(observed, std)
        result = give_back(X, filled, keep_observed=keep, plain=self._plain_output())
        if deviations is None:
            return result
        if keep:
            deviations[observed.rows, observed.indices] = 0.0
        return result, deviations

    def predict(
        self,
        rows: Any,
        cols: Any = None,
        return_std: bool | Literal["latent"] = False,
        *,
        X: Any = None,
    ) -> Any:
        """Values of the model at single entries, or at all entries of a matrix.

        Parameters
        ----------
        rows, cols : array-like of int, shape (entries,)
            Positions, counted from 0. Without ``cols``, ``rows`` is a matrix like
            that of ``transform`` and every entry of it is predicted, which is what
            scikit-learn's tools expect of ``predict``.
        return_std : bool or "latent"
            Give standard deviations too; needs ``gamma``.
        X : container, optional
            The matrix that the positions refer to; by default that of the fit.

        Returns
        -------
        values : array of shape (entries,), or (m, n) for a matrix
            Predictions; at observed entries the smoothed value.
        std : array of the same shape
            Only if asked for.
        """
        check_is_fitted(self)
        std = std_kind(return_std, self._noise_level(), self._noise_hint)
        if cols is None:
            if sparse.issparse(rows):
                refuse_large(rows.shape, MAX_DENSE_GB)
            values, deviations = self._completed(self._read_rows(rows), std)
            return values if deviations is None else (values, deviations)
        observed = self._training_entries() if X is None else self._read_rows(X)
        i, j = position_pair(rows, cols, observed.shape)
        if len(i) == 0:
            empty = np.empty(0)
            return (empty, empty.copy()) if std else empty
        values, deviations = self._predicted(observed, i, j, std)
        return values if deviations is None else (values, deviations)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the relative root mean square error; higher is better.

        Parameters
        ----------
        X : container of shape (m, n)
            Rows with gaps.
        y : container of shape (m, n), optional
            The truth: entries missing in ``X`` and known in ``y`` are scored. Without
            it a fixed tenth of the observed entries of ``X`` is hidden, completed from
            the rest and scored.
        """
        check_is_fitted(self)
        observed = self._read_rows(X)
        if y is None or not is_matrix(y):
            kept, hidden = hold_out(observed, 0.1, np.random.default_rng(0))
        else:
            kept, hidden = observed, known_in(self, observed, y)
        if hidden.n_observed == 0:
            raise ValueError(
                "nothing to score: no entry is missing in X and known in y, or X has "
                "too few observed entries to hide a tenth of them"
            )
        i, j = hidden.rows, hidden.indices.astype(np.int64)
        guess, _ = self._predicted(kept, i, j, None)
        return -relative_rmse(hidden.values, guess)

    def save(
        self, path: str | os.PathLike[str], *, training_data: bool = False
    ) -> None:
        """Write the fitted model to a file that `ncarl.load` reads.

        Parameters
        ----------
        path : path
            The file; it is replaced as a whole, readable by its owner only.
        training_data : bool
            Keep the observed entries of the fit too, so that ``predict`` works after
            loading without ``X``. They are your data: left out unless asked for.
        """
        from ncarl.saving import save_estimator

        save_estimator(self, path, training_data=training_data)

    @property
    def kernel_(self) -> Array:
        """Covariance of the columns (of the rows if ``transposed_``), (n, n)."""
        check_is_fitted(self)
        K = self.model_.kernel.K.view()
        K.flags.writeable = False  # the model works with it
        return K

    def _engine(self) -> Engine:
        """The engine that the parameter names."""
        fitted_here = getattr(self, "_engine_picked", False)
        return pick_engine(self.engine, again=fitted_here)

    def _plain_output(self) -> bool:
        """Whether ``set_output`` asks for a container of its own."""
        own = getattr(self, "_sklearn_output_config", {}).get("transform")
        return bool((own or get_config()["transform_output"]) != "default")

    def _completed(
        self, observed: Observed, std: str | None
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix and its standard deviations, turned as the user's."""
        turned = observed.transposed() if self.transposed_ else observed
        filled, deviations = self.model_.complete(turned, self._engine(), std=std)
        if not self.transposed_:
            return filled, deviations
        filled = np.ascontiguousarray(filled.T)
        return filled, None if deviations is None else np.array(deviations.T, order="C")

    def _predicted(
        self, observed: Observed, i: Array, j: Array, std: str | None
    ) -> tuple[Array, Array | None]:
        """Smoothed values at single entries, and their standard deviations."""
        if self.transposed_:
            observed, i, j = observed.transposed(), j, i
        model: KernelModel = self.model_
        return model.predict(observed, i, j, self._engine(), std=std)

    def _noise_level(self) -> float:
        """Noise of the model in the units of its kernel; 0 if it has none."""
        return float(self.model_.kernel.s)

    def _kernel_size(self) -> int:
        """Columns (rows, if ``transposed_``) that the kernel has."""
        return int(self.model_.kernel.K.shape[0])

    def _read_rows(self, X: Any) -> Observed:
        """Entries of a matrix that the fitted kernel can complete."""
        same = self._own_columns or not self.transposed_
        observed = read(self, X, reset=False, same_columns=same)
        wanted = self._kernel_size()
        if self.transposed_ and observed.shape[0] != wanted:
            raise ValueError(
                f"the kernel sits on the rows, so X must have the {wanted} rows of the "
                f"fit, got {observed.shape[0]}; fit with {self._columns_hint} to "
                "complete new rows"
            )
        return observed

    def _training_entries(self) -> Observed:
        """Observed entries of the fit."""
        if getattr(self, "training_", None) is None:
            raise ValueError(
                "the training entries were not kept with this model; pass X=..., or "
                "save it with training_data=True"
            )
        entries: Observed = self.training_
        return entries

    def _model_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The model as a saved file holds it."""
        from ncarl.saving import model_state

        return model_state(self.model_)

    def _set_model_state(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Take up the model that a saved file holds."""
        from ncarl.saving import restored_model

        self.model_ = restored_model(header, arrays)

    def _read_fit(self, X: Any) -> Observed:
        """Entries of the matrix of a fit."""
        observed = read(self, X, reset=True)
        if observed.n_observed == 0:
            raise ValueError(
                f"X has no observed entry (all {observed.shape[0]} x "
                f"{observed.shape[1]} are missing); nothing can be learned from it"
            )
        return observed

    def _begin(self, X: Any) -> tuple[Observed, Observed]:
        """Read ``X`` for a fit: its entries as given, and as the kernel sees them."""
        observed = self._read_fit(X)
        turned = check_choice("orientation", self.orientation, ORIENTATIONS)
        wide = observed.shape[0] < observed.shape[1]
        self.transposed_ = turned == "rows" or (
            turned == "auto" and wide and not self._columns_only()
        )
        return observed, observed.transposed() if self.transposed_ else observed

    def _keeps_empty(self) -> bool:
        """Whether columns in which nothing is observed take part in the fit."""
        given = self.graph is not None and not isinstance(self.graph, str)
        return self.weights == "pinv" or given

    def _columns_only(self) -> bool:
        """Whether the settings make sense with the kernel on the columns only."""
        return getattr(self, "scale", None) == "columns"

    def _center_mode(self, center: Any) -> str:
        """The centring as the kernel's orientation sees it."""
        check_choice("center", center, CENTERS)
        if center == "columns" and self.transposed_:
            return "rows"
        return center or "none"

    def _finish(
        self,
        observed: Observed,
        workspace: Workspace,
        settings: Settings,
        result: Result[Iterate],
    ) -> Self:
        """Set the fitted attributes from a run."""
        self.model_ = workspace.model(settings, result)
        self.training_ = observed
        self.history_ = {name: np.asarray(col) for name, col in result.history.items()}
        self.n_iter_ = int(result.last.step)
        self.converged_ = result.converged
        self.n_neighbors_ = workspace.neighbors(settings)
        self.engine_ = workspace.engine.describe()
        self._engine_picked = True
        self.similarity_ = workspace.similarity(result)
        self.unidentified_rows_ = np.flatnonzero(observed.row_counts == 0)
        self.unidentified_columns_ = np.flatnonzero(observed.column_counts == 0)
        if result.interrupted:
            raise KeyboardInterrupt
        report(type(self).__name__, settings, result)
        return self

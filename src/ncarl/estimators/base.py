"""What all estimators share: completion, prediction, score, saving."""

from __future__ import annotations

import os
from abc import ABCMeta, abstractmethod
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ncarl.containers import as_source, give_back, read
from ncarl.core.types import Array
from ncarl.engines import Engine, pick_engine
from ncarl.estimators.asked import (
    Asked,
    checked_outputs,
    is_matrix,
    known_in,
    nothing_observed,
    position_pair,
    refuse_large,
    std_kind,
)
from ncarl.estimators.blockwise import (
    check_names,
    checked_truth,
    complete_source,
    complete_to_file,
    gathered,
    predict_in,
    score_in,
)
from ncarl.estimators.parameters import check_flag
from ncarl.holdout import hold_out
from ncarl.metrics import relative_rmse
from ncarl.observed import Observed
from ncarl.sources import RowSource

#: Dense results of sparse input are refused above this size unless asked for.
MAX_DENSE_GB = 8.0
CENTERS = (None, "mean", "columns", "two-way")


class Completer(
    OneToOneFeatureMixin, TransformerMixin, BaseEstimator, metaclass=ABCMeta
):
    """Base of all estimators.

    Subclasses store their parameters, implement ``fit``, and say what their model
    makes of observed entries (``_completed``, ``_predicted``, ``_read_rows``).
    """

    engine: str | Engine
    model_: Any
    #: Fitted attributes that a saved model keeps as they are.
    _scalars: tuple[str, ...] = ()
    #: Whether a fit leaves a graph of the columns behind.
    _has_graph = False
    #: What to do where standard deviations are asked of a model without noise.
    _noise_hint = ""

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
        out: str | os.PathLike[str] | None = None,
        out_std: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Complete the rows of ``X``, which need not be those of the fit.

        Parameters
        ----------
        X : array, masked array, frame, sparse matrix or source of rows
            Rows with gaps. Where a kernel sits on the rows, columns with gaps: the
            rows must then be those of the fit. Models of one matrix take that of the
            fit only. Rows of a source (`ncarl.open_rows`) are completed from the
            columns alone, as new rows are.
        keep_observed : bool
            Give observed entries back bit for bit; otherwise the smoothed values of
            the model, which differ from them where it allows for noise.
        return_std : bool or "latent"
            Give standard deviations too: of an entry as it would be observed, or of
            the value behind it. Needs a model of the noise.
        max_dense_gb : float
            A dense result of sparse input or of a source larger than this is refused,
            unless it is written to a file.
        out : path, optional
            File (.npy, .parquet, .csv, .tsv) or folder (.zarr) to write the completed
            rows to, block by block; what stood there is replaced when all is written.
        out_std : path, optional
            The same for the standard deviations.

        Returns
        -------
        filled : container like ``X``; a dense array if ``X`` is sparse or a source
            The completed matrix; the path if ``out`` is given; a Dask array, which is
            worked out when it is asked for, if ``X`` is one.
        std : array of shape (m, n)
            Only if asked for; 0 at observed entries that were kept.
        """
        check_is_fitted(self)
        keep = check_flag("keep_observed", keep_observed)
        std = std_kind(return_std, self._noise_level(), self._noise_hint)
        asked = Asked(std, keep, max_dense_gb, *checked_outputs(out, out_std, std))
        source = self._source_of(X)
        if source is not None:
            return complete_source(self, X, source, asked)
        if asked.out is not None:
            return complete_to_file(self, X, asked)
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
            Give standard deviations too; needs a model of the noise.
        X : container or source of rows, optional
            The matrix that the positions refer to; by default that of the fit, if it
            was in memory.

        Returns
        -------
        values : array of shape (entries,), or (m, n) for a matrix
            Predictions; at observed entries the smoothed value.
        std : array of the same shape
            Only if asked for.
        """
        check_is_fitted(self)
        std = std_kind(return_std, self._noise_level(), self._noise_hint)
        source = self._source_of(rows if cols is None else X)
        if source is not None and cols is None:
            return gathered(self, source, Asked(std, False, MAX_DENSE_GB))
        if source is not None:
            values, deviations = predict_in(self, source, rows, cols, std)
            return values if deviations is None else (values, deviations)
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
        X : container of shape (m, n), or source of rows
            Rows with gaps.
        y : container of shape (m, n), optional
            The truth: entries missing in ``X`` and known in ``y`` are scored. Without
            it a fixed tenth of the observed entries of ``X`` is hidden (of a source:
            in every chunk), completed from the rest and scored.
        """
        check_is_fitted(self)
        source = self._source_of(X)
        if source is not None:
            return score_in(self, source, checked_truth(y))
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

    def _engine(self) -> Engine:
        """The engine that the parameter names."""
        fitted_here = getattr(self, "_engine_picked", False)
        return pick_engine(self.engine, again=fitted_here)

    def _plain_output(self) -> bool:
        """Whether ``set_output`` asks for a container of its own."""
        own = getattr(self, "_sklearn_output_config", {}).get("transform")
        return bool((own or get_config()["transform_output"]) != "default")

    def _noise_level(self) -> float:
        """Noise of the model; 0 if it has none, and so no standard deviations."""
        return 0.0

    def _source_of(self, X: Any) -> RowSource | None:
        """``X`` as a source whose rows the model can complete, if it is no matrix."""
        source = as_source(X)
        if source is not None:
            check_names(self, source)
            self._check_row_by_row("a source of rows")
        return source

    def _completes_row_by_row(self, observed: Observed) -> bool:
        """Whether nothing is known of these rows that they do not say one by one."""
        return False

    def _check_row_by_row(self, what: str) -> None:
        """Raise where rows cannot be completed one apart from the other."""
        raise TypeError(
            f"{type(self).__name__} completes the matrix of its fit as a whole, which "
            f"{what} does not allow; use NCARL or BayesianNCARL"
        )

    @abstractmethod
    def _read_rows(self, X: Any) -> Observed:
        """Entries of a matrix that the fitted model can complete."""

    @abstractmethod
    def _completed(
        self, observed: Observed, std: str | None, *, apart: bool = False
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix and its standard deviations.

        ``apart`` leaves out what is known of the matrix of the fit alone.
        """

    @abstractmethod
    def _predicted(
        self, observed: Observed, i: Array, j: Array, std: str | None, *,
        apart: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Smoothed values at single entries, and their standard deviations."""

    def _training_entries(self) -> Observed:
        """Observed entries of the fit."""
        if getattr(self, "training_", None) is None:
            raise ValueError(
                "the training entries were not kept with this model; pass X=... (a "
                "fit of a source keeps none, a saved model only those asked for by "
                "training_data=True)"
            )
        entries: Observed = self.training_
        return entries

    def _read_fit(self, X: Any) -> Observed:
        """Entries of the matrix of a fit."""
        if as_source(X) is not None:
            raise TypeError(
                f"{type(self).__name__} needs its matrix in memory; NCARL and "
                "BayesianNCARL learn from sources of rows and from Dask arrays"
            )
        observed = read(self, X, reset=True)
        if observed.n_observed == 0:
            raise ValueError(nothing_observed(observed.shape))
        return observed

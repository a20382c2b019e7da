"""`BayesianNCARL`: learned noise, a prior correlation of the columns, error bars."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes.em import model_covariance
from ncarl.bayes.mixture_model import MixtureModel
from ncarl.bayes.model import TwoSidedModel
from ncarl.bayes.selection import (
    BayesianFit,
    BayesianFitResult,
    FitConfig,
    is_read_into_memory,
    make_model_configs,
)
from ncarl.centering import compare_column_units, fit_scaler, fit_value_bounds
from ncarl.containers import as_source
from ncarl.core.linalg import correlation_from_covariance
from ncarl.core.types import Array
from ncarl.dataset import Dataset, InMemoryDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.engines.cores import limit_blas_threads
from ncarl.estimators.base import (
    CONVERGENCE_HINT,
    MAX_DENSE_GB,
    OutputColumns,
    Prediction,
)
from ncarl.estimators.ncarl import KernelEstimator, TrainingData
from ncarl.estimators.validation import (
    check_clip,
    check_component_rows,
    check_dense_size,
    check_noise,
    check_positions,
    check_prior,
    check_threads_engine,
    make_fit_config,
    make_missing_indicator,
    mark_missing,
    open_checkpoint,
)
from ncarl.observations import Observations
from ncarl.validation import check_fraction, check_integer

#: Correlations kept for every column, and the smallest that is kept.
N_STRONGEST, MIN_CORRELATION = 10, 0.05


@dataclass(eq=False, repr=False)
class BayesianNCARL(KernelEstimator):
    r"""Matrix completion with learned noise, a prior correlation and error bars.

    Rows are draws :math:`x \sim N(\mu, K)` of which some entries are observed with
    noise. Kernel, noise and means are learned by EM, with a prior under which columns
    that are observed together are correlated; the residuals of the most similar rows
    correct what one kernel for all rows misses. There is nothing to tune: a tenth of
    the entries is held out to choose the strength of the prior, the number of steps,
    the weights of both sides and of similar rows, and the width of error bars.

    Parameters
    ----------
    prior : {"co-observation", "identity"} or array, default="co-observation"
        Prior correlation of the columns: from the pattern of observed entries; none; a
        correlation matrix (n, n); or features of the columns (n, d), used together with
        the pattern.
    prior_strength : "auto" or float, default="auto"
        Pseudo-rows that the prior counts as, over the longer side of the matrix.
    center : {"two-way", "columns", "mean", None}, default="two-way"
        Mean of the model; with "two-way" column means and row effects are learned.
    noise : {"per-column", "learn"} or float, default="per-column"
        "per-column" learns a noise variance for each column, shrunk toward a common
        one, "learn" a common one; a number is the standard deviation of the noise. 0
        is a model without noise and error bars.
    sides : {"auto", "columns", "rows", "both"}, default="auto"
        Which sides of the matrix carry a kernel. "auto" imputes the matrix of the fit
        from both, corrected by the most similar rows, where that is affordable and
        lowers the held-out error; new rows are imputed from the columns.
    max_iter : int, default=100
        Maximum number of steps of a run.
    tol : float, default=1e-5
        A run has converged once a step raises the log evidence by less than this for
        every observed entry.
    clip : "auto", None or (low, high), default="auto"
        Bounds of imputed values; "auto" clips them to an end of the observed range that
        many entries have, as in ratings.
    rounding : {None, "observed"}, default=None
        "observed" rounds imputed values to levels that were observed.
    scale : {"auto", None, "columns"}, default="auto"
        "columns" divides every column by its standard deviation first; "auto" does so
        if these differ by a factor of 5 (between their 10th and 90th percentiles),
        unless the ``noise`` is given and not 0.
    validation : float, default=0.1
        Fraction of the entries that is held out first. With 0 EM runs until it
        converges with ``prior_strength`` 0.1, both sides weigh the same, similar rows
        are not used, standard deviations are those of the model, which are usually too
        small, and intervals are those of a normal distribution.
    random_state : int, default=0
        Seed of the held-out entries.
    engine : {"auto", "threads", "torch", "dask"} or Engine, default="auto"
        Where the computation runs; see `NCARL`.
    %(dtype progress callback checkpoint)s
    missing_values : number, np.nan, None or pandas.NA, default=np.nan
        A number marks missing entries in the input of all methods (of a sparse matrix:
        among the stored entries), besides NaN, null, masked and not stored ones.
    add_indicator : bool, default=False
        Append the columns of a `sklearn.impute.MissingIndicator` to the result of
        ``transform``, for every column that had missing entries in the fit.
    keep_empty_features : bool, default=True
        Whether columns without observed entries in the fit, which are imputed from the
        prior, are part of the result of ``transform``.
    components : int or "auto", default=1
        Number of normal distributions of the rows. More than one are a mixture around
        the kernel of the columns, for tables with several kinds of rows. "auto" tries
        4, 8 and 16 where that is affordable, and takes what lowers the held-out error,
        or 1. A mixture is computed on threads of this process and in double precision,
        its rows must be in memory and have noise, and similar rows correct nothing.

    Attributes
    ----------
    kernel_ : array of shape (n, n)
        Covariance of the columns, of the whole mixture if it is one (of the rows with
        ``sides="rows"``).
    noise_ : float, or array of shape (n,)
        Standard deviation of the noise, one for each column if these differ.
    log_evidence_ : float
        Log density of the observed entries under the column side.
    components_ : int
        Number of normal distributions of the rows.
    mixture_weights_ : array of shape (n_components,)
        Their weights.
    similarity_ : scipy.sparse.csr_array of shape (n, n)
        The strongest correlations of every column, without the row effects.
    history_ : dict of arrays
        Per step of the last run of the columns, with one component: ``log_evidence``,
        ``penalized_evidence``, ``objective`` (minus the latter), ``change``, seconds.
    n_iter_, converged_, prior_strength_ : int, bool and float
        Number of steps, whether the runs converged, strength of the prior.
    sides_, weight_ : str and float
        Sides that carry a kernel; weight of the columns in the matrix of the fit.
    neighbor_correction_ : dict or None
        How the most similar rows correct the matrix of the fit: ``n_neighbors``, the
        ``weight`` of their mean error, the factor of standard deviations
        (``std_factor``).
    search_ : list of dict
        The trials on held-out entries: side, strength, steps, error; of mixtures also
        ``components`` and the pseudo-rows (``shrinkage_rows``) that shrink these.
    std_factors_ : array of shape (n,) or None
        What the standard deviations of the model, of latent values too, are multiplied
        by in each column of the matrix of the fit, so that held-out errors over them
        have a mean square of 1. None if nothing was held out.
    calibration_ : float
        Root mean square of held-out errors over their standard deviations: 1, or a
        little less if few were held out and the factors allow for that; else NaN.
    held_out_coverage_ : float
        Fraction of held-out errors within 1.96 standard deviations, 0.95 if they are
        normal.
    held_out_error_, side_errors_ : float, dict of float
        Root mean square error on the held-out entries, and that of each side alone, in
        standard deviations of the columns if these were scaled.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries.
    indicator_ : sklearn.impute.MissingIndicator or None
        The indicator of missing entries, with ``add_indicator``.
    engine_ : str
        The engine that ran, and why.

    Notes
    -----
    With :math:`A = K_{oo} + s I` and :math:`y = A^{-1} (v - \mu_o)` for each row, a
    step takes :math:`B = \sum A^{-1} - y y^T` (scattered) from one pass over the rows,
    and :math:`K \leftarrow (m S + \nu \tau \Psi) / (m + \nu)` with
    :math:`S = K - K B K / m - d d^T`. Steps are over-relaxed as long as the penalized
    evidence rises. Entries that a sparse matrix does not store are missing, never zero.

    Examples
    --------
    >>> from ncarl import BayesianNCARL
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(80, 12, rank=2, factors="gaussian", missing=0.3)
    >>> model = BayesianNCARL().fit(data.X)
    >>> filled, std = model.transform(data.X, return_std=True)
    >>> bool(abs(filled - data.truth).mean() < 0.1)
    True
    >>> low, high = model.predict_interval([0, 1], [3, 5], level=0.9)
    """

    prior: Any = "co-observation"
    prior_strength: str | float = "auto"
    center: str | None = "two-way"
    noise: str | float = "per-column"
    sides: str = "auto"
    max_iter: int = 100
    tol: float = 1e-5
    clip: Any = "auto"
    rounding: str | None = None
    scale: str | None = "auto"
    validation: float = 0.1
    random_state: int = 0
    dtype: str = "float64"
    missing_values: Any = np.nan
    add_indicator: bool = False
    keep_empty_features: bool = True
    components: int | str = 1

    _requires_same_columns = True  # each has its own unit and bounds
    _columns_hint = "sides='columns' or 'both'"
    _noise_hint = "noise=0 has none; use noise='learn'"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn kernel, noise and means of ``X``.

        Parameters
        ----------
        X : array, masked array, frame, sparse matrix or source of rows
            Matrix with missing entries. A source (`ncarl.open_rows`), a Dask array or a
            collection of row blocks gets a kernel of its columns alone; past 5 million
            entries it is read once in every step and never held as a whole.
        %(y)s
        """
        config, noise, clip = self._check_all_params()
        engine = self._pick_engine(self.components, X)
        data, config = self._load_data_and_sides(self._mark_missing(X), engine, config)
        dataset = data.dataset
        check_component_rows(self.components, dataset)
        n, rows_only = dataset.summary.shape[1], self.sides == "rows"
        prior = check_prior(self.prior, n, rows_only=rows_only)
        scaled = self._should_scale_columns(dataset, noise)
        scaler = fit_scaler(dataset, per_column=scaled)
        if not isinstance(noise, str):
            noise = noise / scaler.unit
        model_configs = make_model_configs(
            prior=prior, center=self.center or "none", noise=noise, dtype=self.dtype
        )
        result = BayesianFit(
            dataset,
            scaler.transform,
            config,
            model_configs,
            engine,
            make_observers=partial(self._observers, config.max_iter),
            checkpoint=open_checkpoint(
                self,
                dataset,
                "stages",
                prior=prior,
                sides=config.sides,
                scale=scaled,
                tol=config.tol,
                max_iter=config.max_iter,
            ),
        ).run()
        rows = None if result.rows is None else result.rows.model
        assert not isinstance(rows, MixtureModel)
        bounds = fit_value_bounds(
            dataset, clip, rounded=self.rounding is not None, by_column=scaled
        )
        self.model_ = TwoSidedModel(
            scaler,
            bounds,
            None if result.columns is None else result.columns.model,
            rows,
            result.blend.weight,
            result.blend.neighbor_correction,
            result.blend.std_factors,
            result.blend.blended_std_factors,
        )
        return self._set_fitted_attributes(data, result, engine)

    def _check_all_params(self) -> tuple[FitConfig, str | float, Any]:
        return make_fit_config(self), check_noise(self.noise), check_clip(self.clip)

    @property
    def kernel_(self) -> Array:
        """Covariance of the columns (of the rows if ``transposed_``), (n, n)."""
        check_is_fitted(self)
        unit = self.model_.scaler.unit
        with np.errstate(over="ignore"):
            return self._kernel_in_internal_unit() * unit * unit

    @property
    def noise_(self) -> Any:
        """Standard deviation of the noise; one per column (row) if these differ."""
        check_is_fitted(self)
        side, scaler = self._main_model(), self.model_.scaler
        stds = side.centering.column_scales * np.sqrt(side.kernel.s) * scaler.unit
        if not self.transposed_:
            stds = stds * scaler.centering.column_scales
        return float(stds[0]) if bool(np.all(stds == stds[0])) else stds

    @property
    def components_(self) -> int:
        """Number of normal distributions of the rows."""
        return len(self.mixture_weights_)

    @property
    def mixture_weights_(self) -> Array:
        """Weights of the normal distributions of the rows."""
        check_is_fitted(self)
        columns = self.model_.columns
        if isinstance(columns, MixtureModel):
            return columns.mixture.weights.copy()
        return np.ones(1)

    @property
    def std_factors_(self) -> Array | None:
        """Factors of the standard deviations in the matrix of the fit, by column."""
        check_is_fitted(self)
        factors: Array | None = self.model_.blended_std_factors
        return factors

    @limit_blas_threads(1)
    def predict_interval(
        self, rows: Any, cols: Any = None, level: float = 0.9, *, X: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends of prediction intervals of entries.

        They are calibrated on held-out entries (split conformal prediction): about
        ``level`` of the entries that are missing in the same way, observed with their
        noise, lie in their intervals, whatever the distribution of the errors.

        Parameters
        ----------
        rows, cols : array-like of int, shape (entries,)
            Positions, counted from 0. Without ``cols``, ``rows`` is a matrix and every
            entry of it gets an interval.
        level : float
            Fraction of the entries to be covered, between 0 and 1.
        X : container, optional
            The matrix that the positions refer to; by default that of the fit.

        Returns
        -------
        low, high : arrays of shape (entries,), or (m, n) for a matrix
            Ends of the intervals.
        """
        check_is_fitted(self)
        _check_in_memory(rows if cols is None else X, "predict_interval")
        part = check_fraction("level", level, strict=True)
        if self._noise_level() == 0.0:
            raise ValueError(
                f"intervals need a model of the noise, and {self._noise_hint}"
            )
        j: Any = slice(None)
        if cols is None:
            observed = self._read_rows(self._mark_missing(rows))
            check_dense_size(observed.shape, MAX_DENSE_GB)
            predict = self.model_.complete
        else:
            observed = self._entries_to_predict(X)
            i, j = check_positions(rows, cols, observed.shape)
            if len(i) == 0:
                return np.empty(0), np.empty(0)
            predict = partial(self.model_.predict, i=i, j=j)
        transductive = self._is_training(observed)
        x, std = predict(
            observed,
            engine=self._resolve_engine(),
            std="observed",
            transductive=transductive,
        )
        scores = self.blended_scores_ if transductive else self.scores_
        down, up = scores.quantiles(part)
        bounds, scaler = self.model_.bounds, self.model_.scaler
        low = bounds.clip(scaler.inverse_transform(x - down * std, j), j)
        high = bounds.clip(scaler.inverse_transform(x + up * std, j), j)
        return low, high

    @limit_blas_threads(1)
    def sample(
        self, n_draws: int = 1, random_state: int = 0, *, X: Any = None
    ) -> Array:
        """Draw completed matrices from the posterior, for multiple imputation.

        Parameters
        ----------
        n_draws : int
            Number of draws.
        random_state : int
            Seed.
        X : container, optional
            Rows to complete; by default the matrix of the fit.

        Returns
        -------
        array of shape (n_draws, m, n)
            Observed entries as they are; missing entries, noise included, have the
            means and standard deviations of ``transform``, up to bounds and rounding,
            and those of a row the correlations of their posterior under the column
            side.
        """
        check_is_fitted(self)
        _check_in_memory(X, "sample")
        count = check_integer("n_draws", n_draws, low=1)
        seed = check_integer("random_state", random_state, low=0)
        if self.transposed_:
            raise ValueError(
                "sample draws from the kernel of the columns; fit with sides='columns' "
                "or 'both'"
            )
        observed = self._entries_to_predict(X)
        m, n = observed.shape
        check_dense_size(((count + 1) * m, n), MAX_DENSE_GB)  # and their means
        rng = np.random.default_rng(seed)
        return self.model_.sample_posterior(
            observed,
            count,
            rng,
            self._resolve_engine(),
            transductive=self._is_training(observed),
        )

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns of the result of ``transform``, indicators last.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of the fit, where these had none.
        """
        names = super().get_feature_names_out(input_features)
        columns = self._output_columns()
        return names if columns is None else np.asarray(columns.names(names), object)

    def _pick_engine(
        self, components: int | str, X: Any = None, *, quiet: bool = False
    ) -> Engine:
        if components == 1:
            return pick_engine(self.engine, data=X, quiet=quiet)
        name = self.engine
        engine = pick_engine("threads" if name == "auto" else name, quiet=quiet)
        return check_threads_engine(engine, components)

    def _resolve_engine(self) -> Engine:
        fitted_here = getattr(self, "_engine_picked", False)
        return self._pick_engine(self.components_, quiet=fitted_here)

    def _load_data_and_sides(
        self, X: Any, engine: Engine, config: FitConfig
    ) -> tuple[TrainingData, FitConfig]:
        """Read ``X`` for a fit; a source is fitted with the kernel on the columns.

        A small source is read into memory.
        """
        source = as_source(X)
        if source is None:
            observed = self._read_training_matrix(X)
            return TrainingData(observed, InMemoryDataset(observed)), config
        if config.sides in ("rows", "both"):
            raise ValueError(
                f"sides={config.sides!r} needs the matrix in memory; a source of rows "
                "is fitted with sides='columns', which 'auto' means for it"
            )
        config = replace(config, sides="columns")
        dataset: Dataset = self._make_streamed_dataset(source, engine)
        if is_read_into_memory(dataset.summary):
            dataset = InMemoryDataset(Observations.vstack(list(source)))
        return TrainingData(None, dataset), config

    def _should_scale_columns(self, dataset: Dataset, noise: str | float) -> bool:
        if isinstance(noise, str) or noise == 0.0:
            wanted = self.scale == "auto" and compare_column_units(dataset)[0]
            return wanted or self.scale == "columns"
        if self.scale == "columns":
            raise ValueError(
                f"noise={self.noise!r} is in the units of the values, and with "
                "scale='columns' each column has its own; use noise='per-column', or "
                "scale=None"
            )
        return False

    def _set_fitted_attributes(
        self, data: TrainingData, result: BayesianFitResult, engine: Engine
    ) -> Self:
        """Set what depends on ``model_``; re-raise Ctrl-C; warn without convergence."""
        sides = [side for side in (result.columns, result.rows) if side is not None]
        main = sides[0]
        self.transposed_ = result.columns is None
        self.sides_ = "rows" if self.transposed_ else "columns"
        if len(sides) == 2:
            self.sides_ = "both"
        self._set_run_attributes(
            engine, main.history, main.steps, all(side.converged for side in sides)
        )
        self._set_selection_attributes(result)
        self.training_ = data.observed
        transductive = len(sides) == 2 or result.blend.neighbor_correction is not None
        self.training_fingerprint_ = data.dataset.fingerprint() if transductive else ""
        summary = data.dataset.summary
        shift = self.model_.scaler.log_density_shift(summary.column_counts)
        for name in ("log_evidence", "penalized_evidence"):
            self.history_[name] = self.history_[name] + shift
        self.history_["objective"] = self.history_["objective"] - shift
        self.log_evidence_ = main.evidence + shift
        self.prior_strength_ = main.strength
        self.similarity_ = strongest_correlations(
            self._kernel_in_internal_unit(), remove_common=self.center == "two-way"
        )
        self.unidentified_rows_ = summary.empty_rows
        self.unidentified_columns_ = np.flatnonzero(summary.column_counts == 0)
        self.indicator_ = None
        if self.add_indicator:
            missing = summary.column_counts < summary.shape[0]
            self.indicator_ = make_missing_indicator(missing, self.missing_values)
        if any(side.interrupted for side in sides):
            raise KeyboardInterrupt
        if not self.converged_ and float(self.tol) > 0.0:
            warnings.warn(
                f"BayesianNCARL did not converge in max_iter={self.max_iter} steps; "
                f"the best step is kept. {CONVERGENCE_HINT}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return self

    def _set_selection_attributes(self, result: BayesianFitResult) -> None:
        blend, unit = result.blend, self.model_.scaler.error_unit
        self.weight_ = blend.weight
        correction = blend.neighbor_correction
        self.neighbor_correction_ = None if correction is None else asdict(correction)
        self.scores_, self.blended_scores_ = blend.scores, blend.blended_scores
        self.calibration_ = blend.blended_scores.rms
        self.held_out_coverage_ = blend.blended_scores.normal_coverage
        self.held_out_error_ = blend.error * unit
        self.side_errors_ = {side: e * unit for side, e in blend.side_errors.items()}
        self.search_ = [{**t, "error": t["error"] * unit} for t in result.trials]

    def _complete(
        self, observed: Observations, std: str | None, *, inductive: bool = False
    ) -> Prediction:
        transductive = not inductive and self._is_training(observed)
        x, stds = self.model_.complete(
            observed, self._resolve_engine(), std=std, transductive=transductive
        )
        scaler = self.model_.scaler
        filled = self.model_.bounds.clip_and_round_rows(scaler.inverse_transform(x))
        return filled, None if stds is None else scaler.inverse_transform_std(stds)

    def _predict_entries(
        self, observed: Observations, i: Array, j: Array, std: str | None, *,
        inductive: bool = False,
    ) -> Prediction:  # fmt: skip
        transductive = not inductive and self._is_training(observed)
        x, stds = self.model_.predict(
            observed, i, j, self._resolve_engine(), std=std, transductive=transductive
        )
        scaler = self.model_.scaler
        values = self.model_.bounds.clip_and_round(scaler.inverse_transform(x, j), j)
        return values, None if stds is None else scaler.inverse_transform_std(stds, j)

    def _mark_missing(self, X: Any) -> Any:
        return mark_missing(X, self.missing_values)

    def _entries_to_predict(self, X: Any) -> Observations:
        if X is None:
            return self._training_entries()
        return self._read_rows(self._mark_missing(X))

    def _output_columns(self) -> OutputColumns | None:
        if self.keep_empty_features and not self.add_indicator:
            return None
        kept = np.arange(self.n_features_in_)
        if not self.keep_empty_features:
            kept = np.setdiff1d(kept, self.unidentified_columns_)
        if not self.add_indicator:
            return OutputColumns(kept, np.empty(0, dtype=np.int64))
        if self.indicator_ is None:
            raise ValueError(
                "add_indicator=True was set after the fit, which kept no indicator; "
                "fit again"
            )
        return OutputColumns(kept, self.indicator_.features_)

    def _is_training(self, observed: Observations) -> bool:
        """Whether this is the matrix of the fit and predictions depend on that."""
        if self.sides_ != "both" and self.neighbor_correction_ is None:
            return False
        known = self.training_fingerprint_
        return observed is self.training_ or observed.fingerprint() == known

    def _completes_row_by_row(self, observed: Observations) -> bool:
        return not (self.transposed_ or self._is_training(observed))

    def _main_model(self) -> Any:
        return self.model_.rows if self.transposed_ else self.model_.columns

    def _kernel_in_internal_unit(self) -> Array:
        """The kernel before it is multiplied by the common unit of all values."""
        K = model_covariance(self._main_model())
        if not self.transposed_:
            scales = self.model_.scaler.centering.column_scales
            K *= scales[:, None] * scales[None, :]
        return K

    def _kernel_size(self) -> int:
        return int(self._main_model().kernel.K.shape[0])

    def _noise_level(self) -> float:
        return float(self._main_model().kernel.s)

    def _restore_indicator(self) -> None:
        if self.indicator_ is not None:
            missing = np.zeros(self.n_features_in_, dtype=bool)
            missing[self.indicator_] = True
            self.indicator_ = make_missing_indicator(missing, self.missing_values)


def strongest_correlations(K: Array, *, remove_common: bool) -> Any:
    """The strongest correlations of each column with others, as a sparse graph.

    ``remove_common`` removes what all columns have in common, the row effects.
    """
    n = K.shape[0]
    if remove_common and n > 2:
        means = K.mean(axis=0)
        K = K - means[:, None] - means[None, :] + means.mean()
    C = correlation_from_covariance(K)
    np.fill_diagonal(C, 0.0)
    count = min(N_STRONGEST, n - 1)
    if count < 1:
        return csr_array((n, n))
    columns = np.argpartition(-np.abs(C), count - 1, axis=1)[:, :count]
    rows = np.repeat(np.arange(n), count)
    values = C[rows, columns.ravel()]
    kept = np.abs(values) >= MIN_CORRELATION
    positions = (rows[kept], columns.ravel()[kept])
    return csr_array((values[kept], positions), shape=(n, n))


def _check_in_memory(X: Any, method: str) -> None:
    if X is not None and as_source(X) is not None:
        raise TypeError(
            f"{method} takes a matrix in memory, got a source of rows; ask for some of "
            "its rows at a time, or for transform(source, return_std=True, out=..., "
            "out_std=...)"
        )

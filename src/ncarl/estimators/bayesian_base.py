"""What a fitted `BayesianNCARL` can say: values, deviations, intervals, draws."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes import cuts
from ncarl.bayes.fit import Fitted, Plan
from ncarl.bayes.intervals import Scores
from ncarl.bayes.side import covariance_of
from ncarl.containers import as_source
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.asked import position_pair, refuse_large
from ncarl.estimators.base import MAX_DENSE_GB
from ncarl.estimators.correlations import strongest_correlations
from ncarl.estimators.kernel_base import Begun, KernelEstimator
from ncarl.estimators.parameters import check_number, check_whole
from ncarl.observed import Observed
from ncarl.surveys import InMemory


class BayesianEstimator(KernelEstimator):
    """A fitted two-sided model as an estimator; subclasses implement ``fit``."""

    model_: Any
    scores_: Scores
    blended_scores_: Scores
    _scalars = (
        "n_iter_",
        "converged_",
        "transposed_",
        "engine_",
        "sides_",
        "weight_",
        "near_",
        "log_evidence_",
        "prior_strength_",
        "calibration_",
        "held_out_error_",
        "side_errors_",
        "search_",
        "training_fingerprint_",
    )
    _own_columns = True  # units and bounds
    _columns_hint = "sides='columns' or 'both'"
    _noise_hint = "noise=0 has none; use noise='learn'"

    @property
    def kernel_(self) -> Array:
        """Covariance of the columns (of the rows if ``transposed_``), (n, n)."""
        check_is_fitted(self)
        unit = self.model_.standard.unit
        with np.errstate(over="ignore"):
            return self._kernel_in_one_unit() * unit * unit

    def _kernel_in_one_unit(self) -> Array:
        """The kernel before it is multiplied by the common unit of all values."""
        K = covariance_of(self._main_side())
        if not self.transposed_:
            spreads = self.model_.standard.centre.spreads
            K *= spreads[:, None] * spreads[None, :]
        return K

    @property
    def noise_(self) -> Any:
        """Standard deviation of the noise; one a column (row) if these differ."""
        check_is_fitted(self)
        side, standard = self._main_side(), self.model_.standard
        spreads = side.centre.spreads * np.sqrt(side.kernel.s) * standard.unit
        if not self.transposed_:
            spreads = spreads * standard.centre.spreads
        alike = bool(np.all(spreads == spreads[0]))
        return float(spreads[0]) if alike else spreads

    def predict_interval(
        self, rows: Any, cols: Any = None, level: float = 0.9, *, X: Any = None
    ) -> tuple[Array, Array]:
        """Lower and upper ends of intervals that hold an entry as it would be observed.

        They are calibrated on held-out entries: about ``level`` of all entries that
        are missing as those were lie in their intervals, however errors are spread.

        Parameters
        ----------
        rows, cols : array-like of int, shape (entries,)
            Positions, counted from 0. Without ``cols``, ``rows`` is a matrix and every
            entry of it gets an interval.
        level : float
            Part of the entries to be covered, between 0 and 1.
        X : container, optional
            The matrix that the positions refer to; by default that of the fit.
        """
        check_is_fitted(self)
        _refuse_source(rows if cols is None else X, "predict_interval")
        part = check_number("level", level, low=0.0, strict=True)
        if part >= 1.0:
            raise ValueError(f"level must be below 1, got {level!r}")
        if self._noise_level() == 0.0:
            raise ValueError(
                f"intervals need a model of the noise, and {self._noise_hint}"
            )
        limits, standard = self.model_.range, self.model_.standard
        if cols is None:
            observed = self._read_rows(rows)
            refuse_large(observed.shape, MAX_DENSE_GB)
            j: Any = slice(None)
            both = self._is_training(observed)
            x, spread = self.model_.complete(
                observed, self._engine(), std="observed", both=both
            )
        else:
            observed = self._training_entries() if X is None else self._read_rows(X)
            i, j = position_pair(rows, cols, observed.shape)
            if len(i) == 0:
                return np.empty(0), np.empty(0)
            both = self._is_training(observed)
            x, spread = self.model_.predict(
                observed, i, j, self._engine(), std="observed", both=both
            )
        scores = self.blended_scores_ if both else self.scores_
        down, up = scores.reach(part)
        low = limits.clipped(standard.outward(x - down * spread, j), j)
        high = limits.clipped(standard.outward(x + up * spread, j), j)
        return low, high

    def sample(
        self, n_draws: int = 1, random_state: int = 0, *, X: Any = None
    ) -> Array:
        """Completed matrices as they might be, for multiple imputation.

        Parameters
        ----------
        n_draws : int
            How many.
        random_state : int
            Seed.
        X : container, optional
            Rows to complete; by default the matrix of the fit.

        Returns
        -------
        array of shape (n_draws, m, n)
            Observed entries as they are; the others drawn together, row by row, from
            what the column side says of them, noise included.
        """
        check_is_fitted(self)
        _refuse_source(X, "sample")
        count = check_whole("n_draws", n_draws, low=1)
        seed = check_whole("random_state", random_state, low=0)
        if self.transposed_:
            raise ValueError(
                "sample draws from the kernel of the columns; fit with sides='columns' "
                "or 'both'"
            )
        observed = self._training_entries() if X is None else self._read_rows(X)
        m, n = observed.shape
        refuse_large((count * m, n), MAX_DENSE_GB)
        rng = np.random.default_rng(seed)
        draws: Array = self.model_.draws(observed, count, rng, self._engine())
        return draws

    def _begin_sides(self, X: Any, engine: Engine, plan: Plan) -> tuple[Begun, Plan]:
        """Read ``X`` for a fit; only its columns can carry a kernel if it is a source.

        A source that memory has room for is read into it.
        """
        source = as_source(X)
        if source is None:
            observed = self._read_fit(X)
            return Begun(observed, InMemory(observed)), plan
        if plan.sides in ("rows", "both"):
            raise ValueError(
                f"sides={plan.sides!r} needs the matrix in memory; a source of rows is "
                "fitted with sides='columns', which 'auto' means for it"
            )
        plan = replace(plan, sides="columns")
        named = self.checkpoint is not None
        entries = self._passing(source, engine, named=named)
        if entries.survey.n_observed > min(cuts.MOST_READ, cuts.MANY_ENTRIES):
            return Begun(None, entries), plan
        return Begun(None, InMemory(Observed.stacked(list(source)))), plan

    def _take_up(self, begun: Begun, fitted: Fitted) -> None:
        """Set the fitted attributes; the model is there already."""
        first = fitted.columns or fitted.rows
        assert first is not None
        self.transposed_ = fitted.columns is None
        both = fitted.columns is not None and fitted.rows is not None
        self.sides_ = "both" if both else "rows" if self.transposed_ else "columns"
        self._take_up_parts(fitted)
        self.training_ = begun.observed
        known = both or fitted.parts.near is not None
        self.training_fingerprint_ = begun.entries.fingerprint() if known else ""
        survey = begun.entries.survey
        shift = self.model_.standard.log_density_shift(survey.column_counts)
        self.history_ = {k: np.asarray(v) for k, v in first.history.items()}
        for name in ("log_evidence", "penalised_evidence"):
            self.history_[name] = self.history_[name] + shift
        self.history_["objective"] = self.history_["objective"] - shift
        self.log_evidence_ = first.evidence + shift
        self.n_iter_ = first.steps
        self.prior_strength_ = first.strength
        self.similarity_ = strongest_correlations(
            self._kernel_in_one_unit(), shared=self.center == "two-way"
        )
        self.unidentified_rows_ = survey.empty_rows
        self.unidentified_columns_ = np.flatnonzero(survey.column_counts == 0)
        self._engine_picked = True

    def _take_up_parts(self, fitted: Fitted) -> None:
        """Set what tells how the parts were chosen and put together."""
        parts, unit = fitted.parts, self.model_.standard.error_unit
        sides = [side for side in (fitted.columns, fitted.rows) if side is not None]
        self.converged_ = all(side.settled for side in sides)
        self.weight_ = parts.weight
        self.near_ = None if parts.near is None else asdict(parts.near)
        self.scores_, self.blended_scores_ = parts.scores, parts.blended_scores
        self.calibration_ = parts.blended_scores.spread
        self.held_out_error_ = parts.error * unit
        self.side_errors_ = {side: e * unit for side, e in parts.by_side.items()}
        self.search_ = [{**t, "error": t["error"] * unit} for t in fitted.search]

    def _model_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The model as a saved file holds it."""
        from ncarl.bayes.saving import two_sided_state

        header, arrays = two_sided_state(self.model_)
        for name in ("scores", "blended_scores"):
            scores = getattr(self, f"{name}_")
            arrays[name], header[f"{name}_count"] = scores.ranked, scores.count
        return header, arrays

    def _set_model_state(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Take up the model that a saved file holds."""
        from ncarl.bayes.saving import restored_two_sided

        self.model_ = restored_two_sided(header, arrays)
        for name in ("scores", "blended_scores"):
            scores = Scores(arrays[name], header[f"{name}_count"])
            setattr(self, f"{name}_", scores)

    def _main_side(self) -> Any:
        """The model of the columns, or of the rows if there is no other."""
        return self.model_.rows if self.transposed_ else self.model_.columns

    def _noise_level(self) -> float:
        """Noise of the model in the units of its kernel; 0 if it has none."""
        return float(self._main_side().kernel.s)

    def _kernel_size(self) -> int:
        """Columns (rows, if ``transposed_``) that the kernel has."""
        return int(self._main_side().kernel.K.shape[0])

    def _is_training(self, observed: Observed) -> bool:
        """Whether this is the matrix of the fit, of which more is known."""
        if self.sides_ != "both" and self.near_ is None:
            return False
        if observed is self.training_:
            return True
        same: bool = observed.fingerprint() == self.training_fingerprint_
        return same

    def _completes_row_by_row(self, observed: Observed) -> bool:
        """Whether the columns alone speak of these rows."""
        return not (self.transposed_ or self._is_training(observed))

    def _completed(
        self, observed: Observed, std: str | None, *, apart: bool = False
    ) -> tuple[Array, Array | None]:
        """Completed matrix within its bounds, and standard deviations."""
        both = not apart and self._is_training(observed)
        x, spread = self.model_.complete(observed, self._engine(), std=std, both=both)
        standard = self.model_.standard
        filled = self.model_.range.settled_rows(standard.outward(x))
        return filled, None if spread is None else standard.deviations(spread)

    def _predicted(
        self, observed: Observed, i: Array, j: Array, std: str | None, *,
        apart: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Single entries within their bounds, and standard deviations."""
        both = not apart and self._is_training(observed)
        x, spread = self.model_.predict(
            observed, i, j, self._engine(), std=std, both=both
        )
        standard = self.model_.standard
        values = self.model_.range.settled(standard.outward(x, j), j)
        return values, None if spread is None else standard.deviations(spread, j)


def _refuse_source(X: Any, asked: str) -> None:
    """Raise where intervals or draws are asked of rows that are not in memory."""
    if X is not None and as_source(X) is not None:
        raise TypeError(
            f"{asked} takes a matrix in memory, got a source of rows; ask for some of "
            "its rows at a time, or for transform(source, return_std=True, out=..., "
            "out_std=...)"
        )

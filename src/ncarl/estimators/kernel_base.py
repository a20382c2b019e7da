"""What all kernel estimators share: which side the kernel sits on, and its use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncarl.containers import as_source, read
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.asked import nothing_observed
from ncarl.estimators.base import CENTERS, Completer
from ncarl.estimators.blockwise import take_names
from ncarl.estimators.outcome import report
from ncarl.estimators.parameters import ORIENTATIONS, check_choice
from ncarl.fitting import Settings, Workspace
from ncarl.loop import Result
from ncarl.model import KernelModel
from ncarl.observed import Observed
from ncarl.passing import Passing
from ncarl.solver import Iterate
from ncarl.sources import RowSource
from ncarl.surveys import Entries, InMemory


@dataclass(frozen=True)
class Begun:
    """A matrix read for a fit.

    Attributes
    ----------
    observed : Observed or None
        Its entries as they were given, if they are in memory.
    entries : Entries
        The same in the orientation of the kernel.
    """

    observed: Observed | None
    entries: Entries

    @property
    def turned(self) -> Observed:
        """The entries in memory, in the orientation of the kernel."""
        assert isinstance(self.entries, InMemory)
        return self.entries.observed


class KernelEstimator(Completer):
    """Base of the estimators whose whole state is one kernel.

    Subclasses store their parameters and implement ``fit``.
    """

    _scalars: tuple[str, ...] = (
        "n_iter_",
        "converged_",
        "n_neighbors_",
        "transposed_",
        "engine_",
    )
    _has_graph = True
    #: Whether columns have something of their own, so that others cannot be completed.
    _own_columns = False
    #: What puts the kernel on the columns.
    _columns_hint = "orientation='columns'"
    _noise_hint = "gamma=None has none; set gamma to a positive number"

    @property
    def kernel_(self) -> Array:
        """Covariance of the columns (of the rows if ``transposed_``), (n, n)."""
        check_is_fitted(self)
        K = self.model_.kernel.K.view()
        K.flags.writeable = False  # the model works with it
        return K

    def _completed(
        self, observed: Observed, std: str | None, *, apart: bool = False
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix and its standard deviations, turned as the user's."""
        turned = observed.transposed() if self.transposed_ else observed
        filled, deviations = self.model_.complete(turned, self._engine(), std=std)
        if not self.transposed_:
            return filled, deviations
        filled = np.ascontiguousarray(filled.T)
        return filled, None if deviations is None else np.array(deviations.T, order="C")

    def _predicted(
        self, observed: Observed, i: Array, j: Array, std: str | None, *,
        apart: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
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

    def _begin(self, X: Any, engine: Engine, *, named: bool) -> Begun:
        """Read ``X`` for a fit; a source gets a name for its content if one is wanted.

        Matrices in memory are named when they are asked for it.
        """
        source = as_source(X)
        if source is None:
            return self._begin_in_memory(X)
        if check_choice("orientation", self.orientation, ORIENTATIONS) == "rows":
            raise ValueError(
                "orientation='rows' needs the matrix in memory; a source of rows is "
                "fitted with the kernel on the columns"
            )
        self.transposed_ = False
        return Begun(None, self._passing(source, engine, named=named))

    def _begin_in_memory(self, X: Any) -> Begun:
        """Read a matrix for a fit, and choose the side that carries the kernel."""
        observed = self._read_fit(X)
        turned = check_choice("orientation", self.orientation, ORIENTATIONS)
        wide = observed.shape[0] < observed.shape[1]
        self.transposed_ = turned == "rows" or (
            turned == "auto" and wide and not self._columns_only()
        )
        seen = observed.transposed() if self.transposed_ else observed
        return Begun(observed, InMemory(seen))

    def _passing(self, source: RowSource, engine: Engine, *, named: bool) -> Passing:
        """Entries of a source, surveyed in a first pass."""
        take_names(self, source)
        entries = Passing.of(source, engine, named=named)
        if entries.survey.n_observed == 0:
            raise ValueError(nothing_observed(entries.survey.shape))
        return entries

    def _completes_row_by_row(self, observed: Observed) -> bool:
        """Whether the columns carry the kernel."""
        return not self.transposed_

    def _check_row_by_row(self, what: str) -> None:
        """Raise where the kernel sits on the rows."""
        if self.transposed_:
            raise ValueError(
                f"the kernel sits on the rows, and {what} is completed row by row; fit "
                f"with {self._columns_hint}"
            )

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
        begun: Begun,
        workspace: Workspace,
        settings: Settings,
        result: Result[Iterate],
    ) -> Self:
        """Set the fitted attributes from a run."""
        self.model_ = workspace.model(settings, result)
        self.training_ = begun.observed
        self.history_ = {name: np.asarray(col) for name, col in result.history.items()}
        self.n_iter_ = int(result.last.step)
        self.converged_ = result.converged
        self.n_neighbors_ = workspace.neighbors(settings)
        self.engine_ = workspace.engine.describe()
        self._engine_picked = True
        self.similarity_ = workspace.similarity(result)
        survey = begun.entries.survey
        empty = survey.empty_rows, np.flatnonzero(survey.column_counts == 0)
        rows, columns = empty[::-1] if self.transposed_ else empty
        self.unidentified_rows_, self.unidentified_columns_ = rows, columns
        if result.interrupted:
            raise KeyboardInterrupt
        report(type(self).__name__, settings, result)
        return self

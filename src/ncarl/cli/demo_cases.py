"""The data of ``ncarl demo``, the fits, and how far off they are."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from ncarl.centering import fit_centre
from ncarl.cli.choices import Method
from ncarl.cli.models import ModelOptions, build
from ncarl.core.types import Array
from ncarl.datasets import load_sample_image
from ncarl.datasets.sources import source_of
from ncarl.metrics import rmse
from ncarl.observed import Observed
from ncarl.surveys import InMemory

CREDIT = source_of("china").citation
#: Part of the hidden entries that intervals are to hold.
LEVEL = 0.9


@dataclass(frozen=True)
class Case:
    """A matrix with known truth.

    Attributes
    ----------
    name : str
        Part of file names.
    title : str
        How the printed table calls it.
    truth : array of shape (m, n)
        The whole matrix.
    hidden : boolean array of shape (m, n)
        Entries that the fit does not see; errors are measured there.
    columns : sequence of str
        Names of the columns; empty for a picture.
    """

    name: str
    title: str
    truth: Array
    hidden: Array
    columns: Sequence[str] = ()

    @property
    def seen(self) -> Array:
        """The matrix as the fit sees it, NaN in the gaps."""
        return np.where(self.hidden, np.nan, self.truth)

    @property
    def is_table(self) -> bool:
        """Whether every column has units of its own."""
        return len(self.columns) > 0

    def units(self) -> Array:
        """What errors of each column are counted in: its spread, or grey levels."""
        n = self.truth.shape[1]
        return np.nanstd(self.seen, axis=0) if self.is_table else np.ones(n)


@dataclass(frozen=True)
class Fit:
    """What one method made of a case."""

    estimator: Any
    filled: Array
    seconds: float

    def record(self) -> dict[str, Any]:
        """The fit as JSON can hold it."""
        est = self.estimator
        return {
            "steps": int(est.n_iter_),
            "converged": bool(est.converged_),
            "seconds": round(self.seconds, 2),
            "engine": est.engine_,
        }


@dataclass(frozen=True)
class Outcome:
    """A case, its completions, and errors by method.

    Attributes
    ----------
    fits : mapping of str to Fit
        By method of ``ncarl complete``.
    errors : mapping of str to float
        Root mean square errors on the hidden entries; yardsticks are among them.
    lower, upper : arrays of shape (hidden entries,)
        Ends of the intervals of ``bayes``.
    """

    case: Case
    fits: Mapping[str, Fit]
    errors: Mapping[str, float]
    lower: Array
    upper: Array

    @property
    def bayes(self) -> Any:
        """The fitted default model."""
        return self.fits["bayes"].estimator

    @property
    def filled(self) -> Array:
        """What the default model filled in."""
        return self.fits["bayes"].filled

    @property
    def covered(self) -> Array:
        """Which hidden entries lie in their interval."""
        truth = self.case.truth[self.case.hidden]
        inside: Array = (truth >= self.lower) & (truth <= self.upper)
        return inside

    def record(self) -> dict[str, Any]:
        """The outcome as JSON can hold it."""
        case, est, search = self.case, self.bayes, self.fits["ncarl-cv"].estimator
        return {
            "name": case.name,
            "data": case.title,
            "shape": list(case.truth.shape),
            "missing_share": float(case.hidden.mean()),
            "error_unit": "column standard deviations" if case.is_table else "grey 0-1",
            "rmse_on_hidden": dict(self.errors),
            "bayes": {
                **self.fits["bayes"].record(),
                "sides": est.sides_,
                "weight_of_columns": float(est.weight_),
                "similar_rows": est.near_,
                "prior_strength": float(est.prior_strength_),
                "calibration": float(est.calibration_),
                "interval_level": LEVEL,
                "hidden_in_interval": float(self.covered.mean()),
            },
            "ncarl-cv": {
                **self.fits["ncarl-cv"].record(),
                "chosen": dict(search.best_params_),
                "relative_error_held_out": float(search.best_error_),
            },
        }


def cases(quick: bool, seed: int) -> list[Case]:
    """The three cases; the same seed hides the same entries."""
    picture = load_sample_image("china", step=8 if quick else 2)
    # One stream each, so that the table does not depend on the size of the picture.
    pixels, cells = np.random.default_rng(seed).spawn(2)
    half = pixels.random(picture.shape) < 0.5
    side = 12 if quick else 50
    block = np.zeros(picture.shape, dtype=bool)
    top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
    block[top : top + side, left : left + side] = True
    table = load_breast_cancer()
    holes = cells.random(table.data.shape) < 0.2
    names = [str(name) for name in table.feature_names]
    return [
        Case("photo-half", "photo, half hidden", picture, half),
        Case("photo-block", "photo, block hidden", picture, block),
        Case("table", "table, 20% hidden", table.data, holes, names),
    ]


def solve(case: Case, seed: int, progress: bool) -> Outcome:
    """Complete a case with the defaults of ``ncarl complete``, and measure it."""
    fits = {
        str(method): fitted(case, method, seed, progress)
        for method in (Method.NCARL_CV, Method.BAYES)
    }
    guesses = {
        "mean": mean_fill(case),
        "two-way": two_way_fill(case),
        **{name: fit.filled for name, fit in fits.items()},
    }
    errors = {name: error_on_hidden(case, guess) for name, guess in guesses.items()}
    places = np.nonzero(case.hidden)
    ends = fits["bayes"].estimator.predict_interval(*places, level=LEVEL)
    return Outcome(case, fits, errors, *ends)


def fitted(case: Case, method: Method, seed: int, progress: bool) -> Fit:
    """Complete a case by one method."""
    options = ModelOptions(method=method, seed=seed)
    scale = "columns" if case.is_table else None
    estimator = build(options, scale=scale, progress=progress)
    start = time.perf_counter()
    with warnings.catch_warnings():
        # The table of results says if the steps settled.
        warnings.simplefilter("ignore")
        filled = estimator.fit_transform(case.seen)
    return Fit(estimator, filled, time.perf_counter() - start)


def error_on_hidden(case: Case, guess: Array) -> float:
    """Root mean square error on the hidden entries, in the units of the case."""
    units = case.units()
    return rmse((case.truth / units)[case.hidden], (guess / units)[case.hidden])


def mean_fill(case: Case) -> Array:
    """The mean of all seen pixels; of each column in a table."""
    mean = np.nanmean(case.seen, axis=0 if case.is_table else None)
    return np.broadcast_to(mean, case.truth.shape)


def two_way_fill(case: Case) -> Array:
    """Row effects plus column effects, in units of the columns."""
    units = case.units()
    shift = np.nanmean(case.seen, axis=0) if case.is_table else 0.0
    observed = Observed.from_dense((case.seen - shift) / units)
    centre = fit_centre(InMemory(observed), "two-way", scaled=False)
    rows = centre.row_effects(observed)
    effects = centre.mean + rows[:, None] + centre.columns[None, :]
    filled: Array = effects * units + shift
    return filled

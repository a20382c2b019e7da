"""The model past the paper: learned noise, a prior correlation, error bars."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from ncarl.bayes.fit import Fit, Fitted, Plan, ways_of_sides
from ncarl.bayes.model import TwoSided
from ncarl.bayes.range import fit_range
from ncarl.bayes.standard import fit_standard, units_differ
from ncarl.checkpoint import Checkpoint
from ncarl.engines import Engine, pick_engine
from ncarl.estimators.bayesian_base import BayesianEstimator
from ncarl.estimators.bayesian_checks import (
    checked_clip,
    checked_noise,
    checked_plan,
    checked_prior,
)
from ncarl.estimators.parameters import digest
from ncarl.estimators.watching import watchers
from ncarl.loop import StepInfo
from ncarl.surveys import Entries


class BayesianNCARL(BayesianEstimator):
    r"""Matrix completion with learned noise, a prior correlation and error bars.

    Rows are draws :math:`x \sim N(\mu, K)` of which some entries are seen through
    noise. Kernel, noise and means are learned by EM, from a prior that takes columns
    which are observed together to be alike. Rows that are most similar correct what
    one kernel for all rows misses. There is nothing to tune: a tenth of the entries is
    held out to find out how strong the prior is to be, when to stop, how to weigh the
    two sides and similar rows, and how wide intervals are; then all entries are fitted.

    Parameters
    ----------
    prior : {"co-observation", "identity"} or array, default="co-observation"
        Prior correlation of the columns: by who has what; none; a correlation matrix
        of shape (n, n); or features of the columns, shape (n, d), which are used
        beside who has what.
    prior_strength : "auto" or float, default="auto"
        How many rows the prior counts as, over the longer side of the matrix.
    center : {"two-way", "columns", "mean", None}, default="two-way"
        What the kernel describes deviations from. With "two-way" column means and row
        effects are part of the model and learned with it.
    noise : {"per-column", "learn"} or float, default="per-column"
        A noise for each column, learned about a usual one; one for all columns; or its
        standard deviation. 0 is a model without noise, which has no error bars.
    sides : {"auto", "columns", "rows", "both"}, default="auto"
        Which sides of the matrix carry a kernel. Entries of the matrix of the fit are
        filled from both where that is affordable and pays; new rows always from the
        columns. "auto" also takes off the mean error of the most similar rows where
        that pays, and takes the rows alone where columns are too many for a kernel.
    max_iter : int, default=100
        Most steps of a run.
    tol : float, default=1e-5
        A run ends once a step raises the log evidence by less than this for every
        observed entry.
    clip : "auto", None or (low, high), default="auto"
        Where filled values may lie; "auto" holds them at an end of the observed range
        that is reached again and again, as in ratings.
    rounding : {None, "observed"}, default=None
        "observed" rounds filled values to levels that were observed.
    scale : {"auto", None, "columns"}, default="auto"
        "columns" divides every column by its spread first, which tables with columns
        of different units need; "auto" does so if spreads differ by a factor of 5.
    validation : float, default=0.1
        Part of the entries that is held out first. 0 holds out none: EM then runs
        until it settles, with ``prior_strength`` 0.1 unless given, both sides count
        alike, similar rows are not heard, and intervals are those of a normal
        distribution.
    random_state : int, default=0
        Seed of the held-out entries.
    engine : {"auto", "threads", "torch", "dask"} or Engine, default="auto"
        Where the work is done; see `NCARL`.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the work; results have the float type of the input.
    progress : bool, default=False
        Show progress bars.
    callback : callable, optional
        Called with a `StepInfo` after each step of every run; returning True ends
        that run.
    checkpoint : path or Checkpoint, optional
        File that keeps finished stages, and beside it (``.columns``, ``.rows``) the
        state of the last runs. If they exist, the fit goes on from them.

    Attributes
    ----------
    kernel_ : array of shape (n, n)
        Covariance of the columns (of the rows with ``sides="rows"``).
    noise_ : float, or array of shape (n,)
        Standard deviation of the noise, one for each column if these differ.
    log_evidence_ : float
        Log density of the observed entries under the column side.
    similarity_ : scipy.sparse.csr_array of shape (n, n)
        The strongest correlations of every column: which columns explain which. Row
        effects, which all columns share, are left out.
    history_ : dict of arrays
        Per step of the last run of the columns: ``log_evidence``,
        ``penalised_evidence``, ``objective`` (minus the latter), ``change``, seconds.
    prior_strength_ : float
        Strength of the prior that was used.
    n_iter_ : int
        Steps made.
    converged_ : bool
        Whether the runs ended by themselves.
    sides_ : {"columns", "rows", "both"}
        Sides that carry a kernel.
    weight_ : float
        Part of the column side in the entries of the matrix of the fit.
    near_ : dict or None
        How the most similar rows are heard about entries of the matrix of the fit, if
        they are: their ``count``, the ``weight`` of their mean error, and the factor
        of standard deviations that comes with it (``sharper``).
    search_ : list of dict
        The trials on held-out entries: side, strength, steps, error.
    calibration_ : float
        Root mean square of held-out errors over their standard deviations; 1 if these
        are right, NaN if nothing was held out.
    held_out_error_ : float
        Root mean square error on the held-out entries, in spreads of the columns if
        these were brought to one scale.
    side_errors_ : dict of float
        The same of each side alone, without similar rows.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed.
    engine_ : str
        The engine that ran, and why.

    Notes
    -----
    With :math:`A = K_{oo} + s I` and :math:`y = A^{-1} (v - \mu_o)` for each row, a
    step takes :math:`B = \sum A^{-1} - y y^T` (scattered) from one pass over the rows,
    and :math:`K \leftarrow (m S + \nu \tau \Psi) / (m + \nu)` with
    :math:`S = K - K B K / m - d d^T`. Steps are stretched as long as the penalised
    evidence rises. Entries that a sparse matrix does not store are missing, never zero.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import BayesianNCARL
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 12))
    >>> X = np.where(rng.random(truth.shape) < 0.7, truth, np.nan)
    >>> model = BayesianNCARL().fit(X)
    >>> filled, std = model.transform(X, return_std=True)
    >>> bool(np.abs(filled - truth).mean() < 0.1)
    True
    >>> low, high = model.predict_interval([0, 1], [3, 5], level=0.9)
    """

    def __init__(
        self,
        prior: Any = "co-observation",
        prior_strength: str | float = "auto",
        center: str | None = "two-way",
        noise: str | float = "per-column",
        sides: str = "auto",
        max_iter: int = 100,
        tol: float = 1e-5,
        clip: Any = "auto",
        rounding: str | None = None,
        scale: str | None = "auto",
        validation: float = 0.1,
        random_state: int = 0,
        engine: str | Engine = "auto",
        dtype: str = "float64",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.prior = prior
        self.prior_strength = prior_strength
        self.center = center
        self.noise = noise
        self.sides = sides
        self.max_iter = max_iter
        self.tol = tol
        self.clip = clip
        self.rounding = rounding
        self.scale = scale
        self.validation = validation
        self.random_state = random_state
        self.engine = engine
        self.dtype = dtype
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn kernel, noise and means of ``X``.

        Parameters
        ----------
        X : array, masked array, frame, sparse matrix or source of rows
            Matrix with gaps: NaN, masked, null, or not stored. A source
            (`ncarl.open_rows`), a Dask array or a collection of row blocks gets a
            kernel of its columns alone; past 5 million entries it is read once in
            every step and never held as a whole.
        y : ignored
            For scikit-learn's interface.
        """
        plan, noise = checked_plan(self), checked_noise(self.noise)
        clip = checked_clip(self.clip)
        engine = pick_engine(self.engine, given=X)
        begun, plan = self._begin_sides(X, engine, plan)
        entries = begun.entries
        n, rows_only = entries.survey.shape[1], self.sides == "rows"
        prior = checked_prior(self.prior, n, rows_only=rows_only)
        scaled = self._scaled(entries, noise)
        standard = fit_standard(entries, scaled=scaled)
        if not isinstance(noise, str):
            noise = noise / standard.unit
        ways = ways_of_sides(
            prior=prior, center=self.center or "none", noise=noise, dtype=self.dtype
        )
        kept = self.checkpoint
        checkpoint = None if kept is None else Checkpoint.of(kept)
        owner = {} if checkpoint is None else self._owner(entries, plan, prior, scaled)
        fitted = Fit(
            entries, standard.inward, plan, ways, engine, watch=self._watch,
            checkpoint=checkpoint, owner=owner,
        ).run()  # fmt: skip
        limits = fit_range(
            entries, clip, rounded=self.rounding is not None, by_column=scaled
        )
        self.model_ = TwoSided(
            standard,
            limits,
            None if fitted.columns is None else fitted.columns.model,
            None if fitted.rows is None else fitted.rows.model,
            fitted.parts.weight,
            fitted.parts.near,
        )
        self.engine_ = engine.describe()
        self._take_up(begun, fitted)
        return self._checked_end(fitted)

    def _scaled(self, entries: Entries, noise: str | float) -> bool:
        """Whether columns are brought to one scale."""
        if isinstance(noise, str) or noise == 0.0:
            wanted = self.scale == "auto" and units_differ(entries)
            return wanted or self.scale == "columns"
        if self.scale == "columns":
            raise ValueError(
                f"noise={self.noise!r} is in the units of the values, and with "
                "scale='columns' each column has its own; use noise='per-column', or "
                "scale=None"
            )
        return False

    @contextlib.contextmanager
    def _watch(self, label: str) -> Iterator[list[Any]]:
        """Progress bar and callback of one run."""
        most = int(self.max_iter)
        with watchers(self.progress, self.callback, most, label) as seen:
            yield list(seen)

    def _owner(
        self, entries: Entries, plan: Plan, prior: Any, scaled: bool
    ) -> dict[str, Any]:
        """What a checkpoint must share, as JSON can hold it."""
        noise = self.noise if isinstance(self.noise, str) else float(self.noise)
        return {
            "class": type(self).__name__,
            "prior": digest(prior),
            "prior_strength": "auto" if plan.strength is None else plan.strength,
            "center": self.center,
            "noise": noise,
            "sides": plan.sides,
            "validation": plan.validation,
            "random_state": plan.seed,
            "scaled": scaled,
            "dtype": self.dtype,
            "tol": plan.tol,
            "max_iter": plan.max_iter,
            "shape": list(entries.survey.shape),
            "data": entries.fingerprint(),
        }

    def _checked_end(self, fitted: Fitted) -> Self:
        """The estimator, if no run was interrupted; a warning if one did not settle."""
        sides = [side for side in (fitted.columns, fitted.rows) if side is not None]
        if any(side.interrupted for side in sides):
            raise KeyboardInterrupt
        if not self.converged_ and float(self.tol) > 0.0:
            warnings.warn(
                f"BayesianNCARL did not settle in max_iter={self.max_iter} steps; the "
                "best step is kept. Raise max_iter or tol, or set tol=0 to run a fixed "
                "number of steps.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

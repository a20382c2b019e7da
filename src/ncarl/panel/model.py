"""The completion model of a panel, its selection on control units, and placebos.

`PanelCompleter` completes a panel with held-out entries by two kernels: that of the
times fills a unit from its own other times, that of the units fills a time from the
other units. The strengths of their priors and the weights of the two are selected on
control units that are held out at the treated times (`ModelSelection`). The selection
is then kept for the treated units and for every placebo (`run_placebos`).

Priors are strong and EM runs until it converges: a panel has few units, and early
stopping, which is best for large matrices, turned out to depend on which units were
held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.bayes.em import EMProblem, ModelConfig
from ncarl.bayes.model import ConformalScores, leave_one_out_errors
from ncarl.bayes.selection import make_model_configs
from ncarl.centering import (
    Scaler,
    fit_scaler,
    overflow_safe_mean,
    root_mean_square,
    units_differ,
)
from ncarl.containers import clip_to_float_range
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines.base import Engine
from ncarl.fitting.kernel_model import KernelModel
from ncarl.observations import Observations

#: The kernel of the times (columns) and that of the units (rows).
SIDES = ("columns", "rows")
#: Most EM steps, and the gain below which they stop.
MAX_EM_STEPS, EM_TOLERANCE = 25, 1e-4
#: Rows that the prior counts as, relative to the longer side of the panel. The first is
#: the default; the next are tried as long as each is better than the one before.
PRIOR_STRENGTHS = (3.0, 1.0, 0.3, 0.1)
#: Groups of control units that are held out together to select the model.
N_CONTROL_GROUPS = 5
#: Most placebo fits (at least `N_CONTROL_GROUPS` per pattern); with more control units
#: than fits, several are held out together.
MAX_FITS = 60
#: Groups of control units that are drawn as placebos of several treated units.
MAX_PLACEBO_GROUPS = 999
#: Pseudo-count that shrinks the factor of a time with few placebos to 1.
PSEUDO_COUNT = 8.0
#: Relative size below which numbers count as equal, or 0, up to rounding.
RELATIVE_EPS = 1e-9
#: Statistics of the placebo test.
STATISTICS = ("ratio", "average")


class PanelCompleter:
    """Completes one panel with various held-out entries.

    Parameters
    ----------
    observed : array of shape (units, times)
        The panel; NaN at missing and at treated entries.
    engine : Engine
        Where the computation runs.
    """

    def __init__(self, observed: Array, engine: Engine) -> None:
        self.values, self.engine = observed, engine
        entries = InMemoryDataset(Observations.from_dense(observed))
        self.scaler: Scaler = fit_scaler(entries, per_column=units_differ(entries))
        self.model_configs: dict[str, ModelConfig] = make_model_configs(
            prior="co-observation", center="two-way", noise="per-column",
            dtype="float64",
        )  # fmt: skip

    def select_model(
        self, patterns: Sequence[Array], controls: Array, rng: np.random.Generator
    ) -> ModelSelection:
        """Select strengths and weights by the errors on held-out control units.

        Parameters
        ----------
        patterns : sequence of boolean arrays of shape (times,)
            Distinct patterns of treated times.
        controls : array of int
            Units that are never treated.
        rng : numpy.random.Generator
            Draws the groups of control units that are held out together.
        """
        masks = self._holdout_masks(patterns, controls, rng)
        if not masks:
            default = dict.fromkeys(SIDES, PRIOR_STRENGTHS[0])
            empty = ConformalScores(np.empty(0), 0.0)
            return ModelSelection(default, 0.5, float("nan"), {}, empty, empty)
        strengths, errors, stds = {}, {}, {}
        for name in SIDES:
            strengths[name], errors[name], stds[name] = self._select_strength(
                name, masks
            )
        weight = _blend_weight(errors["columns"], errors["rows"])
        blended = weight * errors["columns"] + (1.0 - weight) * errors["rows"]
        variances = weight * stds["columns"] ** 2 + (1.0 - weight) * stds["rows"] ** 2
        rows, columns = np.concatenate([np.nonzero(mask) for mask in masks], axis=1)
        unit = self.scaler.error_unit
        return ModelSelection(
            strengths,
            weight,
            root_mean_square(blended) * unit,
            {name: root_mean_square(side) * unit for name, side in errors.items()},
            ConformalScores.from_errors(blended, np.sqrt(variances), rows, columns),
            _mean_error_scores(blended, variances, rows),
        )

    def _holdout_masks(
        self, patterns: Sequence[Array], controls: Array, rng: np.random.Generator
    ) -> list[Array]:
        """Entries to hold out: groups of control units at treated times."""
        order = rng.permutation(controls)
        observed, masks = ~np.isnan(self.values), []
        for group in np.array_split(order, min(N_CONTROL_GROUPS, len(order))):
            hidden = np.zeros(self.values.shape, dtype=bool)
            for unit in group:
                hidden[unit] = patterns[int(rng.integers(len(patterns)))]
            hidden &= observed
            left = observed & ~hidden
            # A unit or a time without any other entry cannot be completed.
            hidden &= left.any(axis=1)[:, None] & left.any(axis=0)
            if hidden.any():
                masks.append(hidden)
        return masks

    def _select_strength(
        self, side_name: str, masks: list[Array]
    ) -> tuple[float, Array, Array]:
        """The best strength of a side, its errors and their standard deviations."""
        strength = PRIOR_STRENGTHS[0]
        errors, stds = self._holdout_errors(side_name, strength, masks)
        for weaker in PRIOR_STRENGTHS[1:]:
            new_errors, new_stds = self._holdout_errors(side_name, weaker, masks)
            if new_errors @ new_errors >= errors @ errors:
                break
            strength, errors, stds = weaker, new_errors, new_stds
        return strength, errors, stds

    def _holdout_errors(
        self, side_name: str, strength: float, masks: list[Array]
    ) -> tuple[Array, Array]:
        """Errors on held-out entries and their standard deviations, in scaled units."""
        errors, stds = [], []
        truth = self._transform_dense(self.values)
        for hidden in masks:
            scaled = self.scaler.transform(
                Observations.from_dense(np.where(hidden, np.nan, self.values))
            )
            x, std, _ = self._complete_side(
                side_name, scaled, strength, return_loo=False
            )
            errors.append((truth - x)[hidden])
            stds.append(std[hidden])
        return np.concatenate(errors), np.concatenate(stds)

    def _transform_dense(self, values: Array) -> Array:
        """Scaled values as a dense array, NaN at missing entries."""
        scaled = self.scaler.transform(Observations.from_dense(values))
        dense = np.full(values.shape, np.nan)
        dense[scaled.rows, scaled.indices] = scaled.values
        return dense

    def complete(
        self, selection: ModelSelection, hidden: Array | None = None
    ) -> CompletedPanel:
        """Complete the panel with the selected model, with ``hidden`` held out."""
        values = self.values
        if hidden is not None:
            values = np.where(hidden, np.nan, values)
        scaled = self.scaler.transform(Observations.from_dense(values))
        means, variances, errors = (np.zeros(values.shape) for _ in range(3))
        time_weight = selection.time_weight
        for name, weight in {"columns": time_weight, "rows": 1.0 - time_weight}.items():
            x, std, loo_errors = self._complete_side(
                name, scaled, selection.strengths[name]
            )
            means += weight * x
            variances += weight * std**2
            errors += weight * loo_errors
        return CompletedPanel(
            self.scaler.inverse_transform(means),
            self.scaler.inverse_transform_std(np.sqrt(variances)),
            self.scaler.inverse_transform_std(errors),
        )

    def _complete_side(
        self,
        side_name: str,
        scaled: Observations,
        strength: float,
        *,
        return_loo: bool = True,
    ) -> tuple[Array, Array, Array]:
        """Values, standard deviations and leave-one-out errors by one side's kernel."""
        observed = scaled if side_name == "columns" else scaled.transpose()
        model = self._fit_model(side_name, observed, strength)
        x, std = model.complete(observed, self.engine, std="observed")
        assert std is not None
        errors = np.full(observed.shape, np.nan)
        if return_loo:
            loo = leave_one_out_errors(model, observed, self.engine)
            assert loo is not None
            errors[observed.rows, observed.indices] = loo.values
        if side_name == "columns":
            return x, std, errors
        return x.T, std.T, errors.T

    def _fit_model(
        self, side_name: str, observed: Observations, strength: float
    ) -> KernelModel:
        """Fit the kernel model of one side."""
        problem = EMProblem(
            InMemoryDataset(observed), self.model_configs[side_name], self.engine
        )
        result = problem.run(
            strength, max_iter=MAX_EM_STEPS, tol=EM_TOLERANCE, observers=[]
        )
        if result.interrupted:
            raise KeyboardInterrupt
        return problem.model(result.last.state.last_estep.params)


@dataclass(frozen=True)
class ModelSelection:
    """Hyperparameters selected on held-out control units, and their errors.

    Attributes
    ----------
    strengths : dict of float
        Strength of the prior, by side: the times are the columns.
    time_weight : float
        Weight of the kernel of the times; the kernel of the units has the rest.
    error : float
        Root mean square error on the held-out entries of control units; NaN if there
        are too few to hold any out.
    error_by_side : dict of float
        The same of either side alone.
    scores, mean_error_scores : ConformalScores
        Errors over their standard deviations, of entries and of the mean of a unit's
        held-out entries, for intervals.
    """

    strengths: dict[str, float]
    time_weight: float
    error: float
    error_by_side: dict[str, float]
    scores: ConformalScores
    mean_error_scores: ConformalScores

    def rescale(self, factor: float) -> ModelSelection:
        """The same with errors multiplied by ``factor``."""
        by_side = {name: error * factor for name, error in self.error_by_side.items()}
        return replace(self, error=self.error * factor, error_by_side=by_side)


@dataclass(frozen=True)
class CompletedPanel:
    """A completed panel; all arrays have shape (units, times)."""

    values: Array  # predictions of all entries
    deviations: Array  # their standard deviations
    loo_errors: Array  # leave-one-out errors of observed entries, NaN at missing ones

    def rescale(self, factor: float) -> CompletedPanel:
        """The same multiplied by ``factor``, clipped to the range of floats."""
        with np.errstate(over="ignore"):
            tables = (self.values, self.deviations, self.loo_errors)
            return CompletedPanel(
                *(clip_to_float_range(table * factor) for table in tables)
            )


def _blend_weight(column_errors: Array, row_errors: Array) -> float:
    """Weight of the columns: halfway from 0.5 to the least squares weight.

    The best weight for a few dozen units need not be the best for the next one.
    """
    difference = column_errors - row_errors
    square = float(difference @ difference)
    best = -float(difference @ row_errors) / square if square > 0.0 else 0.5
    return (min(1.0, max(0.0, best)) + 0.5) / 2.0


def _mean_error_scores(errors: Array, variances: Array, rows: Array) -> ConformalScores:
    """Mean error of each unit, which is held out once, over its standard deviation."""
    counts = np.maximum(np.bincount(rows), 1)
    means = np.bincount(rows, errors) / counts
    deviations = np.sqrt(np.bincount(rows, variances) / counts)
    valid = deviations > 0.0
    ranked = np.sort(means[valid] / deviations[valid])
    return ConformalScores(ranked, float(len(ranked)))


@dataclass(frozen=True)
class Placebos:
    """All control units, each as if it were treated at the times of each pattern.

    Attributes
    ----------
    units : array of int
        The control units.
    trajectories : list of lists of EffectTrajectory or None
        By pattern of treated times, then by control unit; None where a unit has too
        few values.
    std_factors : array of shape (patterns, times)
        Ratio of errors to their standard deviations by time: predictions soon after
        the start are more accurate than those years later.
    """

    units: Array
    trajectories: list[list[EffectTrajectory | None]]
    std_factors: Array

    def rescale(self, factor: float) -> Placebos:
        """The same with errors multiplied by ``factor``."""
        trajectories = [
            [None if unit is None else unit.rescale(factor) for unit in units]
            for units in self.trajectories
        ]
        return replace(self, trajectories=trajectories)

    def has_trajectories(self, pattern: int) -> bool:
        """Whether any control unit can be a placebo for this pattern."""
        return any(unit is not None for unit in self.trajectories[pattern])


@dataclass(frozen=True)
class EffectTrajectory:
    """Errors of one treated unit, or of one placebo, at its treated times."""

    errors: Array  # observed minus expected, shape (entries,)
    deviations: Array  # standard deviations of the expected values, shape (entries,)
    time_index: Array  # columns of these entries, shape (entries,)
    error_before: float  # root mean square of leave-one-out errors at other times

    def scale_deviations(self, factors: Array) -> EffectTrajectory:
        """The same with standard deviations multiplied by factors of their times."""
        return replace(self, deviations=self.deviations * factors[self.time_index])

    def rescale(self, factor: float) -> EffectTrajectory:
        """The same multiplied by ``factor``, clipped to the range of floats."""
        with np.errstate(over="ignore"):
            errors, deviations = (
                clip_to_float_range(self.errors * factor),
                clip_to_float_range(self.deviations * factor),
            )
        return EffectTrajectory(
            errors, deviations, self.time_index, self.error_before * factor
        )


def run_placebos(
    completer: PanelCompleter,
    selection: ModelSelection,
    patterns: list[Array],
    controls: Array,
    min_pre_treatment: int,
    advance: Callable[[str], None],
) -> Placebos:
    """Complete every control unit with every pattern of treated times held out."""
    trajectories = []
    observed = ~np.isnan(completer.values)
    for pattern in patterns:
        by_unit: dict[int, EffectTrajectory] = {}
        for group in _control_groups(controls, len(patterns)):
            hidden = np.zeros(completer.values.shape, dtype=bool)
            hidden[group] = pattern
            enough = (observed & ~hidden).sum(axis=1) >= min_pre_treatment
            hidden &= enough[:, None]
            # A time without any other entry cannot be completed.
            hidden &= (observed & ~hidden).any(axis=0)
            if (hidden & observed).any():
                completed = completer.complete(selection, hidden)
                for unit in group:
                    if (hidden[unit] & observed[unit]).any():
                        by_unit[int(unit)] = unit_trajectory(
                            completer.values, completed, int(unit), hidden[unit]
                        )
            advance("")
        trajectories.append([by_unit.get(int(unit)) for unit in controls])
    n_times = completer.values.shape[1]
    factors = np.array([_std_factors(units, n_times) for units in trajectories])
    trajectories = [
        [None if unit is None else unit.scale_deviations(row) for unit in units]
        for units, row in zip(trajectories, factors, strict=True)
    ]
    return Placebos(controls, trajectories, factors)


def unit_trajectory(
    values: Array, completed: CompletedPanel, unit: int, treated_times: Array
) -> EffectTrajectory:
    """Errors of a unit at its treated times, and before."""
    there = treated_times & ~np.isnan(values[unit])
    errors = values[unit, there] - completed.values[unit, there]
    before = root_mean_square(completed.loo_errors[unit])
    deviations = completed.deviations[unit, there]
    return EffectTrajectory(errors, deviations, np.flatnonzero(there), before)


def _std_factors(trajectories: list[EffectTrajectory | None], n_times: int) -> Array:
    """Mean absolute standardized error at each time, relative to that of all times.

    `PSEUDO_COUNT` more errors of mean size are added at each time.
    """
    placebos = [unit for unit in trajectories if unit is not None]
    if not placebos:
        return np.ones(n_times)
    times = np.concatenate([unit.time_index for unit in placebos])
    sizes = np.concatenate([np.abs(p.errors) / p.deviations for p in placebos])
    mean = float(np.mean(sizes))
    if mean == 0.0:
        return np.ones(n_times)
    sums = np.bincount(times, sizes / mean, minlength=n_times)
    counts = np.bincount(times, minlength=n_times)
    factors: Array = (sums + PSEUDO_COUNT) / (counts + PSEUDO_COUNT)
    return factors


def n_placebo_fits(n_controls: int, n_patterns: int) -> int:
    """Number of fits of `run_placebos`."""
    return n_patterns * len(_control_groups(np.arange(n_controls), n_patterns))


def _control_groups(controls: Array, n_patterns: int) -> list[Array]:
    """Groups of control units that are held out together; single units if few.

    However many patterns there are, most control units must remain to predict from.
    Neighboring units have similar values, and are put into different groups.
    """
    count = min(len(controls), max(N_CONTROL_GROUPS, MAX_FITS // n_patterns))
    return [controls[k::count] for k in range(count)]


def assignments(
    placebos: Placebos, unit_patterns: list[int], order: Array, rng: np.random.Generator
) -> list[list[EffectTrajectory]]:
    """Groups of placebos in the place of the treated units.

    One treated unit: every control unit once. Several: groups drawn at random, from all
    units in ``order``. Treated units for which there is no placebo are left out.
    """
    unit_patterns = sorted(k for k in unit_patterns if placebos.has_trajectories(k))
    if not unit_patterns:
        return []
    if len(unit_patterns) == 1:
        return [[c] for c in placebos.trajectories[unit_patterns[0]] if c is not None]
    place = {int(unit): k for k, unit in enumerate(placebos.units)}
    ranked = [place[int(unit)] for unit in order if int(unit) in place]
    n, groups = len(ranked), []
    for _ in range(MAX_PLACEBO_GROUPS):
        drawn = rng.choice(ranked, len(unit_patterns), replace=len(unit_patterns) > n)
        group = [
            placebos.trajectories[k][i]
            for k, i in zip(unit_patterns, drawn, strict=True)
        ]
        complete = [unit for unit in group if unit is not None]
        if len(complete) == len(group):
            groups.append(complete)
    return groups


@dataclass(frozen=True)
class PlaceboTest:
    """Rank test of the treated units against placebos.

    Attributes
    ----------
    p_value : float
        ``(1 + as large) / (1 + placebos)``: the fraction of all units, the treated one
        included, whose statistic is at least as large as that of the treated.
    statistic : float
        That of the treated units.
    placebos : array
        Those of the control units, or of groups of them if several are treated.
    units : tuple
        The control units, in the order of ``placebos``; empty for groups.
    kind : {"ratio", "average"}
        The statistic, see `Counterfactual.placebo_test`.
    """

    p_value: float
    statistic: float
    placebos: Array
    units: tuple[Any, ...]
    kind: str


def rank_p_value(statistic: float, placebos: Array) -> float:
    """Fraction of all statistics, that of the treated included, at least as large.

    Examples
    --------
    >>> rank_p_value(3.0, [1.0, 2.0, 3.0, 4.0])
    0.6
    """
    values = np.asarray(placebos, dtype=np.float64)
    # Statistics that differ by rounding alone count as equal, which can only raise p.
    at_least = values >= statistic * (1.0 - RELATIVE_EPS)
    return (1 + int(np.count_nonzero(at_least))) / (1 + len(values))


def test_statistic(group: list[EffectTrajectory], kind: str) -> float:
    """Test statistic of a unit or of a group of units.

    "ratio": root mean square of the errors at treated times over that at others,
    averaged over the units. "average": absolute mean error over its standard deviation.
    """
    if kind == "average":
        return abs(standardized_mean_effect(group))
    ratios = []
    for unit in group:
        after = root_mean_square(unit.errors)
        before = max(
            unit.error_before, RELATIVE_EPS * float(np.max(unit.deviations)), 1e-300
        )
        ratios.append(after / before)
    return float(np.mean(ratios))


def standardized_mean_effect(group: list[EffectTrajectory]) -> float:
    """Mean error of all treated entries over its standard deviation."""
    errors = np.concatenate([unit.errors for unit in group])
    return overflow_safe_mean(errors) / max(mean_effect_std(group), 1e-300)


def mean_effect_std(group: list[EffectTrajectory]) -> float:
    """Standard deviation of the mean error of all treated entries.

    Errors of one unit are strongly correlated over time, so that their mean is about as
    uncertain as each of them; errors of different units are taken to be independent.
    """
    deviations = np.concatenate([unit.deviations for unit in group])
    return root_mean_square(deviations) / math.sqrt(len(group))


def entry_scores(placebos: Placebos) -> ConformalScores:
    """Errors of the placebos over their standard deviations, entry by entry."""
    pairs = [
        (trajectory, unit)
        for trajectories in placebos.trajectories
        for trajectory, unit in zip(trajectories, placebos.units, strict=True)
        if trajectory is not None
    ]
    if not pairs:
        return ConformalScores(np.empty(0), 0.0)
    return ConformalScores.from_errors(
        np.concatenate([t.errors for t, _ in pairs]),
        np.concatenate([t.deviations for t, _ in pairs]),
        np.concatenate([np.full(len(t.errors), unit) for t, unit in pairs]),
        np.concatenate([t.time_index for t, _ in pairs]),
    )


def group_scores(
    groups: list[list[EffectTrajectory]], n_controls: int
) -> ConformalScores:
    """Mean errors of groups over their standard deviations."""
    ranked = np.sort([standardized_mean_effect(group) for group in groups])
    return ConformalScores(ranked, float(min(len(ranked), n_controls)))


def canonical_unit_order(values: Array, treated: Array) -> Array:
    """Rows in lexicographic order of their untreated values.

    Treated entries must not matter, and count as missing. Missing entries come after
    all numbers.

    Examples
    --------
    >>> import numpy as np
    >>> panel = np.array([[2.0, 7.0], [1.0, np.nan], [1.0, 5.0]])
    >>> canonical_unit_order(panel, np.zeros((3, 2), dtype=bool)).tolist()
    [2, 1, 0]
    """
    numbers = np.where(treated | np.isnan(values), np.inf, values)
    return np.lexsort(numbers.T[::-1])


def restore_completed_order(completed: CompletedPanel, order: Array) -> CompletedPanel:
    """Undo the permutation of the rows by `canonical_unit_order`."""
    back = np.argsort(order)
    tables = (completed.values, completed.deviations, completed.loo_errors)
    return CompletedPanel(*(table[back] for table in tables))


def restore_placebo_order(placebos: Placebos, order: Array) -> Placebos:
    """Undo the permutation of the rows by `canonical_unit_order`."""
    units = order[placebos.units]
    back = np.argsort(units)
    trajectories = [[row[k] for k in back] for row in placebos.trajectories]
    return replace(placebos, units=units[back], trajectories=trajectories)

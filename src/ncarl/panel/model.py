"""The completion model of a panel, its selection on control units, and placebos.

`PanelCompleter` completes a panel with held-out entries by two kernels: that of the
times predicts a unit from its own other times, that of the units a time from the other
units. Prior strengths and the weights of the kernels are selected on control units that
are held out at the treated times, and kept for the treated units and for every placebo.

Priors are strong and EM runs until it converges: early stopping, which is best for
large matrices, depends too much on which units are held out in a small panel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.bayes.em import EMProblem
from ncarl.bayes.model import ConformalScores, average_predictions, leave_one_out_errors
from ncarl.bayes.selection import (
    HeldOutErrors,
    blend_errors,
    column_weight,
    make_model_configs,
)
from ncarl.centering import (
    compare_column_units,
    fit_scaler,
    overflow_safe_mean,
    root_mean_square,
    to_user_units,
)
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset, power_of_two_unit
from ncarl.engines.base import Engine
from ncarl.observations import Observations
from ncarl.panel.data import MIN_PRE_TREATMENT

#: The kernel of the times (columns) and that of the units (rows).
SIDES = ("columns", "rows")
#: Maximum number of EM steps, and the gain below which they stop.
MAX_EM_STEPS, EM_TOLERANCE = 25, 1e-4
#: Rows that the prior counts as, relative to the longer side of the panel. The first is
#: the default; the next are tried as long as each is better than the one before.
PRIOR_STRENGTHS = (3.0, 1.0, 0.3, 0.1)
#: Groups of control units that are held out together to select the model.
N_CONTROL_GROUPS = 5
#: Maximum placebo fits (at least `N_CONTROL_GROUPS` per pattern); with more control
#: units than fits, several are held out together.
MAX_FITS = 60
#: Groups of control units that are drawn as placebos of several treated units.
MAX_PLACEBO_GROUPS = 999
#: Pseudo-count that shrinks the factor of a time with few placebos to 1.
PSEUDO_COUNT = 8.0
#: Relative size below which numbers count as equal, or 0, up to rounding.
RELATIVE_EPS = 1e-9


class PanelCompleter:
    """Completes a panel, NaN at missing and treated entries, with entries held out."""

    def __init__(self, observed: Array, engine: Engine) -> None:
        self.values, self.engine = observed, engine
        self.unit = power_of_two_unit(observed)  # against overflow
        entries = InMemoryDataset(Observations.from_dense(observed / self.unit))
        self.scaler = fit_scaler(entries, per_column=compare_column_units(entries)[0])
        self.model_configs = make_model_configs(
            prior="co-observation",
            center="two-way",
            noise="per-column",
            dtype="float64",
        )

    def select_model(
        self, patterns: Sequence[Array], controls: Array, rng: np.random.Generator
    ) -> ModelSelection:
        """Select strengths and weights by the errors on held-out control units.

        ``patterns`` are distinct masks of treated times; ``rng`` draws the groups of
        control units that are held out together.
        """
        masks = self._holdout_masks(patterns, controls, rng)
        if not masks:
            default = dict.fromkeys(SIDES, PRIOR_STRENGTHS[0])
            empty = ConformalScores(np.empty(0), 0.0)
            return ModelSelection(default, 0.5, float("nan"), {}, empty, empty)
        strengths, held_out = {}, {}
        for side in SIDES:
            strengths[side], held_out[side] = self._select_strength(side, masks)
        # Halfway to the best weight, which is that of a few dozen units only.
        weight = (column_weight(held_out, list(SIDES)) + 0.5) / 2.0
        blended = blend_errors(held_out, weight)
        places = np.concatenate([np.nonzero(mask) for mask in masks], axis=1)
        unit = self.scaler.error_unit * self.unit
        return ModelSelection(
            strengths,
            weight,
            root_mean_square(blended.errors) * unit,
            {side: root_mean_square(held_out[side].errors) * unit for side in SIDES},
            ConformalScores.from_errors(blended.errors, blended.deviations, *places),
            _mean_error_scores(blended, places[0]),
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
        self, side: str, masks: list[Array]
    ) -> tuple[float, HeldOutErrors]:
        best = PRIOR_STRENGTHS[0]
        least = self._holdout_errors(side, best, masks)
        for strength in PRIOR_STRENGTHS[1:]:
            held_out = self._holdout_errors(side, strength, masks)
            if held_out.errors @ held_out.errors >= least.errors @ least.errors:
                break
            best, least = strength, held_out
        return best, least

    def _holdout_errors(
        self, side: str, strength: float, masks: list[Array]
    ) -> HeldOutErrors:
        """Errors on held-out entries and their standard deviations, in scaled units."""
        observed = self._scale(self.values)
        truth = np.full(self.values.shape, np.nan)
        truth[observed.rows, observed.indices] = observed.values
        errors, stds = [], []
        for hidden in masks:
            scaled = self._scale(np.where(hidden, np.nan, self.values))
            x, std, _ = self._complete_side(side, scaled, strength, return_loo=False)
            errors.append((truth - x)[hidden])
            stds.append(std[hidden])
        return HeldOutErrors(np.concatenate(errors), np.concatenate(stds))

    def _scale(self, values: Array) -> Observations:
        return self.scaler.transform(Observations.from_dense(values / self.unit))

    def complete(
        self, selection: ModelSelection, hidden: Array | None = None
    ) -> CompletedPanel:
        """Complete the panel with the selected model, with ``hidden`` held out."""
        hidden = False if hidden is None else hidden
        scaled = self._scale(np.where(hidden, np.nan, self.values))
        weights = selection.time_weight, 1.0 - selection.time_weight
        predictions, errors = [], np.zeros(self.values.shape)
        for side, weight in zip(SIDES, weights, strict=True):
            x, std, loo_errors = self._complete_side(
                side, scaled, selection.strengths[side]
            )
            predictions.append((weight, x, std))
            errors += weight * loo_errors
        means, stds = average_predictions(predictions)
        tables = (
            self.scaler.inverse_transform(means),
            self.scaler.inverse_transform_std(stds),
            self.scaler.inverse_transform_std(errors),
        )
        return CompletedPanel(*(to_user_units(table, self.unit) for table in tables))

    def _complete_side(
        self,
        side: str,
        scaled: Observations,
        strength: float,
        *,
        return_loo: bool = True,
    ) -> tuple[Array, Array, Array]:
        """Values, standard deviations and leave-one-out errors by one side's kernel."""
        observed = scaled if side == "columns" else scaled.transpose()
        dataset = InMemoryDataset(observed)
        problem = EMProblem(dataset, self.model_configs[side], self.engine)
        result = problem.run(
            strength, max_iter=MAX_EM_STEPS, tol=EM_TOLERANCE, observers=[]
        )
        if result.interrupted:
            raise KeyboardInterrupt
        model = problem.model(result.last.state.last_step.params)
        x, std = model.complete(observed, self.engine, std="observed")
        assert std is not None
        errors = np.full(observed.shape, np.nan)
        if return_loo:
            loo = leave_one_out_errors(model, observed, self.engine)
            assert loo is not None
            errors[observed.rows, observed.indices] = loo.values
        return (x, std, errors) if side == "columns" else (x.T, std.T, errors.T)


@dataclass(frozen=True)
class ModelSelection:
    """Hyperparameters selected on held-out control units, and their errors."""

    strengths: dict[str, float]  # of the priors, by side: the times are the columns
    time_weight: float  # of the kernel of the times; that of the units has the rest
    error: float  # root mean square on held-out entries; NaN if none could be
    error_by_side: dict[str, float]  # the same of either side alone
    scores: ConformalScores  # standardized errors of entries
    mean_error_scores: ConformalScores  # of the means of a unit's held-out entries


@dataclass(frozen=True)
class CompletedPanel:
    """A completed panel; all arrays have shape (units, times)."""

    values: Array  # predictions of all entries
    deviations: Array  # their standard deviations
    loo_errors: Array  # leave-one-out errors of observed entries, NaN at missing ones

    def restore_order(self, order: Array) -> CompletedPanel:
        """Undo the permutation of the rows by `unit_order`."""
        back = np.argsort(order)
        tables = (self.values, self.deviations, self.loo_errors)
        return CompletedPanel(*(table[back] for table in tables))


def _mean_error_scores(held_out: HeldOutErrors, rows: Array) -> ConformalScores:
    """Mean error of each unit, which is held out once, over its standard deviation."""
    counts = np.maximum(np.bincount(rows), 1)
    means = np.bincount(rows, held_out.errors) / counts
    deviations = np.sqrt(np.bincount(rows, held_out.deviations**2) / counts)
    valid = deviations > 0.0
    ranked = np.sort(means[valid] / deviations[valid])
    return ConformalScores(ranked, float(len(ranked)))


@dataclass(frozen=True)
class Placebos:
    """All control units, each as if it were treated at the times of each pattern."""

    units: Array  # positions of the control units
    #: By pattern of treated times, then by control unit; None where a unit has too few
    #: values.
    trajectories: list[list[EffectTrajectory | None]]
    #: Ratio of errors to their standard deviations, shape (patterns, times):
    #: predictions soon after the start are more accurate than those years later.
    std_factors: Array

    def restore_order(self, order: Array) -> Placebos:
        """Undo the permutation of the rows by `unit_order`."""
        units = order[self.units]
        back = np.argsort(units)
        trajectories = [[row[k] for k in back] for row in self.trajectories]
        return replace(self, units=units[back], trajectories=trajectories)

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


def run_placebos(
    completer: PanelCompleter,
    selection: ModelSelection,
    patterns: list[Array],
    groups: list[Array],
    advance: Callable[[str], None],
) -> Placebos:
    """Complete groups of control units with every pattern of treated times held out."""
    controls = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *groups]))
    trajectories = []
    observed = ~np.isnan(completer.values)
    for pattern in patterns:
        by_unit: dict[int, EffectTrajectory] = {}
        for group in groups:
            hidden = np.zeros(completer.values.shape, dtype=bool)
            hidden[group] = pattern
            enough = (observed & ~hidden).sum(axis=1) >= MIN_PRE_TREATMENT
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
    for units, by_time in zip(trajectories, factors, strict=True):
        for k, unit in enumerate(units):
            if unit is not None:
                deviations = unit.deviations * by_time[unit.time_index]
                units[k] = replace(unit, deviations=deviations)
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
    return (sums + PSEUDO_COUNT) / (counts + PSEUDO_COUNT)


def control_groups(controls: Array, n_patterns: int) -> list[Array]:
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
        pairs = zip(unit_patterns, drawn, strict=True)
        units = [placebos.trajectories[k][i] for k, i in pairs]
        group = [unit for unit in units if unit is not None]
        if len(group) == len(units):
            groups.append(group)
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
    """Fraction of all statistics, that of the treated included, at least as large."""
    # Statistics that differ by rounding alone count as equal, which can only raise p.
    at_least = placebos >= statistic * (1.0 - RELATIVE_EPS)
    return (1 + int(np.count_nonzero(at_least))) / (1 + len(placebos))


def test_statistic(group: list[EffectTrajectory], kind: str) -> float:
    """Test statistic of a unit or of a group of units.

    "ratio": root mean square of the errors at treated times over that at others,
    averaged over the units. "average": absolute mean error over its standard deviation.
    """
    if kind == "average":
        return abs(standardized_mean_effect(group))
    ratios = []
    for unit in group:
        least = max(RELATIVE_EPS * float(np.max(unit.deviations)), 1e-300)
        ratios.append(root_mean_square(unit.errors) / max(unit.error_before, least))
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
    """Errors of at least one placebo over their standard deviations, by entry."""
    pairs = [
        (trajectory, unit)
        for trajectories in placebos.trajectories
        for trajectory, unit in zip(trajectories, placebos.units, strict=True)
        if trajectory is not None
    ]
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


def unit_order(values: Array, treated: Array) -> Array:
    """Rows in lexicographic order of their values, whatever the given order.

    Treated entries count as missing; missing entries come after all numbers.
    """
    numbers = np.where(treated | np.isnan(values), np.inf, values)
    return np.lexsort(numbers.T[::-1])

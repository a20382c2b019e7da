"""`counterfactual`, the effect of a treatment on units of a panel, and its result.

The result, `Counterfactual`, has effects with intervals, placebo tests, a long frame, a
summary and figures.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ncarl.bayes.model import ConformalScores
from ncarl.centering import (
    overflow_safe_mean,
    power_of_two_unit,
    root_mean_square,
)
from ncarl.containers import clip_to_float_range
from ncarl.core.types import Array
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.io.base import is_frame
from ncarl.panel.data import (
    MIN_PRE_TREATMENT,
    Panel,
    as_panel,
    treatment_mask,
    treatment_patterns,
)
from ncarl.panel.model import (
    STATISTICS,
    CompletedPanel,
    EffectTrajectory,
    ModelSelection,
    PanelCompleter,
    Placebos,
    PlaceboTest,
    assignments,
    canonical_unit_order,
    entry_scores,
    group_scores,
    mean_effect_std,
    n_placebo_fits,
    rank_p_value,
    restore_completed_order,
    restore_placebo_order,
    run_placebos,
    test_statistic,
    unit_trajectory,
)
from ncarl.progress import progress_bar
from ncarl.validation import check_fraction, check_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Most units that a summary lists.
MAX_NAMES = 5
#: Most labels along the axis of time.
MAX_TICK_LABELS = 10
OBSERVED_COLOR, EXPECTED_COLOR, BAND_COLOR, PLACEBO_COLOR = (
    "#333333",
    "#2f6db3",
    "#c6dbef",
    "#c4c4c4",
)


def counterfactual(
    data: Any,
    treated: Any = None,
    start: Any = None,
    *,
    unit: str | None = None,
    time: str | None = None,
    value: str | None = None,
    units: str = "rows",
    level: float = 0.9,
    placebos: bool = True,
    random_state: int = 0,
    engine: str | Engine = "auto",
    progress: bool = False,
) -> Counterfactual:
    """Estimate outcomes without a treatment, with intervals and a placebo test.

    The treated entries are held out and completed from everything else: the units' own
    past and the control units. Then each control unit is held out in the same way; the
    errors made there give the widths of the intervals and the null distribution of the
    effect.

    Parameters
    ----------
    data : frame, array or Panel
        A wide table with units in rows and times in columns (or transposed, with
        ``units="columns"``); a long frame with ``unit``, ``time`` and ``value``; a
        `Panel`; or the result of `ncarl.datasets.load_panel`. Entries may be missing.
    treated : label, list of labels, mapping or boolean table
        The treated units, from ``start`` on; a mapping from each unit to its own start;
        or a boolean table. A boolean frame is aligned by its labels, an array has the
        layout of ``data``: shape (units, times), transposed with ``units="columns"``.
        May be left out if ``data`` has it.
    start : label of a time, optional
        The first treated time.
    unit, time, value : str, optional
        Columns of a long frame.
    units : {"rows", "columns"}, default="rows"
        The axis of the units in a wide table.
    level : float, default=0.9
        Nominal coverage of the intervals.
    placebos : bool, default=True
        Whether to run placebos: each control unit in turn as if it were treated.
        Without them there is no test, and intervals come from five groups of control
        units.
    random_state : int, default=0
        Seed of the groups of control units, which depend on the values of the units
        and not on their order.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the computation runs.
    progress : bool, default=False
        Show a progress bar.

    Returns
    -------
    Counterfactual
        Effects and intervals of entries, their average, tests and figures.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.panel import counterfactual
    >>> rng = np.random.default_rng(0)
    >>> Y = np.outer(rng.random(8), np.arange(8.0)) + 0.1 * rng.random((8, 8))
    >>> Y[0, 6:] += 2.0  # a treatment of the first unit
    >>> result = counterfactual(Y, treated=0, start=6, placebos=False)
    >>> bool(result.average.low < 2.0 < result.average.high)
    True
    """
    panel = as_panel(data, unit, time, value, units)
    if treated is None and not is_frame(data):
        treated = getattr(data, "treated", None)
    if treated is None:
        raise ValueError("treated must say which units are treated, and start when")
    coverage = check_fraction("level", level, strict=True)
    seed = check_integer("random_state", random_state, low=0)
    layout = None if isinstance(data, Panel) else panel.input_layout
    mask = treatment_mask(panel, treated, start, layout)
    patterns, _ = treatment_patterns(mask)
    order = canonical_unit_order(panel.values, mask)
    untreated, controls = _hide_treated_entries(panel.values[order], mask[order])
    scale = power_of_two_unit(untreated)
    completer = PanelCompleter(untreated / scale, pick_engine(engine))
    fits = n_placebo_fits(len(controls), len(patterns)) if placebos else 0
    with progress_bar(progress, 2 + fits, "panel") as advance:
        rng = np.random.default_rng(seed)
        selection = completer.select_model(patterns, controls, rng)
        advance("selected")
        completed = completer.complete(selection)
        advance("completed")
        runs = None
        if placebos:
            runs = run_placebos(
                completer, selection, patterns, controls, MIN_PRE_TREATMENT, advance
            )
    result = Counterfactual(
        panel,
        mask,
        coverage,
        restore_completed_order(completed.rescale(scale), order),
        selection.rescale(scale),
        None if runs is None else restore_placebo_order(runs.rescale(scale), order),
        seed,
    )
    _warn_if_uncalibrated(result, len(controls))
    return result


def _hide_treated_entries(values: Array, treated: Array) -> tuple[Array, Array]:
    """Values with NaN at treated entries, and the rows of the control units."""
    # C order, since the memory layout of a table changes the last digits of its sums.
    untreated = np.ascontiguousarray(np.where(treated, np.nan, values))
    nonempty = ~np.isnan(untreated).all(axis=1)
    return untreated, np.flatnonzero(nonempty & ~treated.any(axis=1))


def _warn_if_uncalibrated(result: Counterfactual, n_controls: int) -> None:
    """Warn if no held-out errors are available for intervals."""
    if not result.is_calibrated:
        warnings.warn(
            f"no interval can be given with {n_controls} control unit"
            f"{'' if n_controls == 1 else 's'}: none could be held out and completed "
            "from the others to measure the error. Ends of intervals are NaN; add "
            "control units",
            stacklevel=3,
        )


@dataclass(frozen=True)
class AverageEffect:
    """Mean effect over all treated entries.

    Attributes
    ----------
    effect : float
        Observed minus expected.
    low, high : float
        Ends of its interval; NaN with too few control units.
    level : float
        Nominal coverage of the interval.
    """

    effect: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """Expected outcomes without treatment, and the effects of the treatment.

    All arrays have shape (units, times), as in ``panel``; `to_frame` has labels.

    Attributes
    ----------
    panel : Panel
        The observed values.
    treated : boolean array
        The treated entries.
    expected : array
        Expected values without treatment: at treated entries from all untreated ones,
        at others (for comparison) from everything but the entry itself.
    low, high : arrays
        Ends of the intervals of ``expected`` at treated entries; NaN elsewhere, and
        everywhere unless `is_calibrated`.
    level : float
        Nominal coverage of the intervals.
    effect, effect_low, effect_high : arrays
        Observed minus expected, and its interval; NaN at missing entries.
    average : AverageEffect
        Mean effect over all treated entries, with its interval.
    error_before : float
        Root mean square of observed minus expected for treated units at times when they
        are not treated.
    choice : ModelSelection
        The selected model, and its errors on control units.
    """

    panel: Panel
    treated: Array
    level: float
    completed: CompletedPanel
    choice: ModelSelection
    placebos: Placebos | None
    seed: int

    @cached_property
    def units(self) -> tuple[Any, ...]:
        """The treated units."""
        return tuple(self.panel.units[k] for k in self._treated_rows)

    @cached_property
    def expected(self) -> Array:
        """Expected values without treatment."""
        observed, loo_errors = self.panel.values, self.completed.loo_errors
        before = np.where(np.isnan(loo_errors), self.completed.values, observed)
        fitted = before - np.nan_to_num(loo_errors)
        return np.where(self.treated, self.completed.values, fitted)

    @cached_property
    def low(self) -> Array:
        """Lower ends of the intervals of ``expected``."""
        return self._interval_bound(-self._entry_quantiles[0])

    @cached_property
    def high(self) -> Array:
        """Upper ends of the intervals of ``expected``."""
        return self._interval_bound(self._entry_quantiles[1])

    def _interval_bound(self, n_deviations: float) -> Array:
        """One end of the intervals, so many standard deviations away."""
        with np.errstate(over="ignore"):
            end = clip_to_float_range(
                self.completed.values + n_deviations * self._deviations
            )
        return np.where(self.treated, end, np.nan)

    @cached_property
    def _deviations(self) -> Array:
        """Standard deviations of expected values, scaled by those of the placebos."""
        deviations = self.completed.deviations.copy()
        if self.placebos is not None:
            deviations[self._treated_rows] *= self.placebos.std_factors[
                self.unit_patterns
            ]
        return deviations

    @cached_property
    def effect(self) -> Array:
        """Observed minus expected."""
        return self.panel.values - self.expected

    @cached_property
    def effect_low(self) -> Array:
        """Lower ends of the intervals of ``effect``."""
        return self.panel.values - self.high

    @cached_property
    def effect_high(self) -> Array:
        """Upper ends of the intervals of ``effect``."""
        return self.panel.values - self.low

    @cached_property
    def average(self) -> AverageEffect:
        """Mean effect over all treated entries."""
        down = up = float("nan")
        if self.is_calibrated:
            down, up = self._mean_effect_scores.quantiles(self.level)
        effects = np.concatenate([unit.errors for unit in self._trajectories])
        mean, std = overflow_safe_mean(effects), mean_effect_std(self._trajectories)
        return AverageEffect(mean, mean - up * std, mean + down * std, self.level)

    @cached_property
    def error_before(self) -> float:
        """Root mean square error for treated units at times without treatment."""
        return root_mean_square(self.completed.loo_errors[self._treated_rows])

    def placebo_test(self, statistic: str = "ratio") -> PlaceboTest:
        """Test the effect against those of control units as if they were treated.

        Parameters
        ----------
        statistic : {"ratio", "average"}, default="ratio"
            Error at treated times over error before (root mean squares, as in the
            synthetic control literature); or absolute mean effect over its standard
            deviation.

        Examples
        --------
        >>> import numpy as np
        >>> from ncarl.panel import counterfactual
        >>> rng = np.random.default_rng(0)
        >>> Y = np.outer(rng.random(5), np.arange(6.0)) + 0.1 * rng.random((5, 6))
        >>> Y[0, 4:] += 9.0
        >>> counterfactual(Y, 0, start=4).placebo_test().p_value
        0.2
        """
        if statistic not in STATISTICS:
            raise ValueError(
                f"statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}"
            )
        if self.placebos is None:
            raise ValueError(
                "a placebo test needs placebos: call counterfactual with placebos=True"
            )
        if not self.is_testable:
            raise ValueError(
                "a placebo test needs control units that can take the place of the "
                f"treated ones, and none of {len(self.placebos.units)} can: at least "
                "two must have numbers at the treated times and before; add some"
            )
        pairs = zip(self._trajectories, self.unit_patterns, strict=True)
        # Treated units without any placebo are left out, as they are of the groups.
        compared = [unit for unit, k in pairs if self.placebos.has_trajectories(k)]
        observed = test_statistic(compared, statistic)
        placebos = np.array(
            [test_statistic(group, statistic) for group in self._placebo_groups]
        )
        names: tuple[Any, ...] = ()
        if len(self._treated_rows) == 1:
            trajectories = self.placebos.trajectories[0]
            both = zip(self.placebos.units, trajectories, strict=True)
            names = tuple(self.panel.units[k] for k, unit in both if unit is not None)
        p_value = rank_p_value(observed, placebos)
        return PlaceboTest(p_value, observed, placebos, names, statistic)

    def by_unit(self) -> dict[Any, float]:
        """Mean effect of each treated unit over its treated times."""
        pairs = zip(self.units, self._trajectories, strict=True)
        return {unit: float(np.mean(effect.errors)) for unit, effect in pairs}

    def to_frame(self) -> Any:
        """The treated units as a long frame, of polars if the panel came from it.

        Columns: unit, time, treated, observed, expected, low, high, effect,
        effect_low, effect_high.
        """
        return to_long_frame(self)

    def summary(self) -> str:
        """Average effect, error before treatment and placebo test, in a few lines."""
        return format_summary(self)

    def plot(self, unit: Any = None) -> Any:
        """Figure of observed and expected values, and of the effect with its interval.

        Parameters
        ----------
        unit : name, optional
            A treated unit; by default the first.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return effect_figure(self, self._resolve_unit(unit))

    def plot_placebos(self, unit: Any = None) -> Any:
        """Figure of the effect on a unit and of the effects on all placebos.

        Parameters
        ----------
        unit : name, optional
            A treated unit; by default the first.

        Returns
        -------
        matplotlib.figure.Figure
        """
        if self.placebos is None:
            raise ValueError("there are no placebos: counterfactual(placebos=True)")
        return placebo_figure(self, self._resolve_unit(unit))

    def _resolve_unit(self, unit: Any) -> Any:
        """A treated unit; the first by default."""
        name = self.units[0] if unit is None else unit
        if name not in self.units:
            raise ValueError(
                f"unit must be one of the treated units {self.units}, got {unit!r}"
            )
        return name

    @property
    def is_calibrated(self) -> bool:
        """Whether there are held-out errors of control units for the intervals."""
        return not np.isnan(self.choice.error) or self.is_testable

    @property
    def is_testable(self) -> bool:
        """Whether there are placebos."""
        return len(self._placebo_groups) > 0

    @cached_property
    def unit_patterns(self) -> list[int]:
        """Index of the pattern of treated times of each treated unit."""
        return list(treatment_patterns(self.treated)[1])

    @cached_property
    def _treated_rows(self) -> Array:
        """Rows of the treated units."""
        return np.flatnonzero(self.treated.any(axis=1))

    @cached_property
    def _trajectories(self) -> list[EffectTrajectory]:
        """Effects on the treated units."""
        completed = replace(self.completed, deviations=self._deviations)
        return [
            unit_trajectory(self.panel.values, completed, int(k), self.treated[k])
            for k in self._treated_rows
        ]

    @cached_property
    def _placebo_groups(self) -> list[list[EffectTrajectory]]:
        """Groups of control units in the place of the treated ones."""
        if self.placebos is None:
            return []
        order = canonical_unit_order(self.panel.values, self.treated)
        rng = np.random.default_rng(self.seed)
        return assignments(self.placebos, self.unit_patterns, order, rng)

    @cached_property
    def _entry_quantiles(self) -> tuple[float, float]:
        """Lower and upper half-widths of intervals, in standard deviations."""
        if not self.is_calibrated:
            return float("nan"), float("nan")
        scores: ConformalScores = self.choice.scores
        if self.placebos is not None and self.is_testable:
            scores = entry_scores(self.placebos)
        return scores.quantiles(self.level)

    @cached_property
    def _mean_effect_scores(self) -> ConformalScores:
        """Standardized errors of mean effects."""
        if self.placebos is None or not self.is_testable:
            return self.choice.mean_error_scores
        return group_scores(self._placebo_groups, len(self.placebos.units))


def to_long_columns(result: Counterfactual) -> dict[str, list[Any]]:
    """The treated units as columns of a long table."""
    panel = result.panel
    rows, times = np.flatnonzero(result.treated.any(axis=1)), panel.times
    tables = {
        "observed": panel.values,
        "expected": result.expected,
        "low": result.low,
        "high": result.high,
        "effect": result.effect,
        "effect_low": result.effect_low,
        "effect_high": result.effect_high,
    }
    return {
        "unit": [panel.units[k] for k in rows for _ in times],
        "time": list(times) * len(rows),
        "treated": result.treated[rows].ravel().tolist(),
        **{name: table[rows].ravel().tolist() for name, table in tables.items()},
    }


def to_long_frame(result: Counterfactual) -> Any:
    """`to_long_columns` as a frame, of polars if the panel came from it."""
    if result.panel.library == "polars":
        import polars as pl

        return pl.DataFrame(to_long_columns(result)).fill_nan(None)
    import pandas as pd

    return pd.DataFrame(to_long_columns(result))


def format_summary(result: Counterfactual) -> str:
    """Average effect, error before treatment and placebo test, in a few lines."""
    mean, controls = result.average, int((~result.treated.any(axis=1)).sum())
    names = ", ".join(map(str, result.units[:MAX_NAMES]))
    if len(result.units) > MAX_NAMES:
        names += f" and {len(result.units) - MAX_NAMES} more"
    lines = [
        f"{names}: {int(result.treated.sum())} treated entries, {controls} controls",
        f"average effect {mean.effect:.4g}, " + _format_interval(result),
        f"error before treatment {result.error_before:.4g}",
    ]
    if result.is_testable:
        test = result.placebo_test()
        lines.append(
            f"placebo test: error after / before {test.statistic:.3g}, p = "
            f"{test.p_value:.3g} among {len(test.placebos)} placebos"
        )
    return "\n".join(lines)


def _format_interval(result: Counterfactual) -> str:
    mean = result.average
    if not result.is_calibrated:
        return "no interval: too few control units to tell"
    return f"{100 * mean.level:g}% interval {mean.low:.4g} to {mean.high:.4g}"


def effect_figure(result: Counterfactual, unit: Any) -> Figure:
    """Observed and expected values of a treated unit, and below them the effect."""
    from matplotlib.figure import Figure

    from ncarl.plots.style import format_label

    row = result.panel.position(unit)
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    places = np.arange(len(result.panel.times))
    low, high = result.low[row], result.high[row]
    above.fill_between(
        places, low, high, color=BAND_COLOR, lw=0, label=_band_label(result)
    )
    above.plot(places, result.expected[row], color=EXPECTED_COLOR, ls="--", lw=1.8,
               label="expected without treatment")  # fmt: skip
    above.plot(
        places, result.panel.values[row], color=OBSERVED_COLOR, lw=1.8, label="observed"
    )
    above.set_title(format_label(unit), fontsize=11)
    above.legend(frameon=False, fontsize=9)
    below.fill_between(places, result.effect_low[row], result.effect_high[row],
                       color=BAND_COLOR, lw=0)  # fmt: skip
    below.axhline(0.0, color="#999999", lw=1)
    below.plot(places, result.effect[row], color=OBSERVED_COLOR, lw=1.5)
    below.set_ylabel("effect")
    for axes in (above, below):
        _mark_start(axes, result.treated[row])
        axes.spines[["top", "right"]].set_visible(False)
    _label_times(below, result.panel.times)
    return figure


def placebo_figure(result: Counterfactual, unit: Any) -> Figure:
    """The effect on a treated unit, in front of the effects on all placebos."""
    from matplotlib.figure import Figure

    from ncarl.plots.style import format_label

    assert result.placebos is not None
    row = result.panel.position(unit)
    pattern = result.unit_patterns[result.units.index(unit)]
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    places, shown = np.arange(len(result.panel.times)), False
    for placebo in result.placebos.trajectories[pattern]:
        if placebo is not None:
            label = None if shown else "placebos (control units)"
            axes.plot(placebo.time_index, placebo.errors, color=PLACEBO_COLOR, lw=0.9,
                      label=label)  # fmt: skip
            shown = True
    treated = result.treated[row]
    effect = np.where(treated, result.effect[row], np.nan)
    axes.plot(places, effect, color=EXPECTED_COLOR, lw=2.2, label=format_label(unit))
    axes.axhline(0.0, color="#999999", lw=1)
    _mark_start(axes, treated)
    axes.set_ylabel("observed minus expected")
    if len(result.units) == 1:
        p = result.placebo_test().p_value
        axes.set_title(f"placebo test: p = {p:.3g}", fontsize=11)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    _label_times(axes, result.panel.times, np.flatnonzero(treated))
    return figure


def _band_label(result: Counterfactual) -> str:
    return f"{100 * result.level:g}% interval"


def _mark_start(axes: Any, treated: Array) -> None:
    """Draw a line at the start of the treatment."""
    first = int(np.argmax(treated))
    axes.axvline(first - 0.5, color="#999999", lw=1, ls=":")


def _label_times(
    axes: Any, times: tuple[Any, ...], positions: Array | None = None
) -> None:
    """Write at most `MAX_TICK_LABELS` times below the axis."""
    every = np.arange(len(times)) if positions is None else positions
    some = every[:: max(1, -(-len(every) // MAX_TICK_LABELS))]
    axes.set_xticks(some, [_format_time(times[k]) for k in some])


def _format_time(time: Any) -> str:
    """A time without midnight."""
    from ncarl.plots.style import format_label

    return format_label(str(time).removesuffix(" 00:00:00"))

"""`counterfactual`, the effect of a treatment on units of a panel, and its result.

The result, `Counterfactual`, has effects with intervals, placebo tests, a long frame, a
summary and figures.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ncarl.centering import overflow_safe_mean, root_mean_square
from ncarl.containers import clip_to_float_range
from ncarl.core.types import Array
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.engines.cores import limit_blas_threads
from ncarl.io.base import is_frame
from ncarl.panel import model
from ncarl.panel.data import Panel, as_panel, treatment_mask, treatment_patterns
from ncarl.progress import progress_bar
from ncarl.text import join_names
from ncarl.validation import check_choice, check_fraction, check_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of labels along the axis of time.
MAX_TICK_LABELS = 10
BAND_COLOR, PLACEBO_COLOR = "#c6dbef", "#c4c4c4"


@limit_blas_threads(1)
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

    The treated entries are held out and completed from all others: the units' own past
    and the control units. Then each control unit is held out in the same way; its
    errors give the widths of the intervals and the null distribution of the effect.

    Parameters
    ----------
    data : frame, array or Panel
        A wide table of units and times; a long frame with ``unit``, ``time`` and
        ``value``; a `Panel`; or the result of `ncarl.datasets.load_panel`. Entries may
        be missing.
    treated : label, list of labels, mapping or boolean table
        The treated units, from ``start`` on; a mapping from each unit to its own start;
        or a boolean table. A boolean frame is aligned by its labels, an array has the
        layout of ``data``. May be left out if ``data`` has it.
    start : label of a time, optional
        The first treated time.
    unit, time, value : str, optional
        Columns of a long frame.
    units : {"rows", "columns"}, default="rows"
        The axis of the units in a wide table.
    level : float, default=0.9
        Nominal coverage of the intervals.
    placebos : bool, default=True
        Whether to hold out each control unit in turn as if it were treated. Without
        placebos there is no test, and intervals come from five groups of control units.
    random_state : int, default=0
        Seed of the groups of control units, which do not depend on the order of units.
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
        raise ValueError("treated must name units, and start the first treated time")
    coverage = check_fraction("level", level, strict=True)
    seed = check_integer("random_state", random_state, low=0)
    is_panel = isinstance(data, Panel)
    mask = treatment_mask(panel, treated, start, input_layout=not is_panel)
    patterns, _ = treatment_patterns(mask)
    order = model.unit_order(panel.values, mask)
    # C order, since the memory layout of a table changes the last digits of its sums.
    untreated = np.ascontiguousarray(np.where(mask, np.nan, panel.values)[order])
    nonempty = ~np.isnan(untreated).all(axis=1)
    controls = np.flatnonzero(nonempty & ~mask[order].any(axis=1))
    completer = model.PanelCompleter(untreated, pick_engine(engine))
    groups = model.control_groups(controls, len(patterns)) if placebos else []
    n_fits = 2 + len(patterns) * len(groups)
    with progress_bar(progress, n_fits, "panel") as advance:
        rng = np.random.default_rng(seed)
        selection = completer.select_model(patterns, controls, rng)
        advance("selected")
        completed = completer.complete(selection)
        advance("completed")
        runs = None
        if placebos:
            runs = model.run_placebos(completer, selection, patterns, groups, advance)
            runs = runs.restore_order(order)
    completed = completed.restore_order(order)
    result = Counterfactual(panel, mask, coverage, completed, selection, runs, seed)
    if not result.is_calibrated:
        plural = "" if len(controls) == 1 else "s"
        warnings.warn(
            f"no interval can be given with {len(controls)} control unit{plural}: none "
            "could be held out and completed from the others to measure the error. "
            "Bounds of intervals are NaN; add control units",
            stacklevel=3,
        )
    return result


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


@dataclass(eq=False)
class Counterfactual:
    """Expected outcomes without treatment, and the effects of the treatment.

    All arrays have shape (units, times), as in ``panel``; `to_frame` has labels.

    Attributes
    ----------
    panel : Panel
        The observed values.
    treated : boolean array
        The treated entries.
    expected, low, high : arrays
        Expected values without treatment: at treated entries from all untreated ones,
        with intervals; at others from everything but the entry itself.
    level : float
        Nominal coverage of the intervals.
    effect, effect_low, effect_high : arrays
        Observed minus expected, and its interval; NaN at missing entries.
    average : AverageEffect
        Mean effect over all treated entries, with its interval.
    error_before : float
        Root mean square of the effects of treated units at untreated times.
    selection : ModelSelection
        The selected model, and its errors on control units.
    units : tuple
        The treated units.
    is_calibrated : bool
        Whether there are held-out errors of control units for the intervals.
    is_testable : bool
        Whether there are placebos.
    """

    panel: Panel
    treated: Array
    level: float
    completed: model.CompletedPanel
    selection: model.ModelSelection
    placebos: model.Placebos | None
    seed: int

    def __post_init__(self) -> None:
        values, treated, completed = self.panel.values, self.treated, self.completed
        rows = self._rows = np.flatnonzero(treated.any(axis=1))
        self.units = tuple(self.panel.units[k] for k in rows)
        _, self._patterns = treatment_patterns(treated)
        deviations = completed.deviations.copy()
        self._groups: list[list[model.EffectTrajectory]] = []
        if self.placebos is not None:
            deviations[rows] *= self.placebos.std_factors[self._patterns]
            order = model.unit_order(values, treated)
            rng = np.random.default_rng(self.seed)
            self._groups = model.assignments(self.placebos, self._patterns, order, rng)
        self.is_testable = len(self._groups) > 0
        self.is_calibrated = not np.isnan(self.selection.error) or self.is_testable
        (down, up), (mean_down, mean_up) = self._interval_quantiles()

        errors = completed.loo_errors
        before = np.where(np.isnan(errors), completed.values, values)
        fitted = before - np.nan_to_num(errors)
        self.expected = np.where(treated, completed.values, fitted)
        with np.errstate(over="ignore"):
            low = clip_to_float_range(completed.values - down * deviations)
            high = clip_to_float_range(completed.values + up * deviations)
        self.low, self.high = (np.where(treated, end, np.nan) for end in (low, high))
        self.effect = values - self.expected
        self.effect_low, self.effect_high = values - self.high, values - self.low
        self.error_before = root_mean_square(errors[rows])

        scaled = replace(completed, deviations=deviations)
        self._trajectories = [
            model.unit_trajectory(values, scaled, int(k), treated[k]) for k in rows
        ]
        effects = np.concatenate([unit.errors for unit in self._trajectories])
        mean = overflow_safe_mean(effects)
        std = model.mean_effect_std(self._trajectories)
        self.average = AverageEffect(
            mean, mean - mean_up * std, mean + mean_down * std, self.level
        )

    def _interval_quantiles(self) -> list[tuple[float, float]]:
        """Lower and upper quantiles of standardized errors, of entries and of means."""
        if not self.is_calibrated:
            return [(float("nan"), float("nan"))] * 2
        scores = [self.selection.scores, self.selection.mean_error_scores]
        if self.placebos is not None and self.is_testable:
            means = model.group_scores(self._groups, len(self.placebos.units))
            scores = [model.entry_scores(self.placebos), means]
        return [part.quantiles(self.level) for part in scores]

    def placebo_test(self, statistic: str = "ratio") -> model.PlaceboTest:
        """Test the effect against those of control units as if they were treated.

        Parameters
        ----------
        statistic : {"ratio", "average"}, default="ratio"
            Error at treated times over error before (root mean squares, as in the
            synthetic control literature); or absolute mean effect over its standard
            deviation.
        """
        check_choice("statistic", statistic, ("ratio", "average"))
        if self.placebos is None:
            raise ValueError(
                "a placebo test needs placebos: set placebos=True in counterfactual"
            )
        if not self.is_testable:
            raise ValueError(
                "a placebo test needs control units that can take the place of the "
                f"treated ones, and none of {len(self.placebos.units)} can: at least "
                "two must have numbers at the treated times and before; add some"
            )
        pairs = zip(self._trajectories, self._patterns, strict=True)
        # Treated units without any placebo are left out, as they are of the groups.
        compared = [unit for unit, k in pairs if self.placebos.has_trajectories(k)]
        groups = [compared, *self._groups]
        observed, *others = (model.test_statistic(group, statistic) for group in groups)
        placebos = np.array(others)
        names: tuple[Any, ...] = ()
        if len(self._rows) == 1:
            trajectories = self.placebos.trajectories[0]
            both = zip(self.placebos.units, trajectories, strict=True)
            names = tuple(self.panel.units[k] for k, unit in both if unit is not None)
        p_value = model.rank_p_value(observed, placebos)
        return model.PlaceboTest(p_value, observed, placebos, names, statistic)

    def by_unit(self) -> dict[Any, float]:
        """Mean effect of each treated unit over its treated times."""
        pairs = zip(self.units, self._trajectories, strict=True)
        return {unit: float(np.mean(effect.errors)) for unit, effect in pairs}

    def to_frame(self) -> Any:
        """The treated units as a long frame, of polars if the panel came from it.

        Columns: unit, time, treated, observed, expected, low, high, effect,
        effect_low, effect_high.
        """
        rows, times = self._rows, self.panel.times
        columns = {
            "unit": [self.panel.units[k] for k in rows for _ in times],
            "time": list(times) * len(rows),
            "treated": self.treated[rows].ravel().tolist(),
            "observed": self.panel.values[rows].ravel().tolist(),
        }
        names = ("expected", "low", "high", "effect", "effect_low", "effect_high")
        for name in names:
            columns[name] = getattr(self, name)[rows].ravel().tolist()
        if self.panel.library == "polars":
            import polars as pl

            return pl.DataFrame(columns).fill_nan(None)
        import pandas as pd

        return pd.DataFrame(columns)

    def summary(self) -> str:
        """Average effect, error before treatment and placebo test, in a few lines."""
        mean, controls = self.average, int((~self.treated.any(axis=1)).sum())
        interval = f"{100 * self.level:g}% interval {mean.low:.4g} to {mean.high:.4g}"
        if not self.is_calibrated:
            interval = "no interval: too few control units"
        lines = [
            f"{join_names(self.units, 5)}: {int(self.treated.sum())} treated "
            f"entries, {controls} controls",
            f"average effect {mean.effect:.4g}, {interval}",
            f"error before treatment {self.error_before:.4g}",
        ]
        if self.is_testable:
            test = self.placebo_test()
            lines.append(
                f"placebo test: error after / before {test.statistic:.3g}, p = "
                f"{test.p_value:.3g} among {len(test.placebos)} placebos"
            )
        return "\n".join(lines)

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
        return _effect_figure(self, self._resolve_unit(unit))

    def plot_placebos(self, unit: Any = None) -> Any:
        """Figure of the effect on a unit, as in `plot`, and on all placebos."""
        if self.placebos is None:
            raise ValueError("there are no placebos; set placebos=True")
        return _placebo_figure(self, self._resolve_unit(unit))

    def _resolve_unit(self, unit: Any) -> Any:
        name = self.units[0] if unit is None else unit
        if name not in self.units:
            raise ValueError(
                f"unit must be one of the treated units {self.units}, got {unit!r}"
            )
        return name


def _effect_figure(result: Counterfactual, unit: Any) -> Figure:
    """Observed and expected values of a treated unit, and below them the effect."""
    from matplotlib.figure import Figure

    from ncarl.plots import style

    row, places = result.panel.position(unit), np.arange(len(result.panel.times))
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    band = {"color": BAND_COLOR, "lw": 0}
    low, high = result.low[row], result.high[row]
    interval = f"{100 * result.level:g}% interval"
    above.fill_between(places, low, high, label=interval, **band)
    name = "expected without treatment"
    above.plot(places, result.expected[row], "--", color=style.BLUE, lw=1.8, label=name)
    observed = result.panel.values[row]
    above.plot(places, observed, color=style.INK, lw=1.8, label="observed")
    above.set_title(style.format_label(unit), fontsize=11)
    above.legend(frameon=False, fontsize=9)
    below.fill_between(places, result.effect_low[row], result.effect_high[row], **band)
    below.axhline(0.0, color=style.GRAY, lw=1)
    below.plot(places, result.effect[row], color=style.INK, lw=1.5)
    below.set_ylabel("effect")
    for axes in (above, below):
        _finish_axes(axes, result, row, places)
    return figure


def _placebo_figure(result: Counterfactual, unit: Any) -> Figure:
    """The effect on a treated unit, in front of the effects on all placebos."""
    from matplotlib.figure import Figure

    from ncarl.plots import style

    assert result.placebos is not None
    row, pattern = result.panel.position(unit), result.units.index(unit)
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    label = "placebos (control units)"
    for placebo in result.placebos.trajectories[result._patterns[pattern]]:
        if placebo is not None:
            times, errors = placebo.time_index, placebo.errors
            axes.plot(times, errors, color=PLACEBO_COLOR, lw=0.9, label=label)
            label = "_"  # one entry in the legend
    treated = result.treated[row]
    effect = np.where(treated, result.effect[row], np.nan)
    axes.plot(effect, color=style.BLUE, lw=2.2, label=style.format_label(unit))
    axes.axhline(0.0, color=style.GRAY, lw=1)
    axes.set_ylabel("observed minus expected")
    if len(result.units) == 1:
        p = result.placebo_test().p_value
        axes.set_title(f"placebo test: p = {p:.3g}", fontsize=11)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    _finish_axes(axes, result, row, np.flatnonzero(treated))
    return figure


def _finish_axes(axes: Any, result: Counterfactual, row: int, places: Array) -> None:
    """Mark the start of the treatment; label at most `MAX_TICK_LABELS` times."""
    from ncarl.plots.style import format_label

    first = int(np.argmax(result.treated[row]))
    axes.axvline(first - 0.5, color="#999999", lw=1, ls=":")
    axes.spines[["top", "right"]].set_visible(False)
    some = places[:: -(-len(places) // MAX_TICK_LABELS)]
    labels = [str(result.panel.times[k]).removesuffix(" 00:00:00") for k in some]
    axes.set_xticks(some, [format_label(label) for label in labels])

"""Tests of `counterfactual`: effects, intervals, placebo tests, input, errors."""

from __future__ import annotations

import calendar
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from ncarl.datasets import YearlyPanel
from ncarl.engines import pick_engine
from ncarl.panel import Panel, counterfactual
from ncarl.panel.data import as_panel, treatment_mask
from ncarl.panel.model import PanelCompleter, rank_p_value

ENGINE = pick_engine("threads")


def test_effects_are_observed_minus_expected(effect, treated_panel):
    assert 0.0 < effect.average.low < 3.0 < effect.average.high
    assert effect.average.effect == pytest.approx(3.0, abs=0.8)
    np.testing.assert_allclose(effect.effect, treated_panel - effect.expected)
    seen = treated_panel[3, 12:]
    assert effect.average.effect == pytest.approx(
        np.mean(seen - effect.expected[3, 12:])
    )
    np.testing.assert_allclose(effect.effect_low[3, 12:], seen - effect.high[3, 12:])
    np.testing.assert_allclose(effect.effect_high[3, 12:], seen - effect.low[3, 12:])
    assert np.isnan(effect.low[3, :12]).all()
    assert np.isnan(effect.low[4]).all()
    assert effect.by_unit() == {3: pytest.approx(effect.average.effect)}


def test_treated_entries_are_not_used(effect, treated_panel):
    other = treated_panel.copy()
    other[3, 12:] = 1000.0
    again = counterfactual(other, treated=3, start=12, placebos=False)
    np.testing.assert_array_equal(again.expected[3, 12:], effect.expected[3, 12:])


def test_strong_effect_has_the_smallest_p_value(effect):
    for kind in ("ratio", "average"):
        test = effect.placebo_test(kind)
        assert test.p_value == pytest.approx(1 / 12)
        assert len(test.placebos) == len(test.units) == 11
        assert 3 not in test.units
    after = np.sqrt(np.mean(effect.effect[3, 12:] ** 2))
    before = np.sqrt(np.mean(effect.effect[3, :12] ** 2))
    assert effect.error_before == pytest.approx(before)
    assert effect.placebo_test().statistic == pytest.approx(after / before)


def test_placebos_do_not_use_their_held_out_entries(effect, treated_panel):
    course = effect.placebos.trajectories[0][effect.placebo_test().units.index(7)]
    hidden = np.zeros(treated_panel.shape, dtype=bool)
    hidden[7, 12:] = True
    other = np.where(effect.treated, np.nan, treated_panel)
    other[7, 12:] = -500.0
    completer = PanelCompleter(np.where(effect.treated, np.nan, treated_panel), ENGINE)
    completer.values = other  # the original scale is kept
    expected = completer.complete(effect.selection, hidden).values[7, 12:]
    np.testing.assert_allclose(course.errors, treated_panel[7, 12:] - expected)


@given(st.floats(0.1, 100.0), st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30))
def test_the_p_value_is_the_rank_among_all_by_plain_counting(statistic, placebos):
    everyone = [statistic, *placebos]
    rank = sum(1 for x in everyone if x >= statistic * (1 - 1e-9))
    assert rank_p_value(statistic, np.array(placebos)) == rank / len(everyone)


def test_long_wide_and_polars_frames_give_the_same_panel(treated_panel, rng):
    names = {"unit": "unit", "time": "year", "value": "sales"}
    units, times = np.divmod(rng.permutation(treated_panel.size), 16)
    labels, sales = [f"u{k:02d}" for k in units], treated_panel[units, times]
    for library in (pd, pl):
        lines = {"unit": labels, "year": 2000 + times, "sales": sales}
        panel = as_panel(library.DataFrame(lines), **names, units="rows")
        order = [panel.units.index(f"u{k:02d}") for k in range(12)]
        np.testing.assert_array_equal(panel.values[order], treated_panel)
        assert panel.times == tuple(range(2000, 2016))
        assert panel.library == library.__name__
    letters = list("abcdefghijkl")
    wide = pd.DataFrame(treated_panel.T, index=range(16), columns=letters)
    turned = as_panel(wide, None, None, None, units="columns")
    np.testing.assert_array_equal(turned.values, treated_panel)
    assert turned.units == tuple(letters)
    loaded = YearlyPanel(treated_panel, turned.units, np.arange(16), None, "made")
    assert as_panel(loaded, None, None, None, units="rows").units == turned.units
    with pytest.raises(ValueError, match="wide tables only"):
        as_panel(loaded, None, None, None, units="columns")
    named = pl.DataFrame({"unit": list("abcd"), "2001": 1.0, "2000": 0.0})
    assert Panel.from_wide(named).times == ("2000", "2001")
    assert Panel.from_wide(named).value("c", "2001") == 1.0


def test_panels_with_missing_entries_give_finite_results(treated_panel):
    holes = treated_panel.copy()
    holes[np.random.default_rng(2).random(holes.shape) < 0.15] = np.nan
    holes[3, 13] = treated_panel[3, 13]
    run = counterfactual(holes, treated=3, start=12, placebos=False)
    assert np.isfinite(run.expected).all()
    assert np.isfinite([run.average.low, run.average.high]).all()
    assert np.isnan(run.effect[np.isnan(holes)]).all()
    assert run.average.low < 3.0 < run.average.high


def test_units_may_have_different_starts(panel_of):
    Y = panel_of(7, 9, seed=4)
    treated = np.zeros(Y.shape, dtype=bool)
    for unit, start in ((2, 6), (4, 7), (5, 7)):
        treated[unit, start:] = True
    Y[treated] += 5.0
    run = counterfactual(Y, treated=treated)
    assert run.average.low < 5.0 < run.average.high
    assert run.average.effect == pytest.approx(5.0, abs=1.0)
    test = run.placebo_test()
    assert test.p_value < 0.02
    assert len(test.placebos) == 999
    assert test.units == ()
    assert set(run.by_unit()) == {2, 4, 5}
    means = [np.mean(run.effect[unit][treated[unit]]) for unit in (2, 4, 5)]
    assert list(run.by_unit().values()) == pytest.approx(means)


def test_mapping_of_starts_equals_a_treated_table(treated_panel):
    panel = Panel(treated_panel, tuple("abcdefghijkl"), tuple(range(16)))
    mask = treatment_mask(panel, {"c": 8, "f": 10}, None)
    np.testing.assert_array_equal(mask[2], np.arange(16) >= 8)
    np.testing.assert_array_equal(mask[5], np.arange(16) >= 10)
    assert mask.sum() == 8 + 6
    np.testing.assert_array_equal(treatment_mask(panel, mask, None), mask)
    frame = pd.DataFrame(mask)
    np.testing.assert_array_equal(treatment_mask(panel, frame, None), mask)


def test_result_frames_have_one_row_per_time(effect, treated_panel):
    frame = effect.to_frame()
    assert list(frame["time"]) == list(range(16))
    np.testing.assert_allclose(frame["effect"], effect.effect[3])
    assert frame["treated"].sum() == 4
    panel = Panel(treated_panel, tuple(range(12)), tuple(range(16)), "polars")
    lines = replace(effect, panel=panel).to_frame()
    assert isinstance(lines, pl.DataFrame)
    assert lines["low"].null_count() == 12


def test_summary_and_figures(effect, tmp_path):
    text = effect.summary()
    assert "average effect" in text
    assert "p = 0.0833 among 11 placebos" in text
    formulas = tuple(f"a $x_{{$ shop {k}" for k in range(16))
    panel = Panel(effect.panel.values, formulas[:12], formulas)
    run = replace(effect, panel=panel)
    figure = run.plot()
    assert [axes.get_ylabel() for axes in figure.axes] == ["", "effect"]
    figure.savefig(tmp_path / "effect.png")
    figure = run.plot_placebos(formulas[3])
    assert len(figure.axes[0].lines) >= 12
    figure.savefig(tmp_path / "placebos.png")
    with pytest.raises(ValueError, match="unit must be one of"):
        run.plot("b")


def test_matplotlib_is_imported_only_for_figures():
    code = "import sys; sys.modules['matplotlib'] = None; import ncarl.panel"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_intervals_widen_with_the_level(effect):
    wide, narrow = (replace(effect, level=level) for level in (0.95, 0.5))
    widths = [(run.high - run.low)[3, 12:] for run in (wide, narrow)]
    assert (widths[0] > widths[1]).all()
    assert wide.average.low < narrow.average.low < narrow.average.high


def long_panel(time="t", n_rows=2, **columns):
    frame = {"u": ["a", "b"], "t": [1, 1], "y": [1.0, 2.0], **columns}
    frame = pd.DataFrame(frame).iloc[:n_rows]
    return Panel.from_long(frame, unit="u", time=time, value="y")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda Y: counterfactual(Y), "treated must name"),
        (lambda Y: counterfactual(Y, 3), "start must be the first"),
        (lambda Y: counterfactual(Y, 99, 12), "treated must name units"),
        (lambda Y: counterfactual(Y, 3, 50), "start must lie in the panel"),
        (lambda Y: counterfactual(Y, 3, "1989"), "start must be a time like"),
        (lambda Y: counterfactual(Y, 3, 1), "1 values from before"),
        (lambda Y: counterfactual(Y, list(range(12)), 12), "no control units"),
        (lambda Y: counterfactual(Y, [], 12), "at least one unit"),
        (lambda Y: counterfactual(Y, np.zeros(Y.shape, bool)), "at least one unit"),
        (lambda Y: counterfactual(Y, np.zeros((2, 2), bool)), "shape of the panel"),
        (lambda Y: counterfactual(Y, np.arange(12) == 3, 12), "vector of booleans"),
        (lambda Y: counterfactual(Panel.from_wide(Y), 3, 12, units="columns"), "wide"),
        (lambda Y: counterfactual(Y, {3: 12}, start=12), "start must be None"),
        (lambda Y: counterfactual(Y, 3, 12, level=1.0), "level must be below 1"),
        (lambda Y: counterfactual(Y, 3, 12, unit="state"), "needs the names of three"),
        (lambda Y: counterfactual(Y, 3, 12, units="time"), "units must be"),
        (lambda Y: long_panel(u=["a", "a"]), "more than one row for u 'a' at t 1"),
        (lambda Y: long_panel(u=["a", None]), "must name a unit"),
        (lambda Y: long_panel(time="when"), "time must be a column"),
        (lambda Y: long_panel(n_rows=0), "at least one row"),
        (lambda Y: long_panel(t=["Jan", "Feb"]), "convert them to numbers or dates"),
        (lambda Y: Panel.from_wide(pd.DataFrame({"shop": ["a"], "1": 1.0})), "labels="),
        (lambda Y: Panel(Y, tuple("a" * 12), tuple(range(16))), "'a' twice"),
        (lambda Y: Panel(Y, (1,), (2,)), "must have shape"),
        (lambda Y: Panel(Y * np.inf, tuple(range(12)), tuple(range(16))), "finite"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise(treated_panel, call, words):
    with pytest.raises(ValueError, match=words):
        call(treated_panel)


def test_placebo_test_without_placebos_raises(effect):
    run = replace(effect, placebos=None)
    assert run.average.low < 3.0 < run.average.high
    with pytest.raises(ValueError, match="needs placebos"):
        run.placebo_test()
    with pytest.raises(ValueError, match="no placebos"):
        run.plot_placebos()
    with pytest.raises(ValueError, match="statistic must be one of"):
        run.placebo_test("mean")


@settings(max_examples=2, deadline=None)
@given(st.integers(3, 6), st.integers(4, 8), st.integers(0, 10_000))
def test_small_panels_of_any_size_give_finite_answers(units, times, seed):
    Y = np.random.default_rng(seed).normal(size=(units, times)).round(1)
    run = counterfactual(Y, 0, start=times - 1, placebos=False)
    assert np.isfinite(run.expected).all()
    assert np.isfinite([run.average.low, run.average.high]).all()


def test_times_as_text_keep_their_order(panel_of):
    names = calendar.month_abbr[1:]
    for times, start in (([str(k + 1) for k in range(12)], "9"), (names, "Sep")):
        panel = Panel(panel_of(4, 12, seed=0), tuple("abcd"), times)
        assert panel.times == tuple(times)
        mask = treatment_mask(panel, "b", start)
        np.testing.assert_array_equal(mask[1], np.arange(12) >= 8)
    with pytest.raises(ValueError, match="use one of"):
        treatment_mask(panel, "b", "Sept")


def test_numeric_times_of_long_frames_are_sorted():
    for times in (("day 9", "day 10"), ("2020-09", "2020-10")):
        panel = long_panel(t=times[::-1])
        assert panel.times == times
        np.testing.assert_array_equal(panel.values[1], [2.0, np.nan])


def test_treated_tables_are_aligned_by_labels_or_position(treated_panel):
    years = list(range(2000, 2016))
    wide = pd.DataFrame(treated_panel, index=list("abcdefghijkl"), columns=years)
    truth = pd.DataFrame(False, index=wide.index, columns=years)
    truth.loc["d", 2012:] = True
    back = wide[years[::-1]]
    expected = truth.to_numpy()
    for data, table, side in (
        (back, truth, "rows"),
        (back, truth.iloc[::-1], "rows"),
        (back, truth[years[::-1]].to_numpy(), "rows"),
        (back.T, truth.T, "columns"),
        (back.T, truth[years[::-1]].to_numpy().T, "columns"),
    ):
        panel = as_panel(data, None, None, None, units=side)
        mask = treatment_mask(panel, table, None, input_layout=True)
        np.testing.assert_array_equal(mask, expected)
    with pytest.raises(ValueError, match="'z' does not match"):
        treatment_mask(panel, truth.rename(index={"a": "z"}).T, None, input_layout=True)


def test_units_may_be_named_by_arrays_an_index_or_a_column(treated_panel):
    panel = Panel(treated_panel, tuple("abcdefghijkl"), tuple(range(16)))
    expected = treatment_mask(panel, ["a", "b"], 12)
    named = ["a", "b"]
    for names in (np.array(named), pd.Index(named), pd.Series(named), pl.Series(named)):
        np.testing.assert_array_equal(treatment_mask(panel, names, 12), expected)


def test_starts_may_omit_time_zone_and_day():
    days = pd.date_range("2020-07-01", periods=6, freq="MS", tz="Europe/Paris")
    panel = Panel.from_wide(pd.DataFrame(np.ones((2, 6)), columns=days))
    mask = treatment_mask(panel, 0, "2020-09")
    np.testing.assert_array_equal(mask[0], [0, 0, 1, 1, 1, 1])
    mask = treatment_mask(panel, 0, "2020-10-15")
    np.testing.assert_array_equal(mask[0], [0, 0, 0, 0, 1, 1])
    with pytest.raises(ValueError, match="start must be a time like"):
        treatment_mask(panel, 0, "Monday")

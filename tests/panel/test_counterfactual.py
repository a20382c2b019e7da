from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncarl.panel import Panel, counterfactual
from ncarl.panel.placebo import rank_p_value


def as_lines(Y, library=pd):
    """A panel as a long frame, its lines in a random order."""
    units, times = np.indices(Y.shape)
    order = np.random.default_rng(5).permutation(Y.size)
    return library.DataFrame(
        {
            "unit": [f"u{k:02d}" for k in units.ravel()[order]],
            "year": 2000 + times.ravel()[order],
            "sales": Y.ravel()[order],
        }
    )


def test_the_interval_of_the_average_holds_the_true_effect_and_not_zero(found):
    assert found.average.low < 3.0 < found.average.high
    assert found.average.low > 0.0
    assert found.average.effect == pytest.approx(3.0, abs=0.5)


def test_effects_are_what_was_seen_less_what_was_expected(found, treated_panel):
    np.testing.assert_allclose(found.effect, treated_panel - found.expected)
    seen = treated_panel[3, 14:]
    assert found.average.effect == pytest.approx(np.mean(seen - found.expected[3, 14:]))
    np.testing.assert_allclose(found.effect_low[3, 14:], seen - found.high[3, 14:])
    np.testing.assert_allclose(found.effect_high[3, 14:], seen - found.low[3, 14:])
    assert np.isnan(found.low[3, :14]).all()
    assert np.isnan(found.low[4]).all()
    assert found.by_unit() == {3: pytest.approx(found.average.effect)}


def test_what_the_treated_unit_did_afterwards_does_not_matter(found, treated_panel):
    other = treated_panel.copy()
    other[3, 14:] = 1000.0
    again = counterfactual(other, treated=3, start=14, placebos=False)
    np.testing.assert_array_equal(again.expected[3, 14:], found.expected[3, 14:])


def test_a_strong_effect_has_the_least_p_value_there_is(found):
    for kind in ("ratio", "average"):
        test = found.placebo_test(kind)
        assert test.p_value == pytest.approx(1 / 20)
        assert len(test.placebos) == len(test.units) == 19
        assert 3 not in test.units


def test_the_statistic_is_the_error_after_over_the_error_before(found):
    after = np.sqrt(np.mean(found.effect[3, 14:] ** 2))
    before = np.sqrt(np.mean(found.effect[3, :14] ** 2))
    assert found.error_before == pytest.approx(before)
    assert found.placebo_test().statistic == pytest.approx(after / before)


def test_a_placebo_is_what_is_found_when_that_unit_is_the_treated_one(
    found, treated_panel
):
    # The same model, with unit 7 treated besides.
    test = found.placebo_test()
    course = found.placebos.courses[0][test.units.index(7)]
    hidden = treated_panel.copy()
    hidden[7, 14:] = -500.0  # nothing of it may be used
    again = counterfactual(hidden, treated={3: 14, 7: 14}, placebos=False)
    if again.choice.strengths == found.choice.strengths:
        close = found.choice.weight - again.choice.weight
        expected = treated_panel[7, 14:] - course.errors
        np.testing.assert_allclose(
            again.expected[7, 14:], expected, atol=0.05 + abs(close)
        )


@given(
    st.floats(0.1, 100.0),
    st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30),
)
def test_the_p_value_is_the_rank_among_all_by_plain_counting(statistic, placebos):
    everyone = [statistic, *placebos]
    rank = sum(1 for x in everyone if x >= statistic * (1 - 1e-9))
    assert rank_p_value(statistic, np.array(placebos)) == rank / len(everyone)


def test_p_values_without_any_effect_are_spread_out(panel_of):
    # Every unit in turn: the ranks of one run are those of an exchangeable sample.
    values = []
    for seed in range(6):
        run = counterfactual(panel_of(10, 12, seed=seed), treated=0, start=9)
        values.append(run.placebo_test().p_value)
    assert min(values) >= 0.1
    assert 0.2 < np.mean(values) < 0.9


def test_long_wide_and_polars_panels_give_the_same(treated_panel, found):
    long = counterfactual(
        as_lines(treated_panel), "u03", start=2014,
        unit="unit", time="year", value="sales", placebos=False,
    )  # fmt: skip
    rows = list(long.panel.units)
    assert long.panel.times == tuple(range(2000, 2020))
    for lines in (as_lines(treated_panel, pl), as_lines(treated_panel)):
        panel = Panel.from_long(lines, unit="unit", time="year", value="sales")
        order = [panel.units.index(f"u{k:02d}") for k in range(20)]
        np.testing.assert_array_equal(panel.values[order], treated_panel)
    # Units in another order: the same but for rounding, and for which are grouped.
    np.testing.assert_allclose(
        long.expected[rows.index("u03"), 14:], found.expected[3, 14:], atol=0.25
    )
    wide = pd.DataFrame(
        treated_panel.T, index=range(20), columns=list("abcdefghijklmnopqrst")
    )
    turned = Panel.from_wide(wide, units="columns")
    np.testing.assert_array_equal(turned.values, treated_panel)
    named = pl.DataFrame({"unit": list("abcd"), "2001": 1.0, "2000": 0.0})
    assert Panel.from_wide(named).times == ("2000", "2001")
    assert Panel.from_wide(named).value("c", "2001") == 1.0


def test_the_order_of_units_makes_no_difference_to_the_model(treated_panel):
    from ncarl.bayes.intervals import Scores
    from ncarl.engines import pick_engine
    from ncarl.panel.completing import SIDES, Choice, Completer

    none = Scores(np.empty(0), 0.0)
    choice = Choice(dict.fromkeys(SIDES, 3.0), 0.5, 0.0, {}, none, none)
    given = treated_panel.copy()
    given[3, 14:] = np.nan
    order = np.random.default_rng(0).permutation(20)
    one = Completer(given, pick_engine("threads")).complete(choice)
    other = Completer(given[order], pick_engine("threads")).complete(choice)
    np.testing.assert_allclose(one.values[order], other.values, rtol=1e-6)
    np.testing.assert_allclose(one.deviations[order], other.deviations, rtol=1e-6)


def test_left_out_errors_are_those_of_a_fit_that_never_saw_the_entry(treated_panel):
    from ncarl.engines import pick_engine
    from ncarl.panel.completing import Completer

    completer = Completer(treated_panel, pick_engine("threads"))
    inner = completer.standard.inward(_observed(treated_panel))
    for name in ("columns", "rows"):
        side = inner if name == "columns" else inner.transposed()
        model = completer._model(name, side, 3.0)
        _, _, left_out = completer._side(name, inner, 3.0)
        hidden = treated_panel.copy()
        hidden[5, 6] = np.nan
        without = completer.standard.inward(_observed(hidden))
        turned = without if name == "columns" else without.transposed()
        x, _ = model.complete(turned, completer.engine)
        guess = x[5, 6] if name == "columns" else x[6, 5]
        truth = completer._inner(treated_panel)[5, 6]
        assert left_out[5, 6] == pytest.approx(truth - guess, rel=1e-6)


def _observed(values):
    from ncarl.observed import Observed

    return Observed.from_dense(values)


def test_panels_with_gaps_give_finite_answers(treated_panel):
    holes = treated_panel.copy()
    holes[np.random.default_rng(2).random(holes.shape) < 0.15] = np.nan
    holes[3, 15] = 12.0
    run = counterfactual(holes, treated=3, start=14)
    assert np.isfinite(run.expected).all()
    assert np.isfinite([run.average.low, run.average.high]).all()
    assert np.isnan(run.effect[np.isnan(holes)]).all()
    assert run.average.low < 3.0 < run.average.high


def test_units_may_be_treated_from_different_times_on(panel_of):
    Y = panel_of(20, 20, seed=4)
    starts = {2: 12, 9: 15, 11: 15}
    for unit, start in starts.items():
        Y[unit, start:] += 3.0
    run = counterfactual(Y, treated=starts)
    assert run.treated.sum() == 8 + 5 + 5
    assert run.average.low < 3.0 < run.average.high
    assert run.average.effect == pytest.approx(3.0, abs=0.5)
    test = run.placebo_test()
    assert test.p_value < 0.01
    assert len(test.placebos) == 999
    same = counterfactual(Y, treated=run.treated, placebos=False)
    np.testing.assert_array_equal(same.expected, run.expected)
    assert set(run.by_unit()) == {2, 9, 11}


def test_frames_of_results_have_a_line_for_each_time(found, treated_panel):
    frame = found.to_frame()
    assert list(frame["time"]) == list(range(20))
    np.testing.assert_allclose(frame["effect"], found.effect[3])
    assert frame["treated"].sum() == 6
    panel = Panel(treated_panel, tuple(range(20)), tuple(range(20)), "polars")
    lines = type(found)(panel, *(getattr(found, n) for n in (
        "treated", "level", "completed", "choice", "placebos", "seed"))).to_frame()  # fmt: skip
    assert isinstance(lines, pl.DataFrame)
    assert lines["low"].null_count() == 14


def test_the_summary_and_the_figures_say_what_was_found(found):
    text = found.summary()
    assert "average effect" in text
    assert "p = 0.05 among 19 placebos" in text
    figure = found.plot()
    assert [axes.get_ylabel() for axes in figure.axes] == ["", "effect"]
    lines = found.plot_placebos().axes[0].lines
    assert len(lines) >= 20


def test_higher_levels_give_wider_intervals(treated_panel, found):
    wide = counterfactual(treated_panel, 3, 14, level=0.5, placebos=False)
    narrow = counterfactual(treated_panel, 3, 14, level=0.95, placebos=False)
    assert (narrow.high - narrow.low)[3, 14:].min() > (wide.high - wide.low)[
        3, 14:
    ].max()
    assert narrow.average.low < wide.average.low < wide.average.high


def test_times_are_put_in_order():
    panel = Panel(np.array([[1.0, 2.0, 3.0]]), ("a",), (2002, 2000, 2001))
    assert panel.times == (2000, 2001, 2002)
    np.testing.assert_array_equal(panel.values, [[2.0, 3.0, 1.0]])


def lines(**columns):
    return pd.DataFrame({"u": ["a", "b"], "t": [1, 1], "y": [1.0, 2.0], **columns})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda Y: counterfactual(Y), "treated must say"),
        (lambda Y: counterfactual(Y, 3), "start must say when"),
        (lambda Y: counterfactual(Y, 99, 14), "treated must name units"),
        (lambda Y: counterfactual(Y, 3, 50), "start must lie in the panel"),
        (lambda Y: counterfactual(Y, 3, "1989"), "start must be a time like"),
        (lambda Y: counterfactual(Y, 3, 1), "1 numbers from before"),
        (lambda Y: counterfactual(Y, list(range(20)), 14), "no control units"),
        (lambda Y: counterfactual(Y, [], 14), "at least one unit"),
        (lambda Y: counterfactual(Y, np.zeros(Y.shape, bool)), "at least one entry"),
        (lambda Y: counterfactual(Y, np.zeros((2, 2), bool)), "shape of the panel"),
        (lambda Y: counterfactual(Y, {3: 14}, start=14), "start must be None"),
        (lambda Y: counterfactual(Y, 3, 14, level=1.0), "level must be below 1"),
        (lambda Y: counterfactual(Y, 3, 14, unit="state"), "needs the names of three"),
        (lambda Y: counterfactual(Y, 3, 14, units="time"), "units must be"),
        (
            lambda Y: Panel.from_long(lines(u=["a", "a"]), unit="u", time="t", value="y"),
            "more than one line for u 'a' at t 1",
        ),
        (
            lambda Y: Panel.from_long(lines(u=["a", None]), unit="u", time="t", value="y"),
            "must name a unit",
        ),
        (
            lambda Y: Panel.from_long(lines(), unit="u", time="when", value="y"),
            "time must be a column",
        ),
        (lambda Y: Panel(Y, tuple("a" * 20), tuple(range(20))), "'a' twice"),
        (lambda Y: Panel(Y, (1,), (2,)), "must have shape"),
        (lambda Y: Panel(Y * np.inf, tuple(range(20)), tuple(range(20))), "finite"),
    ],
)  # fmt: skip
def test_misuse_is_named(treated_panel, call, words):
    with pytest.raises(ValueError, match=words):
        call(treated_panel)


def test_a_name_that_is_nearly_right_is_offered():
    panel = Panel(np.ones((2, 2)), ("California", "Nevada"), (1, 2))
    with pytest.raises(ValueError, match="did you mean 'California'"):
        panel.position("Californai")


def test_no_test_without_placebos(treated_panel):
    run = counterfactual(treated_panel, 3, 14, placebos=False)
    with pytest.raises(ValueError, match="needs placebos"):
        run.placebo_test()
    with pytest.raises(ValueError, match="no placebos"):
        run.plot_placebos()
    with pytest.raises(ValueError, match="statistic must be one of"):
        run.placebo_test("mean")


@settings(max_examples=8, deadline=None)
@given(st.integers(3, 6), st.integers(4, 8), st.integers(0, 10_000))
def test_small_panels_of_any_size_give_finite_answers(units, times, seed):
    Y = np.random.default_rng(seed).normal(size=(units, times)).round(1)
    run = counterfactual(Y, 0, start=times - 1, placebos=units < 5)
    assert np.isfinite(run.expected).all()
    assert np.isfinite([run.average.low, run.average.high]).all()

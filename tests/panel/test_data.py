"""Panels and logs from frames of all kinds: labels, dates, orders and dtypes."""

from __future__ import annotations

import datetime
import io

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ncarl.panel import GapFiller, Panel, counterfactual, fill_gaps, model
from ncarl.panel.data import labels_are_dates
from ncarl.panel.model import canonical_unit_order

LETTERS = list("ABCDEFGHI")
YEARS = list(range(2008, 2020))


@pytest.fixture(scope="module")
def wide(panel_of):
    """Nine units, twelve years, a gap; A gains from 2016 on."""
    Y = panel_of(9, 12, seed=6, noise=0.5)
    Y[0, 8:] += 4.0
    Y[5, 2] = np.nan
    return pd.DataFrame(Y, index=LETTERS, columns=YEARS)


def shuffled(frame, seed=3):
    return frame.iloc[np.random.default_rng(seed).permutation(len(frame))]


def assert_same(one, other):
    """Two results of one panel whose units lie in different orders."""
    rows = [other.panel.position(unit) for unit in one.panel.units]
    for name in ("expected", "low", "high", "effect", "effect_low", "effect_high"):
        found, again = getattr(one, name), getattr(other, name)[rows]
        np.testing.assert_allclose(again, found, rtol=0, atol=1e-9)
    for name in ("effect", "low", "high"):
        wanted = pytest.approx(getattr(one.average, name), abs=1e-9)
        assert getattr(other.average, name) == wanted
    assert other.by_unit() == pytest.approx(one.by_unit(), abs=1e-9)
    for kind in ("ratio", "average"):
        test, again = one.placebo_test(kind), other.placebo_test(kind)
        assert again.p_value == test.p_value
        assert again.statistic == pytest.approx(test.statistic, abs=1e-9)
        # A unit keeps its placebo, wherever it stands.
        placebos = dict(zip(test.units, test.placebos, strict=False))
        others = dict(zip(again.units, again.placebos, strict=False))
        assert others == pytest.approx(placebos, abs=1e-9)
        np.testing.assert_allclose(np.sort(again.placebos), np.sort(test.placebos))


def test_the_order_of_rows_columns_and_lines_changes_nothing(wide):
    found = counterfactual(wide, "A", start=2016)
    mixed = shuffled(wide)
    assert_same(found, counterfactual(mixed, "A", start=2016))
    assert_same(found, counterfactual(mixed.T, "A", start=2016, units="columns"))
    lines = mixed.rename_axis("shop").reset_index()
    lines = shuffled(lines.melt("shop", var_name="year", value_name="sales"))
    lines["year"] = lines["year"].astype(int)
    names = {"unit": "shop", "time": "year", "value": "sales"}
    assert_same(found, counterfactual(lines, "A", start=2016, **names))


def test_names_and_containers_change_nothing_either(wide):
    found = counterfactual(wide, "A", start=2016, placebos=False)
    for data in (wide.to_numpy(), wide.set_axis(LETTERS[::-1])):
        treated = 0 if isinstance(data, np.ndarray) else "I"
        start = 8 if isinstance(data, np.ndarray) else 2016
        again = counterfactual(data, treated, start=start, placebos=False)
        np.testing.assert_array_equal(again.expected, found.expected)
        assert again.average == found.average


@pytest.mark.parametrize("most_fits", [60, 1])
def test_nor_does_it_where_several_are_treated_at_times_of_their_own(
    wide, monkeypatch, most_fits
):
    monkeypatch.setattr(model, "MAX_FITS", most_fits)  # 1: several hidden together
    starts = {"A": 2016, "C": 2017, "E": 2017}
    found = counterfactual(wide, starts)
    assert len(found.placebo_test().placebos) == model.MAX_PLACEBO_GROUPS
    mixed = shuffled(wide, seed=0)
    assert list(mixed.index).index("A") > list(mixed.index).index("C")
    assert_same(found, counterfactual(mixed, starts))


def test_results_lie_as_the_panel_was_given(wide):
    mixed = shuffled(wide)
    run = counterfactual(mixed, "A", start=2016)
    assert run.panel.units == tuple(mixed.index)
    assert run.placebo_test().units == tuple(u for u in mixed.index if u != "A")
    np.testing.assert_allclose(run.effect, mixed.to_numpy() - run.expected)
    assert run.treated[list(mixed.index).index("A"), 8:].all()


def test_units_are_ordered_without_a_look_at_what_treatment_did():
    values = np.array([[1.0, 9.0], [1.0, 5.0], [1.0, np.nan], [0.0, 7.0]])
    treated = np.zeros(values.shape, dtype=bool)
    treated[0, 1] = True
    expected = [3, 1, 0, 2]  # the first is as if it had a gap
    assert canonical_unit_order(values, treated).tolist() == expected
    values[0, 1] = -9.0
    assert canonical_unit_order(values, treated).tolist() == expected


def test_units_of_like_numbers_are_not_hidden_together():
    groups = model._control_groups(np.arange(12), 30)
    assert sorted(np.concatenate(groups)) == list(range(12))
    assert [len(group) for group in groups] == [3, 3, 2, 2, 2]
    assert all(np.diff(group).min() > 1 for group in groups)


# --- messages of counterfactual ------------------------------------------------------


def refusal(call):
    with pytest.raises(ValueError) as error:
        call()
    return str(error.value)


def test_a_name_of_another_type_is_offered_with_its_type(wide):
    numbered = wide.set_axis(range(9))
    said = refusal(lambda: counterfactual(numbered, "0", start=2016))
    assert said.endswith("got '0' (str); did you mean 0 (int)")
    texts = wide.set_axis([str(k) for k in range(9)])
    said = refusal(lambda: counterfactual(texts, 0, start=2016))
    assert said.endswith("got 0 (int); did you mean '0' (str)")


def test_a_unit_found_among_the_times_points_to_the_other_side(wide):
    said = refusal(lambda: counterfactual(wide.T, "A", start=2016))
    assert "got 'A', which is one of its times" in said
    assert 'units="columns"' in said
    turned = refusal(lambda: counterfactual(wide, "A", start=2016, units="columns"))
    assert 'units="rows"' in turned


def test_numbers_are_listed_as_numbers_and_dots_stand_for_more():
    few = Panel(np.ones((3, 2)), (2008, 2009, np.int64(2010)), (1, 2))
    said = refusal(lambda: few.position("Paris"))
    assert said.endswith("there are 2008, 2009, 2010")
    many = Panel(np.ones((12, 2)), tuple(range(100, 112)), (1, 2))
    assert refusal(lambda: many.position("Paris")).endswith("108, 109 ...")


# --- logs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(waves):
    index = pd.date_range("2024-03-25", periods=240, freq="h", name="when")
    frame = pd.DataFrame(waves, index=index, columns=["n", "e", "s", "w"])
    frame.iloc[60:68, 0] = np.nan
    return frame.drop(index[100])


def test_times_that_were_read_as_text_are_refused_with_the_way_out(log):
    text = io.StringIO(log.to_csv())
    plain = pd.read_csv(text, index_col=0)
    said = refusal(lambda: fill_gaps(plain))
    assert "'2024-03-25 00:00:00' (str)" in said
    assert "parse_dates=True" in said
    with pytest.raises(ValueError, match="the index of a log must hold dates"):
        GapFiller().fit(plain)
    text.seek(0)
    filler = GapFiller().fit(pd.read_csv(text, index_col=0, parse_dates=True))
    assert filler.period_ == 24
    plain.index = pd.to_datetime(plain.index)
    pd.testing.assert_frame_equal(fill_gaps(plain), fill_gaps(log), check_freq=False)


@pytest.mark.parametrize(
    "form",
    ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M", "%d/%m/%y %H:%M", "%b %d, %Y", "%Y-%m",
     "%Y-%m-%dT%H:%M:%SZ", "%m/%d/%Y %I:%M %p", "%Y%m%dT%H%M"],
)  # fmt: skip
def test_dates_are_known_however_they_are_written(form):
    index = pd.date_range("2024-03-25", periods=30, freq="D").strftime(form)
    for labels in (index, index.astype(object), index.append(pd.Index([None]))):
        assert labels_are_dates(labels)


@pytest.mark.parametrize(
    "labels",
    [["a", "b"], ["1", "2"], ["10:30", "10:45"], ["1.2.3", "1.2.4"], ["2019", "2020"],
     ["May", "Jun"], ["run 2024", "run 2025"], ["2024-01-01", "other"], [1.5, 2.5]],
)  # fmt: skip
def test_labels_that_are_no_dates_are_left_alone(labels):
    assert not labels_are_dates(pd.Index(labels))


def test_logs_with_other_labels_go_by_the_order_of_their_lines(log):
    filled = fill_gaps(log.to_numpy())
    for index in (pd.RangeIndex(239), pd.Index([f"line {k}" for k in range(239)])):
        again = fill_gaps(log.set_axis(index))
        assert again.index.equals(index)
        np.testing.assert_allclose(again, filled, rtol=1e-9)


def test_dates_that_pandas_does_not_hold_as_times_are_refused_too(log):
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(k) for k in range(239)]
    with pytest.raises(ValueError, match="to_datetime"):
        fill_gaps(log.set_axis(days))
    hours = pd.period_range("2024-01-01", periods=239, freq="h")
    with pytest.raises(ValueError, match="to_timestamp"):
        fill_gaps(log.set_axis(hours))


def test_a_series_is_told_how_to_become_a_log(log):
    for series in (log["n"], pl.Series("n", log["n"].to_numpy())):
        assert ".to_frame()" in refusal(lambda log=series: fill_gaps(log))
    assert fill_gaps(log["n"].to_frame()).notna().all().all()
    assert "reshape(-1, 1)" in refusal(lambda: fill_gaps(log["n"].to_numpy()))


@pytest.mark.parametrize("freq", ["MS", "ME", "QS", "15D"])
def test_months_are_told_apart_from_other_uneven_steps(freq):
    times = pd.date_range("2015-01-01", periods=60, freq=freq)
    times = times.append(times[-1:] + pd.Timedelta(days=4)) if freq == "15D" else times
    values = np.sin(np.arange(len(times)) / 6 * np.pi)[:, None] + [1.0, 2.0]
    months = pd.DataFrame(values, index=times, columns=["a", "b"])
    months.iloc[20, 0] = np.nan
    said = refusal(lambda: fill_gaps(months))
    assert ("not of one length" in said) == (freq != "15D")
    zoned = refusal(lambda: fill_gaps(months.tz_localize("Europe/Paris")))
    assert ("not of one length" in zoned) == (freq != "15D")
    if freq == "MS":
        filled = fill_gaps(months.reset_index(drop=True), period=12)
        assert filled.set_axis(times).iloc[20, 0] == pytest.approx(values[20, 0], 0.1)


def test_an_hour_that_comes_twice_in_autumn_stays_with_a_zone(waves):
    zone = "Europe/Paris"
    hours = pd.date_range("2024-10-25", periods=240, freq="h", tz=zone)
    local = pd.DataFrame(waves, index=hours.tz_localize(None))
    local.iloc[60:64, 0] = np.nan
    said = refusal(lambda: fill_gaps(local))
    assert "comes twice" in said
    assert "ambiguous='infer'" in said
    filled = fill_gaps(local.tz_localize(zone, ambiguous="infer"))
    np.testing.assert_allclose(filled, fill_gaps(local.set_axis(hours)), rtol=1e-9)
    quarters = pd.date_range("2024-10-27", periods=20, freq="15min", tz=zone)
    fine = pd.DataFrame({"a": 1.0}, index=quarters.tz_localize(None))
    said = refusal(lambda: fill_gaps(fine))
    assert "goes back" in said
    assert "tz_localize" in said


def test_days_that_come_twice_are_no_matter_of_clocks():
    days = pd.date_range("2024-10-25", periods=5, freq="D")
    log = pd.DataFrame({"a": 1.0}, index=days.append(days[-1:]))
    said = refusal(lambda: fill_gaps(log))
    assert "comes twice" in said
    assert "tz_localize" not in said

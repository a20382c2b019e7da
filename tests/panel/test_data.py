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
from ncarl.panel.model import unit_order

pytestmark = pytest.mark.usefixtures("few_steps")
LETTERS = list("ABCDEFG")
YEARS = list(range(2008, 2017))


@pytest.fixture(scope="module")
def wide(panel_of):
    """Seven units, nine years, a missing entry; A gains from 2014 on."""
    Y = panel_of(7, 9, seed=6, noise=0.5)
    Y[0, 6:] += 4.0
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


def test_the_order_of_rows_columns_and_lines_does_not_matter(wide):
    found = counterfactual(wide, "A", start=2014)
    mixed = shuffled(wide)
    run = counterfactual(mixed.T, "A", start=2014, units="columns")
    assert_same(found, run)
    assert run.panel.units == tuple(mixed.index)
    assert run.placebo_test().units == tuple(u for u in mixed.index if u != "A")
    np.testing.assert_allclose(run.effect, mixed.to_numpy() - run.expected)
    lines = mixed.rename_axis("shop").reset_index()
    lines = shuffled(lines.melt("shop", var_name="year", value_name="sales"))
    lines["year"] = lines["year"].astype(int)
    names = {"unit": "shop", "time": "year", "value": "sales"}
    assert_same(found, counterfactual(lines, "A", start=2014, **names))


def test_nor_do_they_where_units_are_treated_from_different_times_on(wide):
    starts = {"A": 2014, "C": 2015, "E": 2015}
    found = counterfactual(wide, starts)
    assert len(found.placebo_test().placebos) == model.MAX_PLACEBO_GROUPS
    mixed = shuffled(wide, seed=0)
    assert list(mixed.index).index("A") > list(mixed.index).index("C")
    assert_same(found, counterfactual(mixed, starts))


def test_units_are_ordered_without_a_look_at_what_treatment_did():
    values = np.array([[1.0, 9.0], [1.0, 5.0], [1.0, np.nan], [0.0, 7.0]])
    treated = np.zeros(values.shape, dtype=bool)
    treated[0, 1] = True
    expected = [3, 1, 0, 2]  # the treated entry counts as missing
    assert unit_order(values, treated).tolist() == expected
    values[0, 1] = -9.0
    assert unit_order(values, treated).tolist() == expected


def test_units_of_like_numbers_are_not_hidden_together():
    assert len(model.control_groups(np.arange(40), 31)) == 5
    groups = model.control_groups(np.arange(12), 30)
    assert sorted(np.concatenate(groups)) == list(range(12))
    assert [len(group) for group in groups] == [3, 3, 2, 2, 2]
    assert all(np.diff(group).min() > 1 for group in groups)


# --- messages of counterfactual ------------------------------------------------------


def refusal(call):
    with pytest.raises(ValueError) as error:
        call()
    return str(error.value)


def test_a_unit_among_the_times_points_to_the_other_axis(wide):
    said = refusal(lambda: counterfactual(wide.T, "A", start=2014))
    assert "got 'A', which is one of its times" in said
    assert 'units="columns"' in said
    turned = refusal(lambda: counterfactual(wide, "A", start=2014, units="columns"))
    assert 'units="rows"' in turned


@pytest.mark.parametrize(
    ("units", "unit", "words"),
    [
        (range(7), "0", "got '0' (str); did you mean 0 (int)"),
        ("0123456", 0, "got 0 (int); did you mean '0' (str)"),
        ((2008, 2009, np.int64(2010)), "Paris", "there are 2008, 2009, 2010"),
        (("California", "Nevada"), "Californai", "did you mean 'California'"),
        (range(100, 112), "Paris", "108, 109 and 2 more"),
    ],
)
def test_an_unknown_unit_is_told_which_there_are(units, unit, words):
    panel = Panel(np.ones((len(units), 2)), tuple(units), (1, 2))
    assert refusal(lambda: panel.position(unit)).endswith(words)


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
    said = r"'2024-03-25 00:00:00' \(str\).*parse_dates=True"
    with pytest.raises(ValueError, match=said):
        fill_gaps(plain)
    text.seek(0)
    filler = GapFiller().fit(pd.read_csv(text, index_col=0, parse_dates=True))
    assert filler.period_ == 24
    plain.index = pd.to_datetime(plain.index)
    pd.testing.assert_frame_equal(fill_gaps(plain), fill_gaps(log), check_freq=False)


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M", "%d/%m/%y %H:%M", "%b %d, %Y",
             "%Y-%m", "%Y%m%dT%H%M"],
)  # fmt: skip
def test_dates_are_recognized_in_any_format(form):
    index = pd.date_range("2024-03-25", periods=30, freq="D").strftime(form)
    for labels in (index, index.append(pd.Index([None]))):
        assert labels_are_dates(labels)


@pytest.mark.parametrize(
    "labels",
    [["1", "2"], ["10:30", "10:45"], ["1.2.3", "1.2.4"], ["2019", "2020"],
     ["May", "Jun"], ["run 2024", "run 2025"], ["2024-01-01", "other"], [1.5, 2.5]],
)  # fmt: skip
def test_labels_that_are_no_dates_are_left_alone(labels):
    assert not labels_are_dates(pd.Index(labels))


def test_dates_that_pandas_does_not_hold_as_times_are_refused_too(log):
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(k) for k in range(239)]
    with pytest.raises(ValueError, match="to_datetime"):
        fill_gaps(log.set_axis(days))
    hours = pd.period_range("2024-01-01", periods=239, freq="h")
    with pytest.raises(ValueError, match="to_timestamp"):
        fill_gaps(log.set_axis(hours))


def test_a_series_is_refused_with_the_way_out(log):
    for series in (log["n"], pl.Series("n", log["n"].to_numpy())):
        assert ".to_frame()" in refusal(lambda log=series: fill_gaps(log))
    assert fill_gaps(log["n"].to_frame()).notna().all().all()
    assert "reshape(-1, 1)" in refusal(lambda: fill_gaps(log["n"].to_numpy()))


def test_months_count_as_steps_without_their_times():
    times = pd.date_range("2015-01-01", periods=60, freq="MS")
    values = np.sin(np.arange(60) / 6 * np.pi)[:, None] + [1.0, 2.0]
    months = pd.DataFrame(values, index=times, columns=["a", "b"])
    months.iloc[20, 0] = np.nan
    assert "Months, quarters and years differ" in refusal(lambda: fill_gaps(months))
    filled = fill_gaps(months.reset_index(drop=True), period=12)
    assert filled.iloc[20, 0] == pytest.approx(values[20, 0], 0.1)


def test_an_hour_that_comes_twice_in_autumn_stays_with_a_zone(waves):
    zone = "Europe/Paris"
    hours = pd.date_range("2024-10-25", periods=240, freq="h", tz=zone)
    local = pd.DataFrame(waves, index=hours.tz_localize(None))
    local.iloc[60:64, 0] = np.nan
    with pytest.raises(ValueError, match=r"comes twice.*ambiguous='infer'"):
        fill_gaps(local)
    filled = fill_gaps(local.tz_localize(zone, ambiguous="infer"))
    np.testing.assert_allclose(filled, fill_gaps(local.set_axis(hours)), rtol=1e-9)

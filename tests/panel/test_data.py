"""Tests of panels and logs from frames: labels, dates, order and dtypes."""

from __future__ import annotations

import datetime
import io

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from ncarl.panel import GapFiller, Panel, counterfactual, fill_gaps, model
from ncarl.panel.data import labels_are_dates
from ncarl.panel.model import unit_order

pytestmark = pytest.mark.usefixtures("few_steps")
LETTERS = list("ABCDEFG")
YEARS = list(range(2008, 2017))


@pytest.fixture(scope="module")
def wide(panel_of):
    """Seven units and nine years with a missing entry; A is treated from 2014 on."""
    Y = panel_of(7, 9, seed=6, noise=0.5)
    Y[0, 6:] += 4.0
    Y[5, 2] = np.nan
    return pd.DataFrame(Y, index=LETTERS, columns=YEARS)


def shuffle(frame, seed=3):
    return frame.iloc[np.random.default_rng(seed).permutation(len(frame))]


def assert_same(one, other):
    """Check that results of one panel in different unit orders agree."""
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
        # The placebo of a unit does not depend on its position.
        placebos = dict(zip(test.units, test.placebos, strict=False))
        others = dict(zip(again.units, again.placebos, strict=False))
        assert others == pytest.approx(placebos, abs=1e-9)
        np.testing.assert_allclose(np.sort(again.placebos), np.sort(test.placebos))


def test_order_of_rows_columns_and_lines_does_not_matter(wide):
    found = counterfactual(wide, "A", start=2014)
    mixed = shuffle(wide)
    run = counterfactual(mixed.T, "A", start=2014, units="columns")
    assert_same(found, run)
    assert run.panel.units == tuple(mixed.index)
    assert run.placebo_test().units == tuple(u for u in mixed.index if u != "A")
    np.testing.assert_allclose(run.effect, mixed.to_numpy() - run.expected)
    lines = mixed.rename_axis("shop").reset_index()
    lines = shuffle(lines.melt("shop", var_name="year", value_name="sales"))
    lines["year"] = lines["year"].astype(int)
    names = {"unit": "shop", "time": "year", "value": "sales"}
    assert_same(found, counterfactual(lines, "A", start=2014, **names))


def test_order_does_not_matter_with_different_starts(wide):
    starts = {"A": 2014, "C": 2015, "E": 2015}
    found = counterfactual(wide, starts)
    assert len(found.placebo_test().placebos) == model.MAX_PLACEBO_GROUPS
    mixed = shuffle(wide, seed=0)
    assert list(mixed.index).index("A") > list(mixed.index).index("C")
    assert_same(found, counterfactual(mixed, starts))


def test_unit_order_ignores_treated_entries():
    values = np.array([[1.0, 9.0], [1.0, 5.0], [1.0, np.nan], [0.0, 7.0]])
    treated = np.zeros(values.shape, dtype=bool)
    treated[0, 1] = True
    expected = [3, 1, 0, 2]  # the treated entry counts as missing
    assert unit_order(values, treated).tolist() == expected
    values[0, 1] = -9.0
    assert unit_order(values, treated).tolist() == expected


def test_control_groups_do_not_contain_neighbors():
    assert len(model.control_groups(np.arange(40), 31)) == 5
    groups = model.control_groups(np.arange(12), 30)
    assert sorted(np.concatenate(groups)) == list(range(12))
    assert [len(group) for group in groups] == [3, 3, 2, 2, 2]
    assert all(np.diff(group).min() > 1 for group in groups)


# --- messages of counterfactual ------------------------------------------------------


def error_of(call):
    with pytest.raises(ValueError) as error:
        call()
    return str(error.value)


def test_unit_among_the_times_suggests_the_other_axis(wide):
    said = error_of(lambda: counterfactual(wide.T, "A", start=2014))
    assert "got 'A', which is one of its times" in said
    assert 'units="columns"' in said
    turned = error_of(lambda: counterfactual(wide, "A", start=2014, units="columns"))
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
def test_unknown_unit_lists_the_known_ones(units, unit, words):
    panel = Panel(np.ones((len(units), 2)), tuple(units), (1, 2))
    assert error_of(lambda: panel.position(unit)).endswith(words)


# --- logs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(waves):
    index = pd.date_range("2024-03-25", periods=240, freq="h", name="when")
    frame = pd.DataFrame(waves, index=index, columns=["n", "e", "s", "w"])
    frame.iloc[60:68, 0] = np.nan
    return frame.drop(index[100])


def test_times_as_text_raise(log):
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
def test_other_labels_are_not_parsed_as_dates(labels):
    assert not labels_are_dates(pd.Index(labels))


def test_date_objects_raise(log):
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(k) for k in range(239)]
    with pytest.raises(ValueError, match="to_datetime"):
        fill_gaps(log.set_axis(days))
    hours = pd.period_range("2024-01-01", periods=239, freq="h")
    with pytest.raises(ValueError, match="to_timestamp"):
        fill_gaps(log.set_axis(hours))


def test_series_raises(log):
    for series in (log["n"], pl.Series("n", log["n"].to_numpy())):
        assert ".to_frame()" in error_of(lambda log=series: fill_gaps(log))
    assert fill_gaps(log["n"].to_frame()).notna().all().all()
    assert "reshape(-1, 1)" in error_of(lambda: fill_gaps(log["n"].to_numpy()))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (sparse.csr_array(np.eye(4)), r"got a csr_array; \.toarray\(\)"),
        (pl.DataFrame(np.eye(4)).lazy(), r"got a LazyFrame; \.collect\(\)"),
        ([{"a": 1.0}, {"a": 2.0}], "got a list; pandas.DataFrame makes a frame"),
        ({"a": [1.0, 2.0]}, "got a dict; pandas.DataFrame makes a frame"),
        ("log.csv", "got a str; read the file first"),
        ([[1.0, 2.0], [3.0]], "got a list; pandas.DataFrame"),
        (np.array([["a", "b"]]), "got a ndarray; .*'a'"),
        (np.eye(4) + 1j, "real numbers, got dtype complex128"),
        (np.array([["2024-01-01"]], dtype="M8[D]"), "real numbers, got dtype datetime"),
        (3.0, r"got shape \(\)"),
        (np.ones(4), r"got one axis; .*reshape\(-1, 1\)"),
        (pd.Series([1.0, 2.0]), r"got one axis; .*to_frame\(\)"),
        (np.ones((2, 3, 4)), r"got shape \(2, 3, 4\)"),
        (np.empty((0, 3)), r"got shape \(0, 3\)"),
        (np.empty((3, 0)), r"got shape \(3, 0\)"),
        (pd.DataFrame(index=range(3)), r"got shape \(3, 0\)"),
        (pl.DataFrame(schema={"a": pl.Float64}), r"got shape \(0, [01]\)"),
    ],
)
def test_tables_of_another_kind_raise(table, words):
    for what, call in (
        ("a log", lambda: fill_gaps(table)),
        ("a panel", lambda: counterfactual(table, 0, 1)),
        ("a panel", lambda: Panel(table, (1, 2), (3, 4))),
    ):
        with pytest.raises((TypeError, ValueError), match=rf"^{what} must be.*{words}"):
            call()


def test_panel_without_units_raises():
    with pytest.raises(ValueError, match=r"at least one row and one column.*\(0, 0\)"):
        Panel(np.empty((0, 0)), (), ())


def test_months_count_as_equal_steps():
    times = pd.date_range("2015-01-01", periods=60, freq="MS")
    values = np.sin(np.arange(60) / 6 * np.pi)[:, None] + [1.0, 2.0]
    months = pd.DataFrame(values, index=times, columns=["a", "b"])
    months.iloc[20, 0] = np.nan
    assert "Months, quarters and years differ" in error_of(lambda: fill_gaps(months))
    filled = fill_gaps(months.reset_index(drop=True), period=12)
    assert filled.iloc[20, 0] == pytest.approx(values[20, 0], 0.1)


def test_repeated_hour_at_the_end_of_dst_is_kept(waves):
    zone = "Europe/Paris"
    hours = pd.date_range("2024-10-25", periods=240, freq="h", tz=zone)
    local = pd.DataFrame(waves, index=hours.tz_localize(None))
    local.iloc[60:64, 0] = np.nan
    with pytest.raises(ValueError, match=r"comes twice.*ambiguous='infer'"):
        fill_gaps(local)
    filled = fill_gaps(local.tz_localize(zone, ambiguous="infer"))
    np.testing.assert_allclose(filled, fill_gaps(local.set_axis(hours)), rtol=1e-9)

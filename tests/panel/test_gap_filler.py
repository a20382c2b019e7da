"""Tests of `GapFiller`: input types, seasonality, kriging and intervals."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ncarl.holdout import time_shifted_split
from ncarl.panel import GapFiller, fill_gaps
from ncarl.panel.gap_filler import fit_seasonality, read_log
from ncarl.panel.kriging import (
    Kriging,
    ObservedIndex,
    krige,
    select_predictors,
    temporal_basis,
)


@pytest.fixture(scope="module")
def holes(waves):
    """The waves with missing hours, an outage and single missing entries."""
    given = waves.copy()
    given[60:68, 0] = np.nan
    given[100:110, 1] = np.nan
    given[150:153] = np.nan
    given[::17, 2] = np.nan
    return given


@pytest.fixture(scope="module")
def filler(holes):
    return GapFiller(period=24).fit(holes)


@pytest.fixture(scope="module")
def frame(holes):
    index = pd.date_range("2024-03-04", periods=len(holes), freq="h")
    return pd.DataFrame(holes, index=index, columns=["n", "e", "s", "w"])


def test_missing_hours_are_recovered(filler, holes, waves):
    filled = filler.transform(holes)
    gaps = np.isnan(holes)
    assert np.sqrt(np.mean((filled - waves)[gaps] ** 2)) < 0.15
    line = pd.DataFrame(holes).interpolate(limit_direction="both").to_numpy()
    assert np.sqrt(np.mean((line - waves)[gaps] ** 2)) > 0.5


def test_observed_entries_are_kept_and_others_have_intervals(filler, holes, waves):
    known = ~np.isnan(holes)
    filled, std = filler.transform(holes, return_std=True)
    np.testing.assert_array_equal(filled[known], holes[known])
    assert (std[known] == 0.0).all()
    assert std[105, 1] > std[34, 2] > 0.0
    assert std[151, 0] > std[64, 0]  # no other sensor is observed at 151
    low, high = filler.predict_interval(holes, level=0.9)
    np.testing.assert_array_equal(low[known], holes[known])
    assert (low[~known] < filled[~known]).all()
    assert (filled[~known] < high[~known]).all()
    inside = (low <= waves)[~known] & (waves <= high)[~known]
    assert 0.75 <= inside.mean() <= 1.0
    wider = filler.predict_interval(holes, level=0.99)
    assert ((wider[1] - wider[0])[~known] >= (high - low)[~known]).all()


def test_frames_keep_their_labels_and_agree_with_arrays(filler, frame, holes):
    filled = fill_gaps(frame)
    assert filled.index.equals(frame.index)
    assert list(filled.columns) == list(frame.columns)
    np.testing.assert_allclose(filled.to_numpy(), filler.transform(holes))
    column = frame.rename_axis("when").reset_index()
    again, std = fill_gaps(column, return_std=True)
    assert list(again.columns) == ["when", "n", "e", "s", "w"]
    assert again["when"].equals(column["when"])
    np.testing.assert_array_equal(again[["n", "e", "s", "w"]], filled)
    assert (std["n"] == 0.0).sum() == 240 - 11


def test_polars_frames_are_returned_for_polars_input(frame, filler, holes):
    log = pl.DataFrame(
        {"when": frame.index.to_numpy(), **{c: frame[c].to_numpy() for c in frame}},
        nan_to_null=True,
    )
    filled = fill_gaps(log)
    assert isinstance(filled, pl.DataFrame)
    assert filled.columns == log.columns
    assert filled.null_count().to_numpy().sum() == 0
    np.testing.assert_allclose(filled[:, 1:].to_numpy(), filler.transform(holes))


def test_absent_rows_count_as_missing_and_are_not_returned(frame):
    lost = frame.drop(frame.index[[80, 81, 200]])
    filler = GapFiller().fit(lost)
    assert filler.period_ == 24
    filled = filler.transform(lost)
    assert filled.index.equals(lost.index)
    assert not filled.isna().any().any()
    assert np.abs(filled - fill_gaps(frame).loc[lost.index]).max().max() < 0.3


def test_period_is_derived_from_the_times(frame):
    for freq, period in (("15min", 96), ("D", 7)):
        index = pd.date_range("2024-03-04", periods=240, freq=freq)
        assert GapFiller().fit(frame.set_axis(index)).period_ == period
    given = GapFiller(period=datetime.timedelta(hours=12)).fit(frame)
    assert given.period_ == 12
    assert GapFiller().fit(frame.to_numpy()).period_ is None


def test_complete_log_is_returned_unchanged(waves):
    np.testing.assert_array_equal(fill_gaps(waves, 24), waves)


def test_single_sensor_is_imputed_from_its_daily_pattern(waves):
    given = waves[:, :1].copy()
    given[60:68] = np.nan
    filled = fill_gaps(given, period=24)
    assert np.abs(filled - waves[:, :1]).max() < 0.6


def test_constant_sensors_and_integers_give_finite_results():
    log = pd.DataFrame({"a": [3] * 30, "b": list(range(30)), "c": [1.5] * 30})
    log = log.astype("Float64")
    log.iloc[4:6, 0] = pd.NA
    log.iloc[10, 1] = pd.NA
    filled = fill_gaps(log)
    assert filled.iloc[4, 0] == 3.0
    assert abs(filled.iloc[10, 1] - 10.0) < 3.0


@pytest.mark.parametrize("size", [1e-200, 1e250])
def test_result_is_equivariant_to_units(filler, holes, size):
    filled, std = fill_gaps(holes * size, 24, return_std=True)
    plain, spread = filler.transform(holes, return_std=True)
    np.testing.assert_allclose(filled / size, plain, rtol=1e-7)
    np.testing.assert_allclose(std / size, spread, rtol=1e-5, atol=1e-9)


def test_times_with_a_zone_are_supported(frame):
    zoned = frame.tz_localize("Europe/Lisbon").rename_axis("when").reset_index()
    filled = fill_gaps(zoned)
    assert filled["when"].equals(zoned["when"])
    np.testing.assert_allclose(filled[["n", "e"]], fill_gaps(frame)[["n", "e"]])


def test_both_backends_give_the_conditional_distribution():
    numba = "ncarl.panel.kriging_numba"
    kriging_numba = pytest.importorskip(numba, exc_type=ImportError)
    rng = np.random.default_rng(3)
    basis = temporal_basis(np.arange(40), 8)
    roots = rng.normal(size=(basis.shape[1], 3, 3))
    weights = roots @ roots.transpose(0, 2, 1)
    values = rng.normal(size=(40, 3))
    there = rng.random((40, 3)) < 0.7
    t, j = np.nonzero(~there)
    kriging = Kriging(weights, 8, 2, (1, 2))
    means, deviations = kriging.predict(values, there, t, j)
    index = ObservedIndex.from_mask(there)
    steps, sensors = select_predictors(index, t, j, kriging.neighbor_sensors, 8, (1, 2))
    filled = np.where(there, values, 0.0)
    plain = krige(filled, weights, basis, t, j, steps, sensors)
    last = np.ascontiguousarray(np.moveaxis(weights, 0, 2))
    compiled = kriging_numba.krige(filled, last, basis, t, j, steps, sensors)
    np.testing.assert_allclose(plain[0], means, atol=1e-8)
    np.testing.assert_allclose(compiled[0], means, atol=1e-8)
    np.testing.assert_allclose(np.sqrt(plain[1]), deviations, atol=1e-8)

    def covariance(one, other):
        return basis[abs(one[0] - other[0])] @ weights[:, one[1], other[1]]

    for q in range(0, len(t), 7):
        known = [(s, i) for s, i in zip(steps[q], sensors[q], strict=True) if s >= 0]
        assert len(set(known)) == len(known)
        assert all(there[s, i] for s, i in known)
        target = t[q], j[q]
        A = [[covariance(a, b) for b in known] for a in known]
        c = [covariance(target, b) for b in known]
        y, prior = [values[a] for a in known], covariance(target, target)
        assert means[q] == pytest.approx(c @ np.linalg.solve(A, y), abs=1e-7)
        variance = prior - c @ np.linalg.solve(A, c)
        assert deviations[q] ** 2 == pytest.approx(variance, abs=1e-7)


def test_index_agrees_with_a_linear_search():
    there = np.random.default_rng(1).random((30, 2)) < 0.4
    records = ObservedIndex.from_mask(there)
    for i in range(2):
        places = np.flatnonzero(there[:, i])
        for t in range(31):
            before, after = places[places < t], places[places >= t]
            assert records.last_before[t, i] == (before[-1] if len(before) else -1)
            assert records.first_from[t, i] == (after[0] if len(after) else -1)


def test_time_of_day_effects_vanish_without_seasonality():
    noise = np.random.default_rng(0).standard_normal((480, 2))
    assert np.abs(fit_seasonality(noise, 24, 0).effects).mean() < 0.06
    wave = np.tile(np.sin(np.arange(24)), 20)[:, None]
    found = fit_seasonality(wave, 24, 0)
    np.testing.assert_allclose(found.effects[:, 0], np.sin(np.arange(24)) - wave.mean())
    shifted = fit_seasonality(wave[5:], 24, 5)
    levels, expected = (s.effects + s.means for s in (shifted, found))
    np.testing.assert_allclose(levels, expected, atol=1e-9)


def test_basis_functions_are_covariances():
    lags = np.abs(np.subtract.outer(np.arange(60), np.arange(60)))
    table = temporal_basis(np.arange(60), 12)
    for b in range(table.shape[1]):
        assert np.linalg.eigvalsh(table[lags, b]).min() > -1e-8
    np.testing.assert_array_equal(table[0], 1.0)


def make_frame(stamps, **columns):
    return pd.DataFrame({"t": pd.to_datetime(stamps), "a": 1.0, **columns})


HOUR = datetime.timedelta(hours=1)
HOURS = ["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00", "2024-01-01 03:00"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: fill_gaps(make_frame([*HOURS, "2024-01-01 03:20"])),
            "have equal steps",
        ),
        (lambda: fill_gaps(make_frame([*HOURS, HOURS[0]])), "goes back"),
        (lambda: fill_gaps(make_frame([*HOURS, HOURS[-1]])), "comes twice"),
        (lambda: fill_gaps(make_frame([*HOURS, None])), "must have a time"),
        (lambda: fill_gaps(make_frame([*HOURS, "2034-01-01 00:00"])), "piece by piece"),
        (lambda: fill_gaps(make_frame(HOURS, b=np.nan)), "'b' has none"),
        (lambda: fill_gaps(make_frame(HOURS, b="x")), "not numeric"),
        (lambda: fill_gaps(make_frame(HOURS), time="when"), "column of the log"),
        (lambda: fill_gaps(make_frame(HOURS), time="a"), "dates and times"),
        (lambda: fill_gaps(np.ones((4, 2)), time="a"), "not a frame"),
        (lambda: fill_gaps(np.ones((4, 2)), period=1), "period must be"),
        (lambda: fill_gaps(np.ones((4, 2)), HOUR), "needs a log with times"),
        (lambda: fill_gaps(make_frame(HOURS), 1.5 * HOUR), "whole number of steps"),
        (lambda: fill_gaps(np.ones((4, 2)), lags=(0,)), "each of lags"),
        (lambda: fill_gaps(np.ones((4, 2)) * np.inf), "finite numbers"),
        (lambda: fill_gaps(np.ones(4)), "got one axis"),
        (lambda: fill_gaps(np.ones((9, 2)), period=10**9), "period must be at most 4"),
        (lambda: fill_gaps(np.ones((9, 2)), period=5), "period must be at most 4"),
        (lambda: fill_gaps(make_frame(HOURS), 3 * HOUR), "period must be at most 2"),
        (lambda: fill_gaps(make_frame(HOURS), np.timedelta64(1, "M")), "whole number"),
        (lambda: fill_gaps(make_frame(HOURS), np.timedelta64("NaT")), "whole number"),
    ],
)
def test_invalid_arguments_raise(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("lags", [None, 2.5, "week"])
def test_invalid_lags_raise(lags):
    with pytest.raises((TypeError, ValueError), match="each of lags must be"):
        fill_gaps(np.ones((4, 2)), lags=lags)


def test_lags_beyond_the_log_have_no_effect(holes):
    expected = fill_gaps(holes, period=24)
    far = (1, 2, 10**18, *range(1000, 4000))
    np.testing.assert_array_equal(fill_gaps(holes, period=24, lags=far), expected)


def test_logs_shorter_than_a_period_are_filled_by_a_fitted_filler(filler, holes):
    assert np.isfinite(filler.transform(holes[40:60])).all()


def test_logs_of_other_sensors_raise(filler, frame):
    with pytest.raises(ValueError, match="sensors of the fit"):
        filler.transform(frame)
    with pytest.raises(ValueError, match="level must be below 1"):
        filler.predict_interval(frame.to_numpy(), level=1.0)


@pytest.mark.parametrize("period", [36, 24 * 5])
def test_phase_is_consistent_across_logs(period):
    for begin in ("2024-03-04", "2024-03-08 07:00", "1899-12-30"):
        index = pd.date_range(begin, periods=24 * 30, freq="h")
        frame = pd.DataFrame({"a": np.arange(720.0)}, index=index)
        whole = read_log(frame, None, period)
        for k in (1, 100, 200, 500):
            part = read_log(frame.iloc[k:], None, period)
            assert part.phase == (whole.phase + k) % period


def test_inexact_timestamps_keep_the_time_of_day():
    index = pd.date_range("2024-03-04 05:00", periods=100, freq="h")
    off = index + pd.to_timedelta(np.random.default_rng(0).normal(0, 5, 100), unit="s")
    phases = [
        read_log(pd.DataFrame({"a": 1.0}, index=stamps), None, 24).phase
        for stamps in (index, off, off[:50])
    ]
    assert phases == [5, 5, 5]


def test_log_with_finer_steps_than_the_fit_raises(frame):
    filler = GapFiller().fit(frame)
    assert filler.step_ == np.timedelta64(1, "h")
    fine = frame.set_axis(pd.date_range("2024-03-04", periods=240, freq="15min"))
    with pytest.raises(ValueError, match="off the step of 1:00:00 of the fit"):
        filler.transform(fine)
    # Every second row of an hourly log is an hourly log with missing rows.
    whole, filled = filler.transform(frame), filler.transform(frame.iloc[::2])
    assert np.abs(filled - whole.iloc[::2]).max().max() < 0.5
    # A log that starts within a day has fewer neighboring days but the same hours.
    part = filler.transform(frame.iloc[100:190])
    assert np.abs(part - whole.iloc[100:190]).max().max() < 0.3


def test_sparse_logs_have_calibrated_intervals(waves):
    given = waves.copy()
    given[np.random.default_rng(0).random(given.shape) < 0.6] = np.nan
    filler = GapFiller(period=24).fit(given)
    assert filler.held_out_error_ > 0.0
    assert 0.5 < filler.calibration_ < 2.0
    there = ~np.isnan(given)
    for seed in range(5):
        hidden, _ = time_shifted_split(there, np.random.default_rng(seed))
        assert not (hidden & ~there).any()
        assert (hidden.sum(axis=0) > 0).all()
        assert (hidden.sum(axis=0) <= there.sum(axis=0) / 2).all()


def test_warns_if_nothing_can_be_held_out():
    log = np.full((4, 2), np.nan)
    log[0, 0], log[2, 1] = 1.0, 2.0
    filler = GapFiller()
    with pytest.warns(UserWarning, match="widths of intervals cannot be calibrated"):
        filled = filler.fit_transform(log)
    assert np.isfinite(filled).all()
    assert np.isnan(filler.held_out_error_)


def test_duplicate_sensor_names(frame):
    log = frame.rename_axis("when").reset_index()
    log.columns = ["when", "a", "a", "b", "c"]
    filled = fill_gaps(log)
    assert list(filled.columns) == list(log.columns)
    np.testing.assert_array_equal(filled.iloc[:, 1:], fill_gaps(frame))


def test_standard_deviations_are_calibrated(monkeypatch):
    rng, hours = np.random.default_rng(0), np.arange(960)[:, None]
    noisy = np.sin(2 * np.pi * hours / 24 + np.arange(5.0))
    noisy += 0.1 * np.cumsum(rng.standard_normal((960, 1)), axis=0)
    noisy += 0.3 * rng.standard_normal(noisy.shape)
    hidden = rng.random(noisy.shape) < 0.3
    given = np.where(hidden, np.nan, noisy)
    predict, found = Kriging.predict, []
    for off in (1.0, 0.2):
        monkeypatch.setattr(
            Kriging,
            "predict",
            lambda self, *args, off=off: (
                (part := predict(self, *args))[0],
                off * part[1],
            ),
        )
        filler = GapFiller(period=24).fit(given)
        filled, std = filler.transform(given, return_std=True)
        square = np.mean(((noisy - filled)[hidden] / std[hidden]) ** 2)
        # A little above 1: the seasonality is learned with the held-out entries.
        assert 0.8 < square < 1.3 < square * (off * filler.std_factor_) ** 2
        assert filler.calibration_ == pytest.approx(1.0, abs=0.02)
        assert filler.held_out_coverage_ == pytest.approx(0.95, abs=0.03)
        low, high = filler.predict_interval(given)
        found.append((std, low, high, filler.std_factor_))
    for one, other in zip(found[0][:3], found[1][:3], strict=True):
        np.testing.assert_allclose(other, one, rtol=0.01)
    assert found[1][3] == pytest.approx(5.0 * found[0][3], rel=0.01)

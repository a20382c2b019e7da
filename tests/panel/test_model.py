"""Tests of model selection and placebos of `counterfactual`."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.panel import counterfactual, model

pytestmark = pytest.mark.usefixtures("few_steps")


def test_single_control_unit_gives_no_interval_and_warns(panel_of):
    Y = panel_of(2, 10, seed=3)
    with pytest.warns(UserWarning, match="no interval can be given with 1 control"):
        run = counterfactual(Y, 0, start=8)
    assert np.isfinite(run.average.effect)
    assert np.isnan([run.average.low, run.average.high]).all()
    assert np.isnan(run.low).all()
    assert "too few control units" in run.summary()
    with pytest.raises(ValueError, match="none of 1 can"):
        run.placebo_test()


def test_most_controls_remain_with_many_starts(panel_of, monkeypatch):
    monkeypatch.setattr(model, "MAX_FITS", 1)  # fewer than the number of starts
    run = counterfactual(panel_of(6, 8, seed=2), {0: 6, 1: 7})
    assert run.is_testable
    courses = run.placebos.trajectories
    assert len(courses) == 2
    assert all(course is not None for found in courses for course in found)
    assert 0.0 < run.placebo_test().p_value <= 1.0


def test_result_is_equivariant_to_units(panel_of):
    Y, size = panel_of(6, 8, seed=5), 2.0**1012
    found, run = (counterfactual(Y * k, 3, start=6) for k in (1.0, size))
    np.testing.assert_allclose(run.expected / size, found.expected, rtol=1e-9)
    np.testing.assert_allclose(run.low / size, found.low, rtol=1e-9)
    assert run.average.high / size == pytest.approx(found.average.high)
    assert run.error_before / size == pytest.approx(found.error_before)
    for kind in ("ratio", "average"):
        one, other = run.placebo_test(kind), found.placebo_test(kind)
        assert one.p_value == other.p_value
        assert one.statistic == pytest.approx(other.statistic)

"""Tests of scalar proximal operators: grids, closed forms, plain iterations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.solvers.penalties import (
    LogNuclear,
    power_threshold,
    prox_power,
    soft_threshold,
)

powers = st.floats(0.05, 0.95)
strengths = st.floats(1e-3, 5.0)
arguments = st.floats(0.0, 10.0)


def one(function, t, *args):
    """The operator at a single value."""
    return float(function(np.array([t]), *args)[0])


def jump(p, tau):
    """The value just above the threshold."""
    return one(prox_power, power_threshold(p, tau) * (1.0 + 1e-12), p, tau)


def log_prox(t, tau, eps):
    return LogNuclear(eps).prox(t, tau)


def half_closed(t, tau):
    """The minimizer for p = 1/2 above the threshold (Xu, Chang, Xu, Zhang 2012)."""
    phi = np.arccos(tau / 4.0 * (t / 3.0) ** -1.5)
    return 2.0 / 3.0 * t * (1.0 + np.cos(2.0 * np.pi / 3.0 - 2.0 / 3.0 * phi))


def two_thirds_closed(t, tau):
    """The minimizer for p = 2/3 above the threshold (Cao, Sun, Xu 2013)."""
    phi = np.arccosh(27.0 / 16.0 * t**2 * (2.0 * tau) ** -1.5)
    a = 2.0 / np.sqrt(3.0) * (2.0 * tau) ** 0.25 * np.sqrt(np.cosh(phi / 3.0))
    return ((a + np.sqrt(2.0 * t / a - a**2)) / 2.0) ** 3


class TestPower:
    @given(t=arguments, tau=strengths, p=powers)
    @example(t=1.5, tau=1.0, p=0.5)
    def test_no_point_of_a_grid_is_better(self, t, tau, p):
        x = one(prox_power, t, p, tau)
        near = np.linspace(0.99, 1.01, 2001) * x
        grid = np.concatenate([np.linspace(0.0, t, 4001), near])
        best = (0.5 * (grid - t) ** 2 + tau * grid**p).min()
        assert 0.5 * (x - t) ** 2 + tau * x**p <= best + 1e-11

    @given(tau=strengths, p=powers)
    def test_at_the_threshold_zero_and_the_jump_are_equally_good(self, tau, p):
        t, x = power_threshold(p, tau), jump(p, tau)
        kept = 0.5 * (x - t) ** 2 + tau * x**p
        assert kept == pytest.approx(0.5 * t**2, rel=1e-9)
        assert one(prox_power, t, p, tau) == 0.0
        assert one(prox_power, t * (1.0 - 1e-9), p, tau) == 0.0

    @given(tau=strengths)
    def test_thresholds_and_jumps_of_one_half_are_those_of_the_table(self, tau):
        assert power_threshold(0.5, tau) == pytest.approx(1.5 * tau ** (2 / 3))
        printed = 54 ** (1 / 3) / 4 * (2 * tau) ** (2 / 3)
        assert power_threshold(0.5, tau) == pytest.approx(printed)
        assert jump(0.5, tau) == pytest.approx(tau ** (2 / 3))

    @given(tau=strengths)
    def test_thresholds_and_jumps_of_two_thirds_are_those_of_the_table(self, tau):
        p = 2 / 3
        assert power_threshold(p, tau) == pytest.approx(2 * (2 * tau / 3) ** 0.75)
        printed = 2 / 3 * (24 * tau**3) ** 0.25
        assert power_threshold(p, tau) == pytest.approx(printed)
        assert jump(p, tau) == pytest.approx((2 * tau / 3) ** 0.75)

    @pytest.mark.parametrize(
        ("p", "closed"), [(0.5, half_closed), (2 / 3, two_thirds_closed)]
    )
    @pytest.mark.parametrize("tau", [1e-3, 0.3, 1.0, 7.0])
    def test_matches_the_closed_form_above_the_threshold(self, p, closed, tau):
        cut = power_threshold(p, tau)
        t = cut * np.concatenate([1.0 + np.logspace(-6, 0, 30), np.logspace(0.4, 3)])
        assert_allclose(prox_power(t, p, tau), closed(t, tau), rtol=1e-8)

    def test_power_one_is_the_soft_threshold(self):
        t = np.linspace(0.0, 5.0, 11)
        assert_array_equal(prox_power(t, 1.0, 1.3), soft_threshold(t, 1.3))
        assert power_threshold(1.0, 1.3) == 1.3

    def test_large_arguments_are_accurate(self):
        t = np.array([1e12, 1e200])
        for p in (0.5, 2 / 3):
            assert_allclose(
                prox_power(t, p, 2.0), t - 2.0 * p * t ** (p - 1.0), rtol=1e-15
            )


class TestLogarithm:
    @given(t=arguments, tau=st.floats(1e-3, 5.0), eps=st.floats(1e-3, 2.0))
    @example(t=3.0, tau=2.0, eps=0.01)
    @example(t=0.5, tau=0.3, eps=2.0)  # the weights hardly differ for values below eps
    def test_it_is_the_limit_of_reweighting(self, t, tau, eps):
        # The plain iteration converges slowly near the threshold.
        cut = tau / eps if tau < eps**2 else 2.0 * np.sqrt(tau) - eps
        assume(abs(t - cut) > 0.02)
        x = t
        for _ in range(4000):
            x = max(t - tau / (x + eps), 0.0)
        assert one(log_prox, t, tau, eps) == pytest.approx(x, abs=1e-9)

    def test_jump_at_the_threshold_matches_the_table(self):
        tau, eps = 2.0, 0.3
        cut = 2.0 * np.sqrt(tau) - eps
        assert one(log_prox, cut * (1.0 - 1e-9), tau, eps) == 0.0
        above = one(log_prox, cut * (1.0 + 1e-12), tau, eps)
        assert above == pytest.approx(np.sqrt(tau) - eps, abs=1e-5)

    def test_may_differ_from_the_global_minimizer(self):
        t, tau, eps = 3.0, 2.0, 1e-3
        x = one(log_prox, t, tau, eps)
        value = 0.5 * (x - t) ** 2 + tau * np.log(x + eps)
        assert x > 0.0
        assert 0.5 * t**2 + tau * np.log(eps) < value

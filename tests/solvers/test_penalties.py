"""Tests of penalties on singular values: proximal maps and thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.core.svd import full_svd
from ncarl.solvers.admm import ADMM, ResidualBalancing
from ncarl.solvers.base import run_solver
from ncarl.solvers.penalties import (
    LogNuclear,
    NuclearNorm,
    SchattenNorm,
    TruncatedNuclear,
    WeightedNuclear,
)
from ncarl.solvers.proximal import ProximalGradient

from .conftest import problem_of

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Penalties with an exact proximal map.
EXACT = [
    NuclearNorm(),
    SchattenNorm(0.5),
    SchattenNorm(2 / 3),
    SchattenNorm(1.0),
    WeightedNuclear(np.array([0.5, 1.0, 2.0, 3.0])),
    WeightedNuclear(np.array([3.0, 2.0, 1.0, 0.5])),
    WeightedNuclear(np.array([1.0, 0.1, 2.0, 0.3])),
    TruncatedNuclear(0),
    TruncatedNuclear(2),
]
LOGS = [LogNuclear(0.01), LogNuclear(0.7), LogNuclear(20.0)]

sizes = st.lists(st.floats(0.0, 5.0), min_size=1, max_size=4)


def falling(values):
    return np.sort(np.array(values, dtype=float))[::-1].copy()


def objective(penalty, x, s, tau):
    return 0.5 * np.sum((x - s) ** 2) + tau * penalty.value(x)


@pytest.mark.parametrize("penalty", EXACT, ids=str)
class TestExactMaps:
    @given(values=sizes, tau=st.floats(0.01, 3.0), seed=st.integers(0, 10**6))
    def test_no_other_falling_values_are_better(self, penalty, values, tau, seed):
        s = falling(values)
        x = penalty.prox(s, tau)
        assert (x >= 0.0).all()
        assert (np.diff(x) <= 1e-12).all()
        best = objective(penalty, x, s, tau)
        rng = np.random.default_rng(seed)
        for scale in (1e-3, 1e-1, 2.0):
            others = np.abs(x + scale * rng.standard_normal((60, len(s))))
            # Also set some values to zero, which small steps cannot reach.
            others *= rng.random(others.shape) < 0.8
            for other in np.sort(others, axis=1)[:, ::-1]:
                assert best <= objective(penalty, other, s, tau) + 1e-10

    def test_map_is_optimal_among_matrices(self, penalty, rng):
        W, tau = rng.standard_normal((5, 4)), 0.4
        found = full_svd(W)
        Z = found.reconstruct(penalty.prox(found.s, tau))

        def value(X):
            s = np.linalg.svd(X, compute_uv=False)
            return 0.5 * np.linalg.norm(X - W) ** 2 + tau * penalty.value(s)

        best = value(Z)
        for scale in (1e-4, 1e-2, 1.0):
            for _ in range(30):
                assert best <= value(Z + scale * rng.standard_normal(W.shape)) + 1e-9
        assert best <= value(W)
        assert best <= value(0.0 * W)

    def test_values_scale_by_the_degree(self, penalty):
        s = np.array([3.0, 2.0, 0.5, 0.0])
        grown = 7.0**penalty.degree * penalty.value(s)
        assert penalty.value(7.0 * s) == pytest.approx(grown)


@pytest.mark.parametrize("penalty", [*EXACT[:6], EXACT[7], *LOGS], ids=str)
class TestThresholds:
    @pytest.mark.parametrize("tau", [1e-3, 0.3, 2.0])
    def test_values_become_non_zero_at_the_threshold(self, penalty, tau):
        cut = penalty.threshold(tau)
        if isinstance(penalty, WeightedNuclear) and penalty.weights[0] > 2.9:
            # The last value has the smallest weight.
            below, above = (np.full(4, cut) * part for part in (1 - 1e-9, 1 + 1e-9))
            assert penalty.prox(below, tau)[-1] == 0.0
            assert np.all(penalty.prox(above, tau) == 0.0)
            return
        assert penalty.prox(np.array([cut * (1 - 1e-9)]), tau)[0] == 0.0
        assert penalty.prox(np.array([cut * (1 + 1e-9)]), tau)[0] > 0.0

    @pytest.mark.parametrize("cut", [1e-2, 0.69, 0.71, 5.0, 30.0])
    def test_strength_and_threshold_are_inverse(self, penalty, cut):
        assert penalty.threshold(penalty.strength(cut)) == pytest.approx(cut)


class TestWeights:
    def test_equal_weights_are_the_nuclear_norm(self, rng):
        s = falling(rng.uniform(0.0, 5.0, 6))
        equal = WeightedNuclear(np.full(6, 1.7))
        assert_array_equal(equal.prox(s, 0.5), NuclearNorm().prox(s, 1.7 * 0.5))
        assert equal.value(s) == pytest.approx(1.7 * NuclearNorm().value(s))

    def test_fewer_values_than_weights_use_the_first_weights(self):
        penalty = WeightedNuclear(np.array([0.0, 1.0, 5.0]))
        assert_array_equal(penalty.prox(np.array([3.0, 2.0]), 1.0), [3.0, 1.0])
        assert penalty.value(np.array([3.0, 2.0])) == 2.0


class TestLogarithm:
    def test_value_is_a_sum_of_logarithms_and_zero_at_zero(self):
        penalty = LogNuclear(0.5)
        assert penalty.value(np.zeros(3)) == 0.0
        s = np.array([2.0, 1.0])
        assert penalty.value(s) == pytest.approx(np.log(5.0) + np.log(3.0))


class TestOtherPenaltiesInSolvers:
    @pytest.fixture
    def problem(self, rng):
        truth = rng.standard_normal((16, 3)) @ rng.standard_normal((3, 12))
        X = np.where(rng.random(truth.shape) < 0.7, truth, np.nan)
        return problem_of(X)

    def test_equal_weights_match_the_nuclear_norm(self, problem):
        one, other = (
            run_solver(
                ADMM(problem, penalty, ResidualBalancing(0.1)), max_iter=300, tol=1e-9
            ).last.state.X
            for penalty in (NuclearNorm(), WeightedNuclear(np.ones(12)))
        )
        assert_allclose(one, other, atol=1e-6)

    def test_truncated_norm_does_not_shrink_the_first_values(self, problem):
        solvers = [
            ProximalGradient(problem, penalty, 0.5)
            for penalty in (TruncatedNuclear(3), NuclearNorm())
        ]
        kept, shrunk = (
            problem.residual(run_solver(s, max_iter=800, tol=1e-9).last.state.X)
            for s in solvers
        )
        assert kept < 1e-6 < 1e-3 < shrunk

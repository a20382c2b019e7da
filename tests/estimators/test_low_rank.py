"""Tests of Nuclear, SchattenP, WNNM: convex solvers, reference code, duality."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ncarl import WNNM, Nuclear, SchattenP
from ncarl.core import svd
from ncarl.engines.base import HostDevice
from ncarl.observations import Observations
from ncarl.solvers.admm import (
    ADMM,
    GeometricPenalty,
    ResidualBalancing,
    relative_duality_gap,
)
from ncarl.solvers.base import DenseProblem, run_solver
from ncarl.solvers.penalties import LogNuclear, NuclearNorm, prox_power
from ncarl.solvers.proximal import (
    ProximalGradient,
    SingularValueThresholding,
    penalized_duality_gap,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def low_rank(m, n, rank, share, seed=0, noise=0.0):
    """An incomplete low-rank matrix and its truth."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    seen = rng.random((m, n)) < share
    return np.where(seen, truth + noise * rng.standard_normal((m, n)), np.nan), truth


def full_rank(m=12, n=9, share=0.6, seed=0):
    """An incomplete matrix of full rank, which cannot be recovered."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) + rng.standard_normal((m, 1))
    return np.where(rng.random((m, n)) < share, X, np.nan)


def norm(X):
    return float(np.linalg.svd(X, compute_uv=False).sum())


def noisy_objective(Z, X, lam):
    return 0.5 * np.nansum((Z - X) ** 2) + lam * norm(Z)


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def problem_of(X):
    return DenseProblem.from_observations(Observations.from_dense(X), HostDevice(1))


def admm(X, mu=0.2, relaxation=1.6, **options):
    schedule = ResidualBalancing(mu, relaxation=relaxation)
    return ADMM(problem_of(X), NuclearNorm(), schedule, **options)


def solve_scs(X, lam=None, t=None):
    """Completion by a generic convex solver; optionally the noisy or SVT form."""
    cp = pytest.importorskip("cvxpy")
    pytest.importorskip("scs")
    seen = ~np.isnan(X)
    Z = cp.Variable(X.shape)
    value, constraints = cp.normNuc(Z), [Z[seen] == X[seen]]
    if lam is not None:
        value = cp.sum_squares(Z[seen] - X[seen]) / 2 + lam * value
        constraints = []
    elif t is not None:
        value = t * value + cp.sum_squares(Z) / 2
    problem = cp.Problem(cp.Minimize(value), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.SCS, eps_abs=1e-10, eps_rel=1e-10, max_iters=200_000)
    return Z.value


@pytest.fixture(scope="module")
def easy():
    return low_rank(40, 30, 3, 0.5)


@pytest.fixture(scope="module")
def small():
    return full_rank()


@pytest.fixture(scope="module")
def small_scs(small):
    return solve_scs(small)


@pytest.fixture(scope="module")
def small_fit(small):
    return Nuclear(tol=1e-9, max_iter=20_000).fit(small)


class TestMinimumNorm:
    def test_matches_a_generic_convex_solver(self, small, small_fit, small_scs):
        assert relative(small_fit.transform(small), small_scs) < 1e-5

    def test_gap_bounds_the_distance_from_the_optimum(self, small, small_scs):
        least = norm(small_scs)
        for steps in (5, 20, 60, 200):
            model = Nuclear(max_iter=steps, tol=0).fit(small)
            value = norm(model.transform(small))
            assert (value - least) / value <= model.gap_ + 1e-8
        assert 0.0 <= model.gap_ < 1e-3

    def test_multipliers_are_a_dual_certificate(self, small, small_fit):
        Y, seen = small_fit.dual_, ~np.isnan(small)
        pattern = np.zeros(small.shape, bool)
        pattern[Y.nonzero()] = True
        assert not pattern[~seen].any()
        assert Y.nnz == seen.sum()
        Y = Y.toarray()
        assert np.linalg.norm(Y, 2) <= 1.0 + 1e-6
        value = norm(small_fit.transform(small))
        proven = np.sum(Y[seen] * small[seen]) / max(1.0, np.linalg.norm(Y, 2))
        assert small_fit.gap_ == pytest.approx((value - proven) / value, abs=1e-12)
        assert small_fit.gap_ <= 1e-8

    def test_gap_is_below_the_default_tolerance(self):
        X, _ = low_rank(50, 36, 4, 0.6)
        model = Nuclear().fit(X)
        assert model.converged_
        assert model.gap_ <= 1e-6
        assert np.linalg.norm(model.dual_.toarray(), 2) <= 1.0 + 1e-5
        assert model.residual_ <= 1e-6
        assert model.objective_ == pytest.approx(norm(model.transform(X)), rel=1e-5)

    def test_initial_mu_does_not_change_the_result(self, small, small_fit):
        X = 50.0 * small
        model = Nuclear(mu=3.0 / 50.0, tol=1e-9, max_iter=20_000).fit(X)
        assert model.model_.unit > 1.0
        assert model.history_["mu"][0] == pytest.approx(3.0 / 50.0)
        assert_allclose(
            model.transform(X), 50.0 * small_fit.transform(small), atol=1e-4
        )


class TestADMM:
    def test_step_matches_the_method_of_multipliers(self, small):
        M, seen = np.nan_to_num(small), ~np.isnan(small)
        mu, past = 0.2, 1.6
        X, Y = M, 0.0 * M
        solver = admm(small, mu)
        states = solver.steps(solver.initial_state(), 0)
        for _ in range(8):
            U, s, Vt = np.linalg.svd(X + Y / mu, full_matrices=False)
            Z = (U * np.maximum(s - 1.0 / mu, 0.0)) @ Vt
            ahead = past * Z + (1.0 - past) * X
            X = np.where(seen, M, ahead - Y / mu)
            Y = Y + mu * (X - ahead)
            step = next(states)
            assert_allclose(step.state.X, X, atol=1e-10)
            assert_allclose(step.state.Y, Y, atol=1e-10)
            assert_allclose(step.state.Y[~seen], 0.0, atol=1e-12)
            left = np.linalg.norm((Z - M)[seen]) / np.linalg.norm(M)
            assert step.state.residual == pytest.approx(left)

    def test_multipliers_of_missing_entries_vanish_after_a_step(self, small, rng):
        given = rng.standard_normal(small.shape)
        solver = admm(small, Y_init=given)
        state = next(solver.steps(solver.initial_state(), 0)).state
        assert_allclose(state.Y[np.isnan(small)], 0.0, atol=1e-12)
        assert np.abs(state.Y).max() > 0.1

    def test_mu_is_balanced_every_ten_steps_and_then_fixed(self):
        schedule = ResidualBalancing(
            2.0, max_steps=200, every=10, imbalance=5.0, factor=1.5
        )
        assert schedule.start == 2.0
        assert schedule.next_mu(2.0, 10, 1.0, 0.1) == 3.0
        assert schedule.next_mu(3.0, 20, 0.1, 1.0) == 2.0
        assert schedule.next_mu(2.0, 30, 1.0, 0.3) == 2.0
        assert schedule.next_mu(2.0, 31, 1.0, 0.0) == 2.0
        assert schedule.next_mu(2.0, 200, 1.0, 0.0) == 3.0
        assert schedule.next_mu(2.0, 210, 1.0, 0.0) == 2.0

    def test_mu_grows_up_to_its_maximum(self):
        schedule = GeometricPenalty(1.0, 1.5, 2.0)
        assert schedule.start == 1.0
        assert schedule.next_mu(1.0, 1, 0.0, 0.0) == 1.5
        assert schedule.next_mu(1.5, 2, 0.0, 0.0) == 2.0
        assert schedule.relaxation == 1.0

    def test_any_multipliers_give_a_lower_bound(self, small, small_scs, rng):
        problem = problem_of(small)
        least = norm(small_scs)
        for size in (0.01, 0.3, 5.0):
            Y = np.where(np.isnan(small), 0.0, np.nan_to_num(small) * size)
            Y += np.where(np.isnan(small), 0.0, 0.1 * rng.standard_normal(small.shape))
            X = problem.fill_missing(rng.standard_normal(small.shape))
            assert (
                relative_duality_gap(problem, X, Y)
                >= (norm(X) - least) / norm(X) - 1e-9
            )

    def test_partial_svd_agrees_with_full_svd(self, monkeypatch):
        X, _ = low_rank(70, 60, 2, 0.5)
        full = Nuclear(tol=1e-8).fit(X)
        calls, real = [], svd.svds

        def spy(*args, **kwargs):
            calls.append(kwargs["k"])
            return real(*args, **kwargs)

        monkeypatch.setattr(svd, "LANCZOS_MIN_SIZE", 20)
        monkeypatch.setattr(svd, "svds", spy)
        partial = Nuclear(tol=1e-8).fit(X)
        assert len(calls) > 10
        assert_allclose(partial.transform(X), full.transform(X), atol=1e-6)


class TestInexactLagrangian:
    def paper_steps(self, X, mu=1e-5, rho=1.1, tol=1e-6, steps=1000):
        """Direct implementation of the paper, where comparisons with NaN never stop."""
        M, seen = np.nan_to_num(X), ~np.isnan(X)
        Z, Y = M, 0.0 * M
        for step in range(1, steps + 1):
            U, s, Vt = np.linalg.svd(Z + Y / mu, full_matrices=False)
            E = (U * np.maximum(s - 1.0 / mu, 0.0)) @ Vt
            new = np.where(seen, M, E - Y / mu)
            Y = Y + mu * (new - E)
            moved = np.linalg.norm(new - Z) / np.linalg.norm(new)
            Z, mu = new, mu * rho
            if moved < tol and np.any(E):
                return Z, step
        return Z, steps

    @pytest.mark.parametrize("c", [1.0, 50.0])
    def test_steps_match_those_of_the_paper(self, c):
        X, _ = low_rank(24, 18, 3, 0.5, seed=3)
        expected, steps = self.paper_steps(c * X)
        model = Nuclear(solver="ialm").fit(c * X)
        assert model.n_iter_ == steps
        assert_allclose(model.transform(c * X), expected, atol=1e-9 * c)

    def test_stops_by_the_change_of_the_matrix_only(self):
        X, _ = low_rank(24, 18, 3, 0.5, seed=3)
        history = Nuclear(solver="ialm", max_iter=120, tol=0).fit(X).history_
        # Before the first singular value exceeds the threshold the matrix stays zero.
        idle = history["rank"] == 0
        assert 5 < idle.sum() < 120
        assert_array_equal(history["change"][idle], 0.0)
        assert (history["primal"][idle] > 0.9).all()

    def test_slow_growth_agrees_with_the_certified_result(self):
        X, _ = low_rank(50, 36, 4, 0.6)
        exact = Nuclear(tol=1e-9).fit_transform(X)
        slow = Nuclear(solver="ialm", rho=1.02, tol=1e-8, max_iter=5000)
        fast = Nuclear(solver="ialm", rho=1.5, tol=1e-8)
        # Measured: 5e-7; 6e-2 if mu grows by a factor of 1.5 per step.
        assert relative(slow.fit_transform(X), exact) < 1e-6
        assert relative(fast.fit_transform(X), exact) > 1e-3


class TestThresholding:
    def test_step_matches_cai_candes_and_shen(self, small):
        problem = problem_of(small)
        M, seen = np.nan_to_num(small), ~np.isnan(small)
        t, length = 30.0, 1.2 / seen.mean()
        Y = np.ceil(t / (length * np.linalg.norm(M, 2))) * length * M
        solver = SingularValueThresholding(problem, t)
        states = solver.steps(solver.initial_state(), 0)
        for _ in range(10):
            U, s, Vt = np.linalg.svd(Y, full_matrices=False)
            s = np.maximum(s - t, 0.0)
            X = (U * s) @ Vt
            Y = Y + length * np.where(seen, M - X, 0.0)
            step = next(states)
            assert_allclose(step.state.X, X, atol=1e-10)
            assert_allclose(step.state.Y, Y, atol=1e-9)
            assert step.objective == pytest.approx(t * s.sum() + s @ s / 2)

    def test_matches_a_generic_convex_solver(self, small):
        X = 50.0 * small  # t is in data units
        model = Nuclear(solver="svt", t=200.0, tol=1e-9, max_iter=20_000).fit(X)
        assert relative(model.transform(X) / 50.0, solve_scs(small, t=4.0)) < 1e-5
        assert np.isnan(model.gap_)

    def test_growing_weight_approaches_the_minimum_norm(self):
        X = full_rank(share=0.75)
        exact = Nuclear(tol=1e-9, max_iter=20_000).fit_transform(X)
        apart = []
        for t in (10.0, 100.0, 1000.0):
            model = Nuclear(solver="svt", t=t, tol=1e-7, max_iter=20_000).fit(X)
            apart.append(relative(model.transform(X), exact))
        assert apart[0] > 3.0 * apart[1] > 9.0 * apart[2]
        assert apart[2] < 5e-3

    def test_steps_without_progress_are_shortened(self, small):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = Nuclear(solver="svt", t=10.0, max_iter=2000).fit(small)
        assert model.residual_ < 1e-3

    def test_too_long_steps_are_shortened(self):
        rng = np.random.default_rng(1)
        X = np.where(rng.random((20, 15)) < 0.15, rng.standard_normal((20, 15)), np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = Nuclear(solver="svt", max_iter=400).fit(X)
        lengths = set(model.history_["length"])
        assert lengths == {1.2 / (~np.isnan(X)).mean(), 1.9}
        assert model.residual_ < 0.5


class TestNoisyForm:
    @pytest.mark.parametrize("lam", [0.3, 2.0])
    def test_matches_a_generic_convex_solver(self, small, lam):
        expected = solve_scs(small, lam)
        model = Nuclear(solver="apg", lam=lam, tol=1e-9, max_iter=20_000).fit(small)
        found = model.transform(small, keep_observed=False)
        assert relative(found, expected) < 1e-5
        value = noisy_objective(found, small, lam)
        assert model.objective_ == pytest.approx(value)
        assert model.lam_ == lam
        assert model.gap_ < 1e-6

    def test_strength_is_in_data_units(self, small):
        one = Nuclear(solver="apg", lam=0.8, tol=1e-8).fit(small)
        other = Nuclear(solver="apg", lam=40.0, tol=1e-8).fit(50.0 * small)
        smooth = [
            model.transform(X, keep_observed=False)
            for model, X in ((one, small), (other, 50.0 * small))
        ]
        assert_allclose(smooth[1] / 50.0, smooth[0], atol=1e-6)
        assert other.objective_ == pytest.approx(2500.0 * one.objective_)
        assert other.lam_ == 40.0

    def test_gap_bounds_the_distance_from_the_optimum(self, small):
        lam = 0.8
        least = noisy_objective(solve_scs(small, lam), small, lam)
        seen = []
        for steps in (40, 60, 100, 300):
            model = Nuclear(solver="apg", lam=lam, max_iter=steps, tol=0).fit(small)
            assert model.history_["lam"][-1] * model.model_.unit == pytest.approx(lam)
            value = noisy_objective(
                model.transform(small, keep_observed=False), small, lam
            )
            assert (value - least) / value <= model.gap_ + 1e-8
            seen.append(model.gap_)
        assert seen[-1] < 0.1 * seen[0]

    @pytest.mark.parametrize(
        "model",
        [
            Nuclear(solver="apg", lam=0.05),
            Nuclear(solver="apg", lam=0.5),
            SchattenP(p=0.5, lam=0.1),
            SchattenP(p=2 / 3, lam=0.1),
        ],
        ids=str,
    )
    def test_objective_never_increases_at_fixed_strength(self, small, model):
        history = model.set_params(max_iter=300, tol=0).fit(small).history_
        same = np.diff(history["lam"]) == 0.0
        rises = np.diff(history["objective"])[same]
        assert same.sum() > 100
        assert (rises <= 1e-12 * history["objective"][0]).all()

    def test_strengths_decrease_by_a_factor_to_the_given_one(self, small):
        model = Nuclear(solver="apg", lam=0.05).fit(small)
        lams = model.history_["lam"] * model.model_.unit
        top = np.linalg.norm(np.nan_to_num(small), 2)
        assert lams[0] == pytest.approx(0.7 * top)
        falls = lams[1:] / lams[:-1]
        falls = falls[falls < 1.0]
        assert_allclose(falls[:-1], 0.7)
        assert lams[-1] == pytest.approx(0.05)
        assert model.converged_

    def test_any_matrix_gives_a_lower_bound(self, small, rng):
        lam = 0.8
        least = noisy_objective(solve_scs(small, lam), small, lam)
        for size in (0.0, 0.3, 1.0):
            X = size * rng.standard_normal(small.shape)
            value = noisy_objective(X, small, lam)
            bound = penalized_duality_gap(problem_of(small), X, lam, value)
            assert (value - least) / value <= bound + 1e-9
            assert bound <= 1.0

    def test_smaller_strength_starts_with_a_plain_step(self, small):
        solver = ProximalGradient(problem_of(small), NuclearNorm(), 0.05)
        before, falls = None, 0
        for step in solver.steps(solver.initial_state(), 0):
            if before and step.state.lam < before.state.lam:
                filled = np.where(np.isnan(small), before.state.X, small)
                U, s, Vt = np.linalg.svd(filled, full_matrices=False)
                plain = (U * np.maximum(s - step.state.lam, 0.0)) @ Vt
                assert_allclose(step.state.X, plain, atol=1e-10)
                falls += 1
            before = step
            if step.step == 60:
                break
        assert falls > 3

    def test_default_strength_is_1e_4_of_the_largest_value(self, small):
        model = Nuclear(solver="apg", max_iter=50, tol=0).fit(50.0 * small)
        top = np.linalg.norm(np.nan_to_num(50.0 * small), 2)
        assert model.lam_ == pytest.approx(1e-4 * top)
        assert model.path_ == []


def test_refit_with_another_solver_removes_the_certificate(rng):
    X = rng.standard_normal((12, 9))
    X[rng.random(X.shape) < 0.4] = np.nan
    model = Nuclear(max_iter=5, tol=0).fit(X)
    assert model.gap_ > 0.0
    assert model.dual_.nnz == np.isfinite(X).sum()
    model.set_params(solver="svt").fit(X)
    assert np.isnan(model.gap_)
    assert not hasattr(model, "dual_")


def test_growing_weights_stay_finite(rng):
    X = rng.standard_normal((12, 9))
    X[rng.random(X.shape) < 0.4] = np.nan
    for options in ({"rho": 3.0}, {"mu": 1e99}):
        model = Nuclear(solver="ialm", max_iter=1500, tol=0, **options).fit(X)
        assert np.isfinite(model.transform(X)).all()


def sum_of_powers(X, p):
    s = np.linalg.svd(X, compute_uv=False)
    return float((s**p).sum())


def reweight(X, p, steps=300, fall=0.95):
    """Completion by reweighted least squares with decreasing smoothing."""
    seen = ~np.isnan(X)
    Z = np.nan_to_num(X)
    eps = np.linalg.norm(Z, 2)
    for _ in range(steps):
        values, V = np.linalg.eigh(Z.T @ Z)
        # Inverse of the weight; missing entries of a row follow by regression.
        K = (V * (np.maximum(values, 0.0) + eps**2) ** (1.0 - p / 2.0)) @ V.T
        for i, known in enumerate(seen):
            o, g = np.flatnonzero(known), np.flatnonzero(~known)
            Z[i, g] = K[np.ix_(g, o)] @ np.linalg.solve(K[np.ix_(o, o)], X[i, o])
        eps = max(fall * eps, 1e-7)
    return Z


@pytest.mark.parametrize("p", [0.5, 2 / 3])
class TestSchatten:
    def test_low_rank_matrix_is_recovered(self, easy, p):
        X, truth = easy
        model = SchattenP(p=p).fit(X)
        assert relative(model.transform(X), truth) < 1e-6
        assert model.rank_ == 3
        assert model.converged_
        assert model.objective_ == pytest.approx(sum_of_powers(truth, p), rel=1e-4)

    def test_agrees_with_reweighting_on_a_low_rank_matrix(self, p):
        X, _ = low_rank(24, 18, 2, 0.65, seed=4)
        found = SchattenP(p=p).fit_transform(X)
        assert relative(found, reweight(X, p)) < 1e-5

    @pytest.mark.parametrize("noise", [0.0, 0.2])
    def test_sum_of_powers_is_at_most_that_of_the_nuclear_solution(self, p, noise):
        X, _ = low_rank(30, 24, 4, 0.45, seed=1, noise=noise)
        plain = Nuclear(tol=1e-5).fit_transform(X)
        found = SchattenP(p=p).fit_transform(X)
        assert sum_of_powers(found, p) <= sum_of_powers(plain, p) * (1.0 + 1e-9)

    def test_steps_match_the_augmented_lagrangian(self, p):
        X, _ = low_rank(12, 9, 3, 0.6)
        M, seen = np.nan_to_num(X), ~np.isnan(X)
        # Makes the first threshold 0.9 of the largest singular value.
        cut = 0.9 * np.linalg.norm(M, 2)
        over = (2.0 - p) / (2.0 * (1.0 - p))
        mu = 2.0 * (1.0 - p) / (cut / over) ** (2.0 - p)
        Z, Y = M, 0.0 * M
        for _ in range(25):
            U, s, Vt = np.linalg.svd(Z + Y / mu, full_matrices=False)
            E = (U * prox_power(s, p, 1.0 / mu)) @ Vt
            Z = np.where(seen, M, E - Y / mu)
            Y = Y + mu * (Z - E)
            mu *= 1.05
        model = SchattenP(p=p, max_iter=25, tol=0).fit(X)
        assert_allclose(model.transform(X), Z, atol=1e-9)
        left = np.linalg.norm((E - M)[seen]) / np.linalg.norm(M)
        assert model.residual_ == pytest.approx(left, rel=1e-8)

    def test_noisy_result_is_stationary(self, p):
        X = 10.0 * low_rank(20, 15, 2, 0.6, noise=0.1)[0]
        lam = 5.0
        model = SchattenP(p=p, lam=lam, tol=1e-9, max_iter=5000).fit(X)
        Z = model.transform(X, keep_observed=False)
        U, s, Vt = np.linalg.svd(np.where(np.isnan(X), Z, X), full_matrices=False)
        again = (U * prox_power(s, p, lam)) @ Vt
        assert_allclose(again, Z, atol=1e-5)
        value = 0.5 * np.nansum((Z - X) ** 2) + lam * sum_of_powers(again, p)
        assert model.objective_ == pytest.approx(value, rel=1e-6)


class TestPowerOne:
    def test_power_one_is_bit_identical_to_nuclear(self):
        X, _ = low_rank(24, 18, 3, 0.6)
        one, other = SchattenP(p=1.0).fit(X), Nuclear().fit(X)
        assert_allclose(one.transform(X), other.transform(X), rtol=0, atol=0)
        assert one.n_iter_ == other.n_iter_
        assert one.gap_ == other.gap_

    def test_powers_near_one_are_near_the_nuclear_norm(self):
        rng = np.random.default_rng(2)
        X = rng.standard_normal((30, 20)) + 2.0
        X[rng.random(X.shape) < 0.4] = np.nan
        exact = Nuclear(tol=1e-8, max_iter=20_000).fit_transform(X)
        near = SchattenP(p=0.999, rho=1.02, max_iter=3000).fit_transform(X)
        # Measured: 9e-4; a power of 1/2 is far off.
        assert relative(near, exact) < 2e-3
        assert relative(SchattenP(p=0.5).fit_transform(X), exact) > 0.05

    def test_smaller_power_recovers_where_nuclear_fails(self):
        X, truth = low_rank(40, 30, 4, 0.4, seed=1)
        plain = relative(Nuclear(tol=1e-5).fit_transform(X), truth)
        half = relative(SchattenP(p=0.5).fit_transform(X), truth)
        assert half < 1e-6 < 1e-2 < plain


def reference_steps(X, C, eps, steps):
    """The authors' steps: missing entries, then values, then multipliers.

    Returns the matrix with the missing entries of the next step.
    """
    M, seen = np.nan_to_num(X), ~np.isnan(X)
    top = np.linalg.norm(M, 2)
    Y, mu, Z = M / top, 1.0 / top, np.zeros_like(M)
    for step in range(steps):
        E = np.where(seen, 0.0, M - Z + Y / mu) if step else np.zeros_like(M)
        U, s, Vt = np.linalg.svd(M - E + Y / mu, full_matrices=False)
        spread = (s + eps) ** 2 - 4.0 * C / mu
        kept = (s - eps + np.sqrt(np.maximum(spread, 0.0))) / 2.0
        Z = (U * np.where(spread > 0.0, np.maximum(kept, 0.0), 0.0)) @ Vt
        gaps = np.where(seen, 0.0, M - Z + Y / mu)
        Y = Y + mu * (M - Z - gaps)
        mu = min(1.05 * mu, 1e7 / top)
    return np.where(seen, M, -gaps), Z


def test_low_rank_matrix_is_recovered_in_any_unit(easy):
    X, truth = easy
    one = WNNM().fit(X)
    assert relative(one.transform(X), truth) < 1e-6
    assert one.rank_ == 3
    for c in (1000.0, 3e-7):
        other = WNNM().fit(c * X)
        assert relative(other.transform(c * X) / c, truth) < 1e-6
        assert_allclose(other.C_, c * one.C_)
        assert other.objective_ == pytest.approx(c * one.objective_)


@pytest.mark.parametrize("steps", [1, 2, 25, 120])
def test_steps_match_the_authors_code(steps):
    X, _ = low_rank(16, 12, 3, 0.6, noise=0.2)
    C, eps = 0.5 * np.linalg.norm(np.nan_to_num(X), 2), 1e-4
    expected, Z = reference_steps(X, C, eps, steps)
    model = WNNM(C=C, eps=eps, max_iter=steps, tol=0).fit(X)
    assert_allclose(model.transform(X), expected, atol=1e-9)
    seen = ~np.isnan(X)
    left = np.linalg.norm((Z - X)[seen]) / np.linalg.norm(X[seen])
    assert model.residual_ == pytest.approx(left, rel=1e-7)


def test_default_factor_is_half_the_largest_singular_value(easy):
    X, _ = easy
    top = np.linalg.norm(np.nan_to_num(X), 2)
    usual = WNNM(max_iter=3, tol=0).fit(X)
    assert_allclose(usual.C_, 0.5 * top)
    given = WNNM(C=0.5 * top, max_iter=3, tol=0).fit(X)
    assert_allclose(given.transform(X), usual.transform(X), rtol=1e-12)


def test_authors_rule_is_the_square_root_of_the_size(easy):
    X, _ = easy
    for c in (1.0, 100.0):
        model = WNNM(C="sqrt_mn", max_iter=2, tol=0).fit(c * X)
        assert_allclose(model.C_, np.sqrt(1200))


def test_objective_is_a_sum_of_logarithms(easy):
    X, truth = easy
    model = WNNM(eps=0.01).fit(X)
    s = np.linalg.svd(truth, compute_uv=False)[:3]
    assert model.objective_ == pytest.approx(
        model.C_ * np.log1p(s / 0.01).sum(), rel=1e-4
    )


class TestStationarity:
    def residual(self, X, Y, C, eps):
        """Distance of the multipliers from the subdifferential of the penalty."""
        U, s, Vt = np.linalg.svd(X, full_matrices=False)
        r = int((s > 1e-6 * s[0]).sum())
        U, s, Vt = U[:, :r], s[:r], Vt[:r]
        slopes = (U * (C / (s + eps))) @ Vt
        # Equal to the derivatives on the range of X, at most C / eps outside.
        left, right = U @ U.T, Vt.T @ Vt
        beyond = Y - left @ Y - Y @ right + left @ Y @ right
        within = np.linalg.norm(Y - beyond - slopes) / np.linalg.norm(slopes)
        return within, np.linalg.norm(beyond, 2) * eps / C

    def fit_logarithm(self, X, C, eps):
        problem = problem_of(X)
        mu = 1.0 / problem.spectral_norm
        solver = ADMM(
            problem, LogNuclear(eps), GeometricPenalty(mu, 1.02, 1e7 * mu), weight=C,
            Y_init=problem.M / problem.spectral_norm,
        )  # fmt: skip
        return run_solver(solver, max_iter=2000, tol=1e-9).last.state

    @pytest.mark.parametrize("C", [5.0, 50.0])
    def test_multipliers_are_derivatives_of_the_penalty(self, C):
        X, _ = low_rank(30, 24, 3, 0.6)
        state = self.fit_logarithm(X, C, 0.01)
        within, beyond = self.residual(state.X, state.Y, C, 0.01)
        assert within < 1e-3
        assert beyond <= 1.0 + 1e-6
        assert_allclose(state.Y[np.isnan(X)], 0.0, atol=1e-9 * C)

    def test_other_factors_give_the_same_low_rank_matrix(self, easy):
        X, truth = easy
        top = np.linalg.norm(np.nan_to_num(X), 2)
        for C in (0.3 * top, 3.0 * top):
            assert relative(WNNM(C=C).fit_transform(X), truth) < 1e-5


class TestNoisyWNNM:
    def test_result_is_a_fixed_point(self):
        X = 10.0 * low_rank(20, 15, 2, 0.6, noise=0.1)[0]
        lam, eps = 40.0, 0.5
        model = WNNM(lam=lam, eps=eps, tol=1e-9, max_iter=5000).fit(X)
        Z = model.transform(X, keep_observed=False)
        U, s, Vt = np.linalg.svd(np.where(np.isnan(X), Z, X), full_matrices=False)
        spread = (s + eps) ** 2 - 4.0 * lam
        kept = np.where(
            spread > 0.0, (s - eps + np.sqrt(np.maximum(spread, 0.0))) / 2.0, 0.0
        )
        assert_allclose((U * np.maximum(kept, 0.0)) @ Vt, Z, atol=1e-5)
        value = 0.5 * np.nansum((Z - X) ** 2)
        value += lam * np.log1p(np.linalg.svd(Z, compute_uv=False) / eps).sum()
        assert model.objective_ == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    "model",
    [Nuclear(solver="apg"), SchattenP(p=0.5), SchattenP(p=2 / 3), WNNM()],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_selected_strength_is_equivariant_to_scale(model):
    degree = {"Nuclear": 1.0, "WNNM": 0.0}.get(type(model).__name__)
    degree = model.p if degree is None else degree
    X, _ = low_rank(30, 24, 2, 0.6, noise=0.3)
    one = clone(model).set_params(lam="auto").fit(X)
    for c in (1000.0, 3e-7):
        other = clone(one).fit(c * X)
        assert_allclose(other.lam_, c ** (2.0 - degree) * one.lam_, rtol=1e-6)
    errors = [row["error"] for row in one.path_]
    best = one.path_[int(np.argmin(errors))]["lam"]
    # The threshold, a power of the strength, grows with the square root of the number
    # of entries: the final fit includes the held-out ones.
    total = int((~np.isnan(X)).sum())
    more = (total / (total - round(0.1 * total))) ** (1.0 - degree / 2.0)
    assert one.lam_ == pytest.approx(best * more)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Nuclear(lam=1.0), "lam belongs to solver='apg'"),
        (Nuclear(rho=1.1), "rho belongs to solver='ialm'"),
        (Nuclear(t=3.0), "t belongs to solver='svt'"),
        (Nuclear("svt", mu=1.0), "mu belongs to solver='admm' or 'ialm'"),
        (Nuclear("sdp"), "solver"),
        (Nuclear("ialm", rho=1.0), "rho"),
        (Nuclear(mu=0.0), "mu"),
        (Nuclear("apg", lam=0.0), "'auto' chooses it"),
        (Nuclear(random_state=-1), "random_state"),
        (SchattenP(p=0.0), "p must be"),
        (SchattenP(p=1.01), "p must be"),
        (WNNM(C=-1.0), "C must be"),
        (WNNM(C="half"), "C must be"),
        (WNNM(eps=0.0), "eps must be"),
        (WNNM(rho=None), "rho must be"),
        (WNNM(C=1.0, lam=1.0), r"C=1\.0 belongs to lam=None"),
    ],
    ids=str,
)
def test_invalid_parameters_raise(model, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(np.eye(3))

"""WNNM: its facts, against a port of the authors' steps and the conditions it meets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from ncarl import WNNM
from ncarl.engines.base import HostDevice
from ncarl.observations import Observations
from ncarl.solvers.admm import ADMM, GeometricPenalty
from ncarl.solvers.base import DenseProblem, run_solver
from ncarl.solvers.penalties import LogNuclear

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def gappy(m, n, rank, share, seed=0, noise=0.0):
    """A matrix of a rank with a share of it observed, and the whole of it."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    seen = rng.random((m, n)) < share
    return np.where(seen, truth + noise * rng.standard_normal((m, n)), np.nan), truth


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def authors(X, C, eps, steps):
    """A port of the authors' steps: the gaps first, then the values, then both.

    Returns the matrix with the gaps of the next step.
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


@pytest.fixture(scope="module")
def easy():
    return gappy(40, 30, 3, 0.5)


def test_an_easy_matrix_is_recovered_in_any_unit(easy):
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
def test_the_steps_are_those_of_the_authors(steps):
    X, _ = gappy(16, 12, 3, 0.6, noise=0.2)
    C, eps = 0.5 * np.linalg.norm(np.nan_to_num(X), 2), 1e-4
    expected, Z = authors(X, C, eps, steps)
    model = WNNM(C=C, eps=eps, max_iter=steps, tol=0).fit(X)
    assert_allclose(model.transform(X), expected, atol=1e-9)
    seen = ~np.isnan(X)
    left = np.linalg.norm((Z - X)[seen]) / np.linalg.norm(X[seen])
    assert model.residual_ == pytest.approx(left, rel=1e-7)


def test_the_usual_factor_is_half_the_largest_singular_value(easy):
    X, _ = easy
    top = np.linalg.norm(np.nan_to_num(X), 2)
    usual = WNNM(max_iter=3, tol=0).fit(X)
    assert_allclose(usual.C_, 0.5 * top)
    given = WNNM(C=0.5 * top, max_iter=3, tol=0).fit(X)
    assert_allclose(given.transform(X), usual.transform(X), rtol=1e-12)


def test_the_authors_rule_is_the_root_of_the_number_of_entries(easy):
    X, _ = easy
    for c in (1.0, 100.0):
        model = WNNM(C="sqrt_mn", max_iter=2, tol=0).fit(c * X)
        assert_allclose(model.C_, np.sqrt(1200))


def test_the_objective_is_a_sum_of_logarithms(easy):
    X, truth = easy
    model = WNNM(eps=0.01).fit(X)
    s = np.linalg.svd(truth, compute_uv=False)[:3]
    assert model.objective_ == pytest.approx(
        model.C_ * np.log1p(s / 0.01).sum(), rel=1e-4
    )


class TestStationarity:
    def residual(self, X, Y, C, eps):
        """How far the multipliers are from the slopes of the logarithms."""
        U, s, Vt = np.linalg.svd(X, full_matrices=False)
        r = int((s > 1e-6 * s[0]).sum())
        U, s, Vt = U[:, :r], s[:r], Vt[:r]
        slopes = (U * (C / (s + eps))) @ Vt
        # Within the directions of X they are the slopes, beyond them not above C/eps.
        left, right = U @ U.T, Vt.T @ Vt
        beyond = Y - left @ Y - Y @ right + left @ Y @ right
        within = np.linalg.norm(Y - beyond - slopes) / np.linalg.norm(slopes)
        return within, np.linalg.norm(beyond, 2) * eps / C

    def fitted(self, X, C, eps):
        problem = DenseProblem.from_observations(
            Observations.from_dense(X), HostDevice(1)
        )
        mu = 1.0 / problem.spectral_norm
        solver = ADMM(
            problem, LogNuclear(eps), GeometricPenalty(mu, 1.02, 1e7 * mu), weight=C,
            Y_init=problem.M / problem.spectral_norm,
        )  # fmt: skip
        return run_solver(solver, max_iter=2000, tol=1e-9).last.state

    @pytest.mark.parametrize("C", [5.0, 50.0])
    def test_multipliers_at_the_result_are_the_slopes_of_the_penalty(self, C):
        X, _ = gappy(30, 24, 3, 0.6)
        state = self.fitted(X, C, 0.01)
        within, beyond = self.residual(state.X, state.Y, C, 0.01)
        assert within < 1e-3
        assert beyond <= 1.0 + 1e-6
        assert_allclose(state.Y[np.isnan(X)], 0.0, atol=1e-9 * C)

    def test_a_factor_of_weights_and_multipliers_changes_nothing(self):
        X, _ = gappy(30, 24, 3, 0.6)
        state = self.fitted(X, 5.0, 0.01)
        once = self.residual(state.X, state.Y, 5.0, 0.01)
        tenfold = self.residual(state.X, 10.0 * state.Y, 50.0, 0.01)
        assert_allclose(once, tenfold, rtol=1e-9)

    def test_other_factors_lead_to_the_same_easy_matrix(self, easy):
        X, truth = easy
        top = np.linalg.norm(np.nan_to_num(X), 2)
        for C in (0.3 * top, 3.0 * top):
            assert relative(WNNM(C=C).fit_transform(X), truth) < 1e-5


def test_a_column_with_nothing_observed_comes_back_zero():
    X, _ = gappy(20, 15, 2, 0.6)
    X[:, 4] = np.nan
    assert_allclose(WNNM().fit_transform(X)[:, 4], 0.0, atol=1e-12)


def test_transposition_and_order_go_through(easy, rng):
    X, _ = easy
    one = WNNM().fit_transform(X)
    order = np.ix_(rng.permutation(40), rng.permutation(30))
    assert_allclose(WNNM().fit_transform(X.T).T, one, atol=1e-6)
    assert_allclose(WNNM().fit_transform(X[order]), one[order], atol=1e-6)


class TestNoisyForm:
    def test_the_result_is_a_fixed_point(self):
        X = 10.0 * gappy(20, 15, 2, 0.6, noise=0.1)[0]
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

    @pytest.mark.parametrize("c", [1000.0, 3e-7])
    def test_a_chosen_strength_goes_with_the_square_of_the_scale(self, c):
        X, _ = gappy(30, 24, 2, 0.6, noise=0.3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            one, other = WNNM(lam="auto").fit(X), WNNM(lam="auto").fit(c * X)
        assert_allclose(other.lam_, c**2 * one.lam_, rtol=1e-6)
        errors = [row["error"] for row in one.path_]
        best = one.path_[int(np.argmin(errors))]["lam"]
        total = int((~np.isnan(X)).sum())
        more = total / (total - round(0.1 * total))
        assert one.lam_ == pytest.approx(best * more)
        assert np.isnan(one.C_)

    def test_two_strengths_are_one_too_many(self):
        with pytest.raises(ValueError, match=r"C=1\.0 belongs to lam=None"):
            WNNM(C=1.0, lam=1.0).fit(np.eye(3))


@pytest.mark.parametrize("params", [{"C": -1.0}, {"C": "half"}, {"eps": 0.0}], ids=str)
def test_wrong_parameters_are_named(params):
    with pytest.raises((ValueError, TypeError), match=next(iter(params))):
        WNNM(**params).fit(np.eye(3))

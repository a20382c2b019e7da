"""SchattenP: its facts, against reweighting, the nuclear norm and plain steps."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ncarl import Nuclear, SchattenP
from ncarl.estimators import low_rank
from ncarl.solvers.penalties import prox_power

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def gappy(m, n, rank, share, seed=0, noise=0.0):
    """A matrix of a rank with a share of it observed, and the whole of it."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    seen = rng.random((m, n)) < share
    return np.where(seen, truth + noise * rng.standard_normal((m, n)), np.nan), truth


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def sum_of_powers(X, p):
    s = np.linalg.svd(X, compute_uv=False)
    return float((s**p).sum())


def reweighted(X, p, steps=300, fall=0.95):
    """The completion by reweighted least squares with a smoothing that falls."""
    seen = ~np.isnan(X)
    Z = np.nan_to_num(X)
    eps = np.linalg.norm(Z, 2)
    for _ in range(steps):
        values, V = np.linalg.eigh(Z.T @ Z)
        # The inverse of the weight; what a row's gaps are is then a regression.
        K = (V * (np.maximum(values, 0.0) + eps**2) ** (1.0 - p / 2.0)) @ V.T
        for i, known in enumerate(seen):
            o, g = np.flatnonzero(known), np.flatnonzero(~known)
            Z[i, g] = K[np.ix_(g, o)] @ np.linalg.solve(K[np.ix_(o, o)], X[i, o])
        eps = max(fall * eps, 1e-7)
    return Z


@pytest.fixture(scope="module")
def easy():
    return gappy(40, 30, 3, 0.5)


@pytest.mark.parametrize("p", [0.5, 2 / 3])
class TestPowers:
    def test_an_easy_matrix_is_recovered(self, easy, p):
        X, truth = easy
        model = SchattenP(p=p).fit(X)
        assert relative(model.transform(X), truth) < 1e-6
        assert model.rank_ == 3
        assert model.converged_
        assert model.objective_ == pytest.approx(sum_of_powers(truth, p), rel=1e-4)

    def test_reweighting_agrees_on_an_easy_matrix(self, p):
        X, _ = gappy(24, 18, 2, 0.65, seed=4)
        found = SchattenP(p=p).fit_transform(X)
        assert relative(found, reweighted(X, p)) < 1e-5

    @pytest.mark.parametrize("noise", [0.0, 0.2])
    def test_the_sum_of_powers_is_not_above_that_of_the_nuclear_norm(self, p, noise):
        X, _ = gappy(30, 24, 4, 0.45, seed=1, noise=noise)
        plain = Nuclear(tol=1e-5).fit_transform(X)
        for start in ("zeros", "nuclear"):
            found = SchattenP(p=p, start=start).fit_transform(X)
            assert sum_of_powers(found, p) <= sum_of_powers(plain, p) * (1.0 + 1e-9)

    @pytest.mark.parametrize("c", [1000.0, 3e-7])
    def test_scale_goes_through(self, easy, p, c):
        X, _ = easy
        one, other = SchattenP(p=p).fit(X), SchattenP(p=p).fit(c * X)
        assert_allclose(other.transform(c * X) / c, one.transform(X), atol=1e-6)
        assert other.objective_ == pytest.approx(c**p * one.objective_)

    def test_the_steps_are_those_of_the_augmented_lagrangian(self, p):
        X, _ = gappy(12, 9, 3, 0.6)
        M, seen = np.nan_to_num(X), ~np.isnan(X)
        # So that the first threshold is 0.9 of the largest singular value.
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

    def test_the_first_step_leaves_one_direction(self, easy, p):
        model = SchattenP(p=p, max_iter=1, tol=0).fit(easy[0])
        assert model.rank_ == 1

    def test_a_column_with_nothing_observed_comes_back_zero(self, p):
        X, _ = gappy(20, 15, 2, 0.6)
        X[:, 4] = np.nan
        assert_allclose(SchattenP(p=p).fit_transform(X)[:, 4], 0.0, atol=1e-12)

    def test_transposition_and_order_go_through(self, easy, rng, p):
        X, _ = easy
        one = SchattenP(p=p).fit_transform(X)
        order = np.ix_(rng.permutation(40), rng.permutation(30))
        assert_allclose(SchattenP(p=p).fit_transform(X.T).T, one, atol=1e-6)
        assert_allclose(SchattenP(p=p).fit_transform(X[order]), one[order], atol=1e-6)

    def test_with_noise_the_result_is_stationary(self, p):
        X = 10.0 * gappy(20, 15, 2, 0.6, noise=0.1)[0]
        lam = 5.0
        model = SchattenP(p=p, lam=lam, tol=1e-9, max_iter=5000).fit(X)
        Z = model.transform(X, keep_observed=False)
        U, s, Vt = np.linalg.svd(np.where(np.isnan(X), Z, X), full_matrices=False)
        again = (U * prox_power(s, p, lam)) @ Vt
        assert_allclose(again, Z, atol=1e-5)
        value = 0.5 * np.nansum((Z - X) ** 2) + lam * sum_of_powers(again, p)
        assert model.objective_ == pytest.approx(value, rel=1e-6)

    def test_with_noise_the_objective_never_rises_at_one_strength(self, p):
        X, _ = gappy(20, 15, 2, 0.6, noise=0.1)
        history = SchattenP(p=p, lam=0.1, max_iter=200, tol=0).fit(X).history_
        same = np.diff(history["lam"]) == 0.0
        rises = np.diff(history["objective"])[same]
        assert (rises <= 1e-10 * history["objective"][0]).all()

    @pytest.mark.parametrize("c", [1000.0, 3e-7])
    def test_a_chosen_strength_goes_with_the_scale(self, p, c):
        X, _ = gappy(30, 24, 2, 0.6, noise=0.3)
        one = SchattenP(p=p, lam="auto").fit(X)
        other = SchattenP(p=p, lam="auto").fit(c * X)
        assert_allclose(other.lam_, c ** (2.0 - p) * one.lam_, rtol=1e-6)
        errors = [row["error"] for row in one.path_]
        best = one.path_[int(np.argmin(errors))]["lam"]
        total = int((~np.isnan(X)).sum())
        # The threshold, a power of the strength, grows with the root of the entries.
        more = (total / (total - round(0.1 * total))) ** (1.0 - p / 2.0)
        assert one.lam_ == pytest.approx(best * more)
        assert len(one.path_) - 1 - int(np.argmin(errors)) <= 3


class TestOne:
    def test_power_one_is_the_nuclear_norm_to_the_bit(self):
        X, _ = gappy(24, 18, 3, 0.6)
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
        # 9e-4 was seen; a power of 1/2 is far from it.
        assert relative(near, exact) < 2e-3
        assert relative(SchattenP(p=0.5).fit_transform(X), exact) > 0.05

    def test_a_smaller_power_recovers_where_the_nuclear_norm_does_not(self):
        X, truth = gappy(40, 30, 4, 0.4, seed=1)
        plain = relative(Nuclear(tol=1e-5).fit_transform(X), truth)
        half = relative(SchattenP(p=0.5).fit_transform(X), truth)
        assert half < 1e-6 < 1e-2 < plain


class TestStart:
    def test_the_nuclear_start_is_about_the_nuclear_completion(self, monkeypatch):
        X, _ = gappy(24, 18, 3, 0.6)
        exact = Nuclear().fit_transform(X)
        starts, real = [], low_rank.ADMM

        def spy(*args, **kwargs):
            starts.append(kwargs.get("X_init"))
            return real(*args, **kwargs)

        monkeypatch.setattr(low_rank, "ADMM", spy)
        model = SchattenP(start="nuclear").fit(X)
        assert relative(starts[-1] * model.model_.unit, exact) < 0.02

    def test_it_belongs_to_the_exact_form(self):
        X, _ = gappy(12, 9, 2, 0.7)
        with pytest.raises(ValueError, match="start='nuclear' belongs to lam=None"):
            SchattenP(start="nuclear", lam=0.1).fit(X)

    @pytest.mark.parametrize("p", [0.0, 1.01, -1.0])
    def test_powers_outside_are_refused(self, p):
        with pytest.raises(ValueError, match="p must be"):
            SchattenP(p=p).fit(np.eye(3))


@pytest.mark.parametrize("params", [{}, {"lam": 0.3}, {"start": "nuclear"}], ids=str)
def test_tensors_give_what_threads_give(easy, params, one_torch_thread):
    pytest.importorskip("torch")
    from ncarl import Torch

    X, _ = easy
    one = SchattenP(**params).fit(X)
    other = SchattenP(**params, engine=Torch(device="cpu")).fit(X)
    assert one.n_iter_ == other.n_iter_
    assert_allclose(other.transform(X), one.transform(X), atol=1e-8)

"""Tests of the nuclear norm in factored form against the nuclear norm."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ncarl import FactoredNuclear, Nuclear, SoftImpute
from ncarl.observations import Observations
from ncarl.solvers.admm import ResidualBalancing
from ncarl.solvers.base import group_soft_threshold, run_solver
from ncarl.solvers.factored import FactoredADMM, default_rank, product_rank, ridge_right

from .conftest import low_rank, problem_of


def last_step(X, rank, tol=1e-7):
    """The last step of the solver on an incomplete matrix."""
    problem = problem_of(X)
    schedule = ResidualBalancing(5.0 / problem.spectral_norm, relaxation=1.0)
    solver = FactoredADMM(problem, rank, schedule)
    return run_solver(solver, max_iter=3000, tol=tol).last


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_factors_are_balanced_and_give_the_nuclear_norm(
    noise,
):
    last = last_step(low_rank(noise=noise)[1], 20)
    A, B = last.state.A, last.state.B
    assert_allclose(A.T @ A, B @ B.T, atol=1e-4 * np.linalg.norm(A) ** 2)
    assert_allclose(last.objective, np.linalg.norm(A @ B, "nuc"), rtol=1e-5)


@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
def test_enough_columns_give_the_minimum_nuclear_norm(noise):
    _, X = low_rank(noise=noise)
    least = Nuclear().fit(X)
    model = FactoredNuclear(rank=min(least.rank_ + 1, 20)).fit(X)
    assert_allclose(model.objective_, least.objective_, rtol=1e-4)
    both = model.transform(X), least.transform(X)
    assert_allclose(*both, atol=1e-3 * np.abs(both[1]).max())


def test_low_rank_matrix_is_recovered_and_observed_entries_kept():
    truth, X = low_rank(80, 60, 4, 0.5)
    model = FactoredNuclear(tol=1e-7).fit(X)
    filled = model.transform(X)
    assert np.linalg.norm(filled - truth) < 1e-5 * np.linalg.norm(truth)
    seen = np.isfinite(X)
    assert_allclose(filled[seen], X[seen], rtol=1e-14)
    assert 0.0 < model.residual_ < 1e-6
    assert model.rank_ == 4


def test_too_few_columns_still_match_observed_entries():
    _, X = low_rank(keep=0.3, noise=1.0)
    model = FactoredNuclear(rank=8).fit(X)
    assert model.residual_ < 1e-4
    assert model.rank_ == 8
    assert model.objective_ > Nuclear().fit(X).objective_


def test_slow_multiplier_converges():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((12, 9)) < 0.6, rng.standard_normal((12, 9)), np.nan)
    model = FactoredNuclear().fit(X)  # would warn if not converged
    assert_allclose(model.objective_, Nuclear().fit(X).objective_, rtol=1e-5)


def test_ridge_updates_solve_their_normal_equations(rng):
    A, W = rng.standard_normal((7, 3)), rng.standard_normal((7, 5))
    B = ridge_right(A, W, 0.3)
    assert_allclose(A.T @ (A @ B - W) + 0.3 * B, 0.0, atol=1e-12)


def test_column_shrinkage_minimizes_its_objective(rng):
    A = rng.standard_normal((4, 6))

    def value(Z):
        return np.sum((Z - A) ** 2) / 2 + 1.5 * np.linalg.norm(Z, axis=0).sum()

    Z = group_soft_threshold(A, 1.5)
    gone = ~Z.any(axis=0)
    assert gone.any() and not gone.all()
    for j in range(6):
        for part in np.linspace(0.0, 1.0, 41):  # the minimizer is parallel to A
            other = Z.copy()
            other[:, j] = part * A[:, j]
            assert value(Z) <= value(other) + 1e-12
        turned = Z.copy()
        turned[:, j] += 1e-3 * rng.standard_normal(4)
        assert value(Z) <= value(turned)


def test_rank_of_a_product_is_that_of_the_matrix(rng):
    A, B = rng.standard_normal((9, 3)), rng.standard_normal((3, 8))
    assert product_rank(np.hstack([A, A]), np.vstack([B, B])) == 3
    assert product_rank(A[:, :0], B[:0]) == 0
    assert product_rank(0.0 * A, B) == 0


def test_default_number_of_columns_ignores_empty_rows_and_columns():
    X = np.full((50, 40), np.nan)
    X[:6, :5] = 1.0
    assert default_rank(Observations.from_dense(X)) == 5
    full = Observations.from_dense(np.ones((50, 40)))
    assert default_rank(full) == 40
    assert default_rank(Observations.from_dense(np.ones((1, 3)))) == 1


def test_noisy_form_matches_the_noisy_nuclear_norm():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 20))
    noisy = truth + 0.1 * rng.standard_normal(truth.shape)
    X = np.where(rng.random(truth.shape) < 0.6, noisy, np.nan)
    options = {"tol": 1e-7, "max_iter": 5000}
    factored = FactoredNuclear(lam=2.0, rank=12, **options).fit(X)
    convex = Nuclear(solver="apg", lam=2.0, **options).fit(X)
    soft = SoftImpute(lam=2.0, **options).fit(X)
    assert factored.rank_ < 12
    assert_allclose(factored.objective_, convex.objective_, rtol=1e-9)
    assert_allclose(factored.predict(X), convex.predict(X), atol=1e-5)
    assert_allclose(factored.predict(X), soft.predict(X), atol=1e-5)
    # Too few columns give a constrained, higher optimum.
    narrow = FactoredNuclear(lam=2.0, rank=1, **options).fit(X)
    assert narrow.rank_ == 1
    assert narrow.objective_ > convex.objective_

"""Tests of RegL1: exact penalty, robustness, single steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ncarl import Nuclear, RegL1
from ncarl.solvers.regl1 import RegL1Solver

from .conftest import low_rank, problem_of


def solver_of(X, **options):
    return RegL1Solver(problem_of(X), **{"lam": 1e-3, "rank": 20, **options})


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_weak_norm_and_large_rank_give_the_nuclear_completion(noise):
    _, X = low_rank(noise=noise)
    least = Nuclear().fit(X)
    assert np.abs(least.dual_.data).max() < 1.0 / 1e-3, "the penalty is exact"
    model = RegL1().fit(X)
    filled = model.model_.complete()
    assert model.residual_ < 1e-5
    assert_allclose(np.linalg.norm(filled, "nuc"), least.objective_, rtol=1e-4)
    assert_allclose(filled, least.transform(X), atol=2e-3 * np.abs(filled).max())


def test_is_robust_against_gross_errors():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((100, 3)) @ rng.standard_normal((3, 150))
    wrong = rng.random(truth.shape) < 0.1
    X = truth + np.where(wrong, 40.0 * rng.uniform(-1.0, 1.0, truth.shape), 0.0)
    X[rng.random(truth.shape) < 0.3] = np.nan
    off = np.abs(RegL1(rank=3).fit(X).model_.complete() - truth)[~wrong]
    assert np.median(off) < 1e-2
    filled = np.where(np.isnan(X), 0.0, X)
    for _ in range(15):  # least squares of the same rank
        U, s, Vt = np.linalg.svd(filled, full_matrices=False)
        fit = (U[:, :3] * s[:3]) @ Vt[:3]
        filled = np.where(np.isnan(X), fit, X)
    assert np.median(np.abs(fit - truth)[~wrong]) > 20 * np.median(off)
    assert np.median(np.abs(fit - truth)[~wrong]) > 0.1


@pytest.mark.parametrize("rank", [2, 20])
def test_left_factor_is_orthonormal(rank):
    U, V = RegL1(rank=rank).fit(low_rank(noise=0.1)[1]).model_.factors
    assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-10)
    assert U.shape[1] == V.shape[0] <= rank


@pytest.mark.parametrize("nonnegative", [False, True])
def test_lagrangian_decreases_within_a_step(nonnegative):
    solver = solver_of(low_rank(noise=1.0)[1], lam=2.0, rank=5, nonnegative=nonnegative)
    M, seen = solver.problem.M, solver.problem.mask

    def lagrangian(s):
        Z = s.U @ s.V
        return (
            np.abs((s.E - M)[seen]).sum()
            + 2.0 * np.linalg.svd(s.V, compute_uv=False).sum()
            + np.sum(s.Y * (s.E - Z))
            + s.mu / 2.0 * np.sum((s.E - Z) ** 2)
        )

    state = solver.initial_state()
    for _, step in zip(range(40), solver.steps(state, 0), strict=False):
        state = replace(step.state)
        values = []
        for _ in range(6):
            state = solver.inner_step(state)
            values.append(lagrangian(state))
        assert np.all(np.diff(values) <= 1e-9 * np.abs(values[0]))
        assert values[-1] < values[0] or values[-1] == pytest.approx(values[0])


def test_factor_updates_are_optimal():
    rng = np.random.default_rng(0)
    solver = solver_of(low_rank(noise=1.0)[1], lam=3.0, rank=4)
    state = replace(solver.initial_state(), mu=1.0)
    new = solver.inner_step(state)

    def value(U, V):
        off = state.E - U @ V
        return 3.0 * np.linalg.norm(V, "nuc") + np.sum(off**2) / 2.0

    best = value(new.U, new.V)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            U = np.linalg.qr(new.U + size * rng.standard_normal(new.U.shape))[0]
            # the best V for that U: shrink the singular values of U^T E
            W, s, Vt = np.linalg.svd(U.T @ state.E, full_matrices=False)
            assert best <= value(U, (W * np.maximum(s - 3.0, 0.0)) @ Vt) + 1e-9


def test_strong_norm_gives_zero():
    _, X = low_rank()
    model = RegL1(lam=np.sqrt(np.isfinite(X).sum()) + 1.0).fit(X)
    assert_allclose(model.model_.complete(), 0.0, atol=1e-5)
    assert_allclose(model.objective_, np.nansum(np.abs(X)), rtol=1e-5)


def test_objective_matches_its_formula():
    _, X = low_rank(noise=0.5)
    model = RegL1(lam=2.0, rank=4).fit(X)
    filled = model.model_.complete()
    value = np.nansum(np.abs(X - filled)) + 2.0 * np.linalg.norm(filled, "nuc")
    assert_allclose(model.objective_, value, rtol=1e-9)


def test_nonnegative_option_gives_nonnegative_values():
    rng = np.random.default_rng(0)
    truth = rng.random((30, 2)) @ rng.random((2, 20))
    truth[rng.random(truth.shape) < 0.3] = 0.0
    X = np.where(rng.random(truth.shape) < 0.4, truth, np.nan)
    free, held = RegL1().fit(X), RegL1(nonnegative=True, tol=1e-7).fit(X)
    assert free.model_.complete().min() < -1e-2
    assert held.model_.complete().min() > -1e-4


def test_growing_weights_stay_finite():
    X = low_rank()[1]
    model = RegL1(rho=2.0, tol=0, max_iter=1500).fit(X)
    assert np.isfinite(model.transform(X, keep_observed=False)).all()


def test_negative_values_with_nonnegative_option_raise():
    with pytest.raises(ValueError, match="nonnegative=True needs values of at least 0"):
        RegL1(nonnegative=True).fit(np.array([[1.0, -2.0], [np.nan, 1.0]]))

"""Tests of group-sparse factors: identities, stationarity, dropped columns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import FGSR
from ncarl.core.svd import SVDResult
from ncarl.solvers.admm import ADMM, GeometricPenalty
from ncarl.solvers.base import run_solver
from ncarl.solvers.factored import (
    GroupSparseADMM,
    GroupSparsePALM,
    GroupSparseRegularizer,
    prune_columns,
)
from ncarl.solvers.penalties import SchattenNorm
from ncarl.solvers.proximal import ProximalGradient

from .conftest import low_rank, problem_of

BOTH = pytest.mark.parametrize("half", [False, True])


def schatten(X, half, a):
    """Minimum of the regularizer from the singular values."""
    s = np.linalg.svd(X, compute_uv=False)
    s = s[s > 1e-12 * s[0]]
    return (
        2 * a**0.5 * (s**0.5).sum()
        if half
        else 1.5 * a ** (1 / 3) * np.sum(s ** (2 / 3))
    )


@BOTH
@pytest.mark.parametrize("a", [1.0, 0.2, 5.0])
def test_minimum_of_the_regularizer_is_the_schatten_norm(half, a):
    rng = np.random.default_rng(0)
    X = low_rank(rank=3)[0]
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    groups = GroupSparseRegularizer(half, a)
    A, B = groups.best_factors(SVDResult(U, s, Vt))
    assert A.shape[1] == 3
    assert_allclose(A @ B, X, atol=1e-12)
    least = schatten(X, half, a)
    assert_allclose(groups.value(A, B), least)
    assert_allclose(groups.weight * groups.penalty.value(s[:3]), least)
    for d in (3, 5):  # other factors, also with extra columns
        for _ in range(40):
            C = rng.standard_normal((3, d))
            left, right = A @ C, np.linalg.pinv(C) @ B
            assert_allclose(left @ right, X, atol=1e-8)
            assert groups.value(left, right) >= least - 1e-9


@BOTH
@pytest.mark.parametrize("a", [1.0, 3.0])
def test_final_objective_is_the_schatten_norm_of_the_product(half, a):
    problem = problem_of(low_rank()[1])
    solver = GroupSparseADMM(problem, GroupSparseRegularizer(half, a), 20)
    result = run_solver(solver, max_iter=1000, tol=1e-6)
    assert result.converged
    A, B = result.last.state.A, result.last.state.B
    assert_allclose(result.last.objective, schatten(A @ B, half, a), rtol=5e-3)


@BOTH
def test_columns_are_dropped_down_to_the_true_rank(half):
    truth, X = low_rank(60, 50, 6, 0.6)
    model = FGSR(p=0.5 if half else 0.667, rank=9).fit(X)
    assert model.rank_ == 6
    assert model.history_["rank"][0] == 9
    assert model.history_["rank"][-1] == 6
    assert np.linalg.norm(model.transform(X) - truth) < 1e-4 * np.linalg.norm(truth)


@BOTH
def test_factor_weight_does_not_change_the_product(half):
    problem = problem_of(low_rank(noise=0.1)[1])
    ends = {}
    for a in (1.0, 7.0):
        solver = GroupSparseADMM(problem, GroupSparseRegularizer(half, a), 20)
        ends[a] = run_solver(solver, max_iter=60, tol=0.0).last.state
    one, other = ends[1.0], ends[7.0]
    assert_allclose(other.A @ other.B, one.A @ one.B, atol=1e-9)
    factor = 7.0 ** (1 / 2 if half else 1 / 3)
    assert_allclose(other.A, factor * one.A, atol=1e-8)


@BOTH
def test_one_column_on_a_rank_one_matrix_matches_schatten(half):
    truth, X = low_rank(rank=1)
    p = 0.5 if half else 2 / 3
    problem = problem_of(X)
    norm = SchattenNorm(p)
    mu = 1.0 / norm.strength(0.9 * problem.spectral_norm)
    split = ADMM(problem, norm, GeometricPenalty(mu, 1.05, 1e10 * mu), degree=p)
    other = split.finalize(run_solver(split, max_iter=1000, tol=1e-7).last)
    mine = FGSR(p=p, rank=1).fit_transform(X)
    assert_allclose(mine, other.X, atol=1e-4)
    assert_allclose(mine, truth, atol=1e-4)


@BOTH
@pytest.mark.parametrize(("keep", "noise"), [(0.6, 0.01), (0.95, 1.0), (1.0, 1.0)])
def test_noisy_entries_are_matched(half, keep, noise):
    _, X = low_rank(keep=keep, noise=noise)
    model = FGSR(p=0.5 if half else 2 / 3).fit(X)
    seen = np.isfinite(X)
    assert_allclose(model.transform(X)[seen], X[seen], rtol=1e-14)
    assert model.residual_ < 1e-5


@BOTH
def test_noisy_objective_never_increases(half):
    problem = problem_of(low_rank(noise=0.3)[1])
    solver = GroupSparsePALM(problem, GroupSparseRegularizer(half, 2.0), 0.5, 20)
    result = run_solver(solver, max_iter=200, tol=0.0)
    values = result.history["objective"]
    assert np.all(np.diff(values) <= 1e-9 * values[0])
    A, B = result.last.state.A, result.last.state.B
    off = np.where(problem.mask, A @ B - problem.M, 0.0)
    value = np.sum(off**2) / 2 + 0.5 * GroupSparseRegularizer(half, 2.0).value(A, B)
    assert_allclose(values[-1], value)


@BOTH
def test_noisy_form_is_as_good_as_noisy_schatten(half):
    problem = problem_of(low_rank(noise=0.1)[1])
    groups = GroupSparseRegularizer(half)
    solver = GroupSparsePALM(problem, groups, 1.0, 20)
    mine = run_solver(solver, max_iter=5000, tol=1e-8).last
    other = ProximalGradient(problem, groups.penalty, groups.weight)
    theirs = run_solver(other, max_iter=5000, tol=1e-9).last
    assert_allclose(mine.objective, theirs.objective, rtol=1e-2)
    A, B = mine.state.A, mine.state.B
    assert_allclose(groups.value(A, B), schatten(A @ B, half, 1.0), rtol=1e-3)


def test_strength_can_be_selected_on_held_out_entries():
    truth, _ = low_rank(60, 50, 2)
    rng = np.random.default_rng(1)
    X = truth + 0.3 * rng.standard_normal(truth.shape)
    X[rng.random(X.shape) < 0.5] = np.nan
    p = 0.5
    model = FGSR(p=p, lam="auto").fit(X)
    assert model.lam_ > 0.0 and len(model.path_) > 3
    noisy = np.linalg.norm(model.transform(X) - truth)
    assert noisy < 0.2 * np.linalg.norm(truth)
    assert noisy < np.linalg.norm(FGSR(p=p).fit_transform(X) - truth)
    # It starts elsewhere, and the problem is not convex.
    same = FGSR(p=p, lam=model.lam_).fit(X)
    assert same.objective_ == pytest.approx(model.objective_, rel=5e-3)
    difference = np.linalg.norm(same.transform(X) - model.transform(X))
    assert difference < 0.01 * np.linalg.norm(truth)


def test_warm_start_restores_dropped_columns():
    problem = problem_of(low_rank(rank=4)[1])
    top = SchattenNorm(2 / 3).strength(problem.spectral_norm) / 1.5
    strong = GroupSparsePALM(problem, GroupSparseRegularizer(False), 0.9 * top, 20)
    state = run_solver(strong, max_iter=200, tol=1e-4).last.state
    assert state.A.shape[1] < 4
    weak = GroupSparsePALM(problem, GroupSparseRegularizer(False), 1e-3 * top, 20)
    assert weak.warm_start(state).A.shape[1] > 4


def test_short_columns_are_dropped_in_any_unit():
    A = np.array([[1.0, 1e-6, 1.0], [1.0, 0.0, 0.0]])
    B = np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    for unit in (1e-20, 1.0, 1e20):
        left, right = prune_columns(unit * A, unit * B)
        assert_array_equal(left, unit * A[:, :1])
        assert_array_equal(right, unit * B[:1])


def test_other_powers_raise():
    with pytest.raises(ValueError, match=r"p must be 1/2 or 2/3.*SchattenP"):
        FGSR(p=0.6).fit(low_rank()[1])

"""Tests of SoftImpute: optimum, path of strengths, new rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import SoftImpute
from ncarl.engines.base import HostDevice
from ncarl.estimators import baselines
from ncarl.fitting.loop import FitResult, Iterate
from ncarl.fitting.matrix_model import PreprocessedData, row_factors
from ncarl.observations import Observations
from ncarl.solvers.base import SolverResult, SparseEntries, run_solver
from ncarl.solvers.soft_impute import (
    SoftImputeALS,
    SoftImputeState,
    factored_distance,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Steps below a relative size of about 1e-8 count as zero, so results of tight fits
#: agree to about `CLOSE`.
TIGHT = {"tol": 1e-9, "max_iter": 20_000}
CLOSE = 3e-5


def noisy_low_rank(m, n, rank, share, noise=0.3, seed=0):
    """An incomplete noisy low-rank matrix."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    X += noise * rng.standard_normal(X.shape)
    return np.where(rng.random((m, n)) < share, X, np.nan)


def entries_of(X):
    return SparseEntries(Observations.from_dense(X), HostDevice(1))


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def objective(Z, X, lam):
    s = np.linalg.svd(Z, compute_uv=False)
    return 0.5 * np.nansum((Z - X) ** 2) + lam * s.sum()


def smooth(model, X):
    return model.transform(X, keep_observed=False)


def plain(X, lam, steps=2000):
    """Soft-impute by definition: impute, shrink, repeat."""
    Z = np.zeros(X.shape)
    for _ in range(steps):
        U, s, Vt = np.linalg.svd(np.where(np.isnan(X), Z, X), full_matrices=False)
        Z = (U * np.maximum(s - lam, 0.0)) @ Vt
    return Z


@pytest.fixture(scope="module")
def small():
    return noisy_low_rank(12, 9, 3, 0.6)


class TestOptimum:
    @pytest.mark.parametrize("turned", [False, True])
    def test_matches_the_plain_iteration(self, turned):
        X = noisy_low_rank(30, 20, 3, 0.5)
        X = X.T if turned else X
        model = SoftImpute(lam=1.0, **TIGHT).fit(X)
        expected = plain(X, 1.0)
        assert relative(smooth(model, X), expected) < CLOSE
        assert model.objective_ == pytest.approx(objective(expected, X, 1.0), rel=1e-6)
        assert model.rank_ == np.linalg.matrix_rank(expected, tol=1e-6)
        left = np.linalg.norm((expected - X)[~np.isnan(X)])
        size = np.linalg.norm(X[~np.isnan(X)])
        assert model.residual_ == pytest.approx(left / size, rel=1e-5)

    def test_strength_above_the_largest_value_gives_zero(self, small):
        top = np.linalg.norm(np.nan_to_num(small), 2)
        zero = SoftImpute(lam=1.5 * top).fit(small)
        assert_array_equal(smooth(zero, small), 0.0)
        assert zero.rank_ == 0
        # Just above it, the initial factors decay slowly.
        near = SoftImpute(lam=1.001 * top, **TIGHT).fit(small)
        assert np.linalg.norm(smooth(near, small)) < 1e-2 * top
        some = SoftImpute(lam=0.99 * top, **TIGHT).fit(small)
        assert some.rank_ == 1

    @pytest.mark.parametrize("lam", [0.1, 1.0])
    def test_objective_never_increases_at_fixed_strength(self, lam):
        entries = entries_of(noisy_low_rank(30, 20, 3, 0.5))
        run = SoftImputeALS(entries, lam, 20)
        before, compared = None, 0
        for step in run.steps(run.initial_state(), 0):
            # Added directions increase the objective at first.
            wider = before and len(step.state.s) > len(before.state.s)
            if before and before.state.lam == step.state.lam and not wider:
                assert step.objective <= before.objective * (1.0 + 1e-12)
                compared += 1
            before = step
            if step.step == 300:
                break
        assert compared > 250

    def test_max_rank_is_respected(self):
        X = noisy_low_rank(30, 20, 5, 0.6)
        model = SoftImpute(lam=0.2, rank=2).fit(X)
        assert model.rank_ == 2
        assert np.linalg.matrix_rank(smooth(model, X)) == 2


class TestFactors:
    @pytest.mark.parametrize("size", [1e-9, 1e-12])
    def test_short_distances_are_distinguished_from_zero(self, rng, size):
        U = np.linalg.qr(rng.standard_normal((30, 3)))[0]
        Vt = np.linalg.qr(rng.standard_normal((20, 3)))[0].T
        one = SoftImputeState(U, np.array([9.0, 4.0, 1.0]), Vt, None, 1.0)
        other = SoftImputeState(U, np.array([9.0 + size, 4.0, 1.0]), Vt, None, 1.0)
        assert factored_distance(one, other) == pytest.approx(size, rel=0.1, abs=0.0)

    def test_are_orthonormal_with_decreasing_sizes(self):
        X = noisy_low_rank(30, 20, 3, 0.5)
        solver = SoftImputeALS(entries_of(X), 1.0, 20)
        state = run_solver(solver, max_iter=60, tol=0).last.state
        d = len(state.s)
        assert_allclose(state.U.T @ state.U, np.eye(d), atol=1e-7)
        assert_allclose(state.Vt @ state.Vt.T, np.eye(d), atol=1e-7)
        assert (np.diff(state.s) <= 0.0).all()
        Z = (state.U * state.s) @ state.Vt
        assert_allclose(state.residuals, (X - Z)[~np.isnan(X)], atol=1e-10)

    def test_rank_is_the_number_of_remaining_directions(self, monkeypatch):
        X = noisy_low_rank(30, 20, 16, 0.9)
        # Directly at the final strength, where many more directions remain.
        monkeypatch.setattr("ncarl.solvers.base.LAM_DECAY", 1e-3)
        solver = SoftImputeALS(entries_of(X), 0.5, 20)
        result = run_solver(solver, max_iter=2000, tol=1e-6)
        expected = plain(X, 0.5, 1000)
        A, B = solver.finalize(result.last).factors
        assert result.converged
        assert A.shape[1] == np.linalg.matrix_rank(expected, tol=1e-6) > 12
        assert relative(A @ B, expected) < 1e-4

    def test_balanced_factors_share_the_sizes(self):
        X = noisy_low_rank(30, 20, 3, 0.5)
        model = SoftImpute(lam=1.0, **TIGHT).fit(X)
        A, B = model.model_.factors
        s = np.linalg.svd(A @ B, compute_uv=False)[: model.rank_]
        assert_allclose(A.T @ A, np.diag(s), atol=1e-6)
        assert_allclose(B @ B.T, np.diag(s), atol=1e-6)

    def test_distance_of_states_is_that_of_their_matrices(self, rng):
        solver = SoftImputeALS(entries_of(noisy_low_rank(30, 20, 3, 0.5)), 1.0, 20)
        states = [run_solver(solver, max_iter=k, tol=0).last.state for k in (3, 9)]
        one, other = ((state.U * state.s) @ state.Vt for state in states)
        assert factored_distance(*states) == pytest.approx(np.linalg.norm(one - other))
        assert factored_distance(states[0], states[0]) == pytest.approx(0.0, abs=1e-6)


class TestNewRows:
    @pytest.mark.parametrize("center", [None, "mean", "columns", "two-way"])
    def test_training_rows_as_new_rows_give_the_same_result(self, center):
        X = noisy_low_rank(30, 20, 3, 0.6) + 2.0
        model = SoftImpute(lam=0.7, center=center, **TIGHT).fit(X)
        found = smooth(model, X)
        for rows in ([0], [3, 11, 4], range(5, 25)):
            part = X[list(rows)]
            assert_allclose(smooth(model, part), found[list(rows)], atol=CLOSE)
            assert_allclose(
                model.transform(part), model.transform(X)[list(rows)], atol=CLOSE
            )

    def test_columns_may_be_scaled(self):
        X = noisy_low_rank(30, 20, 3, 0.6) * np.logspace(-2, 2, 20)
        model = SoftImpute(lam=0.7, scale="columns", center="columns", **TIGHT).fit(X)
        spreads = np.nanstd(X, axis=0)
        found = smooth(model, X[:5]) / spreads
        assert_allclose(found, smooth(model, X)[:5] / spreads, atol=CLOSE)

    def test_row_without_entries_gets_zero(self):
        X = noisy_low_rank(30, 20, 3, 0.6)
        model = SoftImpute(lam=0.7).fit(X)
        assert_array_equal(model.transform(np.full((1, 20), np.nan)), 0.0)

    @pytest.mark.parametrize("ridge", [0.0, 0.4])
    def test_factors_solve_a_ridge_regression(self, rng, ridge):
        B = rng.standard_normal((4, 12))
        X = rng.standard_normal((7, 12))
        for i, count in enumerate((0, 1, 2, 4, 5, 9, 12)):
            X[i, rng.permutation(12)[count:]] = np.nan
        A = row_factors(Observations.from_dense(X), B, ridge)
        for i, row in enumerate(X):
            o = ~np.isnan(row)
            C = B[:, o].T
            expected = np.linalg.pinv(C.T @ C + ridge * np.eye(4)) @ C.T @ row[o]
            assert_allclose(A[i], expected, atol=1e-9)

    def test_rank_zero(self):
        A = row_factors(Observations.from_dense(np.ones((3, 2))), np.zeros((0, 2)), 1.0)
        assert A.shape == (3, 0)


class TestModel:
    @pytest.mark.parametrize("kind", ["dense", "factors"])
    @pytest.mark.parametrize("scaled", [False, True])
    def test_single_entries_match_the_matrix(self, rng, kind, scaled):
        X = noisy_low_rank(8, 6, 2, 0.8) * 50.0 + 3.0
        ready = PreprocessedData.from_observations(
            Observations.from_dense(X), "two-way", scaled
        )
        inner = rng.standard_normal((8, 2)), rng.standard_normal((2, 6))
        whole = inner[0] @ inner[1]
        given = (whole, None) if kind == "dense" else (None, inner)
        model = ready.model(*given, None)
        c = ready.centering
        expected = (whole + ready.effects[:, None]) * c.column_scales
        expected += c.mean + c.column_effects
        assert_allclose(model.complete(), expected * ready.unit, rtol=1e-12)
        i, j = np.indices((8, 6)).reshape(2, -1)
        assert_allclose(model.predict(i, j), model.complete().ravel(), rtol=1e-12)
        assert not model.supports_new_rows

    def test_overflow_is_clipped_to_the_largest_float(self):
        ready = PreprocessedData.from_observations(
            Observations.from_dense(np.full((2, 2), 1e308)), None, False
        )
        model = ready.model(np.array([[1e10, -1e10], [0.0, 1.0]]), None, None)
        largest = np.finfo(float).max
        assert_array_equal(model.complete()[0], [largest, -largest])
        assert np.isfinite(model.complete()).all()


class TestStrengthSelection:
    def test_selected_strength_is_the_best_of_its_path(self):
        X = noisy_low_rank(40, 30, 3, 0.5)
        one = SoftImpute().fit(X)
        errors = np.array([row["error"] for row in one.path_])
        lams = np.array([row["lam"] for row in one.path_])
        assert_allclose(lams[1:] / lams[:-1], 0.7)
        total = int((~np.isnan(X)).sum())
        more = np.sqrt(total / (total - round(0.1 * total)))
        assert one.lam_ == pytest.approx(lams[errors.argmin()] * more)
        assert len(errors) - 1 - errors.argmin() == baselines.RANK_PATIENCE
        assert {"lam", "error", "steps", "rank"} == set(one.path_[0])

    def test_selected_strength_is_nearly_optimal(self):
        rng = np.random.default_rng(3)
        truth = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 40))
        X = truth + 0.5 * rng.standard_normal(truth.shape)
        hidden = rng.random(X.shape) < 0.5
        X[hidden] = np.nan
        model = SoftImpute().fit(X)
        gaps = [
            relative(smooth(SoftImpute(lam=lam).fit(X), X)[hidden], truth[hidden])
            for lam in model.lam_ * np.array([0.25, 0.5, 1.0, 2.0, 4.0])
        ]
        assert gaps[2] < 1.1 * min(gaps)
        assert gaps[0] > 1.05 * gaps[2] < gaps[4] / 1.05

    @pytest.mark.parametrize(
        "params",
        [{"lam": None}, {"lam": 0.0}, {"rank": 0}, {"validation": 1.0},
         {"random_state": -1}],
        ids=str,
    )  # fmt: skip
    def test_invalid_parameters_raise(self, small, params):
        with pytest.raises((ValueError, TypeError), match=next(iter(params))):
            SoftImpute(**params).fit(small)


class TestPath:
    """The path of strengths with fake solvers that record their input."""

    def run_path(self, monkeypatch, errors):
        made, begun, resumed = [], [], []

        class FakeSolver:
            degree = 2.0

            def __init__(self, strength):
                self.strength = strength
                made.append(strength)

            def initial_state(self):
                begun.append(self.strength)
                return "nothing"

            def warm_start(self, state):
                resumed.append((self.strength, state))
                return state

            def finalize(self, last):
                return SolverResult(None, None, 0.0, len(made))

        def fake_run(solver, *, max_iter, tol, state):
            return FitResult(Iterate(f"after {solver.strength}", 0.0, 0.0, step=4), {})

        monkeypatch.setattr(baselines, "run_solver", fake_run)
        errors = iter(errors)
        told = []
        table, best, state = baselines.fit_path(
            [
                baselines.SplitPath(
                    baselines.PathProblem(10.0, FakeSolver, 0.1),
                    lambda ending: next(errors),
                )
            ],
            on_point=told.append,
        )
        assert told == table
        assert best == min(table, key=lambda one: one.error)
        assert state == f"after {best.lam}"
        return table, made, begun, resumed

    def test_ends_two_strengths_after_the_best(self, monkeypatch):
        table, made, begun, resumed = self.run_path(
            monkeypatch, [5.0, 3.0, 3.1, 2.0, 2.05, 2.02, 1.0]
        )
        assert [one.error for one in table] == [5.0, 3.0, 3.1, 2.0, 2.05, 2.02]
        assert_allclose(made, 10.0 * 0.7 ** np.arange(1, 7))
        assert [one.lam for one in table] == made
        assert begun == made[:1]
        befores = [f"after {strength}" for strength in made[:-1]]
        assert resumed == list(zip(made[1:], befores, strict=True))
        assert [one.steps for one in table] == [4] * 6
        assert [one.rank for one in table] == [1, 2, 3, 4, 5, 6]

    def test_strengths_with_unchanged_rank_do_not_count(self):
        def points(*ranks):
            return [baselines.PathPoint(1.0, 1.0, 1, rank) for rank in ranks]

        assert not baselines._should_stop(points(1))
        assert not baselines._should_stop(points(1, 1, 1, 1, 2, 2))
        assert baselines._should_stop(points(1, 1, 1, 1, 2, 2, 3))
        assert baselines._should_stop(points(1, 4, 5))
        assert baselines._should_stop(points(*[1] * 9))
        assert not baselines._should_stop(points(*[1] * 8))
        worse = baselines.PathPoint(1.0, 1.06, 1, 1)
        assert not baselines._should_stop([*points(1, 1), worse])
        assert baselines._should_stop([*points(1, 2), worse])

    def test_ends_at_the_target_error(self):
        entries = entries_of(np.eye(3))
        errors = iter([5.0, 1.0, 0.5, 0.25, 0.1])
        path = baselines.SplitPath(
            baselines.PathProblem(1.0, lambda lam: SoftImputeALS(entries, lam, 3), 0.1),
            lambda ending: next(errors),
            size=0.5 / baselines.NEGLIGIBLE_ERROR,
        )
        table, *_ = baselines.fit_path([path])
        assert [one.error for one in table] == [5.0, 1.0, 0.5]

    def test_ends_after_forty_strengths(self, monkeypatch):
        table, *_ = self.run_path(monkeypatch, np.linspace(9.0, 1.0, 60))
        assert len(table) == 40

    def test_interruption_propagates(self, monkeypatch):
        def fake_run(solver, **_):
            return FitResult(Iterate("here", 0.0, 0.0, step=1), {}, interrupted=True)

        monkeypatch.setattr(baselines, "run_solver", fake_run)
        entries = entries_of(np.eye(3))
        with pytest.raises(KeyboardInterrupt):
            problem = baselines.PathProblem(
                1.0, lambda lam: SoftImputeALS(entries, lam, 3)
            )
            baselines.fit_path([baselines.SplitPath(problem, lambda ending: 0.0)])

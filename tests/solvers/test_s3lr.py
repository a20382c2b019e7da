"""Tests of S3LR: properties of its model and reference computations."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from ncarl import S3LR, Nuclear
from ncarl.core.svd import NORM_MARGIN, initial_probe, spectral_norm_bound
from ncarl.engines import pick_engine
from ncarl.estimators.baselines import FitInput
from ncarl.fitting.matrix_model import PreprocessedData
from ncarl.solvers.s3lr import shrink_by_cluster, shrink_errors, spectral_clustering

from .conftest import hide, relative_error

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def subspaces(m=30, dimension=3, each=40, count=2, seed=0):
    """Columns from orthogonal subspaces in order."""
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.standard_normal((m, count * dimension)))[0]
    parts = np.split(bases, count, axis=1)
    return np.hstack([B @ rng.standard_normal((dimension, each)) for B in parts])


def shrink_nuclear(W, tau):
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    return (U * np.maximum(s - tau, 0.0)) @ Vt


class TestModel:
    def test_without_self_expression_matches_nuclear(self):
        X, _ = hide(subspaces(20, 2, 12), 0.4, seed=1)
        model = S3LR(lam=0, rho=1.01, tol=1e-6, max_rounds=1).fit(X)
        assert not model.coefficients_.any()
        assert relative_error(model.transform(X), Nuclear().fit_transform(X)) < 2e-4

    @pytest.mark.parametrize("norm", ["l1", "l21", "squared"])
    def test_one_cluster_needs_one_round_and_no_relaxation(self, norm):
        X, _ = hide(subspaces(20, 2, 12), 0.4, seed=1)
        one = S3LR(n_clusters=1, error_norm=norm).fit(X)
        relaxed = S3LR(n_clusters=1, relax=True, error_norm=norm).fit(X)
        assert one.rounds_ == relaxed.rounds_ == 1 and one.converged_
        assert_array_equal(one.transform(X), relaxed.transform(X))
        assert_array_equal(one.coefficients_, relaxed.coefficients_)
        assert not one.labels_.any()

    @pytest.mark.parametrize(("missing", "n_clusters"), [(0.2, 2), (0.5, "auto")])
    def test_two_subspaces_are_separated(self, missing, n_clusters):
        truth = subspaces()
        X, hidden = hide(truth, missing, seed=1)
        model = S3LR(n_clusters=n_clusters).fit(X)
        assert model.n_clusters_ == 2
        assert_array_equal(model.labels_, np.repeat([0, 1], 40))
        assert relative_error(model.transform(X)[hidden], truth[hidden]) < 0.1

    def test_error_on_two_subspaces_is_below_that_of_nuclear(self):
        truth = subspaces()
        X, hidden = hide(truth, 0.5, seed=1)
        ours = relative_error(S3LR().fit_transform(X)[hidden], truth[hidden])
        plain = relative_error(Nuclear().fit_transform(X)[hidden], truth[hidden])
        assert ours < 0.3 * plain

    def test_complete_data_have_sparse_coefficients(self):
        X = subspaces(20, 2, 8) + 0.01 * np.random.default_rng(3).standard_normal(
            (20, 16)
        )
        lam, g0 = 50.0, 0.05
        model = S3LR(1, lam, g0, error_norm="squared", rho=1.003, tol=1e-5,
                     max_iter=6000).fit(X)  # fmt: skip
        C = model.coefficients_
        assert_array_equal(model.predict(X), X)
        assert model.residual_ < 1e-4
        assert not np.diag(C).any()
        length = np.sqrt(20) * np.sqrt(np.mean(X**2))

        def value(C):
            loss = np.sum((X - X @ C) ** 2) / 2.0
            return lam / length * loss + g0 * length * np.abs(C).sum()

        best = np.zeros_like(C)
        lasso = Lasso(
            g0 * length**2 / lam / 20, fit_intercept=False, tol=1e-6, max_iter=100_000
        )
        for j in range(16):
            others = np.arange(16) != j
            best[others, j] = lasso.fit(X[:, others], X[:, j]).coef_
        assert value(best) <= value(C) < 1.01 * value(best)
        assert np.count_nonzero(C) < 0.5 * C.size


def plain_steps(X, labels, solver, count):
    """Direct implementation of the steps of a round with the norms of the solver."""
    seen = ~np.isnan(X)
    M, n = np.where(seen, X, 0.0), X.shape[1]
    X, C, E, Y1, Y2 = M, np.zeros((n, n)), 0.0 * M, 0.0 * M, 0.0 * M
    mu, eye = 1.25 / np.linalg.norm(M, 2), np.eye(n)
    groups = [np.full(n, True)] if solver.relax else [labels == k for k in (0, 1)]
    strengths = solver.g0 + solver.G * (labels[:, None] != labels[None, :])
    probes = [initial_probe(n), initial_probe(n)]
    for _ in range(count):
        norm, probes[0] = spectral_norm_bound(eye - C, probes[0])
        eta = norm**2 + 1.01
        slope = seen * (X - M - Y1 / mu) + (X - X @ C - E + Y2 / mu) @ (eye - C).T
        W, X = X - slope / eta, np.empty_like(X)
        for own in groups:
            X[:, own] = shrink_nuclear(W[:, own], 1.0 / (mu * eta))
        W = X - X @ C + Y2 / mu
        E = np.sign(W) * np.maximum(np.abs(W) - solver.lam / mu, 0.0)
        norm, probes[1] = spectral_norm_bound(X, probes[1])
        W = C - X.T @ (X @ C + E - X - Y2 / mu) / norm**2
        C = np.sign(W) * np.maximum(np.abs(W) - strengths / (mu * norm**2), 0.0)
        np.fill_diagonal(C, 0.0)
        Y1 = Y1 + mu * seen * (M - X)
        Y2 = Y2 + mu * (X - X @ C - E)
        mu *= solver.rho
    return X, C


class TestParts:
    @pytest.mark.parametrize("relax", [False, True])
    def test_steps_match_the_direct_implementation(self, relax):
        X, _ = hide(subspaces(12, 2, 7), 0.3, seed=1)
        model = S3LR(2, 0.3, 0.02, 0.2, relax, tol=0, max_iter=1).fit(X)
        ready = PreprocessedData.from_observations(model.training_, None, False)
        engine = pick_engine("threads")
        fit = FitInput(model, model.training_, None, ready, engine, 0.0, {})
        solver = model._make_solver(fit)
        labels = np.arange(14) % 2
        steps = solver.steps(replace(solver.initial_state(), labels=labels), 0)
        last = [next(steps) for _ in range(40)][-1].state
        X, C = plain_steps(X / ready.unit, labels, solver, 40)
        assert np.abs(C).max() > 0.1
        assert_allclose(last.X, X, atol=1e-9)
        assert_allclose(last.C, C, atol=1e-9)

    def test_cluster_shrinkage_shrinks_each_cluster(self):
        rng = np.random.default_rng(0)
        W, labels = rng.standard_normal((9, 14)), rng.integers(0, 3, 14)
        found, s = shrink_by_cluster(W, labels, 0.8)
        for k in range(3):
            own = labels == k
            assert_allclose(found[:, own], shrink_nuclear(W[:, own], 0.8), atol=1e-12)
        norms = [np.linalg.norm(found[:, labels == k], "nuc") for k in range(3)]
        assert s.sum() == pytest.approx(sum(norms))
        whole, _ = shrink_by_cluster(W, labels[:0], 0.8)
        assert_allclose(whole, shrink_nuclear(W, 0.8), atol=1e-12)

    @pytest.mark.parametrize("norm", ["l1", "l21", "squared"])
    def test_error_shrinkage_is_optimal(self, norm):
        rng = np.random.default_rng(0)
        W, lam, mu = rng.standard_normal((5, 4)), 0.9, 0.7
        E = shrink_errors(W, norm, lam / mu)

        def value(E):
            size = {
                "l1": np.abs(E).sum(),
                "l21": np.linalg.norm(E, axis=0).sum(),
                "squared": np.sum(E**2) / 2.0,
            }[norm]
            return lam * size + mu / 2.0 * np.sum((E - W) ** 2)

        for scale in (1e-3, 1e-1, 1.0):
            for _ in range(20):
                other = E + scale * rng.standard_normal(E.shape)
                assert value(E) <= value(other)

    def test_norm_bound_is_tight(self):
        rng = np.random.default_rng(1)
        for shape in [(30, 20), (20, 30), (1, 5), (5, 1)]:
            A, probe = rng.standard_normal(shape), initial_probe(shape[1])
            for _ in range(3):
                A = A + 0.01 * rng.standard_normal(shape)
                bound, probe = spectral_norm_bound(A, probe)
            top = np.linalg.norm(A, 2)
            assert top <= bound <= NORM_MARGIN * top * (1.0 + 1e-12)

    def test_clusters_follow_coefficient_blocks_and_spectral_gap(self):
        rng = np.random.default_rng(0)
        order = rng.permutation(24)
        blocks = np.repeat([0, 1, 2], 8)[order]
        C = rng.random((24, 24)) * (blocks[:, None] == blocks[None, :])
        labels, k = spectral_clustering(C + 0.01 * rng.random((24, 24)), 0, 0)
        assert k == 3
        together = labels[:, None] == labels[None, :]
        assert_array_equal(together, blocks[:, None] == blocks[None, :])


class TestRun:
    def test_observed_entries_are_kept_and_rounds_counted(self):
        X, hidden = hide(subspaces(), 0.5, seed=1)
        model = S3LR().fit(X)
        assert_array_equal(model.predict(X)[~hidden], X[~hidden])
        assert 0.0 < model.residual_ < 1e-4
        rounds = model.history_["round"]
        assert rounds[-1] == model.rounds_ > 1 and model.converged_
        assert set(np.diff(rounds)) == {0.0, 1.0}
        assert model.coefficients_.shape == (80, 80)
        assert {len(column) for column in model.history_.values()} == {model.n_iter_}

    @pytest.mark.parametrize("after", [5, 100])
    def test_run_resumes_from_its_checkpoint(self, after, tmp_path):
        X, _ = hide(subspaces(15, 2, 10), 0.4, seed=1)
        whole = S3LR(n_clusters=2).fit(X)
        assert whole.n_iter_ > after
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            S3LR(n_clusters=2, checkpoint=tmp_path / "c", max_iter=after).fit(X)
        rest = S3LR(n_clusters=2, checkpoint=tmp_path / "c").fit(X)
        assert rest.n_iter_ == whole.n_iter_ and rest.rounds_ == whole.rounds_
        assert_array_equal(rest.transform(X), whole.transform(X))
        assert_array_equal(rest.labels_, whole.labels_)


class TestEdgeCases:
    @pytest.mark.parametrize("norm", ["l1", "l21", "squared"])
    def test_result_is_finite(self, edge_case, norm):
        seen = ~np.isnan(edge_case)
        for n_clusters in ("auto", min(2, edge_case.shape[1])):
            filled = S3LR(n_clusters, error_norm=norm).fit_transform(edge_case)
            assert np.isfinite(filled).all()
            assert_array_equal(filled[seen], edge_case[seen])
            assert_allclose(filled[~seen.any(axis=1)], 0.0, atol=1e-9)
            assert_allclose(filled[:, ~seen.any(axis=0)], 0.0, atol=1e-9)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n_clusters": 4}, "at most the number of columns"),
            ({"n_clusters": 0}, "n_clusters must be"),
            ({"lam": -1.0}, "lam must be"),
            ({"error_norm": "l2"}, "error_norm must be one of"),
            ({"rho": 1.0}, "rho must be"),
            ({"max_rounds": 0}, "max_rounds must be"),
        ],
    )
    def test_invalid_parameters_raise(self, tiny, options, message):
        with pytest.raises(ValueError, match=message):
            S3LR(**options).fit(tiny)


def test_clustering_is_imported_when_it_is_needed():
    code = (
        "import sys, ncarl.estimators.other_baselines; "
        "assert 'sklearn.cluster' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

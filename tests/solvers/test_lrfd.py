"""Tests of LRFD: properties of its model and reference computations."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from ncarl import LRFD, Nuclear

from .conftest import hide, relative_error

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def low_rank(m, n, rank, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))


def row_coherent(seed=0):
    """60 columns of rank 5; three directions occur in three columns only."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((40, 5)))[0]
    V = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 5))
    V[:9:3] += 3.0 * rng.standard_normal((3, 5))
    return U @ V.T, U


def two_copies(X, D, steps=20_000, mu=1.0):
    """Completion with dictionary D by ADMM without rank reduction.

    Both ``X = D Z`` and ``J = Z`` are constraints, and Z has a row for every column of
    the dictionary.
    """
    seen = ~np.isnan(X)
    M = np.where(seen, X, 0.0)
    Z, Y1, Y2 = np.zeros((D.shape[1], X.shape[1])), 0.0 * M, 0.0
    inverse = np.linalg.inv(D.T @ D + np.eye(D.shape[1]))
    for _ in range(steps):
        U, s, Vt = np.linalg.svd(Z + Y2 / mu, full_matrices=False)
        J = (U * np.maximum(s - 1.0 / mu, 0.0)) @ Vt
        W = np.where(seen, M, D @ Z - Y1 / mu)
        Z = inverse @ (D.T @ (W + Y1 / mu) + J - Y2 / mu)
        Y1, Y2 = Y1 + mu * (W - D @ Z), Y2 + mu * (Z - J)
        if np.linalg.norm(Z - J) + np.linalg.norm(W - D @ Z) < 1e-10:
            break
    return D @ Z


class TestModel:
    def test_basis_gives_the_minimum_norm_in_its_column_space(self):
        truth = low_rank(20, 15, 3)
        basis = np.linalg.qr(np.c_[truth[:, :3], low_rank(20, 4, 4, seed=5)])[0]
        X, _ = hide(truth, 0.6, seed=1)
        ours = LRFD(basis, tol=1e-9).fit(X)
        found = ours.predict(X)
        norm = np.linalg.norm(found, "nuc")
        assert ours.objective_ == pytest.approx(norm, rel=1e-6)
        assert_allclose(basis @ (basis.T @ found), found, atol=1e-6)
        assert_allclose(two_copies(X, basis), found, atol=1e-5)

    def test_true_column_space_recovers_where_nuclear_fails(self):
        truth, basis = row_coherent()
        X, hidden = hide(truth, 0.5, seed=1)
        with_it = LRFD(basis, tol=1e-9).fit_transform(X)
        without = Nuclear().fit_transform(X)
        assert relative_error(with_it[hidden], truth[hidden]) < 1e-6
        assert relative_error(without[hidden], truth[hidden]) > 0.1

    def test_scale_of_the_dictionary_does_not_matter(self):
        truth = low_rank(20, 15, 3)
        D = np.c_[truth[:, :4], low_rank(20, 3, 3, seed=5)]
        X, _ = hide(truth, 0.5, seed=1)
        one, other = (LRFD(c * D, tol=1e-9).fit(X) for c in (1.0, 1e-3))
        assert_allclose(one.predict(X), other.predict(X), atol=1e-7)
        assert 1e3 * one.objective_ == pytest.approx(other.objective_, rel=1e-7)

    def test_rank_reduction_does_not_change_the_result(self):
        rng = np.random.default_rng(3)
        D = rng.standard_normal((12, 4)) @ rng.standard_normal((4, 9))
        D /= np.linalg.norm(D, axis=0)
        X, _ = hide(D @ rng.standard_normal((9, 8)), 0.7, seed=1)
        assert_allclose(LRFD(D, tol=1e-9).fit(X).predict(X), two_copies(X, D),
                        atol=1e-5)  # fmt: skip

    def test_columns_dictionary_is_the_minimum_norm_completion(self):
        X, _ = hide(low_rank(30, 25, 3), 0.3, seed=1)
        first = Nuclear().fit_transform(X)
        found = LRFD().fit(X)
        assert_allclose(
            found.dictionary_, first / np.linalg.norm(first, axis=0), atol=1e-4
        )
        basis = LRFD("basis").fit(X).dictionary_
        assert basis.shape == (30, 3)
        assert_allclose(basis @ (basis.T @ first), first, atol=1e-4)


class TestPenalizedForm:
    def test_residuals_are_a_dual_certificate(self):
        rng = np.random.default_rng(4)
        X, hidden = hide(
            low_rank(20, 15, 3) + 0.1 * rng.standard_normal((20, 15)), 0.4, seed=1
        )
        D, lam = rng.standard_normal((20, 8)), 0.7
        model = LRFD(D, lam=lam, tol=1e-10, max_iter=20_000).fit(X)
        found = model.predict(X)
        Z = np.linalg.lstsq(D, found, rcond=None)[0]
        pull = D.T @ np.where(hidden, 0.0, np.nan_to_num(X) - found) / lam
        assert np.linalg.norm(pull, 2) < 1.0 + 1e-5
        assert np.sum(pull * Z) == pytest.approx(np.linalg.norm(Z, "nuc"), rel=1e-5)
        loss = np.sum((X - found)[~hidden] ** 2) / 2.0
        value = np.linalg.norm(Z, "nuc") + loss / lam
        assert model.objective_ == pytest.approx(value, rel=1e-6)
        assert model.penalized_ and model.lam_ == pytest.approx(lam)

    def test_is_used_if_the_dictionary_cannot_match_the_entries(self):
        X, hidden = hide(low_rank(20, 15, 3), 0.3, seed=1)
        model = LRFD(low_rank(20, 2, 2, seed=7))
        with pytest.warns(UserWarning, match="cannot fit"):
            model.fit(X)
        assert model.penalized_ and model.lam_ > 0.0
        assert 0.1 < model.residual_ < 1.0
        assert_array_equal(model.transform(X)[~hidden], X[~hidden])

    def test_is_used_if_rank_reduction_drops_too_much_noise(self):
        rng = np.random.default_rng(4)
        X, _ = hide(
            low_rank(20, 15, 2) + 0.1 * rng.standard_normal((20, 15)), 0.2, seed=1
        )
        with pytest.warns(UserWarning, match="Lower rank_tol"):
            assert LRFD(rank_tol=0.2).fit(X).penalized_
        assert not LRFD(rank_tol=1e-6).fit(X).penalized_


class TestLearnedDictionary:
    def test_objective_is_a_power_of_singular_values(self):
        truth = low_rank(40, 30, 3)
        X, hidden = hide(truth, 0.5, seed=1)
        model = LRFD("learned").fit(X)
        assert relative_error(model.transform(X)[hidden], truth[hidden]) < 1e-4
        s = np.linalg.svd(truth, compute_uv=False)[:3]
        assert model.objective_ == pytest.approx(1.5 * np.sum(s ** (2 / 3)), rel=1e-2)
        assert model.dictionary_.shape == (40, 3) and model.rank_ == 3


class TestRun:
    def test_observed_entries_are_kept_and_stages_are_sequential(self):
        X, hidden = hide(low_rank(30, 25, 3), 0.3, seed=1)
        model = LRFD(rounds=3).fit(X)
        assert_array_equal(model.predict(X)[~hidden], X[~hidden])
        assert 0.0 < model.residual_ < 1e-5
        assert model.converged_ and model.rank_ == 3
        stages, rounds = model.history_["stage"], model.history_["round"]
        assert set(stages) == {1.0, 2.0} and set(rounds) == {1.0, 2.0, 3.0}
        assert (np.diff(stages) >= 0).all() and (np.diff(rounds) >= 0).all()
        assert {len(column) for column in model.history_.values()} == {model.n_iter_}

    @pytest.mark.thorough
    @pytest.mark.parametrize("options", [{}, {"lam": 0.1}, {"dictionary": "learned"}])
    def test_run_resumes_from_its_checkpoint(self, options, tmp_path):
        X, _ = hide(low_rank(15, 12, 3), 0.4, seed=1)
        whole = LRFD(**options).fit(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            LRFD(**options, checkpoint=tmp_path / "c", max_iter=60).fit(X)
        rest = LRFD(**options, checkpoint=tmp_path / "c").fit(X)
        assert rest.n_iter_ == whole.n_iter_
        assert_allclose(rest.transform(X), whole.transform(X), atol=1e-10)


class TestEdgeCases:
    @pytest.mark.parametrize("dictionary", ["columns", "basis", "learned"])
    def test_result_is_finite(self, edge_case, dictionary):
        filled = LRFD(dictionary).fit_transform(edge_case)
        seen = ~np.isnan(edge_case)
        assert np.isfinite(filled).all()
        assert_array_equal(filled[seen], edge_case[seen])
        assert_allclose(filled[:, ~seen.any(axis=0)], 0.0, atol=1e-9)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dictionary": "rows"}, "dictionary must be one of"),
            ({"dictionary": np.eye(3)}, "as many rows as X"),
            ({"dictionary": np.full((2, 2), np.nan)}, "finite numbers"),
            ({"dictionary": np.eye(2), "rounds": 2}, "rounds belongs to"),
            ({"dictionary": "learned", "lam": 1.0}, "leave lam out"),
            ({"rank_tol": 1.0}, "rank_tol must be below 1"),
            ({"lam": -1.0}, "lam must be"),
        ],
    )
    def test_invalid_parameters_raise(self, tiny, options, message):
        with pytest.raises(ValueError, match=message):
            LRFD(**options).fit(tiny)

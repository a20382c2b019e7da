"""Tests of NCARL fits: graph, steps, history, callbacks, engines, precision."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ncarl import NCARL, NCARLCV, StepInfo, Threads
from ncarl.blocks import cut_blocks
from ncarl.core.graph import similarity, squared_distances
from ncarl.observations import Observations

FEW = {"max_iter": 4, "tol": 0, "alpha": 1.0, "n_neighbors": 4}


class TestGraph:
    def test_adaptive_graph_is_k_sparse_with_unit_row_sums(self, X):
        S = NCARL(**FEW).fit(X).similarity_
        assert isinstance(S, sparse.csr_array)
        assert S.shape == (9, 9)
        assert_allclose(S.sum(axis=1), 1.0)
        assert (np.diff(S.indptr) <= 4).all()

    def test_fixed_graph_is_computed_from_zero_filled_input(self, X):
        S = NCARL(**FEW, graph="fixed").fit(X).similarity_
        zero_filled = np.nan_to_num(X)
        expected = similarity(squared_distances(zero_filled.T @ zero_filled), 4)
        assert_allclose(S.toarray(), expected, atol=1e-12)
        assert np.abs(NCARL(**FEW).fit(X).similarity_ - S).max() > 1e-3

    def test_given_graph_is_used_unchanged(self, X, rng):
        given = rng.random((9, 9))
        estimator = NCARL(**FEW, graph=given).fit(X)
        assert_array_equal(estimator.similarity_.toarray(), given)
        for form in (sparse.csr_array(given), sparse.coo_matrix(given), given.tolist()):
            other = NCARL(**FEW, graph=form).fit(X)
            assert_array_equal(other.kernel_, estimator.kernel_)
        fixed = NCARL(**FEW, graph="fixed").fit(X)
        again = NCARL(**FEW, graph=fixed.similarity_).fit(X)
        assert_allclose(again.transform(X), fixed.transform(X), rtol=1e-9)

    def test_no_graph_equals_alpha_zero(self, X):
        none = NCARL(**FEW, graph=None).fit(X)
        zero = NCARL(**{**FEW, "alpha": 0.0}).fit(X)
        assert none.similarity_.nnz == zero.similarity_.nnz == 0
        assert_array_equal(none.transform(X), zero.transform(X))
        assert np.abs(none.transform(X) - NCARL(**FEW).fit_transform(X)).max() > 1e-6

    @pytest.mark.parametrize("k", [9, 50, 10**6])
    def test_neighbors_beyond_the_columns_are_lowered(self, X, k):
        estimator = NCARL(**{**FEW, "n_neighbors": k}).fit(X)
        assert estimator.n_neighbors_ == 8
        most = NCARL(**{**FEW, "n_neighbors": 8}).fit(X)
        assert most.n_neighbors_ == 8
        assert_array_equal(estimator.kernel_, most.kernel_)

    def test_one_column_has_no_graph(self):
        estimator = NCARL(orientation="columns").fit(np.array([[1.0], [np.nan], [3.0]]))
        assert estimator.n_neighbors_ == 0
        assert estimator.similarity_.nnz == 0


class TestSteps:
    def test_fit_stops_below_the_tolerance(self, X):
        options = {"weights": "smooth", "tol": 1e-2, "max_iter": 100}
        estimator = NCARL(alpha=1.0, **options).fit(X)
        change = estimator.history_["change"]
        assert estimator.converged_
        assert estimator.n_iter_ == len(change) < 100
        assert change[-1] < 1e-2
        assert (change[:-1] >= 1e-2).all()

    def test_fit_does_not_stop_while_the_floor_decreases(self):
        rng = np.random.default_rng(0)
        truth = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 12))
        truth += 0.1 * rng.standard_normal(truth.shape)
        holes = np.where(rng.random(truth.shape) < 0.8, truth, np.nan)
        estimator = NCARL(alpha=0.0, tol=1e-3, max_iter=200).fit(holes)
        change = estimator.history_["change"]
        assert estimator.converged_
        assert change[-1] < 1e-3
        # Earlier steps had a small change before the floor had decreased.
        assert (change[:-1] < 1e-3).any()

    def test_missing_multiple_is_recovered(self):
        holes = np.array([[1.0, 2.0], [2.0, 4.0], [np.nan, 6.0], [4.0, 8.0]])
        filled = NCARL(alpha=0.0).fit_transform(holes)
        assert filled[2, 0] == pytest.approx(3.0, abs=0.01)

    def test_unconverged_fit_warns(self, X):
        estimator = NCARL(alpha=1.0, tol=1e-12, max_iter=3)
        with pytest.warns(
            ConvergenceWarning, match=r"NCARL.*max_iter=3.*tol"
        ) as caught:
            estimator.fit(X)
        assert caught[0].filename == __file__
        assert not estimator.converged_
        assert estimator.n_iter_ == 3
        grid = {"alphas": (1.0,), "gammas": (None,), "centers": (None,)}
        with pytest.warns(ConvergenceWarning, match="NCARLCV") as caught:
            NCARLCV(**grid, tol=1e-12, max_iter=3, search_iter=1).fit(X)
        assert caught[0].filename == __file__


class TestCallback:
    def test_is_called_at_each_step(self, X):
        told = []
        estimator = NCARL(**FEW, callback=told.append).fit(X)
        assert all(isinstance(info, StepInfo) for info in told)
        assert [info.step for info in told] == [1, 2, 3, 4]
        assert {info.max_iter for info in told} == {4}
        assert_array_equal([i.objective for i in told], estimator.history_["objective"])
        assert_array_equal([i.change for i in told], estimator.history_["change"])
        assert all(info.seconds > 0 for info in told)

    def test_only_true_ends_a_fit(self, X):
        assert NCARL(**FEW, callback=lambda info: 1).fit(X).n_iter_ == 4


class TestProgress:
    @pytest.fixture
    def without_rich(self, monkeypatch):
        for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "rich", None)

    def test_without_rich(self, X, capsys, without_rich):
        NCARL(**FEW, progress=True).fit(X)
        out, err = capsys.readouterr()
        assert out == ""
        assert "\rNCARL 1/4 change " in err
        assert "\rNCARL 4/4 change " in err
        assert err.endswith("\n")

    def test_of_a_search(self, X, capsys, without_rich):
        NCARLCV(alphas=(0, 1), gammas=(None,), centers=(None,), progress=True).fit(X)
        err = capsys.readouterr().err
        assert "search 2/2 error 0." in err
        assert "fit 1/50" in err


class TestPrecision:
    @pytest.mark.parametrize("gamma", [None, 0.1])
    def test_float32_work_is_close(self, X, gamma):
        options = {**FEW, "gamma": gamma, "delta": 1e-3}
        double = NCARL(**options).fit(X)
        single = NCARL(**options, dtype="float32").fit(X)
        assert single.kernel_.dtype == np.float32
        assert double.kernel_.dtype == np.float64
        out = single.transform(X)
        assert out.dtype == np.float64
        seen = ~np.isnan(X)
        assert_array_equal(out[seen], X[seen])
        assert_allclose(out, double.transform(X), atol=1e-3)
        assert (out != double.transform(X)).any()


class TestEngines:
    @pytest.mark.parametrize("weights", ["floor", "smooth"])
    @pytest.mark.parametrize("gamma", [None, 0.1])
    def test_numpy_rows_give_the_same_result(self, X, weights, gamma):
        options = {**FEW, "weights": weights, "gamma": gamma}
        usual = NCARL(**options).fit(X)
        plain = NCARL(**options, engine=Threads(n_jobs=1, kernel="numpy")).fit(X)
        assert_allclose(plain.transform(X), usual.transform(X), rtol=1e-9)
        assert_allclose(plain.predict([0, 5], [3, 4]), usual.predict([0, 5], [3, 4]))
        assert "numpy rows" in plain.engine_
        named = NCARL(**options, engine="threads").fit(X)
        assert usual.engine_.startswith(named.engine_)

    @pytest.mark.parametrize("rows", ["numba", "numpy"])
    def test_number_of_threads_does_not_change_a_bit(self, rng, rows):
        truth = rng.random((4000, 4)) @ rng.random((4, 50))
        X = np.where(rng.random(truth.shape) < 0.4, truth, np.nan)
        assert len(cut_blocks(Observations.from_dense(X))) > 2
        fits = [
            NCARL(max_iter=3, tol=0, engine=Threads(n_jobs=n, kernel=rows)).fit(X)
            for n in (1, 2, 5)
        ]
        first = fits[0]
        for other in fits[1:]:
            assert_array_equal(other.kernel_, first.kernel_)
            assert_array_equal(other.transform(X), first.transform(X))
            for name in ("objective", "change"):
                assert_array_equal(other.history_[name], first.history_[name])

    def test_custom_engine_is_used(self, X):
        class Counting(Threads):
            calls = 0

            def map(self, function, blocks, **shared):
                Counting.calls += 1
                return super().map(function, blocks, **shared)

            def describe(self):
                return "counting"

        estimator = NCARL(**FEW, engine=Counting(n_jobs=1)).fit(X)
        assert Counting.calls == 5  # the zero-filled start and four steps
        assert estimator.engine_ == "counting"
        assert_array_equal(estimator.kernel_, NCARL(**FEW).fit(X).kernel_)

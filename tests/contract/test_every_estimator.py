"""Tests of the behavior that all estimators have in common."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import ncarl
from ncarl import (
    FGSR,
    LRFD,
    NCARL,
    NCARLCV,
    S3LR,
    WNNM,
    BayesianNCARL,
    BiasModel,
    FactoredNuclear,
    Nuclear,
    RegL1,
    SchattenP,
    SoftImpute,
)
from ncarl.exceptions import CheckpointMismatchError

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Models that reproduce observed entries exactly, and those that smooth them.
EXACT = [
    Nuclear(),
    Nuclear(solver="ialm"),
    Nuclear(solver="svt"),
    FactoredNuclear(rank=4),
    SchattenP(),
    SchattenP(p=2 / 3),
    WNNM(),
    FGSR(p=0.5, rank=4),
    FGSR(p=2 / 3, rank=4),
    LRFD(),
    LRFD(dictionary="basis"),
    S3LR(max_rounds=2),
]
SMOOTH = [
    Nuclear(solver="apg", lam=0.5),
    FactoredNuclear(lam=0.5),
    SchattenP(p=0.5, lam=0.5),
    WNNM(lam=0.1),
    FGSR(p=0.5, lam=0.1, rank=4),
    RegL1(rank=4),
    SoftImpute(lam=0.5),
    BiasModel(),
]
BASELINES = [*EXACT, *SMOOTH]
#: Models whose strength is selected on held-out entries.
CHOSEN = [
    Nuclear(solver="apg", lam="auto"),
    FactoredNuclear(lam="auto", rank=4),
    SchattenP(lam="auto"),
    WNNM(lam="auto"),
    FGSR(p=2 / 3, lam="auto", rank=4),
    SoftImpute(),
]
KERNELS = [
    NCARL(),
    NCARLCV(gammas=(None,)),
    BayesianNCARL(sides="columns", validation=0),
]
EVERY = [*BASELINES, *KERNELS]


def with_ids(estimators):
    return {"argvalues": estimators, "ids": [str(est) for est in estimators]}


@pytest.fixture(autouse=True)
def ignore_convergence_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(1)
    return rng.standard_normal((26, 3)) @ rng.standard_normal((3, 18)) + 0.5


@pytest.fixture(scope="module", name="X")
def incomplete_matrix(truth):
    rng = np.random.default_rng(2)
    seen = rng.random(truth.shape) < 0.7
    seen[np.arange(26), np.arange(26) % 18] = True
    return np.where(seen, truth, np.nan)


def limit(estimator, steps=40):
    """A copy that makes a fixed number of steps."""
    return clone(estimator).set_params(max_iter=steps, tol=0)


@pytest.mark.parametrize("estimator", **with_ids(EVERY))
class TestEveryEstimator:
    def test_completes_a_copy_and_keeps_observed_entries(self, estimator, X):
        given = X.copy()
        filled = limit(estimator).fit_transform(given)
        assert_array_equal(given, X)
        seen = ~np.isnan(X)
        assert_array_equal(filled[seen], X[seen])
        assert np.isfinite(filled).all()
        assert filled.dtype == np.float64

    def test_sparse_equals_dense(self, estimator, X):
        seen = ~np.isnan(X)
        rows, cols = np.nonzero(seen)
        csr = sparse.csr_array((X[seen], (rows, cols)), shape=X.shape)
        dense = limit(estimator, 20).fit_transform(X)
        for given in (csr, csr.tocsc(), csr.tocoo()):
            assert_array_equal(limit(estimator, 20).fit_transform(given), dense)

    def test_frames_keep_their_labels(self, estimator, X):
        index = [f"r{i}" for i in range(len(X))]
        frame = pd.DataFrame(X, index, [f"c{j}" for j in range(X.shape[1])])
        filled = limit(estimator, 10).fit_transform(frame)
        assert isinstance(filled, pd.DataFrame)
        assert list(filled.index) == index
        assert list(filled.columns) == list(frame.columns)
        assert_array_equal(filled.to_numpy(), limit(estimator, 10).fit_transform(X))

    def test_history_records_every_step(self, estimator, X):
        fitted = limit(estimator, 6).fit(X)
        history = fitted.history_
        assert {"step", "objective", "change"} <= set(history)
        assert list(history["step"]) == list(range(1, fitted.n_iter_ + 1))
        assert all(len(column) == fitted.n_iter_ for column in history.values())
        assert np.isfinite(history["objective"]).all()
        assert not fitted.converged_

    def test_predicts_single_entries(self, estimator, X):
        fitted = limit(estimator, 15).fit(X)
        i, j = np.nonzero(np.isnan(X))
        assert_allclose(fitted.predict(i, j), fitted.transform(X)[i, j], rtol=1e-9)
        with pytest.raises(ValueError, match="rows must lie between 0 and 25"):
            fitted.predict([26], [0])

    def test_scores_hidden_entries(self, estimator, X, truth):
        fitted = limit(estimator, 15).fit(X)
        gaps = np.isnan(X)
        left = fitted.transform(X)[gaps] - truth[gaps]
        expected = -np.linalg.norm(left) / np.linalg.norm(truth[gaps])
        assert_allclose(fitted.score(X, truth), expected, rtol=1e-9)
        assert -2.0 < fitted.score(X) < 0.0

    def test_a_callback_sees_every_step_and_can_end_the_fit(self, estimator, X):
        seen = []

        def third(info):
            seen.append(info)
            return info.step >= 3

        limit(estimator, 30).set_params(callback=third).fit(X)
        assert [info.step for info in seen][-3:] == [1, 2, 3]
        assert all(np.isfinite(info.objective) for info in seen)

    def test_interrupted_fit_keeps_the_last_complete_step(self, estimator, X):
        def fourth(info):
            if info.step == 4:
                raise KeyboardInterrupt

        interrupted = limit(estimator, 30).set_params(callback=fourth)
        with pytest.raises(KeyboardInterrupt):
            interrupted.fit(X)
        assert interrupted.n_iter_ == 4
        assert np.isfinite(interrupted.transform(X)).all()

    def test_reports_progress_on_the_error_stream(self, estimator, X, capsys):
        limit(estimator, 3).set_params(progress=True).fit(X)
        heard = capsys.readouterr()
        assert heard.out == ""
        assert "3/3" in heard.err

    @pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (2, 3)])
    def test_tiny_matrices(self, estimator, shape):
        X = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
        if X.size > 2:
            X[0, -1] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            filled = limit(estimator, 5).fit_transform(X)
        assert np.isfinite(filled).all()
        assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])

    @pytest.mark.parametrize("value", [0.0, 7.0])
    def test_a_constant_matrix(self, estimator, value):
        X = np.full((8, 6), value)
        X[2, 3] = X[5, 1] = np.nan
        filled = limit(estimator, 200).fit_transform(X)
        assert np.isfinite(filled).all()
        if value == 0.0:
            assert_allclose(filled, 0.0, atol=1e-12)

    def test_empty_rows_and_columns_are_imputed_and_listed(self, estimator, X):
        hollow = X.copy()
        hollow[3], hollow[:, 5] = np.nan, np.nan
        fitted = limit(estimator).fit(hollow)
        filled = fitted.transform(hollow)
        assert np.isfinite(filled).all()
        if estimator in BASELINES and not isinstance(estimator, BiasModel | LRFD):
            assert_allclose(filled[3], 0.0, atol=1e-12)
            assert_allclose(filled[:, 5], 0.0, atol=1e-12)
        assert list(fitted.unidentified_rows_) == [3]
        assert list(fitted.unidentified_columns_) == [5]
        # They stay missing where that is asked for, and nothing else changes.
        left = fitted.transform(hollow, fill_empty=False)
        filled[3] = filled[:, 5] = np.nan
        assert_array_equal(left, filled)

    @pytest.mark.parametrize("size", [1e-300, 1e300])
    def test_extreme_values_give_finite_results(self, estimator, X, size):
        fitted = limit(estimator, 10).fit(X * size)
        assert np.isfinite(fitted.transform(X * size)).all()
        assert np.isfinite(fitted.history_["objective"]).all()

    def test_all_missing_raises(self, estimator):
        with pytest.raises(ValueError, match="no observed entry"):
            clone(estimator).fit(np.full((3, 4), np.nan))

    def test_invalid_parameters_raise(self, estimator, X):
        for name, value in (("tol", -1.0), ("max_iter", 0), ("engine", "gpu")):
            with pytest.raises(ValueError, match=name):
                clone(estimator).set_params(**{name: value}).fit(X)
        with pytest.raises(TypeError, match="progress"):
            clone(estimator).set_params(progress="yes").fit(X)


@pytest.mark.parametrize("estimator", **with_ids(BASELINES))
class TestEveryBaseline:
    def test_is_equivariant_to_scale(self, estimator, X):
        lam = getattr(estimator, "lam", None)
        if isinstance(lam, float) and not isinstance(estimator, RegL1):
            pytest.skip("a given strength has a unit")
        if getattr(estimator, "solver", None) == "ialm":
            pytest.skip("the paper's first mu has a unit")
        filled = limit(estimator, 60).fit_transform(X)
        large = limit(estimator, 60).fit_transform(1000.0 * X)
        assert_allclose(large / 1000.0, filled, atol=2e-5)

    def test_scaled_columns_are_invariant_to_units(self, estimator, X):
        if getattr(estimator, "solver", None) == "ialm":
            pytest.skip("the paper's first mu has a unit")
        one = limit(estimator, 40).set_params(scale="columns").fit(X)
        filled, objective = one.transform(X), one.objective_
        for factor in (1.7, 100.0):
            other = limit(estimator, 40).set_params(scale="columns").fit(factor * X)
            assert_allclose(other.transform(factor * X) / factor, filled, atol=1e-6)
            assert_allclose(other.objective_, objective, rtol=1e-6)

    def test_weights_and_strengths_are_recorded_in_data_units(self, estimator, X):
        params = estimator.get_params()
        if estimator in SMOOTH and not isinstance(estimator, RegL1 | BiasModel):
            fitted = limit(estimator, 400).set_params(lam=150.0).fit(300.0 * X)
            lam = fitted.history_.get("lam", [150.0])
            assert lam[-1] == pytest.approx(150.0)
        elif "mu" in params and params.get("solver") != "svt":
            given = limit(estimator, 1).set_params(mu=0.07).fit(300.0 * X)
            assert given.history_["mu"][0] == pytest.approx(0.07)

    def test_new_rows_are_completed_or_raise(self, estimator, X):
        fitted = limit(estimator, 10).fit(X)
        if isinstance(estimator, SoftImpute | BiasModel) or (
            isinstance(estimator, FactoredNuclear) and estimator.lam
        ):
            assert fitted.transform(X[:4]).shape == (4, 18)
            return
        with pytest.raises(ValueError, match="completes the matrix of its fit"):
            fitted.transform(X[:4])
        with pytest.raises(ValueError, match="18 features"):
            fitted.transform(X[:, :4])

    def test_return_std_raises(self, estimator, X):
        fitted = limit(estimator, 3).fit(X)
        with pytest.raises(ValueError, match=r"return_std needs .* BayesianNCARL"):
            fitted.transform(X, return_std=True)
        with pytest.raises(ValueError, match="return_std needs"):
            fitted.predict([0], [0], return_std=True)

    def test_saved_model_is_loaded_unchanged(self, estimator, X, tmp_path):
        fitted = limit(estimator, 10).fit(X)
        fitted.save(tmp_path / "model")
        again = ncarl.load(tmp_path / "model")
        assert again.get_params() == fitted.get_params()
        assert_array_equal(again.transform(X), fitted.transform(X))
        assert_array_equal(
            again.predict([0, 3], [1, 2]), fitted.predict([0, 3], [1, 2])
        )
        kept = {name for name in vars(fitted) if name.endswith("_")} - {"dual_"}
        assert kept == {name for name in vars(again) if name.endswith("_")}
        for name in kept - {"model_", "training_"}:
            assert_equal(getattr(again, name), getattr(fitted, name))

    def test_resumed_fit_equals_an_uninterrupted_one(self, estimator, X, tmp_path):
        whole = limit(estimator, 30).fit(X)
        path = tmp_path / "state"
        if whole.n_iter_ < 30:
            pytest.skip("ends by itself before")
        limit(estimator, 11).set_params(checkpoint=path).fit(X)
        resumed = limit(estimator, 30).set_params(checkpoint=path).fit(X)
        assert_array_equal(resumed.transform(X), whole.transform(X))
        assert_array_equal(resumed.history_["objective"], whole.history_["objective"])
        with pytest.raises(CheckpointMismatchError, match="the data"):
            limit(estimator, 30).set_params(checkpoint=path).fit(X + 1.0)

    def test_centering_and_scaling_are_inverted(self, estimator, X):
        params = estimator.get_params()
        for name, value in (("center", "two-way"), ("scale", "columns")):
            if name in params:
                fitted = limit(estimator, 30).set_params(**{name: value}).fit(X)
                seen = ~np.isnan(X)
                assert_array_equal(fitted.transform(X)[seen], X[seen])
                if estimator in EXACT:
                    smooth = fitted.transform(X, keep_observed=False)
                    assert_allclose(smooth[seen], X[seen], rtol=1e-9)


@pytest.fixture(scope="module")
def noisy(truth):
    rng = np.random.default_rng(4)
    seen = rng.random(truth.shape) < 0.7
    return np.where(seen, truth + 0.3 * rng.standard_normal(truth.shape), np.nan)


@pytest.mark.parametrize("estimator", **with_ids(CHOSEN))
@pytest.mark.thorough
class TestStrengthSelection:
    def test_best_trial_is_selected(self, estimator, noisy, truth):
        fitted = clone(estimator).fit(noisy)
        best = min(fitted.path_, key=lambda tried: tried["error"])
        assert 1.0 <= fitted.lam_ / best["lam"] < 1.2  # scaled to all entries
        # The fit starts from the trial, not from the largest strength.
        assert fitted.history_.get("lam", [fitted.lam_])[0] == pytest.approx(
            fitted.lam_
        )
        gaps = np.isnan(noisy)
        left = fitted.transform(noisy)[gaps] - truth[gaps]
        assert np.sqrt(np.mean(left**2)) < 0.65 * np.std(truth[gaps])
        assert 1 <= fitted.rank_ < 18

    def test_is_equivariant_to_scale(self, estimator, noisy):
        one = clone(estimator).fit(noisy)
        other = clone(estimator).fit(1000.0 * noisy)
        errors = [[tried["error"] for tried in est.path_[:3]] for est in (one, other)]
        assert_allclose(np.array(errors[1]) / 1000.0, errors[0], rtol=1e-3)
        assert_allclose(other.transform(noisy * 1000.0) / 1000.0, one.transform(noisy),
                        atol=2e-3)  # fmt: skip

    def test_resumed_fit_does_not_repeat_the_search(
        self, estimator, noisy, tmp_path, monkeypatch
    ):
        whole = limit(estimator, 12).fit(noisy)
        path = tmp_path / "state"
        limit(estimator, 5).set_params(checkpoint=path).fit(noisy)
        monkeypatch.setattr(
            "ncarl.estimators.baselines.fit_path",
            lambda *_, **__: pytest.fail("searched"),
        )
        resumed = limit(estimator, 12).set_params(checkpoint=path).fit(noisy)
        assert_array_equal(resumed.transform(noisy), whole.transform(noisy))
        assert resumed.lam_ == whole.lam_
        assert resumed.path_ == whole.path_

    @pytest.mark.parametrize("size", [1e-300, 1e300])
    def test_extreme_values(self, estimator, noisy, size):
        fitted = limit(estimator, 3).fit(noisy * size)
        assert np.isfinite(fitted.transform(noisy * size)).all()
        X = noisy.copy()
        X[0, np.flatnonzero(~np.isnan(X[0]))[0]] = size
        assert np.isfinite(limit(estimator, 3).fit_transform(X)).all()

    def test_interrupted_search_sets_no_model(self, estimator, noisy, monkeypatch):
        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("ncarl.estimators.baselines.fit_path", interrupt)
        fitted = clone(estimator)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(noisy)
        assert not hasattr(fitted, "model_")

    def test_too_few_entries_to_hold_out_warns(self, estimator):
        X = np.array([[1.0, np.nan], [np.nan, 2.0]])
        with pytest.warns(UserWarning, match="too few observed entries"):
            filled = limit(estimator, 3).fit_transform(X)
        assert np.isfinite(filled).all()


@pytest.mark.parametrize("estimator", **with_ids(EXACT))
class TestExactModels:
    def test_smoothed_matrix_equals_observed_entries(self, estimator, X):
        fitted = limit(estimator, 100).fit(X)
        seen = ~np.isnan(X)
        smooth = fitted.transform(X, keep_observed=False)
        assert_allclose(smooth[seen], X[seen], rtol=1e-12)
        assert 0.0 <= fitted.residual_ < 0.2

    def test_low_rank_matrix_is_recovered(self, estimator, X, truth):
        fitted = clone(estimator).fit(X)
        error = np.linalg.norm(fitted.transform(X) - truth) / np.linalg.norm(truth)
        assert error < (0.05 if estimator.get_params().get("solver") == "svt" else 5e-3)

    def test_transposed_input_gives_the_transposed_matrix(self, estimator, X):
        if isinstance(estimator, LRFD | S3LR):
            pytest.skip("rows and columns have different parts in the model")
        one = clone(estimator).fit_transform(X)
        other = clone(estimator).fit_transform(X.T).T
        assert_allclose(one, other, atol=3e-3)

    def test_is_equivariant_to_permutations(self, estimator, X):
        rng = np.random.default_rng(5)
        rows, cols = rng.permutation(26), rng.permutation(18)
        one = clone(estimator).fit_transform(X)[np.ix_(rows, cols)]
        other = clone(estimator).fit_transform(X[np.ix_(rows, cols)])
        assert_allclose(one, other, atol=3e-3)

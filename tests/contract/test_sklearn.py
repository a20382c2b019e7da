"""Tests of scikit-learn compatibility: estimator checks, pipelines, grid search."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_estimator_sparse_array,
    check_estimator_sparse_matrix,
    parametrize_with_checks,
)

import ncarl
from ncarl import NCARL, BayesianNCARL, BiasModel, FactoredNuclear, SoftImpute, Threads
from ncarl.estimators.ncarl import KernelEstimator
from ncarl.registry import METHODS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

TINY = {"max_iter": 2, "tol": 0}
#: Parameters that keep the fits of an estimator short.
SHORT = {
    "BayesianNCARL": {"prior_strength": 0.1},
    "NCARLCV": {
        "alphas": (0.0, 10.0),
        "gammas": (None,),
        "centers": (None,),
        "search_iter": 2,
    },
    "FactoredNuclear": {"rank": 2},
    "FGSR": {"rank": 2},
    "RegL1": {"rank": 2},
    "S3LR": {"max_rounds": 1},
    "SoftImpute": {"lam": 1.0},
}
EVERY = [
    ncarl.make(name, **TINY, **SHORT.get(name, {}))
    for name in (method.class_name for method in METHODS.values())
]
WITH_NEW_ROWS = [
    *(est for est in EVERY if isinstance(est, SoftImpute | BiasModel)),
    FactoredNuclear(**TINY, lam=1.0),
]
KERNELS = [
    *(est for est in EVERY if isinstance(est, KernelEstimator)),
    BayesianNCARL(**TINY, **SHORT["BayesianNCARL"], sides="columns"),
]
#: Estimators that complete their training matrix only: transform of a subset of its
#: rows, or of the same rows in another order, raises.
TRAINING_ONLY = [est for est in EVERY if est not in (*KERNELS, *WITH_NEW_ROWS)]
EVERY = [*KERNELS, *TRAINING_ONLY, *WITH_NEW_ROWS]


@pytest.fixture(autouse=True)
def one_validation_split(monkeypatch):
    """Use one validation split instead of ten to save time."""
    monkeypatch.setattr("ncarl.holdout.MAX_SPLITS", 1)
    monkeypatch.setattr("ncarl.holdout.MAX_TINY_SPLITS", 1)


def expected_failures(estimator):
    # These two expect predict(X) of a sparse X to return one value per row; here it
    # returns one value per entry. The remaining checks are run below, on classes
    # without predict.
    names = ("check_estimator_sparse_array", "check_estimator_sparse_matrix")
    expected = dict.fromkeys(names, "predict(X) gives a matrix")
    names = ("check_methods_sample_order_invariance", "check_methods_subset_invariance")
    if isinstance(estimator, BayesianNCARL) and estimator.sides == "auto":
        reason = "the matrix of the fit is filled from both sides, its parts from one"
        expected |= dict.fromkeys(names, reason)
    if estimator in TRAINING_ONLY:
        reason = "other rows than those of the fit are refused"
        expected |= dict.fromkeys((*names, "check_fit_idempotent"), reason)
    return expected


@parametrize_with_checks(EVERY, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", EVERY, ids=str)
def test_sparse_contract_apart_from_predict(estimator):
    class WithoutPredict(type(estimator)):
        @property
        def predict(self):
            raise AttributeError("predict")

    bare = WithoutPredict(**estimator.get_params())
    check_estimator_sparse_array(type(estimator).__name__, bare)
    check_estimator_sparse_matrix(type(estimator).__name__, bare)


@pytest.mark.parametrize("estimator", TRAINING_ONLY, ids=str)
def test_fitting_twice_gives_the_same_matrix(estimator, X):
    # check_fit_idempotent on the training matrix.
    first = estimator.fit(X).transform(X)
    assert_array_equal(estimator.fit(X).transform(X), first)


@pytest.mark.parametrize("estimator", KERNELS, ids=str)
class TestEveryEstimator:
    def test_clone_and_pickle_keep_the_engine_and_the_bits(self, estimator, X):
        engine = Threads(n_jobs=1, kernel="numpy")
        fitted = clone(clone(estimator).set_params(engine=engine)).fit(X)
        again = pickle.loads(pickle.dumps(fitted))
        assert again.engine == fitted.engine == engine
        assert_array_equal(again.transform(X), fitted.transform(X))
        assert_array_equal(
            again.predict([0, 3], [1, 2]), fitted.predict([0, 3], [1, 2])
        )

    def test_works_inside_a_pipeline(self, estimator, X):
        pipe = make_pipeline(StandardScaler(), clone(estimator), PCA(2))
        assert pipe.fit_transform(X).shape == (24, 2)
        assert_array_equal(
            pipe[:-1].transform(X), pipe[1].transform(pipe[0].transform(X))
        )

    def test_feature_names_out_are_those_that_went_in(self, estimator, X):
        names = [f"c{j}" for j in range(9)]
        fitted = clone(estimator).fit(pd.DataFrame(X, columns=names))
        assert list(fitted.get_feature_names_out()) == names
        plain = clone(estimator).fit(X)
        assert list(plain.get_feature_names_out()) == [f"x{j}" for j in range(9)]

    @pytest.mark.parametrize(
        ("container", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)]
    )
    def test_set_output_is_honored(self, estimator, X, container, kind):
        plain = clone(estimator).fit(X)
        asked = clone(estimator).set_output(transform=container).fit(X)
        out = asked.transform(X)
        assert isinstance(out, kind)
        assert list(out.columns) == [f"x{j}" for j in range(9)]
        assert_array_equal(out.to_numpy(), plain.transform(X))
        assert isinstance(asked.fit_transform(pd.DataFrame(X).add_prefix("c")), kind)
        with config_context(transform_output=container):
            assert isinstance(plain.transform(X), kind)
        assert isinstance(plain.transform(X), np.ndarray)


def test_set_output_determines_the_container_for_any_input(X):
    frame = pl.DataFrame(X, schema=[f"c{j}" for j in range(9)])
    estimator = NCARL(**TINY).set_output(transform="pandas").fit(frame)
    out = estimator.transform(frame)
    assert isinstance(out, pd.DataFrame)
    assert list(out.columns) == frame.columns
    other = NCARL(**TINY).fit(frame)
    with config_context(transform_output="pandas"):
        pd.testing.assert_frame_equal(other.transform(frame), out)
    assert isinstance(
        estimator.set_output(transform="default").transform(frame), pl.DataFrame
    )


def test_set_output_keeps_standard_deviations_beside_the_frame(X):
    estimator = NCARL(**TINY, gamma=0.1).set_output(transform="pandas").fit(X)
    filled, std = estimator.transform(X, return_std=True)
    assert isinstance(filled, pd.DataFrame)
    assert isinstance(std, np.ndarray)


def test_grid_search_over_alpha_uses_score(X):
    # The kernel is on the columns since the folds are made of rows.
    estimator = NCARL(max_iter=3, tol=0, orientation="columns")
    search = GridSearchCV(estimator, {"alpha": [0.0, 1.0, 1e4]}, cv=3).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 3
    assert search.best_params_["alpha"] == [0.0, 1.0, 1e4][int(np.argmax(scores))]
    by_hand = clone(estimator).set_params(alpha=0.0).fit(X[8:]).score(X[:8])
    assert search.cv_results_["split0_test_score"][0] == by_hand
    assert_array_equal(search.transform(X), search.best_estimator_.transform(X))


def test_grid_search_scores_against_a_given_truth(X, truth):
    estimator = NCARL(max_iter=3, tol=0, orientation="columns")
    search = GridSearchCV(estimator, {"alpha": [0.0, 1.0]}, cv=2).fit(X, truth)
    by_hand = (
        clone(estimator).set_params(alpha=1.0).fit(X[12:]).score(X[:12], truth[:12])
    )
    assert search.cv_results_["split0_test_score"][1] == by_hand

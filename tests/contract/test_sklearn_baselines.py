"""scikit-learn's own checks of the rivals, with few steps."""

import pytest
from numpy.testing import assert_array_equal
from sklearn.utils.estimator_checks import (
    check_estimator_sparse_array,
    check_estimator_sparse_matrix,
    parametrize_with_checks,
)

from ncarl import (
    FGSR,
    LRFD,
    S3LR,
    WNNM,
    BiasModel,
    FactoredNuclear,
    Nuclear,
    RegL1,
    SchattenP,
    SoftImpute,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread")

TINY = {"max_iter": 2, "tol": 0}
#: These complete the matrix of their fit and no other, so that a part of its rows, or
#: the same rows in another order, is refused.
OF_ONE_MATRIX = [
    Nuclear(**TINY),
    FactoredNuclear(**TINY, rank=2),
    SchattenP(**TINY),
    WNNM(**TINY),
    RegL1(**TINY, rank=2),
    FGSR(**TINY, rank=2),
    LRFD(**TINY),
    S3LR(**TINY, max_rounds=1),
]
WITH_NEW_ROWS = [
    SoftImpute(**TINY, lam=1.0),
    BiasModel(**TINY),
    FactoredNuclear(**TINY, lam=1.0),
]
ESTIMATORS = [*OF_ONE_MATRIX, *WITH_NEW_ROWS]


def expected_failures(estimator):
    # As for the others: predict(X) of a sparse X is a matrix, not a vector. The rest
    # of what these check is checked below, on classes without predict.
    names = ("check_estimator_sparse_array", "check_estimator_sparse_matrix")
    expected = dict.fromkeys(names, "predict(X) gives a matrix")
    if estimator in OF_ONE_MATRIX:
        names = (
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_fit_idempotent",
        )
        expected |= dict.fromkeys(names, "other rows than those of the fit are refused")
    return expected


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_sparse_contract_apart_from_predict(estimator):
    class WithoutPredict(type(estimator)):
        @property
        def predict(self):
            raise AttributeError("predict")

    bare = WithoutPredict(**estimator.get_params())
    check_estimator_sparse_array(type(estimator).__name__, bare)
    check_estimator_sparse_matrix(type(estimator).__name__, bare)


@pytest.mark.parametrize("estimator", OF_ONE_MATRIX, ids=str)
def test_fitting_twice_gives_the_same_matrix(estimator, X):
    # What check_fit_idempotent asks, of the matrix of the fit.
    first = estimator.fit(X).transform(X)
    assert_array_equal(estimator.fit(X).transform(X), first)

"""Tests of imputers of tables as methods of a comparison."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from ncarl.engines.threads import Threads
from ncarl.evaluation import compare, comparison, evaluate, imputers
from ncarl.evaluation.comparison import (
    ComparisonPlan,
    FitOutcome,
    HoldoutSplit,
    default_parameters,
    draw_holdout_masks,
    fit_one,
    fit_split,
)
from ncarl.evaluation.imputers import (
    PYTHON_CODE,
    ImputerAdapter,
    estimate_seconds,
    make_imputer,
    select_methods,
)
from ncarl.observations import Observations
from ncarl.registry import DEFAULT_METHODS, METHODS, TABLE_IMPUTERS
from ncarl.tables import TableImputer


def incomplete_table(m=60, n=5, missing=0.15):
    """A table whose columns have different units."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    X = (X + 0.3 * rng.standard_normal((m, n))) * 10.0 ** (np.arange(n) % 4) + 7.0
    X[rng.random((m, n)) < missing] = np.nan
    return X


def impute_with_knn(X):
    mean, std = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    return KNNImputer().fit_transform((X - mean) / std) * std + mean


def impute_with_forests(X):
    wide, many = X.shape[1] >= 40, X.shape[1] >= 50
    forest = RandomForestRegressor(
        60, max_features="sqrt" if wide else 0.5, random_state=3
    )
    return IterativeImputer(
        forest,
        max_iter=2 if many else 3,
        n_nearest_features=30 if many else None,
        random_state=3,
    ).fit_transform(X)


DIRECT = {
    "table-imputer": lambda X: TableImputer(random_state=3).fit_transform(X),
    "simple-imputer": lambda X: SimpleImputer().fit_transform(X),
    "knn-imputer": impute_with_knn,
    "iterative-imputer": lambda X: IterativeImputer(random_state=3).fit_transform(X),
    "chained-forests": impute_with_forests,
}


@pytest.mark.parametrize("method", TABLE_IMPUTERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_held_out_cells_are_imputed_as_by_the_imputer_itself(method):
    X = incomplete_table()
    observed = Observations.from_dense(X)
    plan = ComparisonPlan([method], repeats=1, random_state=3)
    (mask,) = draw_holdout_masks(plan, observed, np.ones(5))
    split = HoldoutSplit.from_mask(observed, mask, np.ones(5))
    params = default_parameters(method, scale="columns", seed=3)
    found, late = fit_split(split, method, params, Threads(1))
    i, j = observed.rows[mask], observed.indices[mask]
    seen = X.copy()
    seen[i, j] = np.nan
    np.testing.assert_allclose(found.guess, DIRECT[method](seen)[i, j], rtol=1e-9)
    np.testing.assert_array_equal(found.truth, X[i, j])
    assert found.std is None and found.intervals == {} and not late
    iterative = method in ("table-imputer", "iterative-imputer")
    assert isinstance(found.converged, bool) == iterative


@pytest.mark.parametrize("n", [40, 50])
def test_forests_of_wide_tables_use_fewer_columns(n):
    params = make_imputer("chained-forests", n).get_params()
    assert params["estimator__max_features"] == "sqrt"
    assert params["n_nearest_features"] == (30 if n == 50 else None)
    assert params["max_iter"] == (2 if n == 50 else 3)


def test_columns_without_entries_do_not_shift_others():
    X = incomplete_table()
    X[:, 1] = np.nan
    for method in TABLE_IMPUTERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            filled = ImputerAdapter(method, n_jobs=1).fit(X).filled_
        assert filled.shape == X.shape
        seen = ~np.isnan(X)
        np.testing.assert_allclose(filled[seen], X[seen], rtol=1e-12)


def test_unconverged_imputers_are_reported():
    X = incomplete_table()
    adapter = ImputerAdapter("iterative-imputer")
    assert isinstance(adapter.fit(X).converged_, bool)
    with pytest.MonkeyPatch.context() as patch:
        few = IterativeImputer(max_iter=1)
        patch.setattr(imputers, "make_imputer", lambda *args, **params: few)
        assert adapter.fit(X).converged_ is False


# --- selection -----------------------------------------------------------------------


def test_tables_are_compared_with_imputers_by_default():
    observed = Observations.from_dense(incomplete_table())
    assert select_methods("auto", observed) == ((*DEFAULT_METHODS, *TABLE_IMPUTERS), {})
    assert select_methods("all", observed)[0] == (*METHODS, *TABLE_IMPUTERS)
    assert select_methods(("bias",), observed) == (("bias",), {})


def test_slow_imputers_are_left_out_of_the_defaults_only():
    observed = Observations.from_dense(np.ones((3000, 40)))
    names, left_out = select_methods("auto", observed)
    assert "chained-forests" not in names and "table-imputer" in names
    assert left_out["chained-forests"].startswith("a fit may take ")
    assert select_methods(("chained-forests",), observed)[1] == {}
    assert estimate_seconds("chained-forests", 200, 10) < 10.0


def test_matrices_of_one_unit_with_many_columns_are_no_tables(rng):
    wide = rng.standard_normal((30, 300))
    assert select_methods("auto", Observations.from_dense(wide)) == (
        DEFAULT_METHODS,
        {},
    )
    units = Observations.from_dense(wide * 10.0 ** np.arange(-2, 1).repeat(100))
    assert "knn-imputer" in select_methods("auto", units)[0]


@pytest.mark.parametrize("reason", ["sparse", "large"])
def test_matrices_that_do_not_fit_are_an_error_for_named_imputers(reason, monkeypatch):
    X = incomplete_table(missing=0.95 if reason == "sparse" else 0.1)
    if reason == "large":
        monkeypatch.setattr(imputers, "MAX_CELLS", 299)
    words = {"sparse": "% of its cells are observed", "large": "300 cells are too many"}
    observed = Observations.from_dense(X)
    for named in ("auto", "all"):
        names, left_out = select_methods(named, observed)
        assert not set(names) & set(TABLE_IMPUTERS)
        assert set(left_out) == set(TABLE_IMPUTERS)
        assert words[reason] in left_out["knn-imputer"]
    with pytest.raises(ValueError, match=f"knn-imputer cannot be.*{words[reason]}"):
        compare(X, methods=["bias", "knn-imputer"])
    with pytest.raises(ValueError, match="table-imputer cannot be fitted"):
        evaluate(X, "table-imputer", others=())


def test_every_imputer_has_python_code():
    assert set(PYTHON_CODE) == set(TABLE_IMPUTERS)


# --- in comparisons ------------------------------------------------------------------


@pytest.fixture
def _in_process(monkeypatch):
    """Run fits in this process."""

    def run_fits(wanted, jobs, heard):
        return [FitOutcome(**fit_one(payload)) for payload in wanted]

    monkeypatch.setattr(comparison, "run_fits", run_fits)


@pytest.mark.usefixtures("_in_process")
def test_comparison_scores_imputers_on_the_same_cells():
    X = incomplete_table()
    methods = ["simple-imputer", "table-imputer", "bias"]
    found = compare(X, methods=methods, repeats=1, scale="columns")
    lines = {one.method: one for one in found.summaries}
    # Column means are the baseline of tables.
    assert lines["simple-imputer"].error == pytest.approx(lines["mean"].error)
    assert lines["table-imputer"].error < lines["mean"].error
    sizes = {tuple(one.fits[0].group_sizes) for one in found.summaries}
    assert len(sizes) == 1 and sum(*sizes) == found.n_hidden[0]
    content = found.to_dict()
    assert "group_sizes" not in content["lines"][0]["fits"][0]
    assert content["plan"]["left_out"] == {}
    for one in found.summaries:
        (fit,) = one.fits
        squares = np.average(np.square(fit.group_errors), weights=fit.group_sizes)
        assert np.sqrt(squares) == pytest.approx(fit.error)


@pytest.mark.usefixtures("_in_process")
def test_evaluation_of_an_imputer_and_its_default_others(monkeypatch):
    asked = []
    monkeypatch.setattr(
        comparison, "run_fits", lambda wanted, jobs, heard: asked.extend(wanted) or []
    )
    found = evaluate(incomplete_table(), "table-imputer", repeats=1)
    assert found.method == "table-imputer" and found.levels == ()
    others = [one["method"] for one in asked]
    assert others == [
        "bayes",
        "soft-impute",
        "nuclear",
        "bias",
        *list(TABLE_IMPUTERS)[1:],
    ]
    sparse = evaluate(incomplete_table(400, 5, 0.92), "bias", repeats=1, hide=0.3)
    assert set(sparse.comparison.plan.left_out) == set(TABLE_IMPUTERS)

"""Tests of NCARLCV: selection, results table, no use of held-out entries."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import NCARL, NCARLCV
from ncarl.estimators import ncarl_cv as trials
from ncarl.holdout import random_split
from ncarl.metrics import relative_rmse
from ncarl.observations import Observations

GRID = {"alphas": (0.0, 1.0, 100.0), "n_neighbors": (3, 5), "gammas": (None, 0.1)}
RUN = {"search_iter": 4, "max_iter": 4, "tol": 0}


def make_split(X, share=0.1, seed=0):
    """Training and held-out entries of a search on X (kernel on the columns)."""
    observed = Observations.from_dense(X)
    return random_split(observed, share, np.random.default_rng(seed))


@pytest.fixture
def one_split(monkeypatch):
    """Split small matrices once, like large ones."""
    monkeypatch.setattr("ncarl.holdout.MAX_SPLITS", 1)
    monkeypatch.setattr("ncarl.holdout.MAX_TINY_SPLITS", 1)


def to_dense(observed):
    X = np.full(observed.shape, np.nan)
    X[observed.rows, observed.indices] = observed.values
    return X


@pytest.fixture(name="search")
def fitted_search(X):
    return NCARLCV(**GRID, **RUN, centers=(None, "two-way")).fit(X)


def test_centered_low_rank_data_select_no_graph(rng):
    truth = rng.standard_normal((100, 3)) @ rng.standard_normal((3, 40))
    X = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
    search = NCARLCV(alphas=(0, 10, 1000)).fit(X)
    assert search.alpha_ == 0.0
    assert search.gamma_ is None
    gaps = np.isnan(X)
    assert relative_rmse(truth[gaps], search.transform(X)[gaps]) < 0.02


def test_smooth_columns_select_a_graph(rng):
    waves = np.sin(np.linspace(0, 6, 30)[None] + rng.uniform(0, 6, (80, 1)))
    X = waves + 0.3 * rng.standard_normal(waves.shape) + 3
    X[rng.random(X.shape) < 0.7] = np.nan
    assert NCARLCV(alphas=(0, 100), gammas=(None,), centers=(None,)).fit(X).alpha_ > 0


def test_table_is_complete_and_consistent(search):
    table = search.cv_results_
    size = 2 * 2 * 2 * 3
    wanted = set(
        itertools.product((None, "two-way"), (None, 0.1), (3, 5), (0.0, 1.0, 100.0))
    )
    found = [
        tuple(p[n] for n in ("center", "gamma", "n_neighbors", "alpha"))
        for p in table["params"]
    ]
    assert len(found) == size
    assert set(found) == wanted
    for name in ("alpha", "n_neighbors", "gamma", "center"):
        assert list(table[f"param_{name}"]) == [p[name] for p in table["params"]]
    assert {len(column) for column in table.values()} == {size}
    assert np.isfinite(table["error"]).all()
    assert (table["error"] > 0).all()
    assert_array_equal(table["mean_test_score"], -table["error"])
    assert sorted(table["rank_test_score"]) == list(range(1, size + 1))
    order = np.argsort(table["rank_test_score"])
    assert (np.diff(table["error"][order]) >= 0).all()
    assert ((table["n_iter"] >= 1) & (table["n_iter"] <= 4)).all()
    assert (table["seconds"] > 0).all()


def test_best_point_is_selected(search, X):
    best = search.best_index_
    assert best == np.argmin(search.cv_results_["error"])
    assert search.best_error_ == search.cv_results_["error"][best]
    assert search.best_params_ == search.cv_results_["params"][best]
    chosen = {"alpha": search.alpha_, "gamma": search.gamma_, "center": search.center_}
    assert search.best_params_ == {**chosen, "n_neighbors": search.n_neighbors_}
    plain = NCARL(**search.best_params_, max_iter=4, tol=0).fit(X)
    assert_array_equal(search.kernel_, plain.kernel_)
    assert_array_equal(search.transform(X), plain.transform(X))


def test_fit_sets_all_attributes(search):
    plain = vars(NCARL(max_iter=2, tol=0).fit(np.eye(3)))
    fitted = {name for name in plain if name.endswith("_")}
    own = {"alpha_", "gamma_", "center_", "best_error_", "best_index_"}
    assert fitted | own | {"best_params_", "cv_results_"} == {
        name for name in vars(search) if name.endswith("_")
    }


def test_error_equals_the_split_recomputed(X, one_split):
    options = {"n_neighbors": (3,), "gammas": (0.1,), "centers": ("mean",)}
    search = NCARLCV(alphas=(1.0,), **options, **RUN).fit(X)
    kept, hidden = make_split(X)
    plain = NCARL(alpha=1.0, n_neighbors=3, gamma=0.1, center="mean", max_iter=4, tol=0)
    guess = plain.fit(to_dense(kept)).predict(hidden.rows, hidden.indices)
    expected = relative_rmse(hidden.values, guess)
    assert search.best_error_ == pytest.approx(expected, rel=1e-12)


def test_errors_of_scaled_columns_are_in_scaled_units(X):
    options = {"n_neighbors": (3,), "gammas": (None,), "centers": ("columns",)}
    wild = X * 10.0 ** np.arange(-4, 5)
    search = NCARLCV(alphas=(1.0,), **options, **RUN, scale="columns").fit(wild)
    plain = NCARLCV(alphas=(1.0,), **options, **RUN, scale="columns").fit(X)
    assert search.best_error_ == pytest.approx(plain.best_error_, rel=1e-6)


def test_hidden_entries_are_not_used(X, monkeypatch, one_split):
    guesses = []

    def record(truth, guess):
        guesses.append(np.asarray(guess))
        return relative_rmse(truth, guess)

    monkeypatch.setattr(trials, "relative_rmse", record)
    options = {**GRID, **RUN, "centers": (None, "two-way")}
    errors = NCARLCV(**options).fit(X).cv_results_["error"]
    first, guesses[:] = list(guesses), []
    _, hidden = make_split(X)
    changed = X.copy()
    changed[hidden.rows, hidden.indices] = 1e3
    # Held out in spite of their other values.
    mask = np.zeros(X.shape, dtype=bool)
    mask[hidden.rows, hidden.indices] = True
    parts = [
        Observations.from_dense(np.where(m, np.nan, changed)) for m in (mask, ~mask)
    ]
    monkeypatch.setattr(trials, "random_splits", lambda *_: [tuple(parts)])
    other = NCARLCV(**options).fit(changed).cv_results_["error"]
    assert len(first) == len(guesses) == 24
    assert len(first[0]) == hidden.n_observed == round(0.1 * (~np.isnan(X)).sum())
    for ours, theirs in zip(first, guesses, strict=True):
        assert_array_equal(ours, theirs)
    assert (errors != other).all()


def test_warm_starts_need_fewer_steps(rng):
    truth = rng.random((60, 3)) @ rng.random((3, 20)) + 0.05 * rng.random((60, 20))
    X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    alphas = (1.0, 1.3, 1.6, 2.0)
    options = {"gammas": (None,), "centers": (None,), "search_iter": 60}
    warm = NCARLCV(alphas=alphas, **options).fit(X).cv_results_
    cold = [NCARLCV(alphas=(a,), **options).fit(X).cv_results_ for a in alphas]
    steps = {float(c["param_alpha"][0]): int(c["n_iter"][0]) for c in cold}
    found = dict(zip(warm["param_alpha"], warm["n_iter"], strict=True))
    assert found[2.0] == steps[2.0]  # the path starts here
    assert all(found[a] < steps[a] for a in alphas[:-1])
    # The results agree within the loose tolerance of the search.
    errors = dict(zip(warm["param_alpha"], warm["error"], strict=True))
    for c in cold:
        alpha = float(c["param_alpha"][0])
        assert errors[alpha] == pytest.approx(float(c["error"][0]), rel=0.3)


def test_seed_fixes_the_split(X):
    options = {**GRID, **RUN}
    once, twice = (NCARLCV(**options, random_state=3).fit(X) for _ in range(2))
    assert_array_equal(once.cv_results_["error"], twice.cv_results_["error"])
    assert_array_equal(once.transform(X), twice.transform(X))
    other = NCARLCV(**options, random_state=4).fit(X)
    assert (other.cv_results_["error"] != once.cv_results_["error"]).all()


def test_wide_matrix_is_searched_on_its_rows(X):
    wide, tall = (NCARLCV(**GRID, **RUN).fit(given) for given in (X.T, X))
    assert wide.transposed_
    assert_allclose(wide.cv_results_["error"], tall.cv_results_["error"])
    assert_allclose(wide.transform(X.T).T, tall.transform(X))


def test_too_few_entries_to_hold_out_warns():
    X = np.diag([1.0, 2.0, 3.0]) + np.where(np.eye(3), 0, np.nan)
    search = NCARLCV(alphas=(5.0, 1.0), gammas=(0.1, None), tol=0, max_iter=2)
    with pytest.warns(UserWarning, match="too few observed entries"):
        search.fit(X)
    assert search.alpha_ == 5.0
    assert search.gamma_ == 0.1
    assert np.isnan(search.best_error_)
    assert np.isfinite(search.transform(X)).all()

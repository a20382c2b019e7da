"""Tests that the threads and torch engines give the same results."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

import ncarl
from ncarl import NCARL, NCARLCV, BayesianNCARL
from ncarl.estimators import ncarl_cv as grid

torch = pytest.importorskip("torch")
from ncarl import Torch  # noqa: E402

pytestmark = [pytest.mark.usefixtures("one_torch_thread"), pytest.mark.thorough]
EIGHT = {"max_iter": 8, "tol": 0, "alpha": 1.0, "n_neighbors": 4}
FIVE = {**EIGHT, "max_iter": 5}
GIVEN = "a given graph"
OPTIONS = {
    "floor": EIGHT,
    "smooth": {**EIGHT, "weights": "smooth"},
    "noisy": {**FIVE, "gamma": 0.1},
    "pinv": {**FIVE, "weights": "pinv"},
    "no graph": {**EIGHT, "alpha": 0.0},
    "fixed graph": {**FIVE, "graph": "fixed"},
    "given graph": {**FIVE, "graph": GIVEN},
    "two-way": {**FIVE, "center": "two-way"},
}


@pytest.fixture(params=["threads", "cpu", "cuda"])
def engine(request):
    """Every available engine."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return request.param if request.param == "threads" else Torch(request.param)


def low_rank(rng, m, n):
    noise = 0.05 * rng.standard_normal((m, n))
    return 1.0 + rng.standard_normal((m, 4)) @ rng.standard_normal((4, n)) + noise


def matrices():
    """Tall matrices by name."""
    rng = np.random.default_rng(0)
    truth = low_rank(rng, 70, 26)
    # Rows from nearly empty to nearly full, so that both forms of the step are used.
    seen = rng.random(truth.shape) < np.linspace(0.1, 0.95, 70)[:, None]
    dense = np.where(seen, truth, np.nan)
    empty = dense.copy()
    empty[[4, 50]] = empty[:, [0, 17]] = np.nan
    shared = np.where(np.repeat(seen[::10], 10, axis=0), truth, np.nan)
    few = sparse.random_array((90, 30), density=0.25, format="csr", rng=rng)
    few.data[:] = low_rank(rng, 90, 30)[few.nonzero()]
    return {"dense": dense, "sparse": few, "empty": empty, "shared masks": shared}


MATRICES = matrices()


@pytest.fixture(name="X", params=MATRICES)
def incomplete_matrix(request):
    return MATRICES[request.param]


def max_gap(found, expected):
    """Maximum difference relative to the maximum value."""
    if sparse.issparse(expected):
        found, expected = found.toarray(), expected.toarray()
    assert found.shape == expected.shape
    return np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300)


def results(estimator, X):
    """All results of a fitted estimator on a matrix."""
    rng = np.random.default_rng(3)
    i, j = rng.integers(0, X.shape[0], 50), rng.integers(0, X.shape[1], 50)
    said = {
        "filled": estimator.transform(X, keep_observed=False),
        "entries": estimator.predict(i, j),
        "kernel": estimator.kernel_,
        "graph": estimator.similarity_,
        "objective": estimator.history_["objective"],
        "change": estimator.history_["change"],
    }
    if estimator.model_.kernel.s > 0:
        said["std"] = estimator.transform(X, return_std=True)[1]
        said["std of entries"] = estimator.predict(i, j, return_std="latent")[1]
    return said


def make_fit(X, engine, kind=NCARL, **options):
    if isinstance(options.get("graph"), str) and options["graph"] == GIVEN:
        options["graph"] = np.random.default_rng(5).random((min(X.shape),) * 2)
    return kind(**options, engine=engine).fit(X)


def assert_agree(one, other, X, tol=1e-9):
    expected, found = results(one, X), results(other, X)
    gaps = {name: max_gap(found[name], expected[name]) for name in expected}
    assert max(gaps.values()) < tol, gaps


@pytest.mark.parametrize("turned", [False, True], ids=["tall", "wide"])
@pytest.mark.parametrize("name", OPTIONS)
def test_engines_agree(name, turned, X, device):
    X = X.T if turned else X
    here = make_fit(X, "threads", **OPTIONS[name])
    there = make_fit(X, Torch(device), **OPTIONS[name])
    assert here.transposed_ == there.transposed_ == turned
    assert f"({device}," in there.engine_
    assert (there.history_["jitter"] == 0).all()
    # These keep empty columns, which amplify rounding errors.
    loose = {"pinv": 1e-4, "given graph": 1e-7} if len(here.unidentified_rows_) else {}
    assert_agree(here, there, X, loose.get(name, 1e-9))


@pytest.mark.parametrize("name", ["floor", "noisy"])
def test_small_batches_give_the_same_results(name, X, device):
    ample = make_fit(X, Torch(device), **OPTIONS[name])
    tight = make_fit(X, Torch(device, memory_gb=1e-6), **OPTIONS[name])
    assert_agree(ample, tight, X)


@pytest.mark.parametrize("name", ["floor", "smooth", "noisy", "two-way"])
def test_single_precision_is_close(name, X, device):
    options = {**OPTIONS[name], "delta": 1e-3}
    double = make_fit(X, "threads", **options)
    single = make_fit(X, Torch(device), **options, dtype="float32")
    assert single.kernel_.dtype == np.float32
    assert single.transform(X).dtype == np.float64
    gap = max_gap(
        single.transform(X, keep_observed=False),
        double.transform(X, keep_observed=False),
    )
    assert 0 < gap < 2e-5


def test_engines_agree_on_new_rows(device):
    rng = np.random.default_rng(7)
    new = np.where(rng.random((9, 26)) < 0.5, rng.standard_normal((9, 26)), np.nan)
    new[2], new[4] = np.nan, 1.0
    for name in ("floor", "noisy", "two-way"):
        here = make_fit(MATRICES["empty"], "threads", **OPTIONS[name])
        there = make_fit(MATRICES["empty"], Torch(device), **OPTIONS[name])
        assert max_gap(there.transform(new), here.transform(new)) < 1e-9
        assert there.score(new) == pytest.approx(here.score(new), rel=1e-9)


@pytest.mark.parametrize("name", ["floor", "noisy"])
def test_saved_model_gives_the_same_results_on_every_engine(name, X, device, tmp_path):
    there = make_fit(X, Torch(device), **OPTIONS[name])
    there.save(tmp_path / "model", training_data=True)
    loaded = ncarl.load(tmp_path / "model")
    assert loaded.engine_ == there.engine_
    loaded.set_params(engine="threads")
    assert_agree(there, loaded, X)
    loaded.set_params(engine=Torch(device))
    found = results(loaded, X)
    for name, expected in results(there, X).items():
        assert max_gap(found[name], expected) == 0.0, name


GRID = {
    "alphas": (0.0, 1.0, 30.0),
    "gammas": (None, 0.1),
    "centers": (None, "two-way"),
    "n_neighbors": 4,
    "search_iter": 4,
    "search_tol": 0,
    "max_iter": 5,
    "tol": 0,
}


def test_engines_agree_on_searches(X, device):
    here = make_fit(X, "threads", NCARLCV, **GRID)
    there = make_fit(X, Torch(device), NCARLCV, **GRID)
    assert max_gap(there.cv_results_["error"], here.cv_results_["error"]) < 1e-9
    assert_array_equal(there.cv_results_["n_iter"], here.cv_results_["n_iter"])
    assert there.best_params_ == here.best_params_
    assert_agree(here, there, X)


def assert_same_fit(one, other, X):
    found = results(other, X)
    for name, expected in results(one, X).items():
        assert max_gap(found[name], expected) == 0.0, name
    assert_array_equal(one.history_["jitter"], other.history_["jitter"])
    assert one.n_iter_ == other.n_iter_


@pytest.mark.parametrize("name", OPTIONS)
def test_killed_fit_resumes_bit_identically(name, device, tmp_path):
    def kill(info):
        if info.step == 3:
            raise RuntimeError("killed")

    X, options = MATRICES["empty"], {**OPTIONS[name], "engine": Torch(device)}
    undisturbed = make_fit(X, **options)
    kept = {**options, "checkpoint": tmp_path / "state"}
    with pytest.raises(RuntimeError, match="killed"):
        make_fit(X, **kept, callback=kill)
    made = []
    resumed = make_fit(X, **kept, callback=made.append)
    assert [info.step for info in made] == [*range(4, options["max_iter"] + 1)]
    assert_same_fit(undisturbed, resumed, X)
    finished = make_fit(X, **kept, callback=made.append)
    assert len(made) == options["max_iter"] - 3
    assert_same_fit(undisturbed, finished, X)


@pytest.mark.parametrize("after", [1, 5])
def test_killed_search_resumes_bit_identically(after, device, tmp_path, monkeypatch):
    X, options = MATRICES["dense"], {**GRID, "centers": (None,)}
    undisturbed = make_fit(X, Torch(device), NCARLCV, **options)
    usual, written = grid.CheckpointFile.save, []

    def save_and_raise(self, *state):
        usual(self, *state)
        if self.kind == "search":
            written.append(1)
        if len(written) == after:
            raise RuntimeError("killed")

    monkeypatch.setattr(grid.CheckpointFile, "save", save_and_raise)
    kept = {**options, "checkpoint": tmp_path / "state"}
    with pytest.raises(RuntimeError, match="killed"):
        make_fit(X, Torch(device), NCARLCV, **kept)
    resumed = make_fit(X, Torch(device), NCARLCV, **kept)
    assert len(written) == 6
    for name in ("error", "n_iter", "params"):
        assert_array_equal(resumed.cv_results_[name], undisturbed.cv_results_[name])
    assert_same_fit(undisturbed, resumed, X)


def test_fit_can_be_resumed_on_another_engine(device, tmp_path):
    X, kept = MATRICES["dense"], {**EIGHT, "checkpoint": tmp_path / "state"}
    make_fit(X, "threads", **{**kept, "max_iter": 3})
    made = []
    resumed = make_fit(X, Torch(device), **kept, callback=made.append)
    assert [info.step for info in made] == [4, 5, 6, 7, 8]
    assert_agree(make_fit(X, "threads", **EIGHT), resumed, X)


@pytest.mark.parametrize("turned", [False, True], ids=["tall", "wide"])
@pytest.mark.parametrize("name", ["floor", "noisy", "no graph", "two-way"])
@pytest.mark.parametrize(
    ("rows", "columns"), [([], [5]), ([9], []), ([0, 30, 70], [0, 11, 12, 26])]
)
def test_empty_rows_and_columns_do_not_affect_the_rest(
    name, rows, columns, turned, engine
):
    X = MATRICES["dense"]
    more = np.insert(np.insert(X, rows, np.nan, axis=0), columns, np.nan, axis=1)
    i = np.flatnonzero(~np.isnan(more).all(axis=1))
    j = np.flatnonzero(~np.isnan(more).all(axis=0))
    assert_array_equal(more[np.ix_(i, j)], X)
    X, more = (X.T, more.T) if turned else (X, more)
    i, j = (j, i) if turned else (i, j)
    plain = make_fit(X, engine, **OPTIONS[name])
    wider = make_fit(more, engine, **OPTIONS[name])
    filled = wider.transform(more, keep_observed=False)
    assert np.isfinite(filled).all()
    expected = plain.transform(X, keep_observed=False)
    assert max_gap(filled[np.ix_(i, j)], expected) < 1e-12
    side = i if turned else j
    assert max_gap(wider.kernel_[np.ix_(side, side)], plain.kernel_) < 1e-12
    assert max_gap(wider.similarity_[side][:, side], plain.similarity_) < 1e-12
    np.testing.assert_allclose(
        wider.history_["change"], plain.history_["change"], rtol=1e-9
    )


BAYES = {"max_iter": 5, "tol": 0, "prior_strength": 0.1}
BAYES_OPTIONS = {
    "both": {"sides": "both", "noise": "learn"},
    "columns": {"sides": "columns", "noise": "per-column", "scale": "columns"},
    "rows": {"sides": "rows", "validation": 0, "prior": "identity"},
    "no noise": {"sides": "columns", "noise": 0, "center": "columns"},
    "given noise": {"sides": "columns", "noise": 0.3, "scale": None, "center": None},
}


def bayesian_results(estimator, X):
    """All results of a fitted `BayesianNCARL` on a matrix."""
    rng = np.random.default_rng(3)
    i, j = rng.integers(0, X.shape[0], 50), rng.integers(0, X.shape[1], 50)
    said = {
        "filled": estimator.transform(X, keep_observed=False),
        "entries": estimator.predict(i, j),
        "kernel": estimator.kernel_,
        "noise": np.atleast_1d(estimator.noise_),
        "evidence": np.atleast_1d(estimator.log_evidence_),
        "objective": estimator.history_["objective"],
        "weight": np.atleast_1d(estimator.weight_),
        "scores": estimator.blended_scores_.sorted_scores,
    }
    if estimator.noise != 0:
        said["std"] = estimator.transform(X, return_std=True)[1]
        said["std of entries"] = estimator.predict(i, j, return_std="latent")[1]
        said["low"], said["high"] = estimator.predict_interval(i, j)
    if not estimator.transposed_:
        said["imputations"] = estimator.sample(2)
    return {name: value for name, value in said.items() if len(value)}


@pytest.mark.parametrize("name", BAYES_OPTIONS)
def test_engines_agree_on_the_bayesian_model(name, X, device):
    options = {**BAYES, **BAYES_OPTIONS[name]}
    here = BayesianNCARL(**options, engine="threads").fit(X)
    there = BayesianNCARL(**options, engine=Torch(device)).fit(X)
    assert f"({device}," in there.engine_
    assert [t["steps"] for t in here.search_] == [t["steps"] for t in there.search_]
    found = bayesian_results(there, X)
    gaps = {k: max_gap(found[k], v) for k, v in bayesian_results(here, X).items()}
    assert max(gaps.values()) < 1e-9, gaps


def test_killed_bayesian_fit_resumes_with_the_same_results(device, tmp_path):
    # The order of sums is not fixed on a GPU; elsewhere results are bit-identical.
    limit = 1e-9 if device.startswith("cuda") else 0.0

    def kill(info):
        if info.step == 3:
            raise RuntimeError("killed")

    X = MATRICES["empty"]
    options = {**BAYES, "validation": 0, "engine": Torch(device)}
    whole = BayesianNCARL(**options).fit(X)
    kept = {**options, "checkpoint": tmp_path / "state"}
    with pytest.raises(RuntimeError, match="killed"):
        BayesianNCARL(**kept, callback=kill).fit(X)
    resumed = BayesianNCARL(**kept).fit(X)
    found = bayesian_results(resumed, X)
    for name, expected in bayesian_results(whole, X).items():
        assert max_gap(found[name], expected) <= limit, name

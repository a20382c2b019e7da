"""Tests of WideNCARL: agreement with NCARL, parameters, checkpoints, extremes."""

import itertools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import ncarl
from ncarl import NCARL, Threads
from ncarl.estimators.wide import WideNCARL
from ncarl.exceptions import BrokenFileError, CheckpointMismatchError, NumericalWarning
from ncarl.wide import solver

pytestmark = pytest.mark.usefixtures("one_blas_thread")
RUN = {"max_iter": 6, "tol": 0}
EXACT = {
    "exact": {},
    "noisy": {"gamma": 0.1},
    "fixed graph": {"graph": "fixed"},
    "no graph": {"graph": None},
    "given graph": {"graph": np.eye(45)[::-1] + 0.1},
    "alpha 0": {"alpha": 0.0},
    "heavy graph": {"alpha": 1e4, "n_neighbors": 3},
    "two-way": {"center": "two-way"},
    "scaled": {"center": "columns", "scale": "columns"},
}


@pytest.mark.parametrize("name", EXACT)
def test_all_directions_match_ncarl(X, backend, name):
    options = {**RUN, **EXACT[name], "engine": Threads(n_jobs=1, kernel=backend)}
    dense = NCARL(**options, orientation="columns").fit(X)
    wide = WideNCARL(**options, rank=45).fit(X)
    assert_allclose(wide.transform(X), dense.transform(X), rtol=1e-8, atol=1e-8)
    assert_allclose(
        wide.kernel(range(45), range(45)),
        dense.kernel_,
        atol=1e-8 * np.abs(dense.kernel_).max(),
    )
    assert_allclose(wide.similarity_.toarray(), dense.similarity_.toarray(), atol=1e-8)
    for column in ("objective", "change"):
        assert_allclose(
            wide.history_[column], dense.history_[column], rtol=1e-6, atol=1e-9
        )
    i, j = np.array([0, 3, 3, 79]), np.array([5, 0, 44, 7])
    assert_allclose(wide.predict(i, j), dense.predict(i, j), rtol=1e-7)
    assert wide.score(X) == pytest.approx(dense.score(X))
    if name == "noisy":
        for asked in (True, "latent"):
            ours, theirs = (est.transform(X, return_std=asked) for est in (wide, dense))
            assert_allclose(ours[1], theirs[1], rtol=1e-7, atol=1e-9)
            ours, theirs = (
                est.predict(i, j, return_std=asked) for est in (wide, dense)
            )
            assert_allclose(ours[1], theirs[1], rtol=1e-7)


def tall(m=200, n=150, rank=3, seed=0):
    """An incomplete well-determined low-rank matrix and its truth."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    return truth, np.where(rng.random((m, n)) < 0.35, truth, np.nan)


def test_few_directions_are_as_accurate_as_ncarl():
    truth, X = tall()
    options = {"alpha": 0.0, "max_iter": 25, "tol": 0}
    hidden = np.isnan(X)
    dense = NCARL(**options, orientation="columns").fit_transform(X)
    wide = WideNCARL(**options, rank=50).fit(X)
    assert wide.kernel_factors_[1].shape[1] <= 50
    size = np.linalg.norm(truth[hidden])
    error = np.linalg.norm((wide.transform(X) - truth)[hidden]) / size
    assert error < 1.1 * np.linalg.norm((dense - truth)[hidden]) / size + 1e-3
    assert error < 0.05


@pytest.mark.thorough
def test_sparse_graph_term_is_accurate(monkeypatch):
    _, X = tall(150, 100)
    options = {"alpha": 10.0, "rank": 40, **RUN}
    whole = WideNCARL(**options).fit(X)
    assert whole.kernel_error_ == 0.0
    monkeypatch.setattr("ncarl.wide.kernel.DENSE_MAX_COLUMNS", 10)
    monkeypatch.setattr("ncarl.wide.kernel.HUB_MIN_EDGES", 20)
    sparsely = WideNCARL(**options).fit(X)
    assert 0.0 < sparsely.kernel_error_ < 1e-6
    assert_allclose(sparsely.transform(X), whole.transform(X), atol=1e-4)


def test_rank_is_at_least_the_identifiable_rank(X):
    counts = int((~np.isnan(X)).sum()) // (80 + 45)
    assert WideNCARL(rank=1, **RUN).fit(X).rank_ == counts + 1
    assert WideNCARL(**RUN).fit(X).rank_ == 45
    assert WideNCARL(rank=20, **RUN).fit(X).rank_ == 20


def test_get_params_and_clone(X):
    estimator = WideNCARL(alpha=3.0, rank=20, engine=Threads(n_jobs=1), **RUN)
    params = estimator.get_params()
    assert params["rank"] == 20 and params["alpha"] == 3.0
    other = clone(estimator).fit(X)
    assert_array_equal(estimator.fit(X).transform(X), other.transform(X))
    assert estimator.n_features_in_ == 45
    assert estimator.n_iter_ == 6 and not estimator.converged_
    assert estimator.n_neighbors_ == 10
    assert estimator.engine_.startswith("threads")
    assert set(estimator.history_) == {
        *("step", "objective", "change", "jitter"),
        *("seconds_graph", "seconds_kernel", "seconds_rows", "seconds_gram"),
    }


def test_number_of_threads_does_not_change_the_result(X, monkeypatch):
    monkeypatch.setattr("ncarl.wide.solver.SINGLE_BLOCK_MAX_ENTRIES", 10)
    one, two = (
        WideNCARL(rank=20, engine=Threads(n_jobs=jobs), **RUN).fit(X) for jobs in (1, 2)
    )
    assert_array_equal(one.transform(X), two.transform(X))


def test_observed_entries_are_kept_and_new_rows_completed(X, truth):
    estimator = WideNCARL(rank=20, gamma=0.1, **RUN).fit(X[:60])
    filled = estimator.transform(X[60:])
    seen = ~np.isnan(X[60:])
    assert_array_equal(filled[seen], X[60:][seen])
    gaps = ~seen
    error = np.linalg.norm((filled - truth[60:])[gaps])
    assert error < np.linalg.norm((truth[60:] - np.nanmean(X))[gaps])


def test_sparse_input_and_the_limit_on_dense_results(X):
    filled = sparse.csr_array(np.nan_to_num(X))
    estimator = WideNCARL(rank=20, **RUN).fit(filled)
    assert_allclose(estimator.transform(filled), estimator.transform(X))
    with pytest.raises(ValueError, match="max_dense_gb"):
        estimator.transform(filled, max_dense_gb=1e-6)


def test_dense_kernel_is_not_available(X):
    estimator = WideNCARL(rank=20, **RUN)
    with pytest.raises(NotFittedError):
        estimator.kernel([0], [0])
    estimator.fit(X)
    with pytest.raises(AttributeError, match=r"kernel\(rows, cols\)"):
        _ = estimator.kernel_
    T, F = estimator.kernel_factors_
    whole = T.toarray() + F @ F.T
    assert_allclose(estimator.kernel([3, 1], [0, 44, 3]), whole[[3, 1]][:, [0, 44, 3]])
    assert not F.flags.writeable
    with pytest.raises(ValueError, match="rows must lie between 0 and 44"):
        estimator.kernel([45], [0])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank": 0}, "rank must be a whole number of at least 1"),
        ({"alpha": -1.0}, "alpha"),
        ({"engine": "nothing"}, "engine must be"),
        ({"engine": "dask"}, "threads only"),
        ({"graph": "other"}, "graph must be"),
        ({"graph": np.ones((3, 3))}, "graph must be 45 x 45"),
        ({"graph": -np.eye(45)}, "at least 0"),
        ({"graph": object()}, "graph must be"),
    ],
)
def test_invalid_parameter_raises(X, options, said):
    if options.get("engine") == "dask":
        pytest.importorskip("dask")
    with pytest.raises((TypeError, ValueError), match=said):
        WideNCARL(**options).fit(X)


def test_every_step_starts_from_the_previous_directions(X, monkeypatch):
    usual, starts = solver.summarize_gram, []

    def record(G, diagonal, rank, start, dtype):
        found = usual(G, diagonal, rank, start, dtype)
        starts.append((start, found.vectors))
        return found

    monkeypatch.setattr(solver, "summarize_gram", record)
    WideNCARL(rank=20, **RUN).fit(X)
    assert len(starts) == 7 and starts[0][0] is None
    for (_, before), (start, _) in itertools.pairwise(starts):
        assert start is before


def test_empty_rows_and_columns_get_the_center(X):
    gappy = X.copy()
    gappy[3], gappy[:, 5] = np.nan, np.nan
    for center in (None, "mean"):
        estimator = WideNCARL(rank=20, center=center, **RUN).fit(gappy)
        assert estimator.unidentified_rows_.tolist() == [3]
        assert estimator.unidentified_columns_.tolist() == [5]
        filled = estimator.transform(gappy)
        assert_allclose(filled[3], np.nanmean(gappy))
        assert_allclose(filled[:, 5], np.nanmean(gappy))
        assert estimator.predict([3], [5])[0] == pytest.approx(np.nanmean(gappy))


def test_exact_model_has_no_standard_deviations(X):
    estimator = WideNCARL(rank=20, **RUN).fit(X)
    with pytest.raises(ValueError, match="set gamma"):
        estimator.transform(X, return_std=True)


def test_unconverged_fit_warns_and_converged_fit_stops(X):
    with pytest.warns(ConvergenceWarning, match="WideNCARL did not converge"):
        WideNCARL(rank=20, max_iter=2).fit(X)
    settled = WideNCARL(rank=20, max_iter=200, tol=0.02).fit(X)
    assert settled.converged_ and settled.n_iter_ < 200


# --- checkpoints -------------------------------------------------------------------

KINDS = {
    "few directions": {"rank": 20},
    "all directions": {"rank": 45},
    "noisy": {"gamma": 0.1, "rank": 20},
    "fixed graph": {"graph": "fixed", "rank": 20},
    "given graph": {"graph": sparse.csr_array(np.eye(45)[::-1]), "rank": 20},
    "float32": {"dtype": "float32", "delta": 1e-3, "rank": 20},
}


def stop_at_three(info):
    if info.step == 3:
        raise RuntimeError("killed")


def assert_same_fit(one, other, X):
    for mine, theirs in zip(one.kernel_factors_, other.kernel_factors_, strict=True):
        assert abs(mine - theirs).max() == 0.0
    assert_array_equal(one.transform(X), other.transform(X))
    for name in ("step", "objective", "change", "jitter"):
        assert_array_equal(one.history_[name], other.history_[name])
    assert abs(one.similarity_ - other.similarity_).max() == 0.0
    assert one.converged_ == other.converged_


@pytest.mark.thorough
@pytest.mark.parametrize("name", KINDS)
def test_killed_fit_resumes_bit_identically(X, tmp_path, name):
    options = {**RUN, **KINDS[name]}
    undisturbed = WideNCARL(**options).fit(X)
    path = tmp_path / "state"
    with pytest.raises(RuntimeError, match="killed"):
        WideNCARL(**options, checkpoint=path, callback=stop_at_three).fit(X)
    made = []
    resumed = WideNCARL(**options, checkpoint=path, callback=made.append).fit(X)
    assert [info.step for info in made] == [4, 5, 6]
    assert_same_fit(resumed, undisturbed, X)
    made.clear()
    again = WideNCARL(**options, checkpoint=path, callback=made.append).fit(X)
    assert made == []
    assert_same_fit(again, undisturbed, X)


def test_interrupted_fit_keeps_the_last_step(X, tmp_path):
    def interrupt(info):
        if info.step == 2:
            raise KeyboardInterrupt

    path = tmp_path / "state"
    estimator = WideNCARL(rank=20, checkpoint=path, callback=interrupt, **RUN)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert estimator.n_iter_ == 2
    resumed = WideNCARL(rank=20, checkpoint=path, **RUN).fit(X)
    assert_same_fit(resumed, WideNCARL(rank=20, **RUN).fit(X), X)


def test_checkpoint_of_another_fit_raises(X, tmp_path):
    path = tmp_path / "state"
    WideNCARL(rank=20, checkpoint=path, **RUN).fit(X)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(CheckpointMismatchError, match="rank"):
        WideNCARL(rank=21, checkpoint=path, **RUN).fit(X)
    with pytest.raises(CheckpointMismatchError, match="data"):
        WideNCARL(rank=20, checkpoint=path, **RUN).fit(X[1:])
    with pytest.raises(CheckpointMismatchError, match="written by WideNCARL"):
        NCARL(checkpoint=path, **RUN).fit(X)
    other = tmp_path / "other"
    NCARL(checkpoint=other, **RUN).fit(X)
    with pytest.raises(CheckpointMismatchError, match="written by NCARL"):
        WideNCARL(rank=20, checkpoint=other, **RUN).fit(X)
    broken = bytearray(path.read_bytes())
    broken[-20] ^= 1
    path.write_bytes(broken)
    with pytest.raises(BrokenFileError, match="damaged"):
        WideNCARL(rank=20, checkpoint=path, **RUN).fit(X)


# --- extremes ----------------------------------------------------------------------

RNG = np.random.default_rng(0)
BASE = RNG.random((30, 3)) @ RNG.random((3, 24)) + 0.1 * RNG.random((30, 24))
GAPS = RNG.random(BASE.shape) < 0.4
EMPTY = BASE.copy()
EMPTY[[2, 5]] = np.nan
EMPTY[:, [0, 7]] = np.nan
CASES = {
    "the largest floats": np.full((30, 24), np.finfo(float).max),
    "empty rows and columns": EMPTY,
    "all zeros": np.zeros((30, 24)),
    "equal columns": np.repeat(BASE[:, :2], 12, axis=1),
    "one column": BASE[:, :1],
    "one row": BASE[:1],
    "columns of all scales": BASE * 10.0 ** np.linspace(-100, 100, 24),
    "float32": BASE.astype(np.float32),
}


@pytest.mark.parametrize("gamma", [None, 0.1])
@pytest.mark.parametrize("rank", [4, None])
@pytest.mark.parametrize("name", CASES)
def test_extreme_matrix(name, rank, gamma):
    X = CASES[name].copy()
    X[GAPS[: X.shape[0], : X.shape[1]]] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NumericalWarning)
        estimator = WideNCARL(max_iter=4, tol=0, rank=rank, gamma=gamma).fit(X)
        filled = estimator.transform(X)
        some = estimator.predict([0], [0])
    assert np.isfinite(filled).all() and np.isfinite(some).all()
    seen = ~np.isnan(X)
    assert_array_equal(filled[seen], X[seen])
    assert filled.dtype == X.dtype


def test_results_are_equivariant_to_scale(X):
    small = WideNCARL(rank=20, **RUN).fit_transform(X * 2.0**-400)
    assert_array_equal(small * 2.0**400, WideNCARL(rank=20, **RUN).fit_transform(X))


def test_saved_model_is_loaded_with_its_sparse_graph(X, tmp_path):
    ring = sparse.csr_array(np.eye(45, k=1) + np.eye(45, k=-1))
    options = {"gamma": 0.1, "center": "columns", "max_iter": 3, "tol": 0}
    model = WideNCARL(graph=ring, alpha=1.0, **options).fit(X)
    model.save(tmp_path / "model")
    again = ncarl.load(tmp_path / "model")
    assert type(again) is WideNCARL
    assert_array_equal(again.graph.toarray(), ring.toarray())
    assert_array_equal(again.transform(X), model.transform(X))
    out = again.transform(X, out=tmp_path / "filled.npy")
    assert_array_equal(np.load(out), model.transform(X))


def test_streams_raise(X):
    with pytest.raises(TypeError, match="needs its matrix in memory"):
        WideNCARL().fit(ncarl.open_rows(X))


def test_single_precision_does_not_converge_by_rounding():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 120))
    X[rng.random(X.shape) > 0.3] = np.nan
    run = {"alpha": 0, "rank": 40, "tol": 0, "max_iter": 25}
    single = WideNCARL(**run, dtype="float32").fit(X).history_["change"]
    double = WideNCARL(**run).fit(X).history_["change"]
    assert_allclose(single[:5], double[:5], rtol=0.05)
    assert single[-5:].min() > 0.2 * double[-5:].min()

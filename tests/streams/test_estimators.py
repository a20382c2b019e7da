"""Tests of estimators on row sources: output files, entries, scores, errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import ncarl
from ncarl import NCARL, NCARLCV, BayesianNCARL, Nuclear, SoftImpute, open_rows
from ncarl.bayes import selection as cuts
from ncarl.exceptions import CheckpointMismatchError
from ncarl.observations import Observations

RUN = {"max_iter": 5, "tol": 0}


@pytest.fixture(scope="module")
def noisy(X_nan):
    """A model with a noise term, fitted in memory."""
    return NCARL(**RUN, gamma=0.1, orientation="columns").fit(X_nan)


@pytest.mark.parametrize("suffix", [".npy", ".zarr", ".csv"])
def test_rows_are_written_block_by_block(suffix, X_nan, noisy, tmp_path):
    pytest.importorskip({".zarr": "zarr", ".csv": "pyarrow"}.get(suffix, "numpy"))
    source = open_rows(X_nan, rows_per_chunk=13)
    out, out_std = tmp_path / f"filled{suffix}", tmp_path / f"std{suffix}"
    found = noisy.transform(source, return_std=True, out=out, out_std=out_std)
    assert found == (out, out_std)
    filled, std = noisy.transform(X_nan, return_std=True)
    assert_array_equal(read_array(out), filled)
    assert_allclose(read_array(out_std), std, rtol=1e-12)
    # A matrix in memory can also be written.
    assert noisy.transform(X_nan, out=str(out)) == out
    assert_array_equal(read_array(out), filled)


def read_array(path):
    """Read a written file as an array."""
    rows = Observations.vstack(list(open_rows(path)))
    assert rows.n_observed == rows.shape[0] * rows.shape[1]
    return rows.to_csr().toarray()


def test_output_larger_than_memory_is_written_by_rows(X_nan, noisy, tmp_path):
    sparse = Observations.from_dense(X_nan).to_csr()
    with pytest.raises(ValueError, match=r"transform\(X, out='filled.npy'\)"):
        noisy.transform(sparse, max_dense_gb=1e-6)
    out = noisy.transform(sparse, max_dense_gb=1e-6, out=tmp_path / "filled.npy")
    assert_allclose(np.load(out), noisy.transform(X_nan), rtol=1e-12)
    with pytest.raises(ValueError, match="more than max_dense_gb"):
        noisy.transform(open_rows(X_nan), max_dense_gb=1e-6)
    turned = NCARL(**RUN, orientation="rows").fit(X_nan[:14])
    with pytest.raises(ValueError, match="orientation='columns'"):
        turned.transform(X_nan[:14], out=tmp_path / "x.npy", max_dense_gb=1e-9)
    written = turned.transform(X_nan[:14], out=tmp_path / "x.npy")
    assert_array_equal(np.load(written), turned.transform(X_nan[:14]))


def test_smoothed_rows_and_float_types(X_nan, noisy, tmp_path):
    small = X_nan.astype(np.float32)
    np.save(tmp_path / "x.npy", small)
    source = open_rows(tmp_path / "x.npy", rows_per_chunk=20)
    filled = noisy.transform(source)
    assert filled.dtype == np.float32
    assert_array_equal(filled[~np.isnan(small)], small[~np.isnan(small)])
    smooth = noisy.transform(source, keep_observed=False)
    assert_allclose(smooth, noisy.transform(small, keep_observed=False), rtol=1e-6)
    out = noisy.transform(source, out=tmp_path / "y.npy")
    assert np.load(out).dtype == np.float32
    assert_array_equal(np.load(out), filled)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out_std": "s.npy"}, "out_std goes with"),
        ({"out": "a.npy", "return_std": True}, "out_std must say where"),
        ({"out": "a.npy", "out_std": "s.npy"}, "out_std goes with"),
        ({"out": "a.npy", "out_std": "./a.npy", "return_std": True}, "must differ"),
        ({"out": "a.what"}, "what"),
    ],
)
def test_invalid_outputs_raise(options, message, X_nan, noisy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        noisy.transform(X_nan, **options)
    with pytest.raises(TypeError, match="out must be a path, got 3"):
        noisy.transform(X_nan, out=3)


def test_failed_pass_keeps_the_existing_file(X_nan, noisy, tmp_path):
    out = tmp_path / "filled.npy"
    out.write_bytes(b"before")

    def blocks():
        yield X_nan[:50]
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        noisy.transform(open_rows(blocks), out=out)
    assert out.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [out]


def test_single_entries_of_a_source(X_nan, noisy):
    source = open_rows(X_nan, rows_per_chunk=11)
    rows, cols = [140, 3, 3, 77, 17], [0, 13, 11, 5, 2]
    values, std = noisy.predict(rows, cols, return_std=True, X=source)
    known, known_std = noisy.predict(rows, cols, return_std=True)
    assert_allclose(values, known, rtol=1e-12)
    assert_allclose(std, known_std, rtol=1e-12)
    every = noisy.predict(source)
    assert_allclose(every, noisy.predict(X_nan), rtol=1e-12)
    with pytest.raises(ValueError, match="rows must lie between 0 and 149"):
        noisy.predict([150], [0], X=source)
    with pytest.raises(ValueError, match="cols must lie between 0 and 13"):
        noisy.predict([0], [14], X=source)
    streamed = NCARL(**RUN).fit(source)
    with pytest.raises(ValueError, match=r"pass X=\.\.\."):
        streamed.predict([0], [1])


def test_scores_of_a_source(X_nan, noisy, rng):
    truth = rng.standard_normal(X_nan.shape)
    one_chunk = open_rows(X_nan, rows_per_chunk=10**6)
    assert noisy.score(one_chunk) == pytest.approx(noisy.score(X_nan), rel=1e-12)
    source = open_rows(X_nan, rows_per_chunk=11)
    assert noisy.score(source) == pytest.approx(noisy.score(X_nan), rel=0.5)
    for y in (truth, sp.csr_array(truth)):
        known = noisy.score(X_nan, y)
        assert noisy.score(source, y) == pytest.approx(known, rel=1e-12)
    with pytest.raises(ValueError, match="nothing to score"):
        noisy.score(source, X_nan)


def test_column_names_are_stored_and_compared(X_nan, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    names = [f"c{j}" for j in range(14)]
    frame = pd.DataFrame(X_nan, columns=names)
    frame.to_parquet(tmp_path / "x.parquet")
    model = NCARL(**RUN).fit(open_rows(tmp_path / "x.parquet"))
    assert list(model.feature_names_in_) == names
    frame[names[::-1]].to_parquet(tmp_path / "y.parquet")
    with pytest.raises(ValueError, match="column 0 is 'c13', and was 'c0'"):
        model.transform(open_rows(tmp_path / "y.parquet"))
    with pytest.raises(ValueError, match="X has 13 columns, but NCARL was fitted"):
        model.transform(open_rows(X_nan[:, :13]))
    out = model.transform(frame, out=tmp_path / "filled.csv")
    assert list(pd.read_csv(out).columns) == names
    model.fit(open_rows(X_nan))
    assert not hasattr(model, "feature_names_in_")


def test_a_model_of_a_source_is_saved_and_loaded(X_nan, tmp_path):
    source = open_rows(X_nan, rows_per_chunk=11)
    for model in (NCARL(**RUN), BayesianNCARL(validation=0, **RUN)):
        model.fit(source).save(tmp_path / "model")
        again = ncarl.load(tmp_path / "model")
        assert_array_equal(again.transform(source), model.transform(source))
        with pytest.raises(ValueError, match="training entries were not kept"):
            model.save(tmp_path / "more", training_data=True)


class TestErrors:
    def test_iterators_and_paths_instead_of_sources(self, X_nan, tmp_path):
        with pytest.raises(TypeError, match="can be read only once"):
            NCARL().fit(iter([X_nan]))
        for path in ("x.npy", tmp_path / "x.npy"):
            with pytest.raises(TypeError, match=r"ncarl\.open_rows\(path\)"):
                NCARL().fit(path)

    def test_estimators_without_streaming(self, X_nan):
        for model in (NCARLCV(), Nuclear(), SoftImpute()):
            with pytest.raises(TypeError, match="needs its matrix in memory; NCARL"):
                model.fit(open_rows(X_nan))
        for model in (Nuclear(engine="dask"), SoftImpute(engine="dask")):
            with pytest.raises(ValueError, match=r"or 'torch' for .*, which works on"):
                model.fit(X_nan)
        model = Nuclear(max_iter=3, tol=0).fit(X_nan)
        with pytest.raises(TypeError, match="completes the matrix of its fit as a"):
            model.transform(open_rows(X_nan))

    def test_rows_that_change_between_passes(self, X_nan):
        calls = []

        def blocks():
            calls.append(1)
            return iter([X_nan[:60], X_nan[60 : 150 if len(calls) < 5 else 100]])

        with pytest.raises(ValueError, match="same rows in every pass; it gave 150"):
            NCARL(**RUN).fit(open_rows(blocks))

    def test_truths_that_are_not_in_memory(self, X_nan, noisy, rng):
        source, truth = open_rows(X_nan, rows_per_chunk=40), rng.random(X_nan.shape)
        with pytest.raises(TypeError, match="y must be a matrix in memory"):
            noisy.score(source, open_rows(truth))
        for rows in (truth[:149], truth[:30], np.vstack([truth, truth])):
            with pytest.raises(ValueError, match="y must have the rows of X"):
                noisy.score(source, rows)
        known = noisy.score(source, truth)
        assert noisy.score(source, sp.coo_array(truth)) == pytest.approx(known)

    def test_intervals_and_draws_of_a_source(self, X_nan):
        model = BayesianNCARL(validation=0, **RUN).fit(open_rows(X_nan))
        for ask in (
            lambda: model.predict_interval(open_rows(X_nan)),
            lambda: model.predict_interval([0], [0], X=open_rows(X_nan)),
            lambda: model.sample(X=open_rows(X_nan)),
        ):
            with pytest.raises(TypeError, match="takes a matrix in memory"):
                ask()
        with pytest.raises(ValueError, match="a fit of a source keeps none"):
            model.predict_interval([0], [0])

    def test_infinite_values_of_a_dask_array(self, X_nan, noisy):
        da = pytest.importorskip("dask.array")
        wrong = X_nan.copy()
        wrong[3, 3] = np.inf
        with pytest.raises(ValueError, match="must hold finite numbers"):
            noisy.transform(da.from_array(wrong)).compute(scheduler="synchronous")

    def test_row_kernel(self, X_nan):
        with pytest.raises(ValueError, match="orientation='rows' needs the matrix"):
            NCARL(orientation="rows").fit(open_rows(X_nan))
        for sides in ("rows", "both"):
            with pytest.raises(ValueError, match="needs the matrix in memory"):
                BayesianNCARL(sides=sides).fit(open_rows(X_nan))
        turned = NCARL(**RUN, orientation="rows").fit(X_nan)
        with pytest.raises(ValueError, match="the kernel sits on the rows"):
            turned.transform(open_rows(X_nan))

    def test_nothing_observed(self, X_nan):
        for model in (NCARL(), BayesianNCARL()):
            with pytest.raises(ValueError, match=r"no observed entry \(all 150 x 14"):
                model.fit(open_rows(X_nan * np.nan))
            with pytest.raises(ValueError, match="X has no rows"):
                model.fit(open_rows(lambda: iter([X_nan[:0]])))


def kill_at_three(info):
    if info.step == 3:
        raise RuntimeError("killed")


@pytest.fixture(params=["threads", "torch", "dask"])
def engine(request):
    """Every available engine."""
    if request.param == "torch":
        request.getfixturevalue("one_torch_thread")
        yield ncarl.Torch("cpu")
    elif request.param == "dask":
        pytest.importorskip("distributed")
        with ncarl.Dask("threads", n_workers=2) as workers:
            yield workers
    else:
        yield ncarl.Threads(2)


@pytest.mark.parametrize(
    "model", [NCARL(**RUN), NCARL(**RUN, gamma=0.1), BayesianNCARL(validation=0, **RUN)]
)
def test_killed_fit_of_a_source_resumes_bit_identically(
    model, engine, open_reader, tmp_path, monkeypatch
):
    monkeypatch.setattr(cuts, "ROW_SAMPLING_THRESHOLD", 0)
    source = open_reader("npz")
    options = {**model.get_params(), "engine": engine}
    undisturbed = type(model)(**options).fit(source)
    path = tmp_path / "state"
    stopped = type(model)(**{**options, "checkpoint": path, "callback": kill_at_three})
    with pytest.raises(RuntimeError, match="killed"):
        stopped.fit(source)
    made = []
    resumed = type(model)(**{**options, "checkpoint": path, "callback": made.append})
    resumed.fit(source)
    assert [info.step for info in made] == [4, 5]
    assert_array_equal(resumed.kernel_, undisturbed.kernel_)
    assert_array_equal(resumed.transform(source), undisturbed.transform(source))


def test_checkpoint_of_other_rows_raises(X_nan, tmp_path):
    path = tmp_path / "state"
    NCARL(**RUN, checkpoint=path).fit(open_rows(X_nan, rows_per_chunk=50))
    other = X_nan.copy()
    other[149, 0] = 0.5
    with pytest.raises(CheckpointMismatchError, match="the data"):
        NCARL(**RUN, checkpoint=path).fit(open_rows(other, rows_per_chunk=50))
    # The same data from another reader are accepted.
    NCARL(**RUN, checkpoint=path).fit(open_rows(X_nan, rows_per_chunk=20))
    NCARL(**RUN, checkpoint=path, orientation="columns").fit(X_nan)


def test_results_do_not_depend_on_the_chunks(X_nan):
    model = BayesianNCARL(sides="both", random_state=1).fit(X_nan)
    answers = [
        model.transform(open_rows(X_nan, rows_per_chunk=rows)) for rows in (150, 40, 1)
    ]
    for answer in answers[1:]:
        assert_allclose(answer, answers[0], rtol=1e-9, atol=1e-12)
    # The training matrix is completed from more information than new rows.
    assert np.abs(model.transform(X_nan) - answers[0]).max() > 1e-3
    one = open_rows(X_nan, rows_per_chunk=150)
    gaps = np.argwhere(np.isnan(X_nan))[:20]
    values = model.predict(*gaps.T, X=one)
    assert_allclose(values, answers[0][tuple(gaps.T)], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-250, 1e250])
def test_scores_do_not_depend_on_units(X_nan, unit):
    source = open_rows(X_nan * unit, rows_per_chunk=50)
    model = NCARL(**RUN).fit(source)
    usual = NCARL(**RUN).fit(open_rows(X_nan, rows_per_chunk=50))
    known = usual.score(open_rows(X_nan, rows_per_chunk=50))
    assert model.score(source) == pytest.approx(known, rel=1e-6)


def test_chunks_without_rows_or_entries_are_skipped(X_nan, engine):
    known = NCARL(**RUN, orientation="columns").fit(X_nan)
    empty = np.full((7, 14), np.nan)
    blocks = [empty, X_nan[:0], X_nan[:40], X_nan[:0], X_nan[40:], X_nan[:0]]
    if type(engine).__name__ == "Dask":  # which may not be installed
        dask = pytest.importorskip("dask")
        blocks = [dask.delayed(np.asarray)(block) for block in blocks]
    found = NCARL(**RUN, engine=engine).fit(blocks)
    assert_allclose(found.kernel_, known.kernel_, rtol=1e-9, atol=1e-9)
    assert list(found.unidentified_rows_) == [*range(7), 24]


def test_a_dask_array_with_an_empty_block_is_completed(X_nan, noisy):
    da = pytest.importorskip("dask.array")
    X = da.from_array(X_nan, chunks=(50, 14))
    some = X[da.from_array(np.arange(150) >= 50, chunks=50)]
    filled = noisy.transform(some).compute(scheduler="synchronous")
    assert_allclose(filled, noisy.transform(X_nan[50:]), rtol=1e-12)


def test_files_get_the_names_of_the_completed_columns(X_nan, tmp_path):
    pd = pytest.importorskip("pandas")
    wide = pd.DataFrame(X_nan.T).add_prefix("c")
    model = NCARL(**RUN).fit(wide)
    assert model.transposed_
    other = wide.iloc[:, :5].rename(columns=str.upper)
    out = model.transform(other, out=tmp_path / "o.csv")
    assert list(pd.read_csv(out).columns) == list(other.columns)


def test_training_data_is_written_completely_or_not_at_all(X_nan, tmp_path):
    model = BayesianNCARL(sides="both", random_state=1).fit(X_nan)
    out = model.transform(X_nan, out=tmp_path / "o.npy")
    assert_array_equal(np.load(out), model.transform(X_nan))
    with pytest.raises(ValueError, match="more than max_dense_gb"):
        model.transform(X_nan, out=tmp_path / "p.npy", max_dense_gb=1e-9)
    new = X_nan + 0.1
    out = model.transform(new, out=tmp_path / "p.npy", max_dense_gb=1e-9)
    assert_allclose(np.load(out), model.transform(new), rtol=1e-9, atol=1e-12)

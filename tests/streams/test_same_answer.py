"""Every reader and every engine gives the answer of threads in memory."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import NCARL, BayesianNCARL
from ncarl.bayes import selection as cuts
from ncarl.engines.threads import Threads
from ncarl.io import open_rows

from .conftest import READERS

RUN = {"max_iter": 6, "tol": 0, "orientation": "columns"}
MODELS = {
    "floor": NCARL(**RUN),
    "pinv": NCARL(**{**RUN, "max_iter": 5}, weights="pinv"),
    "smooth": NCARL(**RUN, weights="smooth", alpha=1.0),
    "noisy": NCARL(**RUN, gamma=0.1),
    "noisy pinv": NCARL(**{**RUN, "max_iter": 5}, gamma=0.1, weights="pinv"),
    "centered": NCARL(**RUN, center="two-way"),
    "scaled": NCARL(**RUN, center="columns", scale="columns"),
    "scaled two-way": NCARL(**RUN, center="two-way", scale="columns"),
    "fixed graph": NCARL(**RUN, center="mean", graph="fixed"),
    "bayes": BayesianNCARL(sides="columns", max_iter=8),
    "bayes unvalidated": BayesianNCARL(
        sides="columns", validation=0, max_iter=5, tol=0, scale="columns", clip=None
    ),
    "bayes by columns": BayesianNCARL(
        sides="columns", validation=0, max_iter=4, tol=0, center="columns",
        noise="learn", rounding="observed", prior="identity",
    ),
}  # fmt: skip
#: Every reader with two estimators, one reader with all of them.
MAIN = ("scaled two-way", "bayes")
PAIRS = [
    (reader, name)
    for reader in READERS
    for name in MODELS
    if name in MAIN or reader == "npy"
]
#: No entry is so small that this is not a digit of it that counts.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(autouse=True)
def always_streamed(monkeypatch):
    """Nothing is so small that it is read into memory instead."""
    monkeypatch.setattr(cuts, "ROW_SAMPLING_THRESHOLD", 0)


@pytest.fixture(scope="module")
def in_memory(gappy):
    """A function that gives the model fitted in memory, and what it fills in."""
    known = {}

    def fitted(name):
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cuts, "ROW_SAMPLING_THRESHOLD", 0)
                model = again(name, Threads(2)).fit(gappy)
            known[name] = model, model.transform(gappy)
        return known[name]

    return fitted


def again(name, engine):
    """The model of that name, to be fitted by an engine."""
    return type(MODELS[name])(**{**MODELS[name].get_params(), "engine": engine})


@pytest.fixture
def check(opened, in_memory, gappy):
    """Fit a model by an engine to what a reader gives, and compare the results."""

    def compare(reader, name, engine):
        known, filled = in_memory(name)
        source = opened(reader)
        found = again(name, engine).fit(source)
        assert_same_model(found, known)
        answer = np.asarray(found.transform(source))
        assert_allclose(answer, filled, **CLOSE)
        seen = ~np.isnan(gappy)
        assert_array_equal(answer[seen], gappy[seen])

    return compare


def assert_same_model(found, known):
    """Both fits came to the same kernel, in as many steps."""
    assert found.n_iter_ == known.n_iter_
    assert_allclose(found.kernel_, known.kernel_, rtol=1e-9, atol=1e-9)
    # The kernel of pinv holds 1e6, which takes six digits from <Q, G> alone.
    digits = 1e-7 if known.get_params().get("weights") == "pinv" else 1e-9
    one, other = found.history_["objective"], known.history_["objective"]
    assert_allclose(one, other, rtol=digits)
    assert_array_equal(found.unidentified_rows_, known.unidentified_rows_)
    assert_array_equal(found.unidentified_columns_, known.unidentified_columns_)
    assert found.n_features_in_ == known.n_features_in_
    assert found.training_ is None


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(("reader", "name"), PAIRS)
def test_every_reader_gives_the_answer_in_memory(reader, name, check):
    check(reader, name, Threads(2))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    ("reader", "name"), [pair for pair in PAIRS if pair[0] in ("npy", "npz")]
)
def test_torch_gives_the_answer_of_threads_in_memory(
    reader, name, check, device, one_torch_thread
):
    from ncarl import Torch

    check(reader, name, Torch(device))


@pytest.fixture(scope="module")
def dask_threads():
    """Workers of Dask, threads of this process."""
    pytest.importorskip("distributed")
    from ncarl import Dask

    with Dask("threads", n_workers=2) as engine:
        yield engine


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    ("reader", "name"),
    [p for p in PAIRS if p[0] in ("npy", "csv", "dask_array", "delayed_blocks")],
)
def test_dask_gives_the_answer_of_threads_in_memory(reader, name, check, dask_threads):
    check(reader, name, dask_threads)


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("rows", ["numba", "numpy"])
def test_both_row_kernels_read_sources(rows, gappy, in_memory):
    if rows == "numba":
        pytest.importorskip("numba")
    _, filled = in_memory("floor")
    for threads in (1, 3):
        engine = Threads(threads, kernel=rows)
        found = again("floor", engine).fit(open_rows(gappy, rows_per_chunk=9))
        assert_allclose(found.transform(gappy), filled, **CLOSE)


def test_float32_work_reads_sources_too(gappy, opened):
    options = {**RUN, "dtype": "float32", "delta": 1e-3, "alpha": 1.0}
    known = NCARL(**options).fit(gappy).transform(gappy)
    found = NCARL(**options).fit(opened("npy")).transform(gappy)
    assert_allclose(found, known, rtol=1e-3, atol=1e-3)


def test_a_small_source_is_fitted_as_a_matrix_in_memory_is(gappy, monkeypatch, opened):
    monkeypatch.setattr(cuts, "ROW_SAMPLING_THRESHOLD", 10**6)
    known = BayesianNCARL(sides="columns").fit(gappy)
    found = BayesianNCARL().fit(opened("npz"))
    assert_array_equal(found.kernel_, known.kernel_)
    assert found.search_ == known.search_
    assert found.sides_ == "columns"
    interval = found.predict_interval([0, 3], [1, 2], X=gappy)
    assert_array_equal(interval, known.predict_interval([0, 3], [1, 2]))

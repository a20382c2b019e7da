"""Tests that all readers and engines give the result of threads in memory."""

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
#: The absolute tolerance is significant since no entry is that small.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(autouse=True)
def force_streaming(monkeypatch):
    """Do not read small sources into memory."""
    monkeypatch.setattr(cuts, "ROW_SAMPLING_THRESHOLD", 0)


@pytest.fixture(scope="module")
def in_memory(X_nan):
    """Function that returns a model fitted in memory, and its completed matrix."""
    known = {}

    def fit(name):
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cuts, "ROW_SAMPLING_THRESHOLD", 0)
                model = make_model(name, Threads(2)).fit(X_nan)
            known[name] = model, model.transform(X_nan)
        return known[name]

    return fit


def make_model(name, engine):
    """The named model with an engine."""
    return type(MODELS[name])(**{**MODELS[name].get_params(), "engine": engine})


@pytest.fixture
def check(open_reader, in_memory, X_nan):
    """Function that fits a model to a reader and compares it with memory."""

    def compare(reader, name, engine):
        known, filled = in_memory(name)
        source = open_reader(reader)
        found = make_model(name, engine).fit(source)
        assert_same_model(found, known)
        answer = np.asarray(found.transform(source))
        assert_allclose(answer, filled, **CLOSE)
        seen = ~np.isnan(X_nan)
        assert_array_equal(answer[seen], X_nan[seen])

    return compare


def assert_same_model(found, known):
    """Check that two fits have the same kernel and number of steps."""
    assert found.n_iter_ == known.n_iter_
    assert_allclose(found.kernel_, known.kernel_, rtol=1e-9, atol=1e-9)
    # The kernel of pinv has entries of 1e6, so <Q, G> loses six digits.
    digits = 1e-7 if known.get_params().get("weights") == "pinv" else 1e-9
    one, other = found.history_["objective"], known.history_["objective"]
    assert_allclose(one, other, rtol=digits)
    assert_array_equal(found.unidentified_rows_, known.unidentified_rows_)
    assert_array_equal(found.unidentified_columns_, known.unidentified_columns_)
    assert found.n_features_in_ == known.n_features_in_
    assert found.training_ is None


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(("reader", "name"), PAIRS)
def test_every_reader_gives_the_result_in_memory(reader, name, check):
    check(reader, name, Threads(2))


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    ("reader", "name"), [pair for pair in PAIRS if pair[0] in ("npy", "npz")]
)
def test_torch_gives_the_result_of_threads_in_memory(
    reader, name, check, device, one_torch_thread
):
    from ncarl import Torch

    check(reader, name, Torch(device))


@pytest.fixture(scope="module")
def dask_threads():
    """Dask engine with threads of this process."""
    pytest.importorskip("distributed")
    from ncarl import Dask

    with Dask("threads", n_workers=2) as engine:
        yield engine


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    ("reader", "name"),
    [p for p in PAIRS if p[0] in ("npy", "csv", "dask_array", "delayed_blocks")],
)
def test_dask_gives_the_result_of_threads_in_memory(reader, name, check, dask_threads):
    check(reader, name, dask_threads)


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("rows", ["numba", "numpy"])
def test_both_row_kernels_read_sources(rows, X_nan, in_memory):
    if rows == "numba":
        pytest.importorskip("numba")
    _, filled = in_memory("floor")
    for threads in (1, 3):
        engine = Threads(threads, kernel=rows)
        found = make_model("floor", engine).fit(open_rows(X_nan, rows_per_chunk=9))
        assert_allclose(found.transform(X_nan), filled, **CLOSE)


def test_float32_fits_read_sources(X_nan, open_reader):
    options = {**RUN, "dtype": "float32", "delta": 1e-3, "alpha": 1.0}
    known = NCARL(**options).fit(X_nan).transform(X_nan)
    found = NCARL(**options).fit(open_reader("npy")).transform(X_nan)
    assert_allclose(found, known, rtol=1e-3, atol=1e-3)


def test_small_source_is_fitted_as_a_matrix_in_memory(X_nan, monkeypatch, open_reader):
    monkeypatch.setattr(cuts, "ROW_SAMPLING_THRESHOLD", 10**6)
    known = BayesianNCARL(sides="columns").fit(X_nan)
    found = BayesianNCARL().fit(open_reader("npz"))
    assert_array_equal(found.kernel_, known.kernel_)
    assert found.search_ == known.search_
    assert found.sides_ == "columns"
    interval = found.predict_interval([0, 3], [1, 2], X=X_nan)
    assert_array_equal(interval, known.predict_interval([0, 3], [1, 2]))

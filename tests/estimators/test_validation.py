"""Tests of invalid input: type and message of every error."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import ncarl
from ncarl import NCARL, NCARLCV
from ncarl.exceptions import BrokenFileError, CheckpointMismatchError

FEW = {"max_iter": 2, "tol": 0}
X = np.array([[1.0, 2.0, np.nan], [2.0, np.nan, 6.5], [3.0, 6.0, 9.0], [1.0, 1.0, 1.0]])
NAN, INF = np.nan, np.inf


def frame(**columns):
    """A frame with one numeric column and the given ones."""
    return pd.DataFrame({"a": [1.0], **columns})


BAD_X = {
    "no rows": (np.empty((0, 3)), r"X.*0 sample"),
    "no columns": (np.empty((3, 0)), r"X.*0 feature"),
    "one axis": (np.ones(4), r"X.*Expected 2D array, got 1D"),
    "three axes": (np.ones((2, 2, 2)), r"X.*dim 3"),
    "all missing": (np.full((2, 3), NAN), r"X has no observed entry"),
    "infinite": (np.array([[1.0, INF]]), r"X contains infinity"),
    "complex": (np.ones((2, 2)) * 1j, r"Complex.*X must be real"),
    "complex list": ([[1j, 2.0]], r"X.*complex"),
    "objects with text": (np.array([[1.0, "a"]], object), r"X.*'a'"),
    "text": (np.array([["a", "b"]]), r"X.*'a'"),
    "None": (None, r"X.*scalar"),
    "a dict": ({"a": [1.0]}, r"X"),
    "dates": (np.array([["2020-01-01"]], "M8[D]"), r"X.*datetime64"),
    "frame with text": (frame(city=["Rome"]), r"X must hold numbers.*'city' \(str"),
    "frame with dates": (
        frame(when=pd.to_datetime(["2020-01-01"])),
        r"X must hold numbers.*'when' \(datetime",
    ),
    "frame with classes": (
        frame(kind=pd.Categorical(["b"])),
        r"X must hold numbers.*'kind' \(category",
    ),
    "frame with complex": (frame(z=[1j]), r"X must hold numbers.*'z' \(complex"),
    "frame with mixed objects": (
        frame(a=[1.0, 2.0], odd=pd.Series([1.0, "b"], dtype=object)),
        r"X must hold numbers.*'odd' \(object",
    ),
    "polars with text": (
        pl.DataFrame({"a": [1.0], "city": ["Rome"]}),
        r"X must hold numbers.*'city' \(String",
    ),
    "infinite frame": (frame(b=[INF]), r"X contains inf"),
    "frame without columns": (pd.DataFrame(index=[0]), r"X.*0 feature"),
    "frame with equal names": (
        pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]),
        r"X.*unique column names",
    ),
    "frame without rows": (frame().iloc[:0], r"X.*0 sample.*required by NCARL"),
    "sparse of one axis": (sparse.coo_array([1.0, 2.0]), r"X.*two axes"),
    "sparse complex": (sparse.csr_array([[1j]]), r"Complex.*X"),
    "sparse infinite": (sparse.csr_array([[INF]]), r"X.*infinity"),
    "sparse without entries": (sparse.csr_array((3, 3)), r"X has no obs"),
    "sparse without rows": (sparse.csr_array((0, 3)), r"X.*0 sample"),
}


@pytest.mark.parametrize("name", BAD_X)
def test_bad_matrix(name):
    given, message = BAD_X[name]
    # The errors of these two are raised by scikit-learn.
    error = (
        (TypeError, ValueError) if name in ("complex list", "a dict") else ValueError
    )
    with pytest.raises(error, match=f"(?s){message}"):
        NCARL(**FEW).fit(given)


BAD_PARAMETERS = [
    ({"alpha": -1}, ValueError, r"alpha must .*at least 0, got -1"),
    ({"alpha": NAN}, ValueError, r"alpha must"),
    ({"alpha": 1e101}, ValueError, r"alpha must .*at most 1e\+100, got 1e\+101"),
    ({"alpha": "1"}, TypeError, r"alpha must .*got '1'"),
    ({"alpha": np.ones(2)}, TypeError, r"alpha must"),
    (
        {"n_neighbors": 0},
        ValueError,
        r"n_neighbors must .*at least 1, got 0.*graph=None",
    ),
    ({"n_neighbors": 2.5}, ValueError, r"n_neighbors must be a whole number.*2\.5"),
    ({"n_neighbors": "ten"}, TypeError, r"n_neighbors must .*'ten'"),
    ({"gamma": 0}, ValueError, r"gamma must .*above 0, got 0; None is the exact"),
    ({"gamma": "x"}, TypeError, r"gamma must"),
    ({"delta": -1e-6}, ValueError, r"delta must"),
    ({"delta": 0, "weights": "pinv"}, ValueError, r"delta must .*above 0, got 0"),
    ({"weights": "foo"}, ValueError, r"weights must be one of 'floor'.*'foo'"),
    ({"graph": "foo"}, ValueError, r"graph must be one of 'adaptive'.*'foo'"),
    ({"graph": np.ones((3, 2))}, ValueError, r"graph must be a square.*\(3, 2\)"),
    ({"graph": np.ones((5, 5))}, ValueError, r"graph must be 3 x 3.*got 5 x 5"),
    ({"graph": -np.eye(3)}, ValueError, r"graph must .*at least 0"),
    ({"graph": NAN * np.eye(3)}, ValueError, r"graph must .*finite"),
    ({"graph": object()}, TypeError, r"graph must be 'adaptive'.*object"),
    ({"graph": 1j * np.eye(3)}, TypeError, r"graph must be 'adaptive'"),
    ({"center": "median"}, ValueError, r"center must be one of None, 'mean'.*'median'"),
    ({"orientation": "up"}, ValueError, r"orientation must be one of 'auto'.*'up'"),
    ({"max_iter": 0}, ValueError, r"max_iter must"),
    ({"tol": -1e-9}, ValueError, r"tol must"),
    ({"dtype": "float16"}, ValueError, r"dtype must be one of 'float64'.*'float16'"),
    ({"dtype": np.float32}, ValueError, r"dtype must"),
    ({"engine": "gpu"}, ValueError, r"engine must be .*'gpu'"),
    ({"engine": object()}, TypeError, r"engine must be .*got object"),
    ({"progress": "yes"}, TypeError, r"progress must be True or False, got 'yes'"),
    ({"callback": 3}, TypeError, r"callback must be None or callable, got 3"),
    ({"checkpoint": 3}, TypeError, r"checkpoint must be None or a path, got 3"),
    ({"checkpoint": "/"}, FileExistsError, r"checkpoint '/' is a folder"),
    ({"checkpoint": "no/such/folder/x"}, FileNotFoundError, r"checkpoint.*'no/such/f"),
    ({"scale": "rows"}, ValueError, r"scale must be one of None, 'columns'"),
    (
        {"scale": "columns", "orientation": "rows"},
        ValueError,
        r"scale='columns' needs .*orientation='rows'",
    ),
]
BAD_SEARCHES = [
    ({"alphas": ()}, ValueError, r"alphas must hold at least one value"),
    ({"gammas": []}, ValueError, r"gammas must hold at least one value"),
    ({"centers": ()}, ValueError, r"centers must hold at least one value"),
    ({"n_neighbors": ()}, ValueError, r"n_neighbors must hold at least one value"),
    ({"alphas": (0.0, -1.0)}, ValueError, r"alphas must"),
    ({"alphas": "0"}, TypeError, r"alphas must"),
    ({"gammas": (None, 0)}, ValueError, r"gamma"),
    ({"centers": ("two-way", "median")}, ValueError, r"centers must .*'median'"),
    ({"n_neighbors": (3, 0)}, ValueError, r"n_neighbors must"),
    ({"validation": 1}, ValueError, r"validation must be below 1, got 1"),
    ({"random_state": -1}, ValueError, r"random_state must"),
    ({"search_iter": 0}, ValueError, r"search_iter must"),
    ({"search_tol": -1}, ValueError, r"search_tol must"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_PARAMETERS)
def test_bad_parameter(options, error, message):
    with pytest.raises(error, match=message):
        NCARL(**{**FEW, **options}).fit(X)


@pytest.mark.parametrize(("options", "error", "message"), BAD_PARAMETERS)
def test_bad_parameter_of_a_search(options, error, message):
    # Searched parameters have plural names.
    plural = {"alpha": "alphas", "gamma": "gammas", "center": "centers"}
    given = {plural.get(name, name): value for name, value in options.items()}
    if isinstance(given.get("alphas"), np.ndarray):
        given["alphas"] = [given["alphas"]]
    message = message.replace("alpha ", "alphas ").replace("center ", "centers ")
    with pytest.raises(error, match=message):
        NCARLCV(**{**FEW, **given}).fit(X)


@pytest.mark.parametrize(("options", "error", "message"), BAD_SEARCHES)
def test_bad_search(options, error, message):
    with pytest.raises(error, match=message):
        NCARLCV(**FEW, **options).fit(X)


def test_parameters_are_checked_before_the_data():
    with pytest.raises(ValueError, match="alpha"):
        NCARL(alpha=-1).fit(None)


@pytest.fixture(scope="module")
def models():
    names = pd.DataFrame(X, columns=["a", "b", "c"])
    return NCARL(**FEW).fit(X), NCARL(**FEW, gamma=0.1).fit(names)


FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
EXACT, NOISY = 0, 1
BAD_CALLS = [
    (EXACT, "transform", (X[:, :2],), {}, r"X has 2 features.*expecting 3"),
    (EXACT, "transform", (X + INF,), {}, r"X contains infinity"),
    (EXACT, "transform", (sparse.csr_array(X[:, :2]),), {}, r"X has 2 features"),
    (NOISY, "transform", (FRAME.drop(columns="c"),), {}, r"X.*missing.*c"),
    (NOISY, "transform", (FRAME[["b", "a", "c"]],), {}, r"X.*feature names"),
    (NOISY, "transform", (FRAME.rename(columns={"a": "z"}),), {}, r"X.*z"),
    (EXACT, "transform", (X,), {"return_std": True}, r"return_std needs.*gamma"),
    (EXACT, "predict", ([0], [0], True), {}, r"return_std needs.*gamma"),
    (NOISY, "transform", (FRAME,), {"return_std": "maybe"}, r"return_std.*'maybe'"),
    (NOISY, "transform", (FRAME,), {"return_std": 1}, r"return_std must.*got 1"),
    (EXACT, "transform", (X,), {"keep_observed": "no"}, r"keep_observed must.*'no'"),
    (
        EXACT,
        "transform",
        (sparse.csr_array(np.ones((2, 3))),),
        {"max_dense_gb": "1"},
        r"max_dense_gb must",
    ),
    (EXACT, "predict", ([4], [0]), {}, r"rows must lie between 0 and 3, got 4"),
    (EXACT, "predict", ([0], [3]), {}, r"cols must lie between 0 and 2, got 3"),
    (EXACT, "predict", ([0], [-2]), {}, r"cols must lie between"),
    (EXACT, "predict", ([0.0], [0]), {}, r"rows must be.*whole numbers.*float64"),
    (EXACT, "predict", ([0], [True]), {}, r"cols must be.*whole numbers.*bool"),
    (EXACT, "predict", ([[0]], [0]), {}, r"rows must be.*shape \(1, 1\)"),
    (EXACT, "predict", ([0, 1], [0]), {}, r"rows and cols.*2 and 1"),
    (EXACT, "predict", (X[:, :2],), {}, r"X has 2 features"),
    (EXACT, "predict", ([0],), {}, r"X.*Expected 2D"),
    (EXACT, "predict", ([3], [0]), {"X": X[:2]}, r"rows must lie between 0 and 1"),
    (EXACT, "score", (X, X[:2]), {}, r"y must have the shape of X.*\(2, 3\)"),
    (EXACT, "score", (X, X), {}, r"nothing to score.*X.*y"),
    (EXACT, "score", (X, X + INF), {}, r"y: .*infinity"),
    (EXACT, "score", ([[1.0, NAN, NAN]],), {}, r"nothing to score"),
]


@pytest.mark.parametrize(("which", "method", "args", "options", "message"), BAD_CALLS)
def test_bad_call(models, which, method, args, options, message):
    error = (TypeError, ValueError)
    with pytest.raises(error, match=f"(?s){message}"):
        getattr(models[which], method)(*args, **options)


@pytest.mark.parametrize("kind", [NCARL, NCARLCV])
@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("transform", (X,)),
        ("predict", ([0], [0])),
        ("predict", (X,)),
        ("score", (X,)),
        ("save", ("model",)),
        ("get_feature_names_out", ()),
    ],
)
def test_unfitted(kind, method, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFittedError, match=kind.__name__):
        getattr(kind(), method)(*args)
    assert list(tmp_path.iterdir()) == []


class TestFiles:
    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="no-model"):
            ncarl.load(tmp_path / "no-model")

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04"])
    def test_foreign(self, tmp_path, content):
        (tmp_path / "foreign").write_bytes(content)
        with pytest.raises(BrokenFileError, match=r"foreign.*not a file written by"):
            ncarl.load(tmp_path / "foreign")

    def test_truncated(self, tmp_path):
        NCARL(**FEW).fit(X).save(tmp_path / "model")
        whole = (tmp_path / "model").read_bytes()
        (tmp_path / "model").write_bytes(whole[:-1])
        with pytest.raises(BrokenFileError, match=r"path.*model.*damaged"):
            ncarl.load(tmp_path / "model")

    def test_checkpoint_is_not_a_model(self, tmp_path):
        NCARL(**FEW, checkpoint=tmp_path / "state").fit(X)
        with pytest.raises(
            BrokenFileError, match="holds a checkpoint, expected a model"
        ):
            ncarl.load(tmp_path / "state")
        search = NCARLCV(**FEW, alphas=(0,), gammas=(None,), centers=(None,))
        search.set_params(checkpoint=tmp_path / "search").fit(np.vstack([X, X]))
        with pytest.raises(BrokenFileError, match="holds a search, expected a model"):
            ncarl.load(tmp_path / "search")

    def test_model_is_not_a_checkpoint(self, tmp_path):
        NCARL(**FEW).fit(X).save(tmp_path / "model")
        with pytest.raises(
            BrokenFileError, match="holds a model, expected a checkpoint"
        ):
            NCARL(**FEW, checkpoint=tmp_path / "model").fit(X)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"alpha": 3.0}, r"alpha \(100.0 there, 3.0 here\)"),
            *(
                ({name: value}, name)
                for name, value in (
                    ("n_neighbors", 3),
                    ("gamma", 0.1),
                    ("graph", None),
                    ("delta", 1e-3),
                    ("graph", np.eye(3)),
                    ("weights", "smooth"),
                    ("center", "mean"),
                    ("orientation", "rows"),
                    ("dtype", "float32"),
                    ("scale", "columns"),
                )
            ),
        ],
    )
    def test_checkpoint_of_other_parameters(self, tmp_path, options, message):
        NCARL(**FEW, checkpoint=tmp_path / "state").fit(X)
        before = (tmp_path / "state").read_bytes()
        with pytest.raises(CheckpointMismatchError, match=f"checkpoint.*{message}"):
            NCARL(**FEW, **options, checkpoint=tmp_path / "state").fit(X)
        assert (tmp_path / "state").read_bytes() == before

    def test_checkpoint_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        # Simulated, since root may write to any folder.
        monkeypatch.setattr("os.access", lambda path, mode: False)
        steps = []
        estimator = NCARL(**FEW, checkpoint=tmp_path / "x", callback=steps.append)
        with pytest.raises(PermissionError, match=r"checkpoint.*cannot be written"):
            estimator.fit(X)
        assert steps == []

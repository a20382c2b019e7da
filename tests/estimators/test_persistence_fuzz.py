"""Fuzzing of model files and checkpoints whose checksum is right and content is not.

A mutated file is refused by an error that names it, or gives a model that works: it
must not crash, raise another error, or return NaN. NCARL_FUZZ_CASES is the number of
mutated model files, NCARL_FUZZ_SEED another seed.
"""

import copy
import hashlib
import io
import os
import re
import sys
import warnings
import zipfile
from collections import Counter

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import ncarl
from ncarl import registry
from ncarl.exceptions import BrokenFileError, CheckpointMismatchError
from ncarl.io.files import MAGIC, read_archive
from ncarl.ratings import Recommender

CASES = int(os.environ.get("NCARL_FUZZ_CASES", "560"))
SEED = int(os.environ.get("NCARL_FUZZ_SEED", "0"))
FEW = {"max_iter": 3, "tol": 0}
GRID = {"alphas": (0.0, 1.0), "gammas": (None, 0.1), "search_iter": 2}
PLAIN = {"prior_strength": 0.1}
MODELS = {
    "exact": ncarl.NCARL(**FEW),
    "noisy": ncarl.NCARL(**FEW, gamma=0.1, scale="columns", center="two-way"),
    "rows": ncarl.NCARL(**FEW, gamma=0.1, orientation="rows", dtype="float32"),
    "given graph": ncarl.NCARL(**FEW, graph=np.eye(6)[::-1] + 0.5),
    "search": ncarl.NCARLCV(**FEW, **GRID),
    "wide": ncarl.WideNCARL(**FEW, gamma=0.1),
    "wide, float32": ncarl.WideNCARL(**FEW, center="two-way", dtype="float32"),
    "both sides": ncarl.BayesianNCARL(**FEW, sides="both", scale="columns"),
    "columns": ncarl.BayesianNCARL(
        **FEW, **PLAIN, sides="columns", rounding="observed", add_indicator=True,
        keep_empty_features=False,
    ),
    "bayes rows": ncarl.BayesianNCARL(**FEW, **PLAIN, sides="rows", noise=0),
    **{
        method.class_name: getattr(ncarl, method.class_name)(**FEW)
        for name, method in registry.METHODS.items()
        if name in registry.BASELINE_METHODS
    },
    "selected lam": ncarl.Nuclear(solver="apg", lam="auto", max_iter=3),
    "scaled": ncarl.BiasModel(scale="columns", max_iter=3),
}  # fmt: skip
RECOMMENDERS = {
    "recommender": ncarl.BayesianNCARL(**FEW, **PLAIN, sides="both"),
    "exact recommender": ncarl.NCARL(**FEW, gamma=0.1),
}
#: A loaded model may refuse a matrix that is not its own, or what it cannot do.
CLEAN = re.compile(
    r"X has \d+ features|must have the \d+ rows|completes the matrix of its fit"
    r"|training entries were not kept|feature names|a model of the noise"
    r"|draws from the kernel of the columns|not positive (semi)?definite"
    r"|set after the fit|must lie between 0 and|is not known|kernel sits on the rows"
    r"|numbers? marks? missing|on the scale of"
)
STRANGE = [
    None, True, -1, 0, 1, 2, 7, 10**8, 10**400, 2**31, 0.0, -1.0, 0.5, 1e-300, 1e9,
    1e200, -1e300, float("nan"), float("inf"), "", "x", "float32", "columns", [], [0],
    {}, {"array": "x"}, {"tuple": [1, 2]}, {"class": "Kernel", "fields": {}},
]  # fmt: skip
DTYPES = ["f4", "f8", "i4", "i8", ">f8", ">i8", "u1", "?", "c16", "U3", "V8"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module", name="X")
def make_matrix():
    rng = np.random.default_rng(1)
    X = 3.0 + rng.normal(size=(12, 2)) @ rng.normal(size=(2, 6))
    X[rng.random(X.shape) < 0.3] = np.nan
    X[4], X[:, 5] = np.nan, np.nan
    return X.round(1)


@pytest.fixture(scope="module")
def ratings(X):
    found = [(f"u{i}", j, x) for (i, j), x in np.ndenumerate(X) if x == x]
    return [(user, item, min(5.0, max(1.0, round(x)))) for user, item, x in found]


@pytest.fixture(scope="module")
def saved(X, ratings, tmp_path_factory):
    """Headers and arrays of all models, by name."""
    path, files = tmp_path_factory.mktemp("models") / "file", {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k, (name, model) in enumerate(MODELS.items()):
            model.fit(X).save(path, training_data=k % 3 > 0)
            files[name] = read_archive(path, "model")
        for name, model in RECOMMENDERS.items():
            recommender = Recommender(model).fit(ratings)
            recommender.add_user({0: 5, 1: 2}, "new")
            recommender.save(path)
            files[name] = read_archive(path, "recommender")
    return files


def write_signed(path, members):
    """Write (name, array) pairs, which need not be valid, with a valid checksum."""
    body = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(body, "w") as archive:
        warnings.simplefilter("ignore")  # of names that occur twice
        for name, content in members:
            part = io.BytesIO()
            np.lib.format.write_array(part, np.ascontiguousarray(content))
            archive.writestr(f"{name}.npy", part.getvalue())
    digest = hashlib.sha256(body.getvalue()).digest()
    path.write_bytes(MAGIC + digest + body.getvalue())


def write_mutated(path, header, arrays, rng):
    """Write a file after one mutation of a model, or a few; return what was done."""
    import json

    header, members, done = copy.deepcopy(header), list(arrays.items()), []
    for _ in range(1 if rng.random() < 0.8 else int(rng.integers(2, 4))):
        kind = ("header", "array", "structure")[rng.choice(3, p=[0.45, 0.45, 0.1])]
        done.append(MUTATIONS[kind](header, members, rng))
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    write_signed(path, [("__header__", text), *members])
    return done


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def places(node, path=()):
    """All containers and keys in a JSON header."""
    keys = node if isinstance(node, dict) else range(len(node))
    for key in list(keys):
        if len(path) or key not in ("version", "kind"):
            yield node, key, (*path, key)
        if isinstance(node[key], dict | list):
            yield from places(node[key], (*path, key))


def mutate_header(header, members, rng):
    if not (found := list(places(header))):
        return "nothing"
    node, key, path = pick(rng, found)
    action = pick(rng, ["strange"] * 4 + ["delete", "rename", "copy", "scale"])
    if action == "delete":
        del node[key]
    elif action == "rename" and isinstance(node, dict):
        node[pick(rng, ["x", *node])] = node.pop(key)
    elif action == "copy":
        other, its_key, _ = pick(rng, found)
        node[key] = copy.deepcopy(other[its_key])
    elif action == "scale" and isinstance(node[key], int | float):
        node[key] = node[key] * pick(rng, [-1, 2, 0.5, 1e30, 1e-30, 2.0**900])
    else:
        node[key] = pick(rng, STRANGE)
    return (action, path, node.get(key) if isinstance(node, dict) else node)


def mutate_array(header, members, rng):
    if not members:
        return "nothing"
    k = int(rng.integers(len(members)))
    name, array = members[k]
    action = pick(rng, list(ARRAY_MUTATIONS))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changed = ARRAY_MUTATIONS[action](np.array(array), members, rng)
    members[k] = name, changed
    return (action, name, changed if changed.size < 50 else changed.shape)


def set_entry(array, members, rng):
    if array.size and array.dtype.kind in "fib":
        whole = array.dtype.kind != "f"
        strange = [-1, 0, 1, 5, 10**8, 2**31 - 1, -(2**31)]
        value = pick(
            rng, strange if whole else [*strange, np.nan, np.inf, 1e300, -1e20]
        )
        array.flat[rng.integers(array.size)] = value
    return array


def set_pair(array, members, rng):
    """A matrix that is still symmetric."""
    square = array.ndim == 2 and array.shape[0] == array.shape[1] > 0
    if square and array.dtype.kind == "f":
        i, j = rng.integers(len(array), size=2)
        array[i, j] = array[j, i] = pick(rng, [0.0, 1e9, 1e200, -1.0, 1e-300])
    return array


def swap(array, members, rng):
    k = int(rng.integers(len(members)))
    other, members[k] = members[k][1], (members[k][0], array)
    return np.asarray(other)


ARRAY_MUTATIONS = {
    "set entry": set_entry,
    "set entries": lambda a, _, rng: set_entry(set_entry(a, _, rng), _, rng),
    "set pair": set_pair,
    "swap": swap,
    "retype": lambda a, _, rng: a.astype(pick(rng, DTYPES)),
    "shorten": lambda a, _, rng: a[:-1] if a.ndim else a,
    "narrow": lambda a, _, rng: a[..., 1:] if a.ndim else a,
    "empty": lambda a, _, rng: a[:0] if a.ndim else a,
    "empty columns": lambda a, _, rng: a[..., :0] if a.ndim else a,
    "repeat": lambda a, _, rng: np.concatenate([a, a]) if a.ndim else a,
    "transpose": lambda a, _, rng: a.T,
    "flatten": lambda a, _, rng: a.ravel(),
    "add axis": lambda a, _, rng: a[None],
    "scalar": lambda a, _, rng: np.asarray(a.flat[0]) if a.size else a,
    "reverse": lambda a, _, rng: a[::-1] if a.ndim else a,
    "shuffle": lambda a, _, rng: rng.permutation(a) if a.ndim else a,
    "scale": lambda a, _, rng: (
        a * pick(rng, [-1, 0, 1e-200, 1e140, 1e300]) if a.dtype.kind == "f" else -a
        if a.dtype.kind == "i" else ~a
    ),
}  # fmt: skip


def mutate_structure(header, members, rng):
    if not members:
        return "nothing"
    k, action = int(rng.integers(len(members))), int(rng.integers(4))
    if action == 0:
        return ("drop", members.pop(k)[0])
    name = (members[k][0], "foreign", "__header__")[action - 1]
    members.insert(int(rng.integers(len(members) + 1)), (name, members[k][1]))
    return ("add", name)


MUTATIONS = {
    "header": mutate_header, "array": mutate_array, "structure": mutate_structure,
}  # fmt: skip


def outputs(name, path, X):
    """What a loaded model gives for X, result by result."""
    if name in RECOMMENDERS:
        model = Recommender.load(path)
        yield from recommender_outputs(model)
        return
    model = ncarl.load(path)
    given = X[:, np.isfinite(X).any(axis=0)] if hasattr(X, "shape") else X
    rows, cols = [0, 3, 3], [1, 0, 2]
    yield "transform", lambda: model.transform(X)
    yield "new rows", lambda: model.transform(X[:3])
    yield "std", lambda: model.transform(X, return_std=True)[1]
    yield "latent", lambda: model.predict(X, return_std="latent")[1]
    yield "predict", lambda: model.predict(rows, cols)
    yield "predict", lambda: model.predict(rows, cols, X=X)
    if isinstance(model, ncarl.BayesianNCARL):
        yield "interval", lambda: model.predict_interval(X, level=0.8)
        yield "sample", lambda: model.sample(2, X=X)
    if isinstance(model, ncarl.WideNCARL):
        yield "kernel", lambda: model.kernel(rows, cols)
    elif hasattr(type(model), "kernel_"):
        yield "kernel", lambda: model.kernel_
    yield "names", lambda: len(model.get_feature_names_out()) + len(given.shape)


def recommender_outputs(model):
    users, items = model.users[:3], model.items[:3]
    yield "predict", lambda: model.predict(users[0], items)
    yield "unknown", lambda: model.predict("nobody", items)
    yield "interval", lambda: model.predict_interval(users, items)
    for user in [None, users[0], model.users[-1]]:
        yield (
            "list",
            lambda user=user: [
                row.predicted for row in model.recommend(user, 3, exclude_seen=False)
            ],
        )
    yield "similar", lambda: [row.similarity for row in model.similar_items(items[0])]
    yield "explain", lambda: model.explain(users[0], items[1]).value
    yield "ratings", lambda: [row[1] for row in model.ratings_of(model.users[-1])]


def try_file(name, path, X):
    """Load a file and use the model; return the kind of the outcome."""
    kind = "works"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            calls = list(outputs(name, path, X))
        except BrokenFileError as error:
            assert str(path) in str(error)
            return "refused"
        for what, call in calls:
            try:
                result = call()
            except (ValueError, TypeError) as error:
                assert CLEAN.search(str(error)), (what, error)
                kind = "works in part"
                continue
            for part in result if isinstance(result, tuple) else [result]:
                values = np.ma.filled(part, np.nan)
                assert np.isfinite(values).all(), (what, values)
    return kind


def test_unchanged_files_work(saved, X, tmp_path):
    rng = np.random.default_rng(0)
    for name, (header, arrays) in saved.items():
        path = tmp_path / "file"
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(
                globals(), "MUTATIONS", dict.fromkeys(MUTATIONS, lambda *_: 0)
            )
            write_mutated(path, header, arrays, rng)
        assert try_file(name, path, X) != "refused", name


def test_mutated_files_are_refused_or_work(saved, X, tmp_path, capsys):
    rng, path, kinds = np.random.default_rng(SEED), tmp_path / "file", Counter()
    names = list(saved)
    for case in range(CASES):
        name = names[case % len(names)]
        done = write_mutated(path, *saved[name], rng)
        try:
            kinds[try_file(name, path, X)] += 1
        except Exception as error:
            raise AssertionError(f"case {case}: {name}, {done}") from error
    with capsys.disabled():
        if CASES > 1000:
            sys.stdout.write(f"{dict(kinds)}\n")
    assert kinds["refused"] > 0.5 * CASES


RESUMED = {
    "exact": ncarl.NCARL(max_iter=2, tol=0),
    "float32": ncarl.NCARL(max_iter=2, tol=0, gamma=0.1, dtype="float32"),
    "wide": ncarl.WideNCARL(max_iter=2, tol=0, gamma=0.1),
    "search": ncarl.NCARLCV(max_iter=2, tol=0, **GRID),
    "bayes": ncarl.BayesianNCARL(**FEW, **PLAIN, sides="both"),
    **{
        name: getattr(ncarl, name)(max_iter=2, tol=0)
        for name in (
            "Nuclear",
            "FGSR",
            "RegL1",
            "LRFD",
            "S3LR",
            "SoftImpute",
            "BiasModel",
        )
    },
    "learned": ncarl.LRFD(dictionary="learned", max_iter=2, tol=0),
    "proximal": ncarl.Nuclear(solver="apg", lam=0.1, max_iter=2, tol=0),
    "svt": ncarl.Nuclear(solver="svt", max_iter=2, tol=0),
}
PARTS = ("", ".fit", ".columns", ".rows")


def resume(model, path, X):
    """Continue a fit from its files for one more step; the completed matrix."""
    more = 0 if isinstance(model, ncarl.BayesianNCARL) else 1
    model = copy.copy(model).set_params(checkpoint=path)
    return model.set_params(max_iter=model.max_iter + more).fit_transform(X)


@pytest.fixture(scope="module")
def kept(X, tmp_path_factory):
    """Contents of the checkpoint files of all models."""
    folder, files = tmp_path_factory.mktemp("checkpoints"), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in RESUMED.items():
            path = folder / name
            copy.copy(model).set_params(checkpoint=path).fit(X)
            found = {part: folder / f"{name}{part}" for part in PARTS}
            files[name] = {
                part: (
                    its.read_bytes(),
                    read_archive(its, "checkpoint", "search", "stages"),
                )
                for part, its in found.items()
                if its.exists()
            }
    return files


def test_mutated_checkpoints_are_refused_or_resumed(kept, X, tmp_path, capsys):
    rng, kinds, names = np.random.default_rng(SEED), Counter(), list(kept)
    for case in range(CASES // 4):
        name, path = names[case % len(names)], tmp_path / "file"
        for part in PARTS:
            (tmp_path / f"file{part}").unlink(missing_ok=True)
        for part, (content, _) in kept[name].items():
            (tmp_path / f"file{part}").write_bytes(content)
        part = pick(rng, list(kept[name]))
        done = write_mutated(tmp_path / f"file{part}", *kept[name][part][1], rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                assert np.isfinite(resume(RESUMED[name], path, X)).all()
                kinds["resumed"] += 1
            except (BrokenFileError, CheckpointMismatchError):
                kinds["refused"] += 1
            except np.linalg.LinAlgError:
                kinds["not positive definite"] += 1
            except Exception as error:
                raise AssertionError(f"case {case}: {name}{part}, {done}") from error
    with capsys.disabled():
        if CASES > 1000:
            sys.stdout.write(f"{dict(kinds)}\n")
    assert kinds["refused"] > 0.3 * sum(kinds.values())

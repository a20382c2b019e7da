"""A seeded fuzzer: any estimator, any container, any values.

The contract is that the result has the shape of the input, is finite, and keeps what
was observed, except where nothing is known and nothing is imputed; or that a ValueError
or TypeError of this package (or of scikit-learn's validation) names the problem; within
60 seconds either way.

300 cases run by default; the environment variable ``NCARL_FUZZ_CASES=5000`` runs more.
Counts by kind are properties of the JUnit report (``--junit-xml``).
"""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import ncarl
from ncarl.exceptions import NumericalWarning
from ncarl.images import inpaint
from ncarl.panel import counterfactual, fill_gaps
from ncarl.ratings import Recommender

N_CASES = int(os.environ.get("NCARL_FUZZ_CASES", "300"))
N_GROUPS = 10
MAX_SECONDS = 60.0


def incomplete_matrix(rng):
    """A small matrix with values and missing entries of many kinds."""
    m, n = rng.integers(1, 24, 2)
    if rng.random() < 0.04:
        m, n = rng.choice([0, 1], 2)
    X = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    X += 0.1 * rng.standard_normal((m, n))
    kind = rng.integers(12)
    if kind == 0:
        X = np.round(X * 2)
    elif kind == 1:
        X *= 10.0 ** rng.choice([-310.0, -300, -20, 20, 300, 307])
    elif kind == 2:
        X[:] = rng.choice([0.0, -0.0, 1.0, 1e300, 5e-324])
    elif kind == 3:
        X *= 10.0 ** rng.uniform(-200, 200, n)
    elif kind == 4:
        X = X.round() > 0.0 * X
    elif kind == 5 and X.size:
        X.flat[rng.integers(X.size)] = rng.choice([np.inf, -np.inf, 1.7e308])
    X = X.astype(np.float64)
    X[rng.random(X.shape) < rng.choice([0.0, 0.1, 0.4, 0.8, 0.97, 1.0])] = np.nan
    for axis, size in enumerate(X.shape):
        if rng.random() < 0.2 and size:
            X[(slice(None),) * axis + (rng.integers(size),)] = np.nan
    return X


def to_csr(X):
    seen = ~np.isnan(X)
    return sparse.csr_array((X[seen], np.nonzero(seen)), shape=X.shape)


def pandas_frame(X):
    return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])


def as_file(X, folder, suffix):
    path = folder / f"X{suffix}"
    if suffix == ".npy":
        np.save(path, X)
    elif suffix == ".npz":
        sparse.save_npz(path, to_csr(X))
    elif suffix == ".parquet":
        pandas_frame(X).to_parquet(path)
    else:
        pandas_frame(X).to_csv(path, index=False)
    return ncarl.open_rows(path)


CONTAINERS = {
    "array": lambda X, _: X,
    "fortran": lambda X, _: np.asfortranarray(X),
    "float32": lambda X, _: np.clip(X, -3e38, 3e38).astype(np.float32),
    "list": lambda X, _: X.tolist(),
    "object": lambda X, _: np.where(np.isnan(X), None, X.astype(object)),
    "masked": lambda X, _: np.ma.MaskedArray(X, np.isnan(X)),
    "csr": lambda X, _: to_csr(X),
    "csr matrix": lambda X, _: sparse.csr_matrix(to_csr(X)),
    "csc": lambda X, _: to_csr(X).tocsc(),
    "coo": lambda X, _: to_csr(X).tocoo(),
    "lil": lambda X, _: to_csr(X).tolil(),
    "dok": lambda X, _: to_csr(X).todok(),
    "pandas": lambda X, _: pandas_frame(X),
    "nullable": lambda X, _: pandas_frame(X).astype("Float64"),
    "pandas sparse": lambda X, _: pandas_frame(X).astype(pd.SparseDtype(float)),
    "arrow": lambda X, _: pandas_frame(X).astype("double[pyarrow]"),
    "polars": lambda X, _: pl.from_pandas(pandas_frame(X)),
    "blocks": lambda X, _: [X[:3], X[3:]],
    "function": lambda X, _: ncarl.open_rows(lambda: iter([X[:3], X[3:]])),
    **{
        suffix: lambda X, folder, suffix=suffix: as_file(X, folder, suffix)
        for suffix in (".npy", ".npz", ".parquet", ".csv")
    },
}
INVALID = {
    "series": lambda X, _: pandas_frame(X).get("c0", "no column"),
    "text": lambda X, _: pandas_frame(X).astype(str),
    "vector": lambda X, _: X.ravel(),
    "cube": lambda X, _: X[None],
    "lazy": lambda X, _: pl.from_pandas(pandas_frame(X)).lazy(),
    "nothing": lambda X, _: None,
    "records": lambda X, _: pandas_frame(X).to_dict("records"),
    "bytes": lambda X, _: X.tobytes(),
    "complex": lambda X, _: X + 1j,
    "dates": lambda X, _: np.zeros(X.shape, dtype="datetime64[D]"),
}
#: Containers of logs and panels.
TABLES = ("array", "fortran", "float32", "list", "masked", "pandas", "nullable")
TABLES += ("pandas sparse", "arrow", "polars")
#: Refusals of other libraries that do not say what is wrong with the input.
UNCLEAR = ("setting an array element", "float() argument", "operands could not be")
SMALL = {"max_iter": 4, "tol": 0}
ESTIMATORS = {
    "NCARL": lambda rng: ncarl.NCARL(
        **SMALL,
        alpha=rng.choice([0.0, 1.0, 100.0]),
        gamma=rng.choice([None, 0.1]),
        graph=rng.choice([None, "adaptive", "fixed"]),
        weights=rng.choice(["floor", "pinv", "smooth"]),
        center=rng.choice([None, "mean", "columns", "two-way"]),
        orientation=rng.choice(["auto", "columns", "rows"]),
        n_neighbors=int(rng.integers(1, 30)),
        dtype=rng.choice(["float32", "float64"]),
    ),
    "NCARLCV": lambda rng: ncarl.NCARLCV(
        **SMALL, alphas=(1.0,), gammas=(None, 0.1), search_iter=2
    ),
    "BayesianNCARL": lambda rng: ncarl.BayesianNCARL(
        **SMALL,
        sides=rng.choice(["auto", "columns", "rows", "both"]),
        prior=rng.choice(["co-observation", "identity"]),
        center=rng.choice([None, "columns", "two-way"]),
        scale=rng.choice(["auto", None, "columns"]),
        noise=rng.choice(["learn", "per-column"]),
        rounding=rng.choice([None, "observed"]),
        keep_empty_features=bool(rng.random() < 0.8),
        validation=rng.choice([0.0, 0.1, 0.5]),
    ),
    "WideNCARL": lambda rng: ncarl.WideNCARL(
        **SMALL, gamma=rng.choice([None, 0.1]), center=rng.choice([None, "two-way"])
    ),
    **{
        name: lambda rng, name=name: getattr(ncarl, name)(
            **SMALL, scale=rng.choice([None, "columns"])
        )
        for name in (
            *("Nuclear", "FactoredNuclear", "SchattenP", "WNNM", "RegL1", "FGSR"),
            *("LRFD", "S3LR", "SoftImpute", "BiasModel"),
        )
    },
    "TableImputer": lambda rng: ncarl.TableImputer(
        **SMALL,
        transform_skewed=rng.choice(["auto", None, "power"]),
        rounding=rng.choice(["integers", "whole", None]),
        keep_empty_features=bool(rng.random() < 0.8),
        missing_values=rng.choice([np.nan, -1.0]),
        max_categories=int(rng.choice([1, 3, 30])),
    ),
}


def pick_container(rng, valid=tuple(CONTAINERS)):
    """The name of a container, mostly of a valid one, and what makes it."""
    kinds = {kind: CONTAINERS[kind] for kind in valid}
    if rng.random() < 0.15:
        kinds = CONTAINERS | INVALID
    kind = rng.choice(list(kinds))
    return kind, kinds[kind]


def dense(values):
    """A result as an array of floats, NaN where missing."""
    if hasattr(values, "collect"):
        values = values.collect()
    if isinstance(values, pl.DataFrame):
        return values.to_numpy().astype(np.float64)
    if isinstance(values, pd.DataFrame | pd.Series):
        return values.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    return np.array(values, dtype=np.float64)


def check(filled, X, *, empty=False):
    """Whether a completed matrix has its shape, is finite, and keeps what is known."""
    assert filled.shape == X.shape
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(filled[seen], X[seen])
    wanted = np.ones(X.shape, dtype=bool)
    if empty:  # rows and columns without observed entries stay empty
        wanted = np.outer(seen.any(axis=1), seen.any(axis=0))
    assert np.isfinite(filled[wanted]).all()


def run_matrix(rng, folder):
    """Complete a matrix in some container by some estimator, and use the model."""
    name = rng.choice(list(ESTIMATORS))
    X, estimator = incomplete_matrix(rng), ESTIMATORS[name](rng)
    kind, make = pick_container(rng)
    yield f"{name}, {kind} of shape {X.shape}"
    given = make(X, folder)
    filled = estimator.fit(given).transform(given)
    if kind == "text":  # categories
        return
    if kind == "float32":
        X = given.astype(np.float64)
    marked = name == "TableImputer" and estimator.missing_values == -1.0
    X = np.where(X == -1.0, np.nan, X) if marked else X
    if not getattr(estimator, "keep_empty_features", True):
        X = X[:, ~np.isnan(X).all(axis=0)]
    if X.shape[1]:  # a polars frame without columns has no rows either
        found = dense(filled)
        found[np.isnan(X) & (found == -1.0) & marked] = np.nan
        check(found, X, empty=name == "TableImputer")
    if name == "TableImputer":
        for ends in estimator.predict_interval(given):
            assert not np.isinf(dense(ends)).any()
        return
    if kind in ("array", "csr", "pandas", "polars"):
        assert np.isfinite(estimator.score(given))
        i, j = rng.integers(0, given.shape[0], 5), rng.integers(0, given.shape[1], 5)
        assert np.isfinite(estimator.predict(i, j)).all()
        if estimator._noise_level() > 0.0:
            filled, std = estimator.transform(given, return_std=True)
            assert np.isfinite(dense(std)).all() and (dense(std) >= 0.0).all()
        rows = rng.integers(0, X.shape[0], 3)
        some = given[rows] if kind in ("array", "csr", "polars") else given.iloc[rows]
        assert np.isfinite(dense(estimator.transform(some))).all()


def mixed_frame(rng):
    """A table with columns of every type that users bring."""
    m = int(rng.integers(1, 40))
    latent = rng.standard_normal(m)
    hidden = rng.random(m) < rng.choice([0.0, 0.3, 0.9, 1.0])
    makers = [
        lambda z: pd.Series(z).mask(hidden),
        lambda z: pd.Series(np.exp(4 * z)).mask(hidden).astype("Float64"),
        lambda z: pd.Series(z / 0.0 * 0.0, dtype="float64").fillna(1.0),
        lambda z: pd.Series(pd.array(np.rint(5 * z), dtype="Int64")).mask(hidden),
        lambda z: pd.Series(np.rint(5 * z).astype(int)),
        lambda z: pd.Series(z > 0).astype("boolean").mask(hidden),
        lambda z: pd.Series(np.where(z > 0, "yes", "no")).mask(hidden),
        lambda z: pd.Series(pd.Categorical(np.digitize(z, [-1, 0, 1]))).mask(hidden),
        lambda z: pd.Series(np.where(z > 0, True, None), dtype=object),
        lambda z: pd.Series([f"name {k}" for k in range(m)]),
        lambda z: pd.Series(pd.Timestamp("2024-01-01"), index=range(m)),
        lambda z: pd.Series(pd.arrays.SparseArray(np.where(hidden, np.nan, z))),
        lambda z: pd.Series(z).mask(hidden).astype("double[pyarrow]"),
        lambda z: pd.Series([1 if v > 0 else "1" for v in z], dtype=object),
        lambda z: pd.Series([1 + 2j] * m),
        lambda z: pd.Series(z * 1e300).mask(hidden),
    ]
    chosen = rng.integers(0, len(makers), rng.integers(1, 6))
    with np.errstate(all="ignore"):
        return pd.DataFrame({f"c{k}": makers[c](latent) for k, c in enumerate(chosen)})


def run_table(rng, folder):
    """Impute a mixed table; cells change only where they are missing."""
    frame = mixed_frame(rng)
    arrow = not {"complex128", "object", "Sparse[float64, nan]"} & {
        *map(str, frame.dtypes)
    }
    use_polars = arrow and rng.random() < 0.4
    yield f"TableImputer, {[str(kind) for kind in frame.dtypes]} of {len(frame)} rows"
    given = pl.from_pandas(frame) if use_polars else frame
    imputer = ESTIMATORS["TableImputer"](rng).set_params(missing_values=np.nan)
    out = imputer.fit_transform(given)
    if use_polars:
        out, frame = out.to_pandas(), given.to_pandas()
    assert len(out) == len(frame) or not len(out.columns)
    for column in out.columns:
        before, after = frame[column], out[column]
        seen = before.notna().to_numpy()
        if pd.api.types.is_numeric_dtype(before.dtype):
            np.testing.assert_array_equal(dense(before[seen]), dense(after[seen]))
        else:
            assert before[seen].astype(str).tolist() == after[seen].astype(str).tolist()
        if pd.api.types.is_float_dtype(after.dtype):
            assert not np.isinf(dense(after)).any()


def run_gaps(rng, folder):
    """Fill the gaps of a log."""
    X = incomplete_matrix(rng)
    X = np.repeat(X, rng.integers(1, 9), axis=0)
    X[:1] = np.where(np.isnan(X[:1]) & (rng.random() < 0.8), 1.0, X[:1])
    kind, make = pick_container(rng, TABLES)
    period = rng.choice([None, None, None, 2, 2, 7, 1000, 10**9, -1])
    yield f"fill_gaps, {kind} of shape {X.shape}, period {period}"
    given = make(X, folder)
    if kind in ("pandas", "nullable") and rng.random() < 0.5:
        given.index = pd.date_range("2024-01-01", periods=len(given), freq="h")
    filled, std = fill_gaps(given, period, return_std=True)
    X = given.astype(np.float64) if kind == "float32" else X
    X = X[:, :1] if kind == "series" else X
    check(dense(filled).reshape(X.shape), X)
    assert not np.isinf(dense(std)).any()


def run_panel(rng, folder):
    """The effect of a treatment in a panel."""
    X = incomplete_matrix(rng)
    kind, make = pick_container(rng, TABLES)
    X = np.where(np.isnan(X) & (rng.random() < 0.5), 1.0, X)
    start = int(rng.integers(-2, X.shape[1] + 2))
    unit = int(rng.integers(0, X.shape[0] + 1))
    yield f"counterfactual, {kind} of shape {X.shape}, unit {unit}, start {start}"
    given = make(X, folder)
    if kind in ("pandas", "nullable") and X.shape[1]:
        given.columns = range(X.shape[1])
    found = counterfactual(given, treated=[unit], start=start, placebos=X.size < 100)
    assert found.expected.shape == X.shape
    assert np.isfinite(found.expected[found.treated]).all()
    assert len(str(found)) > 0


def run_ratings(rng, folder):
    """Recommend from ratings with odd ids and values."""
    count = int(rng.integers(0, 60))
    ids = [1, "a", None, "\x1b[31m", 2.5, "", "ü" * 40, -7, True]
    pool = ids[: rng.integers(1, len(ids) + 1)] if rng.random() < 0.4 else range(12)
    frame = pd.DataFrame(
        {
            "user": rng.choice(np.array(list(pool), dtype=object), count),
            "item": rng.integers(0, 9, count),
            "rating": rng.choice([1.0, 2, 3, 4, 5], count),
        }
    )
    frame["rating"] *= rng.choice([1.0, 1.0, 1e300, 1e-300, 3e307])
    if rng.random() < 0.7:
        frame = frame.drop_duplicates(["user", "item"])
    yield f"Recommender, {len(frame)} ratings of {frame['user'].map(repr).nunique()}"
    model = ncarl.BayesianNCARL(**SMALL, sides="columns", validation=0.0)
    recommender = Recommender(model, duplicates=rng.choice(["error", "mean"]))
    recommender.fit(frame)
    user, n = frame["user"].iloc[0], int(rng.integers(1, 20))
    found = recommender.recommend(user, n=n, exclude_seen=bool(rng.random() < 0.5))
    assert np.isfinite(dense(found["predicted"])).all()
    found = recommender.predict(frame["user"][:4], frame["item"][:4])
    assert np.isfinite(dense(found)).all()


def run_picture(rng, folder):
    """Repair a picture."""
    h, w = rng.integers(1, 24, 2)
    shape = (h, w, *rng.choice([1, 2, 3, 4, 5], int(rng.random() < 0.6)))
    image = rng.random(shape)
    if rng.random() < 0.4:
        image = (image * 255).astype(np.uint8)
    elif rng.random() < 0.2:
        image *= 10.0 ** rng.choice([-300, 10, 300])
    mask = rng.random((h, w)) < rng.choice([0.0, 0.1, 0.6, 1.0])
    method = rng.choice(["patches", "matrix", "patches", "no such"])
    yield f"inpaint, {method}, shape {shape}, {image.dtype}"
    filled = inpaint(image, mask, method)
    assert filled.shape == image.shape and np.isfinite(filled).all()
    np.testing.assert_array_equal(filled[~mask], image[~mask])


RUNS = [run_matrix] * 12 + [run_table] * 4 + [run_gaps, run_panel] * 2
RUNS += [run_ratings, run_picture]


def is_ours(error):
    """Whether an error was raised by this package or scikit-learn's validation."""
    frames = [str(f.filename) for f in traceback.extract_tb(error.__traceback__)]
    ours = ("/ncarl/", "sklearn/utils/", "sklearn/base", "sklearn/impute")
    return any(part in frames[-1].replace(os.sep, "/") for part in ours)


def run_case(seed, folder):
    """Run one case; its kind and outcome, or a failed assertion that describes it."""
    rng = np.random.default_rng(seed)
    run = RUNS[rng.integers(len(RUNS))]
    steps, start = run(rng, folder), time.monotonic()
    what = next(steps)
    outcome = "completed"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for allowed in (UserWarning, ConvergenceWarning, NumericalWarning):
            warnings.simplefilter("ignore", allowed)
        try:
            next(steps, None)
        except (ValueError, TypeError) as error:
            said = str(error)
            clear = len(said) > 10 and not said.removeprefix("X: ").startswith(UNCLEAR)
            assert clear and is_ours(error), f"case {seed}: {what}: {error!r}"
            outcome = "refused"
        except Exception as error:
            raise AssertionError(f"case {seed}: {what}: {error!r}") from error
    seconds = time.monotonic() - start
    assert seconds < MAX_SECONDS, f"case {seed}: {what}: {seconds:.0f} s"
    return run.__name__.removeprefix("run_"), outcome


@pytest.mark.parametrize("group", range(N_GROUPS))
def test_any_input_is_completed_or_refused(group, tmp_path, record_property):
    with threadpool_limits(1):
        found = Counter(
            run_case(seed, tmp_path) for seed in range(group, N_CASES, N_GROUPS)
        )
    for kind, count in found.items():
        record_property(" ".join(kind), count)
    assert sum(count for (_, outcome), count in found.items()
               if outcome == "completed") > 0.3 * found.total()  # fmt: skip

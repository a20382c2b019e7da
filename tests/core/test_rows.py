"""Tests of the row step: both forms and both backends agree."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import ncarl.blocks
import ncarl.core.rows
from ncarl.blocks import cut_blocks, mask_groups
from ncarl.core.rows import (
    Kernel,
    complete_rows,
    dual_gram,
    duals_to_csr,
    observed_gram,
    outer_sum,
    pieces,
    row_backend,
    row_duals,
    row_gram,
    use_precision_form,
)
from ncarl.core.types import RowSums
from ncarl.dataset import DataSummary
from ncarl.exceptions import NotPositiveDefiniteError
from ncarl.observations import Observations

pytestmark = pytest.mark.usefixtures("one_blas_thread")
SIDES = ["observed", "missing", "cheaper"]
NOISES = [0.0, 1.0, 1e-2, 1e-5, 1e-10]


@st.composite
def masks(draw, most_rows=9, most_columns=9):
    """Masks that include empty, full, single-entry and repeated rows."""
    n = draw(st.integers(1, most_columns))
    m = draw(st.integers(1, most_rows))
    seen = draw(arrays(bool, (m, n)))
    for special in draw(st.lists(st.sampled_from(["empty", "full", "one", "equal"]))):
        i = draw(st.integers(0, m - 1))
        if special == "one":
            seen[i] = np.arange(n) == draw(st.integers(0, n - 1))
        elif special == "equal":
            seen[i] = seen[draw(st.integers(0, m - 1))]
        else:
            seen[i] = special == "full"
    return seen


def naive(V, seen, K, s):
    """Rows and duals with one explicit inverse per row."""
    X, Y = np.zeros(V.shape), np.zeros(V.shape)
    for i, o in enumerate(seen):
        block = np.linalg.inv(K[np.ix_(o, o)] + s * np.eye(o.sum()))
        Y[i, o] = V[i, o] @ block
        X[i] = Y[i, o] @ K[o]
    return X, Y


def dense(block, X, Y):
    """Rows and duals of a block as dense matrices in row order."""
    rows, duals = np.full(X.shape, np.nan), np.full(X.shape, np.nan)
    rows[block.rows] = X
    duals[block.rows] = duals_to_csr(block, Y).toarray()
    return rows, duals


@pytest.mark.parametrize("side", SIDES)
@given(seen=masks(), s=st.sampled_from(NOISES), seed=st.integers(0, 99))
def test_rows_and_duals_are_those_of_the_formula(
    backend, side, masked, well_conditioned, solved_on, kernel_for, seen, s, seed
):
    rng = np.random.default_rng(seed)
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, seen.shape[1])
    (block,) = cut_blocks(masked(V, seen), 1)
    with solved_on(side):
        kernel = kernel_for(K, s, side)
        X, Y, jitter = complete_rows(block, kernel=kernel, backend=backend)
        Y_alone, _ = row_duals(block, kernel=kernel, backend=backend)
    rows, duals = dense(block, X, Y)
    expected_rows, expected_duals = naive(V, seen, K, s)
    np.testing.assert_allclose(rows, expected_rows, rtol=0, atol=1e-10)
    np.testing.assert_allclose(duals, expected_duals, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(Y, Y_alone)
    assert jitter == 0.0


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("shape", "share", "s", "dtype", "tol"),
    [
        *[((30, 40), 0.5, s, "float32", 2e-4) for s in (0.0, 1.0, 1e-3)],
        # Systems of 50 to 270 columns, above the limits of plain code and batches.
        *[((5, 320), share, 0.1, "float64", 1e-10) for share in (0.15, 0.5, 0.85)],
    ],
)
def test_single_precision_and_large_rows_match_the_formula(
    backend, side, shape, share, s, dtype, tol, rng, masked, well_conditioned,
    solved_on, kernel_for,
):  # fmt: skip
    seen = rng.random(shape) < share
    seen[3] = seen[4]
    V = rng.standard_normal(shape).astype(dtype)
    K = well_conditioned(rng, shape[1], dtype)
    (block,) = cut_blocks(masked(V, seen), 1)
    with solved_on(side):
        X, Y, _ = complete_rows(block, kernel=kernel_for(K, s, side), backend=backend)
    assert X.dtype == Y.dtype == dtype
    for found, expected in zip(
        dense(block, X, Y), naive(V, seen, K.astype(float), s), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=tol)


def test_exact_rows_keep_observed_values_exactly(
    backend, rng, masked, well_conditioned, solved_on, kernel_for
):
    seen = rng.random((20, 15)) < 0.6
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, 15)
    (block,) = cut_blocks(masked(V, seen), 1)
    for side in SIDES:
        with solved_on(side):
            X, _, _ = complete_rows(
                block, kernel=kernel_for(K, 0.0, side), backend=backend
            )
        np.testing.assert_array_equal(X[np.argsort(block.rows)][seen], V[seen])


@given(seen=masks(most_rows=12), n_blocks=st.integers(1, 15), seed=st.integers(0, 99))
def test_sums_do_not_depend_on_how_rows_are_cut(
    backend, masked, well_conditioned, kernel_for, seen, n_blocks, seed
):
    rng = np.random.default_rng(seed)
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, seen.shape[1])
    observed = masked(V, seen)
    kernel = kernel_for(K, 0.3, "cheaper")
    X, Y = naive(V, seen, K, 0.3)
    blocks = cut_blocks(observed, n_blocks)
    assert sorted(np.concatenate([b.rows for b in blocks])) == list(range(len(seen)))
    rows = [row_gram(b, kernel=kernel, backend=backend) for b in blocks]
    duals = [dual_gram(b, kernel=kernel, backend=backend) for b in blocks]
    close = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(sum(r.gram for r in rows), X.T @ X, **close)
    np.testing.assert_allclose(sum(d.gram for d in duals), Y.T @ Y, **close)
    np.testing.assert_allclose(
        sum(observed_gram(b, backend=backend) for b in blocks),
        (V * seen).T @ (V * seen),
        **close,
    )
    for sums in (rows, duals):
        assert sum(p.fit for p in sums) == pytest.approx(np.sum(V * Y), abs=1e-10)


@pytest.mark.parametrize("share", [0.05, 0.9])
@pytest.mark.parametrize("s", [0.0, 1.0])
def test_gram_of_rows_is_the_transformed_gram_of_duals(
    backend, share, s, rng, masked, well_conditioned, kernel_for
):
    # One density selects sparse outer products, the other dense ones.
    seen = rng.random((60, 80)) < share
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, 80)
    (block,) = cut_blocks(masked(V, seen), 1)
    kernel = kernel_for(K, s, "observed")
    G = row_gram(block, kernel=kernel, backend=backend).gram
    YtY = dual_gram(block, kernel=kernel, backend=backend).gram
    np.testing.assert_allclose(K @ YtY @ K, G, rtol=0, atol=1e-10 * np.abs(G).max())
    np.testing.assert_array_equal(YtY, YtY.T)
    np.testing.assert_array_equal(G, G.T)


def test_pieces_add_up_to_the_block(
    backend, rng, masked, well_conditioned, kernel_for, monkeypatch
):
    seen = rng.random((40, 12)) < 0.5
    seen[:15] = seen[0]
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, 12)
    (block,) = cut_blocks(masked(V, seen), 1)
    kernel = kernel_for(K, 0.5, "cheaper")
    whole = row_gram(block, kernel=kernel, backend=backend)
    total = outer_sum(block, block.values, backend)
    monkeypatch.setattr(ncarl.core.rows, "MAX_PIECE_ENTRIES", 12 * 4)
    parts = list(pieces(block))
    assert len(parts) > 5
    assert [i for part in parts for i in part.rows] == list(block.rows)
    cut_up = row_gram(block, kernel=kernel, backend=backend)
    np.testing.assert_allclose(cut_up.gram, whole.gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        outer_sum(block, block.values, backend), total, rtol=1e-12
    )
    assert cut_up.fit == pytest.approx(whole.fit)


def test_sums_are_added_with_the_maximum_jitter():
    total = RowSums(np.eye(2), 1.0, 1e-8, ((0.0, 0.1, 0.3),))
    total += RowSums(np.ones((2, 2)), 3.0, 1e-12, ((1.0, 1.2, 1.5),))
    np.testing.assert_array_equal(total.gram, [[2, 1], [1, 2]])
    assert (total.fit, total.jitter) == (4.0, 1e-8)
    assert total.timestamps == ((0.0, 0.1, 0.3), (1.0, 1.2, 1.5))


@given(seen=masks(most_rows=20, most_columns=4))
def test_groups_hold_exactly_the_rows_of_equal_mask(seen):
    observed = Observations.from_dense(np.where(seen, 1.0, np.nan))
    order, starts = mask_groups(observed)
    assert sorted(order) == list(range(len(seen)))
    found = [seen[order[a:b]] for a, b in itertools.pairwise(starts)]
    assert all((group == group[0]).all() for group in found)
    sizes = Counter(map(bytes, seen))
    assert Counter({bytes(group[0]): len(group) for group in found}) == sizes
    assert len(found) == len(sizes)


def test_groups_are_limited_to_the_piece_size(monkeypatch):
    monkeypatch.setattr(ncarl.blocks, "MAX_PIECE_ENTRIES", 3 * 4)
    observed = Observations.from_dense(np.ones((11, 3)))
    _, starts = mask_groups(observed)
    assert np.diff(starts).max() == 4
    assert starts[-1] == 11


@given(seen=masks(), s=st.sampled_from([1.0, 1e-3]), seed=st.integers(0, 99))
def test_variances_are_those_of_the_textbook(masked, well_conditioned, seen, s, seed):
    rng = np.random.default_rng(seed)
    K = well_conditioned(rng, seen.shape[1])
    (block,) = cut_blocks(masked(np.ones(seen.shape), seen), 1)
    kernel = Kernel(K, None, s)
    found = row_backend().variances(block, kernel)
    i = np.sort(rng.integers(0, len(seen), 2 * len(seen)))  # with repetitions
    j = rng.integers(0, seen.shape[1], len(i))
    few = row_backend().variances_at(block, kernel, i, j)
    np.testing.assert_allclose(few, found[i, j], atol=1e-12)
    found = found[np.argsort(block.rows)]
    for o, variances in zip(seen, found, strict=True):
        A = np.linalg.inv(K[np.ix_(o, o)] + s * np.eye(o.sum()))
        posterior = K - K[:, o] @ A @ K[o]
        np.testing.assert_allclose(variances, posterior.diagonal() + s, atol=1e-12)


def test_cheaper_form_is_selected():
    assert not use_precision_form([1, 10], 100).any()
    assert use_precision_form([90, 100], 100).all()
    few = Observations.from_dense(np.where(np.eye(60) > 0, 1.0, np.nan))
    many = Observations.from_dense(np.where(np.eye(60) > 0, np.nan, 1.0))
    assert not DataSummary.from_observations(few).needs_precision(few.shape[1])
    assert DataSummary.from_observations(many).needs_precision(many.shape[1])


SIZES = [8, 40]  # below and above the size limit of the plain Cholesky


@pytest.fixture(params=[1, 3])
def alternating_block(request, n, rng, masked):
    """A block of one or three rows in which every third column is observed."""
    seen = np.tile(np.arange(n) % 3 == 0, (request.param, 1))
    (block,) = cut_blocks(masked(rng.standard_normal(seen.shape), seen), 1)
    return block


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("side", ["observed", "missing"])
def test_near_singular_blocks_get_recorded_jitter(
    backend, side, n, alternating_block, solved_on
):
    block, singular = alternating_block, np.ones((n, n))
    kernel = Kernel(singular, singular if side == "missing" else None, 0.0)
    with solved_on(side):
        X, Y, jitter = complete_rows(block, kernel=kernel, backend=backend)
        recorded = row_gram(block, kernel=kernel, backend=backend).jitter
    assert 0.0 < jitter <= 1e-4
    assert recorded == jitter
    assert np.isfinite(X).all()
    assert np.isfinite(Y).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("side", ["observed", "missing"])
@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_indefinite_kernels_raise(backend, side, n, bad, alternating_block, solved_on):
    indefinite = np.diag(np.where(np.arange(n) % 4 < 2, 1.0, bad))
    kernel = Kernel(indefinite, indefinite if side == "missing" else None, 0.0)
    size = len(range(0, n, 3)) if side == "observed" else n - len(range(0, n, 3))
    message = rf"{size} x {size}.*raise delta.*gamma.*floor"
    with solved_on(side), pytest.raises(NotPositiveDefiniteError, match=message):
        complete_rows(alternating_block, kernel=kernel, backend=backend)


def test_numpy_is_used_if_numba_fails_to_load(monkeypatch, caplog):
    real = importlib.import_module

    def refuse(name):
        if name == "ncarl.core.rows_numba":
            raise RuntimeError("no locator available")
        return real(name)

    row_backend.cache_clear()
    monkeypatch.setattr(importlib, "import_module", refuse)
    try:
        assert row_backend("auto").__name__ == "ncarl.core.rows_numpy"
        assert "no locator available" in caplog.text
    finally:
        row_backend.cache_clear()


READ_ONLY = """
import logging, numba.core.caching, numpy as np, sys, tempfile
# The first one reads NUMBA_CACHE_DIR, the others look for a folder that can be written.
del numba.core.caching.CacheImpl._locator_classes[1:]
logging.basicConfig(level="WARNING", format="%(message)s")
from ncarl import NCARL, Threads
from ncarl.core.rows import row_backend
from ncarl.panel import fill_gaps
if sys.argv[1] == "absent":
    tempfile._candidate_tempdir_list = list
row_backend()
print(numba.core.config.CACHE_DIR)
X = np.arange(12.0).reshape(4, 3) + 1.0
X[1, 1] = np.nan
if sys.argv[1] in ("absent", "empty"):
    print(NCARL(max_iter=1, tol=0.0, engine=Threads(1)).fit(X).engine_)
    assert np.isfinite(fill_gaps(X)).all()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs owners of files")
@pytest.mark.parametrize("temporary", ["empty", "open", "linked", "absent"])
def test_compiled_code_is_cached_where_only_the_user_writes(tmp_path, temporary):
    pytest.importorskip("numba")
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    private = tmp_path / f"ncarl-numba-{os.getuid()}"
    if temporary == "open":
        private.mkdir()
        private.chmod(0o777)
    elif temporary == "linked":
        (tmp_path / "other").mkdir(mode=0o700)
        private.symlink_to("other")
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, temporary], capture_output=True, text=True,
        env=environment | {"TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder, *engine = done.stdout.splitlines()
    if temporary == "absent":
        assert "numpy rows (Numba does not load)" in engine[0]
        assert "set NUMBA_CACHE_DIR" in done.stderr
        return
    assert not done.stderr
    assert (Path(folder) == private) == (temporary == "empty")
    assert Path(folder).parent == tmp_path and not Path(folder).is_symlink()
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert temporary != "empty" or (
        "numba rows" in engine[0] and any(private.iterdir())
    )


@pytest.mark.parametrize("piece", [10, 1_000_000])
def test_masks_with_equal_fingerprints_are_distinguished(monkeypatch, piece):
    class ConstantKeys:
        """Give all columns the same key, so that masks of equal size collide."""

        def integers(self, *_, size, dtype):
            return np.ones(size, dtype=dtype)

    X = np.full((40, 5), np.nan)
    for row, first in enumerate(np.tile([0, 0, 1, 2, 2, 2, 3, 1], 5)):
        X[row, first : first + 2] = 1.0
    monkeypatch.setattr(ncarl.blocks.np.random, "default_rng", lambda _: ConstantKeys())
    monkeypatch.setattr(ncarl.blocks, "MAX_PIECE_ENTRIES", piece)
    observed = Observations.from_dense(X)
    order, starts = mask_groups(observed)
    assert sorted(order) == list(range(40))
    grouped = 0
    for top, bottom in itertools.pairwise(starts):
        masks = {tuple(observed.row_columns(i)) for i in order[top:bottom]}
        assert len(masks) == 1
        grouped += bottom - top > 1
    # Adjacent equal masks are still grouped; a tiny piece holds two rows.
    assert grouped > 0

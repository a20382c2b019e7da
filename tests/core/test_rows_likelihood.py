"""Tests of likelihood sums over rows: every backend against the direct formula."""

from __future__ import annotations

import importlib
from functools import reduce
from operator import iadd

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import multivariate_normal

from ncarl.blocks import cut_blocks
from ncarl.core.rows import (
    Kernel,
    row_likelihood,
    row_log_likelihoods,
    use_precision_form,
)
from ncarl.core.types import LikelihoodSums
from ncarl.engines.threads import Threads
from ncarl.exceptions import NotPositiveDefiniteError

pytestmark = pytest.mark.usefixtures("one_blas_thread")
AMPLE, TINY = 2**28, 1
SIDES = ["observed", "missing", "cheaper"]
N = 90


class Way:
    """A row kernel and its device."""

    def __init__(self, backend, device=None):
        self.backend, self.device, self.budget = backend, device, AMPLE

    def place(self, block, **options):
        if self.device is None:
            return block
        placed = importlib.import_module("ncarl.core.rows_torch")
        return placed.DeviceBlock.from_block(
            block, self.device, placed.MemoryBudget(self.budget), **options
        )

    def send(self, array):
        if self.device is None or array is None:
            return array
        return importlib.import_module("torch").tensor(array, device=self.device)

    def __call__(self, block, kernel, **options):
        """Compute the sums over a block as NumPy arrays."""
        there = kernel.map_arrays(self.send)
        sums = row_likelihood(
            self.place(block), kernel=there, backend=self.backend, **options
        )
        return fetch(sums)


def fetch(sums):
    """Convert the tensors of sums to NumPy arrays."""
    here = lambda a: a.cpu().numpy() if hasattr(a, "cpu") else a  # noqa: E731
    names = ("B", "missing_inverse_sum", "sum_y", "fit", "log_det")
    return LikelihoodSums(
        **{name: here(getattr(sums, name)) for name in names},
        n_precision_rows=sums.n_precision_rows,
        jitter=sums.jitter,
        timestamps=sums.timestamps,
    )


@pytest.fixture(
    scope="module", params=["numpy", "numba", "torch", "torch-cuda", "torch-library"]
)
def way(request):
    """Every available row kernel; on a GPU with and without Triton kernels."""
    backend, _, where = request.param.partition("-")
    if backend != "torch":
        pytest.importorskip(backend)
        yield Way(backend)
        return
    torch = pytest.importorskip("torch")
    if where and not torch.cuda.is_available():
        pytest.skip("no GPU")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as change:
        if where == "library":
            for name in ("cuda", "rows_torch"):
                change.setattr(f"ncarl.core.{name}.load_triton_kernels", lambda: None)
        yield Way(backend, torch.device("cuda" if where else "cpu"))
    torch.set_num_threads(before)


def naive(V, seen, K, s, offsets=None, scales=None, weights=None):
    """Sums over all rows with one explicit inverse per row."""
    weights = np.ones(len(V)) if weights is None else weights
    n = len(K)
    B, pull, fit, log_det = np.zeros((n, n)), np.zeros(n), 0.0, 0.0
    V = V.astype(float) - (0.0 if offsets is None else offsets)
    V = V * (1.0 if scales is None else scales)
    for v, o, w in zip(V, seen, weights, strict=True):
        if o.any():
            A = K[np.ix_(o, o)].astype(float) + s * np.eye(o.sum())
            inverse = np.linalg.inv(A)
            y = inverse @ v[o]
            B[np.ix_(o, o)] += w * (inverse - np.outer(y, y))
            pull[o] += w * y
            fit += w * v[o] @ y
            log_det += w * np.linalg.slogdet(A)[1]
    return B, pull, fit, log_det


def complete_sums(sums, kernel):
    """``B`` and ``log_det`` including the terms of the precision form."""
    if kernel.P is None:
        assert sums.missing_inverse_sum is None
        assert sums.n_precision_rows == 0
        return sums.B, sums.log_det
    P, count = kernel.P.astype(float), sums.n_precision_rows
    np.testing.assert_array_equal(sums.missing_inverse_sum, sums.missing_inverse_sum.T)
    B = sums.B + count * P - P @ sums.missing_inverse_sum.astype(float) @ P
    return B, sums.log_det - count * np.linalg.slogdet(P)[1]


def check(sums, kernel, expected, tol=1e-11):
    """Check sums up to a relative tolerance."""
    B, log_det = complete_sums(sums, kernel)
    for found, wanted in zip((B, sums.sum_y, sums.fit, log_det), expected, strict=True):
        size = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tol * size)
    np.testing.assert_array_equal(sums.B, sums.B.T)


def mixed_mask(rng, n=N):
    """Mask with empty rows, full rows and rows with equal masks."""
    seen = rng.random((40, n)) < np.linspace(0.02, 0.98, 40)[:, None]
    seen[3], seen[30] = False, True
    seen[11:14], seen[35:38], seen[25] = seen[10], seen[34], seen[30]
    return seen


@pytest.fixture
def mixed(rng, masked, well_conditioned):
    """Mask, values, kernel matrix and block of `mixed_mask`."""
    seen = mixed_mask(rng)
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, N)
    (block,) = cut_blocks(masked(V, seen), 1)
    return seen, V, K, block


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("s", [0.0, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_match_the_formula(
    way, side, s, dtype, rng, masked, well_conditioned, solved_on, kernel_for
):
    seen = mixed_mask(rng)
    V = rng.standard_normal(seen.shape).astype(dtype)
    K = well_conditioned(rng, N, dtype)
    kernel = kernel_for(K, s, side)
    (block,) = cut_blocks(masked(V, seen), 1)
    with solved_on(side):
        sums = way(block, kernel)
    assert sums.B.dtype == sums.sum_y.dtype == dtype
    check(sums, kernel, naive(V, seen, K, s), 1e-11 if dtype == "float64" else 2e-4)
    assert sums.jitter == 0.0
    counts = seen.sum(axis=1)
    pays = {
        "observed": np.zeros(len(seen), dtype=bool),
        "missing": counts > 0,
        "cheaper": use_precision_form(counts, N) & (counts > 0),
    }
    assert sums.n_precision_rows == pays[side].sum()
    (span,) = sums.timestamps
    assert len(span) == 3


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("sent", [False, True])
def test_values_are_shifted_and_scaled_by_column(
    way, side, shifted, scaled, sent, rng, mixed, kernel_for
):
    seen, V, K, block = mixed
    offsets = rng.standard_normal(N) if shifted else None
    scales = rng.random(N) + 0.5 if scaled else None
    kernel = kernel_for(K, 1.0, side)
    before = block.values.copy()
    given = {"offsets": offsets, "scales": scales}
    expected = naive(V, seen, K, 1.0, **given)
    if sent:  # arrays on the device or on the host
        given = {name: way.send(array) for name, array in given.items()}
    check(way(block, kernel, **given), kernel, expected)
    np.testing.assert_array_equal(block.values, before)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_large_rows_match_the_formula(
    way, side, share, rng, masked, well_conditioned, solved_on, kernel_for
):
    # Above the batch limits on the host; several column blocks on a device.
    n = 420
    seen = rng.random((5, n)) < share
    seen[3] = seen[4]
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, n)
    kernel = kernel_for(K, 0.1, side)
    (block,) = cut_blocks(masked(V, seen), 1)
    with solved_on(side):
        check(way(block, kernel), kernel, naive(V, seen, K, 0.1))


@st.composite
def masks(draw):
    """Masks that include empty, full and repeated rows."""
    m, n = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    seen = draw(arrays(bool, (m, n)))
    for special in draw(st.lists(st.sampled_from(["empty", "full", "equal"]))):
        i = draw(st.integers(0, m - 1))
        if special == "equal":
            seen[i] = seen[draw(st.integers(0, m - 1))]
        else:
            seen[i] = special == "full"
    return seen


@pytest.mark.parametrize("side", SIDES)
@given(seen=masks(), s=st.sampled_from([0.0, 1.0, 1e-2]), seed=st.integers(0, 99))
def test_small_matrices_of_any_mask(
    way, side, masked, well_conditioned, solved_on, kernel_for, seen, s, seed
):
    rng = np.random.default_rng(seed)
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, seen.shape[1])
    kernel, offsets = kernel_for(K, s, side), rng.standard_normal(seen.shape[1])
    (block,) = cut_blocks(masked(V, seen), 1)
    with solved_on(side):
        sums = way(block, kernel, offsets=offsets)
    check(sums, kernel, naive(V, seen, K, s, offsets), 1e-10)


@pytest.mark.parametrize("side", SIDES)
def test_sums_are_derivatives_of_the_log_evidence(
    way, side, rng, masked, well_conditioned, solved_on, kernel_for
):
    # Central differences in the kernel and in the offsets.
    seen = mixed_mask(rng)[::4]
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, N)
    S, d, h = rng.standard_normal((N, N)), rng.standard_normal(N), 1e-5
    S = (S + S.T) / N
    (block,) = cut_blocks(masked(V, seen), 1)

    def minus_twice_log(K, offsets):
        _, _, fit, log_det = naive(V, seen, K, 1.0, offsets)
        return fit + log_det

    kernel = kernel_for(K, 1.0, side)
    with solved_on(side):
        sums = way(block, kernel)
    B, _ = complete_sums(sums, kernel)
    ends = [minus_twice_log(K + t * S, None) for t in (h, -h)]
    assert np.sum(B * S) == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)
    ends = [minus_twice_log(K, t * d) for t in (h, -h)]
    slope = -2.0 * sums.sum_y @ d
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("n_blocks", [2, 7])
@pytest.mark.parametrize("side", SIDES)
def test_sums_of_blocks_add_up_to_those_of_all_rows(
    way, side, n_blocks, rng, masked, well_conditioned, solved_on, kernel_for
):
    seen = mixed_mask(rng)
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, N)
    kernel = kernel_for(K, 1.0, side)
    blocks = cut_blocks(masked(V, seen), n_blocks)
    assert len(blocks) == n_blocks
    with solved_on(side):
        parts = [way(block, kernel) for block in blocks]
    first = parts[0].B
    sums = reduce(iadd, parts)
    assert sums.B is first
    assert len(sums.timestamps) == n_blocks
    check(sums, kernel, naive(V, seen, K, 1.0))


def test_sums_are_added_with_the_maximum_jitter():
    one = LikelihoodSums(np.eye(2), np.eye(2), 1, np.ones(2), 1.0, 2.0, 1e-8, ("a",))
    B = np.ones((2, 2))
    two = LikelihoodSums(B, np.eye(2), 4, np.ones(2), 3.0, 5.0, 0.0, ("b",))
    one += two
    np.testing.assert_array_equal(one.B, [[2, 1], [1, 2]])
    np.testing.assert_array_equal(one.missing_inverse_sum, 2 * np.eye(2))
    np.testing.assert_array_equal(one.sum_y, [2, 2])
    assert (one.n_precision_rows, one.fit, one.log_det, one.jitter) == (5, 4, 7, 1e-8)
    assert one.timestamps == ("a", "b")
    np.testing.assert_array_equal(two.B, np.ones((2, 2)))


def test_sums_do_not_depend_on_the_number_of_threads(
    backend, rng, masked, well_conditioned, kernel_for
):
    seen = mixed_mask(rng)
    V, K = rng.standard_normal(seen.shape), well_conditioned(rng, N)
    blocks, kernel = cut_blocks(masked(V, seen), 5), kernel_for(K, 1.0, "cheaper")
    shared = {"kernel": kernel, "offsets": rng.standard_normal(N)}
    one, many = (
        reduce(
            iadd, Threads(jobs, kernel=backend).map(row_likelihood, blocks, **shared)
        )
        for jobs in (1, 3)
    )
    np.testing.assert_array_equal(one.B, many.B)
    np.testing.assert_array_equal(one.missing_inverse_sum, many.missing_inverse_sum)
    assert (one.fit, one.log_det) == (many.fit, many.log_det)
    check(many, kernel, naive(V, seen, K, 1.0, shared["offsets"]))


@pytest.mark.parametrize("side", SIDES)
class TestWeightsAndLikelihoodsOfRows:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_sums_match_the_weighted_formula(
        self, backend, side, dtype, rng, masked, well_conditioned, solved_on, kernel_for
    ):
        seen = mixed_mask(rng)
        V, w = (rng.standard_normal(seen.shape), rng.random(len(seen)))
        V, w = V.astype(dtype), w.astype(dtype)
        K, offsets = well_conditioned(rng, N, dtype), rng.standard_normal(N)
        kernel, (block,) = kernel_for(K, 0.5, side), cut_blocks(masked(V, seen), 1)
        assert len(block.groups) - 1 < block.n_rows  # some masks are equal
        with solved_on(side):
            sums = row_likelihood(
                block, kernel=kernel, offsets=offsets, backend=backend,
                weights=w[block.rows],
            )  # fmt: skip
        assert sums.B.dtype == sums.sum_y.dtype == dtype
        expected = naive(V, seen, K, 0.5, offsets, weights=w.astype(float))
        check(sums, kernel, expected, 1e-11 if dtype == "float64" else 2e-4)

    def test_whole_weights_equal_repeated_rows(
        self, backend, side, rng, masked, mixed, solved_on, kernel_for
    ):
        seen, V, K, block = mixed
        counts, kernel = rng.integers(0, 4, len(seen)), kernel_for(K, 1.0, side)
        assert (counts == 0).any()
        repeated = masked(np.repeat(V, counts, axis=0), np.repeat(seen, counts, axis=0))
        (many,) = cut_blocks(repeated, 1)
        with solved_on(side):
            weighted = row_likelihood(
                block, kernel=kernel, backend=backend,
                weights=counts[block.rows].astype(float),
            )  # fmt: skip
            plain = row_likelihood(many, kernel=kernel, backend=backend)
        assert weighted.n_precision_rows == plain.n_precision_rows
        B, log_det = complete_sums(plain, kernel)
        check(weighted, kernel, (B, plain.sum_y, plain.fit, log_det))

    def test_log_likelihoods_of_rows_match_scipy(
        self, backend, side, rng, mixed, solved_on, kernel_for
    ):
        seen, V, K, block = mixed
        mean, s = rng.standard_normal(N), 0.3
        expected = np.zeros(len(V))  # of rows without observed entries
        for i, o in enumerate(seen):
            if o.any():
                A = K[np.ix_(o, o)] + s * np.eye(o.sum())
                expected[i] = multivariate_normal.logpdf(V[i, o], mean[o], A)
        with solved_on(side):
            found = row_log_likelihoods(
                block, kernel=kernel_for(K, s, side), offsets=mean, backend=backend
            )
        np.testing.assert_allclose(found, expected[block.rows], rtol=1e-10, atol=1e-10)


@given(seen=masks(), data=st.data())
def test_kept_rows_of_a_block_are_those_of_the_matrix(masked, seen, data):
    V = np.arange(seen.size, dtype=float).reshape(seen.shape)
    kept = data.draw(arrays(bool, len(seen)))
    (block,) = cut_blocks(masked(V, seen), 1)
    part = block.take_rows(kept[block.rows])
    np.testing.assert_array_equal(part.rows, block.rows[kept[block.rows]])
    found = np.zeros_like(seen)
    for g in range(len(part.groups) - 1):
        rows, entries, o = part.group(g)
        assert rows.stop > rows.start
        where = np.ix_(part.rows[rows], o)
        np.testing.assert_array_equal(part.values[entries], V[where].ravel())
        found[where] = True
    np.testing.assert_array_equal(found, seen & kept[:, None])
    assert part.groups[-1] == part.n_rows == kept.sum()
    assert part.indptr[-1] == len(part.values) == found.sum()


class TestJitter:
    """Columns 0 and 1 form a nearly singular block."""

    PAIR = (0, 1)

    @pytest.fixture(params=["alone", "in a group"])
    def case(self, request, rng, nearly_singular):
        """Mask of rows with and without the pair of columns, values, and a kernel."""
        asked = rng.random((6, 40)) < 0.3
        asked[:, self.PAIR] = False
        asked[:, 2] = True
        asked[4, self.PAIR] = True
        if request.param == "in a group":
            asked[5] = asked[4]
        return asked, rng.standard_normal(asked.shape), nearly_singular

    @staticmethod
    def add_jitter(K, o, jitter):
        """``K_oo`` plus relative jitter on its diagonal."""
        A = K[np.ix_(o, o)]
        return A + jitter * np.mean(A.diagonal()) * np.eye(len(A))

    @pytest.mark.parametrize("budget", [AMPLE, TINY])
    @pytest.mark.parametrize("size", [1.0, 1e6])
    def test_observed_blocks_get_jitter(
        self, way, case, size, masked, budget, monkeypatch
    ):
        # The jitter of a large kernel must not reach the padding.
        seen, V, K = case
        K = size * K
        monkeypatch.setattr(way, "budget", budget)
        (block,) = cut_blocks(masked(V, seen), 1)
        sums = way(block, Kernel(K, None, 0.0))
        assert 1e-10 < sums.jitter <= 1e-4
        log_det = fit = 0.0
        for v, o in zip(V, seen, strict=True):
            A = self.add_jitter(K, o, sums.jitter if o[0] else 0.0)
            log_det += np.linalg.slogdet(A)[1]
            fit += v[o] @ np.linalg.solve(A, v[o])
        # The pair cancels to 1e-9, which loses nine digits.
        assert sums.log_det == pytest.approx(log_det, abs=1e-4)
        assert sums.fit == pytest.approx(fit, rel=1e-4)
        assert np.isfinite(sums.B).all()

    def test_missing_blocks_get_jitter(self, way, case, masked, solved_on):
        missing, V, P = case
        (block,) = cut_blocks(masked(V, ~missing), 1)
        with solved_on("missing"):
            sums = way(block, Kernel(P, P, 0.0))
        assert 1e-10 < sums.jitter <= 1e-4
        expected, total = 0.0, np.zeros_like(P)
        for u in missing:
            A = self.add_jitter(P, u, sums.jitter if u[0] else 0.0)
            expected += np.linalg.slogdet(A)[1]
            total[np.ix_(u, u)] += np.linalg.inv(A)
        assert sums.log_det == pytest.approx(expected, abs=1e-4)
        np.testing.assert_allclose(
            sums.missing_inverse_sum, total, rtol=0, atol=1e-4 * np.abs(total).max()
        )
        assert sums.n_precision_rows == 6

    def test_unchecked_failures_are_nan_on_a_device(self, way, case, masked):
        if way.device is None:
            pytest.skip("always checked here")
        seen, V, K = case
        (block,) = cut_blocks(masked(V, seen), 1)
        sums = way(block, Kernel(K, None, 0.0), checked=False)
        assert sums.jitter == 0.0
        assert np.isnan(sums.log_det) and np.isnan(sums.fit)
        held = np.flatnonzero(seen[4])
        assert np.isnan(sums.B[np.ix_(held, held)]).all()
        assert np.isnan(sums.sum_y[held]).all()

    @pytest.mark.parametrize("side", ["observed", "missing"])
    @pytest.mark.parametrize("bad", [-1.0, np.nan])
    def test_indefinite_kernels_raise(self, way, side, bad, masked, solved_on):
        seen = np.arange(40)[None] % 3 == 0
        (block,) = cut_blocks(masked(np.ones(seen.shape), seen), 1)
        K = np.diag(np.where(np.arange(40) % 4 < 2, 1.0, bad))
        kernel = Kernel(K, K if side == "missing" else None, 0.0)
        message = {"observed": "14 x 14", "missing": "26 x 26"}[side]
        with (
            solved_on(side),
            pytest.raises(NotPositiveDefiniteError, match=rf"{message}.*raise delta"),
        ):
            way(block, kernel)


class TestOnADevice:
    @pytest.fixture(autouse=True)
    def device_only(self, way):
        if way.device is None:
            pytest.skip("knows no device")

    @staticmethod
    def unchecked_sums(way, placed, kernel, mean, scales):
        return row_likelihood(
            placed, kernel=kernel.map_arrays(way.send), offsets=mean, scales=scales,
            backend="torch", checked=False,
        )  # fmt: skip

    @pytest.mark.parametrize("side", SIDES)
    @pytest.mark.parametrize("budget", [TINY, 30_000, 300_000])
    def test_small_budgets_give_the_same_sums(
        self, way, side, budget, rng, mixed, solved_on, kernel_for, monkeypatch
    ):
        seen, V, K, block = mixed
        kernel, mean = kernel_for(K, 1.0, side), rng.standard_normal(N)
        monkeypatch.setattr(way, "budget", budget)
        with solved_on(side):
            sums = way(block, kernel, offsets=mean)
        check(sums, kernel, naive(V, seen, K, 1.0, mean))

    def test_block_is_not_modified(self, way, rng, mixed):
        seen, V, K, block = mixed
        placed, kernel = way.place(block), Kernel(K, None, 1.0).map_arrays(way.send)
        for offsets in (rng.standard_normal(N), None):
            sums = row_likelihood(
                placed, kernel=kernel, offsets=offsets, backend="torch"
            )
        check(fetch(sums), Kernel(K, None, 1.0), naive(V, seen, K, 1.0))

    @pytest.mark.parametrize("side", ["observed", "cheaper"])
    def test_replayed_sums_follow_kernel_offsets_and_scales(
        self, way, side, rng, mixed, kernel_for
    ):
        cuda = importlib.import_module("ncarl.core.cuda")
        if way.device.type != "cuda" or cuda.load_triton_kernels() is None:
            pytest.skip("no CUDA graph is captured here")
        seen, V, K, block = mixed
        placed, before = way.place(block, use_cuda_graph=True), None
        for size in (1.0, 3.0, 0.5, 1.0):
            kernel, mean = kernel_for(size * K, 1.0, side), rng.standard_normal(N)
            scales = rng.random(N) + 0.5
            sums = self.unchecked_sums(way, placed, kernel, mean, scales)
            if before is not None:  # earlier sums are not overwritten
                check(fetch(before[0]), *before[1:])
            before = (sums, kernel, naive(V, seen, size * K, 1.0, mean, scales))
            check(fetch(sums), *before[1:])
        plans = placed.plans.values()
        assert any(isinstance(plan, cuda.CudaGraph) for plan in plans)

    def test_replayed_graph_uses_the_current_values(
        self, way, rng, mixed, kernel_for, monkeypatch
    ):
        cuda = importlib.import_module("ncarl.core.cuda")

        class FakeGraph:
            """Repeat the recorded work, as a CUDA graph does."""

            def __init__(self, work, kernel, needed):
                self.work = work

            def replay(self, kernel):
                return self.work(kernel)

        monkeypatch.setattr(cuda, "CudaGraph", FakeGraph)
        monkeypatch.setattr(cuda, "_warmed_up_keys", set())
        monkeypatch.setattr("ncarl.core.rows_torch.load_triton_kernels", object)
        seen, V, K, block = mixed
        kernel = kernel_for(K, 1.0, "cheaper")
        placed = way.place(block, use_cuda_graph=True)
        for _ in range(3):
            mean, scales = rng.standard_normal(N), rng.random(N) + 0.5
            sums = self.unchecked_sums(way, placed, kernel, mean, scales)
            check(fetch(sums), kernel, naive(V, seen, K, 1.0, mean, scales))
        assert sum(isinstance(plan, FakeGraph) for plan in placed.plans.values()) == 1

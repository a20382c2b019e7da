"""Tests that the row step and n x n functions on torch devices match NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from ncarl.blocks import cut_blocks
from ncarl.core.rows import (
    Kernel,
    complete_rows,
    dual_gram,
    observed_gram,
    row_backend,
    row_duals,
    row_gram,
)
from ncarl.exceptions import NotPositiveDefiniteError

torch = pytest.importorskip("torch")
from ncarl.core import cuda, linalg_torch, rows_torch  # noqa: E402
from ncarl.core.cuda import CudaGraph  # noqa: E402
from ncarl.core.rows_torch import (  # noqa: E402
    MIN_BUDGET_BYTES,
    SIZE_MULTIPLE,
    DeviceBlock,
    MemoryBudget,
    batch_overhead_seconds,
    padded_sizes,
    plan_batches,
    system_seconds,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread", "one_torch_thread")
AMPLE, TINY = 2**28, 1
N = 70
CLOSE = {"float64": 1e-12, "float32": 1e-4}


@pytest.fixture(scope="module", params=["cpu", "cuda", "cuda-library"])
def device(request):
    """Every available device; a GPU with and without Triton kernels."""
    name, _, library = request.param.partition("-")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    with pytest.MonkeyPatch.context() as patch:
        if library:
            for module in (cuda, rows_torch):
                patch.setattr(module, "load_triton_kernels", lambda: None)
        yield torch.device(name)


def close(found, expected, tol=1e-12):
    """Check that an array or tensor is close to the expected one."""
    if isinstance(found, torch.Tensor):
        found = found.cpu().numpy()
    size = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * size)


class TestPadding:
    @staticmethod
    def seconds(padded):
        """Time of the batches under the cost model of the plan."""
        steps, counts = np.unique(padded, return_counts=True)
        return float(
            np.sum(counts * system_seconds(steps) + batch_overhead_seconds(steps))
        )

    @given(
        groups=st.lists(
            st.tuples(st.integers(0, 4000), st.sampled_from([1, 5, 100, 3000])),
            min_size=1,
            max_size=6,
            unique_by=lambda group: -(-max(group[0], 1) // SIZE_MULTIPLE),
        )
    )
    def test_no_split_into_batches_is_faster(self, groups):
        sizes, counts = np.array(groups).T
        padded = padded_sizes(np.repeat(sizes, counts))
        assert (padded % SIZE_MULTIPLE == 0).all()
        assert (padded >= np.repeat(sizes, counts)).all()
        steps = np.unique(-(-np.maximum(sizes, 1) // SIZE_MULTIPLE) * SIZE_MULTIPLE)
        rounded = (
            -(-np.maximum(np.repeat(sizes, counts), 1) // SIZE_MULTIPLE) * SIZE_MULTIPLE
        )
        found = []
        for cuts in itertools.product([False, True], repeat=len(steps) - 1):
            tops = steps[[*cuts, True]]
            found.append(self.seconds(tops[np.searchsorted(tops, rounded)]))
        assert self.seconds(padded) == pytest.approx(min(found), rel=1e-12)

    @pytest.mark.parametrize("padding", [0, 3])
    def test_a_kernel_is_padded_with_the_identity(self, device, rng, padding):
        K = rng.standard_normal((9, 9))
        expected = np.eye(9 + padding)
        expected[:9, :9] = K + 0.5 * np.eye(9)
        given = torch.tensor(K, device=device)
        close(cuda.padded_kernel(given, 0.5, padding), expected, 0.0)

    def test_every_row_but_empty_ones_is_in_one_batch(self, matrix):
        groups = np.arange(len(matrix.groups) - 1)
        observed = np.diff(matrix.indptr)[matrix.groups[:-1]]
        for missing_side in (False, True):
            batches = plan_batches(matrix, allow_precision_form=missing_side)
            planned = np.concatenate([batch.groups for batch in batches])
            np.testing.assert_array_equal(np.sort(planned), groups[observed > 0])
            assert any(batch.precision_form for batch in batches) == missing_side
            for batch in batches:
                counts = np.diff(matrix.groups)[batch.groups]
                solved = observed[batch.groups]
                solved = N - solved if batch.precision_form else solved
                assert (batch.n_rhs // 2 < counts).all()
                assert (counts <= batch.n_rhs).all()
                assert (solved <= batch.size).all()


class TestFactor:
    @pytest.fixture
    def stack(self, rng, well_conditioned):
        """Function that draws a stack of positive definite matrices."""
        return lambda p, dtype="float64", batch=4: np.stack(
            [well_conditioned(rng, p, dtype) for _ in range(batch)]
        )

    @pytest.mark.parametrize("dtype", CLOSE)
    @pytest.mark.parametrize("p", [16, 48, 64, 80, 128, 176, 320])
    def test_solve_matches_numpy_and_reads_the_lower_half_only(
        self, device, rng, stack, p, dtype
    ):
        A, tol = stack(p, dtype), CLOSE[dtype]
        poisoned = torch.tensor(A, device=device)
        poisoned[:, *np.triu_indices(p, 1)] = torch.nan
        factor = cuda.batched_cholesky(poisoned)
        assert not factor.failed.any()
        for width in (1, 5):
            right = rng.standard_normal((len(A), p, width)).astype(dtype)
            there = torch.tensor(right, device=device)
            whole, half = factor.solve(there), factor.solve_lower(there)
            close(whole, np.linalg.solve(A.astype(float), right), tol)
            lower = np.linalg.cholesky(A.astype(float))
            close(half, np.linalg.solve(lower, right), tol)
            assert whole.dtype == half.dtype == there.dtype
            close(there, right, 0.0)

    @pytest.mark.parametrize("p", [16, 64, 80, 320])
    @pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan])
    def test_indefinite_matrices_are_nan_and_marked(self, device, stack, p, bad):
        A = stack(p, batch=6)
        for item, place in ((1, 0), (3, p // 2), (4, p - 1)):
            A[item, place, place] = bad
        factor = cuda.batched_cholesky(torch.tensor(A, device=device))
        assert factor.failed.tolist() == [False, True, False, True, True, False]
        sound = np.array([0, 2, 5])
        right = torch.ones((6, p, 2), dtype=torch.float64, device=device)
        expected = np.linalg.solve(A[sound], np.ones((3, p, 2)))
        found = factor.solve(right)
        close(found[sound], expected)
        assert found[[1, 3, 4]].isnan().all()
        half = factor.solve_lower(right)
        assert half[sound].isfinite().all()
        assert half[[1, 3, 4]].isnan().all()
        A = stack(p)
        A[2, p - 1, 0] = np.nan  # below the diagonal
        factor = cuda.batched_cholesky(torch.tensor(A, device=device))
        assert factor.failed.tolist() == [False, False, True, False]

    def test_blocks_are_gathered_column_by_column(self, device, rng):
        K = rng.standard_normal((50, 50))
        K += K.T
        columns = np.stack([rng.permutation(50)[:32] for _ in range(7)])
        found = cuda.gather_submatrices(
            torch.tensor(K, device=device),
            torch.tensor(columns, dtype=torch.int32, device=device),
        )
        expected = np.stack([K[np.ix_(chosen, chosen)] for chosen in columns])
        close(found.tril(), np.tril(expected), 0.0)


SIZES = [1, 5, 64, 65, 130, 513, 1100]


class TestLinearAlgebra:
    @pytest.mark.parametrize("n", SIZES)
    def test_inverse_is_exactly_symmetric(self, device, rng, well_conditioned, n):
        A = well_conditioned(rng, n)
        found = linalg_torch.spd_inverse(torch.tensor(A, device=device)).cpu().numpy()
        close(found, np.linalg.inv(A))
        np.testing.assert_array_equal(found, found.T)

    @pytest.mark.parametrize("n", SIZES)
    @pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan])
    def test_inverse_of_indefinite_matrix_is_nan(
        self, device, rng, well_conditioned, n, bad
    ):
        for place in {0, n // 2, n - 1}:
            A = well_conditioned(rng, n)
            A[place, place] = bad
            found = linalg_torch.spd_inverse(torch.tensor(A, device=device))
            assert found.isnan().all()

    @pytest.mark.parametrize("n", SIZES)
    def test_products_match_numpy_and_are_symmetric(self, device, rng, n):
        A, w = rng.standard_normal((37, n)), rng.random(n)
        U = rng.standard_normal((n, n))
        there = {"device": device}
        gram = linalg_torch.gram_matrix(torch.tensor(A, **there)).cpu().numpy()
        lower = linalg_torch.gram_matrix(torch.tensor(np.tril(U), **there), lower=True)
        product = linalg_torch.congruence(
            torch.tensor(U, **there), torch.tensor(w, **there)
        )
        expected = (A.T @ A, np.tril(U).T @ np.tril(U), (U * w) @ U.T)
        for found, wanted in zip((gram, lower, product), expected, strict=True):
            close(found, wanted)
            close(found - found.T, np.zeros((n, n)), 0.0)

    @pytest.mark.parametrize("n", SIZES)
    def test_diagonals_and_smallest_entries_match_numpy(self, device, rng, n):
        A, d = rng.standard_normal((n, n)), rng.standard_normal(n)
        given = torch.tensor(A, device=device)
        close(linalg_torch.add_diagonal(given, 0.5), A + 0.5 * np.eye(n), 0.0)
        close(given, A, 0.0)
        for count in {1, min(n, 7), n}:
            expected = np.sort(A, axis=1)[:, :count]
            close(linalg_torch.k_smallest(given, count), expected, 0.0)
        np.fill_diagonal(A, 2.0)
        close(linalg_torch.set_diagonal(given, 2.0), A, 0.0)
        np.fill_diagonal(A, d)
        close(linalg_torch.set_diagonal(given, torch.tensor(d, device=device)), A, 0.0)


def block_of(masked, seen, seed=0, dtype="float64"):
    """One block with random values at the observed entries of a mask."""
    V = np.random.default_rng(seed).standard_normal(seen.shape).astype(dtype)
    (block,) = cut_blocks(masked(V, seen), 1)
    return block


@pytest.fixture(scope="module", name="seen")
def masks_of_every_size():
    """Masks with 0 to all entries, some repeated for 2, 3, 5 or 8 rows."""
    rng = np.random.default_rng(0)
    seen = np.arange(N) < np.arange(N + 1)[:, None]
    seen = rng.permuted(seen, axis=1)
    return np.repeat(seen, 1 + np.isin(np.arange(N + 1), [0, 4, 20, 44, 66, N]), axis=0)


@pytest.fixture(scope="module", name="matrix")
def block_of_every_size(seen, masked):
    """A block of single and grouped rows of every size."""
    many = np.concatenate([seen, *(seen[[25]],) * 2, *(seen[[60]],) * 4, seen[:2]])
    return block_of(masked, np.concatenate([many, *(seen[[12]],) * 7]))


@pytest.fixture(scope="module", name="K")
def kernel_of_the_columns(well_conditioned):
    return well_conditioned(np.random.default_rng(1), N)


def kernels(K, s, side, device):
    """The same kernel on the host and on the device."""
    P = np.linalg.inv(K + s * np.eye(len(K))).astype(K.dtype)
    here = Kernel(K, P if side == "cheaper" else None, s)
    send = lambda A: None if A is None else torch.tensor(A, device=device)  # noqa: E731
    return here, here.map_arrays(send)


@pytest.mark.parametrize("budget", [AMPLE, TINY])
@pytest.mark.parametrize("side", ["observed", "cheaper"])
@pytest.mark.parametrize("s", [0.0, 1.0])
class TestRows:
    @pytest.fixture
    def both(self, device, matrix, K, s, side, budget):
        """Block and kernel on the host and on the device."""
        here, there = kernels(K, s, side, device)
        return (
            matrix,
            here,
            DeviceBlock.from_block(matrix, device, MemoryBudget(budget)),
            there,
        )

    def test_rows_and_duals_match_numpy(self, both):
        block, kernel, placed, there = both
        X, Y, jitter = complete_rows(placed, kernel=there, backend="torch")
        rows, duals, _ = complete_rows(block, kernel=kernel, backend="numpy")
        close(X, rows)
        close(Y, duals)
        assert jitter == 0.0
        alone, jitter = row_duals(placed, kernel=there, backend="torch")
        assert torch.equal(alone, Y)
        assert jitter == 0.0

    def test_unchecked_rows_are_bit_identical(self, both):
        _, _, placed, there = both
        checked = complete_rows(placed, kernel=there, backend="torch")
        for _ in range(3):
            free = complete_rows(placed, kernel=there, backend="torch", checked=False)
            assert torch.equal(free[0], checked[0])
            assert torch.equal(free[1], checked[1])
            assert free[2] == 0.0

    def test_exact_rows_keep_their_observed_values(self, both, s):
        block, _, placed, there = both
        X, Y, _ = complete_rows(placed, kernel=there, backend="torch")
        row = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
        found = X.cpu().numpy()[row, block.indices]
        close(found, block.values - s * Y.cpu().numpy(), 1e-15 * s)

    def test_variances_match_numpy(self, both):
        block, kernel, placed, there = both
        found = row_backend("torch").variances(placed, there)
        close(found, row_backend("numpy").variances(block, kernel))
        assert (found >= kernel.s).all()

    def test_sums_match_numpy(self, both):
        block, kernel, placed, there = both
        close(
            observed_gram(placed, backend="torch"),
            observed_gram(block, backend="numpy"),
        )
        for function in (row_gram, dual_gram):
            found = function(placed, kernel=there, backend="torch")
            expected = function(block, kernel=kernel, backend="numpy")
            close(found.gram, expected.gram)
            close(found.fit, expected.fit)
            assert torch.equal(found.gram, found.gram.T)
            free = function(placed, kernel=there, backend="torch", checked=False)
            assert torch.equal(free.gram, found.gram)

    def test_single_entries_match_numpy(self, both, rng):
        block, kernel, placed, there = both
        columns = rng.integers(0, N, 2 * len(block.rows))
        bounds = 2 * np.arange(len(block.rows) + 1)
        found = there.predict(placed, columns, bounds, variances=True, backend="torch")
        known = kernel.predict(block, columns, bounds, variances=True, backend="numpy")
        for ours, theirs in zip(found, known, strict=True):
            close(torch.as_tensor(ours), theirs)

    def test_single_precision_is_preserved_and_close(
        self, device, matrix, K, s, side, budget
    ):
        single = DeviceBlock.from_block(
            type(matrix)(**{**vars(matrix), "values": matrix.values.astype("f4")}),
            device,
            MemoryBudget(budget),
        )
        _, there = kernels(K.astype("float32"), s, side, device)
        here, _ = kernels(K, s, side, "cpu")
        X, Y, _ = complete_rows(single, kernel=there, backend="torch")
        rows, duals, _ = complete_rows(matrix, kernel=here, backend="numpy")
        assert X.dtype == Y.dtype == torch.float32
        close(X, rows, 1e-4)
        close(Y, duals, 1e-4)


class TestPlacedBlock:
    @pytest.mark.parametrize("room", [1, 2, 7, 1000])
    def test_pieces_hold_whole_groups_within_the_budget(self, device, matrix, room):
        placed = DeviceBlock.from_block(matrix, device, MemoryBudget(room * 4 * 8 * N))
        parts = list(rows_torch.pieces(placed))
        assert [i for part in parts for i in part.rows] == list(matrix.rows)
        assert sum(len(part.groups) - 1 for part in parts) == len(matrix.groups) - 1
        for part in parts:
            assert part.n_rows <= room or len(part.groups) == 2
        entries = torch.cat([part.values for part in parts])
        assert torch.equal(entries, placed.values)
        assert (len(parts) == 1) == (room == 1000)
        again = list(rows_torch.pieces(placed))
        assert all(one is other for one, other in zip(parts, again, strict=True))

    def test_tiny_budget_gives_one_system_and_one_group_at_a_time(self, device, matrix):
        n_groups = len(matrix.groups) - 1
        tiny = DeviceBlock.from_block(matrix, device, MemoryBudget(TINY))
        chunks = list(rows_torch._chunks(tiny, tiny.padded_batches(True)))
        assert [len(part.starts) for part in chunks] == [1] * (n_groups - 1)
        assert len(tiny.pieces()) == n_groups
        ample = DeviceBlock.from_block(matrix, device, MemoryBudget(AMPLE))
        assert len(list(rows_torch._chunks(ample, ample.padded_batches(True)))) < 20
        assert ample.pieces() == [ample]

    def test_chunks_stay_within_the_budget(self, device, matrix):
        placed = DeviceBlock.from_block(matrix, device, MemoryBudget(2**18))
        for batch in placed.padded_batches(True):
            each = rows_torch._bytes_per_system(placed, batch)
            parts = [len(part.starts) for part in batch.chunks(placed.budget, each)]
            assert sum(parts) == len(batch.starts)
            assert max(parts) * each <= 2**18

    def test_budgets_shrink_to_a_minimum(self):
        budget = MemoryBudget(5 * MIN_BUDGET_BYTES)
        assert [budget.halve() for _ in range(4)] == [True, True, False, False]
        assert MIN_BUDGET_BYTES <= budget.bytes < 2 * MIN_BUDGET_BYTES


@pytest.mark.parametrize("s", [0.0, 1.0])
def test_replayed_rows_use_the_current_kernel(device, matrix, K, s):
    if device.type != "cuda" or cuda.load_triton_kernels() is None:
        pytest.skip("no CUDA graph is captured here")
    placed = DeviceBlock.from_block(
        matrix, device, MemoryBudget(AMPLE), use_cuda_graph=True
    )
    for factor in (1.0, 3.0, 0.5, 1.0):
        here, there = kernels(factor * K, s, "cheaper", device)
        X, Y, _ = complete_rows(placed, kernel=there, backend="torch", checked=False)
        rows, duals, _ = complete_rows(matrix, kernel=here, backend="numpy")
        close(X, rows)
        close(Y, duals)
    assert any(isinstance(plan, CudaGraph) for plan in placed.plans.values())


@given(
    seen=st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
        lambda shape: arrays(bool, shape)
    ),
    copies=st.integers(1, 3),
    s=st.sampled_from([0.0, 1.0, 1e-2]),
    side=st.sampled_from(["observed", "cheaper"]),
    budget=st.sampled_from([AMPLE, 3000, TINY]),
)
def test_small_matrices_of_any_mask_are_those_of_numpy(
    device, masked, well_conditioned, seen, copies, s, side, budget
):
    block = block_of(masked, np.repeat(seen, copies, axis=0))
    K = well_conditioned(np.random.default_rng(2), seen.shape[1])
    here, there = kernels(K, s, side, device)
    placed = DeviceBlock.from_block(block, device, MemoryBudget(budget))
    X, Y, _ = complete_rows(placed, kernel=there, backend="torch")
    rows, duals, _ = complete_rows(block, kernel=here, backend="numpy")
    close(X, rows)
    close(Y, duals)
    found = row_backend("torch").variances(placed, there)
    close(found, row_backend("numpy").variances(block, here))


class TestJitter:
    """Columns 0 and 1 form a nearly singular block."""

    PAIR = (0, 1)

    @pytest.fixture(params=["observed", "missing"])
    def case(self, request, device, rng, masked, nearly_singular):
        """Single and grouped rows with the pair of columns, and others without."""
        asked = rng.random((12, 40)) < 0.15
        asked[:, self.PAIR] = False
        asked[:, 2] = True
        asked[4, self.PAIR] = asked[8:11, self.PAIR] = True
        asked[6, 0] = asked[7, 1] = True
        asked[9:11] = asked[8]
        missing = request.param == "missing"
        block = block_of(masked, ~asked if missing else asked)
        fails = asked[block.rows][:, self.PAIR].all(axis=1)
        assert fails.sum() == 4
        K = nearly_singular
        return block, fails, Kernel(K, K if missing else None, 0.0), device

    @staticmethod
    def there(case):
        block, _, kernel, device = case
        placed = DeviceBlock.from_block(block, device, MemoryBudget(AMPLE))
        send = lambda A: None if A is None else torch.tensor(A, device=device)  # noqa: E731
        return placed, kernel.map_arrays(send)

    def test_only_failed_unchecked_rows_are_nan(self, case):
        block, fails, kernel, _ = case
        placed, there = self.there(case)
        free = {"kernel": there, "backend": "torch", "checked": False}
        X, Y, jitter = complete_rows(placed, **free)
        entries = np.repeat(fails, np.diff(block.indptr))
        rows, duals = X.cpu().numpy(), Y.cpu().numpy()
        np.testing.assert_array_equal(np.isnan(duals), entries)
        np.testing.assert_array_equal(np.isnan(rows).any(axis=1), fails)
        assert jitter == 0.0
        expected, y, _ = complete_rows(block, kernel=kernel, backend="numpy")
        close(rows[~fails], expected[~fails])
        close(duals[~entries], y[~entries])
        assert np.isnan(row_gram(placed, **free).gram.cpu().numpy()).any()
        alone, _ = row_duals(placed, **free)
        np.testing.assert_array_equal(np.isnan(alone.cpu().numpy()), entries)

    def test_jitter_of_checked_rows_matches_numpy(self, case):
        block, _, kernel, _ = case
        placed, there = self.there(case)
        X, Y, jitter = complete_rows(placed, kernel=there, backend="torch")
        rows, duals, expected = complete_rows(block, kernel=kernel, backend="numpy")
        assert jitter == expected > 1e-10
        # The pair cancels to 1e-9, which loses nine digits.
        close(X, rows, 1e-5)
        close(Y, duals, 1e-5)
        assert row_gram(placed, kernel=there, backend="torch").jitter == expected

    def test_variances_of_rows_with_jitter_match_numpy(self, case):
        block, _, kernel, _ = case
        placed, there = self.there(case)
        found = row_backend("torch").variances(placed, there)
        close(found, row_backend("numpy").variances(block, kernel), 1e-5)

    @pytest.mark.parametrize("budget", [AMPLE, TINY])
    def test_maximum_jitter_of_all_rows_is_returned(
        self, device, masked, nearly_singular, budget
    ):
        K = nearly_singular[2:, 2:].copy()
        K[:4], K[:, :4] = 0.0, 0.0
        for first, gap in ((0, 1e-12), (2, 1e-6)):
            pair = slice(first, first + 2)
            K[pair, pair] = [[1.0, 1.0 + gap], [1.0 + gap, 1.0]]
        seen = np.zeros((3, 38), dtype=bool)
        seen[0, :2] = seen[1, 2:4] = seen[2, 4:] = True
        block = block_of(masked, seen)
        placed = DeviceBlock.from_block(block, device, MemoryBudget(budget))
        here, there = kernels(K, 0.0, "observed", device)
        _, Y, jitter = complete_rows(placed, kernel=there, backend="torch")
        _, duals, expected = complete_rows(block, kernel=here, backend="numpy")
        assert jitter == expected > 1e-7
        close(Y, duals, 1e-3)

    @pytest.mark.parametrize("bad", [-1.0, np.nan])
    def test_indefinite_rows_raise_as_with_numpy(self, case, bad):
        block, _, kernel, device = case
        spoilt = kernel.K.copy()
        spoilt[2, 2] = bad
        hopeless = Kernel(spoilt, None if kernel.P is None else spoilt, 0.0)
        one = block.slice_groups(0, 1)
        placed, there = self.there((one, None, hopeless, device))
        with pytest.raises(NotPositiveDefiniteError) as expected:
            complete_rows(one, kernel=hopeless, backend="numpy")
        for function in (complete_rows, row_duals):
            with pytest.raises(NotPositiveDefiniteError) as found:
                function(placed, kernel=there, backend="torch")
            assert str(found.value) == str(expected.value)

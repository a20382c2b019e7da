"""Tests of the torch engine: memory, errors, selection, synchronization."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

import ncarl.engines.base
import ncarl.fitting.ncarl
from ncarl import NCARL, Threads
from ncarl.blocks import cut_blocks
from ncarl.core.rows import Kernel, row_gram
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine, first_line, gpu_unavailable_reason
from ncarl.exceptions import DeviceMemoryError, NumericalWarning
from ncarl.observations import Observations

torch = pytest.importorskip("torch")
import ncarl.engines.torch  # noqa: E402
from ncarl.core import rows_torch  # noqa: E402
from ncarl.core.rows_torch import MIN_BUDGET_BYTES  # noqa: E402
from ncarl.engines.torch import Torch, TorchDevice  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
STEPS = 4
FEW = {"max_iter": STEPS, "tol": 0, "alpha": 1.0, "n_neighbors": 4}


@pytest.fixture(name="X")
def incomplete_matrix(rng):
    """A matrix with 14 columns, one empty row and one complete row."""
    truth = rng.random((40, 3)) @ rng.random((3, 14)) + 0.01 * rng.random((40, 14))
    seen = rng.random(truth.shape) < np.linspace(0.2, 0.9, 40)[:, None]
    seen[7], seen[8] = False, True
    return np.where(seen, truth, np.nan)


class TestTransfers:
    @pytest.fixture
    def torch_memory(self, device):
        return TorchDevice(torch.device(device))

    def test_read_back_makes_one_transfer(self, torch_memory, device, monkeypatch):
        moved, usual = [], torch.Tensor.cpu
        monkeypatch.setattr(
            torch.Tensor, "cpu", lambda self: moved.append(1) or usual(self)
        )
        scalar, yes, row, square, number, no = torch_memory.read_back(
            torch.tensor(2.5, dtype=torch.float32, device=device),
            torch.tensor([True], device=device),
            torch.tensor([0.0, np.nan, np.inf], device=device),
            torch.ones((2, 2), dtype=torch.float64, device=device),
            0.1,
            False,
        )
        assert len(moved) == 1
        assert (float(scalar), float(number)) == (2.5, 0.1)
        assert bool(yes) and not bool(no)
        assert_array_equal(row, [0.0, np.nan, np.inf])
        assert_array_equal(square, np.ones((2, 2)))
        shapes = [part.shape for part in (scalar, yes, row, number, no)]
        assert shapes == [(), (1,), (3,), (), ()]

    @pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
    def test_round_trip(self, torch_memory, device, rng, dtype):
        A = (10 * rng.standard_normal((3, 4))).astype(dtype)
        A.flags.writeable = False
        there = torch_memory.from_numpy(A)
        assert there.device.type == device
        assert torch_memory.from_numpy(there) is there
        back = torch_memory.to_numpy(there)
        assert back.dtype == A.dtype
        assert_array_equal(back, A)
        there.zero_()
        assert A.any()
        assert torch_memory.from_numpy(None) is torch_memory.to_numpy(None) is None

    def test_to_scipy(self, torch_memory, rng):
        A = np.where(rng.random((6, 9)) < 0.2, rng.standard_normal((6, 9)), 0.0)
        for given in (torch_memory.from_numpy(A), A):
            found = torch_memory.to_scipy(given)
            assert isinstance(found, sparse.csr_array)
            assert found.nnz == np.count_nonzero(A)
            assert found.has_canonical_format
            assert_array_equal(found.toarray(), A)

    def test_timestamps_are_ordered(self, torch_memory):
        first = torch_memory.timestamp()
        torch.ones(100, device=torch_memory.torch_device).sum().item()
        last = torch_memory.timestamp()
        torch_memory.read_back(torch.ones(1, device=torch_memory.torch_device))
        assert 0.0 <= ncarl.fitting.ncarl.seconds_between(first, last) < 60.0


class TestParameters:
    @pytest.mark.parametrize("name", ["gpu", "cuda:x", None])
    def test_invalid_device_name_raises(self, name):
        with pytest.raises(ValueError, match=r"device must be a torch device.*got"):
            Torch(device=name)

    def test_unavailable_device_raises(self):
        name = "cuda:99" if torch.cuda.is_available() else "cuda"
        with pytest.raises(RuntimeError, match=r"threads.*engine='auto'") as caught:
            Torch(device=name)
        assert f"the device {name!r} cannot be used" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_device_with_wrong_results_raises(self, device, monkeypatch):
        wrong = lambda A: (torch.zeros_like(A), None)  # noqa: E731
        monkeypatch.setattr(torch.linalg, "cholesky_ex", wrong)
        with pytest.raises(RuntimeError, match="gives wrong results"):
            Torch(device)

    @pytest.mark.parametrize("memory", [0, -1, np.inf, "8", True], ids=repr)
    def test_invalid_memory_raises(self, memory):
        with pytest.raises(
            (TypeError, ValueError), match=r"memory_gb must be .* above"
        ):
            Torch("cpu", memory_gb=memory)

    def test_memory_budget_is_given_or_a_share_of_free_memory(
        self, device, monkeypatch
    ):
        free, total = ncarl.engines.torch.device_memory(torch.device(device))
        assert 2**20 < free <= total
        assert Torch(device, memory_gb=0.25).budget.bytes == 250_000_000
        free = lambda device: (8 * 10**9, 16 * 10**9)  # noqa: E731
        monkeypatch.setattr(ncarl.engines.torch, "device_memory", free)
        assert Torch(device).budget.bytes == 2 * 10**9
        much = lambda device: (10**12, 10**12)  # noqa: E731
        monkeypatch.setattr(ncarl.engines.torch, "device_memory", much)
        assert Torch(device).budget.bytes == 8 * 2**30

    @pytest.mark.parametrize(("budget", "count"), [(17_920, 1), (10_000, 2), (3000, 6)])
    def test_number_of_blocks_depends_on_the_budget(self, device, X, budget, count):
        engine = Torch(device, memory_gb=budget / 1e9)
        assert len(engine.place(Observations.from_dense(X))) == count

    def test_describe_and_repr_name_the_device(self, device):
        engine = Torch(device, memory_gb=2, reason="; because")
        assert isinstance(engine, Engine)
        assert engine.compute_device.is_async
        text = engine.describe()
        name = "processor"
        if device == "cuda":
            name = torch.cuda.get_device_name()
        assert f"torch {torch.__version__}: {name} ({device}, " in text
        assert text.endswith("batches of 2.0 GB; because")
        assert repr(engine) == f"Torch(device={device!r}, memory_gb=2)"

    @pytest.mark.parametrize(
        "copied", [copy.deepcopy, copy.copy, lambda e: pickle.loads(pickle.dumps(e))]
    )
    def test_copies_are_independent(self, device, copied):
        engine = Torch(device, memory_gb=0.5, reason="; because")
        engine.budget.halve()
        other = copied(engine)
        assert other == engine
        assert other.describe().endswith("; because")
        assert other.budget is not engine.budget
        assert other.budget.bytes == 500_000_000

    def test_estimators_with_the_engine_can_be_copied(self, device, X):
        estimator = NCARL(**FEW, engine=Torch(device, memory_gb=0.5)).fit(X)
        expected = estimator.transform(X)
        assert clone(estimator).engine == estimator.engine
        assert_array_equal(clone(estimator).fit_transform(X), expected)
        for other in (copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator))):
            assert other.engine == estimator.engine
            assert_array_equal(other.transform(X), expected)


def out_of_memory(*_, **__):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried to ...")


class TestOutOfMemory:
    @pytest.fixture
    def fail_first(self, monkeypatch):
        """Function that makes the first passes run out of memory."""

        def fail(times):
            rows, complete = [], rows_torch.complete_rows

            def tight(block, *args, **kwargs):
                rows.append(block.n_rows)
                if len(rows) <= times:
                    out_of_memory()
                return complete(block, *args, **kwargs)

            monkeypatch.setattr(rows_torch, "complete_rows", tight)
            return rows  # per attempt

        return fail

    @pytest.fixture
    def tall(self, rng):
        """A matrix whose completion needs a budget of 6 MB."""
        truth = rng.random((3000, 3)) @ rng.random((3, 60))
        return np.where(rng.random(truth.shape) < 0.5, truth, np.nan)

    @pytest.mark.parametrize("times", [1, 3])
    def test_batches_shrink_until_they_fit(self, device, tall, times, fail_first):
        options = {"max_iter": 2, "tol": 0}
        usual = NCARL(**options, engine=Torch(device, memory_gb=0.0085)).fit(tall)
        rows, engine = fail_first(times), Torch(device, memory_gb=0.0085)
        found = NCARL(**options, engine=engine).fit(tall)
        assert engine.budget.bytes == 8_500_000 // 2**times
        assert rows[0] == 3000
        assert max(rows[times:]) <= 8_500_000 // 2**times // (4 * 8 * 60)
        assert_allclose(found.kernel_, usual.kernel_, rtol=1e-12, atol=1e-12)
        for name in ("objective", "change"):
            assert_allclose(found.history_[name], usual.history_[name], rtol=1e-12)
        assert_allclose(found.transform(tall), usual.transform(tall), rtol=1e-12)

    def test_insufficient_memory_raises(self, device, X, monkeypatch):
        monkeypatch.setattr(rows_torch, "complete_rows", out_of_memory)
        engine = Torch(device, memory_gb=1)
        with pytest.raises(
            DeviceMemoryError,
            match=r"rows of 14 columns .* engine='threads'",
        ) as caught:
            NCARL(**FEW, engine=engine).fit(X)
        assert isinstance(caught.value, MemoryError)
        assert isinstance(caught.value.__cause__, torch.cuda.OutOfMemoryError)
        assert MIN_BUDGET_BYTES <= engine.budget.bytes < 2 * MIN_BUDGET_BYTES

    def test_other_errors_are_raised_unchanged(self, device, X, monkeypatch):
        def broken(*_, **__):
            raise RuntimeError("device-side assert")

        monkeypatch.setattr(rows_torch, "complete_rows", broken)
        engine = Torch(device, memory_gb=1)
        with pytest.raises(RuntimeError, match="device-side assert"):
            NCARL(**FEW, engine=engine).fit(X)
        assert engine.budget.bytes == 10**9

    def test_insufficient_memory_for_the_kernel_raises(self, device, X, monkeypatch):
        torch_memory = Torch(device).compute_device
        explained = pytest.raises(DeviceMemoryError, match="a kernel of 7 columns")
        with explained, torch_memory.compute_context(7):
            out_of_memory()
        with torch_memory.compute_context(7):
            assert torch.ones(1, device=device).item() == 1.0
        monkeypatch.setattr(ncarl.fitting.ncarl, "spectrum", out_of_memory)
        explained = r"14 columns.*float32.*engine='threads'.*orientation='auto'"
        with pytest.raises(DeviceMemoryError, match=explained):
            NCARL(**FEW, engine=Torch(device)).fit(X)

    def test_kernel_larger_than_device_memory_raises_early(
        self, device, X, monkeypatch
    ):
        engine = Torch(device)
        needed = ncarl.engines.torch.KERNEL_ARRAYS * 14 * 14
        small = lambda device: (5 * needed, 6 * needed)  # noqa: E731
        monkeypatch.setattr(ncarl.engines.torch, "device_memory", small)
        with pytest.raises(DeviceMemoryError, match=r"14 columns.*about 11 columns"):
            NCARL(**FEW, engine=engine).fit(X)
        single = NCARL(**FEW, engine=engine, dtype="float32").fit(X)
        assert np.isfinite(single.transform(X)).all()
        elsewhere = NCARL(**FEW, engine="threads").fit(X)
        elsewhere.engine = engine  # completion needs less memory than a fit
        assert np.isfinite(elsewhere.transform(X)).all()

    def test_plans_for_larger_batches_are_dropped(self, device, X, fail_first):
        engine = Torch(device, memory_gb=1)
        block, other = engine.place_blocks(cut_blocks(Observations.from_dense(X), 2))
        kernel = Kernel(np.eye(14), None, 1.0)
        sums = [*engine.map(row_gram, [block, other], kernel=kernel)]
        assert block.plans and other.plans
        fail_first(1)
        (again,) = engine.map(row_gram, [block], kernel=kernel)
        assert_allclose(again.gram.cpu(), sums[0].gram.cpu(), rtol=1e-14)
        assert not other.plans

    def test_transferred_rows_shrink_until_they_fit(self, device, X, monkeypatch):
        fitted = NCARL(**FEW, gamma=0.1, engine=Torch(device)).fit(X)
        wanted = fitted.transform(X, return_std=True)
        engine, usual, seen = Torch(device, memory_gb=0.004), rows_torch.to_numpy, []

        def tight(array):
            seen.append(len(array))
            if len(array) > 200:
                raise torch.cuda.OutOfMemoryError("full")
            return usual(array)

        many = np.tile(X, (60, 1))
        monkeypatch.setattr(rows_torch, "MIN_BUDGET_BYTES", 64)
        monkeypatch.setattr(rows_torch, "to_numpy", tight)
        fitted.engine = engine
        found = fitted.transform(many, return_std=True)
        assert max(seen) > 200 >= seen[-1]
        for one, other in zip(found, wanted, strict=True):
            assert_allclose(one[: len(X)], other, rtol=1e-12)


def test_unpickled_engine_without_its_device_raises_when_used(X):
    engine = Torch("cpu")
    elsewhere = pickle.loads(pickle.dumps(engine).replace(b"cpu", b"gpu"))
    assert elsewhere.device == "gpu"
    with pytest.raises(ValueError, match="device must be a torch device"):
        NCARL(**FEW, engine=elsewhere).fit(X)


@pytest.fixture
def clear_gpu_cache():
    gpu_unavailable_reason.cache_clear()
    yield
    gpu_unavailable_reason.cache_clear()


class TestPickEngine:
    @pytest.fixture
    def set_reason(self, monkeypatch):
        """Function that sets the reason why the GPU is unavailable."""
        return lambda text: monkeypatch.setattr(
            ncarl.engines, "gpu_unavailable_reason", lambda: text
        )

    def test_auto_uses_threads_without_a_gpu(self, set_reason, X):
        set_reason("the card is on holiday")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine = pick_engine("auto")
            fitted = NCARL(**FEW).fit(X)
        assert engine == Threads()
        assert engine.describe().endswith("; no GPU: the card is on holiday")
        assert fitted.engine_ == engine.describe()
        assert "holiday" not in pick_engine("threads").describe()

    @pytest.mark.parametrize(
        ("name", "why"), [("auto", "; picked for its GPU"), ("torch", " GB")]
    )
    def test_working_gpu_is_used(self, set_reason, device, monkeypatch, name, why):
        set_reason(None)
        monkeypatch.setattr(ncarl.engines.torch, "Torch", partial(Torch, device))
        engine = pick_engine(name)
        assert engine == Torch(device)
        assert engine.describe().endswith(why)

    def test_torch_without_a_gpu_warns_once_and_uses_threads(self, set_reason, X):
        set_reason("the card is on holiday")
        with pytest.warns(UserWarning) as caught:
            engine = pick_engine("torch")
        assert engine == Threads()
        assert len(caught) == 1
        text = str(caught[0].message)
        assert "runs on threads instead: the card is on holiday" in text
        assert "\n" not in text
        with pytest.warns(UserWarning, match="on threads instead") as caught:
            fitted = NCARL(**FEW, engine="torch").fit(X)
        assert [warning.filename for warning in caught] == [__file__]
        assert_array_equal(
            fitted.kernel_, NCARL(**FEW, engine="threads").fit(X).kernel_
        )

    @pytest.mark.parametrize("name", ["auto", "torch"])
    def test_lost_gpu_falls_back_to_threads(self, name, X, monkeypatch):
        def lost(device):
            raise RuntimeError("the device 'cuda' cannot be used: it fell off the bus")

        monkeypatch.setattr(ncarl.engines, "gpu_unavailable_reason", lambda: None)
        monkeypatch.setattr(ncarl.engines.torch, "check_device", lost)
        expected = pytest.warns(UserWarning, match="fell off the bus")
        with expected if name == "torch" else nullcontext():
            fitted = NCARL(**FEW, engine=name).fit(X)
        assert fitted.engine_.startswith("threads")
        assert "fell off the bus" in fitted.engine_

    def test_loaded_model_warns_about_the_fallback(self, X, tmp_path, monkeypatch):
        fitted = NCARL(**FEW, engine="threads").fit(X)
        fitted.engine = "torch"
        fitted.save(tmp_path / "model")
        monkeypatch.setattr(
            ncarl.engines, "gpu_unavailable_reason", lambda: "on holiday"
        )
        loaded = ncarl.load(tmp_path / "model")
        with pytest.warns(UserWarning, match="on holiday"):
            loaded.transform(X)

    @pytest.mark.usefixtures("clear_gpu_cache")
    def test_missing_torch_raises_with_install_command(self, monkeypatch):
        monkeypatch.setattr(
            ncarl.engines, "gpu_unavailable_reason", gpu_unavailable_reason
        )
        usual = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *a: None if name == "torch" else usual(name, *a),
        )
        with pytest.raises(ImportError, match=r"pip install 'ncarl\[gpu\]'"):
            pick_engine("torch")
        assert pick_engine("auto").describe().endswith("PyTorch is not installed")

    def test_torch_is_not_imported_without_a_driver(self):
        script = (
            "import sys, ncarl.engines.base\n"
            "ncarl.engines.base.GPU_DRIVERS = ('libno-such-driver.so',)\n"
            "from ncarl.engines import pick_engine\n"
            "engine = pick_engine('auto')\n"
            "print(type(engine).__name__, 'torch' in sys.modules, engine.reason)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == "Threads False ; no GPU: no GPU driver is installed\n"


@pytest.mark.usefixtures("clear_gpu_cache")
class TestGPUUnavailableReason:
    @pytest.fixture
    def gpu(self, monkeypatch):
        """Simulate a CUDA build of PyTorch with a visible GPU."""
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        return monkeypatch

    def test_none_for_a_working_gpu(self, gpu):
        asked = []
        gpu.setattr(ncarl.engines.torch, "check_device", asked.append)
        assert gpu_unavailable_reason() is None
        assert gpu_unavailable_reason() is None
        assert asked == ["cuda"]

    def test_failing_gpu_gives_one_line(self, gpu):
        def fails(name):
            raise RuntimeError("CUDA error: no kernel image\nCompile with ...")

        gpu.setattr(ncarl.engines.torch, "check_device", fails)
        assert (
            gpu_unavailable_reason()
            == "the GPU does not work (CUDA error: no kernel image)"
        )

    def test_fake_torch_module_is_not_installed(self, gpu):
        def refuse(name):
            raise ValueError(f"{name}.__spec__ is None")

        gpu.setattr(importlib.util, "find_spec", refuse)
        assert gpu_unavailable_reason() == "PyTorch is not installed"

    def test_no_gpu_or_build_without_gpu_support(self, gpu):
        gpu.setattr(torch.cuda, "is_available", lambda: False)
        assert gpu_unavailable_reason() == "PyTorch sees no GPU"
        gpu_unavailable_reason.cache_clear()
        gpu.setattr(torch.version, "cuda", None)
        gpu.setattr(torch.version, "hip", None)
        assert gpu_unavailable_reason() == "this build of PyTorch has no GPU support"

    def test_torch_that_fails_to_import(self, gpu):
        gpu.setattr(importlib.util, "find_spec", lambda name: name)
        gpu.setitem(sys.modules, "torch", None)
        reason = gpu_unavailable_reason()
        assert reason.startswith("PyTorch does not load (import of torch")

    def test_driver_is_found_if_its_library_loads(self, gpu):
        gpu.setattr(ncarl.engines.base, "GPU_DRIVERS", ("libno-such-driver.so",))
        assert not ncarl.engines.base._has_gpu_driver()
        gpu.setattr(ncarl.engines.base.ctypes, "CDLL", lambda name: name)
        assert ncarl.engines.base._has_gpu_driver()


@pytest.mark.parametrize(
    ("text", "line"),
    [("one\ntwo", "one"), ("\n  \nonly", "only"), ("", "KeyError"), ("\n", "KeyError")],
)
def test_the_first_line_of_an_error(text, line):
    class KeyError(Exception):  # the builtin one quotes its text
        pass

    assert first_line(KeyError(text)) == line


class TestRepeatedSteps:
    @pytest.fixture
    def runs(self, monkeypatch):
        """List that records for each run of a step whether it was checked."""
        seen, usual = [], ncarl.fitting.ncarl.column_kernel

        def run(*args, checked, **options):
            seen.append(checked)
            return usual(*args, checked=checked, **options)

        monkeypatch.setattr(ncarl.fitting.ncarl, "column_kernel", run)
        return seen

    def test_successful_step_is_not_repeated(self, device, X, runs):
        NCARL(**FEW, engine=Torch(device)).fit(X)
        assert runs == [False] * STEPS
        del runs[:]
        NCARL(**FEW, engine="threads").fit(X)
        assert runs == [True] * STEPS

    def test_step_with_nan_is_repeated_with_checks(self, device, X, runs, monkeypatch):
        options = {**FEW, "engine": Torch(device)}
        usual = NCARL(**options).fit(X)
        del runs[:]
        complete, unchecked = rows_torch.complete_rows, []

        def fail_once(block, kernel, *, checked):
            rows, duals, jitter = complete(block, kernel, checked=checked)
            unchecked.append(checked)
            if len(unchecked) == 2:
                rows = rows.clone()
                rows[3] = torch.nan
            return rows, duals, jitter

        monkeypatch.setattr(rows_torch, "complete_rows", fail_once)
        found = NCARL(**options).fit(X)
        assert runs == [False, False, True, False, False]
        assert unchecked == runs
        assert_array_equal(found.kernel_, usual.kernel_)
        for name in ("step", "objective", "change", "jitter"):
            assert_array_equal(found.history_[name], usual.history_[name])

    @pytest.mark.parametrize("weights", ["floor", "smooth", "pinv"])
    def test_strongly_connected_pairs_need_jitter_on_every_engine(
        self, device, X, runs, weights
    ):
        pairs = np.kron(np.eye(7), np.ones((2, 2)))
        options = {**FEW, "alpha": 1e30, "graph": pairs, "weights": weights}
        found = {}
        for engine in ("threads", Torch(device)):
            estimator = NCARL(**options, engine=engine)
            with pytest.warns(NumericalWarning, match="near-singular blocks") as caught:
                estimator.fit(X)
            assert len(caught) == 1
            jitter = estimator.history_["jitter"]
            assert (jitter > 0).all()
            filled = estimator.transform(X, keep_observed=False)
            found[engine] = str(caught[0].message), jitter, filled
        (text, jitter, filled), (text_there, jitter_there, filled_there) = (
            found.values()
        )
        assert text_there == text
        assert_array_equal(jitter_there, jitter)
        assert_allclose(filled_there, filled, rtol=0, atol=1e-9)
        assert runs == [True] * STEPS + [False, True] * STEPS


def test_zero_columns_are_passed_to_every_step(device, X, monkeypatch):
    usual, known = ncarl.fitting.ncarl.spectrum, []

    def record(gram, zero):
        known.append(zero.tolist())
        return usual(gram, zero)

    monkeypatch.setattr(ncarl.fitting.ncarl, "spectrum", record)
    X[:, 5] *= 0.0
    fifth = [j == 5 for j in range(14)]
    for engine in ("threads", Torch(device)):
        fitted = NCARL(**{**FEW, "alpha": 0.0}, engine=engine).fit(X)
        assert_array_equal(fitted.transform(X)[np.arange(40) != 7, 5], 0.0)
    assert known == [fifth] * (2 * STEPS)


#: Operations that synchronize the device with the host.
WAITING = {
    "_local_scalar_dense",
    "_unique2",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique_dim",
}


@contextmanager
def record_reads():
    """Record the names of all operations that wait for a device."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class RecordMode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.name().removeprefix("aten::").partition(".")[0]
            places = args[1] if name.startswith("index") else ()
            masks = any(
                place.dtype == torch.bool
                for place in (places if isinstance(places, list | tuple) else ())
                if place is not None
            )
            if name in WAITING or masks:
                found.append(name)
            return function(*args, **(kwargs or {}))

    with RecordMode():
        yield found


class TestReads:
    KINDS = ({}, {"gamma": 0.1}, {"weights": "pinv"}, {"weights": "smooth"}, {"tol": 1})

    def test_reads_are_recorded(self, device):
        A = torch.arange(4.0, device=device)
        with record_reads() as found:
            float(A[1])
            bool(A[1] > 0)
            A[A > 1]
            A.nonzero()
        assert len(found) >= 4

    @pytest.mark.parametrize("options", KINDS, ids=str)
    def test_one_read_per_step_and_one_before_the_first(
        self, device, X, options, monkeypatch
    ):
        reads, usual = [], TorchDevice.read_back

        def read(self, *arrays):
            reads.append(len(arrays))
            return usual(self, *arrays)

        monkeypatch.setattr(TorchDevice, "read_back", read)
        fitted = NCARL(**{**FEW, **options}, engine=Torch(device)).fit(X)
        assert len(reads) == fitted.n_iter_ + 1

    @pytest.mark.parametrize("memory", [None, 1e-6])
    @pytest.mark.parametrize("options", KINDS, ids=str)
    def test_steps_do_not_synchronize_otherwise(
        self, device, X, options, memory, monkeypatch
    ):
        usual, found = ncarl.fitting.ncarl.kernel_iterates, []

        def iterates(*args):
            inner = usual(*args)
            while True:
                with record_reads() as waiting:
                    iterate = next(inner)
                found.append(waiting)
                yield iterate

        monkeypatch.setattr(ncarl.fitting.ncarl, "kernel_iterates", iterates)
        X[:, 5] = 0.0  # a zero column that is not empty
        NCARL(**{**FEW, **options}, engine=Torch(device, memory)).fit(X)
        assert found
        assert not any(found)

    def test_at_most_two_synchronizations_per_step(self, X):
        if not torch.cuda.is_available():
            pytest.skip("no GPU")
        engine = Torch("cuda")

        def count_synchronizations(steps):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                try:
                    NCARL(**{**FEW, "max_iter": steps}, engine=engine).fit(X)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            return sum("synchronizing" in str(found.message) for found in caught)

        count_synchronizations(12)  # warm-up
        # One for the check of the eigenvalues, one for the read.
        assert 0 < count_synchronizations(12) - count_synchronizations(4) <= 2 * 8

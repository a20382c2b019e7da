"""Fixtures that more than one folder of tests needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

settings.register_profile("ncarl", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("ncarl")


@dataclass(frozen=True)
class Library:
    """An array library, the device to work on, and the way there and back."""

    name: str
    xp: ModuleType
    device: Any = None

    def array(self, values: Any) -> Any:
        """``values`` as an array of the library."""
        return self.xp.asarray(np.asarray(values), device=self.device)

    def numpy(self, values: Any) -> np.ndarray:
        """An array of the library as a NumPy array; it must be on the device."""
        if self.name == "numpy":
            return np.asarray(values)
        assert values.device == self.device
        return np.asarray(values.to("cpu") if self.name == "torch" else _home(values))


def _home(values: Any) -> Any:
    import array_api_strict

    return values.to_device(array_api_strict.Device("CPU_DEVICE"))


@pytest.fixture(params=["numpy", "strict", "strict-device1", "torch"])
def lib(request: pytest.FixtureRequest) -> Library:
    """Every array library at hand; a foreign device catches forgotten ``device=``."""
    if request.param == "numpy":
        return Library("numpy", np)
    if request.param == "torch":
        torch = pytest.importorskip("torch")
        return Library("torch", torch, torch.device("cpu"))
    strict = pytest.importorskip("array_api_strict")
    device = "device1" if request.param.endswith("1") else "CPU_DEVICE"
    return Library("strict", strict, strict.Device(device))


@pytest.fixture(scope="session", params=["numpy", "numba"])
def kind(request: pytest.FixtureRequest) -> str:
    """Every row kernel at hand."""
    if request.param == "numba":
        pytest.importorskip("numba")
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def no_gpu_by_itself() -> Iterator[None]:
    """``engine="auto"`` means threads here too where there is a GPU.

    Tests of the GPU name its engine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ncarl.engines.gpu_unavailable_reason",
            lambda: "not used by these tests",
        )
        yield


@pytest.fixture(autouse=True)
def few_cuts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices are cut four times in all, not ten: every path, half the time.

    Tests of the Bayesian model itself, of faults and of pages have as many as users.
    """
    if not {"bayes", "faults", "docs"} & set(request.path.parts):
        monkeypatch.setattr("ncarl.bayes.selection.MAX_SPLITS", 2)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that repeat."""
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """PyTorch on one thread: more of them wait for each other in small work."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Every torch device at hand."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return str(request.param)


@pytest.fixture(scope="module")
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread: more of them cost small matrices more than they give."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def truth(rng: np.random.Generator) -> np.ndarray:
    """24 x 9, nearly of rank three."""
    return rng.random((24, 3)) @ rng.random((3, 9)) + 0.01 * rng.random((24, 9))


@pytest.fixture(name="X")
def gappy(rng: np.random.Generator, truth: np.ndarray) -> np.ndarray:
    """`truth` with 40% gaps; no row or column is empty."""
    seen = rng.random(truth.shape) < 0.6
    seen[np.arange(24), np.arange(24) % 9] = True
    return np.where(seen, truth, np.nan)

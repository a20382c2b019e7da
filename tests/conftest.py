"""Fixtures shared by several test packages."""

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
    """An array library, a device, and conversions from and to NumPy."""

    name: str
    xp: ModuleType
    device: Any = None

    def array(self, values: Any) -> Any:
        """Convert ``values`` to an array of the library."""
        return self.xp.asarray(np.asarray(values), device=self.device)

    def numpy(self, values: Any) -> np.ndarray:
        """Convert an array, which must be on the device, to NumPy."""
        if self.name == "numpy":
            return np.asarray(values)
        assert values.device == self.device
        return np.asarray(
            values.to("cpu") if self.name == "torch" else _strict_to_cpu(values)
        )


def _strict_to_cpu(values: Any) -> Any:
    import array_api_strict

    return values.to_device(array_api_strict.Device("CPU_DEVICE"))


@pytest.fixture(params=["numpy", "strict", "strict-device1", "torch"])
def lib(request: pytest.FixtureRequest) -> Library:
    """Every available array library; device1 detects calls without ``device=``."""
    if request.param == "numpy":
        return Library("numpy", np)
    if request.param == "torch":
        torch = pytest.importorskip("torch")
        return Library("torch", torch, torch.device("cpu"))
    strict = pytest.importorskip("array_api_strict")
    device = "device1" if request.param.endswith("1") else "CPU_DEVICE"
    return Library("strict", strict, strict.Device(device))


@pytest.fixture(scope="session", params=["numpy", "numba"])
def backend(request: pytest.FixtureRequest) -> str:
    """Every available row kernel."""
    if request.param == "numba":
        pytest.importorskip("numba")
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def no_automatic_gpu() -> Iterator[None]:
    """Make ``engine="auto"`` use threads even if there is a GPU.

    GPU tests pass an engine explicitly.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ncarl.engines.gpu_unavailable_reason",
            lambda: "not used by these tests",
        )
        yield


@pytest.fixture(autouse=True)
def few_validation_splits(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use 4 validation splits instead of 10 to halve the run time.

    Tests of the Bayesian model, of faults and of documentation pages use the default.
    """
    if not {"bayes", "faults", "docs"} & set(request.path.parts):
        monkeypatch.setattr("ncarl.holdout.MAX_SPLITS", 2)
        monkeypatch.setattr("ncarl.holdout.MAX_TINY_SPLITS", 2)


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded random generator."""
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Limit PyTorch to one thread, which is faster on small inputs."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Every available torch device."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return str(request.param)


@pytest.fixture(scope="module")
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, which is faster on small matrices."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def truth(rng: np.random.Generator) -> np.ndarray:
    """A 24 x 9 matrix of approximate rank 3."""
    return rng.random((24, 3)) @ rng.random((3, 9)) + 0.01 * rng.random((24, 9))


@pytest.fixture(name="X")
def incomplete_matrix(rng: np.random.Generator, truth: np.ndarray) -> np.ndarray:
    """`truth` with 40% missing entries; no row or column is empty."""
    seen = rng.random(truth.shape) < 0.6
    seen[np.arange(24), np.arange(24) % 9] = True
    return np.where(seen, truth, np.nan)

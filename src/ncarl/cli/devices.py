"""What ``ncarl doctor`` finds out of the GPU, and of what each engine would use."""

from __future__ import annotations

import ctypes
import importlib.metadata
import logging
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ncarl import gpu
from ncarl.engines import NAMES, Engine, Threads, available_cores, pick_engine

#: n x n arrays at the peak of a step on the host; every thread adds one of its own.
HOST_ARRAYS = 8


@dataclass(frozen=True)
class Gpu:
    """The GPU that the torch engine uses, or the trouble with it.

    Attributes
    ----------
    devices : int
        GPUs that PyTorch sees.
    kernels : bool or None
        Whether our Triton kernels run; None where there is no GPU to ask.
    kernels_trouble : str or None
        Why they do not.
    warned : tuple of str
        What PyTorch warned of while it looked; often that is the cause of trouble.
    """

    trouble: str | None = None
    name: str | None = None
    memory_free: int | None = None
    memory_total: int | None = None
    compute_capability: str | None = None
    driver: str | None = None
    devices: int = 0
    kernels: bool | None = None
    kernels_trouble: str | None = None
    warned: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineUse:
    """What the name of an engine leads to.

    Attributes
    ----------
    runs : str or None
        The engine that runs, in its own words; None if none does.
    note : str or None
        Why it is not the one that was asked for.
    largest_kernel : int or None
        Columns of the largest kernel that fits, about.
    """

    name: str
    runs: str | None = None
    note: str | None = None
    largest_kernel: int | None = None


def gpu_facts() -> Gpu:
    """The GPU that the torch engine would use, or why there is none."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        trouble = gpu.gpu_trouble()
        try:
            found = Gpu(trouble=trouble) if trouble else _working_gpu()
        except Exception as error:  # drivers and cards fail in many ways
            found = Gpu(trouble=f"the GPU does not work ({gpu.first_line(error)})")
    return replace(found, driver=nvidia_driver(), warned=tuple(telling(warned)))


def telling(warned: Iterable[warnings.WarningMessage]) -> list[str]:
    """Warnings that concern the user, each on one line and once."""
    kinds = (UserWarning, RuntimeWarning)
    messages = [w.message for w in warned if issubclass(w.category, kinds)]
    return list(dict.fromkeys(" ".join(str(m).split()) for m in messages))


def _working_gpu() -> Gpu:
    """What PyTorch says of the GPU."""
    import torch

    from ncarl.torch_engine import device_memory

    device = torch.device("cuda")
    card = torch.cuda.get_device_properties(device)
    free, total = device_memory(device)
    kernels, trouble = triton_kernels()
    return Gpu(
        name=card.name,
        memory_free=free,
        memory_total=total,
        compute_capability=f"{card.major}.{card.minor}",
        devices=torch.cuda.device_count(),
        kernels=kernels,
        kernels_trouble=trouble,
    )


def triton_kernels() -> tuple[bool, str | None]:
    """Whether our Triton kernels run on the GPU, and why not."""
    from ncarl.core.factor_torch import gpu_kernels

    # The reason is logged and goes nowhere else.
    with overheard(logging.INFO) as said:
        runs = gpu_kernels() is not None
    return runs, None if runs else (said[0] if said else "they give wrong results")


def nvidia_driver() -> str | None:
    """Version of NVIDIA's driver, from its own library; None where there is none."""
    for name in ("libnvidia-ml.so.1", "nvml.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        try:
            if library.nvmlInit_v2() != 0:
                return None
            text = ctypes.create_string_buffer(96)
            failed = library.nvmlSystemGetDriverVersion(text, len(text))
            library.nvmlShutdown()
        except AttributeError:  # a library of that name, but not NVIDIA's
            return None
        return None if failed else text.value.decode(errors="replace")
    return None


def engines(available: int | None) -> tuple[EngineUse, ...]:
    """What every name of an engine leads to, given the free bytes of the host."""
    return tuple(engine_use(name, available) for name in NAMES)


def engine_use(name: str, available: int | None) -> EngineUse:
    """What a name leads to; neither a warning nor an error gets out."""
    if name == "dask":
        return dask_use()
    with warnings.catch_warnings(record=True) as warned, overheard() as said:
        warnings.simplefilter("always")
        try:
            engine = pick_engine(name)
            runs = "; ".join([engine.describe(), *said])
            largest = largest_kernel(engine, available)
        except Exception as error:  # drivers and cards fail in many ways
            return EngineUse(name, note=gpu.first_line(error))
    return EngineUse(name, runs, "; ".join(telling(warned)) or None, largest)


def dask_use() -> EngineUse:
    """What "dask" leads to; no cluster is started to find out."""
    try:
        version = importlib.metadata.version("distributed")
    except importlib.metadata.PackageNotFoundError:
        return EngineUse("dask", note="not installed: pip install 'ncarl[dask]'")
    runs = f"dask {version}: the workers of the current client, or threads here"
    return EngineUse("dask", runs)


def largest_kernel(engine: Engine, available: int | None) -> int | None:
    """Columns of the largest float64 kernel that an engine has memory for, about."""
    if isinstance(engine, Threads):
        arrays = HOST_ARRAYS + (engine.n_jobs or available_cores())
        return None if available is None else math.isqrt(available // (8 * arrays))
    from ncarl import torch_engine

    if not isinstance(engine, torch_engine.Torch):
        return None
    free, _ = torch_engine.device_memory(engine.home.device)
    return torch_engine.largest_kernel(free)


@contextmanager
def overheard(level: int = logging.WARNING) -> Iterator[list[str]]:
    """What ncarl logs in the meantime, which is kept from the terminal."""
    log, lines = logging.getLogger("ncarl"), list[str]()

    class Ear(logging.Handler):
        """Puts messages on the list."""

        def emit(self, record: logging.LogRecord) -> None:
            """Keep the first line of a message."""
            lines.extend(record.getMessage().strip().splitlines()[:1])

    ear, before, passed_on = Ear(level), log.level, log.propagate
    log.addHandler(ear)
    log.setLevel(level)
    log.propagate = False
    try:
        yield lines
    finally:
        log.removeHandler(ear)
        log.setLevel(before)
        log.propagate = passed_on

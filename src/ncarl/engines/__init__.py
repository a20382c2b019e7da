"""Engines: where the work on blocks of rows runs.

`pick_engine` turns the ``engine=`` of an estimator into one of them. Read the modules
in this order:

1. `base`: the `Engine` and `Device` protocols, the memory of the host, GPU detection.
2. `cores`: the cores of this process, and how many threads BLAS uses.
3. `threads`: the `Threads` engine, threads of this process.
4. `torch`: the `Torch` engine, a GPU (or the CPU) through PyTorch.
5. `dask`: the `Dask` engine, workers on this machine or a cluster.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

from ncarl.engines.base import (
    Engine,
    first_line,
    gpu_unavailable_reason,
    torch_installed,
)
from ncarl.engines.threads import Threads

__all__ = ["ENGINE_NAMES", "Engine", "Threads", "pick_engine"]

log = logging.getLogger("ncarl")

ENGINE_NAMES = ("auto", "threads", "torch", "dask")
ENGINE_CHOICES = "'auto', 'threads', 'torch', 'dask' or an Engine object"


def pick_engine(
    engine: str | Engine, *, data: Any = None, quiet: bool = False
) -> Engine:
    """Engine for a name; an engine object is returned as it is.

    "auto" takes Dask if ``data`` is a Dask input, a GPU if PyTorch has one that works,
    and threads otherwise. "torch" asks for the GPU; without one it warns and returns
    threads. ``quiet`` suppresses log messages and warnings, for use after the fit.

    >>> pick_engine("threads")
    Threads(n_jobs=None, kernel='auto')
    """
    if isinstance(engine, str):
        if engine not in ENGINE_NAMES:
            raise ValueError(f"engine must be {ENGINE_CHOICES}, got {engine!r}")
        use_dask = engine == "auto" and _is_dask_input(data)
        engine = _engine_by_name("dask" if use_dask else engine, quiet)
    elif isinstance(engine, type) or not isinstance(engine, Engine):
        is_class = isinstance(engine, type)
        what = f"the class {engine.__name__}" if is_class else type(engine).__name__
        raise TypeError(f"engine must be {ENGINE_CHOICES}, got {what}")
    if not quiet:
        log.info("engine %s", engine.describe())
    return engine


def _engine_by_name(name: str, quiet: bool) -> Engine:
    """Engine of that name, or threads in place of a GPU that does not work."""
    if name == "threads":
        return Threads()
    if name == "dask":
        from ncarl.engines.dask import Dask

        return Dask()
    trouble = gpu_unavailable_reason()
    if trouble is None:
        from ncarl.engines.torch import Torch

        try:
            return Torch(reason="; picked for its GPU" if name == "auto" else "")
        except RuntimeError as error:  # it worked before: a forked child, a lost GPU
            trouble = first_line(error)
    if name == "torch" and not torch_installed():
        raise ImportError(
            "engine='torch' needs PyTorch; install it with pip install 'ncarl[gpu]', "
            "or use engine='threads'"
        )
    if name == "torch" and not quiet:
        warnings.warn(
            f"engine='torch' runs on threads instead: {trouble} "
            "(engine=ncarl.Torch(device='cpu') runs PyTorch on the processor)",
            UserWarning,
            stacklevel=5,
        )
    return Threads(reason=f"; no GPU: {trouble}")


def _is_dask_input(data: Any) -> bool:
    """Whether the input is a Dask array, delayed chunks, or a source of them."""
    if hasattr(data, "delayed_chunks"):
        return True
    first = data[0] if isinstance(data, list | tuple) and data else data
    return type(first).__module__.split(".")[0] == "dask"

"""Where n x n arrays live and are worked on between two passes over the rows."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import OpenBLASController, ThreadpoolController

from ncarl.core.types import Array
from ncarl.exceptions import KernelMemoryError

#: From here on n x n work is worth all cores.
MANY_COLUMNS = 600


#: n x n arrays that every fit holds at once.
LEAST_ARRAYS = 3


def host_memory() -> int | None:
    """Bytes of memory that this machine has; None where that is not told."""
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Home(Protocol):
    """The memory that holds the n x n arrays of a fit, and what it takes to use it.

    Attributes
    ----------
    queued : bool
        Whether work is queued and done later, so that reading a number means waiting.
        A solver then reads everything it wants to know of a step at once, in the end.
    """

    @property
    def queued(self) -> bool:
        """Whether reading a number means waiting for all work before it."""
        ...

    def work(self, n: int) -> AbstractContextManager[Any]:
        """A context for n x n work."""
        ...

    def expect_fit(self, n: int, number: int) -> None:
        """Raise where a fit of n columns, in numbers of so many bytes, cannot fit."""
        ...

    def send(self, array: Any) -> Any:
        """An array of this process, moved there."""
        ...

    def fetch(self, array: Any) -> Any:
        """An array from there as a NumPy array; None stays None."""
        ...

    def fetch_sparse(self, array: Any) -> Any:
        """An array from there, with few entries that are not 0, as a SciPy array."""
        ...

    def read(self, *arrays: Any) -> list[Any]:
        """Small arrays from there as NumPy arrays, all in one go."""
        ...

    def mark(self) -> Any:
        """A moment in the course of the work; see `seconds_between`."""
        ...


def seconds_between(first: Any, last: Any) -> float:
    """Seconds between two marks, both of them in the past."""
    if isinstance(first, float):
        return float(last - first)
    return float(first.elapsed_time(last)) / 1e3


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; looking for them takes a while."""
    return ThreadpoolController()


def _release_blas() -> None:
    """Let any thread change the limits on OpenBLAS.

    Since threadpoolctl 3.8 only the thread that set a limit may change it, while the
    fit that enters last may run in another thread than the one that leaves last.
    """
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


class _SharedLimit:
    """The limit on BLAS threads, which belongs to the process, not to one fit.

    The first fit to ask sets it and the last one to leave takes it off; were each to
    restore what it found, fits that overlap would leave the limit of one another.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.limiter: Any = None

    def enter(self, threads: int) -> None:
        with self.lock:
            if self.users == 0:
                _release_blas()
                self.limiter = _blas().limit(limits=threads, user_api="blas")
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                _release_blas()
                self.limiter.restore_original_limits()
                _release_blas()


_limit = _SharedLimit()


@contextmanager
def blas_threads(threads: int) -> Iterator[None]:
    """BLAS held to so many threads until the last of all such contexts ends."""
    _limit.enter(threads)
    try:
        yield
    finally:
        _limit.leave()


@dataclass(frozen=True)
class HostMemory:
    """The memory of this process, worked on by its cores.

    Attributes
    ----------
    n_jobs : int or None
        Most threads for n x n work; None for all cores.
    """

    n_jobs: int | None = None
    queued: bool = False

    def work(self, n: int) -> AbstractContextManager[Any]:
        """BLAS on all cores where that pays.

        Helper threads of BLAS go on spinning for a while after each call, beside the
        row work; below this size they cost more than they give.
        """
        if n >= MANY_COLUMNS and self.n_jobs is None:
            return nullcontext()
        return blas_threads(1 if n < MANY_COLUMNS else self.n_jobs or 1)

    def expect_fit(self, n: int, number: int) -> None:
        """Raise where not even the least that a fit holds fits into the machine.

        What is nearer to the limit will be seen: memory of a host is not counted out.
        """
        total = host_memory()
        if total is None or LEAST_ARRAYS * number * n * n <= total:
            return
        size = number * n * n / 1e9
        raise KernelMemoryError(
            f"a kernel of {n} columns takes {size:.3g} GB and a fit holds at least "
            f"{LEAST_ARRAYS} such arrays; this machine has {total / 1e9:.3g} GB. Use "
            "ncarl.WideNCARL, which never forms it, or orientation='auto', which puts "
            "the kernel on the shorter side"
        )

    def send(self, array: Any) -> Any:
        """The array as it is."""
        return array

    def fetch(self, array: Any) -> Any:
        """The array as it is."""
        return array

    def fetch_sparse(self, array: Any) -> Any:
        """The array as a SciPy CSR array."""
        return csr_array(array)

    def read(self, *arrays: Any) -> list[Array]:
        """The arrays as they are."""
        return [np.asarray(array) for array in arrays]

    def mark(self) -> float:
        """The time."""
        return time.perf_counter()

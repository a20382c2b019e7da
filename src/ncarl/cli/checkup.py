"""What ``ncarl doctor`` finds out: versions of packages, processor and memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ncarl import __version__
from ncarl.engines import available_cores

#: What to look for, other names it goes by, and how to get it.
PACKAGES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("numpy",), "pip install numpy"),
    (("scipy",), "pip install scipy"),
    (("scikit-learn",), "pip install scikit-learn"),
    (("numba",), "pip install 'ncarl[fast]'"),
    (("torch",), "pip install 'ncarl[gpu]'"),
    (
        ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-windows"),
        "comes with PyTorch for GPUs",
    ),
    (("dask",), "pip install 'ncarl[dask]'"),
    (("pandas",), "pip install 'ncarl[cli]'"),
    (("polars",), "pip install polars"),
    (("pyarrow",), "pip install 'ncarl[cli]'"),
)
#: Where a container's limit on memory stands.
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Package:
    """A package: its version, or None and how to get it.

    Attributes
    ----------
    note : str or None
        How to get it where it is absent; the CUDA version that PyTorch was built for.
    """

    name: str
    version: str | None
    note: str | None = None


@dataclass(frozen=True)
class Blas:
    """A BLAS library of this process."""

    name: str
    version: str | None
    threads: int


@dataclass(frozen=True)
class Host:
    """Processor and memory; bytes are None where they cannot be had."""

    cores: int
    memory_total: int | None
    memory_available: int | None
    blas: tuple[Blas, ...]


def versions() -> dict[str, str]:
    """Versions of ncarl, Python and the system; the host's name is not among them."""
    return {
        "ncarl": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
    }


def packages() -> tuple[Package, ...]:
    """The packages that ncarl can use; none of them is imported to be asked."""
    return tuple(_package(names, how) for names, how in PACKAGES)


def _package(names: tuple[str, ...], how: str) -> Package:
    """The package that goes by one of the names."""
    for name in names:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Package(names[0], version, torch_build() if name == "torch" else None)
    return Package(names[0], None, how)


def torch_build() -> str:
    """The GPU library that PyTorch was built for, read from its file of versions.

    Importing PyTorch to ask takes seconds.
    """
    try:
        place = importlib.metadata.distribution("torch").locate_file("torch/version.py")
        text = Path(str(place)).read_text(encoding="utf-8")
    except (OSError, importlib.metadata.PackageNotFoundError):
        return "CUDA version unknown"
    for name, variable in (("CUDA", "cuda"), ("ROCm", "hip")):
        found = re.search(rf"^{variable}\b[^=\n]*= *['\"](.+)['\"]", text, re.MULTILINE)
        if found:
            return f"{name} {found[1]}"
    return "no CUDA"


def host() -> Host:
    """Cores, memory and BLAS of this process."""
    import numpy  # noqa: F401  both bring a BLAS library of their own
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    blas = tuple(
        Blas(found["internal_api"], found.get("version"), found["num_threads"])
        for found in threadpool_info()
        if found["user_api"] == "blas"
    )
    return Host(available_cores(), *host_memory(), blas)


def host_memory() -> tuple[int | None, int | None]:
    """Bytes of memory that this process may use, and how many of them are free."""
    total = _pages("SC_PHYS_PAGES")
    available = _reclaimable() or _pages("SC_AVPHYS_PAGES")
    for limit in _limits():
        total = limit if total is None else min(total, limit)
        available = None if available is None else min(available, limit)
    return total, available


def _pages(name: str) -> int | None:
    """Bytes in the pages that the system counts under a name."""
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows; macOS for some names
        return None


def _reclaimable(path: Path = Path("/proc/meminfo")) -> int | None:
    """Free bytes on Linux, what its file cache would give back counted in."""
    try:
        found = re.search(r"^MemAvailable: *(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _limits(folder: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Bytes that a container may use, where it has a limit."""
    for name in LIMITS:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            yield int(text)

"""How much memory a process has taken."""

from __future__ import annotations

import platform
from pathlib import Path


def own_memory_gb() -> float | None:
    """The most memory that this process has taken; None where that is not told.

    Examples
    --------
    >>> own_memory_gb() is None or 0.0 < own_memory_gb() < 1e5
    True
    """
    status = Path("/proc/self/status")
    if status.is_file():
        # On Linux the call below counts what the parent had at the start as well.
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if platform.system() == "Darwin" else 1024) / 1e9

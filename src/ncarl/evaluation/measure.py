"""Time, memory and status of one fit."""

from __future__ import annotations

import platform
import time
import warnings
from pathlib import Path
from typing import Any

#: Status of a fit. One over its budget may still have errors: those of its last step.
DONE, OVER_BUDGET, FAILED = "done", "over budget", "failed"


def timed_fit(estimator: Any, X: Any, budget: float | None) -> tuple[float, bool]:
    """Seconds of a fit, and whether it was stopped at the first step after its budget.

    The ``callback`` of the estimator is replaced.
    """
    stopped = False
    start = time.perf_counter()

    def stop(info: object) -> bool:
        nonlocal stopped
        stopped = budget is not None and time.perf_counter() - start > budget
        return stopped

    if hasattr(estimator, "set_params"):
        estimator.set_params(callback=stop)
    with warnings.catch_warnings():
        # Whether the fit converged is part of the result.
        warnings.simplefilter("ignore")
        estimator.fit(X)
    return time.perf_counter() - start, stopped


def peak_memory_gb() -> float | None:
    """Peak memory of this process; None where the system does not report it.

    psutil knows the present memory only, except on Windows.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        # On Linux, getrusage also counts the memory of the parent at the fork.
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if platform.system() == "Darwin" else 1024) / 1e9

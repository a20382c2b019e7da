"""Signals and threads of tests; doctests without their libraries are left out."""

from __future__ import annotations

import importlib.util
import os
import signal

# A shell without job control starts background jobs with Ctrl-C ignored, which some
# tests press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests run side by side: more threads in each would wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

collect_ignore_glob = []
if importlib.util.find_spec("triton") is None:
    collect_ignore_glob += ["src/ncarl/core/kernels_triton.py"]
if importlib.util.find_spec("distributed") is None:
    collect_ignore_glob += ["src/ncarl/engines/dask.py"]
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob += ["src/ncarl/engines/torch.py", "src/ncarl/core/cuda.py"]
    collect_ignore_glob += ["src/ncarl/core/*_torch.py"]

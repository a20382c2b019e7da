"""Signals and threads of the tests; doctests without their dependencies are skipped."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path

# A shell without job control starts background jobs with SIGINT ignored, but some tests
# send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests run in parallel: more threads in each would compete for the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests of the documentation's pages change the working directory.
if "NCARL_DATA" in os.environ:
    os.environ["NCARL_DATA"] = str(Path(os.environ["NCARL_DATA"]).resolve())

collect_ignore_glob = []
if importlib.util.find_spec("triton") is None:
    collect_ignore_glob += ["src/ncarl/core/kernels_triton.py"]
if importlib.util.find_spec("distributed") is None:
    collect_ignore_glob += ["src/ncarl/engines/dask.py"]
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob += ["src/ncarl/engines/torch.py", "src/ncarl/core/cuda.py"]
    collect_ignore_glob += ["src/ncarl/core/*_torch.py"]

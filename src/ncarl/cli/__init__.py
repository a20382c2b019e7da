"""The command line, ``ncarl``.

Read `app` first (the commands, loaded when they are called, and their errors), then
`options` and `console` (what commands share), `models` (from options to an estimator)
and one module for each command: `complete` with `complete_run` and `complete_report`,
`evaluate`, `compare`, `recommend`, `inpaint`, `demo`, `doctor` and `reproduce`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

__all__ = ["main"]

#: Packages of the extra ``cli``.
REQUIRED_PACKAGES = ("typer", "click", "rich")
#: What is printed after Ctrl-C.
STOPPED = "\nstopped; no file was left half-written\n"


def main() -> None:
    """Run the command line on the arguments of the process."""
    with contextlib.suppress(ValueError):  # in a thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, exit_at_once)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    # Threads of OpenBLAS spin for a while after each call and slow down the row work;
    # this lets them sleep sooner. It is read when NumPy and SciPy load.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    try:
        import rich  # noqa: F401

        from ncarl.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in REQUIRED_PACKAGES:
            raise
        sys.stderr.write("the command line needs: pip install 'ncarl[cli]'\n")
        sys.exit(1)
    try:
        app(prog_name="ncarl")
    except OSError as error:  # of the help, which could not be printed
        sys.exit(f"error: {error}")


def exit_at_once(*_: object) -> None:
    """Handle Ctrl-C while modules are imported, some of which swallow exceptions."""
    os.write(2, STOPPED.encode())
    os._exit(130)

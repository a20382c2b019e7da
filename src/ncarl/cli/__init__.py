"""The command line, ``ncarl``."""

from __future__ import annotations

import os
import sys

NEEDED = ("typer", "click", "rich")


def main() -> None:
    """Run the command line on the arguments of the process."""
    # Threads of OpenBLAS spin for a while after each call, in the way of the row work;
    # this asks them to sleep sooner. It is read when NumPy and SciPy load.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    try:
        import rich  # noqa: F401

        from ncarl.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in NEEDED:
            raise
        sys.stderr.write("the command line needs: pip install 'ncarl[cli]'\n")
        sys.exit(1)
    app(prog_name="ncarl")

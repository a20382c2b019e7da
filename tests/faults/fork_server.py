"""Runs fits in child processes that tests may kill.

Run as a script: it imports the library once and then forks a child for each job, a
line of JSON on its standard input. Depending on the job, it sends the child a signal
after its first step. It prints the exit status of the child.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def kill_at_call(call, times):
    """Wrap a function so that its n-th call kills the process."""
    left = [times]

    def wrapper(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)

    return wrapper


def set_trap(name, times):
    """Kill this process while or after it writes a file, or before it is moved."""
    import numpy as np

    from ncarl.io import files

    owner, function = {
        "write": (np.lib.format, "write_array"),
        "sync": (os, "fsync"),
        "move": (Path, "replace"),
        "lock": (files.fcntl, "flock"),
    }[name]
    setattr(owner, function, kill_at_call(getattr(owner, function), times))


def make_callback(job, pipe):
    """A callback that reports the first step and may limit the file size."""
    import resource

    calls = [0]

    def callback(info):
        calls[0] += 1
        if calls[0] == 1:
            os.write(pipe, b"step")
        if calls[0] == job.get("limit_at"):
            limit = (job["limit"], resource.RLIM_INFINITY)
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        time.sleep(job.get("pause", 0.0))

    return callback


def fit(job, pipe):
    """Make the fit of a job and write its results to a file."""
    import numpy as np

    import ncarl

    options = dict(job["options"])
    if "checkpoint" in job:
        options["checkpoint"] = ncarl.Checkpoint(job["checkpoint"], job["every"])
    if "trap" in job:
        set_trap(*job["trap"])
    X = np.load(job["data"])
    estimator = getattr(ncarl, job["class"])(
        **options, engine=ncarl.Threads(1), callback=make_callback(job, pipe)
    )
    estimator.fit(X)
    history = {f"history {n}": c for n, c in estimator.history_.items() if n != "step"}
    kept = {n: c for n, c in history.items() if "seconds" not in n}
    np.savez(
        job["results"], kernel=estimator.kernel_, filled=estimator.transform(X), **kept
    )


def run_child(job, pipe):
    """Run a job and exit without cleanup."""
    status = 1
    try:
        fit(job, pipe)
        status = 0
    except KeyboardInterrupt:
        status = 130
    except OSError as error:
        Path(job["said"]).write_text(f"{type(error).__name__}: {error}")
        status = 7
    finally:
        os._exit(status)


def run_job(job):
    """Exit status of a child that runs a job and may be sent a signal."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        run_child(job, writing)
    os.close(writing)
    os.read(reading, 1)  # until the first step or the end
    os.close(reading)
    if "send" in job:
        time.sleep(job["after"])
        os.kill(pid, job["send"])  # not reaped yet, so the pid is valid
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    """Run jobs from standard input."""
    import numpy as np

    from ncarl import NCARL, Threads

    # Load compiled code once instead of in every child.
    X = np.random.default_rng(0).random((6, 4))
    X[0, 0] = np.nan
    NCARL(max_iter=2, tol=0, engine=Threads(1)).fit(X)
    for line in sys.stdin:
        os.write(1, f"{run_job(json.loads(line))}\n".encode())


if __name__ == "__main__":
    main()

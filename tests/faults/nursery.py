"""Fits in processes of their own, which may come to harm.

Run as a script: it imports the library once and then forks a child for each job, a
line of JSON on its standard input. If the job says so, it sends the child a signal some
time after its first step. It writes the status of the child when that is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def die_at(call, times):
    """Have a function kill the process when it is called so many times."""
    left = [times]

    def deadly(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)

    return deadly


def set_trap(name, times):
    """Die in the middle of writing a file, or before or after it takes its place."""
    import numpy as np

    from ncarl.io import files

    owner, function = {
        "write": (np.lib.format, "write_array"),
        "sync": (os, "fsync"),
        "move": (Path, "replace"),
        "lock": (files.fcntl, "flock"),
    }[name]
    setattr(owner, function, die_at(getattr(owner, function), times))


def watcher(job, pipe):
    """A callback that says when the first step is made, and may limit what follows."""
    import resource

    calls = [0]

    def watch(info):
        calls[0] += 1
        if calls[0] == 1:
            os.write(pipe, b"step")
        if calls[0] == job.get("limit_at"):
            limit = (job["limit"], resource.RLIM_INFINITY)
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        time.sleep(job.get("pause", 0.0))

    return watch


def work(job, pipe):
    """The fit that a job describes; its results go to a file."""
    import numpy as np

    import ncarl

    options = dict(job["options"])
    if "checkpoint" in job:
        options["checkpoint"] = ncarl.Checkpoint(job["checkpoint"], job["every"])
    if "trap" in job:
        set_trap(*job["trap"])
    X = np.load(job["data"])
    estimator = getattr(ncarl, job["class"])(
        **options, engine=ncarl.Threads(1), callback=watcher(job, pipe)
    )
    estimator.fit(X)
    history = {f"history {n}": c for n, c in estimator.history_.items() if n != "step"}
    kept = {n: c for n, c in history.items() if "seconds" not in n}
    np.savez(
        job["results"], kernel=estimator.kernel_, filled=estimator.transform(X), **kept
    )


def child(job, pipe):
    """Run a job and leave, without what a process usually does in the end."""
    status = 1
    try:
        work(job, pipe)
        status = 0
    except KeyboardInterrupt:
        status = 130
    except OSError as error:
        Path(job["said"]).write_text(f"{type(error).__name__}: {error}")
        status = 7
    finally:
        os._exit(status)


def status_of(job):
    """How a child ends that does a job, and is sent a signal if the job says so."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(job, writing)
    os.close(writing)
    os.read(reading, 1)  # the first step, or the end
    os.close(reading)
    if "send" in job:
        time.sleep(job["after"])
        os.kill(pid, job["send"])  # it is not reaped yet: the number is still its own
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    """Run the jobs that come in."""
    import numpy as np

    from ncarl import NCARL, Threads

    # Compiled code is loaded once, not by every child.
    X = np.random.default_rng(0).random((6, 4))
    X[0, 0] = np.nan
    NCARL(max_iter=2, tol=0, engine=Threads(1)).fit(X)
    for line in sys.stdin:
        os.write(1, f"{status_of(json.loads(line))}\n".encode())


if __name__ == "__main__":
    main()

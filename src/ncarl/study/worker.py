"""A process that does jobs one after the other: ``python -m ncarl.study.worker``.

Jobs come as JSON lines on the input and answers go out on the output. When the input
ends, because the parent has died, the process ends too, in mid-job if need be.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any


def main() -> None:
    """Do jobs until the input ends."""
    # Answers have the output to themselves; what a library prints goes to the errors.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        _say(answers, _done(json.loads(jobs.get())))


def _listen(jobs: queue.Queue[str]) -> None:
    """Queue what comes in; end the process when nothing more can."""
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)


def _say(answers: IO[str], answer: Mapping[str, Any]) -> None:
    """Send an answer on a line of its own."""
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _done(job: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a job, or what went wrong with it."""
    try:
        module, _, name = job["function"].partition(":")
        value = getattr(importlib.import_module(module), name)(job["payload"])
    except Exception as error:
        # A job must not take the study down, whatever it does.
        text = " ".join(str(error).split())
        return {"trouble": f"{type(error).__name__}: {text}"[:500]}
    return {"value": value}


if __name__ == "__main__":
    main()

"""A fake fit that is controlled by the parameters of its cell and logs its payload.

Tests of runs set ``ncarl.reproduce.run.CELL_FUNCTION`` to ``fake_fits:measure``.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


def measure(payload):
    """The artificial result of a cell."""
    cell, budget = payload["cell"], payload["budget"]
    params = cell["params"]
    begun = time.time()
    time.sleep(params.get("sleep", 0))
    with Path(os.environ["FAKE_LOG"]).open("a") as stream:
        stream.write(json.dumps({**payload, "at": [begun, time.time()]}) + "\n")
    if params.get("raise"):
        raise ValueError(params["raise"])
    if params.get("die"):
        os._exit(params["die"])
    status = "done"
    if params.get("late") and budget is not None and budget < params["late"]:
        status = "over budget"
    if cell["problem"]["data"] == "image" and not Path(params["file"]).exists():
        status = "no data"
    alpha = params.get("alpha", 0)
    error = params.get("error", 0.5 + abs(alpha - 1) + cell["seed"])
    return {
        "cell": cell,
        "status": status,
        "version": payload["version"],
        "error": None if status == "no data" else error,
        "validation": abs(alpha - 2),
        "seconds": 1.0,
        "facts": {} if budget is None else {"budget": budget},
        "curve": [float("nan")] if params.get("nan") else [],
    }

"""Fixtures for fits in child processes that are killed or fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

SERVER_SCRIPT = Path(__file__).with_name("fork_server.py")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ForkServer:
    """Connection to a process that runs fits in its children."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, SERVER_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
        )

    def run(self, job):
        """Run a job and return its exit status."""
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server():
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    found = ForkServer()
    with found.process:  # closing the pipes ends it
        yield found


class Case:
    """A fit with a checkpoint that is compared to the same fit without faults."""

    def __init__(self, server, folder, kind, options, **more):
        self.server, self.folder = server, folder
        self.state = folder / "kept" / "state"
        self.state.parent.mkdir()
        rng = np.random.default_rng(0)
        X = rng.random((40, 3)) @ rng.random((3, 20)) + 0.1 * rng.random((40, 20))
        X[rng.random(X.shape) < 0.4] = np.nan
        np.save(folder / "X.npy", X)
        self.job = {
            "class": kind,
            "options": options,
            "data": str(folder / "X.npy"),
            "said": str(folder / "said"),
        }
        self.more = {"every": 0.0, **more}

    def run(self, **more):
        """Run the fit with a checkpoint and return its exit status."""
        job = {**self.job, **self.more, **more, "checkpoint": str(self.state)}
        job["results"] = str(self.folder / "resumed.npz")
        return self.server.run(job)

    @property
    def said(self):
        """Message of the error that ended the fit."""
        return Path(self.job["said"]).read_text()

    @property
    def names(self):
        """Names of the existing files."""
        return sorted(path.name for path in self.state.parent.iterdir())

    def assert_resumes_exactly(self):
        """Resume the fit to its end and compare every bit."""
        assert self.run(pause=0.0) == 0
        results = str(self.folder / "whole.npz")
        assert self.server.run({**self.job, "results": results}) == 0
        with np.load(results) as whole, np.load(self.folder / "resumed.npz") as found:
            assert set(whole.files) == set(found.files)
            for name in whole.files:
                assert_array_equal(found[name], whole[name])


@pytest.fixture
def case(server, tmp_path):
    """Function that makes a `Case`."""
    return lambda kind, options, **more: Case(server, tmp_path, kind, options, **more)

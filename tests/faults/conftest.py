"""A place for fits that come to harm, and what came of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

NURSERY = Path(__file__).with_name("nursery.py")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Nursery:
    """Talks to a process that runs fits in children of its own."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
        )

    def run(self, job):
        """Status of a job."""
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def nursery():
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    found = Nursery()
    with found.process:  # closes its pipes, which ends it
        yield found


class Case:
    """A fit, where it keeps its state, and what it gives when nothing disturbs it."""

    def __init__(self, nursery, folder, kind, options, **more):
        self.nursery, self.folder = nursery, folder
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
        """Status of the fit, with its state kept."""
        job = {**self.job, **self.more, **more, "checkpoint": str(self.state)}
        job["results"] = str(self.folder / "resumed.npz")
        return self.nursery.run(job)

    @property
    def said(self):
        """What the error said that ended the fit."""
        return Path(self.job["said"]).read_text()

    @property
    def names(self):
        """The files that are there."""
        return sorted(path.name for path in self.state.parent.iterdir())

    def assert_ends_as_if_undisturbed(self):
        """Let the fit go on to its end and compare every bit."""
        assert self.run(pause=0.0) == 0
        results = str(self.folder / "whole.npz")
        assert self.nursery.run({**self.job, "results": results}) == 0
        with np.load(results) as whole, np.load(self.folder / "resumed.npz") as found:
            assert set(whole.files) == set(found.files)
            for name in whole.files:
                assert_array_equal(found[name], whole[name])


@pytest.fixture
def case(nursery, tmp_path):
    """Make a case of a fit."""
    return lambda kind, options, **more: Case(nursery, tmp_path, kind, options, **more)

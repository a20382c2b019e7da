"""A fit that was killed goes on to the same bits."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ncarl import NCARL, NCARLCV
from ncarl.exceptions import BrokenFileError, CheckpointMismatchError

RUN = {"max_iter": 9, "tol": 0, "alpha": 1.0, "n_neighbors": 4}
KINDS = {
    "floor": {},
    "pinv": {"weights": "pinv"},
    "smooth": {"weights": "smooth"},
    "noisy": {"gamma": 0.1},
    "fixed graph": {"graph": "fixed"},
    "given graph": {"graph": np.eye(9)[::-1] + 0.5},
    "no graph": {"graph": None},
    "rows": {"orientation": "rows"},
    "centred": {"center": "two-way", "scale": "columns"},
    "float32": {"dtype": "float32", "delta": 1e-3},
}


def kill_at_five(info):
    if info.step == 5:
        raise RuntimeError("killed")


def assert_same_fit(one, other, X):
    assert_array_equal(one.kernel_, other.kernel_)
    assert_array_equal(one.transform(X), other.transform(X))
    for name in ("step", "objective", "change", "jitter"):
        assert_array_equal(one.history_[name], other.history_[name])
    assert one.n_iter_ == other.n_iter_
    assert one.converged_ == other.converged_
    assert_array_equal(one.similarity_.toarray(), other.similarity_.toarray())
    assert one.model_.sigma == other.model_.sigma


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state"


@pytest.mark.parametrize("name", KINDS)
def test_killed_fit_resumes_to_the_same_bits(name, X, path):
    options = {**RUN, **KINDS[name]}
    undisturbed = NCARL(**options).fit(X)
    with pytest.raises(RuntimeError, match="killed"):
        NCARL(**options, checkpoint=path, callback=kill_at_five).fit(X)
    made = []
    resumed = NCARL(**options, checkpoint=path, callback=made.append).fit(X)
    assert [info.step for info in made] == [6, 7, 8, 9]
    assert_same_fit(resumed, undisturbed, X)


def test_fit_killed_at_every_step_resumes_to_the_same_bits(X, path):
    undisturbed = NCARL(**RUN).fit(X)

    def kill(info):
        raise RuntimeError("killed")

    for _ in range(8):
        with pytest.raises(RuntimeError, match="killed"):
            NCARL(**RUN, checkpoint=path, callback=kill).fit(X)
    assert_same_fit(NCARL(**RUN, checkpoint=path).fit(X), undisturbed, X)


def test_checkpoint_does_not_change_the_fit(X, path):
    assert_same_fit(NCARL(**RUN, checkpoint=path).fit(X), NCARL(**RUN).fit(X), X)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["state"]


SCRIPT = """
import os, signal, sys
import numpy as np
from ncarl import NCARL

def die(info):
    if info.step == 5:
        {death}

X = np.load(sys.argv[1])
NCARL(max_iter=9, tol=0, alpha=1.0, n_neighbors=4, checkpoint=sys.argv[2],
      callback=die).fit(X)
"""


@pytest.mark.parametrize(
    ("death", "code"),
    [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL)],
)
def test_process_that_died_resumes_to_the_same_bits(X, path, death, code):
    np.save(path.parent / "x.npy", X)
    command = [sys.executable, "-c", SCRIPT.format(death=death)]
    arguments = [os.fspath(path.parent / "x.npy"), os.fspath(path)]
    done = subprocess.run([*command, *arguments], check=False, timeout=60)
    assert done.returncode == code
    made = []
    resumed = NCARL(**RUN, checkpoint=path, callback=made.append).fit(X)
    assert [info.step for info in made] == [6, 7, 8, 9]
    assert_same_fit(resumed, NCARL(**RUN).fit(X), X)


def test_more_steps_continue_a_finished_fit(X, path):
    NCARL(**{**RUN, "max_iter": 4}, checkpoint=path).fit(X)
    made = []
    longer = NCARL(**RUN, checkpoint=path, callback=made.append).fit(X)
    assert [info.step for info in made] == [5, 6, 7, 8, 9]
    assert_same_fit(longer, NCARL(**RUN).fit(X), X)


@pytest.mark.parametrize("gamma", [None, 0.1])
@pytest.mark.parametrize("tol", [0, 1e-2])
def test_finished_checkpoint_gives_the_fit_without_a_step(X, path, tol, gamma):
    options = {**RUN, "tol": tol, "max_iter": 60, "gamma": gamma}
    first = NCARL(**options, checkpoint=path).fit(X)
    assert first.converged_ == (tol > 0)
    made = []
    again = NCARL(**options, checkpoint=path, callback=made.append).fit(X)
    assert made == []
    assert_same_fit(again, first, X)


def test_interrupted_fit_resumes(X, path):
    def interrupt(info):
        if info.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        NCARL(**RUN, checkpoint=path, callback=interrupt).fit(X)
    assert_same_fit(NCARL(**RUN, checkpoint=path).fit(X), NCARL(**RUN).fit(X), X)


@pytest.mark.parametrize("position", [0, 20, 60, 500, -1])
def test_damaged_checkpoint_is_refused_and_left_alone(X, path, position):
    NCARL(**RUN, checkpoint=path).fit(X)
    broken = bytearray(path.read_bytes())
    broken[position] ^= 1
    path.write_bytes(broken)
    with pytest.raises(BrokenFileError, match="state"):
        NCARL(**RUN, checkpoint=path).fit(X)
    assert path.read_bytes() == bytes(broken)


def test_truncated_checkpoint_is_refused(X, path):
    NCARL(**RUN, checkpoint=path).fit(X)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BrokenFileError, match="damaged"):
        NCARL(**RUN, checkpoint=path).fit(X)


def test_write_that_fails_keeps_the_step_before(X, path, monkeypatch):
    with pytest.raises(RuntimeError):
        NCARL(**RUN, checkpoint=path, callback=kill_at_five).fit(X)
    before = path.read_bytes()

    def fail(handle):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        NCARL(**RUN, checkpoint=path).fit(X)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["state"]
    assert_same_fit(NCARL(**RUN, checkpoint=path).fit(X), NCARL(**RUN).fit(X), X)


GRID = {
    "alphas": (0.0, 1.0, 10.0),
    "gammas": (None, np.float32(0.5)),
    "centers": (None,),
    "n_neighbors": np.arange(3, 5),
    "search_iter": 4,
    "max_iter": 6,
    "tol": 0,
}


class TestSearch:
    @pytest.mark.parametrize("after", [1, 4, 5])
    def test_killed_in_the_middle_resumes_to_the_same_table(
        self, X, path, after, monkeypatch
    ):
        from ncarl.estimators import grid

        undisturbed = NCARLCV(**GRID).fit(X)
        usual, count = grid.SearchFile.write, []

        def write_then_die(self, table):
            usual(self, table)
            count.append(1)
            if len(count) == after:
                raise RuntimeError("killed")

        monkeypatch.setattr(grid.SearchFile, "write", write_then_die)
        with pytest.raises(RuntimeError, match="killed"):
            NCARLCV(**GRID, checkpoint=path).fit(X)
        assert len(count) == after
        resumed = NCARLCV(**GRID, checkpoint=path).fit(X)
        assert len(count) == 12
        for name in ("error", "n_iter", "params"):
            assert_array_equal(resumed.cv_results_[name], undisturbed.cv_results_[name])
        assert resumed.best_params_ == undisturbed.best_params_
        assert_same_fit(resumed, undisturbed, X)

    def test_killed_in_the_final_fit_resumes(self, X, path):
        undisturbed = NCARLCV(**GRID).fit(X)
        with pytest.raises(RuntimeError, match="killed"):
            NCARLCV(**GRID, checkpoint=path, callback=kill_at_five).fit(X)
        made = []
        resumed = NCARLCV(**GRID, checkpoint=path, callback=made.append).fit(X)
        assert [info.step for info in made] == [6]
        assert_same_fit(resumed, undisturbed, X)
        assert_array_equal(
            resumed.cv_results_["error"], undisturbed.cv_results_["error"]
        )

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"random_state": 1}, "random_state"), ({"alphas": (0.0,)}, "grid")],
    )
    def test_other_search_is_refused(self, X, path, change, named):
        NCARLCV(**GRID, checkpoint=path).fit(X)
        other = NCARLCV(**{**GRID, **change}, checkpoint=path)
        with pytest.raises(CheckpointMismatchError, match=f"checkpoint.*{named}"):
            other.fit(X)
        with pytest.raises(CheckpointMismatchError, match=r"checkpoint.*data"):
            NCARLCV(**GRID, checkpoint=path).fit(X[1:])

    def test_damaged_table_is_refused(self, X, path):
        NCARLCV(**GRID, checkpoint=path).fit(X)
        broken = bytearray(path.read_bytes())
        broken[-30] ^= 4
        path.write_bytes(broken)
        with pytest.raises(BrokenFileError, match="damaged"):
            NCARLCV(**GRID, checkpoint=path).fit(X)

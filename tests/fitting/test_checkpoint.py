"""Tests that killed fits resume bit-identically from checkpoints."""

import copy
import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from ncarl import NCARL, NCARLCV, BayesianNCARL, Checkpoint, Nuclear
from ncarl.exceptions import BrokenFileError, CheckpointMismatchError
from ncarl.fitting import checkpoint as module
from ncarl.fitting.checkpoint import CheckpointFile
from ncarl.fitting.loop import History
from ncarl.io.files import read_archive, write_archive

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
    "centered": {"center": "two-way", "scale": "columns"},
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
def test_killed_fit_resumes_bit_identically(name, X, path):
    options = {**RUN, **KINDS[name]}
    undisturbed = NCARL(**options).fit(X)
    with pytest.raises(RuntimeError, match="killed"):
        NCARL(**options, checkpoint=path, callback=kill_at_five).fit(X)
    made = []
    resumed = NCARL(**options, checkpoint=path, callback=made.append).fit(X)
    assert [info.step for info in made] == [6, 7, 8, 9]
    assert_same_fit(resumed, undisturbed, X)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["state"]


def test_larger_max_iter_continues_a_finished_fit(X, path):
    NCARL(**{**RUN, "max_iter": 4}, checkpoint=path).fit(X)
    made = []
    longer = NCARL(**RUN, checkpoint=path, callback=made.append).fit(X)
    assert [info.step for info in made] == [5, 6, 7, 8, 9]
    assert_same_fit(longer, NCARL(**RUN).fit(X), X)


@pytest.mark.parametrize("gamma", [None, 0.1])
@pytest.mark.parametrize("tol", [0, 1e-2])
def test_finished_checkpoint_is_loaded_without_a_step(X, path, tol, gamma):
    options = {**RUN, "tol": tol, "max_iter": 60, "gamma": gamma}
    first = NCARL(**options, checkpoint=path).fit(X)
    assert first.converged_ == (tol > 0)
    made = []
    again = NCARL(**options, checkpoint=path, callback=made.append).fit(X)
    assert made == []
    assert_same_fit(again, first, X)


@pytest.mark.parametrize("position", [0, 60, -1])
def test_damaged_checkpoint_raises_and_is_kept(X, path, position):
    NCARL(**RUN, checkpoint=path).fit(X)
    broken = bytearray(path.read_bytes())
    broken[position] ^= 1
    path.write_bytes(broken)
    with pytest.raises(BrokenFileError, match="state"):
        NCARL(**RUN, checkpoint=path).fit(X)
    assert path.read_bytes() == bytes(broken)
    path.write_bytes(broken[:-40])
    with pytest.raises(BrokenFileError, match="damaged"):
        NCARL(**RUN, checkpoint=path).fit(X)


def test_failed_write_keeps_the_previous_step(X, path, monkeypatch):
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
    def test_killed_search_resumes_to_the_same_table(self, X, path, after, monkeypatch):
        undisturbed = NCARLCV(**GRID).fit(X)
        usual, count = CheckpointFile.save, []

        def save_and_raise(self, *state):
            usual(self, *state)
            count.extend([1] * (self.kind == "search"))
            if len(count) == after:
                raise RuntimeError("killed")

        monkeypatch.setattr(CheckpointFile, "save", save_and_raise)
        with pytest.raises(RuntimeError, match="killed"):
            NCARLCV(**GRID, checkpoint=path).fit(X)
        assert len(count) == after
        resumed = NCARLCV(**GRID, checkpoint=path).fit(X)
        assert len(count) == 12
        for name in ("error", "n_iter", "params"):
            assert_array_equal(resumed.cv_results_[name], undisturbed.cv_results_[name])
        assert resumed.best_params_ == undisturbed.best_params_
        assert_same_fit(resumed, undisturbed, X)

    def test_killed_final_fit_resumes(self, X, path):
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
        [
            ({"random_state": 1}, r"in random_state \(0 there, 1 here\)\."),
            (
                {"alphas": (0.0,)},
                r"in alphas \(\[0.0, 1.0, 10.0\] there, \[0.0\] here\)\.",
            ),
        ],
    )
    def test_checkpoint_of_another_search_raises(self, X, path, change, named):
        NCARLCV(**GRID, checkpoint=path).fit(X)
        other = NCARLCV(**{**GRID, **change}, checkpoint=path)
        with pytest.raises(CheckpointMismatchError, match=f"checkpoint.*{named}"):
            other.fit(X)
        with pytest.raises(CheckpointMismatchError, match=r"checkpoint.*data"):
            NCARLCV(**GRID, checkpoint=path).fit(X[1:])


class Clock:
    """A fake clock that advances by a second per step and records the writes."""

    def __init__(self, monkeypatch):
        self.now, self.written = 1000.0, []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self.read))
        usual = module.CheckpointFile.save

        def save(file, at, *state):
            usual(file, at, *state)
            self.written.append((file.path.name, at))

        monkeypatch.setattr(module.CheckpointFile, "save", save)

    def read(self):
        return self.now

    def tick(self, info):
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def steps(name, *numbers):
    return [(name, f"step {k}") for k in numbers]


class TestEvery:
    @pytest.mark.parametrize(
        ("every", "expected"),
        [
            (0.0, range(1, 10)),
            (1.0, range(2, 10)),  # the clock advances after the write
            (2.5, (4, 7, 9)),
            (1e9, (9,)),
        ],
    )
    @pytest.mark.parametrize("estimator", [NCARL(**RUN), Nuclear(max_iter=9, tol=0)])
    def test_state_is_written_at_intervals_and_at_the_end(
        self, X, path, clock, estimator, every, expected
    ):
        kept = clone(estimator).set_params(
            checkpoint=Checkpoint(path, every), callback=clock.tick
        )
        assert_array_equal(kept.fit_transform(X), clone(estimator).fit_transform(X))
        assert clock.written == steps("state", *expected)

    def test_interval_restarts_with_a_fit(self, X, path, clock):
        kept = Checkpoint(path, 2.5)
        NCARL(**{**RUN, "max_iter": 2}, checkpoint=kept, callback=clock.tick).fit(X)
        NCARL(**RUN, checkpoint=kept, callback=clock.tick).fit(X)
        assert clock.written == steps("state", 2, 6, 9)
        NCARL(**RUN, checkpoint=kept, callback=clock.tick).fit(X)
        assert len(clock.written) == 3  # no step was made

    @pytest.mark.parametrize("estimator", [NCARL(**RUN), Nuclear(max_iter=9, tol=0)])
    def test_last_step_is_written_when_stopped_or_interrupted(
        self, X, path, clock, estimator
    ):
        whole = clone(estimator).fit_transform(X)
        kept = clone(estimator).set_params(checkpoint=Checkpoint(path, 1e9))
        kept.set_params(callback=lambda info: info.step == 3).fit(X)
        assert clock.written == steps("state", 3)

        def interrupt(info):
            if info.step == 6:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            kept.set_params(callback=interrupt).fit(X)
        assert clock.written == steps("state", 3, 6)
        made = []
        kept.set_params(callback=made.append).fit(X)
        assert [info.step for info in made] == [7, 8, 9]
        assert_array_equal(kept.transform(X), whole)

    @pytest.mark.parametrize("estimator", [NCARL(**RUN), Nuclear(max_iter=9, tol=0)])
    def test_error_loses_at_most_the_steps_since_the_last_write(
        self, X, path, clock, estimator
    ):
        kept = clone(estimator).set_params(callback=kill_at_five)
        for every, expected in ((1e9, []), (0.0, steps("state", 1, 2, 3, 4, 5))):
            with pytest.raises(RuntimeError, match="killed"):
                kept.set_params(checkpoint=Checkpoint(path, every)).fit(X)
            assert clock.written == expected

    def test_converged_fit_is_written(self, X, path, clock):
        options = {**RUN, "tol": 1e-2, "max_iter": 60}
        first = NCARL(**options, checkpoint=Checkpoint(path, 1e9)).fit(X)
        assert first.converged_
        assert clock.written == steps("state", first.n_iter_)

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_step_interrupted_by_ctrl_c_is_not_written(
        self, X, path, monkeypatch, when
    ):
        usual = History.add

        def add(self, iterate, scale):
            if iterate.step == 4 and when == "before":
                raise KeyboardInterrupt
            usual(self, iterate, scale)
            if iterate.step == 4:
                raise KeyboardInterrupt

        monkeypatch.setattr(History, "add", add)
        options = {**RUN, "checkpoint": Checkpoint(path, 1e9)}
        with pytest.raises(KeyboardInterrupt):
            NCARL(**options).fit(X)
        monkeypatch.undo()
        header, _ = read_archive(path, "checkpoint")
        assert header["history"]["step"] == [1, 2, 3]
        assert_same_fit(NCARL(**options).fit(X), NCARL(**RUN).fit(X), X)

    def test_write_interrupted_by_ctrl_c_is_repeated(self, X, path, monkeypatch):
        usual, calls = os.fsync, []

        def fsync(handle):
            calls.append(handle)
            if len(calls) == 5:  # the file of the third step
                raise KeyboardInterrupt
            usual(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(KeyboardInterrupt):
            NCARL(**RUN, checkpoint=path).fit(X)
        header, _ = read_archive(path, "checkpoint")
        assert header["history"]["step"] == [1, 2, 3]
        assert [p.name for p in path.parent.iterdir()] == ["state"]
        assert_same_fit(NCARL(**RUN, checkpoint=path).fit(X), NCARL(**RUN).fit(X), X)

    def test_search_is_written_at_intervals_and_at_the_end(self, X, path, clock):
        # The search makes no callbacks, so the clock does not advance.
        kept = Checkpoint(path, 3.0)
        whole = NCARLCV(**GRID).fit(X)
        found = NCARLCV(**GRID, checkpoint=kept, callback=clock.tick).fit(X)
        assert clock.written == [
            ("state", "point 12 of the search"),
            *steps("state.fit", 4, 6),
        ]
        assert_same_fit(found, whole, X)

    def test_interrupted_search_keeps_the_finished_points(
        self, X, path, clock, monkeypatch
    ):
        from ncarl.estimators import ncarl_cv as search

        usual, calls = search.HoldoutScorer.__call__, []

        def trial(self, *given):
            calls.append(given)
            if len(calls) == 6:
                raise KeyboardInterrupt
            return usual(self, *given)

        monkeypatch.setattr(search.HoldoutScorer, "__call__", trial)
        kept = {**GRID, "checkpoint": Checkpoint(path, 1e9)}
        with pytest.raises(KeyboardInterrupt):
            NCARLCV(**kept).fit(X)
        assert clock.written == [("state", "point 5 of the search")]
        found = NCARLCV(**kept).fit(X)
        assert len(calls) == 6 + 7
        assert_same_fit(found, NCARLCV(**GRID).fit(X), X)


class TestOption:
    def test_can_be_cloned_copied_and_compared(self, path):
        kept = Checkpoint(path, every=5)
        assert os.fspath(kept) == os.fspath(path)
        model = NCARL(checkpoint=kept)
        assert model.get_params()["checkpoint"] is kept
        assert clone(model).checkpoint == kept
        assert copy.deepcopy(kept) == pickle.loads(pickle.dumps(kept)) == kept
        assert kept != Checkpoint(path)
        assert "every=5" in repr(model)
        with pytest.raises(AttributeError):
            kept.every = 3

    @pytest.mark.parametrize("kind", [NCARL, NCARLCV, BayesianNCARL, Nuclear])
    def test_string_path_and_checkpoint_are_equivalent(self, X, path, kind):
        options = {"max_iter": 3, "tol": 0}
        one = kind(**options, checkpoint=str(path)).fit(X)
        before = {p: p.read_bytes() for p in path.parent.iterdir()}
        for given in (path, Checkpoint(str(path), 60), Checkpoint(path)):
            again = kind(**options, checkpoint=given, callback=pytest.fail).fit(X)
            assert_array_equal(again.transform(X), one.transform(X))
        assert {p: p.read_bytes() for p in path.parent.iterdir()} == before

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            (("x", -1), ValueError, "every must be.*got -1"),
            (("x", float("nan")), ValueError, "every must be.*got nan"),
            (("x", "3"), TypeError, "every must be a finite number"),
            ((3,), TypeError, "path must be a path, got 3"),
        ],
    )
    def test_invalid_options_raise(self, given, error, message):
        with pytest.raises(error, match=message):
            Checkpoint(*given)

    def test_device_file_raises(self, X):
        with pytest.raises(FileExistsError, match=r"checkpoint '.*null' is a device"):
            NCARL(checkpoint=os.devnull).fit(X)


FITS = {
    "NCARL": NCARL(max_iter=3, tol=0),
    "NCARLCV": NCARLCV(max_iter=3, tol=0, alphas=(0.0,), gammas=(None,)),
    "BayesianNCARL": BayesianNCARL(max_iter=3, tol=0),
    "Nuclear": Nuclear(max_iter=3, tol=0),
}


class TestMismatch:
    @pytest.mark.parametrize("there", FITS)
    @pytest.mark.parametrize("here", FITS)
    def test_file_of_another_estimator_raises(self, X, path, there, here):
        clone(FITS[there]).set_params(checkpoint=path).fit(X)
        other = clone(FITS[here]).set_params(checkpoint=path)
        if here == there:
            other.fit(X)
            return
        before = path.read_bytes()
        with pytest.raises(
            CheckpointMismatchError,
            match=f"was written by {there}, and this is {here}",
        ):
            other.fit(X)
        assert path.read_bytes() == before

    def test_part_of_a_search_is_not_a_separate_fit(self, X, path):
        clone(FITS["NCARLCV"]).set_params(checkpoint=path).fit(X)
        part = f"{path}.fit"
        with pytest.raises(CheckpointMismatchError, match="written by NCARLCV"):
            NCARL(max_iter=3, tol=0, checkpoint=part).fit(X)
        with pytest.raises(CheckpointMismatchError, match="another part of NCARLCV"):
            clone(FITS["NCARLCV"]).set_params(checkpoint=part).fit(X)

    def test_error_names_the_shapes(self, X, path):
        NCARL(**RUN, checkpoint=path).fit(X)
        with pytest.raises(
            CheckpointMismatchError, match=r"the data \(24 x 9 there, 20 x 9 here\)"
        ):
            NCARL(**RUN, checkpoint=path).fit(X[:20])
        with pytest.raises(
            CheckpointMismatchError,
            match=r"the data \(other values or other missing entries\)",
        ):
            NCARL(**RUN, checkpoint=path).fit(X + 1)

    def test_long_values_are_truncated(self, X, path):
        NCARLCV(**GRID, checkpoint=path).fit(X)
        other = NCARLCV(**{**GRID, "alphas": np.arange(99.0)}, checkpoint=path)
        with pytest.raises(CheckpointMismatchError, match=r"….* here") as caught:
            other.fit(X)
        assert len(str(caught.value)) < 400

    def test_file_with_missing_parts_raises(self, X, path):
        NCARL(**RUN, checkpoint=path).fit(X)
        header, arrays = read_archive(path, "checkpoint")
        for name in ("fit_id", "history", "noise"):
            left = {key: value for key, value in header.items() if key != name}
            write_archive(path, left, arrays)
            with pytest.raises(BrokenFileError, match=f"state.*lacks '{name}'"):
                NCARL(**RUN, checkpoint=path).fit(X)

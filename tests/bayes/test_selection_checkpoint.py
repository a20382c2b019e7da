"""Tests of checkpoints: resumed fits are bit-identical, other fits are refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ncarl import BayesianNCARL, Checkpoint, Threads
from ncarl.bayes import em
from ncarl.bayes.em import em_step
from ncarl.exceptions import CheckpointMismatchError, NotPositiveDefiniteError
from ncarl.io.files import read_archive

FEW = {"max_iter": 4, "tol": 0, "engine": Threads(1)}
OPTIONS = {
    "auto": {"sides": "both"},
    "given": {"prior_strength": 0.1, "sides": "columns"},
    "no validation": {"validation": 0, "sides": "both"},
    "rows": {"prior_strength": 0.1, "sides": "rows"},
    "per-column": {"prior_strength": 0.1, "noise": "per-column", "scale": "columns"},
    "no noise": {"noise": 0, "validation": 0, "sides": "columns"},
    "single": {"dtype": "float32", "prior_strength": 0.1, "sides": "columns"},
}


class StopAtCall:
    """Callback that counts calls and raises at one of them."""

    def __init__(self, at=None, error=KeyboardInterrupt):
        self.at, self.error, self.calls = at, error, 0

    def __call__(self, info):
        self.calls += 1
        if self.calls == self.at:
            raise self.error("killed")


def assert_same(one, other, X):
    assert_array_equal(one.kernel_, other.kernel_)
    assert_array_equal(one.noise_, other.noise_)
    assert one.log_evidence_ == other.log_evidence_
    assert (one.weight_, one.sides_) == (other.weight_, other.sides_)
    assert one.search_ == other.search_
    assert (one.n_iter_, one.converged_) == (other.n_iter_, other.converged_)
    assert_array_equal(
        one.blended_scores_.sorted_scores, other.blended_scores_.sorted_scores
    )
    assert_array_equal(one.transform(X), other.transform(X))
    for name in ("objective", "log_evidence", "penalized_evidence", "change"):
        assert_array_equal(one.history_[name], other.history_[name])


def assert_resumes_without_steps(kept, whole, X):
    done = StopAtCall()
    assert_same(whole, BayesianNCARL(**kept, callback=done).fit(X), X)
    assert done.calls == 0


@pytest.fixture
def checkpointed(X, tmp_path):
    """Parameters of a fit with a complete checkpoint."""
    options = {**FEW, **OPTIONS["given"], "checkpoint": tmp_path / "state"}
    BayesianNCARL(**options).fit(X)
    return options


@pytest.mark.parametrize("name", OPTIONS)
def test_killed_fit_resumes_bit_identically(name, X, tmp_path):
    counted = StopAtCall()
    whole = BayesianNCARL(**FEW, **OPTIONS[name], callback=counted).fit(X)
    total = counted.calls
    for at, error in (
        (total // 2, KeyboardInterrupt),
        (total - 6, KeyboardInterrupt),
        (total - 2, RuntimeError),
    ):
        if at < 1:
            continue
        kept = {**FEW, **OPTIONS[name], "checkpoint": tmp_path / f"{error}{at}"}
        killer = StopAtCall(at, error)
        with pytest.raises(error):
            BayesianNCARL(**kept, callback=killer).fit(X)
        assert killer.calls == at
        after = StopAtCall()
        resumed = BayesianNCARL(**kept, callback=after).fit(X)
        assert_same(whole, resumed, X)
        # Trials restart from the beginning; the final runs continue.
        assert after.calls <= total if at < total - 2 else after.calls < total
        assert_resumes_without_steps(kept, whole, X)


def test_fit_stopped_by_callback_can_be_resumed(X, tmp_path):
    options = {**FEW, "validation": 0, "sides": "columns"}
    whole = BayesianNCARL(**options).fit(X)
    kept = {**options, "checkpoint": tmp_path / "state"}
    stopped = BayesianNCARL(**kept, callback=lambda info: info.step == 2).fit(X)
    assert stopped.n_iter_ == 2
    steps = []
    resumed = BayesianNCARL(**kept, callback=lambda i: steps.append(i.step)).fit(X)
    assert steps == [3, 4]
    assert_same(whole, resumed, X)


def test_fit_ended_by_numerical_failure_is_not_resumed(X, tmp_path, monkeypatch):
    calls = []

    def failing_em_step(*args, **kwargs):
        calls.append(1)
        if len(calls) > 3:
            raise NotPositiveDefiniteError
        return em_step(*args, **kwargs)

    monkeypatch.setattr(em, "em_step", failing_em_step)
    options = {**FEW, "max_iter": 9, "validation": 0, "sides": "columns"}
    kept = {**options, "checkpoint": tmp_path / "state"}
    whole = BayesianNCARL(**kept).fit(X)
    assert whole.n_iter_ == 2
    assert_same(whole, BayesianNCARL(**kept).fit(X), X)


def test_converged_fit_is_not_continued(X, tmp_path):
    options = {"max_iter": 200, "tol": 1e-3, "validation": 0, "sides": "columns"}
    kept = {**options, "checkpoint": tmp_path / "state"}
    whole = BayesianNCARL(**kept).fit(X)
    assert whole.converged_
    assert whole.n_iter_ < 200
    assert_resumes_without_steps(kept, whole, X)


def test_unconverged_fit_warns_again_when_loaded(X, tmp_path):
    kept = {"max_iter": 3, "tol": 1e-9, "validation": 0, "sides": "columns"}
    kept["checkpoint"] = tmp_path / "state"
    for _ in range(2):
        model = BayesianNCARL(**kept)
        with pytest.warns(Warning, match="did not converge"):
            model.fit(X)
        assert not model.converged_


OTHERS = {
    "prior": "identity",
    "prior_strength": 0.2,
    "center": "columns",
    "noise": 0.3,
    "sides": "both",
    "max_iter": 7,
    "tol": 1e-9,
    "scale": "columns",
    "validation": 0.2,
    "random_state": 1,
    "dtype": "float32",
}


@pytest.mark.parametrize("name", OTHERS)
def test_checkpoint_of_other_parameters_raises(name, X, checkpointed):
    with pytest.raises(CheckpointMismatchError, match=name[:5]):
        BayesianNCARL(**{**checkpointed, name: OTHERS[name]}).fit(X)


def test_checkpoint_of_other_data_raises(X, checkpointed):
    other = X.copy()
    other[0, 0] = 1.0 if np.isnan(X[0, 0]) else np.nan
    for Z in (other, X * 2, X[1:]):
        with pytest.raises(CheckpointMismatchError, match="data"):
            BayesianNCARL(**checkpointed).fit(Z)
    with pytest.raises(CheckpointMismatchError, match="prior"):
        BayesianNCARL(**checkpointed, prior=np.eye(8)).fit(X)


def test_parameters_without_effect_on_the_fit_may_change(X, checkpointed):
    one, done = BayesianNCARL(**checkpointed).fit(X), StopAtCall()
    bounds = {"clip": (0.0, 1.0), "rounding": "observed"}
    other = BayesianNCARL(**checkpointed, **bounds, callback=done).fit(X)
    assert done.calls == 0
    assert_array_equal(one.kernel_, other.kernel_)
    assert other.predict(X).max() <= 1.0


@pytest.mark.parametrize("every", [0.0, 1e9])
def test_end_of_every_part_is_written_for_any_interval(X, tmp_path, every):
    options = {**FEW, **OPTIONS["auto"]}
    kept = {**options, "checkpoint": Checkpoint(tmp_path / "state", every)}
    whole = BayesianNCARL(**options).fit(X)
    assert_same(whole, BayesianNCARL(**kept).fit(X), X)
    assert_resumes_without_steps(kept, whole, X)


@pytest.mark.parametrize(
    ("every", "error", "left"),
    [
        (0.0, KeyboardInterrupt, 3),
        (1e9, KeyboardInterrupt, 3),
        (0.0, RuntimeError, 3),
        (1e9, RuntimeError, None),
    ],
)
def test_state_written_by_an_interrupted_run(X, tmp_path, every, error, left):
    options = {**FEW, "max_iter": 6, "validation": 0, "sides": "columns"}
    kept = {**options, "checkpoint": Checkpoint(tmp_path / "state", every)}
    with pytest.raises(error):
        BayesianNCARL(**kept, callback=StopAtCall(3, error)).fit(X)
    part = tmp_path / "state.columns"
    assert part.exists() == (left is not None)
    if left is not None:
        header, _ = read_archive(part, "checkpoint")
        assert header["history"]["step"][-1] == left
    after = StopAtCall()
    resumed = BayesianNCARL(**kept, callback=after).fit(X)
    assert after.calls == 6 - (left or 0)
    assert_same(BayesianNCARL(**options).fit(X), resumed, X)

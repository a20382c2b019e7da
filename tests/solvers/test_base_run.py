"""run_solver and its checkpoint: after a crash, and after the end of a fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ncarl import Checkpoint, Nuclear


@pytest.fixture(name="X")
def gappy(rng):
    X = rng.standard_normal((12, 9))
    X[rng.random(X.shape) < 0.4] = np.nan
    return X


class CrashError(RuntimeError):
    pass


def crash(info):
    if info.step == 6:
        raise CrashError


def test_a_crash_loses_no_more_than_the_last_seconds(X, tmp_path):
    path = tmp_path / "state"
    model = Nuclear(max_iter=20, tol=0, checkpoint=Checkpoint(path, every=1e12))
    with pytest.raises(CrashError):
        model.set_params(callback=crash).fit(X)
    assert not path.exists()
    with pytest.raises(CrashError):
        model.set_params(checkpoint=path).fit(X)
    seen = []
    model.set_params(callback=lambda info: seen.append(info.step)).fit(X)
    assert seen == list(range(7, 21))
    assert_array_equal(model.transform(X), Nuclear(max_iter=20, tol=0).fit_transform(X))


def test_a_finished_fit_is_read_and_not_made_again(X, tmp_path):
    path = tmp_path / "state"
    model = Nuclear(checkpoint=path).fit(X)
    assert model.converged_
    again = Nuclear(checkpoint=path, callback=lambda _: pytest.fail("a step")).fit(X)
    assert again.converged_
    assert again.n_iter_ == model.n_iter_
    assert again.objective_ == model.objective_
    assert_array_equal(again.transform(X), model.transform(X))

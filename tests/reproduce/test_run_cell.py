"""Tests of single cells: independent results, budgets, missing data."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from ncarl import make
from ncarl.reproduce import run
from ncarl.reproduce.plan import (
    Cell,
    CellResult,
    ProblemSpec,
    hold_out_validation,
    make_task,
)
from ncarl.reproduce.run import (
    MeanBaseline,
    build_estimator,
    collect_fit_facts,
    run_cell,
)

LOW = ProblemSpec("low-rank", {"m": 25, "n": 12, "rank": 2, "noise": 0.1}, 0.4)
STARS = ProblemSpec("like-ratings", {"users": 15, "items": 12, "each": 6}, 0.4)
PHOTO = ProblemSpec("photo", {"name": "flower", "step": 30}, 0.4)


@pytest.fixture(autouse=True)
def skip_warm_up(monkeypatch):
    """Skip the compilation in advance, since times are not compared."""
    monkeypatch.setattr(run, "warm_up", lambda engine, threads: None)


def measure(cell, budget=None, folder=None, engine="threads"):
    """The result of a cell after a JSON round trip."""
    payload = {
        "cell": cell.to_dict(), "engine": engine, "threads": 1, "budget": budget,
        "folder": None if folder is None else str(folder), "machine": "a computer",
        "version": "v7",
    }  # fmt: skip
    said = run_cell(json.loads(json.dumps(payload)))
    return CellResult.from_dict(json.loads(json.dumps(said, allow_nan=False)))


def relative(truth, guess):
    return np.sqrt(np.sum((truth - guess) ** 2)) / np.sqrt(np.sum(truth**2))


def fake_estimator(monkeypatch, **about):
    """Install an estimator with given attributes that predicts ones."""

    class Fake:
        guess = 1.0

        def set_params(self, **params):
            self.callback = params["callback"]

        def fit(self, X):
            vars(self).update(about)

        def predict(self, rows, cols):
            return np.full(len(rows), self.guess)

    made = []

    def make_fake(name, **params):
        made.append((name, params))
        return Fake()

    monkeypatch.setattr(run, "make", make_fake)
    return made


@pytest.mark.parametrize(
    ("problem", "estimator"), [(LOW, "mean"), (STARS, "mean"), (STARS, "bias")]
)
def test_error_is_the_relative_error_on_hidden_entries(problem, estimator):
    posed = make_task(problem, 4)
    if estimator == "mean":
        known = posed.X.data if problem is STARS else posed.X[~np.isnan(posed.X)]
        guess = np.full(len(posed.truth), known.mean())
    else:
        guess = make("bias").fit(posed.X).predict(posed.rows, posed.cols)
    result = measure(Cell(problem, "x", estimator, {}, seed=4))
    assert result.status == "done"
    assert result.error == pytest.approx(relative(posed.truth, guess))
    apart = np.sqrt(np.mean((posed.truth - guess) ** 2))
    assert result.scores == {"rmse": pytest.approx(apart)}
    assert result.validation is None
    assert (result.version, result.machine) == ("v7", "a computer")
    assert result.message == ""
    assert 0.0 < result.seconds < 30.0
    if estimator == "mean":  # no steps
        assert (result.steps, result.converged, result.curve) == (None, None, ())


@pytest.mark.parametrize("problem", [LOW, STARS], ids=["dense", "sparse"])
def test_search_measures_held_out_and_hidden_entries(
    problem,
):
    posed = hold_out_validation(make_task(problem, 1), 1)
    fitted = make("bias").fit(posed.X)
    rows, cols, known = posed.validation_entries
    result = measure(Cell(problem, "x", "bias", {}, seed=1, role="search"))
    assert result.validation == pytest.approx(
        relative(known, fitted.predict(rows, cols))
    )
    guess = fitted.predict(posed.rows, posed.cols)
    assert result.error == pytest.approx(relative(posed.truth, guess))
    assert result.error != measure(Cell(problem, "x", "bias", {}, seed=1)).error


def test_parameters_and_engine_are_passed_to_the_estimator(monkeypatch):
    made = fake_estimator(monkeypatch)
    measure(Cell(LOW, "x", "ncarl", {"alpha": 3.0}), engine="torch")
    measure(Cell(LOW, "x", "ncarl", {"alpha": 3.0}))
    (name, params), (_, here) = made
    assert (name, params) == ("ncarl", {"alpha": 3.0, "engine": "torch"})
    assert here["engine"].n_jobs == 1
    assert isinstance(build_estimator("mean", {}, "threads", 1), MeanBaseline)


def test_fit_over_its_budget_is_stopped():
    cell = Cell(LOW, "x", "ncarl", {"max_iter": 50, "tol": 0.0})
    result = measure(cell, budget=1e-9)
    assert (result.status, result.steps) == ("over budget", 1)
    assert result.message.startswith("stopped after")
    assert result.facts["budget"] == 1e-9
    assert result.error > 0.0  # error of the last step
    whole = measure(cell, budget=60.0)
    assert (whole.status, whole.steps, whole.facts["budget"]) == ("done", 50, 60.0)
    assert "budget" not in measure(cell).facts
    assert whole.error != result.error


def test_missing_or_unreadable_data_is_a_result(monkeypatch, tmp_path):
    monkeypatch.setenv("NCARL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cell = Cell(
        ProblemSpec("image", {"folder": "nowhere", "name": "a.png"}), "x", "bias", {}
    )
    result = measure(cell)
    assert result.status == "no data"
    assert "nowhere" in result.message and "\n" not in result.message
    assert (result.error, result.version) == (None, "v7")
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "a.png").write_bytes(b"half a downl")
    result = measure(cell)
    assert (result.status, "a.png" in result.message) == ("no data", True)


def test_objective_of_every_step_is_kept_on_request():
    params = {"max_iter": 7, "tol": 0.0, "alpha": 10.0}
    posed = make_task(LOW, 0)
    fitted = make("ncarl", **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged
        objective = fitted.fit(posed.X).history_["objective"]
    result = measure(Cell(LOW, "x", "ncarl", params, keep="curve"))
    assert result.curve == pytest.approx([float(v) for v in objective])
    assert len(result.curve) >= 7
    assert result.steps == 7
    assert result.converged is False
    assert measure(Cell(LOW, "x", "ncarl", params)).curve == ()


def test_completed_image_is_kept_with_its_rank(tmp_path):
    cell = Cell(PHOTO, "x", "ncarl", {"max_iter": 5, "gamma": 0.1}, keep="picture")
    result = measure(cell, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == f"{cell.key}.npz"
    with np.load(path, allow_pickle=False) as arrays:
        kept = {name: arrays[name] for name in ("seen", "filled", "smooth")}
    posed = make_task(PHOTO, 0)
    np.testing.assert_array_equal(kept["seen"], posed.X)
    left = ~np.isnan(posed.X)
    np.testing.assert_array_equal(kept["filled"][left], posed.X[left])
    assert not np.array_equal(kept["smooth"][left], posed.X[left])
    np.testing.assert_allclose(kept["smooth"][~left], kept["filled"][~left])
    squares = np.linalg.eigvalsh(kept["smooth"].T @ kept["smooth"])
    rank = np.count_nonzero(squares > 1e-6)
    assert result.facts["rank_above_1e-3"] == rank
    assert rank > 0
    guess = kept["filled"][posed.rows, posed.cols]
    assert result.error == pytest.approx(relative(posed.truth, guess))
    decibels = -20 * np.log10(np.sqrt(np.mean((posed.truth - guess) ** 2)))
    assert result.scores["psnr"] == pytest.approx(decibels)
    # Without a folder, only the rank is kept.
    assert measure(cell).facts["rank_above_1e-3"] == rank


def test_non_finite_predictions_are_a_failure(monkeypatch):
    fake_estimator(monkeypatch, guess=np.nan)
    with pytest.raises(FloatingPointError, match="not finite"):
        measure(Cell(LOW, "x", "ncarl", {}))


def test_non_finite_objectives_and_parameters_can_be_kept(monkeypatch):
    history = {"objective": [2.0, np.nan, np.inf]}
    fake_estimator(monkeypatch, history_=history, best_params_={"alpha": np.inf})
    result = measure(Cell(LOW, "x", "ncarl", {}, keep="curve"))
    assert (result.status, result.curve) == ("done", (2.0, None, None))


def test_facts_are_plain_values_without_none():
    about = SimpleNamespace(
        rank_=np.int64(3), residual_=np.float64(0.5), gap_=np.nan, lam_=None,
        best_params_={1: 2}, engine_="threads", weight_=np.ones(3), other_=1,
    )  # fmt: skip
    facts = collect_fit_facts(about)
    assert facts == {
        "rank": 3, "residual": 0.5, "best_params": {"1": 2}, "engine": "threads",
    }  # fmt: skip
    assert json.loads(json.dumps(facts)) == facts


def test_invalid_parameter_raises():
    with pytest.raises((TypeError, ValueError), match="nonsense"):
        measure(Cell(LOW, "x", "ncarl", {"nonsense": 1}))


def test_warm_up_is_done_once_per_engine(monkeypatch):
    monkeypatch.undo()
    made = fake_estimator(monkeypatch)
    run.warm_up.cache_clear()
    try:
        for _ in range(2):
            measure(Cell(LOW, "x", "wnnm", {}))
    finally:
        run.warm_up.cache_clear()
    names = [name for name, _ in made]
    assert names[-2:] == ["wnnm", "wnnm"]
    assert sorted(names[:-2]) == ["bayes", "ncarl", "nuclear", "soft-impute"]

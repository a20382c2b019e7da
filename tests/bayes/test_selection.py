"""Tests of model selection on held-out entries: steps, strength, side weights."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.bayes import selection as search
from ncarl.bayes.em import EMProblem, EMState, ModelConfig, em_iterates
from ncarl.bayes.selection import (
    BayesianFit,
    FitConfig,
    Stages,
    StrengthSearch,
    StrengthTrial,
    calibration_splits,
    count_selection_splits,
    em_step_flops,
    make_model_configs,
    select_sides,
)
from ncarl.dataset import InMemoryDataset
from ncarl.engines.threads import Threads
from ncarl.observations import Observations


def identity(observed):
    return observed


pytestmark = pytest.mark.usefixtures("one_blas_thread")
ENGINE = Threads(1)
CONFIG = ModelConfig("identity", "columns")


def to_dense(observed):
    """Observed entries as a dense matrix with NaN where missing."""
    X = np.full(observed.shape, np.nan)
    X[observed.rows, observed.indices] = observed.values
    return X


def no_observers(label):
    return nullcontext([])


def make_search(splits, name="columns", max_iter=12, tol=0.0, config=CONFIG):
    return StrengthSearch(
        name, splits, config, ENGINE, max_iter=max_iter, tol=tol,
        stages=Stages(None), make_observers=no_observers,
    )  # fmt: skip


def states(split, strength, count):
    """The EM states on the training entries, without the start."""
    side = EMProblem(split.train, CONFIG, ENGINE)
    climb = em_iterates(
        side.rows, side.make_prior(strength), EMState(side.initial_params())
    )
    return [it.state.last_step.params for it in islice(climb, count)]


def dense_errors(dense, split, state):
    """Errors and deviations at held-out entries, one dense row at a time."""
    kept, errors, spreads = to_dense(split.test_inputs), [], []
    for i, j, value in zip(
        split.hidden.rows, split.hidden.indices, split.hidden.values, strict=True
    ):
        e, C = dense.conditional(kept[i], state.K, state.noise, state.mean)
        errors.append(value - e[j])
        spreads.append(np.sqrt(C[j, j] + state.noise[j]))
    return np.array(errors), np.array(spreads)


class TestSplits:
    @pytest.mark.parametrize(
        ("shape", "count"), [((40, 8), 5), ((100, 90), 3), ((200, 110), 1)]
    )
    def test_number_of_splits_depends_on_matrix_size(
        self, rng, make_splits, shape, count
    ):
        splits = make_splits(rng.standard_normal(shape))
        choice = range(count_selection_splits(splits))
        weighing = calibration_splits(splits)
        assert len(choice) == len(weighing) == count
        # With few entries, selection and calibration use different splits.
        apart = set(choice).isdisjoint(weighing)
        assert apart == (count > 1)
        assert {*choice, *weighing} == {*range(len(splits))}

    def test_splits_differ_and_are_determined_by_seed(self, observed, make_splits):
        one, same, other = (make_splits(observed, seed=seed) for seed in (1, 1, 2))
        for a, b in zip(one, same, strict=True):
            assert_array_equal(a.hidden.values, b.hidden.values)
        assert not np.array_equal(one[0].hidden.values, one[1].hidden.values)
        assert not np.array_equal(one[0].hidden.values, other[0].hidden.values)

    def test_no_split_if_no_entry_can_be_spared(self, make_splits):
        assert make_splits(np.diag([1.0, 2.0, 3.0]), 0.0) == []
        assert make_splits(np.where(np.eye(4, dtype=bool), 1.0, np.nan), 0.5) == []


class TestTrial:
    def test_steps_minimize_the_held_out_error(self, splits, dense):
        trial = make_search(splits).evaluate_strength(0.1)
        curves = np.zeros(12)
        splits = splits[: count_selection_splits(splits)]
        for split in splits:
            errors = [dense_errors(dense, split, s)[0] for s in states(split, 0.1, 12)]
            curves += [float(e @ e) for e in errors]
        hidden = sum(split.hidden.n_observed for split in splits)
        assert trial.steps == np.argmin(curves) + 1
        assert trial.error == pytest.approx(np.sqrt(curves.min() / hidden), rel=1e-9)

    def test_trial_stops_after_patience_steps_of_rising_error(self, make_splits, rng):
        # Pure noise: the first step is the best.
        splits = make_splits(rng.standard_normal((30, 12)), 0.2)[:1]
        finder = make_search(splits, max_iter=50)
        trial = finder.evaluate_strength(0.01)
        assert trial.converged
        assert trial.overfit
        assert len(finder.runs[0].curve) == trial.steps + search.PATIENCE

    def test_trial_with_expensive_steps_stops_early(
        self, rng, make_splits, monkeypatch
    ):
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        splits = make_splits(rng.standard_normal((30, 12)), 0.2)[:1]
        finder = make_search(splits, max_iter=50)
        trial = finder.evaluate_strength(0.01)
        *before, last = finder.runs[0].curve
        enough = min(before) * (1 + 2 * search.EARLY_STOP_RISE)
        assert last > enough
        assert max(before[trial.steps :], default=0.0) <= enough
        assert len(before) < trial.steps + search.PATIENCE - 1

    def test_trial_that_reaches_max_iter_has_not_converged(self, splits):
        assert not make_search(splits[:1], max_iter=2).evaluate_strength(0.1).converged

    def test_held_out_errors_match_dense_formula(self, splits, dense):
        finder = make_search(splits)
        first, second = finder.evaluate_strength(0.1), finder.evaluate_strength(1.0)
        found = {t: finder._compute_held_out_errors(t) for t in (first, second)}
        for trial, arrays in found.items():
            assert len(arrays) == 2 * len(calibration_splits(splits))
            for k in calibration_splits(splits):
                split = splits[k]
                state = states(split, trial.strength, trial.steps)[-1]
                errors, spreads = dense_errors(dense, split, state)
                assert_allclose(arrays[f"errors {k}"], errors, atol=1e-9)
                assert_allclose(arrays[f"stds {k}"], spreads, rtol=1e-9)

    def test_rows_use_one_split_for_selection_and_all_for_calibration(self, splits):
        finder = make_search([split.transpose() for split in splits], "rows")
        trial = finder.evaluate_strength(0.1)
        assert len(finder.runs) == 1
        held = finder.held_out_errors(trial)
        weighed = [splits[k].hidden.n_observed for k in calibration_splits(splits)]
        assert [len(part.errors) for part in held] == weighed
        assert all((part.deviations > 0).all() for part in held)
        assert all(part.neighbor_errors == {} for part in held)

    def test_expensive_trials_use_single_precision(self, splits, monkeypatch):
        double = make_search(splits)
        exact = double.evaluate_strength(0.1)
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        monkeypatch.setattr(search, "MIN_NOISE_FOR_FLOAT32", 0.0)
        monkeypatch.setattr(search, "EARLY_STOP_RISE", np.inf)
        finder = make_search(splits)
        trial = finder.evaluate_strength(0.1)
        assert finder.use_float32
        assert {str(run.best_params.K.dtype) for run in finder.runs} == {"float32"}
        assert trial.error != exact.error
        assert trial.error == pytest.approx(exact.error, rel=1e-4)
        for one, other in zip(
            finder.held_out_errors(trial), double.held_out_errors(exact), strict=True
        ):
            assert_allclose(one.errors, other.errors, atol=1e-3)

    def test_small_noise_needs_double_precision(
        self, low_rank, rng, make_splits, monkeypatch
    ):
        splits = make_splits(low_rank(rng, m=80, noise=1e-3))[:1]
        exact = make_search(splits, max_iter=40).evaluate_strength(0.1)
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        monkeypatch.setattr(search, "EARLY_STOP_RISE", np.inf)
        finder = make_search(splits, max_iter=40)
        assert finder.use_float32
        assert finder.evaluate_strength(0.1) == exact
        assert not finder.use_float32
        # Also when resumed from a checkpoint.
        again = make_search(splits, max_iter=40)
        again.stages = finder.stages
        assert again.evaluate_strength(0.1) == exact
        assert not again.use_float32

    @pytest.mark.parametrize(
        ("config", "single"),
        [
            (CONFIG, True),
            (replace(CONFIG, noise=0.5), True),
            (replace(CONFIG, noise=0.0), False),
            (replace(CONFIG, prior=np.eye(8)), False),
            (replace(CONFIG, dtype="float32"), False),
        ],
    )
    def test_single_precision_depends_on_the_model(
        self, splits, config, single, monkeypatch
    ):
        assert not make_search(splits, config=config).use_float32
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        assert make_search(splits, config=config).use_float32 == single

    def test_interrupt_propagates(self, splits):
        def stop(iterate, history):
            raise KeyboardInterrupt

        finder = make_search(splits)
        finder.make_observers = lambda label: nullcontext([stop])
        with pytest.raises(KeyboardInterrupt):
            finder.evaluate_strength(0.1)


class TestStrengthSearch:
    """Strengths tried for a given error function."""

    @staticmethod
    def select(error, splits, strength=None, turned=False):
        finder, tried = make_search(splits), []

        def trial(s):
            tried.append(s)
            return StrengthTrial(s, error(s), 5, turned, True)

        finder.evaluate_strength = trial
        return finder.select(strength).strength, tried

    def test_given_strength_is_not_searched(self, splits):
        assert self.select(lambda s: s, splits, 2.5) == (2.5, [2.5])

    @pytest.mark.parametrize("best", [0.1, 0.1 / 9, 0.9, 8.1])
    def test_finds_a_local_minimum(self, splits, best):
        found, tried = self.select(lambda s: 1 + abs(np.log(s / best)), splits)
        assert found == pytest.approx(best)
        assert len(tried) == len(set(tried))

    @pytest.mark.parametrize("sign", [1, -1])
    def test_stays_within_bounds(self, splits, sign):
        found, tried = self.select(lambda s: 10 + sign * np.log(s), splits)
        assert min(tried) >= search.MIN_STRENGTH
        assert max(tried) <= search.MAX_STRENGTH
        assert found == (min if sign > 0 else max)(tried)

    def test_negligible_gains_are_ignored(self, splits):
        found, tried = self.select(lambda s: 1 + 1e-5 * s, splits)
        assert found == 0.1
        assert len(tried) == 3

    def test_overfit_ends_the_search_if_steps_are_expensive(self, splits, monkeypatch):
        falling = lambda s: s  # noqa: E731
        assert len(self.select(falling, splits, turned=True)[1]) > 1
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        assert self.select(falling, splits, turned=True)[1] == [0.1]
        assert len(self.select(falling, splits, turned=False)[1]) > 1


def make_config(sides="both", **options):
    usual = {"strength": 0.1, "validation": 0.1, "seed": 0, "max_iter": 6, "tol": 0.0}
    return FitConfig(sides=sides, **{**usual, **options})


def make_fit(observed, config, **configs):
    usual = {"prior": "identity", "center": "two-way", "noise": "learn"}
    configs = make_model_configs(**{**usual, **configs}, dtype="float64")
    raw = InMemoryDataset(observed)
    options = {"make_observers": no_observers, "checkpoint": None}
    return BayesianFit(raw, identity, config, configs, ENGINE, **options)


class TestFit:
    def test_weight_minimizes_held_out_errors(self, observed, make_splits):
        # A draw in which neither side is left out.
        splits = make_splits(observed, seed=3)
        fit = make_fit(observed, make_config(seed=3))
        found = fit.run()
        stages = fit.stages.results
        by_columns, by_rows = [], []
        for k in calibration_splits(splits):
            split, turned = splits[k], splits[k].transpose().hidden
            by_columns.append(stages["held out columns"][f"errors {k}"])
            there = turned.with_values(stages["held out rows"][f"errors {k}"])
            back = to_dense(there).T
            by_rows.append(back[split.hidden.rows, split.hidden.indices])
        one, other = np.concatenate(by_columns), np.concatenate(by_rows)
        grid = np.linspace(0, 1, 10_001)
        loss = [np.sum((w * one + (1 - w) * other) ** 2) for w in grid]
        assert found.blend.weight == pytest.approx(grid[np.argmin(loss)], abs=1e-4)
        assert 0.0 < found.blend.weight < 1.0

    def test_side_with_negligible_weight_is_dropped(self, observed, monkeypatch):
        monkeypatch.setattr(search, "column_weight", lambda *given: 0.99)
        monkeypatch.setattr(search, "select_neighbor_correction", lambda *given: None)
        found = make_fit(observed, make_config("auto")).run()
        assert found.rows is None
        assert found.blend.weight == 1.0
        assert found.blend.blended_scores is found.blend.scores
        assert {t["side"] for t in found.trials} == {"columns", "rows"}
        asked = make_fit(observed, make_config("both")).run()
        assert asked.rows is not None
        assert asked.blend.weight == 0.99

    def test_final_run_makes_the_steps_of_the_best_trial(self, observed):
        found = make_fit(observed, make_config("columns", max_iter=30)).run()
        (trial,) = found.trials
        assert found.columns.steps == trial["steps"] < 30
        assert found.columns.strength == trial["strength"] == 0.1

    def test_without_held_out_entries_all_steps_are_made(self, observed):
        found = make_fit(observed, make_config(validation=0.0, strength=None)).run()
        assert found.trials == []
        assert found.blend.weight == 0.5
        assert found.columns.steps == found.rows.steps == 6
        assert found.columns.strength == search.FIRST_STRENGTH
        assert len(found.blend.scores.sorted_scores) == 0


class TestSides:
    def test_explicit_sides_are_used(self, observed):
        assert select_sides("columns", InMemoryDataset(observed)) == (True, False)
        assert select_sides("rows", InMemoryDataset(observed)) == (False, True)
        assert select_sides("both", InMemoryDataset(observed)) == (True, True)

    def test_expensive_sides_are_dropped(self, observed, monkeypatch):
        assert select_sides("auto", InMemoryDataset(observed)) == (True, True)
        tall = Observations.from_dense(np.ones((2000, 3)))
        assert select_sides("auto", InMemoryDataset(tall)) == (True, False)
        monkeypatch.setattr(search, "MAX_STEP_FLOPS", 1.0)
        assert select_sides("auto", InMemoryDataset(observed)) == (True, False)
        wide = observed.transpose()
        assert select_sides("auto", InMemoryDataset(wide)) == (False, True)
        monkeypatch.setattr(
            search, "MAX_STEP_FLOPS", em_step_flops(InMemoryDataset(wide).summary) / 2
        )
        assert select_sides("auto", InMemoryDataset(wide)) == (True, True)

    def test_column_options_do_not_apply_to_rows(self):
        configs = make_model_configs(
            prior=np.eye(3), center="columns", noise="per-column", dtype="float32"
        )
        assert_array_equal(configs["columns"].prior, np.eye(3))
        assert configs["columns"].noise == "per-column"
        rows = ModelConfig("co-observation", "two-way", "per-column", "float32")
        assert configs["rows"] == rows
        same = make_model_configs(
            prior="identity", center="mean", noise=0.5, dtype="float64"
        )
        assert same["rows"] == same["columns"]

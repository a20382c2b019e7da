"""Selection on held-out entries: steps, strength, weight of the sides."""

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


def gappy(observed):
    """Observed entries as a dense matrix, NaN in its gaps."""
    X = np.full(observed.shape, np.nan)
    X[observed.rows, observed.indices] = observed.values
    return X


def watch(label):
    return nullcontext([])


def searching(cuts, name="columns", max_iter=12, tol=0.0, config=CONFIG):
    return StrengthSearch(
        name, cuts, config, ENGINE, max_iter=max_iter, tol=tol,
        stages=Stages(None), make_observers=watch,
    )  # fmt: skip


def states(cut, strength, count):
    """The states of a climb on the kept entries, the start left out."""
    side = EMProblem(cut.train, CONFIG, ENGINE)
    climb = em_iterates(
        side.rows, side.make_prior(strength), EMState(side.initial_params())
    )
    return [it.state.estep.params for it in islice(climb, count)]


def held_out(dense, cut, state):
    """Errors on hidden entries and their deviations, one dense row at a time."""
    kept, errors, spreads = gappy(cut.test_rows), [], []
    for i, j, value in zip(
        cut.hidden.rows, cut.hidden.indices, cut.hidden.values, strict=True
    ):
        e, C = dense.conditional(kept[i], state.K, state.noise, state.mean)
        errors.append(value - e[j])
        spreads.append(np.sqrt(C[j, j] + state.noise[j]))
    return np.array(errors), np.array(spreads)


class TestCuts:
    @pytest.mark.parametrize(
        ("shape", "count"), [((40, 8), 5), ((100, 90), 3), ((200, 110), 1)]
    )
    def test_a_small_matrix_is_cut_again_and_a_large_one_is_not(
        self, rng, split, shape, count
    ):
        cuts = split(rng.standard_normal(shape))
        choice, weighing = range(count_selection_splits(cuts)), calibration_splits(cuts)
        assert len(choice) == len(weighing) == count
        # What is chosen on some entries is weighed on others, if there are few.
        apart = set(choice).isdisjoint(weighing)
        assert apart == (count > 1)
        assert {*choice, *weighing} == {*range(len(cuts))}

    def test_cuts_differ_and_repeat_with_their_seed(self, observed, split):
        one, same, other = (split(observed, seed=seed) for seed in (1, 1, 2))
        for a, b in zip(one, same, strict=True):
            assert_array_equal(a.hidden.values, b.hidden.values)
        assert not np.array_equal(one[0].hidden.values, one[1].hidden.values)
        assert not np.array_equal(one[0].hidden.values, other[0].hidden.values)

    def test_nothing_is_cut_where_nothing_can_be_spared(self, split):
        assert split(np.diag([1.0, 2.0, 3.0]), 0.0) == []
        assert split(np.where(np.eye(4, dtype=bool), 1.0, np.nan), 0.5) == []


class TestTrial:
    def test_steps_are_where_the_error_is_least(self, cuts, dense):
        trial = searching(cuts).evaluate_strength(0.1)
        curves = np.zeros(12)
        cuts = cuts[: count_selection_splits(cuts)]
        for cut in cuts:
            errors = [held_out(dense, cut, s)[0] for s in states(cut, 0.1, 12)]
            curves += [float(e @ e) for e in errors]
        hidden = sum(cut.hidden.n_observed for cut in cuts)
        assert trial.steps == np.argmin(curves) + 1
        assert trial.error == pytest.approx(np.sqrt(curves.min() / hidden), rel=1e-9)

    def test_a_run_ends_once_the_error_has_risen_for_a_while(self, split, rng):
        # Pure noise: the first step is the best.
        cuts = split(rng.standard_normal((30, 12)), 0.2)[:1]
        looking = searching(cuts, max_iter=50)
        trial = looking.evaluate_strength(0.01)
        assert trial.converged
        assert trial.overfit
        assert len(looking.runs[0].curve) == trial.steps + search.PATIENCE

    def test_dear_steps_are_not_made_once_the_error_has_risen(
        self, rng, split, monkeypatch
    ):
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        cuts = split(rng.standard_normal((30, 12)), 0.2)[:1]
        looking = searching(cuts, max_iter=50)
        trial = looking.evaluate_strength(0.01)
        *before, last = looking.runs[0].curve
        enough = min(before) * (1 + 2 * search.EARLY_STOP_RISE)
        assert last > enough
        assert max(before[trial.steps :], default=0.0) <= enough
        assert len(before) < trial.steps + search.PATIENCE - 1

    def test_a_run_that_hits_its_last_step_has_not_converged(self, cuts):
        assert not searching(cuts[:1], max_iter=2).evaluate_strength(0.1).converged

    def test_held_out_errors_are_those_of_the_textbook(self, cuts, dense):
        looking = searching(cuts)
        first, second = looking.evaluate_strength(0.1), looking.evaluate_strength(1.0)
        found = {t: looking._compute_held_out_errors(t) for t in (first, second)}
        for trial, arrays in found.items():
            assert len(arrays) == 2 * len(calibration_splits(cuts))
            for k in calibration_splits(cuts):
                cut = cuts[k]
                state = states(cut, trial.strength, trial.steps)[-1]
                errors, spreads = held_out(dense, cut, state)
                assert_allclose(arrays[f"errors {k}"], errors, atol=1e-9)
                assert_allclose(arrays[f"stds {k}"], spreads, rtol=1e-9)

    def test_rows_are_tried_on_one_cut_and_weighed_on_all(self, cuts):
        looking = searching([cut.transpose() for cut in cuts], "rows")
        trial = looking.evaluate_strength(0.1)
        assert len(looking.runs) == 1
        held = looking.held_out_errors(trial)
        weighed = [cuts[k].hidden.n_observed for k in calibration_splits(cuts)]
        assert [len(part.errors) for part in held] == weighed
        assert all((part.deviations > 0).all() for part in held)
        assert all(part.neighbor_errors == {} for part in held)

    def test_dear_trials_are_made_in_single_precision(self, cuts, monkeypatch):
        double = searching(cuts)
        exact = double.evaluate_strength(0.1)
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        monkeypatch.setattr(search, "MIN_NOISE_FOR_FLOAT32", 0.0)
        monkeypatch.setattr(search, "EARLY_STOP_RISE", np.inf)
        looking = searching(cuts)
        trial = looking.evaluate_strength(0.1)
        assert looking.use_float32
        assert {str(run.best_params.K.dtype) for run in looking.runs} == {"float32"}
        assert trial.error != exact.error
        assert trial.error == pytest.approx(exact.error, rel=1e-4)
        for one, other in zip(
            looking.held_out_errors(trial), double.held_out_errors(exact), strict=True
        ):
            assert_allclose(one.errors, other.errors, atol=1e-3)

    def test_but_not_where_noise_takes_more_digits(
        self, low_rank, rng, split, monkeypatch
    ):
        cuts = split(low_rank(rng, m=80, noise=1e-3))[:1]
        exact = searching(cuts, max_iter=40).evaluate_strength(0.1)
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        monkeypatch.setattr(search, "EARLY_STOP_RISE", np.inf)
        looking = searching(cuts, max_iter=40)
        assert looking.use_float32
        assert looking.evaluate_strength(0.1) == exact
        assert not looking.use_float32
        # And none after it, from a checkpoint too.
        again = searching(cuts, max_iter=40)
        again.stages = looking.stages
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
    def test_single_precision_is_for_models_that_can_do_with_it(
        self, cuts, config, single, monkeypatch
    ):
        assert not searching(cuts, config=config).use_float32
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        assert searching(cuts, config=config).use_float32 == single

    def test_an_interrupt_gets_out(self, cuts):
        def stop(iterate, history):
            raise KeyboardInterrupt

        looking = searching(cuts)
        looking.make_observers = lambda label: nullcontext([stop])
        with pytest.raises(KeyboardInterrupt):
            looking.evaluate_strength(0.1)


class TestStrength:
    """Which strengths are tried, given the error that each would come to."""

    @staticmethod
    def chosen(error, cuts, strength=None, turned=False):
        looking, tried = searching(cuts), []

        def trial(s):
            tried.append(s)
            return StrengthTrial(s, error(s), 5, turned, True)

        looking.evaluate_strength = trial
        return looking.select(strength).strength, tried

    def test_a_given_one_is_the_only_one(self, cuts):
        assert self.chosen(lambda s: s, cuts, 2.5) == (2.5, [2.5])

    @pytest.mark.parametrize("best", [0.1, 0.1 / 9, 0.9, 8.1])
    def test_the_best_of_its_neighbors_is_found(self, cuts, best):
        found, tried = self.chosen(lambda s: 1 + abs(np.log(s / best)), cuts)
        assert found == pytest.approx(best)
        assert len(tried) == len(set(tried))

    @pytest.mark.parametrize("sign", [1, -1])
    def test_it_stays_within_bounds(self, cuts, sign):
        found, tried = self.chosen(lambda s: 10 + sign * np.log(s), cuts)
        assert min(tried) >= search.MIN_STRENGTH
        assert max(tried) <= search.MAX_STRENGTH
        assert found == (min if sign > 0 else max)(tried)

    def test_gains_too_small_are_none(self, cuts):
        found, tried = self.chosen(lambda s: 1 + 1e-5 * s, cuts)
        assert found == 0.1
        assert len(tried) == 3

    def test_a_turn_ends_the_search_where_steps_are_dear(self, cuts, monkeypatch):
        falling = lambda s: s  # noqa: E731
        assert len(self.chosen(falling, cuts, turned=True)[1]) > 1
        monkeypatch.setattr(search, "EXPENSIVE_STEP_FLOPS", 1.0)
        assert self.chosen(falling, cuts, turned=True)[1] == [0.1]
        assert len(self.chosen(falling, cuts, turned=False)[1]) > 1


def plan(sides="both", **options):
    usual = {"strength": 0.1, "validation": 0.1, "seed": 0, "max_iter": 6, "tol": 0.0}
    return FitConfig(sides=sides, **{**usual, **options})


def fit_of(observed, plan, **configs):
    usual = {"prior": "identity", "center": "two-way", "noise": "learn"}
    configs = make_model_configs(**{**usual, **configs}, dtype="float64")
    raw = InMemoryDataset(observed)
    options = {"make_observers": watch, "checkpoint": None}
    return BayesianFit(raw, identity, plan, configs, ENGINE, **options)


class TestFit:
    def test_a_fit_weighs_by_its_held_out_errors(self, observed, cuts):
        fit = fit_of(observed, plan())
        found = fit.run()
        stages = fit.stages.results
        by_columns, by_rows = [], []
        for k in calibration_splits(cuts):
            cut, turned = cuts[k], cuts[k].transpose().hidden
            by_columns.append(stages["held out columns"][f"errors {k}"])
            there = turned.with_values(stages["held out rows"][f"errors {k}"])
            back = gappy(there).T
            by_rows.append(back[cut.hidden.rows, cut.hidden.indices])
        one, other = np.concatenate(by_columns), np.concatenate(by_rows)
        grid = np.linspace(0, 1, 10_001)
        loss = [np.sum((w * one + (1 - w) * other) ** 2) for w in grid]
        assert found.blend.weight == pytest.approx(grid[np.argmin(loss)], abs=1e-4)
        assert 0.0 < found.blend.weight < 1.0

    def test_a_side_without_a_say_is_left_out(self, observed, monkeypatch):
        monkeypatch.setattr(search, "column_weight", lambda *given: 0.99)
        found = fit_of(observed, plan("auto")).run()
        assert found.rows is None
        assert found.blend.weight == 1.0
        assert found.blend.blended_scores is found.blend.scores
        assert {t["side"] for t in found.trials} == {"columns", "rows"}
        asked = fit_of(observed, plan("both")).run()
        assert asked.rows is not None
        assert asked.blend.weight == 0.99

    def test_the_last_run_makes_the_steps_of_the_best_trial(self, observed):
        found = fit_of(observed, plan("columns", max_iter=30)).run()
        (trial,) = found.trials
        assert found.columns.steps == trial["steps"] < 30
        assert found.columns.strength == trial["strength"] == 0.1

    def test_without_held_out_entries_all_steps_are_made(self, observed):
        found = fit_of(observed, plan(validation=0.0, strength=None)).run()
        assert found.trials == []
        assert found.blend.weight == 0.5
        assert found.columns.steps == found.rows.steps == 6
        assert found.columns.strength == search.FIRST_STRENGTH
        assert len(found.blend.scores.sorted_scores) == 0


class TestSides:
    def test_named_sides_are_taken(self, observed):
        assert select_sides("columns", InMemoryDataset(observed)) == (True, False)
        assert select_sides("rows", InMemoryDataset(observed)) == (False, True)
        assert select_sides("both", InMemoryDataset(observed)) == (True, True)

    def test_rows_are_left_out_where_they_cost_too_much(self, observed, monkeypatch):
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

    def test_rows_know_nothing_of_what_was_given_for_the_columns(self):
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

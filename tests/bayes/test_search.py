"""What is chosen on held-out entries: steps, strength, the weight of the sides."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.bayes import fit as fitting
from ncarl.bayes import search, weighing
from ncarl.bayes.cuts import cuts_of, for_choice, for_weighing
from ncarl.bayes.em import Climb, em_iterates
from ncarl.bayes.fit import Fit, Plan, chosen_sides, step_cost, ways_of_sides
from ncarl.bayes.journal import Journal
from ncarl.bayes.search import SideSearch, Trial
from ncarl.bayes.side import Side, Ways
from ncarl.engines import Threads
from ncarl.observed import Observed
from ncarl.streams import as_it_is
from ncarl.surveys import InMemory

pytestmark = pytest.mark.usefixtures("one_blas_thread")
ENGINE = Threads(1)
WAYS = Ways("identity", "columns")


def gappy(observed):
    """Observed entries as a dense matrix, NaN in its gaps."""
    X = np.full(observed.shape, np.nan)
    X[observed.rows, observed.indices] = observed.values
    return X


def watch(label):
    return nullcontext([])


@pytest.fixture
def observed(X):
    return Observed.from_dense(X)


@pytest.fixture
def cuts(observed):
    return cuts_of(InMemory(observed), as_it_is, 0.1, 0)


def searching(cuts, name="columns", max_iter=12, tol=0.0, ways=WAYS):
    return SideSearch(
        name, cuts, ways, ENGINE, max_iter=max_iter, tol=tol,
        journal=Journal(None, {}), watch=watch,
    )  # fmt: skip


def states(cut, strength, count):
    """The states of a climb on the kept entries, the start left out."""
    side = Side(cut.kept, WAYS, ENGINE)
    climb = em_iterates(side.rows, side.belief(strength), Climb(side.start()))
    return [it.found.state for it in islice(climb, count)]


def held_out(dense, cut, state):
    """Errors on hidden entries and their deviations, one dense row at a time."""
    kept, errors, spreads = gappy(cut.asked), [], []
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
        self, rng, shape, count
    ):
        cuts = cuts_of(
            InMemory(Observed.from_dense(rng.standard_normal(shape))), as_it_is, 0.1, 0
        )
        choice, weighing = range(for_choice(cuts)), for_weighing(cuts)
        assert len(choice) == len(weighing) == count
        # What is chosen on some entries is weighed on others, if there are few.
        apart = set(choice).isdisjoint(weighing)
        assert apart == (count > 1)
        assert {*choice, *weighing} == {*range(len(cuts))}

    def test_cuts_differ_and_repeat_with_their_seed(self, observed):
        one, same, other = (
            cuts_of(InMemory(observed), as_it_is, 0.1, seed) for seed in (1, 1, 2)
        )
        for a, b in zip(one, same, strict=True):
            assert_array_equal(a.hidden.values, b.hidden.values)
        assert not np.array_equal(one[0].hidden.values, one[1].hidden.values)
        assert not np.array_equal(one[0].hidden.values, other[0].hidden.values)

    def test_nothing_is_cut_where_nothing_can_be_spared(self):
        assert (
            cuts_of(
                InMemory(Observed.from_dense(np.diag([1.0, 2.0, 3.0]))),
                as_it_is,
                0.0,
                0,
            )
            == []
        )
        alone = np.where(np.eye(4, dtype=bool), 1.0, np.nan)
        assert cuts_of(InMemory(Observed.from_dense(alone)), as_it_is, 0.5, 0) == []

    def test_a_turned_cut_has_the_same_entries(self, cuts):
        turned = cuts[0].turned()
        assert_array_equal(gappy(turned.asked), gappy(cuts[0].asked).T)
        assert_array_equal(gappy(turned.hidden), gappy(cuts[0].hidden).T)


class TestTrial:
    def test_steps_are_where_the_error_is_least(self, cuts, dense):
        trial = searching(cuts).trial(0.1)
        curves = np.zeros(12)
        cuts = cuts[: for_choice(cuts)]
        for cut in cuts:
            errors = [held_out(dense, cut, s)[0] for s in states(cut, 0.1, 12)]
            curves += [float(e @ e) for e in errors]
        hidden = sum(cut.hidden.n_observed for cut in cuts)
        assert trial.steps == np.argmin(curves) + 1
        assert trial.error == pytest.approx(np.sqrt(curves.min() / hidden), rel=1e-9)

    def test_steps_are_where_the_recorded_curve_is_lowest(self, cuts):
        looking = searching(cuts[:1], max_iter=60)
        trial = looking.trial(0.05)
        (run,) = looking.runs
        assert trial.steps == int(np.argmin(run.curve)) + 1 == run.step
        least = np.sqrt(min(run.curve) / cuts[0].hidden.n_observed)
        assert trial.error == pytest.approx(least)
        risen = run.curve[-1] > min(run.curve) * (1 + search.GAIN) ** 2
        assert trial.turned == risen
        assert trial.settled == (len(run.curve) < 60)

    def test_a_run_ends_once_the_error_has_risen_for_a_while(self, cuts, rng):
        # Pure noise: the first step is the best.
        noise = Observed.from_dense(rng.standard_normal((30, 12)))
        looking = searching(cuts_of(InMemory(noise), as_it_is, 0.2, 0)[:1], max_iter=50)
        trial = looking.trial(0.01)
        assert trial.settled
        assert trial.turned
        assert len(looking.runs[0].curve) == trial.steps + search.PATIENCE

    def test_dear_steps_are_not_made_once_the_error_has_risen(self, rng, monkeypatch):
        noise = Observed.from_dense(rng.standard_normal((30, 12)))
        monkeypatch.setattr(search, "DEAR", 1.0)
        looking = searching(cuts_of(InMemory(noise), as_it_is, 0.2, 0)[:1], max_iter=50)
        trial = looking.trial(0.01)
        *before, last = looking.runs[0].curve
        enough = min(before) * (1 + 2 * search.RISEN)
        assert last > enough
        assert max(before[trial.steps :], default=0.0) <= enough
        assert len(before) < trial.steps + search.PATIENCE - 1

    def test_a_run_that_hits_its_last_step_is_not_settled(self, cuts):
        assert not searching(cuts[:1], max_iter=2).trial(0.1).settled

    def test_held_out_errors_are_those_of_the_textbook(self, cuts, dense):
        looking = searching(cuts)
        first, second = looking.trial(0.1), looking.trial(1.0)
        found = {t: looking._held_out(t) for t in (first, second)}
        for trial, arrays in found.items():
            assert len(arrays) == 2 * len(for_weighing(cuts))
            for k in for_weighing(cuts):
                cut = cuts[k]
                state = states(cut, trial.strength, trial.steps)[-1]
                errors, spreads = held_out(dense, cut, state)
                assert_allclose(arrays[f"errors {k}"], errors, atol=1e-9)
                assert_allclose(arrays[f"deviations {k}"], spreads, rtol=1e-9)

    def test_rows_are_tried_on_one_cut_and_weighed_on_all(self, cuts):
        looking = searching([cut.turned() for cut in cuts], "rows")
        trial = looking.trial(0.1)
        assert len(looking.runs) == 1
        held = looking.held_out(trial)
        weighed = [cuts[k].hidden.n_observed for k in for_weighing(cuts)]
        assert [len(part.errors) for part in held] == weighed
        assert all((part.deviations > 0).all() for part in held)
        assert all(part.near == {} for part in held)

    def test_dear_trials_are_made_in_single_precision(self, cuts, monkeypatch):
        double = searching(cuts)
        exact = double.trial(0.1)
        monkeypatch.setattr(search, "DEAR", 1.0)
        monkeypatch.setattr(search, "NOISE_FOR_SINGLE", 0.0)
        monkeypatch.setattr(search, "RISEN", np.inf)
        looking = searching(cuts)
        trial = looking.trial(0.1)
        assert looking.single
        assert {str(run.best.K.dtype) for run in looking.runs} == {"float32"}
        assert trial.error != exact.error
        assert trial.error == pytest.approx(exact.error, rel=1e-4)
        for one, other in zip(
            looking.held_out(trial), double.held_out(exact), strict=True
        ):
            assert_allclose(one.errors, other.errors, atol=1e-3)

    def test_but_not_where_noise_takes_more_digits(self, low_rank, rng, monkeypatch):
        sharp = Observed.from_dense(low_rank(rng, m=80, noise=1e-3))
        cuts = cuts_of(InMemory(sharp), as_it_is, 0.1, 0)[:1]
        exact = searching(cuts, max_iter=40).trial(0.1)
        monkeypatch.setattr(search, "DEAR", 1.0)
        monkeypatch.setattr(search, "RISEN", np.inf)
        looking = searching(cuts, max_iter=40)
        assert looking.single
        assert looking.trial(0.1) == exact
        assert not looking.single
        # And none after it, from a checkpoint too.
        again = searching(cuts, max_iter=40)
        again.journal = looking.journal
        assert again.trial(0.1) == exact
        assert not again.single

    @pytest.mark.parametrize(
        ("ways", "single"),
        [
            (WAYS, True),
            (replace(WAYS, noise=0.5), True),
            (replace(WAYS, noise=0.0), False),
            (replace(WAYS, prior=np.eye(8)), False),
            (replace(WAYS, dtype="float32"), False),
        ],
    )
    def test_single_precision_is_for_models_that_can_do_with_it(
        self, cuts, ways, single, monkeypatch
    ):
        assert not searching(cuts, ways=ways).single
        monkeypatch.setattr(search, "DEAR", 1.0)
        assert searching(cuts, ways=ways).single == single

    def test_an_interrupt_gets_out(self, cuts):
        def stop(iterate, history):
            raise KeyboardInterrupt

        looking = searching(cuts)
        looking.watch = lambda label: nullcontext([stop])
        with pytest.raises(KeyboardInterrupt):
            looking.trial(0.1)


class TestStrength:
    """Which strengths are tried, given the error that each would come to."""

    @staticmethod
    def chosen(error, cuts, strength=None, turned=False):
        looking, tried = searching(cuts), []

        def trial(s):
            tried.append(s)
            return Trial(s, error(s), 5, turned, True)

        looking.trial = trial
        return looking.choose(strength).strength, tried

    def test_a_given_one_is_the_only_one(self, cuts):
        assert self.chosen(lambda s: s, cuts, 2.5) == (2.5, [2.5])

    @pytest.mark.parametrize("best", [0.1, 0.1 / 9, 0.9, 8.1])
    def test_the_best_of_its_neighbours_is_found(self, cuts, best):
        found, tried = self.chosen(lambda s: 1 + abs(np.log(s / best)), cuts)
        assert found == pytest.approx(best)
        assert len(tried) == len(set(tried))

    @pytest.mark.parametrize("sign", [1, -1])
    def test_it_stays_within_bounds(self, cuts, sign):
        found, tried = self.chosen(lambda s: 10 + sign * np.log(s), cuts)
        assert min(tried) >= search.WEAKEST
        assert max(tried) <= search.STRONGEST
        assert found == (min if sign > 0 else max)(tried)

    def test_gains_too_small_are_none(self, cuts):
        found, tried = self.chosen(lambda s: 1 + 1e-5 * s, cuts)
        assert found == 0.1
        assert len(tried) == 3

    def test_a_turn_ends_the_search_where_steps_are_dear(self, cuts, monkeypatch):
        falling = lambda s: s  # noqa: E731
        assert len(self.chosen(falling, cuts, turned=True)[1]) > 1
        monkeypatch.setattr(search, "DEAR", 1.0)
        assert self.chosen(falling, cuts, turned=True)[1] == [0.1]
        assert len(self.chosen(falling, cuts, turned=False)[1]) > 1


def plan(sides="both", **options):
    usual = {"strength": 0.1, "validation": 0.1, "seed": 0, "max_iter": 6, "tol": 0.0}
    return Plan(sides=sides, **{**usual, **options})


def fit_of(observed, plan, **ways):
    usual = {"prior": "identity", "center": "two-way", "noise": "learn"}
    ways = ways_of_sides(**{**usual, **ways}, dtype="float64")
    raw = InMemory(observed)
    options = {"watch": watch, "checkpoint": None, "owner": {}}
    return Fit(raw, as_it_is, plan, ways, ENGINE, **options)


class TestFit:
    def test_a_fit_weighs_by_its_held_out_errors(self, observed, cuts):
        fit = fit_of(observed, plan())
        found = fit.run()
        stages = fit.journal.stages
        by_columns, by_rows = [], []
        for k in for_weighing(cuts):
            cut, turned = cuts[k], cuts[k].turned().hidden
            by_columns.append(stages["held out columns"][f"errors {k}"])
            there = turned.with_values(stages["held out rows"][f"errors {k}"])
            back = gappy(there).T
            by_rows.append(back[cut.hidden.rows, cut.hidden.indices])
        one, other = np.concatenate(by_columns), np.concatenate(by_rows)
        grid = np.linspace(0, 1, 10_001)
        loss = [np.sum((w * one + (1 - w) * other) ** 2) for w in grid]
        assert found.parts.weight == pytest.approx(grid[np.argmin(loss)], abs=1e-4)
        assert 0.0 < found.parts.weight < 1.0

    def test_a_blend_has_scores_of_its_own(self, observed, cuts):
        fit = fit_of(observed, plan())
        found = fit.run()
        stages = fit.journal.stages["held out columns"]
        places = for_weighing(cuts)
        errors = np.concatenate([stages[f"errors {k}"] for k in places])
        spread = np.concatenate([stages[f"deviations {k}"] for k in places])
        assert_allclose(found.parts.scores.ranked, np.sort(errors / spread))
        assert len(found.parts.blended_scores.ranked) == len(errors)
        assert not np.array_equal(
            found.parts.blended_scores.ranked, found.parts.scores.ranked
        )

    def test_a_side_without_a_say_is_left_out(self, observed, monkeypatch):
        monkeypatch.setattr(weighing, "column_weight", lambda *given: 0.99)
        found = fit_of(observed, plan("auto")).run()
        assert found.rows is None
        assert found.parts.weight == 1.0
        assert found.parts.blended_scores is found.parts.scores
        assert {t["side"] for t in found.search} == {"columns", "rows"}
        asked = fit_of(observed, plan("both")).run()
        assert asked.rows is not None
        assert asked.parts.weight == 0.99

    def test_the_last_run_makes_the_steps_of_the_best_trial(self, observed):
        found = fit_of(observed, plan("columns", max_iter=30)).run()
        (trial,) = found.search
        assert found.columns.steps == trial["steps"] < 30
        assert found.columns.strength == trial["strength"] == 0.1

    def test_without_held_out_entries_all_steps_are_made(self, observed):
        found = fit_of(observed, plan(validation=0.0, strength=None)).run()
        assert found.search == []
        assert found.parts.weight == 0.5
        assert found.columns.steps == found.rows.steps == 6
        assert found.columns.strength == search.FIRST_STRENGTH
        assert len(found.parts.scores.ranked) == 0


class TestSides:
    def test_named_sides_are_taken(self, observed):
        assert chosen_sides("columns", InMemory(observed)) == (True, False)
        assert chosen_sides("rows", InMemory(observed)) == (False, True)
        assert chosen_sides("both", InMemory(observed)) == (True, True)

    def test_rows_are_left_out_where_they_cost_too_much(self, observed, monkeypatch):
        assert chosen_sides("auto", InMemory(observed)) == (True, True)
        tall = Observed.from_dense(np.ones((2000, 3)))
        assert chosen_sides("auto", InMemory(tall)) == (True, False)
        monkeypatch.setattr(fitting, "AFFORDABLE", 1.0)
        assert chosen_sides("auto", InMemory(observed)) == (True, False)
        wide = observed.transposed()
        assert chosen_sides("auto", InMemory(wide)) == (False, True)
        monkeypatch.setattr(fitting, "AFFORDABLE", step_cost(InMemory(wide).survey) / 2)
        assert chosen_sides("auto", InMemory(wide)) == (True, True)

    def test_rows_know_nothing_of_what_was_given_for_the_columns(self):
        ways = ways_of_sides(
            prior=np.eye(3), center="columns", noise="per-column", dtype="float32"
        )
        assert_array_equal(ways["columns"].prior, np.eye(3))
        assert ways["columns"].noise == "per-column"
        rows = Ways("co-observation", "two-way", "per-column", "float32")
        assert ways["rows"] == rows
        same = ways_of_sides(
            prior="identity", center="mean", noise=0.5, dtype="float64"
        )
        assert same["rows"] == same["columns"]

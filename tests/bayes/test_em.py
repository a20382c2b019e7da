"""EM against the textbook: the step, the evidence, the climb."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from ncarl.bayes import em
from ncarl.bayes.em import Belief, Climb, State, assess, em_iterates, stretched
from ncarl.engines import Threads
from ncarl.exceptions import NotPositiveDefiniteError

pytestmark = pytest.mark.usefixtures("one_blas_thread")
NOISES = ["learn", "per-column", None]


def mixed(rng, m=30, n=7):
    """Rows of every size, some empty, some complete, some of equal mask."""
    seen = rng.random((m, n)) < np.linspace(0.05, 0.95, m)[:, None]
    seen[3], seen[20] = False, True
    seen[11:14], seen[25] = seen[10], seen[20]
    return np.where(seen, 1.0 + rng.standard_normal((m, n)), np.nan)


@pytest.fixture
def on_missing_side(monkeypatch):
    """Solve every row for its missing entries, whatever it costs."""
    for name in ("numpy", "numba"):
        if name == "numba":
            pytest.importorskip("numba")
        monkeypatch.setattr(
            f"ncarl.core.evidence_{name}.missing_side_pays",
            lambda r, n: np.ones(len(r), dtype=bool),
        )


def assert_state(state, expected, tol=1e-11):
    for found, wanted in zip((state.K, state.noise, state.mean), expected, strict=True):
        assert_allclose(found, wanted, rtol=0, atol=tol * np.abs(wanted).max())


def belief_and_step(Psi, nu, noise, learn_mean):
    """A belief, and what the textbook's step is to be told of it."""
    told = {"learn_noise": noise, "learn_mean": learn_mean, "Psi": Psi, "nu": nu}
    return Belief(Psi, nu, noise, learn_mean), told


class TestOneStep:
    @pytest.mark.parametrize("noise", NOISES)
    @pytest.mark.parametrize("learn_mean", [False, True])
    @pytest.mark.parametrize("nu", [0.0, 4.5])
    @pytest.mark.parametrize("side", ["observed", "missing"])
    def test_is_that_of_the_textbook(
        self, noise, learn_mean, nu, side, kind, rng, dense, rows_of, covariance,
        request,
    ):  # fmt: skip
        if side == "missing":
            request.getfixturevalue("on_missing_side")
        X = mixed(rng)
        K, Psi, mean = covariance(rng, 7), covariance(rng, 7), rng.standard_normal(7)
        level = rng.random(7) + 0.1 if noise != "learn" else np.full(7, 0.4)
        belief, told = belief_and_step(Psi, nu, noise, learn_mean)
        engine = Threads(1, rows=kind)
        rows = rows_of(X, missing_side=side == "missing", engine=engine, n_blocks=3)
        found = assess(rows, belief, State(K, level, mean)).following
        assert_state(found, dense.em_step(X, K, level, mean, **told))

    @pytest.mark.parametrize("learn_mean", [False, True])
    def test_without_noise_is_that_of_the_textbook(
        self, learn_mean, rng, dense, rows_of, covariance
    ):
        X, K, mean = mixed(rng), covariance(rng, 7), rng.standard_normal(7)
        belief, told = belief_and_step(np.eye(7), 3.0, None, learn_mean)
        state = State(K, np.zeros(7), mean, noisy=False)
        found = assess(rows_of(X), belief, state)
        assert_state(found.following, dense.em_step(X, K, np.zeros(7), mean, **told))
        assert found.evidence == pytest.approx(
            dense.log_evidence(X, K, np.zeros(7), mean), rel=1e-12
        )

    @given(
        seen=arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 6))),
        noise=st.sampled_from(NOISES),
        learn_mean=st.booleans(),
        missing_side=st.booleans(),
        seed=st.integers(0, 99),
    )
    def test_is_that_of_the_textbook_on_any_mask(
        self, dense, rows_of, covariance, seen, noise, learn_mean, missing_side, seed
    ):
        seen[0, 0] = True
        rng, n = np.random.default_rng(seed), seen.shape[1]
        X = np.where(seen, rng.standard_normal(seen.shape), np.nan)
        K, mean, level = covariance(rng, n), rng.standard_normal(n), np.full(n, 0.3)
        belief, told = belief_and_step(covariance(rng, n), 2.0, noise, learn_mean)
        found = assess(
            rows_of(X, missing_side=missing_side), belief, State(K, level, mean)
        )
        assert_state(found.following, dense.em_step(X, K, level, mean, **told), 1e-10)
        assert found.evidence == pytest.approx(
            dense.log_evidence(X, K, level, mean), rel=1e-10, abs=1e-9
        )

    def test_noise_of_a_column_is_where_the_expected_loss_is_least(
        self, rng, dense, rows_of, covariance
    ):
        # The update of conftest, found by search: minus twice the expected log
        # density of the column, and of its inverse-gamma prior about the usual noise.
        X, K, mean = mixed(rng), covariance(rng, 7), np.zeros(7)
        level = rng.random(7) + 0.1
        belief = Belief(np.eye(7), 0.0, "per-column", False)
        found = assess(rows_of(X), belief, State(K, level, mean)).following.noise
        usual = 1.0 / np.mean(1.0 / level)
        for j in range(7):
            squares, count = 0.0, 0
            for v in X[~np.isnan(X[:, j])]:
                e, C = dense.conditional(v, K, level, mean)
                squares += (v[j] - e[j]) ** 2 + C[j, j]
                count += 1

            def loss(log_s, squares=squares, count=count):
                s = np.exp(log_s)
                prior = em.NOISE_COUNT * (np.log(s) + usual / s)
                return count * np.log(s) + squares / s + prior

            best = np.exp(minimize_scalar(loss, bracket=(-3.0, 1.0), tol=1e-12).x)
            assert found[j] == pytest.approx(best, rel=1e-6)

    def test_noise_stays_above_the_least(self, rng, rows_of):
        X = np.outer(rng.standard_normal(30), np.ones(4))
        state = State(np.ones((4, 4)) + np.eye(4), np.full(4, 0.1), np.zeros(4))
        for how in ("learn", "per-column"):
            rows = rows_of(X, least_noise=0.5)
            after = assess(rows, Belief(np.eye(4), 0.0, how), state).following
            assert_allclose(after.noise, 0.5)

    def test_an_endless_prior_keeps_the_kernel_in_proportion(
        self, rng, rows_of, covariance
    ):
        Psi = covariance(rng, 7)
        belief = Belief(Psi, 1e9, "learn", True)
        state = State(2.0 * Psi, np.full(7, 0.4), np.zeros(7))
        for found in islice(em_iterates(rows_of(mixed(rng)), belief, Climb(state)), 5):
            K = found.found.state.K
            assert_allclose(K, Psi * (K[0, 0] / Psi[0, 0]), rtol=1e-6, atol=1e-7)


class TestEvidence:
    @pytest.mark.parametrize("noise", ["learn", "per-column"])
    @pytest.mark.parametrize("missing_side", [False, True])
    def test_is_that_of_the_normal_distribution(
        self, noise, missing_side, rng, dense, rows_of, covariance
    ):
        X, K, mean = mixed(rng), covariance(rng, 7), rng.standard_normal(7)
        level = rng.random(7) + 0.1
        found = assess(
            rows_of(X, missing_side=missing_side),
            Belief(np.eye(7), 0.0, noise),
            State(K, level, mean),
        )
        expected = dense.log_evidence(X, K, level, mean)
        assert found.evidence == pytest.approx(expected, rel=1e-12)
        if noise == "learn":
            assert found.penalised == found.evidence

    def test_penalty_is_that_of_the_two_priors(self, rng, dense, rows_of, covariance):
        X, K, Psi = mixed(rng), covariance(rng, 7), covariance(rng, 7)
        level = rng.random(7) + 0.1
        state = State(K, level, np.zeros(7))
        found = assess(rows_of(X), Belief(Psi, 4.5, "per-column"), state)
        usual = 1.0 / np.mean(1.0 / level)
        of_noise = em.NOISE_COUNT / 2 * np.sum(np.log(level / usual) + usual / level)
        expected = found.evidence - dense.penalty(K, Psi, 4.5) - of_noise
        assert found.penalised == pytest.approx(expected, rel=1e-12)

    def test_a_kernel_that_is_none_has_no_evidence(self, rng, rows_of):
        K = np.array([[1.0, 2.0], [2.0, 1.0]])
        state = State(K, np.ones(2), np.zeros(2))
        rows = rows_of(rng.standard_normal((5, 2)))
        found = assess(rows, Belief(np.eye(2), 1.0), state, doubtful=True)
        assert np.isnan(found.penalised)


@st.composite
def matrices(draw):
    """Small matrices with gaps, not all of them empty."""
    m, n = draw(st.integers(2, 8)), draw(st.integers(1, 5))
    seen = draw(arrays(bool, (m, n)))
    seen[0, 0] = True
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    values = rng.standard_normal((m, n)) + rng.standard_normal((m, 1))
    return np.where(seen, values, np.nan)


def climbed(rows, belief, start, count):
    """The start and the first iterates."""
    iterates = list(islice(em_iterates(rows, belief, Climb(start)), count))
    assert [it.step for it in iterates] == [*range(1, count + 1)]
    return iterates


def rises(values):
    """Whether values never fall by more than rounding."""
    values = np.asarray(values)
    return bool((np.diff(values) >= -1e-9 * np.maximum(1.0, np.abs(values[1:]))).all())


def start_of(n):
    return State(np.eye(n) * 0.5, np.full(n, 0.5), np.zeros(n))


class TestClimb:
    @settings(max_examples=200)
    @given(X=matrices(), noise=st.sampled_from(["learn", None]), mean=st.booleans())
    def test_evidence_never_falls(self, dense, rows_of, X, noise, mean):
        n = X.shape[1]
        rows = rows_of(X, least_noise=1e-4)
        belief, start = Belief(np.eye(n), 0.0, noise, mean), start_of(n)
        found = [it.found for it in climbed(rows, belief, start, 12)]
        states = [start, *(f.state for f in found)]
        wanted = [dense.log_evidence(X, s.K, s.noise, s.mean) for s in states]
        assert_allclose([f.evidence for f in found], wanted[1:], rtol=1e-8, atol=1e-8)
        assert rises(wanted)

    @settings(max_examples=60)
    @given(
        X=matrices(),
        noise=st.sampled_from(NOISES),
        nu=st.sampled_from([0.1, 2.0, 50.0]),
        seed=st.integers(0, 99),
    )
    def test_penalised_evidence_never_falls(
        self, dense, rows_of, covariance, X, noise, nu, seed
    ):
        n = X.shape[1]
        Psi = covariance(np.random.default_rng(seed), n)
        rows, belief = rows_of(X, least_noise=1e-4), Belief(Psi, nu, noise)
        iterates = climbed(rows, belief, start_of(n), 12)
        found = [it.found for it in iterates]
        assert rises([f.penalised for f in found])
        if noise != "per-column":
            for f in found[::4]:
                expected = f.evidence - dense.penalty(f.state.K, Psi, nu)
                assert f.penalised == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert [it.objective for it in iterates] == [-f.penalised for f in found]

    def test_change_is_the_gain_of_an_entry(self, rng, rows_of):
        X = mixed(rng)
        rows, belief = rows_of(X), Belief(np.eye(7), 1.0)
        before = assess(rows, belief, start_of(7)).penalised
        for it in climbed(rows, belief, start_of(7), 4):
            gain = (it.found.penalised - before) / np.count_nonzero(~np.isnan(X))
            assert it.change == pytest.approx(gain, rel=1e-9)
            before = it.found.penalised

    def test_the_first_step_is_one_of_em(self, rng, rows_of):
        rows, belief = rows_of(mixed(rng)), Belief(np.eye(7), 1.0)
        plain = assess(rows, belief, start_of(7)).following
        (first,) = climbed(rows, belief, start_of(7), 1)
        assert_allclose(first.found.state.K, plain.K, rtol=1e-13)

    @pytest.mark.parametrize("noise", ["learn", "per-column"])
    def test_longer_steps_get_further(self, noise, rng, rows_of, monkeypatch, low_rank):
        rows = rows_of(low_rank(rng, noise=0.05, seen=0.5))
        belief, start = Belief(np.eye(8), 1.0, noise), start_of(8)
        fast = climbed(rows, belief, start, 40)
        monkeypatch.setattr(em, "GROWTH", 1.0)
        slow = climbed(rows, belief, start, 40)
        assert all(it.climb.plain is None for it in slow)
        gained = [
            it.found.penalised - slow[0].found.penalised for it in (fast[-1], slow[-1])
        ]
        assert gained[0] > gained[1] + 0.5

    def test_plain_em_is_the_textbook_repeated(self, rng, dense, rows_of, monkeypatch):
        monkeypatch.setattr(em, "GROWTH", 1.0)
        X, Psi = mixed(rng), np.eye(7) + 0.2
        belief, told = belief_and_step(Psi, 3.0, "learn", True)
        state = start_of(7)
        expected = (state.K, state.noise, state.mean)
        for it in climbed(rows_of(X), belief, state, 6):
            expected = dense.em_step(X, *expected, **told)
            assert_state(it.found.state, expected, 1e-10)

    @pytest.mark.parametrize("growth", [5.0, 1e6])
    @pytest.mark.parametrize("nu", [0.0, 3.0])
    def test_a_step_too_far_is_taken_back(
        self, growth, nu, rng, dense, rows_of, monkeypatch
    ):
        monkeypatch.setattr(em, "GROWTH", growth)
        X, belief = mixed(rng), Belief(np.eye(7), nu)
        rows, tried = rows_of(X, least_noise=1e-3), []
        usual = em.assess

        def noted(*given, **options):
            tried.append(options["doubtful"])
            return usual(*given, **options)

        monkeypatch.setattr(em, "assess", noted)
        iterates = climbed(rows, belief, start_of(7), 10)
        assert rises([it.found.penalised for it in iterates])
        # Some bold steps failed: more states were looked at than were taken.
        assert len(tried) > 11
        assert sum(tried) >= len(tried) - 11

    def test_a_climb_goes_on_to_the_same_bits(self, rng, rows_of):
        rows, belief = rows_of(mixed(rng)), Belief(np.eye(7), 2.0)
        whole = climbed(rows, belief, start_of(7), 9)
        again = list(islice(em_iterates(rows, belief, whole[3].climb, 4), 5))
        for one, other in zip(whole[4:], again, strict=True):
            assert one.step == other.step
            np.testing.assert_array_equal(one.found.state.K, other.found.state.K)


def test_stretching_is_straight_for_kernels_and_by_factors_for_noise():
    old = State(np.eye(2), np.array([1.0, 1.0]), np.zeros(2))
    new = State(2 * np.eye(2), np.array([0.5, 2.0]), np.ones(2))
    far = stretched(old, new, 2.0, least_noise=0.3)
    assert_allclose(far.K, 3 * np.eye(2))
    assert_allclose(far.noise, [0.3, 4.0])
    assert_allclose(far.mean, [2.0, 2.0])
    given_noise = State(np.eye(2), old.noise * 0.1, np.ones(2))
    same = State(2 * np.eye(2), given_noise.noise, np.ones(2))
    assert_allclose(stretched(given_noise, same, 2.0, 0.3).noise, 0.1)
    silent = State(np.eye(2), np.zeros(2), np.zeros(2), noisy=False)
    assert_allclose(stretched(silent, silent, 2.0, 0.3).noise, 0.0)


class TestRunningOutOfDigits:
    """A kernel that rounding has spoiled ends the climb; nothing is thrown away."""

    @pytest.fixture
    def failing(self, monkeypatch):
        """A function that makes some assessments fail, by their number."""

        def fail(numbers, how):
            calls = []

            def spoiled(*args, **kwargs):
                calls.append(1)
                found = assess(*args, **kwargs)
                if len(calls) not in numbers:
                    return found
                if how == "raise":
                    raise NotPositiveDefiniteError
                return replace(found, penalised=math.nan)

            monkeypatch.setattr(em, "assess", spoiled)

        return fail

    @pytest.fixture
    def climb(self, rng, rows_of, covariance):
        rows = rows_of(mixed(rng))
        start = State(covariance(rng, 7), np.full(7, 0.5), np.zeros(7))
        return lambda: em_iterates(rows, Belief(np.eye(7), 2.0), Climb(start))

    @pytest.mark.parametrize("how", ["raise", "nan"])
    def test_a_stretched_step_gives_way_to_a_plain_one(self, climb, failing, how):
        whole = [it.found for it in islice(climb(), 3)]
        failing({3}, how)  # the start, the first step, the first stretched one
        found = [it.found for it in islice(climb(), 3)]
        assert found[0].penalised == whole[0].penalised
        assert_allclose(found[1].state.K, whole[0].following.K)
        assert found[1].penalised >= found[0].penalised

    @pytest.mark.parametrize("how", ["raise", "nan"])
    def test_a_plain_step_that_fails_is_the_end(self, climb, failing, how):
        failing({3, 4}, how)
        found = list(islice(climb(), 9))
        assert [it.step for it in found] == [1]

    @pytest.mark.parametrize("how", ["raise", "nan"])
    def test_the_start_is_kept_where_the_first_step_fails(self, climb, failing, how):
        failing({2}, how)
        (only,) = islice(climb(), 9)
        assert (only.step, only.change) == (1, 0.0)
        failing(set(), how)
        first = next(climb())
        assert_allclose(only.found.following.K, first.found.state.K)

    @pytest.mark.parametrize("how", ["raise", "nan"])
    def test_no_start_is_an_error_that_says_what_to_do(self, climb, failing, how):
        failing({1}, how)
        with pytest.raises(NotPositiveDefiniteError, match="noise='per-column'"):
            next(climb())

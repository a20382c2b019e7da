"""Tests of EM against dense formulas: single steps, evidence, iteration."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from ncarl.bayes import em
from ncarl.bayes.em import (
    EMState,
    GaussianParams,
    Prior,
    em_iterates,
    em_step,
    over_relax,
)
from ncarl.engines.threads import Threads
from ncarl.exceptions import NotPositiveDefiniteError

pytestmark = pytest.mark.usefixtures("one_blas_thread")
NOISES = ["learn", "per-column", None]


def mixed_matrix(rng, m=30, n=7):
    """A matrix with empty rows, complete rows and rows with equal masks."""
    seen = rng.random((m, n)) < np.linspace(0.05, 0.95, m)[:, None]
    seen[3], seen[20] = False, True
    seen[11:14], seen[25] = seen[10], seen[20]
    return np.where(seen, 1.0 + rng.standard_normal((m, n)), np.nan)


@pytest.fixture
def force_precision_form(monkeypatch):
    """Solve every row for its missing entries, regardless of cost."""
    every = lambda r, n: np.ones(len(r), dtype=bool)  # noqa: E731
    monkeypatch.setattr("ncarl.core.rows.use_precision_form", every)


def assert_state(state, expected, tol=1e-11):
    for found, wanted in zip((state.K, state.noise, state.mean), expected, strict=True):
        assert_allclose(found, wanted, rtol=0, atol=tol * np.abs(wanted).max())


def prior_and_textbook_step(Psi, nu, noise, learn_mean):
    """A `Prior`, and the equivalent arguments of the reference EM step."""
    arguments = {"learn_noise": noise, "learn_mean": learn_mean, "Psi": Psi, "nu": nu}
    return Prior(Psi, nu, noise, learn_mean), arguments


class TestEMStep:
    @pytest.mark.parametrize("noise", [*NOISES, "no noise"])
    @pytest.mark.parametrize("learn_mean", [False, True])
    @pytest.mark.parametrize("nu", [0.0, 4.5])
    @pytest.mark.parametrize("side", ["observed", "missing"])
    def test_matches_dense_formula(
        self, noise, learn_mean, nu, side, backend, rng, dense, rows_of, covariance,
        request,
    ):  # fmt: skip
        if side == "missing":
            request.getfixturevalue("force_precision_form")
        X = mixed_matrix(rng)
        K, Psi, mean = covariance(rng, 7), covariance(rng, 7), rng.standard_normal(7)
        level = rng.random(7) + 0.1 if noise != "learn" else np.full(7, 0.4)
        noisy = noise != "no noise"
        if not noisy:
            noise, level = None, np.zeros(7)
        prior, arguments = prior_and_textbook_step(Psi, nu, noise, learn_mean)
        engine = Threads(1, kernel=backend)
        rows = rows_of(X, missing_side=side == "missing", engine=engine, n_blocks=3)
        found = em_step(rows, prior, GaussianParams(K, level, mean, noisy))
        expected = dense.em_step(X, K, level, mean, **arguments)
        assert_state(found.next_params, expected)
        evidence = dense.log_evidence(X, K, level, mean)
        assert found.evidence == pytest.approx(evidence, rel=1e-11)

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
        prior, arguments = prior_and_textbook_step(
            covariance(rng, n), 2.0, noise, learn_mean
        )
        found = em_step(
            rows_of(X, missing_side=missing_side), prior, GaussianParams(K, level, mean)
        )
        assert_state(
            found.next_params, dense.em_step(X, K, level, mean, **arguments), 1e-10
        )
        assert found.evidence == pytest.approx(
            dense.log_evidence(X, K, level, mean), rel=1e-10, abs=1e-9
        )

    def test_column_noise_minimizes_the_expected_loss(
        self, rng, dense, rows_of, covariance
    ):
        # The update of conftest by numerical search: minus twice the expected log
        # density of the column plus that of its inverse-gamma prior.
        X, K, mean = mixed_matrix(rng), covariance(rng, 7), np.zeros(7)
        level = rng.random(7) + 0.1
        prior = Prior(np.eye(7), 0.0, "per-column", False)
        found = em_step(
            rows_of(X), prior, GaussianParams(K, level, mean)
        ).next_params.noise
        usual = 1.0 / np.mean(1.0 / level)
        for j in range(7):
            squares, count = 0.0, 0
            for v in X[~np.isnan(X[:, j])]:
                e, C = dense.conditional(v, K, level, mean)
                squares += (v[j] - e[j]) ** 2 + C[j, j]
                count += 1

            def loss(log_s, squares=squares, count=count):
                s = np.exp(log_s)
                penalty = em.NOISE_PSEUDO_COUNT * (np.log(s) + usual / s)
                return count * np.log(s) + squares / s + penalty

            best = np.exp(minimize_scalar(loss, bracket=(-3.0, 1.0), tol=1e-12).x)
            assert found[j] == pytest.approx(best, rel=1e-6)

    def test_noise_is_at_least_min_noise(self, rng, rows_of):
        X = np.outer(rng.standard_normal(30), np.ones(4))
        state = GaussianParams(
            np.ones((4, 4)) + np.eye(4), np.full(4, 0.1), np.zeros(4)
        )
        for how in ("learn", "per-column"):
            rows = rows_of(X, least_noise=0.5)
            after = em_step(rows, Prior(np.eye(4), 0.0, how), state).next_params
            assert_allclose(after.noise, 0.5)


class TestEvidence:
    def test_penalty_is_the_sum_over_both_priors(self, rng, dense, rows_of, covariance):
        X, K, Psi = mixed_matrix(rng), covariance(rng, 7), covariance(rng, 7)
        level = rng.random(7) + 0.1
        state = GaussianParams(K, level, np.zeros(7))
        found = em_step(rows_of(X), Prior(Psi, 4.5, "per-column"), state)
        usual = 1.0 / np.mean(1.0 / level)
        of_noise = (
            em.NOISE_PSEUDO_COUNT / 2 * np.sum(np.log(level / usual) + usual / level)
        )
        expected = found.evidence - dense.penalty(K, Psi, 4.5) - of_noise
        assert found.penalized == pytest.approx(expected, rel=1e-12)

    def test_evidence_of_an_indefinite_kernel_is_nan(self, rng, rows_of):
        K = np.array([[1.0, 2.0], [2.0, 1.0]])
        state = GaussianParams(K, np.ones(2), np.zeros(2))
        rows = rows_of(rng.standard_normal((5, 2)))
        found = em_step(rows, Prior(np.eye(2), 1.0), state, check_definite=True)
        assert np.isnan(found.penalized)


@st.composite
def matrices(draw):
    """Small incomplete matrices with at least one observed entry."""
    m, n = draw(st.integers(2, 8)), draw(st.integers(1, 5))
    seen = draw(arrays(bool, (m, n)))
    seen[0, 0] = True
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    values = rng.standard_normal((m, n)) + rng.standard_normal((m, 1))
    return np.where(seen, values, np.nan)


def run_em(rows, prior, start, count):
    """The first ``count`` iterates."""
    iterates = list(islice(em_iterates(rows, prior, EMState(start)), count))
    assert [it.step for it in iterates] == [*range(1, count + 1)]
    return iterates


def rises(values):
    """Whether values never fall by more than rounding."""
    values = np.asarray(values)
    return bool((np.diff(values) >= -1e-9 * np.maximum(1.0, np.abs(values[1:]))).all())


def start_of(n):
    return GaussianParams(np.eye(n) * 0.5, np.full(n, 0.5), np.zeros(n))


class TestIteration:
    @settings(max_examples=200)
    @given(X=matrices(), noise=st.sampled_from(["learn", None]), mean=st.booleans())
    def test_evidence_never_falls(self, dense, rows_of, X, noise, mean):
        n = X.shape[1]
        rows = rows_of(X, least_noise=1e-4)
        prior, start = Prior(np.eye(n), 0.0, noise, mean), start_of(n)
        found = [it.state.last_step for it in run_em(rows, prior, start, 12)]
        states = [start, *(f.params for f in found)]
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
    def test_penalized_evidence_never_falls(
        self, dense, rows_of, covariance, X, noise, nu, seed
    ):
        n = X.shape[1]
        Psi = covariance(np.random.default_rng(seed), n)
        rows, prior = rows_of(X, least_noise=1e-4), Prior(Psi, nu, noise)
        iterates = run_em(rows, prior, start_of(n), 12)
        found = [it.state.last_step for it in iterates]
        assert rises([f.penalized for f in found])
        if noise != "per-column":
            for f in found[::4]:
                expected = f.evidence - dense.penalty(f.params.K, Psi, nu)
                assert f.penalized == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert [it.objective for it in iterates] == [-f.penalized for f in found]

    def test_change_is_the_gain_per_entry(self, rng, rows_of):
        X = mixed_matrix(rng)
        rows, prior = rows_of(X), Prior(np.eye(7), 1.0)
        before = em_step(rows, prior, start_of(7)).penalized
        for it in run_em(rows, prior, start_of(7), 4):
            after = it.state.last_step.penalized
            gain = (after - before) / np.count_nonzero(~np.isnan(X))
            assert it.change == pytest.approx(gain, rel=1e-9)
            before = after

    @pytest.mark.parametrize("noise", ["learn", "per-column"])
    def test_over_relaxation_increases_the_objective_faster(
        self, noise, rng, rows_of, monkeypatch, low_rank
    ):
        rows = rows_of(low_rank(rng, noise=0.05, seen=0.5))
        prior, start = Prior(np.eye(8), 1.0, noise), start_of(8)
        fast = run_em(rows, prior, start, 40)
        monkeypatch.setattr(em, "STEP_GROWTH", 1.0)
        slow = run_em(rows, prior, start, 40)
        assert all(it.state.unrelaxed_params is None for it in slow)
        gained = [
            it.state.last_step.penalized - slow[0].state.last_step.penalized
            for it in (fast[-1], slow[-1])
        ]
        assert gained[0] > gained[1] + 0.5

    def test_plain_em_matches_repeated_dense_steps(
        self, rng, dense, rows_of, monkeypatch
    ):
        monkeypatch.setattr(em, "STEP_GROWTH", 1.0)
        X, Psi = mixed_matrix(rng), np.eye(7) + 0.2
        prior, arguments = prior_and_textbook_step(Psi, 3.0, "learn", True)
        state = start_of(7)
        expected = (state.K, state.noise, state.mean)
        for it in run_em(rows_of(X), prior, state, 6):
            expected = dense.em_step(X, *expected, **arguments)
            assert_state(it.state.last_step.params, expected, 1e-10)

    @pytest.mark.parametrize("growth", [5.0, 1e6])
    @pytest.mark.parametrize("nu", [0.0, 3.0])
    def test_failed_over_relaxed_steps_are_rejected(
        self, growth, nu, rng, dense, rows_of, monkeypatch
    ):
        monkeypatch.setattr(em, "STEP_GROWTH", growth)
        X, prior = mixed_matrix(rng), Prior(np.eye(7), nu)
        rows, tried = rows_of(X, least_noise=1e-3), []
        usual = em.em_step

        def record(*given, **options):
            tried.append(options["check_definite"])
            return usual(*given, **options)

        monkeypatch.setattr(em, "em_step", record)
        iterates = run_em(rows, prior, start_of(7), 10)
        assert rises([it.state.last_step.penalized for it in iterates])
        # Some over-relaxed steps were rejected: more states evaluated than accepted.
        assert len(tried) > 11
        assert sum(tried) >= len(tried) - 11

    def test_resumed_iteration_is_bit_identical(self, rng, rows_of):
        rows, prior = rows_of(mixed_matrix(rng)), Prior(np.eye(7), 2.0)
        whole = run_em(rows, prior, start_of(7), 9)
        again = list(islice(em_iterates(rows, prior, whole[3].state, 4), 5))
        for one, other in zip(whole[4:], again, strict=True):
            assert one.step == other.step
            np.testing.assert_array_equal(
                one.state.last_step.params.K, other.state.last_step.params.K
            )


def test_over_relaxation_is_linear_in_kernels_and_geometric_in_noise():
    old = GaussianParams(np.eye(2), np.array([1.0, 1.0]), np.zeros(2))
    new = GaussianParams(2 * np.eye(2), np.array([0.5, 2.0]), np.ones(2))
    far = over_relax(old, new, 2.0, min_noise=0.3)
    assert_allclose(far.K, 3 * np.eye(2))
    assert_allclose(far.noise, [0.3, 4.0])
    assert_allclose(far.mean, [2.0, 2.0])
    given_noise = GaussianParams(np.eye(2), old.noise * 0.1, np.ones(2))
    same = GaussianParams(2 * np.eye(2), given_noise.noise, np.ones(2))
    assert_allclose(over_relax(given_noise, same, 2.0, 0.3).noise, 0.1)
    silent = GaussianParams(np.eye(2), np.zeros(2), np.zeros(2), noisy=False)
    assert_allclose(over_relax(silent, silent, 2.0, 0.3).noise, 0.0)


@pytest.mark.parametrize("how", ["raise", "nan"])
class TestNumericalFailure:
    """An indefinite kernel ends the iteration at the last valid state."""

    @pytest.fixture
    def fail_at(self, monkeypatch):
        """Function that makes the EM steps with the given call numbers fail."""

        def fail(numbers, how):
            calls = []

            def failing_em_step(*args, **kwargs):
                calls.append(1)
                found = em_step(*args, **kwargs)
                if len(calls) not in numbers:
                    return found
                if how == "raise":
                    raise NotPositiveDefiniteError
                return replace(found, penalized=math.nan)

            monkeypatch.setattr(em, "em_step", failing_em_step)

        return fail

    @pytest.fixture
    def iterate(self, rng, rows_of, covariance):
        rows = rows_of(mixed_matrix(rng))
        start = GaussianParams(covariance(rng, 7), np.full(7, 0.5), np.zeros(7))
        return lambda: em_iterates(rows, Prior(np.eye(7), 2.0), EMState(start))

    def test_failed_over_relaxed_step_is_replaced_by_a_plain_one(
        self, iterate, fail_at, how
    ):
        whole = [it.state.last_step for it in islice(iterate(), 3)]
        fail_at({3}, how)  # the start, the first step, the first over-relaxed step
        found = [it.state.last_step for it in islice(iterate(), 3)]
        assert found[0].penalized == whole[0].penalized
        assert_allclose(found[1].params.K, whole[0].next_params.K)
        assert found[1].penalized >= found[0].penalized

    def test_failed_plain_step_ends_the_iteration(self, iterate, fail_at, how):
        fail_at({3, 4}, how)
        found = list(islice(iterate(), 9))
        assert [it.step for it in found] == [1]

    def test_start_is_kept_if_the_first_step_fails(self, iterate, fail_at, how):
        fail_at({2}, how)
        (only,) = islice(iterate(), 9)
        assert (only.step, only.change) == (1, 0.0)
        fail_at(set(), how)
        first = next(iterate()).state.last_step
        assert_allclose(only.state.last_step.next_params.K, first.params.K)

    def test_failed_start_raises(self, iterate, fail_at, how):
        fail_at({1}, how)
        with pytest.raises(NotPositiveDefiniteError, match="noise='per-column'"):
            next(iterate())

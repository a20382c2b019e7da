"""Steps to the coefficients of least nuclear norm in a dictionary."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from ncarl.core.singular import frobenius, leading, spectral_norm
from ncarl.core.types import Array
from ncarl.solvers.dictionary import Reach
from ncarl.solvers.problem import Problem, change_of, ratio
from ncarl.solvers.split import Balanced

#: Factor by which the strength of the penalised form falls from step to step.
FALL = 0.7
#: How ``mu`` goes on; each state has its own first value.
SCHEDULE = Balanced(1.0, apart=5.0)
#: Stages of a run.
COMPLETION, EXACT, PENALISED = 1, 2, 3


@dataclass(frozen=True, eq=False)
class LRFDState:
    """Where the solver stands.

    Attributes
    ----------
    X, Y : arrays of shape (m, n)
        The first completion and the multipliers of its entries.
    dictionary : array of shape (m, k)
        The dictionary; one column of zeros as long as there is none.
    base : array of shape (m, r)
        The dictionary in coordinates of its rank, of norm 1.
    Z, J, Y2 : arrays of shape (r, n)
        Coefficients for ``base``, their shrunk copy (the coefficients before them in
        the penalised form) and the multipliers of these.
    mu : float
        Weight of the distance between the copies.
    norm : float
        Norm of the dictionary.
    stage, round, begun : int
        The stage, the round, both from 1, and the step before the stage.
    rank : int
        Rank of the matrix; -1 before the first step.
    residual : float
        ``||P(D Z) - M|| / ||M||`` in the last step.
    lam, last_lam, pace, objective : float
        Of the penalised form: strength now and in the end, momentum, value.
    """

    X: Array
    Y: Array
    dictionary: Array
    base: Array
    Z: Array
    J: Array
    Y2: Array
    mu: float
    norm: float = 1.0
    stage: int = COMPLETION
    round: int = 1
    begun: int = 0
    rank: int = -1
    residual: float = 1.0
    lam: float = 0.0
    last_lam: float = 0.0
    pace: float = 1.0
    objective: float = math.inf


class Done(NamedTuple):
    """What a step did: the next state, and what its record is made of."""

    state: LRFDState
    value: float
    change: float
    notes: dict[str, float]
    may_stop: bool


def exact_step(
    problem: Problem, reach: Reach, state: LRFDState, step: int, tol: float
) -> Done:
    """A step with the observed entries held; below ``tol`` duality must prove it."""
    mu, Y, Z = state.mu, state.Y2, state.Z
    J, s = _shrunk(Z + Y / mu, 1.0 / mu)
    past = SCHEDULE.relaxation
    J_past = past * J + (1.0 - past) * Z
    new = reach.nearest(J_past - Y / mu)
    Y = Y + mu * (new - J_past)
    primal = change_of(J, new)
    dual = ratio(mu * frobenius(new - Z), frobenius(Y))
    xp = array_namespace(Y)
    value, proven = float(s.sum()), float(xp.sum(Y * reach.shortest))
    gap = abs(ratio(value - proven, value))
    change = max(primal, dual, gap)
    if change < tol:
        proven /= max(1.0, spectral_norm(Y))
        gap = max(0.0, ratio(value - proven, value))
        change = max(change, gap)
    notes = {"primal": primal, "dual": dual, "gap": gap, "mu": mu}
    mu = SCHEDULE.after(mu, step - state.begun, primal, dual)
    residual = problem.residual(state.base @ J)
    after = replace(state, Z=new, J=J, Y2=Y, mu=mu, rank=len(s), residual=residual)
    may_stop = len(s) > 0 or problem.size == 0.0
    return Done(after, value / state.norm, change, notes, may_stop)


def penalised_step(problem: Problem, state: LRFDState) -> Done:
    """A step of the penalised form, once more without momentum if it rose."""
    falling = state.lam > state.last_lam
    lam = max(state.last_lam, FALL * state.lam)
    pace = (1.0 + math.sqrt(1.0 + 4.0 * state.pace**2)) / 2.0
    ahead = (state.pace - 1.0) / pace
    Z, s, residual = _descended(problem, state, lam, ahead)
    value = _value(problem, s, residual, lam)
    if value > state.objective and not falling and ahead > 0.0:
        pace = 1.0
        Z, s, residual = _descended(problem, state, lam, 0.0)
        value = _value(problem, s, residual, lam)
    new = replace(
        state, Z=Z, J=state.Z, lam=lam, pace=pace, objective=value, rank=len(s),
        residual=residual,
    )  # fmt: skip
    notes = {"primal": residual, "dual": math.nan, "gap": math.nan, "mu": 1.0 / lam}
    change = change_of(Z, state.Z)
    return Done(new, value / (lam * state.norm), change, notes, not falling)


def _descended(
    problem: Problem, state: LRFDState, lam: float, ahead: float
) -> tuple[Array, Any, float]:
    """The next coefficients, their singular values and the residual."""
    D = state.base
    xp = array_namespace(D)
    W = state.Z + ahead * (state.Z - state.J)
    off = D @ W - problem.M
    off = xp.where(problem.seen, off, xp.zeros_like(off))
    Z, s = _shrunk(W - D.T @ off, lam)
    return Z, s, problem.residual(D @ Z)


def _value(problem: Problem, s: Any, residual: float, lam: float) -> float:
    """The penalised objective."""
    return (residual * problem.size) ** 2 / 2.0 + lam * float(s.sum())


def _shrunk(W: Array, tau: float) -> tuple[Array, Any]:
    """W with its singular values less ``tau``, and these."""
    found = leading(W, tau)
    s = found.s - tau
    return found.product(s), s

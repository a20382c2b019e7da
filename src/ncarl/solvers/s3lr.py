r"""Columns from several subspaces, completed and grouped in turns.

``min sum_j ||X_j||_* + g0 |C|_1 + G |T o C|_1 + lam |E|`` such that ``X = X C + E``,
``diag(C) = 0`` and X agrees with the observed entries. ``X_j`` are the columns of group
j, and T is 1 where two columns belong to different groups. A round is a linearised
ADMM with groups held, whose ``mu`` grows:

.. code-block:: text

    X <- shrink by group (X - (P(X - M - Y1/mu) + (X - XC - E + Y2/mu)(I - C)^T) / eta)
    E <- shrink (X - XC + Y2/mu)
    C <- shrink (C - X^T (XC + E - X - Y2/mu) / xi), 0 on the diagonal
    Y1 <- Y1 + mu P(M - X),  Y2 <- Y2 + mu (X - XC - E),  mu <- rho mu

with ``eta >= 1 + ||I - C||^2`` and ``xi >= ||X||^2``; then columns are grouped anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import frobenius
from ncarl.core.types import Array
from ncarl.solvers.clusters import apart, groups_of, shrunk_by_group
from ncarl.solvers.power import first_probe, norm_bound
from ncarl.solvers.problem import (
    Clock,
    Ending,
    Problem,
    Step,
    change_of,
    ratio,
    steps_of,
)

#: Factor by which ``mu`` may grow in a round.
MOST_GROWTH = 1e6
#: Steps after which a round is ended if it has not settled.
MOST_STEPS = 300
#: Rounds are over when less than this part of the coefficients is between groups, or
#: when groups stay and X changes by less than so much: from there on ``mu``, which
#: starts anew in each round, makes X drift and nothing better of it.
STRAY, SAME = 1.5e-3, 1e-2


@dataclass(frozen=True, eq=False)
class S3LRState:
    """Where the solver stands.

    Attributes
    ----------
    X, E, Y1, Y2 : arrays of shape (m, n)
        The matrix, its part that columns do not make up, and the multipliers.
    C : array of shape (n, n)
        Coefficients.
    before : array of shape (m, n)
        X at the end of the last round.
    labels : array of int, shape (n,)
        Group of each column.
    own_probe, probe : arrays of shape (n, probes)
        Vectors that ``I - C`` and X stretch most, for their norms.
    mu : float
        Weight of the constraints.
    clusters : int
        Number of groups; 0 as long as it is not known.
    round, begun : int
        The round, from 1, and the step before its first.
    rank : int
        Rank of X, summed over the groups.
    """

    X: Array
    E: Array
    Y1: Array
    Y2: Array
    C: Array
    before: Array
    labels: Array
    own_probe: Array
    probe: Array
    mu: float
    clusters: int
    round: int = 1
    begun: int = 0
    rank: int = 0


@dataclass(frozen=True)
class S3LRSolver:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    lam, g0, G : float
        Strengths in the solver's units.
    norm : {"l1", "l21", "squared"}
        How E is measured.
    relax : bool
        Whether all columns are shrunk together whatever the groups.
    clusters : int
        Number of groups; 0 finds it after the first round.
    rounds : int
        Most rounds.
    rho : float
        Growth of ``mu``.
    tol : float
        What residuals and the change of X must fall below for a round to end.
    seed : int
        Seed of the grouping.
    """

    problem: Problem
    lam: float
    g0: float
    G: float
    norm: str
    relax: bool
    clusters: int
    rounds: int
    rho: float
    tol: float
    seed: int
    degree: float = 1.0

    @property
    def first_mu(self) -> float:
        """``mu`` at the start of a round."""
        return 1.25 / self.problem.top

    def begin(self) -> S3LRState:
        """Zeros in the gaps, no coefficients, one group."""
        M, send = self.problem.M, self.problem.home.send
        n = self.problem.shape[1]
        zero = 0.0 * M
        labels = send(np.zeros(n, dtype=np.int64))
        probe = first_probe(n)
        return S3LRState(
            M, zero, zero, zero, send(np.zeros((n, n))), M, labels, send(probe),
            send(probe), self.first_mu, self.clusters,
        )  # fmt: skip

    def steps(self, state: S3LRState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: S3LRState, step: int, clock: Clock) -> Step:
        """One step of a round, and new groups where it ends the round."""
        X, s, own_probe = self._shrunk_columns(state)
        pull = X - X @ state.C + state.Y2 / state.mu
        E = shrunk_rest(pull, self.norm, self.lam / state.mu)
        C, probe = self._shrunk_coefficients(state, X, E - pull)
        left = X - X @ C
        xp = array_namespace(X)
        off = xp.where(self.problem.seen, self.problem.M - X, xp.zeros_like(X))
        observed = ratio(frobenius(off), self.problem.size)
        made = ratio(frobenius(left - E), frobenius(X))
        change = max(observed, made, change_of(X, state.X))
        notes = {
            "observed": observed,
            "made": made,
            "round": float(state.round),
            "clusters": float(state.clusters),
            "rank": float(len(s)),
            "mu": state.mu,
        }
        value = self._value(state, C, E, s)
        new = replace(
            state,
            X=X,
            C=C,
            E=E,
            Y1=state.Y1 + state.mu * off,
            Y2=state.Y2 + state.mu * (left - E),
            own_probe=own_probe,
            probe=probe,
            mu=min(self.rho * state.mu, MOST_GROWTH * self.first_mu),
            rank=len(s),
        )
        settled, last = change < self.tol, state.round >= self.rounds
        may_stop = False
        if settled or (not last and step - state.begun >= MOST_STEPS):
            new, done = self._regrouped(new, step)
            may_stop = settled and (done or last)
        return Step(step, new, value, change, notes, clock.look(), may_stop)

    # --- the parts of a step ---------------------------------------------------------

    def _shrunk_columns(self, state: S3LRState) -> tuple[Array, Any, Array]:
        """The next X, its singular values group by group, and the probe of I - C."""
        X, C, mu = state.X, state.C, state.mu
        xp = array_namespace(X)
        eye = xp.eye(C.shape[0], dtype=C.dtype, device=getattr(C, "device", None))
        norm, probe = norm_bound(eye - C, state.own_probe)
        eta = norm**2 + 1.01
        off = xp.where(
            self.problem.seen, X - self.problem.M - state.Y1 / mu, xp.zeros_like(X)
        )
        rest = X - X @ C - state.E + state.Y2 / mu
        W = X - (off + rest - rest @ C.T) / eta
        labels = state.labels[:0] if self.relax else state.labels
        new, s = shrunk_by_group(W, self.problem.home.fetch(labels), 1.0 / (mu * eta))
        return new, s, probe

    def _shrunk_coefficients(
        self, state: S3LRState, X: Array, off: Array
    ) -> tuple[Array, Array]:
        """The next C from how far X C is off, and the probe of X."""
        C, mu = state.C, state.mu
        xp = array_namespace(C)
        norm, probe = norm_bound(X, state.probe)
        # Any larger value is as safe; this one is above 0 where X is not.
        xi = max(norm, 1e-3 * self.problem.top) ** 2
        W = C - X.T @ off / xi
        strength = self.g0 + self.G * xp.astype(apart(state.labels), C.dtype)
        t = strength / (mu * xi)
        W = W - xp.maximum(-t, xp.minimum(W, t))
        eye = xp.eye(W.shape[0], dtype=xp.bool, device=getattr(W, "device", None))
        return xp.where(eye, xp.zeros_like(W), W), probe

    def _value(self, state: S3LRState, C: Array, E: Array, s: Any) -> float:
        """The objective."""
        xp = array_namespace(C)
        sizes = xp.abs(C)
        across = xp.where(apart(state.labels), sizes, xp.zeros_like(sizes))
        if self.norm == "l1":
            rest = float(xp.sum(xp.abs(E)))
        elif self.norm == "l21":
            rest = float(xp.sum(xp.linalg.vector_norm(E, axis=0)))
        else:
            rest = frobenius(E) ** 2 / 2.0
        part = self.g0 * float(xp.sum(sizes)) + self.G * float(xp.sum(across))
        return float(s.sum()) + part + self.lam * rest

    # --- rounds ----------------------------------------------------------------------

    def _regrouped(self, state: S3LRState, step: int) -> tuple[S3LRState, bool]:
        """The start of the next round, or the same state if no round is needed."""
        grouped = self._grouped(state)
        xp = array_namespace(state.C)
        zero = xp.zeros_like(state.C)
        across = xp.where(apart(grouped.labels), state.C, zero)
        stray = ratio(frobenius(across), frobenius(state.C))
        kept = not bool(xp.any(grouped.labels != state.labels))
        same = kept and change_of(state.X, state.before) < SAME
        if stray < STRAY or same or state.round >= self.rounds:
            return replace(grouped, begun=step), stray < STRAY or same
        return replace(
            grouped,
            E=state.X - state.X @ state.C,
            Y1=0.0 * state.Y1,
            Y2=0.0 * state.Y2,
            before=state.X,
            mu=self.first_mu,
            round=state.round + 1,
            begun=step,
        ), False

    def _grouped(self, state: S3LRState) -> S3LRState:
        """The state with columns grouped by its coefficients."""
        home = self.problem.home
        labels, k = groups_of(home.fetch(state.C), state.clusters, self.seed)
        return replace(state, labels=home.send(labels), clusters=k)

    def end(self, last: Step) -> Ending:
        """The matrix with its observed values, the coefficients and the groups."""
        state: S3LRState = last.state
        if state.round == 1:
            state = self._grouped(state)
        fetch = self.problem.home.fetch
        extras = {
            "labels_": np.asarray(fetch(state.labels)),
            "coefficients_": fetch(state.C),
            "n_clusters_": state.clusters,
            "rounds_": state.round,
        }
        X = fetch(self.problem.filled(state.X))
        return Ending(X, None, self.problem.residual(state.X), state.rank, extras)


def shrunk_rest(W: Array, norm: str, t: float) -> Array:
    """``argmin 1/2 ||E - W||^2 + t |E|`` for a norm by name."""
    xp = array_namespace(W)
    if norm == "squared":
        return W / (1.0 + t)
    if norm == "l1":
        return W - xp.clip(W, -t, t)
    lengths = xp.linalg.vector_norm(W, axis=0)
    safe = xp.where(lengths > t, lengths, xp.ones_like(lengths))
    return W * xp.where(lengths > t, 1.0 - t / safe, 0.0 * lengths)

r"""S3LR: joint completion and subspace clustering of columns.

``min sum_j ||X_j||_* + g0 |C|_1 + G |T o C|_1 + lam |E|`` such that ``X = X C + E``,
``diag(C) = 0`` and X agrees with the observed entries. ``X_j`` are the columns of
cluster j, and T is 1 where two columns belong to different clusters. A round is a
linearized ADMM with fixed clusters and a growing ``mu``:

.. code-block:: text

    X <- shrink by cluster
         (X - (P(X - M - Y1/mu) + (X - XC - E + Y2/mu)(I - C)^T) / eta)
    E <- shrink (X - XC + Y2/mu)
    C <- shrink (C - X^T (XC + E - X - Y2/mu) / xi), 0 on the diagonal
    Y1 <- Y1 + mu P(M - X),  Y2 <- Y2 + mu (X - XC - E),  mu <- rho mu

with ``eta >= 1 + ||I - C||^2`` and ``xi >= ||X||^2``; then spectral clustering of
``|C| + |C|^T`` gives new clusters.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from sklearn.exceptions import ConvergenceWarning

from ncarl.core.svd import frobenius_norm, initial_probe, spectral_norm_bound
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.solvers.base import (
    DenseProblem,
    SolverResult,
    StepSolver,
    group_soft_threshold,
    ratio,
    relative_change,
    shrink_singular_values,
)

#: Factor by which ``mu`` may grow in a round.
MAX_MU_GROWTH = 1e6
#: Maximum number of steps of a round.
MAX_ROUND_STEPS = 300
#: No further round is made if less than this fraction of the coefficients is between
#: clusters, or if the clusters stay the same and X changes by less than this: ``mu``
#: restarts in each round, so further rounds only make X drift.
BETWEEN_CLUSTER_TOL, ROUND_CHANGE_TOL = 1.5e-3, 1e-2
#: Maximum number of clusters that the eigengap may select.
MAX_CLUSTERS = 10


@dataclass(frozen=True, eq=False)
class S3LRState:
    """State of `S3LRSolver`."""

    X: Array  # matrix (m, n)
    E: Array  # errors (m, n): the part of X that X C does not explain
    Y1: Array  # multipliers (m, n) of the observed entries
    Y2: Array  # multipliers (m, n) of the constraint X = X C + E
    C: Array  # coefficients (n, n)
    X_last_round: Array  # X at the end of the last round
    labels: Array  # cluster of each column (n,)
    C_probe: Array  # probe vectors (n, probes) for the norm of I - C
    X_probe: Array  # probe vectors (n, probes) for the norm of X
    mu: float  # penalty parameter of the constraints
    n_clusters: int  # number of clusters; 0 before it is selected
    round: int = 1
    round_start: int = 0  # step before the first of the round
    rank: int = 0  # rank of X, summed over the clusters


@dataclass(frozen=True)
class S3LRSolver(StepSolver):
    """Solver of S3LR; strengths are in its own units."""

    degree: ClassVar[float] = 1.0
    problem: DenseProblem
    lam: float  # strength of the errors E
    g0: float  # strength of the coefficients C
    G: float  # strength of the coefficients between clusters
    norm: str  # norm of E: "l1", "l21" or "squared"
    relax: bool  # whether to shrink all columns together, regardless of the clusters
    n_clusters: int  # 0 selects it after the first round
    rounds: int  # maximum number of rounds
    rho: float  # factor by which mu grows in each step
    tol: float  # a round ends once the residuals and the change of X are below this
    seed: int  # of the clustering

    @property
    def initial_mu(self) -> float:
        """``mu`` at the start of a round."""
        return 1.25 / self.problem.spectral_norm

    def initial_state(self) -> S3LRState:
        """The zero-filled matrix, no coefficients, one cluster."""
        M, send = self.problem.M, self.problem.compute_device.from_numpy
        n, zeros = self.problem.shape[1], 0.0 * M
        probe = send(initial_probe(n))
        return S3LRState(
            X=M,
            E=zeros,
            Y1=zeros,
            Y2=zeros,
            C=send(np.zeros((n, n))),
            X_last_round=M,
            labels=send(np.zeros(n, dtype=np.int64)),
            C_probe=probe,
            X_probe=probe,
            mu=self.initial_mu,
            n_clusters=self.n_clusters,
        )

    def _step(self, state: S3LRState, step: int) -> Iterate[Any]:
        """One step of a round, and new clusters if it ends the round."""
        X, s, C_probe = self._update_columns(state)
        W = X - X @ state.C + state.Y2 / state.mu
        E = shrink_errors(W, self.norm, self.lam / state.mu)
        C, X_probe = self._update_coefficients(state, X, E - W)
        errors = X - X @ C
        misfit = self.problem.project(self.problem.M - X)
        observed_residual = ratio(frobenius_norm(misfit), self.problem.observed_norm)
        model_residual = ratio(frobenius_norm(errors - E), frobenius_norm(X))
        change = max(observed_residual, model_residual, relative_change(X, state.X))
        notes = {
            "observed": observed_residual,
            "made": model_residual,
            "round": float(state.round),
            "clusters": float(state.n_clusters),
            "rank": float(len(s)),
            "mu": state.mu,
        }
        value = self._objective(state, C, E, s)
        new = replace(
            state,
            X=X,
            C=C,
            E=E,
            Y1=state.Y1 + state.mu * misfit,
            Y2=state.Y2 + state.mu * (errors - E),
            C_probe=C_probe,
            X_probe=X_probe,
            mu=min(self.rho * state.mu, MAX_MU_GROWTH * self.initial_mu),
            rank=len(s),
        )
        converged, is_last = change < self.tol, state.round >= self.rounds
        may_stop = False
        if converged or (not is_last and step - state.round_start >= MAX_ROUND_STEPS):
            new, done = self._next_round(new, step)
            may_stop = converged and (done or is_last)
        return Iterate(new, value, change, notes, may_stop)

    # --- the parts of a step ---------------------------------------------------------

    def _update_columns(self, state: S3LRState) -> tuple[Array, Any, Array]:
        """The next X, its singular values by cluster, and the probe of I - C."""
        X, C, mu = state.X, state.C, state.mu
        xp = array_namespace(X)
        eye = xp.eye(C.shape[0], dtype=C.dtype, device=getattr(C, "device", None))
        norm, probe = spectral_norm_bound(eye - C, state.C_probe)
        eta = norm**2 + 1.01
        misfit = self.problem.project(X - self.problem.M - state.Y1 / mu)
        errors = X - X @ C - state.E + state.Y2 / mu
        W = X - (misfit + errors - errors @ C.T) / eta
        labels = state.labels[:0] if self.relax else state.labels
        new, s = shrink_by_cluster(W, self._to_numpy(labels), 1.0 / (mu * eta))
        return new, s, probe

    def _update_coefficients(
        self, state: S3LRState, X: Array, residual: Array
    ) -> tuple[Array, Array]:
        """The next C, given the residual of ``X C``, and the probe of X."""
        C, mu = state.C, state.mu
        xp = array_namespace(C)
        norm, probe = spectral_norm_bound(X, state.X_probe)
        # A larger bound is safe too; this one is positive even if X is 0.
        xi = max(norm, 1e-3 * self.problem.spectral_norm) ** 2
        W = C - X.T @ residual / xi
        between = xp.astype(between_cluster_mask(state.labels), C.dtype)
        t = (self.g0 + self.G * between) / (mu * xi)
        W = W - xp.maximum(-t, xp.minimum(W, t))
        eye = xp.eye(W.shape[0], dtype=xp.bool, device=getattr(W, "device", None))
        return xp.where(eye, xp.zeros_like(W), W), probe

    def _objective(self, state: S3LRState, C: Array, E: Array, s: Any) -> float:
        xp = array_namespace(C)
        sizes = xp.abs(C)
        between = sizes * between_cluster_mask(state.labels)
        if self.norm == "l1":
            error = float(xp.sum(xp.abs(E)))
        elif self.norm == "l21":
            error = float(xp.sum(xp.linalg.vector_norm(E, axis=0)))
        else:
            error = frobenius_norm(E) ** 2 / 2.0
        sparsity = self.g0 * float(xp.sum(sizes)) + self.G * float(xp.sum(between))
        return float(s.sum()) + sparsity + self.lam * error

    # --- rounds ----------------------------------------------------------------------

    def _next_round(self, state: S3LRState, step: int) -> tuple[S3LRState, bool]:
        """Assign new clusters and start a round; whether no further round is needed."""
        new = replace(self._assign_clusters(state), round_start=step)
        xp = array_namespace(state.C)
        between = state.C * between_cluster_mask(new.labels)
        fraction = ratio(frobenius_norm(between), frobenius_norm(state.C))
        same_labels = not bool(xp.any(new.labels != state.labels))
        X_change = relative_change(state.X, state.X_last_round)
        converged = same_labels and X_change < ROUND_CHANGE_TOL
        done = fraction < BETWEEN_CLUSTER_TOL or converged
        if done or state.round >= self.rounds:
            return new, done
        new = replace(
            new,
            E=state.X - state.X @ state.C,
            Y1=0.0 * state.Y1,
            Y2=0.0 * state.Y2,
            X_last_round=state.X,
            mu=self.initial_mu,
            round=state.round + 1,
        )
        return new, False

    def _assign_clusters(self, state: S3LRState) -> S3LRState:
        C = self._to_numpy(state.C)
        labels, k = spectral_clustering(C, state.n_clusters, self.seed)
        sent = self.problem.compute_device.from_numpy(labels)
        return replace(state, labels=sent, n_clusters=k)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The completed matrix, the coefficients and the clusters."""
        state: S3LRState = last.state
        if state.round == 1:
            state = self._assign_clusters(state)
        extras = {
            "labels_": np.asarray(self._to_numpy(state.labels)),
            "coefficients_": self._to_numpy(state.C),
            "n_clusters_": state.n_clusters,
            "rounds_": state.round,
        }
        X = self._to_numpy(self.problem.fill_missing(state.X))
        residual, both = self.problem.residual(state.X), ("columns", "columns")
        axes = {"labels_": ("columns",), "coefficients_": both}
        return SolverResult(X, None, residual, state.rank, extras, axes)


def shrink_by_cluster(W: Array, labels: Any, tau: float) -> tuple[Array, Any]:
    """Soft-threshold the singular values of each cluster; the matrix and the values.

    Without labels all columns are one cluster.
    """
    clusters = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    if len(clusters) < 2:
        return shrink_singular_values(W, tau)
    xp = array_namespace(W)

    def take(A: Array, columns: Any) -> Array:
        index = xp.asarray(columns, device=getattr(W, "device", None))
        return xp.take(A, index, axis=1)

    shrunk = [shrink_singular_values(take(W, own), tau) for own in clusters]
    joined = xp.concat([part for part, _ in shrunk], axis=1)
    order = np.argsort(np.concatenate(clusters))
    return take(joined, order), np.concatenate([s for _, s in shrunk])


def shrink_errors(W: Array, norm: str, t: float) -> Array:
    """``argmin_E 1/2 ||E - W||^2 + t |E|`` for a norm by name."""
    if norm == "squared":
        return W / (1.0 + t)
    if norm == "l1":
        return W - array_namespace(W).clip(W, -t, t)
    return group_soft_threshold(W, t)


def between_cluster_mask(labels: Array) -> Array:
    """True where two columns belong to different clusters."""
    return labels[:, None] != labels[None, :]


def spectral_clustering(C: Any, n_clusters: int, seed: int) -> tuple[Any, int]:
    """Cluster the columns by ``|C| + |C|^T``; their labels and the number of clusters.

    With 0 clusters the number is selected by the largest eigengap.
    """
    from sklearn.cluster import KMeans  # slow to import, and needed here only

    values, vectors = _laplacian_eigenpairs(np.abs(C) + np.abs(C.T))
    k = _eigengap_count(values) if n_clusters == 0 else n_clusters
    if k == 1:
        return np.zeros(len(C), dtype=np.int64), 1
    points = vectors[:, :k]
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    points = points / np.where(lengths > 0.0, lengths, 1.0)
    with warnings.catch_warnings():
        # With fewer distinct columns than clusters some clusters stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = KMeans(k, n_init=20, random_state=seed).fit(points).labels_
    return number_clusters(labels), k


def number_clusters(labels: Array) -> Array:
    """Labels with clusters numbered in the order of their first columns."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def _laplacian_eigenpairs(A: Array) -> tuple[Any, Any]:
    """Eigenvalues, smallest first, and eigenvectors of the normalized Laplacian."""
    degrees = A.sum(axis=1)
    # An isolated column is a component of its own, with eigenvalue 0.
    isolated = degrees <= np.finfo(np.float64).eps * degrees.max(initial=0.0)
    roots = np.sqrt(np.where(isolated, 1.0, degrees))
    L = np.diag(1.0 - isolated) - A / roots / roots[:, None]
    values, vectors = np.linalg.eigh((L + L.T) / 2.0)
    return values, vectors


def _eigengap_count(values: Array) -> int:
    """Number of eigenvalues below the largest gap; 1 if there is none."""
    gaps = np.diff(values[: MAX_CLUSTERS + 1])
    return int(np.argmax(gaps)) + 1 if len(gaps) and values[-1] > 0.0 else 1

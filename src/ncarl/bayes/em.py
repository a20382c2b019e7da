"""EM on kernel, noise and column means: one pass over the rows a step.

A row is a draw ``x ~ N(mean, K)`` of which ``v = x_o + noise`` is seen. With
``A = K_oo + s I`` and ``y = A^-1 (v - mean_o)`` all that a step needs of the rows is

    B = sum scatter(A^-1 - y y^T),   pull = sum scatter(y),

and then ``K <- (m S + nu tau Psi) / (m + nu)`` with ``S = K - K B K / m - d d^T``,
``d = K pull / m``, ``mean <- mean + d`` and ``s <- s - s^2 B_jj / count_j``. Rows are
solved in units of the noise, where ``s = 1``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ncarl.bayes.state import Assessed, Belief, Climb, Iterate, Rows, State
from ncarl.core.linalg import (
    LAST_JITTER,
    add_diagonal,
    mean_diagonal,
    sandwich,
    spd_inverse,
)
from ncarl.core.log_det import spd_log_det, spd_log_det_and_trace
from ncarl.core.rows import evidence_of_rows
from ncarl.core.types import Array, EvidenceSums, Kernel
from ncarl.exceptions import NotPositiveDefiniteError
from ncarl.homes import seconds_between

#: A step is made longer by this factor after every one that raised the evidence.
GROWTH = 1.2
#: Noise of a column counts as if so many entries had the usual noise.
NOISE_COUNT = 50.0
#: What rounding may take from the evidence, as a part of it, by the type of the work.
ROUNDING = {"float64": 2e-11, "float32": 1e-5}
#: What is said where not even the kernel at the start is one.
NO_START = (
    "the prior and the noise make no kernel that can be worked with; use "
    "noise='per-column', dtype='float64', or another prior"
)


def em_iterates(
    rows: Rows, belief: Belief, climb: Climb, step: int = 0
) -> Iterator[Iterate]:
    """Yield better and better states; the penalised evidence never falls.

    Steps are stretched, a little more each time. Where that goes too far the step of
    ordinary length is taken instead, which fails only where digits run out: that is
    the end of it.
    """
    first, last = climb.penalised == -math.inf, None
    while True:
        bold = climb.plain is not None
        found = _assessed_or_none(rows, belief, climb.state, bold)
        if bold and (found is None or not _risen(found, climb.penalised)):
            climb = Climb(climb.plain or climb.state, None, 1.0, climb.penalised)
            continue
        if found is None:
            # Rounding has the last word: data without noise, fitted to all digits.
            if step == 0:
                if last is None:
                    raise NotPositiveDefiniteError(NO_START)
                yield Iterate(1, last, 0.0, climb, notes=_notes(last))
            return
        gain = (found.penalised - climb.penalised) / rows.n_observed
        length = 1.0 if first else climb.length * GROWTH
        climb, last = _onward(rows, found, length), found
        if not first:
            step += 1
            yield Iterate(step, found, abs(gain), climb, notes=_notes(found))
        first = False


def _assessed_or_none(
    rows: Rows, belief: Belief, state: State, doubtful: bool
) -> Assessed | None:
    """The state assessed; None where its kernel is none any more."""
    try:
        found = assess(rows, belief, state, doubtful=doubtful)
    except NotPositiveDefiniteError:
        return None
    return found if math.isfinite(found.penalised) else None


def _risen(found: Assessed, before: float) -> bool:
    """Whether the evidence has not fallen; it is NaN where a kernel is not one."""
    rounding = ROUNDING[str(found.state.K.dtype).split(".")[-1]]
    return found.penalised >= before - rounding * abs(before)


def _onward(rows: Rows, found: Assessed, length: float) -> Climb:
    """The next point: as far beyond EM's own as the length says."""
    if length <= 1.0:
        return Climb(found.following, None, length, found.penalised)
    far = stretched(found.state, found.following, length, rows.least_noise)
    return Climb(far, found.following, length, found.penalised)


def _notes(found: Assessed) -> dict[str, float]:
    """What the history keeps of a step besides the usual."""
    return {"log_evidence": found.evidence, "penalised_evidence": found.penalised}


def stretched(old: State, new: State, length: float, least_noise: float) -> State:
    """The point ``length`` times as far from ``old`` as ``new``; noise by factors."""
    noise = new.noise
    if noise is not old.noise:  # which it is where it is given
        noise = old.noise * (new.noise / old.noise) ** length
        noise = array_namespace(noise).clip(noise, least_noise, None)
    K = old.K + (new.K - old.K) * length
    mean = old.mean + (new.mean - old.mean) * length
    return State(K, noise, mean, new.noisy)


def assess(
    rows: Rows, belief: Belief, state: State, *, doubtful: bool = False
) -> Assessed:
    """Evidence of a state, and the state that EM goes to from there.

    The evidence is NaN where the kernel is not positive definite; ``doubtful`` asks
    for a look at that first.
    """
    engine, n = rows.engine, state.K.shape[0]
    home = engine.home
    start = home.mark()
    with home.work(n):
        penalty, tau = _prior_penalty(belief, state.K, checked=doubtful)
        # Where work is queued NaN is found in the end: looking means waiting.
        if doubtful and not home.queued and np.isnan(penalty):
            return Assessed(state, state, math.nan, math.nan, 0.0, {})
        kernel, scales = in_noise_units(state, missing_side=rows.missing_side)
    ready = home.mark()
    sums = engine.total(
        evidence_of_rows, rows.blocks, kernel=kernel, offsets=state.mean,
        scales=scales, checked=not home.queued,
    )  # fmt: skip
    done = home.mark()
    with home.work(n):
        B, log_det = _both_sides(sums, kernel)
        fit = _log_evidence(rows, sums, state, log_det)
        following = _following(rows, belief, state, kernel, scales, sums, B, tau)
        penalty = penalty + _noise_penalty(belief, state)
        end = home.mark()
        evidence, cost = (float(x) for x in home.read(fit, penalty))
    seconds = {
        "kernel": seconds_between(start, ready) + seconds_between(done, end),
        "rows": seconds_between(ready, done),
    }
    penalised = evidence - cost
    return Assessed(
        state, following, evidence, penalised, sums.jitter, seconds, kernel, scales
    )


def in_noise_units(state: State, *, missing_side: bool) -> tuple[Kernel, Array | None]:
    """The kernel in units of the columns' noise, and what values are multiplied by."""
    if not state.noisy:
        return Kernel(state.K, None, 0.0), None
    scales = 1.0 / array_namespace(state.noise).sqrt(state.noise)
    K = scales[:, None] * scales[None, :]
    K *= state.K
    P = spd_inverse(add_diagonal(K, 1.0), checked=False) if missing_side else None
    return Kernel(K, P, 1.0), scales


def _both_sides(sums: EvidenceSums, kernel: Kernel) -> tuple[Array, Any]:
    """``B`` and ``sum log|A|`` with what rows solved on their missing side add."""
    if sums.missing is None or sums.n_missing == 0:
        return sums.B, sums.log_det
    P: Array = kernel.P
    B = sums.B + P * float(sums.n_missing) - sandwich(P, sums.missing)
    return B, sums.log_det - sums.n_missing * spd_log_det(P)


def _log_evidence(rows: Rows, sums: EvidenceSums, state: State, log_det: Any) -> Any:
    """Log density of all that is observed."""
    total = sums.fit + log_det + rows.n_observed * math.log(2.0 * math.pi)
    if state.noisy:
        xp = array_namespace(state.noise)
        total = total + xp.sum(xp.log(state.noise) * rows.counts)
    return -0.5 * total


def _following(
    rows: Rows, belief: Belief, state: State, kernel: Kernel, scales: Array | None,
    sums: EvidenceSums, B: Array, tau: Any,
) -> State:  # fmt: skip
    """The state that EM goes to."""
    m = float(rows.n_rows)
    # In place where it can be: n x n arrays are what time is made of here.
    S = sandwich(kernel.K, B)
    S *= -1.0 / m
    S += kernel.K
    mean = state.mean
    if belief.learn_mean:
        d = _product(kernel.K, sums.pull) * (1.0 / m)
        S -= d[:, None] * d[None, :]
        mean = mean + (d if scales is None else d / scales)
    share = belief.strength / (m + belief.strength)
    if scales is None:
        S *= 1.0 - share
    else:
        # As one product, which is symmetric to the last bit.
        S *= (1.0 - share) / (scales[:, None] * scales[None, :])
    if belief.strength > 0.0:
        S += belief.Psi * (tau * share)
    noise = _noise(rows, belief, state, array_namespace(B).linalg.diagonal(B))
    return State(S, noise, mean, state.noisy)


def _product(K: Array, y: Array) -> Array:
    """``K y``, not through NumPy's BLAS: see `ncarl.core.linalg` on idle threads."""
    return np.einsum("ij,j->i", K, y) if is_numpy_array(K) else K @ y


def _prior_penalty(belief: Belief, K: Array, *, checked: bool) -> tuple[Any, Any]:
    """``nu/2 (log|K| + tau tr(Psi K^-1) - n log tau)`` at its smallest, and tau.

    NaN where ``K`` is not positive definite. Without a prior there is nothing to pay,
    and only ``checked`` asks for a look at ``K``.
    """
    xp, n = array_namespace(K), K.shape[0]
    if belief.strength == 0.0:
        return (0.0 * spd_log_det(K) if checked else 0.0), 0.0
    log_det, trace = spd_log_det_and_trace(K, belief.Psi)
    if not checked and is_numpy_array(K) and np.isnan(log_det):
        # Nothing but rounding can have made it so.
        K = add_diagonal(K, LAST_JITTER * mean_diagonal(K))
        log_det, trace = spd_log_det_and_trace(K, belief.Psi)
    size = log_det + n + n * xp.log(trace / n)
    return 0.5 * belief.strength * size, n / trace


def _usual_noise(noise: Array) -> Any:
    """The noise that the columns' are about: where it is likeliest, given them."""
    return noise.shape[0] / array_namespace(noise).sum(1.0 / noise)


def _noise_penalty(belief: Belief, state: State) -> Any:
    """What the inverse-gamma prior of the columns' noise takes off the evidence."""
    if belief.learn_noise != "per-column" or not state.noisy:
        return 0.0
    xp, usual = array_namespace(state.noise), _usual_noise(state.noise)
    logs = xp.log(state.noise / usual) + usual / state.noise
    return 0.5 * NOISE_COUNT * xp.sum(logs)


def _noise(rows: Rows, belief: Belief, state: State, diagonal: Array) -> Array:
    """Noise of the columns after a step; ``diagonal`` is that of ``B``."""
    xp, old = array_namespace(diagonal), state.noise
    if belief.learn_noise is None or not state.noisy:
        return old
    # Squared noise that the entries of each column are expected to hold.
    squares = old * (rows.counts - diagonal)
    if belief.learn_noise == "learn":
        noise = xp.ones_like(old) * (xp.sum(squares) / rows.n_observed)
    else:
        noise = squares + NOISE_COUNT * _usual_noise(old)
        noise = noise / (rows.counts + NOISE_COUNT)
    return xp.clip(noise, rows.least_noise, None)

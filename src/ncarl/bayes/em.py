"""EM for kernel, noise and column means of one side of a matrix.

A row is a draw ``x ~ N(mean, K)`` of which ``v = x_o + noise`` is observed. With
``A = K_oo + s I`` and ``y = A^-1 (v - mean_o)``, one pass over the rows gives

    B = sum scatter(A^-1 - y y^T),   sum_y = sum scatter(y),

and then ``K <- (m S + nu tau Psi) / (m + nu)`` with ``S = K - K B K / m - d d^T``,
``d = K sum_y / m``, ``mean <- mean + d`` and ``s <- s - s^2 B_jj / count_j``. Rows are
solved in units of the noise, where ``s = 1``.

`EMProblem` prepares a dataset, starts from `prior_correlation` and runs `em_iterates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from ncarl.blocks import group_costs
from ncarl.centering import Centering, fit_two_way_effects, overall_mean, square_sum
from ncarl.core.linalg import (
    MAX_JITTER,
    add_diagonal,
    dtype_name,
    identity_like,
    mean_diagonal,
    sandwich,
    spd_inverse,
    spd_log_det,
    spd_log_det_and_trace,
    symmetrize,
)
from ncarl.core.rows import Kernel, observed_gram, row_likelihood
from ncarl.core.types import Array, LikelihoodSums, cached_property
from ncarl.dataset import Dataset, DataSummary
from ncarl.engines.base import Engine, seconds_between
from ncarl.exceptions import NotPositiveDefiniteError
from ncarl.fitting.checkpoint import CheckpointContents, CheckpointFile, check_array
from ncarl.fitting.kernel_model import KernelModel
from ncarl.fitting.loop import FitResult, Iterate, drive
from ncarl.observations import Observations

#: Over-relaxation grows by this factor after every step that raised the evidence.
STEP_GROWTH = 1.2
#: Pseudo-entries with the common noise, toward which the noise of a column is shrunk.
NOISE_PSEUDO_COUNT = 50.0
#: Relative rounding error of the evidence, by the type of the work.
EVIDENCE_RTOL = {"float64": 2e-11, "float32": 1e-5}
#: Arrays of `GaussianParams`.
PARAM_NAMES = ("K", "noise", "mean")

#: Rows of the co-observation kernel are weighted by ``(entries + this) ** -1/2``.
ROW_RIDGE = 10.0
#: Weight of the identity in the prior correlation.
IDENTITY_SHARE = 0.5
#: Columns with a smaller centered variance are observed in every row.
MIN_VARIANCE = 1e-9

#: Initial kernel and noise as fractions of the variance about the effects. They need
#: not add up to 1; the variance of the kernel grows in the first steps.
KERNEL_SHARE, NOISE_SHARE = 0.3, 0.8
#: Minimum noise as a fraction of the variance, because of rounding.
MIN_NOISE_RATIO = 1e-8
#: Minimum noise as a fraction of the squares about the column means, which a kernel
#: with row effects contains too, and in units in the last place of the values.
MIN_NOISE_TO_SQUARES, MIN_NOISE_ULPS = 1e-10, 8.0
#: Minimum variance, for constant data, as a fraction of the mean square.
MIN_VARIANCE_RATIO = 1e-12


@dataclass(frozen=True)
class GaussianParams:
    """Parameters of the model, as arrays on the engine's device."""

    K: Array  # covariance of the columns, (n, n)
    noise: Array  # noise variance of each column, (n,); all 0 without noise
    mean: Array  # mean of each column, (n,)
    noisy: bool = True  # whether the model has noise


@dataclass(frozen=True)
class Prior:
    """The prior, and which parameters are learned."""

    Psi: Array  # prior correlation of the columns, (n, n)
    pseudo_rows: float  # rows that the prior counts as (nu)
    learn_noise: str | None = "learn"  # or "per-column"; None keeps the noise
    learn_mean: bool = True


@dataclass(frozen=True)
class EMData:
    """The rows as an engine placed them, and their numbers of entries."""

    engine: Engine
    blocks: Any
    counts: Array  # observed entries of each column, on the device
    n_rows: int
    n_observed: int
    needs_precision: bool  # whether some row solves for its missing entries
    min_noise: float


@dataclass(frozen=True)
class EMStep:
    """An EM step: the evidence of parameters, and the parameters that it leads to."""

    params: GaussianParams  # at which the E-step was made
    next_params: GaussianParams  # after the M-step
    evidence: float  # log evidence of params
    penalized: float  # the same minus the penalty of the prior
    jitter: float  # largest relative jitter of the pass
    seconds: dict[str, float]  # by part
    kernel: Kernel | None = None  # in units of the noise; None if K is indefinite
    scales: Array | None = None  # (n,): factors from values to units of the noise


@dataclass(frozen=True)
class EMState:
    """State of the iteration, from which it can be resumed."""

    params: GaussianParams  # of the next EM step
    unrelaxed_params: GaussianParams | None = None  # plain EM update, if params are not
    step_length: float = 1.0  # over-relaxation that led to params; 1 is plain EM
    previous: EMStep | None = None  # the step that led to params; None at the start

    @property
    def last_step(self) -> EMStep:
        """The last EM step; there is one in every state that is yielded."""
        assert self.previous is not None
        return self.previous


def em_iterates(
    rows: EMData, prior: Prior, state: EMState, step: int = 0
) -> Iterator[Iterate[EMState]]:
    """Yield steps of EM; the penalized evidence never decreases.

    Steps are over-relaxed, by a factor that grows from step to step. If the evidence
    decreases, the plain EM step is taken instead, which fails only at the limits of
    floating-point resolution: the iteration ends there.
    """
    while True:
        last, unrelaxed = state.previous, state.unrelaxed_params
        new: EMStep | None = None
        with suppress(NotPositiveDefiniteError):
            check = unrelaxed is not None
            new = em_step(rows, prior, state.params, check_definite=check)
        if new is not None and not math.isfinite(new.penalized):
            new = None
        if unrelaxed is not None and (
            new is None or not _evidence_increased(new, state.last_step)
        ):
            state = EMState(unrelaxed, None, 1.0, last)
            continue
        if new is None:
            # Noise-free data: further steps are below floating-point resolution.
            if last is None:
                raise NotPositiveDefiniteError(
                    "the prior and the noise give no positive definite kernel; "
                    "use noise='per-column', dtype='float64', or another prior"
                )
            if step == 0:
                yield _make_iterate(1, state, 0.0)
            return
        following = new.next_params
        length = 1.0 if last is None else state.step_length * STEP_GROWTH
        state = EMState(following, None, length, new)
        if length > 1.0:
            far = over_relax(new.params, following, length, rows.min_noise)
            state = EMState(far, following, length, new)
        if last is not None:
            step += 1
            gain = (new.penalized - last.penalized) / rows.n_observed
            yield _make_iterate(step, state, abs(gain))


def _make_iterate(step: int, state: EMState, change: float) -> Iterate[EMState]:
    last = state.last_step
    return Iterate(
        state,
        step=step,
        objective=-last.penalized,
        change=change,
        notes={"log_evidence": last.evidence, "penalized_evidence": last.penalized},
        seconds=last.seconds,
        jitter=last.jitter,
    )


def _evidence_increased(new: EMStep, previous: EMStep) -> bool:
    """Whether the evidence has not decreased, up to rounding; False for NaN."""
    rounding = EVIDENCE_RTOL[dtype_name(new.params.K.dtype)]
    return new.penalized >= previous.penalized - rounding * abs(previous.penalized)


def over_relax(
    old: GaussianParams, new: GaussianParams, step_length: float, min_noise: float
) -> GaussianParams:
    """``old + step_length * (new - old)``; for the noise, the same of its logarithm."""
    noise = new.noise
    if noise is not old.noise:  # it is the same array if it is not learned
        noise = old.noise * (new.noise / old.noise) ** step_length
        noise = array_namespace(noise).clip(noise, min_noise, None)
    K = old.K + (new.K - old.K) * step_length
    mean = old.mean + (new.mean - old.mean) * step_length
    return GaussianParams(K, noise, mean, new.noisy)


def em_step(
    rows: EMData, prior: Prior, params: GaussianParams, *, check_definite: bool = False
) -> EMStep:
    """E-step (a pass over the rows) at ``params``, then the M-step.

    The evidence is NaN if ``K`` is not positive definite; ``check_definite`` checks
    that before the pass over the rows.
    """
    engine, n = rows.engine, params.K.shape[0]
    compute_device = engine.compute_device
    start = compute_device.timestamp()
    with compute_device.compute_context(n):
        penalty, tau = _prior_penalty(prior, params.K, checked=check_definite)
        # On an asynchronous device NaN is found at the end: reading it now would wait.
        if check_definite and not compute_device.is_async and np.isnan(penalty):
            return EMStep(params, params, math.nan, math.nan, 0.0, {})
        kernel, scales = kernel_in_noise_units(
            params, with_precision=rows.needs_precision
        )
    ready = compute_device.timestamp()
    sums = engine.total(
        row_likelihood,
        rows.blocks,
        kernel=kernel,
        offsets=params.mean,
        scales=scales,
        checked=not compute_device.is_async,
    )
    done = compute_device.timestamp()
    with compute_device.compute_context(n):
        B, log_det = combine_row_forms(sums, kernel)
        log_evidence = _log_evidence(rows, sums, params, log_det)
        next_params = _m_step(rows, prior, params, kernel, scales, sums, B, tau)
        penalty = penalty + _noise_penalty(prior, params)
        end = compute_device.timestamp()
        read = compute_device.read_back(log_evidence, penalty)
        evidence, penalty = (float(x) for x in read)
    seconds = {
        "kernel": seconds_between(start, ready) + seconds_between(done, end),
        "rows": seconds_between(ready, done),
    }
    penalized = evidence - penalty
    return EMStep(
        params, next_params, evidence, penalized, sums.jitter, seconds, kernel, scales
    )


def kernel_in_noise_units(
    params: GaussianParams, *, with_precision: bool
) -> tuple[Kernel, Array | None]:
    """The kernel in units of the columns' noise, and the factors to these units."""
    if not params.noisy:
        return Kernel(params.K, None, 0.0), None
    scales = 1.0 / array_namespace(params.noise).sqrt(params.noise)
    K = scales[:, None] * scales[None, :]
    K *= params.K
    P = spd_inverse(add_diagonal(K, 1.0), checked=False) if with_precision else None
    return Kernel(K, P, 1.0), scales


def combine_row_forms(sums: LikelihoodSums, kernel: Kernel) -> tuple[Array, Any]:
    """``B`` and ``sum log|A|`` of all rows, those in precision form included."""
    count = sums.n_precision_rows
    if sums.missing_inverse_sum is None or count == 0:
        return sums.B, sums.log_det
    P: Array = kernel.P
    B = sums.B + P * float(count) - sandwich(P, sums.missing_inverse_sum)
    return B, sums.log_det - count * spd_log_det(P)


def _log_evidence(
    rows: EMData, sums: LikelihoodSums, params: GaussianParams, log_det: Any
) -> Any:
    total = sums.fit + log_det + rows.n_observed * math.log(2.0 * math.pi)
    if params.noisy:
        xp = array_namespace(params.noise)
        total = total + xp.sum(xp.log(params.noise) * rows.counts)
    return -0.5 * total


def _m_step(
    rows: EMData,
    prior: Prior,
    params: GaussianParams,
    kernel: Kernel,
    scales: Array | None,
    sums: LikelihoodSums,
    B: Array,
    tau: Any,
) -> GaussianParams:
    m = float(rows.n_rows)
    # In place where possible: passes over n x n arrays dominate the time.
    S = sandwich(kernel.K, B)
    S *= -1.0 / m
    S += kernel.K
    mean = params.mean
    if prior.learn_mean:
        d = _matvec(kernel.K, sums.sum_y) * (1.0 / m)
        S -= d[:, None] * d[None, :]
        mean = mean + (d if scales is None else d / scales)
    share = prior.pseudo_rows / (m + prior.pseudo_rows)
    if scales is None:
        S *= 1.0 - share
    else:
        # As one product, which is symmetric to the last bit.
        S *= (1.0 - share) / (scales[:, None] * scales[None, :])
    if prior.pseudo_rows > 0.0:
        S += prior.Psi * (tau * share)
    noise = _update_noise(rows, prior, params, array_namespace(B).linalg.diagonal(B))
    return GaussianParams(S, noise, mean, params.noisy)


def _matvec(K: Array, y: Array) -> Array:
    """``K y``, not through NumPy's BLAS: see `ncarl.core.linalg` on idle threads."""
    return np.einsum("ij,j->i", K, y) if is_numpy_array(K) else K @ y


def _prior_penalty(prior: Prior, K: Array, *, checked: bool) -> tuple[Any, Any]:
    """``min over tau of nu/2 (log|K| + tau tr(Psi K^-1) - n log tau)``, and tau.

    NaN if ``K`` is not positive definite. Without a prior the penalty is 0, and ``K``
    is checked only with ``checked``.
    """
    xp, n = array_namespace(K), K.shape[0]
    if prior.pseudo_rows == 0.0:
        return (0.0 * spd_log_det(K) if checked else 0.0), 0.0
    log_det, trace = spd_log_det_and_trace(K, prior.Psi)
    if not checked and is_numpy_array(K) and np.isnan(log_det):
        # Only rounding can have made it indefinite.
        K = add_diagonal(K, MAX_JITTER * mean_diagonal(K))
        log_det, trace = spd_log_det_and_trace(K, prior.Psi)
    size = log_det + n + n * xp.log(trace / n)
    return 0.5 * prior.pseudo_rows * size, n / trace


def _harmonic_mean(noise: Array) -> Any:
    """The common noise: its most likely value given that of the columns."""
    return noise.shape[0] / array_namespace(noise).sum(1.0 / noise)


def _noise_penalty(prior: Prior, params: GaussianParams) -> Any:
    if prior.learn_noise != "per-column" or not params.noisy:
        return 0.0
    xp, common = array_namespace(params.noise), _harmonic_mean(params.noise)
    logs = xp.log(params.noise / common) + common / params.noise
    return 0.5 * NOISE_PSEUDO_COUNT * xp.sum(logs)


def _update_noise(
    rows: EMData, prior: Prior, params: GaussianParams, diagonal: Array
) -> Array:
    """Noise of the columns after a step; ``diagonal`` is that of ``B``."""
    xp, old = array_namespace(diagonal), params.noise
    if prior.learn_noise is None or not params.noisy:
        return old
    # Expected squared noise of the entries of each column.
    squares = old * (rows.counts - diagonal)
    if prior.learn_noise == "learn":
        noise = xp.ones_like(old) * (xp.sum(squares) / rows.n_observed)
    else:
        noise = squares + NOISE_PSEUDO_COUNT * _harmonic_mean(old)
        noise = noise / (rows.counts + NOISE_PSEUDO_COUNT)
    return xp.clip(noise, rows.min_noise, None)


def prior_correlation(dataset: Dataset, prior: Any, engine: Engine) -> Array:
    """The prior correlation of the columns, on the engine's device.

    ``prior`` is "co-observation" for the co-observation kernel, "identity", features of
    the columns (n, d) that are added to that kernel, or the correlation itself (n, n).
    """
    n, compute_device = len(dataset.summary.column_counts), engine.compute_device
    if isinstance(prior, str) and prior == "identity":
        return compute_device.from_numpy(np.eye(n))
    if not isinstance(prior, str) and prior.shape[0] == prior.shape[1]:
        return compute_device.from_numpy(prior / prior.diagonal().mean())
    C = co_observation_kernel(dataset, engine)
    with compute_device.compute_context(n):
        if not isinstance(prior, str):
            C = (C + compute_device.from_numpy(feature_correlation(prior))) * 0.5
        return C * (1.0 - IDENTITY_SHARE) + identity_like(C) * IDENTITY_SHARE


def mask_weights(observed: Observations) -> Observations:
    """Replace each value by a weight of its row, smaller for rows with more entries."""
    weights = (observed.row_counts + ROW_RIDGE) ** -0.25
    return observed.with_values(np.repeat(weights, observed.row_counts))


def co_observation_kernel(dataset: Dataset, engine: Engine) -> Array:
    """Correlation of the columns' patterns of observed entries, doubly centered."""
    A = engine.total(observed_gram, dataset.place_blocks(engine, mask_weights))
    summary = dataset.summary
    observed = summary.column_counts > 0
    n_observed = int(observed.sum())
    with engine.compute_device.compute_context(len(observed)):
        active = engine.compute_device.from_numpy(observed.astype(np.float64))
        C = _unit_diagonal(_double_center(_unit_diagonal(A), active))
        return _shrink_chance_correlation(C, summary.n_observed_rows, n_observed)


def _double_center(A: Array, active: Array) -> Array:
    """``A`` minus the means of its rows and columns, over active ones."""
    xp = array_namespace(A)
    count = xp.sum(active)
    both = active[:, None] * active[None, :]
    A = A * both
    means = xp.sum(A, axis=0) / count
    return (A - means[:, None] - means[None, :] + xp.sum(means) / count) * both


def _unit_diagonal(A: Array) -> Array:
    """``A`` scaled to a diagonal of ones; columns without variance are uncorrelated."""
    xp = array_namespace(A)
    variances = xp.linalg.diagonal(A)
    varies = variances > MIN_VARIANCE
    ones, zeros = xp.ones_like(variances), 0.0 * xp.ones_like(variances)
    scales = xp.where(varies, 1.0 / xp.sqrt(xp.where(varies, variances, ones)), zeros)
    A = A * scales[:, None] * scales[None, :]
    constant = identity_like(A) * xp.where(varies, zeros, ones)[:, None]
    return symmetrize(A + constant)


def _shrink_chance_correlation(C: Array, m: int, n: int) -> Array:
    """Shrink correlations by their expected size if entries are missing at random.

    Independent patterns of ``m`` rows have correlations of about ``m ** -1/2``, and
    ``n`` centered ones of ``-1 / (n - 1)``; correlations no larger than that vanish.
    """
    xp = array_namespace(C)
    if n < 2:
        return C
    eye = identity_like(C)
    off = C - eye
    size = xp.sum(off * off) / (n * (n - 1.0))
    least = xp.asarray(1e-300, dtype=C.dtype, device=device(C))
    chance = 1.0 / m + 1.0 / (n - 1.0) ** 2
    share = xp.clip(1.0 - chance / xp.maximum(size, least), 0.0, 1.0)
    return eye + off * share


def feature_correlation(features: Array) -> Array:
    """Correlation of columns by their standardized features."""
    std = features.std(axis=0)
    Z = (features - features.mean(axis=0)) / np.where(std > 0.0, std, 1.0)
    return _unit_diagonal(Z @ Z.T)


@dataclass(frozen=True)
class ModelConfig:
    """The model of one side."""

    prior: Any = "co-observation"  # of the columns; see `prior_correlation`
    #: "none", "mean", "columns" or "two-way"; the last has column means, and row
    #: effects as part of the kernel.
    center: str = "two-way"
    noise: Any = "learn"  # or "per-column", or its standard deviation
    dtype: str = "float64"  # or "float32": precision of the work


class EMProblem:
    """A matrix, of values of about unit size, prepared for EM."""

    def __init__(self, dataset: Dataset, config: ModelConfig, engine: Engine) -> None:
        self.dataset, self.config, self.engine = dataset, config, engine
        summary = dataset.summary
        self.n = n = len(summary.column_counts)
        engine.compute_device.check_memory(n, np.dtype(config.dtype).itemsize)
        *self._moments, min_noise = self._estimate_effects()
        dataset.release()
        counts = summary.column_counts.astype(config.dtype)
        cast = partial(cast_values, dtype=config.dtype)
        self.rows = EMData(
            engine=engine,
            blocks=dataset.place_blocks(engine, cast),
            counts=engine.compute_device.from_numpy(counts),
            n_rows=summary.n_observed_rows,
            n_observed=summary.n_observed,
            needs_precision=summary.needs_precision(n) and config.noise != 0.0,
            min_noise=min_noise,
        )

    def _estimate_effects(self) -> tuple[Array, float, float, float]:
        """Column means, variances of row effects and residuals, and minimum noise."""
        dataset, center, n = self.dataset, self.config.center, self.n
        count = dataset.summary.n_observed
        overall = 0.0 if center == "none" else overall_mean(dataset)
        mean, ridge = np.full(n, overall), np.inf
        if center in ("columns", "two-way"):
            effects = fit_two_way_effects(dataset, Centering.at_means(mean))
            mean, ridge = overall + effects.column_effects, effects.row_ridge
        totals = dataset.total(square_sum, centering=Centering.at_means(mean))
        about_mean, squares = totals.sums
        residual = effects.sum_squares if center == "two-way" else about_mean
        total = max(squares / count, MIN_VARIANCE_RATIO)
        variance = max(residual / count, MIN_VARIANCE_RATIO * total)
        resolution = MIN_NOISE_ULPS * float(np.finfo(self.config.dtype).eps)
        min_noise = max(
            MIN_NOISE_RATIO * variance,
            MIN_NOISE_TO_SQUARES * float(about_mean) / count,
            resolution**2 * float(squares) / count,
        )
        row_variance = variance / ridge if center == "two-way" else 0.0
        return mean, row_variance, variance, min_noise

    @cached_property
    def prior_matrix(self) -> Array:
        """Prior correlation plus the part of the row effects."""
        _, row_variance, variance = self._moments
        psi = prior_correlation(self.dataset, self.config.prior, self.engine)
        device = self.engine.compute_device
        with device.compute_context(self.n):
            psi = psi + row_variance / (KERNEL_SHARE * variance)
        if self.config.dtype == "float64":
            return psi
        return device.from_numpy(device.to_numpy(psi).astype(self.config.dtype))

    def initial_params(self) -> GaussianParams:
        """Parameters from which EM starts."""
        mean, _, variance = self._moments
        given, dtype, n = self.config.noise, self.config.dtype, self.n
        level = NOISE_SHARE * variance if isinstance(given, str) else float(given) ** 2
        compute_device = self.engine.compute_device
        with compute_device.compute_context(n):
            K = self.prior_matrix * (KERNEL_SHARE * variance)
        noise = compute_device.from_numpy(np.full(n, level, dtype=dtype))
        mean = compute_device.from_numpy(mean.astype(dtype))
        return GaussianParams(K, noise, mean, level > 0.0)

    def make_prior(self, strength: float) -> Prior:
        """The prior, with ``strength`` times the longer side as its number of rows."""
        learned = self.config.noise if isinstance(self.config.noise, str) else None
        learn_mean = self.config.center in ("columns", "two-way")
        pseudo_rows = strength * max(self.rows.n_rows, self.n)
        return Prior(self.prior_matrix, pseudo_rows, learned, learn_mean)

    def run(
        self,
        strength: float,
        *,
        max_iter: int,
        tol: float,
        observers: list[Any],
        checkpoint: CheckpointFile | None = None,
    ) -> FitResult[EMState]:
        """Run EM; continue from the checkpoint if there is one."""

        def start(last: Iterate[EMState] | None) -> Iterator[Iterate[EMState]]:
            prior = self.make_prior(strength)
            if last is None:
                return em_iterates(self.rows, prior, EMState(self.initial_params()))
            return em_iterates(self.rows, prior, last.state, last.step)

        return drive(
            start,
            max_iter=max_iter,
            tol=tol,
            observers=observers,
            checkpoint=checkpoint,
            pack=self._pack,
            unpack=self._unpack,
        )

    def _pack(self, state: EMState) -> CheckpointContents:
        last, fetch = state.last_step, self.engine.compute_device.to_numpy
        header = {
            "noisy": last.params.noisy,
            "step_length": state.step_length,
            "evidence": last.evidence,
            "penalized": last.penalized,
            "jitter": last.jitter,
        }
        params = {"last": last.params, "next": state.params}
        if state.unrelaxed_params is not None:
            params["unrelaxed"] = state.unrelaxed_params
        arrays = {
            f"{name}/{part}": fetch(getattr(values, part))
            for name, values in params.items()
            for part in PARAM_NAMES
        }
        return header, arrays

    def _unpack(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> EMState:
        send, noisy = self.engine.compute_device.from_numpy, bool(header["noisy"])

        def load_params(name: str) -> GaussianParams:
            K, noise, mean = (
                send(np.ascontiguousarray(arrays[f"{name}/{part}"]))
                for part in PARAM_NAMES
            )
            return GaussianParams(K, noise, mean, noisy)

        for name, array in arrays.items():
            shape = (self.n, self.n) if name.endswith("/K") else (self.n,)
            check_array(name, array, shape, self.config.dtype)
            if name.endswith("/noise") and array.min() < 0.0:
                raise ValueError("the noise must not be negative")
        following = load_params("next")
        unrelaxed = load_params("unrelaxed") if "unrelaxed/K" in arrays else None
        last = EMStep(
            load_params("last"),
            unrelaxed or following,
            evidence=float(header["evidence"]),
            penalized=float(header["penalized"]),
            jitter=float(header["jitter"]),
            seconds={},
        )
        return EMState(following, unrelaxed, float(header["step_length"]), last)

    def model(self, params: GaussianParams, *, to_host: bool = True) -> KernelModel:
        """The fitted model with given parameters; its kernel may stay on the device."""
        compute_device, n = self.engine.compute_device, self.n
        with compute_device.compute_context(n):
            kernel, scales = kernel_in_noise_units(
                params, with_precision=self.rows.needs_precision
            )
        to_numpy = compute_device.to_numpy
        mean = to_numpy(params.mean).astype(np.float64)
        column_scales = np.ones(n)
        if scales is not None:
            column_scales = 1.0 / to_numpy(scales).astype(np.float64)
        return KernelModel(
            kernel=kernel.map_arrays(to_numpy) if to_host else kernel,
            centering=Centering(0.0, mean, None, column_scales),
            unit=1.0,
            sigma=1.0,
            empty_columns=np.zeros(n, dtype=bool),
            fallback=np.zeros(n),
            dtype=self.config.dtype,
        )


def model_covariance(model: KernelModel) -> Array:
    """The kernel of a model in the units of its values, as a NumPy array."""
    scales = model.centering.column_scales
    return model.kernel.K * scales[:, None] * scales[None, :]


def em_step_flops(summary: DataSummary) -> float:
    """Approximate flops of a step with the kernel on the columns."""
    histogram, n = summary.row_count_histogram, len(summary.column_counts)
    costs = group_costs(np.arange(n + 1), np.ones(n + 1), n)
    return 3.0 * float(histogram @ costs) + 6.0 * n**3


def cast_values(observed: Observations, dtype: str) -> Observations:
    """The entries in the precision of the row work."""
    return observed.with_values(observed.values.astype(dtype, copy=False))

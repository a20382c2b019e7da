"""The whole fit of `BayesianNCARL`: selection on held-out entries, then EM on all.

`BayesianFit` is the fit. Below it: `ValidationSplit` (held-out entries),
`StrengthSearch` (strength of the prior and number of steps), `MixtureSearch` (number of
components), `HeldOutPredictor` and `Blend` (weights of the sides and of the nearest
rows), `Stages` (the checkpoint).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ncarl.bayes.em import (
    EMProblem,
    EMState,
    GaussianParams,
    ModelConfig,
    cast_values,
    em_step_flops,
)
from ncarl.bayes.mixture import component_shrinkages
from ncarl.bayes.mixture_model import MixtureModel, fit_mixture_model
from ncarl.bayes.model import (
    N_NEIGHBORS_GRID,
    ConformalScores,
    NeighborCorrection,
    average_predictions,
    can_compare_rows,
    effective_sample_size,
    find_row_neighbors,
    fit_std_factors,
)
from ncarl.centering import root_mean_square
from ncarl.core.linalg import mean_diagonal
from ncarl.core.rows import Kernel, row_backend
from ncarl.core.types import Array, Block
from ncarl.dataset import Dataset, DataSummary, InMemoryDataset, Transform
from ncarl.engines.base import Engine
from ncarl.fitting.checkpoint import CheckpointFile, check_array
from ncarl.fitting.kernel_model import KernelModel
from ncarl.fitting.loop import History, Iterate
from ncarl.holdout import (
    count_splits,
    hash_split,
    hash_split_rows,
    missing_pattern_split,
)
from ncarl.observations import Observations
from ncarl.validation import check_integer

#: Of more entries, only those of a sample of rows are held out.
ROW_SAMPLING_THRESHOLD = 20_000_000
#: A source with fewer entries is read into memory.
MAX_ENTRIES_IN_MEMORY = 5_000_000

#: With sides="auto" the rows get a kernel only if a step of EM takes fewer flops: about
#: a quarter of a minute on two cores.
MAX_STEP_FLOPS = 5e11
#: Largest ratio of the flops of a step of the rows to a step of the columns, with
#: sides="auto": tall tables gain little by a kernel of the rows.
MAX_COST_RATIO = 100.0
#: With sides="auto", rows whose steps are expensive get no kernel if the correction by
#: nearest rows reduces the errors to this share or less.
SUFFICIENT_STD_FACTOR = 0.98
#: Steps if no entry can be held out: EM soon overfits such a small matrix.
UNVALIDATED_STEPS = 10

#: Strength of the prior: first trial, factor between trials, and bounds.
FIRST_STRENGTH, STRENGTH_FACTOR = 0.1, 3.0
MIN_STRENGTH, MAX_STRENGTH = 1e-3, 30.0
#: Minimum relative decrease of the error that counts as one.
MIN_ERROR_GAIN = 1e-3
#: Steps of more flops are expensive (some tenths of a second on two cores): no other
#: strength is tried if the first one overfits.
EXPENSIVE_STEP_FLOPS = 5e9
#: Expensive trials run in single precision, unless the noise of some column is below
#: this fraction of the kernel's mean diagonal, which needs more digits.
MIN_NOISE_FOR_FLOAT32 = 0.02
#: Steps without a new lowest error that end a run, and the tolerance of "new".
PATIENCE, IMPROVEMENT_RTOL = 4, 3e-4
#: Relative rise of the error that ends a run of expensive steps.
EARLY_STOP_RISE = 5e-3

#: Numbers of components that are tried, and the rows that each needs.
COMPONENTS_GRID, MIN_ROWS_EACH = (4, 8, 16), 8
#: Floating-point operations of an E-step of a mixture that is tried, at most.
MAX_MIXTURE_STEP_FLOPS = 2e10
#: A mixture must reduce the squared error of one component by so many standard errors.
N_STANDARD_ERRORS = 2.0

#: A side with a smaller weight is dropped.
MIN_WEIGHT = 0.02
#: The nearest rows are used if they reduce the squared error by this fraction, and by
#: so many times what is expected by chance.
MIN_NEIGHBOR_GAIN, CHANCE_FACTOR = 4e-3, 6.0

ArrayDict = dict[str, Any]
#: Makes the observers of a run from its label.
ObserverFactory = Callable[[str], AbstractContextManager[list[object]]]


@dataclass(frozen=True)
class FitConfig:
    """Checked parameters of a fit."""

    sides: str  # that carry a kernel: "auto", "columns", "rows" or "both"
    strength: float | None  # of the prior; None to choose it
    validation: float  # fraction of the entries that is held out
    seed: int  # of the held-out entries
    max_iter: int  # most steps of a run
    tol: float  # gain of evidence per entry that ends a run
    components: int | None = 1  # of the mixture of the columns; None to choose them


@dataclass(frozen=True)
class FittedSide:
    """The fit of one side."""

    model: KernelModel | MixtureModel
    strength: float
    evidence: float
    history: dict[str, list[float]]
    steps: int
    converged: bool
    interrupted: bool


@dataclass(frozen=True)
class BayesianFitResult:
    """The result of `BayesianFit.run`."""

    trials: list[dict[str, Any]]  # on held-out entries
    columns: FittedSide | None
    rows: FittedSide | None  # with a `KernelModel`
    blend: Blend


def is_read_into_memory(summary: DataSummary) -> bool:
    """Whether a source with this summary is small enough to be read into memory."""
    return summary.n_observed <= min(MAX_ENTRIES_IN_MEMORY, ROW_SAMPLING_THRESHOLD)


def select_sides(sides: str, dataset: Dataset) -> tuple[bool, bool]:
    """Whether the columns, and whether the rows carry a kernel.

    The rows can only if all of them are in memory.
    """
    if sides != "auto":
        return sides in ("columns", "both"), sides in ("rows", "both")
    if not isinstance(dataset, InMemoryDataset):
        return True, False
    columns = em_step_flops(dataset.summary)
    rows = em_step_flops(_transpose(dataset).summary)
    if columns > MAX_STEP_FLOPS and rows < columns:
        return columns <= 4.0 * MAX_STEP_FLOPS, True
    return True, rows <= min(MAX_STEP_FLOPS, MAX_COST_RATIO * columns)


def _transpose(dataset: Dataset) -> InMemoryDataset:
    assert isinstance(dataset, InMemoryDataset)
    return InMemoryDataset(dataset.observed.transpose())


@dataclass
class BayesianFit:
    """The fit of one matrix."""

    raw: Dataset  # values as they were given
    transform: Transform  # to values of about unit size
    config: FitConfig
    model_configs: Mapping[str, ModelConfig]  # the model of each side, by its name
    engine: Engine
    make_observers: ObserverFactory
    checkpoint: CheckpointFile | None  # the file that keeps the state

    def __post_init__(self) -> None:
        self.dataset = self.raw.map_values(self.transform)
        self.stages = Stages(self.checkpoint)
        # Whether parts that do not lower the held-out error are dropped.
        self.is_auto = self.config.sides == "auto"

    def run(self) -> BayesianFitResult:
        """Choose on held-out entries, then fit to all of them."""
        columns, rows = select_sides(self.config.sides, self.dataset)
        columns |= self.config.components not in (1, None)
        sides = [name for name, on in (("columns", columns), ("rows", rows)) if on]
        splits = []
        if self.config.validation > 0.0:
            fraction, seed = self.config.validation, self.config.seed
            splits = make_validation_splits(self.raw, self.transform, fraction, seed)
        best: dict[str, StrengthTrial] = {}
        errors_by_side: dict[str, list[HeldOutErrors]] = {}
        trials: list[dict[str, Any]] = []
        mixture: MixtureSearch | None = None
        for name in sides if splits else ():
            if name == "rows" and self._can_skip_rows(errors_by_side, splits):
                continue
            # One search at a time, as each has its own copy of the data.
            search = self._make_search(name, splits)
            best[name] = search.select(self.config.strength)
            errors_by_side[name] = search.held_out_errors(best[name])
            trials += [{"side": name, **asdict(trial)} for trial in search.trials]
            if name == "columns" and self.config.components != 1:
                mixture = self._search_mixture(search, best[name])
                about = {"side": name, **asdict(best[name])}
                trials += [{**about, **trial} for trial in mixture.trials]
        if splits:
            sides = list(best)
        blend = self._fit_blend(errors_by_side, splits, sides)
        choice = self._default_mixture() if mixture is None else mixture.choice
        if mixture is not None and choice is not None:
            errors_by_side["columns"] = mixture.held_out_errors(choice)
            mixed = self._fit_blend(errors_by_side, splits, sides)
            # The nearest rows may have corrected what a mixture would.
            enough = mixed.error**2 < blend.error**2 * (1.0 - MIN_ERROR_GAIN)
            if self.config.components is None and not enough:
                choice = None
            else:
                blend = mixed
        if self.is_auto and blend.weight == 1.0:
            sides = ["columns"]
        fitted: dict[str, FittedSide] = {}
        for name in sides:
            fitted[name] = self._fit_side(name, best.get(name))
            if fitted[name].interrupted:
                break
            if name == "columns" and choice is not None:
                fitted[name] = self._fit_mixture(fitted[name], choice)
        if "rows" not in fitted:
            blend = replace(blend, weight=1.0)
        both = fitted.get("columns"), fitted.get("rows")
        return BayesianFitResult(trials, *both, blend)

    def _fit_blend(
        self,
        errors_by_side: Mapping[str, list[HeldOutErrors]],
        splits: list[ValidationSplit],
        sides: list[str],
    ) -> Blend:
        used = [splits[k] for k in calibration_splits(splits)]
        held_out = {}
        for name, parts in errors_by_side.items():
            if name == "rows":
                parts = [
                    part.reorder_from_transpose(split)
                    for part, split in zip(parts, used, strict=True)
                ]
            held_out[name] = concatenate_errors(parts)
        return fit_blend(held_out, used, sides, may_drop_rows=self.is_auto)

    def _can_skip_rows(
        self,
        errors_by_side: Mapping[str, list[HeldOutErrors]],
        splits: list[ValidationSplit],
    ) -> bool:
        if not self.is_auto or not errors_by_side:
            return False
        if em_step_flops(_transpose(self.dataset).summary) < EXPENSIVE_STEP_FLOPS:
            return False
        blend = self._fit_blend(errors_by_side, splits, ["columns"])
        correction = blend.neighbor_correction
        return correction is not None and correction.std_factor < SUFFICIENT_STD_FACTOR

    def _make_search(self, name: str, splits: list[ValidationSplit]) -> StrengthSearch:
        columns, data = name == "columns", self.dataset
        oriented = splits if columns else [split.transpose() for split in splits]
        grid: tuple[int, ...] = ()
        may_correct = self.is_auto and self.config.components in (1, None)
        if may_correct and columns and isinstance(data, InMemoryDataset):
            grid = N_NEIGHBORS_GRID if can_compare_rows(data.observed) else ()
        return StrengthSearch(
            name,
            oriented,
            self.model_configs[name],
            self.engine,
            max_iter=self.config.max_iter,
            tol=self.config.tol,
            stages=self.stages,
            make_observers=self.make_observers,
            n_neighbors_grid=grid,
        )

    def _search_mixture(
        self, search: StrengthSearch, trial: StrengthTrial
    ) -> MixtureSearch:
        given = self.config.components
        counts = [given] if given else self._component_counts()
        n = len(self.dataset.summary.column_counts)
        mixture = MixtureSearch(
            counts, component_shrinkages(n), search, self.config.seed
        )
        if counts:
            mixture.select(trial, must=given is not None)
        return mixture

    def _component_counts(self) -> list[int]:
        """Numbers of components that are affordable."""
        summary = self.dataset.summary
        if not isinstance(self.dataset, InMemoryDataset):
            return []
        flops = MAX_MIXTURE_STEP_FLOPS / em_step_flops(summary)
        most = min(summary.n_observed_rows / MIN_ROWS_EACH, flops)
        return [count for count in COMPONENTS_GRID if count <= most]

    def _default_mixture(self) -> ComponentChoice | None:
        """The mixture if nothing is held out."""
        count = self.config.components
        if count is None or count == 1:
            return None
        n = len(self.dataset.summary.column_counts)
        return ComponentChoice(count, component_shrinkages(n)[0])

    def _fit_mixture(self, side: FittedSide, choice: ComponentChoice) -> FittedSide:
        single, data = side.model, self.dataset
        assert isinstance(single, KernelModel) and isinstance(data, InMemoryDataset)
        model = choice.fit(single, data.observed, self.engine, self.config.seed)
        logs = model.log_likelihoods(data.observed, self.engine)
        evidence = float(logsumexp(logs, axis=1).sum())
        return replace(side, model=model, evidence=evidence)

    def _fit_side(self, name: str, trial: StrengthTrial | None) -> FittedSide:
        data = self.dataset if name == "columns" else _transpose(self.dataset)
        problem = EMProblem(data, self.model_configs[name], self.engine)
        given, steps = self.config.strength, self.config.max_iter
        strength = FIRST_STRENGTH if given is None else given
        unvalidated = trial is None and self.config.validation > 0.0
        if unvalidated:
            steps = min(steps, UNVALIDATED_STEPS)
        if trial is not None:
            strength, steps = trial.strength, trial.steps
        file = self.checkpoint
        with self.make_observers(name) as observers:
            result = problem.run(
                strength,
                max_iter=steps,
                tol=self.config.tol,
                observers=observers,
                checkpoint=file and file.for_part(name, "checkpoint"),
            )
        converged = result.converged or result.last.step < steps
        return FittedSide(
            model=problem.model(result.last.state.last_step.params),
            strength=strength,
            evidence=result.last.state.last_step.evidence,
            history=result.history,
            steps=result.last.step,
            converged=trial.converged if trial else converged or unvalidated,
            interrupted=result.interrupted,
        )


def make_model_configs(
    *, prior: Any, center: str, noise: Any, dtype: str
) -> dict[str, ModelConfig]:
    """The model of each side; a given prior of the columns does not hold for rows."""
    columns = ModelConfig(prior, center, noise, dtype)
    rows_prior = prior if isinstance(prior, str) else "co-observation"
    rows_center = "two-way" if center == "columns" else center
    rows = replace(columns, prior=rows_prior, center=rows_center)
    return {"columns": columns, "rows": rows}


@dataclass(frozen=True)
class ValidationSplit:
    """Training entries and held-out entries."""

    train: Dataset  # entries to learn from
    test_inputs: Observations  # training entries of the rows with held-out entries
    hidden: Observations  # held-out entries, in the same rows

    @classmethod
    def from_observations(
        cls, train: Observations, hidden: Observations
    ) -> ValidationSplit:
        """A split of a matrix in memory."""
        return cls(InMemoryDataset(train), train, hidden)

    def transpose(self) -> ValidationSplit:
        """The split of the transposed matrix; held-out entries are reordered."""
        return ValidationSplit.from_observations(
            self.test_inputs.transpose(), self.hidden.transpose()
        )


def make_validation_splits(
    raw: Dataset, transform: Transform, fraction: float, seed: int
) -> list[ValidationSplit]:
    """Splits of the entries; empty if none can be held out.

    A small matrix is split several times for selection, and again as often for the
    blend and the calibration. With many entries one split serves for both.
    """
    is_large = raw.summary.n_observed > ROW_SAMPLING_THRESHOLD
    if is_large or not isinstance(raw, InMemoryDataset):
        return _split_sampled_rows(raw, transform, fraction, seed)
    rng = np.random.default_rng(seed)
    first = missing_pattern_split(raw.observed, fraction, rng)
    if 0 in (part.n_observed for part in first):
        return []
    count = count_splits(first[1].n_observed)
    n_more = 0 if count == 1 else 2 * count - 1
    more = (missing_pattern_split(raw.observed, fraction, rng) for _ in range(n_more))
    return [
        ValidationSplit.from_observations(transform(kept), transform(hidden))
        for kept, hidden in (first, *more)
    ]


def _split_sampled_rows(
    raw: Dataset, transform: Transform, fraction: float, seed: int
) -> list[ValidationSplit]:
    split = hash_split(raw, fraction, seed)
    rows = raw.total(hash_split_rows, split=split, transform=transform)
    test_inputs, hidden = map(Observations.vstack, rows.sums)
    if hidden.n_observed == 0:
        return []
    train = raw.filter_entries(split).map_values(transform)
    return [ValidationSplit(train, test_inputs, hidden)]


def count_selection_splits(splits: list[ValidationSplit]) -> int:
    """Number of splits that are used for selection: the first ones."""
    return max(1, len(splits) // 2)


def calibration_splits(splits: list[ValidationSplit]) -> range:
    """Positions of the splits that are used for weights and intervals."""
    return range(count_selection_splits(splits) if len(splits) > 1 else 0, len(splits))


@dataclass
class _ValidationRun:
    """Observes a run: the squared error on the held-out entries after every step."""

    predictor: HeldOutPredictor
    stop_on_rise: bool = False
    curve: list[float] = field(default_factory=list)
    best_params: GaussianParams | None = None

    def __call__(self, iterate: Iterate[EMState], history: History) -> bool:
        """Record the error after a step; True ends the run."""
        step, predictor = iterate.state.last_step, self.predictor
        columns, engine = predictor.columns, predictor.problem.engine
        guess = np.empty(len(columns))
        predictions = engine.map(
            predict_centered_entries,
            predictor.blocks,
            kernel=step.kernel,
            offsets=step.params.mean,
            scales=step.scales,
            columns=columns,
            bounds=predictor.bounds,
        )
        for places, sums in predictions:
            guess[places] = sums
        if step.scales is not None:
            guess /= engine.compute_device.to_numpy(step.scales)[columns]
        guess += engine.compute_device.to_numpy(step.params.mean)[columns]
        errors = predictor.hidden.values - guess
        self.curve.append(float(errors @ errors))
        if self.best_step == len(self.curve):
            self.best_params = step.params
        least = self.curve[self.best_step - 1]
        if self.stop_on_rise and self.curve[-1] > least * (1.0 + 2 * EARLY_STOP_RISE):
            return True
        bound = least * (1.0 + 2 * IMPROVEMENT_RTOL)
        reached = next(k for k, error in enumerate(self.curve, 1) if error <= bound)
        return len(self.curve) - reached >= PATIENCE

    @property
    def float32_suffices(self) -> bool:
        """Whether the noise of the best step is large enough for single precision."""
        assert self.best_params is not None
        noise, K = self.best_params.noise, self.best_params.K
        return float(noise.min()) >= MIN_NOISE_FOR_FLOAT32 * mean_diagonal(K)

    @property
    def best_step(self) -> int:
        """The step with the lowest error."""
        return int(np.argmin(self.curve)) + 1


@dataclass(frozen=True)
class StrengthTrial:
    """The result of a trial with one strength of the prior."""

    strength: float
    error: float  # root mean square error on the held-out entries of all splits
    steps: int  # step with the lowest error
    overfit: bool  # whether the error increased after that
    converged: bool  # whether the runs ended before their last allowed step


@dataclass
class StrengthSearch:
    """Search for the strength of the prior and the number of steps of one side."""

    name: str  # the side, "columns" or "rows"
    splits: list[ValidationSplit]  # in the orientation of the side
    config: ModelConfig
    engine: Engine
    max_iter: int  # most steps of a run
    tol: float  # gain that ends a run
    stages: Stages  # results of finished stages
    make_observers: ObserverFactory
    #: Numbers of nearest rows whose mean errors are computed at held-out entries.
    n_neighbors_grid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # The rows usually get the smaller weight and are expensive: one split.
        used = count_selection_splits(self.splits) if self.name == "columns" else 1
        self.n_selection_splits = used
        step_flops = em_step_flops(self.splits[0].train.summary)
        self.expensive = step_flops > EXPENSIVE_STEP_FLOPS
        self.use_float32 = self.expensive and _float32_allowed(self.config, self.engine)
        self.predictors: dict[int, HeldOutPredictor] = {}
        self.runs: list[_ValidationRun] = []
        self.trials: list[StrengthTrial] = []
        self.fits: dict[tuple[StrengthTrial, int], GaussianParams] = {}

    def select(self, strength: float | None) -> StrengthTrial:
        """The best trial; a given strength is the only one that is tried."""
        best = self.evaluate_strength(FIRST_STRENGTH if strength is None else strength)
        if strength is not None or (best.overfit and self.expensive):
            return best
        for factor in (1.0 / STRENGTH_FACTOR, STRENGTH_FACTOR):
            improved = False
            while MIN_STRENGTH <= best.strength * factor <= MAX_STRENGTH:
                trial = self.evaluate_strength(best.strength * factor)
                if trial.error >= best.error * (1.0 - MIN_ERROR_GAIN):
                    break
                best, improved = trial, True
            if improved:
                break
        return best

    def evaluate_strength(self, strength: float) -> StrengthTrial:
        """Run the splits for selection with one strength."""
        label = f"{self.name} {strength:.3g}"
        arrays = self.stages.results.get(f"trial {label}")
        while arrays is None:
            converged = True
            self.runs = [self._make_run(k) for k in range(self.n_selection_splits)]
            for run in self.runs:
                with self.make_observers(label) as others:
                    result = run.predictor.problem.run(
                        strength,
                        max_iter=self.max_iter,
                        tol=self.tol,
                        observers=[run, *others],
                    )
                if result.interrupted:
                    raise KeyboardInterrupt
                converged &= result.converged or result.last.step < self.max_iter
            if self.use_float32 and not all(run.float32_suffices for run in self.runs):
                self.use_float32 = False  # once more in double precision
                self.predictors.clear()
                continue
            arrays = self.stages.put(f"trial {label}", self._summarize_runs(converged))
        with self.stages.corrupt_on_error():
            self.use_float32 = bool(arrays["use_float32"])
            steps = int(arrays["steps"])
            trial = StrengthTrial(
                strength,
                error=float(arrays["error"]),
                steps=check_integer("steps", steps, low=1, high=self.max_iter),
                overfit=bool(arrays["overfit"]),
                converged=bool(arrays["converged"]),
            )
        self.trials.append(trial)
        return trial

    def _summarize_runs(self, converged: bool) -> ArrayDict:
        curves = [run.curve for run in self.runs]
        length = max(map(len, curves))
        padded = [np.pad(c, (0, length - len(c)), "edge") for c in curves]
        hidden = sum(run.predictor.hidden.n_observed for run in self.runs)
        curve = np.sqrt(np.sum(padded, axis=0) / hidden)
        steps = int(np.argmin(curve)) + 1
        error = curve[steps - 1]
        return {
            "error": error,
            "steps": steps,
            "overfit": curve[-1] > error * (1.0 + MIN_ERROR_GAIN),
            "converged": converged | (steps < length),  # passed its lowest error
            "use_float32": self.use_float32,
        }

    def _make_run(self, k: int) -> _ValidationRun:
        if k not in self.predictors:
            dtype = "float32" if self.use_float32 else self.config.dtype
            config = replace(self.config, dtype=dtype)
            problem = EMProblem(self.splits[k].train, config, self.engine)
            self.predictors[k] = HeldOutPredictor(problem, self.splits[k])
        return _ValidationRun(self.predictors[k], stop_on_rise=self.expensive)

    def held_out_errors(self, trial: StrengthTrial) -> list[HeldOutErrors]:
        """Errors of the side on the held-out entries of each calibration split."""
        stage = f"held out {self.name}"
        arrays = self.stages.results.get(stage)
        if arrays is None:
            arrays = self.stages.put(stage, self._compute_held_out_errors(trial))
        with self.stages.corrupt_on_error():
            for k in calibration_splits(self.splits):
                shape = (self.splits[k].hidden.n_observed,)
                for name in [name for name in arrays if name.endswith(f" {k}")]:
                    check_array(name, arrays[name], shape, "float64")
            return [
                HeldOutErrors(
                    arrays[f"errors {k}"],
                    arrays[f"stds {k}"],
                    {
                        count: arrays[f"neighbor errors {count} {k}"]
                        for count in self.n_neighbors_grid
                        if f"neighbor errors {count} {k}" in arrays
                    },
                )
                for k in calibration_splits(self.splits)
            ]

    def _compute_held_out_errors(self, trial: StrengthTrial) -> ArrayDict:
        arrays: ArrayDict = {}
        for k in calibration_splits(self.splits):
            predictor, params = self._fitted(trial, k)
            errors, stds = predictor.errors_and_stds(params)
            arrays |= {f"errors {k}": errors, f"stds {k}": stds}
            if not self.n_neighbors_grid:
                continue
            model = predictor.problem.model(params, to_host=False)
            neighbors = find_row_neighbors(
                model, predictor.test_inputs, self.engine, max(self.n_neighbors_grid)
            )
            if neighbors is None:  # a model without noise
                continue
            for count in self.n_neighbors_grid:
                arrays[f"neighbor errors {count} {k}"] = neighbors.mean_errors_at(
                    predictor.hidden.rows, predictor.columns, count
                )
        return arrays

    def _fitted(
        self, trial: StrengthTrial, k: int
    ) -> tuple[HeldOutPredictor, GaussianParams]:
        """The predictor of a split, and the parameters of a trial there."""
        last_runs = self.runs if self.trials[-1] == trial else []
        run = last_runs[k] if k < len(last_runs) else self._make_run(k)
        reusable = run.curve and run.best_step == trial.steps
        params = run.best_params if reusable else self.fits.get((trial, k))
        predictor = run.predictor
        if params is None:
            with self.make_observers(f"{self.name} again") as observers:
                result = predictor.problem.run(
                    trial.strength,
                    max_iter=trial.steps,
                    tol=self.tol,
                    observers=observers,
                )
            if result.interrupted:
                raise KeyboardInterrupt
            params = result.last.state.last_step.params
        self.fits[trial, k] = params
        return predictor, params

    def model(self, trial: StrengthTrial, k: int) -> KernelModel:
        """The model of a trial, fitted to the training entries of a split."""
        predictor, params = self._fitted(trial, k)
        return predictor.problem.model(params)


@dataclass(frozen=True)
class ComponentChoice:
    """A number of components, and their shrinkage."""

    components: int
    shrinkage_rows: float

    def fit(
        self, single: KernelModel, observed: Observations, engine: Engine, seed: int
    ) -> MixtureModel:
        """Fit the mixture around the single normal distribution of a fit."""
        return fit_mixture_model(
            single, observed, self.components, self.shrinkage_rows, engine, seed
        )


@dataclass
class MixtureSearch:
    """Search for a mixture of the rows in place of one normal distribution."""

    counts: list[int]  # numbers of components to try, increasing
    shrinkages: tuple[float, ...]
    side: StrengthSearch  # the columns, with one normal distribution
    seed: int

    def __post_init__(self) -> None:
        self.choice: ComponentChoice | None = None  # None for one normal distribution
        self.trials: list[dict[str, Any]] = []
        self.singles: list[KernelModel] = []  # by split
        self.known: dict[tuple[ComponentChoice | None, int], HeldOutErrors] = {}

    def select(self, trial: StrengthTrial, *, must: bool) -> None:
        """Set ``choice``, to a mixture in any case if there ``must`` be one."""
        splits = self.side.splits
        self.singles = [self.side.model(trial, k) for k in range(len(splits))]
        used = range(count_selection_splits(splits))
        hidden = [splits[k].hidden for k in used]
        rows = np.concatenate([part.rows for part in hidden])
        places = rows, np.concatenate([part.indices for part in hidden])
        least = np.concatenate([self._errors(None, k).errors for k in used])
        for count in self.counts:
            improved = False
            for shrinkage_rows in self.shrinkages:
                choice = ComponentChoice(count, shrinkage_rows)
                errors = np.concatenate([self._errors(choice, k).errors for k in used])
                error = root_mean_square(errors)
                self.trials.append({**asdict(choice), "error": error})
                # Chance must not make a mixture of one; its size matters less.
                first = self.choice is None
                n_errors = N_STANDARD_ERRORS if first else 0.0
                if (must and first) or is_improvement(errors, least, places, n_errors):
                    self.choice, least, improved = choice, errors, True
            if not improved:
                break

    def held_out_errors(self, choice: ComponentChoice) -> list[HeldOutErrors]:
        """Errors on the held-out entries of each calibration split."""
        splits = self.side.splits
        return [self._errors(choice, k) for k in calibration_splits(splits)]

    def _errors(self, choice: ComponentChoice | None, k: int) -> HeldOutErrors:
        if (choice, k) not in self.known:
            split, engine = self.side.splits[k], self.side.engine
            model: KernelModel | MixtureModel = self.singles[k]
            if choice is not None:
                assert isinstance(model, KernelModel)
                assert isinstance(split.train, InMemoryDataset)
                model = choice.fit(model, split.train.observed, engine, self.seed)
            i, j = split.hidden.rows, split.hidden.indices.astype(np.int64)
            x, std = model.predict(split.test_inputs, i, j, engine, std="observed")
            assert std is not None
            self.known[choice, k] = HeldOutErrors(split.hidden.values - x, std)
        return self.known[choice, k]


def is_improvement(
    errors: Array, before: Array, positions: tuple[Array, Array], n_errors: float
) -> bool:
    """Whether squared errors decrease, by ``n_errors`` standard errors at least."""
    gains = before**2 - errors**2
    gain = float(gains.mean())
    size = effective_sample_size(gains - gain, *positions)
    chance = n_errors * float(gains.std()) / np.sqrt(size)
    return bool(gain > max(chance, MIN_ERROR_GAIN * float(np.mean(before**2))))


def _float32_allowed(config: ModelConfig, engine: Engine) -> bool:
    # A given prior may be nearly singular; a GPU is as fast in double precision.
    unfit = not isinstance(config.prior, str) or engine.compute_device.is_async
    return config.dtype == "float64" and config.noise != 0.0 and not unfit


class HeldOutPredictor:
    """Predicts the held-out entries of a split after every step of EM."""

    def __init__(self, problem: EMProblem, split: ValidationSplit) -> None:
        self.problem, self.hidden = problem, split.hidden
        self.test_inputs = cast_values(split.test_inputs, problem.config.dtype)
        distinct, position = np.unique(self.hidden.rows, return_inverse=True)
        self.columns = self.hidden.indices.astype(np.int64)
        # Entries of a matrix are in the order of its rows.
        self.bounds = np.searchsorted(position, np.arange(len(distinct) + 1))
        self.blocks = problem.engine.place(self.test_inputs.take_rows(distinct))

    def errors_and_stds(self, params: GaussianParams) -> tuple[Array, Array]:
        """Errors and standard deviations of predictions; these are 0 without noise."""
        i, engine = self.hidden.rows, self.problem.engine
        model = self.problem.model(params, to_host=False)
        kind = "observed" if params.noisy else None
        guess, std = model.predict(self.test_inputs, i, self.columns, engine, std=kind)
        return self.hidden.values - guess, np.zeros(len(i)) if std is None else std


def predict_centered_entries(
    block: Block, *, kernel: Kernel, offsets: Array, scales: Array | None,
    columns: Array, bounds: Array, backend: str = "auto",
) -> tuple[Array, Array]:  # fmt: skip
    """Positions in ``columns`` of the rows of a block, and ``y_i K_oj`` there."""
    block = row_backend(backend).shift_and_scale(block, offsets, scales)
    places, sums, _ = kernel.predict(
        block, columns, bounds, variances=False, backend=backend
    )
    return places, sums


@dataclass(frozen=True)
class HeldOutErrors:
    """Errors of the predictions of one side on held-out entries."""

    errors: Array
    deviations: Array  # predicted standard deviations
    #: Mean errors of the nearest rows at the entries, by the number of rows.
    neighbor_errors: Mapping[int, Array] = field(default_factory=dict)

    def reorder_from_transpose(self, split: ValidationSplit) -> HeldOutErrors:
        """Entries of the transposed split in the order of ``split``."""
        positions = np.arange(split.hidden.n_observed)
        transposed = split.hidden.with_values(positions).transpose().values
        order = np.argsort(transposed)
        return HeldOutErrors(self.errors[order], self.deviations[order])


@dataclass(frozen=True)
class Blend:
    """How the sides and the nearest rows are combined, and the held-out errors."""

    weight: float  # of the columns
    neighbor_correction: NeighborCorrection | None
    error: float  # root mean square error of the blend; NaN if nothing was held out
    side_errors: Mapping[str, float]  # of each side alone, on the same entries
    scores: ConformalScores  # of the column side, or the only one
    blended_scores: ConformalScores
    std_factors: Array | None  # of the column side, or the only one, by column
    blended_std_factors: Array | None


def concatenate_errors(parts: list[HeldOutErrors]) -> HeldOutErrors:
    """The held-out errors of all splits, one after the other."""
    neighbor_errors = {
        count: np.concatenate([part.neighbor_errors[count] for part in parts])
        for count in parts[0].neighbor_errors
    }
    return HeldOutErrors(
        np.concatenate([part.errors for part in parts]),
        np.concatenate([part.deviations for part in parts]),
        neighbor_errors,
    )


def fit_blend(
    errors_by_side: Mapping[str, HeldOutErrors],
    splits: list[ValidationSplit],
    sides: list[str],
    *,
    may_drop_rows: bool,
) -> Blend:
    """Weights of the sides and of the nearest rows that minimize the squared error.

    ``may_drop_rows`` allows a small weight of the rows to be rounded to 0.
    """
    weight = column_weight(errors_by_side, sides)
    if may_drop_rows and weight > 1.0 - MIN_WEIGHT:
        weight = 1.0
    if not errors_by_side:
        none = ConformalScores(np.empty(0), 0.0)
        return Blend(weight, None, float("nan"), {}, none, none, None, None)
    rows = np.concatenate([split.hidden.rows for split in splits])
    columns = np.concatenate([split.hidden.indices for split in splits])
    n_hidden = [split.hidden.n_observed for split in splits]
    places = rows, columns, np.repeat(np.arange(len(splits)), n_hidden)
    n = splits[0].hidden.shape[1]
    single = errors_by_side["columns" if "columns" in errors_by_side else "rows"]
    whole = single
    if len(errors_by_side) > 1 and weight < 1.0:
        whole = blend_errors(errors_by_side, weight)
    correction = select_neighbor_correction(
        whole.errors, single.neighbor_errors, (rows, columns)
    )
    if correction is not None:
        # What is added to a prediction is subtracted from its error.
        mean_errors = single.neighbor_errors[correction.n_neighbors]
        errors, stds = correction.correct(-mean_errors, whole.errors, whole.deviations)
        assert stds is not None
        whole = HeldOutErrors(errors, stds)
    by_side = {
        name: root_mean_square(side.errors) for name, side in errors_by_side.items()
    }
    error = root_mean_square(whole.errors)
    factors = fit_std_factors(single.errors, single.deviations, *places, n)
    scores = _calibrated_scores(single, factors, rows, columns)
    blended, blended_factors = scores, factors
    if whole is not single:
        blended_factors = fit_std_factors(whole.errors, whole.deviations, *places, n)
        blended = _calibrated_scores(whole, blended_factors, rows, columns)
    return Blend(
        weight, correction, error, by_side, scores, blended, factors, blended_factors
    )


def _calibrated_scores(
    held_out: HeldOutErrors, factors: Array | None, rows: Array, columns: Array
) -> ConformalScores:
    deviations = held_out.deviations
    if factors is not None:
        deviations = deviations * factors[columns]
    return ConformalScores.from_errors(held_out.errors, deviations, rows, columns)


def column_weight(
    errors_by_side: Mapping[str, HeldOutErrors], sides: list[str]
) -> float:
    """Weight of the columns that minimizes the squared error of the blend."""
    if len(sides) == 1:
        return 1.0 if sides == ["columns"] else 0.0
    if not errors_by_side:
        return 0.5
    row_errors = errors_by_side["rows"].errors
    difference = errors_by_side["columns"].errors - row_errors
    square = float(difference @ difference)
    best = -float(difference @ row_errors) / square if square > 0.0 else 1.0
    return min(1.0, max(0.0, best))


def blend_errors(
    errors_by_side: Mapping[str, HeldOutErrors], weight: float
) -> HeldOutErrors:
    """Errors of predictions averaged with the ``weight`` of the columns."""
    columns, rows = errors_by_side["columns"], errors_by_side["rows"]
    weighted = ((weight, columns), (1.0 - weight, rows))
    errors, stds = average_predictions(
        [(share, side.errors, side.deviations) for share, side in weighted]
    )
    assert stds is not None
    return HeldOutErrors(errors, stds)


def select_neighbor_correction(
    errors: Array, neighbor_errors: Mapping[int, Array], positions: tuple[Array, Array]
) -> NeighborCorrection | None:
    """The correction that reduces the errors most; None if it does so by too little."""
    before = float(errors @ errors)
    least, best = before, None
    for count, mean_errors in neighbor_errors.items():
        square = float(mean_errors @ mean_errors)
        weight = float(mean_errors @ errors) / square if square > 0.0 else 0.0
        weight = min(1.0, max(0.0, weight))
        corrected = errors - weight * mean_errors
        after = float(corrected @ corrected)
        if after < least:
            least = after
            best = NeighborCorrection(count, weight, float(np.sqrt(after / before)))
    chance = CHANCE_FACTOR / effective_sample_size(errors, *positions)
    enough = before - least > before * max(MIN_NEIGHBOR_GAIN, chance)
    return best if enough else None


class Stages:
    """Results of the finished stages of a fit, kept in a file if there is one."""

    def __init__(self, file: CheckpointFile | None) -> None:
        self.file = file
        self.results: dict[str, ArrayDict] = {}  # by stage
        if file is not None and (kept := file.load()) is not None:
            with file.corrupt_on_error():
                for name, array in kept[1].items():
                    stage, _, part = name.rpartition(":")
                    self.results.setdefault(stage, {})[part] = array
                file.position = f"the stage {list(self.results)[-1]!r}"

    def corrupt_on_error(self) -> AbstractContextManager[None]:
        """Turn errors about results into a `BrokenFileError` if there is a file."""
        return nullcontext() if self.file is None else self.file.corrupt_on_error()

    def put(self, stage: str, values: ArrayDict) -> ArrayDict:
        """Keep the result of a stage."""
        self.results[stage] = {name: np.asarray(v) for name, v in values.items()}
        if self.file is not None:
            arrays = {
                f"{stage}:{name}": array
                for stage, result in self.results.items()
                for name, array in result.items()
            }
            self.file.save(f"the stage {stage!r}", {}, arrays)
        return self.results[stage]

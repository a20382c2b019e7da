"""`TableModel`: mixtures of normals, then trees on their completed rows, for a table.

`fit_table_model` fits mixtures to all rows, completes each row without each of its
observed cells, trains trees to predict these cells, and weighs their predictions by the
errors for rows that they were not trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from ncarl.bayes.mixture import GaussianMixture, fit_mixture, initial_mixture
from ncarl.bayes.model import ConformalScores
from ncarl.core.types import Array
from ncarl.engines.threads import Threads
from ncarl.observations import Observations
from ncarl.tables.conditionals import (
    CHUNK_ROWS,
    RowConditionals,
    Target,
    category_order,
    condition_rows,
    draw_rows,
    mean_of_members,
)
from ncarl.tables.encoding import ColumnSchema, NumberEncoder, encode_table
from ncarl.tables.frames import ColumnData
from ncarl.tables.predictors import (
    CrossFittedTrees,
    FourierRidge,
    ProbabilityBlend,
    cross_fit,
    fit_fourier_ridge,
    fit_probability_blend,
    fit_weights,
)
from ncarl.tables.selection import Effort, MixtureChoice, sample_rows

#: Rows that mixtures and trees are fitted to at most; of more, a sample.
MAX_ROWS = 10_000
#: Numbers in the completed rows that trees are trained on.
MAX_FEATURES = 50_000_000
#: Columns with fewer observed cells have no predictors but the mixture.
MIN_TRAINING_ROWS = 30
#: Steps of EM, and its tolerance.
MAX_ITER, TOL = 25, 2e-4
#: Part of the mean variance that is added to the variance of every cell.
VARIANCE_FLOOR = 0.1


@dataclass(frozen=True)
class Predictor:
    """A regression of the numbers of a column on completed rows."""

    model: CrossFittedTrees | FourierRidge | None  # None predicts what the mixture does
    corrects: bool  # whether it predicts the error of the mixture

    def predict(self, base: Array, features: Array) -> Array:
        """Predicted numbers from those of the mixture and completed rows."""
        found = 0.0 if self.model is None else self.model.predict(features)
        return np.asarray(base + found if self.corrects else found)


@dataclass(frozen=True)
class NumberStage:
    """How the cells of a column of numbers are predicted, in standard deviations."""

    #: Weights of the mean of the column, which is 0, and of the predictors.
    weights: Array
    predictors: tuple[Predictor, ...]
    #: Factor of the standard deviations of the mixtures, and their mean square.
    std_factor: float
    mean_variance: float
    scores: ConformalScores

    def predict(self, base: Array, features: Array) -> Array:
        """Expected numbers from those of the mixture and completed rows."""
        pairs = zip(self.weights[1:], self.predictors, strict=True)
        parts = [w * each.predict(base, features) for w, each in pairs if w > 0.0]
        return np.asarray(sum(parts, np.zeros(len(base))))

    def deviations(self, variances: Array) -> Array:
        """Standard deviations from the variances of the mixture."""
        return self.std_factor * np.sqrt(
            variances + VARIANCE_FLOOR * self.mean_variance
        )


@dataclass(frozen=True)
class CategoryStage:
    """How the cells of a column of categories are predicted."""

    blend: ProbabilityBlend
    trees: CrossFittedTrees | None

    def predict(self, base: Array, features: Array) -> Array:
        """Probabilities from those of the mixture and completed rows."""
        trees = None if self.trees is None else self.trees.predict(features)
        return self.blend.mix(base, trees)


@dataclass(frozen=True)
class TablePredictions:
    """Predictions of the missing cells of some rows."""

    #: By position of the column: expected numbers and standard deviations in standard
    #: deviations of the column, or probabilities; of missing cells alone, in order.
    numbers: dict[int, tuple[Array, Array]]
    probabilities: dict[int, Array]


@dataclass(frozen=True)
class TableModel:
    """The fitted model of the coordinates of a table."""

    columns: Sequence[ColumnSchema]
    coordinate_order: Array  # of the coordinates of the columns in the model
    cells: list[Target]
    members: list[GaussianMixture]
    numbers: dict[int, NumberStage]  # by position of the column
    categories: dict[int, CategoryStage]
    choice: MixtureChoice

    def predict(
        self, n_rows: int, data: Sequence[ColumnData | None], n_jobs: int | None
    ) -> TablePredictions:
        """Predict the missing cells of rows with these columns."""
        Z = self._encode(n_rows, data)
        base = self._condition(Z)
        jobs = (delayed(self._predict_cell)(cell, base, Z) for cell in self.cells)
        found = Parallel(n_jobs, prefer="threads")(jobs)
        numbers, probabilities = {}, {}
        for cell, result in zip(self.cells, found, strict=True):
            if cell.is_number:
                numbers[cell.position] = result
            else:
                probabilities[cell.position] = result
        return TablePredictions(numbers, probabilities)

    def _encode(self, n_rows: int, data: Sequence[ColumnData | None]) -> Array:
        return encode_table(n_rows, self.columns, data)[:, self.coordinate_order]

    def _condition(self, Z: Array) -> RowConditionals:
        parts = (condition_rows(each, self.cells, Z) for each in self.members)
        return mean_of_members(parts, len(self.members))

    def _predict_cell(self, cell: Target, base: RowConditionals, Z: Array) -> object:
        j, missing = cell.position, np.isnan(Z[:, cell.coordinates[0]])
        features = base.completed[missing].astype(np.float32)
        if not cell.is_number:
            shares = base.probabilities[j][missing]
            return (
                self.categories[j].predict(shares, features) if len(shares) else shares
            )
        stage = self.numbers[j]
        means, variances = (part[missing] for part in base.numbers[j])
        if len(means):
            means = stage.predict(means, features)
        return means, stage.deviations(variances)

    def sample(
        self, n_rows: int, data: Sequence[ColumnData | None],
        predictions: TablePredictions, member: int, rng: np.random.Generator,
    ) -> dict[int, Array]:  # fmt: skip
        """One draw of all missing cells: numbers (in standard deviations) and labels.

        Their deviations from the predictions have the correlations of the mixture and
        the size of the errors of the model.
        """
        mixture = self.members[member % len(self.members)]
        Z = self._encode(n_rows, data)
        parts = [
            self._draw_rows(Z[first : first + CHUNK_ROWS], mixture, rng)
            for first in range(0, max(1, len(Z)), CHUNK_ROWS)
        ]
        drawn: dict[int, Array] = {}
        for cell in self.cells:
            j = cell.position
            values = np.concatenate([part[j] for part in parts])
            if cell.is_number:
                stage = self.numbers[j]
                drawn[j] = predictions.numbers[j][0] + values * stage.std_factor
            else:
                order = category_order(mixture, cell)
                shares = np.cumsum(predictions.probabilities[j][:, order], axis=1)
                drawn[j] = order[(values[:, None] > shares[:, :-1]).sum(axis=1)]
        return drawn

    def _draw_rows(
        self, Z: Array, mixture: GaussianMixture, rng: np.random.Generator
    ) -> dict[int, Array]:
        """Deviations of missing numbers, and uniform numbers for missing categories."""
        base = condition_rows(mixture, self.cells, Z)
        coordinates, quantiles = draw_rows(mixture, self.cells, Z, rng)
        drawn = {}
        for cell in self.cells:
            j, b = cell.position, cell.coordinates
            missing = np.isnan(Z[:, b[0]])
            if isinstance(cell.encoder, NumberEncoder):
                values = cell.encoder.inverse_transform(coordinates[missing, b[0]])
                means = base.numbers[j][0][missing]
                drawn[j] = cell.encoder.standardize(values) - means
            else:
                drawn[j] = quantiles[j][missing]
        return drawn


def mean_predictions(parts: Sequence[TablePredictions]) -> TablePredictions:
    """Means of the predictions of several models."""
    if not parts:
        return TablePredictions({}, {})
    numbers = {}
    for j in parts[0].numbers:
        means, deviations = zip(*(part.numbers[j] for part in parts), strict=True)
        numbers[j] = np.mean(means, axis=0), np.mean(deviations, axis=0)
    probabilities = {
        j: np.mean([part.probabilities[j] for part in parts], axis=0)
        for j in parts[0].probabilities
    }
    return TablePredictions(numbers, probabilities)


def fit_table_model(
    columns: Sequence[ColumnSchema], coordinate_order: Array, cells: list[Target],
    Z: Array, targets: dict[int, Array], pooled: GaussianMixture, choice: MixtureChoice,
    effort: Effort, *, seed: int, n_jobs: int | None,
) -> TableModel:  # fmt: skip
    """Fit the mixtures and the trees of a table; arguments as in `select_mixture`."""
    some = sample_rows(Z, MAX_ROWS, seed)
    members = fit_members(cells, Z[some], pooled, choice, effort, seed)
    rows = some[: max(1, MAX_FEATURES // max(1, len(cells) * Z.shape[1]))]
    left_out = mean_of_members(
        (condition_rows(each, cells, Z[rows], leave_out=True) for each in members),
        len(members),
    )
    trainer = _Trainer(cells, Z[rows], targets, rows, left_out, effort, seed)
    found = Parallel(n_jobs, prefer="threads")(
        delayed(trainer.train)(t) for t in range(len(cells))
    )
    numbers, categories = trainer.combine(found, choice.optimism)
    return TableModel(
        columns, coordinate_order, cells, members, numbers, categories, choice
    )


def fit_members(
    cells: list[Target], Z: Array, pooled: GaussianMixture, choice: MixtureChoice,
    effort: Effort, seed: int,
) -> list[GaussianMixture]:  # fmt: skip
    """The pooled distribution, or mixtures from different starts."""
    if choice.n_components == 1:
        return [pooled]
    completed = condition_rows(pooled, cells, Z).completed
    observed, engine = Observations.from_dense(Z), Threads(n_jobs=1)
    members = []
    for k in range(effort.n_members):
        start = initial_mixture(
            completed, pooled, choice.n_components, choice.shrinkage_rows, seed + k
        )
        fit = fit_mixture(observed, start, pooled, engine, max_iter=MAX_ITER, tol=TOL)
        members.append(fit.mixture)
    return members


@dataclass
class _TrainedCell:
    """The predictors of a cell, and predictions of its rows without the own cell."""

    observed: Array  # rows of the training rows
    target: Array
    predictors: tuple[Predictor, ...] = ()  # of numbers
    predictions: Array | None = None  # (rows, predictors + 1), first the mean of 0
    trees: CrossFittedTrees | None = None  # of categories
    probabilities: Array | None = None  # (rows, classes), of trees


@dataclass
class _Trainer:
    cells: list[Target]
    Z: Array
    targets: dict[int, Array]
    rows: Array  # of the table, which are trained on
    left_out: RowConditionals
    effort: Effort
    seed: int

    def train(self, t: int) -> _TrainedCell:
        """Train the predictors of one cell."""
        cell, seed = self.cells[t], self.seed + 1000 * t
        j = cell.position
        observed = np.flatnonzero(~np.isnan(self.Z[:, cell.coordinates[0]]))
        target = self.targets[j][self.rows[observed]]
        enough = len(observed) >= MIN_TRAINING_ROWS and self.Z.shape[1] > 1
        assert self.left_out.features is not None
        features = self.left_out.features[t, observed]
        if cell.is_number:
            base = self.left_out.numbers[j][0][observed]
            return self._train_number(observed, features, target, base, enough, seed)
        trained = _TrainedCell(observed, target.astype(np.int64))
        if enough and self.effort.n_trees:
            n_classes = self.left_out.probabilities[j].shape[1]
            trained.trees, trained.probabilities = cross_fit(
                features, trained.target, n_classes=n_classes,
                n_trees=self.effort.n_trees, seed=seed,
            )  # fmt: skip
        return trained

    def _train_number(
        self, observed: Array, features: Array, target: Array, base: Array,
        enough: bool, seed: int,
    ) -> _TrainedCell:  # fmt: skip
        predictors, predictions = [], [np.zeros(len(base))]

        def add(corrects: bool, model: Any, left_out: Any) -> None:
            predictors.append(Predictor(model, corrects))
            predictions.append(base + left_out if corrects else left_out)

        n_trees = self.effort.n_trees
        if not enough:
            add(True, None, 0.0)
        elif self.effort.n_fourier_features:
            n_features = min(self.effort.n_fourier_features, len(base) // 4)
            model, left_out = fit_fourier_ridge(
                features, target - base, n_features=n_features, seed=seed
            )
            add(True, model, left_out)
        if enough and n_trees:
            for k, corrects in enumerate((True, False)):
                goal = target - base if corrects else target
                found = cross_fit(
                    features, goal, n_classes=0, n_trees=n_trees, seed=seed + 500 * k
                )
                add(corrects, *found)
        columns = np.column_stack(predictions)
        return _TrainedCell(observed, target, tuple(predictors), columns)

    def combine(
        self, trained: list[_TrainedCell], optimism: float
    ) -> tuple[dict[int, NumberStage], dict[int, CategoryStage]]:
        """Weights and calibration of all cells."""
        numbers, categories = {}, {}
        by_methods: dict[int, list[int]] = {}
        for t, (cell, part) in enumerate(zip(self.cells, trained, strict=True)):
            if part.predictions is not None:
                by_methods.setdefault(part.predictions.shape[1], []).append(t)
                continue
            base = self.left_out.probabilities[cell.position][part.observed]
            blend = fit_probability_blend(base, part.probabilities, part.target)
            categories[cell.position] = CategoryStage(blend, part.trees)
        for group in by_methods.values():
            targets = [trained[t].target for t in group]
            predictions = [_pessimistic(trained[t], optimism) for t in group]
            weights = fit_weights(predictions, targets)
            for t, w in zip(group, weights, strict=True):
                stage = self._number_stage(t, trained[t], w, optimism)
                numbers[self.cells[t].position] = stage
        return numbers, categories

    def _number_stage(
        self, t: int, part: _TrainedCell, weights: Array, optimism: float
    ) -> NumberStage:
        assert part.predictions is not None
        # Predictors correct a part of what makes the errors of the mixture too small.
        errors = (part.target - part.predictions @ weights) * np.sqrt(optimism)
        variances = self.left_out.numbers[self.cells[t].position][1][part.observed]
        mean = float(variances.mean()) if len(variances) else 1.0
        floored = variances + VARIANCE_FLOOR * mean
        squares = errors**2 / np.maximum(floored, 1e-300)
        factor = float(np.sqrt(squares.mean())) if len(squares) else 1.0
        groups = np.arange(len(errors))  # one error per row: each a group of its own
        stds = factor * np.sqrt(floored)
        scores = ConformalScores.from_errors(errors, stds, groups, groups)
        return NumberStage(weights, part.predictors, factor, mean, scores)


def _pessimistic(part: _TrainedCell, optimism: float) -> Array:
    """Predictions in which the errors of the corrected mixture are larger.

    The mixture was fitted to the cells, direct predictors were trained without them.
    """
    assert part.predictions is not None
    P = part.predictions.copy()
    for k, predictor in enumerate(part.predictors, 1):
        if predictor.corrects:
            P[:, k] = part.target - optimism * (part.target - P[:, k])
    return P

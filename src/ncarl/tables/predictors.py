"""Predictors of the cells of a column from completed rows, and their weights.

`cross_fit` trains trees. `fit_fourier_ridge` predicts from similar rows: ridge
regression on random Fourier features approximates the kernel ridge regression with a
Gaussian kernel of the distances between rows. Its leave-one-out errors are the
residuals over ``1 - h``, with the leverages ``h`` of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar, nnls
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from ncarl.core.types import Array

#: Parts that the rows are cut into; an ensemble is trained without each of them.
N_FOLDS = 5
MIN_SAMPLES_LEAF = 2
#: Decimals of the numbers that trees see, so that rounding errors, which depend on the
#: order of rows and columns, do not decide between splits that are equally good.
DECIMALS = 5
#: Tables with this many coordinates or more choose splits among a share of them.
WIDE_TABLE, WIDE_SHARE = 30, 0.4
#: Length scale of the kernel, in typical distances of rows.
LENGTH_SCALE = 0.7
#: Regularization that is tried, for 1,000 rows.
ALPHAS = (0.1, 1.0, 10.0)
#: Rows whose distances give the typical one.
MAX_DISTANCE_ROWS = 200
#: Smallest ``1 - h``, so that the error of a row is bounded.
MIN_REST = 0.05
#: Cells with the weights of all columns that are added to those of each column.
SHRINKAGE_CELLS = 20.0
#: Weight of the constraint that weights add up to 1.
CONSTRAINT_WEIGHT = 1e3
#: More trees for probabilities, which a few of them give too roughly.
CLASSIFIER_FACTOR = 3
#: Weight of trees for categories in many tables.
TYPICAL_TREE_WEIGHT = 0.4
#: Smallest probability that counts in a likelihood.
MIN_PROBABILITY = 1e-3


@dataclass(frozen=True)
class CrossFittedTrees:
    """Extremely randomized trees, trained without each of several parts of the rows."""

    ensembles: list[Any]
    n_classes: int  # 0 for a regression

    def predict(self, features: Array) -> Array:
        """Mean predictions: numbers (m,), or probabilities of all classes (m, k)."""
        features = np.round(features, DECIMALS)
        parts = [_predict(each, features, self.n_classes) for each in self.ensembles]
        return np.asarray(np.mean(parts, axis=0))


def cross_fit(
    features: Array, target: Array, *, n_classes: int, n_trees: int, seed: int
) -> tuple[CrossFittedTrees, Array]:
    """Train ensembles, and predict each row by the one trained without it.

    ``target`` holds numbers, or positions of classes if ``n_classes`` is not 0.
    """
    n, features = features.shape[1], np.round(features, DECIMALS)
    target = np.round(target, DECIMALS)
    options = {
        "max_features": 1.0 if n < WIDE_TABLE else WIDE_SHARE,
        "min_samples_leaf": MIN_SAMPLES_LEAF,
        "n_jobs": 1,
    }
    make = ExtraTreesClassifier if n_classes else ExtraTreesRegressor
    if n_classes:
        n_trees *= CLASSIFIER_FACTOR
    fold = np.random.default_rng(seed).permutation(len(target)) % N_FOLDS
    ensembles = []
    predictions = np.empty((len(target), n_classes) if n_classes else len(target))
    for k in range(N_FOLDS):
        inside = fold == k
        trees = make(n_trees, random_state=seed + k, **options)
        trees.fit(features[~inside], target[~inside])
        predictions[inside] = _predict(trees, features[inside], n_classes)
        ensembles.append(trees)
    return CrossFittedTrees(ensembles, n_classes), predictions


def _predict(trees: Any, features: Array, n_classes: int) -> Array:
    if not n_classes:
        return np.asarray(trees.predict(features))
    shares = np.zeros((len(features), n_classes))
    shares[:, trees.classes_] = trees.predict_proba(features)
    return shares


@dataclass(frozen=True)
class FourierRidge:
    """Ridge regression on random Fourier features of rows."""

    frequencies: Array  # (n, features), float32
    phases: Array  # (features,)
    coefficients: Array  # (features + 1,), the intercept last

    def predict(self, rows: Array) -> Array:
        """Predictions for rows of shape (m, n)."""
        A = fourier_features(rows, self.frequencies, self.phases)
        return np.asarray(A @ self.coefficients, dtype=np.float64)


def fit_fourier_ridge(
    rows: Array, target: Array, *, n_features: int, seed: int
) -> tuple[FourierRidge, Array]:
    """Fit the regression, and predict each row without it.

    The regularization is the one with the least leave-one-out errors.
    """
    rng = np.random.default_rng(seed)
    shape = (rows.shape[1], n_features)
    scale = LENGTH_SCALE * typical_distance(rows[:MAX_DISTANCE_ROWS])
    frequencies = rng.standard_normal(shape, dtype=np.float32) / np.float32(scale)
    phases = rng.uniform(0.0, 2.0 * np.pi, n_features).astype(np.float32)
    A = fourier_features(rows, frequencies, phases)
    eigenvalues, U = np.linalg.eigh((A.T @ A).astype(np.float64))
    rotated = A @ U.astype(np.float32)
    projected = rotated.T @ target.astype(np.float32)
    squares, least = rotated**2, np.inf
    for alpha in ALPHAS:
        ridge = alpha * len(rows) / 1000.0
        inverse = 1.0 / (np.maximum(eigenvalues, 0.0) + ridge)
        residuals = target - rotated @ (inverse * projected).astype(np.float32)
        rest = np.maximum(1.0 - squares @ inverse.astype(np.float32), MIN_REST)
        errors = residuals / rest
        if (size := float(errors @ errors)) < least:
            least, predictions = size, target - errors
            coefficients = U @ (inverse * projected)
    model = FourierRidge(frequencies, phases, coefficients.astype(np.float32))
    return model, predictions


def fourier_features(rows: Array, frequencies: Array, phases: Array) -> Array:
    """Random Fourier features and a one, float32, shape (m, features + 1)."""
    A = np.ones((len(rows), len(phases) + 1), dtype=np.float32)
    np.cos(rows.astype(np.float32) @ frequencies + phases, out=A[:, :-1])
    A[:, :-1] *= np.float32(np.sqrt(2.0 / len(phases)))
    return A


def typical_distance(rows: Array) -> float:
    """Median distance between rows; 1 if all are equal."""
    squares = (rows**2).sum(axis=1)
    distances = squares[:, None] + squares - 2.0 * rows @ rows.T
    positive = distances[
        distances > 1e-6 * max(float(squares.max(initial=0.0)), 1e-300)
    ]
    return float(np.sqrt(np.median(positive))) if len(positive) else 1.0


def fit_weights(predictions: list[Array], targets: list[Array]) -> list[Array]:
    """Weights of several predictions of each column, that minimize the squared error.

    They are not negative and add up to 1. Those of a column are shrunk to the weights
    for all columns. ``predictions`` have shape (cells, methods).
    """
    if not targets:
        return []
    everything = np.column_stack([np.vstack(predictions), np.concatenate(targets)])
    common = np.linalg.qr(everything, mode="r")
    common *= np.sqrt(SHRINKAGE_CELLS / len(everything))
    return [
        _simplex_least_squares(np.vstack([np.column_stack([P, y]), common]))
        for P, y in zip(predictions, targets, strict=True)
    ]


def _simplex_least_squares(equations: Array) -> Array:
    """Weights whose squared errors are least; the last column is the target."""
    # The triangular factor has the same squared errors with few rows.
    R = np.linalg.qr(equations, mode="r") / np.sqrt(len(equations))
    scale = CONSTRAINT_WEIGHT * max(float(np.abs(R).max()), 1e-300)
    A = np.vstack([R[:, :-1], np.full(R.shape[1] - 1, scale)])
    weights = nnls(A, np.append(R[:, -1], scale))[0]
    total = float(weights.sum())
    return np.asarray(
        weights / total if total > 0.0 else np.full(len(weights), 1.0 / len(weights))
    )


@dataclass(frozen=True)
class ProbabilityBlend:
    """Mean of the probabilities of two methods, sharpened or flattened."""

    tree_weight: float
    exponent: float  # below 1: less certain

    def mix(self, base: Array, trees: Array | None) -> Array:
        """Probabilities of the classes, shape (m, k)."""
        mixed = base
        if trees is not None:
            mixed = (1.0 - self.tree_weight) * base + self.tree_weight * trees
        powers = mixed.clip(MIN_PROBABILITY * MIN_PROBABILITY) ** self.exponent
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def fit_probability_blend(
    base: Array, trees: Array | None, classes: Array
) -> ProbabilityBlend:
    """Weight and exponent of the largest likelihood of the classes, made cautious.

    The likelihood favors the base, which was fitted to the same cells: the weight is
    drawn toward `TYPICAL_TREE_WEIGHT`, and probabilities are not sharpened.
    """

    def loss(blend: ProbabilityBlend) -> float:
        shares = blend.mix(base, trees)[np.arange(len(classes)), classes]
        return -float(np.log(shares.clip(MIN_PROBABILITY)).mean())

    def best(function: Any, low: float, high: float) -> float:
        options = {"xatol": 1e-2}
        found = minimize_scalar(
            function, bounds=(low, high), method="bounded", options=options
        )
        return float(found.x)

    weight = 0.0
    if trees is not None:
        weight = best(lambda w: loss(ProbabilityBlend(w, 1.0)), 0.0, 1.0)
        weight = (weight + TYPICAL_TREE_WEIGHT) / 2.0
    exponent = best(lambda a: loss(ProbabilityBlend(weight, a)), 0.3, 1.0)
    return ProbabilityBlend(weight, exponent)

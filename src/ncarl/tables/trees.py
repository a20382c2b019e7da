"""Ensembles of trees for the cells of one column, and weights of their predictions."""

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
#: Tables with this many coordinates or more choose splits among a share of them.
WIDE_TABLE, WIDE_SHARE = 30, 0.4
#: Cells with the weights of all columns that are added to those of each column.
SHRINKAGE_CELLS = 20.0
#: Weight of the constraint that weights add up to 1.
CONSTRAINT_WEIGHT = 1e3
#: Smallest probability that counts in a likelihood.
MIN_PROBABILITY = 1e-3


@dataclass(frozen=True)
class CrossFittedTrees:
    """Extremely randomized trees, trained without each of several parts of the rows."""

    ensembles: list[Any]
    n_classes: int  # 0 for a regression

    def predict(self, features: Array) -> Array:
        """Mean predictions: numbers (m,), or probabilities of all classes (m, k)."""
        parts = [_predict(each, features, self.n_classes) for each in self.ensembles]
        return np.asarray(np.mean(parts, axis=0))


def cross_fit(
    features: Array, target: Array, *, n_classes: int, n_trees: int, seed: int
) -> tuple[CrossFittedTrees, Array]:
    """Train ensembles, and predict each row by the one trained without it.

    ``target`` holds numbers, or positions of classes if ``n_classes`` is not 0.
    """
    n = features.shape[1]
    options = {
        "max_features": 1.0 if n < WIDE_TABLE else WIDE_SHARE,
        "min_samples_leaf": MIN_SAMPLES_LEAF,
        "n_jobs": 1,
    }
    make = ExtraTreesClassifier if n_classes else ExtraTreesRegressor
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
    """Weight and exponent with the largest likelihood of the classes."""

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
    exponent = best(lambda a: loss(ProbabilityBlend(weight, a)), 0.3, 2.0)
    return ProbabilityBlend(weight, exponent)

"""Predict cells of a column from rows with similar other cells.

Ridge regression on random Fourier features approximates the kernel ridge regression
with a Gaussian kernel of the distances between rows. Its leave-one-out errors are the
residuals over ``1 - h``, with the leverages ``h`` of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array

#: Length scale of the kernel, in typical distances of rows.
LENGTH_SCALE = 0.7
#: Regularization that is tried, for 1,000 rows.
ALPHAS = (0.1, 1.0, 10.0)
#: Rows whose distances give the typical one.
MAX_DISTANCE_ROWS = 200
#: Smallest ``1 - h``, so that the error of a row is bounded.
MIN_REST = 0.05


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

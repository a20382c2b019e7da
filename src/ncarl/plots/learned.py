"""What a fitted estimator has learned, as plain arrays, whatever its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.bayes.standard import fit_standard
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.surveys import InMemory


def is_model(thing: Any) -> bool:
    """Whether this is an estimator, not an array; one that is not fitted is refused.

    Examples
    --------
    >>> is_model([1.0, 2.0])
    False
    """
    if not hasattr(thing, "get_params"):
        return False
    if not hasattr(thing, "model_"):
        raise ValueError(
            f"{type(thing).__name__} must be fitted before its figures can be drawn; "
            "call fit first"
        )
    return True


def entries_of(X: Any) -> Observed:
    """The known entries of any matrix: array with NaN, frame, sparse matrix."""
    if isinstance(X, Observed):
        return X
    if sparse.issparse(X):
        return Observed.from_sparse(X)
    from ncarl.containers import read
    from ncarl.estimators.bias import BiasModel

    return read(BiasModel(), X, reset=True)


def names_in(*things: Any) -> list[str] | None:
    """Names of the columns of the first thing that has them: a frame, an estimator."""
    for thing in things:
        if getattr(thing, "transposed_", False):
            continue
        found = getattr(thing, "feature_names_in_", getattr(thing, "columns", None))
        if found is not None and not callable(found):
            return [str(name) for name in found]
    return None


def knows_noise(model: Any) -> bool:
    """Whether a fit can say how far off its values may be."""
    return bool(model._noise_level() > 0.0)


def asked(model: Any, i: Array, j: Array, X: Any = None) -> tuple[Array, Array | None]:
    """What a model says of single entries, and standard deviations if it has some.

    Parameters
    ----------
    model : fitted estimator
        What is asked.
    i, j : arrays of int, shape (entries,)
        Where they are.
    X : container, optional
        The matrix that they are in; by default that of the fit.
    """
    if not knows_noise(model):
        return np.asarray(model.predict(i, j, X=X), dtype=np.float64), None
    values, std = model.predict(i, j, return_std=True, X=X)
    return np.asarray(values, np.float64), np.asarray(std, np.float64)


def spreads_of(entries: Observed) -> Array:
    """Standard deviation of each column over its known entries; 0 for none."""
    standard = fit_standard(InMemory(entries), scaled=True)
    spreads: Array = np.where(
        entries.column_counts > 0, standard.centre.spreads * standard.unit, 0.0
    )
    return spreads


def middles_of(entries: Observed) -> Array:
    """Mean of each column over its known entries; 0 for none."""
    counts = np.maximum(entries.column_counts, 1)
    # Parts are added up: a sum of the largest floats has no room.
    parts = entries.values / counts[entries.indices]
    means: Array = np.bincount(entries.indices, parts, minlength=entries.shape[1])
    return means


def correlation(K: Array) -> Array:
    """A covariance with its diagonal brought to one; columns without variance alone.

    Examples
    --------
    >>> import numpy as np
    >>> correlation(np.array([[4.0, 1.0], [1.0, 1.0]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    deviations = np.sqrt(np.maximum(np.diag(K), 0.0))
    safe = np.where(deviations > 0.0, deviations, 1.0)
    scaled: Array = np.clip(K / safe[:, None] / safe[None, :], -1.0, 1.0)
    np.fill_diagonal(scaled, 1.0)
    return scaled


def ties_of(model: Any) -> Any:
    """How columns go together: correlations, or the graph of a model without a kernel.

    A dense array of shape (n, n) with a diagonal of ones, or a sparse one.
    """
    if hasattr(model, "kernel_"):
        return correlation(_kernel(model))
    if hasattr(model, "similarity_"):
        graph = sparse.csr_array(model.similarity_)
        return (graph + graph.T) * 0.5
    completed = np.asarray(model.model_.complete(), dtype=np.float64)
    completed = completed - completed.mean(axis=0)
    size = np.max(np.abs(completed), initial=0.0) or 1.0
    completed = completed / size
    return correlation(completed.T @ completed)


def _kernel(model: Any) -> Array:
    """The kernel of a model; in a common unit where that of the values is too large."""
    own = getattr(model, "_kernel_in_one_unit", None)
    return np.asarray(model.kernel_ if own is None else own(), dtype=np.float64)


def variances_of(model: Any) -> Array:
    """Variances along the directions that a model uses, the largest first."""
    if hasattr(model, "kernel_"):
        return eigenvalues(_kernel_in_spreads(model))
    inner = model.model_
    found: Array
    if hasattr(inner, "kernel"):  # a thin factor stands for most of the kernel
        F = np.asarray(inner.kernel.F, dtype=np.float64)
        return eigenvalues(F.T @ F)
    if inner.factors is None:
        found = np.linalg.svd(np.asarray(inner.X, np.float64), compute_uv=False) ** 2
    else:
        left, right = (np.asarray(part, dtype=np.float64) for part in inner.factors)
        left, right = np.linalg.qr(left)[1], np.linalg.qr(right.T)[1]
        found = np.linalg.svd(left @ right.T, compute_uv=False) ** 2
    if found.sum() > 0.0:
        return found
    # Effects of rows and columns are all there is.
    completed = np.asarray(inner.complete(), dtype=np.float64)
    completed = completed - completed.mean(axis=0)
    size = np.max(np.abs(completed), initial=0.0) or 1.0
    return np.linalg.svd(completed / size, compute_uv=False) ** 2


def _kernel_in_spreads(model: Any) -> Array:
    """The kernel in the units that the model works in: spreads of scaled columns."""
    K = _kernel(model)
    standard = getattr(model.model_, "standard", None)
    if standard is None or model.transposed_:
        return K
    spreads = standard.centre.spreads
    safe = np.where(spreads > 0.0, spreads, 1.0)
    return K / safe[:, None] / safe[None, :]


def eigenvalues(A: Array) -> Array:
    """Eigenvalues of a symmetric matrix, the largest first; none below 0."""
    values: Array = np.maximum(np.linalg.eigvalsh(0.5 * (A + A.T))[::-1], 0.0)
    return values


def checked_square(S: Any, names: Sequence[object] | None) -> Any:
    """A matrix of ties as it came, if it is square and its names fit."""
    shape = np.shape(S) if not sparse.issparse(S) else S.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(
            f"similarity must be a fitted estimator or a square matrix, got shape "
            f"{shape}"
        )
    if names is not None and len(names) != shape[0]:
        raise ValueError(
            f"names must have one for each of the {shape[0]} columns, got {len(names)}"
        )
    return S if sparse.issparse(S) else np.asarray(S, dtype=np.float64)

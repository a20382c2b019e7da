"""Saving and loading fitted estimators: a JSON header and arrays, no pickle.

The header describes parameters and fitted attributes; `_pack` puts arrays aside, and
`_unpack` puts them back. Only classes of `MODEL_CLASSES` are ever made from a file.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ncarl.core.types import Array
from ncarl.estimators.validation import is_pandas_na
from ncarl.exceptions import BrokenFileError
from ncarl.fitting.checkpoint import csr_from_arrays, csr_to_arrays
from ncarl.io.files import read_archive
from ncarl.observations import Observations
from ncarl.registry import METHODS

MODEL_KIND = "model"
#: Parameters of a run, and a certificate, that are not saved with the model.
UNSAVED = ("callback", "checkpoint", "progress", "dual_")
SAVABLE_CLASSES = ("WideNCARL", *(method.class_name for method in METHODS.values()))
#: Modules of the classes that models consist of.
MODEL_CLASSES = {
    "Centering": "ncarl.centering",
    "ConformalScores": "ncarl.bayes.model",
    "Kernel": "ncarl.core.rows",
    "KernelModel": "ncarl.fitting.kernel_model",
    "MatrixModel": "ncarl.fitting.matrix_model",
    "NeighborCorrection": "ncarl.bayes.model",
    "Scaler": "ncarl.centering",
    "TwoSidedModel": "ncarl.bayes.model",
    "ValueBounds": "ncarl.centering",
    "WideKernel": "ncarl.wide.rows",
}


def estimator_state(
    estimator: Any, *, training_data: bool
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A fitted estimator as a JSON header and arrays."""
    check_is_fitted(estimator)
    arrays: dict[str, Array] = {}
    params = estimator.get_params(deep=False)
    if not isinstance(params["engine"], str):
        params["engine"] = "auto"
    fitted = {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and name not in UNSAVED
    }
    fitted["training_"] = None
    if training_data:
        fitted["training_"] = estimator._training_entries().to_csr()
    if "indicator_" in fitted:
        fitted["indicator_"] = getattr(estimator.indicator_, "features_", None)
    header = {
        "class": type(estimator).__name__,
        "params": {
            name: _pack(value, name, arrays)
            for name, value in params.items()
            if name not in UNSAVED
        },
        "fitted": {name: _pack(value, name, arrays) for name, value in fitted.items()},
    }
    return header, arrays


def load(path: str | os.PathLike[str]) -> Any:
    """Load the fitted estimator that ``save`` wrote to a file.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    estimator
        The fitted estimator, of the class that was saved.

    Raises
    ------
    BrokenFileError
        If the file is foreign, damaged or not a model.

    Examples
    --------
    >>> import numpy as np, tempfile, ncarl
    >>> X = np.array([[1.0, 2.0, np.nan], [2.0, np.nan, 6.0], [3.0, 6.0, 9.0]])
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     ncarl.NCARL(tol=0, max_iter=3).fit(X).save(file.name)
    ...     ncarl.load(file.name).transform(X).shape
    (3, 3)
    """
    header, arrays = read_archive(path, MODEL_KIND)
    if header.get("class") not in SAVABLE_CLASSES:
        raise BrokenFileError(
            f"path {str(path)!r} holds a {header.get('class')}, unknown to this ncarl"
        )
    try:
        return estimator_from_state(header, arrays)
    except KeyError as error:
        raise BrokenFileError(
            f"path {str(path)!r} is damaged, or was written by an earlier version of "
            f"ncarl: it lacks {error}"
        ) from error


def estimator_from_state(header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """The fitted estimator that `estimator_state` described."""
    import ncarl  # which imports this module

    params = {name: _unpack(part, arrays) for name, part in header["params"].items()}
    estimator = getattr(ncarl, header["class"])(**params)
    fitted = {name: _unpack(part, arrays) for name, part in header["fitted"].items()}
    if fitted["training_"] is not None:
        fitted["training_"] = Observations.from_sparse(fitted["training_"])
    vars(estimator).update(fitted)
    estimator._restore_indicator()
    return estimator


def _pack(value: Any, key: str, arrays: dict[str, Array]) -> Any:
    """A value as JSON can hold it; its arrays are put aside under ``key``."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"objects": to_builtin(value)}
        arrays[key] = value
        return {"array": key}
    if sparse.issparse(value):
        arrays |= csr_to_arrays(key, sparse.csr_array(value))
        return {"sparse": key}
    if isinstance(value, tuple):
        items = [_pack(item, f"{key}/{k}", arrays) for k, item in enumerate(value)]
        return {"tuple": items}
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.init]
        parts = {n: _pack(getattr(value, n), f"{key}/{n}", arrays) for n in names}
        return {"class": type(value).__name__, "fields": parts}
    if isinstance(value, dict):
        return {"dict": {n: _pack(v, f"{key}/{n}", arrays) for n, v in value.items()}}
    return to_builtin(value)


def _unpack(part: Any, arrays: dict[str, Array]) -> Any:
    if not isinstance(part, dict):
        return part
    kind, content = next(iter(part.items()))
    if kind == "array":
        return arrays[content]
    if kind == "objects":
        return np.asarray(content, dtype=object)
    if kind == "sparse":
        return csr_from_arrays(content, arrays)
    if kind == "tuple":
        return tuple(_unpack(inner, arrays) for inner in content)
    if kind == "dict":
        return {name: _unpack(inner, arrays) for name, inner in content.items()}
    values = {name: _unpack(inner, arrays) for name, inner in part["fields"].items()}
    module = importlib.import_module(MODEL_CLASSES[content])
    return getattr(module, content)(**values)


def to_builtin(value: Any) -> Any:
    """A NumPy scalar or array as plain Python; NaN for ``pandas.NA``."""
    if is_pandas_na(value):
        return float("nan")
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [to_builtin(item) for item in value]
    return value

"""Saving and loading fitted estimators: arrays and a JSON header, no pickle.

`save_estimator` and `load` work on files; the functions below them take an estimator,
or one of its models, apart into what JSON can hold and arrays, and back.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes.model import NeighborCorrection, TwoSidedModel
from ncarl.centering import Centering, Scaler, ValueBounds
from ncarl.core.rows import Kernel
from ncarl.core.types import Array
from ncarl.estimators.validation import is_pandas_na
from ncarl.exceptions import BrokenFileError
from ncarl.fitting.checkpoint import csr_from_arrays, csr_to_arrays
from ncarl.fitting.kernel_model import KernelModel
from ncarl.io.files import read_archive, write_archive
from ncarl.observations import Observations
from ncarl.registry import METHODS

MODEL_KIND = "model"
#: Parameters of a run that are not saved with the model.
UNSAVED_PARAMS = ("callback", "checkpoint", "progress")
SAVABLE_CLASSES = ("WideNCARL", *(method.class_name for method in METHODS.values()))
#: Parameters that may be arrays.
ARRAY_PARAMS = ("graph", "prior", "dictionary")
BOUNDS_FIELDS = ("low", "high", "levels", "ends")


def save_estimator(
    estimator: Any, path: str | os.PathLike[str], *, training_data: bool
) -> None:
    """Write a fitted estimator; `load` reads it back."""
    header, arrays = estimator_state(estimator, training_data=training_data)
    write_archive(path, {"kind": MODEL_KIND, **header}, arrays)


def estimator_state(
    estimator: Any, *, training_data: bool
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A fitted estimator as what JSON can hold, and arrays."""
    check_is_fitted(estimator)
    params, arrays = _split_params(estimator)
    model, model_arrays = estimator._model_state()
    header = {
        "class": type(estimator).__name__,
        "params": params,
        "scalars": {
            name: getattr(estimator, name) for name in estimator._saved_scalars
        },
        "model": model,
        "n_features_in": estimator.n_features_in_,
        "extra": estimator._extra_state() if hasattr(estimator, "_extra_state") else {},
    }
    arrays |= model_arrays
    arrays |= {f"history/{name}": col for name, col in estimator.history_.items()}
    if estimator._has_graph:
        arrays |= csr_to_arrays("similarity", estimator.similarity_)
    arrays["unidentified_rows"] = estimator.unidentified_rows_
    arrays["unidentified_columns"] = estimator.unidentified_columns_
    if hasattr(estimator, "feature_names_in_"):
        arrays["feature_names"] = np.asarray(estimator.feature_names_in_, dtype=str)
    if training_data:
        arrays |= csr_to_arrays("training", estimator._training_entries().to_csr())
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
            f"path {str(path)!r} is damaged: it lacks {error}"
        ) from error


def estimator_from_state(header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """The fitted estimator that `estimator_state` described."""
    import ncarl  # which imports this module

    params = dict(header["params"])
    params |= {name: arrays[name] for name in ARRAY_PARAMS if name in arrays}
    packed = [name for name in ARRAY_PARAMS if f"{name}/data" in arrays]
    params |= {name: csr_from_arrays(name, arrays) for name in packed}
    estimator = getattr(ncarl, header["class"])(**_lists_to_tuples(params))
    estimator._set_model_state(header["model"], arrays)
    for name, value in header["scalars"].items():
        setattr(estimator, name, value)
    estimator.history_ = {
        name.removeprefix("history/"): column
        for name, column in arrays.items()
        if name.startswith("history/")
    }
    if estimator._has_graph:
        estimator.similarity_ = csr_from_arrays("similarity", arrays)
    estimator.unidentified_rows_ = arrays["unidentified_rows"]
    estimator.unidentified_columns_ = arrays["unidentified_columns"]
    estimator.n_features_in_ = header["n_features_in"]
    if "feature_names" in arrays:
        estimator.feature_names_in_ = arrays["feature_names"].astype(object)
    kept = csr_from_arrays("training", arrays) if "training/data" in arrays else None
    estimator.training_ = None if kept is None else Observations.from_sparse(kept)
    if header["extra"]:
        estimator._set_extra_state(header["extra"])
    return estimator


def _split_params(estimator: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Parameters that JSON can hold, and those that are arrays."""
    params = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in UNSAVED_PARAMS
    }
    arrays: dict[str, Array] = {}
    for name in ARRAY_PARAMS:
        given = params.get(name)
        if sparse.issparse(given):
            arrays |= csr_to_arrays(name, sparse.csr_array(given))
            del params[name]
        elif given is not None and not isinstance(given, str):
            arrays[name] = np.asarray(given)
            del params[name]
    if not isinstance(params["engine"], str):
        params["engine"] = "auto"
    return {name: to_builtin(value) for name, value in params.items()}, arrays


def to_builtin(value: Any) -> Any:
    """A NumPy scalar or array as plain Python; NaN for ``pandas.NA``."""
    if is_pandas_na(value):
        return float("nan")
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [to_builtin(item) for item in value]
    return value


def _lists_to_tuples(params: dict[str, Any]) -> dict[str, Any]:
    """Restore tuples, which JSON turns into lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}


def kernel_model_state(
    model: KernelModel, prefix: str = ""
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A kernel model as what JSON can hold, and arrays; their names get the prefix."""
    header = {
        "noise": model.kernel.s,
        "mean": model.centering.mean,
        "row_ridge": model.centering.row_ridge,
        "unit": model.unit,
        "sigma": model.sigma,
        "dtype": model.dtype,
    }
    arrays = {
        "K": model.kernel.K,
        "columns": model.centering.column_effects,
        "spreads": model.centering.column_scales,
        "empty": model.empty_columns,
        "fallback": model.fallback,
    }
    if model.kernel.P is not None:
        arrays["P"] = model.kernel.P
    return header, {prefix + name: array for name, array in arrays.items()}


def kernel_model_from_state(
    header: dict[str, Any], arrays: dict[str, Array], prefix: str = ""
) -> KernelModel:
    """The kernel model that `kernel_model_state` described."""
    centering = Centering(
        header["mean"],
        arrays[prefix + "columns"],
        header["row_ridge"],
        arrays[prefix + "spreads"],
    )
    P = arrays.get(prefix + "P")
    return KernelModel(
        kernel=Kernel(arrays[prefix + "K"], P, header["noise"]),
        centering=centering,
        unit=header["unit"],
        sigma=header["sigma"],
        empty_columns=arrays[prefix + "empty"],
        fallback=arrays[prefix + "fallback"],
        dtype=header["dtype"],
    )


def two_sided_state(model: TwoSidedModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """A two-sided model as what JSON can hold, and arrays."""
    centering, correction = model.scaler.centering, model.neighbor_correction
    header: dict[str, Any] = {
        "unit": model.scaler.unit,
        "mean": centering.mean,
        "weight": model.weight,
        "near": None if correction is None else asdict(correction),
    }
    arrays = {
        "standard/columns": centering.column_effects,
        "standard/spreads": centering.column_scales,
    }
    arrays |= {f"range/{name}": getattr(model.bounds, name) for name in BOUNDS_FIELDS}
    for name in ("columns", "rows"):
        side = getattr(model, name)
        if side is not None:
            header[name], side_arrays = kernel_model_state(side, f"{name}/")
            arrays |= side_arrays
    return header, arrays


def two_sided_from_state(
    header: dict[str, Any], arrays: dict[str, Array]
) -> TwoSidedModel:
    """The two-sided model that `two_sided_state` described."""
    effects, scales = arrays["standard/columns"], arrays["standard/spreads"]
    scaler = Scaler(header["unit"], Centering(header["mean"], effects, None, scales))
    bounds = ValueBounds(*(arrays[f"range/{name}"] for name in BOUNDS_FIELDS))
    sides = {
        name: kernel_model_from_state(header[name], arrays, f"{name}/")
        for name in ("columns", "rows")
        if name in header
    }
    columns, rows = sides.get("columns"), sides.get("rows")
    near = header["near"]
    correction = None if near is None else NeighborCorrection(**near)
    return TwoSidedModel(scaler, bounds, columns, rows, header["weight"], correction)

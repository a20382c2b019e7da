"""Fitted estimators on disk: arrays and JSON, no pickle."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.centre import Centre
from ncarl.core.types import Array, Kernel
from ncarl.exceptions import BrokenFileError
from ncarl.model import KernelModel
from ncarl.observed import Observed
from ncarl.storage import read_archive, write_archive

KIND = "model"
#: Parameters that belong to one fit, not to the model.
LEFT_OUT = ("callback", "checkpoint", "progress")
CLASSES = (
    *("NCARL", "NCARLCV", "BayesianNCARL", "WideNCARL", "BiasModel", "FactoredNuclear"),
    *("FGSR", "LRFD", "Nuclear", "RegL1", "S3LR", "SchattenP", "SoftImpute", "WNNM"),
)
#: Parameters that may be arrays.
ARRAYS = ("graph", "prior", "dictionary")


def save_estimator(
    estimator: Any, path: str | os.PathLike[str], *, training_data: bool
) -> None:
    """Write a fitted estimator; `load` reads it back."""
    header, arrays = described(estimator, training_data=training_data)
    write_archive(path, {"kind": KIND, **header}, arrays)


def described(
    estimator: Any, *, training_data: bool
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A fitted estimator as what JSON can hold, and arrays; see `restored`."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    params, arrays = _split_params(estimator)
    model, model_arrays = estimator._model_state()
    header = {
        "class": type(estimator).__name__,
        "params": params,
        "scalars": {name: getattr(estimator, name) for name in estimator._scalars},
        "model": model,
        "n_features_in": estimator.n_features_in_,
        "extra": estimator._extra_state() if hasattr(estimator, "_extra_state") else {},
    }
    arrays |= model_arrays
    arrays |= {f"history/{name}": col for name, col in estimator.history_.items()}
    if estimator._has_graph:
        arrays |= _sparse_arrays("similarity", estimator.similarity_)
    arrays["unidentified_rows"] = estimator.unidentified_rows_
    arrays["unidentified_columns"] = estimator.unidentified_columns_
    if hasattr(estimator, "feature_names_in_"):
        arrays["feature_names"] = np.asarray(estimator.feature_names_in_, dtype=str)
    if training_data:
        arrays |= _sparse_arrays("training", estimator._training_entries().to_csr())
    return header, arrays


def load(path: str | os.PathLike[str]) -> Any:
    """The fitted estimator that ``save`` wrote to a file.

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
    header, arrays = read_archive(path, KIND)
    if header.get("class") not in CLASSES:
        raise BrokenFileError(
            f"path {str(path)!r} holds a {header.get('class')}, unknown to this ncarl"
        )
    try:
        return restored(header, arrays)
    except KeyError as error:
        raise BrokenFileError(
            f"path {str(path)!r} is damaged: it lacks {error}"
        ) from error


def restored(header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """The fitted estimator that `described` took apart."""
    import ncarl

    params = dict(header["params"])
    params |= {name: arrays[name] for name in ARRAYS if name in arrays}
    packed = [name for name in ARRAYS if f"{name}/data" in arrays]
    params |= {name: _sparse(name, arrays) for name in packed}
    estimator = getattr(ncarl, header["class"])(**_tuples(params))
    estimator._set_model_state(header["model"], arrays)
    for name, value in header["scalars"].items():
        setattr(estimator, name, value)
    estimator.history_ = {
        name.removeprefix("history/"): column
        for name, column in arrays.items()
        if name.startswith("history/")
    }
    if estimator._has_graph:
        estimator.similarity_ = _sparse("similarity", arrays)
    estimator.unidentified_rows_ = arrays["unidentified_rows"]
    estimator.unidentified_columns_ = arrays["unidentified_columns"]
    estimator.n_features_in_ = header["n_features_in"]
    if "feature_names" in arrays:
        estimator.feature_names_in_ = arrays["feature_names"].astype(object)
    kept = _sparse("training", arrays) if "training/data" in arrays else None
    estimator.training_ = None if kept is None else Observed.from_sparse(kept)
    if header["extra"]:
        estimator._set_extra_state(header["extra"])
    return estimator


def _split_params(estimator: Any) -> tuple[dict[str, Any], dict[str, Array]]:
    """Parameters that JSON can hold, and those that are arrays."""
    params = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in LEFT_OUT
    }
    arrays: dict[str, Array] = {}
    for name in ARRAYS:
        given = params.get(name)
        if sparse.issparse(given):
            arrays |= _sparse_arrays(name, sparse.csr_array(given))
            del params[name]
        elif given is not None and not isinstance(given, str):
            arrays[name] = np.asarray(given)
            del params[name]
    if not isinstance(params["engine"], str):
        params["engine"] = "auto"
    return {name: plain(value) for name, value in params.items()}, arrays


def plain(value: Any) -> Any:
    """A NumPy scalar or array as plain Python."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _tuples(params: dict[str, Any]) -> dict[str, Any]:
    """Lists, which is what JSON makes of tuples, as tuples again."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}


def model_state(
    model: KernelModel, prefix: str = ""
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A kernel model as what JSON can hold, and arrays; their names get the prefix."""
    header = {
        "noise": model.kernel.s,
        "mean": model.centre.mean,
        "row_ridge": model.centre.row_ridge,
        "unit": model.unit,
        "sigma": model.sigma,
        "dtype": model.dtype,
    }
    arrays = {
        "K": model.kernel.K,
        "columns": model.centre.columns,
        "spreads": model.centre.spreads,
        "empty": model.empty,
        "fallback": model.fallback,
    }
    if model.kernel.P is not None:
        arrays["P"] = model.kernel.P
    return header, {prefix + name: array for name, array in arrays.items()}


def restored_model(
    header: dict[str, Any], arrays: dict[str, Array], prefix: str = ""
) -> KernelModel:
    """The kernel model that `model_state` described."""
    centre = Centre(
        header["mean"],
        arrays[prefix + "columns"],
        header["row_ridge"],
        arrays[prefix + "spreads"],
    )
    P = arrays.get(prefix + "P")
    return KernelModel(
        kernel=Kernel(arrays[prefix + "K"], P, header["noise"]),
        centre=centre,
        unit=header["unit"],
        sigma=header["sigma"],
        empty=arrays[prefix + "empty"],
        fallback=arrays[prefix + "fallback"],
        dtype=header["dtype"],
    )


def _sparse_arrays(name: str, matrix: Any) -> dict[str, Array]:
    """A CSR matrix as named arrays."""
    return {
        f"{name}/data": matrix.data,
        f"{name}/indices": matrix.indices,
        f"{name}/indptr": matrix.indptr,
        f"{name}/shape": np.asarray(matrix.shape),
    }


def _sparse(name: str, arrays: dict[str, Array]) -> Any:
    """The CSR matrix that named arrays hold."""
    data, indices, indptr, shape = (
        arrays[f"{name}/{part}"] for part in ("data", "indices", "indptr", "shape")
    )
    return sparse.csr_array((data, indices, indptr), shape=tuple(int(s) for s in shape))

"""Saving and loading fitted estimators: a JSON header and arrays, no pickle.

The header describes parameters and fitted attributes; `_pack` puts arrays aside, and
`_unpack` puts them back. Only classes of `MODEL_CLASSES` are ever made from a file. The
checksum of a file detects damage, not tampering, and compiled code does not check
indices: so all that a file holds is checked against rules.

A rule is the kind of a value (one of `TYPES`, or classes of `MODEL_CLASSES`), its shape
if it is an array, its lower bound, and "?" if it may be None. The letters m and n are
the rows and columns of the matrix, other letters any lengths that agree within an
object; ".T" marks the model of a transposed matrix.
"""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ncarl.core.linalg import TILE_SIZE
from ncarl.core.types import Array
from ncarl.dataset import rms_unit
from ncarl.engines import ENGINE_NAMES
from ncarl.estimators.validation import is_pandas_na
from ncarl.exceptions import BrokenFileError
from ncarl.fitting.checkpoint import (
    CSR_PARTS,
    MAX_NUMBER,
    csr_from_arrays,
    csr_to_arrays,
)
from ncarl.io.files import broken_on_error, read_archive
from ncarl.observations import Observations
from ncarl.registry import METHODS
from ncarl.text import shorten
from ncarl.validation import check_choice

MODEL_KIND = "model"
#: Parameters of a run that are not saved with the model.
UNSAVED = ("callback", "checkpoint", "progress")
SAVABLE_CLASSES = ("WideNCARL", *(method.class_name for method in METHODS.values()))
# Classes that models consist of, their modules and the rules of their fields; then
# classes of estimators, and the rules of their fitted attributes.
_TABLE = """
Centering ncarl.centering mean=real column_effects=float64[n] row_ridge=real>=0?
    column_scales=float64[n]>=0
ConformalScores ncarl.bayes.model sorted_scores=float64[k] effective_size=real>=0
GaussianMixture ncarl.bayes.mixture weights=float64[k]>0 means=float64[k,n]
    covariances=float64[k,n,n] shrinkage_rows=real>=0 noise=real>0
Kernel ncarl.core.rows K=float[n,n] P=float[n,n]? s=real>=0
KernelModel ncarl.fitting.kernel_model kernel=Kernel|WideKernel centering=Centering
    unit=unit sigma=real>=0 empty_columns=bool[n] fallback=float64[n] dtype=str
MatrixModel ncarl.fitting.matrix_model X=float64[m,n]? factors=factors? unit=unit
    centering=Centering effects=float64[m] ridge=real>=0?
MixtureModel ncarl.bayes.mixture_model mixture=GaussianMixture
    column_scales=float64[n]>0
NeighborCorrection ncarl.bayes.model n_neighbors=int>0 weight=share std_factor=real>=0
Scaler ncarl.centering unit=unit centering=Centering
TwoSidedModel ncarl.bayes.model scaler=Scaler bounds=ValueBounds
    columns=KernelModel|MixtureModel? rows=KernelModel.T? weight=share
    neighbor_correction=NeighborCorrection?
    std_factors=float64[n]>0? blended_std_factors=float64[n]>0?
ValueBounds ncarl.centering low=bound[n] high=bound[n] levels=value[k]
    ends=int64[n,2]>=0
WideKernel ncarl.wide.rows F=float[n,p] T=csr[n,n] s=real>=0 error=real>=0
BaseCompleter n_features_in_=int>0 feature_names_in_=names[n] history_=table
    training_=csr[m,n]? n_iter_=int>=0 converged_=bool engine_=str
    unidentified_rows_=index[m] unidentified_columns_=index[n]
KernelEstimator model_=KernelModel transposed_=bool similarity_=csr[n,n]
NCARL n_neighbors_=int>=0
WideNCARL n_neighbors_=int>=0 rank_=int>=0
NCARLCV n_neighbors_=int>=0 cv_results_=table best_index_=int>=0 best_params_=dict
    best_error_=statistic alpha_=number>=0 gamma_=number>0? center_=str?
BayesianNCARL model_=TwoSidedModel sides_=str weight_=share neighbor_correction_=dict?
    scores_=ConformalScores blended_scores_=ConformalScores calibration_=statistic
    held_out_coverage_=statistic held_out_error_=statistic side_errors_=dict
    search_=list log_evidence_=statistic training_fingerprint_=str
    prior_strength_=number>=0 indicator_=index[n]?
MatrixEstimator model_=MatrixModel training_fingerprint_=str objective_=statistic
    residual_=statistic rank_=int>=0 gap_=statistic lam_=number>0? path_=list
WNNM C_=statistic
LRFD dictionary_=float64[m,k] penalized_=bool
S3LR labels_=int64[n]>=0 coefficients_=float64[n,n] n_clusters_=int>=0 rounds_=int>=0
BiasModel mean_=number row_effects_=value[m] column_effects_=value[n]
    row_ridge_=number>=0 column_ridge_=number>=0
"""
_LINES = [line.split() for line in re.split(r"\n(?=\w)", _TABLE.strip())]
RULES = {k: dict(x.split("=", 1) for x in v if "=" in x) for k, *v in _LINES}
MODEL_CLASSES = {name: first for name, first, *_ in _LINES if "=" not in first}
RULE = re.compile(r"([\w|]+)(\.T)?(?:\[([\w,]+)\])?(>=0|>0)?(\?)?")
TRANSPOSED = {"m": "n", "n": "m"}
#: Attributes that some fits do not have.
OPTIONAL = {"feature_names_in_", "gap_", "lam_", "path_"}
#: Types of the kinds of values; other kinds are types.
TYPES = {
    "bound": "float64", "csr": "float64 float32", "float": "float64 float32",
    "index": "int64", "names": "object", "number": "float int", "real": "float int",
    "share": "float int", "statistic": "float int", "table": "dict", "unit": "float",
    "value": "float64",
}  # fmt: skip
#: Largest numbers of the kinds, if these are not `MAX_NUMBER`, and smallest ones.
MOST = {"bound": np.inf, "share": 1.0, "unit": 2.0**1023}
MOST |= dict.fromkeys(("csr", "number", "value"), float(np.finfo(np.float64).max))
LEAST = {"share": 0.0, "unit": 2.0**-1000}
#: Asymmetry of a covariance, over its largest entry, that may be due to rounding.
SYMMETRY_TOL = {"float64": 1e-8, "float32": 1e-3}


def estimator_state(
    estimator: Any, *, training_data: bool
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A fitted estimator as a JSON header and arrays."""
    check_is_fitted(estimator)
    arrays: dict[str, Array] = {}
    params = estimator.get_params(deep=False)
    if not isinstance(params["engine"], str):
        params["engine"] = "auto"
    saved = _fitted_rules(type(estimator))
    fitted = {name: value for name, value in vars(estimator).items() if name in saved}
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
        If the file is foreign, damaged or not a valid model. No code in it is executed,
        and all its content is checked; its checksum is no signature, and detects damage
        only, not tampering.

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
    with broken_on_error(path):
        return estimator_from_state(header, arrays)


def estimator_from_state(header: dict[str, Any], arrays: dict[str, Array]) -> Any:
    """The fitted estimator that `estimator_state` described.

    Raises if its state is invalid, usually ValueError; for `broken_on_error`.
    """
    import ncarl  # which imports this module

    check_keys("the header", header, {"version", "kind", "class", "params", "fitted"})
    estimator_class, left = getattr(ncarl, header["class"]), dict(arrays)
    params, fitted = (
        {name: _unpack(part, left) for name, part in header[section].items()}
        for section in ("params", "fitted")
    )
    if left:
        raise ValueError(f"it holds {shorten(', '.join(left), 80)}, which is unused")
    names = set(estimator_class._get_param_names())
    check_keys("params", params, names - set(UNSAVED))
    estimator = estimator_class(**params)
    check_choice("engine", estimator.engine, ENGINE_NAMES)
    estimator._check_all_params()
    _check_fitted(estimator_class, fitted)
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
    (kind, content), *more = part.items()
    if kind == "array":
        return arrays.pop(content)
    if kind == "objects":
        return np.asarray(content, dtype=object)
    if kind == "sparse":
        names = [f"{content}/{part}" for part in CSR_PARTS]
        return csr_from_arrays(content, {name: arrays.pop(name) for name in names})
    if kind == "tuple":
        return tuple(_unpack(inner, arrays) for inner in content)
    if kind == "dict":
        return {name: _unpack(inner, arrays) for name, inner in content.items()}
    ((_, parts),) = more
    values = {name: _unpack(inner, arrays) for name, inner in parts.items()}
    check_keys(content, values, set(RULES[content]))
    return getattr(importlib.import_module(MODEL_CLASSES[content]), content)(**values)


def check_keys(owner: str, found: Any, wanted: set[str]) -> None:
    """Raise if something is missing, or something unknown is there."""
    for name in sorted(wanted ^ set(found)):
        if name in wanted:
            raise KeyError(f"{name} of {owner}")
        raise ValueError(f"{owner} has the unknown part {shorten(name, 80)}")


def _fitted_rules(estimator_class: type) -> dict[str, str]:
    """Rules of all fitted attributes of a class; indices last, as they need shapes."""
    rules: dict[str, str] = {}
    for base in reversed(estimator_class.__mro__):
        rules |= RULES.get(base.__name__, {})
    return dict(sorted(rules.items(), key=lambda item: item[1].startswith("index")))


def _check_fitted(estimator_class: type, fitted: dict[str, Any]) -> None:
    rules, sizes = _fitted_rules(estimator_class), {"n": fitted["n_features_in_"]}
    check_keys("fitted", fitted, set(rules) - (OPTIONAL - set(fitted)))
    for name, rule in rules.items():
        if fitted.get("transposed_") is True and rule in ("KernelModel", "csr[n,n]"):
            rule = re.sub(r"^\w+", r"\g<0>.T", rule)  # the kernel is that of the rows
        if name in fitted:
            _check(fitted[name], rule, sizes, name)
    model, training = fitted["model_"], fitted["training_"]
    fingerprint = fitted.get("training_fingerprint_", "")
    if "sides_" in fitted:
        sides = [side for side in ("columns", "rows") if getattr(model, side)]
        correction = model.neighbor_correction and asdict(model.neighbor_correction)
        valid = fitted["sides_"] == ("both" if len(sides) == 2 else sides[0])
        valid &= fitted["transposed_"] == (sides == ["rows"])
        valid &= fitted["neighbor_correction_"] == correction
    elif "transposed_" in fitted:
        is_wide = type(model.kernel).__name__ == "WideKernel"
        valid = is_wide == (estimator_class.__name__ == "WideNCARL")
        valid &= not (is_wide and fitted["transposed_"])
    else:
        valid = fingerprint.startswith(f"{sizes['m']}x{sizes['n']}-")
    if training is not None:
        entries = fitted["training_"] = Observations.from_sparse(training)
        unit = getattr(model, "scaler", model).unit
        valid &= 0.5 <= rms_unit(entries.values) / unit <= 2.0
        valid &= fingerprint in ("", entries.fingerprint())
    if not valid:
        raise ValueError("its model and its other attributes do not belong together")


def _check(value: Any, rule: str, sizes: dict[str, int], name: str) -> None:
    """Raise ValueError unless a value obeys a rule; ``sizes`` gains its lengths."""
    match = RULE.fullmatch(rule)
    assert match is not None
    kind, transposed, dims, low, optional = match.groups()
    if value is None and optional:
        return
    if transposed:
        turned = {TRANSPOSED.get(d, d): size for d, size in sizes.items()}
        _check(value, rule.replace(".T", ""), turned, name)
        sizes |= {TRANSPOSED.get(d, d): size for d, size in turned.items()}
    elif kind == "factors":
        for part, its in zip(value, ("float64[m,d]", "float64[d,n]"), strict=True):
            _check(part, its, sizes, name)
    elif kind.split("|")[0] in MODEL_CLASSES:
        found = type(value).__name__
        for field, its in RULES[found].items() if found in kind.split("|") else ():
            _check(getattr(value, field), its, sizes, f"{name}/{field}")
        if found not in kind.split("|") or not _is_consistent(value):
            raise ValueError(f"{name} must be a valid {kind}, got {found}")
    elif not _obeys(value, kind, dims, low, sizes, name.rpartition("/")[0]):
        got = shorten(repr(value), 80)
        if hasattr(value, "dtype"):
            got = f"{value.dtype} of shape {value.shape}"
        raise ValueError(f"{name} must be finite and {rule}, {sizes}, got {got}")


def _obeys(
    value: Any, kind: str, dims: str | None, low: str | None, sizes: dict[str, int],
    owner: str,
) -> bool:  # fmt: skip
    is_sparse = sparse.issparse(value)
    numbers = value.data if is_sparse else value
    is_array = isinstance(numbers, np.ndarray)
    dtype = str(numbers.dtype) if is_array else type(value).__name__
    letters, shape = dims.split(",") if dims else [], value.shape if is_array else ()
    if dtype not in TYPES.get(kind, kind).split() or (kind == "csr") != is_sparse:
        return False
    if is_array != bool(dims) or len(shape) != len(letters):
        return False
    if kind == "index":
        inside = (value < sizes.get(letters[0], np.inf)).all()
        return bool(inside and (np.diff(value, prepend=-1) > 0).all())
    for letter, size in zip(letters, shape, strict=True):
        key = letter if letter in "mn" else f"{owner}/{letter}"
        if size != (2 if letter == "2" else sizes.setdefault(key, size)):
            return False
    if kind == "table":
        return len({np.shape(column)[:1] for column in value.values()}) == 1
    if kind == "names":
        return all(isinstance(name, str) for name in value)
    if kind in ("str", "dict", "list", "statistic") or np.size(numbers) == 0:
        return True
    first, last = float(np.min(numbers)), float(np.max(numbers))
    most = MOST.get(kind, MAX_NUMBER)
    least = 0.0 if low else LEAST.get(kind, -most)
    return least <= first and last <= most and not (low == ">0" and first == 0.0)


def _is_consistent(value: Any) -> bool:
    """Whether the fields of an object of a model, valid by themselves, agree."""
    match type(value).__name__:
        case "ConformalScores":
            scores, size = value.sorted_scores, value.effective_size
            in_range = min(1, len(scores)) <= size <= len(scores)
            return bool(in_range and (np.diff(scores) >= 0.0).all())
        case "GaussianMixture":
            whole = abs(float(value.weights.sum()) - 1.0) <= SYMMETRY_TOL["float64"]
            return whole and all(_is_covariance(K) for K in value.covariances)
        case "Kernel":
            return all(_is_covariance(A) for A in (value.K, value.P) if A is not None)
        case "WideKernel":
            variances, T = value.diagonal(), value.T
            tolerance = SYMMETRY_TOL[str(T.dtype)] * variances.max()
            return bool(variances.min() > 0.0 and abs(T - T.T).max() <= tolerance)
        case "KernelModel":
            parts = vars(value.kernel).values()
            return {str(A.dtype) for A in parts if hasattr(A, "dtype")} == {value.dtype}
        case "MatrixModel":
            given = value.X is None, value.factors is None, value.ridge is None
            return given in ((0, 1, 1), (1, 0, 0), (1, 0, 1))
        case "TwoSidedModel":
            sides = [side for side in (value.columns, value.rows) if side]
            one = type(value.columns).__name__ == "KernelModel"
            noisy = one and value.columns.kernel.s > 0.0
            dense = {type(side.kernel).__name__ for side in sides} == {"Kernel"}
            return dense and (noisy or value.neighbor_correction is None)
        case "ValueBounds":
            (starts, stops), low, high = value.ends.T, value.low, value.high
            inside = (starts <= stops).all() and stops.max() <= len(value.levels)
            parts = [
                value.levels[slice(*ends)] for ends in np.unique(value.ends, axis=0)
            ]
            increasing = all((np.diff(part) > 0.0).all() for part in parts)
            ranges = (low <= high) & (low < np.inf) & (high > -np.inf)
            return bool(inside and increasing and ranges.all())
    return True


def _is_covariance(A: Array) -> bool:
    """Whether a matrix is symmetric, its largest entries on a positive diagonal.

    Whether it is positive definite is found when it is factorized.
    """
    largest = float(A.diagonal().max())
    tol = SYMMETRY_TOL[str(A.dtype)] * largest
    if not (A.diagonal().min() > 0.0 and max(-A.min(), A.max()) <= largest + tol):
        return False
    cuts = [slice(k, k + TILE_SIZE) for k in range(0, len(A), TILE_SIZE)]
    tiles = ((i, j) for k, i in enumerate(cuts) for j in cuts[: k + 1])
    return all(np.abs(A[i, j] - A[j, i].T).max() <= tol for i, j in tiles)


def to_builtin(value: Any) -> Any:
    """A NumPy scalar or array as plain Python; NaN for ``pandas.NA``."""
    if is_pandas_na(value):
        return float("nan")
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [to_builtin(item) for item in value]
    return value

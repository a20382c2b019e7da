"""Registry of the estimators: their names, and a function that makes them by name."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MethodInfo:
    """A method of matrix completion."""

    class_name: str  # name of the estimator in `ncarl`
    summary: str  # one-line description


#: Methods by name: the most accurate first, then the paper's own, then baselines.
METHODS = {
    "bayes": MethodInfo(
        "BayesianNCARL", "learned noise and prior, error bars, no tuning"
    ),
    "ncarl-cv": MethodInfo("NCARLCV", "the paper's model, parameters chosen"),
    "ncarl": MethodInfo("NCARL", "the paper's model"),
    "nuclear": MethodInfo("Nuclear", "least nuclear norm, with a certificate"),
    "factored-nuclear": MethodInfo("FactoredNuclear", "the same through two factors"),
    "schatten": MethodInfo("SchattenP", "least sum of singular values to the power p"),
    "wnnm": MethodInfo("WNNM", "weighted nuclear norm"),
    "regl1": MethodInfo("RegL1", "absolute residuals, for outliers"),
    "fgsr": MethodInfo("FGSR", "Schatten 1/2 or 2/3 through groups of two factors"),
    "lrfd": MethodInfo("LRFD", "nuclear norm over a dictionary"),
    "s3lr": MethodInfo("S3LR", "columns in several subspaces"),
    "soft-impute": MethodInfo("SoftImpute", "nuclear norm with noise, strength chosen"),
    "bias": MethodInfo("BiasModel", "row and column effects only"),
}


def available_methods() -> list[str]:
    """Names of the methods, for `make` and the command line's ``--method``.

    Examples
    --------
    >>> from ncarl import available_methods
    >>> "nuclear" in available_methods()
    True
    """
    return list(METHODS)


def make(name: str, **params: Any) -> Any:
    """Make an estimator by the name of its method or class.

    Parameters
    ----------
    name : str
        One of `available_methods`, or the name of an estimator class.
    **params
        Parameters of the estimator.

    Examples
    --------
    >>> from ncarl import make
    >>> make("schatten", p=2 / 3).p == make("SchattenP", p=2 / 3).p
    True
    """
    valid = parameter_names(name)
    for param in params:
        if param not in valid:
            raise TypeError(
                f"{name!r} ({_class_name(name)}) has no parameter {param!r}; it has "
                f"{', '.join(valid)}"
            )
    return _estimator_class(name)(**params)


def parameter_names(name: str) -> list[str]:
    """Names of the parameters of a method's estimator.

    Examples
    --------
    >>> parameter_names("bias")[:2]
    ['callback', 'checkpoint']
    """
    names: list[str] = _estimator_class(name)._get_param_names()
    return names


def _estimator_class(name: str) -> Any:
    return getattr(importlib.import_module("ncarl"), _class_name(name))


def _class_name(name: Any) -> str:
    """Class name of a method, given by its name or class name in any case."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    by_class = {
        method.class_name.lower(): method.class_name for method in METHODS.values()
    }
    wanted = name.lower()
    if wanted in METHODS:
        return METHODS[wanted].class_name
    if wanted in by_class:
        return by_class[wanted]
    near = difflib.get_close_matches(wanted, [*METHODS, *by_class], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"name must be one of {', '.join(METHODS)}, got {name!r}{hint}")

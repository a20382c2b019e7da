"""All ways to complete a matrix, by name."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Method:
    """A way to complete a matrix.

    Attributes
    ----------
    kind : str
        Name of the estimator in `ncarl`.
    summary : str
        What it is, in a line.
    """

    kind: str
    summary: str


#: Name -> method; the most accurate first, then the paper's own, then its rivals.
METHODS = {
    "bayes": Method("BayesianNCARL", "learned noise and prior, error bars, no tuning"),
    "ncarl-cv": Method("NCARLCV", "the paper's model, parameters chosen"),
    "ncarl": Method("NCARL", "the paper's model"),
    "nuclear": Method("Nuclear", "least nuclear norm, with a certificate"),
    "factored-nuclear": Method("FactoredNuclear", "the same through two factors"),
    "schatten": Method("SchattenP", "least sum of singular values to the power p"),
    "wnnm": Method("WNNM", "weighted nuclear norm"),
    "regl1": Method("RegL1", "absolute residuals, for outliers"),
    "fgsr": Method("FGSR", "Schatten 1/2 or 2/3 through groups of two factors"),
    "lrfd": Method("LRFD", "nuclear norm over a dictionary"),
    "s3lr": Method("S3LR", "columns in several subspaces"),
    "soft-impute": Method("SoftImpute", "nuclear norm with noise, strength chosen"),
    "bias": Method("BiasModel", "row and column effects only"),
}


def available_methods() -> list[str]:
    """Names that `make` and the command line's ``--method`` know.

    Examples
    --------
    >>> from ncarl import available_methods
    >>> "nuclear" in available_methods()
    True
    """
    return list(METHODS)


def make(name: str, **params: Any) -> Any:
    """The estimator of a method, by its name or that of its class.

    Parameters
    ----------
    name : str
        One of `available_methods`, or the name of an estimator.
    **params
        Parameters of the estimator.

    Examples
    --------
    >>> from ncarl import make
    >>> make("schatten", p=2 / 3).p == make("SchattenP", p=2 / 3).p
    True
    """
    known = parameters_of(name)
    for param in params:
        if param not in known:
            raise TypeError(
                f"{name!r} ({_kind(name)}) has no parameter {param!r}; it has "
                f"{', '.join(known)}"
            )
    return _estimator(name)(**params)


def parameters_of(name: str) -> list[str]:
    """Names of the parameters of a method.

    Examples
    --------
    >>> parameters_of("bias")[:2]
    ['callback', 'checkpoint']
    """
    names: list[str] = _estimator(name)._get_param_names()
    return names


def _estimator(name: str) -> Any:
    """The class of a method."""
    return getattr(importlib.import_module("ncarl"), _kind(name))


def _kind(name: Any) -> str:
    """Name of the estimator that a method has."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    by_class = {method.kind.lower(): method.kind for method in METHODS.values()}
    wanted = name.lower()
    if wanted in METHODS:
        return METHODS[wanted].kind
    if wanted in by_class:
        return by_class[wanted]
    near = difflib.get_close_matches(wanted, [*METHODS, *by_class], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"name must be one of {', '.join(METHODS)}, got {name!r}{hint}")

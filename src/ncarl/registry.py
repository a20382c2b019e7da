"""Registry of the estimators: their names, and a function that makes them by name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ncarl.text import did_you_mean


@dataclass(frozen=True)
class MethodInfo:
    """A method of matrix completion."""

    class_name: str  # name of the estimator in `ncarl`
    module: str  # module of `ncarl.estimators` that defines it
    color: str  # in figures
    summary: str  # one-line description


# Name, class, module of `ncarl.estimators`, color in figures, summary: the most
# accurate first, then the paper's own, then baselines. The names in `ncarl`, of
# ``--method`` and of saved models come from here.
_TABLE = """
bayes | BayesianNCARL | bayesian | #d55e00 | noise and prior learned, no tuning
ncarl-cv | NCARLCV | ncarl_cv | #0b5fa5 | the paper's model, parameters cross-validated
ncarl | NCARL | ncarl | #0b5fa5 | the paper's model
nuclear | Nuclear | low_rank | #cc6677 | minimum nuclear norm
factored-nuclear | FactoredNuclear | low_rank | #aa9c2f | nuclear norm by two factors
schatten | SchattenP | low_rank | #4f9f78 | minimum Schatten p-norm
wnnm | WNNM | low_rank | #8d4f74 | weighted nuclear norm
regl1 | RegL1 | other_baselines | #6cb8ab | absolute residuals, robust to outliers
fgsr | FGSR | low_rank | #8f7fb8 | Schatten 1/2 or 2/3 norm by two factors
lrfd | LRFD | other_baselines | #c79a6b | nuclear norm over a dictionary
s3lr | S3LR | other_baselines | #b77fb0 | columns in several subspaces
soft-impute | SoftImpute | low_rank | #88bbdd | nuclear norm for noisy data
bias | BiasModel | other_baselines | #6e6e6e | row and column effects only
"""
METHODS = {
    name: MethodInfo(*fields)
    for name, *fields in (line.split(" | ") for line in _TABLE.strip().splitlines())
}


#: Methods of the paper.
PAPER_METHODS = ("ncarl", "ncarl-cv")
#: Methods that the paper compares with, or that are in common use.
BASELINE_METHODS = tuple(m for m in METHODS if m not in ("bayes", *PAPER_METHODS))
#: Methods that are compared by default.
DEFAULT_METHODS = ("bayes", "ncarl-cv", "soft-impute", "nuclear", "bias")
#: Methods that an evaluated method is compared with by default.
DEFAULT_COMPARISON_METHODS = tuple(m for m in DEFAULT_METHODS if m != "ncarl-cv")
#: Imputers of tables of numbers that are compared with the methods.
TABLE_IMPUTERS = {
    "table-imputer": "ncarl.tables.TableImputer",
    "simple-imputer": "SimpleImputer of scikit-learn: column means",
    "knn-imputer": "KNNImputer of scikit-learn, on standardized columns",
    "iterative-imputer": "IterativeImputer of scikit-learn: ridge regressions",
    "chained-forests": "IterativeImputer with random forests, as missForest",
}
#: Methods with prediction intervals.
INTERVAL_METHODS = ("bayes",)
#: Methods that select their centering themselves.
SELF_CENTERING_METHODS = ("bayes", "ncarl-cv")
#: Methods that can be fitted to a table in chunks of rows.
STREAMING_METHODS = ("bayes", "ncarl")


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
                f"{name!r} ({_find_method(name).class_name}) has no parameter "
                f"{param!r}; it has {', '.join(valid)}"
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
    method = _find_method(name)
    module = importlib.import_module(f"ncarl.estimators.{method.module}")
    return getattr(module, method.class_name)


def _find_method(name: Any) -> MethodInfo:
    """A method, given by its name or class name in any case."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r}")
    by_class = {method.class_name.lower(): method for method in METHODS.values()}
    known = METHODS | by_class
    wanted = name.lower()
    if wanted in known:
        return known[wanted]
    hint = did_you_mean(wanted, known)
    raise ValueError(f"name must be one of {', '.join(METHODS)}, got {name!r}{hint}")

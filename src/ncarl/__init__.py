"""Fill in the missing entries of a matrix.

>>> import numpy as np
>>> from ncarl import BayesianNCARL
>>> rng = np.random.default_rng(0)
>>> X = rng.standard_normal((30, 1)) + 0.1 * rng.standard_normal((30, 4))
>>> X[rng.random(X.shape) < 0.2] = np.nan
>>> bool(np.isfinite(BayesianNCARL().fit_transform(X)).all())
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module that holds it; imported on first use, so that
# ``import ncarl`` costs next to nothing.
_HOMES = {
    "BayesianNCARL": "ncarl.estimators.bayesian",
    "NCARL": "ncarl.estimators.ncarl",
    "NCARLCV": "ncarl.estimators.search",
    "StepInfo": "ncarl.loop",
    "Threads": "ncarl.engines",
    "Torch": "ncarl.torch_engine",
    "from_triplets": "ncarl.observed",
    "load": "ncarl.saving",
    "metrics": "ncarl",
}

if TYPE_CHECKING:
    from ncarl import metrics
    from ncarl.engines import Threads
    from ncarl.estimators.bayesian import BayesianNCARL
    from ncarl.estimators.ncarl import NCARL
    from ncarl.estimators.search import NCARLCV
    from ncarl.loop import StepInfo
    from ncarl.observed import from_triplets
    from ncarl.saving import load
    from ncarl.torch_engine import Torch

__all__ = [
    "NCARL",
    "NCARLCV",
    "BayesianNCARL",
    "StepInfo",
    "Threads",
    "Torch",
    "__version__",
    "from_triplets",
    "load",
    "metrics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ncarl' has no attribute {name!r}")
    if name == "metrics":
        return importlib.import_module("ncarl.metrics")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

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
_LAZY_IMPORTS = {
    "BayesianNCARL": "ncarl.estimators.bayesian",
    "BiasModel": "ncarl.estimators.other_baselines",
    "Checkpoint": "ncarl.fitting.checkpoint",
    "Dask": "ncarl.engines.dask",
    "FGSR": "ncarl.estimators.low_rank",
    "FactoredNuclear": "ncarl.estimators.low_rank",
    "LRFD": "ncarl.estimators.other_baselines",
    "NCARL": "ncarl.estimators.ncarl",
    "NCARLCV": "ncarl.estimators.ncarl_cv",
    "Nuclear": "ncarl.estimators.low_rank",
    "RegL1": "ncarl.estimators.other_baselines",
    "S3LR": "ncarl.estimators.other_baselines",
    "SchattenP": "ncarl.estimators.low_rank",
    "SoftImpute": "ncarl.estimators.low_rank",
    "StepInfo": "ncarl.fitting.loop",
    "TableImputer": "ncarl.tables",
    "Threads": "ncarl.engines.threads",
    "Torch": "ncarl.engines.torch",
    "WNNM": "ncarl.estimators.low_rank",
    "WideNCARL": "ncarl.estimators.wide",
    "available_methods": "ncarl.registry",
    "datasets": "ncarl",
    "from_triplets": "ncarl.observations",
    "images": "ncarl",
    "load": "ncarl.estimators.persistence",
    "make": "ncarl.registry",
    "masks": "ncarl",
    "metrics": "ncarl",
    "open_rows": "ncarl.io",
    "panel": "ncarl",
    "plots": "ncarl",
    "ratings": "ncarl",
    "tables": "ncarl",
}

if TYPE_CHECKING:
    from ncarl import (
        datasets,
        images,
        masks,
        metrics,
        panel,
        plots,
        ratings,
        tables,
    )
    from ncarl.engines.dask import Dask
    from ncarl.engines.threads import Threads
    from ncarl.engines.torch import Torch
    from ncarl.estimators.bayesian import BayesianNCARL
    from ncarl.estimators.low_rank import (
        FGSR,
        WNNM,
        FactoredNuclear,
        Nuclear,
        SchattenP,
        SoftImpute,
    )
    from ncarl.estimators.ncarl import NCARL
    from ncarl.estimators.ncarl_cv import NCARLCV
    from ncarl.estimators.other_baselines import LRFD, S3LR, BiasModel, RegL1
    from ncarl.estimators.persistence import load
    from ncarl.estimators.wide import WideNCARL
    from ncarl.fitting.checkpoint import Checkpoint
    from ncarl.fitting.loop import StepInfo
    from ncarl.io import open_rows
    from ncarl.observations import from_triplets
    from ncarl.registry import available_methods, make
    from ncarl.tables import TableImputer

__all__ = [
    "FGSR",
    "LRFD",
    "NCARL",
    "NCARLCV",
    "S3LR",
    "WNNM",
    "BayesianNCARL",
    "BiasModel",
    "Checkpoint",
    "Dask",
    "FactoredNuclear",
    "Nuclear",
    "RegL1",
    "SchattenP",
    "SoftImpute",
    "StepInfo",
    "TableImputer",
    "Threads",
    "Torch",
    "WideNCARL",
    "__version__",
    "available_methods",
    "datasets",
    "from_triplets",
    "images",
    "load",
    "make",
    "masks",
    "metrics",
    "open_rows",
    "panel",
    "plots",
    "ratings",
    "tables",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'ncarl' has no attribute {name!r}")
    if _LAZY_IMPORTS[name] == "ncarl":
        return importlib.import_module(f"ncarl.{name}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

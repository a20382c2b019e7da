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
    "BiasModel": "ncarl.estimators.bias",
    "Checkpoint": "ncarl.checkpoint",
    "Dask": "ncarl.dask_engine",
    "FGSR": "ncarl.estimators.fgsr",
    "FactoredNuclear": "ncarl.estimators.factored_nuclear",
    "LRFD": "ncarl.estimators.lrfd",
    "NCARL": "ncarl.estimators.ncarl",
    "NCARLCV": "ncarl.estimators.search",
    "Nuclear": "ncarl.estimators.nuclear",
    "RegL1": "ncarl.estimators.regl1",
    "S3LR": "ncarl.estimators.s3lr",
    "SchattenP": "ncarl.estimators.schatten",
    "SoftImpute": "ncarl.estimators.soft_impute",
    "StepInfo": "ncarl.loop",
    "TableImputer": "ncarl.tables",
    "Threads": "ncarl.engines",
    "Torch": "ncarl.torch_engine",
    "WNNM": "ncarl.estimators.wnnm",
    "WideNCARL": "ncarl.estimators.wide",
    "available_methods": "ncarl.methods",
    "datasets": "ncarl",
    "from_triplets": "ncarl.observed",
    "images": "ncarl",
    "load": "ncarl.saving",
    "make": "ncarl.methods",
    "masks": "ncarl",
    "metrics": "ncarl",
    "open_rows": "ncarl.sources",
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
    from ncarl.checkpoint import Checkpoint
    from ncarl.dask_engine import Dask
    from ncarl.engines import Threads
    from ncarl.estimators.bayesian import BayesianNCARL
    from ncarl.estimators.bias import BiasModel
    from ncarl.estimators.factored_nuclear import FactoredNuclear
    from ncarl.estimators.fgsr import FGSR
    from ncarl.estimators.lrfd import LRFD
    from ncarl.estimators.ncarl import NCARL
    from ncarl.estimators.nuclear import Nuclear
    from ncarl.estimators.regl1 import RegL1
    from ncarl.estimators.s3lr import S3LR
    from ncarl.estimators.schatten import SchattenP
    from ncarl.estimators.search import NCARLCV
    from ncarl.estimators.soft_impute import SoftImpute
    from ncarl.estimators.wide import WideNCARL
    from ncarl.estimators.wnnm import WNNM
    from ncarl.loop import StepInfo
    from ncarl.methods import available_methods, make
    from ncarl.observed import from_triplets
    from ncarl.saving import load
    from ncarl.sources import open_rows
    from ncarl.tables import TableImputer
    from ncarl.torch_engine import Torch

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
    if name not in _HOMES:
        raise AttributeError(f"module 'ncarl' has no attribute {name!r}")
    if _HOMES[name] == "ncarl":
        return importlib.import_module(f"ncarl.{name}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

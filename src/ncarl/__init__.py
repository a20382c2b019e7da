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

import importlib.util
from typing import TYPE_CHECKING, Any

from ncarl.registry import METHODS

__version__ = "0.1.0"

# Public name -> module that holds it; imported on first use, so that
# ``import ncarl`` costs next to nothing.
_LAZY_IMPORTS = {
    **{m.class_name: f"ncarl.estimators.{m.module}" for m in METHODS.values()},
    "Checkpoint": "ncarl.fitting.checkpoint",
    "Dask": "ncarl.engines.dask",
    "StepInfo": "ncarl.fitting.loop",
    "TableImputer": "ncarl.tables",
    "Threads": "ncarl.engines.threads",
    "Torch": "ncarl.engines.torch",
    "WideNCARL": "ncarl.estimators.wide",
    "available_methods": "ncarl.registry",
    "from_triplets": "ncarl.observations",
    "load": "ncarl.estimators.persistence",
    "make": "ncarl.registry",
    "open_rows": "ncarl.io",
}
_MODULES = ["datasets", "images", "masks", "metrics"]
_MODULES += ["panel", "plots", "ratings", "tables"]

if TYPE_CHECKING:  # once more for type checkers, which cannot follow the dictionary
    from ncarl import (
        datasets as datasets,
        images as images,
        masks as masks,
        metrics as metrics,
        panel as panel,
        plots as plots,
        ratings as ratings,
        tables as tables,
    )
    from ncarl.engines.dask import Dask as Dask
    from ncarl.engines.threads import Threads as Threads
    from ncarl.engines.torch import Torch as Torch
    from ncarl.estimators.bayesian import BayesianNCARL as BayesianNCARL
    from ncarl.estimators.low_rank import (
        FGSR as FGSR,
        WNNM as WNNM,
        FactoredNuclear as FactoredNuclear,
        Nuclear as Nuclear,
        SchattenP as SchattenP,
        SoftImpute as SoftImpute,
    )
    from ncarl.estimators.ncarl import NCARL as NCARL
    from ncarl.estimators.ncarl_cv import NCARLCV as NCARLCV
    from ncarl.estimators.other_baselines import (
        LRFD as LRFD,
        S3LR as S3LR,
        BiasModel as BiasModel,
        RegL1 as RegL1,
    )
    from ncarl.estimators.persistence import load as load
    from ncarl.estimators.wide import WideNCARL as WideNCARL
    from ncarl.fitting.checkpoint import Checkpoint as Checkpoint
    from ncarl.fitting.loop import StepInfo as StepInfo
    from ncarl.io import open_rows as open_rows
    from ncarl.observations import from_triplets as from_triplets
    from ncarl.registry import available_methods as available_methods, make as make
    from ncarl.tables import TableImputer as TableImputer

__all__ = sorted((*_LAZY_IMPORTS, *_MODULES, "__version__"))
if importlib.util.find_spec("matplotlib") is None:
    __all__.remove("plots")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        try:
            return importlib.import_module(f"ncarl.{name}")
        except ModuleNotFoundError as error:
            hint = f"needs {error.name}; install it with pip install 'ncarl[cli]'"
            raise AttributeError(f"ncarl.{name} {hint}") from error
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'ncarl' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return list(__all__)

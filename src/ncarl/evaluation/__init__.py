"""Evaluate and compare methods on a matrix by hiding some of its observed entries.

`evaluate` scores one method and `compare` several; ``ncarl evaluate`` and ``ncarl
compare`` print their results. Read `comparison` first (splits, fits, recommendation),
then `evaluation`. `imputers` adapts imputers of tables, `measure` times a fit, `pool`
runs fits in other processes, and `outputs` writes files and draws figures.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncarl.evaluation.comparison import (
        Comparison as Comparison,
        FitOutcome as FitOutcome,
        MethodSummary as MethodSummary,
        Recommendation as Recommendation,
        SplitPredictions as SplitPredictions,
        compare as compare,
    )
    from ncarl.evaluation.evaluation import (
        ColumnScore as ColumnScore,
        Evaluation as Evaluation,
        LevelScore as LevelScore,
        evaluate as evaluate,
    )

_EVALUATION_NAMES = ["ColumnScore", "Evaluation", "LevelScore", "evaluate"]
_COMPARISON_NAMES = ["Comparison", "FitOutcome", "MethodSummary", "Recommendation"]
_COMPARISON_NAMES += ["SplitPredictions", "compare"]
__all__ = sorted(_EVALUATION_NAMES + _COMPARISON_NAMES)


def __getattr__(name: str) -> Any:
    # Imported on first use: worker processes set the number of threads before NumPy.
    if name not in __all__:
        raise AttributeError(f"module 'ncarl.evaluation' has no attribute {name!r}")
    module = "comparison" if name in _COMPARISON_NAMES else "evaluation"
    return getattr(importlib.import_module(f"ncarl.evaluation.{module}"), name)


def __dir__() -> list[str]:
    return list(__all__)

"""Evaluate and compare methods on a matrix by hiding some of its observed entries.

`evaluate` scores one method and `compare` several; ``ncarl evaluate`` and ``ncarl
compare`` print their results. Read `comparison` first (splits, fits, recommendation),
then `evaluation`. `measure` times a fit, `pool` runs fits in other processes, and
`outputs` writes files and draws figures.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Public name -> module; imported on first use, so that worker processes start fast.
_LAZY_IMPORTS = {
    "ColumnScore": "ncarl.evaluation.evaluation",
    "Comparison": "ncarl.evaluation.comparison",
    "Evaluation": "ncarl.evaluation.evaluation",
    "FitOutcome": "ncarl.evaluation.comparison",
    "LevelScore": "ncarl.evaluation.evaluation",
    "MethodSummary": "ncarl.evaluation.comparison",
    "Recommendation": "ncarl.evaluation.comparison",
    "SplitPredictions": "ncarl.evaluation.evaluation",
    "compare": "ncarl.evaluation.comparison",
    "evaluate": "ncarl.evaluation.evaluation",
}

if TYPE_CHECKING:
    from ncarl.evaluation.comparison import (
        Comparison,
        FitOutcome,
        MethodSummary,
        Recommendation,
        compare,
    )
    from ncarl.evaluation.evaluation import (
        ColumnScore,
        Evaluation,
        LevelScore,
        SplitPredictions,
        evaluate,
    )

__all__ = [
    "ColumnScore",
    "Comparison",
    "Evaluation",
    "FitOutcome",
    "LevelScore",
    "MethodSummary",
    "Recommendation",
    "SplitPredictions",
    "compare",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'ncarl.evaluation' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Panel data: effects of treatments, and missing entries of sensor logs.

`counterfactual` estimates what treated units would have been without their treatment;
`fill_gaps` and `GapFiller` fill missing entries of sensor logs from other sensors and
from nearby times.

Files in reading order:

- ``data.py``: `Panel`, read from frames and arrays, and masks of treated entries;
- ``effects.py``: `counterfactual` and its result, with summary and figures;
- ``model.py``: the completion model of a panel, its selection, and placebos;
- ``gap_filler.py``: `GapFiller`, reading of logs, and seasonality;
- ``kriging.py``, ``kriging_numba.py``: predictions from a space-time covariance.
"""

from ncarl.panel.data import Panel
from ncarl.panel.effects import AverageEffect, Counterfactual, counterfactual
from ncarl.panel.gap_filler import GapFiller, fill_gaps
from ncarl.panel.model import PlaceboTest

__all__ = [
    "AverageEffect",
    "Counterfactual",
    "GapFiller",
    "Panel",
    "PlaceboTest",
    "counterfactual",
    "fill_gaps",
]

"""Panel data: effects of treatments, and missing entries of sensor logs.

Read in this order: `data` (`Panel`, and masks of treated entries), `effects`
(`counterfactual` and its result), `model` (completion of a panel, and placebos),
`gap_filler` (`GapFiller`, logs and seasonality), `kriging` (predictions from a
space-time covariance).
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

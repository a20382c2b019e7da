"""Panels and sensor logs: what would have been, and what was not recorded.

`counterfactual` says what would have become of treated units without their treatment;
`fill_gaps` fills the gaps of sensor logs from neighbours, the hours around and the days
before and after.
"""

from ncarl.panel.average import Average
from ncarl.panel.data import Panel
from ncarl.panel.effects import counterfactual
from ncarl.panel.gaps import GapFiller, fill_gaps
from ncarl.panel.placebo import PlaceboTest
from ncarl.panel.result import Counterfactual

__all__ = [
    "Average",
    "Counterfactual",
    "GapFiller",
    "Panel",
    "PlaceboTest",
    "counterfactual",
    "fill_gaps",
]

"""Figures of what a fit learned, what it filled in, and how far to trust it.

Every function takes a fitted estimator, or plain arrays, and gives a
`matplotlib.figure.Figure`. Pyplot is left alone, so that figures can be made without a
screen and from several threads; `save_figure` writes them, `show` shows them.
"""

from ncarl.plots.course import convergence, spectrum
from ncarl.plots.doubt import draw_uncertainty, uncertainty
from ncarl.plots.gaps import draw_pattern, identifiability
from ncarl.plots.graph import similarity_graph
from ncarl.plots.pictures import Panel, before_after, completion
from ncarl.plots.showing import show
from ncarl.plots.similarity import similarity, similarity_map
from ncarl.plots.style import plain, save_figure
from ncarl.plots.trust import error_bars, reliability, residuals

__all__ = [
    "Panel",
    "before_after",
    "completion",
    "convergence",
    "draw_pattern",
    "draw_uncertainty",
    "error_bars",
    "identifiability",
    "plain",
    "reliability",
    "residuals",
    "save_figure",
    "show",
    "similarity",
    "similarity_graph",
    "similarity_map",
    "spectrum",
    "uncertainty",
]

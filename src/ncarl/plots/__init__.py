"""Figures of fits: what they learned, what they imputed, and how reliable that is.

Every function takes a fitted estimator or plain arrays and returns a
`matplotlib.figure.Figure`. Pyplot is not used, so that figures can be drawn without a
display and from several threads; `save_figure` writes them, `show` shows them.

Files in reading order:

- ``style.py``: colors, labels, saving and showing;
- ``fit.py``: convergence, spectrum, error bars, reliability and residuals, and access
  to fitted estimators;
- ``missing.py``: pattern of missing entries, uncertainty of imputed ones;
- ``similarity.py``: similarity of columns, as heat map and as graph;
- ``images.py``: images and tables before and after completion.
"""

from ncarl.plots.fit import convergence, error_bars, reliability, residuals, spectrum
from ncarl.plots.images import ImagePanel, before_after, completion
from ncarl.plots.missing import (
    draw_pattern,
    draw_uncertainty,
    identifiability,
    uncertainty,
)
from ncarl.plots.similarity import similarity, similarity_graph, similarity_map
from ncarl.plots.style import format_label, save_figure, show

__all__ = [
    "ImagePanel",
    "before_after",
    "completion",
    "convergence",
    "draw_pattern",
    "draw_uncertainty",
    "error_bars",
    "format_label",
    "identifiability",
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

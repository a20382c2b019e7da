"""Figures of a study, each a `matplotlib.figure.Figure`; pyplot is left alone."""

from __future__ import annotations

from ncarl.study.figures_curves import (
    against_neighbors,
    against_rate,
    objective_curves,
)
from ncarl.study.figures_pictures import painted, picture_grid, spectrum
from ncarl.study.figures_proof import proof_chain
from ncarl.study.figures_style import colour_of, save_both
from ncarl.study.figures_tables import table_figure

__all__ = [
    "against_neighbors",
    "against_rate",
    "colour_of",
    "objective_curves",
    "painted",
    "picture_grid",
    "proof_chain",
    "save_both",
    "spectrum",
    "table_figure",
]

"""Draws figures of the pages by running their examples.

``python docs/make_figures.py`` writes them to ``docs/images``, where they are small
enough to be kept beside the pages.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib

HERE = Path(__file__).parent
#: Example -> names of its figures, in order.
FIGURES = {
    "plot_idea": ("idea-kernel", "idea-rows"),
    "plot_quickstart": ("quickstart",),
    "plot_recommend": ("ratings-similar", "ratings-why"),
    "plot_evaluate": (
        "evaluate-columns",
        "evaluate-reliability",
        "evaluate-residuals",
    ),
    "plot_figures": (
        "plot-completion",
        "plot-identifiability",
        "plot-uncertainty",
        "plot-reliability",
        "plot-residuals",
        "plot-similarity",
        "plot-graph",
        "plot-spectrum",
        "plot-convergence",
    ),
}


def draw(example: str, names: tuple[str, ...]) -> None:
    """Run an example and keep its figures."""
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    plt.close("all")
    runpy.run_path(str(HERE.parent / "examples" / f"{example}.py"))
    for number, name in zip(plt.get_fignums(), names, strict=True):
        plt.figure(number).savefig(HERE / "images" / f"{name}.png", dpi=110)


if __name__ == "__main__":
    for example, names in FIGURES.items():
        draw(example, names)

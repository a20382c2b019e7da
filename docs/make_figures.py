"""Draw the figures of the documentation, most of them by running its examples.

``python docs/make_figures.py`` writes them to ``docs/images``, small enough to be
committed.
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


def draw_example(example: str, names: tuple[str, ...]) -> None:
    """Run an example and save its figures."""
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    plt.close("all")
    runpy.run_path(str(HERE.parent / "examples" / f"{example}.py"))
    for number, name in zip(plt.get_fignums(), names, strict=True):
        plt.figure(number).savefig(HERE / "images" / f"{name}.png", dpi=110)


#: Packages from bottom to top: name, contents, and left and right edge.
PACKAGES = (
    (
        ("core", "the row step, kernels, graphs, SVD: functions on arrays", 0.0, 12.0),
    ),
    (
        ("io", "row sources and sinks,\none module per file format", 0.0, 4.0),
        ("observations, blocks", "observed entries as CSR,\ncut into blocks", 4.0, 8.0),
        ("engines", "threads, a GPU, a Dask cluster", 8.0, 12.0),
    ),
    (
        ("dataset, centering, holdout", "passes over all entries; effects and units;\n"
         "held-out entries", 0.0, 7.0),
        ("fitting", "drive, checkpoints,\nthe NCARL iteration", 7.0, 12.0),
    ),
    (
        ("bayes", "EM, selection,\nintervals", 0.0, 4.0),
        ("solvers", "the paper's baselines:\nADMM, proximal, factored", 4.0, 8.0),
        ("wide", "kernels of 50,000\ncolumns and more", 8.0, 12.0),
    ),
    (
        ("estimators", "fit, transform, predict: scikit-learn's interface", 0.0, 12.0),
    ),
    (
        ("images, panel, ratings, tables", "estimators for one kind of data",
         0.0, 7.0),
        ("plots, datasets, html", "figures, data sets, pages", 7.0, 12.0),
    ),
    (
        ("evaluation", "evaluate, compare", 0.0, 6.0),
        ("reproduce", "the paper's study", 6.0, 12.0),
    ),
    (("cli", "one file per command", 0.0, 12.0),),
)  # fmt: skip


def draw_packages() -> None:
    """Draw the packages as layers, each of which imports from those below it."""
    from matplotlib import pyplot as plt
    from matplotlib.patches import FancyBboxPatch

    figure, axes = plt.subplots(figsize=(8.2, 7.4), layout="constrained")
    height, gap = 0.78, 0.36
    for level, packages in enumerate(PACKAGES):
        y = level * (height + gap)
        shade = 1.0 - 0.02 * level
        for name, text, left, right in packages:
            axes.add_patch(
                FancyBboxPatch(
                    (left + 0.1, y),
                    right - left - 0.2,
                    height,
                    boxstyle="round,pad=0.02,rounding_size=0.08",
                    facecolor=(shade - 0.1, shade - 0.03, shade),
                    edgecolor="#3b5b7a",
                )
            )
            middle = (left + right) / 2
            axes.text(middle, y + height - 0.06, name, ha="center", va="top",
                      weight="bold", fontsize=10)  # fmt: skip
            axes.text(middle, y + height - 0.33, text, ha="center", va="top",
                      fontsize=8)  # fmt: skip
        if level:
            arrow = {"arrowstyle": "-|>", "color": "#3b5b7a"}
            axes.annotate("", (6.0, y - gap + 0.02), (6.0, y - 0.02), arrowprops=arrow)
    axes.set_xlim(-0.1, 12.1)
    axes.set_ylim(-0.1, len(PACKAGES) * (height + gap))
    axes.axis("off")
    figure.savefig(HERE / "images" / "architecture.png", dpi=110)


if __name__ == "__main__":
    draw_packages()
    for example, names in FIGURES.items():
        draw_example(example, names)

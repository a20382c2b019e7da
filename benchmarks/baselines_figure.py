"""Plot results/baselines.json: error of each method, and the paper's value.

Usage: python benchmarks/baselines_figure.py results/baselines.json OUT.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

#: Label in the figure -> labels of the exact form and of the form for noisy data.
ROWS = {
    "Nuclear": ("Nuclear", "Nuclear noise"),
    "FactoredNuclear": ("FactoredNuclear", "FactoredNuclear noise"),
    "SchattenP 1/2": ("SchattenP 1/2", "SchattenP 1/2 noise"),
    "SchattenP 2/3": ("SchattenP 2/3", "SchattenP 2/3 noise"),
    "WNNM": ("WNNM", "WNNM noise"),
    "RegL1": ("RegL1", None),
    "FGSR 1/2": ("FGSR 1/2", "FGSR 1/2 noise"),
    "FGSR 2/3": ("FGSR 2/3", "FGSR 2/3 noise"),
    "LRFD": ("LRFD", None),
    "S3LR": ("S3LR", None),
    "SoftImpute, two-way": (None, "SoftImpute two-way"),
    "BiasModel": (None, "BiasModel"),
    "NCARL": ("NCARL", None),
    "BayesianNCARL": (None, "BayesianNCARL"),
}
SET = "500x300, noise 2.4"


def draw_panel(ax, lines, missing):
    """Draw one panel, with a row for each method."""
    found = {
        line["method"]: line
        for line in lines
        if line["set"] == SET and line["missing"] == missing and line["seed"] == 0
    }
    for y, (exact, noisy) in enumerate(ROWS.values()):
        ax.axhline(y, color="0.92", lw=0.8, zorder=0)
        paper = (found.get(exact) or found.get(noisy) or {}).get("paper")
        if paper and exact:
            ax.plot(paper, y, "o", mfc="none", mec="0.4", ms=8)
        for label, marker, color in ((exact, "o", "C0"), (noisy, "D", "C1")):
            if label in found:
                ax.plot(found[label]["error"], y, marker, color=color, ms=5)
    ax.set_xscale("log")
    ax.set_xticks([0.03, 0.05, 0.1, 0.2, 0.3])
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_yticks(range(len(ROWS)), list(ROWS))
    ax.set_title(f"{missing:.0%} missing", fontsize=10)
    ax.set_xlabel("relative error on missing entries")
    ax.spines[["top", "right"]].set_visible(False)


def main():
    source, target = (Path(argument) for argument in sys.argv[1:3])
    lines = json.loads(source.read_text())["lines"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True)
    for ax, missing in zip(axes, (0.8, 0.9), strict=True):
        draw_panel(ax, lines, missing)
    handles = [
        plt.Line2D([], [], marker="o", ls="", mfc="none", mec="0.4", ms=8),
        plt.Line2D([], [], marker="o", ls="", color="C0", ms=5),
        plt.Line2D([], [], marker="D", ls="", color="C1", ms=5),
    ]
    labels = ["printed in the paper", "exact on observed entries", "noisy form"]
    figure.legend(handles, labels, ncols=3, loc="lower center", frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(target, dpi=130)


if __name__ == "__main__":
    main()

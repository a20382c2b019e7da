"""Plot the time of a GPU iteration by part, from results/gpu.json.

Usage: python benchmarks/gpu_figure.py docs/images/gpu.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from fit import PARTS

NAMES = {
    "eigen": "eigendecomposition",
    "kernel": "graph and kernel",
    "rows": "rows",
    "gram": "Gram matrix",
}
COLORS = ("#35618f", "#8fb3d9", "#d98f3f", "#b8b8b8")


def main():
    results = Path(__file__).parent / "results" / "gpu.json"
    content = json.loads(results.read_text())
    lines = [line for line in content["lines"] if line["steps"] > 1]
    figure, axes = plt.subplots(figsize=(7.2, 2.6), layout="constrained")
    for k, line in enumerate(reversed(lines)):
        left = 0.0
        for part, color in zip(PARTS, COLORS, strict=True):
            width = 1e3 * line[f"{part}_s"] / line["steps"]
            label = NAMES[part] if k == 0 else None
            axes.barh(k, width, left=left, color=color, label=label, height=0.62)
            left += width
        seconds = f"{left:.0f} ms; {line['steps']} iterations {line['steps_s']:.2g} s"
        axes.text(left + 1.5, k, seconds, va="center", fontsize=8)
    names = [line["case"].removesuffix(", float64") for line in reversed(lines)]
    axes.set_yticks(range(len(lines)), names, fontsize=8)
    axes.set_xlim(0, 165)
    axes.set_xlabel(f"ms per iteration, {content['versions']['card']}, float64")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(sys.argv[1], dpi=150)


if __name__ == "__main__":
    main()

"""The pictures of ``ncarl demo``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ncarl.cli.demo_cases import CREDIT, Outcome
from ncarl.core.types import Array
from ncarl.plots import Panel, before_after, convergence, save_figure, similarity_map


def draw(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Draw all figures into a folder; the files written."""
    figures: dict[str, Figure] = {}
    for outcome in outcomes:
        name = outcome.case.name
        if not outcome.case.is_table:
            figures[f"{name}.png"] = picture(outcome)
        figures[f"{name}-similarity.png"] = heat_map(outcome)
    curves = {o.case.title: o.estimator.history_["change"] for o in outcomes}
    figures["convergence.png"] = convergence(curves, tol=outcomes[0].estimator.tol)
    return [save_figure(figure, folder / name) for name, figure in figures.items()]


def picture(outcome: Outcome) -> Figure:
    """Before, after and truth of a photograph."""
    case, errors = outcome.case, outcome.errors
    share = case.hidden.mean()
    panels = [
        Panel(case.seen, f"before: {share:.0%} hidden",
              f"the mean in the gaps: error {errors['mean']:.3f}"),
        Panel(outcome.filled, "after: completed by NCARL",
              f"error {errors['ncarl']:.3f}, two-way effects {errors['two-way']:.3f}"),
        Panel(case.truth, "truth", "errors: RMSE on hidden pixels, grey 0 to 1"),
    ]  # fmt: skip
    return before_after(panels, credit=CREDIT)


def heat_map(outcome: Outcome) -> Figure:
    """What the fit learned of its columns: the graph, or the kernel without one."""
    case, est = outcome.case, outcome.estimator
    side = "row" if est.transposed_ else "column"
    if est.alpha_ > 0.0:
        title = f"Learned similarity of {side}s: {case.title}"
        S, label = est.similarity_, "similarity"
    else:
        title = f"Learned correlation of {side}s: {case.title}"
        S, label = correlation(est.kernel_), "correlation (the search chose alpha = 0)"
    names = None if est.transposed_ or not case.is_table else case.columns
    axis = f"{side} of pixels" if not case.is_table else side
    return similarity_map(S, title=title, names=names, label=label, axis=axis)


def correlation(K: Array) -> Array:
    """A covariance with its diagonal brought to one."""
    deviations = np.sqrt(np.diag(K))
    scaled: Array = K / np.outer(deviations, deviations)
    return scaled

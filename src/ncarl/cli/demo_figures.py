"""The pictures of ``ncarl demo``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ncarl.cli.demo_cases import CREDIT, LEVEL, Outcome
from ncarl.core.types import Array
from ncarl.plots import (
    Panel,
    before_after,
    convergence,
    error_bars,
    save_figure,
    similarity_map,
)

#: Hidden cells whose error bars are drawn.
SHOWN = 60


def draw(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Draw all figures into a folder; the files written."""
    figures: dict[str, Figure] = {}
    for outcome in outcomes:
        name = outcome.case.name
        if outcome.case.is_table:
            figures[f"{name}-intervals.png"] = intervals(outcome)
        else:
            figures[f"{name}.png"] = picture(outcome)
        figures[f"{name}-correlation.png"] = heat_map(outcome)
    curves = {o.case.title: o.bayes.history_["change"] for o in outcomes}
    figures["convergence.png"] = convergence(
        curves,
        label="gain in log evidence per observed entry",
        title="Steps of bayes, up to the least error on held-out entries",
    )
    return [save_figure(figure, folder / name) for name, figure in figures.items()]


def picture(outcome: Outcome) -> Figure:
    """Before, after and truth of a photograph."""
    case, errors = outcome.case, outcome.errors
    share = case.hidden.mean()
    panels = [
        Panel(case.seen, f"before: {share:.0%} hidden",
              f"errors: mean {errors['mean']:.3f}, two-way {errors['two-way']:.3f}"),
        Panel(outcome.filled, "after: completed by bayes",
              f"error {errors['bayes']:.3f}; ncarl-cv {errors['ncarl-cv']:.3f}"),
        Panel(case.truth, "truth", "errors: RMSE on hidden pixels, grey 0 to 1"),
    ]  # fmt: skip
    return before_after(panels, credit=CREDIT)


def intervals(outcome: Outcome) -> Figure:
    """Filled values of some hidden cells against the truth, with error bars."""
    case = outcome.case
    i, j = np.nonzero(case.hidden)
    some = np.random.default_rng(0).permutation(len(i))[:SHOWN]
    middle, units = np.nanmean(case.seen, axis=0)[j], case.units()[j]
    truth, filled, low, high = (
        ((values - middle) / units)[some]
        for values in (case.truth[i, j], outcome.filled[i, j],
                       outcome.lower, outcome.upper)
    )  # fmt: skip
    title = (
        f"{LEVEL:.0%} intervals hold {outcome.covered.mean():.1%} of all "
        f"{len(i)} hidden cells;\n{len(some)} of them, drawn by lot"
    )
    unit = "standard deviations from the column's mean"
    return error_bars(truth, filled, low, high, title=title, unit=unit)


def heat_map(outcome: Outcome) -> Figure:
    """What the fit learned of its columns."""
    case, est = outcome.case, outcome.bayes
    side = "row" if est.transposed_ else "column"
    names = None if est.transposed_ or not case.is_table else case.columns
    return similarity_map(
        correlation(est.kernel_),
        title=f"Learned correlation of {side}s: {case.title}",
        names=names,
        label="correlation",
        axis=f"{side} of pixels" if not case.is_table else side,
        most=1.0,
    )


def correlation(K: Array) -> Array:
    """A covariance with its diagonal brought to one."""
    deviations = np.sqrt(np.diag(K))
    scaled: Array = np.clip(K / np.outer(deviations, deviations), -1.0, 1.0)
    return scaled

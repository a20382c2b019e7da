"""What was found in a panel, as a frame and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ncarl.panel.result import Counterfactual

#: More names than this are not listed.
MOST_NAMES = 5


def columns_of(result: Counterfactual) -> dict[str, list[Any]]:
    """The treated units line by line, as columns of a long table."""
    panel = result.panel
    rows, times = np.flatnonzero(result.treated.any(axis=1)), panel.times
    tables = {
        "observed": panel.values,
        "expected": result.expected,
        "low": result.low,
        "high": result.high,
        "effect": result.effect,
        "effect_low": result.effect_low,
        "effect_high": result.effect_high,
    }
    return {
        "unit": [panel.units[k] for k in rows for _ in times],
        "time": list(times) * len(rows),
        "treated": result.treated[rows].ravel().tolist(),
        **{name: table[rows].ravel().tolist() for name, table in tables.items()},
    }


def frame_of(result: Counterfactual) -> Any:
    """The same as a frame, of polars if the panel was."""
    if result.panel.library == "polars":
        import polars as pl

        return pl.DataFrame(columns_of(result)).fill_nan(None)
    import pandas as pd

    return pd.DataFrame(columns_of(result))


def summary_of(result: Counterfactual) -> str:
    """A few lines that say what was found."""
    mean, controls = result.average, int((~result.treated.any(axis=1)).sum())
    names = ", ".join(map(str, result.units[:MOST_NAMES]))
    if len(result.units) > MOST_NAMES:
        names += f" and {len(result.units) - MOST_NAMES} more"
    lines = [
        f"{names}: {int(result.treated.sum())} treated entries, {controls} controls",
        f"average effect {mean.effect:.4g}, " + _interval(result),
        f"error before treatment {result.error_before:.4g}",
    ]
    if result.testable:
        test = result.placebo_test()
        lines.append(
            f"placebo test: error after / before {test.statistic:.3g}, p = "
            f"{test.p_value:.3g} among {len(test.placebos)} placebos"
        )
    return "\n".join(lines)


def _interval(result: Counterfactual) -> str:
    """The interval of the average, or why there is none."""
    mean = result.average
    if not result.calibrated:
        return "no interval: too few control units to tell"
    return f"{100 * mean.level:g}% interval {mean.low:.4g} to {mean.high:.4g}"

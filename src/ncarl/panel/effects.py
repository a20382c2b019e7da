"""The effect of a treatment on some units of a panel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.engines import Engine, pick_engine
from ncarl.estimators.parameters import check_number, check_whole
from ncarl.panel.completing import Completer
from ncarl.panel.data import Panel, as_panel
from ncarl.panel.order import completed_as_given, order_of_units, placebos_as_given
from ncarl.panel.placebo import fits_needed, run_placebos
from ncarl.panel.result import Counterfactual
from ncarl.panel.scale import unit_of
from ncarl.panel.treatment import LEAST_BEFORE, patterns_of, treated_entries
from ncarl.progress import progress_bar
from ncarl.sources.frames import is_frame


def counterfactual(
    data: Any,
    treated: Any = None,
    start: Any = None,
    *,
    unit: str | None = None,
    time: str | None = None,
    value: str | None = None,
    units: str = "rows",
    level: float = 0.9,
    placebos: bool = True,
    random_state: int = 0,
    engine: str | Engine = "auto",
    progress: bool = False,
) -> Counterfactual:
    """What would have been without a treatment, with intervals and a placebo test.

    The treated entries are hidden and filled in from everything else: the units' own
    past and the control units. Then each control unit is hidden in the same way, and
    the errors made there say how wide intervals are and how unusual the effect is.

    Parameters
    ----------
    data : frame, array or Panel
        A wide table with units in rows and times in columns (or the other way round,
        with ``units="columns"``); a long frame with ``unit``, ``time`` and ``value``;
        a `Panel`; or what `ncarl.datasets.load_panel` gives. Gaps are allowed.
    treated : name, list of names, mapping or boolean table
        The treated units, from ``start`` on; a mapping from each unit to its own start;
        or a table of truth values. A frame of them goes by its labels, an array lies
        as ``data`` does: shape (units, times), turned with ``units="columns"``. May be
        left out where ``data`` says it.
    start : label of a time, optional
        The first treated time.
    unit, time, value : str, optional
        Columns of a long frame.
    units : {"rows", "columns"}, default="rows"
        The side of a wide table on which the units are.
    level : float, default=0.9
        What intervals promise.
    placebos : bool, default=True
        Whether control units are taken for treated ones in turn. Without it there is no
        test, and intervals come from five groups of control units.
    random_state : int, default=0
        Seed of the groups of control units, which go by the numbers of the units and
        not by their order.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the work is done.
    progress : bool, default=False
        Show a progress bar.

    Returns
    -------
    Counterfactual
        Effects and intervals entry by entry, their average, tests and figures.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.panel import counterfactual
    >>> rng = np.random.default_rng(0)
    >>> Y = np.outer(rng.random(8), np.arange(8.0)) + 0.1 * rng.random((8, 8))
    >>> Y[0, 6:] += 2.0  # a treatment of the first unit
    >>> result = counterfactual(Y, treated=0, start=6, placebos=False)
    >>> bool(result.average.low < 2.0 < result.average.high)
    True
    """
    panel = as_panel(data, unit, time, value, units)
    if treated is None and not is_frame(data):
        treated = getattr(data, "treated", None)
    if treated is None:
        raise ValueError("treated must say which units are treated, and start when")
    share = check_number("level", level, low=0.0, strict=True)
    if share >= 1.0:
        raise ValueError(f"level must be below 1, got {level!r}")
    seed = check_whole("random_state", random_state, low=0)
    given = None if isinstance(data, Panel) else panel.given
    mask = treated_entries(panel, treated, start, given)
    patterns, _ = patterns_of(mask)
    order = order_of_units(panel.values, mask)
    untreated, controls = _without_treatment(panel.values[order], mask[order])
    scale = unit_of(untreated)
    completer = Completer(untreated / scale, pick_engine(engine))
    fits = fits_needed(len(controls), len(patterns)) if placebos else 0
    with progress_bar(progress, 2 + fits, "panel") as advance:
        rng = np.random.default_rng(seed)
        choice = completer.choose(patterns, controls, rng)
        advance("chosen")
        completed = completer.complete(choice)
        advance("completed")
        runs = None
        if placebos:
            runs = run_placebos(
                completer, choice, patterns, controls, LEAST_BEFORE, advance
            )
    found = Counterfactual(
        panel,
        mask,
        share,
        completed_as_given(completed.in_units(scale), order),
        choice.in_units(scale),
        None if runs is None else placebos_as_given(runs.in_units(scale), order),
        seed,
    )
    _warn_if_unknown(found, len(controls))
    return found


def _without_treatment(values: Array, treated: Array) -> tuple[Array, Array]:
    """The panel with treated entries hidden, and the rows of its control units."""
    # Rows in a row: how a table lies in memory changes the last digits of its sums.
    untreated = np.ascontiguousarray(np.where(treated, np.nan, values))
    known = ~np.isnan(untreated).all(axis=1)
    return untreated, np.flatnonzero(known & ~treated.any(axis=1))


def _warn_if_unknown(found: Counterfactual, controls: int) -> None:
    """Warn where nothing says how far off the expected values may be."""
    if not found.calibrated:
        warnings.warn(
            f"no interval can be given with {controls} control unit"
            f"{'' if controls == 1 else 's'}: none could be hidden and filled in from "
            "the others, to see how far off that is. Ends of intervals are NaN; add "
            "control units",
            stacklevel=3,
        )

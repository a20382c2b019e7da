"""What the summary of ``ncarl complete`` says of the rivals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ncarl.cli.completion import Done
from ncarl.methods import METHODS

#: Parameters that the summary tells elsewhere, or that say nothing of the model.
LEFT_OUT = (
    *("center", "scale", "engine", "progress", "callback", "checkpoint"),
    *("random_state", "max_iter", "tol"),
)


def rival_words(estimator: Any) -> str:
    """What the model is, its centring and the parameters that are not the usual ones.

    Examples
    --------
    >>> from ncarl import Nuclear
    >>> rival_words(Nuclear(solver="svt"))
    'least nuclear norm, with a certificate; center none, solver svt'
    """
    kinds = {method.kind: method.summary for method in METHODS.values()}
    usual = type(estimator)().get_params()
    words = []
    if "center" in usual:
        words.append(f"center {estimator.center or 'none'}")
    words += [
        f"{name} {value}"
        for name, value in estimator.get_params().items()
        if name not in LEFT_OUT and value != usual[name]
    ]
    what = kinds[type(estimator).__name__]
    return f"{what}; {', '.join(words)}" if words else what


def rival_lines(done: Done) -> Iterable[tuple[str, str]]:
    """Rank, residual, proof and chosen strength of a fit."""
    est = done.estimator
    yield "filled", f"{done.missing} entries, rank {est.rank_}"
    of = "values" if "center" in est.get_params() else "values less their mean"
    yield "residual", f"{est.residual_:.2g} of the observed {of}, relative"
    gap = getattr(est, "gap_", math.nan)
    if not math.isnan(gap):
        yield "proof", f"within {gap:.1e} of the least objective, by duality"
    path = getattr(est, "path_", [])
    if path:
        best = min(path, key=lambda tried: tried["error"])
        unit = " of a column's spread" if done.scale else ""
        yield (
            "strength",
            f"lam {est.lam_:.3g}, error {best['error']:.3g}{unit} on held-out entries",
        )

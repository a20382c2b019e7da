"""Checks of the parameters of `TableImputer`."""

from __future__ import annotations

from typing import Any

from ncarl.estimators.parameters import (
    check_choice,
    check_flag,
    check_number,
    check_whole,
)
from ncarl.tables.filling import Ways
from ncarl.tables.schema import Rules

NORMALISE = ("auto", None, "power", "quantile")
ROUNDING = ("integers", "whole", None)
EMPTY = ("leave", "drop")


def checked_rules(est: Any) -> Rules:
    """How columns are to be taken, or an error that names the parameter at fault."""
    check_flag("add_indicator", est.add_indicator)
    if isinstance(est.ignore, str) or not hasattr(est.ignore, "__iter__"):
        raise TypeError(f"ignore must be a list of column names, got {est.ignore!r}")
    return Rules(
        normalise=check_choice("normalise", est.normalise, NORMALISE),
        max_categories=check_whole("max_categories", est.max_categories, low=1),
        ignore=tuple(est.ignore),
        empty=check_choice("empty", est.empty, EMPTY),
    )


def checked_ways(est: Any) -> Ways:
    """How the model is to be learned, or an error that names the parameter."""
    rows = est.prior_rows
    if not (isinstance(rows, str) and rows == "auto"):
        rows = check_number(
            "prior_rows", rows, low=0.0, hint="; 'auto' is one a coordinate"
        )
    return Ways(
        engine=est.engine,
        prior_rows=None if isinstance(rows, str) else rows,
        max_iter=check_whole("max_iter", est.max_iter, low=1),
        tol=check_number("tol", est.tol, low=0.0),
        clip=check_flag("clip", est.clip),
        rounding=check_choice("rounding", est.rounding, ROUNDING),
    )

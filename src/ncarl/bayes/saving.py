"""A two-sided model as arrays and what JSON can hold, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ncarl.bayes.model import TwoSided
from ncarl.bayes.near import NearChoice
from ncarl.bayes.range import Range
from ncarl.bayes.standard import Standard
from ncarl.centre import Centre
from ncarl.core.types import Array
from ncarl.saving import model_state, restored_model

RANGE = ("low", "high", "levels", "ends")


def two_sided_state(model: TwoSided) -> tuple[dict[str, Any], dict[str, Array]]:
    """The model as what JSON can hold, and arrays."""
    centre = model.standard.centre
    header: dict[str, Any] = {
        "unit": model.standard.unit,
        "mean": centre.mean,
        "weight": model.weight,
        "near": None if model.near is None else asdict(model.near),
    }
    arrays = {"standard/columns": centre.columns, "standard/spreads": centre.spreads}
    arrays |= {f"range/{name}": getattr(model.range, name) for name in RANGE}
    for name in ("columns", "rows"):
        side = getattr(model, name)
        if side is not None:
            header[name], further = model_state(side, f"{name}/")
            arrays |= further
    return header, arrays


def restored_two_sided(header: dict[str, Any], arrays: dict[str, Array]) -> TwoSided:
    """The model that `two_sided_state` described."""
    shifts, spreads = arrays["standard/columns"], arrays["standard/spreads"]
    standard = Standard(header["unit"], Centre(header["mean"], shifts, None, spreads))
    limits = Range(*(arrays[f"range/{name}"] for name in RANGE))
    sides = {
        name: restored_model(header[name], arrays, f"{name}/")
        for name in ("columns", "rows")
        if name in header
    }
    columns, rows = sides.get("columns"), sides.get("rows")
    near = header["near"]
    choice = None if near is None else NearChoice(**near)
    return TwoSided(standard, limits, columns, rows, header["weight"], choice)

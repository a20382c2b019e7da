"""What the paper prints, by table, set, missing rate and method."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def printed_figures() -> dict[str, Any]:
    """All printed figures, with their source.

    Examples
    --------
    >>> printed_figures()["tables"]["table1"]["500x300"]["0.8"]["error"]["NCARL"]
    0.0344
    """
    text = files("ncarl.study").joinpath("printed.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def printed(
    table: str, name: str, missing: float, measure: str, method: str
) -> float | str | None:
    """One printed figure: a number, a bound such as "> 3000", or None.

    Parameters
    ----------
    table, name : str
        Table ("table1", "table2", "table4", "fig4") and set ("500x300", "ML-100K").
    missing : float
        Share that is hidden.
    measure : {"error", "seconds"}
        What is wanted.
    method : str
        The method's name in the paper.

    Examples
    --------
    >>> printed("table2", "ML-100K", 0.5, "error", "NCARL")
    0.2787
    """
    content = printed_figures()
    known = content["tables"].get(table) or content["figures"].get(table, {})
    value: float | str | None = (
        known.get(name, {}).get(f"{missing:g}", {}).get(measure, {}).get(method)
    )
    return value

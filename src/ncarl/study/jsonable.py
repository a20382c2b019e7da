"""What JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def jsonable(value: Any) -> Any:
    """A value as JSON can hold it: no NaN, no array scalar, no tuple.

    Examples
    --------
    >>> jsonable({"curve": (1.0, float("nan")), 3: "three"})
    {'curve': [1.0, None], '3': 'three'}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return jsonable(value.tolist())
    return str(value)

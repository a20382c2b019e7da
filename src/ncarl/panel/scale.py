"""Very large and very small numbers: one unit for all, and means that cannot overflow.

Units are powers of two, so that nothing is rounded on the way in and out.
"""

from __future__ import annotations

import numpy as np

from ncarl.core.types import Array


def unit_of(values: Array) -> float:
    """A power of two about as large as the largest number; gaps are passed over."""
    known = np.abs(values[~np.isnan(values)])
    largest = float(known.max()) if known.size else 0.0
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0.0 else 1.0


def held(values: Array) -> Array:
    """Values with overflow held at the largest float."""
    largest = np.finfo(np.float64).max
    return np.clip(values, -largest, largest)


def root_mean_square(values: Array) -> float:
    """Root mean square of the numbers that are known.

    Examples
    --------
    >>> import numpy as np
    >>> root_mean_square(np.array([3e300, np.nan, 3e300]))
    3e+300
    """
    unit = unit_of(values)
    return float(np.sqrt(np.nanmean(np.square(values / unit)))) * unit


def mean_of(values: Array) -> float:
    """Mean of numbers whose sum may be too large."""
    unit = unit_of(values)
    return float(np.mean(values / unit)) * unit

"""A picture filled as one matrix, the way the paper does it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from ncarl.core.types import Array
from ncarl.estimators.ncarl import NCARL

#: Weight of the graph, neighbours and steps: the setting for photographs.
ALPHA, NEIGHBOURS, STEPS = 100.0, 10, 20


def filled_as_matrix(
    values: Array, known: Array, heard: Callable[[str], None]
) -> Array:
    """Every channel completed by `NCARL` on its own; (channels, height, width).

    Parameters
    ----------
    values : array of shape (channels, height, width)
        What is known; anything elsewhere.
    known : array of bool, shape (channels, height, width)
        Whether a pixel is known.
    heard : callable
        Called with a text after each channel.
    """
    result = values.astype(np.float64)
    for k, (channel, there) in enumerate(zip(result, known, strict=True)):
        if not there.all():
            channel[:] = _completed(np.where(there, channel, np.nan))
        heard(f"channel {k + 1}")
    return result


def _completed(X: Array) -> Array:
    """One channel without gaps."""
    model = NCARL(alpha=ALPHA, n_neighbors=NEIGHBOURS, max_iter=STEPS, engine="threads")
    with warnings.catch_warnings():
        # Rows without a known pixel get the mean, and twenty steps need not settle.
        warnings.simplefilter("ignore")
        filled: Array = model.fit(X).transform(X)
    return filled

"""A picture filled as one matrix, the way the paper does it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from ncarl.core.types import Array
from ncarl.estimators.ncarl import NCARL

#: The paper's setting for pictures.
ALPHA, NEIGHBOURS, STEPS = 100.0, 10, 20


def filled_as_matrix(
    values: Array, known: Array, heard: Callable[[], None]
) -> tuple[Array, Array]:
    """Every channel completed by `NCARL`, and variances of filled pixels.

    Parameters
    ----------
    values : array of shape (channels, height, width)
        What is known; anything elsewhere.
    known : array of bool, shape (channels, height, width)
        Whether a pixel is known.
    heard : callable
        Called after each channel.
    """
    result, variance = values.astype(np.float64), np.zeros(values.shape)
    for channel, there, spread in zip(result, known, variance, strict=True):
        if not there.all():
            channel[:], spread[:] = _completed(channel, there)
        heard()
    return result, variance


def _completed(channel: Array, there: Array) -> tuple[Array, Array]:
    """One channel, and variances of its filled pixels."""
    X = np.where(there, channel, np.nan)
    # Pictures are far from zero mean; the model sees them less their mean.
    model = NCARL(
        alpha=ALPHA, n_neighbors=NEIGHBOURS, max_iter=STEPS, center="mean",
        engine="threads",
    )  # fmt: skip
    with warnings.catch_warnings():
        # Rows without a known pixel get the mean, and twenty steps need not settle.
        warnings.simplefilter("ignore")
        filled, deviation = model.fit(X).transform(X, return_std=True)
    return filled, np.where(there, 0.0, deviation**2)

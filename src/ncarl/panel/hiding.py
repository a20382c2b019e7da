"""Known entries of a log that are hidden, to be filled in and learned from."""

from __future__ import annotations

import numpy as np

from ncarl.core.types import Array

#: Known entries that are filled in to choose, and to find out how wide intervals are.
MOST_ASKED = 20_000
#: Part of the entries that is hidden where the log has no gaps to go by.
SOME = 0.05


def hidden_alike(
    there: Array, rng: np.random.Generator
) -> tuple[Array, tuple[Array, Array]]:
    """Known entries that lie as the gaps do, some time later; and some of them.

    Those are hidden all together and some are asked about.
    """
    steps = len(there)
    shift = int(rng.integers(1, steps)) if steps > 1 else 0
    hidden = np.roll(~there, shift, axis=0) & there
    if not hidden.any():
        hidden = there & (rng.random(there.shape) < SOME)
    if not hidden.any():
        # A short log without gaps: one entry of each sensor.
        hidden[np.argmax(there, axis=0), np.arange(there.shape[1])] = there.any(axis=0)
    # A sensor keeps half of its entries at least.
    most = there.sum(axis=0) // 2
    for lost in np.flatnonzero(hidden.sum(axis=0) > most):
        kept = rng.permutation(np.flatnonzero(hidden[:, lost]))[most[lost] :]
        hidden[kept, lost] = False
    t, j = np.nonzero(hidden)
    if len(t) > MOST_ASKED:
        some = np.sort(rng.choice(len(t), MOST_ASKED, replace=False))
        t, j = t[some], j[some]
    return hidden, (t, j)

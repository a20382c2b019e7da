"""What is believed of the correlation of columns before any value is seen.

Which entries are there at all is information: who rated the one film is likelier than
others to have rated the other. Its kernel, mixed with the identity, is the prior
correlation; features of the columns can be mixed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from ncarl.core.linalg import identity_like, symmetrised
from ncarl.core.rows import first_gram
from ncarl.core.types import Array, Block
from ncarl.engines import Engine
from ncarl.observed import Observed
from ncarl.preparing import as_one_block
from ncarl.surveys import Entries

#: Rows count by ``(entries + this) ** -1/2``: one with many entries says less by each.
ROW_RIDGE = 10.0
#: Part of the identity in the prior correlation.
OWN_SHARE = 0.5
#: Centred variances below this are none: every row has the column.
NO_VARIANCE = 1e-9


def prior_correlation(entries: Entries, prior: Any, engine: Engine) -> Array:
    """The prior correlation of the columns, where the engine keeps n x n arrays.

    Parameters
    ----------
    entries : Entries
        The entries.
    prior : {"co-observation", "identity"} or array
        The kernel of the pattern; none; features of the columns, shape (n, d), beside
        the kernel of the pattern; or the correlation itself, shape (n, n).
    engine : Engine
        Where to work.
    """
    n, home = len(entries.survey.column_counts), engine.home
    if isinstance(prior, str) and prior == "identity":
        return home.send(np.eye(n))
    if not isinstance(prior, str) and prior.shape[0] == prior.shape[1]:
        return home.send(prior / prior.diagonal().mean())
    C = co_observation(entries, engine)
    with home.work(n):
        if not isinstance(prior, str):
            C = (C + home.send(feature_correlation(prior))) * 0.5
        return C * (1.0 - OWN_SHARE) + identity_like(C) * OWN_SHARE


@dataclass(frozen=True)
class Marks:
    """Marks in the place of values, weaker where a row has many."""

    def rows(self, observed: Observed) -> Observed:
        """The marks of the entries."""
        weights = (observed.row_counts + ROW_RIDGE) ** -0.25
        return observed.with_values(np.repeat(weights, observed.row_counts))

    def __call__(self, chunk: Observed) -> Block:
        """The marks of a chunk as one block."""
        return as_one_block(self.rows(chunk))


def co_observation(entries: Entries, engine: Engine) -> Array:
    """Correlation of the columns' patterns, centred; columns without one decouple."""
    A = engine.total(first_gram, entries.placed(engine, Marks()))
    survey = entries.survey
    seen = survey.column_counts > 0
    with engine.home.work(len(seen)):
        live = engine.home.send(seen.astype(np.float64))
        C = _unit_diagonal(_centred(_unit_diagonal(A), live))
        return _beyond_chance(C, survey.seen_rows, int(seen.sum()))


def _centred(A: Array, live: Array) -> Array:
    """``A`` without the means of its rows and columns, taken over live ones."""
    xp = array_namespace(A)
    count = xp.sum(live)
    both = live[:, None] * live[None, :]
    A = A * both
    means = xp.sum(A, axis=0) / count
    return (A - means[:, None] - means[None, :] + xp.sum(means) / count) * both


def _unit_diagonal(A: Array) -> Array:
    """``A`` scaled to a diagonal of ones; what has no variance decouples."""
    xp = array_namespace(A)
    variances = xp.linalg.diagonal(A)
    some = variances > NO_VARIANCE
    ones = xp.ones_like(variances)
    scales = xp.where(some, 1.0 / xp.sqrt(xp.where(some, variances, ones)), 0.0 * ones)
    A = A * scales[:, None] * scales[None, :]
    alone = identity_like(A) * xp.where(some, 0.0 * ones, ones)[:, None]
    return symmetrised(A + alone)


def _beyond_chance(C: Array, m: int, n: int) -> Array:
    """Correlations shrunk by what they would be if entries were there by chance.

    Patterns of ``m`` rows that have nothing to do with each other correlate by about
    ``m ** -1/2``, and ``n`` that are centred by ``-1 / (n - 1)``; if that is all there
    is, nothing is left.
    """
    xp = array_namespace(C)
    if n < 2:
        return C
    eye = identity_like(C)
    off = C - eye
    size = xp.sum(off * off) / (n * (n - 1.0))
    least = xp.asarray(1e-300, dtype=C.dtype, device=device(C))
    chance = 1.0 / m + 1.0 / (n - 1.0) ** 2
    share = xp.clip(1.0 - chance / xp.maximum(size, least), 0.0, 1.0)
    return eye + off * share


def feature_correlation(features: Array) -> Array:
    """Correlation of columns by their features, each brought to one scale first."""
    spread = features.std(axis=0)
    Z = (features - features.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    return _unit_diagonal(Z @ Z.T)

"""The norm of a matrix that changes little from step to step."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.types import Array

#: Vectors and steps with which a norm is estimated, and the margin on it.
PROBES, STEPS, MARGIN = 4, 4, 1.05


def first_probe(n: int) -> Any:
    """Vectors that no matrix is likely to know nothing of."""
    return np.random.default_rng(0).standard_normal((n, PROBES))


def norm_bound(A: Array, probe: Array) -> tuple[float, Array]:
    """The largest singular value and a margin, and vectors that A stretches most.

    Started from the vectors of a matrix not far from this one, a few steps of the
    power method are enough.
    """
    xp = array_namespace(A)
    for _ in range(STEPS):
        probe = A.T @ (A @ probe)
        lengths = xp.linalg.vector_norm(probe, axis=0)
        probe = probe / xp.where(lengths > 0.0, lengths, xp.ones_like(lengths))
    return MARGIN * float(xp.max(xp.linalg.vector_norm(A @ probe, axis=0))), probe

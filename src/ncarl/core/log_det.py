"""Determinants of covariance matrices, which the evidence is made of."""

from __future__ import annotations

import numpy as np
from array_api_compat import is_torch_array
from scipy.linalg import get_lapack_funcs

from ncarl.core.linalg import factor_or_none, mirrored
from ncarl.core.types import Array


def spd_log_det(A: Array) -> Array:
    """``log|A|`` of a symmetric matrix; NaN where it is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> round(float(spd_log_det(np.diag([1.0, np.e]))), 9)
    1.0
    """
    if is_torch_array(A):
        from ncarl.core import linalg_torch

        return linalg_torch.spd_log_det(A)
    factor = factor_or_none(A)
    return np.float64(np.nan) if factor is None else _log_det_of(factor)


def spd_log_det_and_trace(A: Array, W: Array) -> tuple[Array, Array]:
    """``log|A|`` and ``tr(W A^-1)``; NaN where ``A`` is not positive definite.

    For NumPy arrays and torch tensors; ``W`` is symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> found = spd_log_det_and_trace(np.diag([1.0, np.e]), np.eye(2))
    >>> [round(float(x), 4) for x in found]
    [1.0, 1.3679]
    """
    if is_torch_array(A):
        from ncarl.core import linalg_torch

        return linalg_torch.spd_log_det(A), (linalg_torch.spd_inverse(A) * W).sum()
    factor = factor_or_none(A)
    if factor is None:
        return np.float64(np.nan), np.float64(np.nan)
    log_det = _log_det_of(factor)
    (potri,) = get_lapack_funcs(("potri",), (factor,))
    lower, _ = potri(factor, lower=True, overwrite_c=True)
    return log_det, np.einsum("ij,ij->", mirrored(lower), W)


def _log_det_of(factor: Array) -> Array:
    """``log|L L^T|`` of a factor."""
    return 2.0 * np.sum(np.log(factor.diagonal()))

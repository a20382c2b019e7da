"""Pooling of the estimates of several imputations by Rubin's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ncarl.core.types import Array
from ncarl.validation import check_fraction, check_number


@dataclass(frozen=True)
class PooledEstimate:
    """Estimates of several imputations as one, with the uncertainty of both sources.

    Fields are floats if one number was estimated, else arrays of shape (p,).

    Attributes
    ----------
    estimate, std_error : float or array
        Mean of the estimates, and square root of its total variance.
    variance, within, between : float or array
        Total variance, mean of the variances of the estimates, and variance of the
        estimates. Matrices of shape (p, p) if covariances were given.
    dof, low, high, p_value : float or array
        Degrees of freedom of the t distribution of the estimate, its interval of
        nominal coverage ``level``, and its two-sided p-value against 0.
    relative_increase, fraction_missing_information : float or array
        Relative increase of the variance by missing values, and fraction of the
        information about the number that is missing.
    n_imputations, level : int and float
        Number of imputations, and nominal coverage of the interval.
    names : tuple of str, or None
        Names of the estimates, of pandas Series.
    """

    estimate: Any
    variance: Any
    within: Any
    between: Any
    std_error: Any
    dof: Any
    low: Any
    high: Any
    p_value: Any
    relative_increase: Any
    fraction_missing_information: Any
    n_imputations: int
    level: float
    names: tuple[str, ...] | None = None

    def summary(self) -> Any:
        """A pandas frame with a row for each estimate, its interval and p-value."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "summary needs pandas; install it with pip install pandas, or use the "
                "fields of the result"
            ) from error
        columns = (
            *("estimate", "std_error", "dof", "low", "high", "p_value"),
            "fraction_missing_information",
        )
        data = {name: np.atleast_1d(getattr(self, name)) for name in columns}
        return pd.DataFrame(data, index=None if self.names is None else [*self.names])


def pool(
    estimates: Any,
    variances: Any,
    *,
    complete_dof: float | None = None,
    level: float = 0.95,
) -> PooledEstimate:
    """Pool the estimates of several imputations by Rubin's rules.

    Impute a table several times, estimate the same numbers from each completed table
    as if it were complete, and pool the results: intervals and p-values then include
    the uncertainty of the imputed values.

    Parameters
    ----------
    estimates : array of shape (n_imputations,) or (n_imputations, p)
        The estimates of each imputation; also a list of pandas Series with the same
        index, such as ``params`` of statsmodels.
    variances : array of the same shape, or of shape (n_imputations, p, p)
        Squared standard errors, or covariance matrices, of the estimates.
    complete_dof : float, optional
        Degrees of freedom that the estimates would have without missing values, such as
        rows minus parameters of a regression. None for a large sample, or if unknown.
    level : float, default=0.95
        Nominal coverage of the intervals.

    Returns
    -------
    PooledEstimate
        Estimates, variances, intervals and p-values.

    Notes
    -----
    With the mean ``U`` of the variances and the variance ``B`` of ``m`` estimates, the
    total variance is ``T = U + (1 + 1/m) B``. Without ``complete_dof`` the degrees of
    freedom are ``(m - 1) (1 + 1/r)**2`` with ``r = (1 + 1/m) B / U`` [1]_, else those
    of [2]_, which never exceed ``complete_dof``.

    References
    ----------
    .. [1] D. B. Rubin, "Multiple Imputation for Nonresponse in Surveys", Wiley, 1987.
    .. [2] J. Barnard and D. B. Rubin, "Small-sample degrees of freedom with multiple
       imputation", Biometrika 86, 1999.

    Examples
    --------
    The mean of a column in five imputations:

    >>> import numpy as np
    >>> from ncarl.tables import pool
    >>> means = np.array([10.2, 9.8, 10.5, 10.1, 9.9])
    >>> squared_errors = np.array([0.25, 0.24, 0.26, 0.25, 0.25])
    >>> pooled = pool(means, squared_errors, complete_dof=99)
    >>> print(f"{pooled.estimate:.2f}, {pooled.low:.2f} to {pooled.high:.2f}")
    10.10, 8.91 to 11.29
    """
    level = check_fraction("level", level, strict=True)
    if complete_dof is not None:
        complete_dof = check_number("complete_dof", complete_dof, low=0.0, strict=True)
    names = _common_names(estimates, variances)
    Q, U = _as_floats("estimates", estimates), _as_floats("variances", variances)
    _check_shapes(Q, U)
    m, has_covariances = len(Q), U.ndim == 3
    within = U.mean(axis=0)
    shifts = Q - Q[0]  # exactly 0 if the estimates are the same
    centered = shifts - shifts.mean(axis=0)
    squares = centered.T @ centered if has_covariances else np.sum(centered**2, axis=0)
    between = squares / (m - 1)
    total = within + (1.0 + 1.0 / m) * between
    own, extra, T = (
        np.diag(V) if has_covariances else V for V in (within, total - within, total)
    )
    # The fraction of the variance that imputation adds; none if there is no variance.
    share = np.divide(extra, T, out=np.zeros_like(T), where=T > 0.0)
    increase = np.divide(extra, own, out=np.full_like(T, np.inf), where=own > 0.0)
    increase = np.where(extra > 0.0, increase, 0.0)
    dof = _degrees_of_freedom(share, m, complete_dof)
    estimate, std_error = Q.mean(axis=0), np.sqrt(T)
    reach = stats.t.ppf(0.5 + level / 2.0, dof) * std_error
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(estimate == 0.0, 0.0, np.abs(estimate) / std_error)
    # The information that is missing, of a t distribution with `dof`.
    missing = np.where(extra > 0.0, share + (1.0 - share) * 2.0 / (dof + 3.0), 0.0)
    p_value = 2.0 * stats.t.sf(statistic, dof)
    fields: list[Any] = [
        *(estimate, total, within, between, std_error, dof, estimate - reach),
        *(estimate + reach, p_value, increase, missing, m, level, names),
    ]
    if Q.ndim == 1:
        arrays = np.generic, np.ndarray
        fields = [float(x) if isinstance(x, arrays) else x for x in fields]
    return PooledEstimate(*fields)


def _degrees_of_freedom(share: Array, m: int, complete_dof: float | None) -> Array:
    """Degrees of freedom for the fraction of the variance that imputation adds."""
    with np.errstate(divide="ignore"):
        rubin = (m - 1) / np.square(share)
    if complete_dof is None:
        return rubin
    observed = (complete_dof + 1.0) / (complete_dof + 3.0) * complete_dof
    observed = observed * (1.0 - share)
    both = observed / (1.0 + observed / rubin)  # the sum of the inverses, inverted
    both = np.where(observed > 0.0, both, np.minimum(rubin, complete_dof))
    return np.where(share > 0.0, both, complete_dof)


def _common_names(*groups: Any) -> tuple[str, ...] | None:
    """The names of the estimates, if all are pandas Series with the same index."""
    first = None
    for name, parts in zip(("estimates", "variances"), groups, strict=True):
        for number, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
            index = getattr(part, "index", None)
            if index is None or callable(index):  # a list has a method `index`
                continue
            first = index if first is None else first
            if not first.equals(index):
                raise ValueError(
                    f"{name}[{number}] must have the same index as the other Series, "
                    f"{list(first)}, got {list(index)}"
                )
    return None if first is None else tuple(str(label) for label in first)


def _as_floats(name: str, values: Any) -> Array:
    try:
        parts = [*values] if isinstance(values, list | tuple) else np.asarray(values)
        array = np.array([np.asarray(part, np.float64) for part in parts])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be numbers, with the same shape in every imputation: {error}"
        ) from error
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers, got NaN or infinity")
    return array


def _check_shapes(Q: Array, U: Array) -> None:
    if Q.ndim not in (1, 2):
        raise ValueError(
            "estimates must have shape (n_imputations,) or (n_imputations, p), got "
            f"{Q.shape}"
        )
    if len(Q) < 2:
        raise ValueError(
            f"estimates must be of at least 2 imputations, got {len(Q)}; the variance "
            "between imputations is unknown otherwise"
        )
    shapes = [Q.shape] if Q.ndim == 1 else [Q.shape, (*Q.shape, Q.shape[1])]
    if U.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(
            f"variances must have shape {wanted} for these estimates, got {U.shape}"
        )
    diagonals = np.diagonal(U, axis1=1, axis2=2) if U.ndim == 3 else U
    if (diagonals < 0.0).any():
        raise ValueError(
            f"variances must not be negative, got {diagonals.min():g}; they are the "
            "squares of standard errors"
        )
    if U.ndim == 3 and not np.allclose(U, np.swapaxes(U, 1, 2), rtol=1e-6):
        raise ValueError("variances must be symmetric covariance matrices")

"""Imputers of tables of numbers as methods of a comparison: ours and scikit-learn's.

They fill a dense array in memory, so they cannot be fitted to every matrix, and some of
them take long if there are many columns; `select_methods` decides.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ncarl.centering import compare_column_units
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines.cores import limit_blas_threads
from ncarl.observations import Observations
from ncarl.registry import DEFAULT_METHODS, METHODS, TABLE_IMPUTERS
from ncarl.text import join_names

#: Matrices with more cells, or a smaller fraction of observed ones, are not imputed.
MAX_CELLS, MIN_OBSERVED_FRACTION = 20_000_000, 0.1
#: A matrix whose columns have one unit counts as a table with at most this many columns
#: and at least this fraction of observed entries.
MAX_TABLE_COLUMNS, MIN_TABLE_FRACTION = 100, 0.5
#: Imputers whose fit would take longer, by a rough estimate, are not a default.
MAX_DEFAULT_SECONDS = 30.0
#: Random forests: number of trees; columns from which a split tries the square root of
#: their number instead of half, and from which only some of them are predictors.
N_TREES, MIN_SQRT_COLUMNS, MIN_SUBSET_COLUMNS, N_NEAREST_FEATURES = 60, 40, 50, 30
#: Python code that imputes a table as the method does.
PYTHON_CODE = {
    "table-imputer": "ncarl.tables.TableImputer().fit_transform(X)",
    "simple-imputer": "sklearn.impute.SimpleImputer().fit_transform(X)",
    "knn-imputer": "sklearn.impute.KNNImputer() on standardized columns",
    "iterative-imputer": "sklearn.impute.IterativeImputer().fit_transform(X)",
    "chained-forests": "ncarl.evaluation.imputers.make_imputer('chained-forests', "
    "X.shape[1]).fit_transform(X)",
}


def make_imputer(
    method: str, n_columns: int, *, random_state: int = 0, n_jobs: int = 1
) -> Any:
    """The imputer of a method, for arrays with a number of columns."""
    if method == "table-imputer":
        from ncarl.tables import TableImputer

        imputer = TableImputer()
        wanted = {"random_state": random_state, "n_jobs": n_jobs}
        known = imputer.get_params()
        return imputer.set_params(**{k: v for k, v in wanted.items() if k in known})
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

    if method == "simple-imputer":
        return SimpleImputer(keep_empty_features=True)
    if method == "knn-imputer":
        return KNNImputer(keep_empty_features=True)
    common = {"random_state": random_state, "keep_empty_features": True}
    if method == "iterative-imputer":
        return IterativeImputer(**common)
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        N_TREES,
        max_features="sqrt" if n_columns >= MIN_SQRT_COLUMNS else 0.5,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    subset = n_columns >= MIN_SUBSET_COLUMNS
    return IterativeImputer(
        forest,
        max_iter=2 if subset else 3,
        n_nearest_features=N_NEAREST_FEATURES if subset else None,
        **common,
    )


class ImputerAdapter:
    """An imputer of arrays with the `fit` and `predict` of our estimators.

    Columns are standardized for ``knn-imputer``, which computes distances of rows.
    """

    engine_ = ""  # only our estimators have one

    def __init__(self, method: str, *, random_state: int = 0, n_jobs: int = 1) -> None:
        self.method, self.random_state, self.n_jobs = method, random_state, n_jobs

    @limit_blas_threads(1)
    def fit(self, X: Any) -> Self:
        """Impute the entries that a sparse matrix or an array does not have."""
        dense = X
        if not isinstance(X, np.ndarray):
            entries = X.tocoo()
            dense = np.full(X.shape, np.nan)
            dense[entries.row, entries.col] = entries.data
        params = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        imputer = make_imputer(self.method, dense.shape[1], **params)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if self.method == "knn-imputer":
                from sklearn.preprocessing import StandardScaler

                scaler = StandardScaler()
                filled = imputer.fit_transform(scaler.fit_transform(dense))
                filled = scaler.inverse_transform(filled)
            else:
                filled = imputer.fit_transform(dense)
        if (gaps := np.isnan(filled)).any():  # in rows without any observed entry
            means = Observations.from_dense(dense).column_means()
            filled = np.where(gaps, means, filled)
        self.filled_: Array = filled
        #: None if the imputer is not iterative; forests stop after a few rounds.
        self.converged_: bool | None = None
        if self.method in ("table-imputer", "iterative-imputer"):
            kinds = [one.category for one in caught]
            self.converged_ = not any(issubclass(k, ConvergenceWarning) for k in kinds)
        return self

    def predict(self, i: Any, j: Any) -> Array:
        """Imputed values at the positions ``(i, j)``."""
        return self.filled_[i, j]


def select_methods(
    methods: str | Iterable[str], observed: Observations
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Methods for a matrix, and why others of the wanted set are left out.

    "auto" is `DEFAULT_METHODS` and, in a table, the `TABLE_IMPUTERS` whose fits do not
    take long; "all" is every method that can be fitted to the matrix. Names of imputers
    that cannot are an error.
    """
    obstacle = find_obstacle(observed)
    if methods not in ("auto", "all"):
        names = tuple(methods)
        imputers = [name for name in names if name in TABLE_IMPUTERS]
        if imputers and obstacle:
            listed = join_names(imputers)
            raise ValueError(f"{listed} cannot be fitted to this matrix: {obstacle}")
        return names, {}
    names = DEFAULT_METHODS if methods == "auto" else tuple(METHODS)
    if obstacle:
        return names, dict.fromkeys(TABLE_IMPUTERS, obstacle)
    if methods == "all":
        return (*names, *TABLE_IMPUTERS), {}
    if not is_table(observed):
        return names, {}
    left_out = {}
    for name in TABLE_IMPUTERS:
        seconds = estimate_seconds(name, *observed.shape)
        if seconds > MAX_DEFAULT_SECONDS:
            left_out[name] = f"a fit may take {float(f'{seconds:.1g}'):,.0f} s"
    return (*names, *(m for m in TABLE_IMPUTERS if m not in left_out)), left_out


def find_obstacle(observed: Observations) -> str:
    """Why imputers of dense arrays cannot be fitted to a matrix; empty if they can."""
    m, n = observed.shape
    if m * n > MAX_CELLS:
        return f"its {m * n:,} cells are too many for a dense array ({MAX_CELLS:,})"
    share = observed.n_observed / max(m * n, 1)
    if share < MIN_OBSERVED_FRACTION:
        least = f"at least {MIN_OBSERVED_FRACTION:.0%} are needed"
        return f"only {share:.2%} of its cells are observed ({least})"
    return ""


def is_table(observed: Observations) -> bool:
    """Whether a matrix is a table: columns with different units, or few dense ones."""
    m, n = observed.shape
    if n <= MAX_TABLE_COLUMNS and observed.n_observed >= MIN_TABLE_FRACTION * m * n:
        return True
    return compare_column_units(InMemoryDataset(observed))[0]


def estimate_seconds(method: str, m: int, n: int) -> float:
    """Rough time of a fit to an m x n matrix on two cores, within a factor of 5."""
    if method == "table-imputer":
        return 0.3 * n + 3e-6 * min(m, 10_000) * n**2
    if method == "knn-imputer":
        return m**2 * (5e-8 + 1e-9 * n)
    if method == "iterative-imputer":
        return 10.0 * n * (1e-3 + 5e-10 * m * n**2)
    if method == "chained-forests":
        subset = n >= MIN_SUBSET_COLUMNS
        width = N_NEAREST_FEATURES if subset else n
        tries = math.sqrt(width) if n >= MIN_SQRT_COLUMNS else width / 2.0
        forest = 0.06 + 1.3e-6 * m * tries * math.log2(m + 1.0)
        return (2 if subset else 3) * n * forest
    return 0.0

"""Imputation of tables of numbers, categories and booleans.

Read in this order: `imputer` (the estimator and its joint normal distribution),
`encoding` (columns as coordinates), `frames` (pandas, polars and NumPy tables),
`pooling` (Rubin's rules for the estimates of several imputations).
"""

from ncarl.tables.imputer import TableImputer
from ncarl.tables.pooling import PooledEstimate, pool

__all__ = ["PooledEstimate", "TableImputer", "pool"]

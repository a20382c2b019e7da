"""Imputation of tables of numbers, categories and booleans.

Read in this order: `imputer` (the estimator and its joint normal distribution),
`encoding` (columns as coordinates), `frames` (pandas, polars and NumPy tables).
"""

from ncarl.tables.imputer import TableImputer

__all__ = ["TableImputer"]

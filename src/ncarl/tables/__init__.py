"""Imputation of tables of numbers, categories and booleans.

Read in this order: `imputer` (the estimator), `model` (its stages), `selection` (the
mixture of normals), `conditionals` (distributions of cells given the others),
`predictors` (trees and similar rows), `encoding` (columns as coordinates), `frames`
(pandas, polars and NumPy tables), `pooling` (Rubin's rules for several imputations).
"""

from ncarl.tables.imputer import TableImputer
from ncarl.tables.pooling import PooledEstimate, pool

__all__ = ["PooledEstimate", "TableImputer", "pool"]

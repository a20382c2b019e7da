"""NCARL for more columns than an n x n kernel allows.

The kernel is a sparse matrix plus a product of thin factors, ``K = T + F F^T``, and is
only ever applied, or read at some of its entries. Memory grows with the columns times
the rank, the edges of the graph, and the observed entries.

Read the modules in this order:

1. `rows` (`rows_numba` for its compiled form): `WideKernel`, which owns its row
   functions, and the Gram matrix of the completed rows as an operator.
2. `kernel`: building a wide kernel, with the sparse inverse of the graph term.
3. `spectrum`: leading eigenpairs, spectral density and graph of a Gram matrix that is
   only applied.
4. `solver`: the iteration, its checkpoints and its engine.
"""

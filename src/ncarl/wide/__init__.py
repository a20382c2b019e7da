"""NCARL for more columns than an n x n kernel allows.

The kernel is a sparse matrix plus a product of thin factors, ``K = T + F F^T``, and is
only ever applied, or read at some of its entries. Memory grows with the columns times
the rank, the edges of the graph, and the observed entries.
"""

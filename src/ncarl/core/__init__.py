"""Numerical core: pure functions on arrays, in the notation of the paper.

Nothing here reads files, knows scikit-learn or assumes that an array is in the memory
of the host. The n x n functions ask their arguments for an array namespace; the row
step has one backend per array library behind one signature.

Read the modules in this order:

1. `types`: `Block`, `Kernel` and the sums over rows that are passed around.
2. `linalg` (`linalg_torch` for tensors): symmetric inverses, products, diagonals.
3. `weights`, `graph`, `kernel`: from the Gram matrix of the completed rows to the
   weights of the rank surrogate, the graph Laplacian and the column kernel.
4. `rows`: the row step, which completes rows given a kernel; its backends are
   `rows_numpy` (begin with this one), `rows_numba` and `rows_torch`.
5. `cuda`, `kernels_triton`: batched Cholesky factors, CUDA graphs and Triton kernels
   that `rows_torch` uses on a GPU.
6. `svd`: truncated singular value decompositions, for the baselines in
   `ncarl.solvers`.
"""

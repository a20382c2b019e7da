"""Solvers of the baseline methods: generators of steps, run by `base.run_solver`.

Read the files in this order:

- ``base``: problems, steps and results of a solver, checkpoints, and `run_solver`
- ``penalties``: penalties on singular values, and their proximal operators
- ``admm``: any such penalty with observed entries fixed
- ``proximal``: any such penalty with noise, by proximal gradient; SVT
- ``soft_impute``: the nuclear norm with noise on sparse data
- ``factored``: products of two factors, for the nuclear norm and FGSR
- ``regl1``: absolute residuals, robust to outliers
- ``lrfd``: the nuclear norm of coefficients in a dictionary
- ``s3lr``: joint completion and subspace clustering
- ``bias``: row and column effects
"""

"""Iterations and fitted models, independent of scikit-learn.

In reading order: `loop` (drives any solver), `checkpoint` (files to resume from),
`kernel_model` (a fitted kernel), `ncarl` (the iteration that learns a kernel),
`matrix_model` (the fitted model of the baselines).
"""

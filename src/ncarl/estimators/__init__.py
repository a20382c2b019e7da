"""Estimators with scikit-learn's interface; import them from `ncarl`.

In reading order: `base` (transform, predict, score and save of all estimators),
`validation` (checks of parameters and input), `ncarl` (`NCARL` and the base of kernel
estimators), `ncarl_cv` (`NCARLCV`), `bayesian` (`BayesianNCARL`), `wide` (`WideNCARL`),
`baselines` (the base of all others), `low_rank` and `other_baselines` (the other
methods), `persistence` (files of fitted estimators).
"""

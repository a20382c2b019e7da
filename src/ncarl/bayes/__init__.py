"""The Bayesian model: a Gaussian with learned kernel, noise and means, fitted by EM.

In reading order: `em` (the iteration for one side of a matrix), `mixture` and
`mixture_model` (several Gaussians around its kernel), `model` (the fitted model of both
sides, with row neighbors and conformal intervals), `selection` (held-out entries, the
strength of the prior, the number of components, the blend of both sides, the fit).
"""

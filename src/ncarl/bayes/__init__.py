"""Kernel, noise and means learned together: the model behind `BayesianNCARL`."""

"""Fitted models for the figures."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl import NCARL, BayesianNCARL, Nuclear

NAMES = ["a $\\frac{$ b", "<script>", "n" * 10_000, "d", "e", "f\n\u202eg"]


@pytest.fixture(scope="session")
def table():
    """(truth, incomplete table) of two groups of columns; row 5 is empty."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((40, 2))
    truth = base[:, [0, 1, 0, 1, 0, 1]] + 0.2 * rng.standard_normal((40, 6))
    truth[:, 3] *= 100.0
    X = np.where(rng.random(truth.shape) < 0.2, np.nan, truth)
    X[5] = np.nan
    X[6, 1:] = np.nan
    X[6, 0] = truth[6, 0]
    return truth, X


def make_bayes():
    """A Bayesian model with few steps."""
    return BayesianNCARL(prior_strength=0.1, sides="columns", max_iter=8, tol=0.0)


@pytest.fixture(scope="session")
def bayes(table):
    """A fitted model with error bars."""
    return make_bayes().fit(table[1])


@pytest.fixture(scope="session")
def paper(table):
    """A fitted model with a graph and without error bars."""
    return NCARL(max_iter=5, tol=0.0, n_neighbors=3).fit(table[1])


@pytest.fixture(scope="session")
def baseline(table):
    """A fitted baseline."""
    return Nuclear(max_iter=50, tol=0.0).fit(table[1])

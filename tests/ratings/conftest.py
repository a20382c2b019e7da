"""Ratings of users with two tastes, and recommenders fitted to them."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from ncarl import BayesianNCARL
from ncarl.bayes.model import ConformalScores, NeighborCorrection
from ncarl.ratings import Recommender

USERS, ITEMS = 60, 14


@pytest.fixture(scope="session")
def triples():
    """Ratings from 1 to 5 of users with two tastes: rows (user, item, rating)."""
    rng = np.random.default_rng(0)
    taste = rng.choice([-1.0, 1.0], USERS)
    kind = np.where(np.arange(ITEMS) < ITEMS // 2, -1.0, 1.0)
    level = 3.0 + 0.4 * rng.standard_normal(USERS)
    exact = level[:, None] + 1.2 * taste[:, None] * kind[None, :]
    stars = np.clip(np.rint(exact + 0.5 * rng.standard_normal(exact.shape)), 1, 5)
    seen = rng.random(exact.shape) < 0.55
    return [
        (f"u{i:02d}", f"i{j:02d}", float(stars[i, j]))
        for i, j in zip(*np.nonzero(seen), strict=True)
    ]


def fit(triples, sides, **settings):
    """A recommender fitted with the given sides."""
    model = BayesianNCARL(sides=sides, prior_strength=0.2, engine="threads", **settings)
    return Recommender(model).fit(triples)


@pytest.fixture(scope="session")
def both(triples):
    """A recommender with kernels on users and items."""
    found = fit(triples, "both", validation=0.0, max_iter=8, tol=0.0)
    # Artificial held-out scores: asymmetric, and different from those of one side.
    found.model_.blended_scores_ = ConformalScores(np.linspace(-1.5, 3.0, 60), 60.0)
    return copy_recommender(found)


@pytest.fixture(scope="session")
def single(triples):
    """A recommender with a kernel on items; tests must not modify it."""
    return fit(triples, "columns")


@pytest.fixture
def clone(single):
    """A copy of `single` to which tests may add users."""
    return copy_recommender(single)


def copy_recommender(model, library="plain", fitted=None):
    """A copy without added users, optionally with another fitted model."""
    new, users = Recommender(model.model), model.user_store_.vocabulary
    new._set_fitted_attributes(fitted or model.model_, users, model.items_, library)
    return new


@pytest.fixture(scope="session")
def again():
    return copy_recommender


@pytest.fixture
def clone_both(both):
    """A copy of `both` to which tests may add users."""
    return copy_recommender(both)


@pytest.fixture(scope="session")
def near(both):
    """The recommender `both` with a correction by similar users."""
    est = copy(both.model_)
    correction = NeighborCorrection(5, 0.7, 0.9)
    est.model_ = replace(est.model_, neighbor_correction=correction)
    est.neighbor_correction_ = {"count": 5, "weight": 0.7, "sharper": 0.9}
    return copy_recommender(both, fitted=est)


@pytest.fixture(params=["single", "both", "near"])
def model(request):
    """Recommenders of all types."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def quick():
    """An estimator with a kernel on items and few steps."""
    return BayesianNCARL(
        sides="columns", validation=0.0, max_iter=4, tol=0.0, engine="threads"
    )


@pytest.fixture(scope="session")
def raw():
    """Function that predicts all items without clipping."""

    def predict_all(model, user):
        est = model.model_
        u = model.user_store_.vocabulary.position_of(user)
        i, j = np.full(ITEMS, u), np.arange(ITEMS)
        x, _ = est.model_.predict(
            est.training_, i, j, est._resolve_engine(), std=None, transductive=True
        )
        return est.model_.scaler.inverse_transform(x, j)

    return predict_all

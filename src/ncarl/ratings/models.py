"""Which models can serve users, and how they are got ready for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ncarl.bayes.fit import chosen_sides
from ncarl.bayes.intervals import Scores
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.estimators.ncarl import NCARL
from ncarl.estimators.search import NCARLCV
from ncarl.observed import Observed
from ncarl.ratings.serving import Server, as_two_sided
from ncarl.surveys import InMemory


def ready(model: Any, observed: Observed) -> Any:
    """An unfitted copy of a model that will have a kernel of the items.

    Raises
    ------
    TypeError
        If the model is of a class that has none.
    ValueError
        If its parameters, or the number of items, do not allow for one.
    """
    if model is None:
        model = BayesianNCARL()
    if not isinstance(model, BayesianNCARL | NCARL | NCARLCV):
        given = model if isinstance(model, type) else type(model)
        raise TypeError(
            "model must be a BayesianNCARL, NCARL or NCARLCV, which learn how items go "
            "together and so can serve new users and say why, got "
            f"{'the class ' if isinstance(model, type) else ''}{given.__name__}"
        )
    copy = clone(model)
    if not isinstance(copy, BayesianNCARL):
        if copy.orientation == "rows":
            raise ValueError(
                "model must have its kernel on the items, got orientation='rows'; use "
                "orientation='columns'"
            )
        return copy.set_params(orientation="columns")
    if copy.sides == "rows":
        raise ValueError(
            "model must have a kernel of the items, got sides='rows'; use 'auto', "
            "'columns' or 'both'"
        )
    if copy.sides == "auto" and not chosen_sides("auto", InMemory(observed))[0]:
        raise ValueError(
            f"{observed.shape[1]} items are too many for a kernel of the items; leave "
            "out those with few ratings, or insist with "
            "model=BayesianNCARL(sides='columns')"
        )
    return copy


def served(model: Any) -> Server:
    """A fitted model with what it needs to answer."""
    if model.transposed_:
        raise ValueError(
            "model was fitted without a kernel of the items; use sides='columns'"
        )
    training: Observed = model.training_
    none = Scores(np.empty(0), 0.0)
    return Server(
        two=as_two_sided(model.model_, training.shape[1]),
        training=training,
        engine=model._engine(),
        scores=getattr(model, "scores_", none),
        blended_scores=getattr(model, "blended_scores_", none),
        level_apart=training.shape[1] > 2,
    )

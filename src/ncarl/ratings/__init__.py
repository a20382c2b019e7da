"""Ratings: who gave what how many stars, and what to recommend to whom.

>>> from ncarl.ratings import Recommender
>>> ratings = [("ann", "tea", 5), ("bob", "tea", 4), ("bob", "milk", 5)]
>>> 1.0 < Recommender().fit(ratings).predict("ann", "milk") < 6.0
True
"""

from ncarl.ratings.answers import (
    Explanation,
    Rated,
    Reason,
    Recommended,
    SimilarItem,
)
from ncarl.ratings.evaluating import Evaluation
from ncarl.ratings.ids import UnknownIdError
from ncarl.ratings.recommender import Recommender

__all__ = [
    "Evaluation",
    "Explanation",
    "Rated",
    "Reason",
    "Recommended",
    "Recommender",
    "SimilarItem",
    "UnknownIdError",
]

"""Recommendations from ratings of items by users.

Read in this order: `recommender` (the estimator), `scoring` (predictions for one user,
for added users and for pairs), `data` (ids, tables in and out, result types).
"""

from ncarl.ratings.data import (
    Explanation,
    RatedItem,
    Reason,
    RecommendedItem,
    RecommenderEvaluation,
    SimilarItem,
    UnknownIdError,
)
from ncarl.ratings.recommender import Recommender

__all__ = [
    "Explanation",
    "RatedItem",
    "Reason",
    "RecommendedItem",
    "Recommender",
    "RecommenderEvaluation",
    "SimilarItem",
    "UnknownIdError",
]

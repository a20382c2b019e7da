"""
Ratings: recommendations and explanations
=========================================

Users rate films with stars. `Recommender` predicts missing ratings, recommends films
with prediction intervals, and explains a prediction by the user's own ratings.

The ratings are simulated: 200 users, 24 films of three kinds. Users differ in which
kinds they like and in their mean rating, and some films are better than others.
"""

# %%
# The ratings
# -----------
# A table of ratings has one row per rating: user, film and stars.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ncarl import BayesianNCARL
from ncarl.ratings import Recommender

rng = np.random.default_rng(0)
kinds = ("space", "crime", "love")
films = [f"{kind} {number}" for kind in kinds for number in range(1, 9)]
taste = rng.standard_normal((200, 3)).repeat(8, axis=1)
generous = 0.5 * rng.standard_normal((200, 1))
quality = 0.5 * rng.standard_normal(24)
stars = 3.2 + generous + quality + 0.8 * taste + 0.6 * rng.standard_normal((200, 24))
stars = np.clip(np.rint(stars), 1, 5)
known = rng.random(24) ** 2 * 0.6 + 0.1  # fraction of users who rated each film
who, what = np.nonzero(rng.random(stars.shape) < known)
ratings = pd.DataFrame(
    {
        "user": [f"person {i}" for i in who],
        "item": [films[j] for j in what],
        "rating": stars[who, what],
    }
)
print(ratings.head(4))

# %%
# Similar films
# -------------
# The model does not know the three kinds. That the same users like films of one kind
# is learned from the ratings.

model = Recommender().fit(ratings)
print(model.similar_items("space 1", n=4))

close = np.eye(24)
for j, film in enumerate(films):
    for row in model.similar_items(film, n=23).itertuples():
        close[j, films.index(row.item)] = row.similarity

figure, axes = plt.subplots(figsize=(5.4, 4.6), layout="constrained")
shown = axes.imshow(close, cmap="RdBu", vmin=-1, vmax=1)
axes.set_xticks([3.5, 11.5, 19.5], kinds)
axes.set_yticks([3.5, 11.5, 19.5], kinds, rotation=90, va="center")
axes.tick_params(length=0)
axes.set_title("similarity of films")
figure.colorbar(shown, label="similarity")
plt.show()

# %%
# A new user
# ----------
# A user who was not in the training data rates four films. Recommendations need no new
# fit.

you = model.add_user({"space 1": 5, "space 2": 5, "crime 3": 2, "love 4": 3}, "you")
best = model.recommend(you, n=8, level=0.8)
print(best.round(2))

# %%
# The explanation of the first recommendation: its parts add up to the prediction.

why = model.explain(you, best["item"][0])
print(why)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.6), layout="constrained")
places = np.arange(len(best))[::-1]
left.hlines(places, best["low"], best["high"], color="#9ecae1", linewidth=7)
left.plot(best["predicted"], places, "o", color="#08519c")
left.set_yticks(places, best["item"])
left.set(xlim=(0.9, 5.1), xlabel="stars", title="80% intervals")

amounts, words = zip(*why.lines(), strict=True)
ends = np.cumsum(amounts)
starts = ends - amounts
starts[0] = 1.0
colors = ["#9e9e9e", *("#2c7fb8" if x > 0 else "#d95f0e" for x in amounts[1:])]
rows = np.arange(len(amounts))[::-1]
right.barh(rows, ends - starts, left=starts, color=colors)
right.axvline(why.value, color="0.3", linewidth=1, linestyle=":")
right.set_yticks(rows, words)
right.set(xlim=(1, 5.1), xlabel="stars", title=f"{why.item}: parts of {why.value:.1f}")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Evaluation
# ----------
# A fifth of the ratings is held out and predicted. Films that a user rated above the
# mean should be among the first five recommendations. The model is a parameter: here
# it has a kernel of the films only, which is faster.

kept_back = np.random.default_rng(1).random(len(ratings)) < 0.2
again = Recommender(BayesianNCARL(sides="columns")).fit(ratings[~kept_back])
found = again.evaluate(ratings[kept_back], n=5)
print(f"root mean square error: {found.rmse:.2f} stars")
print(f"ratings inside their {found.level:.0%} intervals: {found.coverage:.0%}")
print(f"users with at least one relevant film: {found.hit_rate:.0%}")

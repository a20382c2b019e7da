"""
Which columns go together?
==========================

A fit learns how the columns of a table go together. That is worth a look even where
nothing is to be filled in: here twenty towns measure the temperature every day, and the
fit finds out who has the same weather, from days of which a third is missing.
"""

# %%
# Twenty towns, three kinds of weather
# ------------------------------------
# Towns of a valley share its weather. One station was wired the wrong way round.

import numpy as np

from ncarl import BayesianNCARL, plots

rng = np.random.default_rng(4)
names = [
    f"{valley} {k + 1}" for valley in ("north", "south", "coast") for k in range(7)
]
names = [names[k] for k in rng.permutation(21)][:20]
weather = {valley: rng.standard_normal(250) for valley in ("north", "south", "coast")}
weather["south"] += 0.6 * weather["north"]
days = np.column_stack([weather[name.split()[0]] for name in names])
days += 0.5 * rng.standard_normal(days.shape)
days[:, names.index("coast 3")] *= -1
X = np.where(rng.random(days.shape) < 1 / 3, np.nan, days)

model = BayesianNCARL(center="columns", sides="columns").fit(X)

# %%
# A map in a telling order
# ------------------------
# In the order of the file the map says little. In an order that puts towns next to
# those with the same weather, three blocks stand out, and one town that does the
# opposite.

plots.show(
    plots.similarity(model, names=names, ordered=False, title="As in the file"),
    plots.similarity(model, names=names, title="Similar towns next to each other"),
)

# %%
# The same as a graph
# -------------------
# Red lines are ties with the opposite sign: that station is to be looked at.

plots.show(plots.similarity_graph(model, names=names))

# %%
# How many kinds of weather?
# --------------------------

plots.show(plots.spectrum(model))

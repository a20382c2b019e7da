"""
Similarity of columns
=====================

A fit learns the similarity of the columns of a table, which is useful even without
imputation. Here twenty towns measure the temperature every day, and the fit finds the
towns with the same weather, although a third of the entries is missing.
"""

# %%
# Twenty towns in three regions
# -----------------------------
# Towns of a region share its weather. One sensor has the wrong sign.

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
# A heat map, sorted by similarity
# --------------------------------
# In the order of the file the heat map shows no structure. With similar towns next to
# each other it shows three blocks, and one town with the opposite sign.

plots.show(
    plots.similarity(model, names=names, ordered=False, title="As in the file"),
    plots.similarity(model, names=names, title="Similar towns next to each other"),
)

# %%
# The same as a graph
# -------------------
# Red lines are negative similarities, which point to the faulty sensor.

plots.show(plots.similarity_graph(model, names=names))

# %%
# Spectrum
# --------
# Each kind of weather is one direction of large variance.

plots.show(plots.spectrum(model))

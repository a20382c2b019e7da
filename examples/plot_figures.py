"""
Every figure that a fit has
===========================

Every function of `ncarl.plots` takes a fitted estimator, or plain arrays, and gives a
figure of matplotlib. Here they are in a row, drawn from one fit: scikit-learn's wine
table (178 wines, 13 measurements), with a fifth of its cells lost on purpose.
"""

# %%
# One fit
# -------
# Of one wine nothing is left, of another one cell, as happens in tables.

import numpy as np
from sklearn.datasets import load_wine

from ncarl import BayesianNCARL, plots

table = load_wine(as_frame=True).data
lost = np.random.default_rng(0).random(table.shape) < 0.2
lost[30] = True
lost[90, 1:] = True
X = table.mask(lost)
model = BayesianNCARL().fit(X)

# %%
# Before and after
# ----------------
# Orange cells are missing. The last panel shows how uncertain the filled ones are.

plots.show(plots.completion(X, model))

# %%
# What cannot be known
# --------------------
# Nothing was known of one row, and too little of another. The model says so itself: its
# standard deviations there are as large as the spread of the column.

plots.show(plots.identifiability(model, X))

# %%
# How uncertain each column is
# ----------------------------

plots.show(plots.uncertainty(model, X))

# %%
# Do intervals hold what they promise?
# ------------------------------------
# Held-out entries in normal intervals, before the model corrects them.

plots.show(plots.reliability(model))

# %%
# Errors, where the truth is known
# --------------------------------

plots.show(plots.residuals(table, model))

# %%
# Which columns go together
# -------------------------
# As a map, similar columns next to each other, and as a graph of the strongest ties.

plots.show(plots.similarity(model), plots.similarity_graph(model))

# %%
# How the fit went
# ----------------
# Along how many directions wines vary, and what each step gained.

plots.show(plots.spectrum(model), plots.convergence(model))

"""
All figures of a fit
====================

Every function of `ncarl.plots` takes a fitted estimator, or plain arrays, and gives a
figure of matplotlib. Here they are in a row, drawn from one fit: scikit-learn's wine
table (178 wines, 13 measurements), with a fifth of its entries removed.
"""

# %%
# One fit
# -------
# One row has no observed entry, another one a single entry.

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
# Orange entries are missing. The last panel shows standard deviations of imputed ones.

plots.show(plots.completion(X, model))

# %%
# What cannot be identified
# -------------------------
# Nothing was observed of one row, and too little of another. The standard deviations
# there are as large as that of the column.

plots.show(plots.identifiability(model, X))

# %%
# How uncertain each column is
# ----------------------------

plots.show(plots.uncertainty(model, X))

# %%
# Coverage of the intervals
# -------------------------
# Held-out entries in normal intervals, before the conformal correction.

plots.show(plots.reliability(model))

# %%
# Errors, where the truth is known
# --------------------------------

plots.show(plots.residuals(table, model))

# %%
# Which columns are similar
# -------------------------
# As a heat map, similar columns next to each other, and as a graph of the strongest
# similarities.

plots.show(plots.similarity(model), plots.similarity_graph(model))

# %%
# Spectrum and convergence
# ------------------------
# Along how many directions wines vary, and what each iteration gained.

plots.show(plots.spectrum(model), plots.convergence(model))

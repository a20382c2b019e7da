"""
All figures of a fit
====================

Every function of `ncarl.plots` takes a fitted estimator, or plain arrays, and returns a
matplotlib figure. All figures below are from one fit: scikit-learn's wine table (178
wines, 13 measurements), with a fifth of its entries removed.
"""

# %%
# The fit
# -------
# One row has no observed entry, another row has a single one.

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
# Missing entries are orange. The last panel shows standard deviations of imputed ones.

plots.show(plots.completion(X, model))

# %%
# Rows and columns that cannot be identified
# ------------------------------------------
# One row has no observed entries, another one too few. The standard deviations in these
# rows are as large as those of the columns.

plots.show(plots.identifiability(model, X))

# %%
# Standard deviations by column
# -----------------------------

plots.show(plots.uncertainty(model, X))

# %%
# Coverage of the intervals
# -------------------------
# Coverage of normal intervals on held-out entries, before the conformal correction.

plots.show(plots.reliability(model))

# %%
# Errors against the true values
# ------------------------------

plots.show(plots.residuals(table, model))

# %%
# Similarity of the columns
# -------------------------
# As a heat map, similar columns next to each other, and as a graph of the strongest
# similarities.

plots.show(plots.similarity(model), plots.similarity_graph(model))

# %%
# Spectrum and convergence
# ------------------------
# The fraction of variance by direction, and the gain of each iteration.

plots.show(plots.spectrum(model), plots.convergence(model))

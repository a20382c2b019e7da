"""
How far can I trust filled values?
==================================

Hide some cells that are known, fill them in as the gaps would be, and look. This is
what ``ncarl evaluate table.csv`` does; here it is in Python, on scikit-learn's wine
table.
"""

# %%
# Hide, fill, look
# ----------------
# A tenth of the known cells is hidden, twice, each time others. The method sees the
# rest only, and chooses what there is to choose by the rest only.

import numpy as np
from sklearn.datasets import load_wine

from ncarl import plots
from ncarl.evaluation import evaluate
from ncarl.evaluation.outputs import (
    draw_columns,
    draw_reliability,
    draw_residuals,
)

table = load_wine(as_frame=True).data
X = table.mask(np.random.default_rng(0).random(table.shape) < 0.1)
found = evaluate(X, method="bayes", repeats=2, scale="columns", others=())

own, mean = found.standardized_error
print(f"RMSE {own:.2f} standard deviations of the column; its mean: {mean:.2f}")
print(f"that is {found.explained_fraction:.0%} of the squared error explained")

# %%
# Column by column
# ----------------
# Some measurements can be told from the others, some cannot: there the dot is near 1,
# and a filled cell is hardly more than the mean of its column.

plots.show(draw_columns(found))
for one in found.columns[:3]:
    print(f"{one.name}: {one.hidden} cells hidden, {one.explained:.0%} explained")

# %%
# Nominal and actual coverage of the intervals
# --------------------------------------------

for one in found.levels:
    print(f"nominal coverage {one.level:.0%}, actual coverage {one.coverage:.0%}")
plots.show(draw_reliability(found), draw_residuals(found))

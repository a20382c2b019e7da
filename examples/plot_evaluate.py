"""
Accuracy of imputed values
==========================

Hold out some observed entries, impute them, and compare. This is what ``ncarl evaluate
table.csv`` does; here it is in Python, on scikit-learn's wine table.
"""

# %%
# Evaluation on held-out entries
# ------------------------------
# A tenth of the observed entries is held out, in two different draws. The method is
# fitted, and its parameters are selected, on the other entries only.

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
print(f"{found.explained_fraction:.0%} of the squared error is explained")

# %%
# Accuracy by column
# ------------------
# Some measurements can be predicted from the others. For those that cannot, the dot is
# near 1: an imputed value is hardly better than the mean of its column.

plots.show(draw_columns(found))
for one in found.columns[:3]:
    print(f"{one.name}: {one.hidden} entries held out, {one.explained:.0%} explained")

# %%
# Nominal and actual coverage of the intervals
# --------------------------------------------

for one in found.levels:
    print(f"nominal coverage {one.level:.0%}, actual coverage {one.coverage:.0%}")
plots.show(draw_reliability(found), draw_residuals(found))

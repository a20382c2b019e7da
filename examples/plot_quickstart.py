"""
A table with missing entries, imputed in four lines
===================================================

A fifth of the entries of scikit-learn's wine table (178 wines, 13 measurements) is
removed, so that imputed values can be compared with the true ones.
"""

# %%
# Imputation
# ----------
# No parameter has to be set. Columns of different units are scaled automatically, and
# the result has the labels of the input.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from ncarl import BayesianNCARL

table = load_wine(as_frame=True).data
lost = np.random.default_rng(0).random(table.shape) < 0.2
X = table.mask(lost)

model = BayesianNCARL().fit(X)
filled = model.transform(X)
print(filled.iloc[:4, :5].round(2))

# %%
# Intervals
# ---------
# Every imputed entry has a prediction interval. About 90% of the true values should be
# in their 90% intervals.

rows, columns = np.nonzero(lost)
low, high = model.predict_interval(rows, columns, level=0.9)
true = table.to_numpy()[rows, columns]
inside = (low <= true) & (true <= high)
print(f"{inside.mean():.1%} of {len(true)} removed entries are in their 90% intervals")

# %%
# Imputed and true values
# -----------------------
# Each line is a missing entry: the point is the imputed value, the cross the true one.

names = list(table.columns)
shown = ("flavanoids", "alcohol", "malic_acid")
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for axis, name in zip(axes, shown, strict=True):
    here = np.flatnonzero(columns == names.index(name))
    here = here[np.argsort(true[here])]
    positions = np.arange(len(here))
    imputed = filled[name].to_numpy()[rows[here]]
    axis.vlines(positions, low[here], high[here], color="#9ec3e6", lw=4)
    axis.plot(positions, imputed, "o", color="#2f6db3", ms=4, label="imputed")
    axis.plot(positions, true[here], "x", color="#d1495b", ms=4, label="true")
    axis.set(title=name.replace("_", " "), xlabel="missing entries, smallest first")
axes[0].legend(fontsize=8)
plt.show()

# %%
# Comparison with the column means
# --------------------------------
# Errors in standard deviations of the columns, so that all columns have equal weight.

stds = table.std().to_numpy()[columns]
ours = np.sqrt(np.mean(((filled.to_numpy()[rows, columns] - true) / stds) ** 2))
means = np.sqrt(np.mean(((X.mean().to_numpy()[columns] - true) / stds) ** 2))
print(f"RMSE {ours:.2f}, of column means {means:.2f}")

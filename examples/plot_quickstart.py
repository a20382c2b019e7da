"""
A table with gaps, filled in four lines
=======================================

Where a table has gaps, many tools stop. Here a fifth of the cells of scikit-learn's
wine table (178 wines, 13 measurements) is lost on purpose, so that what is filled in
can be held against what was there.
"""

# %%
# Fill it
# -------
# There is nothing to set. Columns of different units are brought to one scale by
# themselves, and the frame that comes back has the labels of the one that went in.

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
# How far off it may be
# ---------------------
# Every filled cell has an interval. Those of 90% should hold nine of ten lost cells;
# how many they do hold can be counted here.

rows, columns = np.nonzero(lost)
low, high = model.predict_interval(rows, columns, level=0.9)
was = table.to_numpy()[rows, columns]
inside = (low <= was) & (was <= high)
print(f"{inside.mean():.1%} of {len(was)} lost cells lie in their 90% intervals")

# %%
# One column, drawn
# -----------------
# Each line is a lost cell; the point is what was filled in, the cross what was there.

names = list(table.columns)
shown = ("flavanoids", "alcohol", "malic_acid")
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for axis, name in zip(axes, shown, strict=True):
    here = np.flatnonzero(columns == names.index(name))
    here = here[np.argsort(was[here])]
    place = np.arange(len(here))
    guess = filled[name].to_numpy()[rows[here]]
    axis.vlines(place, low[here], high[here], color="#9ec3e6", lw=4)
    axis.plot(place, guess, "o", color="#2f6db3", ms=4, label="filled in")
    axis.plot(place, was[here], "x", color="#d1495b", ms=4, label="was there")
    axis.set(title=name.replace("_", " "), xlabel="lost cells, smallest first")
axes[0].legend(fontsize=8)
plt.show()

# %%
# Better than the mean?
# ---------------------
# Errors in standard deviations of the columns, so that all columns count alike.

spread = table.std().to_numpy()[columns]
ours = np.sqrt(np.mean(((filled.to_numpy()[rows, columns] - was) / spread) ** 2))
means = np.sqrt(np.mean(((X.mean().to_numpy()[columns] - was) / spread) ** 2))
print(f"error {ours:.2f}, of column means {means:.2f}")

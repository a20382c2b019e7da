"""
The idea: a kernel of the columns
=================================

The model learns the covariance of the columns of a matrix with missing entries. This
example shows the learned covariance, and how a row is completed with it.

The data are simulated: 120 days of temperatures, one row per day, one column per hour.
Half of all readings are missing, and every reading has a small error.
"""

# %%
# Days with missing hours
# -----------------------
# Days differ in their mean temperature, in the amplitude between night and noon, and in
# the time of their warmest hour.

import matplotlib.pyplot as plt
import numpy as np

from ncarl import NCARL, BayesianNCARL

rng = np.random.default_rng(4)
hours = np.arange(24)
angle = 2 * np.pi * (hours - 9) / 24
level, swing, late = rng.standard_normal((3, 120, 1))
truth = 14 + 4 * level + (5 + 2 * swing) * np.sin(angle) + 1.5 * late * np.cos(angle)
seen = rng.random(truth.shape) < 0.5
X = np.where(seen, truth + 0.5 * rng.standard_normal(truth.shape), np.nan)

# %%
# The learned kernel
# ------------------
# The kernel ``K`` has one row and one column for every column of the matrix: the
# covariance of two hours. The model does not use the order of the hours: that
# adjacent hours are similar, and that noon differs from midnight, is learned.

model = BayesianNCARL().fit(X)
K = model.kernel_
correlation = K / np.sqrt(np.outer(np.diag(K), np.diag(K)))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
shown = left.imshow(X[:40], cmap="plasma", aspect="auto", interpolation="nearest")
left.set(title="40 of the days, in degrees", xlabel="hour", ylabel="day")
left.set_facecolor("0.9")
figure.colorbar(shown, ax=left)
shown = right.imshow(correlation, cmap="Blues", vmin=0, vmax=1)
right.set(title="the learned kernel, as correlations", xlabel="hour", ylabel="hour")
figure.colorbar(shown, ax=right)
plt.show()

# %%
# Completion of a row
# -------------------
# The observed hours of a day predict its other hours by ``K``. The prediction is
# precise for hours that are correlated with observed hours. The bars are 90% intervals.

filled, std = model.transform(X, return_std=True)
days = np.argsort(seen.sum(axis=1))[[-1, 20, 0]]
rows = np.repeat(days, len(hours))
low, high = model.predict_interval(rows, np.tile(hours, 3), level=0.9)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for axis, day, a, b in zip(
    axes, days, np.split(low, 3), np.split(high, 3), strict=True
):
    lost = ~seen[day]
    axis.vlines(
        hours[lost], a[lost], b[lost], color="#9ec3e6", lw=5, label="90% interval"
    )
    axis.plot(hours, truth[day], color="0.45", ls="--", lw=1, label="truth")
    axis.plot(
        hours[lost], filled[day, lost], "o", color="#2f6db3", ms=4, label="imputed"
    )
    axis.plot(hours[~lost], X[day, ~lost], "o", color="#333333", ms=4, label="observed")
    axis.set(title=f"{int(seen[day].sum())} of 24 hours observed", xlabel="hour")
axes[0].set_ylabel("degrees")
axes[0].legend(fontsize=8, loc="upper left")
plt.show()

# %%
# The formula
# -----------
# With observed columns ``o`` and their values ``v``, the completed row in the paper's
# model without noise is ``v K_oo^-1 K_o:``.

paper = NCARL(alpha=0.0).fit(X)
o = seen[0]
by_hand = np.linalg.solve(paper.kernel_[np.ix_(o, o)], X[0, o]) @ paper.kernel_[o]
print("largest difference:", np.abs(by_hand - paper.transform(X)[0]).max())

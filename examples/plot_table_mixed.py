"""
Numbers, categories and booleans in one table
=============================================

`TableImputer` imputes numbers by their expected value and categories by the most
probable one, with intervals and probabilities.
"""

# %%
# A table with missing entries
# ----------------------------
# Scikit-learn's wine table with its alcohol in three classes, a boolean column, and the
# grape (usually the target). A quarter of all entries is removed.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

from ncarl.tables import TableImputer

wine = load_wine(as_frame=True)
table = wine.data[["malic_acid", "flavanoids", "color_intensity", "hue"]].copy()
table["proline"] = wine.data["proline"].astype("Int64")
table["strength"] = pd.cut(
    wine.data["alcohol"], [0, 12.5, 13.3, 20], labels=["light", "medium", "strong"]
)
table["rich in ash"] = (wine.data["ash"] > 2.4).astype("boolean")
table["grape"] = wine.target_names[wine.target]

lost = np.random.default_rng(0).random(table.shape) < 0.25
gappy = table.mask(lost)
print(gappy.head(4).to_string())

# %%
# Imputation
# ----------
# Imputed columns keep their types.

imputer = TableImputer().fit(gappy)
filled = imputer.transform(gappy)
print(filled.head(4).to_string())
print(filled.dtypes)

# %%
# Accuracy of the imputed categories, compared with the most frequent category.

for name in ("strength", "rich in ash", "grape"):
    here = lost[:, table.columns.get_loc(name)]
    right = (filled[name] == table[name])[here].mean()
    usual = (table[name] == gappy[name].mode()[0])[here].mean()
    print(f"{name:12} {right:.0%} correct, most frequent {usual:.0%}")

# %%
# Intervals and probabilities
# ---------------------------
# On the left imputed numbers with their 90% intervals, on the right the probabilities
# of missing grapes; a cross marks the true one.

low, high = imputer.predict_interval(gappy, level=0.9)
chances = imputer.predict_proba(gappy)["grape"]

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
name = "color_intensity"
rows = np.flatnonzero(lost[:, table.columns.get_loc(name)])
rows = rows[np.argsort(table[name].to_numpy()[rows])]
x = np.arange(len(rows))
left.vlines(x, low[name].iloc[rows], high[name].iloc[rows], color="#9ec3e6", lw=3)
left.plot(x, filled[name].iloc[rows], "o", color="#2f6db3", ms=4, label="imputed")
left.plot(x, table[name].iloc[rows], "x", color="#d1495b", ms=4, label="true")
left.set(title="color intensity", xlabel="missing entries, smallest first")
left.legend(fontsize=8, frameon=False, loc="upper left")

rows = np.flatnonzero(lost[:, table.columns.get_loc("grape")])[::2]
bottom = np.zeros(len(rows))
for label, color in zip(chances, ("#2f6db3", "#9ec3e6", "#e6c79e"), strict=True):
    part = chances[label].to_numpy()[rows]
    right.bar(np.arange(len(rows)), part, 0.85, bottom, color=color, label=label)
    true = (table["grape"].iloc[rows] == label).to_numpy()
    right.plot(np.flatnonzero(true), (bottom + part / 2)[true], "kx", ms=4)
    bottom += part
right.set(title="probability of the grape", xlabel="wines whose grape is missing")
right.set(xlim=(-0.6, len(rows) - 0.4), ylim=(0, 1))
right.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

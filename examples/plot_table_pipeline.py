"""
Missing values in front of a classifier
=======================================

Most of scikit-learn's estimators do not accept missing values. In a pipeline, an
imputer in front of them is fitted to the training rows only, and imputes training and
test rows.
"""

# %%
# A pipeline
# ----------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ncarl.tables import TableImputer

X, y = load_breast_cancer(return_X_y=True, as_frame=True)


def pipeline(imputer):
    """Make a pipeline of an imputer and a classifier."""
    return make_pipeline(imputer, StandardScaler(), LogisticRegression())


# %%
# Accuracy by fraction of missing values
# --------------------------------------
# Entries are removed at random, in all rows. With mean imputation the accuracy
# decreases with the fraction of missing entries; with imputation from the other entries
# of the row it hardly changes.

shares = (0.0, 0.3, 0.6)
imputers = {"TableImputer": TableImputer(), "means of columns": SimpleImputer()}
scores = {name: [] for name in imputers}
for share in shares:
    lost = np.random.default_rng(0).random(X.shape) < share
    for name, imputer in imputers.items():
        found = cross_val_score(pipeline(imputer), X.mask(lost), y, cv=3)
        scores[name].append(found.mean())
    print(f"{share:.0%} missing:", *(f"{k} {v[-1]:.3f}" for k, v in scores.items()))

figure, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
for (name, found), color in zip(scores.items(), ("#2f6db3", "#d1495b"), strict=True):
    axes.plot(100 * np.array(shares), found, "o-", color=color, label=name)
axes.set(xlabel="missing entries, %", ylabel="accuracy, 3-fold")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

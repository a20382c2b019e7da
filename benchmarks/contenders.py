"""Baselines of accuracy.py: simple methods, implemented here or in a library.

A baseline is a function of a `Split` that returns predictions of its held-out entries;
`BASELINES` lists them by name. Those of scikit-learn and of this package run with
default parameters, or with those given in the name.
"""

from __future__ import annotations

import numpy as np

from ncarl import NCARL
from ncarl.centering import fit_centering
from ncarl.observations import Observations

#: Candidate strengths of the nuclear norm, relative to the largest useful one.
PATH = np.geomspace(1.0, 1e-3, 25)


def two_way_means(split):
    """Predict by row and column effects with learned ridge penalties only."""
    dense = isinstance(split.X, np.ndarray)
    observed = (Observations.from_dense if dense else Observations.from_sparse)(split.X)
    center = fit_centering(observed, "two-way", scaled=False)
    effects = center.row_effects(observed)
    return center.mean + effects[split.rows] + center.column_effects[split.cols]


def make_ncarl(**settings):
    """Create a baseline that fits `NCARL` with these parameters."""

    def baseline(split):
        return NCARL(**settings).fit(split.X).predict(split.rows, split.cols)

    return baseline


def knn(split):
    """Impute by the mean of the five nearest rows."""
    from sklearn.impute import KNNImputer

    filled = KNNImputer(keep_empty_features=True).fit_transform(split.X)
    return filled[split.rows, split.cols]


def knn_transposed(split):
    """Impute by the mean of the five nearest columns."""
    from sklearn.impute import KNNImputer

    filled = KNNImputer(keep_empty_features=True).fit_transform(split.X.T)
    return filled[split.cols, split.rows]


def iterative_imputer(split):
    """Impute by regressing each column on the others in turn."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    model = IterativeImputer(random_state=0, keep_empty_features=True)
    return model.fit_transform(split.X)[split.rows, split.cols]


# --- nuclear norm with two-way effects, for small panels -----------------------------


class Effects:
    """Least-squares row and column effects on the observed entries."""

    def __init__(self, observed):
        m, n = observed.shape
        rows, cols = np.nonzero(observed)
        design = np.zeros((len(rows), m + n))
        design[np.arange(len(rows)), rows] = 1.0
        design[np.arange(len(rows)), m + cols] = 1.0
        self.observed, self.m, self.inverse = observed, m, np.linalg.pinv(design)

    def __call__(self, values):
        """Fit effects to the observed entries; return them at all entries."""
        both = self.inverse @ values[self.observed]
        return both[: self.m, None] + both[None, self.m :]


def shrink(Z, strength):
    """Soft-threshold the singular values."""
    U, s, Vt = np.linalg.svd(Z, full_matrices=False)
    return (U * np.maximum(s - strength, 0.0)) @ Vt


def nuclear_path(X, strengths, refit_effects, max_iter=1000, tol=1e-5):
    """Yield completions for decreasing strengths, with warm starts.

    Minimizes half the squared error on observed entries plus the strength times the
    nuclear norm of L, for the model X = effects + L. Effects are unpenalized; without
    ``refit_effects`` they are subtracted once, before L is fitted.
    """
    observed = ~np.isnan(X)
    values = np.where(observed, X, 0.0)
    effects = Effects(observed)
    E = effects(values)
    L = np.zeros_like(values)
    size = float(np.linalg.norm((values - E)[observed]))
    for strength in strengths:
        for _ in range(max_iter):
            before = L
            L = shrink(np.where(observed, values - E, L), strength)
            if refit_effects:
                E = effects(values - L)
            if np.linalg.norm(L - before) <= tol * size:
                break
        yield E + L


def make_nuclear(refit_effects, splits=5, share=0.1):
    """Create a nuclear-norm baseline, tuned on random held-out observed entries."""

    def baseline(split):
        X = split.X
        observed = ~np.isnan(X)
        E = Effects(observed)(np.where(observed, X, 0.0))
        largest = np.linalg.norm(np.where(observed, X - E, 0.0), ord=2)
        strengths = largest * PATH
        errors = np.zeros(len(strengths))
        for k in range(splits):
            held = observed & (np.random.default_rng(k).random(X.shape) < share)
            inner = np.where(held, np.nan, X)
            for j, filled in enumerate(nuclear_path(inner, strengths, refit_effects)):
                errors[j] += np.mean((filled[held] - X[held]) ** 2)
        best = int(np.argmin(errors))
        for filled in nuclear_path(X, strengths[: best + 1], refit_effects):
            last = filled
        return last[split.rows, split.cols]

    return baseline


def two_way_effects(split):
    """Unpenalized row and column effects (difference in differences)."""
    observed = ~np.isnan(split.X)
    return Effects(observed)(np.where(observed, split.X, 0.0))[split.rows, split.cols]


BASELINES = {
    "two-way means": two_way_means,
    "NCARL()": make_ncarl(),
    "NCARL two-way": make_ncarl(center="two-way"),
    "NCARL gamma 1 two-way": make_ncarl(gamma=1.0, center="two-way"),
    "NCARL as in quality.py (500)": make_ncarl(
        alpha=100, n_neighbors=50, max_iter=50, tol=0
    ),
    "NCARL as in quality.py (1500)": make_ncarl(
        alpha=1000, n_neighbors=20, max_iter=30, tol=0
    ),
    "KNNImputer": knn,
    "KNNImputer, transposed": knn_transposed,
    "IterativeImputer": iterative_imputer,
    "two-way effects": two_way_effects,
    "nuclear norm + effects": make_nuclear(refit_effects=True),
    "nuclear norm after effects": make_nuclear(refit_effects=False),
}

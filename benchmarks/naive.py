"""The paper's algorithm as a plain row-by-row NumPy loop, as a baseline.

Written directly from the paper: dense matrices, one linear system per row, no batches,
no reuse. The conventions are those of ``weights="pinv"``.
"""

from __future__ import annotations

import numpy as np


def ncarl_loop(M, observed, alpha, k, steps, *, by="svd"):
    """Complete a matrix in ``steps`` iterations; the kernel is that of the columns.

    ``M`` is zero where ``observed`` is false. ``by`` is the source of singular values:
    "svd" of the matrix, as the paper defines them, or "gram", the eigenvalues of
    ``X^T X``, which is faster and loses half of the digits of the small ones.
    """
    delta, shift = 1e-6, 1e-6
    n = M.shape[1]
    rows = [np.flatnonzero(row) for row in observed]
    X = M.copy()
    for _ in range(steps):
        G = X.T @ X
        L = graph_laplacian(G, k, shift)
        D = surrogate_weight(X, G, by)
        K = np.linalg.inv(D + alpha * L + delta * np.eye(n))
        X = np.zeros_like(M)
        for i, o in enumerate(rows):
            if len(o):
                X[i] = np.linalg.solve(K[np.ix_(o, o)], M[i, o]) @ K[o]
                X[i, o] = M[i, o]
    return X


def graph_laplacian(G, k, shift):
    """Laplacian of the k-sparse similarity of the columns."""
    norms = np.diag(G)
    distances = norms[:, None] + norms[None, :] - 2 * G
    np.fill_diagonal(distances, 0.0)
    ordered = np.sort(distances, axis=1)
    threshold = ordered[:, k : k + 1] + shift
    total = k * threshold - ordered[:, :k].sum(axis=1, keepdims=True)
    S = np.maximum(threshold - distances, 0.0) / total
    W = (S + S.T) / 2
    return np.diag(W.sum(axis=1)) - W


def surrogate_weight(X, G, by, cutoff=1e-5):
    """``(|X| / tr |X|)^+`` with ``|X| = (X^T X)^(1/2)``."""
    if by == "svd":
        _, sigma, Vt = np.linalg.svd(X, full_matrices=False)
        U = Vt.T
    else:
        values, U = np.linalg.eigh(G)
        sigma = np.sqrt(np.clip(values, 0.0, None))
    share = sigma / sigma.sum()
    weights = np.divide(1.0, share, out=np.zeros_like(share), where=share > cutoff)
    return (U * weights) @ U.T

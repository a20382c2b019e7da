"""Times of the parts of a GPU iteration, and of the alternatives that were considered.

Usage: python benchmarks/gpu_parts.py [--device cuda] [--small] [--json results/FILE]

- Batches of systems of size 32 to 1200, as many as fill 4 GB: gathered by indexing and
  by our kernel; factorized by ``torch.linalg.cholesky_ex`` and by blocks, with
  PyTorch's and with our kernel for the smallest ones; solved for one right-hand side.
- n x n operations: eigendecomposition; inverse by PyTorch and by ours; and a lower
  bound on the time of the weights without an eigendecomposition, by composed minimax
  polynomials: a number of products with symmetric result, and two inverses. The number
  is that for the spectra observed in fits (one direction apart, the others within a
  factor of 100 when bounds are not tight), with directions resolved whose distance from
  the floor is 1e-6 of it.
"""

from __future__ import annotations

import argparse
import time
from functools import cache

import numpy as np
import torch
from common import print_table, versions, write_json
from gpu import measure_matmul_rate, synchronize

from ncarl.core import cuda as factor_torch, linalg_torch

#: Relative distance from the floor at which directions are resolved.
NEAREST = 1e-6
#: Largest over smallest singular value, without the first one.
FACTOR = 100.0


def measure(function, device, repeats=3):
    """Measure the median seconds of a function."""
    function()
    times = []
    for _ in range(repeats):
        synchronize(device)
        start = time.perf_counter()
        function()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def factorize_with_library_leaf(A):
    """Factorize by blocks, with PyTorch's kernel for the smallest ones."""
    kernels = factor_torch.load_triton_kernels
    factor_torch.load_triton_kernels = lambda: None
    try:
        return factor_torch.batched_cholesky(A)
    finally:
        factor_torch.load_triton_kernels = kernels


def measure_batch(p, K, device, rate, room):
    """Measure a batch of systems of size ``p``, in milliseconds."""
    n = K.shape[0]
    count = int(max(8, min(200_000, room / (8 * p * p))))
    columns = torch.argsort(torch.rand(min(count, 500), n, device=device), dim=1)
    columns = columns[:, :p].sort(dim=1).values
    columns = columns.repeat(-(-count // len(columns)), 1)[:count].int()
    right = torch.randn(count, p, 1, dtype=K.dtype, device=device)
    A = factor_torch.gather_submatrices(K, columns)
    long = columns.long()
    by_indexing = lambda: K[long[:, :, None], long[:, None, :]]  # noqa: E731
    copy = measure(lambda: A.clone(), device)
    full = by_indexing()
    ours = measure(lambda: factor_torch.batched_cholesky(A.clone()), device) - copy
    library = measure(lambda: factorize_with_library_leaf(A.clone()), device) - copy
    factor = factor_torch.batched_cholesky(A.clone())
    flops = count * p**3 / 3.0
    return {
        "p": p,
        "systems": count,
        "gather_torch_ms": 1e3 * measure(by_indexing, device),
        "gather_ms": 1e3
        * measure(lambda: factor_torch.gather_submatrices(K, columns), device),
        "cholesky_torch_ms": 1e3
        * measure(lambda: torch.linalg.cholesky_ex(full), device),
        "blocked_ms": 1e3 * library,
        "blocked_own_leaf_ms": 1e3 * ours,
        "solve_ms": 1e3 * measure(lambda: factor.solve(right), device),
        "share_of_matmul": flops / ours / rate,
    }


def fit_quintic(low, high):
    """Fit an odd polynomial of degree 5 to 1 on an interval, by Remez exchange."""
    inner = np.array([(3 * low + high) / 4, (low + 3 * high) / 4])
    for _ in range(50):
        x = np.array([low, *inner, high])
        rows = np.stack([x, x**3, x**5, [1, -1, 1, -1]], axis=1)
        a, b, c, _ = np.linalg.solve(rows, np.ones(4))
        turns = (-3 * b + np.array([-1, 1]) * np.sqrt(9 * b * b - 20 * a * c)) / 10 / c
        inner = np.sort(np.sqrt(turns))
    return a, b, c


@cache
def schedule(low):
    """Polynomials whose composition maps [low, 1] to 1."""
    found, high = [], 1.0
    while low / high < 1 - 1e-5:
        found.append(fit_quintic(low, high))
        x = np.linspace(low, high, 2001)
        y = sum(k * x**e for k, e in zip(found[-1], (1, 3, 5), strict=True))
        low, high = y.min(), y.max()
    return [*found, (15 / 8, -10 / 8, 3 / 8)]


def multiply_symmetric(A, B):
    """``A B`` of commuting symmetric matrices; only half of it is computed."""
    n, out = A.shape[0], torch.empty_like(A)
    step = max(512, -(-n // 4))
    for first in range(0, n, step):
        last = min(first + step, n)
        torch.matmul(A[first:last], B[:, :last], out=out[first:last, :last])
        out[:first, first:last] = out[first:last, :first].mT
    return out


def count_products(factor, nearest):
    """Count the products that apply the floor without an eigendecomposition.

    A coupled iteration for the square root of a matrix whose singular values lie within
    ``factor`` (four products per round, fewer in the first and last), one for the sign
    that separates directions above and below the floor (three), and a final product.
    """
    return 4 * len(schedule(1.0 / factor)) - 3 + 3 * len(schedule(nearest)) + 1


def invert_with_torch(A):
    """Invert with PyTorch's functions."""
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(A)[0])


def measure_square(n, device):
    """Measure n x n operations, in milliseconds."""
    X = torch.randn(n + 200, n, dtype=torch.float64, device=device)
    G = X.T @ X / n
    A = linalg_torch.add_diagonal(G, 1.0)
    half = 1e3 * measure(lambda: multiply_symmetric(G, A), device)
    inverse = 1e3 * measure(lambda: linalg_torch.spd_inverse(A), device)
    count = count_products(FACTOR, NEAREST)
    return {
        "n": n,
        "eigh_ms": 1e3 * measure(lambda: torch.linalg.eigh(G), device),
        "products": count,
        "products_at_least_ms": count * half + 2.0 * inverse,
        "matmul_ms": 1e3 * measure(lambda: G @ A, device),
        "half_product_ms": half,
        "inverse_torch_ms": 1e3 * measure(lambda: invert_with_torch(A), device),
        "inverse_ms": inverse,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    device = options.device
    torch.manual_seed(0)
    rate = measure_matmul_rate(device, 512 if options.small else 8192)
    sizes = (32, 64) if options.small else (32, 64, 128, 256, 384, 608, 800, 1200)
    squares = (100, 300) if options.small else (500, 1000, 2000, 3000, 3619, 6000)
    n, room = (200, 1e6) if options.small else (3000, 4e9)
    X = torch.randn(n + 200, n, dtype=torch.float64, device=device)
    K = X.T @ X / n + torch.eye(n, dtype=torch.float64, device=device)
    batches = [measure_batch(p, K, device, rate, room) for p in sizes]
    print_table(batches)
    lines = [measure_square(n, device) for n in squares]
    print_table(lines)
    card = "processor" if device == "cpu" else torch.cuda.get_device_name()
    known = {**versions(), "torch": torch.__version__, "card": card}
    content = {
        "versions": known,
        "matmul_tflops": rate / 1e12,
        "batches": batches,
        "squares": lines,
    }
    write_json(options.json, content)


if __name__ == "__main__":
    main()

"""Parts of a GPU step, one by one: why the engine does each the way it does.

Usage: python benchmarks/gpu_parts.py [--device cuda] [--small] [--json results/FILE]

- Batches of systems of size 32 to 1200, as many as fill 4 GB: gathered by indexing and
  by our kernel; factorized by ``torch.linalg.cholesky_ex`` and by blocks, with
  PyTorch's and with our kernel for the smallest ones; solved for one right-hand side.
- n x n work: eigendecomposition; inverse by PyTorch and by ours; and the least time
  that the weights would take without an eigendecomposition, by composed minimax
  polynomials: so many products of symmetric outcome, and two inverses. Their number is
  that for the spectra that fits show (one direction apart, the others within a factor
  of 100 when bounds are not tight), with directions told apart that are 1e-6 of it
  away from the floor.
"""

from __future__ import annotations

import argparse
import time
from functools import cache

import numpy as np
import torch
from common import print_table, versions, write_json
from gpu import matmul_rate, wait

from ncarl.core import cuda as factor_torch, linalg_torch

#: Distance from the floor, as a part of it, from which directions are told apart.
NEAREST = 1e-6
#: Largest over smallest singular value, the first one apart.
FACTOR = 100.0


def seconds(work, device, repeats=3):
    """Median time of some work."""
    work()
    times = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def with_library_leaf(A):
    """Our factorization with PyTorch's own kernel for the smallest blocks."""
    kernels = factor_torch.load_triton_kernels
    factor_torch.load_triton_kernels = lambda: None
    try:
        return factor_torch.batched_cholesky(A)
    finally:
        factor_torch.load_triton_kernels = kernels


def batch_line(p, K, device, rate, room):
    """Times a batch of systems of size ``p``, in milliseconds."""
    n = K.shape[0]
    count = int(max(8, min(200_000, room / (8 * p * p))))
    columns = torch.argsort(torch.rand(min(count, 500), n, device=device), dim=1)
    columns = columns[:, :p].sort(dim=1).values
    columns = columns.repeat(-(-count // len(columns)), 1)[:count].int()
    right = torch.randn(count, p, 1, dtype=K.dtype, device=device)
    A = factor_torch.gather_submatrices(K, columns)
    long = columns.long()
    by_indexing = lambda: K[long[:, :, None], long[:, None, :]]  # noqa: E731
    copy = seconds(lambda: A.clone(), device)
    full = by_indexing()
    ours = seconds(lambda: factor_torch.batched_cholesky(A.clone()), device) - copy
    library = seconds(lambda: with_library_leaf(A.clone()), device) - copy
    factor = factor_torch.batched_cholesky(A.clone())
    flops = count * p**3 / 3.0
    return {
        "p": p,
        "systems": count,
        "gather_torch_ms": 1e3 * seconds(by_indexing, device),
        "gather_ms": 1e3
        * seconds(lambda: factor_torch.gather_submatrices(K, columns), device),
        "cholesky_torch_ms": 1e3
        * seconds(lambda: torch.linalg.cholesky_ex(full), device),
        "blocked_ms": 1e3 * library,
        "blocked_own_leaf_ms": 1e3 * ours,
        "solve_ms": 1e3 * seconds(lambda: factor.solve(right), device),
        "share_of_matmul": flops / ours / rate,
    }


def quintic(low, high):
    """Odd polynomial of degree 5 nearest to 1 on an interval, by Remez exchange."""
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
    """Polynomials whose composition takes [low, 1] to 1."""
    found, high = [], 1.0
    while low / high < 1 - 1e-5:
        found.append(quintic(low, high))
        x = np.linspace(low, high, 2001)
        y = sum(k * x**e for k, e in zip(found[-1], (1, 3, 5), strict=True))
        low, high = y.min(), y.max()
    return [*found, (15 / 8, -10 / 8, 3 / 8)]


def product(A, B):
    """``A B`` of commuting symmetric matrices: symmetric, so half of it will do."""
    n, out = A.shape[0], torch.empty_like(A)
    step = max(512, -(-n // 4))
    for first in range(0, n, step):
        last = min(first + step, n)
        torch.matmul(A[first:last], B[:, :last], out=out[first:last, :last])
        out[:first, first:last] = out[first:last, :first].mT
    return out


def products_needed(factor, nearest):
    """Products that put the floor in place without an eigendecomposition.

    A coupled iteration for the square root of a matrix whose singular values lie within
    ``factor`` (four products a round, fewer in the first and last), one for the sign
    that tells what is above the floor from what is below (three), one to join them.
    """
    return 4 * len(schedule(1.0 / factor)) - 3 + 3 * len(schedule(nearest)) + 1


def torch_inverse(A):
    """Inverse as PyTorch has it."""
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(A)[0])


def square_line(n, device):
    """Times of n x n work, in milliseconds."""
    X = torch.randn(n + 200, n, dtype=torch.float64, device=device)
    G = X.T @ X / n
    A = linalg_torch.add_diagonal(G, 1.0)
    half = 1e3 * seconds(lambda: product(G, A), device)
    inverse = 1e3 * seconds(lambda: linalg_torch.spd_inverse(A), device)
    count = products_needed(FACTOR, NEAREST)
    return {
        "n": n,
        "eigh_ms": 1e3 * seconds(lambda: torch.linalg.eigh(G), device),
        "products": count,
        "products_at_least_ms": count * half + 2.0 * inverse,
        "matmul_ms": 1e3 * seconds(lambda: G @ A, device),
        "half_product_ms": half,
        "inverse_torch_ms": 1e3 * seconds(lambda: torch_inverse(A), device),
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
    rate = matmul_rate(device, 512 if options.low_rank_core else 8192)
    sizes = (
        (32, 64) if options.low_rank_core else (32, 64, 128, 256, 384, 608, 800, 1200)
    )
    squares = (
        (100, 300) if options.low_rank_core else (500, 1000, 2000, 3000, 3619, 6000)
    )
    n, room = (200, 1e6) if options.low_rank_core else (3000, 4e9)
    X = torch.randn(n + 200, n, dtype=torch.float64, device=device)
    K = X.T @ X / n + torch.eye(n, dtype=torch.float64, device=device)
    batches = [batch_line(p, K, device, rate, room) for p in sizes]
    print_table(batches)
    lines = [square_line(n, device) for n in squares]
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

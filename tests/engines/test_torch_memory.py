"""Tests of a GPU with too little memory: batches shrink, large kernels raise.

Memory limits and the workspaces that cuBLAS keeps for every stream belong to a
process: each test has its own process.
"""

from __future__ import annotations

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from ncarl import NCARL
from ncarl.exceptions import DeviceMemoryError

torch = pytest.importorskip("torch")
from ncarl import Torch  # noqa: E402

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)


def run_in_process(work, *args):
    """Call a function in a new process and propagate its result or error."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(work, *args).result()


def limit_memory(size):
    """Limit the GPU memory of this process."""
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(size / total)


def check_shrinking_batches(gamma):
    rng = np.random.default_rng(0)
    truth = rng.random((3000, 5)) @ rng.random((5, 900))
    X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    options = {"gamma": gamma, "max_iter": 3, "tol": 0}
    roomy = NCARL(**options, engine=Torch(memory_gb=16)).fit(X)
    wanted = roomy.transform(X)
    limit_memory(1.5e9)
    engine = Torch(memory_gb=16)
    tight = NCARL(**options, engine=engine).fit(X)
    assert engine.budget.bytes <= 2e9
    found = tight.transform(X)
    assert np.abs(found - wanted).max() <= 1e-9 * np.abs(wanted).max()


WIDE = {"max_iter": 1, "tol": 0, "orientation": "columns", "weights": "pinv"}


def wide_matrix(columns):
    X = np.random.default_rng(0).random((30, 3000))
    X[:, ::2] = np.nan
    return X[:, :columns]


def suggested_columns():
    limit_memory(3e8)  # enough for the entries and a few arrays of 72 MB
    with pytest.raises(DeviceMemoryError, match="a kernel of 3000 columns") as told:
        NCARL(**WIDE, engine=Torch()).fit(wide_matrix(3000))
    assert "engine='threads'" in str(told.value)
    return int(re.search(r"enough for about (\d+) columns", str(told.value))[1])


def check_fit(columns):
    limit_memory(4e8)
    NCARL(**WIDE, engine=Torch()).fit(wide_matrix(columns))


@pytest.mark.parametrize("gamma", [None, 0.1])
def test_batches_shrink_until_they_fit(gamma):
    run_in_process(check_shrinking_batches, gamma)


def test_too_large_kernel_raises_and_the_suggested_size_fits():
    # The suggested size must fit in a new process.
    columns = run_in_process(suggested_columns)
    assert 1000 < columns < 3000
    run_in_process(check_fit, columns)

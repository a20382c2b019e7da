"""A card that is too small: batches shrink, and a kernel that cannot fit is refused."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

from ncarl import NCARL
from ncarl.exceptions import DeviceMemoryError

torch = pytest.importorskip("torch")
from ncarl import Torch  # noqa: E402

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)


@pytest.fixture
def limited():
    """A function that holds the process to so many more bytes of the card."""

    def limit(size):
        # What earlier tests have left behind: cuBLAS keeps 32 MB for every stream.
        gc.collect()
        getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
        torch.cuda.empty_cache()
        _, total = torch.cuda.mem_get_info()
        taken = torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction((taken + size) / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.fixture(scope="module", name="X")
def tall():
    rng = np.random.default_rng(0)
    truth = rng.random((3000, 5)) @ rng.random((5, 900))
    return np.where(rng.random(truth.shape) < 0.5, truth, np.nan)


@pytest.mark.parametrize("gamma", [None, 0.1])
def test_batches_shrink_until_they_fit(limited, X, gamma):
    options = {"gamma": gamma, "max_iter": 3, "tol": 0}
    roomy = NCARL(**options, engine=Torch(memory_gb=16)).fit(X)
    wanted = roomy.transform(X)
    limited(1.5e9)
    engine = Torch(memory_gb=16)
    tight = NCARL(**options, engine=engine).fit(X)
    assert engine.budget.bytes <= 2e9
    found = tight.transform(X)
    assert np.abs(found - wanted).max() <= 1e-9 * np.abs(wanted).max()


def test_a_kernel_that_cannot_fit_is_refused_with_what_would(limited):
    wide = np.random.default_rng(0).random((30, 3000))
    wide[:, ::2] = np.nan
    options = {"max_iter": 1, "tol": 0, "orientation": "columns", "weights": "pinv"}
    limited(3e8)  # entries fit, and a few arrays of 72 MB
    with pytest.raises(DeviceMemoryError, match="a kernel of 3000 columns") as told:
        NCARL(**options, engine=Torch()).fit(wide)
    columns = int(re.search(r"enough for about (\d+) columns", str(told.value))[1])
    # About 1200, and fewer where streams of other tests still hold workspaces.
    assert 500 < columns < 3000
    assert "engine='threads'" in str(told.value)
    limited(4e8)
    NCARL(**options, engine=Torch()).fit(wide[:, :columns])

"""Tests that baselines give the same results on torch and threads engines."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ncarl import (
    FGSR,
    LRFD,
    S3LR,
    WNNM,
    BiasModel,
    FactoredNuclear,
    Nuclear,
    RegL1,
    SchattenP,
    SoftImpute,
)

torch = pytest.importorskip("torch")
from ncarl import Torch  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_blas_thread", "one_torch_thread")

FEW = {"max_iter": 25, "tol": 0}
BASELINES = [
    Nuclear(**FEW),
    Nuclear(**FEW, solver="ialm"),
    Nuclear(**FEW, solver="svt"),
    Nuclear(**FEW, solver="apg", lam=0.3),
    FactoredNuclear(**FEW, rank=4),
    FactoredNuclear(**FEW, lam=0.3, rank=6),
    SchattenP(**FEW),
    WNNM(**FEW),
    RegL1(**FEW, rank=4),
    FGSR(**FEW, p=0.5, rank=4),
    FGSR(**FEW, p=2 / 3, lam=0.1, rank=4),
    LRFD(**FEW),
    LRFD(**FEW, dictionary="learned"),
    S3LR(**FEW, n_clusters=2, max_rounds=2),
    SoftImpute(**FEW, lam=0.3),
    BiasModel(**FEW),
]


@pytest.fixture(scope="module", name="X")
def incomplete_matrix():
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((40, 4)) @ rng.standard_normal((4, 25)) + 0.3
    noisy = truth + 0.01 * rng.standard_normal(truth.shape)
    return np.where(rng.random(truth.shape) < 0.6, noisy, np.nan)


@pytest.mark.parametrize("estimator", BASELINES, ids=str)
def test_torch_results_equal_those_of_threads(estimator, X, device):
    here = estimator.set_params(engine="threads").fit(X)
    expected, objective = here.transform(X), here.objective_
    there = estimator.set_params(engine=Torch(device=device)).fit(X)
    assert_allclose(there.transform(X), expected, atol=1e-7)
    assert_allclose(there.objective_, objective, rtol=1e-7)
    assert "torch" in there.engine_


@pytest.mark.parametrize("wide", [False, True])
def test_full_svd_on_a_device_matches_lapack(device, wide):
    from ncarl.core.svd import full_svd

    rng = np.random.default_rng(0)
    W = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 20))
    W = W + 1e-9 * rng.standard_normal(W.shape)
    W = W.T if wide else W
    found = full_svd(torch.tensor(W, device=device))
    assert_allclose(
        found.s, np.linalg.svd(W, compute_uv=False), atol=1e-13 * found.s[0]
    )
    U, Vt = found.U.cpu().numpy(), found.Vt.cpu().numpy()
    assert_allclose((U * found.s) @ Vt, W, atol=1e-12)
    r = 3
    assert_allclose(U[:, :r].T @ U[:, :r], np.eye(r), atol=1e-12)
    assert_allclose(Vt[:r] @ Vt[:r].T, np.eye(r), atol=1e-12)


def test_arrays_of_a_fit_stay_on_the_device(X, device):
    from ncarl.observations import Observations
    from ncarl.solvers.admm import ADMM, ResidualBalancing
    from ncarl.solvers.base import DenseProblem
    from ncarl.solvers.penalties import NuclearNorm

    home = Torch(device=device).compute_device
    problem = DenseProblem.from_observations(Observations.from_dense(X), home)
    solver = ADMM(
        problem, NuclearNorm(), ResidualBalancing(1.0 / problem.spectral_norm)
    )
    step = next(solver.steps(solver.initial_state(), 0))
    assert step.state.X.device.type == device
    assert step.state.Y.device.type == device

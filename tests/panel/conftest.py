from __future__ import annotations

import numpy as np
import pytest

from ncarl.panel import counterfactual, model


def factor_panel(units, times, seed, noise=0.1):
    """Units with individual levels and random loadings on three smooth trends."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 1.0, times)
    trends = np.stack([t, np.sin(3.0 * t), np.cos(5.0 * t)])
    loadings = rng.normal(0.0, 1.0, (units, 3))
    level = rng.normal(10.0, 2.0, (units, 1))
    return level + loadings @ trends + noise * rng.standard_normal((units, times))


@pytest.fixture
def few_steps(monkeypatch):
    """Limit the number of EM steps to save time."""
    monkeypatch.setattr(model, "MAX_EM_STEPS", 4)


@pytest.fixture(scope="session")
def panel_of():
    return factor_panel


@pytest.fixture(scope="session")
def treated_panel():
    """Twelve units; the fourth has a treatment effect of 3 from time 12 on."""
    Y = factor_panel(12, 16, seed=1)
    Y[3, 12:] += 3.0
    return Y


@pytest.fixture(scope="session")
def effect(treated_panel):
    return counterfactual(treated_panel, treated=3, start=12)


@pytest.fixture(scope="session")
def waves():
    """Ten days of hourly data of four sensors with daily seasonality."""
    rng = np.random.default_rng(0)
    hours = np.arange(240)[:, None]
    wave = np.sin(2 * np.pi * hours / 24 + np.array([0.0, 0.3, 0.6, 2.0]))
    drift = np.cumsum(0.05 * rng.standard_normal((240, 1)), axis=0)
    return 20.0 + 3.0 * wave + drift + 0.02 * rng.standard_normal((240, 4))

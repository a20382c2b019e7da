"""Tests of ``ncarl complete --method`` with the baseline methods."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import ncarl as package
from ncarl.cli.models import ModelOptions, build_estimator
from ncarl.registry import BASELINE_METHODS

from .conftest import read_numbers


@pytest.mark.parametrize("method", BASELINE_METHODS)
def test_every_baseline_completes_a_table(ncarl, csv, tmp_path, method):
    out = tmp_path / "out.csv"
    result = ncarl("complete", csv, "-o", out, "--method", method, "--max-iter", 30)
    X, filled = read_numbers(csv), read_numbers(out)
    seen = ~np.isnan(X)
    assert_array_equal(filled[seen], X[seen])
    assert np.isfinite(filled).all()
    assert f"method    {method}: " in result.stdout
    assert "residual  " in result.stdout
    estimator = build_estimator(ModelOptions(method=method), scale=None, progress=False)
    expected = estimator.set_params(max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_allclose(filled, expected.fit_transform(X), rtol=1e-6)


def test_parameters_are_set_by_name(ncarl, csv, tmp_path):
    result = ncarl(
        "complete", csv, "-o", tmp_path / "out.csv", "--method", "schatten",
        "--set", "p=0.7", "--set", "lam=auto", "--seed", 4, "--max-iter", 50,
        "--save-model", tmp_path / "model",
    )  # fmt: skip
    model = package.load(tmp_path / "model")
    assert (model.p, model.lam, model.random_state) == (0.7, "auto", 4)
    assert "center none, lam auto, p 0.7" in result.stdout
    assert "strength  lam " in result.stdout
    assert "on held-out entries" in result.stdout


def test_non_negative_values_are_not_centered():
    options = ModelOptions(method="regl1", settings=(("nonnegative", True),))
    assert build_estimator(options, scale="columns", progress=False).center is None


def test_duality_gap_of_nuclear_is_printed(ncarl, csv, tmp_path):
    out = tmp_path / "out.csv"
    result = ncarl("complete", csv, "-o", out, "--method", "nuclear")
    assert "objective within " in result.stdout


def test_columns_of_different_units_are_scaled_and_centered(tmp_path, X_nan):
    options = ModelOptions(method="nuclear")
    scaled = build_estimator(options, scale="columns", progress=False)
    assert (scaled.scale, scaled.center) == ("columns", "columns")
    assert build_estimator(options, scale=None, progress=False).center is None
    bias = build_estimator(ModelOptions(method="bias"), scale="columns", progress=False)
    assert bias.scale == "columns"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "nuclear", "--set", "p=1"), "has no parameter 'p'; it has"),
        (("--method", "nuclear", "--set", "tol=1"), "--set tol=...: give --tol"),
        (("--method", "fgsr", "--set", "random_state=1"), "cannot be set here"),
        (("--method", "fgsr", "--set", "a=1", "--set", "a=2"), "given twice"),
        (("--method", "schatten", "--set", "p=2"), "p must be above 0 and at most 1"),
        (("--method", "wnnm", "--std", "s.csv"), "--std needs a model of the noise"),
    ],
)
def test_options_that_do_not_apply_give_an_error(fails, csv, tmp_path, options, words):
    assert words in fails("complete", csv, "-o", tmp_path / "out.csv", *options)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("text", ["p", "=1", "p="])
def test_malformed_setting_is_a_usage_error(ncarl, csv, tmp_path, text):
    out = tmp_path / "out.csv"
    result = ncarl(
        "complete", csv, "-o", out, "--method", "fgsr", "--set", text, expect=2
    )
    assert "must be NAME=VALUE" in result.output

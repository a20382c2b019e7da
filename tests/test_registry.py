"""Tests of the registry: methods by name, suggestions for unknown names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_args

import pytest

import ncarl
from ncarl.registry import METHODS, available_methods, make, parameter_names


def test_every_method_makes_its_estimator():
    for name in available_methods():
        made = make(name)
        assert type(made).__name__ == METHODS[name].class_name
        assert type(made) is getattr(ncarl, METHODS[name].class_name)
        assert METHODS[name].summary


def test_every_estimator_has_one_name():
    kinds = [method.class_name for method in METHODS.values()]
    assert len(set(kinds)) == len(kinds)
    estimators = {
        name
        for name in ncarl.__all__
        if name not in ("Torch", "Dask")  # no estimators
        and name != "WideNCARL"  # the ncarl method with a sparse kernel
        and name != "TableImputer"  # wraps a method
        and inspect.isclass(getattr(ncarl, name))
        and hasattr(getattr(ncarl, name), "fit_transform")
    }
    assert set(kinds) == estimators


OPTIONAL_PACKAGES = """
dask distributed torch matplotlib pandas polars pyarrow numba PIL psutil typer rich zarr
"""
BLOCKED_IMPORTS = f"""
import inspect, pydoc, sys
from importlib.machinery import PathFinder

class Blocker(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.split(".")[0] not in {OPTIONAL_PACKAGES.split()}:
            return super().find_spec(name, path, target)

sys.meta_path[:] = [Blocker if f is PathFinder else f for f in sys.meta_path]
import ncarl

from ncarl import *
assert all(hasattr(ncarl, name) and name in globals() for name in ncarl.__all__)
assert {{name for name, _ in inspect.getmembers(ncarl)}} >= set(ncarl.__all__)
assert "BayesianNCARL" in pydoc.render_doc(ncarl)
assert "n_workers" in pydoc.render_doc(ncarl.Dask)
assert not hasattr(ncarl, "plots")
uses = lambda: ncarl.plots, lambda: NCARL(engine="dask").fit([[1.0]])
for use in (Dask, Torch, *uses):
    try:
        use()
    except (AttributeError, ImportError) as error:
        print(error)
"""


def test_package_can_be_explored_without_optional_packages():
    command = [sys.executable, "-c", BLOCKED_IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    extras = [line.rpartition("pip install ")[2] for line in done.stdout.splitlines()]
    assert extras == ["'ncarl[dask]'", "'ncarl[gpu]'", "'ncarl[cli]'", "'ncarl[dask]'"]


def test_class_names_and_capitals_are_accepted():
    assert type(make("SoftImpute")) is ncarl.SoftImpute
    assert type(make("softimpute")) is ncarl.SoftImpute
    assert type(make("NUCLEAR")) is ncarl.Nuclear


def test_parameters_are_passed_to_the_estimator():
    assert make("schatten", p=0.25, rho=1.1).get_params()["p"] == 0.25
    assert make("bias", row_ridge=3.0).row_ridge == 3.0


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("nuclaer", "nuclear"), ("softimput", "softimpute"), ("Schaten", "schatten")],
)
def test_unknown_name_suggests_a_similar_one(wrong, near):
    with pytest.raises(ValueError, match=f"got '{wrong}'; did you mean '{near}'"):
        make(wrong)


def test_name_without_similar_ones_lists_all():
    with pytest.raises(ValueError) as caught:
        make("xyzzy")
    said = str(caught.value)
    assert ", ".join(available_methods()) in said
    assert "did you mean" not in said


def test_name_must_be_a_string():
    with pytest.raises(TypeError, match="name must be a string, got 3"):
        make(3)


def test_unknown_parameter_lists_the_known_ones():
    with pytest.raises(TypeError) as caught:
        make("bias", rank=3)
    said = str(caught.value)
    assert "'bias' (BiasModel) has no parameter 'rank'" in said
    for name in parameter_names("bias"):
        assert name in said


def test_parameters_are_those_of_the_estimator():
    for name in available_methods():
        assert parameter_names(name) == sorted(make(name).get_params(deep=False))


def test_command_line_has_the_same_methods():
    pytest.importorskip("typer")

    from ncarl.cli.options import MethodChoice

    assert list(get_args(MethodChoice)) == available_methods()

"""Whether a GPU is there and does what it is asked, found out cheaply."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from functools import cache

#: Without one of these no GPU can be used; importing PyTorch to hear that takes
#: seconds.
DRIVERS = ("libcuda.so.1", "nvcuda.dll", "libamdhip64.so")


def _driver_found() -> bool:
    """Whether the driver of a GPU is installed."""
    for name in DRIVERS:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


@cache
def gpu_trouble() -> str | None:
    """Why PyTorch cannot use a GPU here, in a few words; None where it can."""
    if not torch_installed():
        return "PyTorch is not installed"
    if "torch" not in sys.modules and not _driver_found():
        return "no GPU driver is installed"
    fails = "PyTorch does not load"
    try:
        import torch

        if torch.version.cuda is None and torch.version.hip is None:
            return "this build of PyTorch has no GPU support"
        fails = "the GPU does not work"
        if not torch.cuda.is_available():
            return "PyTorch sees no GPU"
        from ncarl.torch_engine import check_device

        check_device("cuda")
    except Exception as error:  # libraries, drivers and cards fail in many ways
        return f"{fails} ({first_line(error)})"
    return None


if hasattr(os, "register_at_fork"):
    # A forked child cannot use the card of its parent.
    os.register_at_fork(after_in_child=gpu_trouble.cache_clear)


def torch_installed() -> bool:
    """Whether PyTorch is there to be imported."""
    try:
        return importlib.util.find_spec("torch") is not None
    except ValueError:  # a stand-in without a specification
        return False


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

"""Libraries that not everybody has, with a word on how to get them."""

from __future__ import annotations

import importlib
from typing import Any


def library(name: str, what: str, extra: str) -> Any:
    """A module, or an error that says what needs it and how it is installed.

    Parameters
    ----------
    name : str
        The module.
    what : str
        What it is needed for.
    extra : str
        The extra of this package that brings it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{what} need {name.split('.')[0]}; install it with pip install "
            f"'ncarl[{extra}]'"
        ) from error

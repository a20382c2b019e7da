"""What options of a command can be: names to choose from, and texts to read."""

from __future__ import annotations

import csv
import math
from enum import StrEnum
from typing import Any

import typer


class Method(StrEnum):
    """Estimators by their name, as in `ncarl.methods`."""

    BAYES = "bayes"
    NCARL_CV = "ncarl-cv"
    NCARL = "ncarl"
    NUCLEAR = "nuclear"
    FACTORED_NUCLEAR = "factored-nuclear"
    SCHATTEN = "schatten"
    WNNM = "wnnm"
    REGL1 = "regl1"
    FGSR = "fgsr"
    LRFD = "lrfd"
    S3LR = "s3lr"
    SOFT_IMPUTE = "soft-impute"
    BIAS = "bias"


#: Methods that the paper compares with, or that people expect.
RIVALS = tuple(m for m in Method if m not in ("bayes", "ncarl-cv", "ncarl"))


class Center(StrEnum):
    """Centrings by their name on the command line."""

    NONE = "none"
    MEAN = "mean"
    COLUMNS = "columns"
    TWO_WAY = "two-way"


class Weights(StrEnum):
    """Treatments of small singular values."""

    FLOOR = "floor"
    PINV = "pinv"
    SMOOTH = "smooth"


class Orientation(StrEnum):
    """Which side carries the kernel."""

    AUTO = "auto"
    COLUMNS = "columns"
    ROWS = "rows"


class Sides(StrEnum):
    """Which sides carry a kernel."""

    AUTO = "auto"
    COLUMNS = "columns"
    ROWS = "rows"
    BOTH = "both"


class Scale(StrEnum):
    """Whether columns are brought to one scale."""

    AUTO = "auto"
    NONE = "none"
    COLUMNS = "columns"


class EngineName(StrEnum):
    """Engines by their name."""

    AUTO = "auto"
    THREADS = "threads"
    TORCH = "torch"


class FitEngine(StrEnum):
    """Engines that one fit can be given to."""

    AUTO = "auto"
    THREADS = "threads"
    TORCH = "torch"
    DASK = "dask"


class Precision(StrEnum):
    """Precisions of the work."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"


def parse_gamma(text: str) -> float | str:
    """A noise level, or "none" for the exact model."""
    return _number_or(text, ("none",), "a positive number or 'none'")


def parse_strength(text: str) -> float | str:
    """A strength of the prior, or "auto" to choose it."""
    return _number_or(text, ("auto",), "a number that is not negative, or 'auto'")


def parse_noise(text: str) -> float | str:
    """A standard deviation of the noise, or how to learn it."""
    words = ("learn", "per-column")
    return _number_or(text, words, "'learn', 'per-column' or a standard deviation")


def parse_clip(text: str) -> tuple[float, float] | str:
    """Bounds of filled values, "auto" to find them or "none".

    Examples
    --------
    >>> parse_clip("1,5"), parse_clip("none")
    ((1.0, 5.0), 'none')
    """
    if text.lower() in ("auto", "none"):
        return text.lower()
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        low = high = math.nan
    if not low < high:
        raise typer.BadParameter(
            f"must be 'auto', 'none' or LOW,HIGH with LOW below HIGH, got {text!r}"
        )
    return low, high


def parse_columns(text: str) -> tuple[str, ...]:
    """Names of columns, parted by commas; in double quotes if they have some inside.

    Examples
    --------
    >>> parse_columns('height,"weight, kg"')
    ('height', 'weight, kg')
    """
    found = next(csv.reader([text], skipinitialspace=True), [])
    names = tuple(name.strip() for name in found)
    if not names or not all(names):
        raise typer.BadParameter(f"must be names parted by commas, got {text!r}")
    return names


def parse_level(text: str) -> float:
    """A part of the entries, between 0 and 1."""
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0.0 < level < 1.0:
        raise typer.BadParameter(f"must lie between 0 and 1, got {text!r}")
    return level


def _fraction(text: str) -> float:
    """A number written as a fraction, such as 2/3."""
    above, _, below = text.partition("/")
    return float(above) / float(below)


def parse_setting(text: str) -> tuple[str, Any]:
    """A parameter of a method and its value.

    Examples
    --------
    >>> parse_setting("p=0.5"), parse_setting("lam=auto"), parse_setting("rank=none")
    (('p', 0.5), ('lam', 'auto'), ('rank', None))
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise typer.BadParameter(f"must be NAME=VALUE, such as p=0.5, got {text!r}")
    words: dict[str, Any] = {"none": None, "true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float, _fraction):
        try:
            return name, kind(value)
        except (ValueError, ZeroDivisionError):
            continue
    return name, value


def _number_or(text: str, words: tuple[str, ...], wanted: str) -> float | str:
    """One of the words, or a number; ``wanted`` says so where it is neither."""
    if text.lower() in words:
        return text.lower()
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be {wanted}, got {text!r}") from None

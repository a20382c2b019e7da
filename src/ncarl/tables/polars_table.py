"""Frames of polars as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ncarl.containers import held
from ncarl.core.types import Array
from ncarl.tables.given import Given, whole_numbers


class PolarsTable:
    """A frame of polars; NaN is a gap as null is."""

    library = "polars"

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.names: list[Any] = list(frame.columns)
        self.n_rows = int(frame.height)

    def given(self, j: int, labels: bool = False) -> Given:
        """Column ``j``; ``labels`` asks for its values as labels."""
        series = self.frame.to_series(j)
        dtype, kind = series.dtype, kind_of(series.dtype)
        gaps = gaps_of(series)
        if labels and kind in ("number", "integer", "boolean"):
            kind = "category"
        if kind == "category":
            text = labels_of(series)
            values = np.empty(len(series), dtype=object)
            values[:] = text
            values[gaps] = None
        elif kind in ("empty", "other"):
            values = np.full(len(series), np.nan)
        else:
            floats = series.cast(float).fill_null(float("nan"))
            values = floats.to_numpy().astype(np.float64)
        return Given(self.names[j], kind, values, gaps, dtype, declared_of(dtype))

    def reordered(self, order: Sequence[int]) -> PolarsTable:
        """The table with its columns in another order."""
        return PolarsTable(self.frame.select([self.names[j] for j in order]))

    def column(self, j: int, new: Array, kind: str, usual: Any) -> Any:
        """Column ``j`` with ``new`` in its gaps, in a type that can hold it."""
        import polars as pl

        series = self.frame.to_series(j)
        gaps = gaps_of(series)
        dtype = _able(series, new, kind, usual, bool(gaps.all()))
        if dtype != series.dtype:
            series = (
                pl.Series(series.name, [None] * len(series), dtype=dtype)
                if gaps.all()
                else _cast(series, dtype)
            )
        whole: list[Any] = [None] * len(series)
        for place, value in zip(
            np.flatnonzero(gaps), _typed(new, dtype), strict=True
        ):  # fmt: skip
            whole[place] = value
        other = pl.Series(series.name, whole, dtype=dtype, strict=False)
        return series.zip_with(pl.Series(~gaps), other)

    def assembled(self, columns: dict[Any, Any], flags: dict[Any, Array]) -> Any:
        """A frame of some columns with flags beside them."""
        import polars as pl

        out = self.frame.select(list(columns))
        changed = [column for column in columns.values() if column is not None]
        more = [pl.Series(name, flag) for name, flag in flags.items()]
        return out.with_columns([*changed, *more])

    def of_numbers(self, columns: dict[Any, Array]) -> Any:
        """A frame of floats."""
        import polars as pl

        return pl.DataFrame(columns)


def gaps_of(series: Any) -> Array:
    """Where a column of polars has null, or NaN."""
    gaps = series.is_null()
    if series.dtype.is_float():
        gaps = gaps | series.is_nan().fill_null(value=True)
    found: Array = gaps.to_numpy().astype(bool)
    return found


def kind_of(dtype: Any) -> str:
    """What a column of this type holds."""
    name = str(dtype.base_type())
    if name in ("Categorical", "Enum", "String"):
        return "category"
    if name == "Boolean":
        return "boolean"
    if name == "Null":
        return "empty"
    if dtype.is_integer():
        return "integer"
    return "number" if dtype.is_numeric() else "other"


def labels_of(series: Any) -> list[Any]:
    """Values of a column as labels: text where it is text."""
    text = kind_of(series.dtype) == "category"
    found: list[Any] = (series.cast(str) if text else series).to_list()
    return found


def declared_of(dtype: Any) -> tuple[str, ...] | None:
    """Labels that a type allows, if it says so."""
    if str(dtype.base_type()) != "Enum":
        return None
    return tuple(dtype.categories.to_list())


def _cast(series: Any, dtype: Any) -> Any:
    """A column in a wider type."""
    import polars as pl

    if kind_of(dtype) == "category":
        return series.cast(pl.String).cast(dtype)
    return series.cast(dtype)


def _able(series: Any, new: Array, kind: str, usual: Any, empty: bool) -> Any:
    """A type for the column that can hold what is filled in."""
    import polars as pl

    dtype, found = series.dtype, kind_of(series.dtype)
    if kind == "category":
        return _able_labels(dtype, new, usual, empty)
    if kind == "integer" and not np.all(new == np.rint(new)):
        return dtype if found == "number" else pl.Float64
    if found in ("number", "integer", "boolean") and (found == kind or not empty):
        return dtype
    plain = {"boolean": pl.Boolean, "integer": pl.Int64}.get(kind, pl.Float64)
    return plain if usual is None else usual


def _able_labels(dtype: Any, new: Array, usual: Any, empty: bool) -> Any:
    """A type for labels: those of an Enum are added to where they must be."""
    import polars as pl

    if kind_of(dtype) != "category":
        return usual if empty and usual is not None else pl.String
    declared = declared_of(dtype)
    if declared is None or set(new) <= set(declared):
        return dtype
    fitted = None if usual is None else declared_of(usual)
    if fitted is not None and set(declared) <= set(fitted):
        return usual
    return pl.Enum([*declared, *(x for x in dict.fromkeys(new) if x not in declared)])


def _typed(new: Array, dtype: Any) -> list[Any]:
    """Filled values as a column of the type can take them."""
    kind = kind_of(dtype)
    if kind == "boolean":
        return [bool(x) for x in new]
    if kind == "integer":
        return whole_numbers(new, str(dtype).lower())
    if kind == "number":
        small = str(dtype) == "Float32"
        floats = held(
            np.asarray(new, dtype=np.float64),
            np.dtype(np.float32 if small else np.float64),
        )
        return [float(x) for x in floats]
    return list(new)

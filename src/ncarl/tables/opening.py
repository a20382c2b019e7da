"""From what the user gives to a table, checked against the table of the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from ncarl.sources.frames import dense_values, is_frame, is_polars
from ncarl.tables.arrays import ArrayTable
from ncarl.tables.given import Table
from ncarl.tables.pandas_table import PandasTable
from ncarl.tables.polars_table import PolarsTable


def open_table(estimator: Any, X: Any, *, reset: bool) -> Table:
    """``X`` as a table; columns of a frame in the order of the fit.

    Parameters
    ----------
    estimator : estimator
        Whose feature names and count to set or check.
    X : frame or array
        pandas or polars frame; array of numbers with NaN, masked array.
    reset : bool
        Set the estimator's feature names and count, or check against them.
    """
    if not is_frame(X):
        if not reset:
            _refuse_array(estimator)
        if isinstance(X, np.ma.MaskedArray):
            X = dense_values(X)
        _refuse_words(X)
        values = validate_data(
            estimator, X, reset=reset, dtype=(np.float64, np.float32),
            ensure_all_finite="allow-nan",
        )  # fmt: skip
        if reset:
            estimator.frame_names_ = None
        return ArrayTable(values)
    table: Table = PolarsTable(X) if is_polars(X) else PandasTable(X)
    _check_shape(table)
    if reset:
        estimator.frame_names_ = list(table.names)
    else:
        table = _by_name(estimator, table)
    frame = table.frame  # type: ignore[attr-defined]
    validate_data(estimator, frame, reset=reset, skip_check_array=True)
    return table


def _check_shape(table: Table) -> None:
    """Raise for frames without rows or columns, or with a name twice."""
    if table.n_rows == 0 or not table.names:
        what = "sample(s)" if table.names else "feature(s)"
        raise ValueError(
            f"Found array with 0 {what} (shape=({table.n_rows}, {len(table.names)})) "
            "while a minimum of 1 is required."
        )
    twice = sorted({str(n) for n in table.names if table.names.count(n) > 1})
    if twice:
        raise ValueError(
            f"columns of X must have different names, got {', '.join(twice)} more than "
            "once; rename them"
        )


def _refuse_words(X: Any) -> None:
    """Raise for an array of words, which can be no numbers."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU" or X.ndim != 2:
        return
    for place, cell in np.ndenumerate(X):
        if isinstance(cell, str) and not _says_a_number(cell):
            raise ValueError(
                "X must be a frame of pandas or polars where columns hold words, got "
                f"an array with {str(cell)!r} in row {place[0]}, column {place[1]}; "
                "pandas.DataFrame(X).infer_objects() makes one of it"
            )


def _says_a_number(text: str) -> bool:
    """Whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse_array(estimator: Any) -> None:
    """Raise where an array is to stand for a table with categories."""
    coded = [repr(c.name) for c in estimator.columns_ if c.kind == "category"]
    if coded:
        raise ValueError(
            f"X must be a frame: columns {', '.join(coded)} held categories in fit, "
            "and an array holds numbers only"
        )


def _by_name(estimator: Any, table: Table) -> Table:
    """The table with its columns in the order of the fit, if it has just these."""
    names = estimator.frame_names_
    if names is None or list(table.names) == names:
        return table
    if set(table.names) == set(names):
        return table.reordered([table.names.index(name) for name in names])
    if not hasattr(estimator, "feature_names_in_") and len(names) == len(table.names):
        # scikit-learn compares names that are text, and no others.
        strange = [name for name in table.names if name not in names]
        raise ValueError(
            f"columns of X must be those of fit, {names[:8]}, got "
            f"{strange[:8]} among them; rename them"
        )
    return table


def as_asked(estimator: Any, frame: Any) -> Any:
    """``frame`` in the library that ``set_output`` asks for."""
    own = getattr(estimator, "_sklearn_output_config", {}).get("transform")
    wanted = own or get_config()["transform_output"]
    if not is_frame(frame) or wanted == "default":
        return frame
    if wanted == "pandas" and is_polars(frame):
        return frame.to_pandas()
    if wanted == "polars" and not is_polars(frame):
        import polars as pl

        return pl.from_pandas(frame)
    return frame

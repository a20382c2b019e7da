"""Descriptions of parameters and attributes that several estimators share.

A line such as ``%(center scale)s`` in the docstring of an estimator, or of its ``fit``,
is replaced by the descriptions that begin with these names when the class is made
(`BaseCompleter.__init_subclass__`).
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

_SHARED = """
X : array, masked array, frame or sparse matrix of shape (m, n)
    Matrix with missing entries: NaN, masked, null, or not stored.
y : ignored
    For scikit-learn's interface.
alpha : float, default=100.0
    Weight of the graph; 0 leaves the rank surrogate alone.
n_neighbors : int, default=10
    Number of neighbors of a column in the graph, including itself; at most one less
    than the number of columns.
gamma : float or None, default=None
    None for the exact model, which keeps observed values. A positive number for the
    noisy model (NCARL-noisy), which smooths them; larger is smoother.
center : {None, "mean", "columns", "two-way"}, default=None
    What to subtract before and add back after: nothing, the mean of all observed
    entries, column means, or row and column effects.
scale : {None, "columns"}, default=None
    "columns" divides every column by its standard deviation first, which tables with
    columns of different units need.
lam : float, "auto" or None, default=None
    Strength of the penalty against half the squared residuals, which allows for noise;
    "auto" selects it on held-out entries. None keeps observed entries fixed.
rank : int, optional
    Number of columns of A, at the start. By default as many as the minimum nuclear norm
    can need: the smallest r with ``r (r + 1) / 2`` above the number of entries, at most
    the number of rows or columns. With fewer than ``entries / (m + n)`` no product
    agrees with noisy entries, and the fit cannot converge unless ``lam`` is given.
random_state : int, default=0
    Seed of the held-out entries of ``lam="auto"``.
dtype : {"float64", "float32"}, default="float64"
    Precision of the computation; results have the float type of the input.
engine : {"auto", "threads", "torch"} or Engine, default="auto"
    Where the computation runs; see `NCARL`.
progress : bool, default=False
    Show a progress bar; where there is no terminal, a line every 30 seconds.
callback : callable, optional
    Called with a `StepInfo` after each step; returning True ends the fit.
checkpoint : path or Checkpoint, optional
    File that keeps the state. If it exists, the fit resumes from it, with the same
    result as if it had never stopped.
history_ : dict of arrays
    Per step: ``objective``, ``change``, seconds, and what the solver records of
    ``primal`` and ``dual`` residual, ``gap``, ``rank``, ``mu`` and ``lam``.
lam_, path_ : float or None, list of dict
    Strength of the noisy form (None without one), and the strengths that ``lam="auto"``
    tried, with their errors on held-out entries.
residual_ : float
    Relative residual of the observed entries before they are restored, which the noisy
    form does not do.
rank_, objective_, n_iter_, converged_
    Rank before that, last objective, number of steps, whether the fit converged.
unidentified_rows_, unidentified_columns_ : arrays of int
    Rows and columns without observed entries; they get the center, 0 without one.
"""
_DESCRIPTIONS = {
    re.match(r"\w+", text)[0]: text  # type: ignore[index]
    for text in re.split(r"\n(?=\w)", _SHARED.strip())
}


def fill_docstring(documented: Any) -> None:
    """Replace the lines ``%(name ...)s`` of a docstring by the shared descriptions."""
    doc = getattr(documented, "__doc__", None)  # None with ``python -OO``
    if doc is not None:
        pattern = r"^( *)%\(([\w ]+)\)s$"
        documented.__doc__ = re.sub(pattern, _fill_line, doc, flags=re.M)


def _fill_line(line: re.Match[str]) -> str:
    indent, names = line.groups()
    shared = "\n".join(_DESCRIPTIONS[name] for name in names.split())
    return textwrap.indent(shared, indent)

"""What ``ncarl complete`` prints when it is done."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import typer
from rich.console import Console
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ncarl.cli.bayes_summary import bayesian_lines, model_words
from ncarl.cli.choices import RIVALS, Method
from ncarl.cli.completion import Done, Passed
from ncarl.cli.files import Table, listed, shown
from ncarl.cli.outputs import USUAL_LEVEL, Outputs
from ncarl.cli.rival_summary import rival_lines, rival_words
from ncarl.core.types import Array
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.exceptions import NumericalWarning


def report(done: Done, *, quiet: bool) -> None:
    """Print the summary, unless quiet, and warnings on the error stream."""
    for line in warning_lines(done):
        typer.echo(f"warning: {line}", err=True)
    if not quiet:
        print_summary(done, Console())


def print_summary(done: Done, console: Console) -> None:
    """Print the run as lines of a name and what there is to say."""
    for name, line in summary_lines(done):
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        console.print(shown(line), markup=False, highlight=False, soft_wrap=True)


def summary_lines(done: Done) -> Iterable[tuple[str, str]]:
    """Names and what there is to say of a run."""
    table = done.table
    streamed = isinstance(table, Passed)
    m, n = table.shape if isinstance(table, Passed) else table.values.shape
    total = f"{m} x {n}, {done.missing} missing ({done.missing / (m * n):.1%})"
    yield "table", total + (", read in blocks of rows" if streamed else "")
    for note in table.notes:
        yield "", note
    if not isinstance(table, Passed):
        yield from _reading_lines(done, table)
    if done.estimator is None:
        yield "result", "nothing was missing; the table was copied as it is"
    else:
        yield from _model_lines(done)
    yield from _written_lines(done.job.outputs)


def _reading_lines(done: Done, table: Table) -> Iterable[tuple[str, str]]:
    """Which columns were not used, and which perhaps should not have been."""
    if table.left_out:
        yield "labels", f"kept, not used: {listed(table.left_out)}{_left_gaps(table)}"
    if table.mixed_units and (counting := counting_columns(table.values)):
        names = listed([_name(done, j) for j in counting])
        yield "", f"used as data, but may be labels (see --label): {names}"


def _left_gaps(table: Table) -> str:
    """How many gaps are left in columns of text, where there are some."""
    gaps = table.left_gaps
    return f" ({gaps} {'gap' if gaps == 1 else 'gaps'} left in them)" if gaps else ""


def _written_lines(outputs: Outputs) -> Iterable[tuple[str, str]]:
    """The files that were written."""
    yield "written", str(outputs.target)
    if outputs.std is not None:
        yield "", f"{outputs.std} (standard deviations; 0 at observed entries)"
    level = USUAL_LEVEL if outputs.level is None else outputs.level
    for path, end in ((outputs.lower, "lower"), (outputs.upper, "upper")):
        if path is not None:
            yield "", f"{path} ({end} ends of {level * 100:g}% intervals)"
    if outputs.drawn is not None:
        yield "", f"{outputs.drawn} (draws, {outputs.draws} completed tables)"
    if outputs.saved is not None:
        yield "", f"{outputs.saved} (the model; read it with ncarl.load)"


def _model_lines(done: Done) -> Iterable[tuple[str, str]]:
    """The part of the summary that tells of the fit."""
    est, method = done.estimator, done.job.model.method
    bayes, rival = method is Method.BAYES, method in RIVALS
    words = model_words if bayes else rival_words if rival else parameters
    yield "method", f"{method}: {words(est)}"
    yield "scale", f"{done.scale or 'none'} ({done.reason})"
    lines = bayesian_lines if bayes else rival_lines if rival else _error_lines
    yield from lines(done)
    # With tol = 0 a fixed number of steps was asked for, and was made.
    settled = "" if est.converged_ or est.tol == 0.0 else ", not settled"
    yield "steps", f"{est.n_iter_}{settled}, {done.seconds:.1f} s in all"
    yield "engine", est.engine_
    yield from _empty_lines(done)


def _error_lines(done: Done) -> Iterable[tuple[str, str]]:
    """The error of a search on held-out entries."""
    error = getattr(done.estimator, "best_error_", math.nan)
    if not math.isnan(error):
        share = done.estimator.validation
        unit = "of a column's spread" if done.scale else "relative"
        yield "error", f"{error:.3g} {unit}, on {share:.0%} of the entries held out"


def _empty_lines(done: Done) -> Iterable[tuple[str, str]]:
    """Rows and columns of which nothing was known."""
    columns, rows = (
        done.estimator.unidentified_columns_,
        done.estimator.unidentified_rows_,
    )
    if len(columns):
        text = listed([_name(done, j) for j in columns])
        yield "empty", f"columns with nothing observed, filled by the centre: {text}"
    if len(rows):
        text = listed([str(i + 1) for i in rows])
        yield "empty", f"rows with nothing observed, filled by the centre: {text}"


def _name(done: Done, column: int) -> str:
    """What the user calls a column."""
    names = done.table.columns
    return names[column] if names else str(column + 1)


def counting_columns(values: Array) -> list[int]:
    """Columns of ever larger whole numbers without a gap: more likely ids than data.

    Examples
    --------
    >>> import numpy as np
    >>> counting_columns(np.array([[1.0, 5.0], [2.0, 4.5], [3.0, 6.0]]))
    [0]
    """
    if sparse.issparse(values) or len(values) < 3:
        return []
    # A gap is NaN, which is neither whole nor larger than anything.
    whole = (values == np.floor(values)).all(axis=0)
    rising = (np.diff(values, axis=0) > 0).all(axis=0)
    return [int(j) for j in np.flatnonzero(whole & rising)]


def parameters(estimator: Any) -> str:
    """The parameters of a fit, whether chosen or given.

    Examples
    --------
    >>> from ncarl import NCARL
    >>> est = NCARL(alpha=10.0)
    >>> est.n_neighbors_ = 10
    >>> parameters(est)
    'alpha 10, exact (gamma none), center none, 10 neighbours'
    """
    chosen = getattr(estimator, "best_params_", None) or estimator.get_params()
    gamma = chosen["gamma"]
    noise = "exact (gamma none)" if gamma is None else f"gamma {gamma:g}"
    return (
        f"alpha {chosen['alpha']:g}, {noise}, center {chosen['center'] or 'none'}, "
        f"{estimator.n_neighbors_} neighbours"
    )


def warning_lines(done: Done) -> list[str]:
    """Warnings of a fit in words that name the options of the command."""
    lines = []
    for warning in done.warned:
        if isinstance(warning, ConvergenceWarning):
            line = _unsettled(done.estimator)
        elif isinstance(warning, NumericalWarning) or type(warning) is UserWarning:
            line = " ".join(str(warning).split())
        else:
            continue
        if line not in lines:
            lines.append(line)
    return lines


def _unsettled(est: Any) -> str:
    """What to do about a fit that did not settle."""
    bayes = isinstance(est, BayesianNCARL)
    steps, kept = (est.max_iter, "best") if bayes else (est.n_iter_, "last")
    return (
        f"not settled after {steps} steps, the {kept} one is kept; raise --max-iter or "
        "--tol"
    )

"""``ncarl demo``: a photograph, twice, and a table, completed in half a minute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncarl.cli.reporting import ReportOption, check_report, say_written

if TYPE_CHECKING:
    from rich.table import Table

    from ncarl.cli.demo_cases import Outcome

#: Columns of errors: yardsticks, then methods of ``ncarl complete``.
METHODS = ("mean", "two-way", "ncarl-cv", "bayes")
FOOTNOTE = (
    "Errors are root mean squares over the hidden entries: grey levels from 0 to 1 in "
    "the photo, standard deviations of the column in the table (scikit-learn's breast "
    "cancer data). 'mean' and 'two-way' are yardsticks: the mean (of the column in the "
    "table), and row plus column effects. 'bayes' is the default of ncarl complete; "
    "'in 90%' says how many hidden entries lie in its 90% intervals. No method sees a "
    "hidden entry. What there is to choose ncarl-cv chooses on scattered gaps, bayes "
    "on gaps that lie as the others do."
)


EXAMPLES = (
    "ncarl demo",
    "ncarl demo --quick --out pictures",
)


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures and results.json.")
    ] = Path("ncarl-demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller photo, for a first look.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the hidden entries and of the search.")
    ] = 0,
    report: ReportOption = None,
) -> None:
    """Complete a photograph and a table with known truth, and draw the results.

    Everything comes with scikit-learn; nothing is downloaded. Files of the same names
    in the folder are replaced.
    """
    check_report(report)
    out.mkdir(parents=True, exist_ok=True)

    from rich.console import Console

    from ncarl.cli.completion import on_terminal
    from ncarl.cli.demo_cases import cases, solve
    from ncarl.cli.demo_figures import draw

    console = Console()
    outcomes = []
    for case in cases(quick, seed):
        m, n = case.truth.shape
        console.print(f"completing {case.title} ({m} x {n}) ...", highlight=False)
        outcomes.append(solve(case, seed, on_terminal()))
    files = draw(outcomes, out)
    files.append(write_results(outcomes, out, quick=quick, seed=seed))
    console.print("", results_table(outcomes), "", FOOTNOTE, sep="\n", highlight=False)
    fits = [fit for outcome in outcomes for fit in outcome.fits.values()]
    if not all(fit.estimator.converged_ for fit in fits):
        console.print("* not settled within the allowed steps", highlight=False)
    console.print(f"\nwritten to {out}:", highlight=False, soft_wrap=True)
    for path in files:
        console.print(f"  {path.name}", highlight=False)
    if report is not None:
        from ncarl.cli.demo_page import write_page

        write_page(outcomes, files, report)
        say_written(report)


def results_table(outcomes: Sequence[Outcome]) -> Table:
    """The results for the terminal, the least error of each case in bold."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("data", no_wrap=True)
    for name in ("missing", *METHODS[:2]):
        table.add_column(name, justify="right", no_wrap=True)
    for name in METHODS[2:]:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("sec", justify="right", no_wrap=True)
    table.add_column("in 90%", justify="right", no_wrap=True)
    for outcome in outcomes:
        row = [outcome.case.title, f"{outcome.case.hidden.mean():.1%}"]
        for name in METHODS:
            row.append(_error(outcome, name))
            if name in outcome.fits:
                row.append(f"{outcome.fits[name].seconds:.1f}")
        table.add_row(*row, f"{outcome.covered.mean():.1%}")
    return table


def _error(outcome: Outcome, name: str) -> str:
    """The error of a method, marked if it is the least, and if it is not settled."""
    text = f"{outcome.errors[name]:.3f}"
    if outcome.errors[name] == min(outcome.errors.values()):
        text = f"[bold]{text}[/bold]"
    fit = outcome.fits.get(name)
    return text if fit is None or fit.estimator.converged_ else f"{text}*"


def write_results(
    outcomes: Sequence[Outcome], folder: Path, *, quick: bool, seed: int
) -> Path:
    """Write all figures as numbers; the file written."""
    import json

    from ncarl import __version__
    from ncarl.cli.demo_cases import CREDIT
    from ncarl.storage import replacing

    content = {
        "ncarl": __version__,
        "quick": quick,
        "seed": seed,
        "credit": CREDIT,
        "cases": [outcome.record() for outcome in outcomes],
    }
    target = folder / "results.json"
    with replacing(target) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return target

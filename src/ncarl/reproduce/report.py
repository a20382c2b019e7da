"""Report of a study: one HTML page with verdicts, tables, figures and metadata.

`publish` writes the page, the figures and the result files of finished cells.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy
import scipy

from ncarl.evaluation.measure import DONE
from ncarl.html import Markup, Page, span
from ncarl.reproduce.plan import HONEST, PROTOCOL_LABELS, PROTOCOLS, StudyPlan
from ncarl.reproduce.run import ResultStore, schedule_cells
from ncarl.reproduce.summary import (
    NOT_RUN,
    Entry,
    StudyData,
    Verdict,
    mean_and_std,
    mean_ranks,
    objective_histories,
    printed_value_or_bound,
    spectrum_energy,
    summarize_plan,
    write_csv,
    write_json,
)
from ncarl.reproduce.theory import check_theorems
from ncarl.reproduce.verdicts import (
    FAILS,
    HOLDS,
    HOLDS_WITH_CHANGES,
    UNDECIDED,
    Evidence,
    at_or_below,
    judge_claims,
    table_remarks,
)
from ncarl.text import format_number

#: Folder of the figures, beside the file of results.
FIGURES_FOLDER = "figures"
#: Warning on results of reduced size.
QUICK_NOTE = (
    "Reduced sizes, two seeds and stand-ins for the data: it shows that everything "
    "runs, and says nothing about the paper."
)
INTRODUCTION = (
    "The experiments of X. Li, H. Zhang, R. Zhang, “Matrix Completion via Non-Convex "
    "Relaxation and Adaptive Correlation Learning” (IEEE TPAMI 45(2), 2023), run again "
    "and compared with the printed values. Errors are root mean squared errors on "
    "hidden entries over the root mean square of those entries; the paper calls this "
    "MSE. Seconds depend on the machine: the paper's were measured on another one.",
    "Parameters are chosen in two ways, and every table says which:",
)
#: Seeds of a full study; other numbers are shown in the cell.
DEFAULT_SEEDS = 5
#: Mark of results of an older version.
OLD_MARK = "†"
OLD_NOTE = f"{OLD_MARK} from an older version of the code"
#: How to read a table.
LEGEND = (
    "A cell shows our mean ± standard deviation over seeds, below it the value printed "
    "in the paper and the difference (ours minus printed).",
    "≤ (green): ours is at or below the printed value, to the printed digits.",
    "Bold: the least of its column among finished fits.",
    f"n=2: two seeds finished instead of {DEFAULT_SEEDS}.",
    "over budget, failed, no data, not run: why a value is missing or not final; see "
    "the notes below each table.",
    f"{OLD_NOTE}.",
)
#: Text of a missing value.
DASH = "\N{EN DASH}"
#: Minus sign, as wide as a plus sign.
MINUS = "\N{MINUS SIGN}"
#: CSS class and sign of a verdict, by its state.
STATE_STYLES = {
    HOLDS: ("good", "✓"),
    HOLDS_WITH_CHANGES: ("partly", "≈"),
    FAILS: ("bad", "✗"),
}


@dataclass(frozen=True)
class PublishedStudy:
    """Files and results that `publish` wrote."""

    files: tuple[Path, ...]  # the report first
    entries: Mapping[str, Sequence[Entry]]  # by table or figure
    verdicts: Sequence[Verdict]  # on the claims of the paper

    @property
    def unfinished_counts(self) -> dict[str, int]:
        """Number of entries that are not done, by status."""
        statuses = [e.status for rows in self.entries.values() for e in rows]
        return dict(Counter(status for status in statuses if status != DONE))

    @property
    def report_path(self) -> Path:
        """The page to open."""
        return self.files[0]


def publish(
    plans: Sequence[StudyPlan],
    store: ResultStore,
    protocols: Sequence[str],
    *,
    quick: bool = False,
) -> PublishedStudy:
    """Write results, figures and the report into the folder of the store.

    ``quick`` says whether the plans are at their reduced size.
    """
    folder, results = store.folder, store.all_results
    (folder / FIGURES_FOLDER).mkdir(exist_ok=True)
    facts = check_theorems() if any(plan.kind == "theory" for plan in plans) else None
    studies = []
    for plan in plans:
        entries = summarize_plan(plan, protocols, results, store.version)
        studies.append(StudyData(plan, entries, results, folder, facts, quick))
    verdicts = judge_claims(
        _collect_evidence([one for one in studies if one.plan.is_builtin])
    )
    if quick:
        verdicts = [_withhold_verdict(verdict) for verdict in verdicts]
    title = "NCARL, run again" + (" (quick)" if quick else "")
    page = start_report(title, verdicts, QUICK_NOTE if quick else "")
    figures = []
    for one in studies:
        path, problem = _draw_and_save(one, folder / FIGURES_FOLDER)
        figures += [path] if path else []
        shows_table = one.plan.kind in ("table", "rates", "neighbors")
        tables = one.entries if shows_table else ()
        remarks = table_remarks(tables, one.plan.measure)
        notes = [*one.plan.notes, *remarks, *([problem] if problem else [])]
        add_study(page, one.plan, tables, notes, path)
    about = _collect_metadata(plans, store, protocols, quick)
    page.heading("Where this comes from").facts(about)
    entries = [entry for one in studies for entry in one.entries]
    files = (
        page.save(folder / "report.html"),
        write_csv(folder / "results.csv", entries),
        write_json(folder / "results.json", entries, verdicts, about),
    )
    by_study = {one.plan.name: one.entries for one in studies}
    return PublishedStudy((*files, *figures), by_study, verdicts)


def _collect_evidence(studies: Sequence[StudyData]) -> Evidence:
    by_kind = {one.plan.kind: one for one in studies}
    spectrum, noisy = by_kind.get("spectrum"), by_kind.get("noisy")
    curves, theory = by_kind.get("curves"), by_kind.get("theory")
    return Evidence(
        {one.plan.name: one.entries for one in studies},
        energy={} if spectrum is None else spectrum_energy(spectrum),
        ranks={} if noisy is None else mean_ranks(noisy),
        curves={} if curves is None else objective_histories(curves),
        facts=None if theory is None else theory.facts,
        partial=frozenset(
            one.plan.name for one in studies if not one.plan.has_all_methods
        ),
    )


def _collect_metadata(
    plans: Sequence[StudyPlan],
    store: ResultStore,
    protocols: Sequence[str],
    quick: bool,
) -> dict[str, str]:
    wanted = {
        task.cell.key for task in schedule_cells(plans, protocols, store.all_results)
    }
    shown = [result for key, result in store.all_results.items() if key in wanted]
    statuses = Counter(result.status for result in shown)
    statuses[NOT_RUN] = len(wanted) - len(shown)
    machines = Counter(result.machine for result in shown if result.machine)
    engines = {str(r.facts["engine"]) for r in shown if "engine" in r.facts}
    older = sum(r.version != store.version for r in shown)
    about = {
        "size": QUICK_NOTE if quick else "full",
        "protocols": "; ".join(f"{p}: {PROTOCOL_LABELS[p]}" for p in protocols),
        "studies": ", ".join(plan.name for plan in plans),
        "fits": ", ".join(f"{n} {name}" for name, n in statuses.items() if n),
        "code": store.version + (f"; {older} fits of an older one" if older else ""),
        "ran on": "; ".join(f"{name} ({count})" for name, count in machines.items()),
        "engines": "; ".join(sorted(engines)),
        "drawn with": f"Python {platform.python_version()}, NumPy {numpy.__version__}, "
        f"SciPy {scipy.__version__}",
        "date": date.today().isoformat(),
    }
    return {name: text for name, text in about.items() if text}


def _withhold_verdict(verdict: Verdict) -> Verdict:
    """Leave a verdict of a quick run undecided, unless it needs no fits."""
    if verdict.where in ("figure 1", "figure 8"):
        return verdict
    return replace(verdict, state=UNDECIDED, evidence=f"reduced: {verdict.evidence}")


def _draw_and_save(study: StudyData, folder: Path) -> tuple[Path | None, str]:
    """File of the figure of a plan, if there is one, and an error message."""
    from ncarl.plots import save_figure
    from ncarl.reproduce.figures import draw_study

    try:
        figure = draw_study(study)
    except (ValueError, KeyError, TypeError) as error:
        # The tables are written even if a figure cannot be drawn.
        return None, f"The figure could not be drawn: {error}"
    if figure is None:
        return None, ""
    return save_figure(figure, folder / f"{study.plan.name}.png"), ""


def start_report(title: str, verdicts: Sequence[Verdict], lead: str = "") -> Page:
    """A page with the introduction and the verdicts."""
    page = Page(title, lead).text(*INTRODUCTION)
    page.notes(f"{name}: {PROTOCOL_LABELS[name]}" for name in PROTOCOLS)
    with page.folded("How to read the tables"):
        page.notes(LEGEND)
    page.contents().heading("Does it hold?")
    if not verdicts:
        return page.text("No claim was tested.")
    rows = []
    for one in verdicts:
        kind, sign = STATE_STYLES.get(one.state, ("open", "?"))
        state = span(f"{sign} {one.state}", css=f"state {kind}")
        rows.append((one.claim, one.where, state, one.evidence))
    return page.table(("claim", "where", "state", "evidence"), rows, prose=True)


def add_study(
    page: Page,
    plan: StudyPlan,
    entries: Sequence[Entry],
    notes: Iterable[str] = (),
    picture: Path | None = None,
) -> Page:
    """Add the tables and the figure of a plan."""
    blocks = (block.strip() for block in re.split(r"\n\s*\n", plan.text))
    page.heading(plan.title).text(*filter(None, blocks))
    present = {entry.protocol for entry in entries}
    for protocol in (*PROTOCOLS, *sorted(present.difference(PROTOCOLS))):
        if protocol in present:
            some = [entry for entry in entries if entry.protocol == protocol]
            what = "Relative error" if plan.measure == "error" else "Seconds"
            page.heading(f"{what}: {PROTOCOL_LABELS.get(protocol, protocol)}", level=3)
            _add_results(page, some, plan.measure)
            page.notes(table_notes(some))
    page.notes(notes)
    _add_parameters(page, entries)
    if picture is not None:
        page.picture(picture, plan.title)
    return page


def _add_results(page: Page, entries: Sequence[Entry], measure: str) -> None:
    """Add a table with methods as rows and settings as columns."""
    found = dict.fromkeys((e.group, e.setting) for e in entries)
    groups = Counter(group for group, _ in found)  # in the order of appearance
    columns = [column for group in groups for column in found if column[0] == group]
    has_groups = any(group not in ("", setting) for group, setting in columns)
    heads = ["method"]
    for group, setting in columns:
        short = setting.removeprefix(group).lstrip(" ,:") if has_groups else ""
        heads.append(short or setting)
    cells: dict[tuple[str, str, tuple[str, str]], list[Entry]] = {}
    least: dict[tuple[str, str], float] = {}
    for e in entries:
        column, (value, _) = (e.group, e.setting), mean_and_std(e, measure)
        cells.setdefault((e.method, e.label, column), []).append(e)
        if value is not None and e.status == DONE:
            least[column] = min(value, least.get(column, math.inf))
    rows = []
    for method, label in dict.fromkeys((e.method, e.label) for e in entries):
        row: list[object] = [label]
        for column in columns:
            some = cells.get((method, label, column), [])
            shown = [render_cell(e, measure, least.get(column)) for e in some]
            row.append(span(*shown) if shown else DASH)
        rows.append(row)
    page.table(heads, rows, groups=list(groups.items()) if has_groups else ())


def table_notes(entries: Sequence[Entry]) -> list[str]:
    """Lines below a table: messages of its entries, and the meaning of marks."""
    lines: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if entry.message:
            # One line for all settings in which a method has the same message.
            state = "" if entry.status == DONE else f"{entry.status}; "
            key = entry.label, f"{state}{entry.message}"
            lines.setdefault(key, []).append(entry.setting)
    notes = [
        f"{label}, {' / '.join(dict.fromkeys(settings))}: {words}"
        for (label, words), settings in lines.items()
    ]
    return notes + ([OLD_NOTE] if any(entry.old for entry in entries) else [])


def _add_parameters(page: Page, entries: Sequence[Entry]) -> None:
    heads = ["protocol", "method", "setting", "parameters"]
    heads += ["steps", "converged", "other scores"]
    rows = [
        (
            *(entry.protocol, entry.label, entry.setting, format_pairs(entry.params)),
            format_number(entry.steps, ".4g", empty=DASH),
            {True: "yes", False: "no", None: DASH}[entry.converged],
            format_pairs(entry.scores),
        )
        for entry in entries
        if entry.params or entry.scores or entry.steps
    ]
    if rows:
        with page.folded("Parameters, steps and further measures"):
            page.table(heads, rows, prose=True)


def render_cell(entry: Entry, measure: str, least: float | None = None) -> Markup:
    """A table cell: our value, the printed one, and the difference.

    The least value of a column is in bold.
    """
    value, std = mean_and_std(entry, measure)
    printed, is_bound = printed_value_or_bound(entry, measure)
    parts: list[object] = []
    if value is not None:
        text, is_done = format_value(value, measure), entry.status == DONE
        classes = ["best"] if is_done and text == format_value(least, measure) else []
        is_reached = printed is not None and (
            at_or_below(value, printed) if measure == "error" else value <= printed
        )
        if is_done and is_reached:
            classes.append("reached")
            text = f"≤ {text}"
        text += format_std(std, measure) + (OLD_MARK if entry.old else "")
        parts.append(span(text, css=" ".join(classes)))
    if value is None or entry.status != DONE:
        word = DASH if entry.status == DONE else entry.status
        parts += [" " if parts else "", span(word, css="word", title=entry.message)]
    small, extras = [], []
    if printed is not None and not is_bound:
        small.append(f"paper {format_value(printed, measure)}")
        if value is not None:
            small[0] += f", {format_difference(value, printed, measure)}"
    elif measure == "seconds" and entry.printed_bound:
        small.append(f"paper {entry.printed_bound}")
    if value is not None:
        if measure == "seconds" and entry.protocol == HONEST:
            extras.append(f"picking {format_value(entry.picking, measure)}")
        if entry.seeds != DEFAULT_SEEDS:
            extras.append(f"n={entry.seeds}")
    small += [", ".join(extras)] if extras else []
    return span(*parts, *(span(line, css="small") for line in small))


def format_value(value: float | None, measure: str, digits: int = 3) -> str:
    """An error with four decimals as in the paper; seconds with significant digits.

    >>> format_value(0.13088, "error")
    '0.1309'
    >>> [format_value(value, "seconds") for value in (1234.5, 0.0517)]
    ['1230', '0.0517']
    """
    form = ".4f"
    if measure == "seconds" and value is not None and math.isfinite(value):
        value = float(f"{value:.{digits - 1}e}")
        size = math.floor(math.log10(abs(value))) if value else digits
        form = f".{max(0, digits - 1 - size)}f"
    return format_number(value, form, empty=DASH).replace("-", MINUS)


def format_std(value: float | None, measure: str) -> str:
    """A standard deviation after a plus-minus sign; empty for None."""
    if value is None:
        return ""
    if measure == "error" and 0.0 < value < 5e-5:
        return " ± <0.0001"
    return f" ± {format_value(value, measure, digits=2)}"


def format_difference(ours: float, printed: float, measure: str) -> str:
    """Ours minus printed with its sign; errors are rounded first."""
    if measure == "error":
        ours, printed = round(ours, 4), round(printed, 4)
    text = format_value(ours - printed, measure)
    if float(text.replace(MINUS, "-")) == 0.0:
        return text.lstrip(MINUS)
    return text if text.startswith(MINUS) else f"+{text}"


def format_pairs(values: Mapping[str, Any]) -> str:
    """Names and values in one line.

    >>> format_pairs({"alpha": 100.0, "weights": "pinv", "rank": None})
    'alpha = 100, weights = pinv, rank = none'
    """
    pairs = []
    for name, value in values.items():
        if isinstance(value, float):
            text = f"{value:.6g}"
        elif isinstance(value, str):
            text = value
        else:
            text = "none" if value is None else json.dumps(value, default=str)
        pairs.append(f"{name} = {text}")
    return ", ".join(pairs) or DASH

"""Report of a study: one HTML page with verdicts, tables, figures and metadata.

`publish` writes the page, the figures and the result files of finished cells.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy
import scipy

from ncarl.evaluation.measure import DONE
from ncarl.html import escape, figure_html, html_foot, html_head
from ncarl.io.files import atomic_write
from ncarl.reproduce.plan import HONEST, PROTOCOL_LABELS, PROTOCOLS, StudyPlan
from ncarl.reproduce.run import ResultStore, schedule_cells
from ncarl.reproduce.summary import (
    NOT_RUN,
    Entry,
    StudyData,
    Verdict,
    check_measure,
    mean_and_std,
    mean_ranks,
    objective_histories,
    printed_value_or_bound,
    spectrum_energy,
    summarize_plan,
    write_csv,
    write_json,
)
from ncarl.reproduce.theory import TheoremFacts, check_theorems
from ncarl.reproduce.verdicts import (
    FAILS,
    HOLDS,
    HOLDS_WITH_CHANGES,
    UNDECIDED,
    Evidence,
    judge_claims,
    table_remarks,
)

#: Folder of the figures, beside the file of results.
FIGURES_FOLDER = "figures"
#: Warning on results of reduced size.
QUICK_NOTE = (
    "Reduced sizes, two seeds and stand-ins for the data: it shows that everything "
    "runs, and says nothing about the paper."
)
#: Seeds of a full study; other numbers are shown in the cell.
DEFAULT_SEEDS = 5
#: Mark of results of an older version.
OLD_MARK = "†"
OLD_NOTE = f"{OLD_MARK} from an older version of the code"
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
#: Group and setting of a column.
ColumnKey = tuple[str, str]
#: Name and label of a method.
RowKey = tuple[str, str]


@dataclass(frozen=True)
class PublishedStudy:
    """Files and results that `publish` wrote.

    Attributes
    ----------
    files : tuple of Path
        All files, the report first.
    entries : mapping of str to sequence of Entry
        Entries by table or figure.
    verdicts : sequence of Verdict
        Verdicts on the claims of the paper.
    """

    files: tuple[Path, ...]
    entries: Mapping[str, Sequence[Entry]]
    verdicts: Sequence[Verdict]

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
    """Write results, figures and the report into the folder of a study.

    Parameters
    ----------
    plans : sequence of StudyPlan
        Tables and figures, in order.
    store : ResultStore
        Finished cells; the files are written to its folder.
    protocols : sequence of str
        How parameters were chosen.
    quick : bool
        Whether the plans are at their reduced size.
    """
    (store.folder / FIGURES_FOLDER).mkdir(exist_ok=True)
    facts = check_theorems() if any(plan.kind == "theory" for plan in plans) else None
    studies = [_collect_study(plan, store, protocols, facts, quick) for plan in plans]
    drawings = {
        one.plan.name: _draw_and_save(one, store.folder / FIGURES_FOLDER)
        for one in studies
    }
    by_study = {one.plan.name: one.entries for one in studies}
    verdicts = judge_claims(
        _collect_evidence([one for one in studies if one.plan.is_builtin], facts)
    )
    if quick:
        verdicts = [_withhold_verdict(verdict) for verdict in verdicts]
    about = _collect_metadata(plans, store, protocols, quick)
    folder = store.folder
    report = write_report(
        folder / "report.html",
        title="NCARL, run again" + (f" (quick). {QUICK_NOTE}" if quick else ""),
        sections=[_make_section(one, drawings[one.plan.name]) for one in studies],
        verdicts=verdicts,
        about=about,
    )
    entries = [entry for one in studies for entry in one.entries]
    write_csv(folder / "results.csv", entries)
    write_json(folder / "results.json", entries, verdicts, about)
    drawn = [path for paths, _ in drawings.values() for path in paths]
    files = (report, folder / "results.csv", folder / "results.json", *drawn)
    return PublishedStudy(files, by_study, verdicts)


def _collect_study(
    plan: StudyPlan,
    store: ResultStore,
    protocols: Sequence[str],
    facts: TheoremFacts | None,
    quick: bool,
) -> StudyData:
    rows = summarize_plan(plan, protocols, store.all_results, store.version)
    return StudyData(plan, rows, store.all_results, store.folder, facts, quick)


def _collect_evidence(
    studies: Sequence[StudyData], facts: TheoremFacts | None
) -> Evidence:
    by_study = {one.plan.name: one.entries for one in studies}
    by_kind = {one.plan.kind: one for one in studies}
    spectrum, noisy = by_kind.get("spectrum"), by_kind.get("noisy")
    curves = by_kind.get("curves")
    return Evidence(
        by_study,
        energy={} if spectrum is None else spectrum_energy(spectrum),
        ranks={} if noisy is None else mean_ranks(noisy),
        curves={} if curves is None else objective_histories(curves),
        facts=facts,
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
    """Versions, machines, protocols and counts of the fits."""
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


def _draw_and_save(study: StudyData, folder: Path) -> tuple[list[Path], str]:
    """Files of the figure of a plan, and an error message."""
    from ncarl.reproduce.figures import draw_study, save_png_and_svg

    try:
        figure = draw_study(study)
    except (ValueError, KeyError, TypeError) as error:
        # The tables are written even if a figure cannot be drawn.
        return [], f"The figure could not be drawn: {error}"
    if figure is None:
        return [], ""
    return save_png_and_svg(figure, folder / study.plan.name), ""


def _make_section(study: StudyData, drawn: tuple[Sequence[Path], str]) -> ReportSection:
    plan, (figure, problem) = study.plan, drawn
    tables = study.entries if plan.kind in ("table", "rates", "neighbors") else ()
    png = [path for path in figure if path.suffix == ".png"]
    return ReportSection(
        plan.name,
        plan.title,
        text=plan.text.strip(),
        entries=tables,
        measure=plan.measure,
        figures={plan.title: png[0]} if png else {},
        notes=[
            n for n in (*plan.notes, *table_remarks(tables, plan.measure), problem) if n
        ],
    )


@dataclass(frozen=True)
class ReportSection:
    """Section of the report: a table or figure of the paper.

    Attributes
    ----------
    name : str
        "table1", "fig4".
    title : str
        Heading.
    text : str
        Plain paragraphs, separated by empty lines.
    entries : sequence of Entry
        Entries of its tables; may be empty.
    measure : {"error", "seconds"}
        Which value of the entries.
    figures : mapping of str to Path
        PNG files by their captions.
    notes : sequence of str
        Remarks, shown as a list.
    """

    name: str
    title: str
    text: str = ""
    entries: Sequence[Entry] = ()
    measure: str = "error"
    figures: Mapping[str, Path] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_measure(self.measure)


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    sections: Sequence[ReportSection],
    verdicts: Sequence[Verdict],
    about: Mapping[str, str],
) -> Path:
    """Write a page that needs no other file, no script and no network.

    Parameters
    ----------
    path : path
        The file; it is replaced atomically.
    title : str
        Its heading.
    sections : sequence of ReportSection
        Tables and figures in their order.
    verdicts : sequence of Verdict
        Verdicts on the claims of the paper.
    about : mapping of str to str
        Machine, versions, date.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(Path(folder) / "report.html", title="A < B",
    ...                         sections=[ReportSection("fig1", "Spectra")],
    ...                         verdicts=[], about={"seeds": "5"}).read_text("utf-8")
    >>> "<h1>A &lt; B</h1>" in page
    True
    """
    target = Path(path)
    ids = _section_ids(sections)
    parts = [
        html_head(title),
        _render_introduction(title),
        _render_contents(sections, ids),
        '<h2 id="verdicts">Does it hold?</h2>',
        verdict_table(verdicts, "verdicts"),
        *(
            _render_section(section, name)
            for section, name in zip(sections, ids, strict=True)
        ),
        '<h2 id="about">Where this comes from</h2>',
        _render_metadata(about),
        html_foot(),
    ]
    text = "\n".join(part for part in parts if part)
    with atomic_write(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def _section_ids(sections: Sequence[ReportSection]) -> list[str]:
    """Unique ids of the sections, for links."""
    ids: list[str] = []
    for k, section in enumerate(sections):
        plain = re.sub(r"[^a-z0-9]+", "-", section.name.lower()).strip("-")
        # The prefix avoids clashes with the other ids of the page.
        ids.append(f"s{k + 1}-{plain}" if plain else f"s{k + 1}")
    return ids


def _render_introduction(title: str) -> str:
    protocols = [f"{name}: {PROTOCOL_LABELS[name]}" for name in PROTOCOLS]
    signs = [
        "A cell shows our mean ± standard deviation over seeds, below it the value "
        "printed in the paper and the difference (ours minus printed).",
        "≤ (green): ours is at or below the printed value, to the printed digits.",
        "Bold: the least of its column among finished fits.",
        f"n=2: two seeds finished instead of {DEFAULT_SEEDS}.",
        "over budget, failed, no data, not run: why a value is missing or not final; "
        "see the notes below each table.",
        f"{OLD_NOTE}.",
    ]
    return (
        f"<h1>{escape(title)}</h1>\n"
        "<p>The experiments of X. Li, H. Zhang, R. Zhang, “Matrix Completion via "
        "Non-Convex Relaxation and Adaptive Correlation Learning” (IEEE TPAMI 45(2), "
        "2023), run again and compared with the printed values. Errors are root mean "
        "squared errors on hidden entries over the root mean square of those entries; "
        "the paper calls this MSE. Seconds depend on the machine: the paper's were "
        "measured on another one.</p>\n"
        "<p>Parameters are chosen in two ways, and every table says which:</p>\n"
        f"{render_list(protocols, 'protocols')}\n"
        "<details>\n<summary>How to read the tables</summary>\n"
        f"{render_list(signs, 'signs')}\n</details>"
    )


def _render_contents(sections: Sequence[ReportSection], ids: Sequence[str]) -> str:
    links = [("verdicts", "Does it hold?")]
    links += [(name, s.title) for s, name in zip(sections, ids, strict=True)]
    links.append(("about", "Where this comes from"))
    items = "\n".join(
        f'<li><a href="#{n}">{escape(text)}</a></li>' for n, text in links
    )
    return f'<nav aria-label="Contents">\n<ul>\n{items}\n</ul>\n</nav>'


def _render_section(section: ReportSection, name: str) -> str:
    blocks = (block.strip() for block in re.split(r"\n\s*\n", section.text))
    parts = [
        f'<section aria-labelledby="{name}">',
        f'<h2 id="{name}">{escape(section.title)}</h2>',
        *(f"<p>{escape(block)}</p>" for block in blocks if block),
        result_tables(name, section.entries, section.measure),
        render_list(section.notes, "notes"),
        parameter_table(name, section.entries),
        *(_render_figure(caption, path) for caption, path in section.figures.items()),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _render_figure(caption: str, path: Path) -> str:
    return figure_html(Path(path).read_bytes(), caption, name=repr(str(path)))


def _render_metadata(about: Mapping[str, str]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
        for name, text in about.items()
    )
    if not rows:
        return "<p>No metadata.</p>"
    return wrap_scrollable(f"<table>\n<tbody>\n{rows}\n</tbody>\n</table>", "about")


def verdict_table(verdicts: Sequence[Verdict], heading: str) -> str:
    """Table of the claims of the paper and their verdicts."""
    if not verdicts:
        return "<p>No claim was tested.</p>"
    rows = []
    for verdict in verdicts:
        kind, sign = STATE_STYLES.get(verdict.state, ("open", "?"))
        rows.append(
            f'<tr><td>{escape(verdict.claim)}</td><td>{escape(verdict.where)}</td>'
            f'<td class="state {kind}">{sign} {escape(verdict.state)}</td>'
            f"<td>{escape(verdict.evidence)}</td></tr>"
        )  # fmt: skip
    head = "".join(
        f'<th scope="col">{text}</th>'
        for text in ("claim", "where", "state", "evidence")
    )
    body = "\n".join(rows)
    table = (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )
    return wrap_scrollable(table, heading)


def result_tables(name: str, entries: Sequence[Entry], measure: str) -> str:
    """One table for each protocol, with its notes below.

    Parameters
    ----------
    name : str
        Prefix of the ids; letters, digits and hyphens.
    entries : sequence of Entry
        Entries of one study.
    measure : {"error", "seconds"}
        What is shown.
    """
    present = {entry.protocol for entry in entries}
    order = [*PROTOCOLS, *sorted(present.difference(PROTOCOLS))]
    parts = []
    for k, protocol in enumerate(p for p in order if p in present):
        some = [entry for entry in entries if entry.protocol == protocol]
        label = escape(PROTOCOL_LABELS.get(protocol, protocol))
        heading = f"{name}-protocol-{k + 1}"
        what = "Relative error" if measure == "error" else "Seconds"
        parts += [
            f'<h3 id="{heading}">{what}: {label}</h3>',
            wrap_scrollable(_render_table(some, measure), heading),
            render_list(table_notes(some), "notes"),
        ]
    return "\n".join(parts)


def _render_table(entries: Sequence[Entry], measure: str) -> str:
    """Table with methods as rows and settings as columns."""
    rows: list[RowKey] = list(dict.fromkeys((e.method, e.label) for e in entries))
    columns = _columns(entries)
    cells: dict[tuple[RowKey, ColumnKey], list[Entry]] = {}
    for entry in entries:
        place = (entry.method, entry.label), (entry.group, entry.setting)
        cells.setdefault(place, []).append(entry)
    least = {column: lowest_value(entries, column, measure) for column in columns}
    body = []
    for row in rows:
        found = (
            "<br>".join(
                render_cell(entry, measure, least[column])
                for entry in cells.get((row, column), [])
            )
            for column in columns
        )
        data = "".join(f"<td>{text or DASH}</td>" for text in found)
        body.append(f'<tr><th scope="row" class="row">{escape(row[1])}</th>{data}</tr>')
    rows_text = "\n".join(body)
    return (
        f'<table class="figures">\n<thead>\n{_render_table_head(columns)}\n</thead>\n'
        f"<tbody>\n{rows_text}\n</tbody>\n</table>"
    )


def _columns(entries: Sequence[Entry]) -> list[ColumnKey]:
    """Settings in their order, grouped."""
    columns = list(dict.fromkeys((e.group, e.setting) for e in entries))
    groups = list(dict.fromkeys(group for group, _ in columns))
    return sorted(columns, key=lambda column: groups.index(column[0]))


def _render_table_head(columns: Sequence[ColumnKey]) -> str:
    """Two rows: groups, and settings without the name of their group."""
    groups = list(dict.fromkeys(group for group, _ in columns))
    counts = {group: sum(other == group for other, _ in columns) for group in groups}
    if all(group in ("", setting) for group, setting in columns):
        names = "".join(f'<th scope="col">{escape(s)}</th>' for _, s in columns)
        return f'<tr><th scope="col" class="corner">method</th>{names}</tr>'
    upper = "".join(
        f'<th scope="colgroup" class="group" colspan="{counts[group]}">'
        f"{escape(group)}</th>"
        for group in groups
    )
    lower = "".join(
        f'<th scope="col">{escape(_short_setting(group, setting))}</th>'
        for group, setting in columns
    )
    corner = '<th scope="col" class="corner" rowspan="2">method</th>'
    return f"<tr>{corner}{upper}</tr>\n<tr>{lower}</tr>"


def _short_setting(group: str, setting: str) -> str:
    """A setting without the name of its group."""
    return setting.removeprefix(group).lstrip(" ,:") or setting


def table_notes(entries: Sequence[Entry]) -> list[str]:
    """Lines below a table: messages of its entries, and the meaning of marks.

    Examples
    --------
    >>> entry = Entry("t", "paper", "lrfd", "LRFD", "ML-100K, 0.5", "ML-100K", 0.5,
    ...               "over budget", message="stopped after 600 s")
    >>> table_notes([entry])
    ['LRFD, ML-100K, 0.5: over budget; stopped after 600 s']
    """
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


def parameter_table(name: str, entries: Sequence[Entry]) -> str:
    """Foldable table of parameters, steps and scores; empty without any."""
    shown = [entry for entry in entries if entry.params or entry.scores or entry.steps]
    if not shown:
        return ""
    heading = f"{name}-parameters"
    names = (
        *("protocol", "method", "setting", "parameters"),
        *("steps", "converged", "other scores"),
    )
    head = "".join(f'<th scope="col">{text}</th>' for text in names)
    rows = []
    for entry in shown:
        converged = {True: "yes", False: "no", None: DASH}[entry.converged]
        steps = DASH if entry.steps is None else f"{entry.steps:.4g}"
        texts = (
            *(entry.protocol, entry.label, entry.setting, format_pairs(entry.params)),
            *(steps, converged, format_pairs(entry.scores)),
        )
        rows.append("<tr>" + "".join(f"<td>{escape(t)}</td>" for t in texts) + "</tr>")
    body = "\n".join(rows)
    table = (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )
    return (
        f'<details>\n<summary id="{heading}">Parameters, steps and further measures'
        f"</summary>\n{wrap_scrollable(table, heading)}\n</details>"
    )


def lowest_value(
    entries: Sequence[Entry], column: ColumnKey, measure: str
) -> float | None:
    """The least value of a column among finished fits."""
    values = [
        mean_and_std(entry, measure)[0]
        for entry in entries
        if (entry.group, entry.setting) == column and entry.status == DONE
    ]
    return min((value for value in values if value is not None), default=None)


def render_cell(entry: Entry, measure: str, least: float | None = None) -> str:
    """A table cell: our value, the printed one, and the difference.

    Parameters
    ----------
    entry : Entry
        What to show.
    measure : {"error", "seconds"}
        Which of its values.
    least : float, optional
        The least value of the column, which is in bold.

    Examples
    --------
    >>> entry = Entry("t", "paper", "ncarl", "NCARL", "0.5", "", 0.5, "done",
    ...               error=0.1301, seeds=5, printed=0.1309)
    >>> render_cell(entry, "error")[:58]
    '<span class="reached">≤ 0.1301</span><span class="small">p'
    """
    (value, _), parts = mean_and_std(entry, measure), []
    if value is not None:
        parts.append(_format_ours(entry, measure, value, least))
    if entry.status != DONE or value is None:
        word = entry.status if entry.status != DONE else DASH
        title = f' title="{escape(entry.message)}"' if entry.message else ""
        parts.append(f'<span class="word"{title}>{escape(word)}</span>')
    lines = [
        _format_printed(entry, measure, value),
        _format_extras(entry, measure, value),
    ]
    small = "<br>".join(line for line in lines if line)
    return " ".join(parts) + (f'<span class="small">{small}</span>' if small else "")


def _format_ours(entry: Entry, measure: str, value: float, least: float | None) -> str:
    """Mean and standard deviation, marked if lowest or at most the printed value."""
    printed, _ = printed_value_or_bound(entry, measure)
    _, std = mean_and_std(entry, measure)
    done = entry.status == DONE
    reached = (
        done and printed is not None and is_at_most_printed(value, printed, measure)
    )
    shown, lowest = format_number(value, measure), format_number(least, measure)
    best = done and shown == lowest
    flags = {"best": best, "reached": reached}
    classes = " ".join(name for name, is_set in flags.items() if is_set)
    text = f"{'≤ ' if reached else ''}{shown}{escape(format_std(std, measure))}"
    text += OLD_MARK if entry.old else ""
    start = f'<span class="{classes}">' if classes else "<span>"
    return f"{start}{text}</span>"


def _format_printed(entry: Entry, measure: str, value: float | None) -> str:
    """The printed value, and the difference."""
    printed, is_bound = printed_value_or_bound(entry, measure)
    if is_bound or printed is None:
        words = entry.printed_bound if measure == "seconds" else ""
        return f"paper {escape(words)}" if words else ""
    text = f"paper {format_number(printed, measure)}"
    if value is None:
        return text
    return f"{text}, {format_difference(value, printed, measure)}"


def _format_extras(entry: Entry, measure: str, value: float | None) -> str:
    """Seconds of the parameter search, and an unusual number of seeds."""
    parts = []
    if measure == "seconds" and entry.protocol == HONEST and value is not None:
        parts.append(f"picking {format_number(entry.picking, measure)}")
    if value is not None and entry.seeds != DEFAULT_SEEDS:
        parts.append(f"n={entry.seeds}")
    return ", ".join(parts)


def wrap_scrollable(table: str, heading: str) -> str:
    """A table that scrolls sideways on narrow screens."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{heading}">'
        f"\n{table}\n</div>"
    )


def render_list(lines: Iterable[str], kind: str) -> str:
    """Lines of text as a list; empty without lines."""
    items = "\n".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{kind}">\n{items}\n</ul>' if items else ""


def format_number(value: float | None, measure: str, digits: int = 3) -> str:
    """An error with four decimals as in the paper; seconds with few digits.

    Parameters
    ----------
    value : float or None
        What to format; a dash for None.
    measure : {"error", "seconds"}
        Kind of value.
    digits : int
        Significant digits of seconds.

    Examples
    --------
    >>> format_number(0.13088, "error")
    '0.1309'
    >>> [format_number(value, "seconds") for value in (1234.5, 0.0517)]
    ['1230', '0.0517']
    >>> format_number(None, "error") == DASH
    True
    """
    if value is None or not math.isfinite(value):
        return DASH
    if measure == "error":
        return _use_minus_sign(f"{value:.4f}")
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded == 0.0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return _use_minus_sign(f"{rounded:.{max(decimals, 0)}f}")


def format_std(value: float | None, measure: str) -> str:
    """A standard deviation after a plus-minus sign; empty for None.

    Examples
    --------
    >>> [format_std(value, "error") for value in (0.00123, 1e-6, None)]
    [' ± 0.0012', ' ± <0.0001', '']
    """
    if value is None or not math.isfinite(value):
        return ""
    if measure == "error" and 0.0 < value < 5e-5:
        return " ± <0.0001"
    return f" ± {format_number(value, measure, digits=2)}"


def format_difference(ours: float, printed: float, measure: str) -> str:
    """Ours minus printed with its sign; errors are rounded first.

    Examples
    --------
    >>> [format_difference(ours, 0.1309, "error") for ours in (0.1409, 0.13091)]
    ['+0.0100', '0.0000']
    """
    if measure == "error":
        ours, printed = round(ours, 4), round(printed, 4)
    text = format_number(ours - printed, measure)
    if float(text.replace(MINUS, "-")) == 0.0:
        return text.lstrip(MINUS)
    return text if text.startswith(MINUS) else f"+{text}"


def is_at_most_printed(ours: float, printed: float, measure: str) -> bool:
    """Whether ours is at most the printed value, to the printed digits.

    Examples
    --------
    >>> [is_at_most_printed(ours, 0.1309, "error") for ours in (0.13094, 0.1311)]
    [True, False]
    """
    if measure == "error":
        return bool(round(ours, 4) <= round(printed, 4))
    return bool(ours <= printed)


def _use_minus_sign(text: str) -> str:
    return text.replace("-", MINUS)


def format_pairs(values: Mapping[str, Any]) -> str:
    """Names and values in one line.

    Examples
    --------
    >>> format_pairs({"alpha": 100.0, "weights": "pinv", "psnr": 28.412345})
    'alpha = 100, weights = pinv, psnr = 28.4123'
    >>> format_pairs({"rank": None})
    'rank = none'
    """
    return (
        ", ".join(f"{name} = {_format_param(v)}" for name, v in values.items()) or DASH
    )


def _format_param(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)

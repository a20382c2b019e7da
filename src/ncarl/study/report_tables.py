"""The tables of a report: methods by settings, notes, chosen parameters, verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ncarl.pages.style import safe
from ncarl.study.cells import DONE
from ncarl.study.entries import PROTOCOL_LABELS, PROTOCOLS, Entry, Verdict
from ncarl.study.report_cells import OLD, Column, cell, least_of
from ncarl.study.report_style import NOTHING

STATES = {
    "holds": ("good", "✓"),
    "holds with changes": ("partly", "≈"),
    "does not hold": ("bad", "✗"),
}
OLD_NOTE = f"{OLD} from an older version of the code"

Row = tuple[str, str]


def result_tables(name: str, entries: Sequence[Entry], measure: str) -> str:
    """One table for each protocol, with its notes below.

    Parameters
    ----------
    name : str
        What ids begin with; made of letters, digits and hyphens.
    entries : sequence of Entry
        Of one study.
    measure : {"error", "seconds"}
        What is shown.
    """
    present = {entry.protocol for entry in entries}
    order = [*PROTOCOLS, *sorted(present.difference(PROTOCOLS))]
    parts = []
    for k, protocol in enumerate(p for p in order if p in present):
        some = [entry for entry in entries if entry.protocol == protocol]
        label = safe(PROTOCOL_LABELS.get(protocol, protocol))
        heading = f"{name}-protocol-{k + 1}"
        what = "Relative error" if measure == "error" else "Seconds"
        parts += [
            f'<h3 id="{heading}">{what}: {label}</h3>',
            scrolled(_table(some, measure), heading),
            listed(notes_of(some), "notes"),
        ]
    return "\n".join(parts)


def scrolled(table: str, heading: str) -> str:
    """A table that scrolls sideways where the screen is narrow."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{heading}">'
        f"\n{table}\n</div>"
    )


def listed(lines: Iterable[str], kind: str) -> str:
    """Lines of text as a list; nothing where there are none."""
    items = "\n".join(f"<li>{safe(line)}</li>" for line in lines)
    return f'<ul class="{kind}">\n{items}\n</ul>' if items else ""


def _table(entries: Sequence[Entry], measure: str) -> str:
    """Rows are methods, columns settings."""
    rows: list[Row] = list(dict.fromkeys((e.method, e.label) for e in entries))
    columns = _columns(entries)
    cells: dict[tuple[Row, Column], list[Entry]] = {}
    for entry in entries:
        place = (entry.method, entry.label), (entry.group, entry.setting)
        cells.setdefault(place, []).append(entry)
    least = {column: least_of(entries, column, measure) for column in columns}
    body = []
    for row in rows:
        found = (
            "<br>".join(
                cell(entry, measure, least[column])
                for entry in cells.get((row, column), [])
            )
            for column in columns
        )
        data = "".join(f"<td>{text or NOTHING}</td>" for text in found)
        body.append(f'<tr><th scope="row" class="row">{safe(row[1])}</th>{data}</tr>')
    rows_text = "\n".join(body)
    return (
        f'<table class="figures">\n<thead>\n{_head(columns)}\n</thead>\n'
        f"<tbody>\n{rows_text}\n</tbody>\n</table>"
    )


def _columns(entries: Sequence[Entry]) -> list[Column]:
    """Settings in their order, those of a group side by side."""
    columns = list(dict.fromkeys((e.group, e.setting) for e in entries))
    groups = list(dict.fromkeys(group for group, _ in columns))
    return sorted(columns, key=lambda column: groups.index(column[0]))


def _head(columns: Sequence[Column]) -> str:
    """Groups above, settings below them, without the group's name again."""
    groups = list(dict.fromkeys(group for group, _ in columns))
    counts = {group: sum(other == group for other, _ in columns) for group in groups}
    if all(group in ("", setting) for group, setting in columns):
        names = "".join(f'<th scope="col">{safe(s)}</th>' for _, s in columns)
        return f'<tr><th scope="col" class="corner">method</th>{names}</tr>'
    upper = "".join(
        f'<th scope="colgroup" class="group" colspan="{counts[group]}">'
        f"{safe(group)}</th>"
        for group in groups
    )
    lower = "".join(
        f'<th scope="col">{safe(setting.removeprefix(group).lstrip(" ,:") or setting)}'
        "</th>"
        for group, setting in columns
    )
    corner = '<th scope="col" class="corner" rowspan="2">method</th>'
    return f"<tr>{corner}{upper}</tr>\n<tr>{lower}</tr>"


def notes_of(entries: Sequence[Entry]) -> list[str]:
    """Lines below a table: messages of its entries, and what marks mean.

    Examples
    --------
    >>> entry = Entry("t", "paper", "lrfd", "LRFD", "ML-100K, 0.5", "ML-100K", 0.5,
    ...               "over budget", message="stopped after 600 s")
    >>> notes_of([entry])
    ['LRFD, ML-100K, 0.5: over budget; stopped after 600 s']
    """
    lines: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if entry.message:
            # One line for all settings in which a method came to the same end.
            state = "" if entry.status == DONE else f"{entry.status}; "
            key = entry.label, f"{state}{entry.message}"
            lines.setdefault(key, []).append(entry.setting)
    notes = [
        f"{label}, {' / '.join(dict.fromkeys(settings))}: {words}"
        for (label, words), settings in lines.items()
    ]
    return notes + ([OLD_NOTE] if any(entry.old for entry in entries) else [])


def parameter_table(name: str, entries: Sequence[Entry]) -> str:
    """What was chosen for each entry, to be unfolded; nothing where there is none."""
    shown = [entry for entry in entries if entry.params or entry.scores or entry.steps]
    if not shown:
        return ""
    heading = f"{name}-parameters"
    names = ("protocol", "method", "setting", "parameters", "steps", "settled", "more")
    head = "".join(f'<th scope="col">{text}</th>' for text in names)
    rows = []
    for entry in shown:
        settled = {True: "yes", False: "no", None: NOTHING}[entry.converged]
        steps = NOTHING if entry.steps is None else f"{entry.steps:.4g}"
        texts = (
            *(entry.protocol, entry.label, entry.setting, pairs(entry.params)),
            *(steps, settled, pairs(entry.scores)),
        )
        rows.append("<tr>" + "".join(f"<td>{safe(t)}</td>" for t in texts) + "</tr>")
    body = "\n".join(rows)
    table = (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )
    return (
        f'<details>\n<summary id="{heading}">Parameters, steps and further measures'
        f"</summary>\n{scrolled(table, heading)}\n</details>"
    )


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values in a line.

    Examples
    --------
    >>> pairs({"alpha": 100.0, "weights": "pinv", "rank": None, "psnr": 28.412345})
    'alpha = 100, weights = pinv, rank = none, psnr = 28.4123'
    """
    return ", ".join(f"{name} = {_written(v)}" for name, v in values.items()) or NOTHING


def _written(value: Any) -> str:
    """A parameter as one reads it."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def verdict_table(verdicts: Sequence[Verdict], heading: str) -> str:
    """Claims of the paper and what became of them."""
    if not verdicts:
        return "<p>No claim was looked at.</p>"
    rows = []
    for verdict in verdicts:
        kind, sign = STATES.get(verdict.state, ("open", "?"))
        rows.append(
            f'<tr><td>{safe(verdict.claim)}</td><td>{safe(verdict.where)}</td>'
            f'<td class="state {kind}">{sign} {safe(verdict.state)}</td>'
            f"<td>{safe(verdict.evidence)}</td></tr>"
        )  # fmt: skip
    head = "".join(
        f'<th scope="col">{text}</th>'
        for text in ("claim", "where", "state", "evidence")
    )
    body = "\n".join(rows)
    table = (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )
    return scrolled(table, heading)

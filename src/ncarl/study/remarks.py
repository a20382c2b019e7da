"""Remarks below a table that its figures call for."""

from __future__ import annotations

from collections.abc import Sequence

from ncarl.study.columns import at_or_below, is_picture
from ncarl.study.entries import PAPER, Entry
from ncarl.study.evidence import AS_PRINTED, OURS, name_of


def remarks(entries: Sequence[Entry], measure: str) -> list[str]:
    """Where NCARL is above its printed error, and ratios to Nuclear for pictures.

    Parameters
    ----------
    entries : sequence of Entry
        Of one table, under all protocols.
    measure : {"error", "seconds"}
        What the table shows; times call for no remark.
    """
    if measure != "error":
        return []
    protocols = dict.fromkeys(e.protocol for e in entries)
    mine = [[e for e in entries if e.protocol == protocol] for protocol in protocols]
    found = [_above(some, form) for some in mine for form in (AS_PRINTED, OURS)]
    ratios = [_ratios(some, form) for some in mine for form in (AS_PRINTED, OURS)]
    return [text for text in (*found, *ratios) if text]


def _above(entries: Sequence[Entry], form: str) -> str:
    """In which columns a form of NCARL is above its printed error; pictures aside."""
    known = [
        (e.setting, e.error, e.printed)
        for e in entries
        if e.method == form
        and e.error is not None
        and e.printed is not None
        and not is_picture(e)
    ]
    if not known:
        return ""
    above = [row for row in known if not at_or_below(row[1], row[2])]
    listed = ", ".join(
        f"{setting} ({error:.4f} against {printed:.4f})"
        for setting, error, printed in above
    )
    where = f"above its printed error in {listed}" if above else "nowhere above it"
    head = f"NCARL, {name_of(form)}, {entries[0].protocol} protocol: at or below its "
    share = f"printed error in {len(known) - len(above)} of {len(known)} columns"
    return f"{head}{share}; {where}."


def _ratios(entries: Sequence[Entry], form: str) -> str:
    """NCARL's error over Nuclear's in pictures, beside the printed ratio."""
    by_method = {(e.method, e.setting): e for e in entries if is_picture(e)}
    words = []
    for (method, setting), one in by_method.items():
        other = by_method.get(("nuclear", setting))
        if method != form or other is None or not one.error or not other.error:
            continue
        printed = (
            f" (paper {one.printed / other.printed:.3f})"
            if one.printed and other.printed
            else ""
        )
        words.append(f"{setting}: {one.error / other.error:.3f}{printed}")
    if not words:
        return ""
    protocol = entries[0].protocol
    label = "picked on the test error" if protocol == PAPER else "honest protocol"
    return f"NCARL, {name_of(form)}, over Nuclear, {label}: " + ", ".join(words) + "."

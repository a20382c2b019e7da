"""Everything that a study leaves behind: tables, figures, a report."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from ncarl.study.agenda import tasks
from ncarl.study.cells import DONE
from ncarl.study.drawing import Kept, curves_of, draw, energy_of, ranks_of
from ncarl.study.entries import PROTOCOL_LABELS, Entry, Verdict
from ncarl.study.evidence import UNDECIDED, Evidence
from ncarl.study.plan import Plan
from ncarl.study.remarks import remarks
from ncarl.study.report import Section, write_report
from ncarl.study.store import Store
from ncarl.study.summary import entries
from ncarl.study.theory import Facts, check_chain
from ncarl.study.tidy import write_csv, write_json
from ncarl.study.verdicts import verdicts

FIGURES = "figures"
QUICK = (
    "Reduced sizes, two seeds and stand-ins for the data: it shows that everything "
    "runs, and says nothing about the paper."
)


@dataclass(frozen=True)
class Published:
    """What was written.

    Attributes
    ----------
    files : tuple of Path
        All files.
    entries : mapping of str to sequence of Entry
        By table or figure.
    verdicts : sequence of Verdict
        On the paper's claims.
    """

    files: tuple[Path, ...]
    entries: Mapping[str, Sequence[Entry]]
    verdicts: Sequence[Verdict]

    @property
    def unfinished(self) -> dict[str, int]:
        """How many entries have no final figure, by what became of them."""
        statuses = [e.status for rows in self.entries.values() for e in rows]
        return dict(Counter(status for status in statuses if status != DONE))

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.files[0]


def publish(
    plans: Sequence[Plan],
    store: Store,
    protocols: Sequence[str],
    *,
    quick: bool = False,
) -> Published:
    """Write results, figures and the report into the folder of a study.

    Parameters
    ----------
    plans : sequence of Plan
        Tables and figures, in order.
    store : Store
        Finished cells; the files go beside them.
    protocols : sequence of str
        How parameters were chosen.
    quick : bool
        Whether the plans are at their reduced size.
    """
    (store.folder / FIGURES).mkdir(exist_ok=True)
    facts = check_chain() if any(plan.kind == "theory" for plan in plans) else None
    kept = [_kept(plan, store, protocols, facts, quick) for plan in plans]
    drawings = {one.plan.name: _drawn(one, store.folder / FIGURES) for one in kept}
    by_study = {one.plan.name: one.entries for one in kept}
    found = verdicts(_evidence([one for one in kept if one.plan.own], facts))
    if quick:
        found = [_of_quick(verdict) for verdict in found]
    about = _about(plans, store, protocols, quick)
    folder = store.folder
    report = write_report(
        folder / "report.html",
        title="NCARL, run again" + (f" (quick). {QUICK}" if quick else ""),
        sections=[_section(one, drawings[one.plan.name]) for one in kept],
        verdicts=found,
        about=about,
    )
    every = [entry for one in kept for entry in one.entries]
    write_csv(folder / "results.csv", every)
    write_json(folder / "results.json", every, found, about)
    drawn = [path for paths, _ in drawings.values() for path in paths]
    files = (report, folder / "results.csv", folder / "results.json", *drawn)
    return Published(files, by_study, found)


def _kept(
    plan: Plan,
    store: Store,
    protocols: Sequence[str],
    facts: Facts | None,
    quick: bool,
) -> Kept:
    """What a plan's figure and tables are made from."""
    rows = entries(plan, protocols, store.shown, store.version)
    return Kept(plan, rows, store.shown, store.folder, facts, quick)


def _drawn(kept: Kept, folder: Path) -> tuple[list[Path], str]:
    """The files of a plan's figure, and what went wrong with it."""
    from ncarl.study.figures import save_both

    try:
        figure = draw(kept)
    except (ValueError, KeyError, TypeError) as error:
        # A figure that cannot be drawn must not cost the tables.
        return [], f"The figure could not be drawn: {error}"
    if figure is None:
        return [], ""
    return save_both(figure, folder / kept.plan.name), ""


def _of_quick(verdict: Verdict) -> Verdict:
    """A verdict at reduced size: none, unless it rests on no data."""
    if verdict.where in ("figure 1", "figure 8"):
        return verdict
    return replace(verdict, state=UNDECIDED, evidence=f"reduced: {verdict.evidence}")


def _evidence(kept: Sequence[Kept], facts: Facts | None) -> Evidence:
    """What verdicts rest on."""
    by_study = {one.plan.name: one.entries for one in kept}
    by_kind = {one.plan.kind: one for one in kept}
    spectrum, noisy = by_kind.get("spectrum"), by_kind.get("noisy")
    curves = by_kind.get("curves")
    return Evidence(
        by_study,
        energy={} if spectrum is None else energy_of(spectrum),
        ranks={} if noisy is None else ranks_of(noisy),
        curves={} if curves is None else curves_of(curves),
        facts=facts,
        partial=frozenset(one.plan.name for one in kept if not one.plan.whole),
    )


def _section(kept: Kept, drawn: tuple[Sequence[Path], str]) -> Section:
    """A part of the report."""
    plan, (figure, trouble) = kept.plan, drawn
    tables = kept.entries if plan.kind in ("table", "rates", "neighbors") else ()
    png = [path for path in figure if path.suffix == ".png"]
    return Section(
        plan.name,
        plan.title,
        text=plan.text.strip(),
        entries=tables,
        measure=plan.measure,
        figures={plan.title: png[0]} if png else {},
        notes=[n for n in (*plan.notes, *remarks(tables, plan.measure), trouble) if n],
    )


def _about(
    plans: Sequence[Plan], store: Store, protocols: Sequence[str], quick: bool
) -> dict[str, str]:
    """Where and by what the figures were measured."""
    import numpy
    import scipy

    wanted = {task.cell.key for task in tasks(plans, protocols, store.shown)}
    shown = [result for key, result in store.shown.items() if key in wanted]
    statuses = Counter(result.status for result in shown)
    statuses["not run"] = len(wanted) - len(shown)
    machines = Counter(result.machine for result in shown if result.machine)
    engines = {str(r.facts["engine"]) for r in shown if "engine" in r.facts}
    older = sum(r.version != store.version for r in shown)
    about = {
        "size": QUICK if quick else "full",
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

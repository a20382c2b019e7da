"""Results of a study: entries of its tables, data of its figures, and their files.

`summarize_plan` turns finished cells into entries; `write_csv` and `write_json` store
them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets import load_sample_image
from ncarl.evaluation.measure import DONE, FAILED, OVER_BUDGET
from ncarl.io.csv import write_rows
from ncarl.io.files import jsonable, write_json as write_json_file
from ncarl.reproduce.plan import (
    GIVEN,
    HONEST,
    CellResult,
    MethodSpec,
    Setting,
    StudyPlan,
    paper_value,
)
from ncarl.reproduce.run import (
    ARRAYS_FOLDER,
    Results,
    final_cells,
    search_cells,
    select_params,
)
from ncarl.reproduce.theory import TheoremFacts
from ncarl.validation import check_choice

#: Status of an entry without results.
NOT_RUN = "not run"
#: Measures, and the labels of their axes.
MEASURES = {"error": "relative error on hidden entries", "seconds": "seconds"}


@dataclass(frozen=True)
class Entry:
    """A method in a setting under a protocol, averaged over the finished seeds."""

    study: str  # table or figure: "table1", "fig4"
    protocol: str  # how parameters were chosen: "paper", "honest"
    method: str  # name of the method in the study
    label: str  # in tables
    setting: str  # a column of the table: "500x300, 0.8"
    group: str  # its group of columns: "500x300"
    missing: float  # fraction of hidden entries
    status: str  # "done", "over budget", "failed", "no data", "not run"
    error: float | None = None  # mean of the relative error
    error_sd: float | None = None  # standard deviation over the seeds
    seconds: float | None = None  # with the parameter search in the honest protocol
    seconds_sd: float | None = None
    picking: float = 0.0  # seconds of the parameter search
    seeds: int = 0  # finished ones
    printed: float | None = None  # error printed in the paper
    printed_seconds: float | None = None
    printed_bound: str = ""  # printed in place of seconds: "> 3000"
    params: Mapping[str, Any] = field(default_factory=dict)  # chosen and fixed
    scores: Mapping[str, float] = field(default_factory=dict)  # means of further ones
    steps: float | None = None  # mean number of steps
    converged: bool | None = None  # whether all fits converged
    old: bool = False  # whether a result is of an older version of the code
    machine: str = ""  # of the fits whose seconds are shown
    further: bool = False  # whether the paper does not have this column
    message: str = ""  # error message, or a remark

    @property
    def difference(self) -> float | None:
        """Our error minus the printed one."""
        if self.error is None or self.printed is None:
            return None
        return self.error - self.printed


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds here, with the evidence."""

    claim: str  # in our words
    where: str  # table or figure that it is about
    state: str  # "holds", "holds with changes", "does not hold" or "not decided"
    evidence: str  # the numbers behind it, in one or two sentences


#: Columns of ``results.csv``: the fields of an entry, and `Entry.difference`.
CSV_COLUMNS = (*(field.name for field in fields(Entry)), "difference")


def summarize_plan(
    plan: StudyPlan, protocols: Iterable[str], results: Results, version: str
) -> list[Entry]:
    """All entries of a plan; those of another version are marked as old."""
    picked = any(search_cells(s, one) for s in plan.settings for one in s.methods)
    return [
        _summarize_method(plan, setting, one, protocol, results, version)
        for protocol in (protocols if picked else (GIVEN,))
        for setting in plan.settings
        for one in setting.methods
    ]


def _summarize_method(
    plan: StudyPlan,
    setting: Setting,
    spec: MethodSpec,
    protocol: str,
    results: Results,
    version: str,
) -> Entry:
    about: dict[str, Any] = {
        "study": plan.name,
        "protocol": protocol,
        "method": spec.name,
        "label": spec.label,
        "setting": setting.label,
        "group": setting.group,
        "missing": setting.problem.missing,
        "further": setting.further,
    }
    if plan.printed and setting.printed and spec.printed:
        place = (plan.printed, setting.printed, setting.problem.missing)
        error = paper_value(*place, "error", spec.printed)
        seconds = paper_value(*place, "seconds", spec.printed)
        about["printed"] = error if isinstance(error, float) else None
        about["printed_seconds"] = seconds if isinstance(seconds, float) else None
        about["printed_bound"] = seconds if isinstance(seconds, str) else ""
    planned = search_cells(setting, spec)
    searched = [results[cell.key] for cell in planned if cell.key in results]
    params = select_params(setting, spec, protocol, results)
    if params is None:
        bad = [result for result in searched if result.status != DONE]
        if len(bad) < len(planned):
            return Entry(**about, status=NOT_RUN)
        return Entry(**about, status=bad[0].status, message=bad[0].message)
    cells = final_cells(plan, setting, spec, params)
    final = [results[cell.key] for cell in cells if cell.key in results]
    picking = sum(r.seconds or 0.0 for r in searched) if protocol == HONEST else 0.0
    old = any(r.version != version for r in (*final, *searched))
    about |= {"params": params, "picking": picking, "old": old}
    return Entry(**about, **_seed_statistics(final, picking))


def _seed_statistics(
    results: Sequence[CellResult], search_seconds: float
) -> dict[str, Any]:
    """Means and standard deviations over the seeds.

    Only finished fits count; if there are none, those stopped at their budget.
    """
    if not results:
        return {"status": NOT_RUN}
    done = [r for r in results if r.status == DONE]
    shown = done or [r for r in results if r.status == OVER_BUDGET]
    if not shown:
        return {"status": results[0].status, "message": results[0].message}
    errors = [r.error for r in shown if r.error is not None]
    # Times of different machines must not be averaged; the rows of a column share the
    # machine of their first seed.
    machine = machine_name(shown[0])
    same = (r for r in shown if machine_name(r) == machine)
    seconds = [r.seconds + search_seconds for r in same if r.seconds is not None]
    scores = set.intersection(*(set(r.scores) for r in shown))
    steps = [r.steps for r in shown if r.steps is not None]
    converged = [r.converged for r in shown if r.converged is not None]
    bad = [r for r in results if r.status == FAILED]
    bad = bad or [r for r in results if r.status != DONE]
    return {
        "status": shown[0].status,
        "error": fmean(errors) if errors else None,
        "error_sd": stdev(errors) if len(errors) > 1 else None,
        "seconds": fmean(seconds) if seconds else None,
        "seconds_sd": stdev(seconds) if len(seconds) > 1 else None,
        "seeds": len(shown),
        "machine": machine,
        "scores": {
            name: fmean(r.scores[name] for r in shown) for name in sorted(scores)
        },
        "steps": fmean(steps) if steps else None,
        "converged": all(converged) if converged else None,
        "message": f"{len(bad)} {bad[0].status}: {bad[0].message}" if bad else "",
    }


def machine_name(result: CellResult) -> str:
    """The machine of a fit, without the number of parallel fits."""
    return result.machine.rpartition(", ")[0] or result.machine


def mean_and_std(entry: Entry, measure: str) -> tuple[float | None, float | None]:
    """Our mean and its standard deviation; None where unknown."""
    check_choice("measure", measure, MEASURES)
    value, sd = getattr(entry, measure), getattr(entry, f"{measure}_sd")
    if value is None or not math.isfinite(value):
        return None, None
    # One seed has no standard deviation, whatever a file says.
    known = sd is not None and math.isfinite(sd) and entry.seeds > 1
    return value, sd if known else None


def printed_value_or_bound(entry: Entry, measure: str) -> tuple[float | None, bool]:
    """The printed value, and whether it is only a lower bound such as "> 3000"."""
    if measure == "error":
        return entry.printed, False
    if entry.printed_seconds is not None:
        return entry.printed_seconds, False
    try:
        return float(entry.printed_bound.lstrip(">≥ ").replace(",", "")), True
    except ValueError:
        return None, False


@dataclass(frozen=True)
class StudyData:
    """Data from which the figure and the tables of a plan are made."""

    plan: StudyPlan
    entries: Sequence[Entry]  # under all protocols
    results: Results  # finished cells by key
    folder: Path  # of the study, with the completed matrices
    facts: TheoremFacts | None = None
    quick: bool = False  # whether photographs are at their reduced size

    def protocol_entries(self) -> list[Entry]:
        """Entries of one protocol: the honest one if it was run."""
        protocols = {e.protocol for e in self.entries}
        wanted = HONEST if HONEST in protocols else next(iter(protocols), HONEST)
        return [e for e in self.entries if e.protocol == wanted]


def objective_histories(
    study: StudyData,
) -> dict[tuple[str, str], Sequence[float | None]]:
    """Objective of every step, by data set and form of NCARL."""
    found = _first_seed_results(study)
    return {(column.label, name): one.curve for column, name, one in found if one.curve}


def _first_seed_results(study: StudyData) -> Iterator[tuple[Setting, str, CellResult]]:
    for setting in study.plan.settings:
        for one in setting.methods:
            cell = final_cells(study.plan, setting, one, one.grid_points()[0])[0]
            if cell.key in study.results:
                yield setting, one.name, study.results[cell.key]


def load_photographs(plan: StudyPlan, quick: bool, *, gray: bool) -> dict[str, Array]:
    """The photographs of a figure by name."""
    step = plan.options["step"] * (4 if quick else 1)
    names = plan.options["photos"]
    return {name: load_sample_image(name, gray=gray, step=step) for name in names}


def spectrum_energy(study: StudyData) -> dict[str, float]:
    """Share of the squared singular values in the largest tenth of them."""
    shares = {}
    for name, image in load_photographs(study.plan, study.quick, gray=True).items():
        squares = np.linalg.svd(image, compute_uv=False) ** 2
        tenth = max(1, len(squares) // 10)
        shares[name] = float(squares[:tenth].sum() / squares.sum())
    return shares


@dataclass
class ColorPicture:
    """A color picture completed channel by channel."""

    # Channels of the pictures "seen", "filled" and "smooth".
    parts: dict[str, list[Array]] = field(default_factory=dict)
    ranks: list[float] = field(default_factory=list)  # of each channel
    psnrs: list[float] = field(default_factory=list)

    def stack_channels(self, part: str) -> Array:
        """The three channels as one picture."""
        return np.stack(self.parts[part], axis=2)


def load_color_pictures(study: StudyData) -> dict[tuple[str, str], ColorPicture]:
    """Completed pictures by group and method, if all channels are there."""
    found: dict[tuple[str, str], ColorPicture] = {}
    for setting, method, result in _first_seed_results(study):
        path = study.folder / ARRAYS_FOLDER / f"{result.cell.key}.npz"
        if not path.exists():
            continue
        one = found.setdefault((setting.group, method), ColorPicture())
        with np.load(path, allow_pickle=False) as arrays:
            for part in ("seen", "filled", "smooth"):
                one.parts.setdefault(part, []).append(arrays[part])
        one.ranks.append(float(result.facts.get("rank_above_1e-3", np.nan)))
        one.psnrs.append(float(result.scores.get("psnr", np.nan)))
    return {name: one for name, one in found.items() if len(one.ranks) == 3}


def mean_ranks(study: StudyData) -> dict[str, dict[float, float]]:
    """Mean rank of the channels, by photograph and gamma."""
    ranks: dict[str, dict[float, float]] = {}
    for (group, method), one in load_color_pictures(study).items():
        gamma = float(method.rpartition("=")[2])
        ranks.setdefault(group, {})[gamma] = float(np.mean(one.ranks))
    return ranks


def write_csv(path: str | os.PathLike[str], entries: Iterable[Entry]) -> Path:
    """Write one line for each entry, numbers with all digits; None is an empty cell."""
    target, rows = Path(path), []
    for entry in entries:
        record = entry_to_dict(entry)
        for name in ("params", "scores"):
            record[name] = json.dumps(record[name], allow_nan=False, ensure_ascii=False)
        rows.append([record[name] for name in CSV_COLUMNS])
    write_rows(target, CSV_COLUMNS, rows)
    return target


def write_json(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    verdicts: Iterable[Verdict],
    about: Mapping[str, str],
) -> Path:
    """Write entries, verdicts and metadata; numbers that are not finite become null."""
    target = Path(path)
    content = {
        "kind": "ncarl study",
        "version": 1,  # of this format
        "about": jsonable(about),
        "verdicts": [jsonable(vars(verdict)) for verdict in verdicts],
        "entries": [entry_to_dict(entry) for entry in entries],
    }
    write_json_file(target, content, indent=1)
    return target


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    """The fields of an entry and its difference as JSON values."""
    record: dict[str, Any] = jsonable({**vars(entry), "difference": entry.difference})
    return record

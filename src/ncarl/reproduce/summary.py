"""Results of a study: entries of its tables, data of its figures, and their files.

`summarize_plan` turns finished cells into entries; `write_csv` and `write_json` store
them.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets import load_sample_image
from ncarl.evaluation.measure import DONE, FAILED, OVER_BUDGET
from ncarl.exceptions import BrokenFileError
from ncarl.io.files import atomic_write, jsonable
from ncarl.reproduce.plan import (
    GIVEN,
    HONEST,
    Cell,
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

#: Status of an entry without results.
NOT_RUN = "not run"
#: Measures, and the labels of their axes.
MEASURES = {"error": "relative error on hidden entries", "seconds": "seconds"}
#: Header of the JSON file, by which other files are recognized.
FILE_KIND, FORMAT_VERSION = "ncarl study", 1


@dataclass(frozen=True)
class Entry:
    """A method in a setting under a protocol, averaged over the finished seeds.

    Attributes
    ----------
    study : str
        Table or figure: "table1", "fig4".
    protocol : {"paper", "honest"}
        How parameters were chosen.
    method, label : str
        Name of the method in the study, and in tables.
    setting, group : str
        A column of the table ("500x300, 0.8"), and its group of columns ("500x300").
    missing : float
        Fraction of hidden entries.
    status : str
        "done", "over budget", "failed", "no data", "not run".
    error, error_sd : float or None
        Mean and standard deviation over the seeds of the relative error.
    seconds, seconds_sd : float or None
        The same of the time; the honest protocol includes the parameter search.
    picking : float
        Seconds of the parameter search.
    seeds : int
        Number of finished seeds.
    printed, printed_seconds : float or None
        Values printed in the paper.
    printed_bound : str
        Bound printed in place of seconds, such as "> 3000".
    params : mapping
        Chosen and fixed parameters.
    scores : mapping of str to float
        Means of further scores.
    steps : float or None
        Mean number of steps.
    converged : bool or None
        Whether all fits converged.
    old : bool
        Whether a result is of an older version of the code.
    machine : str
        Machine of the fits whose seconds are shown.
    further : bool
        Whether the paper does not have this column.
    message : str
        Error message, or a remark.
    """

    study: str
    protocol: str
    method: str
    label: str
    setting: str
    group: str
    missing: float
    status: str
    error: float | None = None
    error_sd: float | None = None
    seconds: float | None = None
    seconds_sd: float | None = None
    picking: float = 0.0
    seeds: int = 0
    printed: float | None = None
    printed_seconds: float | None = None
    printed_bound: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    steps: float | None = None
    converged: bool | None = None
    old: bool = False
    machine: str = ""
    further: bool = False
    message: str = ""

    @property
    def difference(self) -> float | None:
        """Our error minus the printed one."""
        if self.error is None or self.printed is None:
            return None
        return self.error - self.printed


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds here, with the evidence.

    Attributes
    ----------
    claim : str
        The claim of the paper, in our words.
    where : str
        Table or figure that it is about.
    state : str
        "holds", "holds with changes", "does not hold" or "not decided".
    evidence : str
        The numbers behind it, in one or two sentences.
    """

    claim: str
    where: str
    state: str
    evidence: str


#: Columns of ``results.csv``: the fields of an entry, and `Entry.difference`.
CSV_COLUMNS = (*(field.name for field in fields(Entry)), "difference")
#: Columns that hold mappings, as JSON text.
JSON_COLUMNS = ("params", "scores")
#: Fields that are never None: null in the JSON file stands for NaN.
REQUIRED_NUMBERS = ("missing", "picking")


def summarize_plan(
    plan: StudyPlan, protocols: Iterable[str], results: Results, version: str
) -> list[Entry]:
    """All entries of a plan.

    Parameters
    ----------
    plan : StudyPlan
        The table or figure.
    protocols : iterable of str
        How parameters are chosen.
    results : mapping of str to CellResult
        Finished cells by key.
    version : str
        Version of the results; entries of another one are marked as old.
    """
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
        **_printed_values(plan, setting, spec),
    }
    planned = search_cells(setting, spec)
    searched = _finished_results(planned, results)
    params = select_params(setting, spec, protocol, results)
    if params is None:
        return Entry(**about, **_missing_reason(searched, len(planned)))
    final = _finished_results(final_cells(plan, setting, spec, params), results)
    picking = sum(r.seconds or 0.0 for r in searched) if protocol == HONEST else 0.0
    old = any(r.version != version for r in (*final, *searched))
    about |= {"params": params, "picking": picking, "old": old}
    return Entry(**about, **_seed_statistics(final, picking))


def _finished_results(cells: Iterable[Cell], results: Results) -> list[CellResult]:
    return [results[cell.key] for cell in cells if cell.key in results]


def _missing_reason(searched: Sequence[CellResult], planned: int) -> dict[str, Any]:
    """Status and message if no parameters could be chosen."""
    bad = [result for result in searched if result.status != DONE]
    if len(bad) < planned:
        return {"status": NOT_RUN}
    return {"status": bad[0].status, "message": bad[0].message}


def _seed_statistics(
    results: Sequence[CellResult], search_seconds: float
) -> dict[str, Any]:
    """Means and standard deviations over the seeds.

    Only finished fits count; if there are none, those stopped at their budget.
    """
    done = [result for result in results if result.status == DONE]
    late = [result for result in results if result.status == OVER_BUDGET]
    if not done and not late:
        failed = next(iter(results), None)
        if failed is None:
            return {"status": NOT_RUN}
        return {"status": failed.status, "message": failed.message}
    shown = done or late
    errors = [r.error for r in shown if r.error is not None]
    seconds, machine = _comparable_seconds(shown, search_seconds)
    steps = [r.steps for r in shown if r.steps is not None]
    converged = [r.converged for r in shown if r.converged is not None]
    bad = [r for r in results if r.status != DONE]
    return {
        "status": DONE if done else OVER_BUDGET,
        "error": fmean(errors) if errors else None,
        "error_sd": stdev(errors) if len(errors) > 1 else None,
        "seconds": fmean(seconds) if seconds else None,
        "seconds_sd": stdev(seconds) if len(seconds) > 1 else None,
        "seeds": len(shown),
        "machine": machine,
        "scores": _mean_scores(shown),
        "steps": fmean(steps) if steps else None,
        "converged": all(converged) if converged else None,
        "message": _failure_note(bad),
    }


def _comparable_seconds(
    results: Sequence[CellResult], search_seconds: float
) -> tuple[list[float], str]:
    """Seconds on the machine of the first seed, and its name.

    Times of different machines must not be averaged; the rows of a column share the
    machine of their first seed.
    """
    machine = machine_name(results[0])
    alike = [r for r in results if machine_name(r) == machine]
    return [r.seconds + search_seconds for r in alike if r.seconds is not None], machine


def machine_name(result: CellResult) -> str:
    """The machine of a fit, without the number of parallel fits.

    Examples
    --------
    >>> from ncarl.reproduce.plan import Cell, ProblemSpec, CellResult
    >>> cell = Cell(ProblemSpec("low-rank"), "ours", "ncarl", {})
    >>> machine_name(CellResult(cell, "done", machine="GPU, 5 side by side"))
    'GPU'
    """
    return result.machine.rpartition(", ")[0] or result.machine


def _failure_note(bad: Sequence[CellResult]) -> str:
    """Number and message of the seeds that did not finish."""
    failed = [r for r in bad if r.status == FAILED]
    alike = failed or bad
    if not alike:
        return ""
    return f"{len(alike)} {alike[0].status}: {alike[0].message}"


def _mean_scores(results: Sequence[CellResult]) -> dict[str, float]:
    """Means of the scores that all seeds have."""
    names = set.intersection(*(set(r.scores) for r in results))
    return {name: fmean(r.scores[name] for r in results) for name in sorted(names)}


def _printed_values(
    plan: StudyPlan, setting: Setting, spec: MethodSpec
) -> Mapping[str, Any]:
    """The values that the paper prints for a method in a setting."""
    if not (plan.printed and setting.printed and spec.printed):
        return {}
    place = (plan.printed, setting.printed, setting.problem.missing)
    error = paper_value(*place, "error", spec.printed)
    seconds = paper_value(*place, "seconds", spec.printed)
    return {
        "printed": error if isinstance(error, float) else None,
        "printed_seconds": seconds if isinstance(seconds, float) else None,
        "printed_bound": seconds if isinstance(seconds, str) else "",
    }


def check_measure(measure: str) -> None:
    """Raise if ``measure`` is unknown."""
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {list(MEASURES)}, got {measure!r}")


def mean_and_std(entry: Entry, measure: str) -> tuple[float | None, float | None]:
    """Our mean and its standard deviation; None where unknown.

    Examples
    --------
    >>> entry = Entry("t", "paper", "ncarl", "NCARL", "0.5", "", 0.5, "done",
    ...               error=0.13, error_sd=0.0, seconds=float("nan"), seeds=1)
    >>> mean_and_std(entry, "error"), mean_and_std(entry, "seconds")
    ((0.13, None), (None, None))
    """
    if measure == "error":
        value, sd = entry.error, entry.error_sd
    else:
        value, sd = entry.seconds, entry.seconds_sd
    if value is None or not math.isfinite(value):
        return None, None
    # One seed has no standard deviation, whatever a file says.
    known = sd is not None and math.isfinite(sd) and entry.seeds > 1
    return value, sd if known else None


def printed_value_or_bound(entry: Entry, measure: str) -> tuple[float | None, bool]:
    """The printed value, and whether it is only a lower bound such as "> 3000".

    Examples
    --------
    >>> entry = Entry("t", "paper", "lrfd", "LRFD", "0.5", "", 0.5, "over budget",
    ...               printed=0.3, printed_bound="> 3000")
    >>> printed_value_or_bound(entry, "error"), printed_value_or_bound(entry, "seconds")
    ((0.3, False), (3000.0, True))
    """
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
    """Data from which the figure and the tables of a plan are made.

    Attributes
    ----------
    plan : StudyPlan
        The table or figure.
    entries : sequence of Entry
        Its entries under all protocols.
    results : mapping of str to CellResult
        Finished cells by key.
    folder : Path
        Folder of the study, with the completed matrices.
    facts : TheoremFacts or None
        Result of `ncarl.reproduce.theory.check_theorems`.
    quick : bool
        Whether photographs are at their reduced size.
    """

    plan: StudyPlan
    entries: Sequence[Entry]
    results: Results
    folder: Path
    facts: TheoremFacts | None = None
    quick: bool = False

    def protocol_entries(self) -> list[Entry]:
        """Entries of one protocol: the honest one if it was run."""
        protocols = {e.protocol for e in self.entries}
        wanted = HONEST if HONEST in protocols else next(iter(protocols), HONEST)
        return [e for e in self.entries if e.protocol == wanted]


def objective_histories(
    study: StudyData,
) -> dict[tuple[str, str], Sequence[float | None]]:
    """Objective of every step, by data set and form of NCARL."""
    curves: dict[tuple[str, str], Sequence[float | None]] = {}
    for setting, method, key in _first_seed_cells(study):
        result = study.results.get(key)
        if result is not None and result.curve:
            curves[setting.label, method] = result.curve
    return curves


def _first_seed_cells(study: StudyData) -> list[tuple[Setting, str, str]]:
    """Setting, method and key of the first seed of every method of a plan."""
    return [
        (setting, one.name, final_cells(study.plan, setting, one, params)[0].key)
        for setting in study.plan.settings
        for one in setting.methods
        for params in one.grid_points()[:1]
    ]


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
    """A color picture completed channel by channel.

    Attributes
    ----------
    parts : dict of str to list of array
        Channels of the pictures "seen", "filled" and "smooth".
    ranks, psnrs : list of float
        Rank and PSNR of each channel.
    """

    parts: dict[str, list[Array]] = field(default_factory=dict)
    ranks: list[float] = field(default_factory=list)
    psnrs: list[float] = field(default_factory=list)

    def stack_channels(self, part: str) -> Array:
        """The three channels as one picture."""
        return np.stack(self.parts[part], axis=2)


def load_color_pictures(study: StudyData) -> dict[tuple[str, str], ColorPicture]:
    """Completed pictures by group and method, if all channels are there."""
    found: dict[tuple[str, str], ColorPicture] = {}
    for setting, method, key in _first_seed_cells(study):
        path = study.folder / ARRAYS_FOLDER / f"{key}.npz"
        result = study.results.get(key)
        if result is None or not path.exists():
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
    """Write one line for each entry, numbers with all digits.

    Parameters
    ----------
    path : path
        The file; it is replaced atomically.
    entries : iterable of Entry
        What to write. ``params`` and ``scores`` become JSON text; None becomes an empty
        cell.

    Examples
    --------
    >>> import tempfile
    >>> entry = Entry("table1", "paper", "ncarl", "NCARL", "20x10, 0.5", "20x10",
    ...               0.5, "done", error=0.25, printed=0.125)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = write_csv(Path(folder) / "table1.csv", [entry]).read_text("utf-8")
    >>> text.splitlines()[0][:31], text.splitlines()[1][-6:]
    ('study,protocol,method,label,set', ',0.125')
    """
    target = Path(path)
    with (
        atomic_write(target) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as stream,
    ):
        # With the standard line end, a lone CR or LF inside a text is quoted.
        writer = csv.DictWriter(stream, CSV_COLUMNS)
        writer.writeheader()
        for entry in entries:
            record = entry_to_dict(entry)
            nested = {name: _json(record[name]) for name in JSON_COLUMNS}
            writer.writerow({**record, **nested})
    return target


def write_json(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    verdicts: Iterable[Verdict],
    about: Mapping[str, str],
) -> Path:
    """Write entries, verdicts and metadata, to be read by `read_json`.

    Parameters
    ----------
    path : path
        The file; it is replaced atomically.
    entries, verdicts : iterables of Entry and Verdict
        What to write; numbers that are not finite become null.
    about : mapping of str to str
        Machine, versions, date.
    """
    target = Path(path)
    content = {
        "kind": FILE_KIND,
        "version": FORMAT_VERSION,
        "about": jsonable(about),
        "verdicts": [jsonable(_fields_of(verdict)) for verdict in verdicts],
        "entries": [entry_to_dict(entry) for entry in entries],
    }
    with atomic_write(target) as temporary:
        temporary.write_text(_json(content, indent=1) + "\n", encoding="utf-8")
    return target


def read_json(
    path: str | os.PathLike[str],
) -> tuple[list[Entry], list[Verdict], dict[str, str]]:
    """Read entries, verdicts and metadata written by `write_json`.

    Raises
    ------
    BrokenFileError
        If the file is of another kind, damaged or of a later version.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["kind"] != FILE_KIND:
            raise ValueError(f"it holds {content['kind']!r}")
        if content["version"] > FORMAT_VERSION:
            raise ValueError(f"a later ncarl wrote it (format {content['version']})")
        entries = [_entry_from_dict(record) for record in content["entries"]]
        verdicts = [Verdict(**record) for record in content["verdicts"]]
        return entries, verdicts, dict(content["about"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BrokenFileError(
            f"path {str(path)!r} is no study that this ncarl can read: {error}. Run "
            "the study again to write it anew."
        ) from error


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    """The fields of an entry and its difference as JSON values.

    Examples
    --------
    >>> entry = Entry("fig4", "honest", "mean", "mean", "0.4", "ML-1M", 0.4, "done",
    ...               error=float("nan"))
    >>> record = entry_to_dict(entry)
    >>> record["error"], record["difference"], record["params"]
    (None, None, {})
    """
    content = {**_fields_of(entry), "difference": entry.difference}
    return {name: jsonable(item) for name, item in content.items()}


def _entry_from_dict(record: Mapping[str, Any]) -> Entry:
    content = {name: item for name, item in record.items() if name != "difference"}
    scores = content["scores"].items()
    # A score that was not finite is lost.
    content["scores"] = {name: item for name, item in scores if item is not None}
    for name in REQUIRED_NUMBERS:
        content[name] = math.nan if content[name] is None else content[name]
    return Entry(**content)


def _fields_of(value: Any) -> dict[str, Any]:
    """Fields of a dataclass by name; unlike `asdict`, mappings are not copied."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _json(value: Any, indent: int | None = None) -> str:
    """Strict JSON text."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)

"""From finished cells to the entries of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from ncarl.study.agenda import Results, chosen, final_cells, search_cells
from ncarl.study.cells import DONE, FAILED, OVER, Cell, Result
from ncarl.study.entries import GIVEN, HONEST, Entry
from ncarl.study.plan import Contender, Plan, Setting
from ncarl.study.printed import printed

NOT_RUN = "not run"


def entries(
    plan: Plan, protocols: Iterable[str], results: Results, version: str
) -> list[Entry]:
    """All entries of a plan.

    Parameters
    ----------
    plan : Plan
        The table or figure.
    protocols : iterable of str
        How parameters are chosen.
    results : mapping of str to Result
        Finished cells by key.
    version : str
        Of the code; results of another one are marked.
    """
    picked = any(search_cells(s, one) for s in plan.settings for one in s.contenders)
    return [
        _entry(plan, setting, one, protocol, results, version)
        for protocol in (protocols if picked else (GIVEN,))
        for setting in plan.settings
        for one in setting.contenders
    ]


def _entry(
    plan: Plan,
    setting: Setting,
    one: Contender,
    protocol: str,
    results: Results,
    version: str,
) -> Entry:
    """A method in a setting under a protocol."""
    about: dict[str, Any] = {
        "study": plan.name,
        "protocol": protocol,
        "method": one.name,
        "label": one.label,
        "setting": setting.label,
        "group": setting.group,
        "missing": setting.problem.missing,
        "further": setting.further,
        **_printed(plan, setting, one),
    }
    planned = search_cells(setting, one)
    searched = _found(planned, results)
    params = chosen(setting, one, protocol, results)
    if params is None:
        return Entry(**about, **_why_not(searched, len(planned)))
    found = _found(final_cells(plan, setting, one, params), results)
    picking = sum(r.seconds or 0.0 for r in searched) if protocol == HONEST else 0.0
    old = any(r.version != version for r in (*found, *searched))
    about |= {"params": params, "picking": picking, "old": old}
    return Entry(**about, **_figures(found, picking))


def _found(cells: Iterable[Cell], results: Results) -> list[Result]:
    """Results of the cells that have one."""
    return [results[cell.key] for cell in cells if cell.key in results]


def _why_not(searched: Sequence[Result], planned: int) -> dict[str, Any]:
    """Status and message where nothing could be chosen."""
    bad = [result for result in searched if result.status != DONE]
    if len(bad) < planned:
        return {"status": NOT_RUN}
    return {"status": bad[0].status, "message": bad[0].message}


def _figures(found: Sequence[Result], picking: float) -> dict[str, Any]:
    """Means and spreads over the seeds.

    Fits that ended in time are shown; where there is none, those that did not.
    """
    done = [result for result in found if result.status == DONE]
    late = [result for result in found if result.status == OVER]
    if not done and not late:
        failed = next(iter(found), None)
        if failed is None:
            return {"status": NOT_RUN}
        return {"status": failed.status, "message": failed.message}
    shown = done or late
    errors = [r.error for r in shown if r.error is not None]
    seconds, machine = _seconds(shown, picking)
    steps = [r.steps for r in shown if r.steps is not None]
    settled = [r.converged for r in shown if r.converged is not None]
    bad = [r for r in found if r.status != DONE]
    return {
        "status": DONE if done else OVER,
        "error": fmean(errors) if errors else None,
        "error_sd": stdev(errors) if len(errors) > 1 else None,
        "seconds": fmean(seconds) if seconds else None,
        "seconds_sd": stdev(seconds) if len(seconds) > 1 else None,
        "seeds": len(shown),
        "machine": machine,
        "scores": _mean_scores(shown),
        "steps": fmean(steps) if steps else None,
        "converged": all(settled) if settled else None,
        "message": _remark(bad),
    }


def _seconds(shown: Sequence[Result], picking: float) -> tuple[list[float], str]:
    """Seconds on the machine of the first seed, and which it is.

    Times of a GPU and of a processor have no mean; rows of a column share the machine
    of their first seed.
    """
    machine = machine_of(shown[0])
    alike = [r for r in shown if machine_of(r) == machine]
    return [r.seconds + picking for r in alike if r.seconds is not None], machine


def machine_of(result: Result) -> str:
    """Where a fit ran, whatever ran beside it.

    Examples
    --------
    >>> from ncarl.study.cells import Cell, Problem, Result
    >>> cell = Cell(Problem("low-rank"), "ours", "ncarl", {})
    >>> machine_of(Result(cell, "done", machine="GPU, 5 side by side"))
    'GPU'
    """
    return result.machine.rpartition(", ")[0] or result.machine


def _remark(bad: Sequence[Result]) -> str:
    """What became of the seeds that did not end well."""
    failed = [r for r in bad if r.status == FAILED]
    alike = failed or bad
    if not alike:
        return ""
    return f"{len(alike)} {alike[0].status}: {alike[0].message}"


def _mean_scores(shown: Sequence[Result]) -> dict[str, float]:
    """Means of the measures that all seeds have."""
    names = set.intersection(*(set(r.scores) for r in shown))
    return {name: fmean(r.scores[name] for r in shown) for name in sorted(names)}


def _printed(plan: Plan, setting: Setting, one: Contender) -> Mapping[str, Any]:
    """What the paper prints of it."""
    if not (plan.printed and setting.printed and one.printed):
        return {}
    place = (plan.printed, setting.printed, setting.problem.missing)
    error = printed(*place, "error", one.printed)
    seconds = printed(*place, "seconds", one.printed)
    return {
        "printed": error if isinstance(error, float) else None,
        "printed_seconds": seconds if isinstance(seconds, float) else None,
        "printed_bound": seconds if isinstance(seconds, str) else "",
    }

"""From a group of a plan to its columns, with what it changes of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncarl.study.cells import Problem
from ncarl.study.plan_parts import Contender, Setting
from ncarl.study.problems import PICTURES, SOURCES

#: A parameter of this value is the rank that the paper gave to factored models.
GIVEN_RANK = "@rank"
#: With ``--quick``: seeds, values of each parameter of a grid, seconds a fit.
QUICK_SEEDS, QUICK_VALUES, QUICK_BUDGET = 2, 2, 20.0
#: Kinds of data.
DATA = ("low-rank", *SOURCES)
#: What a group may say.
FIELDS = (
    *("label", "printed", "data", "options", "missing", "mask", "channels", "rank"),
    *("heavy", "seeds", "methods", "without", "params", "grid", "further", "quick"),
)


def reduced(group: dict[str, Any]) -> dict[str, Any] | None:
    """A group at its reduced size; None where it is left out."""
    quick = group.get("quick", {})
    if quick is False:
        return None
    options = {**group.get("options", {}), **quick.get("options", {})}
    if "data" in quick:  # something else stands in: nothing of the options is its own
        options = quick.get("options", {})
    return {**group, "heavy": False, **quick, "options": options}


def settings_of(
    group: Mapping[str, Any],
    names: Sequence[str],
    book: Mapping[str, Contender],
    sweep: Mapping[str, Sequence[Any]],
    quick: bool,
) -> Iterator[Setting]:
    """A setting for every missing rate of a group."""
    check_group(group, book)
    rows = [n for n in names if n in group.get("methods", names)]
    rows = [n for n in rows if n not in group.get("without", ())]
    contenders: list[Contender] = []
    for name in rows:
        one = _adapted(book[name], group, quick)
        contenders += _swept(one, sweep, quick)
    for label, problem in _problems(group):
        yield Setting(
            label=label,
            group=group["label"],
            problem=problem,
            printed=group.get("printed", ""),
            contenders=tuple(contenders),
            heavy=group.get("heavy", False),
            seeds=group["seeds"],
            further=group.get("further", False),
        )


def _problems(group: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """Label and problem for every missing rate, and for every channel of a picture."""
    mask, options = group.get("mask", "random"), group.get("options", {})
    for missing in group["missing"]:
        many = len(group["missing"]) > 1
        label = f"{group['label']}, {missing:g}" if many else group["label"]
        if "channels" not in group:
            yield label, Problem(group["data"], options, missing, mask)
        for channel in group.get("channels", ()):
            one = {**options, "channel": channel}
            yield f"{label}, {channel}", Problem(group["data"], one, missing, mask)


def _adapted(one: Contender, group: Mapping[str, Any], quick: bool) -> Contender:
    """A contender with what a group changes of it."""
    params = {**one.params, **group.get("params", {}).get(one.name, {})}
    grid = {**one.grid, **group.get("grid", {}).get(one.name, {})}
    grid = {name: values for name, values in grid.items() if name not in params}
    if quick:
        grid = {name: _ends(values) for name, values in grid.items()}
    for name, value in params.items():
        if value == GIVEN_RANK:
            params[name] = group["rank"]
    return replace(one, params=params, grid=grid)


def _ends(values: Sequence[Any]) -> list[Any]:
    """A few values of a parameter: the middle ones, where the best tends to be."""
    start = max(0, (len(values) - QUICK_VALUES) // 2)
    return list(values[start : start + QUICK_VALUES])


def _swept(
    one: Contender, sweep: Mapping[str, Sequence[Any]], quick: bool
) -> list[Contender]:
    """A contender for every value of a parameter that a figure varies."""
    if not sweep:
        return [one]
    ((param, values),) = sweep.items()
    grid = {name: items for name, items in one.grid.items() if name != param}
    return [
        replace(
            one,
            name=f"{one.name} {param}={_short(value)}",
            label=f"{one.label}, {param}={_short(value)}",
            params={**one.params, param: value},
            grid=grid,
        )
        for value in (values[:3] if quick else values)
    ]


def _short(value: Any) -> str:
    """A value as part of a name."""
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def check_group(group: Mapping[str, Any], book: Mapping[str, Contender]) -> None:
    """Raise if a group has a field that means nothing, or lacks one."""
    for name in group:
        if name not in FIELDS:
            raise ValueError(
                f"a group has the fields {', '.join(FIELDS)}, not {name!r}"
            )
    for name in ("label", "data", "missing"):
        if name not in group:
            raise ValueError(f"a group needs the field {name!r}: {dict(group)!r}")
    named = ("methods", "without")
    for name in (name for kind in named for name in group.get(kind, ())):
        if name not in book:
            raise ValueError(f"methods must be among {', '.join(book)}, got {name!r}")
    if group["data"] not in DATA:
        raise ValueError(
            f"data must be one of {', '.join(DATA)}, got {group['data']!r}"
        )
    mask = group.get("mask", "random")
    masks = ("random", "block") if group["data"] in PICTURES else ("random",)
    if mask not in masks:
        raise ValueError(
            f"mask must be one of {', '.join(masks)} with data {group['data']!r}, got "
            f"{mask!r}"
        )
    if not isinstance(group["seeds"], int) or group["seeds"] < 1:
        raise ValueError(f"seeds must be a whole number >= 1, got {group['seeds']!r}")

"""Plans: what a study runs, read from TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ncarl.study.plan_groups import QUICK_BUDGET, QUICK_SEEDS, reduced, settings_of
from ncarl.study.plan_parts import Contender, Plan, Setting

#: Tables and figures, in the order of the paper.
NAMES = (
    *("table1", "table2", "table3", "table4"),
    *("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8"),
)
KINDS = (
    *("table", "rates", "neighbors", "curves"),
    *("spectrum", "gallery", "recovered", "noisy", "theory"),
)

__all__ = ["NAMES", "QUICK_BUDGET", "Contender", "Plan", "Setting", "load_plan"]


def plan_folder() -> Path:
    """Where the plans lie: in the installed package, or in its repository."""
    here = Path(__file__).resolve()
    installed = here.parents[1] / "experiments"
    return installed if installed.is_dir() else here.parents[3] / "experiments"


def load_plan(
    name: str | Path, *, quick: bool = False, methods: Sequence[str] = ()
) -> Plan:
    """Read a plan.

    Parameters
    ----------
    name : str or Path
        "table1" to "fig8", or a TOML file. A file may lie beside a ``methods.toml``
        of its own.
    quick : bool
        Reduced sizes, two seeds, two values of each parameter.
    methods : sequence of str
        Contenders to run; all of the plan's if empty.
    """
    path = plan_folder() / f"{name}.toml" if name in NAMES else Path(name)
    if not path.is_file():
        known = ", ".join(NAMES)
        raise ValueError(f"a study must be one of {known} or a TOML file, got {name!r}")
    content = _read(path)
    if "like" in content:  # the same fits, shown in another way
        content = _read(path.with_name(f"{content.pop('like')}.toml")) | content
    beside = path.with_name("methods.toml")
    book = _contenders(_read(beside if beside.is_file() else _own_methods()))
    try:
        plan = _planned(path.stem, content, book, quick, tuple(methods))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is not a plan: {error!r}") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return replace(plan, own=name in NAMES)


def _own_methods() -> Path:
    """The contenders that come with the package."""
    return plan_folder() / "methods.toml"


def _read(path: Path) -> dict[str, Any]:
    """Content of a TOML file; "none" stands for None."""
    try:
        with path.open("rb") as stream:
            return {name: _nones(value) for name, value in tomllib.load(stream).items()}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error


def _nones(value: Any) -> Any:
    """TOML has no None; "none" stands for it."""
    if isinstance(value, dict):
        return {name: _nones(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_nones(item) for item in value]
    return None if value == "none" else value


def _contenders(content: Mapping[str, Any]) -> dict[str, Contender]:
    """Contenders by name."""
    return {name: Contender(name=name, **about) for name, about in content.items()}


def _planned(
    name: str,
    content: dict[str, Any],
    book: Mapping[str, Contender],
    quick: bool,
    methods: tuple[str, ...],
) -> Plan:
    """The plan that a file describes."""
    groups = content.pop("group", [])
    seeds, sweep = content.pop("seeds", 5), content.pop("sweep", {})
    rows, notes = content.pop("methods", []), content.pop("notes", [])
    plan = Plan(name=name, notes=() if quick else tuple(notes), **content)
    _check(plan, sweep)
    wanted = _chosen(methods, rows, book)
    settings: list[Setting] = []
    for group in groups:
        if quick:
            group = reduced(group)
        if group is not None:
            group = {"seeds": seeds, **group}
            if quick:
                group["seeds"] = min(group["seeds"], QUICK_SEEDS)
            settings += settings_of(group, wanted, book, sweep, quick)
    return replace(plan, settings=tuple(settings), whole=len(wanted) == len(rows))


def _check(plan: Plan, sweep: Mapping[str, Any]) -> None:
    """Raise if a plan says what cannot be shown."""
    fields = (
        ("kind", plan.kind, KINDS),
        ("measure", plan.measure, ("error", "seconds")),
        ("keep", plan.keep, ("", "curve", "picture")),
    )
    for name, value, known in fields:
        if value not in known:
            words = ", ".join(repr(word) for word in known)
            raise ValueError(f"{name} must be one of {words}, got {value!r}")
    varied = {"noisy": "gamma", "neighbors": "n_neighbors"}.get(plan.kind)
    if len(sweep) > 1 or (varied is not None and list(sweep) != [varied]):
        raise ValueError(
            f"sweep must name one parameter{f', {varied},' if varied else ''} and its "
            f"values for kind {plan.kind!r}, got {dict(sweep)!r}"
        )
    pictured = ("spectrum", "gallery", "recovered", "noisy")
    if plan.kind in pictured and not {"photos", "step"} <= set(plan.options):
        raise ValueError(
            f"options must hold 'photos' and 'step' for kind {plan.kind!r}, got "
            f"{dict(plan.options)!r}"
        )
    needed = {"recovered": "picture", "noisy": "picture", "curves": "curve"}
    if plan.keep != needed.get(plan.kind, plan.keep):
        raise ValueError(f"keep must be {needed[plan.kind]!r} for kind {plan.kind!r}")


def _chosen(
    methods: Sequence[str], rows: Sequence[str], book: Mapping[str, Contender]
) -> list[str]:
    """Names of the rows to run."""
    for name in (*methods, *rows):
        if name not in book:
            raise ValueError(f"methods must be among {', '.join(book)}, got {name!r}")
    return [name for name in rows if not methods or name in methods]

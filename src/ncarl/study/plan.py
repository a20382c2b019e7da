"""What a study runs: settings, contenders and their grids, read from TOML files."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ncarl.study.cells import Problem

#: Tables and figures, in the order of the paper.
NAMES = (
    *("table1", "table2", "table3", "table4"),
    *("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8"),
)
KINDS = (
    *("table", "rates", "neighbors", "curves"),
    *("spectrum", "gallery", "recovered", "noisy", "theory"),
)
#: A parameter of this value is the rank that the paper gave to factored models.
GIVEN_RANK = "@rank"
#: With ``--quick``: seeds, values of each parameter of a grid, seconds a fit.
QUICK_SEEDS, QUICK_VALUES, QUICK_BUDGET = 2, 2, 20.0


@dataclass(frozen=True)
class Contender:
    """A row of a table.

    Attributes
    ----------
    name, label : str
        Its name in TOML files, and how tables call it.
    printed : str
        Its name in the paper; "" if it is not there.
    estimator : str
        A name that `ncarl.make` knows, or "mean".
    params : mapping
        Parameters that are given.
    grid : mapping of str to sequence
        Parameters that are chosen, and their values.
    """

    name: str
    label: str
    estimator: str
    printed: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid, with the given parameters.

        Examples
        --------
        >>> Contender("a", "A", "ncarl", grid={"alpha": [1, 2]}).points()
        [{'alpha': 1}, {'alpha': 2}]
        """
        return [
            {**self.params, **dict(zip(self.grid, values, strict=True))}
            for values in itertools.product(*self.grid.values())
        ]


@dataclass(frozen=True)
class Setting:
    """A column of a table: a problem, and who competes on it.

    Attributes
    ----------
    label, group : str
        The column, and the columns it belongs to.
    problem : Problem
        What is completed.
    printed : str
        Name of the set in the paper.
    contenders : tuple of Contender
        Rows, with what this setting changes of them.
    heavy : bool
        Whether a GPU is worth it.
    seeds : int
        How many draws.
    """

    label: str
    group: str
    problem: Problem
    printed: str
    contenders: tuple[Contender, ...]
    heavy: bool = False
    seeds: int = 5


@dataclass(frozen=True)
class Plan:
    """A table or figure: its words, and its settings.

    Attributes
    ----------
    name : str
        "table1" to "fig8", or the name of the file.
    kind : str
        How it is shown: one of `KINDS`.
    title, text : str
        Its heading, and what to know to read it.
    measure : {"error", "seconds"}
        What its table shows.
    printed : str
        The table of the paper whose figures stand beside ours.
    keep : str
        What every fit keeps; see `Cell`.
    settings : tuple of Setting
        Its columns.
    notes : tuple of str
        Further remarks, shown below.
    """

    name: str
    kind: str
    title: str
    text: str = ""
    measure: str = "error"
    printed: str = ""
    keep: str = ""
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


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
        return _planned(path.stem, content, book, quick, tuple(methods))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is not a plan: {error!r}") from error


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
    plan = Plan(name=name, notes=tuple(notes), **content)
    if plan.kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {plan.kind!r}")
    wanted = _chosen(methods, rows, book)
    settings: list[Setting] = []
    for group in groups:
        if quick:
            group = _reduced(group)
        if group is not None:
            most = QUICK_SEEDS if quick else seeds
            group = {**group, "seeds": min(group.get("seeds", seeds), most)}
            settings += _settings(group, wanted, book, sweep, quick)
    return replace(plan, settings=tuple(settings))


def _chosen(
    methods: Sequence[str], rows: Sequence[str], book: Mapping[str, Contender]
) -> list[str]:
    """Names of the rows to run."""
    for name in (*methods, *rows):
        if name not in book:
            raise ValueError(f"methods must be among {', '.join(book)}, got {name!r}")
    return [name for name in rows if not methods or name in methods]


def _reduced(group: dict[str, Any]) -> dict[str, Any] | None:
    """A group at its reduced size; None where it is left out."""
    quick = group.get("quick", {})
    if quick is False:
        return None
    options = {**group.get("options", {}), **quick.get("options", {})}
    if "data" in quick:  # something else stands in: nothing of the options is its own
        options = quick.get("options", {})
    return {**group, "heavy": False, **quick, "options": options}


def _settings(
    group: Mapping[str, Any],
    names: Sequence[str],
    book: Mapping[str, Contender],
    sweep: Mapping[str, Sequence[Any]],
    quick: bool,
) -> Iterator[Setting]:
    """A setting for every missing rate of a group."""
    for name in (*group.get("methods", ()), *group.get("without", ())):
        if name not in book:
            raise ValueError(f"methods must be among {', '.join(book)}, got {name!r}")
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
            name=f"{one.name} {param}={value:g}",
            label=f"{one.label}, {param}={value:g}",
            params={**one.params, param: value},
            grid=grid,
        )
        for value in (values[:3] if quick else values)
    ]

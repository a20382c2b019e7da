"""Plans of studies: cells (single fits), their data, and the values of the paper.

`load_plan` reads the plan of a table or figure from a TOML file, `make_task` draws the
data of a cell, and `paper_value` looks up what the paper prints.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ncarl import masks
from ncarl.core.types import Array, cached_property
from ncarl.datasets import (
    load_image_folder,
    load_movielens,
    load_sample_image,
    make_low_rank,
)
from ncarl.datasets.catalog import describe_search, find_file
from ncarl.exceptions import DataNotFoundError
from ncarl.holdout import random_split
from ncarl.io.files import jsonable
from ncarl.observations import Observations, from_triplets
from ncarl.validation import check_choice, check_integer

#: Tables and figures of the paper, in its order.
STUDY_NAMES = (
    *("table1", "table2", "table3", "table4"),
    *("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8"),
)
#: Ways to show a study.
STUDY_KINDS = (
    *("table", "rates", "neighbors", "curves"),
    *("spectrum", "gallery", "recovered", "noisy", "theory"),
)
#: Status of a cell whose data are not at hand; the others are in `evaluation.measure`.
NO_DATA = "no data"
#: Role of a cell: to choose parameters, or to be shown.
SEARCH, FINAL = "search", "final"
#: How parameters are chosen: by the error on the hidden entries, as the code of the
#: authors does, or by the error on held-out observed entries.
PAPER, HONEST = "paper", "honest"
PROTOCOLS = (PAPER, HONEST)
#: Protocol of studies without parameters to choose.
GIVEN = "given"
PROTOCOL_LABELS = {
    PAPER: "parameters picked on the test error (the paper's protocol)",
    HONEST: "parameters picked on held-out observed entries; picking is timed",
    GIVEN: "parameters given, none picked",
}
#: Fraction of the observed entries that a search cell holds out.
VALIDATION_FRACTION = 0.1
#: A parameter of this value becomes the rank that the paper gave to factored models.
GIVEN_RANK = "@rank"
#: With ``--quick``: seeds, values of each grid parameter, seconds of a fit.
QUICK_SEEDS, QUICK_VALUES, QUICK_BUDGET = 2, 2, 20.0
#: Fields of a ``[[group]]`` in a TOML file.
GROUP_FIELDS = (
    *("label", "printed", "data", "options", "missing", "mask", "channels", "rank"),
    *("heavy", "seeds", "methods", "without", "params", "grid", "further", "quick"),
)


@dataclass(frozen=True)
class ProblemSpec:
    """Data, and which entries are hidden."""

    data: str  # one of `DATA_KINDS`
    options: Mapping[str, Any] = field(default_factory=dict)  # arguments of its loader
    missing: float = 0.5  # fraction of the observed entries that is hidden
    mask: str = "random"  # pattern of the hidden entries: "random" or "block"


@dataclass(frozen=True)
class Cell:
    """One fit of a study."""

    problem: ProblemSpec
    method: str  # name of the method in the study
    estimator: str  # a name that `ncarl.make` accepts, or "mean"
    params: Mapping[str, Any]
    seed: int = 0  # of the data and of the mask
    role: str = FINAL  # or SEARCH, which also holds out a tenth for validation
    keep: str = ""  # also stored: "curve" (objectives), "picture" (completed matrix)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "params": dict(self.params)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Cell:
        """The inverse of `to_dict`."""
        return cls(**{**record, "problem": ProblemSpec(**record["problem"])})

    @cached_property
    def key(self) -> str:
        """Hash of the fit, equal for equal fits.

        The name of the method is left out, so that tables that give one fit two names
        share its result.
        """
        content = self.to_dict()
        del content["method"]
        text = json.dumps(_canonicalize(content), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonicalize(value: Any) -> Any:
    """Make equal values identical: 1 and 1.0, tuples and lists."""
    if isinstance(value, Mapping):
        return {str(name): _canonicalize(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonicalize(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


@dataclass(frozen=True)
class CellResult:
    """Result of a cell."""

    cell: Cell
    status: str  # "done", "over budget" (scores of the last step), "failed", "no data"
    version: str = ""  # `RESULTS_VERSION` of the code that ran it
    error: float | None = None  # relative, on the hidden entries: the paper's metric
    validation: float | None = None  # the same on what a search cell holds out
    scores: Mapping[str, float] = field(default_factory=dict)  # "rmse", "psnr"
    seconds: float | None = None  # of the fit alone
    steps: int | None = None  # ``n_iter_`` of the estimator
    converged: bool | None = None  # ``converged_``
    facts: Mapping[str, Any] = field(default_factory=dict)  # ranks, chosen parameters
    curve: tuple[float | None, ...] = ()  # objectives; None where not finite
    machine: str = ""  # processor or GPU, and the number of fits in parallel
    message: str = ""  # error message

    def to_dict(self) -> dict[str, Any]:
        """The fields and the key of the cell as JSON values."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        record: dict[str, Any] = jsonable({**content, "cell": self.cell.to_dict()})
        return {**record, "key": self.cell.key}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> CellResult:
        """The inverse of `to_dict`.

        Unknown fields, written by an older or a later version, are ignored.
        """
        known = cls.__dataclass_fields__
        content = {name: item for name, item in record.items() if name in known}
        content["cell"] = Cell.from_dict(record["cell"])
        content["curve"] = tuple(record.get("curve", ()))
        return cls(**content)


@dataclass(frozen=True)
class MethodSpec:
    """A method: one row of a table."""

    name: str  # in TOML files
    label: str  # in tables
    estimator: str  # a name that `ncarl.make` accepts, or "mean"
    printed: str = ""  # its name in the paper; "" if the paper does not have it
    params: Mapping[str, Any] = field(default_factory=dict)  # fixed parameters
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # values to search

    def grid_points(self) -> list[dict[str, Any]]:
        """All combinations of the grid, with the fixed parameters."""
        return [
            {**self.params, **dict(zip(self.grid, values, strict=True))}
            for values in itertools.product(*self.grid.values())
        ]


@dataclass(frozen=True)
class Setting:
    """A problem and its methods: one column of a table."""

    label: str
    group: str  # name of its group of columns
    problem: ProblemSpec
    printed: str  # name of the data set in the paper
    methods: tuple[MethodSpec, ...]  # rows, with the parameters of this setting
    heavy: bool = False  # whether to use a GPU if there is one
    seeds: int = 5  # number of draws
    further: bool = False  # whether the paper does not have this column


@dataclass(frozen=True)
class StudyPlan:
    """Plan of a table or figure."""

    name: str  # "table1" to "fig8", or the name of the file
    kind: str  # how it is shown: one of `STUDY_KINDS`
    title: str
    text: str = ""  # introduction
    measure: str = "error"  # what its table shows: "error" or "seconds"
    printed: str = ""  # the table of the paper whose values are shown beside ours
    keep: str = ""  # what every fit stores; see `Cell`
    settings: tuple[Setting, ...] = ()  # columns
    notes: tuple[str, ...] = ()  # remarks below the table
    options: Mapping[str, Any] = field(default_factory=dict)  # "photos" and "step"
    is_builtin: bool = False  # comes with the package; only these get verdicts
    has_all_methods: bool = True  # whether all of its rows are to be run


def load_plan(
    name: str | Path, *, quick: bool = False, methods: Sequence[str] = ()
) -> StudyPlan:
    """Read the plan of a table or figure: "table1" to "fig8", or a TOML file.

    A file may lie beside a ``methods.toml`` of its own. ``quick`` means reduced sizes,
    two seeds and two values of each parameter. Without ``methods`` all are run.
    """
    path = plan_folder() / f"{name}.toml" if name in STUDY_NAMES else Path(name)
    if not path.is_file():
        raise ValueError(
            f"a study must be one of {', '.join(STUDY_NAMES)} or a TOML file, got "
            f"{name!r}"
        )
    content = _read_toml(path)
    if "like" in content:  # the same fits, shown differently
        content = _read_toml(path.with_name(f"{content.pop('like')}.toml")) | content
    methods_file = path.with_name("methods.toml")
    if not methods_file.is_file():
        methods_file = plan_folder() / "methods.toml"
    known = _read_toml(methods_file)
    specs = {name: MethodSpec(name=name, **spec) for name, spec in known.items()}
    try:
        plan = _build_plan(path.stem, content, specs, quick, methods)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is not a plan: {error!r}") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return replace(plan, is_builtin=name in STUDY_NAMES)


def plan_folder() -> Path:
    """Folder of the plans: in the installed package, or in its repository."""
    here = Path(__file__).resolve()
    installed = here.parents[1] / "experiments"
    return installed if installed.is_dir() else here.parents[3] / "experiments"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    replaced: dict[str, Any] = _replace_none(content)
    return replaced


def _replace_none(value: Any) -> Any:
    """Replace "none" by None, which TOML lacks."""
    if isinstance(value, dict):
        return {name: _replace_none(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_none(item) for item in value]
    return None if value == "none" else value


def _build_plan(
    name: str,
    content: dict[str, Any],
    specs: Mapping[str, MethodSpec],
    quick: bool,
    methods: Sequence[str],
) -> StudyPlan:
    groups = content.pop("group", [])
    seeds, sweep = content.pop("seeds", 5), content.pop("sweep", {})
    rows, notes = content.pop("methods", []), content.pop("notes", [])
    plan = StudyPlan(name=name, notes=() if quick else tuple(notes), **content)
    _check_plan(plan, sweep)
    _check_methods((*methods, *rows), specs)
    wanted = [name for name in rows if not methods or name in methods]
    settings: list[Setting] = []
    for group in groups:
        if not quick or group.get("quick") is not False:
            whole = {"seeds": seeds, **group}
            used = _reduce_group(whole) if quick else whole
            settings += _expand_group(used, wanted, specs, sweep, quick)
    return replace(
        plan, settings=tuple(settings), has_all_methods=len(wanted) == len(rows)
    )


def _check_plan(plan: StudyPlan, sweep: Mapping[str, Any]) -> None:
    check_choice("kind", plan.kind, STUDY_KINDS)
    check_choice("measure", plan.measure, ("error", "seconds"))
    check_choice("keep", plan.keep, ("", "curve", "picture"))
    varied = {"noisy": "gamma", "neighbors": "n_neighbors"}.get(plan.kind)
    if len(sweep) > 1 or (varied is not None and list(sweep) != [varied]):
        raise ValueError(
            f"sweep must name one parameter{f', {varied},' if varied else ''} and its "
            f"values for kind {plan.kind!r}, got {dict(sweep)!r}"
        )
    has_photos = plan.kind in ("spectrum", "gallery", "recovered", "noisy")
    if has_photos and not {"photos", "step"} <= set(plan.options):
        raise ValueError(
            f"options must hold 'photos' and 'step' for kind {plan.kind!r}, got "
            f"{dict(plan.options)!r}"
        )
    needed = {"recovered": "picture", "noisy": "picture", "curves": "curve"}
    if plan.keep != needed.get(plan.kind, plan.keep):
        raise ValueError(f"keep must be {needed[plan.kind]!r} for kind {plan.kind!r}")


def _check_methods(names: Iterable[str], specs: Mapping[str, MethodSpec]) -> None:
    for name in names:
        if name not in specs:
            raise ValueError(f"methods must be among {', '.join(specs)}, got {name!r}")


def _reduce_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group at the size of ``--quick``."""
    quick = group.get("quick", {})
    options = {**group.get("options", {}), **quick.get("options", {})}
    if "data" in quick:  # other data: the options of the group do not apply
        options = quick.get("options", {})
    reduced = {**group, "heavy": False, **quick, "options": options}
    return {**reduced, "seeds": min(reduced["seeds"], QUICK_SEEDS)}


def _expand_group(
    group: Mapping[str, Any],
    rows: Sequence[str],
    specs: Mapping[str, MethodSpec],
    sweep: Mapping[str, Sequence[Any]],
    quick: bool,
) -> Iterator[Setting]:
    _check_group(group, specs)
    methods: list[MethodSpec] = []
    for name in rows:
        if name in group.get("methods", rows) and name not in group.get("without", ()):
            one = _apply_group_overrides(specs[name], group, quick)
            methods += _expand_sweep(one, sweep, quick)
    optional = ("printed", "heavy", "seeds", "further")
    own = {"printed": "", **{name: group[name] for name in optional if name in group}}
    for label, problem in _problems(group):
        yield Setting(label, group["label"], problem, methods=tuple(methods), **own)


def _check_group(group: Mapping[str, Any], specs: Mapping[str, MethodSpec]) -> None:
    for name in group:
        if name not in GROUP_FIELDS:
            raise ValueError(
                f"a group has the fields {', '.join(GROUP_FIELDS)}, not {name!r}"
            )
    for name in ("label", "data", "missing"):
        if name not in group:
            raise ValueError(f"a group needs the field {name!r}: {dict(group)!r}")
    _check_methods((*group.get("methods", ()), *group.get("without", ())), specs)
    data = check_choice("data", group["data"], DATA_KINDS)
    patterns = ("random", "block") if data in ("image", "photo") else ("random",)
    check_choice(f"mask of data {data!r}", group.get("mask", "random"), patterns)
    check_integer("seeds", group["seeds"], low=1)


def _problems(group: Mapping[str, Any]) -> Iterator[tuple[str, ProblemSpec]]:
    """Label and problem for every missing rate and every channel."""
    mask, options = group.get("mask", "random"), group.get("options", {})
    for missing in group["missing"]:
        many = len(group["missing"]) > 1
        label = f"{group['label']}, {missing:g}" if many else group["label"]
        if "channels" not in group:
            yield label, ProblemSpec(group["data"], options, missing, mask)
        for channel in group.get("channels", ()):
            one = {**options, "channel": channel}
            yield f"{label}, {channel}", ProblemSpec(group["data"], one, missing, mask)


def _apply_group_overrides(
    spec: MethodSpec, group: Mapping[str, Any], quick: bool
) -> MethodSpec:
    params = {**spec.params, **group.get("params", {}).get(spec.name, {})}
    grid = {**spec.grid, **group.get("grid", {}).get(spec.name, {})}
    grid = {name: values for name, values in grid.items() if name not in params}
    if quick:  # the middle values, where the best one tends to be
        for name, values in grid.items():
            start = max(0, (len(values) - QUICK_VALUES) // 2)
            grid[name] = list(values[start : start + QUICK_VALUES])
    for name, value in params.items():
        if value == GIVEN_RANK:
            params[name] = group["rank"]
    return replace(spec, params=params, grid=grid)


def _expand_sweep(
    spec: MethodSpec, sweep: Mapping[str, Sequence[Any]], quick: bool
) -> Iterator[MethodSpec]:
    """A method for every value of the parameter that a figure varies."""
    if not sweep:
        yield spec
    for param, values in sweep.items():
        grid = {name: items for name, items in spec.grid.items() if name != param}
        for value in values[:3] if quick else values:
            text = f"{value:g}" if isinstance(value, (int, float)) else str(value)
            yield replace(
                spec,
                name=f"{spec.name} {param}={text}",
                label=f"{spec.label}, {param}={text}",
                params={**spec.params, param: value},
                grid=grid,
            )


@dataclass(frozen=True)
class CompletionTask:
    """A matrix with missing entries, and the truth of the hidden ones."""

    X: Any  # training data: an array with NaN, or a sparse matrix
    rows: Array  # positions of the hidden entries
    cols: Array
    truth: Array  # their true values
    validation_entries: tuple[Array, Array, Array] | None = None  # rows, cols, values
    is_picture: bool = False  # whether the values are gray levels between 0 and 1


def make_task(problem: ProblemSpec, seed: int) -> CompletionTask:
    """Draw the task of a problem and a seed."""
    if problem.data == "low-rank":
        drawn = make_low_rank(
            **problem.options, missing=problem.missing, random_state=seed
        )
        rows, cols = np.nonzero(drawn.hidden)
        return CompletionTask(drawn.X, rows, cols, drawn.truth[rows, cols])
    whole = _load_matrix(problem.data, tuple(sorted(problem.options.items())))
    if isinstance(whole, Observations):
        hidden = masks.random((whole.n_observed,), problem.missing, rng=seed)
        test, X = whole.drop_entries(~hidden), whole.drop_entries(hidden).to_csr()
        return CompletionTask(X, test.rows, test.indices.astype(np.int64), test.values)
    if problem.mask == "random":
        hidden = masks.random(whole.shape, problem.missing, rng=seed)
    else:
        # A square whose area is the fraction to hide.
        side = round((problem.missing * whole.size) ** 0.5)
        hidden = masks.block(whole.shape, (side, side), at="center")
    rows, cols = np.nonzero(hidden)
    X = np.where(hidden, np.nan, whole)
    return CompletionTask(X, rows, cols, whole[rows, cols], is_picture=True)


def hold_out_validation(task: CompletionTask, seed: int) -> CompletionTask:
    """The task with a tenth of its observed entries held out for validation."""
    is_dense = isinstance(task.X, np.ndarray)
    read = Observations.from_dense if is_dense else Observations.from_sparse
    rng = np.random.default_rng([seed, 1])
    kept, held_out = random_split(read(task.X), VALIDATION_FRACTION, rng)
    if is_dense:
        X = task.X.copy()
        X[held_out.rows, held_out.indices] = np.nan
    else:
        X = kept.to_csr()
    validation = (held_out.rows, held_out.indices.astype(np.int64), held_out.values)
    return replace(task, X=X, validation_entries=validation)


@lru_cache(maxsize=2)
def _load_matrix(data: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """A whole matrix (array, or observations of ratings), cached for the next seed."""
    return DATA_LOADERS[data](dict(options))


def _movielens(options: Mapping[str, Any]) -> Observations:
    ratings = load_movielens(options["name"], download=False)
    return Observations.from_sparse(ratings.matrix())


def _folder_image(options: Mapping[str, Any]) -> Array:
    folder = find_file([options["folder"]])
    if folder is None:
        raise DataNotFoundError(describe_search([options["folder"]]))
    (picture,) = load_image_folder(folder, names=[options["name"]]).values()
    return picture


def _photograph(options: Mapping[str, Any]) -> Array:
    channel = options.get("channel")
    picture = load_sample_image(
        options["name"], gray=channel is None, step=options.get("step", 1)
    )
    return np.asarray(picture if channel is None else picture[:, :, int(channel)])


def _make_synthetic_ratings(options: Mapping[str, Any]) -> Observations:
    """Synthetic ratings from 1 to 5: user and item means, low-rank tastes, popularity.

    They replace MovieLens where it is not at hand.
    """
    users, items, each = options["users"], options["items"], options["each"]
    rng = np.random.default_rng(0)
    tastes = rng.standard_normal((users, 3)) @ rng.standard_normal((3, items)) / 3.0
    means = 0.4 * rng.standard_normal((users, 1)) + 0.5 * rng.standard_normal(items)
    noise = 0.8 * rng.standard_normal((users, items))
    rating = np.clip(np.rint(3.6 + means + tastes + noise), 1.0, 5.0)
    popular = rng.random(items) ** 2 + 0.05
    places = [rng.choice(items, each, False, popular / popular.sum()) for _ in means]
    rows, cols = np.repeat(np.arange(users), each), np.concatenate(places)
    ratings = from_triplets(rows, cols, rating[rows, cols], shape=(users, items))
    return Observations.from_sparse(ratings)


#: Loaders of whole matrices, by kind of data.
DATA_LOADERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "movielens": _movielens,
    "image": _folder_image,
    "photo": _photograph,
    "like-ratings": _make_synthetic_ratings,
}
#: All kinds of data; "low-rank" is drawn anew for every seed.
DATA_KINDS = ("low-rank", *DATA_LOADERS)


@cache
def load_paper_values() -> dict[str, Any]:
    """All values printed in the paper, with their source."""
    path = files("ncarl.reproduce").joinpath("paper_values.json")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def paper_value(
    table: str, name: str, missing: float, measure: str, method: str
) -> float | str | None:
    """One value printed in the paper: a number, a bound such as "> 3000", or None.

    >>> paper_value("table2", "ML-100K", 0.5, "error", "NCARL")
    0.2787
    """
    content = load_paper_values()
    known = content["tables"].get(table) or content["figures"].get(table, {})
    for key in (name, f"{missing:g}", measure):
        known = known.get(key, {})
    value: float | str | None = known.get(method)
    return value

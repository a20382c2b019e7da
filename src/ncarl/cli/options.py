"""Options that commands share: choices, declarations and parsers."""

from __future__ import annotations

import csv
import inspect
import math
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ncarl.registry import METHODS, TABLE_IMPUTERS


def option(panel: str, text: str, *flags: str, **settings: Any) -> Any:
    """An option in a panel of the help, with its help text."""
    return typer.Option(*flags, rich_help_panel=panel, help=text, **settings)


read_option = partial(option, "Reading the input")
holdout_option = partial(option, "Held-out entries")
fit_option = partial(option, "Model and fit")
output_option = partial(option, "Output")

if TYPE_CHECKING:
    MethodChoice = str
    EvaluatedMethodChoice = str
else:
    # Typer makes lists of choices of them.
    MethodChoice = Literal[tuple(METHODS)]
    EvaluatedMethodChoice = Literal[(*METHODS, *TABLE_IMPUTERS)]

CenterChoice = Literal["none", "mean", "columns", "two-way"]
WeightsChoice = Literal["floor", "pinv", "smooth"]
OrientationChoice = Literal["auto", "columns", "rows"]
SidesChoice = Literal["auto", "columns", "rows", "both"]
ScaleChoice = Literal["auto", "none", "columns"]
EngineChoice = Literal["auto", "threads", "torch"]
FitEngineChoice = Literal["auto", "threads", "torch", "dask"]
DtypeChoice = Literal["float64", "float32"]
PatternChoice = Literal["missing", "random"]

#: A table on which methods are evaluated.
DataArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV (also .gz), Parquet, NPY, NPZ or Matrix Market, with or "
        "without missing entries. Entries that a sparse file does not list are "
        "missing, not zero.",
        show_default=False,
    ),
]
#: Options of `takes_read_options`, by the field of `ReadOptions` that they set.
READ_OPTIONS: dict[str, Any] = {
    "na": Annotated[
        list[str] | None,
        read_option("Another text that means missing. Repeatable.", metavar="TOKEN"),
    ],
    "labels": Annotated[
        list[str] | None,
        read_option(
            "Column that is kept but not used as data. Repeatable.",
            "--label",
            metavar="COLUMN",
        ),
    ],
    "header": Annotated[
        bool | None,
        read_option(
            "Whether the first line names the columns.",
            "--header/--no-header",
            show_default="detected",
        ),
    ],
    "delimiter": Annotated[
        str | None,
        read_option(
            "Delimiter of the cells: one character, or 'tab'.", show_default="detected"
        ),
    ],
    "decimal": Annotated[
        str | None,
        read_option(
            "Decimal sign of a text file, in the input and in the output.",
            show_default=".",
            metavar=".|,",
        ),
    ],
    "array": Annotated[
        str | None, read_option("Which array of an NPZ file.", metavar="NAME")
    ],
}
HideOption = Annotated[
    float,
    holdout_option(
        "Fraction of the observed entries to hold out. No row or column loses its "
        "last one."
    ),
]
PatternOption = Annotated[
    PatternChoice,
    holdout_option(
        "missing holds out entries in the pattern of the missing ones, in blocks where "
        "they come in blocks; random holds them out one by one."
    ),
]
SeedOption = Annotated[
    int, holdout_option("Random seed of the held-out entries and the methods.")
]
EngineOption = Annotated[
    EngineChoice,
    fit_option("Where the computation runs; auto uses a GPU if there is one."),
]
ScaleOption = Annotated[
    ScaleChoice,
    fit_option(
        "Scale columns to unit standard deviation; auto does so in tables whose "
        "columns have different units."
    ),
]
ReportOption = Annotated[
    Path | None,
    output_option(
        "Write one self-contained page with figures; an older page of ncarl is "
        "replaced.",
        "--report",
        metavar="PATH.html",
        show_default=False,
    ),
]
OverwriteOption = Annotated[
    bool, output_option("Replace existing files.", "--overwrite")
]
QuietOption = Annotated[
    bool, output_option("Print warnings and errors only.", "--quiet", "-q")
]


def takes_read_options(command: Callable[..., None]) -> Callable[..., None]:
    """Put `READ_OPTIONS` in place of the parameter ``reading`` of a command.

    The command gets their values as one `ReadOptions`.
    """
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command, eval_str=True).parameters.items():
        if name != "reading":
            parameters.append(own)
            continue
        for field, hint in READ_OPTIONS.items():
            parameters.append(own.replace(name=field, annotation=hint, default=None))

    @wraps(command)
    def with_options(**given: Any) -> None:
        from ncarl.io.tables import ReadOptions

        values = {name: given.pop(name) for name in READ_OPTIONS}
        reading = {name: value for name, value in values.items() if value is not None}
        command(**given, reading=ReadOptions(**reading))

    # Typer reads both.
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options


def number_or(*words: str, whole: bool = False) -> Callable[[str], float | str]:
    """A parser of (whole) numbers that also takes some words.

    >>> parse = number_or("auto")
    >>> parse("0.5"), parse("Auto")
    (0.5, 'auto')
    """

    def parse(text: str) -> float | str:
        if text.lower() in words:
            return text.lower()
        try:
            return int(text) if whole else float(text)
        except ValueError:
            number = "a whole number" if whole else "a number"
            expected = " or ".join([number, *map(repr, words)])
            raise typer.BadParameter(f"must be {expected}, got {text!r}") from None

    return parse


def parse_clip(text: str) -> tuple[float, float] | str:
    """Bounds of imputed values, "auto" or "none".

    >>> parse_clip("1,5"), parse_clip("none")
    ((1.0, 5.0), 'none')
    """
    if text.lower() in ("auto", "none"):
        return text.lower()
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        low = high = math.nan
    if not low < high:
        raise typer.BadParameter(
            f"must be 'auto', 'none' or LOW,HIGH with LOW below HIGH, got {text!r}"
        )
    return low, high


def parse_columns(text: str) -> tuple[str, ...]:
    """Names of columns, separated by commas; double quotes protect commas in a name.

    >>> parse_columns('height,"weight, kg"')
    ('height', 'weight, kg')
    """
    found = next(csv.reader([text], skipinitialspace=True), [])
    names = tuple(name.strip() for name in found)
    if not names or not all(names):
        raise typer.BadParameter(f"must be names separated by commas, got {text!r}")
    return names


def parse_level(text: str) -> float:
    """A fraction between 0 and 1."""
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0.0 < level < 1.0:
        raise typer.BadParameter(f"must lie between 0 and 1, got {text!r}")
    return level


#: Takes ``show_default``, the level of the command.
level_option = partial(
    output_option,
    "Nominal coverage of the intervals.",
    parser=parse_level,
    metavar="FLOAT",
)


def parse_setting(text: str) -> tuple[str, Any]:
    """A parameter of a method and its value.

    >>> parse_setting("p=0.5"), parse_setting("lam=auto"), parse_setting("rank=none")
    (('p', 0.5), ('lam', 'auto'), ('rank', None))
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise typer.BadParameter(f"must be NAME=VALUE, such as p=0.5, got {text!r}")
    words: dict[str, Any] = {"none": None, "true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float, _parse_fraction):
        try:
            return name, kind(value)
        except (ValueError, ZeroDivisionError):
            continue
    return name, value


def _parse_fraction(text: str) -> float:
    above, _, below = text.partition("/")
    return float(above) / float(below)

"""Options that contradict each other, found before anything is read or fitted."""

from __future__ import annotations

from collections.abc import Iterator

from ncarl.cli.choices import (
    RIVALS,
    FitEngine,
    Method,
    Orientation,
    Precision,
    Sides,
)
from ncarl.cli.files import ReadOptions
from ncarl.cli.models import ModelOptions
from ncarl.cli.outputs import Outputs

PAPER = (Method.NCARL, Method.NCARL_CV)
BAYES = (Method.BAYES,)
#: Options that not every method has: field of `ModelOptions`, flag, methods.
OWNERS = (
    ("alpha", "--alpha", PAPER),
    ("n_neighbors", "--n-neighbors", PAPER),
    ("gamma", "--gamma", PAPER),
    ("weights", "--weights", PAPER),
    ("orientation", "--orientation", PAPER),
    ("sides", "--sides", BAYES),
    ("prior_strength", "--prior-strength", BAYES),
    ("noise", "--noise", BAYES),
    ("clip", "--clip", BAYES),
    ("rounding", "--round", BAYES),
    ("validation", "--validation", (*BAYES, Method.NCARL_CV, Method.SOFT_IMPUTE)),
    ("settings", "--set", RIVALS),
    ("center", "--center", tuple(m for m in Method if m is not Method.BIAS)),
)
#: The same for fields of `Outputs`.
OWNERS_OF_OUTPUTS = (
    ("lower", "--lower"),
    ("upper", "--upper"),
    ("level", "--level"),
    ("draws", "--draws"),
    ("drawn", "--draws-out"),
)
#: Methods that learn from a table that is never in memory as a whole.
STREAMED = (Method.BAYES, Method.NCARL)
WITHOUT = "leave out --stream"
#: What --stream cannot do, and the way out: fields of `ReadOptions` and of `Outputs`.
NOT_READ = (
    ("na", "--na", f"write missing cells as NA or leave them empty, or {WITHOUT}"),
    ("labels", "--label", "name the columns to use with --columns, which become OUT"),
    ("header", "--header/--no-header", "a first line with a name in it is a header; "
     f"add or remove it, or {WITHOUT}"),
    ("delimiter", "--delimiter", "commas, semicolons and tabs are found out; use one "
     f"of them in the file, or {WITHOUT}"),
    ("decimal", "--decimal", "decimals need a point; write them so in the file, or "
     f"{WITHOUT}"),
    ("array", "--array", f"write that array to an NPY file, or {WITHOUT}"),
)  # fmt: skip
NOT_WRITTEN = (
    *((name, flag, f"ask for --std, or {WITHOUT}")
      for name, flag in (("lower", "--lower"), ("upper", "--upper"),
                         ("level", "--level"))),
    ("draws", "--draws", WITHOUT),
    ("drawn", "--draws-out", WITHOUT),
)  # fmt: skip


def check_stream_usage(
    model: ModelOptions, outputs: Outputs, reading: ReadOptions
) -> None:
    """Raise if an option was given that a stream of rows cannot honour."""
    if model.method not in STREAMED:
        raise ValueError(
            f"--method {model.method} needs the table in memory, which --stream never "
            f"holds; give --method {' or '.join(STREAMED)}, or {WITHOUT}"
        )
    asked = [(reading, option) for option in NOT_READ]
    for owner, (name, flag, way) in (*asked, *((outputs, o) for o in NOT_WRITTEN)):
        if getattr(owner, name) not in (None, (), []):
            raise ValueError(f"{flag} cannot be had with --stream; {way}")
    if model.orientation is Orientation.ROWS:
        _refuse_side("--orientation rows", "--orientation columns")
    if model.sides in (Sides.ROWS, Sides.BOTH):
        _refuse_side(f"--sides {model.sides}", "--sides columns")


def _refuse_side(given: str, instead: str) -> None:
    """Raise for a kernel of the rows."""
    raise ValueError(
        f"{given} needs all rows in memory, which --stream never holds; give "
        f"{instead}, or {WITHOUT}"
    )


def check_usage(model: ModelOptions, outputs: Outputs) -> None:
    """Raise if the options contradict each other."""
    for flag, methods in _foreign(model, outputs):
        names = " or ".join(methods)
        raise ValueError(
            f"{flag} belongs to --method {names}, not to {model.method}; leave it out, "
            "or change --method"
        )
    if model.method is Method.BAYES:
        _check_noise_of_bayes(model, outputs)
    elif model.method in RIVALS:
        _check_rival(model, outputs)
    elif outputs.std is not None:
        _check_gamma(model)
    if outputs.level is not None and not outputs.ends:
        raise ValueError("--level needs --lower or --upper, the ends of intervals")
    _check_draws(model, outputs)


def _foreign(
    model: ModelOptions, outputs: Outputs
) -> Iterator[tuple[str, tuple[Method, ...]]]:
    """Flags that were given and mean nothing to the method, and whose they are."""
    for name, flag, methods in OWNERS:
        given = getattr(model, name)
        if given not in (None, False, ()) and model.method not in methods:
            yield flag, methods
    if model.dtype is Precision.FLOAT32 and model.method in RIVALS:
        yield "--dtype float32", (*BAYES, *PAPER)
    if model.engine is FitEngine.DASK and model.method in RIVALS:
        yield "--engine dask", (*BAYES, *PAPER)
    for name, flag in OWNERS_OF_OUTPUTS:
        if getattr(outputs, name) is not None and model.method not in BAYES:
            yield flag, BAYES


def _check_noise_of_bayes(model: ModelOptions, outputs: Outputs) -> None:
    """Raise if error bars are asked of a model without noise."""
    for name, flag in (("std", "--std"), ("lower", "--lower"), ("upper", "--upper")):
        if getattr(outputs, name) is not None and model.noise == 0.0:
            raise ValueError(
                f"{flag} needs a model of the noise, and --noise 0 has none; give it a "
                "positive number, or leave it out"
            )


def _check_rival(model: ModelOptions, outputs: Outputs) -> None:
    """Raise if a rival is asked for error bars, or set what has a flag of its own."""
    if outputs.std is not None:
        raise ValueError(
            f"--std needs a model of the noise, and {model.method} has none; use "
            "--method bayes"
        )
    flags = ("center", "scale", "max_iter", "tol", "engine", "checkpoint", "validation")
    names = [name for name, _ in model.settings]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--set {name}=... is given twice; give it once")
        if name in flags:
            raise ValueError(f"--set {name}=...: give --{name.replace('_', '-')}")
        if name in ("progress", "callback", "random_state"):
            raise ValueError(f"--set {name}=...: cannot be set here; see --help")


def _check_gamma(model: ModelOptions) -> None:
    """Raise if standard deviations are asked of a model without noise."""
    single = model.method is Method.NCARL
    if model.gamma == "none" or (single and model.gamma is None):
        raise ValueError(
            "--std needs a model of the noise; give --gamma a positive number"
            + ("" if single else ", or leave it out")
        )


def _check_draws(model: ModelOptions, outputs: Outputs) -> None:
    """Raise if draws are asked for by halves, or cannot be had."""
    if (outputs.draws is None) != (outputs.drawn is None):
        raise ValueError(
            "--draws and --draws-out go together: how many completed tables to draw, "
            "and the .npz file for them"
        )
    if outputs.drawn is None:
        return
    if not outputs.drawn.name.lower().endswith(".npz"):
        raise ValueError(
            f"--draws-out must end in .npz, whatever IN is, got {str(outputs.drawn)!r}"
        )
    if model.sides is Sides.ROWS:
        raise ValueError(
            "--draws needs a kernel of the columns; give --sides columns or both"
        )

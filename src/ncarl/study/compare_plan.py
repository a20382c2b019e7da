"""What a comparison is to do, checked."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ncarl.engines import NAMES
from ncarl.methods import available_methods
from ncarl.study.compare_advice import MEAN

#: Methods that are compared unless told otherwise.
DEFAULT = ("bayes", "ncarl-cv", "soft-impute", "nuclear", "bias")
PATTERNS = ("alike", "random")
SCALES = (None, "columns")


@dataclass(frozen=True)
class Plan:
    """What to compare, and how; the parameters are those of `compare`.

    Examples
    --------
    >>> Plan("all", hide=0.2).methods[:2]
    ('bayes', 'ncarl-cv')
    """

    methods: Any = DEFAULT
    hide: float = 0.1
    repeats: int = 3
    pattern: str = "alike"
    random_state: int = 0
    engine: str = "auto"
    budget: float = 120.0
    scale: Any = None
    jobs: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", chosen(self.methods))
        object.__setattr__(self, "hide", _between("hide", self.hide, 1.0))
        object.__setattr__(self, "budget", _between("budget", self.budget))
        for name, low in (("repeats", 1), ("random_state", 0), ("jobs", 1)):
            object.__setattr__(self, name, _whole(name, getattr(self, name), low))
        _one_of("pattern", self.pattern, PATTERNS)
        _one_of("engine", self.engine, NAMES)
        if isinstance(self.scale, Mapping):
            object.__setattr__(self, "scale", MappingProxyType(dict(self.scale)))
            for method, scale in self.scale.items():
                chosen([method])
                _one_of("scale", scale, SCALES)
        else:
            _one_of("scale", self.scale, SCALES)

    def scale_of(self, method: str) -> str | None:
        """The scaling that a method gets."""
        if isinstance(self.scale, Mapping):
            found: str | None = self.scale.get(method)
            return found
        given: str | None = self.scale
        return given

    @property
    def by_column(self) -> bool:
        """Whether errors are counted in spreads of the columns."""
        if isinstance(self.scale, Mapping):
            return "columns" in self.scale.values()
        return bool(self.scale == "columns")

    def record(self) -> dict[str, Any]:
        """The plan as JSON can hold it."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        scales = {method: self.scale_of(method) for method in self.methods}
        return {**content, "methods": list(self.methods), "scale": scales}


def chosen(methods: str | Iterable[str]) -> tuple[str, ...]:
    """Names of methods, each once; the yardstick, which is always there, left out.

    Examples
    --------
    >>> chosen(["Bias", "mean", "bias", "nuclear"])
    ('bias', 'nuclear')
    """
    known = available_methods()
    if isinstance(methods, str):
        names = known if methods.strip().lower() == "all" else methods.split(",")
    else:
        names = list(methods)
    found: dict[str, None] = {}
    for given in names:
        if not isinstance(given, str):
            raise TypeError(f"methods must be names, got {given!r}")
        name = given.strip().lower()
        if name not in (*known, MEAN):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            listed = ", ".join(known)
            raise ValueError(
                f"methods must be 'all' or some of {listed}, got {given!r}{hint}"
            )
        if name != MEAN:
            found[name] = None
    if not found:
        raise ValueError(
            f"methods must name at least one besides the yardstick {MEAN!r}, got "
            f"{methods!r}"
        )
    return tuple(found)


def _between(name: str, value: Any, high: float = float("inf")) -> float:
    """``value`` as a float above 0 and below ``high``."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0.0 < value < high:
        wanted = "a finite number above 0" if high > 1.0 else "between 0 and 1"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return float(value)


def _whole(name: str, value: Any, low: int) -> int:
    """``value`` as a whole number of at least ``low``."""
    number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not number or value < low:
        raise ValueError(
            f"{name} must be a whole number of at least {low}, got {value!r}"
        )
    return int(value)


def _one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    """Raise if ``value`` is none of the known ones."""
    if value not in known:
        listed = ", ".join(repr(one) for one in known)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")

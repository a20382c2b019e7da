"""What verdicts rest on, and the words they are given in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ncarl.study.entries import Entry
from ncarl.study.theory import Facts

HOLDS, CHANGED, FAILS = "holds", "holds with changes", "does not hold"
UNDECIDED = "not decided"
#: The two forms of NCARL: as the authors' code has it, and ours.
AS_PRINTED, OURS = "ncarl-printed", "ncarl"


@dataclass(frozen=True)
class Evidence:
    """What the verdicts rest on.

    Attributes
    ----------
    entries : mapping of str to sequence of Entry
        By table or figure.
    energy : mapping of str to float
        Share of the squared singular values in a tenth of them, by photograph.
    ranks : mapping of str to mapping
        Mean rank by gamma, by photograph.
    curves : mapping of (str, str) to sequence of float
        Objective by step, by set and form of NCARL.
    facts : Facts or None
        What the check of the proof found.
    partial : frozenset of str
        Tables and figures of which only some rows were to be run.
    """

    entries: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    curves: Mapping[tuple[str, str], Sequence[float | None]] = field(
        default_factory=dict
    )
    facts: Facts | None = None
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Count:
    """In how many columns a claim holds.

    Attributes
    ----------
    held, known, planned : int
        Columns where it does, where that is known, and all.
    """

    held: int
    known: int
    planned: int

    @property
    def whole(self) -> bool | None:
        """Whether it holds everywhere; None while that is open."""
        if self.held < self.known:
            return False
        return True if 0 < self.known == self.planned else None

    def __str__(self) -> str:
        rest = self.planned - self.known
        return f"{self.held} of {self.planned} columns" + (
            f" ({rest} undecided)" if rest else ""
        )


def state_of(counts: Mapping[tuple[str, str], Count]) -> str:
    """The verdict that counts by form of NCARL and protocol amount to."""
    whole = {key: count.whole for key, count in counts.items()}
    printed = [answer for (form, _), answer in whole.items() if form == AS_PRINTED]
    if printed and all(printed):
        return HOLDS
    if any(whole.values()):
        return CHANGED
    failed = [answer is False for answer in whole.values()]
    return FAILS if failed and all(failed) else UNDECIDED


def name_of(form: str) -> str:
    """How a form of NCARL is called in a sentence."""
    return "as printed" if form == AS_PRINTED else "our form"

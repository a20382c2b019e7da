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
    curves : mapping of str to sequence of float
        Objective by step, by name of the fit.
    facts : Facts or None
        What the check of the proof found.
    """

    entries: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    facts: Facts | None = None


def name_of(form: str) -> str:
    """How a form of NCARL is called in a sentence."""
    return "as printed" if form == AS_PRINTED else "our form"

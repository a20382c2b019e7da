"""What a table shows: one entry for every method, setting and protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: How parameters are chosen: on the hidden entries, as the authors' code does, or on
#: observed entries that are held out.
PAPER, HONEST = "paper", "honest"
PROTOCOLS = (PAPER, HONEST)
#: Where there is nothing to choose.
GIVEN = "given"
#: How each is labelled wherever it is shown.
PROTOCOL_LABELS = {
    PAPER: "parameters picked on the test error (the paper's protocol)",
    HONEST: "parameters picked on held-out observed entries; picking is timed",
    GIVEN: "parameters given, none picked",
}


@dataclass(frozen=True)
class Entry:
    """A method in a setting under a protocol, over all seeds that finished.

    Attributes
    ----------
    study : str
        Table or figure: "table1", "fig4".
    protocol : {"paper", "honest"}
        How parameters were chosen.
    method, label : str
        The contender's name in the study, and how tables call it.
    setting, group : str
        A column of the table ("500x300, 0.8"), and the columns it belongs to
        ("500x300").
    missing : float
        Share that is hidden.
    status : str
        "done", "over budget", "failed", "no data", "not run".
    error, error_sd : float or None
        Mean and standard deviation over the seeds of the relative error.
    seconds, seconds_sd : float or None
        The same of the time; with the honest protocol picking is counted in.
    picking : float
        Seconds of picking.
    seeds : int
        How many seeds finished.
    printed, printed_seconds : float or None
        What the paper prints.
    printed_bound : str
        What it prints instead of seconds, such as "> 3000".
    params : mapping
        What was chosen, and what was given.
    scores : mapping of str to float
        Means of further measures.
    steps : float or None
        Mean number of steps.
    converged : bool or None
        Whether all of them settled.
    old : bool
        Whether an older version of the code gave it.
    machine : str
        Where the fits ran whose seconds are shown.
    further : bool
        Whether the column is not one of the paper's.
    message : str
        What went wrong, or what else there is to say.
    """

    study: str
    protocol: str
    method: str
    label: str
    setting: str
    group: str
    missing: float
    status: str
    error: float | None = None
    error_sd: float | None = None
    seconds: float | None = None
    seconds_sd: float | None = None
    picking: float = 0.0
    seeds: int = 0
    printed: float | None = None
    printed_seconds: float | None = None
    printed_bound: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    steps: float | None = None
    converged: bool | None = None
    old: bool = False
    machine: str = ""
    further: bool = False
    message: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus what the paper prints."""
        if self.error is None or self.printed is None:
            return None
        return self.error - self.printed


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds here, and by what figures.

    Attributes
    ----------
    claim : str
        What the paper claims, in our words.
    where : str
        Table or figure it rests on.
    state : str
        "holds", "holds with changes", "does not hold" or "not decided".
    evidence : str
        The figures that decide, in a sentence or two.
    """

    claim: str
    where: str
    state: str
    evidence: str

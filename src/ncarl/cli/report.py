"""Everything that ``ncarl doctor`` found, fit to be shown to strangers."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TypeVar

from ncarl.cli.checkup import Host, Package, host, packages, versions
from ncarl.cli.devices import EngineUse, Gpu, engines, gpu_facts
from ncarl.cli.selftest import Trial, self_test

T = TypeVar("T")

#: The folders of an absolute path; a slash inside a word begins none.
FOLDERS = re.compile(r"(?<![\w.~/\\])(?:[A-Za-z]:|~)?[/\\](?:[^\s/\\:'\"()]+[/\\])+")


@dataclasses.dataclass(frozen=True)
class Report:
    """What there is, and how the self-test went.

    Attributes
    ----------
    ok : bool
        Whether no self-test failed.
    """

    ok: bool
    versions: dict[str, str]
    packages: tuple[Package, ...]
    host: Host
    gpu: Gpu
    engines: tuple[EngineUse, ...]
    self_test: tuple[Trial, ...]


def examine(*, full: bool = False) -> Report:
    """Find out everything; no text in it names a folder of the user."""
    machine = host()
    graphics = gpu_facts()
    available = machine.memory_available or machine.memory_total
    uses = engines(available)
    trials = self_test(full=full)
    report = Report(
        ok=all(trial.passed for trial in trials),
        versions=versions(),
        packages=packages(),
        host=machine,
        gpu=graphics,
        engines=uses,
        self_test=trials,
    )
    return public(report)


def public(value: T) -> T:
    """``value`` with file names in place of paths, in every text that it holds.

    Messages of libraries name the files they come from, and those the user.

    Examples
    --------
    >>> public("cannot open '/home/ada/env/lib/libtorch.so' (1/2)")
    "cannot open 'libtorch.so' (1/2)"
    """
    if isinstance(value, str):
        try:
            home = str(Path.home())
        except RuntimeError:  # a user without one
            home = ""
        text = value.replace(home, "~") if len(home) > 1 else value
        return FOLDERS.sub("", text)  # type: ignore[return-value]
    if isinstance(value, dict):
        return {key: public(part) for key, part in value.items()}  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(public(part) for part in value)  # type: ignore[return-value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        parts = {name: public(getattr(value, name)) for name in names}
        return dataclasses.replace(value, **parts)
    return value


def as_text(report: Report) -> str:
    """The report as a JSON object."""
    return json.dumps(dataclasses.asdict(report), indent=2)

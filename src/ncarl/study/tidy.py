"""Entries and verdicts as files: a table for other programs, and all of it as JSON."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ncarl.exceptions import BrokenFileError
from ncarl.storage import replacing
from ncarl.study.entries import Entry, Verdict
from ncarl.study.jsonable import jsonable

#: What the files are, so that a foreign one is told apart.
KIND, VERSION = "ncarl study", 1
#: Columns of the table: an entry, and how far it is from the printed figure.
COLUMNS = (*(field.name for field in fields(Entry)), "difference")
#: Columns that hold more than one value, as JSON text.
NESTED = ("params", "scores")
#: Numbers that an entry must have; one that is not finite has no other way back.
NEEDED = ("missing", "picking")


def write_csv(path: str | os.PathLike[str], entries: Iterable[Entry]) -> Path:
    """Write one line for each entry; numbers have all their digits.

    Parameters
    ----------
    path : path
        Where the file belongs; it is whole or as it was.
    entries : iterable of Entry
        What to write. ``params`` and ``scores`` become JSON text; what is not known
        stays empty.

    Examples
    --------
    >>> import tempfile
    >>> entry = Entry("table1", "paper", "ncarl", "NCARL", "20x10, 0.5", "20x10",
    ...               0.5, "done", error=0.25, printed=0.125)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = write_csv(Path(folder) / "table1.csv", [entry]).read_text("utf-8")
    >>> text.splitlines()[0][:31], text.splitlines()[1][-6:]
    ('study,protocol,method,label,set', ',0.125')
    """
    target = Path(path)
    with (
        replacing(target) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as stream,
    ):
        # Lines end as the standard says: then a lone CR or LF in a text is quoted.
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for entry in entries:
            record = entry_record(entry)
            nested = {name: _json(record[name]) for name in NESTED}
            writer.writerow({**record, **nested})
    return target


def write_json(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    verdicts: Iterable[Verdict],
    about: Mapping[str, str],
) -> Path:
    """Write entries, verdicts and where they come from, to be read by `read_json`.

    Parameters
    ----------
    path : path
        Where the file belongs; it is whole or as it was.
    entries, verdicts : iterables of Entry and Verdict
        What to write; numbers that are not finite become null.
    about : mapping of str to str
        Machine, versions, date.
    """
    target = Path(path)
    content = {
        "kind": KIND,
        "version": VERSION,
        "about": jsonable(about),
        "verdicts": [jsonable(_fields_of(verdict)) for verdict in verdicts],
        "entries": [entry_record(entry) for entry in entries],
    }
    with replacing(target) as temporary:
        temporary.write_text(_json(content, indent=1) + "\n", encoding="utf-8")
    return target


def read_json(
    path: str | os.PathLike[str],
) -> tuple[list[Entry], list[Verdict], dict[str, str]]:
    """Entries, verdicts and their origin, from a file that `write_json` wrote.

    Raises
    ------
    BrokenFileError
        If the file is foreign, damaged or of a later version.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["kind"] != KIND:
            raise ValueError(f"it holds {content['kind']!r}")
        if content["version"] > VERSION:
            raise ValueError(f"a later ncarl wrote it (format {content['version']})")
        entries = [_entry(record) for record in content["entries"]]
        verdicts = [Verdict(**record) for record in content["verdicts"]]
        return entries, verdicts, dict(content["about"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BrokenFileError(
            f"path {str(path)!r} is no study that this ncarl can read: {error}. Run "
            "the study again to write it anew."
        ) from error


def entry_record(entry: Entry) -> dict[str, Any]:
    """The fields of an entry and its difference, as JSON can hold them.

    Examples
    --------
    >>> entry = Entry("fig4", "honest", "mean", "mean", "0.4", "ML-1M", 0.4, "done",
    ...               error=float("nan"))
    >>> record = entry_record(entry)
    >>> record["error"], record["difference"], record["params"]
    (None, None, {})
    """
    content = {**_fields_of(entry), "difference": entry.difference}
    return {name: jsonable(item) for name, item in content.items()}


def _entry(record: Mapping[str, Any]) -> Entry:
    """The entry that a record describes."""
    content = {name: item for name, item in record.items() if name != "difference"}
    scores = content["scores"].items()
    # A score that was no number is not known any more.
    content["scores"] = {name: item for name, item in scores if item is not None}
    for name in NEEDED:
        content[name] = math.nan if content[name] is None else content[name]
    return Entry(**content)


def _fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name; mappings stay as they are."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _json(value: Any, indent: int | None = None) -> str:
    """JSON text that every reader takes."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)

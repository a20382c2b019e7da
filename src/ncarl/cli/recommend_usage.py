"""What ``ncarl recommend`` was asked for, checked before the work begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ncarl.cli.files import format_of
from ncarl.cli.outputs import check_targets
from ncarl.cli.recommend_out import check_out
from ncarl.cli.reporting import check_report

#: Part of the ratings that intervals hold unless told otherwise.
USUAL_LEVEL = 0.8


@dataclass(frozen=True)
class Asked:
    """For whom, how many, and how they are ranked; see ``ncarl recommend --help``."""

    users: tuple[str, ...]
    new_user: Path | None
    everybody: bool
    like: str | None
    n: int
    careful: float
    popularity: float
    min_ratings: int
    seen: bool
    why: bool
    given_level: float | None

    @property
    def level(self) -> float:
        """Part of the ratings that intervals are to hold."""
        return USUAL_LEVEL if self.given_level is None else self.given_level

    @property
    def for_somebody(self) -> bool:
        """Whether lists for users are wanted."""
        return bool(self.users) or self.new_user is not None or self.everybody


@dataclass(frozen=True)
class Job:
    """Where ratings come from and results go."""

    source: Path | None
    columns: Sequence[str] | None
    titles: Path | None
    delimiter: str | None
    duplicates: str
    model: Path | None
    saved: Path | None
    out: Path | None
    report: Path | None
    overwrite: bool
    engine: str
    quiet: bool


def check_usage(job: Job, asked: Asked) -> None:
    """Raise if options do not go together, or files cannot be written."""
    if (job.source is None) == (job.model is None):
        raise ValueError(
            "give RATINGS, a file of ratings, or --model, a recommender that "
            "--save-model wrote" + ("" if job.source is None else "; not both")
        )
    _check_owners(job, asked)
    if asked.for_somebody and asked.like is not None and job.out is not None:
        raise ValueError("--out holds one kind of list; ask for --like on its own")
    if asked.everybody and (asked.users or asked.new_user is not None):
        flag = "--user" if asked.users else "--new-user"
        raise ValueError(f"--all-users and {flag} do not go together; ask for one")
    if asked.everybody and job.out is None and job.report is None:
        raise ValueError("--all-users makes many lists; say where to with --out")
    nothing = not asked.for_somebody and asked.like is None
    if nothing and (job.saved is None or job.out is not None):
        raise ValueError(
            "say for whom: --user ID, --new-user PATH or --all-users; --like ITEM "
            "shows similar items, --save-model PATH keeps the model for later"
        )
    if asked.why and not (asked.users or asked.new_user):
        raise ValueError("--why explains lists of --user and --new-user")
    source = job.source or job.model
    assert source is not None
    check_out(job.out)
    files = {"--out": job.out, "--save-model": job.saved}
    targets = {flag: path for flag, path in files.items() if path is not None}
    check_targets(source, targets, job.overwrite)
    inputs = {"--titles": job.titles, "--new-user": asked.new_user}
    for flag, path in targets.items():
        for name, given in inputs.items():
            if given is not None and _is_same(path, given):
                raise ValueError(
                    f"{flag} {str(path)!r} is the file of {name}; name another file"
                )
    check_report(job.report, source)
    delimited(job, asked)


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one file that is there."""
    return path.exists() and other.exists() and path.samefile(other)


def delimited(job: Job, asked: Asked) -> Path | None:
    """The file that ``--delimiter`` is about: RATINGS, or the only one of text."""
    if job.delimiter is None:
        return None
    files = (job.source, job.titles, asked.new_user)
    texts = [p for p in files if p is not None and format_of(p) in ("CSV", "TSV")]
    if texts and (texts[0] is job.source or len(texts) == 1):
        return texts[0]
    raise ValueError(
        "--delimiter is for RATINGS in a text file, or else for the only text file; "
        f"got {len(texts)} others, so leave it out: what separates cells is found out"
    )


def _check_owners(job: Job, asked: Asked) -> None:
    """Raise if an option was given that means nothing here."""
    of_ratings = {
        "--columns": job.columns is not None,
        "--duplicates": job.duplicates != "error" and asked.new_user is None,
        "--engine": job.engine != "auto",
    }
    for flag, given in of_ratings.items():
        if given and job.model is not None:
            raise ValueError(f"{flag} is for RATINGS, and --model needs none")
    of_lists = {
        "--careful": asked.careful > 0.0,
        "--popularity": asked.popularity > 0.0,
        "--seen": asked.seen,
        "--level": asked.given_level is not None,
    }
    for flag, given in of_lists.items():
        if given and not asked.for_somebody:
            raise ValueError(
                f"{flag} is for lists; say for whom: --user ID, --new-user PATH or "
                "--all-users"
            )

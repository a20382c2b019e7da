"""The work of ``ncarl recommend``: read, fit or load, ask, write."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from ncarl.cli.completion import on_terminal
from ncarl.cli.files import format_of, shown
from ncarl.cli.recommend_files import read_own, read_ratings, read_titles
from ncarl.cli.recommend_out import write_rows
from ncarl.cli.recommend_usage import Asked, Job, check_usage, delimited
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.progress import hundred_steps
from ncarl.ratings import Explanation, Recommended, Recommender, SimilarItem
from ncarl.ratings.recommender import RESERVED

#: What a person who is not in the ratings is called.
YOU = "you"


@dataclass(frozen=True)
class List:
    """Recommendations for one user, how to call the user, and why."""

    user: Any
    name: str
    rated: int
    rows: Sequence[Recommended]
    reasons: Sequence[Explanation] = ()


@dataclass(frozen=True)
class Done:
    """What a run found.

    Attributes
    ----------
    recommender : Recommender
        The model.
    titles : dict
        Titles of items by their ids as text.
    lists : list of List
        Recommendations.
    similar : list of SimilarItem
        Items like the one asked about, whose id is ``like``.
    seconds : float
        Time of the fit; 0 for a model that was there.
    level : float or None
        Part of the ratings that intervals hold; None if there are no intervals.
    """

    job: Job
    asked: Asked
    recommender: Recommender
    titles: dict[str, str]
    lists: list[List] = field(default_factory=list)
    like: Any = None
    similar: Sequence[SimilarItem] = ()
    seconds: float = 0.0
    level: float | None = None

    def title(self, item: Any) -> str:
        """What an item is called."""
        return self.titles.get(str(item), str(item))


def run(job: Job, asked: Asked) -> Done:
    """Carry out the command; what it has to say is in the result."""
    check_usage(job, asked)
    recommender, seconds = fitted(job)
    if job.saved is not None:
        # Before somebody new is added, who is not to be in the file.
        recommender.save(job.saved.resolve())
    # Answers are rows here, whatever library the ratings came in.
    recommender.library_ = "plain"
    titles = _titles(recommender, job, asked)
    level = _level(recommender, asked)
    users = _users(recommender, job, asked)
    bar = _watched(job) and asked.everybody
    with hundred_steps(bar, len(users), "lists") as reached:
        lists = list[List]()
        for user in users:
            lists.append(_listed(recommender, user, asked, level))
            reached(len(lists))
    if asked.everybody and level is not None:
        lists = _with_intervals(recommender, lists, level)
    similar: Sequence[SimilarItem] = ()
    item = None
    if asked.like is not None:
        item = known_item(recommender, asked.like, titles)
        similar = recommender.similar_items(
            item, asked.n, min_ratings=asked.min_ratings
        )
    done = Done(job, asked, recommender, titles, lists, item, similar, seconds, level)
    if job.out is not None:
        write_rows(job.out.resolve(), *table(done))
    return done


def _watched(job: Job) -> bool:
    """Whether long work shows a bar."""
    return on_terminal() and not job.quiet


def _titles(recommender: Recommender, job: Job, asked: Asked) -> dict[str, str]:
    """Titles of items, if there is a file of them."""
    if job.titles is None:
        return {}
    mark = job.delimiter if delimited(job, asked) is job.titles else None
    return read_titles(job.titles, recommender.item, recommender.items_, mark)


def _level(recommender: Recommender, asked: Asked) -> float | None:
    """Part of the ratings that intervals hold; None if the model has no intervals."""
    # A level that was asked for is left to fail, and to say why.
    if asked.given_level is None and not recommender._knows_noise():
        return None
    return asked.level


def fitted(job: Job) -> tuple[Recommender, float]:
    """The recommender, and the seconds that its fit took."""
    if job.model is not None:
        return Recommender.load(job.model), 0.0
    assert job.source is not None
    mark = None if format_of(job.source) == "Parquet" else job.delimiter
    ratings = read_ratings(job.source, job.columns, mark)
    model = BayesianNCARL(engine=job.engine, progress=_watched(job))
    user, item, rating = ratings.names
    item = "item" if item in RESERVED else item
    recommender = Recommender(
        model, user=user, item=item, rating=rating, duplicates=job.duplicates
    )
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recommender.fit((ratings.users, ratings.items, ratings.values))
    for heard in caught:
        typer.echo(f"warning: {' '.join(str(heard.message).split())}", err=True)
    return recommender, time.perf_counter() - start


def _users(recommender: Recommender, job: Job, asked: Asked) -> list[Any]:
    """Everybody that lists are for; somebody new is added first."""
    if asked.everybody:
        return recommender.users
    wanted = [known_user(recommender, text) for text in asked.users]
    if asked.new_user is not None:
        mark = job.delimiter if delimited(job, asked) is asked.new_user else None
        if job.duplicates != "error":
            recommender.duplicates = job.duplicates
        wanted.append(_added(recommender, asked.new_user, mark))
    return wanted


def _added(recommender: Recommender, path: Path, delimiter: str | None) -> Any:
    """The id of a user whose ratings are in a file."""
    own = read_own(path, delimiter)
    ids = recommender.items_
    found = [(ids.same_words(item), star) for item, star in own]
    known = [pair for pair in found if pair[0] is not None]
    strange = [item for item, _ in own if ids.same_words(item) is None]
    if strange:
        typer.echo(
            f"warning: {len(strange)} of {len(own)} ratings of {path.name} are left "
            f"out: item {strange[0]!r} has no rating by others",
            err=True,
        )
    free = recommender.people_.ids.kind == "str" and YOU not in recommender.people_
    return recommender.add_user(known, YOU if free else None)


def known_user(recommender: Recommender, text: str) -> Any:
    """The user that a text names."""
    for user in recommender.people_.added:
        if str(user) == text:
            return user
    found = recommender.people_.ids.same_words(text)
    if found is None:
        raise ValueError(f"--user: {recommender.people_.ids.stranger(text)}")
    return found


def known_item(recommender: Recommender, text: str, titles: dict[str, str]) -> Any:
    """The item that a text names, by its id or else by its title."""
    ids = recommender.items_
    found = ids.same_words(text)
    if found is None:
        named = [item for item, title in titles.items() if title == text]
        found = next((x for x in map(ids.same_words, named) if x is not None), None)
    if found is None:
        raise ValueError(f"--like: {ids.stranger(text)}")
    return found


def _listed(
    recommender: Recommender, user: Any, asked: Asked, level: float | None
) -> List:
    """Recommendations for one user."""
    # Intervals of everybody are worked out together: that is much less work.
    level = None if asked.everybody else level
    rows = recommender.recommend(
        user, asked.n, not asked.seen, careful=asked.careful,
        popularity=asked.popularity, min_ratings=asked.min_ratings, level=level,
    )  # fmt: skip
    rated = recommender.people_.look_up(user)[0].n_observed
    reasons = [recommender.explain(user, row.item) for row in rows] if asked.why else []
    new = asked.new_user is not None and user not in recommender.people_.ids.places
    return List(user, YOU if new else str(user), rated, rows, reasons)


def _with_intervals(
    recommender: Recommender, lists: list[List], level: float
) -> list[List]:
    """Lists with the ends of intervals, which are worked out together."""
    pairs = [(found.user, row.item) for found in lists for row in found.rows]
    if not pairs:
        return lists
    users, items = ([pair[k] for pair in pairs] for k in (0, 1))
    low, high = recommender.predict_interval(users, items, level)
    ends = iter(zip(low.tolist(), high.tolist(), strict=True))
    return [
        replace(found, rows=[Recommended(*row[:3], *next(ends)) for row in found.rows])
        for found in lists
    ]


def table(done: Done) -> tuple[list[str], list[list[Any]]]:
    """What ``--out`` gets: names of columns, and rows."""
    user, item = done.recommender.user, done.recommender.item
    taken = {"1", "2", "3", "rank", "title", *RESERVED}
    if user == item or not {user, item}.isdisjoint(taken):
        user, item = "user", "item"  # a file without a header, or of strange names
    named = ["title"] if done.titles else []
    if done.like is not None:
        heads = [item, *named, "similarity", "n_ratings"]
        return heads, [
            [row.item, *_title(done, row.item), row.similarity, row.n_ratings]
            for row in done.similar
        ]
    ends = [] if done.level is None else ["low", "high"]
    heads = [user, "rank", item, *named, "predicted", *ends, "n_ratings"]
    rows = []
    for found in done.lists:
        for rank, row in enumerate(found.rows, 1):
            cells = [getattr(row, name) for name in ("predicted", *ends, "n_ratings")]
            rows.append([found.user, rank, row.item, *_title(done, row.item), *cells])
    return heads, rows


def _title(done: Done, item: Any) -> list[str]:
    """The title of an item, if there are titles."""
    return [shown(done.title(item))] if done.titles else []

"""Entries of a source, gone through by an engine as often as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.engines import Engine
from ncarl.observed import Observed
from ncarl.sources import RowSource
from ncarl.streams import as_it_is
from ncarl.surveys import Ready, Survey


def surveyed(chunk: Observed, *, named: bool, kind: str = "auto") -> Survey:
    """The survey of a chunk, wherever it is; ``kind`` of rows makes no difference."""
    return Survey.of(chunk, named=named)


def looked_at(
    chunk: Observed,
    *,
    look: Callable[..., Any],
    changes: tuple[Callable[[Observed], Observed], ...],
    shared: dict[str, Any],
    kind: str = "auto",
) -> Any:
    """What a function makes of a chunk after the changes; no row is solved here."""
    for change in changes:
        chunk = change(chunk)
    return look(chunk, **shared)


@dataclass(frozen=True)
class Steady:
    """A source that is held to what it gave in the first pass.

    Attributes
    ----------
    source : RowSource
        The source.
    n_rows, n_observed : int
        Rows and entries that it gave.
    """

    source: RowSource
    n_rows: int
    n_observed: int

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows; an error in the end if they were others."""
        rows = entries = 0
        for chunk in self.source:
            rows, entries = rows + chunk.shape[0], entries + chunk.n_observed
            yield chunk
        if (rows, entries) != (self.n_rows, self.n_observed):
            raise ValueError(
                "X must give the same rows in every pass; it gave "
                f"{self.n_rows} rows with {self.n_observed} observed entries first, "
                f"and now {rows} with {entries}"
            )

    def __getattr__(self, name: str) -> Any:
        """What else the source has to say."""
        if name.startswith("__") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.source.n_columns

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns."""
        return self.source.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return self.source.dtype

    def parts(self) -> Sequence[Callable[[], Observed]] | None:
        """Loaders of the chunks."""
        return self.source.parts()


@dataclass(frozen=True)
class Passing:
    """Entries of a source, read again in every pass.

    Attributes
    ----------
    engine : Engine
        Who goes through them.
    source : RowSource
        Where they come from.
    chunks : list
        The chunks as the engine streams them, alone in the list; empty once they have
        been let go, till they are asked for again.
    survey : Survey
        What is known of them before any change.
    changes : tuple of callable
        What is done to a chunk before it is looked at.
    """

    engine: Engine
    source: RowSource
    chunks: list[Any]
    survey: Survey
    changes: tuple[Callable[[Observed], Observed], ...] = ()

    @classmethod
    def of(cls, source: RowSource, engine: Engine, *, named: bool) -> Passing:
        """The entries of a source, surveyed in a first pass."""
        chunks = engine.stream(source, as_it_is)
        survey = engine.total(surveyed, chunks, named=named)
        steady = Steady(source, survey.n_rows, survey.n_observed)
        if getattr(chunks, "source", None) is source:  # read again in every pass
            chunks = engine.stream(steady, as_it_is)
        return cls(engine, steady, [chunks], survey)

    def fingerprint(self) -> str:
        """A name for shape, pattern and values, if the survey was to find it."""
        assert self.survey.content is not None
        return self.survey.content.name(self.source.n_columns)

    def total(self, function: Callable[..., Any], **shared: Any) -> Any:
        """The sum of what the function makes of the chunks."""
        if not self.chunks:
            self.chunks.append(self.engine.stream(self.source, as_it_is))
        return self.engine.total(
            looked_at, self.chunks[0], look=function, changes=self.changes,
            shared=shared,
        )  # fmt: skip

    def changed(self, change: Callable[[Observed], Observed]) -> Passing:
        """The same entries, changed whenever they are looked at."""
        return replace(self, changes=(*self.changes, change))

    def reduced(self, change: Callable[[Observed], Observed]) -> Passing:
        """Fewer entries, surveyed anew."""
        fewer = self.changed(change)
        return replace(fewer, survey=fewer.total(Survey.of))

    def let_go(self) -> None:
        """Workers need not hold the chunks as they are beside the blocks made of them.

        What was changed of the same source lets go of them too.
        """
        self.chunks.clear()

    def placed(self, engine: Engine, ready: Ready) -> Any:
        """Chunks of the source, made ready when they are worked on."""
        return engine.stream(self.source, Changed(self.changes, ready))


@dataclass(frozen=True)
class Changed:
    """Makes a chunk ready after some changes."""

    changes: tuple[Callable[[Observed], Observed], ...]
    ready: Ready

    def __call__(self, chunk: Observed) -> Any:
        """A block."""
        for change in self.changes:
            chunk = change(chunk)
        return self.ready(chunk)

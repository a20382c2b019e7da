"""Datasets of observed entries, in memory or streamed, and their summary statistics.

A pass sums the results of a function over the entries: over all at once if they are in
memory, or over the chunks of a source, wherever an engine reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from ncarl.blocks import as_one_block
from ncarl.core.rows import use_precision_form
from ncarl.core.types import Array, cached_property
from ncarl.engines.base import Engine, LazyBlocks, transform_chunk
from ncarl.io import RowSource
from ncarl.io.base import watch_rows
from ncarl.observations import Fingerprint, Observations

#: Of entries to the same or fewer entries, with the same or other values.
Transform = Callable[[Observations], Observations]


@dataclass(frozen=True)
class PassSums:
    """Results of a pass: some are added up, of others the maximum is taken."""

    sums: tuple[Any, ...]
    maxima: tuple[Any, ...] = ()

    def __iadd__(self, other: PassSums) -> PassSums:
        added = zip(self.sums, other.sums, strict=True)
        largest = zip(self.maxima, other.maxima, strict=True)
        return PassSums(
            tuple(one + another for one, another in added),
            tuple(np.maximum(one, another) for one, another in largest),
        )


class Dataset(Protocol):
    """Observed entries over which any number of passes can be made."""

    @property
    def summary(self) -> DataSummary:
        """Summary statistics of the entries."""

    def fingerprint(self) -> str:
        """Hash of shape, pattern and values."""

    def total(self, function: Callable[..., Any], **shared: Any) -> Any:
        """Sum of ``function(entries, **shared)`` over all entries."""

    def map_values(self, transform: Transform) -> Dataset:
        """The same entries with other values; the summary is not updated."""

    def filter_entries(self, transform: Transform) -> Dataset:
        """Fewer entries, with a summary of their own."""

    def release(self) -> None:
        """Free memory held for further passes, which remain possible."""

    def place_blocks(self, engine: Engine, transform: Transform) -> Any:
        """Blocks of transformed rows, placed where an engine works on them."""


@dataclass(frozen=True)
class DataSummary:
    """Summary statistics of all entries, from one pass."""

    n_rows: int  # numbers of rows and of observed entries
    n_observed: int
    column_counts: Array  # (n,): observed entries of each column
    #: (n + 1,): number of rows with 0, 1, ..., n observed entries.
    row_count_histogram: Array
    magnitude: float  # A power of two near the largest absolute value
    sum_squares: float  # sum of the squared values, each divided by ``magnitude``
    empty_row_parts: tuple[Array, ...]  # indices of rows without entries, in parts
    fingerprint: Fingerprint | None = None  # hash of the entries, if it was computed

    @classmethod
    def from_observations(
        cls, observed: Observations, *, with_fingerprint: bool = False
    ) -> DataSummary:
        """Summarize entries in memory; the fingerprint takes extra time."""
        m, n = observed.shape
        size, squares = _scaled_squares(observed.values)
        empty = np.flatnonzero(observed.row_counts == 0)
        hashed = Fingerprint.from_observations(observed) if with_fingerprint else None
        return cls(
            n_rows=m,
            n_observed=observed.n_observed,
            column_counts=observed.column_counts,
            row_count_histogram=np.bincount(observed.row_counts, minlength=n + 1),
            magnitude=size,
            sum_squares=squares,
            empty_row_parts=(empty,) if len(empty) else (),
            fingerprint=hashed,
        )

    def __iadd__(self, other: DataSummary) -> DataSummary:
        size, fingerprint = max(self.magnitude, other.magnitude), None
        if self.fingerprint is not None and other.fingerprint is not None:
            fingerprint = self.fingerprint + other.fingerprint
        return DataSummary(
            self.n_rows + other.n_rows,
            self.n_observed + other.n_observed,
            self.column_counts + other.column_counts,
            self.row_count_histogram + other.row_count_histogram,
            size,
            self.sum_squares * (self.magnitude / size) ** 2
            + other.sum_squares * (other.magnitude / size) ** 2,
            self.empty_row_parts
            + tuple(rows + self.n_rows for rows in other.empty_row_parts),
            fingerprint,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix."""
        return self.n_rows, len(self.column_counts)

    @property
    def n_observed_rows(self) -> int:
        """Number of rows with at least one observed entry."""
        return int(self.n_rows - self.row_count_histogram[0])

    @property
    def empty_rows(self) -> Array:
        """Indices of rows without entries."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.empty_row_parts])

    @property
    def unit(self) -> float:
        """Power of two nearest to the root mean square of the values; 1 if they are 0.

        Dividing by a power of two loses no bit, so results scale exactly with the
        input.
        """
        return _unit_from_squares(self.magnitude, self.sum_squares, self.n_observed)

    def needs_precision(self, n: int) -> bool:
        """Whether the precision form is cheaper for some row of ``n`` columns."""
        sizes = np.flatnonzero(self.row_count_histogram[: n + 1])
        return bool(use_precision_form(sizes[sizes > 0], n).any())


def rms_unit(values: Array) -> float:
    """Power of two nearest to the root mean square of the values; 1 if they are 0."""
    return _unit_from_squares(*_scaled_squares(values), len(values))


def _unit_from_squares(magnitude: float, sum_squares: float, count: int) -> float:
    if sum_squares == 0.0:
        return 1.0
    exponent = np.log2(magnitude) + 0.5 * np.log2(sum_squares / count)
    return float(np.ldexp(1.0, int(np.clip(np.round(exponent), -1000, 1000))))


def _scaled_squares(values: Array) -> tuple[float, float]:
    """Power of two near the largest magnitude, and the sum of squares in this unit."""
    unit = power_of_two_unit(values)
    scaled = values / unit
    return unit, float(scaled @ scaled)


def power_of_two_unit(values: Array) -> float:
    """Largest power of two up to the largest magnitude, from 2^-1000 on; 1 for 0."""
    largest = float(np.fmax.reduce(np.abs(values), axis=None, initial=0.0))
    if largest == 0.0:
        return 1.0
    return float(np.ldexp(1.0, max(int(np.frexp(largest)[1]) - 1, -1000)))


@dataclass(frozen=True)
class InMemoryDataset:
    """Entries in memory."""

    observed: Observations
    known_summary: DataSummary | None = None

    @cached_property
    def summary(self) -> DataSummary:
        """Summary statistics of the entries."""
        return self.known_summary or DataSummary.from_observations(self.observed)

    def fingerprint(self) -> str:
        """Hash of shape, pattern and values."""
        return self.observed.fingerprint()

    def total(self, function: Callable[..., Any], **shared: Any) -> Any:
        """Result of a function for all entries at once."""
        return function(self.observed, **shared)

    def map_values(self, transform: Transform) -> InMemoryDataset:
        """The same entries with other values."""
        return InMemoryDataset(transform(self.observed), self.summary)

    def filter_entries(self, transform: Transform) -> InMemoryDataset:
        """Fewer entries, with a summary of their own."""
        return InMemoryDataset(transform(self.observed))

    def release(self) -> None:
        """Do nothing: entries stay in memory."""

    def place_blocks(self, engine: Engine, transform: Transform) -> Any:
        """Blocks of about equal work."""
        return engine.place(transform(self.observed))


@dataclass(frozen=True)
class StreamedDataset:
    """Entries of a source that are read again in every pass."""

    engine: Engine  # makes the passes
    source: RowSource  # source of the entries
    #: The chunks as the engine streams them, as the only element; empty after
    #: `release`, until the next pass. Shared by all datasets of the same source.
    chunks: list[Any]
    #: Summary of the entries; that of the source unless entries were filtered.
    summary: DataSummary
    #: Applied to every chunk in this order.
    transforms: tuple[Transform, ...] = ()

    @classmethod
    def from_source(
        cls, source: RowSource, engine: Engine, *, with_fingerprint: bool
    ) -> StreamedDataset:
        """Make a dataset of a source, with a first pass for the summary."""
        chunks = engine.place(LazyBlocks(source))
        summary = engine.total(
            summarize_chunk, chunks, with_fingerprint=with_fingerprint
        )
        watch = partial(_check_counts, summary.n_rows, summary.n_observed)
        checked = watch_rows(source, watch, summary.n_rows)
        if getattr(chunks, "source", None) is source:  # read again in every pass
            chunks = engine.place(LazyBlocks(checked))
        return cls(engine, checked, [chunks], summary)

    def fingerprint(self) -> str:
        """Hash of shape, pattern and values, if the summary has it."""
        assert self.summary.fingerprint is not None
        return self.summary.fingerprint.hexdigest(self.source.n_columns)

    def total(self, function: Callable[..., Any], **shared: Any) -> Any:
        """Sum of the results of a function over the chunks."""
        if not self.chunks:
            self.chunks.append(self.engine.place(LazyBlocks(self.source)))
        return self.engine.total(
            transform_and_apply,
            self.chunks[0],
            apply=function,
            transforms=self.transforms,
            shared=shared,
        )

    def map_values(self, transform: Transform) -> StreamedDataset:
        """The same entries, transformed in every pass."""
        return replace(self, transforms=(*self.transforms, transform))

    def filter_entries(self, transform: Transform) -> StreamedDataset:
        """Fewer entries, with a summary from another pass."""
        fewer = self.map_values(transform)
        return replace(fewer, summary=fewer.total(DataSummary.from_observations))

    def release(self) -> None:
        """Drop the chunks, so that workers hold only the blocks made of them.

        This holds for all datasets of the same source.
        """
        self.chunks.clear()

    def place_blocks(self, engine: Engine, transform: Transform) -> Any:
        """Chunks of the source, each one block, transformed when they are used."""
        transforms = (*self.transforms, transform, as_one_block)
        return engine.place(LazyBlocks(self.source, transforms))


def summarize_chunk(
    chunk: Observations, *, with_fingerprint: bool, backend: str = "auto"
) -> DataSummary:
    """Summary of a chunk; ``backend``, which engines pass, is ignored."""
    return DataSummary.from_observations(chunk, with_fingerprint=with_fingerprint)


def transform_and_apply(
    chunk: Observations,
    *,
    apply: Callable[..., Any],
    transforms: tuple[Transform, ...],
    shared: dict[str, Any],
    backend: str = "auto",
) -> Any:
    """Result of a function for a transformed chunk; ``backend`` is ignored."""
    return apply(transform_chunk(chunk, transforms), **shared)


def _check_counts(
    n_rows: int, n_observed: int, chunks: Iterable[Observations]
) -> Iterator[Observations]:
    """The chunks; raises at the end unless there were as many as in the first pass."""
    rows = entries = 0
    for chunk in chunks:
        rows, entries = rows + chunk.shape[0], entries + chunk.n_observed
        yield chunk
    if (rows, entries) != (n_rows, n_observed):
        raise ValueError(
            f"X must give the same rows in every pass; it gave {n_rows} rows with "
            f"{n_observed} observed entries first, and now {rows} with {entries}"
        )

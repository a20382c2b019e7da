"""Blocks of rows on a torch device, and the batches of systems that solve them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ncarl.core.batches import Batch, plan_batches
from ncarl.core.types import Array, Block

#: No budget is shrunk below this: what does not fit then will never fit.
LEAST_BYTES = 2**20


@dataclass
class Budget:
    """Bytes that one piece of work may take on the device at a time."""

    bytes: int

    def shrink(self) -> bool:
        """Halve the budget; False where there is nothing left to halve."""
        if self.bytes // 2 < LEAST_BYTES:
            return False
        self.bytes //= 2
        return True


@dataclass(frozen=True)
class Systems:
    """Padded systems of equations of some groups of rows, one a group.

    Attributes
    ----------
    size, width : int
        Size of the systems, and their right-hand sides, padding included.
    padding : int
        Most rows that a system was padded with.
    missing : bool
        Whether they are solved for the missing entries of their rows.
    widest : int
        Most observed entries in a row.
    n_columns : int
        Columns of the matrix.
    starts, counts, sizes, first_rows : tensors of int64, shape (groups,)
        First entry, number of rows, observed entries a row, first row of each group.
    columns : tensor of int32, shape (groups, size)
        What the systems solve for; padding gets columns from n on, each once.
    """

    size: int
    width: int
    padding: int
    missing: bool
    widest: int
    n_columns: int
    starts: Array
    counts: Array
    sizes: Array
    first_rows: Array
    columns: Array

    def __getitem__(self, groups: Any) -> Systems:
        """Some of the systems."""
        names = ("starts", "counts", "sizes", "first_rows", "columns")
        chosen = {name: getattr(self, name)[groups] for name in names}
        return replace(self, **chosen)

    def chunks(self, budget: Budget, bytes_each: int) -> Iterator[Systems]:
        """The systems in chunks that stay within the budget."""
        room = max(1, budget.bytes // max(1, bytes_each))
        for first in range(0, len(self.starts), room):
            yield self[first : first + room]

    def entries(self, block: PlacedBlock, length: int | None = None) -> Array:
        """Entries of each row, shape (groups, width, length); padding gets the last."""
        j = torch.arange(length or self.size, device=self.starts.device)
        k = torch.arange(self.width, device=self.starts.device)[:, None]
        sizes, counts = self.sizes[:, None, None], self.counts[:, None, None]
        place = self.starts[:, None, None] + k * sizes + j
        return torch.where((j < sizes) & (k < counts), place, len(block.values))

    def row_places(self, block: PlacedBlock) -> Array:
        """Rows of each group, shape (groups, width); padding gets the last."""
        k = torch.arange(self.width, device=self.starts.device)
        place = self.first_rows[:, None] + k
        return torch.where(k < self.counts[:, None], place, block.n_rows)


def _with_end(array: Array, end: float, device: Any) -> Array:
    """An array of NumPy or torch on the device, with one number more."""
    here = torch.as_tensor(array)
    there = torch.empty(len(here) + 1, dtype=here.dtype, device=device)
    there[:-1].copy_(here)
    there[-1] = end
    return there


@dataclass(frozen=True)
class PlacedBlock(Block):
    """A block whose entries are on a torch device; its pointers stay on the host.

    Attributes
    ----------
    padded_indices, padded_values : tensors of shape (entries + 1,)
        The entries, and one past the end: column n, value 0.
    budget : Budget
        What one piece of work may take.
    recorded : bool
        Whether work that is done on it again and again is recorded.
    plans : dict
        What was planned for it, to be planned once.
    """

    padded_indices: Array
    padded_values: Array
    budget: Budget
    recorded: bool = False
    plans: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, block: Block, device: Any, budget: Budget, recorded: bool = False
    ) -> PlacedBlock:
        """A block, copied to the device."""
        indices = _with_end(block.indices, block.n_columns, device)
        values = _with_end(block.values, 0, device)
        return cls(
            indptr=block.indptr,
            indices=indices[:-1],
            values=values[:-1],
            groups=block.groups,
            rows=block.rows,
            n_columns=block.n_columns,
            padded_indices=indices,
            padded_values=values,
            budget=budget,
            recorded=recorded,
        )

    @cached_property
    def row_counts(self) -> Array:
        """Observed entries of each row, on the device."""
        counts = np.asarray(self.indptr[1:] - self.indptr[:-1], dtype=np.int64)
        return torch.as_tensor(counts).to(self.values.device)

    def part(self, first: int, last: int) -> PlacedBlock:
        """Groups ``first`` to ``last - 1`` as a block of their own."""
        plain = super().part(first, last)
        return PlacedBlock.of(plain, self.values.device, self.budget)

    def pieces(self) -> list[PlacedBlock]:
        """The block in parts whose completed rows take a quarter of the budget."""
        row_bytes = max(1, self.n_columns) * self.values.element_size()
        room = max(1, self.budget.bytes // (4 * row_bytes))
        if self.n_rows <= room:
            return [self]
        if ("pieces", room) not in self.plans:
            cuts, n_groups = [0], len(self.groups) - 1
            while cuts[-1] < n_groups:
                most = self.groups[cuts[-1]] + room
                last = int(np.searchsorted(self.groups, most, "right")) - 1
                cuts.append(min(max(last, cuts[-1] + 1), n_groups))
            parts = [self.part(*pair) for pair in itertools.pairwise(cuts)]
            self.plans["pieces", room] = parts
        found: list[PlacedBlock] = self.plans["pieces", room]
        return found

    def prepare(self, missing_side: bool) -> None:
        """Make all plans, which takes the host and copies from it."""
        self.batches(missing_side)
        _ = self.row_counts

    def batches(self, missing_side: bool) -> list[Systems]:
        """Padded systems of all rows that observed anything."""
        if missing_side not in self.plans:
            plan = plan_batches(self, missing_side=missing_side)
            self.plans[missing_side] = [self._systems(batch) for batch in plan]
        found: list[Systems] = self.plans[missing_side]
        return found

    def _systems(self, batch: Batch) -> Systems:
        """The batch with what it needs on the device."""
        tops = self.groups[:-1][batch.groups]
        sizes = (self.indptr[tops + 1] - self.indptr[tops]).astype(np.int64)
        solved = self.n_columns - sizes if batch.missing else sizes
        device = self.values.device
        numbers = (
            self.indptr[tops],
            self.groups[batch.groups + 1] - tops,
            sizes,
            tops,
        )
        starts, counts, lengths, first_rows = (
            torch.as_tensor(np.asarray(a, dtype=np.int64)).to(device) for a in numbers
        )
        systems = Systems(
            size=batch.size,
            width=batch.width,
            padding=batch.size - int(solved.min()),
            missing=batch.missing,
            widest=int(sizes.max()),
            n_columns=self.n_columns,
            starts=starts,
            counts=counts,
            sizes=lengths,
            first_rows=first_rows,
            columns=starts[:, None],
        )
        columns = self._missing_columns if batch.missing else self._observed_columns
        return replace(systems, columns=columns(systems))

    def _observed_columns(self, systems: Systems) -> Array:
        """Observed columns of each group, padded."""
        j = torch.arange(systems.size, device=self.values.device)
        sizes = systems.sizes[:, None]
        entries = torch.where(j < sizes, systems.starts[:, None] + j, len(self.values))
        beyond = (self.n_columns + j - sizes).int()
        return torch.where(j < sizes, self.padded_indices[entries], beyond)

    def _missing_columns(self, systems: Systems) -> Array:
        """Missing columns of each group, padded."""
        n, device = self.n_columns, self.values.device
        k = torch.arange(systems.size, device=device)
        found = []
        for part in systems.chunks(self.budget, 40 * (n + systems.size)):
            alike = replace(part, width=1)  # rows of a group have the same columns
            taken = self.padded_indices[alike.entries(self, part.widest)[:, 0]].long()
            # Observed columns go to the end, so that sorting leaves the others first.
            order = torch.arange(n + systems.size, device=device)
            order = order.repeat(len(taken), 1)
            order.scatter_(1, taken, 2 * (n + systems.size))
            first = order.sort(dim=1).values[:, : systems.size]
            unseen = n - part.sizes[:, None]
            found.append(torch.where(k < unseen, first, n + k - unseen).int())
        return torch.cat(found)

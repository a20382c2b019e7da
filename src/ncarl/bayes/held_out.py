"""Predictions of hidden entries after every step of a run."""

from __future__ import annotations

import numpy as np

from ncarl.bayes.near import nearest
from ncarl.bayes.side import Side
from ncarl.bayes.state import Assessed, State
from ncarl.blocks import cut
from ncarl.core.rows import row_module
from ncarl.core.types import Array, Block, Kernel
from ncarl.model import entry_terms
from ncarl.observed import Observed


class HeldOut:
    """Hidden entries of a side, made ready to be predicted again and again.

    Parameters
    ----------
    side : Side
        What is learned from.
    asked : Observed
        Rows in which entries are hidden, without those.
    hidden : Observed
        The hidden entries, in the same rows.
    """

    def __init__(self, side: Side, asked: Observed, hidden: Observed) -> None:
        self.side, self.hidden = side, hidden
        self.asked = asked.with_values(asked.values.astype(side.ways.dtype))
        engine = side.engine
        wanted, position = np.unique(hidden.rows, return_inverse=True)
        self.columns = hidden.indices.astype(np.int64)
        # Entries of a matrix are in the order of its rows.
        self.bounds = np.searchsorted(position, np.arange(len(wanted) + 1))
        rows = self.asked.take_rows(wanted)
        self.blocks = engine.place(cut(rows, engine.blocks_wanted(*rows.shape)))

    def errors(self, found: Assessed) -> Array:
        """What an assessed state predicts wrongly, entry by entry."""
        home, guess = self.side.engine.home, np.empty(len(self.columns))
        answers = self.side.engine.map(
            shifted_terms, self.blocks, kernel=found.kernel, offsets=found.state.mean,
            scales=found.scales, columns=self.columns, bounds=self.bounds,
        )  # fmt: skip
        for places, sums in answers:
            guess[places] = sums
        if found.scales is not None:
            guess /= home.fetch(found.scales)[self.columns]
        guess += home.fetch(found.state.mean)[self.columns]
        return self.hidden.values - guess

    def errors_and_deviations(self, state: State) -> tuple[Array, Array]:
        """The same with standard deviations; 0 in a model without noise."""
        i, hidden, engine = self.hidden.rows, self.hidden, self.side.engine
        model = self.side.model(state, fetched=False)
        std = "observed" if state.noisy else None
        guess, spread = model.predict(self.asked, i, self.columns, engine, std=std)
        return hidden.values - guess, np.zeros(len(i)) if spread is None else spread

    def near_terms(self, state: State, counts: tuple[int, ...]) -> dict[int, Array]:
        """What the nearest rows add at the entries, by the number of those rows."""
        if not counts:
            return {}
        model = self.side.model(state, fetched=False)
        found = nearest(model, self.asked, self.side.engine, max(counts))
        if found is None:
            return {}
        i = self.hidden.rows
        return {count: found.terms_at(i, self.columns, count) for count in counts}


def shifted_terms(
    block: Block, *, kernel: Kernel, offsets: Array, scales: Array | None,
    columns: Array, bounds: Array, kind: str = "auto",
) -> tuple[Array, Array]:  # fmt: skip
    """Places in ``columns`` that a block answers, and the sums ``y_i K_oj`` there."""
    block = row_module(kind).shifted(block, offsets, scales)
    places, sums, _ = entry_terms(
        block, kernel=kernel, columns=columns, bounds=bounds, std=None, kind=kind
    )
    return places, sums

"""Means of sensors and what the time of day adds to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array

#: Times of day next to each other are averaged over this part of a cycle.
SMOOTH = 1.0 / 48.0
#: Unless that is fewer steps than this.
LEAST_WIDTH = 2.0


@dataclass(frozen=True)
class Season:
    """What is taken off a log before the rest is looked at.

    Attributes
    ----------
    means, spreads : arrays of shape (sensors,)
        Mean of each sensor, and the spread of what is left: 0 where that is nothing.
    effects : array of shape (period, sensors)
        What each time of the cycle adds; one row of zeros without a cycle.
    """

    means: Array
    spreads: Array
    effects: Array

    def inward(self, values: Array, phase: int) -> Array:
        """What is left of a log, of unit spread."""
        usual = self.at(np.arange(len(values)), phase)
        inner: Array = (values - usual) / np.where(self.spreads > 0, self.spreads, 1.0)
        return inner

    def at(self, steps: Array, phase: int) -> Array:
        """Means and effects at some steps, shape (steps, sensors)."""
        return self.means + self.effects[(steps + phase) % len(self.effects)]


def fit_season(values: Array, period: int | None, phase: int) -> Season:
    """Means, effects of the time of day, and spreads of what is left.

    An effect is the mean over the days, smoothed over neighbouring times of day, and
    shrunk by as much as days differ.
    """
    there = ~np.isnan(values)
    counts = there.sum(axis=0)
    means = np.where(there, values, 0.0).sum(axis=0) / counts
    left = np.where(there, values - means, 0.0)
    effects = np.zeros((1, values.shape[1]))
    if period is not None:
        effects = _effects(left, there, period, phase)
        left -= there * effects[(np.arange(len(left)) + phase) % period]
    spreads = np.sqrt(np.square(left).sum(axis=0) / counts)
    return Season(means, spreads, effects)


def _effects(left: Array, there: Array, period: int, phase: int) -> Array:
    """Effects of the times of a cycle."""
    where = (np.arange(len(left)) + phase) % period
    sums, counts = (np.zeros((period, left.shape[1])) for _ in range(2))
    np.add.at(sums, where, left)
    np.add.at(counts, where, there.astype(np.float64))
    weights = _window(period)
    found = _around(sums, weights) / np.maximum(_around(counts, weights), 1e-9)
    within = np.where(there, left - found[where], 0.0)
    noise = np.square(within).sum(axis=0) / there.sum(axis=0)
    days = np.maximum(counts.mean(axis=0), 1e-9)
    between = np.maximum(np.square(found).mean(axis=0) - noise / days, 0.0)
    # Without any spread there is nothing to shrink.
    total = between + noise / days
    kept = np.divide(between, total, out=np.zeros_like(total), where=total > 0.0)
    effects: Array = found * kept
    return effects


def _window(period: int) -> Array:
    """Weights of neighbouring times of day."""
    width = period * SMOOTH
    # Half an hour is one step of few: there is nothing to smooth.
    reach = int(2 * width) if width >= LEAST_WIDTH else 0
    return np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) / max(width, 1.0)))


def _around(table: Array, weights: Array) -> Array:
    """Weighted sums over neighbouring rows; the last row is next to the first."""
    reach = len(weights) // 2
    shifts = range(-reach, reach + 1)
    parts = (w * np.roll(table, k, 0) for w, k in zip(weights, shifts, strict=True))
    total: Array = sum(parts, np.zeros_like(table))
    return total

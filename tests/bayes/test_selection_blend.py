"""Tests of side and neighbor weights fitted to held-out errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.bayes.model import NeighborCorrection
from ncarl.bayes.selection import (
    HeldOutErrors,
    column_weight,
    concatenate_errors,
    fit_blend,
    select_neighbor_correction,
)

BOTH = ["columns", "rows"]


def make(errors, deviations=None, near=None):
    return HeldOutErrors(errors, np.ones(len(errors)) * (deviations or 1.0), near or {})


def places(count):
    """Positions that share no row and no column."""
    return np.arange(count), np.arange(count)


class TestEntries:
    def test_reorder_from_transpose_restores_the_order(self, splits):
        for split in splits:
            there = split.transpose().hidden.values
            assert not np.array_equal(there, split.hidden.values)
            back = HeldOutErrors(there, 2.0 * there).reorder_from_transpose(split)
            assert_array_equal(back.errors, split.hidden.values)
            assert_array_equal(back.deviations, 2.0 * split.hidden.values)

    def test_concatenation_keeps_the_order_of_splits(self):
        parts = [
            HeldOutErrors(np.full(k, k), np.ones(k), {5: np.full(k, -k)})
            for k in (1, 2)
        ]
        whole = concatenate_errors(parts)
        assert whole.errors.tolist() == [1, 2, 2]
        assert whole.neighbor_errors[5].tolist() == [-1, -2, -2]
        assert len(whole.deviations) == 3


class TestSides:
    @pytest.mark.parametrize("bias", [0.0, 0.5, 5.0])
    def test_weight_matches_grid_search(self, rng, bias):
        shared = rng.standard_normal(500)
        one = shared + rng.standard_normal(500)
        other = shared + (1 + bias) * rng.standard_normal(500)
        grid = np.linspace(0, 1, 10_001)
        loss = [np.sum((w * one + (1 - w) * other) ** 2) for w in grid]
        found = column_weight({"columns": make(one), "rows": make(other)}, BOTH)
        assert found == pytest.approx(grid[np.argmin(loss)], abs=1e-4)

    def test_weight_is_between_0_and_1(self, rng):
        e = rng.standard_normal(50)
        for columns, rows, weight in ((1, 3, 1.0), (3, 1, 0.0), (1, 1, 1.0)):
            sides = {"columns": make(columns * e), "rows": make(rows * e)}
            assert column_weight(sides, BOTH) == weight
        assert column_weight({}, BOTH) == 0.5
        assert column_weight({}, ["columns"]) == 1.0
        assert column_weight({}, ["rows"]) == 0.0

    def test_blend_has_its_own_error_and_scores(self, splits, rng):
        count = sum(split.hidden.n_observed for split in splits)
        one, other = rng.standard_normal((2, count))
        sides = {"columns": make(one, 2.0), "rows": make(other, 1.0)}
        found = fit_blend(sides, splits, BOTH, may_drop_rows=True)
        w = found.weight
        blend, spread = w * one + (1 - w) * other, np.sqrt(4.0 * w + (1 - w))
        assert found.error == pytest.approx(np.sqrt(np.mean(blend**2)))
        columns = np.concatenate([split.hidden.indices for split in splits])
        assert_allclose(
            found.blended_scores.sorted_scores,
            np.sort(blend / (spread * found.blended_std_factors[columns])),
        )
        assert_allclose(
            found.scores.sorted_scores,
            np.sort(one / (2.0 * found.std_factors[columns])),
        )
        # One for each column, and close to what both deviations are off by.
        n = splits[0].hidden.shape[1]
        assert found.std_factors.shape == found.blended_std_factors.shape == (n,)
        assert found.std_factors.mean() == pytest.approx(0.5, rel=0.15)
        assert_allclose(found.std_factors, found.std_factors.mean(), rtol=0.25)
        off = np.sqrt(np.mean((blend / spread) ** 2))
        assert_allclose(found.blended_std_factors, off, rtol=0.2)

    def test_rows_with_negligible_weight_are_dropped_if_allowed(self, splits, rng):
        count = sum(split.hidden.n_observed for split in splits)
        one, other = rng.standard_normal((2, count))
        # Orthogonal errors; those of the rows are ten times as large.
        other -= one * (one @ other) / (one @ one)
        other *= 9.95 * np.linalg.norm(one) / np.linalg.norm(other)
        sides = {"columns": make(one), "rows": make(other)}
        kept = fit_blend(sides, splits, BOTH, may_drop_rows=False)
        assert kept.weight == pytest.approx(0.99, abs=1e-4)
        left_out = fit_blend(sides, splits, BOTH, may_drop_rows=True)
        assert left_out.weight == 1.0
        assert left_out.blended_scores is left_out.scores


class TestNearestRows:
    def test_number_and_weight_minimize_the_error(self, rng):
        errors = rng.standard_normal(3000)
        near = {
            5: 0.5 * errors + rng.standard_normal(3000),
            10: 0.8 * errors + 0.3 * rng.standard_normal(3000),
            20: rng.standard_normal(3000),
        }
        found = select_neighbor_correction(errors, near, places(3000))
        grid = np.linspace(0, 1, 1001)
        loss = [
            (np.sum((errors - w * term) ** 2), k, w)
            for k, term in near.items()
            for w in grid
        ]
        least, count, weight = min(loss)
        assert found.n_neighbors == count == 10
        assert found.weight == pytest.approx(weight, abs=1e-3)
        assert found.std_factor == pytest.approx(np.sqrt(least / (errors @ errors)))

    def test_insignificant_correction_is_dropped(self, rng):
        for _ in range(50):
            errors, term = rng.standard_normal((2, 60))
            assert select_neighbor_correction(errors, {5: term}, places(60)) is None
        # A significant gain that is too small.
        errors = rng.standard_normal(100_000)
        term = 0.05 * errors + rng.standard_normal(100_000)
        assert select_neighbor_correction(errors, {5: term}, places(100_000)) is None

    def test_correlated_errors_reduce_significance(self, rng):
        # Ten rows with one common error each: a term that explains one row may be
        # chance, although it explains thirty entries.
        rows, columns = np.repeat(np.arange(10), 30), np.tile(np.arange(30), 10)
        errors = np.where(np.arange(10) % 2, 1.0, -1.0)[rows]
        term = np.where(rows == 3, errors, 0.0)
        assert (
            select_neighbor_correction(errors, {5: term}, places(300)).std_factor < 0.95
        )
        assert select_neighbor_correction(errors, {5: term}, (rows, columns)) is None

    def test_no_correction_without_useful_terms(self, rng):
        errors = rng.standard_normal(100)
        assert select_neighbor_correction(errors, {}, places(100)) is None
        assert (
            select_neighbor_correction(errors, {5: np.zeros(100)}, places(100)) is None
        )
        # Terms with a negative weight are dropped.
        assert select_neighbor_correction(errors, {5: -errors}, places(100)) is None

    def test_correction_applies_to_the_blend_only(self, splits, rng):
        count = sum(split.hidden.n_observed for split in splits)
        one, other = rng.standard_normal((2, count))
        term = 0.5 * (one + other)
        sides = {"columns": make(one, near={5: term}), "rows": make(other)}
        found = fit_blend(sides, splits, BOTH, may_drop_rows=True)
        assert isinstance(found.neighbor_correction, NeighborCorrection)
        left = (
            found.weight * one
            + (1 - found.weight) * other
            - found.neighbor_correction.weight * term
        )
        assert found.error == pytest.approx(np.sqrt(np.mean(left**2)))
        assert found.neighbor_correction.std_factor < 0.5
        columns = np.concatenate([split.hidden.indices for split in splits])
        stds = found.neighbor_correction.std_factor * found.blended_std_factors[columns]
        assert_allclose(found.blended_scores.sorted_scores, np.sort(left / stds))
        # The scores of the columns, used for new rows, are unchanged.
        alone = np.sort(one / found.std_factors[columns])
        assert_allclose(found.scores.sorted_scores, alone)

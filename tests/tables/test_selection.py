"""Tests of the choice of mixtures on held-out cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ncarl.bayes.mixture import component_shrinkages
from ncarl.tables import TableImputer
from ncarl.tables.conditionals import Target
from ncarl.tables.encoding import NumberEncoder, fit_category_encoder
from ncarl.tables.frames import ColumnData
from ncarl.tables.selection import (
    COMPONENTS_GRID,
    EFFORTS,
    ENOUGH_HELD_OUT,
    MAX_OPTIMISM,
    MAX_ROWS,
    MAX_SPLITS,
    MAX_STEP_FLOPS,
    MIN_GAIN,
    MIN_ROWS_EACH,
    component_counts,
    make_splits,
    sample_rows,
    select_mixture,
)

DEFAULT = EFFORTS["default"]
#: The choices of a search need no exact fits.
FIT = TableImputer(max_iter=50)._fit_trial


def select(Z, effort=DEFAULT, *, pseudo_rows=None, n_components=None, fixed=False):
    """Choose a mixture of a table of numbers."""
    n = Z.shape[1]
    cells = [Target(j, np.array([j]), NumberEncoder(-9.0, 9.0)) for j in range(n)]
    targets = {j: Z[:, j] for j in range(n)}
    return select_mixture(
        cells, Z, targets, FIT, effort, pseudo_rows=pseudo_rows or float(n),
        n_components=n_components, fixed_pooled=fixed, seed=0,
    )  # fmt: skip


def draw_groups(rng, m=150, spread=4.0):
    """Rows around three centers, a tenth of the cells missing."""
    centers = spread * np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 1.0, 1.0]])
    Z = centers[rng.integers(0, 3, m)] + rng.standard_normal((m, 3))
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    return np.where(rng.random(Z.shape) < 0.1, np.nan, Z)


@pytest.fixture(scope="module")
def groups():
    return draw_groups(np.random.default_rng(2))


@pytest.fixture(scope="module")
def chosen(groups):
    return select(groups)


def replay(trials, n_factors):
    """The choice from the errors: gains count from `MIN_GAIN`, counts stop without."""
    trials = [dict(trial) for trial in trials]
    best = None
    for trial in trials[:n_factors]:
        if best is None or trial["error"] ** 2 < (1 - MIN_GAIN) * best["error"] ** 2:
            best = trial
    pseudo_rows, rest = best["pseudo_rows"], trials[n_factors:]
    while rest:
        pair, rest = rest[:2], rest[2:]
        assert pair[0]["n_components"] == pair[1]["n_components"]
        assert {trial["pseudo_rows"] for trial in pair} == {pseudo_rows}
        before = best
        for trial in pair:
            if trial["error"] ** 2 < (1 - MIN_GAIN) * best["error"] ** 2:
                best = trial
        if best is before:
            assert not rest
    return best


def test_chosen_mixture_has_the_least_error_of_the_trials(chosen, rng):
    plain = select(rng.standard_normal((150, 3)) @ rng.standard_normal((3, 3)))
    for choice in (chosen, plain):
        best = replay(choice.trials, len(DEFAULT.pseudo_row_factors))
        for name, value in best.items():
            assert getattr(choice, name) == value
        least = min(trial["error"] for trial in choice.trials)
        assert least**2 > (1.0 - 2.0 * MIN_GAIN) * choice.error**2
    factors = [trial["pseudo_rows"] for trial in chosen.trials[:3]]
    assert_array_equal(factors, 3.0 * np.array(DEFAULT.pseudo_row_factors))
    shrinkages = [trial["shrinkage_rows"] for trial in chosen.trials[3:5]]
    assert_array_equal(shrinkages, component_shrinkages(3))


def test_groups_have_several_components_and_one_normal_has_one(chosen, rng):
    assert chosen.n_components > 1
    single = min(t["error"] for t in chosen.trials if t["n_components"] == 1)
    assert chosen.error < 0.95 * single
    plain = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 4))
    plain += 0.3 * rng.standard_normal(plain.shape)
    assert select(plain).n_components == 1


def test_errors_are_those_of_conditional_means_at_held_out_cells(groups):
    effort = replace(DEFAULT, pseudo_row_factors=(1.0, 1.0), max_components=1)
    choice = select(groups, effort)
    Z = groups[sample_rows(groups, MAX_ROWS, 0)]
    cells = [Target(j, np.array([j]), NumberEncoder(-9.0, 9.0)) for j in range(3)]
    errors = []
    for split in make_splits(cells, Z, dict(enumerate(Z.T)), 0):
        normal = FIT(split.kept, 3.0)
        mean, K = normal.means[0], normal.covariances[0]
        for z, kept in zip(Z, split.kept, strict=True):
            o = ~np.isnan(kept)
            A = K[np.ix_(o, o)] + normal.noise * np.eye(o.sum())
            guess = mean + K[:, o] @ np.linalg.solve(A, (kept - mean)[o])
            errors.extend((guess - z)[~o & ~np.isnan(z)])
    assert choice.error == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert [trial["error"] for trial in choice.trials] == [choice.error] * 2


def test_larger_errors_of_held_out_cells_are_measured(rng):
    # With few rows and many columns cells that are left out were still fitted to.
    few = select(rng.standard_normal((25, 12)), pseudo_rows=0.5, n_components=4)
    many = select(rng.standard_normal((400, 2)), pseudo_rows=2.0, n_components=4)
    assert 1.2 < few.optimism <= MAX_OPTIMISM
    assert 1.0 <= many.optimism < 1.1


def test_given_numbers_are_the_only_ones_tried(groups):
    choice = select(groups, n_components=2)
    assert choice.n_components == 2
    assert {trial["n_components"] for trial in choice.trials} == {1, 2}
    tried = [t["error"] for t in choice.trials if t["n_components"] == 2]
    assert choice.error <= min(tried) * (1.0 + MIN_GAIN)
    single = select(groups, n_components=1)
    assert single.n_components == 1
    assert {trial["n_components"] for trial in single.trials} == {1}
    fixed = select(groups, pseudo_rows=7.0, n_components=2, fixed=True)
    assert {trial["pseudo_rows"] for trial in fixed.trials} == {7.0}
    assert fixed.pseudo_rows == 7.0


def test_nothing_is_tried_if_there_is_nothing_to_choose_or_hold_out(groups):
    fast = select(groups, EFFORTS["fast"], pseudo_rows=5.0)
    assert (fast.n_components, fast.pseudo_rows) == (1, 5.0)
    assert np.isnan(fast.error) and len(fast.trials) == 0
    tiny = select(np.array([[0.3, np.nan], [np.nan, 1.0]]), n_components=2)
    assert tiny.n_components == 2 and np.isnan(tiny.error)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((31, 3), []),
        ((32, 3), [4]),
        ((64, 3), [4, 8]),
        ((1000, 5), [4, 8, 16, 32]),
        ((10**6, 5), [4, 8, 16, 32]),
    ],
)
def test_components_need_rows(shape, expected):
    assert component_counts(shape, DEFAULT) == expected
    assert all(shape[0] >= MIN_ROWS_EACH * count for count in expected)
    assert component_counts(shape, EFFORTS["fast"]) == []
    few = replace(DEFAULT, max_components=8)
    assert component_counts(shape, few) == [k for k in expected if k <= 8]


def test_components_of_wide_tables_are_limited_by_their_work():
    for n in (50, 100, 150, 200, 400):
        flops = MAX_ROWS * (n**3 / 3.0 + 500.0)
        counts = component_counts((10**5, n), DEFAULT)
        assert counts == [k for k in COMPONENTS_GRID if k * flops <= MAX_STEP_FLOPS]
    assert component_counts((10**5, 400), DEFAULT) == []
    # Fewer rows are less work.
    assert component_counts((500, 100), DEFAULT) > component_counts(
        (10**5, 100), DEFAULT
    )


@pytest.fixture
def mixed(rng):
    """Cells, coordinates and targets: a number, and a category of two coordinates."""
    labels = np.array([*"aabbbc"] * 10, dtype=object)
    none = np.zeros(60, dtype=bool)
    encoder = fit_category_encoder(ColumnData("x", "category", labels, none, "any"))
    cells = [
        Target(0, np.array([0]), NumberEncoder(-9.0, 9.0)),
        Target(2, np.array([1, 2]), encoder),
    ]
    places = np.searchsorted(encoder.labels, labels.astype(str))
    Z = np.column_stack([rng.standard_normal(60), encoder.codes[places]])
    targets = {0: Z[:, 0].copy(), 2: places.astype(float)}
    Z[5], targets[0][5], targets[2][5] = np.nan, np.nan, np.nan
    Z[7, 1:], targets[2][7] = np.nan, np.nan
    return cells, Z, targets


def test_coordinates_of_a_category_are_held_out_together(mixed):
    cells, Z, targets = mixed
    splits = make_splits(cells, Z, targets, 0)
    hidden = 0
    for split in splits:
        for cell in cells:
            held_out, b = split.held_out[cell.position], cell.coordinates
            assert not np.isnan(targets[cell.position][held_out]).any()
            assert np.isnan(split.kept[np.ix_(held_out, b)]).all()
            assert_array_equal(
                split.kept[np.ix_(~held_out, b)], Z[np.ix_(~held_out, b)]
            )
            hidden += held_out.sum()
    assert hidden / len(splits) == pytest.approx(0.1 * 117, abs=1.5)


def test_small_tables_are_split_several_times(mixed, rng):
    splits = make_splits(*mixed, 0)
    assert len(splits) == 2
    masks = [np.column_stack(list(split.held_out.values())) for split in splits]
    assert all((masks[0] != mask).any() for mask in masks[1:])
    again = make_splits(*mixed, 0)
    assert_array_equal(again[0].held_out[2], splits[0].held_out[2])
    assert (make_splits(*mixed, 1)[0].held_out[2] != splits[0].held_out[2]).any()
    cells, Z, targets = mixed
    few = {j: target[:20] for j, target in targets.items()}
    assert 2 <= len(make_splits(cells, Z[:20], few, 0)) <= MAX_SPLITS
    Z = rng.standard_normal((1500, 5))
    cells = [Target(j, np.array([j]), NumberEncoder(-9.0, 9.0)) for j in range(5)]
    (split,) = make_splits(cells, Z, dict(enumerate(Z.T)), 0)
    assert sum(mask.sum() for mask in split.held_out.values()) >= ENOUGH_HELD_OUT


def test_sampled_rows_depend_on_contents_only(rng):
    Z = rng.standard_normal((40, 3))
    Z[rng.random(Z.shape) < 0.3] = np.nan
    order = rng.permutation(40)
    some = sample_rows(Z, 25, 3)
    assert len(np.unique(some)) == 25
    assert_array_equal(Z[some], Z[order][sample_rows(Z[order], 25, 3)])
    assert len(sample_rows(Z, 100, 3)) == 40
    assert (sample_rows(Z, 25, 4) != some).any()

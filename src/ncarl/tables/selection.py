"""Choose the shrinkage and the number of components of a mixture on held-out cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ncarl.bayes.mixture import (
    GaussianMixture,
    component_shrinkages,
    fit_mixture,
    initial_mixture,
)
from ncarl.core.types import Array
from ncarl.engines.threads import Threads
from ncarl.holdout import random_splits
from ncarl.observations import Observations, canonical_order
from ncarl.tables.conditionals import RowConditionals, Target, condition_rows

#: Fits one normal distribution to rows, given the number of pseudo-rows.
PooledFit = Callable[[Array, float], GaussianMixture]

#: Share of the observed cells that is held out, and cells that are held out before no
#: further split is made: trials are expensive.
HELD_OUT_SHARE, ENOUGH_HELD_OUT, MAX_SPLITS = 0.1, 600, 3
#: Rows that are used at most; of more, a sample.
MAX_ROWS = 5_000
#: Rows whose cells are left out one by one, to compare their errors.
MAX_LEFT_OUT_ROWS = 2_000
#: Numbers of components that are tried; each needs `MIN_ROWS_EACH` rows.
COMPONENTS_GRID, MIN_ROWS_EACH = (4, 8, 16, 32), 8
#: Floating-point operations of an E-step of a mixture, at most.
MAX_STEP_FLOPS = 2e10
#: Minimum relative decrease of the squared error that counts as one.
MIN_GAIN = 2e-3
#: Steps of EM of a trial, and its tolerance.
MAX_ITER, TOL = 10, 2e-4
#: Bound of the ratio of the error of held-out cells to that of cells left out.
MAX_OPTIMISM = 1.5


@dataclass(frozen=True)
class Effort:
    """How much is tried and averaged."""

    pseudo_row_factors: tuple[float, ...]  # of one pseudo-row per coordinate
    max_components: int
    n_members: int  # mixtures from different starts, which are averaged
    n_fourier_features: int  # of the regression on similar rows
    n_trees: int  # in each of the cross-fitted ensembles
    untransformed_too: bool = False  # also without transforms of skewed columns

    def share(self, count: int) -> Effort:
        """The effort for one of ``count`` models that are averaged."""
        members, trees = -(-self.n_members // count), -(-self.n_trees // count)
        return replace(self, n_members=members, n_trees=trees)


EFFORTS = {
    "fast": Effort((1.0,), 1, 1, 150, 0),
    "default": Effort((1.0, 0.1, 10.0), 32, 2, 200, 8, True),
    "best": Effort((1.0, 0.1, 0.01, 10.0), 32, 8, 600, 60, True),
}


@dataclass(frozen=True)
class MixtureChoice:
    """What `select_mixture` chose, and the error on held-out cells."""

    pseudo_rows: float
    n_components: int
    shrinkage_rows: float  # of the components
    error: float  # root mean square, in standard deviations of the columns; or NaN
    optimism: float = 1.0  # ratio of the error to that of cells left out one by one
    trials: Sequence[Mapping[str, float]] = ()


def select_mixture(
    cells: list[Target], Z: Array, targets: dict[int, Array], pooled_fit: PooledFit,
    effort: Effort, *, pseudo_rows: float, n_components: int | None, fixed_pooled: bool,
    seed: int,
) -> MixtureChoice:  # fmt: skip
    """Choose the shrinkage and the number of components on held-out cells.

    ``targets`` are the standardized numbers, or the positions of the categories, by
    position of the column. A given ``n_components`` is the only one that is tried, and
    ``pseudo_rows`` if ``fixed_pooled``.
    """
    factors = (1.0,) if fixed_pooled else effort.pseudo_row_factors
    counts = [n_components] if n_components else component_counts(Z.shape, effort)
    counts = [count for count in counts if count > 1]
    rows = sample_rows(Z, MAX_ROWS, seed)
    some = {j: target[rows] for j, target in targets.items()}
    search = _Search(cells, make_splits(cells, Z[rows], some, seed))
    first = MixtureChoice(
        pseudo_rows, n_components or 1, component_shrinkages(Z.shape[1])[0], np.nan
    )
    if not search.splits or (len(factors) == 1 and not counts):
        return first
    best = first
    best_mixtures: list[GaussianMixture] = []
    for factor in factors:
        mixtures = [pooled_fit(s.kept, factor * pseudo_rows) for s in search.splits]
        choice = search.evaluate(mixtures, factor * pseudo_rows)
        if not best_mixtures or choice.error**2 < best.error**2 * (1.0 - MIN_GAIN):
            best, best_mixtures = choice, mixtures
    pooled = best_mixtures
    for count in counts:
        improved = False
        for shrinkage in component_shrinkages(Z.shape[1]):
            mixtures = [
                split.fit(one, count, shrinkage, cells, seed)
                for split, one in zip(search.splits, pooled, strict=True)
            ]
            choice = search.evaluate(mixtures, best.pseudo_rows)
            only = n_components is not None and best.n_components == 1
            if only or choice.error**2 < best.error**2 * (1.0 - MIN_GAIN):
                best, best_mixtures, improved = choice, mixtures, True
        if not improved:
            break
    optimism = search.optimism(best_mixtures, best.error)
    return replace(best, optimism=optimism, trials=search.trials)


def component_counts(shape: tuple[int, ...], effort: Effort) -> list[int]:
    """Numbers of components to try for a table."""
    m, n = shape
    flops = min(m, MAX_ROWS) * (n**3 / 3.0 + 500.0)
    most = min(effort.max_components, m / MIN_ROWS_EACH, MAX_STEP_FLOPS / flops)
    return [count for count in COMPONENTS_GRID if count <= most]


def sample_rows(Z: Array, most: int, seed: int) -> Array:
    """Rows in an order that depends on their contents alone, at most ``most``."""
    order = canonical_order(Observations.from_dense(Z))[0]
    return np.asarray(np.random.default_rng(seed).permutation(order)[:most])


@dataclass
class _Split:
    kept: Array  # coordinates without the held-out cells
    held_out: dict[int, Array]  # masks by position of the column
    targets: dict[int, Array]

    def fit(
        self, pooled: GaussianMixture, count: int, shrinkage: float,
        cells: list[Target], seed: int,
    ) -> GaussianMixture:  # fmt: skip
        """Fit a mixture to the kept cells."""
        completed = condition_rows(pooled, cells, self.kept).completed
        start = initial_mixture(completed, pooled, count, shrinkage, seed)
        observed, engine = Observations.from_dense(self.kept), Threads(n_jobs=1)
        fit = fit_mixture(observed, start, pooled, engine, max_iter=MAX_ITER, tol=TOL)
        return fit.mixture

    def errors(self, cells: list[Target], base: RowConditionals) -> Array:
        """Errors at held-out cells."""
        parts = [
            cell_errors(cell, base, self.targets, self.held_out[cell.position])
            for cell in cells
        ]
        return np.concatenate(parts)


def make_splits(
    cells: list[Target], Z: Array, targets: dict[int, Array], seed: int
) -> list[_Split]:
    """Random splits of the cells; several of a small table."""
    values = np.column_stack([targets[cell.position] for cell in cells])
    splits = []
    for _, hidden in random_splits(
        Observations.from_dense(values), HELD_OUT_SHARE, seed
    ):
        mask, kept = ~hidden.missing_mask(), Z.copy()
        held_out = {cell.position: mask[:, t] for t, cell in enumerate(cells)}
        for cell in cells:
            kept[np.ix_(held_out[cell.position], cell.coordinates)] = np.nan
        splits.append(_Split(kept, held_out, targets))
        count = len(splits)
        if count == MAX_SPLITS or count * hidden.n_observed >= ENOUGH_HELD_OUT:
            break
    return splits


def cell_errors(
    cell: Target, base: RowConditionals, targets: dict[int, Array], where: Array
) -> Array:
    """Errors of numbers; of categories the lengths of errors of probabilities."""
    j = cell.position
    target = targets[j][: len(where)][where]
    if cell.is_number:
        return np.asarray(base.numbers[j][0][where] - target)
    shares = base.probabilities[j][where]
    truth = np.eye(shares.shape[1])[target.astype(np.int64)]
    return np.sqrt(((shares - truth) ** 2).sum(axis=1))


@dataclass
class _Search:
    cells: list[Target]
    splits: list[_Split]
    trials: list[dict[str, float]] = field(default_factory=list)

    def evaluate(
        self, mixtures: list[GaussianMixture], pseudo_rows: float
    ) -> MixtureChoice:
        """The choice of mixtures, one for each split, and their error."""
        errors = [
            split.errors(self.cells, condition_rows(mixture, self.cells, split.kept))
            for split, mixture in zip(self.splits, mixtures, strict=True)
        ]
        error = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
        count, shrinkage = mixtures[0].n_components, mixtures[0].shrinkage_rows
        choice = MixtureChoice(pseudo_rows, count, shrinkage, error)
        names = ("pseudo_rows", "n_components", "shrinkage_rows", "error")
        self.trials.append({name: getattr(choice, name) for name in names})
        return choice

    def optimism(self, mixtures: list[GaussianMixture], error: float) -> float:
        """Ratio of the error of held-out cells to that of cells left out one by one."""
        parts = []
        for split, mixture in zip(self.splits, mixtures, strict=True):
            rows = split.kept[:MAX_LEFT_OUT_ROWS]
            left_out = condition_rows(
                mixture, self.cells, rows, leave_out=True, features=False
            )
            for cell in self.cells:
                seen = ~np.isnan(rows[:, cell.coordinates[0]])
                parts.append(cell_errors(cell, left_out, split.targets, seen))
        inside = float(np.sqrt(np.mean(np.concatenate(parts) ** 2)))
        return min(max(error / max(inside, 1e-300), 1.0), MAX_OPTIMISM)

"""Tests of imputed values against independent computations."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.tables import TableImputer


@pytest.fixture(scope="module")
def numbers():
    """Correlated columns in different units with a third of the cells missing."""
    rng = np.random.default_rng(3)
    values = rng.standard_normal((150, 2)) @ rng.standard_normal((2, 6))
    values += 0.3 * rng.standard_normal(values.shape)
    values = values * [1, 1e3, 1e-3, 5, 1, 1] + [0, 1e4, 1, 0, 0, -7]
    hidden = rng.random(values.shape) < 0.3
    hidden[hidden.all(axis=1), 0] = False  # no row is empty
    return values, hidden


def naive_row(imputer, row):
    """A row imputed by the direct formula, in column standard deviations."""
    units = [(c.encoder.shift, c.encoder.scale) for c in imputer.columns_]
    shift, scale = np.transpose(units)
    K, noise = imputer.model_.kernel_, imputer.model_.noise_
    extra = imputer.table_models_[0].members[0].noise  # for the sake of inverses
    assert 0.0 < extra < 1e-5
    A = K + np.diag(np.broadcast_to(noise, len(K)) ** 2 + extra)
    mean = imputer.model_.predict(np.full((1, len(K)), np.nan))[0]
    z = (row - shift) / scale
    o = ~np.isnan(z)
    guess = mean + K[:, o] @ np.linalg.solve(A[np.ix_(o, o)], z[o] - mean[o])
    # The mean of a column has a weight too, and is 0.
    stages = imputer.table_models_[0].numbers
    weights = np.array([stages[j].weights[1:].sum() for j in range(len(K))])
    return np.where(o, row, weights * guess * scale + shift)


def test_few_rows_are_imputed_by_weighted_conditional_means(numbers):
    # With fewer than 30 rows there are no predictors.
    values, hidden = numbers
    plain = TableImputer(effort="fast", transform_skewed=None, clip=False)
    plain.fit(np.where(hidden, np.nan, values)[:29])
    for stage in plain.table_models_[0].numbers.values():
        assert [predictor.model for predictor in stage.predictors] == [None]
    rows = values[:6] * 1.1
    for k, row in enumerate(rows):
        row[:k] = np.nan
    naive = [naive_row(plain, row) for row in rows]
    assert_allclose(plain.transform(rows), naive, rtol=1e-9)


@pytest.mark.parametrize(
    ("effort", "unit"),
    # Rounding changes splits of trees: their units are powers of two.
    [("fast", 1e-200), ("fast", 1e200), ("default", 2.0**-500), ("default", 2.0**500)],
)
def test_units_do_not_matter(numbers, effort, unit):
    values, hidden = numbers
    X = np.where(hidden, np.nan, values)[:60]
    quick = {"max_iter": 3, "tol": 0, "effort": effort}
    usual, found = (TableImputer(**quick).fit_transform(X * u) for u in (1.0, unit))
    assert_allclose(found, usual * unit, rtol=1e-6)


@pytest.fixture(scope="module")
def mixed():
    """Dependent numeric, boolean and categorical columns."""
    rng = np.random.default_rng(5)
    m = 240
    size = rng.standard_normal(m)
    truth = pd.DataFrame(
        {
            "a": size + 0.3 * rng.standard_normal(m),
            "b": np.exp(size + 0.3 * rng.standard_normal(m)),
            "yes": pd.array(size + 0.3 * rng.standard_normal(m) > 0, dtype="boolean"),
            "kind": pd.Categorical.from_codes(
                np.digitize(size + 0.3 * rng.standard_normal(m), [-0.5, 0.5]),
                ["low", "middle", "high"],
            ),
        }
    )
    hidden = rng.random(truth.shape) < 0.25
    hidden[hidden.all(axis=1), 0] = False  # no row is empty
    return truth, hidden, TableImputer().fit(truth.mask(hidden))


def test_categories_are_imputed_better_than_by_the_most_frequent(mixed):
    truth, hidden, imputer = mixed
    filled = imputer.transform(truth.mask(hidden))
    for j, name in ((2, "yes"), (3, "kind")):
        right = (filled[name] == truth[name]).to_numpy(dtype=bool)[hidden[:, j]]
        usual = truth[name].value_counts(normalize=True).max()
        assert right.mean() > usual + 0.15


def test_probabilities_sum_to_one_and_the_largest_is_imputed(mixed):
    truth, hidden, imputer = mixed
    X = truth.mask(hidden)
    chances, filled = imputer.predict_proba(X), imputer.transform(X)
    assert set(chances) == {"yes", "kind"}
    for name, part in chances.items():
        assert_allclose(part.sum(axis=1), 1.0)
        assert part.index.equals(X.index)
        best = part.to_numpy().argmax(axis=1)
        assert [part.columns[k] for k in best] == filled[name].tolist()
    known = ~hidden[:, 3]
    assert set(chances["kind"][known].to_numpy().ravel()) == {0.0, 1.0}
    row = truth.iloc[[0]].assign(kind=pd.Categorical(["other"]))
    assert not imputer.predict_proba(row)["kind"].to_numpy().any()
    sure = chances["kind"].max(axis=1)[hidden[:, 3]].mean()
    right = (filled["kind"] == truth["kind"])[hidden[:, 3]].mean()
    assert sure == pytest.approx(right, abs=0.12)


# With more effort optimism about the errors of the mixture is overestimated here.
@pytest.mark.parametrize(("effort", "wider"), [("fast", 0.0), ("default", 0.12)])
def test_intervals_have_their_nominal_coverage(effort, wider):
    rng = np.random.default_rng(8)
    values = rng.standard_normal((600, 3)) @ rng.standard_normal((3, 10))
    values += 0.5 * rng.standard_t(3, values.shape)  # heavy-tailed
    values[:, :4] = np.exp(values[:, :4] / 2)
    hidden = rng.random(values.shape) < 0.3
    X = np.where(hidden, np.nan, values)
    imputer = TableImputer(effort=effort, max_iter=30, tol=0).fit(X[:300])
    for level in (0.5, 0.9):
        low, high = imputer.predict_interval(X[300:], level)
        inside = (low <= values[300:]) & (values[300:] <= high)
        covered = inside[hidden[300:]].mean()
        assert level - 0.04 < covered < level + 0.04 + wider * 2.0 * (1.0 - level)


def test_each_column_has_intervals_of_its_own():
    rng = np.random.default_rng(9)
    values = rng.standard_normal((900, 1)) + 0.5 * rng.standard_normal((900, 5))
    values[:, 0] += 6.0 * rng.choice([-1, 0, 1], 900, p=[0.05, 0.9, 0.05])
    imputer = TableImputer(transform_skewed=None, max_iter=20, tol=0).fit(values[:400])
    for j in (0, 1):
        X = values[400:].copy()
        X[:, j] = np.nan
        low, high = imputer.predict_interval(X, 0.5)
        inside = (low[:, j] <= values[400:, j]) & (values[400:, j] <= high[:, j])
        assert inside.mean() == pytest.approx(0.5, abs=0.06)


def test_intervals_of_observed_cells_are_their_values(mixed):
    truth, hidden, imputer = mixed
    X = truth.mask(hidden)
    low, high = imputer.predict_interval(X)
    assert list(low.columns) == ["a", "b"]
    filled = imputer.transform(X)[["a", "b"]]
    known = X[["a", "b"]].notna()
    assert low[known].equals(X[["a", "b"]]) and high[known].equals(X[["a", "b"]])
    assert ((low <= filled) & (filled <= high)).all().all()
    wide = imputer.predict_interval(X, 0.99)
    assert (wide[1] - wide[0] >= high - low - 1e-12).all().all()


@pytest.mark.parametrize("clip", [True, False])
def test_clip_keeps_numbers_in_the_range_of_the_fit(numbers, clip):
    values, _ = numbers
    imputer = TableImputer(transform_skewed=None, clip=clip, max_iter=20, tol=0)
    imputer.fit(values)
    row = values.mean(axis=0) + 30 * values.std(axis=0)
    row[0] = np.nan
    filled = imputer.transform(row[None])[0, 0]
    within = values[:, 0].min() <= filled <= values[:, 0].max()
    assert within == clip


def test_constant_columns_are_imputed_by_their_constant():
    frame = pd.DataFrame(
        {
            "x": np.arange(10.0),
            "one": [7, 7, None, 7, 7] * 2,
            "same": ["a", None, "a", "a", "a"] * 2,
            "no": pd.array([False, None, False, False, False] * 2, dtype="boolean"),
        }
    )
    imputer = TableImputer().fit(frame)
    out = imputer.transform(frame)
    assert out["one"].eq(7).all()
    assert out["same"].eq("a").all()
    assert not out["no"].any()
    low, high = imputer.predict_interval(frame)
    assert (low["one"] == 7).all() and (high["one"] == 7).all()
    assert imputer.predict_proba(frame)["same"]["a"].eq(1).all()


def test_constant_table_is_imputed():
    X = np.array([[1.0, np.nan], [1.0, 2.0], [np.nan, 2.0]])
    imputer = TableImputer().fit(X)
    assert imputer.model_ is None
    assert_array_equal(imputer.transform(X), [[1.0, 2.0]] * 3)


def test_more_shrinkage_rows_shrink_to_the_means(numbers):
    values, hidden = numbers
    X = np.where(hidden, np.nan, values)
    quick = {"max_iter": 20, "tol": 0, "transform_skewed": None, "effort": "fast"}
    X = X[:29]  # there are no predictors
    means = np.broadcast_to(np.nanmean(X, axis=0), X.shape)
    hidden = hidden[: len(X)]
    filled = [
        TableImputer(**quick, shrinkage_rows=rows).fit_transform(X)
        for rows in (0.0, 1e3)
    ]
    none, many = (np.abs(table - means)[hidden] for table in filled)
    assert (many / none.mean()).mean() < 0.5


CELLS = st.just(np.nan) | st.floats(-1e300, 1e300) | st.integers(-2, 2)


@given(arrays(float, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=CELLS))
@settings(max_examples=15)
@pytest.mark.filterwarnings("ignore:no observed value")
def test_finite_tables_are_filled_with_finite_numbers(X):
    imputer = TableImputer(max_iter=2, tol=0).fit(X)
    out = imputer.transform(X)
    known = ~np.isnan(X)
    assert_array_equal(out[known], X[known])
    filled = np.outer(known.any(axis=1), known.any(axis=0))
    assert_array_equal(np.isfinite(out), filled)
    low, high = imputer.predict_interval(X)
    assert (low <= high)[filled[:, known.any(axis=0)]].all()

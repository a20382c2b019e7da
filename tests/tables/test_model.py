"""Tests of mixtures and trees for tables: values, draws, intervals, probabilities."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from ncarl.tables import TableImputer, pool

FAST = {"effort": "fast", "n_jobs": 1}
DEFAULT = {"n_jobs": 1}


def hide(rng, values, share):
    """A mask of cells to hide that leaves a value in every row."""
    hidden = rng.random(values.shape) < share
    keep = np.flatnonzero(hidden.all(axis=1))
    hidden[keep, rng.integers(0, values.shape[1], len(keep))] = False
    return hidden


def error(truth, filled, hidden):
    """Root mean square error of hidden cells, in standard deviations of columns."""
    scaled = (np.asarray(filled) - truth) / np.std(truth, axis=0)
    return float(np.sqrt(np.mean(scaled[hidden] ** 2)))


def draw_curved(rng, m):
    """A parabola, and groups that determine another column."""
    x, group = rng.standard_normal(m), rng.integers(0, 3, m)
    return np.column_stack(
        [
            x,
            x**2 + 0.1 * rng.standard_normal(m),
            np.array([-3.0, 0.0, 3.0])[group] + 0.3 * rng.standard_normal(m),
            np.array([2.0, -3.0, 2.0])[group] + 0.3 * rng.standard_normal(m),
        ]
    )


def draw_mixed(rng, m):
    """Numbers (one skewed, one bounded, one of counts) and categories."""
    size = rng.standard_normal(m)
    return pd.DataFrame(
        {
            "plain": 2.0 * size + 0.6 * rng.standard_normal(m) + 10.0,
            "skewed": np.exp(size + 0.4 * rng.standard_normal(m)),
            "bounded": 1.0 / (1.0 + np.exp(-2.0 * size - rng.standard_normal(m))),
            "count": rng.poisson(4.0 * np.exp(0.4 * size)),
            # Not in their order, as it is not known.
            "kind": pd.Categorical.from_codes(
                (np.digitize(size + 0.4 * rng.standard_normal(m), [-0.5, 0.6]) + 1) % 3,
                ["high", "low", "middle"],
            ),
        }
    )


NUMBERS = ["plain", "skewed", "bounded", "count"]


class Mixed:
    """A table of numbers and categories, rows that are not in the fit, and fits."""

    def __init__(self):
        rng = np.random.default_rng(6)
        truth = draw_mixed(rng, 560)
        hidden = hide(rng, truth, 0.25)
        # Counts with missing entries are of a nullable type.
        X = truth.astype({"count": "Int64"}).mask(hidden)
        self.X, self.new = X[:160], X[160:]
        self.truth, self.hidden = truth[160:], hidden[160:]
        self.fits = {}

    def fit(self, effort):
        if effort not in self.fits:
            self.fits[effort] = TableImputer(effort=effort, n_jobs=1).fit(self.X)
        return self.fits[effort]


@pytest.fixture(scope="module")
def mixed():
    return Mixed()


def test_curves_and_groups_are_imputed_better_than_by_one_normal(monkeypatch):
    rng = np.random.default_rng(0)
    truth = draw_curved(rng, 200)
    hidden = hide(rng, truth, 0.15)
    X = np.where(hidden, np.nan, truth)
    default = TableImputer(**DEFAULT).fit(X)
    # A mixture, a kernel and trees each know the curve, one normal does not.
    assert default.n_components_ > 1
    fast = TableImputer(**FAST, components=1).fit_transform(X)
    monkeypatch.setattr("ncarl.tables.model.MIN_TRAINING_ROWS", 10**6)
    normal = TableImputer(**FAST, components=1).fit_transform(X)
    hidden[:, [0, 2]] = False  # the others do not determine these
    errors = [
        error(truth, filled, hidden) for filled in (default.transform(X), fast, normal)
    ]
    assert errors[0] < 0.75 * errors[2]
    assert errors[1] < 0.9 * errors[2]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_new_rows_do_not_depend_on_other_rows(effort, mixed):
    imputer, new = mixed.fit(effort), mixed.new[:12]
    whole, chances = imputer.transform(new), imputer.predict_proba(new)["kind"]
    together = imputer.transform(pd.concat([mixed.X, new]))[-12:]
    close = {"rtol": 1e-5, "atol": 1e-6}  # kernels are of single precision
    pd.testing.assert_frame_equal(whole, together, **close)
    low, high = imputer.predict_interval(new)
    for i in range(12):
        row = new.iloc[[i]]
        pd.testing.assert_frame_equal(imputer.transform(row), whole.iloc[[i]], **close)
        alone = imputer.predict_proba(row)["kind"]
        assert_allclose(alone, chances.iloc[[i]], **close)
        ends = imputer.predict_interval(row)
        pd.testing.assert_frame_equal(ends[0], low.iloc[[i]], **close)
        pd.testing.assert_frame_equal(ends[1], high.iloc[[i]], **close)


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_rows_of_the_fit_are_imputed_like_new_ones(effort, mixed):
    # A fit keeps no rows: those with the same contents get the same values.
    imputer = mixed.fit(effort)
    renamed = mixed.X.set_axis(range(1000, 1160))
    pd.testing.assert_frame_equal(
        imputer.transform(renamed).set_axis(mixed.X.index), imputer.transform(mixed.X)
    )


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_order_of_rows_and_number_of_threads_make_no_difference(effort, mixed):
    X = mixed.X[:100]
    order = np.random.default_rng(1).permutation(len(X))
    usual = TableImputer(effort=effort, n_jobs=1).fit(X).transform(mixed.new)
    for rows, n_jobs in ((X.iloc[order], 1), (X, 2)):
        other = TableImputer(effort=effort, n_jobs=n_jobs).fit(rows)
        pd.testing.assert_frame_equal(other.transform(mixed.new), usual, rtol=1e-6)


def test_order_of_columns_matters_less_than_the_seed():
    rng = np.random.default_rng(3)
    truth = draw_curved(rng, 120)
    X = np.where(hide(rng, truth, 0.2), np.nan, truth)
    missing = np.isnan(X)

    def fill(columns, seed=0):
        imputer = TableImputer(random_state=seed, n_jobs=1)
        filled = np.empty_like(X)
        filled[:, columns] = imputer.fit_transform(X[:, columns])
        return filled

    usual, other = fill([0, 1, 2, 3]), fill([2, 0, 3, 1])
    seeds = [fill([0, 1, 2, 3], seed) for seed in (1, 2)]
    spread = max(np.std((seed - usual)[missing]) for seed in seeds)
    assert 0.0 < np.std((other - usual)[missing]) < 1.5 * spread


@pytest.mark.parametrize("effort", ["fast", "default", "best"])
def test_intervals_of_new_rows_have_their_coverage(effort, mixed):
    low, high = mixed.fit(effort).predict_interval(mixed.new, 0.9)
    hidden = mixed.hidden[:, :4]
    truth = mixed.truth[NUMBERS].to_numpy(dtype=float)
    low, high = low.to_numpy(dtype=float), high.to_numpy(dtype=float)
    covered = ((low <= truth) & (truth <= high))[hidden].mean()
    assert covered == pytest.approx(0.9, abs=0.04)
    for j in range(4):
        some = hidden[:, j]
        part = ((low <= truth) & (truth <= high))[some, j].mean()
        assert part == pytest.approx(0.9, abs=0.1)
        # They are shorter than those of the column alone.
        ends = np.quantile(truth[:, j], [0.05, 0.95])
        assert (high - low)[some, j].mean() < 0.9 * np.ptp(ends)


def calibration_error(chances, right):
    """Expected calibration error of the largest probabilities, in bins."""
    bins = np.digitize(chances, [0.5, 0.65, 0.8, 0.9])
    gaps = [
        (bins == b).mean() * abs(chances[bins == b].mean() - right[bins == b].mean())
        for b in np.unique(bins)
    ]
    return float(sum(gaps))


@pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("effort", ["fast", "default"])
def test_probabilities_are_calibrated(effort, strength):
    rng = np.random.default_rng(4)
    m = 1200
    cause = rng.standard_normal((m, 2))
    scores = strength * cause @ rng.standard_normal((2, 4)) + rng.gumbel(size=(m, 4))
    level = np.digitize(strength * cause[:, 0] + rng.logistic(size=m), [-1.0, 0.5, 2.0])
    frame = pd.DataFrame(
        {
            "x": cause[:, 0],
            "y": cause[:, 1],
            "any": pd.Categorical.from_codes(scores.argmax(axis=1), [*"abcd"]),
            "grade": pd.Categorical.from_codes(level, [*"1234"], ordered=True),
            "flag": pd.array(strength * cause[:, 1] > rng.logistic(size=m), "boolean"),
        }
    )
    train = frame[:200]
    imputer = TableImputer(effort=effort, n_jobs=1)
    imputer.fit(train.mask(hide(rng, train, 0.1)))
    for name in ("any", "grade", "flag"):
        new = frame[200:].assign(**{name: frame[name].mask(frame[name].notna())})
        shares = imputer.predict_proba(new)[name]
        truth = frame[name][200:].to_numpy()
        places = [list(shares.columns).index(label) for label in truth]
        found = shares.to_numpy()[np.arange(len(new)), places]
        usual = frame[name][200:].value_counts(normalize=True)
        entropy = -float((usual * np.log(usual)).sum())
        # A useless table costs a little, a useful one gains much.
        limit = {0.0: 1.06, 0.5: 1.10, 3.0: 0.75}[strength]
        assert -np.log(found).mean() < limit * entropy
        largest = shares.to_numpy().argmax(axis=1)
        right = largest == np.array(places)
        # Components that were fitted to the rows themselves make it too certain.
        most = 0.2 if imputer.n_components_ > 1 and strength < 1.0 else 0.12
        assert calibration_error(shares.to_numpy().max(axis=1), right) < most


def test_observed_cells_and_types_of_draws_are_those_of_the_table(mixed):
    imputer = mixed.fit("fast")
    for X in (mixed.X, mixed.new[:20]):
        filled, draws = imputer.transform(X), imputer.sample(X, 3)
        assert len(draws) == 3
        for drawn in draws:
            assert drawn.dtypes.equals(filled.dtypes)
            assert drawn.index.equals(X.index) and not drawn.isna().any().any()
            for name in X:
                known = X[name].notna()
                assert drawn[name][known].equals(
                    X[name][known].astype(drawn[name].dtype)
                )
        one, two, three = (drawn.to_numpy() for drawn in draws)
        missing = X.isna().to_numpy()
        assert (one != two)[missing].mean() > 0.5
        assert (two != three)[missing].mean() > 0.5


def test_seeds_repeat_draws(mixed):
    imputer, X = mixed.fit("default"), mixed.new[:30]
    one, again, other = (imputer.sample(X, 2, random_state=seed) for seed in (3, 3, 4))
    for left, right in zip(one, again, strict=True):
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    assert not one[0].equals(other[0])


@pytest.mark.parametrize("value", [0, 2.5, None])
def test_invalid_numbers_of_draws_raise(value, mixed):
    with pytest.raises((ValueError, TypeError), match="n_draws"):
        mixed.fit("fast").sample(mixed.X, value)


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_draws_have_the_means_spreads_and_frequencies_of_predictions(effort):
    rng = np.random.default_rng(2)
    truth = draw_mixed(rng, 150)[["plain", "skewed", "kind"]]
    truth["plain2"] = truth["plain"] + rng.standard_normal(150)
    X = truth.mask(hide(rng, truth, 0.2))
    imputer = TableImputer(effort=effort, n_jobs=1, clip=False).fit(X)
    n_draws = 300
    rows = X[X.isna().sum(axis=1) > 0][:25]
    draws = imputer.sample(rows, n_draws)
    filled, chances = imputer.transform(rows), imputer.predict_proba(rows)["kind"]
    for name in ("plain", "plain2"):
        values = np.array([drawn[name] for drawn in draws])[:, rows[name].isna()]
        expected = filled[name][rows[name].isna()]
        size = truth[name].std()
        assert_allclose(values.mean(axis=0), expected, atol=4 * size / n_draws**0.5)
        low, high = (
            ends[name][rows[name].isna()]
            for ends in imputer.predict_interval(rows, 0.6827)
        )
        spread = ((high - low) / 2.0).mean()
        assert values.std(axis=0).mean() == pytest.approx(spread, rel=0.25)
        inside = (low.to_numpy() < values) & (values < high.to_numpy())
        assert inside.mean() == pytest.approx(0.6827, abs=0.12)
    some = rows["kind"].isna()
    drawn = np.array([list(drawn["kind"][some]) for drawn in draws])
    for label in chances:
        shares = (drawn == label).mean(axis=0)
        assert_allclose(shares, chances[label][some], atol=4 * 0.5 / n_draws**0.5)


def test_draws_of_a_row_are_correlated_as_in_the_data():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(250)
    frame = pd.DataFrame(
        {
            "x": x,
            "y": x + 0.5 * rng.standard_normal(250),
            "far": rng.standard_normal(250),
            "kind": np.where(x + 0.3 * rng.standard_normal(250) > 0, "up", "down"),
        }
    )
    imputer = TableImputer(**FAST).fit(frame)
    new = pd.DataFrame(
        {"x": np.nan, "y": np.nan, "far": rng.standard_normal(1500), "kind": None}
    )
    (drawn,) = imputer.sample(new.astype({"kind": object}), 1)
    found = drawn[["x", "y"]].corr().iloc[0, 1]
    assert found == pytest.approx(frame[["x", "y"]].corr().iloc[0, 1], abs=0.06)
    for name in ("x", "y"):
        gap, usual = (
            np.subtract(
                *(t[name][t["kind"] == label].mean() for label in ("up", "down"))
            )
            for t in (drawn, frame)
        )
        # Codes of categories are drawn from a normal, which weakens the dependence.
        assert 0.65 * usual < gap < 1.1 * usual
    assert (drawn["kind"] == "up").mean() == pytest.approx((x > 0).mean(), abs=0.06)
    assert drawn["far"].equals(new["far"])


def slope(x, y):
    """Slope of a regression, and its variance."""
    x, y = x - x.mean(), y - y.mean()
    found = x @ y / (x @ x)
    return found, ((y - found * x) ** 2).sum() / (len(x) - 2) / (x @ x)


@pytest.mark.parametrize("at_random", [False, True])
def test_pooled_intervals_of_a_slope_cover_it(at_random):
    covered, single, ratios = [], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal(80)
        x = z + rng.standard_normal(80)
        y = 1.5 * x + rng.standard_normal(80) * 2.0
        chance = 0.6 / (1.0 + np.exp(-2.0 * z)) if at_random else np.full(80, 0.3)
        X = np.column_stack([x, y, z])
        X[rng.random(80) < chance, 0] = np.nan
        X[rng.random(80) < chance, 1] = np.nan
        imputer = TableImputer(**FAST, max_iter=50, tol=1e-3).fit(X)
        found = [slope(t[:, 0], t[:, 1]) for t in imputer.sample(X, 20, seed)]
        pooled = pool(*zip(*found, strict=True), complete_dof=78)
        covered.append(pooled.low <= 1.5 <= pooled.high)
        filled = imputer.transform(X)
        estimate, variance = slope(filled[:, 0], filled[:, 1])
        single.append(abs(estimate - 1.5) < 1.99 * variance**0.5)
        ratios.append(pooled.std_error / variance**0.5)
    assert np.mean(covered) >= 0.85
    assert np.mean(single) < np.mean(covered)
    assert np.mean(ratios) > 1.25  # standard errors of one imputation are too small


@pytest.fixture
def shifted(mixed):
    """A fitted imputer of which parameters may be changed."""
    found = pickle.loads(pickle.dumps(mixed.fit("fast")))
    return found.set_params(clip=False)


def test_delta_shifts_imputed_numbers_of_its_columns_only(shifted, mixed):
    X = mixed.new[:40]

    def results():
        low, high = shifted.predict_interval(X)
        tables = [shifted.transform(X), low, high, *shifted.sample(X, 2)]
        return tables, shifted.predict_proba(X)["kind"]

    before, chances = results()
    shifted.set_params(delta={"plain": -7.5, "skewed": 1e3})
    after, same_chances = results()
    pd.testing.assert_frame_equal(chances, same_chances)
    for one, two in zip(before, after, strict=True):
        for name, shift in (("plain", -7.5), ("skewed", 1e3)):
            missing = X[name].isna()
            assert missing.any() and not missing.all()
            assert_allclose(two[name][missing], one[name][missing] + shift, rtol=1e-12)
            assert two[name][~missing].equals(one[name][~missing])
        rest = one.columns.difference(["plain", "skewed"])
        pd.testing.assert_frame_equal(two[rest], one[rest])
    shifted.set_params(delta=None)
    pd.testing.assert_frame_equal(results()[0][0], before[0])


def test_delta_of_the_fit_is_added_after_clipping(mixed):
    usual = mixed.fit("fast")
    other = clone(usual).set_params(delta={"plain": 100.0}).fit(mixed.X)
    missing = mixed.new["plain"].isna()
    found = other.transform(mixed.new)["plain"][missing]
    expected = usual.transform(mixed.new)["plain"][missing] + 100.0
    assert_allclose(found, expected, rtol=1e-12)
    assert found.min() > mixed.X["plain"].max()


def test_integers_stay_integers_with_a_delta(shifted, mixed):
    missing = mixed.new["count"].isna()
    shifted.set_params(delta={"count": 0.4}, clip=True)
    found = shifted.transform(mixed.new)["count"]
    assert found.dtype == "Int64"
    # Numbers are rounded once, after the shift.
    whole = shifted.set_params(delta={"count": 0.0}).transform(mixed.new)["count"]
    change = (found - whole)[missing]
    assert set(change) == {0, 1}
    assert change.mean() == pytest.approx(0.4, abs=0.2)
    shifted.set_params(delta={"count": -3})
    assert ((shifted.transform(mixed.new)["count"] - whole)[missing] == -3).all()


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        ({"height": 1.0}, "'height'"),
        ({"kind": 1.0}, "'kind' does not hold numbers"),
        ([1.0, 2.0], "must map names"),
        (3.0, "must map names"),
        ({"plain": "much"}, r"delta\['plain'\]"),
        ({"plain": np.nan}, r"delta\['plain'\]"),
        ({"plain": None}, r"delta\['plain'\]"),
    ],
)
def test_invalid_shifts_raise(delta, words, shifted, mixed):
    shifted.set_params(delta=delta)
    for method in (shifted.transform, shifted.predict_interval, shifted.sample):
        with pytest.raises((ValueError, TypeError), match=words):
            method(mixed.X)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"effort": "huge"}, ["effort", "'fast'", "'default'", "'best'", "'huge'"]),
        ({"effort": None}, ["effort", "'fast'", "None"]),
        ({"components": 0}, ["components", "1", "0", "'auto'"]),
        ({"components": 2.5}, ["components", "whole number", "2.5", "'auto'"]),
        ({"components": "many"}, ["components", "'many'", "'auto'"]),
        ({"random_state": -1}, ["random_state", "-1"]),
        ({"random_state": None}, ["random_state", "whole number", "None"]),
        ({"shrinkage_rows": -2.0}, ["shrinkage_rows", "-2.0", "'auto'"]),
        ({"delta": 1.0}, ["delta", "{'income': -500.0}", "1.0"]),
    ],
)
def test_errors_name_the_parameter_what_is_expected_and_what_came(params, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        TableImputer(**params).fit(np.eye(4))
    for word in words:
        assert word in str(caught.value)


def test_attributes_describe_the_chosen_models(mixed):
    for effort in ("fast", "default", "best"):
        imputer = mixed.fit(effort)
        models = imputer.table_models_
        # The column that is skewed is also used as it is.
        assert len(models) == (1 if effort == "fast" else 2)
        choice = models[0].choice
        assert imputer.n_components_ == choice.n_components
        assert imputer.shrinkage_rows_ == choice.pseudo_rows > 0.0
        for model in models:
            members = {member.n_components for member in model.members}
            assert members == {imputer.n_components_}
        if effort == "fast":
            assert np.isnan(imputer.held_out_error_) and imputer.trials_ == []
        else:
            assert 0.2 < imputer.held_out_error_ < 1.0
            assert {"pseudo_rows", "n_components", "error"} <= set(imputer.trials_[0])
            assert imputer.held_out_error_ in [t["error"] for t in imputer.trials_]
        assert list(imputer.blend_) == [*NUMBERS, "kind"]
        for name in NUMBERS:
            weights = imputer.blend_[name]
            assert len(weights) == 1 + len(models[0].numbers[0].predictors)
            assert (weights >= 0.0).all() and weights.sum() == pytest.approx(1.0)
        assert 0.0 <= imputer.blend_["kind"] <= 1.0
    assert mixed.fit("fast").blend_["kind"] == 0.0  # there are no trees


def test_plain_tables_have_one_model(rng):
    X = rng.standard_normal((60, 2)) + rng.standard_normal((60, 1))
    skewed = np.exp(2.0 * X)
    for table, how, count in (
        (X, "auto", 1),
        (skewed, "auto", 2),
        (skewed, None, 1),
        (skewed, "power", 1),
    ):
        imputer = TableImputer(transform_skewed=how, components=1, shrinkage_rows=2.0)
        assert len(imputer.fit(table).table_models_) == count


def test_given_components_and_shrinkage_are_used(rng):
    X = rng.standard_normal((80, 3)) + rng.standard_normal((80, 1))
    imputer = TableImputer(**FAST, components=3, shrinkage_rows=5.5).fit(X)
    assert (imputer.n_components_, imputer.shrinkage_rows_) == (3, 5.5)
    assert imputer.table_models_[0].members[0].n_components == 3


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_copies_and_refits_give_the_same_bits(effort, mixed):
    imputer, new = mixed.fit(effort), mixed.new[:50]
    usual, draws = imputer.transform(new), imputer.sample(new, 2)
    copied = pickle.loads(pickle.dumps(imputer))
    refit = clone(imputer).fit(mixed.X)
    for other in (copied, refit):
        pd.testing.assert_frame_equal(other.transform(new), usual, check_exact=True)
        again = other.sample(new, 2)
        for left, right in zip(draws, again, strict=True):
            pd.testing.assert_frame_equal(left, right, check_exact=True)
    assert clone(imputer).get_params() == imputer.get_params()
    if effort == "default":
        seeded = clone(imputer).set_params(random_state=5).fit(mixed.X)
        assert not seeded.transform(new).equals(usual)


VALUES = st.sampled_from([np.nan, 0.0, 1.0, -2.5, 1e300, -1e300, 1e-300])
CELLS = VALUES | st.floats(-1e3, 1e3)
SHAPES = st.tuples(st.sampled_from([1, 2, 5, 40]), st.integers(1, 3))


@pytest.mark.filterwarnings("ignore:no observed value")
@pytest.mark.parametrize("effort", ["fast", "default"])
def test_finite_tables_give_finite_values_draws_and_intervals(effort):
    @given(arrays(float, SHAPES, elements=CELLS, fill=CELLS))
    @settings(max_examples=12 if effort == "fast" else 8)
    def check(X):
        imputer = TableImputer(effort=effort, n_jobs=1, max_iter=5, tol=0).fit(X)
        known = ~np.isnan(X)
        filled = np.outer(known.any(axis=1), known.any(axis=0))
        for out in (imputer.transform(X), *imputer.sample(X, 2)):
            assert_array_equal(out[known], X[known])
            assert_array_equal(np.isfinite(out), filled)
        low, high = imputer.predict_interval(X)
        assert (low <= high)[filled[:, known.any(axis=0)]].all()

    check()


@pytest.mark.parametrize("effort", ["fast", "default"])
@pytest.mark.filterwarnings("ignore:no observed value")
def test_tables_without_information_are_filled(effort):
    constant = np.column_stack([np.full(40, 3.0), np.arange(40.0), np.full(40, -1e300)])
    constant[::4, 0], constant[1::4, 1] = np.nan, np.nan
    lonely = np.full((40, 3), np.nan)
    lonely[7, 1] = 2.0
    row = np.array([[1.0, np.nan, 3.0]])
    column = np.arange(40.0)[:, None].copy()
    column[5] = np.nan
    for X in (constant, lonely, row, column, constant[:, :1]):
        out = TableImputer(effort=effort, n_jobs=1).fit(X).transform(X)
        known = ~np.isnan(X)
        assert_array_equal(out[known], X[known])
        filled = np.outer(known.any(axis=1), known.any(axis=0))
        assert_array_equal(np.isfinite(out), filled)
    assert_array_equal(TableImputer(**FAST).fit_transform(constant)[:, 0], 3.0)

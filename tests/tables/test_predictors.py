"""Tests of trees, of regressions on similar rows and of weights of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.spatial.distance import pdist
from sklearn.linear_model import Ridge

from ncarl.tables.predictors import (
    ALPHAS,
    MIN_PROBABILITY,
    MIN_REST,
    N_FOLDS,
    SHRINKAGE_CELLS,
    TYPICAL_TREE_WEIGHT,
    ProbabilityBlend,
    cross_fit,
    fit_fourier_ridge,
    fit_probability_blend,
    fit_weights,
    fourier_features,
    typical_distance,
)


def r2(target, predictions):
    return 1.0 - np.mean((target - predictions) ** 2) / np.var(target)


def test_noise_is_remembered_only_by_trees_that_saw_it(rng):
    features, noise = rng.standard_normal((300, 4)), rng.standard_normal(300)
    trees, held_out = cross_fit(features, noise, n_classes=0, n_trees=10, seed=0)
    assert len(trees.ensembles) == N_FOLDS
    assert r2(noise, held_out) < 0.1
    assert r2(noise, trees.predict(features)) > 0.5


def test_every_row_is_predicted_by_the_only_ensemble_that_did_not_see_it(rng):
    # Its predictions are the only ones that do not change with the target.
    features, noise = rng.standard_normal((60, 3)), rng.standard_normal(60)
    options = {"n_classes": 0, "n_trees": 5, "seed": 3}
    trees, held_out = cross_fit(features, noise, **options)
    for i in (0, 17, 59):
        changed = noise.copy()
        changed[i] += 100.0
        others, again = cross_fit(features, changed, **options)
        same = [
            one.predict(features[[i]]) == two.predict(features[[i]])
            for one, two in zip(trees.ensembles, others.ensembles, strict=True)
        ]
        assert sum(same) == 1
        assert held_out[i] == again[i]
        assert held_out[i] == trees.ensembles[int(np.argmax(same))].predict(
            features[[i]]
        )


def test_signal_is_predicted_by_the_mean_of_the_ensembles(rng):
    features = rng.standard_normal((300, 3))
    target = features[:, 0] + (features[:, 1] > 0)
    trees, held_out = cross_fit(features, target, n_classes=0, n_trees=10, seed=0)
    assert r2(target, held_out) > 0.8
    parts = [each.predict(features) for each in trees.ensembles]
    assert_allclose(trees.predict(features), sum(parts) / N_FOLDS)


def test_probabilities_have_a_place_for_classes_that_a_fold_lacks(rng):
    # Class 1 does not occur at all, and class 2 in one row, which one ensemble lacks.
    features = rng.standard_normal((80, 3))
    classes = np.where(features[:, 0] > 0, 3, 0)
    classes[5] = 2
    trees, held_out = cross_fit(features, classes, n_classes=4, n_trees=8, seed=0)
    assert sorted(len(each.classes_) for each in trees.ensembles) == [2, 3, 3, 3, 3]
    for shares in (held_out, trees.predict(features)):
        assert shares.shape == (80, 4)
        assert_allclose(shares.sum(axis=1), 1.0)
        assert_array_equal(shares[:, 1], 0.0)
    assert held_out[5, 2] == 0.0 < trees.predict(features)[5, 2]
    clear = np.abs(features[:, 0]) > 0.5
    clear[5] = False
    assert (held_out.argmax(axis=1) == classes)[clear].mean() > 0.95


def test_seed_decides(rng):
    features, target = rng.standard_normal((2, 40, 3)), rng.standard_normal(40)
    fits = [
        cross_fit(features[0], target, n_classes=0, n_trees=4, seed=seed)[1]
        for seed in (1, 1, 2)
    ]
    assert_array_equal(fits[0], fits[1])
    assert (fits[0] != fits[2]).any()


def draw_predictions(rng, counts, methods):
    """Predictions of columns by methods of different, correlated errors."""
    targets = [rng.standard_normal(count) + 0.2 for count in counts]
    sizes = rng.random((len(counts), methods)) + 0.2
    predictions = []
    for y, size in zip(targets, sizes, strict=True):
        shared = rng.standard_normal((len(y), 1))
        noise = 0.5 * shared + rng.standard_normal((len(y), methods))
        predictions.append(y[:, None] * rng.random(methods) + size * noise)
    return predictions, targets


@pytest.mark.parametrize("counts", [[40], [3, 15, 60], [1, 2, 200, 1000]])
@pytest.mark.parametrize("methods", [2, 3])
def test_weights_equal_those_of_a_generic_solver(counts, methods, rng):
    predictions, targets = draw_predictions(rng, counts, methods)
    everything, all_targets = np.vstack(predictions), np.concatenate(targets)

    def loss(w, P, y):
        own, common = np.sum((P @ w - y) ** 2), (everything @ w - all_targets) ** 2
        return (own + SHRINKAGE_CELLS * np.mean(common)) / (len(y) + SHRINKAGE_CELLS)

    found = fit_weights(predictions, targets)
    assert len(found) == len(counts)
    for w, P, y in zip(found, predictions, targets, strict=True):
        assert w.sum() == pytest.approx(1.0) and (w >= 0.0).all()
        best = minimize(
            loss, np.full(methods, 1 / methods), (P, y), "SLSQP",
            bounds=[(0.0, 1.0)] * methods, options={"ftol": 1e-14},
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0},
        )  # fmt: skip
        assert loss(w, P, y) <= best.fun * (1 + 1e-6)
        assert_allclose(w, best.x, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_weights_do_not_depend_on_the_unit(scale, rng):
    predictions, targets = draw_predictions(rng, [30, 50], 3)
    scaled = [scale * P for P in predictions], [scale * y for y in targets]
    plain = fit_weights(predictions, targets)
    assert_allclose(fit_weights(*scaled), plain, atol=1e-6)


def test_useless_predictions_get_no_weight(rng):
    # Columns whose predictions are noise, beside one that is predicted well.
    targets = [rng.standard_normal(2000) for _ in range(3)]
    useless = [np.column_stack([np.zeros(2000), rng.standard_normal(2000)])] * 2
    good = targets[2] + 0.1 * rng.standard_normal(2000)
    predictions = [*useless, np.column_stack([np.zeros(2000), good])]
    weights = fit_weights(predictions, targets)
    for w in weights[:2]:
        assert w[0] > 0.95
    assert weights[2][1] > 0.95


def test_columns_of_few_cells_get_the_weights_of_all_columns(rng):
    predictions, targets = draw_predictions(rng, [1, 3000], 3)
    empty = [np.empty((0, 3)), predictions[1]], [np.empty(0), targets[1]]
    alone, common = fit_weights(*empty)
    assert_allclose(alone, common, atol=1e-6)
    assert_allclose(fit_weights(predictions, targets)[0], common, atol=0.2)
    assert fit_weights([], []) == []


def test_weights_without_information_are_valid():
    (w,) = fit_weights([np.zeros((4, 3))], [np.zeros(4)])
    assert w.sum() == pytest.approx(1.0) and (w >= 0.0).all()


def shares(rng, m, k, sharpness):
    logits = sharpness * rng.standard_normal((m, k))
    powers = np.exp(logits)
    return powers / powers.sum(axis=1, keepdims=True)


def loss(blend, base, trees, classes):
    """Mean negative log probability of the classes."""
    p = blend.mix(base, trees)[np.arange(len(classes)), classes]
    return -np.log(np.maximum(p, MIN_PROBABILITY)).mean()


@given(
    seed=st.integers(0, 10_000), m=st.integers(5, 60), k=st.integers(2, 4),
    sharpness=st.sampled_from([0.3, 1.0, 3.0, 10.0]),
)  # fmt: skip
def test_blend_is_halfway_between_the_likeliest_and_the_typical(seed, m, k, sharpness):
    rng = np.random.default_rng(seed)
    base, trees = shares(rng, m, k, 1.0), shares(rng, m, k, sharpness)
    truth = 0.5 * (base + trees)
    classes = (truth.cumsum(axis=1) < rng.random((m, 1))).sum(axis=1).clip(max=k - 1)
    blend = fit_probability_blend(base, trees, classes)
    likeliest = 2.0 * blend.tree_weight - TYPICAL_TREE_WEIGHT
    assert -1e-9 <= likeliest <= 1.0
    found = loss(ProbabilityBlend(likeliest, 1.0), base, trees, classes)
    for weight in (0.0, 1.0):
        other = ProbabilityBlend(weight, 1.0)
        assert found <= loss(other, base, trees, classes) + 0.02
    plain = ProbabilityBlend(blend.tree_weight, 1.0)
    assert blend.exponent <= 1.0
    assert loss(blend, base, trees, classes) <= loss(plain, base, trees, classes) + 0.01


def test_blend_finds_the_better_method(rng):
    truth = shares(rng, 3000, 3, 2.0)
    classes = (truth.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1).clip(max=2)
    noise = shares(rng, 3000, 3, 2.0)
    typical = TYPICAL_TREE_WEIGHT / 2.0
    blend = fit_probability_blend(noise, truth, classes)
    assert blend.tree_weight == pytest.approx(0.5 + typical, abs=0.03)
    blend = fit_probability_blend(truth, noise, classes)
    assert blend.tree_weight == pytest.approx(typical, abs=0.03)
    assert fit_probability_blend(truth, None, classes).tree_weight == 0.0


@pytest.mark.parametrize("power", [0.5, 0.8])
def test_exponent_undoes_too_much_confidence(power, rng):
    truth = shares(rng, 4000, 3, 1.0)
    classes = (truth.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1).clip(max=2)
    wrong = truth ** (1.0 / power)
    wrong /= wrong.sum(axis=1, keepdims=True)
    blend = fit_probability_blend(wrong, None, classes)
    assert blend.exponent == pytest.approx(power, abs=0.12)
    assert_allclose(blend.mix(wrong, None), truth, atol=0.06)


def test_probabilities_are_not_sharpened(rng):
    truth = shares(rng, 1000, 3, 1.0)
    classes = (truth.cumsum(axis=1) < rng.random((1000, 1))).sum(axis=1).clip(max=2)
    flat = truth**0.5 / (truth**0.5).sum(axis=1, keepdims=True)
    assert fit_probability_blend(flat, None, classes).exponent > 0.98


def test_mixed_probabilities_add_up_to_1_and_are_not_0():
    base, trees = np.array([[1.0, 0.0], [0.4, 0.6]]), np.array([[1.0, 0.0], [0.2, 0.8]])
    mixed = ProbabilityBlend(0.25, 1.0).mix(base, trees)
    assert_allclose(mixed, [[1.0, 0.0], [0.35, 0.65]], atol=2e-6)
    assert mixed[0, 1] > 0.0
    assert_allclose(ProbabilityBlend(0.25, 0.5).mix(base, None).sum(axis=1), 1.0)
    flat = ProbabilityBlend(0.25, 0.5).mix(base, trees)[1]
    assert_allclose(flat, np.sqrt([0.35, 0.65]) / np.sqrt([0.35, 0.65]).sum())


def fit_kernel(rng, m=80, n=3, n_features=30):
    """A regression of a nonlinear target on rows, and its parts."""
    rows = rng.standard_normal((m, n))
    target = np.sin(2.0 * rows[:, 0]) + rows[:, 1] ** 2 + 0.1 * rng.standard_normal(m)
    model, left_out = fit_fourier_ridge(rows, target, n_features=n_features, seed=4)
    A = fourier_features(rows, model.frequencies, model.phases).astype(np.float64)
    return rows, target, model, left_out, A


def ridge(A, target, alpha, m):
    """Coefficients of scikit-learn; the last column of ones has a penalty too."""
    return Ridge(alpha * m / 1000.0, fit_intercept=False).fit(A, target)


def naive_left_out(A, target, alpha):
    """Predictions of each row by a regression that is fitted to the others."""
    m, found = len(A), []
    for i in range(m):
        others = np.delete(np.arange(m), i)
        model = ridge(A[others], target[others], alpha, m)
        found.append(model.predict(A[[i]])[0])
    return np.array(found)


def test_features_are_cosines_and_approximate_a_gaussian_kernel(rng):
    rows = rng.standard_normal((6, 2)).astype(np.float32)
    frequencies = rng.standard_normal((2, 20_000)).astype(np.float32)
    phases = rng.uniform(0.0, 2.0 * np.pi, 20_000).astype(np.float32)
    A = fourier_features(rows, frequencies, phases)
    assert A.dtype == np.float32
    expected = np.cos(rows @ frequencies + phases) * np.sqrt(2.0 / 20_000)
    assert_allclose(A[:, :-1], expected, atol=1e-6)
    assert_array_equal(A[:, -1], 1.0)
    squares = ((rows[:, None] - rows) ** 2).sum(axis=2)
    assert_allclose(A[:, :-1] @ A[:, :-1].T, np.exp(-squares / 2.0), atol=0.04)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_ridge_matches_scikit_learn_and_refits_without_each_row(
    alpha, rng, monkeypatch
):
    monkeypatch.setattr("ncarl.tables.predictors.ALPHAS", (alpha,))
    monkeypatch.setattr("ncarl.tables.predictors.MIN_REST", 1e-9)
    rows, target, model, left_out, A = fit_kernel(rng)
    expected = ridge(A, target, alpha, len(rows))
    assert_allclose(model.coefficients, expected.coef_, atol=3e-3)
    assert_allclose(left_out, naive_left_out(A, target, alpha), atol=3e-3)
    new = rng.standard_normal((7, 3))
    features = fourier_features(new, model.frequencies, model.phases)
    assert_allclose(model.predict(new), expected.predict(features), atol=3e-3)
    # Left-out errors are larger than residuals.
    inside = target - model.predict(rows)
    assert np.mean((target - left_out) ** 2) > 1.2 * np.mean(inside**2)


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_ridge_has_the_regularization_of_the_least_left_out_error(
    noise, rng, monkeypatch
):
    monkeypatch.setattr("ncarl.tables.predictors.MIN_REST", 1e-9)
    rows = rng.standard_normal((60, 2))
    target = np.sin(2.0 * rows[:, 0]) + noise * rng.standard_normal(60)
    model, left_out = fit_fourier_ridge(rows, target, n_features=15, seed=4)
    A = fourier_features(rows, model.frequencies, model.phases).astype(np.float64)
    errors = [
        np.mean((naive_left_out(A, target, alpha) - target) ** 2) for alpha in ALPHAS
    ]
    best = int(np.argmin(errors))
    assert best == (0 if noise == 0.0 else len(ALPHAS) - 1)
    assert np.mean((left_out - target) ** 2) == pytest.approx(errors[best], rel=1e-2)
    expected = ridge(A, target, ALPHAS[best], 60).coef_
    assert_allclose(model.coefficients, expected, atol=3e-3)


def test_left_out_errors_are_bounded(rng):
    # As many features as rows: leverages of almost 1.
    rows = rng.standard_normal((20, 6))
    target = rng.standard_normal(20)
    model, left_out = fit_fourier_ridge(rows, target, n_features=200, seed=1)
    residuals = target - model.predict(rows)
    bound = np.abs(residuals) / MIN_REST
    assert (np.abs(target - left_out) <= bound * (1 + 1e-3) + 1e-3).all()
    assert np.isfinite(left_out).all()


def test_kernel_regression_predicts_what_a_line_cannot(rng):
    rows = rng.standard_normal((300, 2))
    target = rows[:, 0] ** 2
    model, left_out = fit_fourier_ridge(rows, target, n_features=75, seed=0)
    new = rng.standard_normal((300, 2))
    assert r2(target, left_out) > 0.9
    assert r2(new[:, 0] ** 2, model.predict(new)) > 0.8
    assert model.predict(new).dtype == np.float64


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_typical_distance_is_the_median_of_distances(unit, rng):
    rows = unit * rng.standard_normal((31, 4))
    assert typical_distance(rows) == pytest.approx(np.median(pdist(rows)), rel=1e-9)


def test_equal_rows_have_no_distance_that_counts(rng):
    rows = rng.standard_normal((10, 3))
    found = typical_distance(np.vstack([rows, rows, rows]))
    # Of copies only the distances to other rows count.
    assert found == pytest.approx(np.median(pdist(rows)))


@pytest.mark.parametrize("value", [0.0, 1.0, -1e6])
def test_constant_rows_give_finite_predictions(value, rng):
    rows, target = np.full((40, 3), value), 5.0 + rng.standard_normal(40)
    assert typical_distance(rows) == 1.0
    model, left_out = fit_fourier_ridge(rows, target, n_features=10, seed=0)
    assert np.isfinite(left_out).all()
    # All rows have the same features: the mean is predicted, a little shrunk.
    assert_allclose(model.predict(rows), target.mean(), rtol=0.02)
    assert np.isfinite(model.predict(rng.standard_normal((5, 3)))).all()

"""Tests of figures: content, unusual names, large input, errors."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from matplotlib.figure import Figure
from PIL import Image
from scipy import sparse

from ncarl import BayesianNCARL, plots
from ncarl.core.linalg import correlation_from_covariance
from ncarl.plots.fit import (
    EVIDENCE_LABEL,
    GRAM_LABEL,
    STEP_LABEL,
    column_affinity,
    model_variances,
)
from ncarl.plots.similarity import (
    cluster_labels,
    cluster_order,
    place_labels,
    spring_layout,
    strongest_columns,
    strongest_edges,
)
from ncarl.plots.style import (
    MAX_LABEL_LENGTH,
    MAX_TICK_LABELS,
    format_label,
    log_axis,
    set_tick_labels,
    write_png,
)

from .conftest import NAMES, make_bayes


def render(figure):
    """Render a figure without warnings and return its pixels."""
    assert isinstance(figure, Figure)
    figure.set_layout_engine("none")  # which would draw twice
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_png(figure, stream, 50)
    return np.asarray(Image.open(stream).convert("RGB"))


@given(st.text(max_size=80) | st.text(alphabet="$\\ab{}_^", max_size=80))
def test_a_name_is_short_and_no_formula_whatever_it_holds(name):
    from matplotlib.text import Text

    text = format_label(name)
    assert len(text.replace(r"\$", "$")) <= MAX_LABEL_LENGTH + 1
    assert "\n" not in text and "\u202e" not in text
    # matplotlib would parse formulas.
    shown, is_math = Text(text=text)._preprocess_math(text)
    assert is_math is False and shown.count("$") == text.count("$")
    assert format_label("naïve 名前") == "naïve 名前"


@pytest.mark.parametrize("count", [40, 41, 300])
def test_tick_labels_are_thinned(count):
    ax = Figure().add_subplot()
    names = [f"c{j}" for j in range(count)]
    set_tick_labels(ax, names, "x")
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert len(shown) <= MAX_TICK_LABELS and shown[0] == "c0"
    assert [names[int(place)] for place in ax.get_xticks()] == shown
    assert len(shown) == count or count > MAX_TICK_LABELS


def test_figures_support_unusual_names(bayes, table):
    _, X = table
    for figure in (
        plots.similarity(bayes, names=NAMES),
        plots.similarity_graph(bayes, names=NAMES),
        plots.identifiability(bayes, X, names=NAMES),
        plots.uncertainty(bayes, names=NAMES),
        plots.completion(X, bayes, names=NAMES),
        plots.convergence({"$x$ <b>": bayes}),
        plots.reliability([0.5, 0.9], {"$a$": [0.4, 0.8]}),
    ):
        image = render(figure)
        assert len(np.unique(image.reshape(-1, 3), axis=0)) > 5


def test_figures_support_300_columns():
    rng = np.random.default_rng(0)
    C = np.corrcoef(rng.standard_normal((50, 300)), rowvar=False)
    names = [f"a long name of the column {j}" for j in range(300)]
    render(plots.similarity(C, names=names))
    graph = plots.similarity_graph(C, names=names)
    render(graph)
    (dots,) = (c for c in graph.axes[0].collections if hasattr(c, "get_sizes")
               and len(c.get_offsets()) > 1)  # fmt: skip
    assert len(dots.get_offsets()) == 60
    X = np.where(rng.random((400, 300)) < 0.5, np.nan, 1.0)
    render(plots.identifiability(X, names=names))


def test_figure_is_registered_with_pyplot(monkeypatch):
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", lambda: None)
    before = plt.get_fignums()
    one, other = plots.spectrum([1.0]), plots.spectrum([2.0])
    plots.show(one, other)
    new = [number for number in plt.get_fignums() if number not in before]
    assert [plt.figure(number) for number in new] == [one, other]
    plt.close("all")


# --- convergence and spectrum ---------------------------------------------------------


def test_convergence_labels_the_measure_of_a_fit(bayes, paper, baseline):
    labels = (EVIDENCE_LABEL, GRAM_LABEL, STEP_LABEL)
    for fit, words in zip((bayes, paper, baseline), labels, strict=True):
        (ax,) = plots.convergence(fit).axes
        assert ax.get_ylabel() == words and ax.get_legend() is None
        changes = fit.history_["change"]
        shown = changes[np.isfinite(changes) & (changes > 0)]
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), shown)
    (ax,) = plots.convergence({"one": bayes, "other": paper}, label="mine").axes
    assert ax.get_ylabel() == "mine"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["one", "other"]


def test_spectrum_counts_directions_up_to_90_percent():
    figure = plots.spectrum(np.diag([6.0, 3.0, 0.5, 0.5]))
    assert figure.axes[0].get_title() == "2 directions hold 90% of the variance"
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [0.6, 0.9, 0.95, 1])
    assert "1 direction holds" in plots.spectrum([5.0]).axes[0].get_title()


def test_spectrum_of_a_matrix_is_that_of_its_covariance():
    X = np.random.default_rng(0).standard_normal((30, 4)) + 7.0
    one = plots.spectrum(X).axes[0].lines[0].get_ydata()
    other = plots.spectrum(np.cov(X, rowvar=False)).axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(one, other)


def test_spectrum_of_a_fit_is_invariant_to_column_units(bayes):
    # One column is 100 times larger; two groups of columns need two directions.
    values = model_variances(bayes)
    assert values[:2].sum() / values.sum() > 0.8 > values[0] / values.sum()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([-1.0, 2.0], "must not be negative"),
        ([np.nan, 1.0], "got one with NaN"),
        ([0.0, 0.0], "nothing varies"),
        (np.ones((2, 2, 2)), "one axis or two, got 3"),
        (BayesianNCARL(), "BayesianNCARL must be fitted"),
    ],
)
def test_invalid_spectrum_raises(bad, said):
    with pytest.raises(ValueError, match=said):
        plots.spectrum(bad)


# --- similarity -----------------------------------------------------------------------


def test_similar_columns_are_adjacent(bayes, paper, baseline):
    for fit in (bayes, baseline):
        order = cluster_order(np.asarray(column_affinity(fit)))
        groups = [int(j) % 2 for j in order]
        assert groups in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    labels = plots.similarity(bayes, names=list("abcdef")).axes[0].get_yticklabels()
    assert {t.get_text() for t in labels[:3]} in ({"a", "c", "e"}, {"b", "d", "f"})
    labels = plots.similarity(bayes, ordered=False, names=list("abcdef")).axes[0]
    assert [t.get_text() for t in labels.get_yticklabels()] == list("abcdef")
    render(plots.similarity(paper))
    numbers = plots.similarity(bayes).axes[0].get_yticklabels()
    order = cluster_order(np.asarray(column_affinity(bayes)))
    assert [t.get_text() for t in numbers] == [str(j + 1) for j in order]


def test_columns_with_the_strongest_ties_are_shown():
    S = sparse.eye_array(50, format="lil")
    S[7, 9] = S[9, 7] = S[9, 30] = S[30, 9] = 0.5
    assert strongest_columns(S.tocsr(), 3).tolist() == [7, 9, 30]
    names = [f"c{j}" for j in range(50)]
    figure = plots.similarity(S.tocsr(), names=names, max_columns=3)
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert sorted(labels) == ["c30", "c7", "c9"]
    assert "the 3 most strongly related" in figure.axes[0].get_title()


def test_correlation_of_constant_columns_is_finite():
    C = correlation_from_covariance(np.array([[4.0, 0.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(C, np.eye(2))


def test_wrong_number_of_names_raises():
    with pytest.raises(ValueError, match="one for each of the 3 columns, got 2"):
        plots.similarity(np.eye(3), names=["a", "b"])
    with pytest.raises(ValueError, match="square matrix, got shape"):
        plots.similarity(np.ones((2, 3)))


# --- graph ----------------------------------------------------------------------------


def test_edges_are_the_strongest_ties_of_each_node():
    T = np.zeros((4, 4))
    for i, j, tie in ((0, 1, 0.9), (1, 2, -0.8), (2, 3, 0.5), (0, 3, 0.02)):
        T[i, j] = T[j, i] = tie
    assert strongest_edges(T, 1).tolist() == [[0, 1], [1, 2], [2, 3]]
    assert strongest_edges(np.zeros((3, 3)), 2).shape == (0, 2)


def test_layout_is_deterministic_and_separates_nodes():
    rng = np.random.default_rng(0)
    T = np.abs(np.corrcoef(rng.standard_normal((12, 30)), rowvar=False))
    np.fill_diagonal(T, 0.0)
    pairs = strongest_edges(T, 3)
    places = spring_layout(T, pairs)
    np.testing.assert_array_equal(places, spring_layout(T.copy(), pairs))
    assert np.abs(places).max() <= 1.0 + 1e-12
    apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    assert apart[~np.eye(30, dtype=bool)].min() > 0.02
    joined = apart[pairs[:, 0], pairs[:, 1]].mean()
    assert joined < 0.7 * apart[~np.eye(30, dtype=bool)].mean()


@pytest.mark.parametrize("n", [1, 3])
def test_smallest_graphs_are_drawn(n):
    render(plots.similarity_graph(np.eye(n)))


def test_labels_of_a_graph_do_not_overlap():
    names, strength = ["one", "two", "three"], np.array([3.0, 2.0, 1.0])
    found = place_labels(np.zeros((3, 2)), names, strength, 9.0)
    assert [place for place, _ in found] == [0, 1]
    assert found[0][1] > 0 > found[1][1]


def test_groups_are_numbered_by_size():
    T = np.kron(np.diag([1.0, 1.0]), np.ones((5, 5)))
    T = np.pad(T, (0, 2))
    T[10:, 10:] = 1.0
    groups = cluster_labels(T)
    assert len(set(groups[:5])) == len(set(groups[5:10])) == 1
    assert groups[0] != groups[5] and groups[10] == 2


# --- reliability and residuals --------------------------------------------------------


def test_reliability_of_a_fit_counts_its_held_out_errors(bayes):
    figure = plots.reliability(bayes)
    assert figure.axes[0].get_xlabel() == "nominal coverage"
    assert figure.axes[0].get_ylabel() == "actual coverage"
    (line,) = (li for li in figure.axes[0].lines if li.get_marker() == "o")
    level, held = line.get_data()
    from scipy.stats import norm

    scores = bayes.blended_scores_.sorted_scores
    k = 9
    reach = norm.ppf(0.5 + level[k] / 2)
    assert held[k] == np.mean([abs(score) <= reach for score in scores])
    assert "entries" in figure.axes[0].texts[0].get_text()


def test_reliability_of_invalid_input_raises(paper):
    with pytest.raises(ValueError, match="NCARL has no held-out errors"):
        plots.reliability(paper)
    with pytest.raises(ValueError, match="one value for each of the 2 levels"):
        plots.reliability([0.5, 0.9], [0.5])


def test_residuals_of_a_fit_are_those_of_missing_entries(bayes, table):
    truth, X = table
    figure = plots.residuals(truth, bayes)
    i, j = np.nonzero(np.isnan(X))
    values, std = bayes.predict(i, j, return_std=True)
    expected = np.sort((values - truth[i, j]) / std)
    lines = [li for li in figure.axes[0].lines if li.get_marker() == "o"]
    shown = np.sort(np.concatenate([li.get_ydata() for li in lines]))
    np.testing.assert_allclose(shown, expected)
    with pytest.raises(ValueError, match="no entry that the fit did not see"):
        plots.residuals(X, bayes)


def test_residuals_without_deviations_are_errors(baseline, table):
    ax = plots.residuals([1.0, 2.0], [1.5, 1.0], unit="kg").axes[0]
    assert ax.get_ylabel() == "error (kg)"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [-1.0, 0.5][::-1])
    render(plots.residuals(table[0], baseline))
    render(plots.residuals([1.0], [1.0]))


# --- missing entries ------------------------------------------------------------------


def test_rows_and_columns_without_entries_are_marked_and_counted():
    X = np.ones((6, 4))
    X[2] = np.nan
    X[:, 3] = np.nan
    X[4, 1:] = np.nan
    figure = plots.identifiability(X)
    assert figure.get_suptitle() == (
        "45.8% missing; no observed entry in 1 row and 1 column, too few in 1 row"
    )
    main = figure.axes[0]
    marked = {(tuple(li.get_xdata()), tuple(li.get_ydata())) for li in main.lines}
    assert ((0, 1), (3, 3)) in marked  # third row, one-based
    assert ((4, 4), (0, 1)) in marked
    assert ((0, 1), (5, 5)) in marked and len(marked) == 3


def test_margins_show_the_uncertainty_of_rows_and_columns(bayes, table):
    _, X = table
    figure = plots.identifiability(bayes)
    right, below = figure.axes[1], figure.axes[2]
    i, j = np.nonzero(np.isnan(X))
    _, std = bayes.predict(i, j, return_std=True)
    part = std / np.nanstd(X, axis=0)[j]
    dots = right.lines[0]
    assert dots.get_xdata()[5] == pytest.approx(part[i == 5].mean(), rel=1e-6)
    # A row without observed entries has, before calibration, that of the mean.
    assert (part / bayes.std_factors_[j])[i == 5].mean() > 0.8
    assert dots.get_xdata()[5] > 1.2 * np.nanmean(dots.get_xdata())
    assert below.lines[0].get_ydata()[2] == pytest.approx(part[j == 2].mean(), rel=1e-6)


def test_uncertainty_has_a_bar_for_every_incomplete_column(bayes, table):
    _, X = table
    figure = plots.uncertainty(bayes)
    i, j = np.nonzero(np.isnan(X))
    _, std = bayes.predict(i, j, return_std=True)
    part = std / np.nanstd(X, axis=0)[j]
    medians = sorted(float(np.median(part[j == k])) for k in np.unique(j))
    (dots,) = (li for li in figure.axes[0].lines if li.get_marker() == "o")
    np.testing.assert_allclose(dots.get_xdata(), medians, rtol=1e-6)
    whole = np.zeros(X.shape)
    whole[i, j] = std
    given = plots.uncertainty(whole, X)
    (again,) = (li for li in given.axes[0].lines if li.get_marker() == "o")
    np.testing.assert_allclose(again.get_xdata(), medians, rtol=1e-6)


def test_uncertainty_and_completion_of_invalid_input_raise(baseline, bayes, table):
    _, X = table
    with pytest.raises(ValueError, match="no imputed entry with a standard deviation"):
        plots.uncertainty(baseline)
    with pytest.raises(ValueError, match="is needed beside an array"):
        plots.uncertainty(X)
    for draw in (plots.uncertainty, lambda a, b: plots.completion(b, a)):
        with pytest.raises(ValueError, match="must have the shape of X"):
            draw(np.ones((2, 2)), X)


@pytest.mark.parametrize("margins", [False, True])
def test_log_axis_has_plain_numbers_and_margins(margins):
    ax = Figure().add_subplot()
    values = [2e-6, 0.5, 3.0]
    ax.plot(values, values)
    log_axis(ax, "y", values, margins=margins)
    log_axis(ax, "x", [1.0, 3.0], sparse_ticks=True)
    assert ax.get_yscale() == ax.get_xscale() == "log"
    write = ax.yaxis.get_major_formatter()
    assert [write(x) for x in (0.05, 3000.0, 1e-8)] == ["0.05", "3000", "1e-8"]
    low, high = ax.get_ylim()
    assert low < 2e-6 and high > 3.0
    assert not margins or high / low == pytest.approx(1.5e6 * (1.5e6**0.08) ** 2)


def test_completion_keeps_observed_cells(bayes, table):
    pd = pytest.importorskip("pandas")
    _, X = table
    frame = pd.DataFrame(X, columns=list("abcdef"))
    figure = plots.completion(frame, make_bayes().fit(frame))
    before, after, std = (ax.images[0].get_array() for ax in figure.axes[:3])
    known = ~np.isnan(X)
    np.testing.assert_array_equal(np.ma.getmaskarray(before), ~known)
    np.testing.assert_allclose(after[known], before.compressed())
    assert not np.ma.getmaskarray(after).any()
    np.testing.assert_array_equal(np.ma.getmaskarray(std), known)
    labels = [t.get_text() for t in figure.axes[0].get_xticklabels()]
    assert labels == list("abcdef")

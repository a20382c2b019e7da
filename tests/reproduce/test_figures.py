"""Tests of figures: drawn values and legibility."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb

from ncarl.plots import ImagePanel
from ncarl.plots.style import DPI
from ncarl.reproduce.figures import (
    OURS,
    draw_error_vs_neighbors,
    draw_error_vs_rate,
    draw_objectives,
    draw_picture_grid,
    draw_spectra,
    draw_table,
    draw_theorems,
    method_color,
)
from ncarl.reproduce.plan import load_plan
from ncarl.reproduce.summary import Entry
from ncarl.reproduce.theory import TheoremFacts

METHODS = ("Nuclear", "F-Nuclear", "S_1/2", "S_2/3", "WNNM", "RegL1", "FGSR", "LRFD",
           "S3LR", "NCARL", "NCARL (floor)", "BayesianNCARL", "SoftImpute",
           "row and column effects", "mean")  # fmt: skip


def entry(label="NCARL", missing=0.5, group="Image-1", **more):
    first = Entry("table2", "paper", label.lower(), label, f"{group}, {missing:g}",
                  group, missing, "done", error=0.1, seconds=2.0, seeds=5)  # fmt: skip
    return replace(first, **more)


def texts_of(figure):
    """All texts of a drawn figure."""
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [t.get_text() for t in found if t.get_visible() and t.get_text()]


def render(figure):
    """Draw a figure and return its renderer."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def boxes(renderer, artists):
    return [artist.get_window_extent(renderer) for artist in artists]


def assert_inside(figure):
    """Check that nothing of a figure is cut off, and return its renderer."""
    renderer = render(figure)
    tight = figure.get_tightbbox(renderer)
    assert min(tight.x0, tight.y0) > -0.01
    assert tight.x1 < figure.get_figwidth() + 0.01
    assert tight.y1 < figure.get_figheight() + 0.01
    return renderer


def shown_ticks(axis):
    """Labels of the ticks within the limits of an axis."""
    low, high = sorted(axis.get_view_interval())
    pairs = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label for place, label in pairs if low <= place <= high]


def points_of(ax, marker, filled):
    """Positions of single markers of a type, filled or hollow."""
    found = []
    for line in ax.lines:
        face = line.get_markerfacecolor()
        hollow = isinstance(face, str) and face in ("none", "white")
        if line.get_marker() == marker and hollow != filled:
            found += list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    return found


def test_methods_of_figure_4_differ_in_color_and_ncarl_is_darkest():
    def strength(method):
        channels = to_rgb(method_color(method))
        return max(channels) - min(channels)

    rows = {one.name for s in load_plan("fig4").settings for one in s.methods}
    assert {*OURS, "mean", "bias"} < rows
    assert len({method_color(name) for name in rows}) == len(rows)
    weakest = min(map(strength, OURS))
    assert all(strength(name) < weakest for name in rows.difference(OURS))
    assert strength("mean") == strength("bias") == 0.0
    assert method_color("my own", 1) != method_color("another", 2)


class TestPictures:
    def test_rows_may_differ_in_length_shape_and_mode(self):
        rng = np.random.default_rng(0)
        rows = [
            [
                ImagePanel(rng.random((32, 24)), f"picture {k}", "a note")
                for k in range(3)
            ],
            [ImagePanel(rng.random((24, 32, 3)), "color")],
        ]
        figure = draw_picture_grid(rows, credit="by nobody")
        assert len(figure.axes) == 4
        assert_inside(figure)
        assert "by nobody" in texts_of(figure)

    def test_long_titles_are_wrapped_and_do_not_overlap(self):
        image = np.zeros((20, 20))
        long = "parameters picked on held-out observed entries, relative error 0.1309"
        rows = [[ImagePanel(image, long, long), ImagePanel(image, long, long)]] * 2
        figure = draw_picture_grid(rows)
        renderer = assert_inside(figure)
        words = [t for ax in figure.axes for t in ax.texts]
        areas = boxes(renderer, words)
        pictures = boxes(renderer, figure.axes)
        for k, box in enumerate(areas):
            assert not any(box.overlaps(other) for other in areas[:k])
            assert not any(box.overlaps(picture) for picture in pictures)
        first = " ".join(t.get_text() for t in reversed(figure.axes[0].texts))
        assert first == f"{long} {long}"

    def test_a_pixel_is_a_whole_number_of_dots(self):
        figure = draw_picture_grid([[ImagePanel(np.zeros((320, 240)), "x")]])
        wide = figure.axes[0].get_position().width * figure.get_figwidth()
        assert wide * DPI == pytest.approx(480)

    def test_spectra_match_the_images(self):
        rng = np.random.default_rng(0)
        images = {"gray": rng.random((70, 60)), "color": rng.random((64, 80, 3))}
        assert_inside(draw_spectra({"black": np.zeros((12, 9))}))
        figure = draw_spectra(images, credit="by nobody")
        lines = [ax.lines[0] for ax in figure.axes if ax.lines]
        for line, image in zip(lines, images.values(), strict=True):
            values = image if image.ndim == 2 else image.sum(axis=2) / 3
            squares = np.linalg.eigvalsh(values @ values.T)[::-1]
            root = np.sqrt(np.maximum(squares, 0.0))
            np.testing.assert_allclose(line.get_ydata()[:50], root[:50] / root[0])
        energy = root**2 / np.sum(root**2)
        note = next(ax.texts[0] for ax in figure.axes[::-1] if ax.texts).get_text()
        assert f"20: {100 * energy[:20].sum():.2f}%" in note
        assert_inside(figure)

    def test_images_without_a_spectrum_raise(self):
        with pytest.raises(ValueError, match="no missing pixels, got some in 'holey'"):
            draw_spectra({"holey": np.array([[np.nan, 1.0], [0.0, 1.0]])})
        with pytest.raises(ValueError, match="one picture or more"):
            draw_spectra({})
        with pytest.raises(ValueError, match="one picture or more"):
            draw_picture_grid([[]])


class TestRates:
    def make_entries(self):
        made = [
            entry(name, rate, error=0.1 * k + rate, error_sd=0.01, seconds=3.0 * k)
            for k, name in enumerate(("NCARL", "Nuclear", "FGSR"), start=1)
            for rate in (0.7, 0.4, 0.5)
        ]
        made[0] = replace(made[0], printed=0.25, printed_seconds=260.0)
        made[3] = replace(made[3], status="over budget", printed_bound="> 3000")
        return made

    def test_lines_show_our_results_and_circles_the_printed_ones(self):
        figure = draw_error_vs_rate(self.make_entries(), title="MovieLens-1M")
        errors, seconds = figure.axes
        ncarl, nuclear, fgsr = (c.lines[0] for c in errors.containers)
        np.testing.assert_allclose(ncarl.get_xdata(), [0.4, 0.5, 0.7])
        np.testing.assert_allclose(ncarl.get_ydata(), [0.5, 0.6, 0.8])
        np.testing.assert_allclose(nuclear.get_xdata(), [0.4, 0.5])
        assert to_hex(ncarl.get_color()) == method_color("ncarl")
        assert points_of(errors, "o", filled=False) == [(0.7, 0.25)]
        assert points_of(errors, "^", filled=False) == [(0.7, pytest.approx(0.9))]
        assert points_of(seconds, "o", filled=False) == [(0.7, 260.0), (0.7, 3000.0)]
        assert seconds.get_yscale() == "log"
        assert len({line.get_marker() for line in (ncarl, nuclear, fgsr)}) == 3
        # Error bars need several seeds.
        some = [entry(error_sd=0.01, seeds=1), entry("FGSR", error_sd=0.01, seeds=2)]
        one, several = draw_error_vs_rate(some, title="x").axes[0].containers
        assert several.has_yerr and not one.has_yerr

    def test_legend_explains_markers_and_fits(self):
        figure = draw_error_vs_rate(self.make_entries(), title="MovieLens-1M")
        words = texts_of(figure)
        for said in ("printed in the paper", "over budget: value at the last step",
                     "with an arrow: printed as a lower bound", "FGSR"):  # fmt: skip
            assert said in words
        assert_inside(figure)
        plain = texts_of(draw_error_vs_rate([entry()], title="x"))
        assert not any("printed" in said or "budget" in said for said in plain)
        lost = entry("Nuclear", status="over budget", error=None, seconds=None)
        words = texts_of(draw_error_vs_rate([entry(), lost], title="x"))
        assert "Nuclear (over budget)" in words
        assert "over budget: value at the last step" not in words


class TestObjectives:
    def test_each_curve_has_its_own_panels_and_claim(self):
        slow, fast = [4.0, 2.0, 1.5, 1.5, 1.8], list(1e6 * 0.3 ** np.arange(40) + 1)
        figure = draw_objectives({"Image-1": slow, "ML-100K": fast}, claim=12)
        upper, other, lower, _ = figure.axes
        np.testing.assert_array_equal(upper.lines[0].get_ydata(), slow)
        change = lower.lines[0]
        np.testing.assert_array_equal(change.get_xdata(), [2, 3, 5])
        np.testing.assert_allclose(change.get_ydata(), [0.5, 0.25, 0.2])
        assert all(list(ax.lines[1].get_xdata()) == [12, 12] for ax in figure.axes)
        assert (upper.get_yscale(), other.get_yscale()) == ("linear", "log")
        assert lower.get_yscale() == "log"
        assert_inside(figure)

    def test_unusual_curves_are_drawn(self):
        curves = ([], [1.0], [1.0, 1.0], [-1.0, 0.0, 2.0])
        render(draw_objectives({str(curve): curve for curve in curves}))


class TestNeighbors:
    def test_best_values_of_ours_and_the_paper_are_marked(self):
        points = [(50, 0.27, None), (5, 0.30, None), (10, 0.26, None)]
        figure = draw_error_vs_neighbors({"A": points, "B": points}, {"A": 20})
        first, second = figure.axes
        np.testing.assert_array_equal(
            first.containers[0].lines[0].get_xdata(), [5, 10, 50]
        )
        assert points_of(first, "o", filled=False) == [(10, 0.26)]
        dashed = [line for line in first.lines if line.get_linestyle() == "--"]
        assert [list(line.get_xdata()) for line in dashed] == [[20, 20]]
        assert not [line for line in second.lines if line.get_linestyle() == "--"]
        labels = [t.get_text() for t in first.get_xticklabels()]
        assert labels == ["5", "10", "20", "50"]
        assert first.get_xscale() == "log"
        assert_inside(figure)

    def test_unused_panels_are_hidden(self):
        curves = {name: [(5, 0.3, 0.01), (10, 0.2, 0.01)] for name in "ABCDE"}
        figure = draw_error_vs_neighbors(curves, {})
        assert [ax.get_visible() for ax in figure.axes] == [True] * 5 + [False]
        assert_inside(figure)


class TestTables:
    def many_entries(self, count, rates, low=0.03):
        rng = np.random.default_rng(0)
        made = []
        for label, k, rate in product(METHODS, range(count), rates):
            error, seconds = rng.uniform(low, 0.5), 10 ** rng.uniform(-1, 3)
            more = {
                "error": error, "seconds": seconds, "error_sd": 0.01,
                "printed": error * 1.1, "printed_seconds": 2 * seconds,
            }  # fmt: skip
            if label == "LRFD" and k == 2:
                more = {
                    "status": "over budget", "error": None, "seconds": None,
                    "printed_bound": "> 3000",
                }  # fmt: skip
            made.append(entry(label, rate, f"data set {k}", **more))
        return made

    @pytest.mark.parametrize(
        ("count", "rates", "measure"),
        [
            (3, (0.8, 0.9), "error"),
            (3, (0.4, 0.5, 0.6, 0.7), "seconds"),
            (4, (0.5,), "narrow"),
        ],
    )
    def test_many_entries_are_readable(self, count, rates, measure):
        low, measure = (0.48, "error") if measure == "narrow" else (0.03, measure)
        made = self.many_entries(count, rates, low)
        figure = draw_table(made, measure=measure, title="Table: " + 30 * "x")
        renderer = assert_inside(figure)
        axes = figure.axes
        names = axes[0].get_yticklabels()
        assert [t.get_text() for t in names] == list(METHODS)
        areas = boxes(renderer, names)
        assert all(a.y0 > b.y1 for a, b in pairwise(areas))
        (legend,) = figure.legends
        below = boxes(renderer, [legend, *(ax.xaxis.label for ax in axes)])
        assert not any(below[0].overlaps(box) for box in below[1:])
        for ax in axes:
            ticks = shown_ticks(ax.xaxis)
            places = sorted(boxes(renderer, ticks), key=lambda box: box.x0)
            assert len(ticks) >= 2
            assert all(a.x1 < b.x0 for a, b in pairwise(places))

    def test_text_replaces_missing_values(self):
        figure = draw_table(self.many_entries(3, (0.8, 0.9)), title="x")
        renderer = render(figure)
        ax = figure.axes[2]
        (text,) = ax.texts
        assert text.get_text() == "over budget"
        assert text.get_position()[1] == METHODS.index("LRFD")
        (box,) = boxes(renderer, [text])
        first = min(x for line in ax.lines for x in line.get_xdata())
        assert ax.transData.transform((first, 0))[0] > box.x1
        assert not any(other.texts for other in (*figure.axes[:2], *figure.axes[3:]))
        # Also in a table without values.
        made = [entry(status="not run", error=None), entry("B", error=None)]
        figure = draw_table(made, title="x")
        render(figure)
        assert [t.get_text() for t in figure.axes[0].texts] == ["not run", "no value"]

    def test_dots_are_our_results_and_circles_the_printed_ones(self):
        made = [
            entry("A", 0.4, error=0.1, error_sd=0.02, printed=0.12),
            entry("A", 0.5, error=0.2, seeds=1, error_sd=0.02),
            entry("B", 0.4, error=0.15, status="over budget"),
        ]
        (ax,) = draw_table(made, title="x").axes
        ours = points_of(ax, "o", filled=True)
        assert [x for x, _ in ours] == [0.1, 0.2]
        assert ours[0][1] < 0 < ours[1][1] < 0.5  # both rates in the band of A
        assert points_of(ax, "o", filled=False) == [(0.12, ours[0][1])]
        ((x, y),) = points_of(ax, "^", filled=False)
        assert (x, round(y)) == (0.15, 1)
        bars = [line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2]
        assert len(bars) == 1
        np.testing.assert_allclose(bars[0], [0.08, 0.12])
        assert ax.get_ylim() == (1.5, -0.5)  # the first method is at the top
        assert ax.get_xscale() == "linear"

    def test_rates_have_colors_and_a_wide_range_a_log_axis(self):
        made = [entry("A", rate, error=rate) for rate in (0.04, 0.5, 0.6, 0.7)]
        (ax,) = draw_table(made, title="x").axes
        dots = [line for line in ax.lines if line.get_marker() == "o"]
        assert len({to_hex(line.get_color()) for line in dots}) == 4
        assert ax.get_xscale() == "log"

    def test_seconds_have_bounds_as_triangles(self):
        made = [entry("A", seconds=2.0, printed_bound="> 3000")]
        both = [*made, entry("B", seconds=2.0, printed_seconds=7.0)]
        (ax,) = draw_table(both, measure="seconds", title="x").axes
        assert [x for x, _ in points_of(ax, ">", filled=False)] == [3000.0]
        assert [x for x, _ in points_of(ax, "o", filled=False)] == [7.0]
        words = texts_of(draw_table(made, measure="seconds", title="x"))
        assert "printed as a lower bound" in words
        assert "printed in the paper" not in words


FACTS = TheoremFacts(
    ratios=(1.0, 1.5, 9.0), ratio_at_formula=1.0, singular=(1.0, 4.0),
    deltas=(1e-2, 1e-4), gradients=(3e-2, 3e-4), gradient_errors=(1e-12, 1e-9),
    steps=(5, 50), excess={"a": {"smooth": (0.1, -1e-9), "pinv": (0.2, 0.3)}},
)  # fmt: skip


def test_theory_figure_has_three_panels():
    figure = draw_theorems(FACTS)
    bound, step, limit = figure.axes
    np.testing.assert_array_equal(bound.lines[0].get_ydata(), FACTS.ratios)
    assert points_of(bound, "X", filled=True) == [(1, 0.25)]
    np.testing.assert_array_equal(step.lines[0].get_ydata(), FACTS.gradients)
    # Values below the tolerance are drawn at the tolerance on the log axis.
    np.testing.assert_array_equal(limit.lines[0].get_ydata(), [0.1, 1e-6])
    titles = [ax.get_title() for ax in figure.axes]
    assert [re.search(r"heorem (\d)", title)[1] for title in titles] == ["3", "4", "5"]
    assert_inside(figure)

"""Tests of ``ncarl demo``: printed numbers and figures."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from ncarl import plots
from ncarl.cli import demo
from ncarl.plots.style import MISSING_COLOR


@pytest.mark.thorough
def test_quick_demo_writes_figures_and_matching_numbers(ncarl, tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    (folder / "results.json").write_text("old")
    result = ncarl("demo", "--quick", "--out", folder)
    assert (folder / "mine.txt").read_text() == "mine"
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            image.load()
            assert min(image.size) > 300
    content = json.loads((folder / "results.json").read_text())
    for case in content["cases"]:
        errors = case["rmse_on_hidden"]
        assert list(errors) == ["mean", "two-way", "ncarl-cv", "bayes"]
        for method in ("ncarl-cv", "bayes"):
            assert errors[method] < errors["two-way"] < errors["mean"]
            assert case[method]["steps"] > 0 and case[method]["seconds"] > 0
        for error in errors.values():
            assert f"{error:.3f}" in result.stdout
        bayes = case["bayes"]
        assert bayes["interval_level"] == 0.9
        assert f"{bayes['hidden_in_interval']:.1%}" in result.stdout
        assert bayes["sides"] in ("columns", "rows", "both")
    table = content["cases"][2]
    assert abs(table["bayes"]["hidden_in_interval"] - 0.9) < 0.03
    assert table["rmse_on_hidden"]["bayes"] < table["rmse_on_hidden"]["ncarl-cv"]
    assert content["cases"][2]["shape"] == [569, 30]
    assert "Photograph" in content["credit"]


@pytest.fixture
def case():
    """A small table whose second column is in thousands."""
    truth = np.array([[1.0, 1000.0], [2.0, 3000.0], [3.0, 5000.0], [4.0, 7000.0]])
    hidden = np.zeros((4, 2), dtype=bool)
    hidden[0, 0] = hidden[3, 1] = True
    return demo.DemoCase("t", "a <table>", truth, hidden, ["a", "b"])


def test_errors_are_in_column_standard_deviations(case):
    # Standard deviations of the observed entries: 2, 3, 4 and 1000, 3000, 5000.
    a, b = np.std([2, 3, 4]), np.std([1000, 3000, 5000])
    wrong_where_seen = np.where(case.hidden, case.truth, 1e9)
    assert demo.hidden_rmse(case, wrong_where_seen) == 0.0
    off = case.truth + np.array([2 * a, 0.5 * b])
    expected = np.sqrt((2**2 + 0.5**2) / 2)
    assert demo.hidden_rmse(case, off) == pytest.approx(expected)


def test_baselines_do_not_use_held_out_entries(case):
    changed = np.where(case.hidden, -77.0, case.truth)
    other = demo.DemoCase("t", "t", changed, case.hidden, ["a", "b"])
    for fill in (demo.mean_fill, demo.two_way_fill):
        np.testing.assert_array_equal(fill(case), fill(other))
    np.testing.assert_allclose(demo.mean_fill(case)[0], [3.0, 3000.0])


def test_table_is_independent_of_the_image_size():
    quick, full = demo.make_cases(True, 1), demo.make_cases(False, 1)
    np.testing.assert_array_equal(quick[2].hidden, full[2].hidden)
    assert full[0].truth.shape == (213, 320) and full[1].hidden.sum() == 50 * 50
    assert not np.array_equal(full[0].hidden, demo.make_cases(False, 2)[0].hidden)


def test_every_written_file_is_printed(ncarl, tmp_path, monkeypatch):
    X, hidden = np.random.default_rng(0).random((12, 4)), np.zeros((12, 4), dtype=bool)
    hidden[::3, 0] = True
    table = demo.DemoCase("t", "a <table>", X, hidden, list("abcd"))
    photo = demo.DemoCase("p", "photo", X, hidden)
    monkeypatch.setattr(demo, "make_cases", lambda quick, seed: [table, photo])
    build = demo.build_estimator
    monkeypatch.setattr(
        demo, "build_estimator", lambda *a, **k: build(*a, **k).set_params(max_iter=2)
    )
    out, page = tmp_path / "new" / "out", tmp_path / "page.html"
    said = ncarl("demo", "--out", out, "--report", page).stdout
    files = {path.name for path in out.iterdir()}
    assert files == {
        "t-intervals.png", "t-correlation.png", "p.png", "p-correlation.png",
        "convergence.png", "results.json",
    }  # fmt: skip
    assert all(f"  {name}\n" in said for name in files)
    assert "* not converged within the allowed steps" in said
    html = page.read_text(encoding="utf-8")
    assert html.count("data:image/png;base64,") == 5
    assert "a &lt;table&gt;: learned correlation of its" in html


def test_missing_pixels_have_a_distinct_color(tmp_path):
    image = np.full((20, 30), 0.5)
    image[:, 15:] = np.nan
    path = plots.save_figure(
        plots.before_after([plots.ImagePanel(image, "t")]), tmp_path / "p.png"
    )
    with Image.open(path) as picture:
        colors = {c: n for n, c in picture.convert("RGB").getcolors(1 << 20)}
    gap = tuple(int(MISSING_COLOR[k : k + 2], 16) for k in (1, 3, 5))
    # Integer number of dots per pixel: no color is blended.
    assert colors[gap] == colors[(127, 127, 127)] == 300 * 400


def test_color_pictures_are_drawn_too():
    image = np.random.default_rng(0).random((8, 9, 3))
    image[2, 3, 1] = np.nan
    painted = (
        plots.before_after([plots.ImagePanel(image, "t")]).axes[0].images[0].get_array()
    )
    np.testing.assert_array_equal(painted[0, 0], image[0, 0])
    assert np.isfinite(np.asarray(painted)).all()


def test_convergence_plot_shows_every_finite_step():
    figure = plots.convergence({"a": np.array([np.inf, 1e-1, 1e-3])}, tol=1e-2)
    (ax,) = figure.axes
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [2, 3])
    assert ax.get_yscale() == "log" and ax.get_ylim()[0] < 1e-2


def test_map_labels_columns_if_there_is_room():
    ax = plots.similarity_map(np.eye(3), title="t", names=["x", "y", "z"]).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x", "y", "z"]
    many = plots.similarity_map(np.eye(50), title="t", names=["n"] * 50, axis="column")
    assert many.axes[0].get_xlabel() == "column"


@pytest.mark.parametrize(("entry", "limits"), [(-0.5, (-1, 1)), (0.2, (0, 1))])
def test_map_of_both_signs_is_centered_at_zero(entry, limits):
    S = np.array([[1.0, entry], [entry, 1.0]])
    image = plots.similarity_map(S, title="t", vmax=1.0).axes[0].images[0]
    assert image.get_clim() == limits


def test_error_bars_show_every_entry_and_count_misses():
    truth = np.array([0.0, 1.0, 2.0])
    figure = plots.error_bars(
        truth, truth + 0.5, truth - [1, 1, -0.1], truth + 1, title="t", unit="u"
    )
    (ax,) = figure.axes
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["interval holds the truth: 2", "interval misses it: 1"]
    assert ax.get_xlabel() == "truth (u)" and ax.get_ylabel() == "filled (u)"
    low, high = ax.get_ylim()
    assert low < -1 and high > 3

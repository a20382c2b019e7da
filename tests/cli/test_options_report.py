"""Tests of ``--report``: HTML reports of all commands."""

from __future__ import annotations

import os
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ncarl.cli.complete_report import compute_stream_overview, pooled_std
from ncarl.cli.console import check_report_path, command_line
from ncarl.evaluation import comparison as comparing
from ncarl.evaluation.comparison import FitOutcome
from ncarl.html import Page
from ncarl.observations import Observations
from ncarl.reproduce import report as publishing
from ncarl.reproduce.report import PublishedStudy

NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$x$ and $\\frac{1}{0}$",
    "n" * 10_000,
    "שלום עולם",
    "名前\u202eabc",
]
# fmt: off
QUICK = ("--max-iter", "6", "--tol", "0", "--prior-strength", "0.1",
         "--sides", "columns")
# fmt: on


@pytest.fixture(scope="module")
def matrix():
    """An incomplete matrix of rank one; the fourth row is empty."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.standard_normal(40), [1.0, 2.0, -3.0, 4.0, 50.0, 6.0])
    X += 0.2 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[3] = np.nan
    X[7, 1:] = np.nan
    X[7, 0] = 1.0
    return X


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, matrix):
    """The table as a file with unusual column names."""
    path = tmp_path_factory.mktemp("data") / "a <b> & $c$.csv"
    pd.DataFrame(matrix, columns=NAMES).to_csv(path, index=False, float_format="%.5f")
    return path


def check_page(path):
    """Check that a page has no scripts; return its text and number of images."""
    html = path.read_text(encoding="utf-8")
    assert "<script" not in html and "<img src=x" not in html
    return html, html.count('src="data:image/png;base64,')


@pytest.mark.parametrize(
    ("method", "options", "pictures"),
    [
        ("bayes", QUICK, 7),
        ("bayes", (*QUICK, "--stream"), 7),
        ("ncarl", ("--max-iter", "4", "--tol", "0"), 5),
        ("nuclear", ("--max-iter", "30", "--tol", "0"), 5),
        ("bias", (), 5),
    ],
)
def test_complete_writes_a_report_for_every_method(
    ncarl, hostile, tmp_path, method, options, pictures
):
    page, out = tmp_path / "p.html", tmp_path / "out.csv"
    result = ncarl("complete", hostile, "-o", out, "--method", method, *options,
                   "--report", page)  # fmt: skip
    assert "p.html" in result.stdout and out.exists()
    html, found = check_page(page)
    assert found == pictures and "Not drawn" not in html
    assert "a &lt;b&gt; &amp; $c$.csv, completed" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "No entry is observed in 1 row (4)" in html
    assert "Only one entry is observed in 1 row (8)" in html
    assert html.index('class="lead"') < html.index("<figure>") < html.index("Details")
    lead = html.split('class="lead">')[1].split("</p>")[0]
    said = "ncarl evaluate measures them" in lead
    assert said == (method != "bayes") and ("held out were predicted" in lead) != said


def test_complete_table_has_a_report(ncarl, tmp_path):
    path, page = tmp_path / "x.csv", tmp_path / "p.html"
    path.write_text("a,b\n1,2\n3,4\n")
    ncarl("complete", path, "-o", tmp_path / "out.csv", "--report", page)
    html, pictures = check_page(page)
    assert "Nothing was missing" in html and pictures == 0


@pytest.fixture
def no_figures(monkeypatch):
    """Skip the figures of reports to save time."""
    monkeypatch.setattr("ncarl.cli.complete_report._add_figures", lambda *_: None)


def test_quiet_prints_nothing_and_replaces_an_old_report(
    ncarl, hostile, tmp_path, no_figures
):
    page = tmp_path / "p.html"
    Page("old").save(page)
    result = ncarl("complete", hostile, "-o", tmp_path / "o.csv", "--method", "bias",
                   "--quiet", "--report", page)  # fmt: skip
    assert result.stdout == "" and "<h1>old" not in page.read_text(encoding="utf-8")


def test_unwritable_report_fails_before_the_fit(fails, hostile, tmp_path):
    out = tmp_path / "o.csv"
    mine = tmp_path / "mine.html"
    mine.write_text("<!DOCTYPE html>my notes")
    for path, words in (
        (tmp_path / "p.txt", "--report must end in .html"),
        (mine, "is not a page of ncarl"),
        (tmp_path / "no" / "p.html", "does not exist; create it"),
    ):
        assert words in fails("complete", hostile, "-o", out, "--report", path)
    assert not out.exists() and mine.read_text() == "<!DOCTYPE html>my notes"
    check_report_path(None)


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    "words",
    [
        "complete in.csv -o x.csv --report",
        "evaluate in.csv --json",
        "evaluate in.csv --report",
        "compare in.csv --report",
        "recommend ratings.csv --user 1 --out",
        "recommend ratings.csv --save-model",
        "recommend ratings.csv --user 1 --report",
        "inpaint dots.png --missing random:0.1 -o",
        "inpaint dots.png --missing random:0.1 --before-after",
        "inpaint dots.png --missing random:0.1 --report",
        "demo --report",
        "reproduce table1 --quick --report",
        "compare in.csv --out",
        "demo --out",
        "reproduce table1 --quick --out",
    ],
)
def test_special_files_are_refused_before_the_work(fails, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("a,b\n1,2\n3,\n")
    (tmp_path / "ratings.csv").write_text("user,item,rating\n1,1,5\n1,2,4\n")
    Image.new("L", (8, 8)).save(tmp_path / "dots.png")
    suffixes = {"--report": ".html", "--json": ".json", "-o": ".png",
                "--before-after": ".png"}  # fmt: skip
    command, *_, flag = words.split()
    fifo = tmp_path / f"fifo{suffixes.get(flag, '.csv')}"
    if flag == "--out" and command != "recommend":
        names = {"compare": "compare.json", "demo": "convergence.png"}
        fifo = tmp_path / "out" / names.get(command, "results.csv")
        fifo.parent.mkdir()
        os.mkfifo(fifo)
        link, said = "out", f"--out ({fifo.name}) '{fifo.relative_to(tmp_path)}'"
    else:
        os.mkfifo(fifo)
        link = f"link{fifo.suffix}"
        (tmp_path / link).symlink_to(fifo)
        said = f"{'OUT' if flag == '-o' else flag} '{link}'"
    more = ["--overwrite"] if command in ("evaluate", "recommend", "inpaint") else []
    assert f"{said} is a FIFO, and is not replaced" in fails(
        *words.split(), link, *more
    )
    assert fifo.is_fifo()


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("words", "name"),
    [("compare in.csv", "compare.csv"), ("demo", "results.json"), ("demo", "a.png")],
)
def test_links_to_nowhere_in_a_folder_are_refused_before_the_work(
    fails, tmp_path, monkeypatch, words, name
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("a,b\n1,2\n3,\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to("nowhere")
    assert "is a link that leads to no file" in fails(*words.split(), "--out", "out")


def test_column_table_matches_the_imputed_entries(
    ncarl, hostile, matrix, tmp_path, no_figures
):
    page, out, std = (tmp_path / name for name in ("p.html", "o.csv", "s.csv"))
    ncarl("complete", hostile, "-o", out, "--std", std, *QUICK, "--report", page)
    filled, deviations = (pd.read_csv(path).to_numpy() for path in (out, std))
    gaps = np.isnan(matrix) & ~np.isnan(filled)  # the empty row stays empty
    html, _ = check_page(page)
    rows = re.findall(r'class="row"[^>]*>(.*?)</th>((?:<td>.*?</td>)+)</tr>', html)
    cells = {name: re.findall("<td>(.*?)</td>", rest) for name, rest in rows}
    found = cells["&lt;script&gt;alert(1)&lt;/script&gt;"]
    missing, known, mean, _, sd, _ = found
    assert int(missing) == np.isnan(matrix[:, 0]).sum()
    assert float(known) == pytest.approx(np.nanmean(matrix[:, 0]), rel=1e-3)
    assert float(mean) == pytest.approx(filled[gaps[:, 0], 0].mean(), rel=1e-3)
    assert float(sd) == pytest.approx(deviations[gaps[:, 0], 0].mean(), rel=1e-3)


def test_stream_overview_covers_all_rows_and_samples_evenly(matrix):
    whole = Observations.from_dense(matrix)
    chunks = [
        Observations.from_dense(matrix[:13]),
        Observations.from_dense(matrix[13:]),
    ]
    pattern, sample = compute_stream_overview(chunks, matrix.shape, max_rows=9)
    assert sample.shape[0] == 9
    np.testing.assert_array_equal(
        pattern.column_counts, (~np.isnan(matrix)).sum(axis=0)
    )
    rows = np.linspace(0, 39, 9).round().astype(int)
    np.testing.assert_array_equal(sample.values, whole.take_rows(rows).values)


def test_pooled_std_is_the_error_of_column_means(matrix):
    off = (matrix - np.nanmean(matrix, axis=0))[~np.isnan(matrix)]
    found = pooled_std(Observations.from_dense(matrix))
    assert found == pytest.approx(np.sqrt(np.mean(off**2)))
    assert pooled_std(Observations.from_dense(np.ones((3, 2)))) == 0.0


def test_compare_writes_a_report(ncarl, hostile, tmp_path, monkeypatch):
    fit = FitOutcome("bias", 0, error=0.5, seconds=0.1, message="<odd>")
    monkeypatch.setattr(comparing, "run_fits", lambda wanted, jobs, heard: [fit])
    page = tmp_path / "p.html"
    result = ncarl("compare", hostile, "--methods", "bias", "--repeats", 1, "--report",
                   page)  # fmt: skip
    assert "p.html" in result.stdout
    html, pictures = check_page(page)
    assert pictures == 1 and "Recommended: bias" in html and "ncarl complete" in html
    assert (
        "Warning: standard errors over the rows of a single split" in html
        and "&lt;odd&gt;" in html
    )


def test_reproduce_writes_its_report_to_the_given_path(ncarl, tmp_path, monkeypatch):
    out, page = tmp_path / "study", tmp_path / "p.html"

    def publish(plans, store, protocols, *, quick):
        (store.folder / "report.html").write_text("<!DOCTYPE html>a study")
        return PublishedStudy((store.folder / "report.html",), {}, [])

    monkeypatch.setattr(publishing, "publish", publish)
    result = ncarl("reproduce", "fig1", "--quick", "--no-run", "--out", out, "--report",
                   page)  # fmt: skip
    assert page.read_bytes() == (out / "report.html").read_bytes()
    assert "p.html" in result.stdout


def test_command_line_is_shown_with_quoting(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/ncarl", "complete", "my <a>.csv"])
    assert command_line() == "ncarl complete 'my <a>.csv'"
    monkeypatch.setattr("sys.argv", ["pytest", "secret"])
    assert command_line() == ""

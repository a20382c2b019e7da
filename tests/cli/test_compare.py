"""Tests of ``ncarl compare``: end-to-end runs, errors, output, next command."""

from __future__ import annotations

import inspect
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ncarl.cli.compare import (
    compare,
    decide_scales,
    footnote,
    next_command,
    print_comparison,
    print_methods,
)
from ncarl.containers import as_observations
from ncarl.evaluation import comparison as machinery
from ncarl.evaluation.comparison import (
    Comparison,
    ComparisonPlan,
    FitOutcome,
    recommend_method,
    summarize_fits,
)
from ncarl.evaluation.measure import FAILED, OVER_BUDGET
from ncarl.io.tables import ReadOptions, read_table
from ncarl.registry import METHODS, TABLE_IMPUTERS

HOSTILE = ["[bold]x[/bold]", '"a;""b"""', "=1+1", "../../up", "ünï\u202ecode", "[/]"]


@pytest.fixture
def hostile(tmp_path, rng):
    """CSV file of a rank-one table with unusual column names."""
    X = np.outer(rng.standard_normal(20), [1, -1, 1, -1, 1]) + 0.01 * rng.random(
        (20, 5)
    )
    X[rng.random(X.shape) < 0.15] = np.nan
    lines = [";".join(HOSTILE)]
    for i, row in enumerate(X):
        cells = ["gone" if np.isnan(v) else f"{v:.6f}" for v in row]
        lines.append(";".join([f"[red]row {i}", *cells]))
    path = tmp_path / "my [table].csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def requests(monkeypatch):
    """Replace fitting by recording the requested fits."""
    asked = []
    monkeypatch.setattr(
        machinery, "run_fits", lambda wanted, jobs, heard: asked.extend(wanted) or []
    )
    return asked


def test_printed_next_command_completes_the_table(ncarl, hostile, tmp_path):
    out = tmp_path / "deep" / "out"
    result = ncarl("compare", hostile, "--methods", "bias,nuclear", "--hide", 0.2,
                   "--repeats", 2, "--engine", "threads", "--jobs", 2, "--na", "gone",
                   "--seed", 3, "--out", out)  # fmt: skip
    said = result.stdout
    for part in ("20 x 5", "not used: [bold]x[/bold]", "2 times", "mean", "bias",
                 "nuclear", "recommended", "2 of 2", "do not compare times", "threads",
                 "compare.csv, compare.json, compare.png"):  # fmt: skip
        assert part in said
    assert sorted(path.name for path in out.iterdir()) == [
        *("compare.csv", "compare.json", "compare.png")
    ]
    content = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    errors = {line["method"]: line["error"] for line in content["lines"]}
    # Rows are multiples of each other: rank one is exact, additive effects fail.
    assert errors["nuclear"] < 0.5 * min(errors["bias"], errors["mean"])
    assert [len(line["fits"]) for line in content["lines"]] == [2, 2, 2]
    assert content["recommendation"]["method"] == "nuclear"
    assert content["next"] in said
    words = shlex.split(content["next"])
    assert words[0] == "ncarl"
    ncarl(*words[1:])
    filled = tmp_path / "my [table]-filled.csv"
    assert "gone" not in filled.read_text(encoding="utf-8")
    assert not list(tmp_path.glob("ncarl-compare-*"))


def test_default_options_match_the_library():
    given = inspect.signature(compare).parameters
    assert (given["hide"].default, given["repeats"].default) == (0.1, 3)
    plan = ComparisonPlan()
    for name in ("methods", "hide", "repeats", "pattern", "budget", "jobs", "engine"):
        assert given[name].default == getattr(plan, name)


def test_comparison_without_completed_fits_recommends_nothing(
    ncarl, tmp_path, rng, requests
):
    path = tmp_path / "in.npy"
    np.save(path, rng.standard_normal((20, 9)))
    said = ncarl("compare", path, expect=1).stdout
    assert "20 x 9, 0 missing" in said and "18 of 180 observed entries, 3 times" in said
    assert len(requests) == 3 * (5 + len(TABLE_IMPUTERS))
    assert "no method was done" in said and "ncarl complete" not in said


def test_scales_match_those_of_the_complete_command(tmp_path, rng):
    wide = rng.standard_normal((20, 1001)) * np.linspace(1, 100, 1001)
    path = tmp_path / "wide.csv"
    np.savetxt(path, wide, delimiter=",", header=",".join(f"c{j}" for j in range(1001)),
               comments="")  # fmt: skip
    table = read_table(path, ReadOptions())
    plan = ComparisonPlan("all").with_methods(as_observations(wide)).methods
    found = decide_scales(plan, "auto", table)
    assert set(found) == {*METHODS, *TABLE_IMPUTERS}
    assert [name for name, scale in found.items() if scale is None] == [
        *("ncarl-cv", "ncarl")
    ]
    assert set(decide_scales(plan, "none", table).values()) == {None}
    assert set(decide_scales(plan, "columns", table).values()) == {"columns"}


@pytest.mark.parametrize(
    "options, words",
    [
        (("--methods", "bayes,sofd-impute"), "did you mean 'soft-impute'?"),
        (("--hide", "0.01"), "hide a larger share"),
        (("--seed", "-1"), "--seed must be a whole number of at least 0"),
        (("--budget", "0"), "budget must be a finite number above 0"),
        (("--array", "X"), "--array does not apply to CSV files"),
        (("--label", "none such"), "--label 'none such' is not a column"),
    ],
)
def test_invalid_options_give_a_one_line_error(fails, csv, requests, options, words):
    assert words in fails("compare", csv, *options)
    assert not requests


def test_invalid_paths_give_a_one_line_error(fails, csv, tmp_path, requests):
    assert "is a file; name a folder" in fails("compare", csv, "--out", csv)
    missing = tmp_path / "none.csv"
    out = tmp_path / "out"
    assert "No such file" in fails("compare", missing, "--out", out)
    assert not out.exists()
    assert "format" in fails("compare", tmp_path)
    own = tmp_path / "compare.csv"
    csv.rename(own)
    assert "is the file of DATA" in fails("compare", own, "--out", tmp_path)
    assert "a,b,c,d,e" in own.read_text()
    assert not requests


def test_unknown_choices_are_usage_errors(ncarl, csv):
    for options in (("--pattern", "x"), ("--engine", "gpu"), ("--scale", "rows")):
        ncarl("compare", csv, *options, expect=2)


# --- output --------------------------------------------------------------------------


@pytest.fixture
def comparison():
    """An artificial comparison with every kind of result."""
    fits = [
        FitOutcome("bayes", 0, error=0.5, seconds=12.0, coverage=0.91, converged=True),
        FitOutcome("bayes", 1, error=0.6, seconds=14.0, coverage=0.89, converged=False),
        FitOutcome(
            "ncarl-cv", 0, error=0.51, seconds=1.0, memory_gb=0.3, converged=True
        ),
        FitOutcome(
            "ncarl-cv", 1, error=0.595, seconds=1.0, memory_gb=0.4, converged=True
        ),
        FitOutcome("nuclear", 0, OVER_BUDGET, error=0.7, message="stopped after 120 s"),
        FitOutcome("fgsr", 0, FAILED, message="ValueError: [bold]no[/bold]"),
        FitOutcome("mean", 0, error=1.0),
        FitOutcome("mean", 1, error=1.1),
    ]
    lines = summarize_fits(fits)
    advice = recommend_method(lines, by_column=False)
    return Comparison(ComparisonPlan(repeats=2), (30, 8), 190, (19, 20), lines, advice)


def test_table_lists_results_and_status(comparison, capsys):
    print_methods(comparison)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:-1]]
    assert rows == [
        ["bayes", "0.5500", "0.071", "90.0%", "13", "-", "1", "of", "2", "recommended"],
        ["ncarl-cv", "0.5525", "0.06", "-", "1", "0.40", "2", "of", "2", "tied"],
        ["nuclear", "0.7000", "-", "-", "-", "-", "-", "over", "budget"],
        ["mean", "1.050", "0.071", "-", "-", "-", "-"],
        ["fgsr", "-", "-", "-", "-", "-", "-", "failed"],
    ]


def test_markup_in_names_and_messages_is_printed_verbatim(comparison, hostile, capsys):
    table = read_table(hostile, ReadOptions(na=["gone"]))
    print_comparison(comparison, table, "ncarl complete [x]")
    printed = capsys.readouterr()
    assert "fgsr: failed: ValueError: [bold]no[/bold]" in printed.out
    assert (
        "19 to 20 of 190 observed entries, 2 times, in the missing-data pattern"
        in printed.out
    )
    assert "not distinguished from ncarl-cv; ncarl-cv is 13 times" in printed.out
    assert "Tied methods are not distinguished from the best" in printed.out
    assert "ncarl complete [x]" in printed.out
    assert "warning: 1 of 2 fits of bayes did not converge" in printed.err


def test_ascii_terminal_gets_ascii_output(comparison, csv, capsys, monkeypatch):
    monkeypatch.setattr(Console, "encoding", property(lambda self: "ascii"))
    print_comparison(comparison, read_table(csv, ReadOptions()), "ncarl complete ü.csv")
    out = capsys.readouterr().out
    assert "(+/- 0.071)" in out and "ncarl complete ?.csv" in out


# --- next command --------------------------------------------------------------------


def test_next_command_repeats_the_given_options(comparison):
    reading = ReadOptions(("-99", "n a"), ("the id",), False, ";", None)
    plan = replace(comparison.plan, random_state=7, engine="threads")
    text = next_command(
        Path("-my data.csv.gz"), reading, replace(comparison, plan=plan), "none"
    )
    assert shlex.split(text) == [
        *("ncarl", "complete", "./-my data.csv.gz", "-o", "./-my data-filled.csv.gz"),
        *("--method", "bayes", "--seed", "7", "--engine", "threads"),
        *("--scale", "none", "--na=-99", "--na=n a", "--label=the id", "--no-header"),
        "--delimiter=;",
    ]
    plain = next_command(Path("a/X.NPZ"), ReadOptions(array="X"), comparison, "auto")
    assert plain == "ncarl complete a/X.NPZ -o a/X-filled.NPZ --method bayes --array=X"


def test_recommended_imputer_gives_python_code(comparison):
    advice = replace(comparison.recommendation, method="knn-imputer")
    found = replace(comparison, recommendation=advice)
    text = next_command(Path("a.csv"), ReadOptions(), found, "auto")
    assert text == "in Python: sklearn.impute.KNNImputer() on standardized columns"


def test_imputers_that_cannot_run_are_left_out_or_an_error(
    ncarl, fails, tmp_path, rng, requests
):
    X = rng.standard_normal((60, 30))
    X[rng.random(X.shape) < 0.94] = np.nan
    path = tmp_path / "sparse.npy"
    np.save(path, X)
    said = " ".join(ncarl("compare", path, "--hide", 0.3, expect=1).stdout.split())
    assert "left out table-imputer, simple-imputer, knn-imputer, " in said
    assert "chained-forests: only " in said and "of its cells are observed" in said
    assert len(requests) == 15
    words = fails("compare", path, "--methods", "bias,table-imputer", "--hide", 0.3)
    assert "table-imputer cannot be fitted to this matrix" in words


def test_no_next_command_without_recommendation(comparison):
    nothing = replace(comparison, recommendation=recommend_method([], by_column=False))
    assert next_command(Path("a.csv"), ReadOptions(), nothing, "auto") is None
    assert footnote(nothing).startswith("Errors are root mean squared errors")

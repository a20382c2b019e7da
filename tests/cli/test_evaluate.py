"""Tests of ``ncarl evaluate``: errors, interval coverage, recommendations."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ncarl.cli.evaluate import (
    VERDICTS,
    describe_accuracy,
    describe_advice,
    evaluation_warnings,
)
from ncarl.containers import as_observations
from ncarl.evaluation import comparison as comparing, evaluation as machinery
from ncarl.evaluation.comparison import (
    ComparisonPlan,
    FitOutcome,
    MethodSummary,
    Recommendation,
    default_parameters,
    draw_holdout_masks,
    fit_one,
)
from ncarl.evaluation.evaluation import (
    INTERVAL_LEVELS,
    Evaluation,
    SplitPredictions,
    evaluate,
)
from ncarl.evaluation.outputs import draw_columns

HOSTILE = ["[bold]a", "<script>", "$x$", "n" * 300, "e"]


@pytest.fixture(scope="module")
def matrix():
    """Four proportional columns in different units, and one of noise."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.standard_normal(60), [1.0, -2.0, 30.0, 1.0, 0.0])
    X += 0.1 * rng.standard_normal(X.shape) * [1.0, 2.0, 30.0, 1.0, 10.0]
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


@pytest.fixture(scope="module")
def evaluation(matrix):
    """An evaluation of the default method with few steps."""

    def few_steps(method, **asked):
        few = {"prior_strength": 0.1, "sides": "columns", "max_iter": 10, "tol": 0.0}
        return {**default_parameters(method, **asked), **few}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machinery, "default_parameters", few_steps)
        return evaluate(
            matrix, hide=0.15, repeats=2, scale="columns", others=(), names=HOSTILE
        )


@pytest.fixture
def table(tmp_path, matrix):
    """The matrix as a CSV file with unusual column names."""
    path = tmp_path / "my table.csv"
    pd.DataFrame(matrix, columns=HOSTILE).to_csv(path, index=False, float_format="%.6f")
    return path


@pytest.fixture
def run_fits_in_process(monkeypatch):
    """Run the fits of a comparison in this process."""

    def run_fits(wanted, jobs, heard):
        fits = [FitOutcome(**fit_one(payload)) for payload in wanted]
        for fit in fits:
            heard(fit)
        return fits

    monkeypatch.setattr(comparing, "run_fits", run_fits)


@pytest.fixture
def requests(monkeypatch, evaluation):
    """Replace the evaluation by a precomputed one and record the requests."""
    asked = []

    def run_evaluation(plan, observed, others, names, progress):
        asked.append((plan, others, names))
        return evaluation

    monkeypatch.setattr("ncarl.cli.evaluate.run_evaluation", run_evaluation)
    return asked


def test_title_counts_only_columns_that_vary(evaluation, monkeypatch):
    n, scores = len(HOSTILE), evaluation.columns
    constant = replace(scores[0], standardized_error=None)
    shown = SimpleNamespace(method="bayes", columns=(*scores, constant))
    for most, part in ((n, "(hollow)"), (2, f"; the 2 largest of {n}")):
        monkeypatch.setattr("ncarl.evaluation.outputs.MAX_DRAWN_COLUMNS", most)
        assert draw_columns(shown).axes[0].get_title().endswith(part)


def test_errors_are_those_of_held_out_entries(matrix, evaluation):
    plan = ComparisonPlan(["bayes"], 0.15, 2, scale="columns")
    observed = as_observations(matrix)
    masks = draw_holdout_masks(plan, observed, np.ones(5))
    spread = np.nanstd(matrix, axis=0)
    np.testing.assert_allclose(evaluation.column_stds, spread)
    errors, means = [], []
    for part, mask in zip(evaluation.split_predictions, masks, strict=True):
        i, j = observed.rows[mask], observed.indices[mask]
        np.testing.assert_array_equal(part.truth, matrix[i, j])
        seen = matrix.copy()
        seen[i, j] = np.nan
        np.testing.assert_allclose(part.mean, np.nanmean(seen, axis=0)[j])
        errors.append(np.sqrt(np.mean(((part.guess - part.truth) / spread[j]) ** 2)))
        means.append(np.sqrt(np.mean(((part.mean - part.truth) / spread[j]) ** 2)))
    own, usual = evaluation.standardized_error
    assert own == pytest.approx(np.mean(errors))
    assert usual == pytest.approx(np.mean(means))
    assert evaluation.standardized_error_std == pytest.approx(np.std(errors, ddof=1))
    assert evaluation.explained_fraction == pytest.approx(1 - (own / usual) ** 2)


def test_held_out_values_do_not_affect_predictions(matrix, monkeypatch):
    first = evaluate(matrix, "bias", repeats=1, others=())
    (part,) = first.split_predictions
    # Held out in spite of their other values.
    observed = as_observations(matrix)
    hidden = np.zeros(matrix.shape, dtype=bool)
    hidden[part.rows, part.columns] = True
    masks = [hidden[observed.rows, observed.indices]]
    monkeypatch.setattr(machinery, "draw_holdout_masks", lambda *given: masks)
    changed = matrix.copy()
    changed[part.rows, part.columns] += 1000.0
    (again,) = evaluate(changed, "bias", repeats=1, others=()).split_predictions
    np.testing.assert_array_equal(part.guess, again.guess)
    np.testing.assert_array_equal(part.mean, again.mean)


def test_errors_are_weighted_by_missing_entries_per_column(matrix, evaluation):
    gaps = np.isnan(matrix).sum(axis=0)
    np.testing.assert_array_equal(evaluation.n_missing, gaps)
    by_column = {one.column: one.standardized_error for one in evaluation.columns}
    squares = [by_column[j] ** 2 for j, count in enumerate(gaps) for _ in range(count)]
    assert evaluation.error_on_missing == pytest.approx(np.sqrt(np.mean(squares)))
    full = evaluate(np.nan_to_num(matrix), "bias", repeats=1, others=())
    assert full.error_on_missing is None


def test_columns_are_scored_and_sorted_by_error(evaluation):
    whole = evaluation.pooled_predictions
    errors = [one.standardized_error for one in evaluation.columns]
    assert errors == sorted(errors, reverse=True)
    assert evaluation.columns[0].name == "e"  # independent of the others
    assert (
        evaluation.columns[0].explained < 0.3 < 0.8 < evaluation.columns[-1].explained
    )
    for one in evaluation.columns:
        some = whole.columns == one.column
        off = whole.guess[some] - whole.truth[some]
        mean_off = whole.mean[some] - whole.truth[some]
        assert one.hidden == some.sum() and one.name == HOSTILE[one.column]
        assert one.error == pytest.approx(np.sqrt(np.mean(off**2)))
        expected = 1 - np.sum(off**2) / np.sum(mean_off**2)
        assert one.explained == pytest.approx(expected)
        low, high = whole.intervals[0.9]
        inside = (whole.truth >= low) & (whole.truth <= high)
        assert one.coverage == pytest.approx(inside[some].mean())


def test_coverage_and_width_of_intervals(evaluation):
    assert tuple(one.level for one in evaluation.levels) == INTERVAL_LEVELS
    held = [one.coverage for one in evaluation.levels]
    widths = [one.standardized_width for one in evaluation.levels]
    assert held == sorted(held) and widths == sorted(widths)
    whole = evaluation.pooled_predictions
    for one in evaluation.levels:
        low, high = whole.intervals[one.level]
        assert one.coverage == np.mean((whole.truth >= low) & (whole.truth <= high))
        wide = (high - low) / evaluation.column_stds[whole.columns]
        assert one.standardized_width == pytest.approx(wide.mean())
    assert abs(held[2] - 0.9) < 0.12


def test_methods_are_compared_on_the_same_entries(matrix, run_fits_in_process):
    heard = []
    found = evaluate(matrix[:, [0, 1, 3]], "bias", repeats=1,
                     others=("bias", "nuclear"), progress=heard.append)  # fmt: skip
    lines = {line.method: line for line in found.comparison.summaries}
    assert set(lines) == {"bias", "nuclear", "mean"} and len(heard) == 2
    assert lines["bias"].error == pytest.approx(found.error[0])
    # Columns are multiples of each other with both signs: additive effects fail.
    assert found.comparison.recommendation.method == "nuclear"
    assert found.comparison.plan.methods == ("bias", "nuclear")


def test_command_prints_a_summary_and_keeps_the_input(ncarl, table, tmp_path):
    before = table.read_bytes()
    out, page = tmp_path / "e.json", tmp_path / "e.html"
    result = ncarl("evaluate", table, "--method", "bias", "--no-compare", "--repeats",
                   2, "--hide", 0.15, "--json", out, "--report", page)  # fmt: skip
    said = result.stdout
    for part in ("60 x 5", "held out", "2 times", "bias", "standard deviation",
                 "worst columns", "explained", "[bold]a", "only bias was tried",
                 "next", "ncarl complete", "--method bias", "e.html"):  # fmt: skip
        assert part in said
    assert "coverage" not in said  # bias has none
    assert table.read_bytes() == before
    content = json.loads(out.read_text(encoding="utf-8"))
    assert content["method"] == "bias" and content["intervals"] == []
    assert content["errors"]["standardized_rmse"]["method"] > 0
    assert {one["name"] for one in content["columns"]} == set(HOSTILE)
    words = shlex.split(content["next"])
    assert words[:2] == ["ncarl", "complete"] and words[2] == str(table)
    html = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;" in html and "<script" not in html


def test_report_has_a_summary_and_every_column(
    ncarl, table, tmp_path, requests, evaluation
):
    page = tmp_path / "e.html"
    result = ncarl("evaluate", table, "--quiet", "--report", page)
    assert result.stdout == ""
    html = page.read_text(encoding="utf-8")
    lead = html.split('<p class="lead">')[1].split("</p>")[0]
    assert (
        "Held-out entries can be predicted" in lead and "90% intervals covered" in lead
    )
    assert html.count("<figure>") == 3
    assert html.index("lead") < html.index("<figure>") < html.index("All columns")
    assert "&lt;script&gt;" in html and "<script" not in html


def test_options_are_passed_to_the_plan(ncarl, table, requests):
    ncarl("evaluate", table, "--method", "nuclear", "--hide", 0.2, "--repeats", 5,
          "--pattern", "random", "--seed", 7, "--budget", 9, "--engine", "threads",
          "--scale", "none")  # fmt: skip
    ((plan, others, names),) = requests
    assert (plan.hide, plan.repeats, plan.pattern) == (0.2, 5, "random")
    assert (plan.random_state, plan.budget, plan.engine) == (7, 9.0, "threads")
    assert plan.methods == ("nuclear",) and "nuclear" not in others
    assert not plan.by_column and names == HOSTILE
    ncarl("evaluate", table)
    assert requests[1][0].by_column  # different units


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--repeats", "0"), "repeats must be a whole number of at least 1"),
        (("--json", "x.txt"), "--json must end in .json"),
        (("--report", "x.txt"), "--report must end in .html"),
    ],
)
def test_invalid_options_fail_before_the_evaluation(fails, table, arguments, words):
    assert words in fails("evaluate", table, *arguments)


def test_existing_json_file_needs_overwrite(fails, ncarl, table, tmp_path, requests):
    out = tmp_path / "e.json"
    out.write_text("mine")
    assert "--overwrite" in fails("evaluate", table, "--json", out)
    assert out.read_text() == "mine" and requests == []
    ncarl("evaluate", table, "--json", out, "--overwrite")
    assert json.loads(out.read_text(encoding="utf-8"))["method"] == "bayes"


def make_evaluation(truth, guess, mean, columns, spreads, ends=None):
    """An evaluation with one given split."""
    arrays = [np.asarray(v, dtype=float) for v in (truth, guess, mean)]
    j = np.asarray(columns)
    part = SplitPredictions(np.arange(len(j)), j, *arrays, None, ends or {}, 1.0)
    template = evaluate(np.eye(12) + 1.0, "bias", repeats=1, others=())
    return Evaluation("bias", (part,), np.asarray(spreads), None, template.comparison)


def test_advice_calls_no_method_better_within_one_standard_error(evaluation):
    def advice_for(method, best, ties):
        found = Recommendation(best, ties, f"{best}: reason.")
        lines = [MethodSummary(name, ()) for name in ("a", "b", "mean")]
        other = replace(
            evaluation.comparison, recommendation=found, summaries=tuple(lines)
        )
        return describe_advice(replace(evaluation, method=method, comparison=other))

    assert advice_for("a", "a", ("a", "b")) == "keep a: reason."
    assert advice_for("a", "b", ("b",)) == "change to b: reason."
    tied = advice_for("a", "b", ("b", "a"))
    assert tied == "a is not distinguished from the best; recommended is b: reason."


def test_constant_column_has_no_standardized_error():
    found = make_evaluation([1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [0, 1], [2.0, 0.0])
    first, second = found.columns
    assert (first.error, first.standardized_error, first.explained) == (1.0, 0.5, 0.75)
    assert second.standardized_error is None and second.explained is None
    assert found.standardized_error == (0.5, 1.0) and found.explained_fraction == 0.75
    # The mean of a constant column may be off by rounding.
    nearly = make_evaluation(
        [1.0, 5.0], [2.0, 5.0], [3.0, 5.0 + 1e-15], [0, 1], [2.0, 0.0]
    )
    assert nearly.columns[1].explained is None
    flat = make_evaluation([5.0], [5.0], [5.0], [0], [0.0])
    assert flat.standardized_error is None and flat.explained_fraction is None
    assert describe_accuracy(flat) == ""
    json.dumps(flat.to_dict(), allow_nan=False)


def test_intervals_of_constant_columns_count_only_alone():
    ends = {0.9: (np.array([0.0, 3.0, 5.0]), np.array([2.0, 4.0, 5.0]))}
    values = [1.0, 1.0, 5.0]
    found = make_evaluation(values, values, values, [0, 0, 1], [2.0, 0.0], ends)
    assert found.levels[0].coverage == 0.5
    assert found.levels[0].standardized_width == 0.75
    last = {0.9: tuple(end[2:] for end in ends[0.9])}
    alone = make_evaluation(values[2:], values[2:], values[2:], [0], [0.0], last)
    assert alone.levels[0].coverage == 1.0
    assert alone.levels[0].standardized_width is None


@pytest.mark.parametrize("part", [0.95, 0.8, 0.5, 0.2, 0.0, -3.0])
def test_description_matches_the_explained_fraction(part):
    off = np.sqrt(1.0 - part)
    found = make_evaluation([0.0] * 2, [off] * 2, [1.0] * 2, [0, 0], [1.0])
    assert found.explained_fraction == pytest.approx(part)
    least = max(least for least, _ in VERDICTS if part >= least - 1e-9)
    assert dict(VERDICTS)[least] in describe_accuracy(found)
    worse = [line for line in evaluation_warnings(found) if "worse than by" in line]
    assert bool(worse) == (part < 0.0)


@pytest.mark.parametrize(("size", "is_worse"), [(0.1, False), (1.0, True)])
def test_columns_within_a_standard_error_of_the_mean_are_not_called_worse(
    size, is_worse
):
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(40)
    mean, guess = np.zeros(40), size * rng.standard_normal(40)
    guess -= truth * (truth @ guess) / (truth @ truth)
    found = make_evaluation(truth, guess, mean, [0] * 40, [1.0])
    (one,) = found.columns
    gains = (truth**2 - (truth - guess) ** 2) / np.mean(truth**2)
    assert one.explained == pytest.approx(gains.mean()) and one.explained < 0.0
    assert one.explained_std == pytest.approx(gains.std(ddof=1) / np.sqrt(40))
    assert one.is_worse == is_worse
    assert any("worse than by" in line for line in evaluation_warnings(found)) == (
        is_worse
    )

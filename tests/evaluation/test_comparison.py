"""Tests of comparisons of methods: recommendations, splits, fits, files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import sparse

from ncarl import available_methods, make
from ncarl.cli.models import ModelOptions, build_estimator
from ncarl.containers import as_observations
from ncarl.engines.threads import Threads
from ncarl.evaluation import comparison
from ncarl.evaluation.comparison import (
    Comparison,
    ComparisonPlan,
    FitOutcome,
    MethodSummary,
    compare,
    default_parameters,
    draw_holdout_masks,
    fit_one,
    make_fit_payloads,
    paired_difference,
    read_split,
    recommend_method,
    run_comparison,
    run_fits,
    score_mean_baseline,
    summarize_fits,
    write_splits,
)
from ncarl.evaluation.measure import DONE, FAILED, OVER_BUDGET, peak_memory_gb
from ncarl.evaluation.outputs import draw_comparison, write_comparison
from ncarl.observations import Observations


def line(method, errors, seconds=1.0, status=DONE, **more):
    """A summary with given errors."""
    return MethodSummary(
        method,
        tuple(
            FitOutcome(method, k, status, error=e, seconds=seconds, **more)
            for k, e in enumerate(errors)
        ),
    )


def advice(*lines, by_column=False):
    return recommend_method(lines, by_column=by_column)


# --- recommendations -----------------------------------------------------------------


def test_method_with_the_lowest_error_is_recommended():
    found = advice(
        line("nuclear", [0.5, 0.6, 0.7]),
        line("ncarl", [0.4, 0.5, 0.6]),
        line("mean", [0.9, 1.0, 1.1]),
    )
    assert (found.method, found.ties, found.warnings) == ("ncarl", ("ncarl",), ())
    assert found.reason == "ncarl: lowest error 0.5 (± 0.1)."


def test_differences_are_paired_by_draw():
    # Large standard deviations, but one is worse by 0.1 on each draw.
    worse = line("nuclear", [1.1, 2.1, 3.1])
    better = line("ncarl", [1.0, 2.0, 3.0])
    assert advice(worse, better).ties == ("ncarl",)
    # The same means with differences of both signs are a tie.
    mixed = line("nuclear", [3.1, 2.1, 1.1])
    assert advice(mixed, better).ties == ("ncarl", "nuclear")


@given(st.lists(st.tuples(*2 * [st.floats(0.01, 100.0)]), min_size=2, max_size=6))
def test_ties_are_within_one_standard_error_of_the_paired_differences(pairs):
    one, other = (np.array(errors) for errors in zip(*pairs, strict=True))
    best, worse = sorted((one, other), key=np.mean)
    d = worse - best
    error = np.sqrt(np.sum((d - d.mean()) ** 2) / (len(d) - 1) / len(d))
    mean, chance = paired_difference(
        line("b", worse.tolist()), line("a", best.tolist())
    )
    assert mean == pytest.approx(d.mean(), abs=1e-9)
    assert chance == pytest.approx(error, rel=1e-6, abs=1e-9)
    if abs(d.mean() - error) > 1e-6:
        ties = advice(line("ncarl", best.tolist()), line("s3lr", worse.tolist())).ties
        assert ("s3lr" in ties) == (d.mean() < error)


def single(method, sizes, errors):
    """A summary with one draw and the errors of its groups of rows."""
    largest = np.max(errors) or 1.0
    total = largest * np.sqrt(np.average((errors / largest) ** 2, weights=sizes))
    fit = FitOutcome(method, 0, error=total, seconds=1.0, group_sizes=sizes,
                     group_errors=errors)  # fmt: skip
    return MethodSummary(method, (fit,))


def test_standard_error_of_a_single_split_is_that_of_its_rows(rng):
    sizes = rng.integers(1, 4, 50)
    rows = np.repeat(np.arange(50), sizes)
    noise = rng.standard_normal(len(rows))
    errors = [noise, noise + 0.3 * rng.standard_normal(len(rows))]

    def difference(some):
        a, b = (np.sqrt(np.mean(e[some] ** 2)) for e in errors)
        return a - b

    left_out = np.array([difference(rows != i) for i in range(50)])
    wanted = np.sqrt(49 / 50 * np.sum((left_out - left_out.mean()) ** 2))
    squares = [np.bincount(rows, e**2) / sizes for e in errors]
    one, other = (
        single(name, sizes.tolist(), np.sqrt(square).tolist())
        for name, square in zip("ab", squares, strict=True)
    )
    mean, error = paired_difference(one, other)
    assert mean == pytest.approx(difference(rows >= 0))
    assert error == pytest.approx(wanted)
    # The delta method gives nearly the same.
    means = [np.sqrt(np.mean(e**2)) for e in errors]
    parts = [
        (np.bincount(rows, e**2) - m**2 * sizes) / (2.0 * m * len(rows))
        for e, m in zip(errors, means, strict=True)
    ]
    assert error == pytest.approx(np.linalg.norm(parts[0] - parts[1]), rel=0.1)


@pytest.mark.parametrize(("shift", "tied"), [(0.0, True), (0.05, True), (2.0, False)])
def test_single_split_ties_within_one_standard_error(rng, shift, tied):
    sizes, errors = [1] * 40, np.abs(rng.standard_normal(40))
    other = np.roll(errors, 1) + shift
    lines = [single("nuclear", sizes, errors), single("soft-impute", sizes, other)]
    best, worse = sorted(lines, key=lambda one: one.error)
    mean, error = paired_difference(worse, best)
    found = advice(*lines)
    assert (len(found.ties) == 2) == tied == (mean <= error)
    assert ("not distinguished" in found.reason) == tied


def test_nothing_is_distinguished_without_a_standard_error():
    lone = [line("nuclear", [0.1]), line("soft-impute", [9.0])]
    assert advice(*lone).ties == ("nuclear", "soft-impute")
    huge = single("nuclear", [1] * 9, np.linspace(1e300, 2e300, 9))
    exact = single("bias", [1] * 9, np.zeros(9))
    assert 1e298 < paired_difference(huge, exact)[1] < 1e300
    assert paired_difference(exact, exact) == (0.0, 0.0)


def test_tie_prefers_a_method_with_error_bars():
    quick = line("soft-impute", [0.50, 0.60, 0.55], seconds=1.0)
    bayes = line("bayes", [0.52, 0.59, 0.55], seconds=30.0)
    found = advice(quick, bayes, line("mean", [1.0, 1.0, 1.0]))
    assert found.method == "bayes"
    assert found.ties == ("soft-impute", "bayes")
    assert found.reason == (
        "bayes: error 0.5533 (± 0.035), not distinguished from the lowest, 0.55 "
        "(± 0.05) of soft-impute, and it gives error bars."
    )


def test_tie_without_error_bars_prefers_the_fastest_method():
    slow = line("ncarl-cv", [0.50, 0.60, 0.55], seconds=30.0)
    quick = line("soft-impute", [0.52, 0.59, 0.55], seconds=2.0)
    found = advice(slow, quick)
    assert found.method == "soft-impute"
    assert "and 15 times faster" in found.reason
    bayes = line("bayes", [0.50, 0.60, 0.55], seconds=6.0)
    assert advice(bayes, quick).reason == (
        "bayes: lowest error 0.55 (± 0.05), not distinguished from soft-impute; "
        "soft-impute is 3 times faster."
    )
    assert advice(bayes, slow).reason.endswith(", not distinguished from ncarl-cv.")


@pytest.mark.parametrize(
    "lines, words",
    [
        ([line("bias", [1.0, 1.2, 1.1])], "row and column effects"),
        ([line("mean", [1.0, 1.2, 1.1])], "the mean of all entries"),
        # Only the stronger warning about the mean is given.
        ([line("bias", [0.5, 0.6, 0.7]), line("mean", [0.4, 0.4, 0.4])], "the mean"),
    ],
)
def test_unbeaten_baseline_gives_a_warning(lines, words):
    found = advice(line("bayes", [1.1, 1.1, 1.1]), *lines)
    of_columns = advice(line("bayes", [1.1, 1.1, 1.1]), *lines, by_column=True)
    assert ("of each column" in of_columns.warnings[0]) == ("the mean" in words)
    (warning,) = found.warnings
    assert f"no method is better than {words}" in warning
    assert found.method != "mean"


def test_stopped_and_failed_methods_are_not_recommended():
    stopped = line("nuclear", [0.1], status=OVER_BUDGET)
    failed = MethodSummary("fgsr", (FitOutcome("fgsr", 0, FAILED, message="no"),))
    found = advice(stopped, failed, line("bias", [0.5, 0.6]), line("mean", [1.0, 1.1]))
    assert found.method == "bias"
    # A stopped method might still beat row and column effects.
    (warning,) = found.warnings
    assert "nuclear was ahead of bias, or not distinguished from it" in warning
    nothing = advice(stopped, failed, line("mean", [1.0]))
    assert (nothing.method, nothing.ties) == (None, ())


def test_unreliable_results_give_warnings():
    found = advice(line("bayes", [0.5], converged=False), line("mean", [1.0]))
    mean, one, unconverged = found.warnings
    assert "no method is better than the mean" in mean  # nothing is known of the rows
    assert "of a single split leave out" in one
    assert "1 of 1 fits of bayes did not converge" in unconverged


def test_summaries_are_sorted_and_average_available_values():
    fits = [
        FitOutcome("bias", 1, error=2.0, seconds=1.0, memory_gb=0.5, converged=True),
        FitOutcome("bias", 0, error=4.0, seconds=3.0, memory_gb=0.7, converged=False),
        FitOutcome("nuclear", 0, FAILED, message="why"),
        FitOutcome("ncarl", 0, error=1.0),
    ]
    first, second, last = summarize_fits(fits)
    assert [one.method for one in (first, second, last)] == ["ncarl", "bias", "nuclear"]
    assert (second.error, second.seconds, second.memory_gb) == (3.0, 2.0, 0.7)
    assert (second.error_std, second.converged_fraction) == (
        pytest.approx(np.sqrt(2.0)),
        0.5,
    )
    assert [fit.draw for fit in second.fits] == [0, 1]
    assert (first.error_std, first.seconds) == (None, None)
    assert (last.error, last.status, last.message) == (None, FAILED, "why")


# --- held-out entries ----------------------------------------------------------------


@pytest.fixture(name="X")
def incomplete_matrix(rng):
    """A 30 x 8 incomplete matrix with different units and a constant column."""
    X = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 8))
    X = (X + 0.1 * rng.standard_normal(X.shape)) * 10.0 ** np.arange(8) + 5.0
    X[:, 3] = 0.1
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


@pytest.mark.parametrize("pattern", ["missing", "random"])
def test_every_row_and_column_keeps_an_entry(X, pattern):
    X[4] = np.nan
    X[4, 2] = 1.0
    observed = Observations.from_dense(X)
    plan = ComparisonPlan(hide=0.6, pattern=pattern, repeats=4)
    masks = draw_holdout_masks(plan, observed, np.ones(8))
    for mask in masks:
        kept = observed.drop_entries(mask)
        assert (kept.row_counts > 0).all() and (kept.column_counts > 0).all()
    assert len({mask.tobytes() for mask in masks}) == 4
    if pattern == "random":
        assert {mask.sum() for mask in masks} == {round(0.6 * observed.n_observed)}
    again = draw_holdout_masks(plan, observed, np.ones(8))
    assert all((a == b).all() for a, b in zip(masks, again, strict=True))
    other = draw_holdout_masks(
        ComparisonPlan(hide=0.6, random_state=1), observed, np.ones(8)
    )
    assert not (masks[0] == other[0]).all()


def test_missing_blocks_are_imitated_by_hidden_blocks(rng):
    X = rng.standard_normal((60, 40))
    for i in range(60):
        X[i, (i // 15) * 10 : (i // 15) * 10 + 10] = np.nan
    observed = Observations.from_dense(X)
    (mask,) = draw_holdout_masks(ComparisonPlan(repeats=1), observed, np.ones(40))
    away = observed.drop_entries(~mask)
    touched = np.count_nonzero(away.row_counts)
    (scattered,) = draw_holdout_masks(
        ComparisonPlan(repeats=1, pattern="random"), observed, np.ones(40)
    )
    assert touched < 40 < np.count_nonzero(observed.drop_entries(~scattered).row_counts)


def test_too_few_entries_raise(X):
    with pytest.raises(ValueError, match=r"at least 10 are.*hide a larger share"):
        compare(X, hide=0.01)
    with pytest.raises(ValueError, match="more observed entries"):
        compare(np.ones((3, 3)) * np.arange(3), hide=0.5)
    with pytest.raises(ValueError, match="no observed entry"):
        compare(np.full((3, 3), np.nan))


def test_column_units_are_standard_deviations(X):
    X[:, 5] = np.nan
    observed = Observations.from_dense(X)
    found = observed.column_stds()
    varies = np.array([j for j in range(8) if j not in (3, 5)])
    wanted = np.nanstd(X[:, varies], axis=0)
    np.testing.assert_allclose(found[varies], wanted, rtol=1e-10)
    assert found[3] == found[5] == observed.column_means()[5] == 0.0
    huge = Observations.from_dense(X * 1e300).column_stds()
    assert np.isfinite(huge).all() and (huge[varies] > 0).all()


# --- single fits ---------------------------------------------------------------------


@pytest.fixture
def folder(X, tmp_path):
    """Folder with the data of a comparison with one draw."""
    observed = Observations.from_dense(X)
    units = observed.column_stds()
    masks = draw_holdout_masks(ComparisonPlan(hide=0.2, repeats=1), observed, units)
    write_splits(tmp_path, observed, units, masks)
    return tmp_path


def make_payload(folder, method, **more):
    plan = ComparisonPlan(["bias"], repeats=1, engine="threads", scale="columns")
    (one,) = make_fit_payloads(plan, folder)
    return {**one, "method": method, **more}


def hidden_cells(folder, X):
    """Rows, columns and values of held-out entries, and the matrix without them."""
    draw = read_split(folder, 0)
    i, j = draw.hidden.rows, draw.hidden.indices
    np.testing.assert_array_equal(draw.hidden.values, X[i, j])
    seen = X.copy()
    seen[i, j] = np.nan
    return i, j, X[i, j], seen


def test_fit_is_scored_on_held_out_entries_in_standard_deviations(folder, X):
    found = fit_one(make_payload(folder, "bias"))
    i, j, truth, seen = hidden_cells(folder, X)
    stds = np.nanstd(X, axis=0)
    guess = make("bias", scale="columns").fit_transform(seen)[i, j]
    counts = j != 3  # the constant column is not scored
    z = (guess - truth)[counts] / stds[j[counts]]
    assert found["error"] == pytest.approx(np.sqrt(np.mean(z**2)), rel=1e-8)
    size = np.linalg.norm(guess - truth) / np.linalg.norm(truth)
    assert found["relative_error"] == pytest.approx(size, rel=1e-8)
    assert (found["status"], found["converged"]) == (DONE, True)
    assert found["coverage"] is None
    assert found["seconds"] > 0.0 and found["memory_gb"] > 0.0
    assert found["engine"].startswith("threads")


def test_coverage_is_computed_if_there_are_intervals(folder, X, monkeypatch):
    quick = {"scale": "columns", "prior_strength": 1.0, "tol": 0.01}
    monkeypatch.setattr(comparison, "default_parameters", lambda method, **asked: quick)
    found = fit_one(make_payload(folder, "bayes"))
    i, j, truth, seen = hidden_cells(folder, X)
    est = make("bayes", engine=Threads(), **quick).fit(seen)
    low, high = est.predict_interval(i, j, level=0.9)
    inside = ((low <= truth) & (truth <= high))[j != 3]
    assert found["coverage"] == pytest.approx(inside.mean())
    assert 0.5 < inside.mean() <= 1.0


@pytest.mark.parametrize("by_column", [True, False])
def test_baseline_is_the_mean_of_training_entries(folder, X, by_column):
    _, j, truth, seen = hidden_cells(folder, X)
    found = score_mean_baseline(read_split(folder, 0), 0, by_column=by_column)
    guess = np.nanmean(seen, axis=0)[j] if by_column else np.nanmean(seen)
    z = ((guess - truth) / np.nanstd(X, axis=0)[j])[j != 3]
    assert found.error == pytest.approx(np.sqrt(np.mean(z**2)), rel=1e-8)


@pytest.mark.parametrize("scale", [None, "columns"])
@pytest.mark.parametrize("method", available_methods())
def test_methods_match_those_of_the_recommended_command(method, scale):
    options = ModelOptions(method=method, seed=5)
    theirs = build_estimator(options, scale=scale, progress=False).get_params()
    ours = make(method, **default_parameters(method, scale=scale, seed=5)).get_params()
    assert ours == theirs


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is told apart")
def test_memory_of_a_fit_excludes_its_parent():
    ballast = np.ones(50_000_000)
    code = "from ncarl.evaluation.measure import peak_memory_gb as peak; print(peak())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert 0.0 < float(done.stdout) < 0.4 < peak_memory_gb()
    assert ballast.sum() > 0


# --- processes -----------------------------------------------------------------------


def test_crashed_and_stopped_fits_do_not_affect_others(folder, X, monkeypatch):
    heard = []
    asked = [
        make_payload(folder, "no-such-method"),
        make_payload(folder, "nuclear", budget=1e-9),
        make_payload(folder, "no-such-method", draw=1),
        make_payload(folder, "bias"),
    ]
    # One job at a time, so that the first failure precedes the second draw.
    found = {fit.method: fit for fit in run_fits(asked, 1, heard.append)}
    assert sorted(found) == ["bias", "no-such-method", "nuclear"]
    crashed, stopped, whole = (
        found[name] for name in ("no-such-method", "nuclear", "bias")
    )
    assert (crashed.status, crashed.error) == (FAILED, None)
    assert "no-such-method" in crashed.message
    assert stopped.status == OVER_BUDGET and stopped.error > 0.0
    assert stopped.converged is None and "stopped after" in stopped.message
    # The failed method was not repeated, and results came one by one.
    assert len(heard) == 3
    alone = fit_one(make_payload(folder, "bias"))
    assert whole.status == DONE
    assert whole.error == pytest.approx(alone["error"], rel=1e-9)
    # A fit that makes no step is terminated.
    monkeypatch.setattr(comparison, "STARTUP_SECONDS", 0.0)
    (fit,) = run_fits([make_payload(folder, "bias", budget=1e-9)], 1, heard.append)
    assert (fit.status, fit.error) == (OVER_BUDGET, None)
    assert "ended after" in fit.message


def test_comparison_removes_its_folder(X, tmp_path, monkeypatch):
    asked = []

    def stop(wanted, jobs, heard):
        asked.extend(wanted)
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "run_fits", stop)
    with pytest.raises(KeyboardInterrupt):
        compare(X, methods=["bias", "nuclear"], repeats=2)
    assert not Path(asked[0]["folder"]).exists()
    # Fits are ordered by draw.
    order = [(one["draw"], one["method"]) for one in asked]
    wanted = [(draw, method) for draw in (0, 1) for method in ("bias", "nuclear")]
    assert order == wanted


def test_containers_give_the_same_result(X, monkeypatch):
    monkeypatch.setattr(comparison, "run_fits", lambda wanted, jobs, heard: [])
    seen = ~np.isnan(X)
    S = sparse.coo_array((X[seen], np.nonzero(seen)), shape=X.shape)
    dense, thin = compare(X), compare(S)
    masked = compare(np.ma.masked_invalid(X))
    assert dense.summaries == thin.summaries == masked.summaries
    assert dense.n_hidden == thin.n_hidden and dense.n_observed == seen.sum()
    assert dense.recommendation.method is None


def test_scale_by_method_is_passed_to_its_fits(X, monkeypatch):
    asked = []
    monkeypatch.setattr(
        comparison, "run_fits", lambda wanted, jobs, heard: asked.extend(wanted) or []
    )
    plan = ComparisonPlan(
        ["bias", "ncarl"], repeats=1, scale={"bias": "columns"}, jobs=10**6
    )
    found = run_comparison(plan, as_observations(X))
    assert [one["scale"] for one in asked] == ["columns", None]
    assert all(one["threads"] == 1 for one in asked)
    assert found.error_unit == "standard deviations of the column"


# --- invalid parameters --------------------------------------------------------------


@pytest.mark.parametrize(
    "given_, words",
    [
        ({"methods": "bayes,nuklear"}, "'nuklear'; did you mean 'nuclear'"),
        ({"methods": " Bias , bias,MEAN", "hide": 1.0}, "hide must be below 1"),
        ({"methods": ["mean"]}, "at least one besides the baseline 'mean'"),
        ({"methods": ""}, "methods must be 'auto', 'all' or some of bayes"),
        ({"hide": 0.0}, "hide must be a finite number above 0, got 0.0"),
        ({"repeats": 0}, "repeats must be a whole number of at least 1, got 0"),
        ({"jobs": 0}, "jobs must be a whole number of at least 1"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0"),
        ({"budget": 0.0}, "budget must be a finite number above 0"),
        ({"pattern": "blocks"}, "pattern must be one of 'missing', 'random'"),
        ({"engine": "gpu"}, "engine must be one of 'auto', 'threads', 'torch'"),
        ({"scale": {"bias": "rows"}}, "scale must be one of None, 'columns'"),
        ({"scale": {"bais": None}}, "'bais'; did you mean 'bias'"),
    ],
)
def test_invalid_parameters_raise_before_any_fit(X, given_, words):
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        compare(X, **given_)


def test_torch_engine_needs_torch(X, monkeypatch):
    monkeypatch.setattr(comparison, "torch_installed", lambda: False)
    with pytest.raises(ImportError, match="needs PyTorch"):
        compare(X, engine="torch")


# --- files ---------------------------------------------------------------------------


@pytest.fixture
def example():
    """An artificial comparison with every kind of result."""
    lines = (
        line("bayes", [0.4, 0.5], coverage=0.9),
        line("nuclear", [0.45], status=OVER_BUDGET),
        line("mean", [4.0, 6.0], seconds=None, relative_error=float("inf")),
        MethodSummary(
            "fgsr",
            (FitOutcome("fgsr", 0, FAILED, message='it said "no", twice\nor so'),),
        ),
    )
    plan = ComparisonPlan(["bayes", "nuclear", "fgsr"], repeats=2)
    return Comparison(plan, (30, 8), 190, (19, 19), lines, advice(*lines))


def test_files_contain_the_results(example, tmp_path):
    files = write_comparison(example, tmp_path, {"data": "x.csv"})
    names = ["compare.csv", "compare.json", "compare.png"]
    assert [path.name for path in files] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with (tmp_path / "compare.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["method"] for row in rows] == ["bayes", "nuclear", "mean", "fgsr"]
    assert [row["recommended"] for row in rows] == ["yes", "no", "no", "no"]
    assert float(rows[0]["error"]) == pytest.approx(0.45)
    assert rows[3]["error"] == "" and rows[3]["message"].startswith('it said "no"')

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    text = (tmp_path / "compare.json").read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=refuse)
    assert content["data"] == "x.csv" and content["plan"]["repeats"] == 2
    assert content["recommendation"]["method"] == "bayes"
    assert content["lines"][2]["relative_error"] is None
    assert content["lines"][1]["fits"][0]["error"] == 0.45
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_figure_shows_all_methods_in_order(example):
    left, right = draw_comparison(example).axes
    labels = left.get_yticklabels()
    assert [label.get_text() for label in labels] == [
        one.method for one in example.summaries
    ]
    assert [label.get_fontweight() for label in labels][:2] == ["bold", "normal"]
    dots = {round(dot.get_ydata()[0]): dot for dot in left.lines}
    assert [dots[k].get_xdata()[0] for k in range(3)] == [0.45, 0.45, 5]
    assert dots[1].get_markerfacecolor() == "white"
    assert (left.get_xscale(), right.get_xscale()) == ("log", "log")
    assert "failed" in [text.get_text() for text in left.texts]
    assert len(right.lines) == 2

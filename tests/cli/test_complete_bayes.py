"""Tests of ``ncarl complete --method bayes``: options and outputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from ncarl.cli.complete_report import describe_bayesian_model, describe_noise
from ncarl.cli.complete_run import (
    check_result_size,
    column_units,
    mean_missing_std,
    missing_mask,
)
from ncarl.estimators.bayesian import BayesianNCARL

from .conftest import list_names, read_numbers


@pytest.fixture
def estimators(monkeypatch):
    """List that records the fitted estimators."""
    seen, fit = [], BayesianNCARL.fit
    monkeypatch.setattr(BayesianNCARL, "fit", lambda s, X: seen.append(s) or fit(s, X))
    return seen


def test_default_method_matches_the_estimator_and_prints_a_summary(
    ncarl, csv, tmp_path, X_nan
):
    result = ncarl("complete", csv, "-o", tmp_path / "out.csv", "--seed", 3)
    X = read_numbers(csv)
    est = BayesianNCARL(random_state=3, scale=None).fit(X)
    np.testing.assert_allclose(
        read_numbers(tmp_path / "out.csv"), est.transform(X), rtol=1e-8
    )
    missing = int(np.isnan(X_nan).sum())
    assert f"method    bayes: {describe_bayesian_model(est)}" in result.stdout
    assert f"imputed   {missing} entries, mean standard deviation " in result.stdout
    assert f"noise     {describe_noise(est, '')}" in result.stdout
    alone = [f"{e:.3g} by {side}" for side, e in est.side_errors_.items()]
    words = f"{est.held_out_error_:.3g} ({' and '.join(alone)} alone)"
    assert f"error     {words}, on" in result.stdout
    shares = f"{est.held_out_coverage_:.1%} of them within 1.96;"
    low, high = (f"{end(est.std_factors_):.2f}" for end in (np.min, np.max))
    factors = f"these are {low if low == high else f'{low} to {high}'} times those of"
    errors = f"errors are {est.calibration_:.2f} times their standard deviations"
    for part in ("10% of the entries held out", errors, shares, factors):
        assert part in result.stdout
    assert not result.stderr


def test_parameters_are_passed_to_the_estimator(ncarl, csv, tmp_path, estimators):
    options = ("--sides", "both", "--prior-strength", 0.5, "--noise", "per-column")
    more = ("--clip", "-1,7.5", "--round", "--validation", 0.2, "--center", "columns")
    run = ("--max-iter", 7, "--tol", 0.01, "--scale", "columns", "--dtype", "float32")
    ncarl("complete", csv, "-o", tmp_path / "out.csv", *options, *more, *run)
    (est,) = estimators
    assert (est.sides, est.prior_strength, est.noise) == ("both", 0.5, "per-column")
    assert (est.clip, est.rounding, est.validation) == ((-1.0, 7.5), "observed", 0.2)
    assert (est.center, est.max_iter, est.tol) == ("columns", 7, 0.01)
    assert (est.scale, est.dtype, est.engine) == ("columns", "float32", "auto")


@pytest.mark.parametrize("given", [2, "auto"])
def test_components_are_passed_and_reported(ncarl, csv, tmp_path, estimators, given):
    result = ncarl("complete", csv, "-o", tmp_path / "out.csv", "--components", given)
    (est,) = estimators
    assert est.components == given
    named = f"the columns by {est.components_} components"
    assert (named in result.stdout) == (est.components_ > 1)
    assert est.components_ == (2 if given == 2 else 1)


def test_defaults_match_those_of_the_estimator(ncarl, csv, tmp_path, estimators):
    words = ("--prior-strength", "auto", "--noise", "per-column", "--clip", "auto")
    for k, options in enumerate(((), words, ("--clip", "none", "--center", "none"))):
        ncarl("complete", csv, "-o", tmp_path / f"{k}.csv", *options)
    own = {"random_state": 0, "scale": None}
    assert estimators[0].get_params() == BayesianNCARL(**own).get_params()
    assert estimators[1].get_params() == estimators[0].get_params()
    assert estimators[2].clip is None and estimators[2].center is None


def test_errors_of_scaled_columns_are_in_standard_deviations(ncarl, tmp_path, rng):
    X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 4))
    X = (X + 0.3 * rng.standard_normal(X.shape)) * [1, 10, 100, 1000]
    X[rng.random(X.shape) < 0.15] = np.nan
    pd.DataFrame(X).to_csv(tmp_path / "in.csv", index=False, header=list("abcd"))
    said = ncarl("complete", tmp_path / "in.csv", "-o", tmp_path / "out.csv").stdout
    assert "columns (standard deviations of columns differ by a factor of" in said
    lines = {line[:10].strip(): line[10:] for line in said.splitlines()}
    for name in ("imputed", "noise", "error"):
        assert "of a column's standard deviation" in lines[name]
    assert 0.0 < float(lines["error"].split()[0]) < 2.0
    assert 0.0 < float(lines["noise"].split()[0]) < 2.0


def test_intervals_and_deviations_keep_observed_cells(ncarl, csv, tmp_path, X_nan):
    out, low, high, std = (tmp_path / f"{name}.csv" for name in "olhs")
    paths = ("-o", out, "--lower", low, "--upper", high, "--std", std)
    said = ncarl("complete", csv, *paths).stdout
    missing, X = np.isnan(X_nan), read_numbers(csv)
    lower, upper, deviations = read_numbers(low), read_numbers(high), read_numbers(std)
    assert ((deviations > 0) == missing).all()
    ends = BayesianNCARL(scale=None).fit(X).predict_interval(X, level=0.9)
    for found, wanted in zip((lower, upper), ends, strict=True):
        np.testing.assert_array_equal(found[~missing], X[~missing])
        np.testing.assert_allclose(found[missing], wanted[missing], rtol=1e-8)
    assert (lower[missing] < upper[missing]).all()
    assert "l.csv (lower bounds of 90% intervals)" in said
    options = ("--upper", high, "--level", 0.5, "--overwrite")
    said = ncarl("complete", csv, "-o", out, *options).stdout
    assert "h.csv (upper bounds of 50% intervals)" in said and "lower" not in said
    assert (read_numbers(high)[missing] <= upper[missing]).all()
    assert (read_numbers(high)[missing] < upper[missing]).any()


def test_intervals_of_a_sparse_file_store_every_entry(ncarl, tmp_path, X_nan):
    seen = ~np.isnan(X_nan)
    S = sparse.coo_array((X_nan[seen], np.nonzero(seen)), shape=X_nan.shape)
    sparse.save_npz(tmp_path / "in.npz", S.tocsr())
    paths = [tmp_path / f"{name}.npz" for name in ("out", "low", "high", "std")]
    ncarl("complete", tmp_path / "in.npz", "-o", paths[0], "--lower", paths[1],
          "--upper", paths[2], "--std", paths[3])  # fmt: skip
    filled, low, high, std = (sparse.load_npz(path).toarray() for path in paths)
    for found in (filled, low, high):
        np.testing.assert_array_equal(found[seen], X_nan[seen])
    assert (low[~seen] < high[~seen]).all() and (std[~seen] > 0).all()


def test_single_precision_is_preserved(ncarl, tmp_path, X_nan):
    np.save(tmp_path / "in.npy", X_nan.astype(np.float32))
    out, low = tmp_path / "out.npy", tmp_path / "low.npy"
    ncarl("complete", tmp_path / "in.npy", "-o", out, "--lower", low)
    assert np.load(out).dtype == np.load(low).dtype == np.float32


def test_imputations_agree_at_observed_entries(ncarl, csv, tmp_path, X_nan):
    out, drawn = tmp_path / "out.csv", tmp_path / "draws.NPZ"
    options = ("--imputations", 4, "--imputations-out", drawn, "--sides", "columns")
    said = ncarl("complete", csv, "-o", out, *options).stdout
    assert "draws.NPZ (draws, 4 completed tables)" in said
    assert list_names(tmp_path) == ["draws.NPZ", "in.csv", "out.csv"]
    gaps, X = np.isnan(X_nan), read_numbers(csv)
    with np.load(drawn) as archive:
        draws = archive["imputations"]
        assert archive["columns"].tolist() == list("abcde")
    assert draws.shape == (4, 14, 5)
    for draw in draws:
        np.testing.assert_array_equal(draw[~gaps], X[~gaps])
    assert (draws.std(axis=0)[gaps] > 0).all()
    ncarl("complete", csv, "-o", out, *options, "--overwrite", "--seed", 1)
    with np.load(drawn) as archive:
        assert not np.array_equal(archive["imputations"], draws)


def test_imputations_larger_than_memory_raise():
    check_result_size((100, 100), "imputations of a", "ask for fewer", 1000)
    with pytest.raises(ValueError, match=r"^imputations of a 100 .* 16 GB.*for fewer"):
        check_result_size((100, 100), "imputations of a", "ask for fewer", 200_000)


@pytest.mark.usefixtures("no_fit")
def test_sparse_tables_too_large_to_complete_raise_before_the_fit(tmp_path, fails):
    path = tmp_path / "in.npz"
    sparse.save_npz(path, sparse.csr_array((50_000, 50_000)))
    assert "20 GB" in fails("complete", path, "-o", tmp_path / "out.npz")


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("method", "options", "others"),
    [
        *(("bayes", options, "ncarl or ncarl-cv") for options in (
            ("--alpha", 1), ("--gamma", 1), ("--weights", "pinv"),
            ("--orientation", "rows"))),
        ("wnnm", ("--n-neighbors", 3), "ncarl or ncarl-cv"),
        *(("ncarl", options, "bayes") for options in (
            ("--prior-strength", "auto"), ("--clip", "none"), ("--round",),
            ("--sides", "rows"), ("--components", "auto"),
            ("--noise", "learn"), ("--upper", "u.csv"),
            ("--lower", "l.csv"), ("--level", "0.5"), ("--imputations", "2"))),
        ("ncarl", ("--validation", 0.1), "bayes or ncarl-cv or soft-impute"),
        ("ncarl-cv", ("--sides", "auto"), "bayes"),
        ("bayes", ("--set", "p=1"), "nuclear or"),
        ("bias", ("--center", "mean"), "bayes or"),
        ("wnnm", ("--dtype", "float32"), "bayes or ncarl or ncarl-cv"),
    ],
)  # fmt: skip
def test_options_of_another_method_give_an_error(
    fails, csv, tmp_path, method, options, others
):
    out = tmp_path / "out.csv"
    said = fails("complete", csv, "-o", out, "--method", method, *options)
    assert said.startswith(options[0]) and f"belongs to --method {others}" in said
    assert f"not to {method};" in said and list_names(tmp_path) == ["in.csv"]


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--noise", "0", "--std", "s.csv"], "--std needs a model of the noise"),
        (["--noise", "0", "--lower", "s.csv"], "--lower needs a model of the noise"),
        (["--level", "0.8"], "--level needs --lower or --upper"),
        (["--imputations", "3"], "--imputations and --imputations-out go together"),
        (["--imputations", "3", "--imputations-out", "d.csv"], "must end in .npz"),
        (
            ["--imputations", "3", "--imputations-out", "d.npz", "--sides", "rows"],
            "of the columns",
        ),
        (["--lower", "l.npy"], "--lower must have the format of the input"),
        (["--upper", "out.csv"], "OUT and --upper name one file"),
        (["--lower", "in.csv"], "--lower 'in.csv' is the input itself"),
        (
            ["--imputations", "3", "--imputations-out", "mine.npz"],
            "--imputations-out 'mine.npz' exists",
        ),
    ],
)
def test_invalid_options_fail_before_the_fit(
    fails, csv, tmp_path, monkeypatch, options, message
):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.npz"
    mine.write_text("mine")
    assert message in fails("complete", "in.csv", "-o", "out.csv", *options)
    assert list_names(tmp_path) == ["in.csv", "mine.npz"] and mine.read_text() == "mine"


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    "options",
    [
        *(("--clip", "5,1"), ("--clip", "a,b"), ("--clip", "1"), ("--clip", "1,2,3")),
        *(("--level", "1"), ("--level", "much"), ("--imputations", "0")),
        *(("--noise", "much"), ("--gamma", "much"), ("--sides", "left")),
        *(("--components", "many"), ("--components", "1.5")),
        ("--method", "magic"),
    ],
)
def test_invalid_values_are_usage_errors(ncarl, csv, tmp_path, options):
    result = ncarl("complete", csv, "-o", tmp_path / "out.csv", *options, expect=2)
    assert options[0] in result.stderr and "Traceback" not in result.stderr
    assert list_names(tmp_path) == ["in.csv"]


@pytest.mark.parametrize(
    ("options", "word"), [(("--noise", -1), "noise"), (("--max-iter", 0), "--max-iter")]
)
def test_estimator_errors_name_the_option(fails, csv, tmp_path, options, word):
    assert word in fails("complete", csv, "-o", tmp_path / "out.csv", *options)
    assert list_names(tmp_path) == ["in.csv"]


def test_interrupt_while_writing_imputations_keeps_the_old_file(
    ncarl, csv, tmp_path, monkeypatch
):
    drawn = tmp_path / "d.npz"
    drawn.write_text("mine")

    def stop(path, _):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("ncarl.cli.complete_run.write_npz", stop)
    options = ("--imputations", 2, "--imputations-out", drawn, "--overwrite")
    ncarl("complete", csv, "-o", tmp_path / "out.csv", *options, expect=130)
    assert drawn.read_text() == "mine"
    assert list_names(tmp_path) == ["d.npz", "in.csv", "out.csv"]


def test_checkpoint_consists_of_parts_and_resumes(ncarl, fails, csv, tmp_path):
    state, first, second = (tmp_path / n for n in ("state", "1.csv", "2.csv"))
    options = ("--checkpoint", state, "--sides", "both")
    ncarl("complete", csv, "-o", first, *options)
    for name in ("state", "state.columns", "state.rows"):
        assert (tmp_path / name).exists()
    ncarl("complete", csv, "-o", second, *options)
    assert first.read_bytes() == second.read_bytes()
    said = fails("complete", csv, "-o", tmp_path / "3.csv", *options, "--noise", 0.5)
    assert "belongs to another fit" in said and "noise" in said


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize("part", ["columns", "rows"])
def test_outputs_must_differ_from_checkpoint_parts(fails, csv, tmp_path, part):
    state, model = tmp_path / "state", tmp_path / f"state.{part}"
    options = ("--checkpoint", state, "--save-model", model)
    said = fails("complete", csv, "-o", tmp_path / "out.csv", *options)
    assert f"its part for the {part}" in said and "name one file" in said


def test_unconverged_fit_gives_a_one_line_warning(ncarl, csv, tmp_path):
    options = ("--max-iter", 2, "--tol", 1e-12, "--seed", 1)
    result = ncarl("complete", csv, "-o", tmp_path / "out.csv", *options)
    assert result.stderr.startswith(
        "warning: not converged after 2 steps, the best one"
    )
    assert result.stderr.count("\n") == 1
    assert "not converged" in result.stdout


def test_without_held_out_entries_no_error_is_printed(ncarl, csv, tmp_path):
    options = ("--validation", 0, "--max-iter", 5, "--tol", 0, "--noise", 0)
    result = ncarl("complete", csv, "-o", tmp_path / "out.csv", *options)
    for part in ("held out", "times their", "standard deviation"):
        assert part not in result.stdout
    assert "noise     0, as given" in result.stdout


def test_describe_noise(X_nan):
    est = BayesianNCARL(scale=None, noise="per-column", max_iter=5, tol=0).fit(X_nan)
    low, high = est.noise_.min(), est.noise_.max()
    words = f"{low:.2g} to {high:.2g}, learned for each column"
    assert describe_noise(est, "") == words
    est = BayesianNCARL(scale=None, noise=0.25, max_iter=5, tol=0).fit(X_nan)
    assert describe_noise(est, "") == "0.25, as given"


def test_errors_and_deviations_are_in_data_units(X_nan):
    means, errors = [], []
    for factor in (1.0, 1000.0):
        est = BayesianNCARL(scale=None, sides="columns").fit(X_nan * factor)
        errors.append(est.side_errors_["columns"])
        means.append(mean_missing_std(est, X_nan, missing_mask(X_nan)))
        assert (column_units(est) == 1).all()
    assert errors[1] == pytest.approx(1000 * errors[0], rel=1e-6)
    assert means[1] == pytest.approx(1000 * means[0], rel=1e-6)
    std = est.transform(X_nan * factor, return_std=True)[1]
    assert std[np.isnan(X_nan)].mean() == pytest.approx(means[1])
    assert mean_missing_std(est, X_nan, np.zeros(X_nan.shape, dtype=bool)) is None


def test_mean_std_uses_a_sample_of_missing_entries(X_nan, monkeypatch):
    monkeypatch.setattr("ncarl.cli.complete_run.STD_SAMPLE_SIZE", 5)
    est = BayesianNCARL(scale=None, sides="columns").fit(X_nan)
    asked, predict = [], est.predict
    est.predict = lambda i, j, **o: asked.append(len(i)) or predict(i, j, **o)
    assert mean_missing_std(est, X_nan, missing_mask(X_nan)) > 0
    assert asked == [5]


def test_row_kernel_reports_noise_per_row(ncarl, tmp_path, rng):
    X = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 4)) * [1, 50, 1, 1]
    X += rng.random((12, 1)) * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:, 3] = np.nan
    np.save(tmp_path / "x.npy", X)
    for scale in ("none", "columns"):
        options = ("-o", tmp_path / "o.npy", "--overwrite", "--sides", "rows")
        result = ncarl("complete", tmp_path / "x.npy", *options, "--scale", scale)
        assert "for each row" in result.stdout

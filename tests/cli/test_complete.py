"""Tests of ``ncarl complete``: input and output files, errors, interruptions."""

from __future__ import annotations

import os
import tempfile
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io, sparse
from scipy.sparse import csr_array

import ncarl as package
from ncarl.centering import compare_column_units
from ncarl.cli.models import ModelOptions, decide_scale
from ncarl.dataset import InMemoryDataset
from ncarl.estimators.base import BaseCompleter
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.estimators.ncarl_cv import NCARLCV
from ncarl.observations import Observations

from .conftest import list_names, read, read_numbers, write

FAST = ("--method", "ncarl", "--alpha", "1")
SEARCH = ("--method", "ncarl-cv")


def read_cells(path):
    """Read the cells of a CSV file without quotes."""
    return [line.split(",") for line in path.read_text().splitlines()]


def test_missing_cells_are_imputed_and_observed_cells_kept(ncarl, csv, tmp_path, X_nan):
    out, std = tmp_path / "out.csv", tmp_path / "std.csv"
    result = ncarl("complete", csv, "-o", out, *SEARCH, "--seed", 3, "--std", std)
    before, after, deviations = read_cells(csv), read_cells(out), read_cells(std)
    assert after[0] == before[0] == deviations[0]
    for rows in zip(before[1:], after[1:], deviations[1:], strict=True):
        assert rows[0][0] == rows[1][0] == rows[2][0]
        for old, new, deviation in zip(*(row[1:] for row in rows), strict=True):
            assert (new == old) == (old != "NA") == (float(deviation) == 0)
    noisy = [gamma for gamma in NCARLCV().gammas if gamma is not None]
    wanted = NCARLCV(random_state=3, gammas=noisy).fit_transform(read_numbers(csv))
    np.testing.assert_allclose(read_numbers(out), wanted, rtol=1e-8)
    for part in ("14 x 5", f"{np.isnan(X_nan).sum()} missing", "kept, not used: name",
                 "ncarl-cv", "held out", "alpha", "steps", "out.csv",
                 "--no-header"):  # fmt: skip
        assert part in result.stdout
    assert "gamma none" not in result.stdout and not result.stderr


def test_engine_and_dtype_options_are_used(ncarl, csv, tmp_path):
    plain = ncarl("complete", csv, "-o", tmp_path / "a.csv", *FAST)
    single = ("--engine", "threads", "--dtype", "float32")
    result = ncarl("complete", csv, "-o", tmp_path / "b.csv", *FAST, *single)
    assert "engine    " in plain.stdout
    assert "engine    threads" in result.stdout
    one, other = (pd.read_csv(tmp_path / name) for name in ("a.csv", "b.csv"))
    gap = (one.drop(columns="name") - other.drop(columns="name")).abs().to_numpy()
    assert 0.0 < gap.max() < 1e-3
    ncarl("complete", csv, "-o", tmp_path / "c.csv", "--engine", "gpu", expect=2)


def test_missing_gpu_gives_a_one_line_warning(ncarl, csv, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(
        "ncarl.engines.gpu_unavailable_reason", lambda: "it is in the drawer"
    )
    out = tmp_path / "out.csv"
    result = ncarl("complete", csv, "-o", out, *FAST, "--engine", "torch")
    assert result.stderr.count("\n") == 1
    assert "in the drawer" in result.stderr
    assert "engine    threads" in result.stdout


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".npz", ".mtx"])
def test_every_format_is_completed_in_kind(ncarl, tmp_path, X_nan, suffix):
    source, out, std = (tmp_path / f"{name}{suffix}" for name in ("in", "out", "std"))
    write(source, X_nan)
    ncarl("complete", source, "-o", out, *FAST, "--gamma", "0.01", "--std", std)
    (filled, _), (deviations, _), seen = read(out), read(std), ~np.isnan(X_nan)
    np.testing.assert_array_equal(filled[seen], X_nan[seen])
    assert np.isfinite(filled).all()
    assert (deviations[seen] == 0).all() and (deviations[~seen] > 0).all()


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".npz", ".mtx"])
def test_every_format_keeps_empty_rows_and_columns_empty(
    ncarl, tmp_path, X_nan, suffix
):
    X_nan[2] = X_nan[:, 1] = np.nan
    source, out = (tmp_path / f"{name}{suffix}" for name in ("in", "out"))
    write(source, X_nan)
    ncarl("complete", source, "-o", out, *FAST)
    if suffix in (".npz", ".mtx"):  # stored entries are the observed ones
        back = Observations.from_sparse(
            scipy_io.mmread(out) if suffix == ".mtx" else sparse.load_npz(out)
        )
        found = back.missing_mask()
    else:
        found = np.isnan(read(out)[0])
    empty = np.zeros(X_nan.shape, dtype=bool)
    empty[2] = empty[:, 1] = True
    np.testing.assert_array_equal(found, empty)


@pytest.mark.parametrize(
    "options",
    [(*SEARCH, "--gamma", "none"), ("--method", "ncarl"), (*FAST, "--gamma", "none")],
)
def test_std_without_a_noise_model_fails(fails, csv, tmp_path, options):
    out, std = tmp_path / "out.csv", tmp_path / "std.csv"
    said = fails("complete", csv, "-o", out, "--std", std, *options)
    assert "--std needs a model of the noise" in said and "--gamma" in said
    assert list_names(tmp_path) == ["in.csv"]


def test_given_parameters_are_not_searched(ncarl, csv, tmp_path, monkeypatch):
    built = []
    fit = NCARLCV.fit
    monkeypatch.setattr(NCARLCV, "fit", lambda s, X: built.append(s) or fit(s, X))
    options = ("--alpha", 5, "--gamma", "none", "--center", "mean", "--n-neighbors", 3)
    run = ["--tol", 0.01, "--max-iter", 7, "--weights", "smooth"]
    run += ["--orientation", "columns"]
    run += ["--validation", 0.2, *SEARCH]
    ncarl("complete", csv, "-o", tmp_path / "out.csv", *options, *run)
    (est,) = built
    assert est.validation == 0.2
    assert (est.alphas, est.gammas, est.centers) == ((5.0,), (None,), ("mean",))
    assert (est.n_neighbors, est.tol, est.max_iter) == ((3,), 0.01, 7)
    assert (est.weights, est.orientation) == ("smooth", "columns")


def test_parameters_are_passed_to_a_single_fit(ncarl, csv, tmp_path):
    saved = tmp_path / "model"
    ncarl("complete", csv, "-o", tmp_path / "out.csv", *FAST, "--save-model", saved,
          "--gamma", 0.5, "--center", "none", "--n-neighbors", 2)  # fmt: skip
    est = package.load(saved)
    wanted = {"alpha": 1.0, "gamma": 0.5, "center": None, "n_neighbors": 2}
    assert {name: est.get_params()[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("rows", "suffix", "options"),
    [
        (15, "csv", ("--method", "bayes")),
        (15, "csv", ("--method", "ncarl", "--stream")),
        (40, "npy", ("--method", "bayes", "--stream")),
        (40, "npy", ("--method", "ncarl")),
        (40, "csv", ("--method", "nuclear")),
    ],
)
def test_estimator_and_command_use_the_same_scaling_rule(
    ncarl, tmp_path, rng, rows, suffix, options
):
    X = rng.standard_normal((rows, 4)) * [1, 10, 100, 1000]
    X[4, 2] = np.nan
    source, saved = tmp_path / f"in.{suffix}", tmp_path / "model.ncarl"
    if suffix == "csv":
        pd.DataFrame(X).to_csv(source, index=False, header=list("abcd"))
    else:
        np.save(source, X)
    said = ncarl(
        *("complete", source, "-o", tmp_path / f"out.{suffix}", *options),
        *("--max-iter", 2, "--tol", 0, "--save-model", saved),
    ).stdout
    scaled, ratio = compare_column_units(InMemoryDataset(Observations.from_dense(X)))
    assert scaled == (rows == 40)
    est = BayesianNCARL(max_iter=2, tol=0, scale="auto", sides="columns").fit(X)
    assert (est.model_.scaler.centering.column_scales != 1).all() == scaled
    assert package.load(saved).scale == ("columns" if scaled else None)
    line = next(text for text in said.splitlines() if text.startswith("scale"))
    assert line.split(maxsplit=1)[1] == (
        f"columns (standard deviations of columns differ by a factor of {ratio:.3g})"
        if scaled
        else "none (too few columns vary and have 20 observed entries)"
    )


def test_scaling_rule_ignores_constant_and_empty_columns(rng):
    X = rng.standard_normal((50, 4)) * [1, 1, 20, 20]
    idle = np.column_stack([X, np.full(50, 3.0), np.full(50, np.nan)])
    idle[0, 5] = 1e9
    reasons = {decide_scale(ModelOptions(), table) for table in (X, idle)}
    ((scale, reason),) = reasons
    assert scale == "columns" and float(reason.split()[-1]) > 5
    alone = decide_scale(ModelOptions(), X[:, :1])
    assert alone == (None, "too few columns vary and have 20 observed entries")


def test_given_noise_disables_automatic_scaling(ncarl, tmp_path, rng):
    X = rng.standard_normal((30, 4)) * [1, 10, 100, 1000]
    X[4, 2] = np.nan
    pd.DataFrame(X).to_csv(tmp_path / "in.csv", index=False, header=list("abcd"))
    command = ("complete", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    said = ncarl(*command, "--noise", 0.5, "--max-iter", 2, "--tol", 0).stdout
    assert "none (--noise is in the units of the values)" in said


def test_scaling_is_decided_without_a_copy_of_the_table(rng, monkeypatch):
    monkeypatch.setattr("ncarl.cli.models.CHUNK_ENTRIES", 10_000)
    values = rng.standard_normal((25_000, 40)) * np.linspace(1, 100, 40)
    decide_scale(ModelOptions(), values[:1000])
    tracemalloc.start()
    try:
        assert decide_scale(ModelOptions(), values)[0] == "columns"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < values.nbytes / 2


def test_scaling_is_disabled_where_it_does_not_apply(rng):
    wide = rng.standard_normal((20, 1001)) * np.linspace(1, 100, 1001)
    assert decide_scale(ModelOptions(method="ncarl"), wide)[0] is None
    assert decide_scale(ModelOptions(), wide)[0] == "columns"
    assert decide_scale(ModelOptions(), wide.T)[0] is None
    narrow = wide[:, ::50]
    assert decide_scale(ModelOptions(), narrow)[0] == "columns"
    assert decide_scale(ModelOptions(), csr_array(narrow))[0] == "columns"
    assert decide_scale(ModelOptions(scale="none"), narrow)[0] is None


@pytest.mark.parametrize("link", [None, "symlink", "hardlink"])
def test_input_is_replaced_only_with_overwrite(ncarl, fails, csv, tmp_path, link):
    out, before = csv, csv.read_bytes()
    if link is not None:
        out = tmp_path / "link.csv"
        getattr(out, f"{link}_to")(csv)
    said = fails("complete", csv, "-o", out, *FAST)
    assert "is the input itself" in said and "--overwrite" in said
    assert csv.read_bytes() == before
    ncarl("complete", csv, "-o", out, *FAST, "--overwrite")
    assert b"NA" not in out.read_bytes()
    assert link != "symlink" or (out.is_symlink() and b"NA" not in csv.read_bytes())


def test_existing_output_is_replaced_only_with_overwrite(ncarl, fails, csv, tmp_path):
    out, model = tmp_path / "out.csv", tmp_path / "model"
    out.write_text("mine")
    assert "exists" in fails("complete", csv, "-o", out, *FAST)
    assert out.read_text() == "mine"
    ncarl("complete", csv, "-o", out, *FAST, "--overwrite")
    assert out.read_text() != "mine"
    model.write_text("mine")
    said = fails("complete", csv, "-o", tmp_path / "2.csv", "--save-model", model)
    assert "--save-model" in said and model.read_text() == "mine"


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.tsv"], "which is CSV (in.csv), got TSV (out.tsv)"),
        (["-o", "out.xlsx"], "must end in one of"),
        (["-o", "nowhere/out.csv"], "does not exist"),
        (["-o", "."], "format of '.' is not known"),
        (["-o", "folder.csv"], "is a folder"),
        (["-o", "loop.csv", "--overwrite"], "OUT 'loop.csv' is a link that leads to"),
        (["-o", "fifo.csv", "--overwrite"], "OUT 'fifo.csv' is a FIFO, and is not"),
        (["-o", "o.csv", "--std", "fifo.csv", "--overwrite"], "--std 'fifo.csv' is a"),
        (["-o", "o.csv", "--save-model", "fifo.csv"], "--save-model 'fifo.csv' is a"),
        (["-o", "o.csv", "--checkpoint", "fifo.csv"], "--checkpoint 'fifo.csv' is a"),
        (["-o", "o.csv", "--checkpoint", "part"], "part for the rows) 'part.rows' is"),
        (["-o", "o.csv", "--report", "fifo.html"], "--report 'fifo.html' is a FIFO"),
        (["-o", "o.csv", "--stream", "--overwrite", "--std", "fifo.npy"], "is a FIFO"),
        (["-o", "loop.npy", "--stream", "--overwrite"], "OUT 'loop.npy' is a link"),
        (["-o", "loop.zarr", "--stream", "--overwrite"], "OUT 'loop.zarr' is a link"),
        (["-o", "out.csv", "--std", "out.csv"], "OUT and --std name one file"),
        (["-o", "out.csv", "--std", "std.npy"], "--std must have the format"),
        (["-o", "out.csv", "--checkpoint", "nowhere/c"], "--checkpoint: the folder"),
        (["-o", "out.csv", "--checkpoint", "out.csv"], "name one file"),
        (["-o", "out.csv", "--label", "zz"], "'zz' is not a column"),
        (["-o", "out.csv", "--array", "X"], "--array does not apply to CSV"),
    ],
)
def test_invalid_outputs_and_options_fail_before_the_fit(
    fails, csv, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    for name in ("fifo.csv", "fifo.html", "fifo.npy", "part.rows"):
        os.mkfifo(tmp_path / name)
    for name in ("loop.csv", "loop.npy", "loop.zarr"):
        (tmp_path / name).symlink_to(name)
    before = list_names(tmp_path)
    assert message in fails("complete", csv, *arguments)
    assert list_names(tmp_path) == before


@pytest.mark.usefixtures("no_fit")
def test_unwritable_folder_fails_before_the_fit(fails, csv, tmp_path, monkeypatch):
    # Root may write to any folder, so permissions are simulated.
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    said = fails("complete", csv, "-o", tmp_path / "out.csv")
    assert "cannot write to the folder" in said and "Permission denied" in said


def test_missing_and_pickled_inputs_give_an_error(fails, tmp_path):
    out = tmp_path / "out.npy"
    said = fails("complete", tmp_path / "in.npy", "-o", out)
    assert said == f"No such file or directory: {tmp_path / 'in.npy'}"
    np.save(tmp_path / "in.npy", np.array([[None]], dtype=object))
    assert "Python objects" in fails("complete", tmp_path / "in.npy", "-o", out)
    assert not out.exists()


def test_debug_propagates_the_exception(ncarl, tmp_path):
    source = tmp_path / "in.csv"
    result = ncarl("--debug", "complete", source, "-o", "out.csv", expect=1)
    assert isinstance(result.exception, FileNotFoundError)


@pytest.mark.usefixtures("no_fit")
def test_complete_input_is_copied(ncarl, tmp_path):
    (tmp_path / "in.csv").write_text('a,"b"\n1.0,2\n3,04\n')
    result = ncarl("complete", tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert "nothing was missing" in result.stdout
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "in.csv").read_bytes()
    np.save(tmp_path / "in.npy", np.arange(4).reshape(2, 2))
    ncarl("complete", tmp_path / "in.npy", "-o", tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").dtype.kind == "i"


@pytest.mark.parametrize("stream", [(), ("--stream", "--columns", "a,b,c,d,e,ghost")])
def test_empty_rows_and_columns_are_left_empty_and_named(ncarl, csv, tmp_path, stream):
    lines = [line + ",NA" for line in csv.read_text().splitlines()]
    lines[0] = lines[0].replace(",NA", ",ghost")
    lines.insert(3, "nobody,NA,NA,NA,NA,NA,NA")
    csv.write_text("\n".join(lines))
    paths = [tmp_path / name for name in ("out.csv", "std.csv")]
    page = tmp_path / "page.html"
    result = ncarl("complete", csv, "-o", paths[0], "--std", paths[1], *FAST, *stream,
                   "--gamma", 0.1, "--report", page)  # fmt: skip
    assert "empty     column ghost: nothing observed, left empty" in result.stdout
    assert "empty     row 3: nothing observed, left empty" in result.stdout
    for path in paths:
        values = pd.read_csv(path)[[*"abcde", "ghost"]].to_numpy()
        empty = np.zeros(values.shape, dtype=bool)
        empty[2] = empty[:, 5] = True
        np.testing.assert_array_equal(np.isnan(values), empty)
    words = " ".join(page.read_text().split())
    assert "No entry is observed in 1 column (ghost): nothing is known there" in words


def test_intervals_and_draws_leave_empty_rows_and_columns_empty(ncarl, tmp_path, X_nan):
    X_nan[2] = X_nan[:, 1] = np.nan
    np.save(tmp_path / "in.npy", X_nan)
    names = {"-o": "out.npy", "--lower": "low.npy", "--upper": "high.npy"}
    paths = {flag: tmp_path / name for flag, name in names.items()}
    draws = tmp_path / "draws.npz"
    ncarl("complete", tmp_path / "in.npy", *(x for pair in paths.items() for x in pair),
          "--imputations", 3, "--imputations-out", draws, "--max-iter", 3)  # fmt: skip
    empty = np.zeros(X_nan.shape, dtype=bool)
    empty[2] = empty[:, 1] = True
    for path in paths.values():
        np.testing.assert_array_equal(np.isnan(np.load(path)), empty)
    with np.load(draws) as archive:
        assert (np.isnan(archive["imputations"]) == empty).all()


@pytest.mark.parametrize(
    ("owner", "where"),
    [
        (BayesianNCARL, "fit"),
        (BaseCompleter, "transform"),
        (BayesianNCARL, "predict_interval"),
        (BayesianNCARL, "sample"),
    ],
)
def test_interrupted_run_leaves_no_files(
    ncarl, csv, tmp_path, monkeypatch, owner, where
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, where, stop)
    paths = ("-o", tmp_path / "out.csv", "--lower", tmp_path / "l.csv")
    draws = ("--imputations", 2, "--imputations-out", tmp_path / "d.npz")
    result = ncarl("complete", csv, *paths, *draws, expect=130)
    assert "stopped" in result.stderr and "Traceback" not in result.output
    assert list_names(tmp_path) == ["in.csv"]


def test_interrupt_while_writing_keeps_the_old_file(ncarl, csv, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    out.write_text("mine")

    def stop(*_):
        yield "half a li"
        raise KeyboardInterrupt

    monkeypatch.setattr("ncarl.io.csv.DelimitedTable._lines", stop)
    ncarl("complete", csv, "-o", out, *FAST, "--overwrite", expect=130)
    assert out.read_text() == "mine"
    assert list_names(tmp_path) == ["in.csv", "out.csv"]


def test_checkpoint_resumes_and_refuses_other_parameters(ncarl, fails, csv, tmp_path):
    state, first, second = (tmp_path / n for n in ("state", "1.csv", "2.csv"))
    options = (*FAST, "--checkpoint", state)
    ncarl("complete", csv, "-o", first, *options, "--max-iter", 3, "--tol", 0)
    assert state.exists()
    result = ncarl("complete", csv, "-o", second, *options, "--max-iter", 5, "--tol", 0)
    assert "steps     5, " in result.stdout
    whole = tmp_path / "3.csv"
    ncarl("complete", csv, "-o", whole, *FAST, "--max-iter", 5, "--tol", 0)
    assert second.read_bytes() == whole.read_bytes() != first.read_bytes()
    said = fails("complete", csv, "-o", tmp_path / "4.csv", "--method", "ncarl",
                 "--alpha", 2, "--checkpoint", state)  # fmt: skip
    assert "belongs to another fit" in said and "alpha" in said


def test_search_with_scaled_zero_columns_is_stable(ncarl, tmp_path):
    # With this seed the centered sums of the zero columns have rounding errors.
    rng = np.random.default_rng(1)
    X = np.zeros((60, 7))
    X[:, :3] = np.add(rng.standard_normal((60, 3)), [0, 3.7, 5.1])
    X[rng.random(X.shape) < 0.15] = np.nan
    np.save(tmp_path / "in.npy", X)
    options = (*SEARCH, "--scale", "columns", "--center", "two-way")
    result = ncarl(
        "complete", tmp_path / "in.npy", "-o", tmp_path / "out.npy", *options
    )
    error = next(line for line in result.stdout.splitlines() if "held out" in line)
    assert "of a column's standard deviation" in error
    assert float(error.split()[1]) < 2


def test_consecutive_numbers_are_reported_as_possible_labels(ncarl, tmp_path, rng):
    table = pd.DataFrame(rng.standard_normal((12, 3)), columns=list("abc"))
    table.iloc[2, 1] = np.nan
    table.insert(0, "number", np.arange(12))
    path = tmp_path / "in.csv"
    table.to_csv(path, index=False)
    said = ncarl("complete", path, "-o", tmp_path / "one.csv", *FAST).stdout
    assert "may be labels (see --label): number" in said
    options = (*FAST, "--label", "number")
    said = ncarl("complete", path, "-o", tmp_path / "two.csv", *options).stdout
    assert "may be labels" not in said

"""Tests of ``ncarl complete --stream``: results equal those in memory."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

import ncarl as package
from ncarl.cli import complete_run
from ncarl.cli.models import open_engine
from ncarl.cli.options import parse_columns
from ncarl.io import RowSource, Sink, open_rows

from .conftest import list_names, read, write

PAPER = ("--method", "ncarl", "--alpha", 1, "--gamma", 0.01, "--max-iter", 6)
PAPER = (*PAPER, "--tol", 0)
BAYES = ("--prior-strength", 0.1, "--max-iter", 4, "--tol", 0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Read tables in blocks of four rows."""
    few = partial(open_rows, rows_per_chunk=4)
    monkeypatch.setattr("ncarl.cli.complete_run.open_rows", few)


@pytest.fixture
def table(tmp_path, X_nan):
    """The matrix as a CSV file of numbers with full precision."""
    path = tmp_path / "in.csv"
    pd.DataFrame(X_nan, columns=list("abcde")).to_csv(path, index=False, na_rep="NA")
    return path


def field(said, name):
    """Value of a line of the printed summary."""
    (found,) = (x[10:] for x in said.splitlines() if x[:10].strip() == name)
    return found


@pytest.mark.parametrize(
    "options", [PAPER, (*BAYES, "--sides", "columns")], ids=["ncarl", "bayes"]
)
def test_output_equals_that_of_the_command_in_memory(
    ncarl, table, tmp_path, X_nan, options
):
    whole, out = [tmp_path / name for name in ("1.csv", "1s.csv")], tmp_path / "2.csv"
    std = tmp_path / "2s.csv"
    said = ncarl("complete", table, "-o", whole[0], "--std", whole[1], *options)
    other = ncarl("complete", table, "-o", out, "--std", std, *options, "--stream")
    for one, two in ((whole[0], out), (whole[1], std)):
        np.testing.assert_allclose(read(two)[0], read(one)[0], rtol=1e-7, atol=1e-12)
        assert read(two)[1] == list("abcde")
    seen = ~np.isnan(X_nan)
    np.testing.assert_array_equal(read(out)[0][seen], X_nan[seen])
    for name in ("method", "scale", "engine"):
        assert field(other.stdout, name) == field(said.stdout, name)
    missing = int((~seen).sum())
    assert f"14 x 5, {missing} missing (" in field(other.stdout, "table")
    assert "in chunks of rows" in field(other.stdout, "table")
    assert "the first line was read as the header" in other.stdout
    for part in ("s in all", str(out), "2s.csv (standard deviations"):
        assert part in other.stdout
    assert not other.stderr


@pytest.mark.parametrize(
    ("came", "goes"),
    [
        ("in.npy", "out.npy"),
        ("in.npz", "out.parquet"),
        ("in.parquet", "out.tsv"),
        ("folder", "out.csv.gz"),
        ("in.csv", "out.zarr"),
        ("in.tsv.gz", "out.parquet"),
        ("in.zarr", "out.npy"),
    ],
)
def test_every_format_can_be_read_and_written(ncarl, tmp_path, X_nan, came, goes):
    write(tmp_path / came, X_nan)
    out, std = tmp_path / goes, tmp_path / f"std-{goes}"
    options = (*PAPER, "--std", std, "--stream", "--scale", "none")
    ncarl("complete", tmp_path / came, "-o", out, *options)
    model = package.NCARL(alpha=1, gamma=0.01, max_iter=6, tol=0).fit(X_nan)
    wanted = model.transform(X_nan, return_std=True)
    for path, values in zip((out, std), wanted, strict=True):
        found, names = read(path)
        np.testing.assert_allclose(found, values, rtol=1e-7, atol=1e-12)
        named = came not in ("in.npy", "in.npz", "in.zarr")
        unnamed = None if goes.endswith(("npy", "zarr")) else list("01234")
        assert goes.endswith("npy") or names == (list("abcde") if named else unnamed)


def test_table_is_read_and_written_in_blocks(ncarl, tmp_path, X_nan, monkeypatch):
    heights, fitted = [], []
    put, fit = Sink.write, package.NCARL.fit
    monkeypatch.setattr(
        Sink, "write", lambda s, rows: heights.append(len(rows)) or put(s, rows)
    )
    monkeypatch.setattr(
        package.NCARL, "fit", lambda s, X: fitted.append(X) or fit(s, X)
    )
    write(tmp_path / "in.npy", X_nan)
    out = tmp_path / "out.npy"
    ncarl("complete", tmp_path / "in.npy", "-o", out, *PAPER, "--stream")
    assert heights == [4, 4, 4, 2]
    assert isinstance(fitted[0], RowSource)


def test_single_precision_is_preserved(ncarl, tmp_path, X_nan):
    write(tmp_path / "in.npy", X_nan.astype(np.float32))
    out = tmp_path / "out.npy"
    options = (*PAPER, "--dtype", "float32", "--engine", "threads", "--stream")
    ncarl("complete", tmp_path / "in.npy", "-o", out, *options)
    assert np.load(out).dtype == np.float32


def test_model_options_are_passed_to_the_estimator(ncarl, table, tmp_path):
    saved = tmp_path / "model"
    options = ("--center", "columns", "--noise", "learn", "--clip", "0,9", "--seed", 4)
    run = (*BAYES, "--validation", 0.2, "--round", "--save-model", saved, "--stream")
    said = ncarl("complete", table, "-o", tmp_path / "o.npy", *options, *run).stdout
    est = package.load(saved)
    assert (est.center, est.noise, est.clip) == ("columns", "learn", (0.0, 9.0))
    assert (est.random_state, est.validation, est.rounding) == (4, 0.2, "observed")
    assert (est.prior_strength, est.max_iter) == (0.1, 4)
    assert "model (the model; read it with ncarl.load)" in said
    assert "20% of the entries held out" in field(said, "error")


def test_text_column_error_suggests_selecting_columns(ncarl, fails, csv, tmp_path):
    out = tmp_path / "out.csv"
    said = fails("complete", csv, "-o", out, *PAPER, "--stream")
    assert "'row 0' in column 'name'" in said and "with --columns a,b,c" in said
    pd.read_csv(csv).to_parquet(tmp_path / "in.parquet")
    said = fails("complete", tmp_path / "in.parquet", "-o", out, *PAPER, "--stream")
    assert "'name'" in said and "with --columns a,b,c" in said
    said = fails("complete", csv, "-o", out, "--stream", "--columns", "a,zz")
    assert said.startswith("--columns names 'zz', which")
    assert not out.exists()
    ncarl("complete", csv, "-o", out, *PAPER, "--stream", "--columns", "e,a, c")
    found, names = read(out)
    assert names == ["e", "a", "c"]
    X = pd.read_csv(csv)[names].to_numpy()
    np.testing.assert_array_equal(found[~np.isnan(X)], X[~np.isnan(X)])
    assert np.isfinite(found).all()


def test_columns_option_needs_names_and_a_stream(ncarl, fails, table, tmp_path, X_nan):
    out = tmp_path / "out.npy"
    write(tmp_path / "in.npy", X_nan)
    picked = ("--columns", "a,b")
    said = fails("complete", tmp_path / "in.npy", "-o", out, *picked, "--stream")
    assert said.startswith("--columns needs a file with names")
    said = fails("complete", table, "-o", tmp_path / "o.csv", *picked)
    assert "--columns goes with --stream" in said and "--label" in said
    command = ("complete", table, "-o", out, "--stream", "--columns", "a,,b")
    assert "separated by commas" in ncarl(*command, expect=2).stderr
    assert parse_columns('a, "b, c"') == ("a", "b, c")


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("options", "refused", "way"),
    [
        (["--method", "ncarl-cv"], "--method ncarl-cv", "bayes or ncarl"),
        (["--na", "x"], "--na", "as NA"),
        (["--label", "a"], "--label", "--columns"),
        (["--no-header"], "--header/--no-header", "leave out --stream"),
        (["--array", "X"], "--array", "NPY"),
        (["--lower", "l.npy"], "--lower", "--std"),
        (["--imputations", "2"], "--imputations", "leave out --stream"),
        (["--sides", "both"], "--sides both", "--sides columns"),
        (
            ["--method", "ncarl", "--orientation", "rows"],
            "--orientation rows",
            "--orientation columns",
        ),
        (["--alpha", "1"], "--alpha", "change --method"),
        (["--noise", "0", "--std", "s.npy"], "--std", "--noise"),
    ],
)
def test_options_without_streaming_support_fail(
    fails, table, tmp_path, monkeypatch, options, refused, way
):
    monkeypatch.chdir(tmp_path)
    said = fails("complete", table, "-o", "out.npy", "--stream", *options)
    assert said.startswith(refused) and way in said
    assert list_names(tmp_path) == ["in.csv"]


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("came", "arguments", "message"),
    [
        ("in.csv", ["-o", "out.npz"], "OUT of --stream must end in one of .csv"),
        ("in.csv", ["-o", "o.csv", "--std", "s.mtx"], "--std of --stream must end in"),
        ("in.csv", ["-o", "nowhere/o.zarr"], "OUT: the folder"),
        ("in.csv", ["-o", "in.csv"], "OUT 'in.csv' is the input itself"),
        ("in.zarr", ["-o", "in.zarr"], "OUT 'in.zarr' is the input itself"),
        ("in.csv", ["-o", "in.zarr"], "OUT 'in.zarr' exists"),
        ("in.csv", ["-o", "mine.csv"], "OUT 'mine.csv' exists"),
        ("in.csv", ["-o", "a.csv", "--save-model", "mine.csv"], "--save-model"),
        ("in.csv", ["-o", "a.zarr", "--std", "a.zarr"], "OUT and --std name one"),
        ("in.csv", ["-o", "a.csv", "--checkpoint", "a.csv"], "name one file"),
        ("in.csv", ["-o", "dir.zarr", "--overwrite"], "is not a Zarr array"),
        ("in.csv", ["-o", "dir.npy", "--overwrite"], "is a folder"),
        ("folder", ["-o", "folder/o.csv"], "OUT 'folder/o.csv' lies in IN 'folder'"),
        ("folder", ["-o", "o.csv", "--checkpoint", "folder/c"], "lies in IN"),
        ("in.zarr/x.npy", ["-o", "in.zarr", "--overwrite"], "IN 'in.zarr/x.npy' lies"),
        ("in.mtx", ["-o", "o.npy"], "--stream reads .npy, .npz"),
        ("absent.npy", ["-o", "o.npy"], "'absent.npy' does not exist"),
    ],
)
def test_paths_are_checked_before_the_fit(
    fails, tmp_path, X_nan, monkeypatch, came, arguments, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("in.csv", "in.zarr", "folder"):
        write(tmp_path / name, X_nan)
    (tmp_path / "mine.csv").write_text("mine")
    (tmp_path / "dir.zarr").mkdir()
    (tmp_path / "dir.npy").mkdir()
    before = list_names(tmp_path)
    said = fails("complete", came, *arguments, "--stream")
    assert message in said
    assert list_names(tmp_path) == before
    assert (tmp_path / "mine.csv").read_text() == "mine"


@pytest.mark.parametrize("name", ["in.csv", "in.npy", "in.zarr"])
def test_input_is_replaced_only_with_overwrite(ncarl, fails, tmp_path, X_nan, name):
    path = tmp_path / name
    write(path, X_nan)
    fails("complete", path, "-o", path, *PAPER, "--stream")
    np.testing.assert_array_equal(read(path)[0], X_nan)
    ncarl("complete", path, "-o", path, *PAPER, "--stream", "--overwrite")
    seen = ~np.isnan(X_nan)
    np.testing.assert_array_equal(read(path)[0][seen], X_nan[seen])
    assert np.isfinite(read(path)[0]).all()
    assert list_names(tmp_path) == [name]


def test_overwriting_a_link_replaces_its_target(ncarl, table, tmp_path):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    ncarl("complete", table, "-o", link, *PAPER, "--stream", "--overwrite")
    assert link.is_symlink() and real.read_text().startswith("a,b,c,d,e\n")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("o.npy", KeyboardInterrupt),
        ("o.csv", OSError),
        ("o.parquet", KeyboardInterrupt),
        ("o.zarr", OSError),
    ],
)
def test_aborted_run_leaves_the_old_file(
    ncarl, table, tmp_path, X_nan, monkeypatch, name, error
):
    def abort(reached, chunks):
        yield next(iter(chunks))
        raise error("pulled out")

    out, std = tmp_path / name, tmp_path / f"s{name}"
    write(out, X_nan)
    monkeypatch.setattr(complete_run, "_report_rows", abort)
    options = (*PAPER, "--std", std, "--save-model", tmp_path / "m", "--overwrite")
    code = 130 if error is KeyboardInterrupt else 1
    result = ncarl("complete", table, "-o", out, *options, "--stream", expect=code)
    assert ("stopped" if code == 130 else "pulled out") in result.stderr
    assert "Traceback" not in result.output
    np.testing.assert_array_equal(read(out)[0], X_nan)
    assert list_names(tmp_path) == sorted(["in.csv", name])


@pytest.mark.parametrize("options", [PAPER[:-4], BAYES[:2]], ids=["ncarl", "bayes"])
def test_interrupted_fit_resumes_from_its_checkpoint(
    ncarl, fails, table, tmp_path, monkeypatch, options
):
    class StoppingThreads(package.Threads):
        """Threads engine that is interrupted during a fit."""

        passes = 0

        def total(self, *arguments, **shared):
            StoppingThreads.passes += 1
            if StoppingThreads.passes > stop_after:
                raise KeyboardInterrupt
            return super().total(*arguments, **shared)

    run = (*options, "--max-iter", 6, "--tol", 0, "--stream")
    kept = (*run, "--checkpoint", tmp_path / "state")
    with monkeypatch.context() as patch:
        patch.setattr("ncarl.engines.Threads", StoppingThreads)
        stop_after = 10**6
        ncarl("complete", table, "-o", tmp_path / "1.npy", *run, "--engine", "threads")
        whole, StoppingThreads.passes = StoppingThreads.passes, 0
        stop_after = whole - 2
        command = ("complete", table, "-o", tmp_path / "2.npy", "--engine", "threads")
        ncarl(*command, *kept, expect=130)
        assert (tmp_path / "state").exists() and not (tmp_path / "2.npy").exists()
        stop_after, StoppingThreads.passes = 10**6, 0
        ncarl(*command, *kept)
        assert StoppingThreads.passes < whole
    assert (tmp_path / "1.npy").read_bytes() == (tmp_path / "2.npy").read_bytes()
    other = (*kept, "--center", "mean", "--overwrite")
    assert "belongs to another fit" in fails(*command, *other)


@pytest.mark.usefixtures("no_fit")
def test_table_without_missing_entries_is_copied(ncarl, tmp_path, rng):
    X = rng.standard_normal((9, 5))
    write(tmp_path / "in.parquet", X)
    out = tmp_path / "out.zarr"
    said = ncarl("complete", tmp_path / "in.parquet", "-o", out, "--stream").stdout
    assert "nothing was missing" in said and "9 x 5, 0 missing" in said
    found, names = read(out)
    np.testing.assert_array_equal(found, X)
    assert names == list("abcde")


def test_table_without_observed_entries_gives_an_error(fails, tmp_path):
    write(tmp_path / "in.csv", np.full((3, 5), np.nan))
    for method in ("bayes", "ncarl"):
        options = ("--method", method, "--stream")
        said = fails(
            "complete", tmp_path / "in.csv", "-o", tmp_path / "o.csv", *options
        )
        assert "no observed entry" in said
    assert list_names(tmp_path) == ["in.csv"]


def test_quiet_prints_only_one_line_warnings(ncarl, table, tmp_path):
    options = (*PAPER[:-4], "--max-iter", 1, "--tol", 1e-12, "--stream", "--quiet")
    result = ncarl("complete", table, "-o", tmp_path / "o.npy", *options)
    assert result.stderr.startswith("warning: not converged after 1 steps")
    assert result.stderr.count("\n") == 1 and not result.stdout


def test_progress_bars_of_fit_and_writing(ncarl, table, tmp_path, monkeypatch):
    monkeypatch.setattr("ncarl.cli.console.is_interactive", lambda quiet: True)
    options = (*PAPER, "--stream")
    result = ncarl("complete", table, "-o", tmp_path / "o.npy", *options)
    assert "NCARL" in result.stderr and "6/6" in result.stderr
    assert "writing" in result.stderr and "100/100" in result.stderr


def test_dask_engine_uses_the_configured_scheduler(monkeypatch):
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    options, made = "dask", []

    class FakeDask:
        link = None

        def __init__(self, cluster):
            made.append(cluster)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            made.append("closed")

    monkeypatch.setattr("ncarl.engines.dask.Dask", FakeDask)
    address = "tcp://127.0.0.1:8786"
    with (
        dask.config.set({"scheduler-address": address}),
        open_engine(options) as engine,
    ):
        assert isinstance(engine, FakeDask)
    with open_engine(options):
        pass
    assert made == [address, "closed", None, "closed"]
    from ncarl.engines.dask import LostWorkersError

    with pytest.raises(ConnectionError, match="dask: all gone"), open_engine(options):
        raise LostWorkersError("all gone")
    with open_engine("auto") as engine:
        assert engine == "auto"


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_dask_engine_gives_the_same_table(ncarl, table, tmp_path, monkeypatch, stream):
    pytest.importorskip("distributed")
    from ncarl.engines import dask as engine

    connected, connect = [], engine.connect
    monkeypatch.setattr(
        engine, "connect", lambda *which: connected.append(which) or connect(*which)
    )
    one, two = tmp_path / "1.csv", tmp_path / "2.csv"
    options = (*PAPER, "--max-iter", 2, *stream)
    ncarl("complete", table, "-o", one, *options)
    said = ncarl("complete", table, "-o", two, *options, "--engine", "dask").stdout
    assert field(said, "engine").startswith("dask: threads")
    assert len(connected) == 1  # one connection for fit and output
    np.testing.assert_allclose(read(two)[0], read(one)[0], rtol=1e-9)


def test_dask_engine_needs_a_method_that_supports_it(ncarl, fails, table, tmp_path):
    options = ("--method", "nuclear", "--engine", "dask")
    said = fails("complete", table, "-o", tmp_path / "o.csv", *options)
    assert said.startswith("--engine dask belongs to --method bayes or")
    ncarl("compare", table, "--engine", "dask", expect=2)

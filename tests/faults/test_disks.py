"""Tests that full disks and missing folders keep the previous checkpoint."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.io import mmwrite
from sklearn.base import clone

from ncarl import NCARL, NCARLCV, BayesianNCARL, Nuclear
from ncarl.exceptions import BrokenFileError, CheckpointError
from ncarl.html import Page
from ncarl.io import open_sink
from ncarl.io.files import write_json
from ncarl.io.parquet import write_rows
from ncarl.io.tables import ReadOptions, read_table
from ncarl.plots import save_figure, spectrum

FITS = {
    "kernel": NCARL(max_iter=6, tol=0, alpha=1.0, n_neighbors=3),
    "search": NCARLCV(
        alphas=(0.0, 1.0), gammas=(None, 0.1), centers=(None,), max_iter=6, tol=0
    ),
    "bayes": BayesianNCARL(max_iter=6, tol=0, prior_strength=0.1, sides="columns"),
    "rival": Nuclear(max_iter=9, tol=0),
}


def make_fit(kind, **options):
    return clone(FITS[kind]).set_params(**options)


@pytest.fixture(name="X")
def incomplete_matrix():
    rng = np.random.default_rng(0)
    X = rng.random((24, 2)) @ rng.random((2, 9)) + 0.01 * rng.random((24, 9))
    X[rng.random(X.shape) < 0.3] = np.nan
    return X


@pytest.fixture
def state(tmp_path):
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept" / "state"


def read_files(state):
    return {path.name: path.read_bytes() for path in state.parent.iterdir()}


def fail_after(monkeypatch, count, code):
    """Let `Path.replace` fail after ``count`` calls."""
    usual, calls = Path.replace, []

    def replace(self, target):
        calls.append(target)
        if len(calls) > count:
            raise OSError(code, os.strerror(code), str(self))
        return usual(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    return calls


@pytest.mark.parametrize(
    ("code", "way"),
    [
        (errno.ENOSPC, r"Make room for 0\.1 MB more there, and fit again"),
        (errno.EDQUOT, "or have your quota raised"),
        (errno.EFBIG, "Raise the limit on the size of a file"),
        (errno.EROFS, "Make its folder writable"),
        (errno.EIO, "Fix this problem"),
    ],
)
def test_error_names_file_step_reason_and_remedy(X, state, code, way, monkeypatch):
    fail_after(monkeypatch, 3, code)
    with pytest.raises(CheckpointError, match=way) as caught:
        make_fit("kernel", checkpoint=state).fit(X)
    assert str(caught.value).startswith(
        f"checkpoint {str(state)!r} could not be written at step 4 "
        f"({os.strerror(code)}); the earlier one, of step 3, is kept."
    )
    assert caught.value.errno == code
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("count", [0, 4])
@pytest.mark.parametrize("kind", FITS)
def test_every_fit_stops_at_a_failed_write_and_resumes(
    X, state, kind, count, monkeypatch
):
    whole = make_fit(kind).fit_transform(X)
    fit = make_fit(kind, checkpoint=state)
    calls = fail_after(monkeypatch, count, errno.ENOSPC)
    with pytest.raises(CheckpointError, match="No space left"):
        fit.fit(X)
    assert len(calls) == count + 1  # it stops at the first failure
    monkeypatch.undo()
    assert all(not name.startswith(".") for name in read_files(state))
    assert bool(read_files(state)) == (count > 0)
    assert_array_equal(fit.fit_transform(X), whole)


def test_removed_folder_is_a_checkpoint_error(X, state):
    away = state.parent.with_name("away")

    def move(info):
        if info.step == 3:
            state.parent.rename(away)

    fit = make_fit("kernel", checkpoint=state, callback=move)
    with pytest.raises(CheckpointError, match=r"does not exist.*of step 3, is kept"):
        fit.fit(X)
    away.rename(state.parent)
    resumed = fit.set_params(callback=None).fit_transform(X)
    assert_array_equal(resumed, make_fit("kernel").fit_transform(X))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_folder_that_becomes_read_only(X, state):
    def lock(info):
        if info.step == 3:
            state.parent.chmod(0o500)

    fit = make_fit("kernel", checkpoint=state, callback=lock)
    with pytest.raises(CheckpointError, match="Make its folder writable"):
        fit.fit(X)
    with pytest.raises(PermissionError, match="cannot be written to"):
        fit.fit(X)
    state.parent.chmod(0o700)
    fit.set_params(callback=None).fit(X)


@pytest.mark.parametrize("kind", FITS)
def test_damaged_files_raise_and_are_kept(X, state, kind):
    fit = make_fit(kind, checkpoint=state)
    whole = fit.fit_transform(X)
    sound = read_files(state)
    rng = np.random.default_rng(1)
    for name, data in sound.items():
        path = state.parent / name
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        for damaged in (data[: int(rng.integers(len(data)))], bytes(flipped), b""):
            path.write_bytes(damaged)
            with pytest.raises(BrokenFileError, match=f"{name}.*(remove|move) it"):
                fit.fit(X)
            assert read_files(state) == {**sound, name: damaged}
        path.write_bytes(data)
    assert_array_equal(fit.fit_transform(X), whole)


def test_two_fits_may_use_the_same_file(X, state):
    def other(info):
        make_fit("kernel", checkpoint=state).fit(X)

    whole = make_fit("kernel").fit_transform(X)
    first = make_fit("kernel", checkpoint=state, callback=other)
    assert_array_equal(first.fit_transform(X), whole)
    assert list(read_files(state)) == ["state"]


def write_sink(path):
    with open_sink(path, n_columns=20) as sink:
        sink.write(np.random.default_rng(0).random((3000, 20)))


def write_table(path):
    table = read_table(path.with_name(f"in-{path.name}"), ReadOptions())
    table.write(path, np.ones((3000, 20)))


WRITERS = {
    "sink.csv": write_sink,
    "sink.csv.gz": write_sink,
    "sink.npy": write_sink,
    "sink.parquet": write_sink,
    "sink.zarr": write_sink,
    "table.csv": write_table,
    "table.npy": write_table,
    "table.npz": write_table,
    "table.parquet": write_table,
    "table.mtx": write_table,
    "rows.parquet": lambda path: write_rows(path, "a", [[k / 7] for k in range(9999)]),
    "page.html": lambda path: Page("a" * 20_000).save(path),
    "figure.png": lambda path: save_figure(spectrum([2.0, 1.0]), path),
    "data.json": lambda path: write_json(path, [*range(9999)]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_full_disk_names_the_file_and_keeps_the_old_one(tmp_path, name, rng):
    resource = pytest.importorskip("resource")  # a limit on the size of files
    X, path = rng.random((3000, 20)), tmp_path / name
    X[0, 0] = np.nan
    given = path.with_name(f"in-{name}")
    if name.startswith("table"):
        {
            ".csv": lambda: np.savetxt(given, X, "%.17g", ","),
            ".npy": lambda: np.save(given, X),
            ".npz": lambda: np.savez(given, X=X),
            ".parquet": lambda: pd.DataFrame(X).rename(columns=str).to_parquet(given),
            ".mtx": lambda: mmwrite(given, X),
        }[path.suffix]()
    if path.suffix != ".zarr":
        path.write_text("old")
    before = sorted(tmp_path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises(OSError, match=name) as caught:
            WRITERS[name](path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(path)
    assert sorted(tmp_path.iterdir()) == before
    assert path.suffix == ".zarr" or path.read_text() == "old"


FULL = """
import subprocess, sys
from pathlib import Path
import numpy as np
from ncarl import NCARL, Threads
from ncarl.exceptions import CheckpointError

disk = Path(sys.argv[1])
command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk]
if subprocess.run(command, capture_output=True).returncode:
    sys.exit(77)
rng = np.random.default_rng(0)
X = rng.random((40, 3)) @ rng.random((3, 30))
X[rng.random(X.shape) < 0.3] = np.nan
options = {"max_iter": 8, "tol": 0, "engine": Threads(1)}

def fill(info):
    if info.step == 4:
        with (disk / "junk").open("wb", buffering=0) as junk:
            try:
                while junk.write(bytes(4096)):
                    pass
            except OSError:
                pass

try:
    NCARL(**options, checkpoint=disk / "state", callback=fill).fit(X)
except CheckpointError as error:
    assert "No space left" in str(error) and "of step 4, is kept" in str(error), error
else:
    raise AssertionError("the disk was not full")
assert sorted(p.name for p in disk.iterdir()) == ["junk", "state"]
(disk / "junk").unlink()
steps = []
options["callback"] = lambda info: steps.append(info.step)
again = NCARL(**options, checkpoint=disk / "state").fit(X)
assert steps == [5, 6, 7, 8], steps
assert (again.kernel_ == NCARL(**options).fit(X).kernel_).all()
"""


def test_full_disk(tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    ways = ["unshare", "--user", "--map-root-user", "--mount"]
    allowed = subprocess.run([*ways, "true"], capture_output=True)
    command = [*ways, sys.executable, "-c", FULL, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if allowed.returncode or done.returncode == 77:
        pytest.skip("no mounts of one's own are allowed here")
    assert done.returncode == 0, done.stderr

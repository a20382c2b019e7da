"""Tests of sinks: written files, and existing files after a failure."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from ncarl.io import open_rows, open_sink, zarr as zarr_module

NEEDS = {
    **{".npy": "numpy", ".zarr": "zarr", ".pq": "pyarrow"},
    **{".csv": "pyarrow", ".tsv.gz": "pyarrow"},
}


@pytest.fixture(params=list(NEEDS))
def kind(request):
    """Every suffix whose library is available."""
    pytest.importorskip(NEEDS[request.param])
    return request.param


def written(path, X, step, **options):
    """Write rows ``step`` at a time from a reused buffer."""
    with open_sink(path, n_columns=X.shape[1], **options) as sink:
        for first in range(0, len(X), step):
            rows = X[first : first + step].copy()
            sink.write(rows)
            rows[:] = 99.0
    return path


def read(path):
    """The source of a file, and its matrix."""
    source = open_rows(path)
    parts = [np.full(chunk.shape, np.nan) for chunk in source]
    for part, chunk in zip(parts, source, strict=True):
        part[chunk.rows, chunk.indices] = chunk.values
    return source, np.concatenate(parts)


def make_matrix(rng, shape):
    X = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)
    X[rng.random(shape) < 0.3] = np.nan
    X[0, -1] = 1.0
    return X


def files(folder):
    return sorted(path.name for path in folder.iterdir())


numbers = st.floats(allow_infinity=False, width=64)
shapes = st.tuples(st.integers(1, 8), st.integers(1, 4))


@pytest.mark.parametrize("kind", list(NEEDS))
@settings(max_examples=15)
@given(X=hnp.arrays(np.float64, shapes, elements=numbers), step=st.integers(1, 9))
def test_readers_find_what_sinks_wrote_bit_for_bit(kind, X, step):
    pytest.importorskip(NEEDS[kind])
    X = np.where(np.isnan(X), np.nan, X)  # one NaN bit pattern
    X[0, -1] = 1.0  # the first row is not empty
    with tempfile.TemporaryDirectory() as folder:
        source, found = read(written(Path(folder) / f"X{kind}", X, step))
        assert found.tobytes() == X.tobytes()
        assert source.dtype == np.float64
        # Only Parquet generates names.
        counted = tuple(map(str, range(X.shape[1])))
        assert source.names == (counted if kind == ".pq" else None)
        assert files(Path(folder)) == [f"X{kind}"]


@pytest.mark.parametrize(
    "names", [("a", "b"), ("0", "1"), ("1", "NA"), ('x,"y', "a;b;c")]
)
def test_names_are_preserved(kind, names, tmp_path, rng):
    X = make_matrix(rng, (9, 2))
    source, found = read(written(tmp_path / f"X{kind}", X, 4, names=names))
    np.testing.assert_array_equal(found, X)
    assert source.names == (None if kind == ".npy" else names)


def test_float32_values_are_preserved(kind, tmp_path, rng):
    X = make_matrix(rng, (9, 3)).astype(np.float32)
    source, found = read(written(tmp_path / f"X{kind}", X, 4, dtype=np.float32))
    assert found.astype(np.float32).tobytes() == X.tobytes()
    np.testing.assert_array_equal(found, X.astype(np.float64))
    text = NEEDS[kind] == "pyarrow" and ".p" not in kind
    assert source.dtype == (np.float64 if text else np.float32)


def test_rows_of_other_dtypes_are_converted(kind, tmp_path):
    path = tmp_path / f"X{kind}"
    with open_sink(path, n_columns=2, dtype="float32") as sink:
        sink.write(np.arange(6).reshape(3, 2))
        sink.write([[7.5, 8.5]])
        sink.write(np.empty((0, 2)))
        sink.write(np.asfortranarray(np.arange(4.0).reshape(2, 2)))
    _, found = read(path)
    wanted = [[0, 1], [2, 3], [4, 5], [7.5, 8.5], [0, 1], [2, 3]]
    assert found.tolist() == wanted


def test_npy_header_is_valid_for_any_number_of_rows(tmp_path):
    for rows in (0, 1, 9, 10, 100_000):
        X = np.arange(rows * 2.0).reshape(rows, 2)
        found = np.load(written(tmp_path / "X.npy", X, 30_000))
        np.testing.assert_array_equal(found, X)


def test_given_number_of_rows_is_checked(kind, tmp_path, rng):
    X = make_matrix(rng, (6, 2))
    _, found = read(written(tmp_path / f"X{kind}", X, 4, n_rows=6))
    np.testing.assert_array_equal(found, X)
    for said in (5, 7):
        with pytest.raises(ValueError, match=f"got {said}, and 6 were written"):
            written(tmp_path / f"Y{kind}", X, 4, n_rows=said)
    assert files(tmp_path) == [f"X{kind}"]


def test_existing_file_is_replaced_only_on_success(kind, tmp_path, rng):
    path = tmp_path / f"X{kind}"
    old, new = make_matrix(rng, (5, 2)), make_matrix(rng, (7, 2))
    for there in (False, True):
        with pytest.raises(KeyboardInterrupt), open_sink(path, n_columns=2) as sink:
            sink.write(new)
            raise KeyboardInterrupt
        assert files(tmp_path) == ([path.name] if there else [])
        written(path, old, 5)
    with open_sink(path, n_columns=2) as sink:
        sink.write(new)
        np.testing.assert_array_equal(read(path)[1], old)
    np.testing.assert_array_equal(read(path)[1], new)
    assert files(tmp_path) == [path.name]


@pytest.mark.parametrize("rows", [np.zeros((2, 3)), np.zeros(2)])
def test_rows_of_other_width_raise(rows, tmp_path):
    with (
        pytest.raises(ValueError, match=r"shape \(k, 2\), got"),
        open_sink(tmp_path / "X.npy", n_columns=2) as sink,
    ):
        sink.write(rows)
    assert files(tmp_path) == []


FULL = """
import resource, sys
import numpy as np
from ncarl.io import open_sink

resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
X = np.random.default_rng(0).standard_normal((40_000, 10))
for path in sys.argv[1:]:
    try:
        with open_sink(path, n_columns=10) as sink:
            for first in range(0, 40_000, 1000):
                sink.write(X[first : first + 1000])
    except OSError as error:
        print(error.errno is not None or str(error) != "")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files there")
def test_full_disk_keeps_only_the_existing_file(tmp_path, rng):
    kinds = [kind for kind, name in NEEDS.items() if importlib.util.find_spec(name)]
    X = make_matrix(rng, (5, 2))
    paths = [written(tmp_path / f"X{kind}", X, 5) for kind in kinds]
    before = files(tmp_path)
    command = [sys.executable, "-c", FULL, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * len(kinds), done.stderr
    assert files(tmp_path) == before
    for path in paths:
        np.testing.assert_array_equal(read(path)[1], X)


def test_zarr_chunks_are_written_completely(tmp_path, rng, monkeypatch):
    pytest.importorskip("zarr")
    monkeypatch.setattr(zarr_module, "CHUNK_SIZE", 12)  # 4 rows of 3 columns
    X = make_matrix(rng, (23, 3))
    for step in (1, 3, 4, 5, 23):
        for n_rows in (None, 23):
            path = written(tmp_path / "X.zarr", X, step, n_rows=n_rows)
            source, found = read(path)
            assert source.array.chunks == (4, 3)
            np.testing.assert_array_equal(found, X)


def test_old_array_is_restored_if_the_move_fails(tmp_path, rng, monkeypatch):
    pytest.importorskip("zarr")
    X = make_matrix(rng, (5, 2))
    path = written(tmp_path / "X.zarr", X, 5)
    rename = Path.rename

    def fail(self, target):
        if self.name.endswith(".zarr") and Path(target) == path and self != path:
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no"):
        written(path, X + 1, 5)
    monkeypatch.undo()
    np.testing.assert_array_equal(read(path)[1], X)
    assert files(tmp_path) == ["X.zarr"]


def test_permissions_match_a_new_or_the_old_file(kind, tmp_path):
    path, plain = tmp_path / f"X{kind}", tmp_path / "plain"
    plain.mkdir() if kind == ".zarr" else plain.touch()
    usual = plain.stat().st_mode
    written(path, np.ones((1, 2)), 1)
    assert path.stat().st_mode == usual
    private = 0o700 if kind == ".zarr" else 0o600
    path.chmod(private)
    written(path, np.ones((1, 2)), 1)
    assert path.stat().st_mode & 0o777 == private


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("X.xlsx", ValueError, r"\.csv, .*\.npy, \.zarr, got .*X"),
        ("X.npz", ValueError, r"\.csv, .*\.npy, \.zarr, got .*X"),
        ("nowhere/X.npy", FileNotFoundError, r"nowhere.*does not exist"),
        ("folder.npy", FileExistsError, "is a folder"),
        ("letters.zarr", ValueError, "not a Zarr array, so it is not replaced"),
    ],
)
def test_invalid_paths_raise_before_writing(name, error, message, tmp_path):
    if name.endswith("zarr"):
        pytest.importorskip("zarr")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "letters.zarr").mkdir()
    with pytest.raises(error, match=message):
        open_sink(tmp_path / name, n_columns=2)
    assert files(tmp_path) == ["folder.npy", "letters.zarr"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_columns": 0}, "n_columns must be a whole number of at least 1, got 0"),
        ({"n_columns": 1.5}, "n_columns must be"),
        ({"n_columns": 2, "n_rows": -1}, "n_rows must be"),
        ({"n_columns": 2, "names": ["a"]}, "each of the 2 columns, got 1"),
        ({"n_columns": 2, "dtype": "int64"}, "float32 or float64, got int64"),
    ],
)
def test_invalid_parameters_raise(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        open_sink(tmp_path / "X.npy", **options)


def test_parquet_columns_need_unique_names(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="'a' more than once"):
        open_sink(tmp_path / "X.parquet", n_columns=2, names=["a", "a"])


def test_compressed_files_are_reproducible(tmp_path, rng):
    pytest.importorskip("pyarrow")
    X = make_matrix(rng, (9, 2))
    one = written(tmp_path / "one.csv.gz", X, 4).read_bytes()
    assert written(tmp_path / "two.csv.gz", X, 4).read_bytes() == one
    assert one[4:8] == bytes(4)  # no time stamp

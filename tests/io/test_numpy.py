"""Tests of arrays and sparse matrices in NPY and NPZ files."""

from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from ncarl.exceptions import BrokenFileError
from ncarl.io import open_rows
from ncarl.io.tables import ReadOptions, read_table
from ncarl.observations import Observations


def read_stream(path):
    return list(open_rows(path))


def read_whole(path):
    return read_table(path, ReadOptions())


def test_other_sparse_formats_raise(X, tmp_path):
    csc = Observations.from_dense(X).to_csr().tocsc()
    sparse.save_npz(tmp_path / "X.npz", csc)
    with pytest.raises(ValueError, match=r"'csr'.*got 'csc'.*tocsr"):
        open_rows(tmp_path / "X.npz")


def test_several_arrays_raise_with_their_names(tmp_path, X):
    np.savez(tmp_path / "X.npz", one=X, two=X)
    with pytest.raises(ValueError, match="one, two"):
        open_rows(tmp_path / "X.npz")


@pytest.mark.parametrize("compressed", [False, True])
def test_chunks_without_entries_are_read(compressed, tmp_path, check):
    X = np.full((6, 3), np.nan)
    X[3, 1] = 2.0
    csr = Observations.from_dense(X).to_csr()
    sparse.save_npz(tmp_path / "X.npz", csr, compressed=compressed)
    check(open_rows(tmp_path / "X.npz", rows_per_chunk=1), X, 1)


def test_unsorted_and_nan_entries_are_handled(tmp_path):
    parts = ([3.0, 1.0, np.nan, 0.0], [2, 0, 1, 0], [0, 2, 2, 4])
    sparse.save_npz(tmp_path / "X.npz", sparse.csr_array(parts, shape=(3, 3)))
    (chunk,) = open_rows(tmp_path / "X.npz")
    assert chunk.indices.tolist() == [0, 2, 0]
    assert chunk.values.tolist() == [1.0, 3.0, 0.0]
    assert chunk.indptr.tolist() == [0, 2, 2, 3]


def test_duplicate_entry_raises_with_its_chunk(tmp_path):
    parts = ([1.0, 2.0, 3.0], [0, 1, 1], [0, 1, 1, 3])
    sparse.save_npz(tmp_path / "X.npz", sparse.csr_array(parts, shape=(3, 2)))
    source = open_rows(tmp_path / "X.npz", rows_per_chunk=2)
    with pytest.raises(ValueError, match=r"rows from 2 on.*twice.*row 0, column 1"):
        list(source)


@pytest.mark.parametrize(
    "change",
    [
        {"indices": np.array([0, 9, 1], np.int32)},
        {"indices": np.array([0, -1, 1], np.int32)},
        {"indptr": np.array([0, 2, 1, 3])},
        {"indptr": np.array([0, 2, 2, 2])},
        {"indptr": np.array([0, 3])},
        {"data": np.ones(2)},
        {"indices": np.array([0.0, 1.0, 1.0])},
    ],
)
def test_inconsistent_arrays_raise(change, tmp_path):
    good = {
        "format": np.array(b"csr"),
        "shape": np.array([3, 2]),
        "data": np.ones(3),
        "indices": np.array([0, 1, 1], np.int32),
        "indptr": np.array([0, 2, 2, 3]),
    }
    np.savez(tmp_path / "X.npz", **good)
    list(open_rows(tmp_path / "X.npz"))
    np.savez(tmp_path / "X.npz", **{**good, **change})
    with pytest.raises(BrokenFileError, match="damaged"):
        list(open_rows(tmp_path / "X.npz"))


def test_flipped_bit_in_a_compressed_file_raises(tmp_path, rng):
    csr = Observations.from_dense(rng.standard_normal((50, 8))).to_csr()
    sparse.save_npz(tmp_path / "X.npz", csr)
    raw = bytearray((tmp_path / "X.npz").read_bytes())
    source = open_rows(tmp_path / "X.npz")
    place = max(len(raw) // 2, 10)
    raw[place] ^= 0x10
    (tmp_path / "X.npz").write_bytes(raw)
    with pytest.raises(ValueError, match=r"NPZ|damaged|changed|array|cut off"):
        list(open_rows(tmp_path / "X.npz"))
    with pytest.raises(ValueError, match="changed"):
        list(source)


def test_truncated_file_or_other_dimension_raises(tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, np.zeros(4))
    with pytest.raises(ValueError, match=r"2 dimensions.*\(4,\)"):
        open_rows(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BrokenFileError, match="cut off"):
        open_rows(path)


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }"
SHAPE, TYPE = "(2, 2)", "'<f8'"
HOSTILE = {
    "nested": "(" * 5000 + ")" * 5000,
    "deep": "-" * 9000 + "1",
    "padded": HEADER + " " * 50_000,
    "cut": HEADER[:9],
    "mixed": "{1: 2, 'descr': 3}",
    "binary": "\xff\xfe" * 40,
    "objects": HEADER.replace(TYPE, "'|O'"),
    "negative": HEADER.replace(SHAPE, "(-2, 2)"),
    "large": HEADER.replace(SHAPE, f"({1 << 40}, 2)"),
    "overflowing": HEADER.replace(SHAPE, f"({1 << 70}, 2)"),
    "without rows": HEADER.replace(SHAPE, "(0, 2)"),
    "version": HEADER,
}


def npy_bytes(header, version=1):
    start = header.encode("latin1") + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(start)) + start


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_headers_are_refused_without_allocation(tmp_path, kind, suffix):
    path = tmp_path / f"X{suffix}"
    data = npy_bytes(HOSTILE[kind], 9 if kind == "version" else 1)
    if kind != "without rows":
        data += bytes(32)
    if suffix == ".npy":
        path.write_bytes(data)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", data)
    for read in (read_stream, read_whole):
        with pytest.raises(ValueError, match=r"cannot be read as NP|must have"):
            read(path)


def test_members_that_are_no_arrays_are_named(tmp_path):
    path = tmp_path / "X.npz"
    np.savez(path, X=np.eye(2))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "mine")
    for read in (read_stream, read_whole):
        with pytest.raises(BrokenFileError, match=r"X\.npz.*'notes\.txt' in it is no"):
            read(path)


def test_compressed_arrays_larger_than_the_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ncarl.io.base.host_memory", lambda: 4 << 20)
    path, X = tmp_path / "X.npz", np.ones((1000, 200))  # 1.6 MB
    np.savez_compressed(path, X=X)
    table = tmp_path / "X.parquet"  # of repeated values, which take no room
    pd.DataFrame(X, columns=[str(j) for j in range(200)]).to_parquet(table)
    for read, file in ((read_stream, path), (read_whole, path), (read_whole, table)):
        with pytest.raises(MemoryError, match=rf"{file.name}.*unpacked.*--stream"):
            read(file)
    np.savez(path, X=X)  # takes its room on the disk too
    assert open_rows(path).n_rows == 1000


MEASURE = """
import sys
from ncarl.io import open_rows

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def read(*paths):
    seen = sum(chunk.n_observed for path in paths for chunk in open_rows(path))
    print(seen, peak())

read(*sys.argv[1:3])
read(*sys.argv[3:5])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    counts = []
    for name, rows in (("small", 5_000), ("large", 50_000)):
        # A sparse file of zeros, which uses no disk space.
        array = np.lib.format.open_memmap(
            tmp_path / f"{name}.npy", "w+", np.float64, (rows, 500)
        )
        del array
        indices = np.resize(np.arange(320, dtype=np.int32), rows * 320)
        parts = (np.zeros(rows * 320), indices, np.arange(rows + 1) * 320)
        csr = sparse.csr_array(parts, shape=(rows, 500))
        sparse.save_npz(tmp_path / f"{name}.npz", csr, compressed=False)
        counts.append(rows * 820)
    names = ("small.npy", "small.npz", "large.npy", "large.npz")
    command = [sys.executable, "-c", MEASURE, *(tmp_path / name for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    few, small, many, large = map(int, done.stdout.split())
    assert [few, many] == counts
    assert large < 1.1 * small

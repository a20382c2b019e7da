"""Tests that saved models are loaded bit-identically or raise."""

import hashlib
import io
import os
import pickletools
import stat
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import ncarl
from ncarl import NCARL, NCARLCV, Threads
from ncarl.exceptions import BrokenFileError
from ncarl.io.files import MAGIC, atomic_write, read_archive, write_archive

FEW = {"max_iter": 3, "tol": 0, "alpha": 1.0, "n_neighbors": 4}
GRID = {"alphas": (0.0, 1.0), "gammas": (None, 0.1), "centers": (None, "two-way")}
KINDS = {
    "exact": NCARL(**FEW),
    "noisy": NCARL(**FEW, gamma=0.1),
    "rows": NCARL(**FEW, gamma=0.1, orientation="rows"),
    "given graph": NCARL(**FEW, graph=np.eye(9)[::-1] + 0.5),
    "centered": NCARL(**FEW, center="two-way", scale="columns"),
    "float32": NCARL(**FEW, dtype="float32"),
    "smooth": NCARL(**FEW, weights="smooth", graph="fixed"),
    "pinv": NCARL(**FEW, weights="pinv", gamma=0.5),
    "no graph": NCARL(**FEW, graph=None),
    "search": NCARLCV(
        **GRID, n_neighbors=np.arange(3, 5), search_iter=2, max_iter=3, tol=0
    ),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ncarl"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("training_data", [False, True])
def test_loaded_model_is_bit_identical(name, training_data, X, path):
    fitted = KINDS[name].fit(X)
    fitted.save(path, training_data=training_data)
    loaded = ncarl.load(path)
    assert type(loaded) is type(fitted)
    noisy = fitted.model_.kernel.s > 0
    assert_array_equal(loaded.transform(X), fitted.transform(X))
    assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.score(X) == fitted.score(X)
    i, j = [0, 3, 3, 20], [8, 1, 1, 0]
    given = {} if training_data else {"X": X}
    assert_array_equal(loaded.predict(i, j, **given), fitted.predict(i, j))
    if noisy:
        ours, theirs = (e.transform(X, return_std=True)[1] for e in (loaded, fitted))
        assert_array_equal(ours, theirs)
    kept = {name for name in vars(fitted) if name.endswith("_")}
    assert kept == {name for name in vars(loaded) if name.endswith("_")}
    special = {"model_", "training_", "similarity_", "history_", "cv_results_"}
    for attribute in (kept - special) | {"kernel_"}:
        assert_array_equal(getattr(loaded, attribute), getattr(fitted, attribute))
    assert_array_equal(loaded.similarity_.toarray(), fitted.similarity_.toarray())
    tables = [(loaded.history_, fitted.history_)]
    if name == "search":
        tables.append((loaded.cv_results_, fitted.cv_results_))
    for ours, theirs in tables:
        assert set(ours) == set(theirs)
        for column, values in theirs.items():
            assert_array_equal(ours[column], values)
    for parameter, value in fitted.get_params().items():
        assert_array_equal(getattr(loaded, parameter), value)
    assert_array_equal(loaded.fit(X).transform(X), fitted.transform(X))


def test_feature_names_are_saved(X, path):
    frame = pd.DataFrame(X, columns=list("abcdefghi"))
    fitted = NCARL(**FEW).fit(frame)
    fitted.save(path)
    loaded = ncarl.load(path)
    assert list(loaded.feature_names_in_) == list("abcdefghi")
    pd.testing.assert_frame_equal(loaded.transform(frame), fitted.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame[list("ihgfedcba")])


def test_training_data_is_saved_only_on_request(X, path):
    fitted = NCARL(**FEW).fit(X)
    fitted.save(path)
    assert not any(name.startswith("training") for name in read_members(path).files)
    with pytest.raises(ValueError, match=r"training entries.*X=.*training_data=True"):
        ncarl.load(path).predict([0], [0])
    with pytest.raises(ValueError, match=r"training entries"):
        ncarl.load(path).save(path, training_data=True)
    fitted.save(path, training_data=True)
    assert "training_/data" in read_members(path).files


def test_runtime_options_are_not_saved(X, path, tmp_path):
    options = {"callback": lambda info: None, "checkpoint": tmp_path / "secret-name"}
    fitted = NCARL(**FEW, **options, engine=Threads(n_jobs=1)).fit(X)
    fitted.save(path)
    loaded = ncarl.load(path)
    assert (loaded.callback, loaded.checkpoint) == (None, None)
    assert loaded.engine == "auto"
    assert b"secret-name" not in path.read_bytes()


def read_members(path):
    return np.load(io.BytesIO(path.read_bytes()[len(MAGIC) + 32 :]), allow_pickle=False)


class TestFile:
    def test_is_private(self, X, path):
        NCARL(**FEW).fit(X).save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        NCARL(**FEW).fit(X).save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_holds_no_pickle(self, X, path):
        frame = pd.DataFrame(X, columns=list("abcdefghi"))
        KINDS["search"].fit(frame).save(path, training_data=True)
        with read_members(path) as found:
            assert {found[name].dtype.kind for name in found.files} <= set("fiubU")
        with zipfile.ZipFile(io.BytesIO(path.read_bytes()[len(MAGIC) + 32 :])) as parts:
            for name in parts.namelist():
                body = parts.read(name)
                assert body.startswith(b"\x93NUMPY")
                with pytest.raises(ValueError, match="opcode"):
                    list(pickletools.genops(body))

    def test_object_arrays_raise(self, path):
        with pytest.raises(ValueError, match=r"[Oo]bject arrays"):
            write_archive(path, {"kind": "model"}, {"x": np.array([{}], dtype=object)})
        assert not path.exists()
        body = io.BytesIO()
        np.savez(body, x=np.array([{}], dtype=object))
        write_raw(path, body.getvalue())
        with pytest.raises(BrokenFileError, match="damaged"):
            ncarl.load(path)

    @pytest.mark.parametrize("content", [b"x", b"", b"{}", b"PK\x05\x06" + bytes(18)])
    def test_invalid_content_with_valid_checksum_raises(self, path, content):
        write_raw(path, content)
        with pytest.raises(BrokenFileError, match="damaged"):
            ncarl.load(path)

    @pytest.fixture
    def contents(self, X, path):
        """Header and arrays of a model file."""
        NCARL(**FEW).fit(X).save(path)
        return read_archive(path, "model")

    def test_model_without_its_arrays_raises(self, contents, path):
        header, arrays = contents
        for name in ("model_/fallback", "similarity_/data", "unidentified_rows_"):
            left = {key: value for key, value in arrays.items() if key != name}
            write_archive(path, header, left)
            with pytest.raises(BrokenFileError, match=f"damaged.*{name}"):
                ncarl.load(path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 3}, r"later ncarl \(format 3\).*up to 2"),
            ({"version": 1}, r"earlier ncarl \(format 1\).*fit again"),
            ({"class": "load"}, "unknown to this ncarl"),
        ],
    )
    def test_other_versions_and_classes_raise(self, contents, path, change, message):
        header, arrays = contents
        assert (header["version"], header["class"]) == (2, "NCARL")
        write_archive(path, header | change, arrays)
        with pytest.raises(BrokenFileError, match=message):
            ncarl.load(path)

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("similarity_/indices", lambda a: a + 10**8, "indices"),
            ("similarity_/indices", lambda a: a[::-1].copy(), "increase|indices"),
            ("similarity_/indptr", lambda a: a.astype(float), "float64"),
            ("model_/kernel/K", lambda a: a[:0], r"K must be.*shape \(0, 9\)"),
            ("model_/kernel/K", lambda a: a.astype("f4"), "KernelModel"),
            ("model_/kernel/K", lambda a: a.astype(">f8"), ">f8"),
            ("model_/kernel/K", lambda a: a * np.nan, "K must be finite"),
            ("model_/kernel/K", lambda a: a - np.triu(a), "valid Kernel"),
            ("model_/kernel/K", lambda a: -a, "valid Kernel"),
            ("model_/fallback", lambda a: a[:4], "fallback must be"),
            ("unidentified_rows_", lambda a: np.array([-1]), "unidentified_rows_"),
        ],
    )
    def test_invalid_array_raises(self, contents, path, name, change, message):
        header, arrays = contents
        write_archive(path, header, arrays | {name: change(arrays[name])})
        with pytest.raises(
            BrokenFileError, match=f"model.ncarl' is damaged.*{message}"
        ):
            ncarl.load(path)

    @pytest.mark.parametrize(
        ("section", "name", "value", "message"),
        [
            ("params", "alpha", -1.0, "alpha must be"),
            ("params", "checkpoint", "/tmp/x", "unknown part checkpoint"),
            ("params", "engine", "telnet", "engine must be"),
            ("fitted", "n_features_in_", 8, "must be"),
            ("fitted", "n_features_in_", float("nan"), "n_features_in_ must be"),
            ("fitted", "transposed_", None, "transposed_ must be"),
            ("fitted", "history_", {}, "not enough values"),
            ("fitted", "model_", {"array": "unidentified_rows_"}, "lacks"),
            ("fitted", "foreign_", 1, "unknown part foreign_"),
        ],
    )
    def test_invalid_header_raises(self, contents, path, section, name, value, message):
        header, arrays = contents
        changed = header | {section: header[section] | {name: value}}
        write_archive(path, changed, arrays)
        with pytest.raises(
            BrokenFileError, match=f"model.ncarl' is damaged.*{message}"
        ):
            ncarl.load(path)

    @pytest.mark.parametrize("section", ["params", "fitted"])
    def test_incomplete_header_raises(self, contents, path, section):
        header, arrays = contents
        for name in header[section]:
            left = {key: part for key, part in header[section].items() if key != name}
            write_archive(path, header | {section: left}, arrays)
            with pytest.raises(BrokenFileError, match=rf"is damaged.*{name}|unused"):
                ncarl.load(path)

    @pytest.mark.parametrize("header", [b"{'shape': (", b"{'shape': (8}", b"\xff"])
    def test_invalid_array_header_raises(self, path, header):
        body = io.BytesIO()
        with zipfile.ZipFile(body, "w") as archive:
            size = len(header).to_bytes(2, "little")
            archive.writestr("__header__.npy", b"\x93NUMPY\x01\x00" + size + header)
        write_raw(path, body.getvalue())
        with pytest.raises(BrokenFileError, match="is damaged"):
            ncarl.load(path)

    @pytest.mark.parametrize("claim", ["array", "member", "both"])
    def test_size_that_the_file_does_not_have_is_refused(self, path, claim):
        size, body, content = 0xFFFFFF00, io.BytesIO(), io.BytesIO()
        np.lib.format.write_array(content, np.zeros(8, dtype=np.uint8))
        data = content.getvalue()
        if claim != "member":  # the header of the array claims 4 GB
            shape = f"({size - 128},), }}".encode()
            data = data.replace(b"(8,), }".ljust(len(shape)), shape)
        with zipfile.ZipFile(body, "w") as archive:
            archive.writestr("__header__.npy", data)
        raw = bytearray(body.getvalue())
        if claim != "array":  # the directory of the archive claims them
            start = raw.index(b"PK\x01\x02") + 20
            raw[start : start + 8] = 2 * size.to_bytes(4, "little")
        write_raw(path, bytes(raw))
        with pytest.raises(BrokenFileError, match="length"):
            ncarl.load(path)

    def test_name_that_occurs_twice_raises(self, contents, path):
        body, (_, arrays) = io.BytesIO(), contents
        with zipfile.ZipFile(body, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for name in ("__header__", "x", "__header__"):
                content = io.BytesIO()
                np.lib.format.write_array(content, arrays["model_/fallback"])
                archive.writestr(f"{name}.npy", content.getvalue())
        write_raw(path, body.getvalue())
        with pytest.raises(BrokenFileError, match="twice"):
            ncarl.load(path)


def write_raw(path, body):
    path.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)


class TestFailingWrite:
    @pytest.mark.parametrize("target", ["os.fsync", "pathlib.Path.replace"])
    def test_keeps_only_the_old_file(self, X, path, monkeypatch, target):
        fitted = NCARL(**FEW).fit(X)
        fitted.save(path)
        before = path.read_bytes()

        def fail(*args):
            raise OSError("disk full")

        monkeypatch.setattr(target, fail)
        with pytest.raises(OSError, match="disk full"):
            NCARL(**FEW, gamma=0.1).fit(X).save(path)
        assert path.read_bytes() == before
        assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_read_only_file_can_be_replaced(tmp_path, monkeypatch):
    # The new file gets the mode of the old one when it is complete.
    target = tmp_path / "kept.txt"
    target.write_text("old")
    target.chmod(0o444)
    modes = []
    real = os.fsync

    def fsync(handle):
        modes.append(os.fstat(handle).st_mode & 0o777)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o444
    assert modes[0] & 0o200

"""Tests of atomic writes and archives: complete files, detection of damage."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from ncarl import NCARL, NCARLCV
from ncarl.exceptions import BrokenFileError
from ncarl.io import files, open_rows, open_sink
from ncarl.io.files import (
    HEADER_NAME,
    MAGIC,
    TEMPORARY_MARKER,
    atomic_write,
    read_archive,
    write_archive,
)

MB = 1 << 20
HEADERS = {"kind": "thing", "note": "ä, NaN and all", "x": float("inf")}
ARRAYS = {"K": np.arange(12.0).reshape(3, 4), "a/b:c": np.array(["x", "yz"])}
within_a_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.x"


def forge(path, arrays, save=np.savez, **members):
    """Write an archive with a valid checksum without `write_archive`."""
    body = io.BytesIO()
    words = np.frombuffer(b'{"version": 2, "kind": "thing"}', dtype=np.uint8)
    save(body, **{HEADER_NAME: words, **arrays})
    with zipfile.ZipFile(body, "a") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    data = body.getvalue()
    path.write_bytes(MAGIC + hashlib.sha256(data).digest() + data)


class TestRoundTrip:
    @within_a_folder
    @given(
        array=hnp.arrays(
            st.sampled_from(["f8", "f4", ">f8", "i4", "?", "U3", "c16"]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        ),
        order=st.sampled_from("CF"),
    )
    def test_arrays_come_back_as_they_lay(self, path, array, order):
        laid = np.asarray(array, order=order)
        apart = np.atleast_1d(laid)[..., ::2]
        write_archive(path, HEADERS, {"x": laid, "every other": apart})
        header, found = read_archive(path, "thing")
        assert header == {**HEADERS, "version": 2}
        assert list(found) == ["x", "every other"]
        assert_array_equal(found["x"], laid, strict=True)
        assert_array_equal(found["every other"], apart, strict=True)
        assert found["x"].flags.f_contiguous == laid.flags.f_contiguous
        assert found["x"].flags.c_contiguous == laid.flags.c_contiguous

    def test_equal_content_gives_equal_bytes(self, path, tmp_path):
        write_archive(path, HEADERS, ARRAYS)
        write_archive(tmp_path / "other", HEADERS, ARRAYS)
        assert path.read_bytes() == (tmp_path / "other").read_bytes()

    def test_large_files_have_large_offsets(self, path, monkeypatch):
        # Simulate files above 4 GB.
        monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
        big = {f"x{k}": np.arange(400.0) + k for k in range(5)}
        write_archive(path, HEADERS, big)
        assert b"PK\x06\x06" in path.read_bytes()
        _, found = read_archive(path, "thing")
        assert all((found[name] == big[name]).all() for name in big)

    def test_files_of_the_previous_format_are_read(self, path):
        forge(path, ARRAYS)
        header, found = read_archive(path, "thing")
        assert header == {"version": 2, "kind": "thing"}
        assert all((found[name] == ARRAYS[name]).all() for name in ARRAYS)

    def test_other_kind_raises_before_reading_arrays(self, path):
        write_archive(path, HEADERS, ARRAYS)
        with pytest.raises(BrokenFileError, match="holds a thing, expected a model"):
            read_archive(path, "model", "checkpoint")
        assert read_archive(path, "model", "thing")[0]["kind"] == "thing"


@pytest.mark.parametrize("order", ["C", "every other"])
def test_arrays_are_not_copied(path, order):
    array = np.random.default_rng(0).random((2500, 2500))  # 50 MB
    if order == "every other":
        array = array[::2]
    written = peak(lambda: write_archive(path, HEADERS, {"x": array, "y": array}))
    assert written < 36 * MB  # buffers of NumPy only
    read = peak(lambda: read_archive(path, "thing"))
    assert 2 * array.nbytes < read < 2 * array.nbytes + 4 * MB


def peak(work):
    """Peak number of allocated bytes."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "x"
    write_archive(path, HEADERS, ARRAYS)
    return path.read_bytes()


class TestDamage:
    def assert_broken(self, path, data):
        path.write_bytes(data)
        with pytest.raises(BrokenFileError, match=r"state\.x"):
            read_archive(path, "thing")

    def test_flipped_bit(self, path, sound):
        for place in range(len(sound)):
            data = bytearray(sound)
            data[place] ^= 1 << place % 8
            self.assert_broken(path, data)

    def test_truncated_file(self, path, sound):
        for length in range(0, len(sound), 7):
            self.assert_broken(path, sound[:length])
        self.assert_broken(path, sound + b"\0")
        path.write_bytes(sound)
        assert_array_equal(read_archive(path, "thing")[1]["K"], ARRAYS["K"])

    def test_zeros_instead_of_data(self, path, sound):
        # Possible state after a power failure: correct length, but zeros.
        for start in range(0, len(sound), 64):
            self.assert_broken(path, sound[:start] + bytes(len(sound) - start))

    def test_invalid_size_is_not_allocated(self, path):
        # With a valid checksum, as in a malicious file.
        whole = np.lib.format.header_data_from_array_1_0(np.ones(3))
        huge = io.BytesIO()
        np.lib.format.write_array_header_1_0(huge, {**whole, "shape": (1 << 40,)})
        forge(path, {}, x=huge.getvalue() + bytes(24))
        with pytest.raises(BrokenFileError, match="damaged"):
            read_archive(path, "thing")

    def test_compressed_members_raise(self, path):
        forge(path, {"x": np.zeros(MB)}, np.savez_compressed)
        with pytest.raises(BrokenFileError, match="damaged"):
            read_archive(path, "thing")

    def test_fifo_raises_instead_of_waiting(self, path):
        os.mkfifo(path)
        with pytest.raises(ValueError, match=r"state\.x' is a FIFO, which cannot be"):
            read_archive(path, "thing")

    def test_error_suggests_a_remedy(self, path, sound):
        for data, words in {
            b"": "is empty.*remove it",
            b"hello": "not a file written by ncarl.*move it away",
            sound[:-1]: "damaged.*from a backup, or remove it",
        }.items():
            path.write_bytes(data)
            with pytest.raises(BrokenFileError, match=words):
                read_archive(path, "thing")


KILLED = """
import os, signal, sys
from ncarl.io.files import atomic_write
with atomic_write(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def write_new(path):
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"new")
    assert path.read_bytes() == b"new"


def make_special(path, kind):
    """Put something other than a regular file at a path; returns how to name it."""
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(os.path.relpath(path))
    elif kind == "device":
        path.symlink_to("/dev/null")  # refused where it is, whatever may be replaced
    else:
        path.symlink_to(path if kind == "loop" else path.with_name("absent"))
    return "a link that leads to no file" if kind in ("loop", "dangling") else kind


class TestSpecialFiles:
    """Outputs that are no regular files: links are followed, the rest is refused."""

    @pytest.fixture(params=["folder", "FIFO", "socket", "device", "loop", "dangling"])
    def special(self, request, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        name = make_special(tmp_path / "it", request.param)
        (tmp_path / "link").symlink_to("it")
        before = sorted(os.scandir(tmp_path), key=lambda entry: entry.name)
        yield name
        after = sorted(os.scandir(tmp_path), key=lambda entry: entry.name)
        assert [e.name for e in after] == [e.name for e in before]
        assert [e.inode() for e in after] == [e.inode() for e in before]

    @pytest.mark.parametrize("name", ["it", "link"])
    def test_they_are_refused(self, special, name):
        with pytest.raises(OSError, match=f"path '{name}' is .*{special}.*; name a "):
            write_archive(name, HEADERS, ARRAYS)

    def test_model_and_checkpoint_name_them(self, special):
        X = np.array([[1.0, 2.0], [3.0, np.nan], [2.0, 4.0]])
        with pytest.raises(OSError, match=f"path 'link' is .*{special}"):
            NCARL(max_iter=1, tol=0).fit(X).save("link")
        steps = []
        fit = NCARL(max_iter=1, tol=0, checkpoint="link", callback=steps.append)
        with pytest.raises(OSError, match=f"checkpoint 'link' is .*{special}"):
            fit.fit(X)
        search = NCARLCV(checkpoint="li", callback=steps.append)
        Path("li.fit").symlink_to("it")
        with pytest.raises(OSError, match=r"checkpoint 'li\.fit' is"):
            search.fit(X)
        Path("li.fit").unlink()
        assert not steps

    @pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".npy", ".parquet", ".zarr"])
    def test_sinks_refuse_them(self, special, suffix):
        name = Path(f"sink{suffix}")
        name.symlink_to("it")
        with pytest.raises((OSError, ValueError), match=r"sink.* not replaced; name"):
            open_sink(name, n_columns=2)
        name.unlink()


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".npy", ".parquet", ".zarr"])
@pytest.mark.parametrize("folder", ["", "there"])
def test_links_to_files_stay_and_lead_to_the_new_content(tmp_path, suffix, folder):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / folder / f"real{suffix}", tmp_path / f"link{suffix}"
    for path, rows in ((real, [[1.0]]), (link, [[2.0], [3.0]])):
        if path == link:
            real.chmod(0o700 if real.is_dir() else 0o604)
            link.symlink_to(os.path.relpath(real, tmp_path))
        with open_sink(path, n_columns=1) as sink:
            sink.write(rows)
    assert link.is_symlink() and not real.is_symlink()
    assert real.stat().st_mode & 0o777 == (0o700 if real.is_dir() else 0o604)
    assert [chunk.values.tolist() for chunk in open_rows(real)] == [[2.0, 3.0]]
    left = {"link" + suffix, "there", *([] if folder else ["real" + suffix])}
    assert {path.name for path in tmp_path.iterdir()} == left


class TestReplacing:
    def list_names(self, path):
        return sorted(other.name for other in path.parent.iterdir())

    def test_files_of_a_killed_process_are_removed(self, path):
        path.write_bytes(b"old")
        for other in (path, path.with_suffix(".y")):
            done = subprocess.run([sys.executable, "-c", KILLED, other], check=False)
            assert done.returncode == -signal.SIGKILL
        assert path.read_bytes() == b"old"
        assert len(self.list_names(path)) == 3
        write_new(path)
        left = self.list_names(path)
        assert len(left) == 2
        assert left[0].startswith(".state.y")  # belongs to another file

    def test_file_being_written_by_another_process_is_kept(self, path):
        with atomic_write(path) as first:
            first.write_bytes(b"first")
            with atomic_write(path) as second:
                assert second != first
                second.write_bytes(b"second")
            assert path.read_bytes() == b"second"
            assert first.read_bytes() == b"first"
        assert path.read_bytes() == b"first"
        assert self.list_names(path) == ["state.x"]

    def test_other_hidden_files_are_kept(self, path):
        own = [
            ".state.x.settings",
            f".state.x{TEMPORARY_MARKER}12345678",
            ".state.x.12345678.x",
        ]
        for name in own:
            (path.parent / name).touch()
        write_new(path)
        assert self.list_names(path) == sorted([*own, "state.x"])

    def test_file_removed_before_locking_is_created_again(self, path, monkeypatch):
        real, made = files.os.open, []

        def remove_first(name, flags, *mode):
            handle = real(name, flags, *mode)
            if flags & os.O_CREAT:
                made.append(name)
            if len(made) == 1:
                Path(name).unlink(missing_ok=True)
            return handle

        monkeypatch.setattr(files.os, "open", remove_first)
        write_new(path)
        assert len(made) == 2

    @pytest.mark.parametrize("there", [None, 0o604])
    def test_permissions_without_changing_the_umask(self, path, monkeypatch, there):
        # The umask belongs to all threads: changed for a moment, it gives the files of
        # other threads wrong permissions.
        mask = os.umask(0o027)
        monkeypatch.setattr(os, "umask", lambda _: pytest.fail("umask was changed"))
        try:
            if there is not None:
                path.touch()
                path.chmod(there)
            write_new(path)
            write_archive(path.with_name("model"), HEADERS, ARRAYS)
            with open_sink(path.with_suffix(".zarr"), n_columns=1) as sink:
                sink.write([[1.0]])
        finally:
            monkeypatch.undo()
            os.umask(mask)
        modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
        assert modes["state.x"] == (there or 0o640)
        assert modes["model"] == 0o600
        assert modes["state.zarr"] == 0o750

    def test_a_file_that_replaces_a_private_one_is_never_readable(self, path):
        path.touch()
        path.chmod(0o600)
        with atomic_write(path) as temporary:
            assert temporary.stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("missing", ["module", "support"])
    def test_files_are_written_without_lock_support(self, path, monkeypatch, missing):
        (path.parent / f".state.x{TEMPORARY_MARKER}12345678.x").touch()

        def refuse(handle, how):
            raise OSError(errno.ENOTSUP, "no locks")

        if missing == "module":
            monkeypatch.setattr(files, "fcntl", None)
        else:
            monkeypatch.setattr(files.fcntl, "flock", refuse)
        write_new(path)
        assert self.list_names(path) == [
            f".state.x{TEMPORARY_MARKER}12345678.x",
            "state.x",
        ]

    def test_file_is_synced_before_the_move_and_the_folder_after(
        self, path, monkeypatch
    ):
        done, sync, move = [], os.fsync, Path.replace

        def fsync(handle):
            done.append("folder" if Path(f"/dev/fd/{handle}").is_dir() else "file")
            sync(handle)

        def replace(self, target):
            done.append("move")
            return move(self, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(Path, "replace", replace)
        write_new(path)
        assert done == ["file", "move", "folder"]

    @pytest.mark.parametrize(("code", "told"), [(errno.EINVAL, False), (5, True)])
    def test_folder_sync_failure(self, path, monkeypatch, code, told):
        calls, sync = [], os.fsync

        def fsync(handle):
            calls.append(handle)
            if len(calls) == 2:
                raise OSError(code, "no")
            sync(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="no") if told else nullcontext():
            write_new(path)
        assert self.list_names(path) == ["state.x"]

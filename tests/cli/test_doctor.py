"""Tests of ``ncarl doctor``: reported facts, self-test, privacy."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import logging
import platform
import subprocess
import sys
import warnings
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import ncarl as package
from ncarl.cli import doctor
from ncarl.cli.doctor import strip_paths
from ncarl.dataset import DataSummary
from ncarl.engines import base
from ncarl.engines.cores import available_cores
from ncarl.engines.threads import Threads
from ncarl.estimators.ncarl import NCARL
from ncarl.observations import Observations

SECTIONS = ["Versions", "Machine", "GPU", "Engines", "Self-test"]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    """A terminal wide enough to avoid line breaks."""
    monkeypatch.setenv("COLUMNS", "400")


@pytest.fixture
def set_gpu(monkeypatch):
    """Function that sets the reason why the GPU is unavailable, or None."""

    def patch(trouble):
        for module in ("cli.doctor", "engines.base", "engines"):
            name = f"ncarl.{module}.gpu_unavailable_reason"
            monkeypatch.setattr(name, lambda: trouble)

    return patch


def section(text, title):
    """Lines of a section of the output."""
    lines = [line.rstrip() for line in text.splitlines()]
    start = lines.index(title) + 1
    return lines[start : lines.index("", start)]


def rows(text, title):
    """Lines of a section by their first word."""
    return {line.split()[0]: line.strip() for line in section(text, title)}


def test_all_sections_are_printed_and_pass(ncarl, set_gpu):
    set_gpu("no GPU driver is installed")
    result = ncarl("doctor")
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert [line for line in lines if line in SECTIONS] == SECTIONS
    assert lines[-1] == "all is well" and not result.stderr
    versions = rows(result.stdout, "Versions")
    assert versions["numpy"].split() == ["numpy", np.__version__]
    assert versions["ncarl"].endswith(package.__version__)
    machine = rows(result.stdout, "Machine")
    assert machine["cores"].split() == ["cores", str(available_cores())]
    assert "GB" in machine["memory"] and "thread" in machine["BLAS"]
    checks = section(result.stdout, "Self-test")[2:]
    assert checks[0].startswith("OK") and "error" in checks[0]
    assert checks[1].startswith("OK") and "bit for bit" in checks[1]
    assert "ms a step" in checks[2]


def test_json_option_prints_nothing_but_json(ncarl, set_gpu, tmp_path):
    set_gpu("no GPU driver is installed")
    page = tmp_path / "p.html"
    report = json.loads(ncarl("doctor", "--json", "--report", page).stdout)
    assert list(report) == ["ok", *(title.lower() for title in SECTIONS)]
    assert report["ok"] is True
    assert report["versions"]["python"].startswith(platform.python_version())
    assert {*doctor.PACKAGES} < {*report["versions"]}
    assert report["machine"]["cores"] == str(available_cores())
    assert report["gpu"]["not used"] == "no GPU driver is installed"
    assert list(report["engines"]) == ["auto", "threads", "torch", "dask"]
    skipped = ["skipped", "torch (cuda)", "no GPU driver is installed"]
    assert skipped in report["self-test"]
    html = page.read_text(encoding="utf-8")
    assert "All is well" in html and "observed entries kept bit for bit" in html


def one_bit_off(observed, filled):
    place = tuple(np.argwhere(filled == observed)[0])
    filled[place] = np.nextafter(filled[place], np.inf)
    return filled


def broken(observed, filled):
    raise RuntimeError("it broke\nin many lines")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda X, filled: np.where(filled == X, X, 1.05 * filled), "hidden entries"),
        (lambda X, filled: np.where(filled == X, X, np.nan), "hidden entries"),
        (one_bit_off, "observed entries changed"),
        (broken, "RuntimeError: it broke"),
    ],
)
def test_wrong_results_fail_the_self_test(
    ncarl, set_gpu, monkeypatch, tmp_path, change, said
):
    set_gpu("no GPU driver is installed")
    fit = NCARL.fit_transform
    monkeypatch.setattr(NCARL, "fit_transform", lambda est, X: change(X, fit(est, X)))
    page = tmp_path / "p.html"
    result = ncarl("doctor", "--report", page, expect=1)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1 and "threads" in failed[0] and said in failed[0]
    assert "a self-test FAILED" in result.stdout and "all is well" not in result.stdout
    assert "many lines" not in result.stdout
    assert "A self-test FAILED" in page.read_text(encoding="utf-8")


def test_self_test_covers_both_forms_of_the_row_step():
    truth, hidden = doctor.make_problem()
    assert hidden.mean() == pytest.approx(0.4, abs=0.01)
    observed = Observations.from_dense(np.where(hidden, np.nan, truth))
    for rows, precise in ((np.arange(30), True), (np.arange(270, 300), False)):
        summary = DataSummary.from_observations(observed.take_rows(rows))
        assert summary.needs_precision(truth.shape[1]) == precise


def test_full_self_test_compares_torch_on_the_cpu(ncarl, set_gpu, monkeypatch):
    pytest.importorskip("torch")
    set_gpu("no GPU driver is installed")
    fit = NCARL.fit_transform

    def fit_and_change(est, X):
        return fit(est, X) * (1.0 if isinstance(est.engine, Threads) else 1 + 1e-8)

    monkeypatch.setattr(NCARL, "fit_transform", fit_and_change)
    checks = section(ncarl("doctor", "--full", expect=1).stdout, "Self-test")
    found = [line.split(maxsplit=3) for line in checks if "torch (cpu)" in line]
    assert [line[0] for line in found[:3]] == ["OK", "FAILED", "FAILED"]
    assert found[2][3].startswith("agrees with threads to 1.0e-08")


def test_torch_is_not_imported_without_full():
    if base._has_gpu_driver() or importlib.util.find_spec("torch") is None:
        pytest.skip("here PyTorch is loaded, or is not there")
    code = (
        "import sys; from ncarl.cli.app import app\n"
        "try: app(['doctor'])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False", done.stdout + done.stderr
    assert "ncarl doctor --full" in done.stdout


def test_broken_gpu_is_reported_but_does_not_fail(ncarl, set_gpu, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(doctor, "nvidia_driver_version", lambda: "470.1")
    reason = "the GPU does not work (CUDA error: it is on fire)"

    @cache  # as in the library
    def look():
        warnings.warn("The driver is too old\n(found 11040)", UserWarning, stacklevel=2)
        return reason

    set_gpu(reason)
    monkeypatch.setattr("ncarl.cli.doctor.gpu_unavailable_reason", look)
    text = ncarl("doctor").stdout
    assert section(text, "GPU") == [
        f"not used      {reason}",
        "driver        470.1",
        "warning       The driver is too old (found 11040)",
    ]
    engines = rows(text, "Engines")
    assert f"runs on threads instead: {reason}" in engines["torch"]
    assert engines["auto"].startswith("auto          threads: ")
    skipped = [row for row in section(text, "Self-test") if row.startswith("skipped")]
    assert "torch (cuda)" in skipped[0] and "on fire" in skipped[0]


def test_failed_gpu_self_test_fails_the_command(ncarl, set_gpu):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("the GPU works")
    set_gpu(None)
    report = json.loads(ncarl("doctor", "--json", expect=1).stdout)
    assert report["gpu"]["not used"].startswith("the GPU does not work (")
    assert "cannot be used" in report["engines"]["torch"]
    states = [(state, engine) for state, engine, _ in report["self-test"] if state]
    assert states == [("OK", "threads")] * 2 + [("FAILED", "torch (cuda)")]


def test_a_working_gpu_is_described(ncarl, set_gpu, monkeypatch):
    torch = pytest.importorskip("torch")
    from ncarl.engines import torch as torch_engine

    set_gpu(None)
    card = SimpleNamespace(name="Abacus 3000", major=9, minor=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(doctor, "triton_unavailable_reason", lambda: "no C compiler")
    monkeypatch.setattr(doctor, "nvidia_driver_version", lambda: "580.1")
    monkeypatch.setattr(torch_engine, "device_memory", lambda _: (64 * 10**8, 10**10))
    # All but the device name comes from the CPU.
    on_processor = torch_engine.Torch(device="cpu")
    monkeypatch.setattr(torch_engine, "Torch", type("Torch", (torch_engine.Torch,), {
        "__new__": lambda cls, **_: on_processor}))  # fmt: skip
    text = ncarl("doctor").stdout
    assert section(text, "GPU") == [
        "name          Abacus 3000 (the first of 2)",
        "memory        6.4 of 10.0 GB free",
        "capability    9.1",
        "kernels       do not run, PyTorch's own are used: no C compiler",
        "driver        580.1",
    ]
    passed = [row for row in section(text, "Self-test") if row.startswith("OK")]
    assert sum("torch (cuda)" in row for row in passed) == 3


def test_available_gpu_passes(ncarl, monkeypatch):
    base.gpu_unavailable_reason.cache_clear()
    monkeypatch.setattr(
        "ncarl.engines.gpu_unavailable_reason", base.gpu_unavailable_reason
    )
    if (trouble := base.gpu_unavailable_reason()) is not None:
        pytest.skip(f"needs a GPU: {trouble}")
    report = json.loads(ncarl("doctor", "--json").stdout)
    assert {"name", "memory", "capability", "kernels"} <= {*report["gpu"]}
    assert report["engines"]["auto"].startswith("torch")
    assert "memory for a kernel" in report["engines"]["torch"]
    passed = [engine for state, engine, _ in report["self-test"] if state == "OK"]
    assert passed.count("torch (cuda)") >= 3


def test_triton_unavailable_reason(monkeypatch, capfd):
    pytest.importorskip("torch")
    factor_torch = importlib.import_module("ncarl.core.cuda")

    def kernels():
        logging.getLogger("ncarl").info("Triton does not run (%s)", "no C compiler")

    monkeypatch.setattr(factor_torch, "load_triton_kernels", kernels)
    reason = "Triton does not run (no C compiler)"
    assert doctor.triton_unavailable_reason() == reason
    monkeypatch.setattr(factor_torch, "load_triton_kernels", lambda: factor_torch)
    assert doctor.triton_unavailable_reason() is None
    assert logging.getLogger("ncarl").level == logging.NOTSET
    assert capfd.readouterr() == ("", "")


def test_missing_packages_show_install_commands(monkeypatch):
    version, absent = importlib.metadata.version, ("numba", "polars", "distributed")

    def look_up(name):
        if name in absent:
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", look_up)
    versions = dict(doctor.version_fields())
    assert versions["numba"] == "not installed (pip install 'ncarl[fast]')"
    assert versions["polars"] == "not installed (pip install polars)"
    assert versions["numpy"] == np.__version__
    (line,) = doctor.engine_fields("dask")
    assert line == ("dask", "not installed: pip install 'ncarl[dask]'")


def test_missing_torch_shows_the_install_command(ncarl, set_gpu, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: None if n == "torch" else find_spec(n)
    )
    set_gpu("PyTorch is not installed")
    text = ncarl("doctor", "--full").stdout
    assert "pip install 'ncarl[gpu]'" in rows(text, "Engines")["torch"]
    assert "torch (cpu)" not in text
    assert "skipped  torch (cuda)  PyTorch is not installed" in text


def test_named_extras_contain_their_packages():
    try:
        required = importlib.metadata.requires("ncarl")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("ncarl is on the path, not installed")
    required = [line.replace('"', "'") for line in required]
    for name, how in doctor.PACKAGES.items():
        if "ncarl[" in how:
            extra = how.split("[")[1].split("]")[0]
            ours = [r for r in required if r.endswith(f"extra == '{extra}'")]
            assert any(r.startswith((f"{name}>", f"{name}[")) for r in ours), name


def test_torch_build_is_read_from_the_version_file(tmp_path, monkeypatch):
    file = tmp_path / "torch" / "version.py"
    file.parent.mkdir()
    found = SimpleNamespace(locate_file=lambda path: tmp_path / path)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    assert doctor.torch_build() == "CUDA version unknown"
    for line, said in (
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None", "CUDA 12.8"),
        ("cuda = '12.8'", "CUDA 12.8"),
        ("cuda: str | None = None\nhip = '6.4.1'", "ROCm 6.4.1"),
        ("cuda: Optional[str] = None", "no CUDA"),
    ):
        file.write_text(f"__all__ = ['cuda']\n{line}\n")
        assert doctor.torch_build() == said


def test_available_memory_is_at_most_that_of_the_container(monkeypatch):
    available, total = doctor.free_and_total_memory()
    assert 4096 < available <= total
    monkeypatch.setattr(doctor, "host_memory", lambda: 4096)
    assert doctor.free_and_total_memory() == (4096, 4096)


def test_largest_kernel_fits_into_memory():
    arrays = doctor.HOST_ARRAYS + 4
    assert doctor.estimate_largest_kernel(Threads(4), 8 * arrays * 1000**2) == 1000
    pytest.importorskip("torch")
    torch_engine = importlib.import_module("ncarl.engines.torch")
    engine = torch_engine.Torch(device="cpu")
    free, _ = torch_engine.device_memory(engine.compute_device.torch_device)
    columns = doctor.estimate_largest_kernel(engine, 0)
    assert 0.99 < columns**2 * 8 * torch_engine.KERNEL_ARRAYS / free <= 1.0


def test_user_and_host_names_are_not_printed(ncarl, set_gpu, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("USERPROFILE", "/home/ada")
    system = platform.uname()._replace(node="adas-laptop")
    monkeypatch.setattr(platform, "uname", lambda: system)
    set_gpu("PyTorch does not load (/home/ada/env/lib/libtorch.so: no such file)")
    text = ncarl("doctor").stdout
    assert "ada" not in text
    assert "PyTorch does not load (libtorch.so: no such file)" in text


def test_strip_paths_keeps_other_slashes():
    for text, shown in (
        (r"C:\Users\Ada\env\torch.dll is broken", "torch.dll is broken"),
        ("in '/opt/x/y.py', line 3", "in 'y.py', line 3"),
        ("see https://pytorch.org/a/b", "see https://pytorch.org/a/b"),
        ("read/write 1/2 of n x n", "read/write 1/2 of n x n"),
    ):
        assert strip_paths(text) == shown

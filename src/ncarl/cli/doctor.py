"""``ncarl doctor``: versions, machine and engines, and a self-test of each engine."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import json
import logging
import math
import platform
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import typer

from ncarl import __version__
from ncarl.cli.console import (
    check_report_path,
    merge_fields,
    print_fields,
    print_table,
    print_text,
    write_page,
)
from ncarl.cli.options import ReportOption
from ncarl.core.types import Array
from ncarl.engines import ENGINE_NAMES, pick_engine
from ncarl.engines.base import (
    Engine,
    available_cores,
    first_line,
    gpu_unavailable_reason,
)
from ncarl.engines.threads import Threads
from ncarl.estimators.ncarl import NCARL
from ncarl.html import Page

EXAMPLES = (
    "ncarl doctor",
    "ncarl doctor --json",
)
#: Packages to look for, and how to install them.
PACKAGES = {
    "numpy": "pip install numpy",
    "scipy": "pip install scipy",
    "scikit-learn": "pip install scikit-learn",
    "numba": "pip install 'ncarl[fast]'",
    "torch": "pip install 'ncarl[gpu]'",
    "triton": "comes with PyTorch for GPUs",
    "dask": "pip install 'ncarl[dask]'",
    "pandas": "pip install 'ncarl[cli]'",
    "polars": "pip install polars",
    "pyarrow": "pip install 'ncarl[cli]'",
}
#: Other names that they go by.
ALIASES = {"triton": ("pytorch-triton", "pytorch-triton-rocm", "triton-windows")}
#: Files with the memory limit of a container.
CGROUP_LIMIT_FILES = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
#: n x n arrays at the peak of a step on the host; every thread adds one of its own.
HOST_ARRAYS = 8
#: The matrix of the self-test, and the steps of its fit.
ROWS, COLUMNS, RANK, STEPS = 300, 120, 4, 8
#: A correct fit has an error of 0.002 after so many steps; zeros have 1.
MAX_ERROR = 0.02
#: Engines sum in another order; the difference is about 1e-12 of the largest entry.
MAX_DISAGREEMENT = 1e-9
#: The folders of an absolute path; a slash inside a word does not start one.
PATH_FOLDERS = re.compile(
    r"(?<![\w.~/\\])(?:[A-Za-z]:|~)?[/\\](?:[^\s/\\:'\"()]+[/\\])+"
)
TEST_HEADS = ("", "engine", "check")
#: A test that was not run; ``seconds`` are those of the whole test, ``step_seconds``
#: those of a step once everything is loaded and compiled.
UNTESTED: dict[str, Any] = {
    "engine": "",
    "checks": [],
    "skip_reason": None,
    "step_seconds": None,
    "seconds": None,
}


def doctor(
    full: Annotated[
        bool,
        typer.Option("--full", help="Test PyTorch on the CPU too."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON object.")
    ] = False,
    report_path: ReportOption = None,
) -> None:
    """Show versions, machine and engines, and test each engine on a small matrix.

    Paste the output into bug reports: it names no folder of yours, and not your
    computer. The exit code is 1 if a test failed; a missing GPU is no failure.
    """
    from rich.console import Console

    check_report_path(report_path)
    with Console(stderr=True).status("testing ..."):
        report = collect_report(full=full)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        for title, rows in report_sections(report).items():
            print_text(title, style="bold")
            # Names of packages are longer than those that fields usually have.
            print_fields((f"{name:<14}", text) for name, text in rows)
            print_text()
        print_text("Self-test", style="bold")
        tests = self_test_rows(report["self_test"])
        print_table(TEST_HEADS, tests, left=(0, 1, 2), bold=("FAILED",))
        if report["ok"]:
            print_text("all is well", style="bold green")
        else:
            print_text("a self-test FAILED", style="bold red")
    if report_path is not None:
        write_page(build_doctor_page(report), report_path, quiet=as_json)
    if not report["ok"]:
        raise typer.Exit(1)


def collect_report(*, full: bool = False) -> dict[str, Any]:
    """What ``--json`` prints; no text in it names a folder of the user."""
    host = inspect_host()
    gpu = inspect_gpu()
    engines = [inspect_engine(name, host["memory_available"]) for name in ENGINE_NAMES]
    tests = run_self_test(full=full)
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    report = {
        "ok": all(check["passed"] for test in tests for check in test["checks"]),
        # Not platform.uname(), which names the computer.
        "versions": {
            "ncarl": __version__,
            "python": python,
            "platform": platform.platform(),
        },
        "packages": [find_package(name) for name in PACKAGES],
        "host": host,
        "gpu": gpu,
        "engines": engines,
        "self_test": tests,
    }
    clean: dict[str, Any] = strip_paths(report)
    return clean


def strip_paths(value: Any) -> Any:
    """``value`` with file names in place of paths, in every text that it holds.

    Messages of libraries contain paths, and these the name of the user.

    Examples
    --------
    >>> strip_paths(["cannot open '/home/ada/env/lib/libtorch.so' (1/2)"])
    ["cannot open 'libtorch.so' (1/2)"]
    """
    if isinstance(value, str):
        with contextlib.suppress(RuntimeError):  # a user without a home
            home = str(Path.home())
            value = value.replace(home, "~") if len(home) > 1 else value
        return PATH_FOLDERS.sub("", value)
    if isinstance(value, dict):
        return {key: strip_paths(part) for key, part in value.items()}
    return [strip_paths(part) for part in value] if isinstance(value, list) else value


def find_package(name: str) -> dict[str, str | None]:
    """Version of a package, which is not imported, or how to install it."""
    for alias in (name, *ALIASES.get(name, ())):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(alias)
            note = torch_build() if name == "torch" else None
            return {"name": name, "version": version, "note": note}
    return {"name": name, "version": None, "note": PACKAGES[name]}


def torch_build() -> str:
    """The GPU library that PyTorch was built for, without importing it (seconds)."""
    try:
        place = importlib.metadata.distribution("torch").locate_file("torch/version.py")
        text = Path(str(place)).read_text(encoding="utf-8")
    except (OSError, importlib.metadata.PackageNotFoundError):
        return "CUDA version unknown"
    for name, variable in (("CUDA", "cuda"), ("ROCm", "hip")):
        found = re.search(rf"^{variable}\b[^=\n]*= *['\"](.+)['\"]", text, re.MULTILINE)
        if found:
            return f"{name} {found[1]}"
    return "no CUDA"


def inspect_host() -> dict[str, Any]:
    """Cores, memory and BLAS of this process."""
    import scipy.linalg  # noqa: F401  which, like NumPy, loads a BLAS library
    from threadpoolctl import threadpool_info

    memory = psutil.virtual_memory()
    # psutil does not know the limit of a container.
    files = [path.read_text().strip() for path in CGROUP_LIMIT_FILES if path.is_file()]
    limits = [int(text) for text in files if text.isdecimal()]
    return {
        "cores": available_cores(),
        "memory_total": min([memory.total, *limits]),
        "memory_available": min([memory.available, *limits]),
        "blas": [
            {"name": lib["internal_api"], "version": lib.get("version"),
             "threads": lib["num_threads"]}
            for lib in threadpool_info()
            if lib["user_api"] == "blas"
        ],
    }  # fmt: skip


def inspect_gpu() -> dict[str, Any]:
    """The GPU that the torch engine uses, or why there is none."""
    gpu: dict[str, Any] = {
        "unavailable_reason": None,
        "name": None,
        "memory_free": None,
        "memory_total": None,
        "compute_capability": None,
        "driver": nvidia_driver_version(),
        "devices": 0,  # that PyTorch sees
        "kernels": None,  # whether our Triton kernels run
        "kernels_unavailable_reason": None,
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gpu["unavailable_reason"] = gpu_unavailable_reason()
            if gpu["unavailable_reason"] is None:
                _query_gpu(gpu)
        except Exception as error:  # drivers and cards fail in many ways
            gpu["unavailable_reason"] = f"the GPU does not work ({first_line(error)})"
    # Warnings of PyTorch often name the cause of a failure.
    return gpu | {"warnings": relevant_warnings(caught)}


def _query_gpu(gpu: dict[str, Any]) -> None:
    import torch

    from ncarl.engines.torch import device_memory

    device = torch.device("cuda")
    card = torch.cuda.get_device_properties(device)
    gpu["name"] = card.name
    gpu["memory_free"], gpu["memory_total"] = device_memory(device)
    gpu["compute_capability"] = f"{card.major}.{card.minor}"
    gpu["devices"] = torch.cuda.device_count()
    gpu["kernels"], gpu["kernels_unavailable_reason"] = check_triton_kernels()


def check_triton_kernels() -> tuple[bool, str | None]:
    """Whether our Triton kernels run on the GPU, and why not."""
    from ncarl.core.cuda import load_triton_kernels

    # The reason is only logged.
    with capture_logs(logging.INFO) as lines:
        runs = load_triton_kernels() is not None
    return runs, None if runs else (lines[0] if lines else "they give wrong results")


def nvidia_driver_version() -> str | None:
    """Version of NVIDIA's driver, from its library; None if there is none."""
    text = ctypes.create_string_buffer(96)
    for name in ("libnvidia-ml.so.1", "nvml.dll"):
        # No such library, or one of that name that is not NVIDIA's.
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(name)
            failed = library.nvmlInit_v2() or library.nvmlSystemGetDriverVersion(
                text, len(text)
            )
            return None if failed else text.value.decode(errors="replace")
    return None


def relevant_warnings(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    """Messages of warnings that concern the user, each on one line and once."""
    kinds = (UserWarning, RuntimeWarning)
    messages = [w.message for w in caught if issubclass(w.category, kinds)]
    return list(dict.fromkeys(" ".join(str(m).split()) for m in messages))


@contextlib.contextmanager
def capture_logs(level: int = logging.WARNING) -> Iterator[list[str]]:
    """Collect first lines of ncarl's log messages instead of printing them."""
    logger, lines = logging.getLogger("ncarl"), list[str]()

    def keep(record: logging.LogRecord) -> bool:
        lines.extend(record.getMessage().strip().splitlines()[:1])
        return False

    old_level = logger.level
    logger.setLevel(level)
    logger.addFilter(keep)
    try:
        yield lines
    finally:
        logger.removeFilter(keep)
        logger.setLevel(old_level)


def inspect_engine(name: str, available: int) -> dict[str, Any]:
    """The engine that a name selects, given the free bytes of the host."""
    engine = {
        "name": name,
        "description": None,  # if no engine runs
        "note": None,  # why it is not the engine of that name: warnings and errors
        "largest_kernel": None,  # columns of the largest kernel that fits
    }
    if name == "dask":  # without starting a cluster
        if importlib.util.find_spec("distributed") is None:
            return engine | {"note": "not installed: pip install 'ncarl[dask]'"}
        version = importlib.metadata.version("distributed")
        workers = "the workers of the current client, or threads here"
        return engine | {"description": f"dask {version}: {workers}"}
    with warnings.catch_warnings(record=True) as caught, capture_logs() as lines:
        warnings.simplefilter("always")
        try:
            picked = pick_engine(name)
            description = "; ".join([picked.describe(), *lines])
            largest = estimate_largest_kernel(picked, available)
        except Exception as error:  # drivers and cards fail in many ways
            return engine | {"note": first_line(error)}
    note = "; ".join(relevant_warnings(caught)) or None
    found = {"description": description, "note": note, "largest_kernel": largest}
    return engine | found


def estimate_largest_kernel(engine: Engine, available: int) -> int | None:
    """Columns of the largest float64 kernel that an engine has memory for, about."""
    if isinstance(engine, Threads):
        arrays = HOST_ARRAYS + (engine.n_jobs or available_cores())
        return math.isqrt(available // (8 * arrays))
    from ncarl.engines import torch as torch_engine

    if not isinstance(engine, torch_engine.Torch):
        return None
    free, _ = torch_engine.device_memory(engine.compute_device.torch_device)
    return torch_engine.max_kernel_columns(free)


def make_problem() -> tuple[Array, Array]:
    """The matrix of the self-test, always the same, and its hidden entries (40 %).

    Rows have from few to many hidden entries, so that both ways to solve a row occur.
    """
    rng = np.random.default_rng(0)
    left = rng.standard_normal((ROWS, RANK))
    truth = left @ rng.standard_normal((RANK, COLUMNS))
    shares = np.linspace(0.1, 0.7, ROWS)[:, None]
    return truth, rng.random(truth.shape) < shares


def run_self_test(*, full: bool = False) -> list[dict[str, Any]]:
    """Test the threads, PyTorch on a GPU and, if ``full``, PyTorch on the CPU."""
    threads, reference = run_engine_test(None)
    tests = [threads]
    reason = gpu_unavailable_reason()
    if reason is None:
        tests.append(run_engine_test("cuda", reference)[0])
    else:
        tests.append(UNTESTED | {"engine": "torch (cuda)", "skip_reason": reason})
    if importlib.util.find_spec("torch") is not None:
        if full:
            tests.append(run_engine_test("cpu", reference)[0])
        elif reason is not None:
            slow = "PyTorch loads slowly; ncarl doctor --full tests it"
            tests.append(UNTESTED | {"engine": "torch (cpu)", "skip_reason": slow})
    return tests


def run_engine_test(
    device: str | None, reference: Array | None = None
) -> tuple[dict[str, Any], Array | None]:
    """Test PyTorch on a device, or the threads if that is None.

    Returns what the report holds and the completed matrix, which is compared with
    ``reference``.
    """
    test = UNTESTED | {"engine": "threads" if device is None else f"torch ({device})"}
    truth, hidden = make_problem()
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine = _make_engine(device)
            estimator = NCARL(alpha=1.0, max_iter=STEPS, tol=0.0, engine=engine)
            filled = estimator.fit_transform(np.where(hidden, np.nan, truth))
    except Exception as error:  # whatever it is, it belongs in the report
        failure = f"{type(error).__name__}: {first_line(error)}"
        return test | {"checks": [{"passed": False, "detail": failure}]}, None
    off = np.linalg.norm((filled - truth)[hidden]) / np.linalg.norm(truth[hidden])
    kept = filled[~hidden].tobytes() == truth[~hidden].tobytes()
    limit = f"(must be below {MAX_ERROR:g})"
    checks = [
        (off < MAX_ERROR, f"error {off:.1e} on hidden entries {limit}"),  # NaN is not
        (kept, f"observed entries {'kept bit for bit' if kept else 'changed'}"),
    ]
    if reference is not None:
        gap = np.abs(filled - reference).max() / np.abs(reference).max()
        limit = f"(must be below {MAX_DISAGREEMENT:g})"
        detail = f"agrees with threads to {gap:.1e} {limit}"
        checks.append((gap < MAX_DISAGREEMENT, detail))
    checks += [(True, f"but warned: {line}") for line in relevant_warnings(caught)]
    parts = [v for k, v in estimator.history_.items() if k.startswith("seconds_")]
    # Without the first step, in which code is compiled.
    step_seconds = float(np.median(np.sum(parts, axis=0)[1:]))
    return test | {
        "checks": [{"passed": bool(ok), "detail": detail} for ok, detail in checks],
        "step_seconds": step_seconds,
        "seconds": time.perf_counter() - start,
    }, filled


def _make_engine(device: str | None) -> Engine:
    if device is None:
        return Threads()
    from ncarl.engines.torch import Torch

    return Torch(device=device)


def report_sections(report: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Names and texts of the report by section, without the self-test."""
    versions = list(report["versions"].items())
    for package in report["packages"]:
        note = f" ({package['note']})" if package["note"] else ""
        version = package["version"] or "not installed"
        versions.append((package["name"], f"{version}{note}"))
    return {
        "Versions": versions,
        "Machine": list(_host_rows(report["host"])),
        "GPU": list(_gpu_rows(report["gpu"])),
        "Engines": list(_engine_rows(report["engines"])),
    }


def _host_rows(host: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "cores", str(host["cores"])
    yield "memory", _format_memory(host["memory_available"], host["memory_total"])
    for blas in host["blas"]:
        count = blas["threads"]
        threads = f"{count} thread{'s' if count != 1 else ''}"
        yield (
            "BLAS",
            f"{blas['name']} {blas['version'] or '(version unknown)'}, {threads}",
        )


def _format_memory(free: int, total: int) -> str:
    return f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"


def _gpu_rows(gpu: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if gpu["unavailable_reason"] is not None:
        yield "not used", gpu["unavailable_reason"]
    else:
        more = f" (the first of {gpu['devices']})" if gpu["devices"] > 1 else ""
        yield "name", f"{gpu['name']}{more}"
        yield "memory", _format_memory(gpu["memory_free"], gpu["memory_total"])
        yield "capability", gpu["compute_capability"]
        reason = gpu["kernels_unavailable_reason"]
        slower = f"do not run, PyTorch's own are used: {reason}"
        yield "kernels", "ours, in Triton, run" if gpu["kernels"] else slower
    if gpu["driver"] is not None:
        yield "driver", gpu["driver"]
    for line in gpu["warnings"]:
        yield "warning", line


def _engine_rows(engines: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for engine in engines:
        yield engine["name"], engine["note"] or engine["description"]
        largest = engine["largest_kernel"]
        if largest is not None:
            columns = round(largest, -2) or largest
            yield "", f"memory for a kernel of about {columns:,} columns"


def self_test_rows(tests: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """One row a check, and the time of a step."""
    for test in tests:
        if test["skip_reason"] is not None:
            yield "skipped", test["engine"], test["skip_reason"]
        for check in test["checks"]:
            yield "OK" if check["passed"] else "FAILED", test["engine"], check["detail"]
        if test["step_seconds"] is not None:
            step = f"{test['step_seconds'] * 1e3:.1f} ms a step"
            yield "", test["engine"], f"{step}, {test['seconds']:.1f} s in all"


def build_doctor_page(report: dict[str, Any]) -> Page:
    """The page of a report."""
    lead = (
        "All is well: every engine that can be used here gives the right answer."
        if report["ok"]
        else "A self-test FAILED: do not trust what is computed here before it passes."
    )
    page = Page("ncarl doctor", lead)
    for title, rows in report_sections(report).items():
        page.heading(title).facts(merge_fields(rows))
    return page.heading("Self-test").table(
        TEST_HEADS, self_test_rows(report["self_test"]), prose=True
    )

"""``ncarl doctor``: versions, machine and engines, and a self-test of each engine."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import json
import logging
import math
import os
import platform
import re
import time
import warnings
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import typer

from ncarl import __version__
from ncarl.cli import console, options as opt
from ncarl.core.types import Array
from ncarl.engines import ENGINE_NAMES, pick_engine
from ncarl.engines.base import Engine, first_line, gpu_unavailable_reason
from ncarl.engines.cores import (
    BLAS_THREADS_MIN_COLUMNS,
    available_cores,
    cpu_quota,
    free_blas_threads,
    measure_free_cores,
    usable_cores,
)
from ncarl.engines.threads import Threads
from ncarl.estimators.ncarl import NCARL
from ncarl.html import Page
from ncarl.io.base import host_memory
from ncarl.text import count_of, one_line

EXAMPLES = ("ncarl doctor", "ncarl doctor --json")
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
#: Alternative names of these packages.
ALIASES = {"triton": ("pytorch-triton", "pytorch-triton-rocm", "triton-windows")}
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


def doctor(
    full: Annotated[
        bool, typer.Option("--full", help="Test PyTorch on the CPU too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON object.")
    ] = False,
    report_path: opt.ReportOption = None,
) -> None:
    """Show versions, machine and engines, and test each engine on a small matrix.

    Add the output to bug reports: it contains no folder names and no host name. The
    exit code is 1 if a test failed; a missing GPU is not a failure.
    """
    from rich.console import Console

    console.check_report_path(report_path)
    with Console(stderr=True).status("testing ..."):
        report = collect_report(full=full)
    if as_json:
        sections = {
            t.lower(): console.merge_fields(f) for t, f in report.sections.items()
        }
        content = {"ok": report.ok, **sections, "self-test": report.self_test}
        typer.echo(json.dumps(content, indent=2))
    else:
        for title, fields in report.sections.items():
            console.print_text(title, style="bold")
            # Names of packages are longer than those that fields usually have.
            console.print_fields((f"{name:<14}", text) for name, text in fields)
            console.print_text()
        console.print_text("Self-test", style="bold")
        checks = report.self_test
        console.print_table(TEST_HEADS, checks, left=(0, 1, 2), bold=("FAILED",))
        verdict = "all is well" if report.ok else "a self-test FAILED"
        console.print_text(verdict, style="bold")
    if report_path is not None:
        console.write_page(build_doctor_page(report), report_path, quiet=as_json)
    if not report.ok:
        raise typer.Exit(1)


@dataclass(frozen=True)
class DoctorReport:
    """What the command prints; no text in it names a folder of the user."""

    sections: dict[str, list[tuple[str, str]]]  # names and texts by title
    self_test: list[tuple[str, str, str]]  # OK, FAILED or skipped; engine; detail

    @property
    def ok(self) -> bool:
        """Whether no self-test failed."""
        return all(state != "FAILED" for state, _, _ in self.self_test)


def collect_report(*, full: bool = False) -> DoctorReport:
    """Inspect everything, and test the engines."""
    sections = {
        "Versions": version_fields(),
        "Machine": machine_fields(),
        "GPU": gpu_fields(),
        "Engines": (field for name in ENGINE_NAMES for field in engine_fields(name)),
    }
    return DoctorReport(
        {
            title: [(name, strip_paths(text)) for name, text in fields]
            for title, fields in sections.items()
        },
        [(state, name, strip_paths(text)) for state, name, text in run_self_test(full)],
    )


def strip_paths(text: str) -> str:
    """A message of a library with file names in place of paths, which name the user.

    >>> strip_paths("cannot open '/home/ada/env/lib/libtorch.so' (1/2)")
    "cannot open 'libtorch.so' (1/2)"
    """
    with contextlib.suppress(RuntimeError):  # a user without a home
        home = str(Path.home())
        text = text.replace(home, "~") if len(home) > 1 else text
    return PATH_FOLDERS.sub("", text)


def version_fields() -> console.Fields:
    """Versions of ncarl, Python, the system, and packages, which are not imported."""
    yield "ncarl", __version__
    python = platform.python_implementation()
    yield "python", f"{platform.python_version()} ({python})"
    yield "platform", platform.platform()  # without the name of the computer
    for name, how in PACKAGES.items():
        note = f" ({torch_build()})" if name == "torch" else ""
        for alias in (name, *ALIASES.get(name, ())):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                yield name, f"{importlib.metadata.version(alias)}{note}"
                break
        else:
            yield name, f"not installed ({how})"


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


def machine_fields() -> console.Fields:
    """Cores and limits on them, memory and BLAS of this process."""
    import scipy.linalg  # noqa: F401  which, like NumPy, loads a BLAS library
    from threadpoolctl import threadpool_info

    cores, usable, quota = available_cores(), len(usable_cores()), cpu_quota()
    free = measure_free_cores(wait=0.2)
    yield "cores", str(cores)
    limit = "no quota" if math.isinf(quota) else f"a quota of {quota:g}"
    yield "limits", f"affinity to {usable} of {os.cpu_count()} cores, {limit}"
    threads = count_of(free_blas_threads(cores), "thread")
    columns = f"kernels from {BLAS_THREADS_MIN_COLUMNS} columns on"
    yield "free", f"{free:.1f} cores now: up to {threads} of BLAS for {columns}"
    yield "memory", _format_memory(*free_and_total_memory())
    for library in threadpool_info():
        if library["user_api"] == "blas":
            version = library.get("version") or "(version unknown)"
            threads = count_of(library["num_threads"], "thread")
            yield "BLAS", f"{library['internal_api']} {version}, {threads}"


def free_and_total_memory() -> tuple[int, int]:
    """Available and total bytes of memory for this process."""
    memory = psutil.virtual_memory()
    total = host_memory() or memory.total
    return min(memory.available, total), total


def _format_memory(free: int, total: int) -> str:
    return f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"


def gpu_fields() -> console.Fields:
    """The GPU that the torch engine uses, or why there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reason = gpu_unavailable_reason()
        try:
            fields = list(_describe_gpu()) if reason is None else [("not used", reason)]
        except Exception as error:  # drivers and cards fail in many ways
            fields = [("not used", f"the GPU does not work ({first_line(error)})")]
    yield from fields
    driver = nvidia_driver_version()
    if driver is not None:
        yield "driver", driver
    for line in relevant_warnings(caught):  # which often name the cause of a failure
        yield "warning", line


def _describe_gpu() -> console.Fields:
    import torch

    from ncarl.engines.torch import device_memory

    device, count = torch.device("cuda"), torch.cuda.device_count()
    card = torch.cuda.get_device_properties(device)
    yield "name", card.name + (f" (the first of {count})" if count > 1 else "")
    yield "memory", _format_memory(*device_memory(device))
    yield "capability", f"{card.major}.{card.minor}"
    reason = triton_unavailable_reason()
    slower = f"do not run, PyTorch's own are used: {reason}"
    yield "kernels", "ours, in Triton, run" if reason is None else slower


def triton_unavailable_reason() -> str | None:
    """Why our Triton kernels do not run on the GPU; None if they do."""
    from ncarl.core.cuda import load_triton_kernels

    # The reason is only logged.
    with capture_logs(logging.INFO) as lines:
        if load_triton_kernels() is not None:
            return None
    return lines[0] if lines else "they give wrong results"


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
    return list(dict.fromkeys(map(one_line, messages)))


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


def engine_fields(name: str) -> console.Fields:
    """The engine that a name selects, and the largest kernel it has memory for."""
    if name == "dask":  # without starting a cluster
        try:
            version = importlib.metadata.version("distributed")
            workers = "the workers of the current client, or threads here"
            yield name, f"dask {version}: {workers}"
        except importlib.metadata.PackageNotFoundError:
            yield name, "not installed: pip install 'ncarl[dask]'"
        return
    with warnings.catch_warnings(record=True) as caught, capture_logs() as lines:
        warnings.simplefilter("always")
        try:
            engine = pick_engine(name)
            description = "; ".join([engine.describe(), *lines])
            largest = estimate_largest_kernel(engine, free_and_total_memory()[0])
        except Exception as error:  # drivers and cards fail in many ways
            description, largest = first_line(error), None
    yield name, "; ".join(relevant_warnings(caught)) or description
    if largest is not None:
        columns = round(largest, -2) or largest
        yield "", f"memory for a kernel of about {columns:,} columns"


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


def run_self_test(full: bool) -> Iterator[tuple[str, str, str]]:
    """Test the threads, PyTorch on a GPU and, if ``full``, PyTorch on the CPU."""
    reference = yield from run_engine_test("threads", None)
    reason = gpu_unavailable_reason()
    if reason is None:
        yield from run_engine_test("torch (cuda)", reference)
    else:
        yield "skipped", "torch (cuda)", reason
    if importlib.util.find_spec("torch") is None:
        return
    if full:
        yield from run_engine_test("torch (cpu)", reference)
    elif reason is not None:
        slow = "PyTorch loads slowly; ncarl doctor --full tests it"
        yield "skipped", "torch (cpu)", slow


def run_engine_test(
    name: str, reference: Array | None
) -> Generator[tuple[str, str, str], None, Array | None]:
    """Yield the checks of an engine, and return the matrix as it completed it.

    It is compared with ``reference``, the matrix as another engine completed it.
    """

    def check(passed: Any, detail: str) -> tuple[str, str, str]:
        return "OK" if passed else "FAILED", name, detail

    truth, hidden = make_problem()
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine = _make_engine(name)
            estimator = NCARL(alpha=1.0, max_iter=STEPS, tol=0.0, engine=engine)
            filled = estimator.fit_transform(np.where(hidden, np.nan, truth))
    except Exception as error:  # whatever it is, it belongs in the report
        yield check(False, f"{type(error).__name__}: {first_line(error)}")
        return None
    seconds = time.perf_counter() - start
    off = np.linalg.norm((filled - truth)[hidden]) / np.linalg.norm(truth[hidden])
    limit = f"(must be below {MAX_ERROR:g})"
    # NaN is not below anything.
    yield check(off < MAX_ERROR, f"error {off:.1e} on hidden entries {limit}")
    kept = filled[~hidden].tobytes() == truth[~hidden].tobytes()
    yield check(kept, f"observed entries {'kept bit for bit' if kept else 'changed'}")
    if reference is not None:
        off = np.abs(filled - reference).max() / np.abs(reference).max()
        limit = f"(must be below {MAX_DISAGREEMENT:g})"
        yield check(off < MAX_DISAGREEMENT, f"agrees with threads to {off:.1e} {limit}")
    for line in relevant_warnings(caught):
        yield check(True, f"but warned: {line}")
    parts = [v for k, v in estimator.history_.items() if k.startswith("seconds_")]
    # Without the first step, in which code is compiled.
    step = float(np.median(np.sum(parts, axis=0)[1:]))
    yield "", name, f"{step * 1e3:.1f} ms a step, {seconds:.1f} s in all"
    return filled


def _make_engine(name: str) -> Engine:
    if name == "threads":
        return Threads()
    from ncarl.engines.torch import Torch

    return Torch(device=name.removeprefix("torch (").removesuffix(")"))


def build_doctor_page(report: DoctorReport) -> Page:
    """The page of a report."""
    lead = (
        "All is well: every engine that can be used here gives the right answer."
        if report.ok
        else "A self-test FAILED: do not trust what is computed here before it passes."
    )
    page = Page("ncarl doctor", lead)
    for title, fields in report.sections.items():
        page.heading(title).facts(console.merge_fields(fields))
    return page.heading("Self-test").table(TEST_HEADS, report.self_test, prose=True)

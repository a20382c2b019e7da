"""``ncarl doctor``: versions, machine and engines, and a self-test of each engine."""

from __future__ import annotations

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import numpy as np
import typer

from ncarl import __version__
from ncarl.cli.console import check_report_path, write_page
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

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = (
    "ncarl doctor",
    "ncarl doctor --json",
)
#: Packages to look for, with other names they go by, and how to install them.
PACKAGES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("numpy",), "pip install numpy"),
    (("scipy",), "pip install scipy"),
    (("scikit-learn",), "pip install scikit-learn"),
    (("numba",), "pip install 'ncarl[fast]'"),
    (("torch",), "pip install 'ncarl[gpu]'"),
    (
        ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-windows"),
        "comes with PyTorch for GPUs",
    ),
    (("dask",), "pip install 'ncarl[dask]'"),
    (("pandas",), "pip install 'ncarl[cli]'"),
    (("polars",), "pip install polars"),
    (("pyarrow",), "pip install 'ncarl[cli]'"),
)
#: Files with the memory limit of a container.
CGROUP_LIMIT_FILES = ("memory.max", "memory/memory.limit_in_bytes")
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
#: Styles of cells.
STYLES = {"OK": "green", "FAILED": "bold red", "skipped": "dim"}
#: The cells of a line of the output.
Row = tuple[str, ...]
T = TypeVar("T")


def doctor(
    full: Annotated[
        bool,
        typer.Option("--full", help="Try PyTorch on the processor too."),
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
        typer.echo(to_json(report))
    else:
        print_doctor_report(report, Console())
    if report_path is not None:
        write_doctor_page(report, report_path, quiet=as_json)
    if not report.ok:
        raise typer.Exit(1)


@dataclass(frozen=True)
class DoctorReport:
    """Versions, machine and engines, and the results of the self-test."""

    ok: bool  # whether no self-test failed
    versions: dict[str, str]
    packages: tuple[PackageInfo, ...]
    host: HostInfo
    gpu: GpuInfo
    engines: tuple[EngineInfo, ...]
    self_test: tuple[EngineTest, ...]


def collect_report(*, full: bool = False) -> DoctorReport:
    """Inspect everything; no text in the report names a folder of the user."""
    host = inspect_host()
    gpu = inspect_gpu()
    engines = inspect_engines(host.memory_available or host.memory_total)
    tests = run_self_test(full=full)
    report = DoctorReport(
        ok=all(test.all_passed for test in tests),
        versions=system_versions(),
        packages=list_packages(),
        host=host,
        gpu=gpu,
        engines=engines,
        self_test=tests,
    )
    return strip_paths(report)


def strip_paths(value: T) -> T:
    """``value`` with file names in place of paths, in every text that it holds.

    Messages of libraries contain paths, and these the name of the user.

    Examples
    --------
    >>> strip_paths("cannot open '/home/ada/env/lib/libtorch.so' (1/2)")
    "cannot open 'libtorch.so' (1/2)"
    """
    if isinstance(value, str):
        try:
            home = str(Path.home())
        except RuntimeError:  # a user without one
            home = ""
        text = value.replace(home, "~") if len(home) > 1 else value
        return PATH_FOLDERS.sub("", text)  # type: ignore[return-value]
    if isinstance(value, dict):
        return {key: strip_paths(part) for key, part in value.items()}  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(strip_paths(part) for part in value)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        parts = {name: strip_paths(getattr(value, name)) for name in names}
        return replace(value, **parts)
    return value


def to_json(report: DoctorReport) -> str:
    """The report as a JSON object."""
    return json.dumps(asdict(report), indent=2)


@dataclass(frozen=True)
class PackageInfo:
    """A package: its version, or None if it is not installed."""

    name: str
    version: str | None
    note: str | None = None  # how to install it; what PyTorch was built for


@dataclass(frozen=True)
class BlasInfo:
    """A BLAS library of this process."""

    name: str
    version: str | None
    threads: int


@dataclass(frozen=True)
class HostInfo:
    """Processor and memory; bytes are None where they are unknown."""

    cores: int
    memory_total: int | None
    memory_available: int | None
    blas: tuple[BlasInfo, ...]


def system_versions() -> dict[str, str]:
    """Versions of ncarl, Python and the system; the host's name is not among them."""
    return {
        "ncarl": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
    }


def list_packages() -> tuple[PackageInfo, ...]:
    """The packages that ncarl can use, found without importing them."""
    return tuple(_find_package(names, how) for names, how in PACKAGES)


def _find_package(names: tuple[str, ...], install_hint: str) -> PackageInfo:
    """The package installed under one of the names."""
    for name in names:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return PackageInfo(
            names[0], version, torch_build() if name == "torch" else None
        )
    return PackageInfo(names[0], None, install_hint)


def torch_build() -> str:
    """The GPU library that PyTorch was built for, read from its ``version.py``.

    Importing PyTorch would take seconds.
    """
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


def inspect_host() -> HostInfo:
    """Cores, memory and BLAS of this process."""
    import scipy.linalg  # noqa: F401  which, like NumPy, loads a BLAS library
    from threadpoolctl import threadpool_info

    blas = tuple(
        BlasInfo(found["internal_api"], found.get("version"), found["num_threads"])
        for found in threadpool_info()
        if found["user_api"] == "blas"
    )
    return HostInfo(available_cores(), *host_memory(), blas)


def host_memory() -> tuple[int | None, int | None]:
    """Bytes of memory that this process may use, and how many of them are free."""
    total = _sysconf_bytes("SC_PHYS_PAGES")
    available = _available_memory() or _sysconf_bytes("SC_AVPHYS_PAGES")
    for limit in _cgroup_limits():
        total = limit if total is None else min(total, limit)
        available = None if available is None else min(available, limit)
    return total, available


def _sysconf_bytes(name: str) -> int | None:
    """Bytes in the memory pages that ``os.sysconf`` counts under a name."""
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows; macOS for some names
        return None


def _available_memory(path: Path = Path("/proc/meminfo")) -> int | None:
    """Available bytes on Linux, those of its file cache included."""
    try:
        found = re.search(r"^MemAvailable: *(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _cgroup_limits(folder: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Memory limits of a container in bytes, if there are any."""
    for name in CGROUP_LIMIT_FILES:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            yield int(text)


@dataclass(frozen=True)
class GpuInfo:
    """The GPU that the torch engine uses, or why there is none."""

    unavailable_reason: str | None = None
    name: str | None = None
    memory_free: int | None = None
    memory_total: int | None = None
    compute_capability: str | None = None
    driver: str | None = None
    devices: int = 0  # GPUs that PyTorch sees
    kernels: bool | None = None  # whether our Triton kernels run; None without a GPU
    kernels_unavailable_reason: str | None = None
    warnings: tuple[str, ...] = ()  # of PyTorch; often the cause of a failure


def inspect_gpu() -> GpuInfo:
    """The GPU that the torch engine would use, or why there is none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reason = gpu_unavailable_reason()
        try:
            gpu = GpuInfo(unavailable_reason=reason) if reason else _query_gpu()
        except Exception as error:  # drivers and cards fail in many ways
            reason = f"the GPU does not work ({first_line(error)})"
            gpu = GpuInfo(unavailable_reason=reason)
    messages = tuple(relevant_warnings(caught))
    return replace(gpu, driver=nvidia_driver_version(), warnings=messages)


def _query_gpu() -> GpuInfo:
    import torch

    from ncarl.engines.torch import device_memory

    device = torch.device("cuda")
    card = torch.cuda.get_device_properties(device)
    free, total = device_memory(device)
    kernels, reason = check_triton_kernels()
    return GpuInfo(
        name=card.name,
        memory_free=free,
        memory_total=total,
        compute_capability=f"{card.major}.{card.minor}",
        devices=torch.cuda.device_count(),
        kernels=kernels,
        kernels_unavailable_reason=reason,
    )


def check_triton_kernels() -> tuple[bool, str | None]:
    """Whether our Triton kernels run on the GPU, and why not."""
    from ncarl.core.cuda import load_triton_kernels

    # The reason is only logged.
    with capture_logs(logging.INFO) as lines:
        runs = load_triton_kernels() is not None
    return runs, None if runs else (lines[0] if lines else "they give wrong results")


def nvidia_driver_version() -> str | None:
    """Version of NVIDIA's driver, from its library; None if there is none."""
    for name in ("libnvidia-ml.so.1", "nvml.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        try:
            if library.nvmlInit_v2() != 0:
                return None
            text = ctypes.create_string_buffer(96)
            failed = library.nvmlSystemGetDriverVersion(text, len(text))
            library.nvmlShutdown()
        except AttributeError:  # a library of that name, but not NVIDIA's
            return None
        return None if failed else text.value.decode(errors="replace")
    return None


def relevant_warnings(caught: Iterable[warnings.WarningMessage]) -> list[str]:
    """Messages of warnings that concern the user, each on one line and once."""
    kinds = (UserWarning, RuntimeWarning)
    messages = [w.message for w in caught if issubclass(w.category, kinds)]
    return list(dict.fromkeys(" ".join(str(m).split()) for m in messages))


@contextmanager
def capture_logs(level: int = logging.WARNING) -> Iterator[list[str]]:
    """Collect first lines of ncarl's log messages instead of printing them."""
    logger, lines = logging.getLogger("ncarl"), list[str]()

    class ListHandler(logging.Handler):
        """Appends messages to the list."""

        def emit(self, record: logging.LogRecord) -> None:
            """Keep the first line of a message."""
            lines.extend(record.getMessage().strip().splitlines()[:1])

    handler = ListHandler(level)
    old_level, old_propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(old_level)
        logger.propagate = old_propagate


@dataclass(frozen=True)
class EngineInfo:
    """The engine that a name selects."""

    name: str
    description: str | None = None  # None if no engine runs
    note: str | None = None  # why it is not the engine of that name
    largest_kernel: int | None = None  # columns of the largest kernel that fits


def inspect_engines(available: int | None) -> tuple[EngineInfo, ...]:
    """The engines that all names select, given the free bytes of the host."""
    return tuple(inspect_engine(name, available) for name in ENGINE_NAMES)


def inspect_engine(name: str, available: int | None) -> EngineInfo:
    """The engine that a name selects; warnings and errors become its note."""
    if name == "dask":
        return inspect_dask()
    with warnings.catch_warnings(record=True) as caught, capture_logs() as lines:
        warnings.simplefilter("always")
        try:
            engine = pick_engine(name)
            description = "; ".join([engine.describe(), *lines])
            largest = estimate_largest_kernel(engine, available)
        except Exception as error:  # drivers and cards fail in many ways
            return EngineInfo(name, note=first_line(error))
    note = "; ".join(relevant_warnings(caught)) or None
    return EngineInfo(name, description, note, largest)


def inspect_dask() -> EngineInfo:
    """The engine "dask", found without starting a cluster."""
    try:
        version = importlib.metadata.version("distributed")
    except importlib.metadata.PackageNotFoundError:
        return EngineInfo("dask", note="not installed: pip install 'ncarl[dask]'")
    description = f"dask {version}: the workers of the current client, or threads here"
    return EngineInfo("dask", description)


def estimate_largest_kernel(engine: Engine, available: int | None) -> int | None:
    """Columns of the largest float64 kernel that an engine has memory for, about."""
    if isinstance(engine, Threads):
        arrays = HOST_ARRAYS + (engine.n_jobs or available_cores())
        return None if available is None else math.isqrt(available // (8 * arrays))
    from ncarl.engines import torch as torch_engine

    if not isinstance(engine, torch_engine.Torch):
        return None
    free, _ = torch_engine.device_memory(engine.compute_device.torch_device)
    return torch_engine.max_kernel_columns(free)


@dataclass(frozen=True)
class SelfTestCheck:
    """Whether one check passed, and what was measured."""

    passed: bool
    detail: str


@dataclass(frozen=True)
class EngineTest:
    """The checks of one engine."""

    engine: str
    checks: tuple[SelfTestCheck, ...] = ()
    skip_reason: str | None = None
    step_seconds: float | None = None  # once everything is loaded and compiled
    seconds: float | None = None  # of the whole test, loading and compiling included

    @property
    def all_passed(self) -> bool:
        """Whether no check failed; a skipped engine has none."""
        return all(check.passed for check in self.checks)


@dataclass(frozen=True)
class SelfTestProblem:
    """A matrix of low rank, and which of its entries are hidden."""

    truth: Array
    hidden: Array

    @property
    def observed_matrix(self) -> Array:
        """The matrix with NaN in hidden entries."""
        return np.where(self.hidden, np.nan, self.truth)


def make_problem() -> SelfTestProblem:
    """The matrix of the self-test, always the same; 40 % of it is hidden.

    Rows have from few to many hidden entries, so that both ways to solve a row occur.
    """
    rng = np.random.default_rng(0)
    left, right = (
        rng.standard_normal((ROWS, RANK)),
        rng.standard_normal((RANK, COLUMNS)),
    )
    shares = np.linspace(0.1, 0.7, ROWS)[:, None]
    return SelfTestProblem(left @ right, rng.random((ROWS, COLUMNS)) < shares)


def run_self_test(*, full: bool = False) -> tuple[EngineTest, ...]:
    """Test the threads, and PyTorch on the GPU if there is one.

    ``full`` tests PyTorch on the processor too, which takes seconds to load.
    """
    problem = make_problem()
    threads, reference = run_engine_test("threads", Threads, problem)
    tests = [threads]

    def run_torch(device: str) -> EngineTest:
        name, factory = f"torch ({device})", _torch_factory(device)
        return run_engine_test(name, factory, problem, reference)[0]

    reason = gpu_unavailable_reason()
    if reason is None:
        tests.append(run_torch("cuda"))
    else:
        tests.append(EngineTest("torch (cuda)", skip_reason=reason))
    if importlib.util.find_spec("torch") is None:
        return tuple(tests)
    if full:
        tests.append(run_torch("cpu"))
    elif reason is not None:
        slow = "PyTorch loads slowly; ncarl doctor --full tries it"
        tests.append(EngineTest("torch (cpu)", skip_reason=slow))
    return tuple(tests)


def _torch_factory(device: str) -> Callable[[], Engine]:
    """A function that makes a torch engine, and loads PyTorch when it is called."""

    def make() -> Engine:
        from ncarl.engines.torch import Torch

        return Torch(device=device)

    return make


def run_engine_test(
    name: str,
    make_engine: Callable[[], Engine],
    problem: SelfTestProblem,
    reference: Array | None = None,
) -> tuple[EngineTest, Array | None]:
    """The checks of one engine, and the matrix as it completed it.

    Parameters
    ----------
    name : str
        Name of the engine in the report.
    make_engine : callable
        Returns the engine; may fail, too.
    problem : SelfTestProblem
        The matrix to complete.
    reference : array, optional
        The matrix as another engine completed it.
    """
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator = NCARL(alpha=1.0, max_iter=STEPS, tol=0.0, engine=make_engine())
            filled = estimator.fit_transform(problem.observed_matrix)
    except Exception as error:  # whatever it is, it belongs in the report
        failure = f"{type(error).__name__}: {first_line(error)}"
        return EngineTest(name, (SelfTestCheck(False, failure),)), None
    checks = [check_hidden(filled, problem), check_observed(filled, problem)]
    if reference is not None:
        checks.append(check_agreement(filled, reference))
    checks += [
        SelfTestCheck(True, f"but warned: {line}") for line in relevant_warnings(caught)
    ]
    seconds, step_seconds = time.perf_counter() - start, median_step_seconds(estimator)
    return EngineTest(name, tuple(checks), None, step_seconds, seconds), filled


def median_step_seconds(estimator: NCARL) -> float:
    """Median seconds of a step; the first, in which code is compiled, is left out."""
    parts = [v for k, v in estimator.history_.items() if k.startswith("seconds_")]
    return float(np.median(np.sum(parts, axis=0)[1:]))


def check_hidden(filled: Array, problem: SelfTestProblem) -> SelfTestCheck:
    """Whether hidden entries were predicted."""
    truth = problem.truth[problem.hidden]
    error = np.linalg.norm(filled[problem.hidden] - truth) / np.linalg.norm(truth)
    # NaN is not below anything.
    detail = f"error {error:.1e} on hidden entries (must be below {MAX_ERROR:g})"
    return SelfTestCheck(bool(error < MAX_ERROR), detail)


def check_observed(filled: Array, problem: SelfTestProblem) -> SelfTestCheck:
    """Whether observed entries are unchanged, bit for bit."""
    kept = filled[~problem.hidden].tobytes() == problem.truth[~problem.hidden].tobytes()
    state = "kept bit for bit" if kept else "changed"
    return SelfTestCheck(kept, f"observed entries {state}")


def check_agreement(filled: Array, reference: Array) -> SelfTestCheck:
    """Whether two engines agree."""
    gap = np.abs(filled - reference).max() / np.abs(reference).max()
    detail = f"agrees with threads to {gap:.1e} (must be below {MAX_DISAGREEMENT:g})"
    return SelfTestCheck(bool(gap < MAX_DISAGREEMENT), detail)


def print_doctor_report(report: DoctorReport, console: Console) -> None:
    """Print all sections, and then whether all tests passed."""
    for title, rows in report_sections(report).items():
        _print_section(title, rows, console)
    verdict = "all is well" if report.ok else "a self-test FAILED"
    console.print(verdict, style="bold green" if report.ok else "bold red")


def report_sections(report: DoctorReport) -> dict[str, Iterable[Row]]:
    """The rows of the report, by the title of their section."""
    return {
        "Versions": version_rows(report.versions, report.packages),
        "Machine": host_rows(report.host),
        "GPU": gpu_rows(report.gpu),
        "Engines": engine_rows(report.engines),
        "Self-test": trial_rows(report.self_test),
    }


def _print_section(title: str, rows: Iterable[Row], console: Console) -> None:
    """Print a title and a table of its rows."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for row in rows:
        # Text, since brackets in a string would be taken for styles.
        *labels, last = (Text(cell, style=STYLES.get(cell, "")) for cell in row)
        for label in labels:
            label.no_wrap = True
        table.add_row(*labels, last)
    console.print(Text(title, style="bold"), table, "", sep="\n")


def version_rows(
    versions: dict[str, str], packages: Iterable[PackageInfo]
) -> Iterator[Row]:
    """Names and versions, or how to install what is missing."""
    yield from versions.items()
    for package in packages:
        note = f" ({package.note})" if package.note else ""
        yield package.name, (package.version or "not installed") + note


def host_rows(host: HostInfo) -> Iterator[Row]:
    """Cores, memory and BLAS."""
    yield "cores", str(host.cores)
    yield "memory", format_memory(host.memory_available, host.memory_total)
    for blas in host.blas:
        threads = f"{blas.threads} thread{'s' if blas.threads != 1 else ''}"
        yield "BLAS", f"{blas.name} {blas.version or '(version unknown)'}, {threads}"


def format_memory(free: int | None, total: int | None) -> str:
    """Free and total bytes as text.

    Examples
    --------
    >>> format_memory(1_500_000_000, 4_000_000_000)
    '1.5 of 4.0 GB free'
    >>> format_memory(None, 4_000_000_000)
    '4.0 GB'
    """
    if total is None:
        return "unknown"
    if free is None:
        return f"{total / 1e9:.1f} GB"
    return f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"


def gpu_rows(gpu: GpuInfo) -> Iterator[Row]:
    """The GPU, or why there is none."""
    if gpu.unavailable_reason is not None:
        yield "not used", gpu.unavailable_reason
    else:
        more = f" (the first of {gpu.devices})" if gpu.devices > 1 else ""
        yield "name", f"{gpu.name}{more}"
        yield "memory", format_memory(gpu.memory_free, gpu.memory_total)
        yield "capability", str(gpu.compute_capability)
        slower = f"do not run, PyTorch's own are used: {gpu.kernels_unavailable_reason}"
        yield "kernels", "ours, in Triton, run" if gpu.kernels else slower
    if gpu.driver is not None:
        yield "driver", gpu.driver
    for line in gpu.warnings:
        yield "warning", line


def engine_rows(engines: Iterable[EngineInfo]) -> Iterator[Row]:
    """The engine that each name selects, and the largest kernel it has memory for."""
    for engine in engines:
        yield engine.name, engine.note or engine.description or ""
        if engine.largest_kernel is not None:
            columns = round(engine.largest_kernel, -2) or engine.largest_kernel
            yield "", f"memory for a kernel of about {columns:,} columns"


def trial_rows(tests: Iterable[EngineTest]) -> Iterator[Row]:
    """One row a check, and the time of a step."""
    for test in tests:
        if test.skip_reason is not None:
            yield "skipped", test.engine, test.skip_reason
        for check in test.checks:
            yield "OK" if check.passed else "FAILED", test.engine, check.detail
        if test.step_seconds is not None:
            time = f"{test.step_seconds * 1e3:.1f} ms a step"
            yield "", test.engine, f"{time}, {test.seconds:.1f} s in all"


def write_doctor_page(report: DoctorReport, path: Path, *, quiet: bool = False) -> None:
    """Write the page of a report."""
    write_page(build_doctor_page(report), path, quiet=quiet)


def build_doctor_page(report: DoctorReport) -> Page:
    """The page of a report."""
    lead = (
        "All is well: every engine that can be used here gives the right answer."
        if report.ok
        else "A self-test FAILED: do not trust what is computed here before it passes."
    )
    page = Page("ncarl doctor", lead)
    for title, rows in report_sections(report).items():
        page.heading(title)
        _add_section(page, rows)
    return page


def _add_section(page: Page, rows: Iterable[Row]) -> None:
    """Rows of two cells as facts, of three as a table."""
    rows = list(rows)
    if all(len(row) == 2 for row in rows):
        facts: dict[str, str] = {}
        last = ""
        for name, text in rows:
            last = name or last
            facts[last] = f"{facts[last]}\n{text}" if last in facts else text
        page.facts(facts)
    else:
        page.table(("", "engine", "check"), rows)

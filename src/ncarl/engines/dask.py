"""The `Dask` engine: row work on workers of this machine or of a cluster.

From top to bottom: the engine, the connection to a cluster (`ClusterLink.retry` repeats
work when workers are lost, `WorkerBlocks.recover` recreates their blocks), passes over
the blocks, the tasks that workers run, and lazy completion of Dask arrays.

Blocks of a matrix in memory are scattered data, which Dask cannot recompute: they are
scattered again from the matrix.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import copy
import math
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from ncarl import __version__
from ncarl.blocks import cut_blocks
from ncarl.core.rows import Kernel, row_backend
from ncarl.core.types import Array, LikelihoodSums, RowSums, cached_property
from ncarl.engines.base import (
    ROW_BACKENDS,
    Device,
    HostDevice,
    LazyBlocks,
    gpu_unavailable_reason,
    in_order,
    transform_chunk,
)
from ncarl.engines.cores import available_cores, limit_blas_threads
from ncarl.io.base import import_optional
from ncarl.observations import Observations
from ncarl.validation import check_choice, check_integer, check_number

with suppress(ImportError):  # `Dask` says how to install what is missing
    import cloudpickle
    import dask
    import distributed
    from dask.delayed import delayed

__all__ = ["Dask", "LostWorkersError", "complete_dask_array"]

R = TypeVar("R")

#: Seconds between two checks for workers.
POLL_SECONDS = 1.0
#: Seconds that workers of a local cluster have to shut down by themselves.
SHUTDOWN_SECONDS = 5.0
#: Attempts at a pass or a transfer before it fails.
MAX_ATTEMPTS = 4
#: Servers of a local cluster must not be reachable from other machines.
LOCALHOST = "127.0.0.1"
#: Number of partial sums that one task adds.
SUM_FAN_IN = 8
#: Shared arguments up to this size travel with each task; larger ones are sent once.
MAX_INLINE_BYTES = 20_000
#: Blocks per thread, for load balancing.
BLOCKS_PER_THREAD = 4
#: Fewest rows per task, and how many more per entry of the n x n sum of a task.
MIN_ROWS_PER_TASK, ROWS_PER_SUM_ENTRY = 500, 0.01
#: Entries of the matrix, missing ones included, that always justify another thread.
ENTRIES_PER_THREAD = 20_000


class LostWorkersError(RuntimeError):
    """No worker is left, or workers were lost too many times."""


class LostDataError(Exception):
    """Data on a worker was lost; it can be recreated."""


@dataclass(frozen=True)
class Dask:
    """Row work on workers of Dask; n x n work in this process.

    Workers that the engine starts end with it: by `close`, at the end of a ``with``
    block, when it is garbage-collected, or with the process. Copies made by
    scikit-learn share the connection.

    Workers run code that they are sent: connect only to clusters that you trust.

    Parameters
    ----------
    cluster : str, distributed.Client or cluster object, optional
        "threads" or "processes" for new workers on this machine, the address of a
        scheduler such as "tcp://host:8786", a client, or a cluster object. By default
        the default client of this process, or threads.
    n_workers : int, optional
        Number of new workers, by default one per core, each with one thread; or how
        many workers of a cluster to wait for.
    kernel : {"auto", "numba", "numpy"}
        Backend of the row step on workers; "auto" takes Numba if it is installed.
    device : str, optional
        A torch device for n x n work, or "cpu" for the memory of the host; by default
        a GPU of this machine if one works.
    timeout : float
        Seconds to wait for a worker if there is none, or all lack memory.
    reason : str
        Why the engine was picked, for `describe`.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import NCARL
    >>> X = np.array([[1.0, 2.0, np.nan], [2.0, np.nan, 6.0], [3.0, 6.0, 9.0]])
    >>> with Dask("threads", n_workers=2) as engine:
    ...     model = NCARL(engine=engine).fit(X)
    ...     print(model.transform(X).shape)
    (3, 3)
    """

    cluster: Any = None
    n_workers: int | None = None
    kernel: str = "auto"
    device: str | None = None
    timeout: float = 30.0
    reason: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        import_optional("distributed", "Dask engines", "dask")
        _check_cluster(self.cluster)
        if self.n_workers is not None:
            hint = "; None for one per core"
            check_integer("n_workers", self.n_workers, low=1, hint=hint)
        check_choice("kernel", self.kernel, ROW_BACKENDS)
        if not (self.device is None or isinstance(self.device, str)):
            raise TypeError(
                "device must be the name of a torch device, 'cpu' for the memory of "
                f"the host, or None to use a GPU if there is one, got {self.device!r}"
            )
        check_number("timeout", self.timeout, low=0.0, strict=True)
        factory = partial(connect, self.cluster, self.n_workers, float(self.timeout))
        connection = LazyConnection(factory)
        object.__setattr__(self, "_connection", connection)
        # `_close_all` closes it at the end of the process.
        weakref.finalize(self, connection.close).atexit = False

    @property
    def link(self) -> ClusterLink:
        """Connection to the cluster, made on first use."""
        link: ClusterLink = vars(self)["_connection"].get()
        return link

    def close(self) -> None:
        """Shut down workers that the engine has started; it cannot be used any more."""
        vars(self)["_connection"].close()

    def __enter__(self) -> Dask:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Dask:
        """Return the engine itself: copies by scikit-learn share the connection."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parameters, a cluster by the address of its scheduler."""
        cluster = self.cluster
        if isinstance(cluster, distributed.Client):
            cluster = scheduler_address(cluster)
        elif not (cluster is None or isinstance(cluster, str)):
            cluster = cluster.scheduler_address
        fields = (cluster, self.n_workers, self.kernel, self.device, self.timeout)
        return type(self), (*fields, self.reason)

    @cached_property
    def compute_device(self) -> Device:
        """Memory of this process, or of its GPU."""
        device = self.device
        if device is None:
            device = "cpu" if gpu_unavailable_reason() else "cuda"
        if device == "cpu":
            return HostDevice()
        from ncarl.engines.torch import Torch

        return Torch(device).compute_device

    def place(self, rows: Observations | LazyBlocks) -> WorkerBlocks:
        """Blocks, or transformed chunks of a source, held by the workers."""
        if isinstance(rows, LazyBlocks):
            return stream_chunks(self.link, rows)
        return place_blocks(self.link, cut_blocks(rows, self._n_blocks(*rows.shape)))

    def _n_blocks(self, rows: int, columns: int) -> int:
        """Several blocks per thread, unless their sums cost more than they save."""
        threads = self.link.n_threads
        several = rows / (MIN_ROWS_PER_TASK + ROWS_PER_SUM_ENTRY * columns * columns)
        one = min(threads, rows * columns / ENTRIES_PER_THREAD)
        wanted = min(BLOCKS_PER_THREAD * threads, max(one, several))
        return max(1, min(rows, int(wanted)))

    def map(
        self, function: Callable[..., R], blocks: WorkerBlocks, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        yield from map_in_order(blocks, function, self._to_host(shared))

    def total(
        self, function: Callable[..., R], blocks: WorkerBlocks, **shared: Any
    ) -> R:
        """Sum (by ``+=``) of the results of `map`, in a fixed order."""
        total = tree_sum(blocks, function, self._to_host(shared))
        with self.compute_device.compute_context(1):
            sums: R = sums_to_device(total, self.compute_device)
        return sums

    def _to_host(self, shared: dict[str, Any]) -> dict[str, Any]:
        """Shared arguments with NumPy arrays, ready to be sent, and the backend."""
        fetch = self.compute_device.to_numpy
        arguments = {
            name: value.map_arrays(fetch) if isinstance(value, Kernel) else fetch(value)
            for name, value in shared.items()
        }
        return {**arguments, "backend": self.kernel}

    def describe(self) -> str:
        """One-line description of the engine and why it was picked."""
        link = self.link
        address = scheduler_address(link.client)
        backend = row_backend(self.kernel).__name__.rsplit("_", 1)[-1]
        workers = len(link.client.nthreads())
        device = getattr(self.compute_device, "torch_device", None)
        place = "" if device is None else f", n x n work on {device}"
        return (
            f"dask: {link.description} at {address}, {workers} workers with "
            f"{link.n_threads} threads, {backend} rows{place}{self.reason}"
        )


def _check_cluster(cluster: Any) -> None:
    if isinstance(cluster, str):
        if cluster in ("threads", "processes") or ":" in cluster:
            return
    elif isinstance(cluster, distributed.Client):
        if not cluster.asynchronous:
            return
        raise ValueError(
            "cluster must be a client that waits for results, got one made with "
            "asynchronous=True; pass the address of its scheduler"
        )
    elif cluster is None or hasattr(cluster, "scheduler_address"):
        return
    raise ValueError(
        "cluster must be 'threads', 'processes', an address such as "
        "'tcp://host:8786', a Client, a cluster object, or None for the client in use, "
        f"got {cluster!r}"
    )


class LazyConnection:
    """Link that ``factory`` makes on first use, and that is closed once.

    It does not refer to its engine, which can thus be garbage-collected.
    """

    def __init__(self, factory: Callable[[], ClusterLink]) -> None:
        self.factory = factory
        self.lock = threading.Lock()
        self.link: ClusterLink | None = None
        self.closed = False
        self.owner_pid = os.getpid()
        _connections.add(self)

    def get(self) -> ClusterLink:
        """Return the link, made on the first call."""
        if _in_task():
            raise RuntimeError(
                "a Dask engine cannot be used inside a task of Dask, where waiting for "
                "other tasks can deadlock; use engine='threads' there"
            )
        if self.owner_pid != os.getpid():
            raise RuntimeError(
                "this Dask engine belongs to the process that this one was forked "
                "from; create a new engine here, or use engine='threads'"
            )
        with self.lock:
            if self.closed:
                raise RuntimeError(
                    "this Dask engine is closed; create another, or use "
                    "engine='threads' (set_params(engine='threads') of an estimator)"
                )
            if self.link is None:
                self.link = self.factory()
            return self.link

    def close(self) -> None:
        """Close the link if one was made in this process."""
        if self.owner_pid != os.getpid():
            return  # it belongs to the parent process
        with self.lock:
            link, self.link, self.closed = self.link, None, True
        if link is None:
            return
        if link.client.loop.asyncio_loop is _running_loop():
            # Garbage-collected in the very thread that has to do the closing.
            threading.Thread(target=link.close, daemon=True).start()
        else:
            link.close()


#: Connections to close at the end of the process.
_connections: weakref.WeakSet[LazyConnection] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all connections; registered after Dask's own exit handler to run before."""
    for connection in list(_connections):
        connection.close()


def _running_loop() -> Any:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _in_task() -> bool:
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def connect(cluster: Any, n_workers: int | None, timeout: float) -> ClusterLink:
    """Connect to ``cluster``; see the parameters of `Dask`."""
    if cluster is None:
        try:
            cluster = distributed.default_client()
        except ValueError:  # there is none
            cluster = "threads"
    kind = "a cluster"
    owned: tuple[Any, ...] = ()
    started = cluster in ("threads", "processes")
    if started:
        kind = f"{cluster} of this machine"
        owned = _start_local_cluster(cluster, n_workers)
    elif not isinstance(cluster, distributed.Client):
        try:
            client = distributed.Client(cluster, set_as_default=False, timeout=timeout)
        except (OSError, TimeoutError, ValueError) as error:
            raise LostWorkersError(
                f"no Dask scheduler answers at cluster={cluster!r} ({error}); check "
                "the address, or use cluster='processes' for workers on this machine"
            ) from error
        owned = (client,)
    client = owned[0] if owned else cluster
    link = ClusterLink(client, kind, 0, timeout, owned, direct_to_workers=started)
    try:
        link.wait_for_workers(n_workers or 1)
        if not started:
            _check_worker_versions(client)
        return replace(link, n_threads=len(link.worker_addresses()))
    except BaseException:
        link.close()
        raise


def _check_worker_versions(client: Any) -> None:
    def version() -> str | None:  # pickled by value: workers may have no ncarl
        try:
            import ncarl
        except ImportError:
            return None
        return ncarl.__version__

    for worker, installed in client.run(version).items():
        if installed != __version__:
            there = "no ncarl" if installed is None else f"ncarl {installed}"
            raise RuntimeError(
                f"the Dask worker {worker} has {there}, here is {__version__}; install "
                "the same version on all workers"
            )


def _start_local_cluster(kind: str, n_workers: int | None) -> tuple[Any, ...]:
    processes = kind == "processes"
    # Threads share the memory of this process. They spill by the size of their own
    # blocks and never pause because of the memory of the whole process.
    memory = {"target": 0.5, "spill": False, "pause": False}
    settings = {f"distributed.worker.memory.{k}": v for k, v in memory.items()}
    with dask.config.set({} if processes else settings):
        cluster = distributed.LocalCluster(
            n_workers=n_workers or available_cores(),
            threads_per_worker=1,
            processes=processes,
            host=LOCALHOST if processes else None,
            dashboard_address=None,
            # Without an address these would listen on all interfaces.
            scheduler_kwargs={"dashboard_address": f"{LOCALHOST}:0"},
            worker_dashboard_address=f"{LOCALHOST}:0",
        )
    return distributed.Client(cluster, set_as_default=False), cluster


@dataclass(frozen=True)
class ClusterLink:
    """Dask client with retries and timeouts."""

    client: Any
    description: str  # of the workers
    #: Threads of all workers when the connection was made. The number of blocks depends
    #: on it even if workers come and go, so that results are reproducible.
    n_threads: int
    timeout: float  # seconds to wait for a worker if there is none
    owned: tuple[Any, ...]  # clients and clusters to close with the link, in order
    direct_to_workers: bool  # whether the client reaches more than the scheduler

    def wait_for_workers(self, n_workers: int) -> None:
        """Wait for ``n_workers`` workers, at most as long as the timeout."""
        try:
            self.client.wait_for_workers(n_workers, timeout=self.timeout)
        except TimeoutError as error:
            raise LostWorkersError(
                f"n_workers={n_workers} workers were asked for, but "
                f"{scheduler_address(self.client)} has {len(self.client.nthreads())} "
                f"after {self.timeout:g} seconds; start more, or ask for fewer"
            ) from error

    def worker_addresses(self) -> list[str]:
        """Addresses of the workers, each repeated for each of its threads."""
        threads = self.wait_for_any_worker()
        return [name for name in sorted(threads) for _ in range(threads[name])]

    def wait_for_any_worker(self) -> dict[str, int]:
        """Threads of each worker; `LostWorkersError` if none comes in time."""
        start = time.monotonic()
        while True:
            self.check_open()
            try:
                threads: dict[str, int] = self.client.nthreads()
            except OSError as error:
                raise LostWorkersError(
                    f"the Dask scheduler at {scheduler_address(self.client)} does not "
                    f"answer ({error}); connect to another, or use engine='threads'"
                ) from error
            if threads:
                return threads
            if time.monotonic() - start > self.timeout:
                raise LostWorkersError(
                    f"no Dask worker is left at {scheduler_address(self.client)}, and "
                    f"none came within {self.timeout:g} seconds; start workers, or use "
                    "engine='threads'"
                )
            time.sleep(min(0.1, self.timeout))

    def check_open(self) -> None:
        """Raise if the client is closed."""
        if self.client.status in ("closing", "closed"):
            raise LostWorkersError(
                "the Dask client is closed, or its scheduler is gone; create another "
                "engine, or use engine='threads'"
            )

    def wait(self, future: Any) -> None:
        """Wait until a future has succeeded or failed, as long as a worker can run."""
        last_able = time.monotonic()
        while not future.done():
            try:
                future.exception(timeout=POLL_SECONDS)
            except TimeoutError:
                self.wait_for_any_worker()
                if not self._all_paused():
                    last_able = time.monotonic()
                elif time.monotonic() - last_able > self.timeout:
                    raise LostWorkersError(
                        f"all Dask workers at {scheduler_address(self.client)} were "
                        f"paused for {self.timeout:g} seconds, as their memory is "
                        "full; give them more of it, or smaller blocks"
                    ) from None

    def _all_paused(self) -> bool:
        """Whether no worker begins a task, nor runs one that could free memory."""
        return all(
            worker["status"] == "paused"
            and not worker["metrics"].get("task_counts", {}).get("executing")
            for worker in self.client.scheduler_info(n_workers=-1)["workers"].values()
        )

    def result(self, future: Any) -> Any:
        """Result of a future; `LostDataError` if it failed for lack of a worker."""
        self.wait(future)
        timeout = max(POLL_SECONDS, self.timeout)
        while True:
            try:
                return future.result(timeout=timeout)
            except distributed.KilledWorker as error:
                raise LostDataError(str(error)) from error
            except Exception as error:
                if future.status == "error":
                    raise  # an error of the task itself
                if not isinstance(error, TimeoutError):
                    raise LostDataError(str(error)) from error
            self.wait_for_any_worker()
            timeout *= 2  # a large result, or a slow network

    def retry(self, attempt: Callable[[], R], recover: Callable[[], None]) -> R:
        """Result of ``attempt``, repeated after ``recover`` if data was lost.

        Raises `LostWorkersError` after `MAX_ATTEMPTS`, or if no worker is left.
        """
        self.check_open()
        for count in range(MAX_ATTEMPTS):
            if count:
                self.wait_for_any_worker()
                time.sleep(0.1 * count)  # until it is known which data was lost
            try:
                if count:
                    recover()
                return attempt()
            except LostDataError as error:
                trouble = error
        raise LostWorkersError(
            f"Dask workers were lost {MAX_ATTEMPTS} times in the same task "
            f"({trouble}); if they run out of memory, give them more of it or smaller "
            "blocks (more workers, or chunks of fewer rows)"
        ) from trouble

    def scatter(self, data: list[Any], worker: str) -> list[Any]:
        """Send data to one worker and return its futures.

        Never to all workers at once: Dask would try forever to reach one that dies
        meanwhile. Other workers fetch the data from this one.
        """
        coroutine = self.client.scatter(
            data, workers=[worker], hash=False, timeout=self.timeout, asynchronous=True,
            direct=self.direct_to_workers or None,  # None: as Dask is configured
        )  # fmt: skip
        loop = self.client.loop.asyncio_loop
        sending = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            while True:
                done, _ = concurrent.futures.wait([sending], timeout=POLL_SECONDS)
                if done:
                    futures: list[Any] = sending.result()
                    return futures
                if worker not in self.worker_addresses():
                    raise LostDataError(f"the worker {worker} is gone")
        except (OSError, KeyError, ValueError, distributed.CancelledError) as error:
            raise LostDataError(
                f"the worker {worker} did not accept data: {error!r}"
            ) from error
        finally:
            sending.cancel()

    def close(self) -> None:
        """Close owned clients and clusters; workers first, or they log errors."""
        for owned in self.owned:
            if hasattr(owned, "scale"):
                owned.scale(0)
                deadline = time.monotonic() + SHUTDOWN_SECONDS
                while owned.scheduler.workers and time.monotonic() < deadline:
                    time.sleep(0.01)
            owned.close()


def scheduler_address(client: Any) -> str:
    """Address of the scheduler of a client."""
    return str(client.scheduler.address) if client.scheduler else "its scheduler"


@dataclass(frozen=True)
class WorkerBlocks:
    """Blocks held by workers."""

    link: ClusterLink
    futures: list[Any]  # the blocks, in order
    recreate: Callable[[list[int]], list[Any]]  # new futures of the blocks given

    def __len__(self) -> int:
        return len(self.futures)

    def recover(self) -> None:
        """Recreate lost blocks, except those that Dask recomputes by itself."""
        lost = [k for k, future in enumerate(self.futures) if _is_lost(future)]
        if lost:
            for k, future in zip(lost, self.recreate(lost), strict=True):
                self.futures[k] = future


def _is_lost(future: Any) -> bool:
    if future.status == "error":
        return isinstance(future.exception(), distributed.KilledWorker)
    return future.status in ("cancelled", "lost")


def place_blocks(link: ClusterLink, blocks: Iterable[Any]) -> WorkerBlocks:
    """Send blocks to the workers; the originals are kept to replace lost ones."""
    originals = list(blocks)

    def send(numbers: list[int]) -> list[Any]:
        workers = link.worker_addresses()
        # Neighbors go to the same worker, which adds their sums.
        owners = [
            workers[k * len(workers) // len(numbers)] for k in range(len(numbers))
        ]
        futures: list[Any] = []
        for worker, group in groupby(zip(owners, numbers, strict=True), itemgetter(0)):
            data = [originals[k] for _, k in group]
            futures += _scatter_with_retry(link, data, worker)
        return futures

    return WorkerBlocks(link, send(list(range(len(originals)))), send)


def _scatter_with_retry(link: ClusterLink, data: list[Any], worker: str) -> list[Any]:
    """Send data to a worker, or to another one if that is gone."""
    target = [worker]

    def change_target() -> None:
        target[:] = link.worker_addresses()[:1]

    return link.retry(lambda: link.scatter(data, target[0]), change_target)


def stream_chunks(link: ClusterLink, lazy: LazyBlocks) -> WorkerBlocks:
    """Transformed chunks of a source, held by the workers.

    If the source has loaders or delayed chunks, the workers load them, and Dask
    recomputes lost ones. Other sources are read in this process, again for lost ones.
    """
    source = lazy.source
    prepare = partial(prepare_chunk, transforms=lazy.transforms)
    parts = getattr(source, "delayed_chunks", None)
    if parts is None and (loaders := source.chunk_loaders()) is not None:
        parts = [delayed(load, pure=False, traverse=False)() for load in loaders]
    if parts is not None:

        def compute(numbers: Iterable[int]) -> list[Any]:
            # Dask chooses the workers: a chunk assigned to one that has died is never
            # recomputed if there is no other worker at that moment.
            task = delayed(prepare, pure=False)
            return list(link.client.compute([task(parts[k]) for k in numbers]))

        return WorkerBlocks(link, compute(range(len(parts))), compute)

    def send(numbers: list[int] | None) -> list[Any]:
        futures: list[Any] = []
        workers = link.worker_addresses()
        ahead = 2 * len(workers)
        for k, chunk in enumerate(source):
            if numbers is not None and len(futures) == len(numbers):
                break
            if numbers is not None and k != numbers[len(futures)]:
                continue
            if len(futures) >= ahead:  # send only a few at a time
                link.wait(futures[-ahead])
            worker = workers[len(futures) % len(workers)]
            (raw,) = _scatter_with_retry(link, [chunk], worker)
            futures.append(link.client.submit(prepare, raw, pure=False))
        return futures

    return WorkerBlocks(link, send(None), send)


def tree_sum(
    placed: WorkerBlocks, function: Callable[..., Any], shared: dict[str, Any]
) -> Any:
    """Sum over all blocks, added by the workers in a tree.

    The shape of the tree depends on the number of blocks alone, so that the sum is the
    same to the last bit whichever worker does what.
    """
    link = placed.link

    def attempt() -> Any:
        name = _task_name(function)
        with share_with_workers(link, shared) as arguments:
            level: list[Any] = link.client.map(
                run_on_block,
                placed.futures,
                shared=arguments,
                function=function,
                key=[f"{name}-{k}" for k in range(len(placed))],
                pure=False,
            )
            depth = 0
            while len(level) > 1:
                depth += 1
                level = [
                    link.client.submit(
                        add_in_order,
                        level[k : k + SUM_FAN_IN],
                        key=f"sum_of_{name}-{depth}-{k}",
                        priority=depth,  # before more blocks: waiting sums take memory
                    )
                    for k in range(0, len(level), SUM_FAN_IN)
                ]
            try:
                return link.result(level[0])
            except BaseException:  # Ctrl-C too
                _cancel_futures(link, level)
                raise

    return link.retry(attempt, placed.recover)


def map_in_order(
    placed: WorkerBlocks, function: Callable[..., Any], shared: dict[str, Any]
) -> Iterator[Any]:
    """Results for all blocks in order, with few of them in memory at a time."""
    n_done = 0
    results = _iter_results(placed, n_done, function, shared)

    def restart() -> None:
        nonlocal results
        placed.recover()
        results = _iter_results(placed, n_done, function, shared)

    try:
        while n_done < len(placed):
            yield placed.link.retry(lambda: next(results), restart)
            n_done += 1
    finally:
        results.close()


def _iter_results(
    placed: WorkerBlocks,
    first: int,
    function: Callable[..., Any],
    shared: dict[str, Any],
) -> Generator[Any, None, None]:
    """Results in order, from the block ``first`` on, until data is lost."""
    link, name = placed.link, _task_name(function)
    submit = link.client.submit
    with share_with_workers(link, shared) as arguments:
        tasks = (
            submit(run_on_block, block, arguments, function, key=f"{name}-{k}")
            for k, block in enumerate(placed.futures[first:])
        )
        cancel = partial(_cancel_futures, link)
        yield from in_order(tasks, 2 * link.n_threads + 1, link.result, cancel)


@contextmanager
def share_with_workers(link: ClusterLink, shared: dict[str, Any]) -> Iterator[Any]:
    """Shared arguments, or their future on the workers, until the context ends."""
    arrays: list[Any] = []
    rest = cloudpickle.dumps(shared, protocol=5, buffer_callback=arrays.append)
    if len(rest) + sum(array.raw().nbytes for array in arrays) <= MAX_INLINE_BYTES:
        yield shared
        return
    (future,) = link.scatter([SharedArguments(shared)], link.worker_addresses()[0])
    try:
        yield future
    finally:
        future.release()


class SharedArguments(dict[str, Any]):
    """Dictionary that Dask sends as a whole, not item by item."""


def _task_name(function: Callable[..., Any]) -> str:
    """Key prefix for the tasks of one pass; Dask learns the duration of each kind."""
    word = getattr(function, "__name__", type(function).__name__)
    return f"ncarl_{word}-{uuid.uuid4().hex}"


def _cancel_futures(link: ClusterLink, futures: Iterable[Any]) -> None:
    """Cancel running tasks, so that the workers are free for other work."""
    futures = list(futures)
    if futures and link.client.status == "running":
        link.client.cancel(futures)


_import_lock = threading.Lock()


def run_on_block(
    block: Any, shared: dict[str, Any], function: Callable[..., R]
) -> R | None:
    """``function(block, **shared)`` with one BLAS thread; None without rows."""
    if block is None:
        return None
    with _import_lock:  # import once, not in all threads of a worker at once
        row_backend(shared["backend"])
    with limit_blas_threads(1):
        return function(block, **shared)


def add_in_order(parts: list[Any]) -> Any:
    """Sum (by ``+=``) of some results in their order; None is that of no rows.

    The first one is copied: Dask needs it again if this sum is lost.
    """
    nonempty = [part for part in parts if part is not None]
    if not nonempty:
        return None
    total = copy.deepcopy(nonempty[0])
    for part in nonempty[1:]:
        total += part
    return total


def prepare_chunk(chunk: Any, transforms: tuple[Callable[[Any], Any], ...]) -> Any:
    """Transform a chunk on a worker; None for one without rows."""
    if isinstance(chunk, Observations) and chunk.shape[0] == 0:
        return None
    with limit_blas_threads(1):
        return transform_chunk(chunk, transforms)


def sums_to_device(sums: Any, device: Device) -> Any:
    """Sums over solved rows, copied to the device of the n x n work.

    Statistics of raw chunks are other classes, and stay in the memory of the host.
    """
    if isinstance(sums, RowSums | LikelihoodSums):
        values = {f.name: getattr(sums, f.name) for f in fields(sums)}
        return replace(sums, **{k: device.from_numpy(v) for k, v in values.items()})
    return device.from_numpy(sums)


def complete_dask_array(
    array: Any, complete: Callable[[Array], Array], dtype: Any = np.float64
) -> Any:
    """Apply ``complete`` lazily to each block of whole rows of a Dask array.

    The number of rows of a block need not be known; ``complete`` is pickled.
    """
    if array.ndim != 2:
        raise ValueError(f"array must have 2 dimensions, got {array.ndim}")
    if any(math.isnan(size) for size in array.chunks[1]):
        raise ValueError(
            "array must have a known number of columns, got unknown ones; call "
            "array.compute_chunk_sizes() first"
        )
    if len(array.chunks[1]) > 1:
        array = array.rechunk({1: -1})
    meta = np.empty((0, 0), dtype=dtype)  # without it Dask would call the function
    return array.map_blocks(complete, dtype=np.dtype(dtype), meta=meta)

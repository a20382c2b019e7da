"""The engine whose row work is done by workers of Dask."""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import distributed

from ncarl import gpu
from ncarl.core.rows import row_module
from ncarl.core.types import Block
from ncarl.dask_engine.connecting import Connection, connect
from ncarl.dask_engine.link import Link, address_of
from ncarl.dask_engine.passes import mapped, total
from ncarl.dask_engine.placing import Placed, place, stream
from ncarl.dask_engine.tasks import from_home, to_home
from ncarl.homes import Home, HostMemory
from ncarl.observed import Observed
from ncarl.sources import RowSource

R = TypeVar("R")

#: Blocks for every thread, so that one that is done early finds something to do.
BLOCKS_A_THREAD = 4
#: Rows that are worth a task of their own, and so many more for each entry of its sum.
ROWS_A_TASK, ROWS_A_SUM = 500, 0.01
#: Entries of a matrix, gaps included, that are worth a worker all the same.
ENTRIES_A_THREAD = 20_000


@dataclass(frozen=True)
class Dask:
    """Workers of Dask do the row work; n x n work is done here.

    What the engine starts itself ends with it: by `close`, at the end of a ``with``
    block, when it is forgotten, or with the process. Copies made by scikit-learn share
    the connection.

    Workers run code that they are sent: connect only to clusters that you trust.

    Parameters
    ----------
    cluster : str, distributed.Client or cluster object, optional
        "threads" or "processes" for new workers on this machine, an address such as
        "tcp://host:8786", or what is at hand. By default the client that is in use in
        this process, or threads.
    n_workers : int, optional
        New workers to start, by default one a core, each with one thread; or how many
        workers of a cluster to wait for.
    rows : {"auto", "numba", "numpy"}
        Which row kernel workers use; "auto" takes Numba where it is installed.
    device : str, optional
        A torch device for n x n work, or "cpu" for the memory of the host; by default
        a GPU of this machine that works.
    wait_s : float
        Seconds to wait for a worker where there is none, before giving up.
    why : str
        Why it was picked, for `describe`.

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
    rows: str = "auto"
    device: str | None = None
    wait_s: float = 30.0
    why: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        make = partial(connect, self.cluster, self.n_workers, float(self.wait_s))
        connection = Connection(make)
        object.__setattr__(self, "_connection", connection)
        weakref.finalize(self, connection.close).atexit = False  # see connecting

    def _check(self) -> None:
        """Raise where a parameter is off."""
        _check_cluster(self.cluster)
        whole = isinstance(self.n_workers, int) and not isinstance(self.n_workers, bool)
        if self.n_workers is not None and not (whole and self.n_workers >= 1):
            raise ValueError(
                "n_workers must be a whole number of at least 1, or None for one a "
                f"core, got {self.n_workers!r}"
            )
        if self.rows not in ("auto", "numba", "numpy"):
            raise ValueError(
                f"rows must be 'auto', 'numba' or 'numpy', got {self.rows!r}"
            )
        if not (self.device is None or isinstance(self.device, str)):
            raise ValueError(
                "device must be the name of a torch device, 'cpu' for the memory of "
                f"the host, or None for what is here, got {self.device!r}"
            )
        number = isinstance(self.wait_s, numbers.Real)
        if not (number and 0.0 < self.wait_s < float("inf")) or self.wait_s is True:
            raise ValueError(f"wait_s must be a positive number, got {self.wait_s!r}")

    @property
    def link(self) -> Link:
        """The connection, made when it is first asked for."""
        connection: Connection = vars(self)["_connection"]
        return connection.get()

    def close(self) -> None:
        """Shut down what the engine has started; it is of no use from then on."""
        connection: Connection = vars(self)["_connection"]
        connection.close()

    def __enter__(self) -> Dask:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Dask:
        """The same engine: scikit-learn copies parameters, connections stay one."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """An engine of its own, which finds a cluster of others by its address."""
        cluster = self.cluster
        if not (cluster is None or isinstance(cluster, str)):
            client = isinstance(cluster, distributed.Client)
            cluster = address_of(cluster) if client else cluster.scheduler_address
        fields = (cluster, self.n_workers, self.rows, self.device, self.wait_s)
        return type(self), (*fields, self.why)

    @cached_property
    def home(self) -> Home:
        """The memory of this process, or of its GPU."""
        device = self.device
        if device is None:
            device = "cpu" if gpu.gpu_trouble() else "cuda"
        if device == "cpu":
            return HostMemory()
        from ncarl.torch_engine import Torch

        return Torch(device).home

    def blocks_wanted(self, rows: int, columns: int) -> int | None:
        """Some for every thread, but none with fewer rows than its sum is worth."""
        threads = self.link.threads
        several = rows / (ROWS_A_TASK + ROWS_A_SUM * columns * columns)
        one = min(threads, rows * columns / ENTRIES_A_THREAD)
        wanted = min(BLOCKS_A_THREAD * threads, max(one, several))
        return max(1, min(rows, int(wanted)))

    def place(self, blocks: Iterable[Block]) -> Placed:
        """Send the blocks to the workers, in equal shares."""
        return place(self.link, blocks)

    def stream(self, source: RowSource, prepare: Callable[[Observed], Any]) -> Placed:
        """Chunks of a source, prepared and kept by the workers."""
        return stream(self.link, source, prepare)

    def map(
        self, function: Callable[..., R], blocks: Placed, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        yield from mapped(blocks, function, self.rows, self._ready(shared))

    def total(self, function: Callable[..., R], blocks: Placed, **shared: Any) -> R:
        """The sum (by ``+=``) of what `map` gives, always added up in one order."""
        part = total(blocks, function, self.rows, self._ready(shared))
        with self.home.work(1):
            sums: R = to_home(part, self.home)
        return sums

    def _ready(self, shared: dict[str, Any]) -> dict[str, Any]:
        """What blocks share, ready to be sent."""
        return {name: from_home(value, self.home) for name, value in shared.items()}

    def describe(self) -> str:
        """What the engine is and why it was picked, in one line."""
        link = self.link
        kind = row_module(self.rows).__name__.rsplit("_", 1)[-1]
        workers = len(link.client.nthreads())
        device = getattr(self.home, "device", None)
        place = "" if device is None else f", n x n work on {device}"
        return (
            f"dask: {link.kind} at {address_of(link.client)}, {workers} workers with "
            f"{link.threads} threads, {kind} rows{place}{self.why}"
        )


def _check_cluster(cluster: Any) -> None:
    """Raise for what is no cluster."""
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

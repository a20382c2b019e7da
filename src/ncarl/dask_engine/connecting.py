"""How a connection to workers is made and closed."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dask
import distributed

from ncarl import __version__
from ncarl.dask_engine.link import Link, LostWorkersError, address_of
from ncarl.engines import available_cores

#: Servers of our own are not to be seen from other machines.
HERE = "127.0.0.1"


def connect(cluster: Any, n_workers: int | None, wait_s: float) -> Link:
    """A link to what ``cluster`` stands for; see `ncarl.dask_engine.Dask`."""
    if cluster is None:
        cluster = _current() or "threads"
    kind = "a cluster"
    owned: tuple[Any, ...] = ()
    started = cluster in ("threads", "processes")
    if started:
        kind, owned = f"{cluster} of this machine", _started(cluster, n_workers)
    elif not isinstance(cluster, distributed.Client):
        owned = (_client(cluster, wait_s),)
    client = owned[0] if owned else cluster
    link = Link(client, kind, 0, wait_s, owned, direct=started)
    try:
        threads = _counted(link, n_workers or 1)
        if not started:
            _refuse_other_versions(client)
        return replace(link, threads=threads)
    except BaseException:
        link.close()
        raise


def _client(cluster: Any, wait_s: float) -> Any:
    """A client of our own for a cluster of others."""
    try:
        return distributed.Client(cluster, set_as_default=False, timeout=wait_s)
    except (OSError, TimeoutError, ValueError) as error:
        raise LostWorkersError(
            f"no Dask scheduler answers at cluster={cluster!r} ({error}); check the "
            "address, or use cluster='processes' for workers on this machine"
        ) from error


def _counted(link: Link, n_workers: int) -> int:
    """Threads of all workers, once there are enough of those."""
    start = time.monotonic()
    while len(set(names := link.workers())) < n_workers:
        if time.monotonic() - start > link.wait_s:
            raise LostWorkersError(
                f"n_workers={n_workers} workers were asked for, but "
                f"{address_of(link.client)} has {len(set(names))} after "
                f"{link.wait_s:g} seconds; start more, or ask for fewer"
            )
        time.sleep(0.05)
    return len(names)


def _refuse_other_versions(client: Any) -> None:
    """Raise where a worker has no ncarl, or not the one that is here."""

    def version() -> str | None:  # sent as it is: there may be nothing to import
        try:
            import ncarl
        except ImportError:
            return None
        return ncarl.__version__

    for worker, found in client.run(version).items():
        if found != __version__:
            there = "no ncarl" if found is None else f"ncarl {found}"
            raise RuntimeError(
                f"the Dask worker {worker} has {there}, here is {__version__}; install "
                "the same version on all workers"
            )


def _current() -> Any:
    """The client that is in use in this process, or None."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _started(kind: str, n_workers: int | None) -> tuple[Any, ...]:
    """A client of new workers on this machine, and their cluster."""
    processes = kind == "processes"
    # Memory of threads is that of this process, most of which is none of theirs: they
    # put blocks to disk by the size of those, and never stop for what else is there.
    memory = {"target": 0.5, "spill": False, "pause": False}
    settings = {f"distributed.worker.memory.{k}": v for k, v in memory.items()}
    with dask.config.set({} if processes else settings):
        cluster = distributed.LocalCluster(
            n_workers=n_workers or available_cores(),
            threads_per_worker=1,
            processes=processes,
            host=HERE if processes else None,
            dashboard_address=None,
            # Without an address these would listen to all the world.
            scheduler_kwargs={"dashboard_address": f"{HERE}:0"},
            worker_dashboard_address=f"{HERE}:0",
        )
    return distributed.Client(cluster, set_as_default=False), cluster


#: All that may have to be closed at the end of the process.
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close what is open; registered after Dask's own ending, to come before it."""
    for connection in list(_connections):
        connection.close()


class Connection:
    """A link that is made on first use and closed once.

    Parameters
    ----------
    make : callable
        Makes the link.
    """

    def __init__(self, make: Callable[[], Link]) -> None:
        self.make = make
        self.lock = threading.Lock()
        self.link: Link | None = None
        self.closed = False
        self.process = os.getpid()
        _connections.add(self)

    def get(self) -> Link:
        """The link; an error where there can be none."""
        _refuse_tasks()
        if self.process != os.getpid():
            raise RuntimeError(
                "this Dask engine belongs to the process that this one was forked "
                "from; make an engine of its own here, or use engine='threads'"
            )
        with self.lock:
            if self.closed:
                raise RuntimeError(
                    "this Dask engine is closed; make another one, or use "
                    "engine='threads' (set_params(engine='threads') of an estimator)"
                )
            if self.link is None:
                self.link = self.make()
            return self.link

    def close(self) -> None:
        """Close the link, if one was made here."""
        if self.process != os.getpid():
            return  # connections of the parent
        with self.lock:
            link, self.link, self.closed = self.link, None, True
        if link is None:
            return
        if link.client.loop.asyncio_loop is _running_loop():
            # Collected by chance in the thread that has to do the closing.
            threading.Thread(target=link.close, daemon=True).start()
        else:
            link.close()


def _running_loop() -> Any:
    """The event loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _refuse_tasks() -> None:
    """Raise inside a task: waiting there for other tasks can wait for ever."""
    try:
        distributed.get_worker()
    except ValueError:
        return
    raise RuntimeError(
        "a Dask engine cannot be used inside a task of Dask; use engine='threads' there"
    )

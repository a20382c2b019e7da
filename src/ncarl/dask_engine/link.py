"""A connection to workers, and patience with them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import distributed

R = TypeVar("R")

#: Seconds between two looks at whether there are workers at all.
LOOK = 1.0
#: Seconds that workers of our own have to leave by themselves.
LEAVE = 5.0
#: A pass is begun so many times before it is given up.
ATTEMPTS = 4


class LostWorkersError(RuntimeError):
    """There is no worker left to do the work, or they are lost again and again."""


class Lost(Exception):  # noqa: N818
    """Something that was on a worker is gone; it can be made again."""


@dataclass(frozen=True)
class Link:
    """A client, and what there is at its other end.

    Attributes
    ----------
    client : distributed.Client
        The connection.
    kind : str
        What the workers are, in words.
    threads : int
        Threads of all workers when the connection was made. Blocks are cut for that
        many even when workers come and go, so that results keep their bits.
    wait_s : float
        Seconds to wait where there is no worker.
    owned : tuple
        What has to be closed with the link, in order.
    direct : bool
        Whether the client can reach the workers itself, not only their scheduler.
    """

    client: Any
    kind: str
    threads: int
    wait_s: float
    owned: tuple[Any, ...]
    direct: bool

    def workers(self) -> list[str]:
        """Addresses of the workers, each as often as it has threads.

        Raises
        ------
        LostWorkersError
            If there is none for too long, or no scheduler to ask.
        """
        start = time.monotonic()
        while True:
            found = self._threads()
            if found:
                return [name for name in sorted(found) for _ in range(found[name])]
            if time.monotonic() - start > self.wait_s:
                raise LostWorkersError(
                    f"no Dask worker is left at {address_of(self.client)}, and none "
                    f"came within {self.wait_s:g} seconds; start workers, or use "
                    "engine='threads'"
                )
            time.sleep(min(0.1, self.wait_s))

    def expect_open(self) -> None:
        """Raise where the client is closed."""
        if self.client.status in ("closing", "closed"):
            raise LostWorkersError(
                "the Dask client is closed, or its scheduler is gone; make another "
                "engine, or use engine='threads'"
            )

    def _threads(self) -> dict[str, int]:
        """Threads by worker, as the scheduler says."""
        self.expect_open()
        try:
            return dict(self.client.nthreads())
        except OSError as error:
            raise LostWorkersError(
                f"the Dask scheduler at {address_of(self.client)} does not answer "
                f"({error}); connect to another, or use engine='threads'"
            ) from error

    def wait(self, future: Any) -> None:
        """Wait until a future is done, well or badly, while there are workers."""
        while not future.done():
            try:
                future.exception(timeout=LOOK)
            except TimeoutError:
                self.workers()

    def result(self, future: Any) -> Any:
        """The result of a future.

        Raises
        ------
        Lost
            If it is not to be had, for no fault of the task.
        """
        self.wait(future)
        patience = max(LOOK, self.wait_s)
        while True:
            try:
                return future.result(timeout=patience)
            except distributed.KilledWorker as error:
                raise Lost(str(error)) from error
            except Exception as error:
                if future.status == "error":
                    raise  # the task's own
                if not isinstance(error, TimeoutError):
                    raise Lost(str(error)) from error
            self.workers()
            patience *= 2  # large, or on a slow line

    def insist(self, attempt: Callable[[], R], mend: Callable[[], None]) -> R:
        """What an attempt gives, after as many as it takes; ``mend`` in between."""
        self.expect_open()
        for count in range(ATTEMPTS):
            if count:
                self.workers()
                time.sleep(0.1 * count)  # for the news of what was lost to arrive
            try:
                if count:
                    mend()
                return attempt()
            except Lost as error:
                trouble = error
        raise LostWorkersError(
            f"Dask workers were lost {ATTEMPTS} times in the same piece of work "
            f"({trouble}); if they run out of memory, give them more of it or smaller "
            "blocks (more workers, or chunks of fewer rows)"
        ) from trouble

    def send(self, data: list[Any], worker: str) -> list[Any]:
        """Futures of data that a worker holds now.

        Never to all workers at once: Dask would try for ever to reach one that dies
        meanwhile. The others ask each other for it.

        Raises
        ------
        Lost
            If the worker is gone.
        """
        coming = self.client.scatter(
            data, workers=[worker], hash=False, timeout=self.wait_s, asynchronous=True,
            direct=self.direct or None,  # as Dask is set up
        )  # fmt: skip
        loop = self.client.loop.asyncio_loop
        sending = asyncio.run_coroutine_threadsafe(coming, loop)
        try:
            while True:
                done, _ = concurrent.futures.wait([sending], timeout=LOOK)
                if done:
                    futures: list[Any] = sending.result()
                    return futures
                if worker not in self.workers():
                    raise Lost(f"the worker {worker} is gone")
        except (OSError, KeyError, ValueError, distributed.CancelledError) as error:
            raise Lost(f"the worker {worker} took no data: {error!r}") from error
        finally:
            sending.cancel()

    def close(self) -> None:
        """Close what is ours; workers go before their scheduler, or they complain."""
        for thing in self.owned:
            if hasattr(thing, "scale"):
                thing.scale(0)
                start = time.monotonic()
                while thing.scheduler.workers and time.monotonic() - start < LEAVE:
                    time.sleep(0.01)
            thing.close()


def address_of(client: Any) -> str:
    """Where the scheduler of a client is."""
    return str(client.scheduler.address) if client.scheduler else "its scheduler"

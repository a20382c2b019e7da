"""Read ahead in one thread while the rows before are worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def prefetched(iterable: Iterable[T], ahead: int = 2) -> Generator[T]:
    """Items of an iterable in order, the next few fetched by a background thread.

    The thread starts with the first item and is gone when the iterator is exhausted,
    raises, or is closed; close it (``contextlib.closing``) where a loop may end early.
    An exception of the iterable comes out here, after the items before it.

    Parameters
    ----------
    iterable : iterable
        Where items come from; only the thread touches its iterator.
    ahead : int
        Most items that are fetched and not yet asked for.

    Examples
    --------
    >>> list(prefetched("abc"))
    ['a', 'b', 'c']
    """
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
        raise ValueError(f"ahead must be a whole number of at least 1, got {ahead!r}")
    return _prefetched(iterable, ahead)


def _prefetched(iterable: Iterable[T], ahead: int) -> Generator[T]:
    """The generator; its clean-up runs however it ends."""
    shelf: _Shelf[T] = _Shelf(ahead)
    # Were it no daemon, an iterator forgotten in a global would keep Python from
    # ending.
    thread = Thread(
        target=shelf.fill, args=(iterable,), name="ncarl-ahead", daemon=True
    )
    try:
        thread.start()
        while (found := shelf.take()) is not None:
            yield found.pop()
    finally:
        shelf.stop()
        # Ctrl-C can come before the thread is known to run: it cannot be waited for
        # then, and ends by itself.
        if thread.is_alive():
            thread.join()


@dataclass
class _Shelf(Generic[T]):
    """Items between the thread that fetches them and the one that asks for them."""

    room: int
    items: deque[list[T]] = field(default_factory=deque)
    over: bool = False
    stopped: bool = False
    error: BaseException | None = None
    turn: Condition = field(default_factory=Condition)

    def fill(self, iterable: Iterable[T]) -> None:
        """Fetch items until there are no more or nobody wants them."""
        try:
            iterator = iter(iterable)
            try:
                # Room first, item second: no item waits in this thread's hands.
                while self._wait_for_room() and (found := _next(iterator)) is not None:
                    self._put(found)
            finally:
                # Files that a generator holds open are closed by its own thread.
                getattr(iterator, "close", _nothing)()
        except BaseException as error:  # handed to the one who asks
            self.error = error
        finally:
            with self.turn:
                self.over = True
                self.turn.notify_all()

    def take(self) -> list[T] | None:
        """The next item in a list of its own; None after the last one."""
        with self.turn:
            self.turn.wait_for(lambda: self.items or self.over)
            if self.items:
                self.turn.notify_all()
                return self.items.popleft()
        if self.error is not None:
            raise self.error
        return None

    def stop(self) -> None:
        """Let the thread end, whatever it waits for, and forget the items."""
        with self.turn:
            self.stopped = True
            self.items.clear()
            self.turn.notify_all()

    def _wait_for_room(self) -> bool:
        """Wait until an item is wanted; False if none will be."""
        with self.turn:
            self.turn.wait_for(lambda: self.stopped or len(self.items) < self.room)
            return not self.stopped

    def _put(self, found: list[T]) -> None:
        """Lay an item down."""
        with self.turn:
            self.items.append(found)
            self.turn.notify_all()


def _next(iterator: Iterator[T]) -> list[T] | None:
    """The next item in a list of its own; None after the last one."""
    for item in iterator:
        return [item]
    return None


def _nothing() -> Any:
    """What is done to an iterator that cannot be closed."""

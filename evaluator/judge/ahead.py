"""Work done ahead, in pauses that the judge has to make anyway."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """A store of at most ``wanted`` things that ``make`` makes, of at most ``room`` bytes by ``size``."""

    def __init__(
        self,
        make: Callable[[], T],
        *,
        wanted: int,
        size: Callable[[T], int],
        room: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._wanted = wanted
        self._size = size
        self._room = room
        self._clock = clock
        self._made: deque[T] = deque()
        self._bytes = 0
        self._largest = 0
        self._longest = 0.0
        """Seconds that the making of one has taken at most."""

    def take(self) -> T:
        """The one that was made first, or one that is made now."""
        if not self._made:
            return self._timed()
        thing = self._made.popleft()
        self._bytes -= self._size(thing)
        return thing

    def use(self, seconds: float) -> None:
        """Makes as many as fit into the time, by what one took at most; none before one was made outside of a pause."""
        end = self._clock() + seconds
        while self._longest and self._has_room() and self._clock() + self._longest < end:
            thing = self._timed()
            self._made.append(thing)
            self._bytes += self._size(thing)

    def _has_room(self) -> bool:
        return len(self._made) < self._wanted and self._bytes + self._largest <= self._room

    def _timed(self) -> T:
        began = self._clock()
        thing = self._make()
        self._longest = max(self._longest, self._clock() - began)
        self._largest = max(self._largest, self._size(thing))
        return thing

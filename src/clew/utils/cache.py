"""A least-recently-used cache with explicit keys."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """Holds one value for each slot, valid while its key is the requested one.

    A slot is what a value is about (a frame), its key what it depends on (the
    annotations, the version of the weights). Several threads may use it.

    Parameters
    ----------
    limit : float
        Largest sum of sizes; the least recently used values are dropped beyond.
    size : callable
        Size of a value; 1 by default.
    """

    def __init__(
        self, limit: float = math.inf, size: Callable[[V], float] = lambda _: 1.0
    ) -> None:
        self.limit = limit
        self.size = size
        self._entries: OrderedDict[Hashable, tuple[Hashable, V]] = OrderedDict()
        self._total = 0.0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, slot: Hashable, key: Hashable = None) -> V | None:
        """Return the value of a slot if there is one with this key."""
        with self._lock:
            entry = self._entries.get(slot)
            if entry is None or entry[0] != key:
                return None
            self._entries.move_to_end(slot)
            return entry[1]

    def put(self, slot: Hashable, key: Hashable, value: V) -> V:
        """Set the value of a slot, and return it."""
        with self._lock:
            if slot in self._entries:
                _, old_value = self._entries.pop(slot)
                self._total -= self.size(old_value)
            self._entries[slot] = (key, value)
            self._total += self.size(value)
            while self._total > self.limit and len(self._entries) > 1:
                _, (_, old_value) = self._entries.popitem(last=False)
                self._total -= self.size(old_value)
        return value

    def get(self, slot: Hashable, make: Callable[[], V], key: Hashable = None) -> V:
        """Return the value of a slot, or make it.

        The cache is not locked meanwhile, so that two threads may make the same.
        """
        value = self.peek(slot, key)
        return self.put(slot, key, make()) if value is None else value

    def without(self, is_dropped: Callable[[Any], bool]) -> Cache[V]:
        """Return a copy without some slots."""
        with self._lock:
            entries = list(self._entries.items())
        other: Cache[V] = Cache(self.limit, self.size)
        for slot, (key, value) in entries:
            if not is_dropped(slot):
                other.put(slot, key, value)
        return other

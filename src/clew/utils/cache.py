"""A cache with explicit keys: every value says what it was made from."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """One value a slot, good as long as its key is the one that is asked for; several threads may ask at once.

    A slot is what a value is about (a frame), its key what it follows from (the annotations, the weights' version).
    Beyond a `limit` of the values' sizes, those that were not asked for longest leave.
    """

    def __init__(
        self, limit: float = math.inf, size: Callable[[V], float] = lambda _: 1.0
    ) -> None:
        self.limit, self.size = limit, size
        self._entries: OrderedDict[Hashable, tuple[Hashable, V]] = OrderedDict()
        self._total = 0.0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, slot: Hashable, key: Hashable = None) -> V | None:
        """The value, if it is there and still good."""
        with self._lock:
            entry = self._entries.get(slot)
            if entry is None or entry[0] != key:
                return None
            self._entries.move_to_end(slot)
            return entry[1]

    def put(self, slot: Hashable, key: Hashable, value: V) -> V:
        """Keep a value in the place of the slot's earlier one."""
        with self._lock:
            if slot in self._entries:
                self._total -= self.size(self._entries.pop(slot)[1])
            self._entries[slot] = key, value
            self._total += self.size(value)
            while self._total > self.limit and len(self._entries) > 1:
                self._total -= self.size(self._entries.popitem(last=False)[1][1])
        return value

    def get(self, slot: Hashable, make: Callable[[], V], key: Hashable = None) -> V:
        """The value; made if it is not there. Making one holds nobody up, so two threads may make the same."""
        found = self.peek(slot, key)
        return self.put(slot, key, make()) if found is None else found

    def without(self, dropped: Callable[[Any], bool]) -> Cache[V]:
        """Another cache with the same values, but for those of some slots."""
        with self._lock:
            left = [
                (slot, *entry)
                for slot, entry in self._entries.items()
                if not dropped(slot)
            ]
        other: Cache[V] = Cache(self.limit, self.size)
        for slot, key, value in left:
            other.put(slot, key, value)
        return other

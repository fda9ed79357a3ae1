"""Faults of a table of tracks, collected so that one error lists several, each with its row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import InputError

SHOWN = 5
"""How many faults a message tells; the others are counted."""
LONGEST = 40
"""How many characters of a cell a message repeats."""


class Faults:
    """Faults of one table; `where` names it in the message."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._count = 0
        self._told: list[tuple[int, str]] = []

    def add(self, rows: ArrayLike, tell: Callable[[int], str]) -> None:
        """One fault in each of the `rows` (k,), numbers as in the file; `tell(i)` puts the i-th into words."""
        numbers = np.asarray(rows)
        self._count += len(numbers)
        # words cost time, so they are made for those only that can be shown
        self._told += [
            (int(numbers[i]), tell(int(i)))
            for i in np.argsort(numbers, kind="stable")[:SHOWN]
        ]

    def __len__(self) -> int:
        return self._count

    def refuse(self) -> None:
        """Raise an InputError if there are any."""
        if not self._count:
            return
        lines = [f"row {row}: {words}" for row, words in sorted(self._told)[:SHOWN]]
        if self._count > len(lines):
            lines.append(f"and {self._count - len(lines)} more")
        if len(lines) == 1:
            raise InputError(f"{self.where}: {lines[0]}")
        raise InputError(
            "\n  ".join([f"{self.where} has {self._count} faults:", *lines])
        )


def quoted(cell: object) -> str:
    """A cell in quotes for a message, cut short where it is long."""
    text = str(cell)
    return repr(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


def printable(text: str) -> str:
    """Text that every file and page can hold: the name of a file may be no valid Unicode."""
    return text.encode("utf-8", "replace").decode()

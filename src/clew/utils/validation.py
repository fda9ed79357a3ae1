"""Validate user input, and word messages about it."""

from __future__ import annotations

import errno
import os
import re
import reprlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clew.errors import InputError

T = TypeVar("T")
Number: TypeAlias = int | float | np.integer | np.floating
"""A real number of Python or NumPy."""
Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | None
"""Accepted as `random_state`; None uses NumPy's global generator."""
MAX_REPR = 60
"""Characters of a value in a message."""
MAX_QUOTED = 40
"""Characters of a cell of a table in a message."""
MAX_FAULTS = 5
"""Faults that a message names; the others are counted."""
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
)
"""What no document may hold, and what terminals obey instead of showing it."""


def short_repr(value: object) -> str:
    """Return the repr of a value in one line, shortened for a message."""
    shortener = reprlib.Repr()
    shortener.maxstring = MAX_REPR
    shortener.maxother = MAX_REPR
    return " ".join(shortener.repr(value).split())


def is_number(value: object) -> TypeGuard[Number]:
    """Return whether a value is a real number; booleans and time spans are not."""
    kinds = int | float | np.integer | np.floating
    return isinstance(value, kinds) and not isinstance(value, bool | np.timedelta64)


def check_int(value: object, name: str, least: int, most: int | None = None) -> int:
    """Return an integer within limits; whole floats are accepted."""
    if is_number(value) and value % 1 == 0:
        number = int(value)
        if number >= least and (most is None or number <= most):
            return number
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise InputError(f"{name} is {short_repr(value)}; expected a whole number {limits}")


def check_positive(value: object, name: str, most: float = float("inf")) -> float:
    """Return a positive number of at most `most`."""
    try:
        if is_number(value) and 0 < value <= most:
            return float(value)
    except OverflowError:  # an integer that no float can hold
        pass
    raise InputError(f"{name} is {short_repr(value)}; expected a positive number")


def check_bool(value: object, name: str) -> bool:
    """Return a boolean; 0 and 1 are accepted."""
    is_allowed = isinstance(value, bool | np.bool_) or is_number(value)
    if is_allowed and value in (0, 1):
        return bool(value)
    raise InputError(f"{name} is {short_repr(value)}; expected True or False")


def check_choice(value: T, name: str, choices: Collection[object]) -> T:
    """Return a string that is one of the choices."""
    if isinstance(value, str) and value in choices:
        return value
    *others, last = map(repr, choices)
    raise InputError(
        f"{name} is {short_repr(value)}; expected {', '.join(others)} or {last}"
    )


def check_callable(value: object, name: str) -> None:
    """Refuse what is neither callable nor None."""
    if value is not None and not callable(value):
        raise InputError(f"{name} is {short_repr(value)}; expected a function")


def check_fraction(value: object, name: str) -> float:
    """Return a number from 0 to 1."""
    if is_number(value) and 0 <= value <= 1:
        return float(value)
    raise InputError(f"{name} is {short_repr(value)}; expected a number from 0 to 1")


def check_generator(value: object, name: str) -> np.random.Generator:
    """Return a NumPy random generator."""
    if isinstance(value, np.random.Generator):
        return value
    raise InputError(
        f"{name} is {short_repr(value)}; expected numpy.random.default_rng(seed)"
    )


@overload
def check_list(values: object, name: str) -> list[object]: ...
@overload
def check_list(values: object, name: str, kind: type[T]) -> list[T]: ...
def check_list(values: object, name: str, kind: type[T] | None = None) -> list[T]:
    """Return a list of the items of an iterable, which may not be text.

    Parameters
    ----------
    values : object
    name : str
        Of the argument.
    kind : type, optional
        Type of the items.
    """
    is_text = isinstance(values, str | bytes | bytearray | type)
    if is_text or not isinstance(values, Iterable):
        raise InputError(f"{name} is {short_repr(values)}; expected a list")
    try:
        items = list(values)
    except TypeError:  # such as an array of no dimensions
        raise InputError(f"{name} is {short_repr(values)}; expected a list") from None
    if kind is not None:
        for i, item in enumerate(items):
            if not isinstance(item, kind):
                raise InputError(
                    f"{name} has {short_repr(item)} at place {i}; expected a "
                    f"{kind.__name__}"
                )
    return items


def check_frame_slice(frames: object, n_frames: int, name: str) -> range:
    """Return the frames that a slice selects."""
    if isinstance(frames, slice):
        try:
            return range(n_frames)[frames]
        except (TypeError, ValueError):
            pass
    raise InputError(f"{name} is {short_repr(frames)}; expected a slice, such as 0:10")


def check_frame(t: object, first: int, last: int, name: str) -> int:
    """Return the number of a frame; `name` is that of the movie."""
    if is_number(t) and t % 1 == 0 and first <= t <= last:
        return int(t)
    raise InputError(
        f"{name} has no frame {short_repr(t)}; its frames are {first} to {last}"
    )


def check_array(values: object, name: str) -> NDArray[Any]:
    """Return an array of any dtype; rows must have the same length."""
    try:
        return np.asarray(values)
    except ValueError:
        raise InputError(
            f"{name} is {short_repr(values)}; expected an array, with rows of the same "
            "length"
        ) from None


def check_floats(values: object, name: str) -> NDArray[np.float64]:
    """Return an array of real numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufO":  # objects may be numbers
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{name} is {short_repr(values)}; expected an array of numbers")


def check_path(value: object, name: str) -> Path:
    """Return a path; refuse one that no file can have."""
    if not isinstance(value, str | Path) or "\0" in str(value):
        raise InputError(f"{name} is {short_repr(value)}; expected a path")
    try:
        os.lstat(value)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(
                f"{name}: a name is too long, {short_repr(value)}"
            ) from None
    return Path(value)


class Faults:
    """Faults of a table, raised together; `where` names the table in the message."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._count = 0
        self._described: list[tuple[int, str]] = []

    def add(self, rows: ArrayLike, describe: Callable[[int], str]) -> None:
        """Add a fault for each of some rows.

        Parameters
        ----------
        rows : array-like of int of shape (k,)
            Numbers of the rows, as in the file.
        describe : callable
            Describes the i-th of them; called only for those that are shown.
        """
        numbers = np.asarray(rows)
        self._count += len(numbers)
        first = np.argsort(numbers, kind="stable")[:MAX_FAULTS]
        self._described += [(int(numbers[i]), describe(int(i))) for i in first]

    def __len__(self) -> int:
        return self._count

    def refuse(self) -> None:
        """Raise an InputError if there are any."""
        if not self._count:
            return
        shown = sorted(self._described)[:MAX_FAULTS]
        lines = [f"row {row}: {description}" for row, description in shown]
        if self._count > len(lines):
            lines.append(f"and {self._count - len(lines)} more")
        if len(lines) == 1:
            raise InputError(f"{self.where}: {lines[0]}")
        title = f"{self.where} has {self._count} faults:"
        raise InputError("\n  ".join([title, *lines]))


def quoted(cell: object) -> str:
    """Return a cell of a table in quotes for a message, shortened if it is long."""
    text = str(cell)
    return repr(text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…")


def printable(text: str) -> str:
    """Return text that every file can hold; names of files may be invalid Unicode."""
    return text.encode("utf-8", "replace").decode()


def replace_control_characters(value: object) -> str:
    """Return the text of a value, with a mark in place of each control character."""
    return CONTROL_CHARACTERS.sub("\ufffd", str(value))

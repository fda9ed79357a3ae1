"""What callers give: numbers, choices and arrays that are what they must be, or an InputError that names them."""

from __future__ import annotations

import errno
import os
import reprlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError

T = TypeVar("T")
Number: TypeAlias = int | float | np.integer | np.floating
"""One real number, Python's or NumPy's."""
Seed: TypeAlias = int | np.random.Generator | np.random.RandomState | None
"""What draws at random takes as `random_state`; None draws from NumPy's global generator."""
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def short_repr(value: object) -> str:
    """A value for a message: its repr, but never more than a line."""
    return " ".join(_short.repr(value).split())


def is_number(value: object) -> TypeGuard[Number]:
    """Whether this is one real number; NumPy's count, booleans and spans of time (NumPy's integers too) do not."""
    kinds = int | float | np.integer | np.floating
    return isinstance(value, kinds) and not isinstance(value, bool | np.timedelta64)


def check_int(value: object, name: str, least: int, most: int | None = None) -> int:
    """A whole number within limits; floats that are whole will do."""
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    if (
        not is_number(value)
        or value % 1 != 0
        or value < least
        or (most is not None and value > most)
    ):
        raise InputError(
            f"{name} is {short_repr(value)}; expected a whole number {limits}"
        )
    return int(value)


def check_positive(value: object, name: str, most: float = float("inf")) -> float:
    """A number above 0; infinity, if `most` is."""
    try:
        if is_number(value) and 0 < value <= most:
            return float(value)
    except OverflowError:  # an integer that no float can hold
        pass
    raise InputError(f"{name} is {short_repr(value)}; expected a positive number")


def check_bool(value: object, name: str) -> bool:
    """True or False; 1 and 0 will do."""
    if not (isinstance(value, bool | np.bool_) or is_number(value)) or value not in (
        0,
        1,
    ):
        raise InputError(f"{name} is {short_repr(value)}; expected True or False")
    return bool(value)


def check_choice(value: T, name: str, choices: Collection[object]) -> T:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        words = [repr(choice) for choice in choices]
        raise InputError(
            f"{name} is {short_repr(value)}; expected {', '.join(words[:-1])} or {words[-1]}"
        )
    return value


def check_callable(value: object, name: str) -> None:
    """Refuse what cannot be called."""
    if value is not None and not callable(value):
        raise InputError(f"{name} is {short_repr(value)}; expected a function")


def check_fraction(value: object, name: str) -> float:
    """A number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise InputError(
            f"{name} is {short_repr(value)}; expected a number from 0 to 1"
        )
    return float(value)


def check_generator(value: object, name: str) -> np.random.Generator:
    """NumPy's generator of random numbers."""
    if not isinstance(value, np.random.Generator):
        raise InputError(
            f"{name} is {short_repr(value)}; expected numpy.random.default_rng(seed)"
        )
    return value


@overload
def check_list(values: object, name: str) -> list[object]: ...
@overload
def check_list(values: object, name: str, kind: type[T]) -> list[T]: ...
def check_list(values: object, name: str, kind: type[T] | None = None) -> list[T]:
    """All of something that can be gone through, but text; `kind` is what each must be."""
    if isinstance(values, str | bytes | bytearray | type) or not isinstance(
        values, Iterable
    ):
        raise InputError(f"{name} is {short_repr(values)}; expected a list")
    try:
        items = list(values)
    except TypeError:  # such as an array of no dimensions
        raise InputError(f"{name} is {short_repr(values)}; expected a list") from None
    for at, item in enumerate(items):
        if kind is not None and not isinstance(item, kind):
            raise InputError(
                f"{name} has {short_repr(item)} at place {at}; expected a {kind.__name__}"
            )
    return items


def check_frame_slice(which: object, n: int, name: str) -> range:
    """Some frames of n, from a slice."""
    try:
        chosen = range(n)[which] if isinstance(which, slice) else None
    except (TypeError, ValueError):
        chosen = None
    if chosen is None:
        raise InputError(
            f"{name} is {short_repr(which)}; expected a slice, such as 0:10"
        )
    return chosen


def check_frame(t: object, first: int, last: int, name: str) -> int:
    """The number of one frame."""
    if not is_number(t) or t % 1 != 0 or not first <= t <= last:
        raise InputError(
            f"{name} has no frame {short_repr(t)}; its frames are {first} to {last}"
        )
    return int(t)


def check_array(values: object, name: str) -> NDArray[Any]:
    """An array of what was given, with its own dtype; rows of different length make none."""
    try:
        return np.asarray(values)
    except ValueError:
        raise InputError(
            f"{name} is {short_repr(values)}; expected an array, with rows of the same length"
        ) from None


def check_floats(values: object, name: str) -> NDArray[np.float64]:
    """An array of real numbers: no text, no dates, no complex numbers, no rows of different length."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufO":  # objects may be numbers
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{name} is {short_repr(values)}; expected an array of numbers")


def check_path(value: object, name: str) -> Path:
    """A path, from text or a path; one that no file can have is refused."""
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

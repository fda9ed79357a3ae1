"""Compiled functions: Numba with the options of this package.

Numba compiles for about a second per hundred lines, so kernels use scalar loops and
take each argument in one type only. They get their scratch arrays from Python: without
counts of references, which no array that Python holds needs, they compile faster and
cannot make arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call, and store the code for later processes."""
    return _compile(function, cache=True)


def inner_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only kernels call, without a wrapper for Python."""
    return _compile(function, no_cpython_wrapper=True)


def inlined_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function together with each kernel that calls it.

    This takes less time than a function of its own, if few call it.
    """
    return _compile(function, no_cpython_wrapper=True, inline="always")


def _compile(function: Callable[P, R], **options: bool | str) -> Callable[P, R]:
    """Return Numba's dispatcher of a function."""
    common = {"nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
    return cast(
        Callable[P, R], njit(error_model="numpy", **common, **options)(function)
    )

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
from numba.core import options as numba_options

P = ParamSpec("P")
R = TypeVar("R")
OPTIONS = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
if hasattr(getattr(numba_options, "DefaultOptions", None), "_nrt"):
    # Not public: a version of Numba without it compiles more slowly.
    OPTIONS["_nrt"] = False


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call, and store the code for later processes."""
    return _compile(function, cache=True)


def inner_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only kernels call, without a wrapper for Python."""
    return _compile(function, no_cpython_wrapper=True)


def inlined_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function together with each kernel that calls it.

    This takes less time than a separate function, if few kernels call it.
    """
    return _compile(function, no_cpython_wrapper=True, inline="always")


def _compile(function: Callable[P, R], **options: bool | str) -> Callable[P, R]:
    """Return Numba's dispatcher of a function."""
    return cast(Callable[P, R], njit(**OPTIONS, **options)(function))

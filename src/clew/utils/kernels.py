"""Compiled functions: Numba with the options of this package.

Numba compiles for about a second per hundred lines, so kernels use scalar loops, get
their scratch arrays from Python, and take each argument in one type only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call, and store the code for later processes."""
    options = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
    return cast(Callable[P, R], njit(error_model="numpy", **options)(function))


def inner_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only kernels call, without a wrapper for Python."""
    options = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Callable[P, R], njit(error_model="numpy", **options)(function))

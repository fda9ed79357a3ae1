"""Run small linear algebra on one BLAS thread.

OpenBLAS splits even small products among all cores, and its threads spin while they
wait for the next one. NumPy and SciPy bring a pool each, so that a loop that uses both
in turn can cost twenty times the CPU of one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

LIMITED = threading.Lock()
"""Held by the thread that has limited BLAS."""


@cache
def _blas_controller() -> ThreadpoolController:
    """Find the BLAS libraries of this process, which takes 20 ms."""
    import scipy.linalg  # noqa: F401  # loads SciPy's own BLAS

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread inside a ``with`` block; costs 0.1 ms.

    The limit holds for the whole process. While one thread has set it, others rely on
    it: two that overlap would restore each other's limit.
    """
    if not LIMITED.acquire(blocking=False):
        yield
        return
    try:
        with _blas_controller().limit(limits=1):
            yield
    finally:
        LIMITED.release()

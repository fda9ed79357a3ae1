"""Where the argmax runs: here, in threads, or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from clew.errors import InputError

T = TypeVar("T")


def resolve_jobs(n_jobs: int | None) -> int:
    """The number of threads: None is 1, negative counts from the number of cores as in scikit-learn."""
    if n_jobs is None:
        return 1
    if n_jobs == 0:
        raise InputError("n_jobs is 0; 1 is one thread, -1 is a thread for each core")
    return n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)


def map_examples(function: Callable[[Any], T], items: Iterable[Any], n_jobs: int = 1) -> list[T]:
    """`function` of every item, in order; in threads where `n_jobs` asks for more than one."""
    jobs = resolve_jobs(n_jobs)
    if jobs == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(function, items))

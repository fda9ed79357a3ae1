"""Kernels are compiled once, though several processes of tests begin with the same empty cache."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clew.locks import try_lock

PATIENCE = 120
"""Seconds for which a process waits for the one that compiles; then it compiles, too."""


def compile_in_turn() -> None:
    """From now on, what another process compiles for the same cache is waited for, and read from the cache."""
    from numba.core.caching import NullCache
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    compile_ = Dispatcher.compile
    held = set[Path]()

    def compile_alone(self: Any, signature: Any) -> Any:
        if isinstance(self._cache, NullCache):
            return compile_(self, signature)
        path = Path(self._cache.cache_path) / f"{self._cache._impl.filename_base}.lock"
        # threads first, as numba has it: one that waits for a file must not have what another thread waits for
        with global_compiler_lock, _ours(path, held):
            return compile_(self, signature)

    Dispatcher.compile = compile_alone


@contextlib.contextmanager
def _ours(path: Path, held: set[Path]) -> Iterator[None]:
    """A lock between processes. What a kernel calls is compiled within and never calls back: no ring."""
    if path in held:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + PATIENCE
    with path.open("ab") as file:
        while try_lock(file) is False and time.monotonic() < until:
            time.sleep(0.02)
        held.add(path)
        try:
            yield
        finally:
            held.remove(path)

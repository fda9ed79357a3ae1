"""Locks between processes, on every operating system. A lock goes with the process that has it, however that ends."""

from __future__ import annotations

import sys
from typing import IO


def try_lock(file: IO[bytes]) -> bool | None:
    """Lock an open file until it is closed: True if it is ours now, False if another process has it.

    None says that the file system knows no locks, as some network drives do: then nobody can tell.
    """
    try:
        _lock(file)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        """The first byte, which need not be there, stands for the file."""
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

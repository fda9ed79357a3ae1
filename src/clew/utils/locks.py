"""Locks between processes; a lock ends with the process that holds it."""

from __future__ import annotations

import sys
from typing import IO


def try_lock(file: IO[bytes]) -> bool | None:
    """Lock an open file until it is closed.

    Returns
    -------
    is_locked : bool or None
        False if another process holds the lock, None if the file system has no locks,
        as some network drives.
    """
    try:
        _lock_file(file)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


if sys.platform == "win32":
    import msvcrt

    def _lock_file(file: IO[bytes]) -> None:
        """Lock the first byte, which need not exist."""
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock_file(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

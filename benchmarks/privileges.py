"""Permissions that count for root too, so that read-only folders can be tried as root, as in containers."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

VERSION_3, DAC_OVERRIDE = 0x20080522, 1 << 1
"""Of the capabilities of Linux (capabilities(7)): their version, and the one to write whatever the permissions say."""


@contextlib.contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Let this thread write nowhere that permissions forbid; reading is as before. Who is not root never may."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (
        (ctypes.c_uint32 * 2)(VERSION_3, 0),
        (ctypes.c_uint32 * 6)(),
    )  # the first word: what is in effect
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    before = sets[0]
    sets[0] = before & ~DAC_OVERRIDE
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        sets[0] = before
        libc.capset(header, sets)

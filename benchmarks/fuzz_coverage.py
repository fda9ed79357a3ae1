"""Which lines of clew have run: a case that reaches new ones is kept by fuzz.py, whether it was answered or refused."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import clew

HOME = str(Path(clew.__file__).parent)
CALLS = 20
"""Calls of a function that are looked at line by line in each case, so that inner loops stay fast."""


class Coverage:
    """Counts the lines of clew that have run within it so far."""

    def __init__(self) -> None:
        self.lines = self._before = 0
        self._unseen: dict[CodeType, set[int | None]] = {}
        self._calls: Counter[CodeType] = Counter()

    def __enter__(self) -> Self:
        self._calls.clear()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, *_: Any) -> Any:
        code = frame.f_code
        unseen = self._unseen.get(code)
        if unseen is None:
            ours = code.co_filename.startswith(HOME)
            unseen = self._unseen[code] = (
                {line for *_, line in code.co_lines()} if ours else set()
            )
        if not unseen or self._calls[code] >= CALLS:
            return None
        self._calls[code] += 1
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        unseen = self._unseen[frame.f_code]
        if event == "line" and frame.f_lineno in unseen:
            unseen.discard(frame.f_lineno)
            self.lines += 1
        return self._line

    def grown(self) -> bool:
        """Whether there were new lines since this was asked before."""
        grown, self._before = self.lines > self._before, self.lines
        return grown

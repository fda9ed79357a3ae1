"""Frame pairs that stay in memory while annotations grow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from clew.tracking.candidates.frame_pairs import FramePair, Pairs
from clew.tracking.detections import Source
from clew.tracking.events import Annotations
from clew.utils.cache import Cache


class KeptPairs:
    """Frame pairs of a movie that stay in memory, each with all that is annotated in it among its candidates."""

    def __init__(self, pairs: Pairs, limit: int) -> None:
        """`limit` is the number of candidates whose features are kept, at about 100 bytes each."""
        self.pairs, self.limit = pairs, limit
        self._pairs: Cache[FramePair] = Cache(limit, lambda pair: len(pair.candidates))

    def edited(self, source: Source, frames: Collection[int]) -> KeptPairs:
        """The frame pairs when the cells of some, named by their first frames, are others; those are made anew."""
        other = KeptPairs(replace(self.pairs, source=source), self.limit)
        other._pairs = self._pairs.without(lambda slot: slot[0] in frames)
        return other

    def pair(self, frame: int, here: Annotations) -> FramePair:
        """A frame pair with its annotations; nearly always these are usual candidates, and the pair stays the same."""
        usual = self._pairs.get((frame, "usual"), lambda: self.pairs.pair(frame))
        found = set(usual.rows(here.events).values())
        if len(found) == len(here):
            return usual
        extra = here.events[np.array([k not in found for k in range(len(here))])]
        return self._pairs.get(
            (frame, "extended"),
            lambda: self.pairs.pair(frame, extra),
            extra.row_keys().tobytes(),
        )

    def told(self, frame: int, here: Annotations) -> FramePair:
        """The same with a flow that knows of annotated moves, to predict the others by (`Pairs.pair`)."""
        moves = self.pairs.unforeseen(frame, here.select_moves())
        if moves is None:
            return self.pair(frame, here)
        return self._pairs.get(
            (frame, "told"),
            lambda: self.pairs.pair(frame, here.events, moves),
            here.content_key(),
        )

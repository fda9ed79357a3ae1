"""Frame pairs of a movie, kept in memory while its annotations grow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.detections import Source
from clew.tracking.events import Annotations
from clew.utils.cache import Cache


class FramePairCache:
    """Candidates and features of frame pairs, each with its annotated events.

    Parameters
    ----------
    pairs : FramePairBuilder
        Builds the frame pairs.
    limit : int
        Number of candidates to keep, at about 100 bytes each.
    """

    def __init__(self, pairs: FramePairBuilder, limit: int) -> None:
        self.pairs = pairs
        self.limit = limit
        self._pairs: Cache[FramePair] = Cache(limit, lambda pair: len(pair.candidates))

    def with_source(self, source: Source, frames: Collection[int]) -> FramePairCache:
        """Return a cache for a movie whose detections differ in some frame pairs.

        Parameters
        ----------
        source : Source
            The movie with the new detections.
        frames : collection of int
            First frames of the pairs that changed; they are built again.
        """
        other = FramePairCache(replace(self.pairs, source=source), self.limit)
        other._pairs = self._pairs.without(lambda slot: slot[0] in frames)
        return other

    def get_pair(self, frame: int, annotations: Annotations) -> FramePair:
        """Return a frame pair whose candidates include its annotated events."""
        pair = self._pairs.get((frame, "default"), lambda: self.pairs.build(frame))
        known = set(pair.find_events(annotations.events).values())
        if len(known) == len(annotations):
            return pair
        is_missing = np.array([row not in known for row in range(len(annotations))])
        missing = annotations.events[is_missing]
        return self._pairs.get(
            (frame, "extended"),
            lambda: self.pairs.build(frame, missing),
            missing.row_keys().tobytes(),
        )

    def get_pair_with_known_moves(
        self, frame: int, annotations: Annotations
    ) -> FramePair:
        """Return the pair with a flow that follows the annotated moves.

        The flow is estimated again only if an annotated move is far from it.
        """
        pair = self.get_pair(frame, annotations)
        moves = annotations.select_moves()
        if not pair.contradicts_moves(moves):
            return pair
        return self._pairs.get(
            (frame, "known moves"),
            lambda: self.pairs.build(frame, annotations.events, moves),
            annotations.content_key(),
        )

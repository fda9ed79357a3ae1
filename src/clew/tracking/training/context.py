"""Annotated events that a frame pair contradicts and that the frames around it explain.

A mask that is torn for one frame comes apart and together between two frames, and over three of them its cell moves on
(`linking/torn.py`). Who annotates that move tells nothing of what moves and splits look like: weights of frame pairs
that learn from it take splits for moves elsewhere too. So it is not learned from, but learned weights are judged by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from clew.learning.task import Array, Mask
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.events import Annotations, EventTable
from clew.tracking.solve import joined_pairs, solve_pair


class InContext(NamedTuple):
    """What weights predict from one frame to the next."""

    alone: EventTable
    """By the frame pair itself."""
    joined: EventTable
    """By the pairs before and after it too: events of all three."""

    @classmethod
    def of(cls, pairs: Pairs, w: Array, frame: int) -> InContext:
        """By weights `w`, (d,)."""
        near = [
            solve_pair(pairs, w, t)
            for t in range(max(frame - 1, 0), min(frame + 2, len(pairs)))
        ]
        (alone,) = (one.events for one in near if one.frame == frame)
        return cls(alone, joined_pairs(near)[0].events)

    def explains(self, here: Annotations) -> Mask:
        """(n,) which annotations of the frame pair are wrong by itself, and right by the pairs around it too."""
        return here.contradicted_by(self.alone) & ~here.contradicted_by(self.joined)


@dataclass(frozen=True)
class Explained:
    """Annotations of a frame pair that the frames around it explain."""

    pairs: Pairs
    frame: int
    annotations: Annotations

    def lost(self, w: Array) -> int:
        """How many of them other weights, (d,), do not explain."""
        return int(
            self.annotations.contradicted_by(
                InContext.of(self.pairs, w, self.frame).joined
            ).sum()
        )

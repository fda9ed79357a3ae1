"""Tracks as a person sees and judges them: the family of a cell, and what is said of a whole track at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np

from clew.annotation.answers import Answer, Fact
from clew.annotation.cell_positions import Positions
from clew.annotation.predictions import Predictor
from clew.app.imports import answers_of
from clew.app.views import Json, family_view
from clew.errors import InputError
from clew.tracking.events import Annotations
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.solve import SolvedPair, join_pairs

TrackCells = frozenset[tuple[int, int]]
"""The cells of a track, (frame, label) each."""


class Families:
    """The lineage of the present predictions; made when it is asked for, and kept as long as they stay."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._known: tuple[list[SolvedPair], Lineage] | None = None
        self._making = asyncio.Lock()
        """A long movie takes a second, so that requests wait for the one that is being made, and take it if it fits."""

    async def lineage(
        self, positions: Positions, annotations: Annotations, may_be_old: bool = False
    ) -> Lineage | None:
        """The lineage; none as long as not all of the movie is tracked. An old one, if it may be and there is one."""
        async with self._making:
            predictor = self.predictor
            solved = [
                predictor.solved[frame]
                for frame in range(predictor.n_pairs)
                if frame in predictor.solved
            ]
            if len(solved) < predictor.n_pairs:
                return None
            if self._known is None or (self._known[0] != solved and not may_be_old):
                self._known = (
                    solved,
                    await asyncio.to_thread(join_pairs, positions, solved, annotations),
                )
            return self._known[1]

    async def family(
        self,
        positions: Positions,
        annotations: Annotations,
        frame: int,
        label: int,
        scale: float,
        may_be_old: bool,
    ) -> Json:
        """The tracks of a cell's family as a page sees them; `scale` as for `views.certainty`."""
        lineage = await self.lineage(positions, annotations, may_be_old)
        if lineage is None:
            return {"tracks": [], "selected": None, "ready": False}
        return {
            **await asyncio.to_thread(family_view, lineage, frame, label, scale),
            "ready": True,
        }

    async def track(
        self, positions: Positions, annotations: Annotations, frame: int, label: int
    ) -> TrackCells:
        """The track that a cell is on."""
        lineage = await self.lineage(positions, annotations)
        if lineage is None:
            raise InputError(
                "the movie is not tracked to its end yet; expected a track that is known"
            )
        node = np.flatnonzero((lineage.frame == frame) & (lineage.label == label))
        if not len(node):
            raise InputError(f"there is no cell {label} in frame {frame}")
        mine = np.flatnonzero(lineage.track == lineage.track[node[0]])
        return frozenset(
            zip(lineage.frame[mine].tolist(), lineage.label[mine].tolist(), strict=True)
        )


def all_right(
    track: TrackCells, solved: Mapping[int, SolvedPair], until: int | None = None
) -> list[Answer]:
    """Yes to all that is predicted of a track's cells; with `until`, to what leads to that frame at most."""
    answers: dict[Fact, Answer] = {}
    for t, cell in sorted(track):
        for at, side in ((t, "sources"), (t - 1, "targets")):
            if at in solved and (until is None or at < until):
                rows = np.flatnonzero(
                    (getattr(solved[at].events, side) == cell).any(axis=1)
                )
                answers |= {
                    one.fact: one
                    for one in answers_of(Annotations.of(solved[at].events[rows]))
                }
    return list(answers.values())


def wrong_from(
    track: TrackCells, solved: Mapping[int, SolvedPair], frame: int, label: int
) -> list[Answer]:
    """Yes to what leads to a cell of a track, and no to what is predicted of it from there on."""
    if frame not in solved:
        raise InputError(f"frame {frame} is the last one; expected a cell that goes on")
    events = solved[frame].events
    rows = np.flatnonzero((events.sources == label).any(axis=1))
    denied = answers_of(Annotations.of(events[rows], False))
    return [*denied, *all_right(track, solved, frame)]

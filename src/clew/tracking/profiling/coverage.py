"""Which events are among the candidates: those that were annotated, and moves that are plausible.

What is no candidate cannot be predicted. Annotated events are always added to the candidates, so that those which were
not there by themselves tell how much else may be missing. Without annotations there are moves that nobody would rule
out: to where masks overlap, or no farther than nineteen in twenty cells move, all relative to the flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from clew.learning.task import Indices
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.detections import Detections, Overlap
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.profiling.domain import some
from clew.tracking.profiling.scales import Over


@dataclass(frozen=True)
class Coverage:
    """Counts over the frame pairs of a movie that were looked at."""

    annotated: int = 0
    annotated_found: int = 0
    plausible: int = 0
    plausible_found: int = 0
    pairs: int = 0
    """Frame pairs that were looked at."""

    @classmethod
    def sum(cls, parts: Sequence[Coverage]) -> Coverage:
        """Of several frame pairs, or movies."""
        rows = [astuple(one) for one in parts]
        return cls(
            *np.array(rows, dtype=int)
            .reshape(-1, len(fields(cls)))
            .sum(axis=0)
            .tolist()
        )

    def __str__(self) -> str:
        told = []
        if self.annotated:
            told.append(
                f"{self.annotated_found:,} of {self.annotated:,} annotated events (the others were added)"
            )
            if self.annotated_found == self.annotated:
                told = [f"all of {self.annotated:,} annotated events"]
        if self.plausible:
            told.append(
                f"{_share(self.plausible_found, self.plausible)} of {self.plausible:,} plausible moves"
            )
        return (
            f"candidates: {' and '.join(told)}, in {self.pairs} frame pairs"
            if told
            else "candidates: none expected"
        )


def _share(part: int, whole: int) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{np.floor(1000 * part / whole) / 10:g} %"


def look_for(
    pairs: Pairs, annotations: Annotations | None = None, over: Over = map
) -> Coverage:
    """In a few frame pairs that carry an annotation, or of the whole movie; `over` maps over them."""
    frames = some(
        annotations.annotated_frames()
        if annotations is not None and len(annotations)
        else range(len(pairs))
    )
    items = [(pairs.window(frame, frame + 1), int(frame)) for frame in frames]
    happened = None if annotations is None else annotations[annotations.happened]
    return Coverage.sum(list(over(partial(_covered, happened), items)))


def _covered(happened: Annotations | None, item: tuple[Pairs, int]) -> Coverage:
    """One frame pair."""
    pairs, frame = item
    a, b, found, moves = pairs.usual(
        frame, partial(plausible_moves, way=pairs.motion.far_step)
    )
    asked = (
        EventTable.empty() if happened is None else happened.select_frame(frame).events
    )
    there = found.find(asked, a, b) >= 0
    known = found.of_event(Event.MOVE)
    key = found.sources[known, 0] * max(found.n_targets, 1) + found.targets[known, 0]
    wanted = moves[:, 0] * max(found.n_targets, 1) + moves[:, 1]
    return Coverage(
        len(asked), int(there.sum()), len(wanted), int(np.isin(wanted, key).sum()), 1
    )


def plausible_moves(
    found: Candidates,
    a: Detections,
    b: Detections,
    overlap: Overlap,
    *_: Any,
    way: float,
) -> Indices:
    """(k, 2) rows of cells that overlap, or that are no farther from each other than `way`; each pair once."""
    near = np.zeros((0, 2), dtype=np.intp)
    if found.n_sources and found.n_targets and way > 0:
        lists = cKDTree(a.position).query_ball_tree(cKDTree(b.position), way)
        near = np.array(
            [(i, j) for i, row in enumerate(lists) for j in row], dtype=np.intp
        ).reshape(-1, 2)
    shared = np.column_stack([overlap.source, overlap.target]).astype(np.intp)
    return np.unique(np.concatenate([near, shared.reshape(-1, 2)]), axis=0)

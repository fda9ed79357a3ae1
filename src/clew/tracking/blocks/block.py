"""What was found in one block of frames, as a value that can be kept in a file and sent to another process."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import StoreError
from clew.learning.task import Array
from clew.tracking.candidates.frame_pairs import Pairs
from clew.tracking.detections import WindowedSource
from clew.tracking.events import Annotations, Event, EventTable, Labels
from clew.tracking.lineage.gaps import Gaps
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.solve import Nodes, joined_pairs, nodes_of, solve_pair

VERSION = 5
"""Of what a block holds and of how it is solved; blocks of another version are solved anew."""
HALO, GAP_HALO = 1, 3
"""Frame pairs at either side: whether a mask is torn depends on two pairs. A gap over a frame depends on two pairs too,
on gaps over the frames next to it, and on torn masks."""
ROW = "row"


@dataclass(frozen=True, eq=False)
class Block:
    """The events of some frame pairs with the cells of all frames that they lead from and to."""

    first: int
    """The number of the block's first frame."""
    lineage: Lineage
    """Frames are counted from `first`; splits and divisions are as the frame pairs have them."""
    lead: Array
    """(m,) by how much an event scores more as a split than as a division, see `SolvedPair`."""
    border: Array
    """(m,) how near the border a cell appears or disappears, see `SolvedPair`."""
    unit: float
    """The norm of the weights."""
    gaps: Gaps
    """Under the movie's frame numbers, from the frame before the block's first to the one before its last: all that
    have an end in its frame pairs, where they are still disappearances and appearances."""
    beyond: Nodes
    """Targets of the gap that begins in the last frame pair: cells of the frame after the block's last, with the row of
    each in its frame as a column."""

    @property
    def n_pairs(self) -> int:
        """How many frame pairs it has."""
        return self.lineage.n_frames - 1

    def nodes(self, shared: bool) -> Nodes:
        """The cells under the movie's frame numbers; those of the last frame, which the next block has, if `shared`."""
        inside = self.lineage
        n = (
            len(inside.frame)
            if shared
            else int(np.searchsorted(inside.frame, self.n_pairs))
        )
        columns = {name: column[:n] for name, column in inside.columns.items()}
        return Nodes(
            inside.frame[:n] + self.first,
            inside.label[:n],
            inside.position[:n],
            columns,
        )

    def events(self) -> EventTable:
        """The events under the movie's frame numbers."""
        return replace(
            self.lineage.events, frame=self.lineage.events.frame + self.first
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as plain arrays."""
        inside = self.lineage
        events = {
            f"event.{name}": getattr(inside.events, name)
            for name in ("frame", "event", "sources", "targets")
        }
        columns = {f"column.{name}": column for name, column in inside.columns.items()}
        return {
            "about": np.array([self.first, inside.n_frames]),
            "unit": np.array([self.unit]),
            "frame": inside.frame,
            "label": inside.label,
            "position": inside.position,
            "confidence": inside.confidence,
            "lead": self.lead,
            "border": self.border,
            "gap.frame": self.gaps.events.frame,
            "gap.source": self.gaps.events.sources[:, 0],
            "gap.target": self.gaps.events.targets[:, 0],
            "gap.confidence": self.gaps.confidence,
            "beyond.frame": self.beyond.frame,
            "beyond.label": self.beyond.label,
            "beyond.position": self.beyond.position,
            **{
                f"beyond.column.{name}": column
                for name, column in self.beyond.columns.items()
            },
            **events,
            **columns,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `arrays` gave; anything else is refused."""
        try:
            first, n_frames = arrays["about"].tolist()
            events = EventTable(
                *(
                    arrays[f"event.{name}"]
                    for name in ("frame", "event", "sources", "targets")
                )
            )
            columns = {
                name.removeprefix("column."): a
                for name, a in arrays.items()
                if name.startswith("column.")
            }
            lineage = Lineage(
                n_frames,
                arrays["frame"],
                arrays["label"],
                arrays["position"],
                events,
                arrays["confidence"],
                columns,
            )
            ends = zip(
                *(
                    arrays[f"gap.{name}"].tolist()
                    for name in ("frame", "source", "target")
                ),
                strict=True,
            )
            gaps = EventTable.of(
                [
                    (frame, Event.GAP, (source,), (target,))
                    for frame, source, target in ends
                ]
            )
            further = "beyond.column."
            beyond = Nodes(
                arrays["beyond.frame"],
                arrays["beyond.label"],
                arrays["beyond.position"],
                {
                    name.removeprefix(further): a
                    for name, a in arrays.items()
                    if name.startswith(further)
                },
            )
            return cls(
                first,
                lineage,
                arrays["lead"],
                arrays["border"],
                float(arrays["unit"][0]),
                Gaps(gaps, arrays["gap.confidence"]),
                beyond,
            )
        except (KeyError, ValueError, IndexError) as error:
            raise StoreError(
                f"a block of frames is not as this clew writes them ({error})"
            ) from error


@dataclass(frozen=True, eq=False)
class BlockProblem:
    """All that one block is solved from: small, and complete in itself."""

    pairs: Pairs
    """Of the frames that are solved alone."""
    w: Array
    annotations: Annotations | None
    """Of the block's frames alone."""
    which: range
    """The frame pairs."""
    solved: range
    """Those and `HALO` more at either side, more where there may be gaps: what happened depends on what did around."""

    @classmethod
    def of(
        cls, pairs: Pairs, w: Array, annotations: Annotations | None, which: range
    ) -> Self:
        """Cut a block out of a movie."""
        halo = GAP_HALO if Event.GAP in pairs.events else HALO
        solved = range(max(which.start - halo, 0), min(which.stop + halo, len(pairs)))
        if annotations is not None:
            at = annotations.events.frame
            annotations = annotations[
                (at >= solved.start - 1) & (at < solved.stop)
            ]  # a gap from before ends here
        return cls(
            pairs.window(solved.start, solved.stop), w, annotations, which, solved
        )

    def solve(self) -> Block:
        """One frame pair after the other."""
        first, last = self.which.start, self.which.stop
        solved = [
            solve_pair(self.pairs, self.w, frame, self.annotations)
            for frame in self.solved
        ]
        (events, confidence, lead, border), gaps = joined_pairs(
            solved, self.annotations
        )
        mine = np.flatnonzero((events.frame >= first) & (events.frame < last))
        nodes = nodes_of(self.pairs.source, range(first, last + 1))
        events = events[mine]
        lineage = Lineage(
            len(self.which) + 1,
            nodes.frame - first,
            nodes.label,
            nodes.position,
            replace(events, frame=events.frame - first),
            confidence[mine],
            nodes.columns,
        )
        gaps = gaps.within(first - 1, last - 1)
        leaving = gaps.events.targets[gaps.events.frame == last - 1, 0]
        beyond = self._beyond(last + 1, leaving)
        unit = float(np.linalg.norm(self.w))
        return Block(first, lineage, lead[mine], border[mine], unit, gaps, beyond)

    def _beyond(self, frame: int, labels: Labels) -> Nodes:
        """Some cells of a frame, with their rows in it."""
        if not len(labels):
            none = np.zeros(0, np.int64)
            return Nodes(none, none, np.zeros((0, self.pairs.source.ndim)), {})
        cells = nodes_of(self.pairs.source, range(frame, frame + 1))
        row = np.searchsorted(cells.label, np.sort(labels))
        columns = {name: column[row] for name, column in cells.columns.items()} | {
            ROW: row.astype(float)
        }
        return Nodes(cells.frame[row], cells.label[row], cells.position[row], columns)

    def key(self) -> str:
        """A digest of all that the solution follows from: pixels, settings, weights and annotations."""
        p = self.pairs
        frames = range(p.needed(self.solved.start).start, self.solved.stop + 1)
        settings = (
            VERSION,
            self.which,
            sorted(p.groups),
            p.motion,
            p.scales,
            p.reach,
            p.neighbours,
            sorted(p.events),
            b"" if self.annotations is None else self.annotations.content_key(),
        )
        whole = hashlib.blake2b(repr(settings).encode(), digest_size=20)
        whole.update(np.ascontiguousarray(self.w, dtype="<f8").tobytes())
        for t in frames:
            # a source that cannot say what it holds is never taken for another
            whole.update(
                p.source.content(t)
                if isinstance(p.source, WindowedSource)
                else secrets.token_bytes(8)
            )
        return whole.hexdigest()

"""What was found in one block of frames, as a value that can be kept in a file and sent to another process."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import StoreError
from clew.learning.task import Array
from clew.tracking.blocks.ends_file import packed, unpacked
from clew.tracking.detections import Divisible
from clew.tracking.events import Annotations, EventTable
from clew.tracking.lineage import Lineage
from clew.tracking.model.loose_ends import LooseEnds
from clew.tracking.model.pairs import Pairs
from clew.tracking.model.solve import Nodes, nodes_of, solve_pair

VERSION = 2
"""Of what a block holds and of how it is solved; blocks of another version are solved anew."""


@dataclass(frozen=True, eq=False)
class Block:
    """The events of some frame pairs with the cells of all frames that they lead from and to."""

    first: int
    """The number of the block's first frame."""
    lineage: Lineage
    """Frames are counted from `first`; splits and divisions are as the frame pairs have them."""
    lead: Array
    """(m,) by how much an event scores more as a split than as a division, see `SolvedPair`."""
    unit: float
    """The norm of the weights."""
    ends: Sequence[tuple[int, LooseEnds]] = ()
    """Of the frame pairs, where gaps are looked for."""

    @property
    def n_pairs(self) -> int:
        """How many frame pairs it has."""
        return self.lineage.n_frames - 1

    def nodes(self, shared: bool) -> Nodes:
        """The cells under the movie's frame numbers; those of the last frame, which the next block has, if `shared`."""
        inside = self.lineage
        n = len(inside.frame) if shared else int(np.searchsorted(inside.frame, self.n_pairs))
        columns = {name: column[:n] for name, column in inside.columns.items()}
        return Nodes(inside.frame[:n] + self.first, inside.label[:n], inside.position[:n], columns)

    def events(self) -> EventTable:
        """The events under the movie's frame numbers."""
        return replace(self.lineage.events, frame=self.lineage.events.frame + self.first)

    def packed(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All of it as plain values and arrays."""
        about, arrays = packed(self.ends)
        return about, arrays | self._arrays()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        inside = self.lineage
        events = {f"event.{name}": getattr(inside.events, name) for name in ("frame", "event", "sources", "targets")}
        columns = {f"column.{name}": column for name, column in inside.columns.items()}
        return {
            "about": np.array([self.first, inside.n_frames]), "unit": np.array([self.unit]), "frame": inside.frame,
            "label": inside.label, "position": inside.position, "confidence": inside.confidence, "lead": self.lead,
            **events, **columns,
        }  # fmt: skip

    @classmethod
    def unpacked(cls, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `packed` gave; anything else is refused."""
        try:
            ends = unpacked(about, arrays)
            first, n_frames = arrays["about"].tolist()
            events = EventTable(*(arrays[f"event.{name}"] for name in ("frame", "event", "sources", "targets")))
            columns = {name.removeprefix("column."): a for name, a in arrays.items() if name.startswith("column.")}
            lineage = Lineage(
                n_frames, arrays["frame"], arrays["label"], arrays["position"], events, arrays["confidence"], columns
            )
            return cls(first, lineage, arrays["lead"], float(arrays["unit"][0]), ends)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StoreError(f"a block of frames is not as this clew writes them ({error})") from error


@dataclass(frozen=True, eq=False)
class BlockProblem:
    """All that one block is solved from: small, and complete in itself."""

    pairs: Pairs
    """Of the block's frames alone."""
    w: Array
    annotations: Annotations | None
    """Of the block's frames alone."""
    which: range
    """The frame pairs."""

    @classmethod
    def of(cls, pairs: Pairs, w: Array, annotations: Annotations | None, which: range) -> Self:
        """Cut a block out of a movie."""
        if annotations is not None:
            annotations = annotations.pairwise()
            at = annotations.events.frame
            annotations = annotations[(at >= which.start) & (at < which.stop)]
        return cls(pairs.window(which.start, which.stop), w, annotations, which)

    def solve(self) -> Block:
        """One frame pair after the other."""
        first = self.which.start
        solved = [solve_pair(self.pairs, self.w, frame, self.annotations) for frame in self.which]
        nodes = nodes_of(self.pairs.source, range(first, self.which.stop + 1))
        events = EventTable.join([one.events for one in solved])
        lineage = Lineage(
            len(self.which) + 1, nodes.frame - first, nodes.label, nodes.position,
            replace(events, frame=events.frame - first),
            np.concatenate([np.zeros(0), *(one.confidence for one in solved)]), nodes.columns,
        )  # fmt: skip
        lead = np.concatenate([np.zeros(0), *(one.lead for one in solved if one.lead is not None)])
        ends = [(one.frame, one.ends) for one in solved if one.ends is not None]
        return Block(first, lineage, lead, float(np.linalg.norm(self.w)), ends)

    def key(self) -> str:
        """A digest of all that the solution follows from: pixels, settings, weights and annotations."""
        p = self.pairs
        frames = range(self.which.start, self.which.stop + 1)
        settings = (
            VERSION, self.which, sorted(p.groups), p.motion, p.scales, p.reach, p.neighbours, sorted(p.events),
            b"" if self.annotations is None else self.annotations.key(),
        )  # fmt: skip
        whole = hashlib.blake2b(repr(settings).encode(), digest_size=20)
        whole.update(np.ascontiguousarray(self.w, dtype="<f8").tobytes())
        for t in frames:
            # a source that cannot say what it holds is never taken for another
            whole.update(p.source.content(t) if isinstance(p.source, Divisible) else secrets.token_bytes(8))
        return whole.hexdigest()

"""What happened in a whole movie: its detections, one event for each history and fate, and the tracks that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.events import (
    ARITY,
    LINEAGE_KINDS,
    NONE,
    Event,
    EventTable,
    Labels,
)
from clew.tracking.lineage.links import NO_NODE, find_heads
from clew.tracking.lineage.tracks import Tracks, assign_track_ids
from clew.utils.validation import check_int, short_repr

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from matplotlib.figure import Figure


KEPT_COLUMNS = ("volume", "intensity")
"""Measurements that a lineage keeps of each detection, to match identities by."""
RECOVERED = "recovered"
"""Column of a lineage: 1 for cells that were recovered, 0 for given ones."""


class Nodes(NamedTuple):
    """Detections of consecutive frames, (n,) each."""

    frame: NDArray[np.int64]
    label: Labels
    position: Array
    """(n, ndim)"""
    columns: dict[str, Array]
    """Those of `KEPT_COLUMNS` that are measured."""


@dataclass(frozen=True, eq=False)
class RecoveredCells:
    """Cells that were recovered, sorted by frame, then label; (n,) each."""

    frame: NDArray[np.int64]
    label: Labels
    """Above those of all given cells of the frame."""
    position: Array
    """(n, ndim) physical."""
    columns: Mapping[str, Array]
    """Measurements, interpolated."""
    probability: Array
    """That the cell is there."""
    corner: Indices
    """(n, ndim) first pixel of each mask's box."""
    masks: Sequence[Mask]
    """n boxes; none for tables of detections."""

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, rows: Indices) -> Self:
        return replace(
            self,
            frame=self.frame[rows],
            label=self.label[rows],
            position=self.position[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
            probability=self.probability[rows],
            corner=self.corner[rows],
            masks=[self.masks[row] for row in rows] if len(self.masks) else [],
        )

    def join(self, other: Self) -> Self:
        """Return both, sorted by frame, then label."""
        order = np.lexsort(
            (
                np.append(self.label, other.label),
                np.append(self.frame, other.frame),
            )
        )
        return replace(
            self,
            frame=np.append(self.frame, other.frame),
            label=np.append(self.label, other.label),
            position=np.concatenate([self.position, other.position]),
            columns={
                name: np.append(column, other.columns[name])
                for name, column in self.columns.items()
            },
            probability=np.append(self.probability, other.probability),
            corner=np.concatenate([self.corner, other.corner]),
            masks=[*self.masks, *other.masks],
        )[order]

    def within(self, frames: range) -> Self:
        """Return the cells of some frames, counted from the first of these."""
        rows = np.searchsorted(self.frame, [frames.start, frames.stop]).tolist()
        cells = self[np.arange(*rows)]
        return replace(cells, frame=cells.frame - frames.start)


class Edges(NamedTuple):
    """Links between nodes, in the order of their events; (k,) each."""

    source: Indices
    """Nodes of the earlier frame."""
    target: Indices
    """Nodes of the later frame."""
    row: Indices
    """The event of `Lineage.events` that makes the link."""


@dataclass(frozen=True, eq=False)
class Lineage:
    """The detections of a movie as nodes, and between each two frames one fate and one history for each of them."""

    n_frames: int
    frame: NDArray[np.int64]
    """(n,) of each node; nodes are sorted by frame, then label."""
    label: Labels
    """(n,)"""
    position: Array
    """(n, ndim) physical."""
    events: EventTable
    """(m,) what happened."""
    confidence: Array
    """(m,) the score that is lost if the event is forbidden; infinite where nothing else is possible."""
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """(n,) each: measurements by which identities are matched, "volume" and "intensity" where there are any."""
    probability: Array | None = None
    """(m,) that each event is right, see `model.probability`; None if the confidences are not calibrated."""
    recovered: RecoveredCells | None = None
    """Nodes without a given mask, which the column "recovered" marks; None where they were not searched."""

    def __post_init__(self) -> None:
        """Refuse what is no lineage."""
        self._check_types()
        n, m = len(self.frame), len(self.events)
        for name, array, rows in [
            ("label", self.label, n),
            ("position", self.position, n),
            ("confidence", self.confidence, m),
            *((f"column {name!r}", column, n) for name, column in self.columns.items()),
            *(
                []
                if self.probability is None
                else [("probability", self.probability, m)]
            ),
        ]:
            if len(array) != rows:
                raise InputError(
                    f"the lineage's {name} has {len(array)} rows where {rows} are needed"
                )
        if n and (self.frame[0] < 0 or self.frame.max() >= self.n_frames):
            raise InputError(
                f"a lineage of {self.n_frames} frames has nodes in frames 0 to {self.n_frames - 1} only"
            )
        step, climb = np.diff(self.frame), np.diff(self.label)
        if n and (
            self.label.min() <= NONE
            or np.any((step < 0) | ((step == 0) & (climb <= 0)))
        ):
            raise InputError(
                "the nodes of a lineage must have positive labels, and be sorted by frame, then label"
            )
        self._check_events()

    def _check_types(self) -> None:
        """Refuse what is no array of the right kind."""
        object.__setattr__(
            self, "n_frames", check_int(self.n_frames, "the lineage's n_frames", 0)
        )
        if not isinstance(self.events, EventTable) or not isinstance(
            self.columns, Mapping
        ):
            raise InputError(
                "a lineage has events as an EventTable, and columns as a mapping from names to arrays"
            )
        for name, array, ndim, kinds in [
            ("frame", self.frame, 1, "iu"),
            ("label", self.label, 1, "iu"),
            ("position", self.position, 2, "iuf"),
            ("confidence", self.confidence, 1, "iuf"),
            *(
                (f"column {name!r}", column, 1, "biuf")
                for name, column in self.columns.items()
            ),
            *(
                []
                if self.probability is None
                else [("probability", self.probability, 1, "iuf")]
            ),
        ]:
            if (
                not isinstance(array, np.ndarray)
                or array.ndim != ndim
                or array.dtype.kind not in kinds
            ):
                raise InputError(
                    f"the lineage's {name} is {short_repr(array)}; expected an array of numbers in {ndim}D"
                )

    def _check_events(self) -> None:
        """Each node has one fate and one history, and each event as many of both sides as its kind has."""
        events = self.events
        arity = np.array([ARITY[event] for event in Event])[events.event]
        wrong = ((events.sources != NONE).sum(1) != arity[:, 0]) | (
            (events.targets != NONE).sum(1) != arity[:, 1]
        )
        if wrong.any():
            raise InputError(
                f"{events.describe(int(np.argmax(wrong)))}: not the number of cells that this event has"
            )
        last = self.n_frames - 1
        for side, nodes, due in [
            ("source", self.sources, self.frame < last),
            ("target", self.targets, self.frame > 0),
        ]:
            found = np.bincount(nodes[nodes != NO_NODE], minlength=len(self.frame))
            if np.any(found != due):
                self._refuse(int(np.argmax(found != due)), side, nodes)

    def _refuse(self, node: int, side: str, nodes: NDArray[np.int32]) -> None:
        """Say which events make a node's fate or history wrong."""
        where = f"frame {self.frame[node]}, label {self.label[node]}"
        rows = np.flatnonzero((nodes == node).any(axis=1))[:2]
        if len(rows) == 1:
            edge = "first" if side == "target" else "last"
            raise InputError(
                f"{self.events.describe(int(rows[0]))}: {where} is in the {edge} frame of the movie"
            )
        if len(rows):
            named = "; ".join(self.events.describe(int(row)) for row in rows)
            raise InputError(
                f"{where} must be the {side} of exactly one event, but is in: {named}"
            )
        lacks = (
            "fate: nothing leads on from it"
            if side == "source"
            else "history: nothing leads to it"
        )
        raise InputError(
            f"{where} has no {lacks} (a cell that comes or goes needs an appear or disappear)"
        )

    @cached_property
    def sources(self) -> NDArray[np.int32]:
        """(m, 2) the nodes of each event's sources, `NO_NODE` filled up."""
        return self._nodes(self.events.sources, self.events.frame)

    @cached_property
    def targets(self) -> NDArray[np.int32]:
        """(m, 2) the nodes of each event's targets, likewise."""
        return self._nodes(self.events.targets, self.events.end_frames())

    def _nodes(self, labels: Labels, frame: NDArray[np.int64]) -> NDArray[np.int32]:
        """(m, 2) nodes by labels, of a frame for each event."""
        names = np.unique(
            self.label
        )  # ranks instead of labels, for frame × label could overflow
        keys = self.frame * len(names) + np.searchsorted(names, self.label)
        nodes = np.full(labels.shape, NO_NODE, dtype=np.int32)
        for side in range(labels.shape[1]):
            rows = np.flatnonzero(labels[:, side] != NONE)
            wanted, frames = labels[rows, side], frame[rows]
            rank = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
            at = np.minimum(
                np.searchsorted(keys, frames * len(names) + rank), len(keys) - 1
            )
            missing = (
                (self.frame[at] != frames) | (self.label[at] != wanted)
                if len(keys)
                else np.ones(len(rows), dtype=bool)
            )
            if missing.any():
                row = int(np.argmax(missing))
                raise InputError(
                    f"{self.events.describe(int(rows[row]))}: there is no label {wanted[row]} in frame {frames[row]}"
                )
            nodes[rows, side] = at
        return nodes

    @cached_property
    def edges(self) -> Edges:
        """All links between nodes, by event."""
        source = np.repeat(self.sources, 2, axis=1).ravel()
        target = np.tile(self.targets, 2).ravel()
        at = np.flatnonzero((source != NO_NODE) & (target != NO_NODE))
        return Edges(source[at].astype(np.intp), target[at].astype(np.intp), at // 4)

    @cached_property
    def _resolved(self) -> tuple[NDArray[np.int64], Tracks]:
        # Single precision, as in `build_lineage`: identities must not depend on it.
        columns = {
            name: column.astype(np.float32) for name, column in self.columns.items()
        }
        kind = self.events.event
        moves = kind == Event.MOVE
        successor = np.full(len(self.frame), NO_NODE, dtype=np.int32)
        successor[self.sources[moves, 0]] = self.targets[moves, 0]
        first_node = np.searchsorted(self.frame, np.arange(self.n_frames + 1))
        head = find_heads(first_node, successor)
        track, tracks = assign_track_ids(
            self.frame,
            self.position,
            columns,
            head,
            self.events.frame,
            kind,
            self.sources,
            self.targets,
        )
        return track.astype(np.int64), tracks

    def with_tracks(self, track: NDArray[np.int64], tracks: Tracks) -> Lineage:
        """Return the lineage with tracks that were assigned before.

        Parameters
        ----------
        track : ndarray of shape (n,)
            The track of each node.
        tracks : Tracks
        """
        other = replace(self)
        vars(other)["_resolved"] = (track, tracks)
        return other

    @property
    def track(self) -> NDArray[np.int64]:
        """(n,) the track of each node, from 1, in the order of their first nodes."""
        return self._resolved[0]

    @property
    def tracks(self) -> Tracks:
        """The table of tracks, merges and splits resolved as the format of the Cell Tracking Challenge allows."""
        return self._resolved[1]

    def without_recovered(self) -> Lineage:
        """The cells with given masks alone: filled gaps are open again, those of one frame are gaps."""
        is_recovered = np.append(self.columns.get("recovered", np.zeros(0)), 0) > 0
        if self.recovered is None or not is_recovered.any():
            return self
        source, target = self.sources[:, 0], self.targets[:, 0]
        dropped = is_recovered[source] | is_recovered[target]
        is_link = (source != NO_NODE) & (target != NO_NODE)
        leads_in = is_link & is_recovered[target] & ~is_recovered[source]
        leads_out = is_link & is_recovered[source] & ~is_recovered[target]
        back = np.full(len(is_recovered), NO_NODE, dtype=np.int32)
        back[source[leads_out]] = target[leads_out]
        after = back[target[leads_in]]  # NO_NODE where the gap is longer than a frame
        events = self.events
        kind, targets = events.event.copy(), events.targets.copy()
        kind[leads_in] = np.where(after == NO_NODE, Event.DISAPPEAR, Event.GAP)
        targets[leads_in, 0] = np.where(after == NO_NODE, NONE, self.label[after])
        sources = events.sources.copy()
        kind[leads_out], sources[leads_out] = Event.APPEAR, NONE
        is_closed = leads_out & np.isin(target, after[after != NO_NODE])
        kept = (~dropped | leads_in | leads_out) & ~is_closed
        table = EventTable(events.frame, kind, sources, targets)
        nodes = ~is_recovered[:-1]
        return Lineage(
            self.n_frames,
            self.frame[nodes],
            self.label[nodes],
            self.position[nodes],
            table[kept],
            self.confidence[kept],
            {
                name: column[nodes]
                for name, column in self.columns.items()
                if name != "recovered"
            },
            None if self.probability is None else self.probability[kept],
        )

    def counts(self) -> NDArray[np.int64]:
        """(n_frames − 1, 7) how many events of each kind lead from each frame to the next."""
        n_kinds = len(LINEAGE_KINDS)
        shape = (max(self.n_frames - 1, 0), n_kinds)
        flat = self.events.frame * n_kinds + self.events.event
        return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)

    def _count_kinds(self) -> dict[str, int]:
        """Return how many events there are of each kind that occurs."""
        numbers = np.bincount(self.events.event, minlength=len(Event))
        return {
            event.name.lower(): int(numbers[event]) for event in Event if numbers[event]
        }

    def __repr__(self) -> str:
        kinds = ", ".join(f"{n} {kind}" for kind, n in self._count_kinds().items())
        return (
            f"<Lineage: {len(self.frame)} cells in {self.n_frames} frames, "
            f"{kinds or 'no events'}>"
        )

    def _repr_html_(self) -> str:
        """Return a table of the events, for notebooks."""
        kinds = self._count_kinds()
        names = "".join(f"<th>{kind}</th>" for kind in kinds)
        numbers = "".join(f"<td>{n}</td>" for n in kinds.values())
        return (
            f"<p>Lineage: {len(self.frame)} cells in {self.n_frames} frames</p>"
            f"<table><tr>{names}</tr><tr>{numbers}</tr></table>"
        )

    def plot(self, max_tracks: int = 120) -> Figure:
        """Plot the largest families as trees.

        The less certain an event, the thicker and warmer its line.

        Parameters
        ----------
        max_tracks : int
            Largest number of lines.
        """
        from clew.tracking.report.figures import plot_lineage

        return plot_lineage(self, max_tracks)

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with a row for each cell: frame, label, track, position.

        Coordinates are called z, y and x. Further columns are those of `columns`.
        """
        import pandas as pd

        names = ("z", "y", "x")[-self.position.shape[1] :]
        return pd.DataFrame(
            {
                "frame": self.frame,
                "label": self.label,
                "track": self.track,
                **dict(zip(names, self.position.T, strict=True)),
                **self.columns,
            }
        )

    def least_certain(self, n: int) -> Indices:
        """Rows of the `n` events with the least confidence, the least first."""
        n = check_int(n, "n", 0)
        return np.argsort(self.confidence, kind="stable")[:n]

    @cached_property
    def generations(self) -> NDArray[np.int64]:
        """(number of tracks,) how many divisions lead from each track's first ancestor to it."""
        return self.tracks.generations()

    def descendants(self, track: int) -> NDArray[np.int64]:
        """(k,) ids of all tracks that come from one, itself not among them, ascending."""
        track = check_int(track, "track", 1)
        if track not in self.tracks.id:
            raise InputError(
                f"there is no track {track} among the {len(self.tracks.id)} tracks of the lineage"
            )
        found = np.zeros(0, dtype=np.int64)
        newest = np.array([track])
        while len(newest):
            newest = self.tracks.id[np.isin(self.tracks.parent, newest)]
            found = np.concatenate([found, newest])
        return np.sort(found)

    def to_networkx(self) -> nx.DiGraph:
        """A graph of the nodes (frame, label, track, position, columns) and links (event, confidence)."""
        import networkx as nx  # it loads slowly, and tracking does without

        graph = nx.DiGraph()
        columns = {
            "frame": self.frame,
            "label": self.label,
            "track": self.track,
            "position": self.position,
        }
        columns |= self.columns
        lists = {name: np.asarray(column).tolist() for name, column in columns.items()}
        names = list(lists)
        graph.add_nodes_from(
            (node, dict(zip(names, values, strict=True)))
            for node, values in enumerate(zip(*lists.values(), strict=True))
        )
        source, target, event = self.edges
        kinds, confidence = (
            self.events.event[event].tolist(),
            self.confidence[event].tolist(),
        )
        graph.add_edges_from(
            (a, b, {"event": str(Event(kind)), "confidence": sure})
            for a, b, kind, sure in zip(
                source.tolist(), target.tolist(), kinds, confidence, strict=True
            )
        )
        return graph


FRAMES_PER_PART = 16


@dataclass(frozen=True, eq=False)
class LineagePart:
    """Consecutive frames of a lineage: cells, tracks, and the events from them on."""

    frames: tuple[int, int]
    """The first and the last frame."""
    nodes: Nodes
    track: Labels
    """(n,)"""
    events: EventTable
    """(m,) sorted by frame, kind, sources and targets."""
    confidence: Array
    probability: Array | None
    """(m,) that an event is right; None where confidences are not calibrated."""


class PartReader(Protocol):
    """Reads a part where it is needed; it can be sent to another process."""

    @property
    def frames(self) -> tuple[int, int]:
        """The first and the last frame of the part."""

    def read(self) -> LineagePart:
        """Read the part."""


class TrackedMovie(Protocol):
    """A lineage in parts, in order of time."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""

    @property
    def n_cells(self) -> int:
        """Number of detections."""

    @property
    def tracks(self) -> Tracks:
        """The table of tracks."""

    @property
    def recovered(self) -> RecoveredCells | None:
        """Cells without a given mask; None where they were not searched."""

    def readers(self) -> Sequence[PartReader]:
        """Return the parts, not read yet."""

    def lineage(self) -> Lineage:
        """Return the lineage in memory."""


def parts_of(movie: TrackedMovie) -> Iterator[LineagePart]:
    """Read the parts one after the other."""
    return (reader.read() for reader in movie.readers())


def as_parts(movie: Lineage | TrackedMovie) -> TrackedMovie:
    """Return a lineage in parts; one that is in parts is returned as it is."""
    return LineageInParts(movie) if isinstance(movie, Lineage) else movie


@dataclass(frozen=True, eq=False)
class LineageInParts:
    """A lineage in memory as parts of a few frames each."""

    whole: Lineage
    frames_per_part: int = FRAMES_PER_PART

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.whole.n_frames

    @property
    def n_cells(self) -> int:
        """Number of detections."""
        return len(self.whole.frame)

    @property
    def tracks(self) -> Tracks:
        """The table of tracks."""
        return self.whole.tracks

    @property
    def recovered(self) -> RecoveredCells | None:
        """Cells without a given mask."""
        return self.whole.recovered

    def readers(self) -> Sequence[PartReader]:
        """Return slices of the lineage."""
        starts = range(0, max(self.n_frames, 1), self.frames_per_part)
        return [_PartInMemory(self._part(first)) for first in starts]

    def lineage(self) -> Lineage:
        """Return the lineage itself."""
        return self.whole

    def _part(self, first: int) -> LineagePart:
        """The part that begins with a frame."""
        whole = self.whole
        stop = first + self.frames_per_part
        cells = slice(*np.searchsorted(whole.frame, [first, stop]).tolist())
        columns = {name: column[cells] for name, column in whole.columns.items()}
        nodes = Nodes(
            whole.frame[cells], whole.label[cells], whole.position[cells], columns
        )
        inside = (whole.events.frame >= first) & (whole.events.frame < stop)
        rows = np.flatnonzero(inside)
        rows = rows[np.argsort(whole.events.frame[rows], kind="stable")]
        return LineagePart(
            (first, min(stop, max(self.n_frames, 1)) - 1),
            nodes,
            whole.track[cells],
            whole.events[rows],
            whole.confidence[rows],
            None if whole.probability is None else whole.probability[rows],
        )


@dataclass(frozen=True, eq=False)
class _PartInMemory:
    """A part that is in memory."""

    part: LineagePart

    @property
    def frames(self) -> tuple[int, int]:
        """The first and the last frame of the part."""
        return self.part.frames

    def read(self) -> LineagePart:
        """Return the part."""
        return self.part


def join_parts(
    parts: Sequence[LineagePart],
    n_frames: int,
    recovered: RecoveredCells | None = None,
) -> Lineage:
    """Join the parts of a whole movie to a lineage in memory."""
    names = set.intersection(*(set(part.nodes.columns) for part in parts))
    columns = {
        name: np.concatenate([part.nodes.columns[name] for part in parts])
        for name in sorted(names)
    }
    probabilities = [part.probability for part in parts if part.probability is not None]
    return Lineage(
        n_frames,
        np.concatenate([part.nodes.frame for part in parts]),
        np.concatenate([part.nodes.label for part in parts]),
        np.concatenate([part.nodes.position for part in parts]),
        EventTable.join([part.events for part in parts]),
        np.concatenate([part.confidence for part in parts]),
        columns,
        np.concatenate(probabilities) if len(probabilities) == len(parts) else None,
        recovered,
    )

"""Build a lineage from solved frame pairs: all that crosses frame pairs happens here.

Solutions are joined to one graph of detections. Torn masks are repaired, splits told
from divisions, gaps closed and filled, and track ids assigned. A movie of any length is
solved in blocks of frames. Of these, only columns of some 60 bytes a detection are in
memory here; the results are written from them block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Mask
from clew.tracking.detections import Source
from clew.tracking.events import END_OF_FALSE, Annotations, Event, EventTable
from clew.tracking.lineage.fill import GapFiller, RecoveredRuns, fill_gaps
from clew.tracking.lineage.follow import follow_ends
from clew.tracking.lineage.gaps import GapLinks, find_fixed, find_gaps
from clew.tracking.lineage.lineage import (
    KEPT_COLUMNS,
    RECOVERED,
    Lineage,
    LineagePart,
    Nodes,
    RecoveredCells,
    join_parts,
)
from clew.tracking.lineage.links import (
    NO_NODE,
    MovieLinks,
    NodeEvents,
    NodeIds,
    find_heads,
)
from clew.tracking.lineage.splits import (
    classify_splits,
    find_torn_events,
    repair_torn_masks,
)
from clew.tracking.lineage.tracks import Tracks, assign_track_ids
from clew.tracking.measurement.regions import support_directions
from clew.tracking.solve import PairSolution
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    Calibration,
    MovieMargins,
)

LEAST_PROBABILITY = 0.03
"""Of a gap in which images are searched for the cell."""


@dataclass(frozen=True, eq=False)
class SolvedBlock:
    """Cells of consecutive frames, and the events of the pairs that begin with them."""

    frames: range
    links: MovieLinks
    """Nodes count from the first frame on. Those of the next frame, which belongs to the
    next block, come after the last."""
    n_added: int
    """Annotated events that were not candidates by themselves."""

    @classmethod
    def of(
        cls, source: Source, frames: range, solutions: Sequence[PairSolution]
    ) -> Self:
        """Join the solutions of the pairs that begin in some frames."""
        nodes = collect_nodes(source, frames)
        n = len(nodes.label)
        first_node = np.searchsorted(
            nodes.frame, np.arange(frames.start, frames.stop + 1)
        )
        label = nodes.label
        if label.max(initial=0) < 2**31:
            label = label.astype(np.int32)
        successor = np.full(n, NO_NODE, dtype=np.int32)
        move_confidence = np.zeros(n, dtype=np.float32)
        move_context = np.zeros(n, dtype=np.float32)
        others = []
        for pair in solutions:
            events = _number_cells(source, pair, *first_node[pair.frame - frames[0] :])
            moves = events[events.kind == Event.MOVE]
            node = moves.sources[:, 0]
            successor[node] = moves.targets[:, 0]
            move_confidence[node] = moves.confidence
            move_context[node] = moves.context
            others.append(events[events.kind != Event.MOVE])
        links = MovieLinks(
            first_node,
            label,
            nodes.position,
            {name: column.astype(np.float32) for name, column in nodes.columns.items()},
            successor,
            move_confidence,
            move_context,
            NodeEvents.join(others),
            max((pair.weight_norm for pair in solutions), default=1.0),
            max((pair.typical_volume for pair in solutions), default=1.0),
            measure_limits(source, frames),
        )
        return cls(frames, links, sum(pair.n_added for pair in solutions))


def join_blocks(blocks: list[SolvedBlock]) -> MovieLinks:
    """Join the columns of consecutive blocks; the list is emptied to free its memory."""
    parts = [block.links for block in blocks]
    earlier = np.zeros(blocks[0].frames.start, dtype=np.int64)
    counts = np.concatenate([earlier, *(np.diff(part.first_node) for part in parts)])
    first_node = np.append(0, np.cumsum(counts))
    n = int(first_node[-1])
    names = set.intersection(*(set(part.columns) for part in parts))
    wide = np.result_type(*(part.label.dtype for part in parts))
    limits = np.array([part.limits for part in parts])
    links = MovieLinks(
        first_node,
        np.empty(n, dtype=wide),
        np.empty((n, parts[0].position.shape[1])),
        {name: np.empty(n, dtype=np.float32) for name in sorted(names)},
        np.empty(n, dtype=np.int32),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.float32),
        NodeEvents.join([]),
        max(part.weight_norm for part in parts),
        max(part.typical_volume for part in parts),
        np.array([limits[:, 0].min(axis=0), limits[:, 1].max(axis=0)]),
    )
    others = []
    first = 0
    blocks.clear()
    parts.reverse()
    while parts:
        part = parts.pop().shift(first)
        rows = slice(first, first + len(part))
        links.label[rows] = part.label
        links.position[rows] = part.position
        for name, column in links.columns.items():
            column[rows] = part.columns[name]
        links.successor[rows] = part.successor
        links.move_confidence[rows] = part.move_confidence
        links.move_context[rows] = part.move_context
        others.append(part.others)
        first = rows.stop
    return links.with_others(NodeEvents.join(others))


@dataclass(frozen=True, eq=False)
class JoinedPart:
    """Some frames of a joined movie: slices, to be read in any process."""

    frames: tuple[int, int]
    """The first and the last frame."""
    links: MovieLinks
    """With the labels of the next frames, to which events lead."""
    track: NDArray[np.int32]
    calibration: Calibration
    recovered: tuple[NodeIds, Array] | None
    """Recovered cells of these frames and the next, with the probability that they are
    there; None where cells were not searched."""

    def read(self) -> LineagePart:
        """Make the tables of these frames."""
        links = self.links
        n = len(links)
        events, confidence, context, known = self.list_events()
        probability = self.calibration.probability(
            events.event, confidence, links.weight_norm, context
        )
        columns = {
            name: column.astype(np.float64) for name, column in links.columns.items()
        }
        if self.recovered is not None:
            is_recovered = np.isfinite(self._cell_probability()[:n])
            columns[RECOVERED] = is_recovered.astype(np.float64)
        frame = self.frames[0] + links.frame().astype(np.int64)
        label = links.label[:n].astype(np.int64)
        return LineagePart(
            self.frames,
            Nodes(frame, label, links.position, columns),
            self.track.astype(np.int64),
            events,
            confidence,
            np.where(np.isnan(known), probability, known),
        )

    def list_events(self) -> tuple[EventTable, Array, Array, Array]:
        """Return all events, by frame, kind, sources and targets.

        Returns
        -------
        events : EventTable
        confidence, context : ndarray of shape (m,)
            See `NodeEvents`.
        probability : ndarray of shape (m,)
            Of moves of recovered cells; NaN for events that are calibrated.
        """
        links = self.links
        moves = links.list_moves(self.frames[0])
        cells = self._cell_probability()
        before = cells[moves.sources[:, 0]]
        after = cells[moves.targets[:, 0]]
        known = np.where(np.isnan(before), after, before)
        whole = [moves, links.others]
        events = EventTable.join([part.table(links.label) for part in whole])
        order = np.lexsort(
            (
                events.targets[:, 1],
                events.targets[:, 0],
                events.sources[:, 1],
                events.sources[:, 0],
                events.event,
                events.frame,
            )
        )
        return (
            events[order],
            np.concatenate([part.confidence for part in whole])[order],
            np.concatenate([part.context for part in whole])[order],
            np.append(known, np.full(len(links.others), np.nan))[order],
        )

    def _cell_probability(self) -> Array:
        """That recovered cells are there; NaN for given cells."""
        probability = np.full(len(self.links.label), np.nan)
        if self.recovered is not None:
            nodes, known = self.recovered
            probability[nodes] = known
        return probability


@dataclass(frozen=True, eq=False)
class JoinedMovie:
    """The final events and tracks of a movie."""

    links: MovieLinks
    block_frames: Sequence[range]
    """Of each block that was solved."""
    n_added: int
    """Annotated events that were not candidates by themselves."""
    track: NDArray[np.int32]
    """(n,) of each node."""
    tracks: Tracks
    calibration: Calibration
    """Of this movie."""
    recovered: RecoveredCells | None = None
    """None where cells were not searched."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.links.n_frames

    @property
    def n_cells(self) -> int:
        """Number of detections."""
        return len(self.links)

    def readers(self) -> Sequence[JoinedPart]:
        """Return the frames of each block, not read yet."""
        cells = self.recovered
        nodes = np.zeros(0, np.int32)
        if cells is not None:
            nodes = self.links.nodes_of(cells.frame, cells.label)
        parts = []
        for frames in self.block_frames:
            links = self.links.window(frames)
            first = int(self.links.first_node[frames.start])
            recovered = None
            if cells is not None:
                bounds = [first, first + len(links.label)]
                rows = slice(*np.searchsorted(nodes, bounds).tolist())
                recovered = nodes[rows] - first, cells.probability[rows]
            parts.append(
                JoinedPart(
                    (frames.start, frames.stop - 1),
                    links,
                    self.track[first : first + len(links)],
                    self.calibration,
                    recovered,
                )
            )
        return parts

    def lineage(self) -> Lineage:
        """Return the lineage in memory."""
        parts = [reader.read() for reader in self.readers()]
        lineage = join_parts(parts, self.n_frames, self.recovered)
        return lineage.with_tracks(self.track.astype(np.int64), self.tracks)


def join_movie(
    blocks: list[SolvedBlock],
    annotations: Annotations | None = None,
    calibration: Calibration = GENERIC_CALIBRATION,
    max_gap: int | None = 1,
    fill: GapFiller | None = None,
) -> JoinedMovie:
    """Join solved blocks: torn masks, splits and divisions, gaps, and track ids.

    Parameters
    ----------
    blocks : list of SolvedBlock
        Consecutive ones; the list is emptied to free its memory.
    annotations : Annotations, optional
        Annotated gaps are obeyed, and annotated cells are not repaired.
    calibration : Calibration
        Turns confidences into probabilities.
    max_gap : int, optional
        Frames that a cell may be missing; None for `gaps.LONGEST_GAP`.
    fill : GapFiller, optional
        Finds the cells that are missing in gaps. Without it, gaps of one frame are
        events, and longer ones stay open.

    Returns
    -------
    JoinedMovie
    """
    block_frames = [block.frames for block in blocks]
    n_added = sum(block.n_added for block in blocks)
    links = join_events(blocks, annotations)
    others = links.others
    is_torn = find_torn_events(others.kind, others.sources, others.targets).is_torn
    calibration = calibration.of_movie(measure_margins(links, is_torn))
    context = np.where(is_torn, 1.0, others.context)
    links = links.with_others(replace(others, context=context))
    has_images = fill is not None and fill.has_images
    least = LEAST_PROBABILITY if has_images else 0.5
    gaps = find_gaps(links, max_gap, annotations, least_probability=least)
    recovered = None
    if fill is not None:
        links, gaps, recovered = _recover_cells(links, gaps, fill, annotations, max_gap)
    links, false = _settle_false(_close_gaps(links, gaps))
    track, tracks = assign_track_ids(
        links.frame(),
        links.position,
        links.columns,
        find_heads(links.first_node, links.successor),
        links.others.frame,
        links.others.kind,
        links.others.sources,
        links.others.targets,
    )
    if len(false):
        is_false = tracks.is_lone() & np.isin(tracks.id, track[false])
        tracks = replace(tracks, is_false=is_false)
    return JoinedMovie(
        links, block_frames, n_added, track, tracks, calibration, recovered
    )


def _recover_cells(
    links: MovieLinks,
    gaps: GapLinks,
    fill: GapFiller,
    annotations: Annotations | None,
    max_gap: int | None,
) -> tuple[MovieLinks, GapLinks, RecoveredCells]:
    """Fill gaps and follow ends; return the gaps that are left and the new cells."""
    filled = fill_gaps(fill.movie, links, gaps, fill.map_function)
    links, place = insert_runs(links, filled.runs)
    gaps = filled.left.renumber(place)
    cells = filled.runs.cells
    if fill.movie is not None and fill.has_images:
        fixed = find_fixed(links, annotations)
        runs = follow_ends(
            fill.movie, links, filled.runs, fixed, fill.map_function, max_gap
        )
        links, place = insert_runs(links, runs)
        gaps = gaps.renumber(place)
        cells = cells.join(runs.cells)
    return links, gaps, cells


def _settle_false(links: MovieLinks) -> tuple[MovieLinks, NodeIds]:
    """Let false detections appear and disappear; also return their nodes."""
    others = links.others
    kind = others.kind.copy()
    for false, event in END_OF_FALSE.items():
        kind[kind == false] = event
    rows = kind != others.kind
    nodes = np.maximum(others.sources[rows, 0], others.targets[rows, 0])
    return links.with_others(replace(others, kind=kind)), nodes


def join_events(
    blocks: list[SolvedBlock], annotations: Annotations | None = None
) -> MovieLinks:
    """Join blocks, repair torn masks, and tell splits from divisions."""
    return classify_splits(repair_links(join_blocks(blocks), annotations))


def repair_links(links: MovieLinks, annotations: Annotations | None) -> MovieLinks:
    """Repair torn masks, but not annotated cells."""
    fixed_sources = np.zeros(len(links) + 1, dtype=bool)
    fixed_targets = np.zeros(len(links) + 1, dtype=bool)
    if annotations is not None:
        sources, targets = links.event_nodes(annotations.to_pairwise().events)
        fixed_sources[sources] = True
        fixed_targets[targets] = True
    return repair_torn_masks(links, fixed_sources[:-1], fixed_targets[:-1])


def build_lineage(
    source: Source,
    solutions: Sequence[PairSolution],
    annotations: Annotations | None = None,
    calibration: Calibration = GENERIC_CALIBRATION,
) -> Lineage:
    """Build the lineage of a movie from the solutions of all its frame pairs.

    Parameters
    ----------
    source : Source
    solutions : sequence of PairSolution
        In order of time.
    annotations : Annotations, optional
        Of the movie.
    calibration : Calibration
        Turns confidences into probabilities.

    Returns
    -------
    Lineage
    """
    block = SolvedBlock.of(source, range(source.n_frames), solutions)
    return join_movie([block], annotations, calibration).lineage()


def _number_cells(
    source: Source, pair: PairSolution, first_source: int, first_target: int, *_: int
) -> NodeEvents:
    """Events of a pair between cells with numbers from the first of each frame on."""
    events = pair.events
    n = len(events)
    sources = source.detections(pair.frame).rows(events.sources)
    targets = source.detections(pair.frame + 1).rows(events.targets)
    no_margin = np.full(n, np.nan)
    margin = pair.split_score_margin
    return NodeEvents(
        events.frame.astype(np.int32),
        events.event,
        np.where(sources < 0, NO_NODE, sources + first_source).astype(np.int32),
        np.where(targets < 0, NO_NODE, targets + first_target).astype(np.int32),
        pair.confidence,
        no_margin if margin is None else margin,
        np.zeros(n) if pair.context is None else pair.context,
    )


def find_ends(links: MovieLinks, nodes: NodeIds, kind: Event) -> NDArray[np.intp]:
    """Rows of the disappearances or appearances of nodes; −1 where there is none."""
    others = links.others
    rows = np.flatnonzero(others.kind == kind)
    ends = others.sources if kind is Event.DISAPPEAR else others.targets
    if not len(rows):
        return np.full(len(nodes), -1, dtype=np.intp)
    order = np.argsort(ends[rows, 0], kind="stable")
    rows = rows[order]
    at = np.searchsorted(ends[rows, 0], nodes)
    at = np.minimum(at, len(rows) - 1)
    return np.where(ends[rows[at], 0] == nodes, rows[at], -1)


def insert_runs(links: MovieLinks, runs: RecoveredRuns) -> tuple[MovieLinks, NodeIds]:
    """Insert recovered cells with moves through them.

    Returns
    -------
    links : MovieLinks
    place : ndarray of shape (n + 1,)
        New numbers of the old nodes, and of `NO_NODE`.
    """
    cells = runs.cells
    n_added = np.bincount(cells.frame, minlength=links.n_frames)
    before = np.append(0, np.cumsum(n_added))
    first_node = links.first_node + before
    shift = np.repeat(before[:-1], np.diff(links.first_node)).astype(np.int32)
    place = np.append(np.arange(len(links), dtype=np.int32) + shift, NO_NODE)
    if not len(cells):
        return links, place
    rank = np.arange(len(cells)) - np.searchsorted(cells.frame, cells.frame)
    new = (first_node[cells.frame + 1] - n_added[cells.frame] + rank).astype(np.int32)
    n = int(first_node[-1])

    def spread(old: NDArray[Any], added: Any) -> NDArray[Any]:
        """Put rows of old and of added nodes into their new places."""
        whole = np.empty((n, *old.shape[1:]), dtype=old.dtype)
        whole[place[:-1]] = old
        whole[new] = added
        return whole

    # Each run's nodes in order of time: before it, the recovered cells, after it.
    node = np.concatenate([place[runs.source], new, place[runs.target]])
    number = np.arange(len(runs.source))
    run = np.concatenate([number, runs.run, number])
    node, run = node[node != NO_NODE], run[node != NO_NODE]
    order = np.lexsort((node, run))
    node = node[order]
    run = run[order]
    follows = np.flatnonzero(run[1:] == run[:-1])
    source = node[follows]
    target = node[follows + 1]
    confidence = links.weight_norm * runs.confidence[run[follows]]
    first = node[np.searchsorted(run, number)]
    last = node[np.searchsorted(run, number, "right") - 1]

    others = _renumber(links.others, place)
    frame = np.repeat(np.arange(links.n_frames, dtype=np.int32), np.diff(first_node))
    is_kept = np.ones(len(others), dtype=bool)
    for kind, known, other, end in (
        (Event.DISAPPEAR, runs.source, runs.target, last),
        (Event.APPEAR, runs.target, runs.source, first),
    ):
        has_end = known != NO_NODE
        rows = find_ends(links, known[has_end], kind)
        is_outer = other[has_end] == NO_NODE
        is_kept[rows[~is_outer]] = False
        ends = end[has_end][is_outer]
        moved = rows[is_outer]
        others, is_kept[moved] = _move_ends(others, moved, ends, frame, kind)
    kept = np.flatnonzero(is_kept)
    kept = kept[np.argsort(others.frame[kept], kind="stable")]
    successor = spread(place[links.successor], NO_NODE)
    successor[source] = target
    move_confidence = spread(links.move_confidence, 0.0)
    move_confidence[source] = confidence
    wide = np.result_type(links.label.dtype, np.min_scalar_type(cells.label.max()))
    whole = replace(
        links,
        first_node=first_node,
        label=spread(links.label.astype(wide), cells.label),
        position=spread(links.position, cells.position),
        columns={
            name: spread(column, cells.columns[name])
            for name, column in links.columns.items()
        },
        successor=successor,
        move_confidence=move_confidence,
        move_context=spread(links.move_context, 0.0),
        others=others[kept],
    )
    return whole, place


def _move_ends(
    others: NodeEvents,
    rows: NDArray[np.intp],
    ends: NodeIds,
    frame: NDArray[np.int32],
    kind: Event,
) -> tuple[NodeEvents, Mask]:
    """Move disappearances or appearances to other nodes; whether these have them.

    What is in the last frame does not disappear, and what is in the first not appear.
    """
    frames = others.frame.copy()
    if kind is Event.DISAPPEAR:
        sources = others.sources.copy()
        sources[rows, 0] = ends
        frames[rows] = frame[ends]
        moved = replace(others, frame=frames, sources=sources)
        return moved, frame[ends] < frame[-1]
    targets = others.targets.copy()
    targets[rows, 0] = ends
    frames[rows] = frame[ends] - 1
    return replace(others, frame=frames, targets=targets), frame[ends] > 0


def _renumber(events: NodeEvents, place: NodeIds) -> NodeEvents:
    """Events of nodes at new places; the last place is that of `NO_NODE`."""
    return replace(events, sources=place[events.sources], targets=place[events.targets])


def _close_gaps(links: MovieLinks, gaps: GapLinks) -> MovieLinks:
    """Replace the ends of gaps of one frame by events."""
    first = links.first_node
    span = np.searchsorted(first, gaps.target, "right") - np.searchsorted(
        first, gaps.source, "right"
    )
    gaps = gaps[span == Event.GAP.span]
    if not len(gaps.source):
        return links
    others = links.others
    vanishing = find_ends(links, gaps.source, Event.DISAPPEAR)
    emerging = find_ends(links, gaps.target, Event.APPEAR)
    kind = others.kind.copy()
    kind[vanishing] = Event.GAP
    target_nodes = others.targets.copy()
    target_nodes[vanishing, 0] = gaps.target
    confidence = others.confidence.copy()
    confidence[vanishing] = links.weight_norm * gaps.confidence
    kept = np.ones(len(others), dtype=bool)
    kept[emerging] = False
    closed = replace(others, kind=kind, targets=target_nodes, confidence=confidence)
    return links.with_others(closed[kept])


def measure_margins(links: MovieLinks, is_torn: Mask) -> MovieMargins:
    """Return the margins of a movie's events, but for torn masks."""
    confidence = links.move_confidence[links.successor != NO_NODE]
    moves = np.full(len(confidence), Event.MOVE, dtype=np.int8)
    of_moves = MovieMargins.of(moves, confidence, links.weight_norm)
    kind = links.others.kind[~is_torn]
    rest = MovieMargins.of(kind, links.others.confidence[~is_torn], links.weight_norm)
    return MovieMargins.sum([of_moves, rest])


def collect_nodes(source: Source, frames: range) -> Nodes:
    """Return the detections of some frames."""
    cells = [source.detections(t) for t in frames]
    names = [
        name for name in KEPT_COLUMNS if all(name in part.columns for part in cells)
    ]
    columns = {
        name: np.concatenate([np.zeros(0), *(part.columns[name] for part in cells)])
        for name in names
    }
    counts = [len(part) for part in cells]
    none = np.zeros((0, source.ndim))
    return Nodes(
        np.repeat(np.asarray(frames, dtype=np.int64), counts),
        np.concatenate([np.zeros(0, np.int64), *(part.label for part in cells)]),
        np.concatenate([none, *(part.position for part in cells)]),
        columns,
    )


def measure_limits(source: Source, frames: range) -> Array:
    """Return the limits of the boxes of cells, see `MovieLinks.limits`."""
    ndim = source.ndim
    limits = np.array([np.full(ndim, np.inf), np.full(ndim, -np.inf)])
    directions = support_directions(ndim)
    forward = np.argmax(directions, axis=0)
    backward = np.argmin(directions, axis=0)
    for t in frames:
        cells = source.detections(t)
        if not len(cells):
            continue
        end = begin = cells.position
        if "support" in cells.columns:
            end = end + cells.columns["support"][:, forward]
            begin = begin - cells.columns["support"][:, backward]
        limits[0] = np.minimum(limits[0], end.min(axis=0))
        limits[1] = np.maximum(limits[1], begin.max(axis=0))
    return limits

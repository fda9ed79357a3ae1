"""Build a lineage from solved frame pairs: all that crosses frame pairs happens here.

Solutions are joined to one graph of detections. Torn masks are repaired, splits told
from divisions, gaps closed and filled, and track ids assigned. A movie of any length is solved in
blocks of frames, whose results stay in files. Only `MovieLinks` of it, some 50 bytes a
detection, are in memory here; the results are written block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
    """Solved consecutive frame pairs, with the detections of their frames."""

    frames: range
    """The frames whose cells it has; the last frame of its last pair is the first of
    the next block."""
    nodes: Nodes
    """Cells of these frames."""
    events: EventTable
    source_rows: NodeIds
    """(m, 2) rows of the sources in their frames, filled up with −1."""
    target_rows: NodeIds
    """(m, 2) rows of the targets in theirs."""
    confidence: Array
    split_margin: Array
    context: Array
    weight_norm: float
    typical_volume: float
    n_added: int
    """Annotated events that were not candidates by themselves."""
    limits: Array
    """(2, ndim) see `MovieLinks.limits`."""

    @classmethod
    def of(
        cls, source: Source, frames: range, solutions: Sequence[PairSolution]
    ) -> Self:
        """Join the solutions of the pairs that begin in some frames."""
        rows = [_find_rows(source, pair) for pair in solutions]
        none = np.zeros((0, 2), np.int32)
        margins = [
            _or_full(pair.split_score_margin, len(pair.events), np.nan)
            for pair in solutions
        ]
        contexts = [_or_full(pair.context, len(pair.events), 0.0) for pair in solutions]
        return cls(
            frames,
            collect_nodes(source, frames),
            EventTable.join([pair.events for pair in solutions]),
            np.concatenate([none, *(part[0] for part in rows)]),
            np.concatenate([none, *(part[1] for part in rows)]),
            np.concatenate([np.zeros(0), *(pair.confidence for pair in solutions)]),
            np.concatenate([np.zeros(0), *margins]),
            np.concatenate([np.zeros(0), *contexts]),
            max((pair.weight_norm for pair in solutions), default=1.0),
            max((pair.typical_volume for pair in solutions), default=1.0),
            sum(pair.n_added for pair in solutions),
            measure_limits(source, frames),
        )

    def links(self) -> BlockLinks:
        """Return the columns that are joined with those of other blocks."""
        first = self.frames.start
        counts = np.bincount(self.nodes.frame - first, minlength=len(self.frames))
        starts = np.append(0, np.cumsum(counts))
        is_move = self.events.event == Event.MOVE
        moves = np.flatnonzero(is_move)
        node = starts[self.events.frame[moves] - first] + self.source_rows[moves, 0]
        successor = np.full(len(self.nodes.label), NO_NODE, dtype=np.int32)
        successor[node] = self.target_rows[moves, 0]
        move_confidence = np.zeros(len(successor), dtype=np.float32)
        move_confidence[node] = self.confidence[moves]
        label = self.nodes.label
        if not len(label) or label.max() < 2**31:
            label = label.astype(np.int32)
        return BlockLinks(
            self.frames,
            counts,
            label,
            self.nodes.position.astype(np.float32),
            {
                name: column.astype(np.float32)
                for name, column in self.nodes.columns.items()
            },
            successor,
            move_confidence,
            NodeEvents(
                self.events.frame[~is_move].astype(np.int32),
                self.events.event[~is_move],
                self.source_rows[~is_move],
                self.target_rows[~is_move],
                self.confidence[~is_move],
                self.split_margin[~is_move],
                self.context[~is_move],
            ),
            self.weight_norm,
            self.typical_volume,
            self.n_added,
            self.limits,
        )


@dataclass(frozen=True, eq=False)
class BlockLinks:
    """What is joined of a block; sources and targets are rows of their frames."""

    frames: range
    counts: NDArray[np.int64]
    """Cells of each frame."""
    label: NDArray[np.integer[Any]]
    position: NDArray[np.float32]
    columns: Mapping[str, NDArray[np.float32]]
    successor: NodeIds
    move_confidence: NDArray[np.float32]
    others: NodeEvents
    weight_norm: float
    typical_volume: float
    n_added: int
    limits: Array


def join_links(blocks: list[BlockLinks]) -> MovieLinks:
    """Join the columns of consecutive blocks; the list is emptied to free its memory."""
    n_frames = blocks[-1].frames.stop
    counts = np.zeros(n_frames, dtype=np.int64)
    for block in blocks:
        counts[block.frames.start : block.frames.stop] = block.counts
    first_node = np.append(0, np.cumsum(counts))
    n = int(first_node[-1])
    names = set.intersection(*(set(block.columns) for block in blocks))
    wide = np.result_type(*(block.label.dtype for block in blocks))
    label = np.empty(n, dtype=wide)
    position = np.empty((n, blocks[0].position.shape[1]), dtype=np.float32)
    columns = {name: np.empty(n, dtype=np.float32) for name in sorted(names)}
    successor = np.empty(n, dtype=np.int32)
    move_confidence = np.empty(n, dtype=np.float32)
    others = []
    weight_norm = max(block.weight_norm for block in blocks)
    typical_volume = max(block.typical_volume for block in blocks)
    limits = np.array([block.limits for block in blocks])
    limits = np.array([limits[:, 0].min(axis=0), limits[:, 1].max(axis=0)])
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        frames = block.frames
        rows = slice(first_node[frames.start], first_node[frames.stop])
        label[rows] = block.label
        position[rows] = block.position
        for name, column in columns.items():
            column[rows] = block.columns[name]
        next_frame = np.repeat(
            first_node[frames.start + 1 : frames.stop + 1], block.counts
        )
        moves = block.successor != NO_NODE
        successor[rows] = np.where(moves, block.successor + next_frame, NO_NODE)
        move_confidence[rows] = block.move_confidence
        others.append(_number_nodes(block.others, first_node))
    return MovieLinks(
        first_node,
        label,
        position,
        columns,
        successor,
        move_confidence,
        NodeEvents.join(others),
        weight_norm,
        typical_volume,
        limits,
    )


@dataclass(frozen=True, eq=False)
class JoinedMovie:
    """The final events and tracks of a movie, to be merged with its blocks."""

    links: MovieLinks
    context: Array
    """(m,) of `links.others`, see `Calibration.probability`."""
    track: NDArray[np.int32]
    """(n,) of each node."""
    tracks: Tracks
    margins: MovieMargins
    recovered: RecoveredCells | None = None
    """None where cells were not searched."""

    def changes(self, frames: range, calibration: Calibration) -> BlockChanges:
        """Return what the block of some frames takes over."""
        links = self.links
        nodes = slice(links.first_node[frames.start], links.first_node[frames.stop])
        moves = links.changed_moves.within(frames.start, frames.stop)
        rows = slice(
            *np.searchsorted(links.others.frame, [frames.start, frames.stop]).tolist()
        )
        others = links.others[rows]
        is_kept = links.successor[nodes] != NO_NODE
        is_kept[moves.sources[:, 0] - nodes.start] = False
        added = None
        is_given = np.ones(len(is_kept), dtype=bool)
        probability = np.full(len(moves), np.nan)
        if self.recovered is not None:
            cells = self.recovered
            rows_within = np.searchsorted(cells.frame, [frames.start, frames.stop])
            chosen = np.arange(*rows_within.tolist())
            added = cells[chosen]
            is_given[self._recovered_nodes[chosen] - nodes.start] = False
            for side in (moves.targets[:, 0], moves.sources[:, 0]):
                row = np.searchsorted(self._recovered_nodes, side)
                row = np.minimum(row, len(cells) - 1)
                if len(cells):
                    is_cell = self._recovered_nodes[row] == side
                    probability[is_cell] = cells.probability[row[is_cell]]
        return BlockChanges(
            self.track[nodes],
            is_kept[is_given],
            EventTable.join([moves.table(links.label), others.table(links.label)]),
            np.concatenate([moves.confidence, others.confidence]),
            np.concatenate([np.zeros(len(moves)), self.context[rows]]),
            np.append(probability, np.full(len(others), np.nan)),
            calibration,
            links.weight_norm,
            added,
        )

    @cached_property
    def _recovered_nodes(self) -> NDArray[np.int64]:
        """Nodes of the recovered cells, ascending: they are the last of their frames."""
        if self.recovered is None:
            return np.zeros(0, np.int64)
        frame = self.recovered.frame
        from_end = np.searchsorted(frame, frame, "right") - np.arange(len(frame))
        return self.links.first_node[frame + 1] - from_end


def join_movie(
    blocks: list[BlockLinks],
    annotations: Annotations | None = None,
    max_gap: int | None = 1,
    fill: GapFiller | None = None,
) -> JoinedMovie:
    """Join solved blocks: torn masks, splits and divisions, gaps, and track ids.

    Parameters
    ----------
    blocks : list of BlockLinks
        Consecutive ones; the list is emptied to free its memory.
    annotations : Annotations, optional
        Annotated gaps are obeyed, and annotated cells are not repaired.
    max_gap : int, optional
        Frames that a cell may be missing; None for `gaps.LONGEST_GAP`.
    fill : GapFiller, optional
        Finds the cells that are missing in gaps. Without it, gaps of one frame are
        events, and longer ones stay open.

    Returns
    -------
    JoinedMovie
    """
    links = join_events(blocks, annotations)
    others = links.others
    is_torn = find_torn_events(others.kind, others.sources, others.targets).is_torn
    margins = _movie_margins(links, is_torn)
    context = np.where(is_torn, 1.0, others.border)
    has_images = fill is not None and fill.has_images
    least = LEAST_PROBABILITY if has_images else 0.5
    gaps = find_gaps(links, max_gap, annotations, least_probability=least)
    recovered = None
    if fill is not None:
        links, context, gaps, recovered = _recover_cells(
            links, context, gaps, fill, annotations, max_gap
        )
    links, context = _close_gaps(links, gaps, context)
    links, false = _settle_false(links)
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
    return JoinedMovie(links, context, track, tracks, margins, recovered)


def _recover_cells(
    links: MovieLinks,
    context: Array,
    gaps: GapLinks,
    fill: GapFiller,
    annotations: Annotations | None,
    max_gap: int | None,
) -> tuple[MovieLinks, Array, GapLinks, RecoveredCells]:
    """Fill gaps and follow ends; return the gaps that are left and the new cells."""
    filled = fill_gaps(fill.movie, links, gaps, fill.map_function)
    links, context, place = insert_runs(links, context, filled.runs)
    gaps = filled.left.renumber(place)
    cells = filled.runs.cells
    if fill.movie is not None and fill.has_images:
        fixed = find_fixed(links, annotations)
        runs = follow_ends(
            fill.movie, links, filled.runs, fixed, fill.map_function, max_gap
        )
        links, context, place = insert_runs(links, context, runs)
        gaps = gaps.renumber(place)
        cells = cells.join(runs.cells)
    return links, context, gaps, cells


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
    blocks: list[BlockLinks], annotations: Annotations | None = None
) -> MovieLinks:
    """Join blocks, repair torn masks, and tell splits from divisions."""
    links = repair_links(join_links(blocks), annotations)
    return classify_splits(links)


def repair_links(links: MovieLinks, annotations: Annotations | None) -> MovieLinks:
    """Repair torn masks, but not annotated cells."""
    fixed_sources = np.zeros(len(links) + 1, dtype=bool)
    fixed_targets = np.zeros(len(links) + 1, dtype=bool)
    if annotations is not None:
        sources, targets = links.event_nodes(annotations.to_pairwise().events)
        fixed_sources[sources] = True
        fixed_targets[targets] = True
    return repair_torn_masks(links, fixed_sources[:-1], fixed_targets[:-1])


def repair_events(source: Source, solutions: Sequence[PairSolution]) -> EventTable:
    """Return the events of consecutive frame pairs, with torn masks repaired."""
    frames = range(solutions[0].frame, solutions[-1].frame + 2)
    block = SolvedBlock.of(source, frames, solutions)
    links = repair_links(join_links([block.links()]), None)
    nodes = np.arange(len(links), dtype=np.int32)
    moves = np.flatnonzero(links.successor != NO_NODE)
    table = NodeEvents.of_kind(
        Event.MOVE,
        links.frame()[moves],
        nodes[moves],
        links.successor[moves],
        links.move_confidence[moves].astype(np.float64),
    )
    return NodeEvents.join([table, links.others]).table(links.label)


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
    return lineage_of_blocks([block], source.n_frames, annotations, calibration)


def lineage_of_blocks(
    blocks: Sequence[SolvedBlock],
    n_frames: int,
    annotations: Annotations | None = None,
    calibration: Calibration = GENERIC_CALIBRATION,
    max_gap: int | None = 1,
    fill: GapFiller | None = None,
) -> Lineage:
    """Build the lineage of a movie from all its blocks, in memory; see `join_movie`."""
    movie = join_movie([block.links() for block in blocks], annotations, max_gap, fill)
    calibration = calibration.of_movie(movie.margins)
    parts = [
        finish_block(block, movie.changes(block.frames, calibration))
        for block in blocks
    ]
    lineage = join_parts(parts, n_frames, movie.recovered)
    return lineage.with_tracks(movie.track.astype(np.int64), movie.tracks)


@dataclass(frozen=True, eq=False)
class BlockChanges:
    """What a block takes over from the joined movie."""

    track: NDArray[np.int32]
    """(n,) of its cells."""
    is_kept: Mask
    """(n,) whether the move from each cell stays."""
    events: EventTable
    """All events but the moves that stay."""
    confidence: Array
    context: Array
    probability: Array
    """Of moves of recovered cells; NaN for events that the calibration is for."""
    calibration: Calibration
    """Of the movie."""
    weight_norm: float
    recovered: RecoveredCells | None
    """In the frames of the block; None where cells were not searched."""


def finish_block(block: SolvedBlock, changes: BlockChanges) -> LineagePart:
    """Merge a block with its changes."""
    first = block.frames.start
    counts = np.bincount(block.nodes.frame - first, minlength=len(block.frames))
    starts = np.append(0, np.cumsum(counts))
    moves = np.flatnonzero(block.events.event == Event.MOVE)
    node = starts[block.events.frame[moves] - first] + block.source_rows[moves, 0]
    moves = moves[changes.is_kept[node]]
    events = EventTable.join([block.events[moves], changes.events])
    confidence = np.concatenate([block.confidence[moves], changes.confidence])
    context = np.concatenate([block.context[moves], changes.context])
    known = np.append(np.full(len(moves), np.nan), changes.probability)
    order = _sort_order(events)
    events = events[order]
    confidence = confidence[order]
    probability = changes.calibration.probability(
        events.event, confidence, changes.weight_norm, context[order]
    )
    known = known[order]
    probability = np.where(np.isnan(known), probability, known)
    nodes = block.nodes
    if changes.recovered is not None:
        nodes = _add_nodes(nodes, changes.recovered)
    return LineagePart(
        (first, block.frames.stop - 1),
        nodes,
        changes.track.astype(np.int64),
        events,
        confidence,
        probability,
    )


def _add_nodes(nodes: Nodes, cells: RecoveredCells) -> Nodes:
    """Add recovered cells to nodes, and a column that marks them."""
    order = np.argsort(np.append(nodes.frame, cells.frame), kind="stable")
    columns = {
        name: np.append(column, cells.columns[name])[order]
        for name, column in nodes.columns.items()
    }
    is_recovered = np.arange(len(order)) >= len(nodes.frame)
    columns[RECOVERED] = is_recovered[order].astype(np.float64)
    return Nodes(
        np.append(nodes.frame, cells.frame)[order],
        np.append(nodes.label, cells.label)[order],
        np.concatenate([nodes.position, cells.position])[order],
        columns,
    )


def _sort_order(events: EventTable) -> NDArray[np.intp]:
    """Rows in the order of frame, kind, sources and targets."""
    return np.lexsort(
        (
            events.targets[:, 1],
            events.targets[:, 0],
            events.sources[:, 1],
            events.sources[:, 0],
            events.event,
            events.frame,
        )
    )


def _or_full(values: Array | None, n: int, default: float) -> Array:
    """The values, or a default for each of n events."""
    return np.full(n, default) if values is None else values


def _find_rows(source: Source, pair: PairSolution) -> tuple[NodeIds, NodeIds]:
    """Rows of a pair's sources and targets in their frames."""
    sources = source.detections(pair.frame).rows(pair.events.sources)
    targets = source.detections(pair.frame + 1).rows(pair.events.targets)
    return sources.astype(np.int32), targets.astype(np.int32)


def _number_nodes(events: NodeEvents, first_node: NDArray[np.int64]) -> NodeEvents:
    """Events between rows of frames as events between nodes of the movie."""
    before = first_node[events.frame].astype(np.int32)[:, None]
    after = first_node[events.frame + 1].astype(np.int32)[:, None]
    sources = np.where(events.sources < 0, NO_NODE, events.sources + before)
    targets = np.where(events.targets < 0, NO_NODE, events.targets + after)
    return replace(events, sources=sources, targets=targets)


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


def insert_runs(
    links: MovieLinks, context: Array, runs: RecoveredRuns
) -> tuple[MovieLinks, Array, NodeIds]:
    """Insert recovered cells with moves through them.

    Returns
    -------
    links : MovieLinks
    context : ndarray of shape (m,)
        Of `links.others`.
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
        return links, context, place
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
    moves = NodeEvents.of_kind(Event.MOVE, frame[source], source, target, confidence)
    changed = _renumber(links.changed_moves, place)
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
        others=others[kept],
        changed_moves=NodeEvents.join([changed, moves]),
    )
    return whole, context[kept], place


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


def _close_gaps(
    links: MovieLinks, gaps: GapLinks, context: Array
) -> tuple[MovieLinks, Array]:
    """Replace the ends of gaps of one frame by events; contexts stay with theirs."""
    first = links.first_node
    span = np.searchsorted(first, gaps.target, "right") - np.searchsorted(
        first, gaps.source, "right"
    )
    gaps = gaps[span == Event.GAP.span]
    if not len(gaps.source):
        return links, context
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
    return links.with_others(closed[kept]), context[kept]


def _movie_margins(links: MovieLinks, is_torn: Mask) -> MovieMargins:
    """The margins of a movie's events, but for torn masks."""
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

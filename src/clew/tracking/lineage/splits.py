"""Tell torn masks, splits and divisions apart, by what happens over several frames.

Between two frames, a torn mask and two touching cells both look like a split or merge.
Over three frames they differ: one detection that becomes two and one again was torn,
and two that become one and two again were segmented as one. Sizes say more: a detection
that becomes two is a single cell if its volume, before and after, is nearer to the
typical one than to twice that. If one of the two parts is gone in the next frame, the
other was a piece if it then has the volume of the whole again. Such a cell moves on, by
its larger piece, and the smaller piece is a fault.

Over a whole movie, a detection that cells merged into holds several, and one that holds
a single cell cannot split. As in conservation tracking (Schiegg et al., ICCV 2013) the
number of cells is carried from frame to frame. Instead of one program for the movie, the
pairwise solutions are visited once in order of time, and an event with one source and
two targets is called a split or a division by its score margin, by the size of its
parts, and by what happened before. Both take the same detections, so that nothing else
changes. A mask that is torn for one frame holds as many cells as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy  # its submodules load on use, and scipy.optimize takes a second
from numpy.typing import NDArray
from scipy.special import expit

from clew.learning.task import Array, Indices, Mask
from clew.tracking.events import NONE, Event, EventTable
from clew.tracking.lineage.links import (
    NO_NODE,
    MovieLinks,
    NodeEvents,
    NodeIds,
    is_one_of,
)
from clew.tracking.training.generic_weights import (
    MERGED_BEFORE,
    NOT_MERGED_BEFORE,
    PART_RANK,
    SPLIT_SLOPE,
)

PARTING = (Event.DIVIDE, Event.SPLIT)
"""Kinds with one source and two targets."""
TEARING = (*PARTING, Event.MERGE)


class TornEvents(NamedTuple):
    """Events of masks that are torn for one frame, (m,) each."""

    is_torn: Mask
    """Whether an event tears a mask, or puts it together again."""
    torn_node: Indices
    """The node that was torn, of an event that puts it together; −1 for others."""


def find_torn_events(
    kind: NDArray[np.int8],
    sources: NDArray[np.signedinteger[Any]],
    targets: NDArray[np.signedinteger[Any]],
) -> TornEvents:
    """Find the events of masks that are torn for one frame.

    A merge puts together what came from one source in the frame pair before, unless its
    target parts in the next: then two cells may have been segmented as one. Likewise
    for a detection that parts and merges again.

    Parameters
    ----------
    kind : ndarray of shape (m,)
        Values of `Event`; all but `TEARING` ones may be missing.
    sources, targets : ndarray of shape (m, 2)
        Numbers of the detections, −1 for none.

    Returns
    -------
    TornEvents
    """
    is_torn = np.zeros(len(kind), dtype=bool)
    torn_node = np.full(len(kind), -1, dtype=np.intp)
    rows = np.flatnonzero(is_one_of(kind, TEARING))
    if not len(rows):
        return TornEvents(is_torn, torn_node)

    # Row of the event that leads to each node and from it; the last place is for −1.
    nodes, numbers = np.unique(
        np.hstack([sources[rows], targets[rows]]), return_inverse=True
    )
    numbers = numbers.reshape(len(rows), 4)
    numbers[nodes[numbers] < 0] = len(nodes)
    source, target = numbers[:, :2], numbers[:, 2:]
    event_to = np.full(len(nodes) + 1, -1)
    event_from = np.full(len(nodes) + 1, -1)
    event_to[target] = np.arange(len(rows))[:, None]
    event_from[source] = np.arange(len(rows))[:, None]
    event_to[-1] = -1
    event_from[-1] = -1

    tearing_kind = np.append(kind[rows], -1)
    merges = np.flatnonzero(tearing_kind[:-1] == Event.MERGE)
    before = event_to[source[merges]]
    is_same = (before[:, 0] == before[:, 1]) & (before[:, 0] >= 0)
    joining = merges[is_same]
    parting = before[is_same, 0]
    parts_next = is_one_of(tearing_kind[event_from[target[joining, 0]]], PARTING)
    merged_before = tearing_kind[event_to[source[parting, 0]]] == Event.MERGE
    is_torn[rows[joining]] = ~parts_next
    is_torn[rows[parting]] = ~merged_before
    torn_node[rows[joining]] = np.where(parts_next, -1, sources[rows[parting], 0])
    return TornEvents(is_torn, torn_node)


def repair_torn_masks(
    links: MovieLinks, fixed_sources: Mask, fixed_targets: Mask
) -> MovieLinks:
    """Let cells whose masks are torn for one frame move on by their larger piece.

    The confidence of these events is the evidence of the volumes times the norm of the
    weights.

    Parameters
    ----------
    links : MovieLinks
    fixed_sources, fixed_targets : ndarray of shape (n,)
        Nodes whose fate, or whose history, must stay as it is.

    Returns
    -------
    MovieLinks
    """
    others = links.others
    if not is_one_of(others.kind, PARTING).any():
        return links
    torn = _find_torn_masks(links, fixed_sources, fixed_targets)
    if not len(torn.parting):
        return links
    confidence = links.weight_norm * torn.evidence
    whole = others.sources[torn.parting, 0]
    frame = others.frame[torn.parting]

    successor = links.successor.copy()
    successor[torn.smaller] = NO_NODE
    successor[whole] = torn.larger
    successor[torn.larger] = torn.after
    move_confidence = links.move_confidence.copy()
    move_confidence[whole] = confidence
    move_confidence[torn.larger] = confidence
    move_context = links.move_context.copy()
    move_context[whole] = 0.0
    move_context[torn.larger] = 0.0

    replaced = np.zeros(len(others), dtype=bool)
    replaced[torn.parting] = True
    replaced[torn.ending] = True

    def events(kind: Event, frame: Any, source: Any, target: Any) -> NodeEvents:
        return NodeEvents.of_kind(kind, frame, source, target, confidence)

    piece = [
        events(Event.APPEAR, frame, None, torn.smaller),
        events(Event.DISAPPEAR, frame + 1, torn.smaller, None),
    ]
    return replace(
        links,
        successor=successor,
        move_confidence=move_confidence,
        move_context=move_context,
        others=NodeEvents.join([others[~replaced], *piece]),
    )


class _TornMasks(NamedTuple):
    """Masks that are torn for one frame, (k,) each."""

    parting: Indices
    """Row of the event by which a mask parts."""
    ending: Indices
    """Row of the merge of its pieces, or of the disappearance of one of them."""
    larger: NodeIds
    smaller: NodeIds
    after: NodeIds
    """The whole mask in the third frame."""
    evidence: Array
    """Log ratio by which volumes favor one cell over two; positive."""


def _find_torn_masks(
    links: MovieLinks, fixed_sources: Mask, fixed_targets: Mask
) -> _TornMasks:
    """Masks that are torn according to their volumes."""
    others = links.others
    parting = np.flatnonzero(is_one_of(others.kind, PARTING))
    event_from = np.full(len(links) + 1, -1, dtype=np.int32)
    event_from[others.sources] = np.arange(len(others), dtype=np.int32)[:, None]
    event_from[-1] = -1
    kind = np.append(others.kind, -1)

    # The first piece is the one that goes on, if the other disappears.
    whole = others.sources[parting, 0]
    parts = others.targets[parting]
    first_is_gone = kind[event_from[parts[:, :1]]] == Event.DISAPPEAR
    parts = np.where(first_is_gone, parts[:, ::-1], parts)
    rows = event_from[parts]
    merges = (rows[:, 0] == rows[:, 1]) & (kind[rows[:, 0]] == Event.MERGE)
    successor = links.successor[parts[:, 0]]
    ends = (successor != NO_NODE) & (kind[rows[:, 1]] == Event.DISAPPEAR)
    after = np.where(merges, others.targets[rows[:, 0], 0], successor)
    after = np.where(merges | ends, after, NO_NODE)

    # One cell rather than two, and whole again rather than still a piece.
    volume = links.relative_volume(parts)
    before_volume = links.relative_volume(whole)
    after_volume = links.relative_volume(after)
    evidence = np.log(2 / (before_volume * after_volume))
    is_whole = np.log(after_volume**2 / (before_volume * volume[:, 0]))
    evidence = np.where(merges, evidence, np.minimum(evidence, is_whole))

    fate_fixed = np.append(fixed_sources, False)
    history_fixed = np.append(fixed_targets, False)
    is_fixed = (
        fate_fixed[whole]
        | fate_fixed[parts].any(axis=1)
        | history_fixed[parts].any(axis=1)
        | history_fixed[after]
    )
    torn = (merges | ends) & (evidence > 0) & ~is_fixed

    pieces = parts[torn]
    is_swapped = volume[torn, 0] < volume[torn, 1]
    pieces = np.where(is_swapped[:, None], pieces[:, ::-1], pieces)
    return _TornMasks(
        parting[torn],
        rows[torn, 1],
        pieces[:, 0],
        pieces[:, 1],
        after[torn],
        evidence[torn],
    )


def number_detections(events: EventTable) -> tuple[Indices, Indices]:
    """Return a number for each detection of events, −1 for none, (m, 2) each."""
    cells = np.concatenate([events.sources, events.targets], axis=1)
    exists = cells != NONE
    # Ranks of labels, since frame × label could overflow.
    labels, rank = np.unique(cells[exists], return_inverse=True)
    frame = (events.frame[:, None] + np.array([0, 0, 1, 1]))[exists]
    keys = frame * len(labels) + rank.ravel()
    numbers = np.full(cells.shape, -1, dtype=np.intp)
    numbers[exists] = np.unique(keys, return_inverse=True)[1].ravel()
    return numbers[:, :2], numbers[:, 2:]


UNKNOWN = 0
"""Cells of the first frame, and those that appear, may be several. Above is the number
of cells that merged into another."""
SINGLE = -1
"""A cell that came out of a division."""
TYPICAL_RANK = 0.25
"""About the mean rank of parts; stands for unknown ones."""


def split_margin_from_rank(rank: Array) -> Array:
    """Return what the size of the smaller part adds to the margin of a split, (n,).

    Daughters are among the smallest cells of a movie; parts of a mask that held two
    cells have any size. A rank means the same for cells that grow until they divide and
    for those that only get smaller, as in embryos.

    Parameters
    ----------
    rank : ndarray of shape (n,)
        Share of the cells before that are smaller; NaN where unknown.

    Returns
    -------
    margin : ndarray of shape (n,)
        In norms of the weights.
    """
    return PART_RANK * (np.nan_to_num(rank, nan=TYPICAL_RANK) - TYPICAL_RANK)


def has_mask_faults(kind: NDArray[np.int8]) -> bool:
    """Whether there are splits or merges among the kinds of events."""
    return bool(is_one_of(kind, (Event.SPLIT, Event.MERGE)).any())


def classify_splits(links: MovieLinks) -> MovieLinks:
    """Call events with one source and two targets splits or divisions by their past.

    A movie without splits and merges is returned unchanged.
    """
    others = links.others
    if not has_mask_faults(others.kind):
        return links
    norm = links.weight_norm
    torn = find_torn_events(others.kind, others.sources, others.targets)
    counted = count_cells(links, torn)
    n_merges = int((others.kind[~torn.is_torn] == Event.MERGE).sum())
    bias = conservation_bias(counted.margin[~torn.is_torn], n_merges)
    if bias:
        counted = count_cells(links, torn, bias)
    confidence = np.where(
        np.isfinite(others.split_margin),
        np.minimum(others.confidence, norm * np.abs(counted.margin)),
        others.confidence,
    )
    return links.with_others(replace(others, kind=counted.kind, confidence=confidence))


class CellCounts(NamedTuple):
    """What the numbers of cells say about the events of a movie, (m,) each."""

    kind: NDArray[np.int8]
    is_merged: Mask
    """Whether the source is known to hold several cells."""
    margin: Array
    """By how much an event is rather a split, in norms of the weights; NaN where the
    kind is fixed."""


def count_cells(links: MovieLinks, torn: TornEvents, bias: float = 0.0) -> CellCounts:
    """Carry the number of cells of each detection through the movie.

    Parameters
    ----------
    links : MovieLinks
    torn : TornEvents
        Of `links.others`.
    bias : float
        Added to all margins.

    Returns
    -------
    CellCounts
        Of `links.others`.
    """
    others = links.others
    score_margin = others.split_margin / (links.weight_norm or 1.0)
    kind = others.kind.copy()
    margin = np.full(len(kind), np.nan)
    is_merged = np.zeros(len(kind), dtype=bool)
    # Joining the pieces of a torn mask continues the mask, as a move does.
    is_joining = torn.torn_node >= 0
    sources = others.sources.copy()
    sources[is_joining, 0] = torn.torn_node[is_joining]
    sources[is_joining, 1] = -1

    held = np.full(len(links) + 1, UNKNOWN, dtype=np.int32)
    bounds = np.searchsorted(others.frame, np.arange(links.n_frames + 1))
    for frame in range(links.n_frames):
        start, stop = links.first_node[frame : frame + 2]
        successor = links.successor[start:stop]
        moves = np.flatnonzero(successor >= 0)
        held[successor[moves]] = held[start + moves]

        rows = np.arange(bounds[frame], bounds[frame + 1])
        if not len(rows):
            continue
        cells = held[sources[rows]]
        is_merged[rows] = cells[:, 0] > UNKNOWN
        open_rows = rows[np.isfinite(score_margin[rows])]
        past = np.where(is_merged[open_rows], MERGED_BEFORE, NOT_MERGED_BEFORE)
        margin[open_rows] = score_margin[open_rows] + bias + past
        is_split = (margin[open_rows] > 0) | torn.is_torn[open_rows]
        kind[open_rows] = np.where(is_split, Event.SPLIT, Event.DIVIDE)
        effect = np.where(is_joining[rows], Event.MOVE, kind[rows])
        held[others.targets[rows]] = _count_targets(effect, cells)[:, None]
        held[-1] = UNKNOWN
    return CellCounts(kind, is_merged, margin)


def conservation_bias(margin: Array, n_merges: int) -> float:
    """Return the bias, at most 0, by which no more splits are expected than merges.

    Cells are conserved: what splits has merged before. Where weights predict many more
    splits than merges, as on cells whose divisions they do not know, the odds are
    adjusted to the rate of merges (Saerens et al. 2002), up to chance.
    """
    margin = margin[np.isfinite(margin)]
    allowed = n_merges + 2 * np.sqrt(n_merges + 1)

    def surplus(bias: float) -> float:
        return float(expit(SPLIT_SLOPE * (margin + bias)).sum() - allowed)

    if surplus(0.0) <= 0:
        return 0.0
    lowest = -float(margin.max()) - 50 / SPLIT_SLOPE  # all odds are under e⁻⁵⁰ there
    return float(scipy.optimize.brentq(surplus, lowest, 0.0, xtol=1e-9))


def _count_targets(kind: NDArray[np.int8], cells: NodeIds) -> NodeIds:
    """The number of cells of each event's targets, given those (n, 2) of its sources."""
    merged = np.maximum(cells, UNKNOWN).sum(axis=1)
    count = cells[:, 0].copy()
    count[kind == Event.APPEAR] = UNKNOWN
    is_merge = kind == Event.MERGE
    count[is_merge] = merged[is_merge] + 1
    # Of three cells it is unknown which part holds two.
    parts = is_one_of(kind, PARTING)
    count[parts] = np.where(merged[parts] > 1, UNKNOWN, SINGLE)
    return count

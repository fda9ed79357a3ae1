"""Repair masks that are torn for one frame.

Between two frames, a torn mask and two touching cells both look like a split or merge.
Over three frames they differ: one detection that becomes two and one again was torn,
and two that become one and two again were segmented as one.

Sizes say more. A detection that becomes two is a single cell if its volume, before and
after, is nearer to the typical one than to twice that. If one of the two parts is gone
in the next frame, the other was a piece if it then has the volume of the whole again.
Such a cell moves on, by its larger piece, and the smaller piece is a fault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.learning.task import Array, Indices, Mask
from clew.tracking.events import NONE, Event, EventTable
from clew.tracking.lineage.links import (
    NO_NODE,
    MovieLinks,
    NodeEvents,
    NodeIds,
    is_one_of,
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
    torn = _find_torn_masks(links, fixed_sources, fixed_targets)
    if not len(torn.parting):
        return links
    others = links.others
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

    replaced = np.zeros(len(others), dtype=bool)
    replaced[torn.parting] = True
    replaced[torn.ending] = True

    def events(kind: Event, frame: Any, source: Any, target: Any) -> NodeEvents:
        return NodeEvents.of_kind(kind, frame, source, target, confidence)

    moves = [
        events(Event.MOVE, frame, whole, torn.larger),
        events(Event.MOVE, frame + 1, torn.larger, torn.after),
    ]
    piece = [
        events(Event.APPEAR, frame, None, torn.smaller),
        events(Event.DISAPPEAR, frame + 1, torn.smaller, None),
    ]
    return replace(
        links,
        successor=successor,
        move_confidence=move_confidence,
        others=NodeEvents.join([others[~replaced], *piece]),
        changed_moves=NodeEvents.join(moves),
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
    volume = links.relative_volume()
    successor = np.append(links.successor, NO_NODE)
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
    moves = successor[parts[:, 0]] >= 0
    ends = moves & (kind[rows[:, 1]] == Event.DISAPPEAR)
    after = np.where(merges, others.targets[rows[:, 0], 0], successor[parts[:, 0]])
    after = np.where(merges | ends, after, NO_NODE)

    # One cell rather than two, and whole again rather than still a piece.
    evidence = np.log(2 / (volume[whole] * volume[after]))
    is_whole = np.log(volume[after] ** 2 / (volume[whole] * volume[parts[:, 0]]))
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
    is_swapped = volume[pieces[:, 0]] < volume[pieces[:, 1]]
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

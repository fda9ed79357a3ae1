"""From links between cells to events: a graph of tracks says who leads to whom, and what happened follows from it."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from clew.errors import DataWarning, InputError
from clew.learning.task import Indices, Mask
from clew.tracking.events import NONE, Event, EventTable, Labels
from clew.tracking.lineage.tracks import MAX_CHILDREN


def events_of_links(
    frame: NDArray[np.int64],
    label: Labels,
    source: Indices,
    target: Indices,
    *,
    split: NDArray[np.bool_],
    frames: tuple[int, int],
    where: str,
) -> tuple[EventTable, Indices, Indices]:
    """The events of nodes (n,) with links (k,) between them, and the link or node that each comes from.

    One link is a move, two out of one node are a division (a split where either link is marked so in `split` (k,)),
    two into one node a merge; one link over two frames is a gap. A node without a link to it appears, one without a
    link from it disappears, unless it lies in the first or last of the `frames`. A link over more frames is no event,
    nor are links to three or more cells (a warning lists them), and their ends neither appear nor disappear. Returned
    beside the events: (m,) their links, −1 for none, and (m,) their nodes, likewise.
    """
    nodes = _Nodes(frame, label, where)
    gap = frame[target] - frame[source]
    nodes.refuse(
        source[gap <= 0],
        "has a link to a cell that is not later; links lead forward in time",
    )
    histories, fates = (
        np.bincount(target, minlength=len(frame)),
        np.bincount(source, minlength=len(frame)),
    )
    nodes.warn(
        np.flatnonzero(fates > MAX_CHILDREN),
        "has links to more than two cells, which counts as unknown",
    )
    nodes.refuse(
        np.flatnonzero(histories > 2),
        "has links from more than two cells; two can merge at most",
    )
    out, into = fates[source], histories[target]
    nodes.refuse(
        source[(out == 2) & (into == 2)],
        "divides into a cell that is also the outcome of a merge",
    )

    near = (gap == 1) & (out <= MAX_CHILDREN)
    single = np.flatnonzero(near & (out == 1) & (into == 1))
    over = np.flatnonzero((gap == Event.GAP.span) & (out == 1) & (into == 1))
    fork = _pairs(np.flatnonzero(out == 2), source, near)
    join = _pairs(np.flatnonzero(into == 2), target, near)
    fresh = np.flatnonzero((histories == 0) & (frame > frames[0]))
    gone = np.flatnonzero((fates == 0) & (frame < frames[1]))

    none, no_link = np.full(len(frame), NONE), np.full(len(frame), -1)
    one = np.column_stack([label, none])  # (n, 2) a node's label alone
    kind = np.where(split[fork].any(axis=1), Event.SPLIT, Event.DIVIDE).astype(np.int8)
    parts = [
        (
            frame[source[single]],
            np.full(len(single), Event.MOVE),
            one[source[single]],
            one[target[single]],
            single,
        ),
        (
            frame[source[over]],
            np.full(len(over), Event.GAP),
            one[source[over]],
            one[target[over]],
            over,
        ),
        (
            frame[source[fork[:, 0]]],
            kind,
            one[source[fork[:, 0]]],
            np.sort(label[target[fork]], axis=1),
            fork[:, 0],
        ),
        (
            frame[source[join[:, 0]]],
            np.full(len(join), Event.MERGE),
            np.sort(label[source[join]], axis=1),
            one[target[join[:, 0]]],
            join[:, 0],
        ),
        (
            frame[fresh] - 1,
            np.full(len(fresh), Event.APPEAR),
            0 * one[fresh],
            one[fresh],
            no_link[fresh],
        ),
        (
            frame[gone],
            np.full(len(gone), Event.DISAPPEAR),
            one[gone],
            0 * one[gone],
            no_link[gone],
        ),
    ]
    t, event, sources, targets, link = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    node = np.concatenate([np.full(len(t) - len(fresh) - len(gone), -1), fresh, gone])
    order = np.argsort(t, kind="stable")
    table = EventTable(
        t[order], event[order].astype(np.int8), sources[order], targets[order]
    )
    return table, link[order], node[order]


class _Nodes:
    """Names of nodes, for messages."""

    def __init__(self, frame: NDArray[np.int64], label: Labels, where: str) -> None:
        self.frame, self.label, self.where = frame, label, where

    def refuse(self, nodes: Indices, what: str) -> None:
        """Raise if there are any of these nodes."""
        if len(nodes):
            raise InputError(self._tell(nodes, what))

    def warn(self, nodes: Indices, what: str) -> None:
        """Warn if there are any of these nodes."""
        if len(nodes):
            warnings.warn(self._tell(nodes, what), DataWarning, stacklevel=4)

    def _tell(self, nodes: Indices, what: str) -> str:
        more = f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""
        return f"{self.where}: label {self.label[nodes[0]]} in frame {self.frame[nodes[0]]} {what}{more}"


def _pairs(links: Indices, end: Indices, near: Mask) -> Indices:
    """(p, 2) the links that share an end, in twos; those of which one is over a gap or one of many are no event."""
    pairs: Indices = links[np.argsort(end[links], kind="stable")].reshape(-1, 2)
    events: Indices = pairs[near[pairs].all(axis=1)]
    return events

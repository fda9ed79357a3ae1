"""Tell splits from divisions by the number of cells that a detection holds.

Between two frames a split and a division look alike. Over a whole movie they do not: a
detection that cells merged into holds several, and one that holds a single cell cannot
split. As in conservation tracking (Schiegg et al., ICCV 2013) the number of cells is
carried from frame to frame. Instead of one program for the movie, the pairwise
solutions are visited once in order of time, and an event with one source and two
targets is called a split or a division by its score margin, by the size of its parts,
and by what happened before. Both take the same detections, so that nothing else
changes. A mask that is torn for one frame holds as many cells as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy  # its submodules load on use, and scipy.optimize takes a second
from numpy.typing import NDArray
from scipy.special import expit

from clew.learning.task import Array, Mask
from clew.tracking.events import Event
from clew.tracking.lineage.links import MovieLinks, NodeIds, is_one_of
from clew.tracking.lineage.repair import PARTING, TornEvents, find_torn_events
from clew.tracking.training.generic_weights import (
    MERGED_BEFORE,
    NOT_MERGED_BEFORE,
    PART_RANK,
    SPLIT_SLOPE,
)

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

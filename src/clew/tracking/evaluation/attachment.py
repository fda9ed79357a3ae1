"""Attach the cells of a lineage to the detections of a movie.

Masks are compared with masks, see `matching`. Points are attached by the labels of
the file if these are the labels of the movie, else by place: a point and a detection
belong together if each is the nearest of the other, and they are at most a distance
apart. By default this is half the median distance between neighboring detections. A
point without such a detection is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from clew.errors import InputError
from clew.learning.task import Array, Mask
from clew.parallel import Progress
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.matching import (
    FrameMatch,
    LabelSource,
    count_matched_cells,
    estimate_distance,
    make_cell_reader,
    match_frames,
    warn_if_few_matched,
)
from clew.tracking.events import NONE, Labels
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.io.tables import check_spacing
from clew.tracking.lineage.tracks import NO_PARENT
from clew.tracking.measurement.regions import measure_frame
from clew.utils.validation import check_positive

SHARED_LABELS = 0.9
"""Share of labels that the movie must have for a file to be attached by labels."""
COMPLETE_SHARE = 0.98
"""A lineage with this share of the detections counts as complete. It is strict,
since a false end of a track does more harm than a missing one."""

Cells = tuple[Labels, Array]


@dataclass(frozen=True, eq=False)
class Attachment:
    """The cells of a lineage and the detections that belong to them.

    Attributes
    ----------
    matched : list of FrameMatch
        For each frame of the movie.
    how : str
        How cells were attached, in words.
    has_every_detection : bool
        Whether the lineage has nearly every detection of the movie.
    """

    matched: list[FrameMatch]
    how: str
    has_every_detection: bool

    def list_unattached(self) -> tuple[Labels, Labels]:
        """Frames and tracks of the cells without a detection."""
        counts = [int((frame.holder == NONE).sum()) for frame in self.matched]
        tracks = [frame.cell[frame.holder == NONE] for frame in self.matched]
        frames = np.repeat(np.arange(len(self.matched)), counts)
        return frames.astype(np.int64), np.concatenate([np.zeros(0, np.int64), *tracks])

    def __str__(self) -> str:
        n_attached, n = count_matched_cells(self.matched)
        return f"{n_attached:,} of {n:,} cells attached to detections by {self.how}"


def attach_lineage(
    lineage: CtcLineage | PointLineage,
    movie: LabelSource | DetectionTable,
    progress: Progress | None = None,
    distance: float | None = None,
) -> Attachment:
    """Attach the cells of a lineage to the detections of a movie.

    Parameters
    ----------
    lineage : CtcLineage or PointLineage
    movie : Movie or DetectionTable
    progress : callable, optional
        Called with the number of frames done and in all.
    distance : float, optional
        Largest distance of a point and its detection; estimated by default.

    Returns
    -------
    attachment : Attachment
    """
    n = movie.n_frames
    has_masks = isinstance(lineage, CtcLineage)
    if lineage.n_frames > n or (has_masks and lineage.n_frames != n):
        raise InputError(
            f"{lineage.source} has {lineage.n_frames} frames, the movie {n}; it must be "
            "the truth of this movie"
        )
    if isinstance(lineage, CtcLineage) and not isinstance(movie, DetectionTable):
        return Attachment(match_frames(lineage, movie, progress), "masks", True)
    reader = _make_movie_reader(movie)
    spacing = getattr(movie, "spacing", None)
    read_cells = make_cell_reader(lineage, spacing if has_masks else None)
    cells = [read_cells(t) for t in range(n)]
    found = []
    for t, (ids, position) in enumerate(cells):
        empty = (np.zeros(0, np.int64), np.zeros((0, position.shape[1])))
        found.append(reader(t) if len(ids) else empty)
        if progress is not None:
            progress(t + 1, n)
    matched, how = _attach_points(lineage, cells, found, spacing, distance)
    has_every = _has_every_detection(lineage, matched, cells, found, reader)
    return Attachment(matched, how, has_every)


def _attach_points(
    lineage: CtcLineage | PointLineage,
    cells: list[Cells],
    found: list[Cells],
    spacing: tuple[float, ...] | None,
    distance: float | None,
) -> tuple[list[FrameMatch], str]:
    """Attach all frames by labels or by place; also say how."""
    ndims = {position.shape[1] for _, position in (*cells, *found)}
    if len(ndims) > 1:
        raise InputError(
            f"{lineage.source} and the movie have positions of different dimensions; "
            "expected both in 2D or 3D"
        )
    if distance is None:
        distance = estimate_distance(found)
    distance = check_positive(distance, "distance")
    scales = [np.ones(ndims.pop())]
    if isinstance(lineage, PointLineage) and spacing is not None:
        is_physical = lineage.is_physical or lineage.made_from is not None
        sizes = check_spacing(spacing, len(scales[0]))
        scales += [] if is_physical else [sizes]
    attempts = [_attach_by_place(cells, found, scale, distance) for scale in scales]
    counts = [count_matched_cells(matched)[0] for matched in attempts]
    best = int(np.argmax(counts))
    how = f"position, at most {distance:.3g} apart"
    if best:
        how += ", positions taken as pixels"
    if isinstance(lineage, PointLineage) and lineage.label is not None:
        by_label = _attach_by_label(lineage, cells, found)
        if _have_same_labels(by_label, attempts[best]):
            return by_label, "label"
    warn_if_few_matched(attempts[best], cells, found, distance)
    return attempts[best], how


def _make_movie_reader(movie: LabelSource | DetectionTable) -> Callable[[int], Cells]:
    """Make a function that gives the labels and positions of a frame."""

    def read_detections(t: int) -> Cells:
        if isinstance(movie, DetectionTable):
            detections = movie.detections(t)
        else:
            label = movie.label(t)
            sizes = getattr(movie, "spacing", None) or (1.0,) * label.ndim
            detections = measure_frame(t, label, None, sizes)
        return detections.label, detections.position

    return read_detections


def _attach_by_place(
    cells: list[Cells], found: list[Cells], scale: Array, distance: float
) -> list[FrameMatch]:
    """Attach points to detections that are mutually nearest."""
    matched = []
    for (ids, position), (label, place) in zip(cells, found, strict=True):
        holder = np.full(len(ids), NONE, dtype=np.int64)
        touched = np.zeros(len(ids), dtype=bool)
        if len(ids) and len(label):
            points = KDTree(position * scale)
            length, nearest = KDTree(place).query(position * scale)
            _, own = points.query(place[nearest])
            touched = np.asarray(length <= distance)
            is_mutual = touched & (own == np.arange(len(ids)))
            holder[is_mutual] = label[nearest[is_mutual]]
        matched.append(FrameMatch(ids, holder, touched))
    return matched


def _attach_by_label(
    lineage: PointLineage, cells: list[Cells], found: list[Cells]
) -> list[FrameMatch]:
    """Attach cells to the detections that have their labels."""
    labels = lineage.label
    matched = []
    for t, ((ids, _), (label, _)) in enumerate(zip(cells, found, strict=True)):
        own = ids[:0] if labels is None else labels[lineage.rows(t)]
        exists: Mask = np.isin(own, label)
        matched.append(FrameMatch(ids, np.where(exists, own, NONE), exists))
    return matched


def _have_same_labels(by_label: list[FrameMatch], by_place: list[FrameMatch]) -> bool:
    """Whether the labels of a file are those of the movie, as positions show."""
    holder = np.concatenate([frame.holder for frame in by_label])
    nearest = np.concatenate([frame.holder for frame in by_place])
    is_placed = nearest != NONE
    if (holder != NONE).mean() < SHARED_LABELS or not is_placed.any():
        return False
    return bool((holder == nearest)[is_placed].mean() >= SHARED_LABELS)


def _has_every_detection(
    lineage: CtcLineage | PointLineage,
    matched: list[FrameMatch],
    cells: list[Cells],
    found: list[Cells],
    reader: Callable[[int], Cells],
) -> bool:
    """Whether nearly every detection is in a track; reads other frames if it may be."""
    tracks = lineage.tracks
    # a cell without a link is in no track
    is_linked = (tracks.end > tracks.begin) | np.isin(tracks.id, tracks.parent)
    is_linked |= tracks.parent != NO_PARENT
    linked = tracks.id[is_linked]
    n_attached = sum(
        int(((frame.holder != NONE) & np.isin(frame.cell, linked)).sum())
        for frame in matched
    )
    n = sum(len(label) for label, _ in found)
    for t, (ids, _) in enumerate(cells):
        if n_attached < COMPLETE_SHARE * n:
            return False
        if not len(ids):
            n += len(reader(t)[0])
    return n_attached >= COMPLETE_SHARE * n


def find_completeness(
    lineage: CtcLineage | PointLineage, is_complete: bool | None = None
) -> tuple[bool, str] | None:
    """Find out whether a lineage has all cells of its movie, without looking at them.

    Parameters
    ----------
    lineage : CtcLineage or PointLineage
    is_complete : bool, optional
        What the user says.

    Returns
    -------
    is_complete : bool
    reason : str
        In words. None instead of both if the user, the format and the file do not say.
    """
    if is_complete is not None:
        return is_complete, "as you say"
    if isinstance(lineage, CtcLineage):
        return True, "by its format"
    if lineage.is_complete is not None:
        return lineage.is_complete, "as the file says"
    if not lineage.has_parents:
        return False, "it has no parents, so divisions are unknown"
    return None


def decide_completeness(
    lineage: CtcLineage | PointLineage,
    attachment: Attachment,
    is_complete: bool | None = None,
) -> tuple[bool, str]:
    """As `find_completeness`; else judge by the detections that the lineage has."""
    known = find_completeness(lineage, is_complete)
    if known is not None:
        return known
    assert isinstance(lineage, PointLineage)  # others say it by their format
    if lineage.made_from is not None:
        return True, "a result of clew"
    if lineage.n_estimated is not None:
        share = len(lineage.frame) / max(lineage.n_estimated, 1.0)
        reason = f"it has {share:.0%} of the estimated number of cells"
        return share >= COMPLETE_SHARE, reason
    if attachment.has_every_detection:
        return True, "it has nearly every detection"
    return False, "it does not have every detection"

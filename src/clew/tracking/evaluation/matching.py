"""Which detection holds which true cell where one side has no masks: by positions, one to one.

A pair is at most so far apart as `distance` says; by default half of what lies between a true cell and the nearest one
of its frame, at the median, so that most detections are nearer to their own cell than to another. Within it, as many
pairs are made as possible, and of all such choices the one that is nearest in sum.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from clew.errors import DataWarning, InputError
from clew.learning.task import Array, Indices
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.truth import (
    FrameMatch,
    LabelSource,
    Progress,
    derive_events,
)
from clew.tracking.events import NONE, Annotations, Labels
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.tables import check_spacing
from clew.tracking.io.track_tables import PointLineage
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import check_frame
from clew.tracking.measurement.regions import measure_frame
from clew.utils.validation import check_positive

Cells = Callable[[int], tuple[Labels, Array]]
"""Of a frame: ids, ascending, and physical positions (n, ndim)."""
FEW = 0.5
"""A share of true cells near any detection under which both sides are likely to be in different units."""


def make_cell_reader(
    lineage: CtcLineage | PointLineage | Lineage, spacing: Sequence[float] | None = None
) -> Cells:
    """The cells of a lineage by frame: ids are those of tracks, of a `Lineage` labels.

    Positions in masks and tables are multiplied by `spacing`; those of a `Lineage`, and in the tables of a result of
    clew's, are physical as they are.
    """
    if isinstance(lineage, Lineage):
        starts = np.searchsorted(lineage.frame, np.arange(lineage.n_frames + 1))
        return lambda t: (
            lineage.label[starts[t] : starts[t + 1]],
            lineage.position[starts[t] : starts[t + 1]],
        )
    if isinstance(lineage, PointLineage):
        scale = check_spacing(
            spacing if lineage.made_from is None else None, lineage.position.shape[1]
        )

        def listed(t: int) -> tuple[Labels, Array]:
            ids, position = lineage.cells(t)
            return ids, position * scale

        return listed
    sizes = tuple(check_spacing(spacing, len(lineage.masks.shape)).tolist())

    def measured(t: int) -> tuple[Labels, Array]:
        found = measure_frame(t, lineage.masks[t], None, sizes)
        check_frame(lineage.tracks, t, found.label, lineage.source)
        return found.label, found.position

    return measured


def derive_annotations_by_position(
    truth: CtcLineage | PointLineage,
    movie: LabelSource | DetectionTable,
    progress: Progress | None = None,
) -> Annotations:
    """All events of a movie's detections that a true lineage determines, by positions; as `derive_annotations` by masks.

    Positions in masks are multiplied by the movie's spacing; those in tables are physical, as clew writes them.
    """
    n, spacing = (
        movie.n_frames,
        getattr(movie, "spacing", None),
    )  # not all that has labels has a spacing
    if truth.n_frames > n or (isinstance(truth, CtcLineage) and truth.n_frames != n):
        raise InputError(
            f"{truth.source} has {truth.n_frames} frames, the movie {n}; it must be the truth of this movie"
        )

    def detections(t: int) -> tuple[Labels, Array]:
        if isinstance(movie, DetectionTable):
            found = movie.detections(t)
        else:
            label = movie.label(t)
            found = measure_frame(t, label, None, spacing or (1.0,) * label.ndim)
        return found.label, found.position

    true = make_cell_reader(truth, spacing if isinstance(truth, CtcLineage) else None)
    matched, _ = match_positions(true, detections, n, progress=progress)
    return Annotations.of(derive_events(truth.tracks, matched))


def match_positions(
    truth: Cells,
    detections: Cells,
    n_frames: int,
    distance: float | None = None,
    progress: Progress | None = None,
) -> tuple[list[FrameMatch], float]:
    """The true cells of every frame with the detections that hold them, and how far apart they may be."""
    true, found = (
        [truth(t) for t in range(n_frames)],
        [detections(t) for t in range(n_frames)],
    )
    ndim = {cells[1].shape[1] for cells in (*true, *found)}
    if len(ndim) > 1:
        raise InputError(
            "the truth and the result have positions of different dimensions; expected both in 2D or 3D"
        )
    within = (
        _usual_distance(true)
        if distance is None
        else check_positive(distance, "distance")
    )
    matched = []
    for t in range(n_frames):
        matched.append(_match(*true[t], *found[t], within))
        if progress is not None:
            progress(t + 1, n_frames)
    _warn_of_units(matched, true, found, within)
    return matched, within


def _match(
    cell: Labels, place: Array, label: Labels, seen: Array, within: float
) -> FrameMatch:
    """One frame."""
    holder, touched = (
        np.full(len(cell), NONE, dtype=np.int64),
        np.zeros(len(cell), dtype=bool),
    )
    if len(cell) and len(label):
        near = KDTree(place).sparse_distance_matrix(
            KDTree(seen), within, output_type="ndarray"
        )
        if not len(near):
            return FrameMatch(cell, holder, touched)
        row, column = _pairs(near["i"], near["j"], near["v"], len(cell), len(label))
        holder[row] = label[column]
        touched[near["i"]] = True
    return FrameMatch(cell, holder, touched)


def _pairs(
    i: Indices, j: Indices, apart: Array, n: int, m: int
) -> tuple[Indices, Indices]:
    """As many pairs (i, j) as possible, each row and column once, that are the least apart in sum."""
    from scipy.optimize import linear_sum_assignment  # loads slowly

    groups = connected_components(
        coo_array((np.ones(len(i)), (i, n + j)), shape=(n + m, n + m)), directed=False
    )[1]
    order = np.argsort(groups[i], kind="stable")
    rows, columns = [], []
    for members in np.split(order, np.flatnonzero(np.diff(groups[i][order])) + 1):
        here, row = np.unique(i[members], return_inverse=True)
        there, column = np.unique(j[members], return_inverse=True)
        far = 2 * apart[members].max() * (min(len(here), len(there)) + 1) + 1
        cost = np.full((len(here), len(there)), far)
        cost[row, column] = apart[members]
        a, b = linear_sum_assignment(cost)
        near = cost[a, b] < far
        rows.append(here[a[near]])
        columns.append(there[b[near]])
    return np.concatenate(rows), np.concatenate(columns)


def _usual_distance(frames: list[tuple[Labels, Array]]) -> float:
    """Half of the median distance from a true cell to the nearest one of its frame."""
    apart = [
        KDTree(place).query(place, k=2)[0][:, 1]
        for _, place in frames
        if len(place) > 1
    ]
    half = float(np.median(np.concatenate(apart))) / 2 if apart else 0.0
    if half <= 0:
        raise InputError(
            "how far a detection may be from its true cell cannot be told from a truth with one cell a frame; give a "
            "distance (--distance)"
        )
    return half


def count_matched_cells(matched: list[FrameMatch]) -> tuple[int, int]:
    """How many true cells have a detection, and how many there are."""
    return sum(int((frame.holder != NONE).sum()) for frame in matched), sum(
        len(frame.cell) for frame in matched
    )


def _warn_of_units(
    matched: list[FrameMatch],
    true: list[tuple[Labels, Array]],
    found: list[tuple[Labels, Array]],
    within: float,
) -> None:
    """Tell where hardly any true cell is near a detection, with what both sides look like."""
    held, n = count_matched_cells(matched)
    if not n or held >= FEW * n or not any(len(label) for label, _ in found):
        return
    warnings.warn(
        f"only {held} of {n} true cells have a detection within {within:.3g}: positions of the truth are "
        f"{_box(true)}, those of the result {_box(found)}. Both must be in the same unit (--spacing) and count frames "
        "alike, or --distance is too small",
        DataWarning,
        stacklevel=4,
    )


def _box(frames: list[tuple[Labels, NDArray[np.float64]]]) -> str:
    """Where cells are, in words."""
    used = [t for t, (label, _) in enumerate(frames) if len(label)]
    place = np.concatenate([frames[t][1] for t in used])
    low, high = place.min(axis=0), place.max(axis=0)
    axes = "zyx"[-place.shape[1] :]
    spans = ", ".join(
        f"{axis} {a:.4g} to {b:.4g}" for axis, a, b in zip(axes, low, high, strict=True)
    )
    return f"in frames {used[0]} to {used[-1]}, {spans}"

"""Match the cells of a true lineage to detections, by masks or by positions.

By masks, the rule of the Cell Tracking Challenge holds: a detection holds a true
cell if it covers over half of it. A cell is held by one detection at most, but a
detection may hold several cells.

By positions, pairs are one to one and at most a distance apart. By default this is
half the median distance from a true cell to the nearest one of its frame, so that
most detections are nearer to their own cell than to another. As many pairs are made
as possible, and of all such choices the one with the smallest sum of distances.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching
from scipy.spatial import KDTree

from clew.errors import DataWarning, InputError
from clew.learning.task import Array, Indices, Mask
from clew.parallel import Executor, Progress, ThreadExecutor
from clew.tracking.events import NONE, Labels
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.io.tables import check_spacing
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import check_frame
from clew.tracking.measurement.regions import Runs, measure_frame, measure_overlap
from clew.utils.validation import check_positive

FRAMES_PER_JOB = 8
MIN_MATCHED_SHARE = 0.5
"""If fewer true cells are matched, both sides are likely in different units."""

FileLineage = CtcLineage | PointLineage
CellReader = Callable[[int], tuple[Labels, Array]]
"""Ids of a frame, ascending, and physical positions (n, ndim)."""


class FrameMatch(NamedTuple):
    """The true cells of a frame and the detections that hold them.

    Attributes
    ----------
    cell : ndarray of shape (k,)
        Labels in the truth, ascending.
    holder : ndarray of shape (k,)
        Label of the detection that holds each cell, or `NONE`.
    touched : ndarray of bool of shape (k,)
        Whether any detection covers a part of the cell.
    """

    cell: Labels
    holder: Labels
    touched: Mask


class LabelSource(Protocol):
    """Anything with label images: a Movie, or the masks of a result."""

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        ...

    def label(self, t: int) -> NDArray[Any]:
        """Label image of frame `t`."""
        ...


@dataclass(frozen=True, slots=True)
class ResultMasks:
    """The masks of a result as detections; each is checked against the tracks."""

    lineage: CtcLineage

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.lineage.masks)

    def label(self, t: int) -> NDArray[Any]:
        """Label image of frame `t`."""
        mask = self.lineage.masks[t]
        check_frame(self.lineage.tracks, t, np.unique(mask), self.lineage.source)
        return mask


def match_frame(truth: NDArray[Any], detections: NDArray[Any]) -> FrameMatch:
    """Match the true cells of one label image to the detections of another."""
    shared = _measure_shared(truth, detections)
    holder = np.full(len(shared.cell), NONE, dtype=np.int64)
    holder[shared.row[shared.holds]] = shared.label[shared.holds]
    touched = np.zeros(len(shared.cell), dtype=bool)
    touched[shared.row] = True
    return FrameMatch(shared.cell, holder, touched)


def compute_jaccard(truth: NDArray[Any], detections: NDArray[Any]) -> Array:
    """Jaccard index of each true cell with the detection that holds it.

    Returns
    -------
    index : ndarray of shape (k,)
        In the order of the labels of the truth; 0 if no detection holds the cell.
    """
    shared = _measure_shared(truth, detections)
    labels, sizes = np.unique(detections, return_counts=True)
    row = shared.row[shared.holds]
    pixels = shared.pixels[shared.holds]
    holder_size = sizes[np.searchsorted(labels, shared.label[shared.holds])]
    index = np.zeros(len(shared.cell))
    index[row] = pixels / (shared.size[row] + holder_size - pixels)
    return index


class _SharedPixels(NamedTuple):
    """Overlaps of k true cells with detections, in m pairs.

    Attributes
    ----------
    cell : ndarray of shape (k,), ascending
    size : ndarray of shape (k,), pixels of each cell
    row : ndarray of shape (m,), rows of `cell`
    label : ndarray of shape (m,), labels of detections
    pixels : ndarray of shape (m,)
    holds : ndarray of bool of shape (m,), over half of the cell is covered
    """

    cell: Labels
    size: Array
    row: Indices
    label: Labels
    pixels: Array
    holds: Mask


def _measure_shared(truth: NDArray[Any], detections: NDArray[Any]) -> _SharedPixels:
    """Measure the overlaps of two label images."""
    for mask in (truth, detections):
        if mask.dtype.kind not in "iu":
            raise InputError(
                f"a mask has dtype {mask.dtype}; expected integers, one for each cell"
            )
    if truth.shape != detections.shape:
        raise InputError(
            f"the mask of the truth has shape {truth.shape}, that of the detections "
            f"{detections.shape}; both must be equal"
        )
    runs = Runs.from_labels(truth)
    cell, of_run = np.unique(runs.label, return_inverse=True)
    pixels_of_cell = np.bincount(of_run, weights=runs.length, minlength=len(cell))
    size = pixels_of_cell.astype(np.float64)
    shared, label, pixels = measure_overlap(truth, detections, (1.0,) * truth.ndim)
    row = np.searchsorted(cell, shared)
    return _SharedPixels(cell, size, row, label, pixels, 2 * pixels > size[row])


def match_frames(
    truth: CtcLineage,
    movie: LabelSource,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> list[FrameMatch]:
    """Match all frames by masks; each worker has one frame in memory at a time.

    Parameters
    ----------
    truth : CtcLineage
    movie : LabelSource
        The detections.
    progress : callable, optional
        Called with the number of frames done and in all.
    executor : Executor, optional
        Threads by default.
    """
    n = len(truth.masks)
    if n != movie.n_frames:
        raise InputError(
            f"the truth has {n} frames, the movie {movie.n_frames}; it must be the "
            "truth of this movie, or with --frames of the part that was tracked"
        )
    starts = range(0, n, FRAMES_PER_JOB)
    blocks = [range(t, min(t + FRAMES_PER_JOB, n)) for t in starts]
    matched: list[FrameMatch] = []
    match_block = partial(_match_block, truth, movie)
    for matches in (executor or ThreadExecutor()).map(match_block, blocks):
        matched += matches
        if progress is not None:
            progress(len(matched), n)
    return matched


def _match_block(
    truth: CtcLineage, movie: LabelSource, frames: range
) -> list[FrameMatch]:
    """Match some frames by masks."""
    matched = []
    for t in frames:
        try:
            match = match_frame(truth.masks[t], movie.label(t))
        except InputError as error:
            raise InputError(f"frame {t}: {error}") from error
        check_frame(truth.tracks, t, match.cell, truth.source)
        matched.append(match)
    return matched


def make_cell_reader(
    lineage: CtcLineage | PointLineage | Lineage, spacing: Sequence[float] | None = None
) -> CellReader:
    """Make a function that gives the cells of a frame.

    Parameters
    ----------
    lineage : CtcLineage, PointLineage or Lineage
    spacing : sequence of float, optional
        Multiplies positions in masks and tables; those of a `Lineage` and of the
        tables that clew writes are physical already.

    Returns
    -------
    read_cells : callable
        From a frame to ids (of tracks; of a `Lineage` labels) and positions.
    """
    if isinstance(lineage, Lineage):
        starts = np.searchsorted(lineage.frame, np.arange(lineage.n_frames + 1))

        def read_lineage(t: int) -> tuple[Labels, Array]:
            rows = slice(starts[t], starts[t + 1])
            return lineage.label[rows], lineage.position[rows]

        return read_lineage
    if isinstance(lineage, PointLineage):
        is_physical = lineage.made_from is not None
        ndim = lineage.position.shape[1]
        scale = check_spacing(None if is_physical else spacing, ndim)

        def read_table(t: int) -> tuple[Labels, Array]:
            ids, position = lineage.cells(t)
            return ids, position * scale

        return read_table
    sizes = tuple(check_spacing(spacing, len(lineage.masks.shape)).tolist())

    def measure_masks(t: int) -> tuple[Labels, Array]:
        detections = measure_frame(t, lineage.masks[t], None, sizes)
        check_frame(lineage.tracks, t, detections.label, lineage.source)
        return detections.label, detections.position

    return measure_masks


def match_positions(
    truth: CellReader,
    detections: CellReader,
    n_frames: int,
    distance: float | None = None,
    progress: Progress | None = None,
) -> tuple[list[FrameMatch], float]:
    """Match all frames by positions.

    Parameters
    ----------
    truth, detections : callable
        See `make_cell_reader`.
    n_frames : int
    distance : float, optional
        Largest distance of a pair; estimated from the truth by default.
    progress : callable, optional
        Called with the number of frames done and in all.

    Returns
    -------
    matched : list of FrameMatch
    distance : float
        The distance that was used.
    """
    true_cells = [truth(t) for t in range(n_frames)]
    found_cells = [detections(t) for t in range(n_frames)]
    ndims = {position.shape[1] for _, position in (*true_cells, *found_cells)}
    if len(ndims) > 1:
        raise InputError(
            "the truth and the result have positions of different dimensions; "
            "expected both in 2D or 3D"
        )
    if distance is None:
        distance = estimate_distance(true_cells)
    distance = check_positive(distance, "distance")
    matched = []
    for t in range(n_frames):
        matched.append(match_points(*true_cells[t], *found_cells[t], distance))
        if progress is not None:
            progress(t + 1, n_frames)
    warn_if_few_matched(matched, true_cells, found_cells, distance)
    return matched, distance


def match_points(
    cell: Labels,
    cell_position: Array,
    label: Labels,
    label_position: Array,
    distance: float,
) -> FrameMatch:
    """Match one frame by positions."""
    holder = np.full(len(cell), NONE, dtype=np.int64)
    touched = np.zeros(len(cell), dtype=bool)
    if len(cell) and len(label):
        tree = KDTree(label_position)
        near = KDTree(cell_position).sparse_distance_matrix(
            tree, distance, output_type="ndarray"
        )
        if len(near):
            row, column = _assign_pairs(
                near["i"], near["j"], near["v"], len(cell), len(label)
            )
            holder[row] = label[column]
            touched[near["i"]] = True
    return FrameMatch(cell, holder, touched)


def _assign_pairs(
    i: Indices, j: Indices, distance: Array, n: int, m: int
) -> tuple[Indices, Indices]:
    """Choose as many pairs (i, j) as possible with the smallest sum of distances.

    Each of n rows and m columns is used once at most. A row may take a column of its own
    instead, at a cost above that of all pairs together.
    """
    rows = np.arange(n)
    no_pair = 2 * distance.max() * (min(n, m) + 1) + 1
    # plus 1, since a cost of 0 counts as no entry
    cost = np.append(distance, np.full(n, no_pair)) + 1
    ends = (np.append(i, rows), np.append(j, m + rows))
    graph = coo_array((cost, ends), shape=(n, m + n)).tocsr()
    row, column = min_weight_full_bipartite_matching(graph)
    is_pair = column < m
    return row[is_pair], column[is_pair]


def estimate_distance(frames: list[tuple[Labels, Array]]) -> float:
    """Half the median distance from a cell to the nearest one of its frame."""
    nearest = [
        KDTree(position).query(position, k=2)[0][:, 1]
        for _, position in frames
        if len(position) > 1
    ]
    half = float(np.median(np.concatenate(nearest))) / 2 if nearest else 0.0
    if half <= 0:
        raise InputError(
            "the largest distance of a match cannot be estimated from frames with one "
            "cell each; give a distance (--distance)"
        )
    return half


def count_matched_cells(matched: list[FrameMatch]) -> tuple[int, int]:
    """Number of true cells with a detection, and of all true cells."""
    n_matched = sum(int((frame.holder != NONE).sum()) for frame in matched)
    return n_matched, sum(len(frame.cell) for frame in matched)


def warn_if_few_matched(
    matched: list[FrameMatch],
    true_cells: list[tuple[Labels, Array]],
    found_cells: list[tuple[Labels, Array]],
    distance: float,
) -> None:
    """Warn if hardly any true cell is near a detection, with the extent of both."""
    n_matched, n = count_matched_cells(matched)
    has_detections = any(len(label) for label, _ in found_cells)
    if not n or n_matched >= MIN_MATCHED_SHARE * n or not has_detections:
        return
    warnings.warn(
        f"only {n_matched} of {n} true cells have a detection within {distance:.3g}: "
        f"positions of the truth are {_describe_extent(true_cells)}, those of the "
        f"result {_describe_extent(found_cells)}. Both must be in the same unit "
        "(--spacing) and count frames alike, or --distance is too small",
        DataWarning,
        stacklevel=4,
    )


def _describe_extent(frames: list[tuple[Labels, Array]]) -> str:
    """Range of frames and positions."""
    used = [t for t, (label, _) in enumerate(frames) if len(label)]
    position = np.concatenate([frames[t][1] for t in used])
    axes = "zyx"[-position.shape[1] :]
    low = position.min(axis=0)
    high = position.max(axis=0)
    ranges = ", ".join(
        f"{axis} {a:.4g} to {b:.4g}" for axis, a, b in zip(axes, low, high, strict=True)
    )
    return f"in frames {used[0]} to {used[-1]}, {ranges}"

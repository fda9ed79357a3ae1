"""Fill gaps: find the cells that are missing in them, with a place and a mask.

The place is interpolated between both ends of a gap. In images, it is corrected to where
the frame looks most like the cell before and after the gap (normalized correlation). The
mask is that of both ends, moved there, on pixels that belong to no other cell. So a
recovered cell never covers a mask that was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from clew.learning.task import Array, Indices, Mask
from clew.tracking.events import Labels
from clew.tracking.frames import PaintedFrames, Patch
from clew.tracking.lineage.gaps import GapLinks, GapWeights, measure_rim
from clew.tracking.lineage.lineage import RecoveredCells
from clew.tracking.lineage.links import MovieLinks, NodeIds
from clew.tracking.measurement.regions import Runs
from clew.tracking.movie import Movie
from clew.tracking.scales import MapFunction

VISIBILITY = "visibility"
MIN_FREE_SHARE = 0.5
"""Share of a moved mask that must be free for the cell to be recovered."""
SEARCH_SHARE = 0.5
"""Diameters around the interpolated place in which the cell is searched."""
MARGIN_SHARE = 0.25
"""Diameters around a mask that belong to the look of a cell."""
LOOK_SIDE = 24
"""Pixels along each side of a look; larger ones are averaged in blocks."""
DISTANCE_PENALTY = 1.0
"""Loss of correlation that a place at the end of the search must make up for."""

TINY = np.finfo(float).tiny

AnyMovie = TypeVar("AnyMovie")


def add_recovered(movie: AnyMovie, cells: RecoveredCells | None) -> AnyMovie:
    """Return a movie whose label images have the recovered cells; tables unchanged."""
    if cells is None or not len(cells) or not isinstance(movie, Movie):
        return movie
    patches: dict[int, list[Patch]] = {}
    for row, t in enumerate(cells.frame.tolist()):
        corner = tuple(cells.corner[row].tolist())
        patch = Patch(int(cells.label[row]), corner, cells.masks[row])
        patches.setdefault(t, []).append(patch)
    return replace(movie, labels=PaintedFrames(movie.labels, patches))


class RecoveredRuns(NamedTuple):
    """Recovered cells of consecutive frames, each run within a track or at its end."""

    cells: RecoveredCells
    run: Indices
    """(n,) of each cell."""
    source: NodeIds
    """(r,) the node before each run; `NO_NODE` before the first of a track."""
    target: NodeIds
    """(r,) the node after it; `NO_NODE` after the last of a track."""
    confidence: Array
    """(r,) log odds that the cells are there."""


class FilledGaps(NamedTuple):
    """What became of the gaps of a movie."""

    runs: RecoveredRuns
    left: GapLinks
    """Gaps that images do not contradict, but in which there is no room for cells."""


class _MissingCells(NamedTuple):
    """Cells that are missing in gaps, in order of time; (n,) each."""

    frame: NDArray[np.int64]
    gap: Indices
    share: Array
    """Part of the time from the source to the target of the gap that has passed."""
    position: Array
    """(n, ndim) interpolated."""


class Template(NamedTuple):
    """A cell at one end of a gap."""

    center: Array
    """Of its mask, in pixels."""
    corner: Indices
    """First pixel of the mask's box."""
    mask: Mask
    look_corner: Indices
    """First pixel of the look."""
    look: NDArray[np.float32] | None
    """The image around the cell; None without images."""
    contrast: float
    """Mean intensity above the background around it."""
    noise: float
    """Standard deviation of the background around it."""

    @property
    def look_shape(self) -> tuple[int, ...]:
        """Of the image around the cell."""
        return (0,) * self.mask.ndim if self.look is None else self.look.shape

    @property
    def diameter(self) -> float:
        """Geometric mean of the sides of the mask's box."""
        return float(np.prod(self.mask.shape) ** (1 / self.mask.ndim))


class FoundCell(NamedTuple):
    """A missing cell that was found in a frame."""

    patch: Patch
    place: Array
    """In pixels."""
    correlation: float
    """Of the image with the looks of the cell before and after the gap."""
    contrast: float
    """Of the cell over that before and after; 1 where both are noise."""
    visibility: float
    """Share of the contrast before and after in it and the noise, from 0 to 1."""


@dataclass(frozen=True)
class GapFiller:
    """Recovers the cells that are missing in the gaps of a movie."""

    movie: Movie | None
    """None for a table of detections."""
    map_function: MapFunction
    """Applies a function to frames, in threads or on a cluster."""

    @property
    def has_images(self) -> bool:
        """Whether images show if a cell is there."""
        return self.movie is not None and self.movie.images is not None


def fill_gaps(
    movie: Movie | None,
    links: MovieLinks,
    gaps: GapLinks,
    map_function: MapFunction,
    weights: Mapping[str, float] | None = None,
) -> FilledGaps:
    """Recover the cells that are missing in gaps.

    Parameters
    ----------
    movie : Movie or None
        None for a table of detections.
    links : MovieLinks
    gaps : GapLinks
    map_function : callable
        Applies a function to frames, in threads or on a cluster.
    weights : mapping, optional
        Of the evidence in images; those that come with clew unless given.

    Returns
    -------
    FilledGaps
        A gap is filled as a whole or not at all.
    """
    missing = _find_missing(links, gaps)
    ndim = links.position.shape[1]
    found: list[FoundCell | None]
    if movie is None:
        corner = (0,) * ndim
        patch = Patch(0, corner, np.zeros(corner, bool))
        nowhere = np.zeros(ndim)
        found = [FoundCell(patch, nowhere, 0.0, 1.0, 0.0)] * len(missing.frame)
    else:
        found = _find_shapes(movie, links, gaps, missing, map_function)
        if movie.images is not None and len(gaps):
            evidence = measure_evidence(links, gaps, missing.gap, found)
            gaps, missing, found = _reject(gaps, missing, found, evidence, weights)
    is_found = np.array([cell is not None for cell in found], dtype=bool)
    n_lost = np.bincount(missing.gap[~is_found], minlength=len(gaps))
    is_filled = n_lost == 0
    rows = np.flatnonzero(is_filled[missing.gap])
    patches = [cell.patch for row in rows.tolist() if (cell := found[row]) is not None]
    gap = missing.gap[rows]
    share = missing.share[rows]
    columns = {
        name: (1 - share) * column[gaps.source[gap]] + share * column[gaps.target[gap]]
        for name, column in links.columns.items()
    }
    cells = RecoveredCells(
        missing.frame[rows],
        number_cells(links, missing.frame[rows]),
        missing.position[rows],
        columns,
        gaps.probability[gap],
        np.zeros((len(rows), ndim), np.intp),
        [],
    )
    if movie is not None:
        cells = add_masks(cells, patches, movie.spacing)
    filled = gaps[is_filled]
    run = (np.cumsum(is_filled) - 1)[gap]
    runs = RecoveredRuns(cells, run, filled.source, filled.target, filled.confidence)
    return FilledGaps(runs, gaps[~is_filled])


def add_masks(
    cells: RecoveredCells, patches: Sequence[Patch], spacing: Sequence[float]
) -> RecoveredCells:
    """Return cells with masks, and with the positions and volumes of these."""
    if not len(cells):
        return cells
    corner = np.array([patch.corner for patch in patches], dtype=np.intp)
    center = np.array([np.argwhere(patch.mask).mean(axis=0) for patch in patches])
    columns = dict(cells.columns)
    if "volume" in columns:
        pixels = np.array([float(patch.mask.sum()) for patch in patches])
        columns["volume"] = pixels * float(np.prod(spacing))
    return replace(
        cells,
        position=(corner + center) * np.array(spacing),
        columns=columns,
        corner=corner,
        masks=[patch.mask for patch in patches],
    )


def measure_evidence(
    links: MovieLinks,
    gaps: GapLinks,
    gap: Indices,
    found: Sequence[FoundCell | None],
) -> dict[str, Array]:
    """Measure how far images show the cells that are missing in gaps.

    Parameters
    ----------
    links : MovieLinks
    gaps : GapLinks
    gap : ndarray of shape (n,)
        Of each missing cell.
    found : sequence of FoundCell or None
        n cells; None where there is no place.

    Returns
    -------
    evidence : dict of ndarray of shape (g,)
        By name; for gaps without a place it says nothing.
    """
    exists = np.array([cell is not None for cell in found], dtype=bool)
    cells = [cell for cell in found if cell is not None]
    gap = gap[exists]
    count = np.maximum(np.bincount(gap, minlength=len(gaps)), 1)
    correlation = np.array([cell.correlation for cell in cells])
    contrast = np.array([cell.contrast for cell in cells])
    visibility = np.array([cell.visibility for cell in cells])
    least = np.ones(len(gaps))
    np.minimum.at(least, gap, correlation)
    sure = np.clip(gaps.probability, 1e-6, 1 - 1e-6)
    rims = (measure_rim(links, gaps.source), measure_rim(links, gaps.target))
    return {
        "bias": np.ones(len(gaps)),
        "link": logit(sure),
        "frames": np.log(count),
        "correlation": np.bincount(gap, correlation, len(gaps)) / count,
        "least correlation": least,
        "contrast": np.bincount(gap, contrast, len(gaps)) / count,
        "at the rim": np.minimum(*rims),
        VISIBILITY: np.bincount(gap, visibility, len(gaps)) / count,
    }


def _reject(
    gaps: GapLinks,
    missing: _MissingCells,
    found: list[FoundCell | None],
    evidence: Mapping[str, Array],
    weights: Mapping[str, float] | None,
) -> tuple[GapLinks, _MissingCells, list[FoundCell | None]]:
    """Drop the gaps in which images do not show the cell; annotated ones stay."""
    weights = GapWeights.generic().evidence if weights is None else weights
    terms = [weight * evidence[name] for name, weight in weights.items()]
    # Where cells hardly differ from their background, images say little.
    visible = evidence[VISIBILITY]
    score = visible * np.sum(terms, axis=0) + (1 - visible) * evidence["link"]
    probability = np.asarray(expit(score))
    is_known = np.isinf(gaps.confidence)
    probability[is_known] = 1.0
    is_kept = probability > 0.5
    place = np.cumsum(is_kept) - 1
    rows = np.flatnonzero(is_kept[missing.gap])
    left = _MissingCells(
        missing.frame[rows],
        place[missing.gap[rows]],
        missing.share[rows],
        missing.position[rows],
    )
    kept = replace(gaps, probability=probability)[is_kept]
    return kept, left, [found[row] for row in rows.tolist()]


def _find_missing(links: MovieLinks, gaps: GapLinks) -> _MissingCells:
    """The cells that are missing in gaps, sorted by frame."""
    begin = np.searchsorted(links.first_node, gaps.source, "right") - 1
    end = np.searchsorted(links.first_node, gaps.target, "right") - 1
    length = end - begin - 1
    gap = np.repeat(np.arange(len(length)), length)
    rank = np.arange(len(gap)) - np.repeat(np.cumsum(length) - length, length)
    frame = begin[gap] + 1 + rank
    share = (rank + 1) / (length[gap] + 1)
    before = links.position[gaps.source[gap]].astype(np.float64)
    after = links.position[gaps.target[gap]].astype(np.float64)
    position = before + share[:, None] * (after - before)
    order = np.lexsort((-gaps.probability[gap], frame))
    return _MissingCells(frame[order], gap[order], share[order], position[order])


def number_cells(links: MovieLinks, frame: NDArray[np.int64]) -> Labels:
    """Labels of recovered cells, sorted by frame, above those of each frame."""
    last = links.first_node[frame + 1] - 1
    is_empty = last < links.first_node[frame]
    largest = np.where(is_empty, 0, links.label[np.maximum(last, 0)])
    rank = np.arange(len(frame)) - np.searchsorted(frame, frame)
    return largest.astype(np.int64) + 1 + rank


def _find_shapes(
    movie: Movie,
    links: MovieLinks,
    gaps: GapLinks,
    missing: _MissingCells,
    map_function: MapFunction,
) -> list[FoundCell | None]:
    """The mask of each missing cell; None where another cell is in its place."""
    nodes = np.unique(np.concatenate([gaps.source, gaps.target]))
    templates = _cut_templates(movie, links, nodes, map_function)
    spacing = np.array(movie.spacing)
    jobs: list[tuple[Movie, int, list[_Request]]] = []
    for t in np.unique(missing.frame).tolist():
        rows = slice(*np.searchsorted(missing.frame, [t, t + 1]).tolist())
        requests = [
            _Request(
                templates[int(gaps.source[gap])],
                templates[int(gaps.target[gap])],
                float(share),
                place / spacing,
            )
            for gap, share, place in zip(
                missing.gap[rows],
                missing.share[rows],
                missing.position[rows],
                strict=True,
            )
        ]
        jobs.append((movie.window(t, t), t, requests))
    return [shape for shapes in map_function(_fill_frame, jobs) for shape in shapes]


def _cut_templates(
    movie: Movie, links: MovieLinks, nodes: NDArray[np.int32], map_function: MapFunction
) -> dict[int, Template]:
    """Templates of nodes."""
    frame = np.searchsorted(links.first_node, nodes, "right") - 1
    jobs = []
    for t in np.unique(frame).tolist():
        label = links.label[nodes[frame == t]].astype(np.int64)
        jobs.append((movie.window(t, t), t, label))
    cut = [item for items in map_function(_cut_frame, jobs) for item in items]
    return dict(zip(nodes.tolist(), cut, strict=True))


def _cut_frame(job: tuple[Movie, int, Labels]) -> list[Template]:
    """Templates of ascending labels of a frame."""
    movie, t, wanted = job
    return cut_templates(movie.label(t), movie.image(t), wanted)


def cut_templates(
    labels: Labels, image: NDArray[Any] | None, wanted: Labels
) -> list[Template]:
    """Cut cells out of a frame, in the order of ascending labels."""
    runs = Runs.from_labels(labels)
    rows = np.flatnonzero(np.isin(runs.label, wanted))
    rows = rows[np.argsort(runs.label[rows], kind="stable")]
    bounds = np.searchsorted(runs.label[rows], np.append(wanted, wanted[-1] + 1))
    templates = []
    for first, stop in pairwise(bounds.tolist()):
        own = rows[first:stop]
        start = np.array([axis[own] for axis in runs.start]).T
        end = start + 1
        end[:, -1] += runs.length[own] - 1
        corner = start.min(axis=0)
        box = tuple(map(slice, corner, end.max(axis=0)))
        mask = labels[box] == runs.label[own[0]]
        center = corner + np.argwhere(mask).mean(axis=0)
        template = Template(center, corner, mask, corner, None, 0.0, 0.0)
        if image is not None:
            template = _add_look(template, image, labels == 0)
        templates.append(template)
    return templates


def _add_look(template: Template, image: NDArray[Any], free: Mask) -> Template:
    """Add the image around a cell."""
    margin = round(MARGIN_SHARE * template.diameter)
    corner = np.maximum(template.corner - margin, 0)
    end = np.minimum(template.corner + template.mask.shape + margin, image.shape)
    look = image[tuple(map(slice, corner, end))].astype(np.float32)
    patch = Patch(0, tuple(template.corner.tolist()), template.mask)
    contrast, noise = _measure_contrast(patch, image, free, margin)
    return template._replace(
        look_corner=corner, look=look, contrast=contrast, noise=noise
    )


def _measure_contrast(
    patch: Patch, image: NDArray[Any], free: Mask, margin: int
) -> tuple[float, float]:
    """Mean intensity of a mask above the free pixels around it, and their deviation."""
    corner = np.array(patch.corner)
    low = np.maximum(corner - margin, 0)
    high = np.minimum(corner + patch.mask.shape + margin, image.shape)
    box = tuple(map(slice, low, high))
    around = free[box].copy()
    inner = tuple(map(slice, corner - low, corner - low + patch.mask.shape))
    around[inner] &= ~patch.mask
    inside = image[tuple(map(slice, corner, corner + patch.mask.shape))][patch.mask]
    background = image[box][around]
    if not len(background):
        return 0.0, float(inside.std())
    return float(inside.mean() - np.median(background)), float(background.std())


class _Request(NamedTuple):
    """A missing cell of a frame."""

    before: Template
    after: Template
    share: float
    place: Array
    """Interpolated, in pixels."""

    @property
    def templates(self) -> list[tuple[Template, float]]:
        """Both ends of the gap; the nearer one in time counts more."""
        return [(self.before, 1 - self.share), (self.after, self.share)]

    def unite_masks(self) -> Template:
        """Return the masks at both ends of the gap, on top of each other."""
        ends = (self.before, self.after)
        first = [np.round(end.corner - end.center).astype(np.intp) for end in ends]
        last = [
            corner + end.mask.shape for corner, end in zip(first, ends, strict=True)
        ]
        low = np.minimum(*first)
        mask = np.zeros(np.maximum(*last) - low, dtype=bool)
        for corner, end in zip(first, ends, strict=True):
            box = tuple(map(slice, corner - low, corner - low + end.mask.shape))
            mask[box] |= end.mask
        center = -low.astype(np.float64)
        return self.before._replace(center=center, corner=0 * low, mask=mask)


def _fill_frame(job: tuple[Movie, int, list[_Request]]) -> list[FoundCell | None]:
    """The masks of the cells that are missing in a frame, most probable first."""
    movie, t, requests = job
    free = movie.label(t) == 0
    image = movie.image(t)
    cells: list[FoundCell | None] = []
    for request in requests:
        whole = request.unite_masks()
        cell = find_cell(request.templates, whole, request.place, image, free)
        if cell is not None:
            cell.patch.claim(free)
        cells.append(cell)
    return cells


def find_cell(
    templates: Sequence[tuple[Template, float]],
    whole: Template,
    near: Array,
    image: NDArray[Any] | None,
    free: Mask,
) -> FoundCell | None:
    """Find a missing cell in a frame; None if there is no room for it.

    Parameters
    ----------
    templates : sequence of (Template, float)
        The cell in other frames, with weights whose sum is one.
    whole : Template
        With the mask of the cell.
    near : ndarray of shape (ndim,)
        Where it is expected, in pixels.
    image : ndarray or None
        Without one, the cell is where it is expected.
    free : ndarray of bool
        Pixels that belong to no other cell.
    """
    place = near
    correlation = 0.0
    if image is not None:
        place, correlation = find_place(templates, near, image)
    patch = place_mask(whole, place, free)
    if patch is None:
        return None
    contrast = 1.0
    visibility = 0.0
    if image is not None:
        ends = [template for template, _ in templates]
        contrast, visibility = _compare_contrast(ends, patch, image, free)
    return FoundCell(patch, place, correlation, contrast, visibility)


def _compare_contrast(
    ends: Sequence[Template], patch: Patch, image: NDArray[Any], free: Mask
) -> tuple[float, float]:
    """Contrast of a cell over that before and after, and the visibility of these."""
    margin = round(MARGIN_SHARE * ends[0].diameter)
    contrast, _ = _measure_contrast(patch, image, free, margin)
    usual = float(np.mean([template.contrast for template in ends]))
    noise = float(np.mean([template.noise for template in ends])) ** 2
    scale = usual**2 + noise
    if not scale:
        return 1.0, 0.0
    ratio = float(np.clip((contrast * usual + noise) / scale, -1.0, 2.0))
    return ratio, usual**2 / scale


def find_place(
    templates: Sequence[tuple[Template, float]], place: Array, image: NDArray[Any]
) -> tuple[Array, float]:
    """Find where a frame looks most like a cell near a place, and the correlation.

    Parameters
    ----------
    templates : sequence of (Template, float)
        With weights whose sum is one.
    place : ndarray of shape (ndim,)
        In pixels.
    image : ndarray
    """
    sides = [template.look_shape for template, _ in templates]
    pixels = np.maximum(np.rint(np.min(sides, axis=0) / LOOK_SIDE), 1).astype(np.intp)
    nearest = max(templates, key=itemgetter(1))[0]
    radius = max(2, round(SEARCH_SHARE * nearest.diameter))
    reach = -(-radius // pixels)
    response = np.zeros(2 * reach + 1)
    for template, weight in templates:
        response += weight * _correlate(template, place, image, reach, pixels)
    offsets = np.indices(response.shape).reshape(image.ndim, -1).T - reach
    distance = np.linalg.norm(offsets * pixels, axis=1) / radius
    merit = response.ravel() - DISTANCE_PENALTY * distance**2
    best = int(np.argmax(merit))
    return np.asarray(place + offsets[best] * pixels), float(response.flat[best])


def _correlate(
    template: Template,
    place: Array,
    image: NDArray[Any],
    reach: Indices,
    pixels: Indices,
) -> Array:
    """Normalized correlation of the look at each offset; 0 outside of the image.

    Offsets are multiples of `pixels`, of which means are compared.
    """
    response = np.zeros(2 * reach + 1)
    assert template.look is not None
    look = _average_blocks(template.look, pixels)
    shift = np.round(place - template.center).astype(np.intp)
    corner = template.look_corner + shift - reach * pixels
    n_blocks = np.add(look.shape, 2 * reach)
    first = np.maximum(-(corner // pixels), 0)
    stop = np.minimum((image.shape - corner) // pixels, n_blocks)
    if np.any(stop - first < look.shape):
        return response
    low = corner + first * pixels
    high = corner + stop * pixels
    part = _average_blocks(image[tuple(map(slice, low, high))], pixels)
    found = correlate_windows(part, look)
    response[tuple(map(slice, first, first + found.shape))] = found
    return response


def correlate_windows(image: Array, look: Array) -> Array:
    """Return the normalized correlation of a look with each window of an image.

    Zero where either is constant. `skimage.feature.match_template` does the same, but
    loads libraries for a second, and is no faster for looks as small as these.
    """
    # Small differences of large intensities are lost in sums of squares.
    level = look.mean()
    look = look - level
    windows = np.lib.stride_tricks.sliding_window_view(image - level, look.shape)
    inner = list(range(look.ndim, 2 * look.ndim))
    outer = list(range(look.ndim))
    every = outer + inner
    product = np.einsum(windows, every, look, inner, outer)
    total = np.einsum(windows, every, outer)
    square = np.einsum(windows, every, windows, every, outer)
    variance = square - total**2 / look.size
    is_flat = variance <= 1e-9 * square
    scale = np.sqrt(np.where(is_flat, 1.0, variance) * (look**2).sum())
    return np.where(is_flat, 0.0, product / np.maximum(scale, TINY))


def _average_blocks(image: NDArray[Any], pixels: Indices) -> Array:
    """Mean intensities of blocks of pixels; what is left at the ends is dropped."""
    shape = np.array(image.shape) // pixels
    whole = image[tuple(map(slice, shape * pixels))]
    blocks = whole.reshape(np.column_stack([shape, pixels]).ravel())
    axes = tuple(range(1, 2 * image.ndim, 2))
    return np.asarray(blocks.mean(axis=axes, dtype=np.float64))


def place_mask(template: Template, place: Array, free: Mask) -> Patch | None:
    """Move a mask to a place; None if too few of its pixels are free there."""
    corner = template.corner + np.round(place - template.center).astype(np.intp)
    low = np.maximum(corner, 0)
    high = np.minimum(corner + template.mask.shape, free.shape)
    if np.any(high <= low):
        return None
    inside = template.mask[tuple(map(slice, low - corner, high - corner))]
    mask = inside & free[tuple(map(slice, low, high))]
    if mask.sum() < MIN_FREE_SHARE * template.mask.sum():
        return None
    return Patch(0, tuple(low.tolist()), mask)

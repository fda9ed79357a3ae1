"""The least certain events as pictures: both frames side by side, with outlines, ids and arrows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from imagecodecs import png_encode
from numpy.typing import NDArray
from skimage.measure import approximate_polygon, find_contours

from clew.learning.task import Array
from clew.tracking.events import NONE, Labels
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report.markup import escape_text

PANEL, GUTTER, HEAD = 210.0, 14.0, 18.0
"""Sizes in the picture's own units: one frame's square, the space between the two, the line above them."""
MAX_PIXELS = 160
"""Larger crops are thinned out: more would not be seen."""
CONTEXT = 3.0
"""A crop is so many times as wide as what it is about."""
MAX_NEIGHBOURS = 30
"""Outlines beside those that matter: the ones nearest to the middle."""
ROOM_FOR_NAME = 150
"""Square units that a neighbour must cover to be named."""
GAMMA = 0.7
"""Lifts dim cells beside bright ones, such as those in division."""
ACCENT, OTHERS = "#ffb000", "#ffffff"
"""Bright on any grey: the cells of the event, and their neighbours (which are thinner too)."""
Point = tuple[float, float]


class FrameImages(NamedTuple):
    """One frame of a movie."""

    mask: NDArray[Any]
    image: NDArray[Any] | None


@dataclass(frozen=True)
class CropWindow:
    """The part of a frame that is shown: rows and columns, and in 3D the slices that are projected."""

    slices: tuple[slice, ...]
    step: int
    down: float
    """Units of the picture for one pixel shown."""
    right: float

    def cut(self, frame: NDArray[Any]) -> NDArray[Any]:
        """The part of a frame, thinned out if it is large; 3D stays 3D."""
        return frame[self.slices][..., :: self.step, :: self.step]

    def middle(self, shape: NDArray[np.bool_]) -> Point:
        """The middle of a cell in the panel, as (x, y)."""
        y, x = (float(axis.mean()) + 0.5 for axis in np.nonzero(shape))
        return x * self.right, y * self.down

    def outline(self, shape: NDArray[np.bool_]) -> str:
        """The path around a cell; it may have several parts."""
        lines = []
        for contour in find_contours(np.pad(shape, 1).astype(np.float32), 0.5):
            corners = (
                approximate_polygon(contour, 0.4) - 0.5
            )  # less the padding, and half a pixel to its edge
            lines.append(
                "M"
                + "L".join(
                    f"{x * self.right:.1f} {y * self.down:.1f}" for y, x in corners[:-1]
                )
                + "Z"
            )
        return "".join(lines)


def draw_crops(
    lineage: Lineage, movie: Movie, doubts: Sequence[Sequence[int]]
) -> list[str]:
    """A picture, as inline SVG, of each doubt: rows of events between the same two frames. Reads those frames only."""
    pictures = [""] * len(doubts)
    frames: dict[int, FrameImages] = {}
    times = [int(lineage.events.frame[rows[0]]) for rows in doubts]
    for at in np.argsort(times, kind="stable").tolist():
        t, later = times[at], int(lineage.events.end_frames()[doubts[at][0]])
        frames = {
            s: frames[s] if s in frames else FrameImages(movie.label(s), movie.image(s))
            for s in (t, later)
        }
        pictures[at] = _picture(
            lineage, doubts[at], frames[t], frames[later], movie.spacing
        )
    return pictures


def _picture(
    lineage: Lineage,
    rows: Sequence[int],
    before: FrameImages,
    after: FrameImages,
    spacing: tuple[float, ...],
) -> str:
    """Some events in both frames."""
    events = lineage.events[np.asarray(rows)]
    sources, targets = (
        np.setdiff1d(side, [NONE]) for side in (events.sources, events.targets)
    )
    newborn = np.setdiff1d(events.targets[events.sources[:, 0] == NONE], [NONE])
    nodes = np.concatenate(
        [lineage.sources[rows].ravel(), lineage.targets[rows].ravel()]
    )
    pixels = lineage.position[nodes[nodes >= 0]] / np.asarray(spacing)
    window = _window([before.mask, after.mask], [sources, targets], pixels, spacing)
    masks = [window.cut(frame.mask) for frame in (before, after)]
    greys = _greys(
        [
            None if frame.image is None else window.cut(frame.image)
            for frame in (before, after)
        ],
        masks,
    )
    # cells of the other frame are dashed: where they were, or where one will be that comes out of nothing
    ghosts = [_shapes(masks[1], newborn), _shapes(masks[0], sources)]

    parts = []
    for side, involved in enumerate((sources, targets)):
        x = side * (PANEL + GUTTER)
        name = f"frame {int((events.frame, events.end_frames())[side][0])}"
        parts.append(
            f'<text x="{x:g}" y="11" font-size="11" fill="var(--muted)">{name}</text>'
        )
        panel = _panel(window, greys[side], masks[side], involved, ghosts[side])
        parts.append(f'<g transform="translate({x:g} {HEAD:g})">{panel}</g>')
    here, there = _shapes(masks[0], sources), _shapes(masks[1], targets)
    for _, _, ones, others in events:
        parts += [
            _arrow(here[a], there[b], window)
            for a in ones
            for b in others
            if a in here and b in there
        ]
    words = "; ".join(lineage.events.describe(row) for row in rows)
    return (
        f'<svg viewBox="0 0 {2 * PANEL + GUTTER:g} {PANEL + HEAD:g}" role="img" aria-label="{escape_text(words)}" '
        f'style="font-family: var(--font)">{"".join(parts)}</svg>'
    )


def _window(
    masks: list[NDArray[Any]],
    ids: list[Labels],
    pixels: Array,
    spacing: tuple[float, ...],
) -> CropWindow:
    """A square around the cells of both frames, moved inside the image where it would stick out."""
    shape = np.array(masks[0].shape)
    low, high = np.floor(pixels.min(axis=0)), np.ceil(pixels.max(axis=0)) + 1
    for mask, labels in zip(masks, ids, strict=True):
        found = np.nonzero(np.isin(mask, labels))
        if len(found[0]):
            low = np.minimum(low, [axis.min() for axis in found])
            high = np.maximum(high, [axis.max() + 1 for axis in found])
    sizes = np.asarray(spacing)[-2:]
    side = max(
        CONTEXT * float(((high - low)[-2:] * sizes).max()), 24 * float(sizes.min())
    )
    extent = np.minimum(np.ceil(side / sizes), shape[-2:]).astype(int)
    start = (
        np.round((low + high)[-2:] / 2 - extent / 2)
        .astype(int)
        .clip(0, shape[-2:] - extent)
    )
    step = max(1, -(-int(extent.max()) // MAX_PIXELS))
    depth = (
        [slice(max(int(low[0]), 0), min(int(high[0]), int(shape[0])))]
        if len(shape) == 3
        else []
    )
    across = [slice(int(a), int(a + n)) for a, n in zip(start, extent, strict=True)]
    unit = PANEL * step / float((extent * sizes).max())
    return CropWindow(
        (*depth, *across), step, unit * float(sizes[0]), unit * float(sizes[1])
    )


def _greys(
    images: list[NDArray[Any] | None], masks: list[NDArray[Any]]
) -> list[NDArray[np.uint8]]:
    """Both crops as 8-bit greys on one scale, projected in 3D; where there are no images, cells on a dark ground."""
    seen = [
        _flat(np.nan_to_num(image.astype(np.float64)))
        for image in images
        if image is not None
    ]
    if len(seen) < len(images):
        return [np.where(_flat(mask) > 0, 92, 40).astype(np.uint8) for mask in masks]
    low, high = np.percentile(
        np.concatenate([image.ravel() for image in seen]), [0.5, 99.7]
    )
    span = high - low if high > low else 1.0
    return [
        (255 * ((image - low) / span).clip(0, 1) ** GAMMA).astype(np.uint8)
        for image in seen
    ]


def _flat(volume: NDArray[Any]) -> NDArray[Any]:
    """The maximum over depth; a 2D image as it is."""
    flat: NDArray[Any] = volume.max(axis=0) if volume.ndim == 3 else volume
    return flat


def _shapes(mask: NDArray[Any], labels: Labels) -> dict[int, NDArray[np.bool_]]:
    """The outlines' insides of those cells that the window shows."""
    return {
        label: _flat(mask == label) for label in np.intersect1d(mask, labels).tolist()
    }


def _panel(
    window: CropWindow,
    grey: NDArray[np.uint8],
    mask: NDArray[Any],
    involved: Labels,
    ghosts: dict[int, NDArray[np.bool_]],
) -> str:
    """One frame: the image, thin outlines of all cells, thick ones and large ids of those that the event is about."""
    height, width = grey.shape[0] * window.down, grey.shape[1] * window.right
    data = b64encode(png_encode(np.ascontiguousarray(grey))).decode()
    parts = [
        f'<image class="crop" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{data}"/>'
    ]
    names = []
    for label, shape in _shapes(mask, np.union1d(_neighbours(mask), involved)).items():
        mine = label in involved
        look = (
            f'stroke="{ACCENT}" stroke-width="1.8"'
            if mine
            else f'stroke="{OTHERS}" stroke-width=".7" opacity=".6"'
        )
        parts.append(
            f'<path d="{window.outline(shape)}" fill="none" stroke-linejoin="round" {look}/>'
        )
        x, y = window.middle(shape)
        roomy = shape.sum() * window.down * window.right > ROOM_FOR_NAME
        if mine or (
            roomy and 12 < x < width - 12 and 8 < y < height - 8
        ):  # a neighbour's id must not stick out
            names.append(_name(label, x, y, mine))
    parts += [
        f'<path d="{window.outline(shape)}" fill="none" stroke="{ACCENT}" stroke-width="1.1" stroke-dasharray="3 3" '
        'opacity=".85"/>'
        for shape in ghosts.values()
    ]
    return "".join([*parts, *names])


def _neighbours(mask: NDArray[Any]) -> Labels:
    """Labels of the cells nearest to the middle of a crop, which is where the event is."""
    labels, cell = np.unique(_flat(mask), return_inverse=True)
    if len(labels) > MAX_NEIGHBOURS:
        far = np.hypot(
            *(np.indices(cell.shape) - np.array(cell.shape)[:, None, None] / 2)
        )
        distance = np.bincount(cell.ravel(), weights=far.ravel()) / np.bincount(
            cell.ravel()
        )
        labels = labels[np.argsort(distance, kind="stable")[:MAX_NEIGHBOURS]]
    return np.setdiff1d(labels, [NONE]).astype(np.int64)


def _name(label: int, x: float, y: float, mine: bool) -> str:
    """A cell's id, with a halo that keeps it legible on any ground."""
    look = (
        f'font-size="12" font-weight="600" fill="{ACCENT}"'
        if mine
        else f'font-size="9" fill="{OTHERS}" opacity=".8"'
    )
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" dy=".35em" text-anchor="middle" {look} stroke="#000000" stroke-width="2.5" '
        f'stroke-linejoin="round" paint-order="stroke">{label}</text>'
    )


def _arrow(
    source: NDArray[np.bool_], target: NDArray[np.bool_], window: CropWindow
) -> str:
    """From a cell of the left panel to one of the right, from edge to edge as far as cells are round."""
    (x, y), (u, v) = window.middle(source), window.middle(target)
    a, b = np.array([x, y + HEAD]), np.array([u + PANEL + GUTTER, v + HEAD])
    along = (b - a) / np.linalg.norm(b - a)
    area = window.down * window.right / np.pi
    a, b = (
        a + (3 + np.sqrt(area * source.sum())) * along,
        b - (3 + np.sqrt(area * target.sum())) * along,
    )
    back, side = b - 7 * along, 3.5 * np.array([-along[1], along[0]])
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in (b, back + side, back - side))
    return (
        f'<path d="M{a[0]:.1f} {a[1]:.1f}L{back[0]:.1f} {back[1]:.1f}" stroke="{ACCENT}" stroke-width="1.4"/>'
        f'<polygon points="{head}" fill="{ACCENT}"/>'
    )

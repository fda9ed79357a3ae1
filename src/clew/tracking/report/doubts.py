"""The least certain events in the report: in words, and as pictures of both frames."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from imagecodecs import png_encode
from matplotlib.path import Path
from numpy.typing import NDArray
from skimage.measure import find_contours

from clew.learning.task import Array, Mask
from clew.tracking.events import NONE, Labels
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report import markup
from clew.tracking.report.markup import escape_text, format_count, format_number

MAX_GROUP = 4
"""Larger groups of events share their confidence by chance."""
REGIONS = (
    ("top left", "top", "top right"),
    ("left", "center", "right"),
    ("bottom left", "bottom", "bottom right"),
)
TITLE = "Least certain events"
# sizes in units of the picture
PANEL = 210.0
"""Side of the square of one frame."""
GUTTER = 14.0
"""Space between the two frames."""
HEAD = 18.0
"""Height of the line above them."""
MIN_NAMED_AREA = 150
"""Area of a neighbor that is named."""
MAX_PIXELS = 160
"""Larger crops are subsampled."""
CONTEXT = 3.0
"""Width of a crop, relative to the cells of the event."""
MIN_WIDTH = 24
"""Least width of a crop in pixels."""
MAX_NEIGHBORS = 30
"""Neighbors with an outline, the ones nearest to the middle."""
GAMMA = 0.7
"""Lifts dim cells beside bright ones."""
ACCENT = "#ffb000"
"""Color of the cells of an event."""
OTHERS = "#ffffff"
"""Color of their neighbors."""

Point = tuple[float, float]
Shapes = dict[int, Mask]
"""Pixels of cells by their labels."""


def group_least_certain(lineage: Lineage, n: int) -> list[list[int]]:
    """Group the least certain events that depend on each other.

    If two cells may have swapped, forbidding either event leads to the same
    explanation: they have the same frames and the same confidence.

    Parameters
    ----------
    lineage : Lineage
    n : int
        Number of groups.

    Returns
    -------
    groups : list of lists of int
        Rows of events, the least certain first.
    """
    frame = lineage.events.frame.tolist()
    end = lineage.events.end_frames().tolist()
    alike: dict[tuple[int, int, str], list[int]] = {}
    for row in lineage.least_certain(MAX_GROUP * n).tolist():
        confidence = float(lineage.confidence[row])
        if np.isfinite(confidence):
            key = (frame[row], end[row], f"{confidence:.6g}")
            alike.setdefault(key, []).append(row)
    groups = []
    for rows in alike.values():
        groups += [rows] if len(rows) <= MAX_GROUP else [[row] for row in rows]
    return groups[:n]


def render_doubts(lineage: Lineage, movie: Movie | None, n: int) -> str:
    """Render the `n` least certain events as pictures and words."""
    if n < 1:
        return ""
    groups = group_least_certain(lineage, n)
    if not groups:
        lead = "No event has an alternative, so none is less certain than another."
        return markup.render_section(TITLE, markup.render_lead(lead))
    pictures = [""] * len(groups)
    if movie is not None:
        pictures = draw_crops(lineage, movie, groups)
    items = [
        f"<li>{picture}{_describe_group(lineage, movie, rows)}</li>"
        for rows, picture in zip(groups, pictures, strict=True)
    ]
    lead = (
        f"Check these {format_count(len(groups), 'place')} first; the least certain "
        f"comes first. {_explain_pictures(movie)}"
    )
    return markup.render_section(
        TITLE,
        markup.render_lead(lead),
        f'<ol class="doubts">{"".join(items)}</ol>',
    )


def _explain_pictures(movie: Movie | None) -> str:
    """How to read the pictures."""
    if movie is None:
        return "Pictures need the movie."
    words = (
        "Left: the frame before; right: the frame after. Thick outlines are the cells "
        "in question, thin ones their neighbors; dashed outlines show cells of the "
        "other frame. Numbers are labels."
    )
    if movie.images is None:
        words += " There are no images, so cells are drawn in gray."
    if movie.ndim == 3:
        words += " In 3D, the maximum over the slices of these cells is shown."
    return words


def _describe_group(lineage: Lineage, movie: Movie | None, rows: list[int]) -> str:
    """What happens, how certain it is, when and where."""
    described = [lineage.events.describe(row).partition(" from ") for row in rows]
    what = ", ".join(name for name, _, _ in described)
    when = described[0][2].capitalize()
    sources = lineage.sources[rows].ravel()
    targets = lineage.targets[rows].ravel()
    nodes = np.concatenate([sources, targets])
    position = lineage.position[nodes[nodes >= 0]].mean(axis=0)
    axes = zip("zyx"[-len(position) :], position.tolist(), strict=True)
    place = ", ".join(f"{axis} {value:.4g}" for axis, value in axes)
    confidence = format_number(float(lineage.confidence[rows[0]]))
    return (
        f"<h3><span>{escape_text(what[:1].upper() + what[1:])}</span>"
        f"<span>confidence {confidence}</span></h3>"
        f"<p>{escape_text(when)}, at {place}{_describe_region(position, movie)}</p>"
    )


def _describe_region(position: Array, movie: Movie | None) -> str:
    """Unit of a position, if it is pixels, and its region of the image."""
    if movie is None:
        return ""
    unit = " px" if set(movie.spacing) == {1.0} else ""
    pixel = (position / np.asarray(movie.spacing))[-2:]
    share = pixel / np.asarray(movie.shape)[-2:]
    row, column = np.clip((share * 3).astype(int), 0, 2).tolist()
    return f"{unit} ({REGIONS[row][column]} of the image)"


class FrameImages(NamedTuple):
    """Mask and image of one frame."""

    mask: NDArray[Any]
    image: NDArray[Any] | None


@dataclass(frozen=True)
class CropWindow:
    """The part of a frame that is shown.

    Attributes
    ----------
    slices : tuple of slice
        Rows and columns, in 3D also the planes that are projected.
    step : int
        Every so many pixels are shown.
    down, right : float
        Size of a shown pixel in units of the picture.
    """

    slices: tuple[slice, ...]
    step: int
    down: float
    right: float

    def cut(self, frame: NDArray[Any]) -> NDArray[Any]:
        """Crop a frame; 3D stays 3D."""
        return frame[self.slices][..., :: self.step, :: self.step]

    def find_center(self, shape: Mask) -> Point:
        """Center of a cell in the panel, as (x, y)."""
        rows, columns = np.nonzero(shape)
        x = float(columns.mean()) + 0.5
        y = float(rows.mean()) + 0.5
        return x * self.right, y * self.down

    def trace_outline(self, shape: Mask) -> str:
        """SVG path around a cell, of one or several parts."""
        parts = []
        for contour in find_contours(np.pad(shape, 1).astype(np.float32), 0.5):
            # matplotlib drops points on straight lines a hundred times as fast as
            # skimage.measure.approximate_polygon
            path = Path(contour).cleaned(simplify=True)
            is_corner = np.asarray(path.codes) != Path.STOP
            # less 1 for the padding, plus 0.5 for the edge of a pixel
            corners = np.asarray(path.vertices)[is_corner] - 0.5
            points = [
                f"{x * self.right:.1f} {y * self.down:.1f}" for y, x in corners[:-1]
            ]
            parts.append(f"M{'L'.join(points)}Z")
        return "".join(parts)


def draw_crops(
    lineage: Lineage, movie: Movie, groups: Sequence[Sequence[int]]
) -> list[str]:
    """Draw a picture of each group of events; only their frames are read.

    Parameters
    ----------
    lineage : Lineage
    movie : Movie
    groups : sequence of sequences of int
        Rows of events between the same two frames.

    Returns
    -------
    pictures : list of str
        Inline SVG.
    """
    pictures = [""] * len(groups)
    images: dict[int, FrameImages] = {}
    starts = [int(lineage.events.frame[rows[0]]) for rows in groups]
    ends = lineage.events.end_frames()
    for number in np.argsort(starts, kind="stable").tolist():
        rows = groups[number]
        frames = (starts[number], int(ends[rows[0]]))
        images = {
            t: images[t] if t in images else FrameImages(movie.label(t), movie.image(t))
            for t in frames
        }
        before, after = (images[t] for t in frames)
        pictures[number] = _draw_events(lineage, rows, before, after, movie.spacing)
    return pictures


def _draw_events(
    lineage: Lineage,
    rows: Sequence[int],
    before: FrameImages,
    after: FrameImages,
    spacing: tuple[float, ...],
) -> str:
    """Draw some events in both frames."""
    events = lineage.events[np.asarray(rows)]
    sources = np.setdiff1d(events.sources, [NONE])
    targets = np.setdiff1d(events.targets, [NONE])
    appeared = np.setdiff1d(events.targets[events.sources[:, 0] == NONE], [NONE])
    nodes = np.concatenate(
        [lineage.sources[rows].ravel(), lineage.targets[rows].ravel()]
    )
    pixels = lineage.position[nodes[nodes >= 0]] / np.asarray(spacing)
    window = _place_window(
        [before.mask, after.mask], [sources, targets], pixels, spacing
    )
    masks = [window.cut(frame.mask) for frame in (before, after)]
    images = [
        None if frame.image is None else window.cut(frame.image)
        for frame in (before, after)
    ]
    grays = _scale_grays(images, masks)
    source_shapes = _select_shapes(masks[0], sources)
    target_shapes = _select_shapes(masks[1], targets)
    # dashed: sources in the later frame, and in the earlier one what appears
    ghosts = [_select_shapes(masks[1], appeared), source_shapes]
    labels = [sources, targets]
    frames = [int(events.frame[0]), int(events.end_frames()[0])]

    parts = []
    for side in (0, 1):
        x = side * (PANEL + GUTTER)
        parts.append(
            f'<text x="{x:g}" y="11" font-size="11" fill="var(--muted)">'
            f"frame {frames[side]}</text>"
        )
        panel = _draw_panel(
            window, grays[side], masks[side], labels[side], ghosts[side]
        )
        parts.append(f'<g transform="translate({x:g} {HEAD:g})">{panel}</g>')
    for _, _, source_labels, target_labels in events:
        for source in source_labels:
            for target in target_labels:
                if source in source_shapes and target in target_shapes:
                    arrow = _draw_arrow(
                        source_shapes[source], target_shapes[target], window
                    )
                    parts.append(arrow)
    words = "; ".join(lineage.events.describe(row) for row in rows)
    return (
        f'<svg viewBox="0 0 {2 * PANEL + GUTTER:g} {PANEL + HEAD:g}" role="img" '
        f'aria-label="{escape_text(words)}" style="font-family: var(--font)">'
        f"{''.join(parts)}</svg>"
    )


def _place_window(
    masks: list[NDArray[Any]],
    labels: list[Labels],
    pixels: Array,
    spacing: tuple[float, ...],
) -> CropWindow:
    """Place a square around the cells of both frames, inside the image."""
    shape = np.array(masks[0].shape)
    low = np.floor(pixels.min(axis=0))
    high = np.ceil(pixels.max(axis=0)) + 1
    for mask, wanted in zip(masks, labels, strict=True):
        places = np.nonzero(np.isin(mask, wanted))
        if len(places[0]):
            low = np.minimum(low, [axis.min() for axis in places])
            high = np.maximum(high, [axis.max() + 1 for axis in places])
    sizes = np.asarray(spacing)[-2:]
    width = CONTEXT * float(((high - low)[-2:] * sizes).max())
    width = max(width, MIN_WIDTH * float(sizes.min()))
    extent = np.minimum(np.ceil(width / sizes), shape[-2:]).astype(int)
    middle = (low + high)[-2:] / 2
    start = np.round(middle - extent / 2).astype(int)
    start = start.clip(0, shape[-2:] - extent)
    slices = [slice(int(a), int(a + n)) for a, n in zip(start, extent, strict=True)]
    if len(shape) == 3:
        slices.insert(0, slice(max(int(low[0]), 0), min(int(high[0]), int(shape[0]))))
    step = max(1, -(-int(extent.max()) // MAX_PIXELS))
    unit = PANEL * step / float((extent * sizes).max())
    return CropWindow(
        tuple(slices), step, unit * float(sizes[0]), unit * float(sizes[1])
    )


def _scale_grays(
    images: list[NDArray[Any] | None], masks: list[NDArray[Any]]
) -> list[NDArray[np.uint8]]:
    """Scale both crops alike to 8 bits; without images, draw cells on a dark ground."""
    flat = [
        _project(np.nan_to_num(image.astype(np.float64)))
        for image in images
        if image is not None
    ]
    if len(flat) < len(images):
        return [np.where(_project(mask) > 0, 92, 40).astype(np.uint8) for mask in masks]
    values = np.concatenate([image.ravel() for image in flat])
    low, high = np.percentile(values, [0.5, 99.7])
    span = high - low if high > low else 1.0
    scaled = [((image - low) / span).clip(0, 1) ** GAMMA for image in flat]
    return [(255 * image).astype(np.uint8) for image in scaled]


def _project(volume: NDArray[Any]) -> NDArray[Any]:
    """Maximum over depth; a 2D image stays."""
    flat: NDArray[Any] = volume.max(axis=0) if volume.ndim == 3 else volume
    return flat


def _select_shapes(mask: NDArray[Any], labels: Labels) -> Shapes:
    """Pixels of the cells that a crop shows."""
    shown = np.intersect1d(mask, labels).tolist()
    return {label: _project(mask == label) for label in shown}


def _draw_panel(
    window: CropWindow,
    gray: NDArray[np.uint8],
    mask: NDArray[Any],
    labels: Labels,
    ghosts: Shapes,
) -> str:
    """Draw one frame: image, outlines of all cells, ids; thick for `labels`."""
    height = gray.shape[0] * window.down
    width = gray.shape[1] * window.right
    data = b64encode(png_encode(np.ascontiguousarray(gray))).decode()
    parts = [
        f'<image class="crop" width="{width:.1f}" height="{height:.1f}" '
        f'preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
    ]
    names = []
    shown = np.union1d(_list_neighbors(mask), labels)
    for label, shape in _select_shapes(mask, shown).items():
        is_involved = label in labels
        style = f'stroke="{OTHERS}" stroke-width=".7" opacity=".6"'
        if is_involved:
            style = f'stroke="{ACCENT}" stroke-width="1.8"'
        outline = window.trace_outline(shape)
        parts.append(
            f'<path d="{outline}" fill="none" stroke-linejoin="round" {style}/>'
        )
        x, y = window.find_center(shape)
        is_large = shape.sum() * window.down * window.right > MIN_NAMED_AREA
        is_inside = 12 < x < width - 12 and 8 < y < height - 8
        if is_involved or (is_large and is_inside):
            names.append(_draw_name(label, x, y, is_involved))
    for shape in ghosts.values():
        parts.append(
            f'<path d="{window.trace_outline(shape)}" fill="none" stroke="{ACCENT}" '
            'stroke-width="1.1" stroke-dasharray="3 3" opacity=".85"/>'
        )
    return "".join([*parts, *names])


def _list_neighbors(mask: NDArray[Any]) -> Labels:
    """Labels of the cells nearest to the middle of a crop."""
    labels, cell = np.unique(_project(mask), return_inverse=True)
    if len(labels) > MAX_NEIGHBORS:
        shape = np.array(cell.shape)[:, None, None]
        from_middle = np.hypot(*(np.indices(cell.shape) - shape / 2))
        total = np.bincount(cell.ravel(), weights=from_middle.ravel())
        distance = total / np.bincount(cell.ravel())
        labels = labels[np.argsort(distance, kind="stable")[:MAX_NEIGHBORS]]
    return np.setdiff1d(labels, [NONE]).astype(np.int64)


def _draw_name(label: int, x: float, y: float, is_involved: bool) -> str:
    """Draw the id of a cell, with a halo that keeps it legible."""
    style = f'font-size="9" fill="{OTHERS}" opacity=".8"'
    if is_involved:
        style = f'font-size="12" font-weight="600" fill="{ACCENT}"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" dy=".35em" text-anchor="middle" {style} '
        'stroke="#000000" stroke-width="2.5" stroke-linejoin="round" '
        f'paint-order="stroke">{label}</text>'
    )


def _draw_arrow(source: Mask, target: Mask, window: CropWindow) -> str:
    """Draw an arrow from a cell of the left panel to one of the right."""
    x, y = window.find_center(source)
    start = np.array([x, y + HEAD])
    x, y = window.find_center(target)
    end = np.array([x + PANEL + GUTTER, y + HEAD])
    direction = (end - start) / np.linalg.norm(end - start)
    pixel_area = window.down * window.right
    # from edge to edge, as far as cells are round
    start = start + (3 + np.sqrt(pixel_area * source.sum() / np.pi)) * direction
    end = end - (3 + np.sqrt(pixel_area * target.sum() / np.pi)) * direction
    base = end - 7 * direction
    side = 3.5 * np.array([-direction[1], direction[0]])
    corners = (end, base + side, base - side)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return (
        f'<path d="M{start[0]:.1f} {start[1]:.1f}L{base[0]:.1f} {base[1]:.1f}" '
        f'stroke="{ACCENT}" stroke-width="1.4"/>'
        f'<polygon points="{points}" fill="{ACCENT}"/>'
    )

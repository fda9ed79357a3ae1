"""The section of the report that shows the least certain events."""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report import markup
from clew.tracking.report.crops import draw_crops
from clew.tracking.report.markup import escape_text, format_count, format_number

MAX_GROUP = 4
"""Larger groups of events share their confidence by chance."""
REGIONS = (
    ("top left", "top", "top right"),
    ("left", "center", "right"),
    ("bottom left", "bottom", "bottom right"),
)
TITLE = "Least certain events"


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

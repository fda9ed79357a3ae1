"""The part of the report that shows the events to look at first."""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie
from clew.tracking.report import markup
from clew.tracking.report.crops import draw_crops
from clew.tracking.report.markup import escape_text, format_count, format_number

MAX_TOGETHER = 4
"""More events than these that share a confidence by chance are no single doubt."""
PLACES = (
    ("top left", "top", "top right"),
    ("left", "centre", "right"),
    ("bottom left", "bottom", "bottom right"),
)


def group_least_certain(lineage: Lineage, n: int) -> list[list[int]]:
    """Rows of the `n` least certain events, the least first; events that stand or fall together are one.

    Where two cells may have changed places, or one came where another went, forbidding either of the two events leads
    to the same explanation: they have the same frames and the same confidence.
    """
    together: dict[tuple[int, int, str], list[int]] = {}
    frame, end = lineage.events.frame.tolist(), lineage.events.end_frames().tolist()
    for row in lineage.least_certain(MAX_TOGETHER * n).tolist():
        if np.isfinite(confidence := float(lineage.confidence[row])):
            together.setdefault((frame[row], end[row], f"{confidence:.6g}"), []).append(
                row
            )
    groups = [
        [rows] if len(rows) <= MAX_TOGETHER else [[row] for row in rows]
        for rows in together.values()
    ]
    return [rows for group in groups for rows in group][:n]


def render_doubts(lineage: Lineage, movie: Movie | None, n: int) -> str:
    """The least certain events in pictures and words."""
    title = "Least certain events"
    if n < 1:
        return ""
    doubts = group_least_certain(lineage, n)
    if not doubts:
        return markup.render_section(
            title,
            markup.render_lead(
                "No event has an alternative, so none is less certain than another."
            ),
        )
    pictures = (
        draw_crops(lineage, movie, doubts) if movie is not None else [""] * len(doubts)
    )
    items = [
        f"<li>{picture}{_in_words(lineage, movie, rows)}</li>"
        for rows, picture in zip(doubts, pictures, strict=True)
    ]
    lead = f"{format_count(len(doubts), 'place')} to look at first, the least certain before the others. {_how(movie)}"
    return markup.render_section(
        title, markup.render_lead(lead), f'<ol class="doubts">{"".join(items)}</ol>'
    )


def _how(movie: Movie | None) -> str:
    """How the pictures are to be read."""
    if movie is None:
        return "Pictures of them need the movie."
    ground = (
        ""
        if movie.images is not None
        else " There are no images, so the cells are drawn in grey."
    )
    depth = (
        " In 3D, the picture is a maximum projection over the slices of these cells."
        if movie.ndim == 3
        else ""
    )
    return (
        "The frame before is at the left, the one after at the right. Thick outlines are the cells in question, thin "
        f"ones their neighbours; dashed is where a cell lies in the other frame. Numbers are labels.{ground}{depth}"
    )


def _in_words(lineage: Lineage, movie: Movie | None, rows: list[int]) -> str:
    """What, how sure, when and where."""
    told = [lineage.events.describe(row).partition(" from ") for row in rows]
    what = ", ".join(name for name, _, _ in told)
    nodes = np.concatenate(
        [lineage.sources[rows].ravel(), lineage.targets[rows].ravel()]
    )
    position = lineage.position[nodes[nodes >= 0]].mean(axis=0)
    place = ", ".join(
        f"{axis} {value:.4g}"
        for axis, value in zip("zyx"[-len(position) :], position.tolist(), strict=True)
    )
    return (
        f"<h3><span>{escape_text(what[:1].upper() + what[1:])}</span>"
        f"<span>confidence {format_number(float(lineage.confidence[rows[0]]))}</span></h3>"
        f"<p>{escape_text(told[0][2].capitalize())}, at {place}{_region(position, movie)}</p>"
    )


def _region(position: Array, movie: Movie | None) -> str:
    """The unit of a position if it is known, and where in the image it is."""
    if movie is None:
        return ""
    unit = " px" if set(movie.spacing) == {1.0} else ""
    share = (position / np.asarray(movie.spacing))[-2:] / np.asarray(movie.shape)[-2:]
    row, column = np.clip((share * 3).astype(int), 0, 2).tolist()
    return f"{unit} ({PLACES[row][column]} of the image)"

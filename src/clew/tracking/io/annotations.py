"""Read annotations from any file that can hold them, and write them as a table.

A table has the columns of ``events.csv`` and one that says whether the event
happened: ``12,divide,5,17 18,yes`` is a division of cell 5 into 17 and 18 from frame
12 to 13. Without the last column, all events happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from clew.errors import InputError
from clew.learning.task import Array, Mask
from clew.parallel import Progress
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Annotations, Event, EventTable, Labels
from clew.tracking.io import ctc
from clew.tracking.io.delimited import (
    Table,
    read_delimited,
    write_delimited,
)
from clew.tracking.io.formats import FILE_SUFFIXES, is_zarr, open_lineage
from clew.tracking.io.names import RESULT, TRUTH
from clew.tracking.io.point_lineage import PointLineage
from clew.tracking.io.result_tables import (
    ALIASES,
    AXES,
    COLUMNS,
    FALSE,
    make_event_columns,
    parse_events,
)
from clew.tracking.io.track_tables import is_track_table
from clew.tracking.lineage.tracks import MissingFromMask
from clew.utils import validation as checks
from clew.utils.validation import Faults

if TYPE_CHECKING:
    from clew.tracking.evaluation.matching import LabelSource
    from clew.tracking.io.geff import GeffGraph

TABLES = (".csv", ".tsv", ".txt")
CTC_FILES = (TRUTH, RESULT)
HAPPENED = "happened"
ANSWERS = dict.fromkeys(("yes", "true", "1", "y"), True)
ANSWERS |= dict.fromkeys(("no", "false", "0", "n"), False)


@dataclass(frozen=True, eq=False)
class AnnotationReading:
    """Annotations of a movie, and how they were read.

    Attributes
    ----------
    annotations : Annotations
        In the labels of the movie.
    summary : str
        What was decided and how many events of each kind are known, in words.
    unattached_frame, unattached_track : ndarray of shape (k,)
        Cells of the file for which the movie has no detection.
    unattached_position : ndarray of shape (k, ndim)
        As in the file; (k, 0) if it has masks.
    """

    annotations: Annotations
    summary: str
    unattached_frame: Labels
    unattached_track: Labels
    unattached_position: Array

    def write_unattached(self, path: str | Path) -> None:
        """Write the cells without a detection as a table."""
        axes = AXES[len(AXES) - self.unattached_position.shape[1] :]
        columns = [
            self.unattached_frame,
            self.unattached_track,
            *self.unattached_position.T,
        ]
        write_delimited(path, ["frame", "track", *axes], [columns])


def read_annotations(
    path: str | Path,
    movie: LabelSource | DetectionTable,
    progress: Progress | None = None,
    *,
    complete: bool | None = None,
    distance: float | None = None,
) -> Annotations:
    """Read the annotations of a movie, in the labels of the movie.

    Parameters
    ----------
    path : str or Path
        A table of events, or a lineage of all or some cells: masks of the Cell
        Tracking Challenge, a table of tracks, a GEFF, or a file of another program.
        Its cells are attached to those of the movie; see `evaluation.attachment`.
    movie : Movie or DetectionTable
        If it is an excerpt, frames in the file count from the start of the whole
        movie, and annotations outside the excerpt are left out.
    progress : callable, optional
        Called with the number of frames done and in all.
    complete : bool, optional
        Whether a lineage has all cells. If not, how its tracks begin and end is
        unknown. By default it is complete if its format says so or if it has nearly
        every detection.
    distance : float, optional
        Largest distance of a point and its detection; estimated by default.

    Returns
    -------
    annotations : Annotations
        `check_annotations` tells whether their cells exist.
    """
    reading = open_annotations(
        path, movie, progress, complete=complete, distance=distance
    )
    return reading.annotations


def open_annotations(
    path: str | Path,
    movie: LabelSource | DetectionTable,
    progress: Progress | None = None,
    *,
    complete: bool | None = None,
    distance: float | None = None,
) -> AnnotationReading:
    """As `read_annotations`; also describe how the file was read."""
    path = checks.check_path(path, "path")
    if complete is not None:
        checks.check_bool(complete, "complete")
    if not isinstance(getattr(movie, "n_frames", None), int):
        shown = checks.short_repr(movie)
        raise InputError(f"movie is {shown}; expected a Movie or a DetectionTable")
    excerpt = getattr(movie, "excerpt", None)
    if not path.exists():
        raise InputError(f"{path} does not exist; expected a file of annotations")
    graph = _read_own_graph(path)
    is_file = path.is_file() and path.name not in CTC_FILES
    if is_file and path.suffix.lower() not in (*TABLES, *FILE_SUFFIXES):
        others = [suffix for suffix in FILE_SUFFIXES if suffix not in TABLES]
        raise InputError(
            f"{path} is of an unknown kind; annotations are a table "
            f"({', '.join(TABLES)}), a GEFF, a file of another program ({', '.join(others)}), "
            f"or a folder with "
            f"{' or '.join(CTC_FILES)}"
        )
    if graph is None and not _is_event_table(path):
        lineage = _open_lineage(path, excerpt)
        return _attach(lineage, movie, progress, complete, distance)
    if graph is not None:
        happened = np.repeat([True, False], [len(graph.events), len(graph.denied)])
        events = EventTable.join([graph.events, graph.denied])
        annotations = Annotations.of(events, happened)
        if complete is False:
            annotations = annotations[~_is_end(events) | ~happened]
    else:
        n_frames = movie.n_frames if excerpt is None else None
        annotations = read_annotation_table(path, n_frames)
    if excerpt is not None:
        annotations = annotations.restrict_to(excerpt)
    summary = f"{path}: {describe_kinds(annotations.events.event)}"
    none = np.zeros(0, dtype=np.int64)
    return AnnotationReading(annotations, summary, none, none, np.zeros((0, 0)))


def _is_end(events: EventTable) -> Mask:
    """(n,) whether events are beginnings or ends of tracks."""
    return np.isin(events.event, (Event.APPEAR, Event.DISAPPEAR))


def describe_kinds(events: ArrayLike) -> str:
    """Describe counts of kinds of events: "120 move, 3 divide"."""
    counts = np.bincount(np.asarray(events, dtype=np.intp), minlength=len(Event))
    kinds = [f"{counts[event]:,} {event}" for event in Event if counts[event]]
    return ", ".join(kinds) or "no events"


def _is_event_table(path: Path) -> bool:
    """Whether a file is a table of events."""
    if path.suffix.lower() not in TABLES or not path.is_file():
        return False
    return path.name not in CTC_FILES and not is_track_table(path)


def _attach(
    lineage: ctc.CtcLineage | PointLineage,
    movie: LabelSource | DetectionTable,
    progress: Progress | None,
    complete: bool | None,
    distance: float | None,
) -> AnnotationReading:
    """Attach a lineage to a movie, and derive what it determines."""
    from clew.tracking.evaluation.attachment import attach_lineage, decide_completeness
    from clew.tracking.evaluation.truth import count_open_tracks, derive_known_events

    try:
        attachment = attach_lineage(lineage, movie, progress, distance)
    except MissingFromMask:
        if not isinstance(lineage, ctc.CtcLineage):
            raise
        lineage = ctc.split_at_gaps(lineage)
        attachment = attach_lineage(lineage, movie, progress, distance)
    is_complete, reason = decide_completeness(lineage, attachment, complete)
    events = derive_known_events(lineage, attachment.matched, is_complete=is_complete)
    n_open = count_open_tracks(lineage, movie.n_frames, is_complete=is_complete)
    kind = "complete" if is_complete else "partial"
    parts = [f"{lineage.source}: a {kind} lineage ({reason})"]
    parts += lineage.notes if isinstance(lineage, PointLineage) else ()
    parts += [str(attachment), describe_kinds(events.event)]
    if n_open:
        parts.append(f"ends of {n_open:,} tracks are unknown")
    frame, track = attachment.list_unattached()
    position = np.zeros((len(frame), 0))
    if isinstance(lineage, PointLineage):
        row = [
            int(np.searchsorted(lineage.track[lineage.rows(t)], cell))
            + lineage.rows(t).start
            for t, cell in zip(frame.tolist(), track.tolist(), strict=True)
        ]
        position = lineage.position[np.array(row, dtype=np.intp)]
    return AnnotationReading(
        Annotations.of(events), "; ".join(parts), frame, track, position
    )


def _open_lineage(path: Path, excerpt: range | None) -> ctc.CtcLineage | PointLineage:
    """Open a lineage, cut to the frames of an excerpt."""
    lineage = open_lineage(path)
    if excerpt is None:
        return lineage
    has_masks = isinstance(lineage, ctc.CtcLineage)
    if has_masks and excerpt.stop > lineage.n_frames:
        raise InputError(
            f"{path} has {lineage.n_frames} frames, but the excerpt ends with frame "
            f"{excerpt.stop - 1}; expected the lineage of the whole movie"
        )
    return lineage[excerpt.start : excerpt.stop]


def _read_own_graph(path: Path) -> GeffGraph | None:
    """Read a GEFF that clew wrote; None if the path is anything else."""
    if not is_zarr(path):
        return None
    # geff and zarr take seconds to load
    from clew.tracking.io.geff import is_geff, is_own_geff, read_geff

    return read_geff(path) if is_geff(path) and is_own_geff(path) else None


def read_annotation_table(path: str | Path, n_frames: int | None = None) -> Annotations:
    """Read a table of annotations; each keeps its line number for messages.

    A false detection ("false") takes part in nothing: it comes from no cell of the frame
    before and leads to none of the next. `n_frames` is the length of the movie.
    """
    aliases = {**ALIASES, HAPPENED: ("did_happen",)}
    table = _expand_false(read_delimited(path, aliases, COLUMNS), n_frames)
    faults = Faults(table.where)
    events = parse_events(table, faults)
    cells = table.columns.get(HAPPENED, ["yes"] * len(table))
    answers = [ANSWERS.get(str(cell).lower() or "yes") for cell in cells]
    if HAPPENED in table:
        is_unknown = [answer is None for answer in answers]
        table.add_faults(faults, is_unknown, HAPPENED, "yes or no")
    faults.refuse()
    return Annotations.of(events, np.array(answers, dtype=bool), table.row)


def _expand_false(table: Table, n_frames: int | None) -> Table:
    """Replace each false detection by its two events."""
    is_false = [str(cell).strip().lower() == FALSE for cell in table.columns["event"]]
    if not any(is_false):
        return table
    faults = Faults(table.where)
    frame = table.parse_integers("frame", faults, least=0)
    if HAPPENED in table:
        denied = [
            ANSWERS.get(str(cell).lower()) is False for cell in table.columns[HAPPENED]
        ]
        table.add_faults(faults, np.array(is_false) & denied, HAPPENED, "yes if false")
    faults.refuse()
    rows: list[int] = []
    changes: list[dict[str, Any]] = []
    for row, wrong in enumerate(is_false):
        if not wrong:
            rows.append(row)
            changes.append({})
            continue
        t = int(frame[row])
        cell = table.columns["sources"][row] or table.columns["targets"][row]
        if t > 0:
            begin = {"frame": t - 1, "event": str(Event.FALSE_BEGIN), "sources": ""}
            rows.append(row)
            changes.append(begin | {"targets": cell})
        if n_frames is None or t != n_frames - 1:
            rows.append(row)
            end = {"event": str(Event.FALSE_END), "sources": cell, "targets": ""}
            changes.append(end)
    columns = {
        name: [
            change.get(name, column[row])
            for row, change in zip(rows, changes, strict=True)
        ]
        for name, column in table.columns.items()
    }
    return Table(table.where, table.row[rows], columns)


def write_annotations(path: str | Path, annotations: Annotations) -> None:
    """Write annotations as a table, in their order."""
    events = annotations.events
    happened = np.where(annotations.happened, "yes", "no")
    columns = [*make_event_columns(events), happened]
    write_delimited(path, [*COLUMNS, HAPPENED], [columns])

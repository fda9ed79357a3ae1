"""Read annotations from any file that can hold them, and write them as a table.

A table has the columns of ``events.csv`` and one that says whether the event
happened: ``12,divide,5,17 18,yes`` is a division of cell 5 into 17 and 18 from frame
12 to 13. Without the last column, all events happened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clew.errors import InputError
from clew.parallel import Progress
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.matching import LabelSource
from clew.tracking.evaluation.truth import (
    derive_annotations,
    derive_annotations_by_position,
)
from clew.tracking.events import Annotations, EventTable
from clew.tracking.io import ctc
from clew.tracking.io.delimited import read_delimited, write_delimited
from clew.tracking.io.events_csv import (
    ALIASES,
    COLUMNS,
    make_event_columns,
    parse_events,
)
from clew.tracking.io.names import RESULT, TRUTH
from clew.tracking.io.track_tables import PointLineage, is_track_table, open_lineage
from clew.tracking.io.zarr import is_zarr
from clew.tracking.lineage.track_faults import Faults
from clew.utils import validation as checks

if TYPE_CHECKING:
    from clew.tracking.io.geff import GeffGraph

TABLES = (".csv", ".tsv", ".txt")
CTC_FILES = (TRUTH, RESULT)
HAPPENED = "happened"
ANSWERS = dict.fromkeys(("yes", "true", "1", "y"), True)
ANSWERS |= dict.fromkeys(("no", "false", "0", "n"), False)


def read_annotations(
    path: str | Path,
    movie: LabelSource | DetectionTable,
    progress: Progress | None = None,
) -> Annotations:
    """Read the annotations of a movie, in the labels of the movie.

    Parameters
    ----------
    path : str or Path
        A table of events or a GEFF, whose labels are those of the movie; or a whole
        lineage in masks or in a table of tracks, whose cells are matched to those of
        the movie: by masks if both have them, else by position.
    movie : Movie or DetectionTable
        If it is an excerpt, frames in the file count from the start of the whole
        movie, and annotations outside the excerpt are left out.
    progress : callable, optional
        Called with the number of frames done and in all.

    Returns
    -------
    annotations : Annotations
        `check_annotations` tells whether their cells exist.
    """
    path = checks.check_path(path, "path")
    excerpt = getattr(movie, "excerpt", None)
    if not path.exists():
        raise InputError(f"{path} does not exist; expected a file of annotations")
    graph = _read_graph(path)
    if graph is not None:
        happened = np.repeat([True, False], [len(graph.events), len(graph.denied)])
        events = EventTable.join([graph.events, graph.denied])
        annotations = Annotations.of(events, happened)
    elif path.is_dir() or path.name in CTC_FILES or is_track_table(path):
        return _match_lineage(_open_truth(path, excerpt), movie, progress)
    elif path.suffix.lower() in TABLES:
        annotations = read_annotation_table(path)
    else:
        raise InputError(
            f"{path} is of an unknown kind; annotations are a table "
            f"({', '.join(TABLES)}), a GEFF, or a folder with "
            f"{' or '.join(CTC_FILES)}"
        )
    return annotations if excerpt is None else annotations.restrict_to(excerpt)


def _match_lineage(
    truth: ctc.CtcLineage | PointLineage,
    movie: LabelSource | DetectionTable,
    progress: Progress | None,
) -> Annotations:
    """Match a lineage to a movie by masks, or by positions if one has no masks."""
    if isinstance(truth, ctc.CtcLineage) and not isinstance(movie, DetectionTable):
        return derive_annotations(truth, movie, progress)
    return derive_annotations_by_position(truth, movie, progress)


def _open_truth(path: Path, excerpt: range | None) -> ctc.CtcLineage | PointLineage:
    """Open a lineage, cut to the frames of an excerpt."""
    truth = open_lineage(path)
    if excerpt is None:
        return truth
    if excerpt.stop > truth.n_frames:
        raise InputError(
            f"{path} has {truth.n_frames} frames, but the excerpt ends with frame "
            f"{excerpt.stop - 1}; expected the lineage of the whole movie"
        )
    return truth[excerpt.start : excerpt.stop]


def _read_graph(path: Path) -> GeffGraph | None:
    """Read a GEFF; None if the path is anything else."""
    if not is_zarr(path):
        return None
    # geff and zarr take seconds to load
    from clew.tracking.io.geff import is_geff, read_geff

    return read_geff(path) if is_geff(path) else None


def read_annotation_table(path: str | Path) -> Annotations:
    """Read a table of annotations; each keeps its line number for messages."""
    aliases = {**ALIASES, HAPPENED: ("did_happen",)}
    table = read_delimited(path, aliases, COLUMNS)
    faults = Faults(table.where)
    events = parse_events(table, faults)
    cells = table.columns.get(HAPPENED, ["yes"] * len(table))
    answers = [ANSWERS.get(str(cell).lower() or "yes") for cell in cells]
    if HAPPENED in table:
        is_unknown = [answer is None for answer in answers]
        table.add_faults(faults, is_unknown, HAPPENED, "yes or no")
    faults.refuse()
    return Annotations.of(events, np.array(answers, dtype=bool), table.row)


def write_annotations(path: str | Path, annotations: Annotations) -> None:
    """Write annotations as a table, in their order."""
    events = annotations.events
    happened = np.where(annotations.happened, "yes", "no")
    write_delimited(
        path,
        [*COLUMNS, HAPPENED],
        len(events),
        lambda rows: [*make_event_columns(events[rows]), happened[rows].tolist()],
    )

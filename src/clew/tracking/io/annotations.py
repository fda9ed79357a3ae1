"""Annotations from any file that can hold them, told apart by its name and content."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.matching import derive_annotations_by_position
from clew.tracking.evaluation.truth import LabelSource, Progress, derive_annotations
from clew.tracking.events import Annotations, EventTable
from clew.tracking.io import ctc
from clew.tracking.io.annotation_csv import read_annotation_table
from clew.tracking.io.names import RESULT, TRUTH
from clew.tracking.io.track_tables import PointLineage, is_track_table, open_lineage
from clew.tracking.io.zarr import is_zarr
from clew.utils.validation import check_path

if TYPE_CHECKING:
    from clew.tracking.io.geff import GeffGraph

TABLES = (".csv", ".tsv", ".txt")
CTC_FILES = (TRUTH, RESULT)


def read_annotations(
    path: str | Path,
    movie: LabelSource | DetectionTable,
    progress: Progress | None = None,
) -> Annotations:
    """The annotations of a movie in a table, a GEFF, or a whole lineage in masks or a table, in the movie's own labels.

    A lineage's cells are matched to the movie's by their masks, or by positions where one of them is a table; a table
    of events and a GEFF name the movie's own labels. Whether those exist is for `check_annotations` to say. Of an
    excerpt, annotations are read by the numbers that frames have in the whole movie, and those outside are left out.
    """
    path, excerpt = check_path(path, "path"), getattr(movie, "excerpt", None)
    if not path.exists():
        raise InputError(f"{path}: there are no annotations of this name")
    if (graph := _graph(path)) is not None:
        happened = np.repeat([True, False], [len(graph.events), len(graph.denied)])
        found = Annotations.of(EventTable.join([graph.events, graph.denied]), happened)
    elif path.is_dir() or path.name in CTC_FILES or is_track_table(path):
        truth = _truth(path, excerpt)
        if isinstance(truth, ctc.CtcLineage) and not isinstance(movie, DetectionTable):
            return derive_annotations(truth, movie, progress)
        return derive_annotations_by_position(truth, movie, progress)
    elif path.suffix.lower() in TABLES:
        found = read_annotation_table(path)
    else:
        raise InputError(
            f"{path}: annotations are a table ({', '.join(TABLES)}), a GEFF, or a folder with {' or '.join(CTC_FILES)}"
        )
    return found if excerpt is None else found.restrict_to(excerpt)


def _truth(path: Path, excerpt: range | None) -> ctc.CtcLineage | PointLineage:
    """A lineage, cut to the frames of an excerpt: the others are not matched to anything."""
    truth = open_lineage(path)
    if excerpt is None:
        return truth
    if excerpt.stop > truth.n_frames:
        raise InputError(
            f"{path} has {truth.n_frames} frames; expected the lineage of the whole movie"
        )
    return truth[excerpt.start : excerpt.stop]


def _graph(path: Path) -> GeffGraph | None:
    """The graph of a GEFF; None of anything else."""
    if not is_zarr(path):
        return None
    from clew.tracking.io.geff import (
        is_geff,
        read_geff,
    )  # geff and zarr take seconds to load

    return read_geff(path) if is_geff(path) else None

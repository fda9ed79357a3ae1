"""Annotations from any file that can hold them, told apart by its name and content."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.truth import Labelled, Progress, truth_annotations
from clew.tracking.events import Annotations, EventTable
from clew.tracking.formats import ctc
from clew.tracking.formats.annotation_csv import read_annotation_table
from clew.tracking.formats.geff import is_geff, read_geff
from clew.tracking.formats.names import RESULT, TRUTH

TABLES = (".csv", ".tsv", ".txt")
CTC_FILES = (TRUTH, RESULT)


def read_annotations(
    path: str | Path, movie: Labelled | DetectionTable, progress: Progress | None = None
) -> Annotations:
    """The annotations of a movie in a table, a GEFF, or the folder of a CTC lineage, in the movie's own labels.

    A lineage's cells are matched to the movie's by their masks, which a table of detections has not; a table and a
    GEFF name the movie's own labels. Whether those exist is for `check_annotations` to say.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there are no annotations of this name")
    if is_geff(path):
        graph = read_geff(path)
        happened = np.repeat([True, False], [len(graph.events), len(graph.denied)])
        return Annotations.of(EventTable.join([graph.events, graph.denied]), happened)
    if path.is_dir() or path.name in CTC_FILES:
        if isinstance(movie, DetectionTable):
            raise InputError(
                f"{path}: a lineage in masks is matched to label images, which {movie.name} has not, being a table of "
                f"detections; expected a table ({', '.join(TABLES)}) or a GEFF"
            )
        return truth_annotations(ctc.open_truth(path), movie, progress)
    if path.suffix.lower() in TABLES:
        return read_annotation_table(path)
    raise InputError(
        f"{path}: annotations are a table ({', '.join(TABLES)}), a GEFF, or a folder with {' or '.join(CTC_FILES)}"
    )

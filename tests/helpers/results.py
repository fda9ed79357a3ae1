"""Write a result as masks and a table of tracks, and check that both fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from clew.tracking.io.ctc import CtcLineage
from clew.tracking.io.results import write_results
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import check_frame
from clew.tracking.movie import Movie


def write_ctc_result(
    folder: Path, movie: Movie, lineage: Lineage, *options: Any, **named: Any
) -> None:
    """Write a result in the format of the Cell Tracking Challenge only."""
    write_results(folder, lineage, movie, ["ctc"], *options, **named)


def check_ctc_lineage(lineage: CtcLineage) -> None:
    """Raise InputError for the first frame whose mask does not fit the table."""
    for t in range(lineage.n_frames):
        present = np.unique(lineage.masks[t])
        check_frame(lineage.tracks, t, present, lineage.source)

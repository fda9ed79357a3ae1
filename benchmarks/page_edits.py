"""What an edit of masks costs in the server: the frame measured again, two frame pairs made and solved again, kept."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from page_server import console, load

FRAMES = slice(60, 66)
"""Of HeLa 01: an edit touches two frame pairs, however long the movie is."""


def edits(options: argparse.Namespace) -> None:
    """Delete cells of one frame, one after the other; processor time and seconds of each."""
    from clew.app.api_models import MaskEditRequest
    from clew.app.session import PageSession
    from clew.tracking.measurement.measure import measure_movie
    from clew.tracking.movie import open_movie

    movie = open_movie(Path(os.environ["CLEW_DATA"]) / "Fluo-N2DL-HeLa/01")[FRAMES]
    with tempfile.TemporaryDirectory() as folder:
        source = measure_movie(movie, cache=Path(folder) / "cache", n_jobs=1)
        session = PageSession.open(0, movie, source, Path(folder) / "store.clewdb")
        for t in range(movie.n_frames - 1):
            session.predictions.by_frame[t] = session.predictions.solve(
                t, session.state.annotations.select_frame(t)
            )
        cells = session.get_cells(3).label.tolist()
        used, passed = [], []
        for n in range(options.edits):
            masks = session.store.mask_revisions().get(3, 0)
            body = {"key": f"k{n}", "revision": session.store.revision, "masks": masks}
            request = MaskEditRequest(**body, frame=3, kind="delete", cells=[cells[n]])
            processor, clock = time.process_time(), time.perf_counter()
            session.changes.edit_masks(request)
            used.append(time.process_time() - processor)
            passed.append(time.perf_counter() - clock)
        session.close()
    for what, seconds in (("processor time", used), ("from request to reply", passed)):
        middle, late = np.quantile(seconds, [0.5, 0.95])
        console.print(
            f"{options.edits} edits of {len(cells)} cells, {what}: median {middle:.3f} s, p95 {late:.3f} s, "
            f"load {load()}"
        )

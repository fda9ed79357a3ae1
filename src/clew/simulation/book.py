"""The true tracks of a simulated movie, written while it runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.tracking.lineage.tracks import Tracks

Ids = NDArray[np.int64]


class TrackBook:
    """Begin, end and parent of all tracks so far; the track in row i has the id i + 1."""

    def __init__(self) -> None:
        self.begin = self.end = self.parent = np.zeros(0, np.int64)

    def record(
        self, frame: int, track: Ids, mother: Ids, pixels: Ids, min_pixels: int
    ) -> Ids:
        """(n,) the tracks of n cells in a new frame, 0 for those out of view.

        Given for each are its track in the frame before, its mother's track if it was just born, and its pixels in
        view. A cell comes into view with twice the pixels with which it goes out, lest it flicker at the border. Where
        only one daughter is in view, she continues her mother's track: nobody could tell that it was a division.
        """
        visible = pixels >= np.where(
            (track > 0) | (mother > 0), min_pixels, 2 * min_pixels
        )
        sisters = np.bincount(mother[visible], minlength=mother.max(initial=0) + 1)[
            mother
        ]
        divided = (mother > 0) & (sisters == 2)
        track = np.where(
            visible, np.where((mother > 0) & (sisters == 1), mother, track), 0
        )
        new = np.flatnonzero(visible & (track == 0))
        track[new] = len(self.begin) + 1 + np.arange(len(new))
        self.begin = np.concatenate([self.begin, np.full(len(new), frame)])
        self.end = np.concatenate([self.end, np.full(len(new), frame)])
        self.parent = np.concatenate([self.parent, np.where(divided, mother, 0)[new]])
        self.end[track[visible] - 1] = frame
        return track

    def tracks(self) -> Tracks:
        """The table."""
        return Tracks(
            np.arange(1, len(self.begin) + 1),
            self.begin.copy(),
            self.end.copy(),
            self.parent.copy(),
        )

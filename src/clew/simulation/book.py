"""Record the true tracks of a simulated movie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clew.tracking.lineage.tracks import Tracks

Ids = NDArray[np.int64]


class TrackBook:
    """Begin, end and parent of all tracks; row i has the track id i + 1."""

    def __init__(self) -> None:
        self.begin = self.end = self.parent = np.zeros(0, np.int64)

    def record(
        self, frame: int, track: Ids, mother: Ids, pixels: Ids, min_pixels: int
    ) -> Ids:
        """Assign track ids to the cells of a new frame.

        A cell enters the view with twice the pixels with which it leaves, so that it
        does not flicker at the border. A single visible daughter continues the track
        of her mother, because the division cannot be seen.

        Parameters
        ----------
        track : (n,) track ids in the previous frame, 0 if out of view
        mother : (n,) track ids of the mothers of newborn cells, else 0
        pixels : (n,) visible pixels

        Returns
        -------
        (n,) track ids, 0 if out of view
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
        """Return the table of tracks."""
        return Tracks(
            np.arange(1, len(self.begin) + 1),
            self.begin.copy(),
            self.end.copy(),
            self.parent.copy(),
        )

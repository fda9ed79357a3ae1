"""A movie of three frames in which cells touch, its truth, and a result."""

import numpy as np
import pytest

from clew.tracking.events import LINEAGE_KINDS, EventTable
from clew.tracking.io import tiff
from clew.tracking.io.ctc import write_tracks
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import Tracks
from clew.tracking.movie import Movie

MOVE, DIVIDE, APPEAR, DISAPPEAR, SPLIT, MERGE, GAP = LINEAGE_KINDS


def images(*rows):
    """A label image of two equal rows for each row of digits; dots are background."""
    return [
        np.array([[int(pixel) for pixel in row.replace(".", "0")]] * 2, dtype=np.uint16)
        for row in rows
    ]


# 1 divides into 4 and 5; what was detected is one in the second frame where 1 and 2 touch
MASKS = images("11.22.3", "1122..3", "4.5.223")
TABLE = Tracks.of(
    [[1, 0, 1, 0], [2, 0, 2, 0], [3, 0, 2, 0], [4, 2, 2, 1], [5, 2, 2, 1]]
)
LABELS = images("88.99.1", "8888..1", "7.6.992")
EVENTS = [
    (0, MERGE, [8, 9], [8]),
    (0, MOVE, [1], [1]),
    (1, SPLIT, [8], [6, 9]),
    (1, APPEAR, [], [7]),
    (1, MOVE, [1], [2]),
]


@pytest.fixture
def truth(tmp_path):
    for folder in ("01_GT/TRA", "01_GT/SEG"):
        (tmp_path / folder).mkdir(parents=True)
    for t, mask in enumerate(MASKS):
        tiff.write_frame(tmp_path / f"01_GT/TRA/man_track{t:03}.tif", mask)
    tiff.write_frame(tmp_path / "01_GT/SEG/man_seg001.tif", MASKS[1])
    write_tracks(tmp_path / "01_GT/TRA/man_track.txt", TABLE)
    return tmp_path / "01_GT/TRA"


@pytest.fixture
def movie():
    return Movie.from_arrays(LABELS)


@pytest.fixture
def result():
    labels = [np.setdiff1d(frame, 0) for frame in LABELS]
    frame = np.repeat(range(3), [len(names) for names in labels])
    label = np.concatenate(labels)
    position = np.array(
        [
            np.argwhere(LABELS[t] == name).mean(axis=0)
            for t, name in zip(frame, label, strict=True)
        ]
    )
    table = EventTable.of(EVENTS)
    return Lineage(
        3,
        frame,
        label,
        position,
        table,
        np.ones(len(table)),
        {"volume": np.full(len(frame), 4.0)},
    )

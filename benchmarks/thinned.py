"""Variants of a sequence of the Cell Tracking Challenge: fewer frames, masks that tile.

Both write a folder that `open_movie` reads, with a truth beside it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import tifffile
from skimage.segmentation import expand_labels

from clew.tracking.io.ctc import read_tracks, write_tracks
from clew.tracking.lineage.tracks import Tracks

TRUTH = "01_GT/TRA"
PARTS = ("01", "01_SEG", "01_ST/SEG", TRUTH)


def thin_sequence(source: Path, target: Path, every: int) -> Path:
    """Link every `every`-th frame of a folder with a sequence 01 into another.

    Tracks without a frame pass on their parent. A cell with three or more descendants
    in the next frame has no parent's link to them.

    Returns
    -------
    Path
        The new sequence.
    """
    for part in PARTS:
        for file in sorted((source / part).glob("*.tif")):
            number = int(re.findall(r"\d+", file.stem)[-1])
            if number % every == 0:
                stem = re.sub(r"\d+$", f"{number // every:03d}", file.stem)
                link = target / part / f"{stem}.tif"
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.resolve())
    write_tracks(
        target / TRUTH / "man_track.txt",
        thin_tracks(read_tracks(source / TRUTH), every),
    )
    return target / "01"


def thin_tracks(tracks: Tracks, every: int) -> Tracks:
    """Keep every `every`-th frame of a table of tracks."""
    parent_of = dict(zip(tracks.id.tolist(), tracks.parent.tolist(), strict=True))
    begin = -(-tracks.begin // every)
    end = tracks.end // every
    is_kept = begin <= end
    kept = set(tracks.id[is_kept].tolist())
    parents = []
    for parent in tracks.parent[is_kept].tolist():
        while parent and parent not in kept:
            parent = parent_of[parent]
        parents.append(parent)
    ids, counts = np.unique(parents, return_counts=True)
    crowded = ids[counts > 2]
    parent = np.where(np.isin(parents, crowded), 0, parents)
    return Tracks(tracks.id[is_kept], begin[is_kept], end[is_kept], parent)


def tile_sequence(source: Path, target: Path) -> Path:
    """Write a sequence 01 whose masks fill the frame, as cells of an epithelium do.

    Each mask of the truth grows until it meets others; there are no images.
    """
    (target / TRUTH).mkdir(parents=True)
    for file in sorted((source / TRUTH).glob("*.tif")):
        labels = tifffile.imread(file)
        spacing = np.sqrt(labels.size / max(len(np.unique(labels)) - 1, 1))
        grown = expand_labels(labels, spacing).astype(labels.dtype)
        tifffile.imwrite(target / TRUTH / file.name, grown, compression="zlib")
    write_tracks(target / TRUTH / "man_track.txt", read_tracks(source / TRUTH))
    return target / TRUTH

"""Lineages in the format of the Cell Tracking Challenge.

A text file lists the tracks, and masks carry the ids of the tracks. A row of
``man_track.txt`` (truth) or ``res_track.txt`` (result) is ``id begin end parent``.
Its frames are the numbers in the names of the masks; clew counts from 0, so the
number of the first mask is subtracted.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import DataWarning, InputError
from clew.tracking.frames import Excerpt, Frames, FramesView
from clew.tracking.io import tiff
from clew.tracking.io.names import (
    BESIDE_MASKS,
    MANIFEST,
    RESULT,
    TRACK,
    TRACKS,
    TRUTH,
)
from clew.tracking.io.point_lineage import PointLineage, make_lineage_of_tracks
from clew.tracking.io.result_folder import (
    finish_interrupted_write,
    list_foreign_files,
    read_manifest,
    refuse_interrupted_write,
    require_intact,
)
from clew.tracking.lineage.tracks import (
    MissingFromMask,
    Tracks,
    check_frame,
    check_tracks,
)
from clew.utils import validation as checks
from clew.utils.storage import write_bytes

MASK_NAMES = r"(man_track|mask)[0-9]"
"""Regular expression for the beginning of the names of masks with track ids."""


@dataclass(frozen=True)
class CtcLineage:
    """Tracks, and masks in which every cell carries the id of its track.

    Attributes
    ----------
    tracks : Tracks
    masks : Frames
    source : str
        The folder, for messages.
    """

    tracks: Tracks
    masks: Frames
    source: str

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return len(self.masks)

    def __getitem__(self, frames: slice) -> CtcLineage:
        """Consecutive frames, counted from 0; tracks are cut at both ends."""
        selected = range(len(self.masks))[frames]
        masks = Excerpt(self.masks, selected)
        return CtcLineage(self.tracks.within(selected), masks, self.source)


@dataclass(frozen=True)
class PieceMasks(FramesView):
    """Masks of tracks in which cells carry the ids of pieces without gaps.

    Attributes
    ----------
    pieces : PointLineage
        With the ids in the files as labels.
    """

    pieces: PointLineage

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a frame."""
        return np.dtype(np.int64)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, t: int) -> NDArray[Any]:
        rows = self.pieces.rows(t)
        name = dict(
            zip(self.pieces.label[rows], self.pieces.track[rows], strict=True)
            if self.pieces.label is not None
            else ()
        )
        ids, at = np.unique(self.frames[t], return_inverse=True)
        new = np.array([name.get(old, 0) for old in ids.tolist()], dtype=np.int64)
        return new[at].reshape(self.shape)


def read_tracks(path: str | Path) -> Tracks:
    """Read and check a table of tracks.

    Parameters
    ----------
    path : str or Path
        The table, or a folder with one.

    Returns
    -------
    tracks : Tracks
        Frames are counted from the first mask beside the table.
    """
    file = _find_table(checks.check_path(path, "the tracks"))
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read as a table of tracks ({error})"
        ) from error
    rows = []
    numbers = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            rows.append(_parse_row(line, f"{file}, row {number}"))
            numbers.append(number)
    tracks = Tracks.of(rows)
    is_background = tracks.id == 0
    if is_background.any():
        warnings.warn(
            f"{file}: the track with the id 0 is left out, since 0 is the background of "
            "masks; programs that count tracks from 0 lose their first one here",
            DataWarning,
            stacklevel=2,
        )
        numbers = np.array(numbers)[~is_background].tolist()
        tracks = tracks[~is_background]
    masks = tiff.list_tiffs(file.parent, MASK_NAMES)
    first = min((tiff.parse_frame_number(mask) or 0 for mask in masks), default=0)
    tracks = Tracks(tracks.id, tracks.begin - first, tracks.end - first, tracks.parent)
    check_tracks(tracks, str(file), numbers)
    return tracks


def _parse_row(line: str, where: str) -> list[int]:
    """Parse ``id begin end parent``."""
    cells = line.split()
    if len(cells) != 4:
        raise InputError(
            f"{where}: {len(cells)} columns; expected id, begin, end and parent"
        )
    for cell in cells:
        if not re.fullmatch(r"[-+]?[0-9]{1,18}", cell):
            raise InputError(f"{where}: {cell[:40]!r} is not an integer")
    return [int(cell) for cell in cells]


def write_tracks(path: str | Path, tracks: Tracks) -> None:
    """Write a table of tracks for masks that are numbered from 0."""
    check_tracks(tracks, "the tracks")
    rows = [" ".join(map(str, row)) for row in tracks.table().tolist()]
    write_bytes(path, "".join(f"{row}\n" for row in rows).encode())


def open_ctc_lineage(folder: str | Path) -> CtcLineage:
    """Open the tracks and masks of a truth or a result; masks are read on demand.

    Parameters
    ----------
    folder : str or Path
        ``…_GT`` or its ``TRA``, ``…_RES``, or a folder that clew wrote.
    """
    file = _find_table(checks.check_path(folder, "the lineage"))
    require_intact(file.parent, is_result_file)
    tracks = read_tracks(file)
    masks = tiff.open_folder(file.parent, MASK_NAMES)
    if masks.dtype.kind not in "iu":
        raise InputError(
            f"{masks.paths[0]} has dtype {masks.dtype}; masks must hold integers"
        )
    too_long = tracks.end >= len(masks)
    if too_long.any():
        row = int(np.argmax(too_long))
        raise InputError(
            f"{file}: track {tracks.id[row]} lasts to frame "
            f"{tracks.end[row] + masks.first}, but the last mask is "
            f"{masks.paths[-1].name}"
        )
    return CtcLineage(tracks, masks, str(file.parent))


def split_at_gaps(lineage: CtcLineage) -> CtcLineage:
    """Cut tracks where masks lack them; the pieces are parent and child.

    The Cell Tracking Challenge has a new track after a gap; other programs keep the
    id. Labels that the table does not have are refused.
    """
    labels = []
    for t in range(lineage.n_frames):
        present = np.unique(lineage.masks[t])
        with contextlib.suppress(MissingFromMask):
            check_frame(lineage.tracks, t, present, lineage.source)
        labels.append(present[present > 0].astype(np.int64))
    track = np.concatenate([np.zeros(0, dtype=np.int64), *labels])
    frame = np.repeat(np.arange(lineage.n_frames), [len(ids) for ids in labels])
    tracks = lineage.tracks
    pieces = make_lineage_of_tracks(
        frame,
        track,
        np.zeros((len(track), len(lineage.masks.shape))),
        dict(zip(tracks.id.tolist(), tracks.parent.tolist(), strict=True)),
        lineage.source,
        label=track,
    )
    n_lacking = int((tracks.end - tracks.begin + 1).sum()) - len(track)
    warnings.warn(
        f"{lineage.source}: {n_lacking} cells of tracks are not in the masks; taken as "
        "gaps",
        DataWarning,
        stacklevel=3,
    )
    return CtcLineage(pieces.tracks, PieceMasks(lineage.masks, pieces), lineage.source)


def is_mask_file(name: str) -> bool:
    """Whether clew names masks like this."""
    return re.fullmatch(r"mask[0-9]+\.tif", name) is not None


def is_result_file(name: str) -> bool:
    """Whether clew names files like this when it tracks."""
    return name in BESIDE_MASKS or is_mask_file(name)


def check_result_folder(
    folder: str | Path, what: str = TRACK, *, overwrite: bool = False
) -> None:
    """Refuse to write into a folder in which something could be lost.

    A new folder is fine, and so is one with an older result of the same kind. Hidden
    files do not count. Results of other programs have no manifest and are never
    replaced.

    Parameters
    ----------
    folder : str or Path
        Destination.
    what : str
        Kind of result: TRACK or DETECT of `names`.
    overwrite : bool
        Whether tracking results may be replaced that were changed by hand.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; results need a folder")
    if not path.exists():
        return
    owns = is_result_file if what == TRACK else _is_detection_file
    finish_interrupted_write(path, MANIFEST, owns)
    manifest = read_manifest(path)
    if manifest is not None and manifest.what != what:
        raise InputError(
            f"{path} holds results of clew {manifest.what}; choose another folder"
        )
    for name in sorted(entry.name for entry in path.iterdir()):
        is_known = owns(name) if name != MANIFEST else manifest is not None
        if not is_known and not name.startswith("."):
            raise InputError(
                f"{path} holds {name}, which is no result of clew {what}; choose a "
                "new folder, or one with such results only"
            )
    foreign = list_foreign_files(path, manifest, owns)
    if not foreign or (overwrite and manifest is not None):
        return
    remedy = "choose another folder, or move the files away"
    if what == TRACK and manifest is not None:
        remedy += ", or replace them by --overwrite (overwrite=True in Python)"
    raise InputError(
        f"{path} holds files that clew {what} did not write, or that were changed "
        f"since, and would be lost: {foreign[0]}; {remedy}"
    )


def _is_detection_file(name: str) -> bool:
    """Whether clew names files like this when it detects cells."""
    return name == MANIFEST or is_mask_file(name)


def _find_table(path: Path) -> Path:
    """Find the table of tracks that a path means."""
    if path.is_file():
        return path
    refuse_interrupted_write(path)
    candidates = [path / TRUTH, path / RESULT, path / "TRA" / TRUTH]
    for file in candidates:
        if file.is_file():
            return file
    if not path.exists():
        raise InputError(
            f"{path} does not exist; a lineage is a folder with {TRUTH} or {RESULT}, "
            "or a table of tracks"
        )
    tables = ", ".join(map(str, candidates))
    if path.is_dir():
        tables += f" or a table of tracks ({TRACKS})"
    has_masks = path.is_dir() and tiff.list_tiffs(path, MASK_NAMES)
    hint = "; it has masks: was a run interrupted?" if has_masks else ""
    raise InputError(f"{path} has no tracks; expected {tables}{hint}")

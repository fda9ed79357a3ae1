"""The Cell Tracking Challenge's lineages: a text file of tracks, and masks that carry the tracks' ids.

A row of `man_track.txt` (truth) or `res_track.txt` (a result) is `id begin end parent`. Its frames are the numbers in
the masks' names; clew counts from 0, so that the number of the first mask is taken off where it is not 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clew.errors import InputError
from clew.executors import Threads
from clew.tracking.blocks.parts import TrackedMovie, as_parts
from clew.tracking.frames import Excerpt, Frames
from clew.tracking.io import tiff
from clew.tracking.io.label_layers import write_label_images
from clew.tracking.io.manifest import (
    list_foreign_files,
    read_manifest,
    require_intact,
    write_atomically,
)
from clew.tracking.io.names import (
    BESIDE_MASKS,
    DETECT,
    MANIFEST,
    RESULT,
    TRACK,
    TRACKS,
    TRUTH,
)
from clew.tracking.io.staging import finish_interrupted_write
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import Tracks, check_frame, check_tracks
from clew.tracking.movie import Movie
from clew.utils.storage import write_bytes
from clew.utils.validation import check_path

MASK_NAMES = r"(man_track|mask)[0-9]"
"""How the names of masks with tracks begin."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CtcLineage:
    """Tracks, and masks in which every cell carries its track's id."""

    tracks: Tracks
    masks: Frames
    source: str
    """The folder, for messages."""

    @property
    def n_frames(self) -> int:
        """How many frames."""
        return len(self.masks)

    def __getitem__(self, frames: slice) -> CtcLineage:
        """Some of the frames, one after the other, counted from 0 again; tracks end where those do."""
        which = range(len(self.masks))[frames]
        return CtcLineage(
            self.tracks.within(which), Excerpt(self.masks, which), self.source
        )


def read_tracks(path: str | Path) -> Tracks:
    """The tracks of a file, or of the truth or result in a folder; every fault is told with its row."""
    file = _table_of(check_path(path, "the tracks"))
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read as a table of tracks ({error})"
        ) from error
    rows = [
        (number, line.split()) for number, line in enumerate(lines, 1) if line.strip()
    ]
    for number, cells in rows:
        if len(cells) != 4:
            raise InputError(
                f"{file}, row {number}: {len(cells)} columns; expected id, begin, end and parent"
            )
        for cell in cells:
            if not re.fullmatch(r"[-+]?[0-9]{1,18}", cell):
                raise InputError(f"{file}, row {number}: {cell!r} is not an integer")
    tracks = Tracks.of([[int(cell) for cell in cells] for _, cells in rows])
    first = min(
        (
            tiff.parse_frame_number(mask) or 0
            for mask in tiff.list_tiffs(file.parent, MASK_NAMES)
        ),
        default=0,
    )
    tracks = Tracks(tracks.id, tracks.begin - first, tracks.end - first, tracks.parent)
    check_tracks(tracks, str(file), [number for number, _ in rows])
    return tracks


def write_tracks(path: str | Path, tracks: Tracks) -> None:
    """A table of tracks as the challenge has it, for masks that are numbered from 0."""
    check_tracks(tracks, "the tracks")
    write_bytes(
        path,
        "".join(
            f"{a} {b} {c} {d}\n" for a, b, c, d in tracks.table().tolist()
        ).encode(),
    )


def open_ctc_lineage(folder: str | Path) -> CtcLineage:
    """The lineage in a folder: …_GT (or its TRA), …_RES or what clew wrote. Masks are read when they are asked for."""
    file = _table_of(check_path(folder, "the lineage"))
    require_intact(file.parent, is_result_file)
    tracks, masks = read_tracks(file), tiff.open_folder(file.parent, MASK_NAMES)
    if masks.dtype.kind not in "iu":
        raise InputError(
            f"{masks.paths[0]} has dtype {masks.dtype}; masks are of integers"
        )
    beyond = tracks.end >= len(masks)
    if beyond.any():
        at = int(np.argmax(beyond))
        raise InputError(
            f"{file}: track {tracks.id[at]} lasts to frame {tracks.end[at] + masks.first}, but the last mask is "
            f"{masks.paths[-1].name}"
        )
    return CtcLineage(tracks, masks, str(file.parent))


def check_ctc_lineage(lineage: CtcLineage, progress: Progress | None = None) -> None:
    """Check table and masks against each other in every frame, one frame in memory at a time."""
    n = len(lineage.masks)
    for t in range(n):
        check_frame(lineage.tracks, t, np.unique(lineage.masks[t]), lineage.source)
        if progress is not None:
            progress(t + 1, n)


def is_mask_file(name: str) -> bool:
    """Whether a file in a folder of results is a mask."""
    return re.fullmatch(r"mask[0-9]+\.tif", name) is not None


def is_result_file(name: str) -> bool:
    """Whether clew writes a file of this name when it tracks."""
    return name in BESIDE_MASKS or is_mask_file(name)


def check_result_folder(folder: str | Path, what: str = TRACK) -> None:
    """Refuse to write into a folder that holds anything but an older result of this kind: of `names`.

    Hidden files do not count. Results of other programs have no manifest, and are not replaced.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; results go into a folder")
    if not path.exists():
        return
    finish_interrupted_write(path)
    older = read_manifest(path)
    if older is not None and older.what != what:
        raise InputError(
            f"{path} holds what clew {older.what} wrote; results go into a folder of their own"
        )
    owns = is_result_file if what == TRACK else is_mask_file
    for name in sorted(entry.name for entry in path.iterdir()):
        known = owns(name) if name != MANIFEST else older is not None
        if not known and not name.startswith("."):
            raise InputError(
                f"{path} holds {name}, which is no result of this kind; results go into a new folder, or one that has "
                "such results only"
            )
    # people correct masks by hand; other files of a result are compared by nobody, and only those of others are kept
    if (older is None or what == DETECT) and (
        others := list_foreign_files(path, older, owns)
    ):
        raise InputError(
            f"{path} holds files that clew {what} did not write, or that were changed since: {others[0]}. They would "
            "be lost; give another folder, or move them away"
        )


def write_ctc_result(
    folder: str | Path,
    movie: Movie,
    lineage: Lineage | TrackedMovie,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> None:
    """Masks that carry the tracks' ids, and `res_track.txt`, in a folder of their own; an older result is replaced.

    The folder holds the old result or the whole new one, whatever happens; see `staging.py`.
    """
    check_result_folder(folder)
    with write_atomically(
        Path(folder), TRACK, is_result_file, {"movie": movie.name}
    ) as stage:
        write_masks(stage, movie, lineage, progress, n_jobs)


def write_masks(
    folder: Path,
    movie: Movie,
    lineage: Lineage | TrackedMovie,
    progress: Progress | None = None,
    n_jobs: int | None = None,
) -> None:
    """Masks that carry the tracks' ids, and `res_track.txt`, into a folder that is empty yet."""
    tracked = as_parts(lineage)
    write_label_images(folder, movie, tracked, Threads(n_jobs), progress, tiffs=True)
    write_tracks(folder / RESULT, tracked.tracks)


def _table_of(path: Path) -> Path:
    """The file of tracks that a path means."""
    if path.is_file():
        return path
    finish_interrupted_write(path)
    wanted = [path / TRUTH, path / RESULT, path / "TRA" / TRUTH]
    for file in wanted:
        if file.is_file():
            return file
    if not path.exists():
        raise InputError(
            f"{path} does not exist; a lineage is a folder with {TRUTH} or {RESULT}, or a table of tracks"
        )
    unfinished = path.is_dir() and tiff.list_tiffs(path, MASK_NAMES)
    hint = (
        "; it has masks: was the writing of a result cut short?" if unfinished else ""
    )
    beside = f", or a table of tracks ({TRACKS})" if path.is_dir() else ""
    raise InputError(
        f"{path} has no tracks; looked for {', '.join(map(str, wanted))}{beside}{hint}"
    )

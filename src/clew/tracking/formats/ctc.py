"""The Cell Tracking Challenge's lineages: a text file of tracks, and masks that carry the tracks' ids.

A row of `man_track.txt` (truth) or `res_track.txt` (a result) is `id begin end parent`. Its frames are the numbers in
the masks' names; clew counts from 0, so that the number of the first mask is taken off where it is not 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import joblib
import numpy as np
from numpy.typing import NDArray
from skimage.util import map_array

from clew import checks
from clew.errors import InputError
from clew.parallel import resolve_jobs
from clew.persist import write_bytes
from clew.tracking.events import Labels
from clew.tracking.formats import tiff
from clew.tracking.formats.manifest import read_manifest, require_whole, written_whole
from clew.tracking.formats.names import BESIDE_MASKS, MANIFEST, RESULT, TRACK, TRUTH
from clew.tracking.formats.staging import settle
from clew.tracking.movie import Excerpt, Frames, Movie
from clew.tracking.tracks import Tracks, check_tracks

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

    def __getitem__(self, frames: slice) -> CtcLineage:
        """Some of the frames, one after the other, counted from 0 again; tracks end where those do."""
        which = range(len(self.masks))[frames]
        return CtcLineage(self.tracks.within(which), Excerpt(self.masks, which), self.source)


class Tracked(Protocol):
    """What is needed of a lineage to write it: a track for every detection. Nodes are sorted by frame, then label."""

    @property
    def n_frames(self) -> int:
        """Of the movie."""

    @property
    def frame(self) -> NDArray[np.int64]:
        """(n,) of each node."""

    @property
    def label(self) -> Labels:
        """(n,) of each node in its frame."""

    @property
    def track(self) -> Labels:
        """(n,) the id of each node's track."""

    @property
    def tracks(self) -> Tracks:
        """The table of tracks."""


def read_tracks(path: str | Path) -> Tracks:
    """The tracks of a file, or of the truth or result in a folder; every fault is told with its row."""
    file = _table_of(checks.path(path, "the tracks"))
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as a table of tracks ({error})") from error
    rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    for number, cells in rows:
        if len(cells) != 4:
            raise InputError(f"{file}, row {number}: {len(cells)} columns; expected id, begin, end and parent")
        for cell in cells:
            if not re.fullmatch(r"[-+]?[0-9]{1,18}", cell):
                raise InputError(f"{file}, row {number}: {cell!r} is not an integer")
    tracks = Tracks.of([[int(cell) for cell in cells] for _, cells in rows])
    first = min((tiff.frame_number(mask) or 0 for mask in tiff.frame_files(file.parent, MASK_NAMES)), default=0)
    tracks = Tracks(tracks.id, tracks.begin - first, tracks.end - first, tracks.parent)
    check_tracks(tracks, str(file), [number for number, _ in rows])
    return tracks


def write_tracks(path: str | Path, tracks: Tracks) -> None:
    """A table of tracks as the challenge has it, for masks that are numbered from 0."""
    check_tracks(tracks, "the tracks")
    write_bytes(path, "".join(f"{a} {b} {c} {d}\n" for a, b, c, d in tracks.table().tolist()).encode())


def open_truth(folder: str | Path) -> CtcLineage:
    """The lineage in a folder: …_GT (or its TRA), …_RES or what clew wrote. Masks are read when they are asked for."""
    file = _table_of(checks.path(folder, "the lineage"))
    require_whole(file.parent, is_of_result)
    tracks, masks = read_tracks(file), tiff.open_folder(file.parent, MASK_NAMES)
    if masks.dtype.kind not in "iu":
        raise InputError(f"{masks.paths[0]} has dtype {masks.dtype}; masks are of integers")
    beyond = tracks.end >= len(masks)
    if beyond.any():
        at = int(np.argmax(beyond))
        raise InputError(
            f"{file}: track {tracks.id[at]} lasts to frame {tracks.end[at] + masks.first}, but the last mask is "
            f"{masks.paths[-1].name}"
        )
    return CtcLineage(tracks, masks, str(file.parent))


def check_frame(tracks: Tracks, t: int, labels: NDArray[Any], where: str = "the masks") -> None:
    """Refuse labels of frame t that are not exactly the tracks alive in it; a 0 among them is the background."""
    alive = tracks.id[(tracks.begin <= t) & (t <= tracks.end)]
    strange = np.setdiff1d(labels, np.append(alive, 0))
    if len(strange):
        rows = np.flatnonzero(tracks.id == strange[0])
        told = f"lasts from frame {tracks.begin[rows[0]]} to {tracks.end[rows[0]]}" if len(rows) else "does not exist"
        raise InputError(
            f"{where}, frame {t}: label {strange[0]} is in the mask, but by the table track {strange[0]} {told}"
        )
    lacking = np.setdiff1d(alive, labels)
    if len(lacking):
        raise InputError(f"{where}, frame {t}: track {lacking[0]} is alive by the table, but not in the mask")


def check_all(lineage: CtcLineage, progress: Progress | None = None) -> None:
    """Check table and masks against each other in every frame, one frame in memory at a time."""
    n = len(lineage.masks)
    for t in range(n):
        check_frame(lineage.tracks, t, np.unique(lineage.masks[t]), lineage.source)
        if progress is not None:
            progress(t + 1, n)


def is_mask(name: str) -> bool:
    """Whether a file in a folder of results is a mask."""
    return re.fullmatch(r"mask[0-9]+\.tif", name) is not None


def is_of_result(name: str) -> bool:
    """Whether clew writes a file of this name when it tracks."""
    return name in BESIDE_MASKS or is_mask(name)


def check_result_folder(folder: str | Path, what: str = TRACK) -> None:
    """Refuse to write into a folder that holds anything but an older result of this kind: of `names`.

    Hidden files do not count.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; results go into a folder")
    if not path.exists():
        return
    settle(path)
    older = read_manifest(path)
    if older is not None and older.what != what:
        raise InputError(f"{path} holds what clew {older.what} wrote; results go into a folder of their own")
    owns = is_of_result if what == TRACK else is_mask
    for name in sorted(entry.name for entry in path.iterdir()):
        known = owns(name) if name != MANIFEST else older is not None
        if not known and not name.startswith("."):
            raise InputError(
                f"{path} holds {name}, which is no result of this kind; results go into a new folder, or one that has "
                "such results only"
            )


def write_result(
    folder: str | Path, movie: Movie, lineage: Tracked, progress: Progress | None = None, n_jobs: int | None = None
) -> None:
    """Masks that carry the tracks' ids, and `res_track.txt`, in a folder of their own; an older result is replaced.

    The folder holds the old result or the whole new one, whatever happens; see `staging.py`.
    """
    check_result_folder(folder)
    with written_whole(Path(folder), TRACK, is_of_result, {"movie": movie.name}) as stage:
        write_masks(stage, movie, lineage, progress, n_jobs)


def write_masks(
    folder: Path, movie: Movie, lineage: Tracked, progress: Progress | None = None, n_jobs: int | None = None
) -> None:
    """Masks that carry the tracks' ids, and `res_track.txt`, into a folder that is empty yet."""
    n, tracks = movie.n_frames, lineage.tracks
    if lineage.n_frames != n:
        raise InputError(f"the lineage is of {lineage.n_frames} frames, and {movie.name} has {n}")
    dtype = np.uint16 if tracks.id.max(initial=0) <= np.iinfo(np.uint16).max else np.uint32
    limits = np.searchsorted(lineage.frame, np.arange(n + 1))
    digits = max(3, len(str(n - 1)))

    def write_mask(t: int) -> None:
        nodes = slice(limits[t], limits[t + 1])
        mask = movie.label(t)
        relabelled = map_array(mask, lineage.label[nodes].astype(mask.dtype), lineage.track[nodes].astype(dtype))
        if np.any((relabelled == 0) & (mask != 0)):
            strange = mask[(relabelled == 0) & (mask != 0)][0]
            raise InputError(f"frame {t} of {movie.name} has the label {strange}, which the lineage lacks")
        check_frame(tracks, t, np.flatnonzero(np.bincount(relabelled.ravel())), "the lineage")
        tiff.write_frame(folder / f"mask{t:0{digits}}.tif", relabelled)

    jobs = joblib.Parallel(resolve_jobs(n_jobs), prefer="threads", return_as="generator")
    for done, _ in enumerate(jobs(joblib.delayed(write_mask)(t) for t in range(n)), 1):
        if progress is not None:
            progress(done, n)
    write_tracks(folder / RESULT, tracks)


def _table_of(path: Path) -> Path:
    """The file of tracks that a path means."""
    if path.is_file():
        return path
    settle(path)
    wanted = [path / TRUTH, path / RESULT, path / "TRA" / TRUTH]
    for file in wanted:
        if file.is_file():
            return file
    unfinished = path.is_dir() and tiff.frame_files(path, MASK_NAMES)
    hint = "; it has masks: was the writing of a result cut short?" if unfinished else ""
    raise InputError(f"{path} has no tracks; looked for {', '.join(map(str, wanted))}{hint}")

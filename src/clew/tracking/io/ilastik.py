"""Tracks of ilastik: annotations in a project (.ilp), and its H5 event sequence.

A project has the tracks of each object that a person annotated, the divisions, and
the images of objects, all in HDF5. An event sequence is a folder with a file for each
frame: the objects of the frame, and their links to the objects of the frame before.
ilastik keeps images in the order t, x, y, z, channel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.events import Labels
from clew.tracking.io.hdf5 import check_size, open_hdf5, read_array
from clew.tracking.io.point_lineage import (
    PointLineage,
    make_lineage_of_links,
    make_lineage_of_tracks,
)

LANE = "0"
"""The first movie of a project; those for tracking have one."""
IMAGES = "LabelImage_v2"
FEATURES = "RegionFeatures"
CENTER = "RegionCenter"
MISDETECTION = -1
"""Track of an object that was marked as no cell."""
EVENTS = "tracking"
AXES = "txyzc"
"""Of images of labels."""


def read_project(path: Path, file: Any) -> PointLineage:
    """Read the manual annotations of a project.

    Parameters
    ----------
    path : Path
    file : h5py.File
        The project, open.

    Returns
    -------
    lineage : PointLineage
        Partial, with positions in pixels, and with the labels of ilastik's objects.
        Objects that were marked as misdetections are false.
    """
    applet = _find_annotations(path, file)
    lane = file[applet]["Labels"][LANE]
    rows = [
        (t, label, int(track))
        for t, label, group in _list_objects(path, lane)
        for track in np.unique(read_array(path, group, str(label)))
    ]
    frame, label, track = np.array(rows, dtype=np.int64).T
    position = _locate_objects(path, file, frame, label)
    is_false = track == MISDETECTION
    first = int(track.max(initial=0)) + 1
    track[is_false] = first + np.arange(int(is_false.sum()))
    parents = _read_divisions(path, file[applet])
    begins = _read_marks(path, file[applet], "Appearances")
    ends = _read_marks(path, file[applet], "Disappearances")
    begin = {name for name, t in begins if t == frame[track == name].min()}
    end = {name for name, t in ends if t == frame[track == name].max()}
    wrong = set(track[is_false].tolist())
    return make_lineage_of_tracks(
        frame,
        track,
        position,
        parents,
        str(path),
        label=label,
        is_complete=False,
        known_begin=sorted(begin | wrong),
        known_end=sorted(end | wrong),
        notes=(f"annotations in the applet {applet} of ilastik",),
    )


def _find_annotations(path: Path, file: Any) -> str:
    """Find the group of the project in which tracks were annotated."""
    for name in file:
        lanes = file[name].get("Labels") if hasattr(file[name], "get") else None
        if lanes is None or LANE not in lanes or "Divisions" not in file[name]:
            continue
        if any(len(lanes[LANE][t]) for t in lanes[LANE]):
            return str(name)
    raise InputError(
        f"{path} has no annotated tracks; expected a project of ilastik with manual "
        "tracking, or with tracking with learning, that was saved after annotation"
    )


def _read_marks(path: Path, applet: Any, name: str) -> set[tuple[int, int]]:
    """Tracks and frames in which they were marked to appear or disappear."""
    lanes = applet.get(name, {})
    if LANE not in lanes:
        return set()
    objects = _list_objects(path, lanes[LANE])
    return {
        (int(track), t) for t, label, group in objects for track in group[str(label)]
    }


def _list_objects(path: Path, lane: Any) -> Iterator[tuple[int, int, Any]]:
    """List frames and labels of objects, and the group of each frame."""
    for t in sorted(lane, key=_parse_number):
        for label in sorted(lane[t], key=_parse_number):
            if _parse_number(t) < 0 or _parse_number(label) < 1:
                raise InputError(
                    f"{path}: {lane.name}/{t}/{label} is no frame and object; the file "
                    "is damaged"
                )
            yield _parse_number(t), _parse_number(label), lane[t]


def _parse_number(name: str) -> int:
    """Number in the name of a group; -1 if there is none."""
    return int(name) if name.isdecimal() and len(name) < 10 else -1


def _read_divisions(path: Path, applet: Any) -> dict[int, int]:
    """Read the parent of each daughter."""
    if LANE not in applet["Divisions"]:
        return {}
    rows = read_array(path, applet["Divisions"], LANE, 4).astype(np.int64).tolist()
    return {daughter: row[0] for row in rows for daughter in row[1:3]}


def _locate_objects(
    path: Path, file: Any, frame: NDArray[np.int64], label: Labels
) -> Array:
    """(n, 3) centers of objects, from the images of objects or their features."""
    centers: dict[int, tuple[Labels, Array]] = {}
    for t in np.unique(frame).tolist():
        centers[t] = _measure_frame(path, file, t)
    position = np.zeros((len(frame), 3))
    for row, (t, name) in enumerate(zip(frame.tolist(), label.tolist(), strict=True)):
        ids, places = centers[t]
        at = np.searchsorted(ids, name)
        if at == len(ids) or ids[at] != name:
            raise InputError(
                f"{path}: object {name} of frame {t} is annotated, but the project has "
                "neither its pixels nor its center; compute the objects' features in "
                "ilastik, and save the project"
            )
        position[row] = places[at]
    return position


def _measure_frame(path: Path, file: Any, t: int) -> tuple[Labels, Array]:
    """Labels of the objects in a frame, ascending, and their centers (n, 3), z y x."""
    blocks = find_blocks(file)
    if blocks is not None:
        return _measure_blocks(path, blocks, t)
    for name in file:
        applet = file[name]
        lane = applet.get(f"{FEATURES}/0000") if _is_group(applet) else None
        windows = {} if lane is None else lane
        for window in windows:
            numbers = re.findall(r"\d+", str(window))
            if numbers and int(numbers[0]) == t:
                return _read_centers(path, windows[window])
    return np.zeros(0, dtype=np.int64), np.zeros((0, 3))


def find_blocks(file: Any) -> Any:
    """Find the blocks of the image of objects in a project; None if there are none."""
    for name in file:
        applet = file[name]
        blocks = applet.get(f"{IMAGES}/labelimage000") if _is_group(applet) else None
        if blocks is not None and len(blocks):
            return blocks
    return None


def parse_block_start(path: Path, block: Any) -> tuple[int, ...]:
    """Where a block begins along t, x, y, z and c."""
    words = _read_text(block.attrs["blockSlice"]).strip("[]").split(",")
    start = tuple(int(pair.split(":")[0]) for pair in words)
    if not block.ndim == len(start) == len(AXES) or min(start) < 0:
        raise InputError(
            f"{path}: {block.name} has {block.ndim} axes; expected t, x, y, z, c"
        )
    return start


def _is_group(entry: Any) -> bool:
    """Whether an entry of a file is a group."""
    return hasattr(entry, "keys")


def _measure_blocks(path: Path, blocks: Any, t: int) -> tuple[Labels, Array]:
    """Centers of the objects in those blocks of pixels that have a frame."""
    ids = [np.zeros(0, dtype=np.int64)]
    places = [np.zeros((0, 3))]
    for name in blocks:
        block = blocks[name]
        begin = parse_block_start(path, block)
        if not begin[0] <= t < begin[0] + block.shape[0]:
            continue
        pixels = _read_pixels(path, block, t - begin[0])
        inside = np.argwhere(pixels)
        ids.append(pixels[tuple(inside.T)].astype(np.int64))
        places.append((inside + begin[1:4])[:, ::-1].astype(np.float64))
    return _average_places(np.concatenate(ids), np.concatenate(places))


def _read_pixels(path: Path, stored: Any, t: int = 0) -> NDArray[Any]:
    """Labels of a frame of an image (t, x, y, z, c), or of an image with fewer axes."""
    where = f"{path}: {stored.name}"
    if stored.dtype.kind not in "iu":
        raise InputError(f"{where} has dtype {stored.dtype}; expected labels")
    is_movie = stored.ndim == len(AXES)
    check_size(
        where, stored, math.prod(stored.shape[1:-1] if is_movie else stored.shape)
    )
    return np.asarray(stored[t, ..., 0] if is_movie else stored[()])


def _read_text(value: Any) -> str:
    """Text of an attribute, which older versions store as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _average_places(ids: Labels, places: Array) -> tuple[Labels, Array]:
    """Labels, ascending, and the mean place of the pixels of each."""
    labels, row, count = np.unique(ids, return_inverse=True, return_counts=True)
    sums = [np.bincount(row, axis, minlength=len(labels)) for axis in places.T]
    return labels, np.column_stack(sums) / np.maximum(count, 1)[:, None]


def _read_centers(path: Path, window: Any) -> tuple[Labels, Array]:
    """Centers that ilastik measured; row 0 is the background."""
    for plugin in window:
        if CENTER in window[plugin]:
            centers = read_array(path, window[plugin], CENTER, 2).astype(np.float64)
            places = np.zeros((len(centers), 3))
            places[:, 3 - centers.shape[1] :] = centers[:, ::-1]
            return np.arange(1, len(centers)), places[1:]
    raise InputError(f"{path}: {window.name} lacks the feature {CENTER}")


def read_event_files(folder: Path) -> PointLineage:
    """Read an event sequence: a file for each frame, with its objects and links.

    Parameters
    ----------
    folder : Path

    Returns
    -------
    lineage : PointLineage
        With positions in pixels, and with the labels of ilastik's objects.
    """
    files = {
        int(file.stem): file for file in folder.glob("*.h5") if file.stem.isdecimal()
    }
    labels: dict[int, Labels] = {}
    places: dict[int, Array] = {}
    pairs: dict[int, NDArray[np.int64]] = {}
    for t, path in sorted(files.items()):
        with open_hdf5(path) as file:
            labels[t], places[t] = _read_frame(path, file)
            pairs[t] = _read_frame_links(path, file.get(EVENTS, {}))
    frames = sorted(labels)
    begin = dict(
        zip(frames, np.cumsum([0, *(len(labels[t]) for t in frames)]), strict=False)
    )
    links = [np.zeros((0, 2), dtype=np.intp)]
    for t in frames:
        if not len(pairs[t]):
            continue
        if t - 1 not in labels:
            raise InputError(
                f"{files[t]} has links to frame {t - 1}, which {folder} lacks"
            )
        before = _find_rows(files[t], labels[t - 1], pairs[t][:, 0], t - 1)
        after = _find_rows(files[t], labels[t], pairs[t][:, 1], t)
        links.append(np.column_stack([begin[t - 1] + before, begin[t] + after]))
    return make_lineage_of_links(
        np.repeat(frames, [len(labels[t]) for t in frames]).astype(np.int64),
        np.concatenate([places[t] for t in frames]),
        np.concatenate(links),
        str(folder),
        label=np.concatenate([labels[t] for t in frames]),
        notes=("read as an event sequence of ilastik",),
    )


def _read_frame(path: Path, file: Any) -> tuple[Labels, Array]:
    """Labels of the objects of a frame, and their centers (n, 3), z y x."""
    stored = file.get("segmentation/labels")
    if stored is None:
        raise InputError(
            f"{path} has no segmentation/labels; expected a file of the H5 event "
            "sequence that ilastik exports"
        )
    pixels = _read_pixels(path, stored)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3:
        raise InputError(
            f"{path}: segmentation/labels has shape {stored.shape}; expected the axes "
            "t, x, y, z, c or x, y, z"
        )
    inside = np.argwhere(pixels)
    ids = pixels[tuple(inside.T)].astype(np.int64)
    return _average_places(ids, inside[:, ::-1].astype(np.float64))


def _read_frame_links(path: Path, events: Any) -> NDArray[np.int64]:
    """(k, 2) labels before and after of moves and divisions."""
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    if "Moves" in events:
        pairs.append(read_array(path, events, "Moves", 2)[:, :2].astype(np.int64))
    if "Splits" in events:
        rows = read_array(path, events, "Splits", 3).astype(np.int64)
        pairs += [rows[:, [0, 1]], rows[:, [0, 2]]]
    return np.concatenate(pairs)


def _find_rows(path: Path, labels: Labels, wanted: Labels, t: int) -> NDArray[np.intp]:
    """Rows of ascending labels that an event names."""
    row = np.minimum(np.searchsorted(labels, wanted), max(len(labels) - 1, 0))
    is_missing = (
        np.ones(len(wanted), bool) if not len(labels) else labels[row] != wanted
    )
    if is_missing.any():
        name = wanted[np.argmax(is_missing)]
        raise InputError(f"{path}: an event names object {name}, which frame {t} lacks")
    return row

"""Lineages in HDF5: tracks of btrack, and what ilastik writes.

Which program wrote a file is seen by its groups, since all end in ``.h5``.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array, Mask
from clew.tracking.io.point_lineage import PointLineage, make_lineage_of_tracks
from clew.utils.extras import require_extra

OBJECTS = "objects"
TRACKS = "tracks"
FILTER = "f_expr"
"""Attribute of tracks of some of the objects."""
COMPARISONS = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
}
MAX_BYTES = 2**30
"""Bytes that are read at once; a small file may hold them, compressed."""


def read_hdf5(path: str | Path) -> PointLineage:
    """Read the tracks in an HDF5 file of btrack or ilastik.

    Parameters
    ----------
    path : str or Path
        A file, or the folder of an event sequence of ilastik.

    Returns
    -------
    lineage : PointLineage
    """
    from clew.tracking.io import ilastik  # it imports this module

    path = Path(path)
    if path.is_dir():
        return ilastik.read_event_files(path)
    with open_hdf5(path) as file:
        if path.suffix.lower() == ".ilp":
            return ilastik.read_project(path, file)
        if OBJECTS in file and TRACKS in file:
            return _read_btrack(path, file)
        groups = ", ".join(map(str, file)) or "nothing"
    raise InputError(
        f"{path} has {groups}; expected the groups {OBJECTS} and {TRACKS} as btrack "
        "writes them. An event sequence of ilastik is given as its folder"
    )


@contextmanager
def open_hdf5(path: Path, *, is_checked: bool = False) -> Iterator[Any]:
    """Open a file; whatever h5py raises while it is read becomes an InputError.

    Parameters
    ----------
    path : Path
    is_checked : bool
        Whether the file was opened before, and leads to no other file. To check that
        takes 0.1 ms for each of its entries, of which a project has thousands.
    """
    require_extra("hdf5", f"{path}: reading HDF5")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            if not is_checked:
                _refuse_other_files(path, file)
            yield file
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except Exception as error:  # h5py raises nearly anything
        raise InputError(
            f"{path} is damaged or no HDF5 of this kind ({type(error).__name__}: "
            f"{error})"
        ) from error


def _refuse_other_files(path: Path, file: Any) -> None:
    """Refuse a file that leads to others, which HDF5 would open by itself."""
    elsewhere = file.visititems_links(_name_external_link)
    elsewhere = elsewhere or file.visititems(_name_data_elsewhere)
    if elsewhere:
        raise InputError(
            f"{path}: {elsewhere} in another file; expected all in one file"
        )


def _name_external_link(name: str, link: Any) -> str | None:
    """Name a link to another file."""
    import h5py

    return f"{name} is" if isinstance(link, h5py.ExternalLink) else None


def _name_data_elsewhere(name: str, entry: Any) -> str | None:
    """Name an array whose numbers are in other files."""
    import h5py

    is_array = isinstance(entry, h5py.Dataset)
    is_elsewhere = is_array and (entry.is_virtual or entry.external)
    return f"the numbers of {name} are" if is_elsewhere else None


def check_size(where: str, stored: Any, n_values: int) -> None:
    """Refuse a part of an array, or chunks, that would not fit into memory.

    Parameters
    ----------
    where : str
        The file and the array, for messages.
    stored : h5py.Dataset
    n_values : int
        Numbers that will be read at once.
    """
    n_values = max(n_values, math.prod(stored.chunks or (0,)))
    n_bytes = n_values * stored.dtype.itemsize
    if n_bytes > MAX_BYTES:
        raise InputError(
            f"{where} has {n_bytes:,} bytes to be read at once; expected at most "
            f"{MAX_BYTES:,}"
        )


def read_array(path: Path, group: Any, name: str, n_columns: int = 0) -> NDArray[Any]:
    """Read an array of numbers in a file.

    Parameters
    ----------
    path : Path
        The file, for messages.
    group : h5py.Group
    name : str
    n_columns : int
        Smallest number of columns; 0 for an array with one axis.

    Returns
    -------
    values : ndarray of shape (n,) or (n, n_columns or more)
    """
    where = f"{path}: {group.name.rstrip('/')}/{name}"
    if name not in group:
        raise InputError(f"{where} is missing")
    stored = group[name]
    shape: tuple[int, ...] = getattr(stored, "shape", None) or ()
    is_expected = len(shape) == 1 + (n_columns > 0) and stored.dtype.kind in "iuf"
    if not is_expected or (n_columns and shape[1] < n_columns):
        columns = f" and {n_columns} columns or more" if n_columns else ""
        raise InputError(
            f"{where} has shape {shape}; expected numbers in rows{columns}"
        )
    check_size(where, stored, stored.size)
    return np.asarray(stored[()])


def _read_btrack(path: Path, file: Any) -> PointLineage:
    """Read the tracks of btrack; frames in which a cell was not seen are left out."""
    kinds = sorted(set(file[TRACKS]) & set(file[OBJECTS]))
    if not kinds:
        raise InputError(f"{path} has no tracks; export them by tracker.export")
    tables = [_read_kind(path, file, kind) for kind in kinds]
    shift = 0
    parts = []
    parents: dict[int, int] = {}
    for rows, track, of_track in tables:
        parts.append((rows, track + shift))
        parents |= {child + shift: mother + shift for child, mother in of_track.items()}
        shift += int(track.max(initial=0)) + 1
    place = np.concatenate([rows for rows, _ in parts])
    position = place[:, 3:0:-1].astype(np.float64)
    others = f"; tracks of {', '.join(kinds)}" if len(kinds) > 1 else ""
    return make_lineage_of_tracks(
        place[:, 0].astype(np.int64),
        1 + np.concatenate([track for _, track in parts]),
        position,
        {child + 1: mother + 1 for child, mother in parents.items()},
        str(path),
        notes=(f"read as HDF5 of btrack{others}",),
    )


def _read_kind(
    path: Path, file: Any, kind: str
) -> tuple[Array, NDArray[np.int64], dict[int, int]]:
    """Read the tracks of one type of objects: rows of t, x, y, z, tracks and parents."""
    group = file[TRACKS][kind]
    coords = read_array(path, file[OBJECTS][kind], "coords", 4)
    if FILTER in group.attrs:  # tracks count the objects that were kept
        is_kept = _filter_objects(path, file[OBJECTS][kind], str(group.attrs[FILTER]))
        coords = coords[is_kept]
    cells = read_array(path, group, "tracks").astype(np.int64)
    ranges = read_array(path, group, "map", 2).astype(np.int64)
    name = "LBEPRG" if "LBEPRG" in group else "LBEPR"
    table = read_array(path, group, name, 4).astype(np.int64)
    where = f"{path}: {group.name}"
    lengths = ranges[:, 1] - ranges[:, 0]
    if len(ranges) != len(table) or lengths.min(initial=0) < 0:
        raise InputError(f"{where}/map does not fit {name}; the file is damaged")
    if ranges.min(initial=0) < 0 or ranges.max(initial=0) > len(cells):
        raise InputError(f"{where}/map has rows that tracks lacks; the file is damaged")
    if cells.max(initial=-1) >= len(coords):
        raise InputError(f"{where}/tracks has objects that are not in the file")
    row = [np.arange(*pair) for pair in ranges[:, :2].tolist()]
    cell = cells[np.concatenate([np.zeros(0, np.intp), *row])]
    track = np.repeat(table[:, 0], lengths)
    is_seen = cell >= 0  # others are dummies, where btrack missed the object
    parents = {
        child: mother
        for child, _, _, mother in table[:, :4].tolist()
        if mother not in (child, 0)
    }
    return coords[cell[is_seen]], track[is_seen], parents


def _filter_objects(path: Path, objects: Any, expression: str) -> Mask:
    """(n,) objects that btrack kept, by an expression such as "area>100"."""
    match = re.fullmatch(r"(\w+)(>=|<=|==|>|<)([0-9]+)", expression.strip())
    if match is None:
        raise InputError(
            f"{path}: the tracks are of objects with {expression!r}; expected a "
            "property, a comparison and a number, as in area>100"
        )
    values = read_array(path, objects, f"properties/{match[1]}")
    return np.asarray(COMPARISONS[match[2]](values, int(match[3])))

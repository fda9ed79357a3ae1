"""Detections as a table, CSV or Parquet: a row for each cell.

Tables of scikit-image (``centroid-0``, ``centroid-1`` …), layers of points of napari
and tables of spots of TrackMate are recognized by the names of their columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.errors import DataWarning, InputError
from clew.tracking.detections import MAX_FRAMES, DetectionTable
from clew.tracking.io.delimited import (
    Aliases,
    Table,
    locate_columns,
    normalize_name,
    parse_integer,
    read_delimited,
)
from clew.tracking.io.formats import POINT_SUFFIXES, open_lineage
from clew.tracking.io.point_lineage import PointLineage, count_earlier, drop_flat_depth
from clew.tracking.io.user_columns import read_number_columns
from clew.tracking.scales import estimate_anisotropy
from clew.tracking.user_columns import ColumnTable, UserColumns
from clew.utils.extras import require_extra
from clew.utils.validation import Faults, printable

REQUIRED = ("frame", "y", "x")
SPOT = "spot"
"""Column of labels that count from 0, as TrackMate has them."""
UNLABELLED = (
    "a table of detections without labels (those of each frame are numbered from 1 in "
    "the order of rows)"
)
POSITIONS: Aliases = {
    "frame": ("t", "time", "frame_id", "position_t", "spot_frame"),
    "z": ("centroid_z", "pos_z", "position_z", "spot_position_z"),
    "y": ("centroid_y", "pos_y", "position_y", "spot_position_y"),
    "x": ("centroid_x", "pos_x", "position_x", "spot_position_x"),
}
ALIASES: Aliases = {
    **POSITIONS,
    "label": ("id", "seg_id", "label_id", "cell_id", "object_id", "labelimageid"),
    "volume": ("area", "size"),
    "intensity": ("intensity_mean", "mean_intensity"),
    "border_distance": (),
    SPOT: (),
}
SKIMAGE_AXES = ("centroid_0", "centroid_1", "centroid_2")
"""Axes of a position as scikit-image names them: (z,) y and x."""
NAPARI_AXES = ("axis_0", "axis_1", "axis_2", "axis_3")
"""Axes of a layer of points as napari saves them: t, (z,) y and x."""
ILASTIK_AXES = ("object_center_0", "object_center_1", "object_center_2")
ILASTIK_OLD_AXES = tuple(f"center_of_the_object_{axis}" for axis in range(3))
"""Axes of a position as ilastik names them: x, y and z."""
PARQUET = (".parquet", ".pq")
XML = ".xml"
TRACKMATE = {
    "label",
    "id",
    "track_id",
    "frame",
    "position_x",
    "position_y",
    "position_z",
}
"""Columns of a table of spots of TrackMate, whose labels are words."""
MASTODON = {"label", "id", "spot_frame", "spot_position_x"}
"""Columns of a table of spots of Mastodon, whose labels are words, too."""
MIN_POINTS = 20
"""Cells of a frame from which the distance of slices is estimated."""
N_SAMPLED_FRAMES = 10
N_DESCRIPTIONS = 3
"""Rows under the header in which TrackMate describes the columns."""

Rename = Callable[[list[str]], list[str]]


def read_detections(
    path: str | Path, spacing: Sequence[float] | None = None
) -> DetectionTable:
    """Read a table of detections.

    Parameters
    ----------
    path : str or Path
        CSV, Parquet, or a file of TrackMate (.xml). Columns: frame, y, x, and z in
        3D; optionally label, volume (or area), intensity, and border_distance in
        physical units. Other columns of numbers are `user_columns`, except numbers
        that identify cells and tracks. Without labels, the cells of each frame are
        numbered from 1 in the order of their rows.
    spacing : sequence of float, optional
        Size of a pixel; positions are multiplied by it, and volumes by its product.

    Returns
    -------
    detections : DetectionTable
    """
    if Path(path).suffix.lower() in POINT_SUFFIXES:
        return _read_points(Path(path), spacing)
    if Path(path).suffix.lower() == XML:
        from clew.tracking.io.trackmate import read_spots

        table = read_spots(Path(path))
    else:
        table = read_table(path, ALIASES, REQUIRED, _rename_columns, others=True)
    faults = Faults(table.where)
    frame, position = parse_points(table, faults)
    scale = check_spacing(spacing, position.shape[1])
    label = _parse_labels(table, frame, faults)
    columns = {
        name: table.parse_numbers(name, faults)
        for name in ("volume", "intensity", "border_distance")
        if name in table
    }
    if "volume" in columns:
        table.add_faults(faults, columns["volume"] <= 0, "volume", "more than 0")
        columns["volume"] = columns["volume"] * scale.prod()
    if "border_distance" in columns:
        is_negative = columns["border_distance"] < 0
        table.add_faults(faults, is_negative, "border_distance", "0 or more")
    if not len(faults):  # else a faulty label could seem to be a duplicate
        _check_duplicates(table, frame, label, faults)
    faults.refuse()
    if spacing is None and position.shape[1] == 3:
        scale[0] = _estimate_z_factor(frame, position, path)
        if "volume" in columns:
            columns["volume"] = columns["volume"] * scale[0]
    name = printable(Path(path).stem)
    detections = DetectionTable(frame, label, position * scale, columns, name=name)
    if spacing is not None or scale[0] != 1:
        detections.spacing = tuple(scale.tolist())
    if "label" not in table and SPOT not in table:
        detections.source = UNLABELLED
    columns = read_number_columns(table, frame)
    if columns:
        cells = ColumnTable.of(frame, label[:, None], columns)
        detections.user_columns = UserColumns(cells)
    return detections


def _estimate_z_factor(
    frame: NDArray[np.int64], position: NDArray[np.float64], path: str | Path
) -> float:
    """Estimate the factor of z of a table without a spacing; warn unless it is 1."""
    frames, counts = np.unique(frame, return_counts=True)
    full = frames[counts >= MIN_POINTS]
    if not len(full):
        return 1.0
    places = np.linspace(0, len(full) - 1, N_SAMPLED_FRAMES).round().astype(int)
    sampled = full[np.unique(places)]
    factor = estimate_anisotropy([position[frame == t] for t in sampled])
    if factor != 1:
        warnings.warn(
            f"{path} seems to have slices of z that are {factor:.1f} times as far apart "
            "as the pixels of y and x, judged by the distances between cells; z is "
            f"multiplied by {factor:.1f}. Give the spacing to choose another factor, "
            "1 1 1 to take positions as they are",
            DataWarning,
            stacklevel=3,
        )
    return factor


def _read_points(path: Path, spacing: Sequence[float] | None) -> DetectionTable:
    """Read the cells of a graph, without its links."""
    lineage = open_lineage(path)
    if not isinstance(lineage, PointLineage):
        raise InputError(f"{path} has masks; expected points")
    scale = check_spacing(spacing, lineage.position.shape[1])
    if spacing is None and len(scale) == 3 and not lineage.is_physical:
        scale[0] = _estimate_z_factor(lineage.frame, lineage.position, path)
    label = lineage.label
    pairs = np.column_stack([lineage.frame, lineage.frame if label is None else label])
    is_unique = len(np.unique(pairs, axis=0)) == len(pairs)
    if label is None or not is_unique or label.min(initial=1) < 1:
        label = 1 + count_earlier(lineage.frame)
    name = printable(path.stem)
    detections = DetectionTable(
        lineage.frame, label, lineage.position * scale, name=name
    )
    if spacing is not None or scale[0] != 1:
        detections.spacing = tuple(scale.tolist())
    detections.source = "the points of a lineage, without its links,"
    return detections


def parse_points(
    table: Table, faults: Faults
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(n,) frames, and (n, 2 or 3) positions, of a table that must have rows."""
    if not len(table):
        raise InputError(
            f"{table.where} has no rows; expected one for each cell and frame"
        )
    frame = table.parse_integers("frame", faults, least=0)
    table.add_faults(faults, frame >= MAX_FRAMES, "frame", f"less than {MAX_FRAMES:,}")
    axes = [table.parse_numbers(axis, faults) for axis in "zyx" if axis in table]
    return frame, drop_flat_depth(np.column_stack(axes))


def _parse_labels(
    table: Table, frame: NDArray[np.int64], faults: Faults
) -> NDArray[np.int64]:
    """(n,) labels, or the number of each row in its frame."""
    if SPOT in table:
        spot = table.parse_integers(SPOT, faults, least=0)
        return np.where(spot == 0, spot.max(initial=0) + 1, spot)  # 0 is background
    if "label" in table:
        return table.parse_integers("label", faults, least=1)
    return 1 + count_earlier(frame)


def rename_axes(header: list[str]) -> list[str]:
    """Give the axes of scikit-image and napari the names of clew."""
    names: dict[str, str] = {}
    for theirs, ours in (
        (SKIMAGE_AXES, ("z", "y", "x")),
        (NAPARI_AXES, ("frame", "z", "y", "x")),
        (ILASTIK_AXES, ("x", "y", "z")),
        (ILASTIK_OLD_AXES, ("x", "y", "z")),
    ):
        present = [name for name in theirs if name in header]
        axes: Sequence[str] = ours
        if len(present) == len(theirs) - 1:  # in 2D
            axes = [axis for axis in ours if axis != "z"]
        elif len(present) < len(theirs):
            continue
        pairs = zip(present, axes, strict=True)
        names |= {name: axis for name, axis in pairs if axis not in header}
    return [names.get(name, name) for name in header]


def _rename_columns(header: list[str]) -> list[str]:
    """As `rename_axes`; also for spots of programs whose labels are words."""
    has_words = {*header} >= TRACKMATE or {*header} >= MASTODON
    names = {"label": "name", "id": SPOT} if has_words else {}
    return [names.get(name, name) for name in rename_axes(header)]


def read_table(
    path: str | Path,
    aliases: Aliases,
    required: Sequence[str],
    rename: Rename = list,
    *,
    others: bool = False,
) -> Table:
    """Read the columns of a table, CSV or Parquet; see `read_delimited`."""
    read = _read_parquet if Path(path).suffix.lower() in PARQUET else read_delimited
    return _drop_descriptions(read(path, aliases, required, rename, others=others))


def _drop_descriptions(table: Table) -> Table:
    """Drop the rows in which TrackMate describes the columns."""
    cells = [str(cell) for cell in table.columns["frame"][:N_DESCRIPTIONS]]
    if not cells or normalize_name(cells[0]) != "frame":
        return table
    numbers = [row for row, cell in enumerate(cells) if parse_integer(cell) is not None]
    first = numbers[0] if numbers else len(cells)
    columns = {name: column[first:] for name, column in table.columns.items()}
    return Table(table.where, table.row[first:], columns)


def _read_parquet(
    path: str | Path,
    aliases: Aliases,
    required: Sequence[str],
    rename: Rename,
    *,
    others: bool,
) -> Table:
    """Read a Parquet file; its rows count from 1."""
    require_extra("parquet", f"{path}: reading Parquet")
    import pyarrow.parquet

    try:
        content = pyarrow.parquet.read_table(Path(path))
        titles = content.column_names  # decoded on access
    except Exception as error:  # pyarrow raises nearly anything
        raise InputError(
            f"{path} cannot be read as Parquet ({type(error).__name__}: {error})"
        ) from error
    header = rename([normalize_name(title) for title in titles])
    places = locate_columns(str(path), header, aliases, required, others=others)
    columns = {name: content.column(at).to_pylist() for name, at in places.items()}
    return Table(str(path), np.arange(1, content.num_rows + 1), columns)


def check_spacing(spacing: Sequence[float] | None, ndim: int) -> NDArray[np.float64]:
    """Check the size of a pixel.

    Returns
    -------
    scale : ndarray of shape (ndim,)
        Ones if `spacing` is None.
    """
    scale = np.ones(ndim) if spacing is None else np.asarray(spacing, dtype=np.float64)
    if scale.shape != (ndim,) or not np.all(np.isfinite(scale) & (scale > 0)):
        axes = ", ".join("zyx"[-ndim:])
        raise InputError(
            f"spacing is {spacing}; it must be a positive number for each of {axes}"
        )
    return scale


def _check_duplicates(
    table: Table, frame: NDArray[np.int64], label: NDArray[np.int64], faults: Faults
) -> None:
    """Add a fault for each label that occurs again in its frame."""
    order = np.lexsort((table.row, label, frame))
    is_same = (np.diff(frame[order]) == 0) & (np.diff(label[order]) == 0)
    again = np.flatnonzero(is_same)
    earlier = order[again]
    later = order[again + 1]
    faults.add(
        table.row[later],
        lambda i: (
            f"label {label[later[i]]} of frame {frame[later[i]]} stands in row "
            f"{table.row[earlier[i]]} already"
        ),
    )

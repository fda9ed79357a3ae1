"""Lineages in a GEFF of any program: nodes with a place, with or without labels.

Values of axes are multiplied by the scale of the axis. Times in a unit, as seconds,
become frames: the usual time from one end of an edge to the other is one frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.events import Labels
from clew.tracking.io.geff import (
    LABEL_NAMES,
    TIME_NAMES,
    Properties,
    is_geff,
    load_graph,
    parse_links,
    parse_marks,
)
from clew.tracking.io.point_lineage import PointLineage, make_lineage_of_links
from clew.tracking.io.result_tables import AXES
from clew.utils.validation import is_number

NO_UNITS = (None, "", "frame", "frames", "pixel", "pixels", "px")
TRACKLETS = ("tracklet_id", "tracklet")
ESTIMATED = "estimated_number_of_nodes"
TIME_TOLERANCE = 0.05
"""Largest distance of a time from a whole frame, in frames."""


def find_geff(path: str | Path) -> Path | None:
    """Find a GEFF: the folder, or the only one at most two levels below it."""
    path = Path(path)
    if not path.is_dir():
        return None
    if is_geff(path):
        return path
    below = [folder for folder in _list_folders(path) if is_geff(folder)]
    if len(below) > 1:
        names = ", ".join(str(folder.relative_to(path)) for folder in sorted(below))
        raise InputError(f"{path} has several GEFFs; give the path of one: {names}")
    return below[0] if below else None


def _list_folders(path: Path) -> Iterator[Path]:
    """List the folders one and two levels below a path that have Zarr metadata."""
    for pattern in ("*/zarr.json", "*/.zattrs", "*/*/zarr.json", "*/*/.zattrs"):
        for file in path.glob(pattern):
            yield file.parent


def read_nested_geff(path: Path) -> PointLineage | None:
    """Read the GEFF that a folder is or has; None if there is none."""
    found = find_geff(path)
    return None if found is None else read_geff_lineage(found)


def read_geff_lineage(path: Path) -> PointLineage:
    """Read the tracks and positions of a GEFF."""
    graph = load_graph(path)
    where = str(path)
    nodes = graph["node_props"]
    axes = graph["metadata"].axes or []
    ids = np.argsort(graph["node_ids"])
    seconds, unit = _parse_times(where, axes, nodes)
    order = ids[np.argsort(seconds[ids], kind="stable")]
    seconds = seconds[order]
    # links by rank of time, since frames follow from links
    rank = np.unique(seconds, return_inverse=True)[1]
    links = parse_links(graph, order, rank)
    frame, note = _count_frames(where, seconds, links, unit)
    position, is_physical = _parse_place(where, axes, nodes)
    tracklets = (graph["metadata"].track_node_props or {}).get("tracklet")
    extra = graph["metadata"].extra or {}
    estimated = extra.get(ESTIMATED)
    return make_lineage_of_links(
        frame,
        position[order],
        links,
        where,
        is_false=parse_marks(nodes, order),
        tracklet=_parse_column(nodes, (tracklets, *TRACKLETS), order),
        label=_parse_column(nodes, LABEL_NAMES, order),
        is_complete=_read_flag(extra),
        n_estimated=float(estimated) if is_number(estimated) else None,
        is_physical=is_physical,
        made_from=_read_origin(extra),
        notes=() if note is None else (note,),
    )


def _parse_times(where: str, axes: Any, nodes: Properties) -> tuple[Array, str | None]:
    """(n,) times of nodes, and their unit."""
    declared = [axis for axis in axes if axis.type == "time"]
    names = [*(axis.name for axis in declared), *TIME_NAMES]
    name = next((name for name in names if name in nodes), None)
    if name is None:
        expected = " or ".join(dict.fromkeys(names))
        raise InputError(f"{where}: the nodes have no property {expected}, their time")
    values = np.asarray(nodes[name]["values"], dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InputError(f"{where}: the node property {name} must be a number")
    return values, declared[0].unit if declared else None


def _count_frames(
    where: str, times: Array, links: NDArray[np.intp], unit: str | None
) -> tuple[NDArray[np.int64], str | None]:
    """(n,) frames of times; also a note if these are not the times."""
    is_whole = bool((times == np.floor(times)).all())
    if is_whole and unit in NO_UNITS:
        return times.astype(np.int64), None
    steps = times[links[:, 1]] - times[links[:, 0]]
    if not len(steps):
        steps = np.diff(np.unique(times))
    step = float(np.median(steps)) if len(steps) else 1.0
    first = float(times.min(initial=np.inf))
    frames = times / step if step > 0 else times
    offset = 0.0
    if np.abs(frames - np.rint(frames)).max(initial=0) > TIME_TOLERANCE:
        offset = first
        frames = (times - offset) / step
    error = np.abs(frames - np.rint(frames)).max(initial=0)
    if step <= 0 or error > TIME_TOLERANCE:
        raise InputError(
            f"{where}: times are no multiples of {step:g} {unit or ''}, the usual time "
            "of an edge; expected the frame of each node"
        )
    numbers = np.rint(frames).astype(np.int64)
    if np.array_equal(numbers, times):
        return numbers, None
    shift = f" after {offset:g}" if offset else ""
    words = f"a frame is {step:g} {unit or 'units of time'}{shift}"
    return numbers, words


def _parse_place(where: str, axes: Any, nodes: Properties) -> tuple[Array, bool]:
    """(n, ndim) positions along z, y, x, and whether they are physical."""
    declared = [axis for axis in axes if axis.type == "space" and axis.name in nodes]
    names = [axis.name for axis in declared]
    if not names:
        names = [axis for axis in AXES if axis in nodes]
    if len(names) not in (2, 3):
        raise InputError(
            f"{where}: the nodes have {len(names)} axes of space; expected y and x, or "
            "z, y and x"
        )
    position = np.column_stack([nodes[name]["values"] for name in names])
    position = position.astype(np.float64)
    scales = [axis.scale for axis in declared]
    is_physical = any(scale is not None for scale in scales)
    is_physical |= any(axis.unit not in NO_UNITS for axis in declared)
    if declared:
        position = position * [1.0 if scale is None else scale for scale in scales]
    letters = [name.lower()[-1] for name in names]
    if set(letters) <= set(AXES) and len(set(letters)) == len(letters):
        position = position[:, np.argsort([AXES.index(axis) for axis in letters])]
    return position, is_physical


def _parse_column(
    nodes: Properties, names: tuple[str | None, ...], order: NDArray[np.intp]
) -> Labels | None:
    """(n,) the first of these properties that all nodes have, as integers."""
    for name in names:
        if name is None or name not in nodes:
            continue
        values = nodes[name]["values"]
        missing = nodes[name]["missing"]
        is_whole = values.ndim == 1 and values.dtype.kind in "iu"
        if is_whole and (missing is None or not np.asarray(missing).any()):
            return np.asarray(values[order].astype(np.int64))
    return None


def _read_origin(extra: Any) -> dict[str, Any] | None:
    """What clew wrote of the movie, if it made the graph of one."""
    clew = extra.get("clew")
    if not isinstance(clew, dict) or "spacing" not in clew:
        return None
    return {"spacing": clew["spacing"]}


def _read_flag(extra: Any) -> bool | None:
    """Whether the metadata say that the graph is complete; None if they do not."""
    for fields in (extra, extra.get("clew", {})):
        if isinstance(fields.get("partial"), bool):
            return not fields["partial"]
        if isinstance(fields.get("complete"), bool):
            return bool(fields["complete"])
    return True if "clew" in extra else None

"""Tables of points and tracks for golden.py, and the events that they hold."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

FIFTH = 5
WORM_Z = 11.1
"""Distance of slices of the worm in pixels."""

Row = dict[str, str]


def read_rows(path: Path) -> list[Row]:
    """Read a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_tables(folder: Path, rows: list[Row]) -> None:
    """Write tracks.csv, and points.csv without the tracks."""
    columns = list(rows[0])
    points = [name for name in columns if name not in ("track", "parent")]
    for name, kept in (("tracks", columns), ("points", points)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, kept, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


def every_fifth_frame(data: Path, folder: Path) -> None:
    """Keep every fifth frame of c2c12; tracks without rows pass on their parent."""
    rows = read_rows(data / "c2c12/tracks.csv")
    parents = {row["track"]: row["parent"] for row in rows}
    rows = [row for row in rows if int(row["frame"]) % FIFTH == 0]
    tracks = {row["track"] for row in rows}
    for row in rows:
        parent = row["parent"]
        while parent != "0" and parent not in tracks:
            parent = parents[parent]
        row["parent"] = parent
        row["frame"] = str(int(row["frame"]) // FIFTH)
    write_tables(folder, rows)


def convert_worm(data: Path, folder: Path, z: float = WORM_Z) -> None:
    """Convert worm.geff; a track ends at divisions and where the worm has a gap.

    `z` is the distance of slices in pixels.
    """
    import numpy as np
    import zarr

    graph = zarr.open_group(data / "worm/worm.geff", mode="r")
    ids = graph["nodes/ids"][:].tolist()
    columns = {name: graph[f"nodes/props/{name}/values"][:] for name in "tzyx"}
    frames = np.asarray(columns["t"]).astype(int)
    children = defaultdict(list)
    parent_of = {}
    for source, target in graph["edges/ids"][:].tolist():
        children[source].append(target)
        parent_of[target] = source
    order = np.argsort(frames, kind="stable").tolist()
    track_of: dict[int, int] = {}
    n_labels: dict[int, int] = defaultdict(int)
    rows = []
    for index in order:
        node = ids[index]
        frame = int(frames[index])
        parent = parent_of.get(node)
        n_labels[frame] += 1
        if parent is not None and len(children[parent]) == 1:
            track_of[node] = track_of[parent]
        else:
            track_of[node] = node + 1
        first_parent = parents_track(node, parent_of, track_of)
        rows.append(
            {
                "frame": str(frame),
                "label": str(n_labels[frame]),
                "track": str(track_of[node]),
                "parent": str(first_parent),
                "z": f"{z * columns['z'][index]:.3f}",
                "y": f"{columns['y'][index]:.3f}",
                "x": f"{columns['x'][index]:.3f}",
            }
        )
    write_tables(folder, rows)


def parents_track(
    node: int, parent_of: dict[int, int], track_of: dict[int, int]
) -> int:
    """The track from which the node's track descends; 0 if there is none."""
    first = track_of[node] - 1
    parent = parent_of.get(first)
    return 0 if parent is None else track_of[parent]


def list_events(tracks: Path) -> list[tuple[str, ...]]:
    """List moves, divisions, appearances and disappearances of a table of tracks.

    Gaps and cells with three or more daughters are left out.
    """
    rows = sorted(read_rows(tracks), key=lambda row: int(row["frame"]))
    by_track: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_track[row["track"]].append(row)
    daughters: dict[str, list[Row]] = defaultdict(list)
    for members in by_track.values():
        daughters[members[0]["parent"]].append(members[0])
    last_frame = int(rows[-1]["frame"])

    events = []
    for track, members in by_track.items():
        for row, following in pairwise(members):
            if int(following["frame"]) == int(row["frame"]) + 1:
                events.append((row["frame"], "move", row["label"], following["label"]))
        first = members[0]
        if first["parent"] == "0" and int(first["frame"]) > 0:
            frame = str(int(first["frame"]) - 1)
            events.append((frame, "appear", "", first["label"]))
        last = members[-1]
        born = daughters.get(track, [])
        is_next = [int(row["frame"]) == int(last["frame"]) + 1 for row in born]
        targets = " ".join(sorted((row["label"] for row in born), key=int))
        if not born and int(last["frame"]) < last_frame:
            events.append((last["frame"], "disappear", last["label"], ""))
        if len(born) in (1, 2) and all(is_next):
            kind = "divide" if len(born) == 2 else "move"
            events.append((last["frame"], kind, last["label"], targets))
    return sorted(events)

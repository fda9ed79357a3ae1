"""Lineages of some cells: what they leave open is never learned from."""

import geff
import networkx as nx
import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Event, EventTable
from clew.tracking.io.annotations import open_annotations, read_annotations

N_FRAMES = 6


def make_cells():
    """Six cells 10 apart; cell 0 divides after frame 2, and cell 5 leaves after it.

    Returns rows (frame, label, track, parent, y, x).
    """
    rows = []
    for t in range(N_FRAMES):
        for k in range(6):
            y = 10.0 * k + 0.3 * t
            if k == 5 and t > 2:
                continue
            if k == 0 and t > 2:
                rows.append((t, 20 - k, 7, 1, y - 2, 1.0 * t))
                rows.append((t, 40 - k, 8, 1, y + 2, 1.0 * t))
            else:
                rows.append((t, 20 - k, k + 1, 0, y, 1.0 * t))
    return np.array(rows)


CELLS = make_cells()
MOVIE = DetectionTable(
    CELLS[:, 0].astype(int), CELLS[:, 1].astype(int), CELLS[:, 4:], n_frames=N_FRAMES
)


def write_tracks(path, rows, *, parents=True):
    """Write rows of `CELLS` as a table of tracks."""
    lines = ["frame,track,parent,y,x" if parents else "frame,track,y,x"]
    for t, _, track, parent, y, x in rows:
        middle = f"{track:g},{parent:g}" if parents else f"{track:g}"
        lines.append(f"{t:g},{middle},{y},{x}")
    path.write_text("\n".join(lines))
    return path


def write_graph(path, rows, *, time=1.0, scale=1.0, label=False, extra=None, **axes):
    """Write rows of `CELLS` as a GEFF of another program."""
    graph = nx.DiGraph()
    last = {}
    for number, (t, name, track, parent, y, x) in enumerate(rows):
        more = {"seg_id": int(name)} if label else {}
        graph.add_node(number, t=t * time, y=y / scale, x=x / scale, **more)
        before = last.get(track, last.get(parent))
        if before is not None:
            graph.add_edge(before, number)
        last[track] = number
    metadata = geff.GeffMetadata(
        directed=True, node_props_metadata={}, edge_props_metadata={}, extra=extra or {}
    )
    geff.write(
        graph,
        path,
        metadata,
        axis_names=["t", "y", "x"],
        axis_types=["time", "space", "space"],
        **axes,
    )
    return path


def list_kinds(annotations):
    return {Event(kind) for kind in annotations.events.event}


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """All events of the movie."""
    path = write_tracks(tmp_path_factory.mktemp("all") / "all.csv", CELLS)
    return set(read_annotations(path, MOVIE).events)


def test_complete_table_has_ends(truth):
    assert (2, Event.DIVIDE, (20,), (20, 40)) in truth
    assert (2, Event.DISAPPEAR, (15,), ()) in truth
    assert sum(event == Event.APPEAR for _, event, _, _ in truth) == 0


@pytest.mark.parametrize("form", ["table", "GEFF", "GEFF with labels"])
@pytest.mark.parametrize("seed", range(8))
def test_partial_lineage_gives_no_false_event(tmp_path, truth, form, seed):
    rng = np.random.default_rng(seed)
    tracks = rng.choice([1, 2, 3, 6, 7, 8], 3, replace=False)
    first, last = np.sort(rng.choice(N_FRAMES, 2, replace=False))
    is_kept = np.isin(CELLS[:, 2], tracks)
    is_kept &= (CELLS[:, 0] >= first) & (CELLS[:, 0] <= last)
    rows = CELLS[is_kept]
    if not len(rows):
        pytest.skip("no cells")
    if form == "table":
        path = write_tracks(tmp_path / "some.csv", rows)
    else:
        # whole families, since a graph does not show that a daughter is missing
        rows = rows[~np.isin(rows[:, 2], [7, 8])]
        if not len(rows):
            pytest.skip("no cells")
        path = write_graph(tmp_path / "some.geff", rows, label=form != "GEFF")
    assert set(read_annotations(path, MOVIE).events) <= truth


def test_one_daughter_gives_neither_division_nor_move(tmp_path):
    rows = CELLS[np.isin(CELLS[:, 2], [1, 7])]
    path = write_tracks(tmp_path / "some.csv", rows)
    found = read_annotations(path, MOVIE)
    assert list_kinds(found) == {Event.MOVE}
    assert 2 not in found.events.frame
    as_complete = read_annotations(path, MOVIE, complete=True)
    assert 2 in as_complete.events.frame


def test_both_daughters_are_a_division(tmp_path):
    rows = CELLS[np.isin(CELLS[:, 2], [1, 7, 8])]
    found = open_annotations(write_tracks(tmp_path / "some.csv", rows), MOVIE)
    assert (2, Event.DIVIDE, (20,), (20, 40)) in set(found.annotations.events)
    assert "a partial lineage (it does not have every detection)" in found.summary
    assert "6 move, 1 divide" in found.summary


def test_summary_counts_open_ends(tmp_path):
    rows = CELLS[np.isin(CELLS[:, 2], [2, 3]) & (CELLS[:, 0] < 4)]
    found = open_annotations(write_tracks(tmp_path / "some.csv", rows), MOVIE)
    assert "6 move; ends of 2 tracks are unknown" in found.summary
    assert "8 of 8 cells attached" in found.summary


def test_complete_and_partial_override(tmp_path):
    rows = CELLS[np.isin(CELLS[:, 2], [2]) & (CELLS[:, 0] < 4)]
    path = write_tracks(tmp_path / "some.csv", rows)
    assert list_kinds(read_annotations(path, MOVIE)) == {Event.MOVE}
    ends = list_kinds(read_annotations(path, MOVIE, complete=True))
    assert ends == {Event.MOVE, Event.DISAPPEAR}
    path = write_tracks(tmp_path / "all.csv", CELLS)
    some = list_kinds(read_annotations(path, MOVIE, complete=False))
    assert some == {Event.MOVE, Event.DIVIDE}


def test_table_without_parents_leaves_divisions_open(tmp_path):
    path = write_tracks(tmp_path / "all.csv", CELLS, parents=False)
    found = open_annotations(path, MOVIE)
    assert list_kinds(found.annotations) == {Event.MOVE}
    assert "it has no parents" in found.summary


@pytest.mark.parametrize(("estimate", "is_complete"), [(34, True), (60, False)])
def test_estimated_number_of_nodes_is_heeded(tmp_path, estimate, is_complete):
    extra = {"estimated_number_of_nodes": estimate}
    path = write_graph(tmp_path / "all.geff", CELLS, extra=extra)
    found = read_annotations(path, MOVIE)
    assert (Event.DISAPPEAR in list_kinds(found)) == is_complete


def test_flag_of_a_graph_is_heeded(tmp_path):
    path = write_graph(tmp_path / "all.geff", CELLS, extra={"partial": True})
    assert Event.DISAPPEAR not in list_kinds(read_annotations(path, MOVIE))


def test_time_in_seconds_becomes_frames(tmp_path, truth):
    units = {"axis_units": ["second", None, None]}
    path = write_graph(tmp_path / "all.geff", CELLS, time=90.0, **units)
    found = open_annotations(path, MOVIE)
    assert set(found.annotations.events) == truth
    assert "a frame is 90 second" in found.summary


def test_time_that_is_no_frame_is_refused(tmp_path):
    rows = CELLS[CELLS[:, 2] == 2].copy()
    rows[3:, 0] += 0.4
    path = write_graph(tmp_path / "odd.geff", rows)
    with pytest.raises(InputError, match="times are no multiples of 1"):
        read_annotations(path, MOVIE)


def test_scale_of_axes_is_applied(tmp_path, truth):
    scales = {"axis_scales": [None, 0.25, 0.25]}
    path = write_graph(tmp_path / "all.geff", CELLS, scale=0.25, **scales)
    assert set(read_annotations(path, MOVIE).events) == truth


def test_pixels_and_physical_positions_are_told_apart(tmp_path, truth):
    scaled = DetectionTable(
        CELLS[:, 0].astype(int), CELLS[:, 1].astype(int), CELLS[:, 4:] * [0.5, 2.0]
    )
    scaled.spacing = (0.5, 2.0)
    path = write_tracks(tmp_path / "all.csv", CELLS)
    found = open_annotations(path, scaled)
    assert set(found.annotations.events) == truth
    assert "positions taken as pixels" in found.summary


def test_points_far_from_detections_are_listed_and_not_used(tmp_path):
    rows = CELLS[np.isin(CELLS[:, 2], [2, 3])].copy()
    rows[3, 5] += 8.0
    found = open_annotations(write_tracks(tmp_path / "some.csv", rows), MOVIE)
    assert "11 of 12 cells attached to detections by position, at most" in found.summary
    found.write_unattached(tmp_path / "unattached.csv")
    text = (tmp_path / "unattached.csv").read_text().splitlines()
    assert text[0] == "frame,track,y,x"
    assert len(text) == 2
    wide = open_annotations(tmp_path / "some.csv", MOVIE, distance=9.0)
    assert "at most 9 apart" in wide.summary


def test_two_points_at_one_detection_are_attached_once(tmp_path):
    rows = np.vstack([CELLS[CELLS[:, 2] == 2]] * 2)
    rows[6:, 2] = 3
    rows[6:, 4] += 1.0
    found = open_annotations(write_tracks(tmp_path / "some.csv", rows), MOVIE)
    assert "6 of 12 cells attached" in found.summary
    assert list_kinds(found.annotations) == {Event.MOVE}


def test_graph_in_a_folder_is_found(tmp_path, truth):
    (tmp_path / "outer.zarr").mkdir()
    write_graph(tmp_path / "outer.zarr" / "tracks", CELLS)
    assert set(read_annotations(tmp_path / "outer.zarr", MOVIE).events) == truth


def test_skipped_frame_of_a_partial_track_is_unknown(tmp_path):
    is_track = CELLS[:, 2] == 3
    rows = CELLS[is_track & (CELLS[:, 0] != 2)]
    path = write_tracks(tmp_path / "t.csv", rows)
    partial = read_annotations(path, MOVIE, complete=False)
    assert set(partial.events.event) == {Event.MOVE}
    # where the movie lacks the cell too, and the lineage has it, the gap is known
    seen = ~(is_track & (CELLS[:, 0] == 2))
    movie = DetectionTable(
        CELLS[seen, 0].astype(int),
        CELLS[seen, 1].astype(int),
        CELLS[seen, 4:],
        n_frames=N_FRAMES,
    )
    path = write_tracks(tmp_path / "u.csv", CELLS[is_track])
    known = read_annotations(path, movie, complete=False)
    assert Event.GAP in set(known.events.event)


def test_cell_that_a_graph_marks_as_false_takes_part_in_nothing(tmp_path):
    graph = nx.DiGraph()
    cells = [row for row in CELLS if row[2] == 3]
    cells += [row for row in CELLS if (row[0], row[2]) in ((2, 4), (4, 5))]
    for number, (t, _, track, _, y, x) in enumerate(cells):
        graph.add_node(number, t=t, y=y, x=x, false=int(track == 4))
        if number and cells[number - 1][2] == track:
            graph.add_edge(number - 1, number)
    geff.write(
        graph,
        tmp_path / "a.geff",
        axis_names=["t", "y", "x"],
        axis_types=["time", "space", "space"],
    )
    found = set(read_annotations(tmp_path / "a.geff", MOVIE, complete=False).events)
    label = 20 - 3
    ends = {event for event in found if event[1] != Event.MOVE}
    assert ends == set(EventTable.of_false([2], [label], 9))

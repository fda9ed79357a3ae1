"""Detections that take part in nothing."""

import csv
from itertools import pairwise

import geff.core_io
import numpy as np
import pytest

import clew
from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import END_OF_FALSE, Annotations, Event, EventTable
from clew.tracking.io.annotations import (
    open_annotations,
    read_annotations,
    write_annotations,
)
from clew.tracking.io.geff import write_geff
from clew.tracking.io.napari import make_napari_tracks
from clew.tracking.io.result_tables import write_track_table
from clew.tracking.io.submission import write_submission
from clew.tracking.io.tables import read_detections
from clew.tracking.io.trackmate import read_trackmate, write_trackmate
from clew.tracking.lineage.tracks import Tracks, find_false_detections
from clew.tracking.tracker import Tracker
from clew.tracking.user_columns import ColumnTable, UserColumns


def make_tracks(*rows):
    """Tracks of rows (id, begin, end, parent)."""
    return Tracks(*np.array(rows).T)


def test_detections_in_no_track_are_false():
    whole = [(k, 0, 9, 0) for k in range(101, 201)]
    tracks = make_tracks(
        (7, 3, 3, 0), (8, 0, 0, 0), (9, 9, 9, 0), (10, 4, 5, 0), *whole
    )
    assert tracks.id[find_false_detections(tracks)].tolist() == [7]


def test_daughters_and_mothers_are_no_false_detections():
    family = [(1, 0, 4, 0), (2, 5, 5, 1), (3, 5, 9, 1), (4, 3, 3, 0), (5, 4, 9, 4)]
    assert not find_false_detections(make_tracks(*family)).any()
    assert not len(find_false_detections(make_tracks(*family)[:0]))


def test_tracks_that_begin_and_end_everywhere_leave_single_cells_by_chance():
    short = [(k, b, b + 1, 0) for k, b in enumerate(np.tile(np.arange(1, 8), 20), 1)]
    edges = [(900, 0, 9, 0)]
    single = [(1000, 3, 3, 0)]
    assert not find_false_detections(make_tracks(*short, *edges, *single)).any()


def write(path, *rows):
    path.write_text("\n".join(["frame,event,sources,targets,happened", *rows]))
    return path


def test_a_false_detection_comes_from_nothing_and_leads_to_nothing(tmp_path):
    table = DetectionTable([0, 1, 2], [4, 5, 6], np.zeros((3, 2)))
    path = write(tmp_path / "a.csv", "0,false,4,,yes", "1,false,5,,", "2,False,,6,yes")
    found = read_annotations(path, table)
    assert set(found.events) == {
        (0, Event.FALSE_END, (4,), ()),
        (0, Event.FALSE_BEGIN, (), (5,)),
        (1, Event.FALSE_END, (5,), ()),
        (1, Event.FALSE_BEGIN, (), (6,)),
    }
    assert found.happened.all()
    assert found.row.tolist() == [2, 3, 3, 4]
    path = write(tmp_path / "b.csv", "1,false,5,,no")
    with pytest.raises(InputError, match="happened is 'no'; it must be yes if false"):
        read_annotations(path, table)


def test_events_of_false_detections_stay_within_the_movie(tmp_path):
    events = EventTable.of_false([0, 1, 2], [4, 5, 6], 3)
    assert set(events) == {
        (0, Event.FALSE_END, (4,), ()),
        (1, Event.FALSE_END, (5,), ()),
        (0, Event.FALSE_BEGIN, (), (5,)),
        (1, Event.FALSE_BEGIN, (), (6,)),
    }
    write_annotations(tmp_path / "a.csv", Annotations.of(events))
    table = DetectionTable([0, 1, 2], [4, 5, 6], np.zeros((3, 2)))
    assert set(read_annotations(tmp_path / "a.csv", table).events) == set(events)
    kinds = events.to_lineage_kinds().event.tolist()
    assert kinds == [Event.DISAPPEAR] * 2 + [Event.APPEAR] * 2


N_FRAMES, N_CELLS = 10, 25


class Spurious:
    """Cells that step and are seen late or lost early, and dim false detections."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        place = rng.uniform(0, 300, (N_CELLS, 2))
        first = rng.integers(-4, 5, N_CELLS)
        frames, places, brightness, is_false, ids = [], [], [], [], []
        for t in range(N_FRAMES):
            place = place + rng.normal(0, 3.0, place.shape)
            seen = np.flatnonzero(first <= t)
            noise = rng.uniform(0, 300, (6, 2))
            n = len(seen) + len(noise)
            frames.append(np.full(n, t))
            places.append(np.concatenate([place[seen], noise]))
            is_false.append(np.arange(n) >= len(seen))
            brightness.append(rng.normal(np.where(is_false[-1], 0.0, 4.0), 1.0))
            ids.append(np.append(seen, np.full(len(noise), -1)))
        self.frame = np.concatenate(frames)
        self.is_false = np.concatenate(is_false)
        self.id = np.concatenate(ids)
        self.label = np.concatenate([np.arange(1, len(part) + 1) for part in frames])
        self.table = DetectionTable(self.frame, self.label, np.concatenate(places))
        columns = {"brightness": np.concatenate(brightness)}
        cells = ColumnTable.of(self.frame, self.label[:, None], columns)
        self.table.user_columns = UserColumns(cells)

    def annotate(self, share, false=True):
        """Some cells with all that happens to them, and as many false detections."""
        events = []
        for cell in range(round(share * N_CELLS)):
            rows = np.flatnonzero(self.id == cell)
            label = self.label[rows].tolist()
            start = int(self.frame[rows[0]])
            if start:
                events.append((start - 1, Event.APPEAR, (), (label[0],)))
            for k, pair in enumerate(pairwise(label)):
                events.append((start + k, Event.MOVE, pair[:1], pair[1:]))
        wrong = np.flatnonzero(self.is_false)[: round(share * self.is_false.sum())]
        parts = [EventTable.of(events)]
        if false:
            spots = self.frame[wrong], self.label[wrong]
            parts.append(EventTable.of_false(*spots, N_FRAMES))
        return Annotations.of(EventTable.join(parts))

    def find_marked(self, lineage):
        """(n,) detections that a lineage marks as false."""
        tracks = lineage.tracks
        marked = tracks.id[find_false_detections(tracks)]
        return np.isin(lineage.track, marked)


def test_false_detections_have_weights_of_their_own(tmp_path):
    movie, other = Spurious(0), Spurious(1)
    settings = {"cache": None, "n_jobs": 1, "max_gap": 0}
    tracker = Tracker(**settings).fit(movie.table, movie.annotate(0.4))
    weights = dict(zip(tracker.feature_names_, tracker.coef_, strict=True))
    for kind in ("false_begin", "false_end"):
        assert weights[f"{kind}: column brightness"] < 0
    assert (
        weights["appear: column brightness"]
        > (weights["false_begin: column brightness"])
    )
    tracker.save(tmp_path / "w.clew")
    lineage = clew.load(tmp_path / "w.clew").track(other.table)
    assert set(lineage.events) == set(tracker.track(other.table).events)
    found = other.find_marked(lineage)
    by_evidence = other.find_marked(Tracker.generic(**settings).track(other.table))
    wrong = (found != other.is_false).sum()
    assert wrong < 0.5 * (by_evidence != other.is_false).sum()
    assert not set(lineage.events.event.tolist()) & set(END_OF_FALSE)


def test_weights_without_annotated_false_detections_know_none():
    movie = Spurious(0)
    tracker = Tracker(cache=None, n_jobs=1, max_gap=0, lam=0.1)
    tracker.fit(movie.table, movie.annotate(0.4, false=False))
    assert not any(name.startswith("false") for name in tracker.feature_names_)
    assert tracker.track(movie.table).tracks.is_false is None


def test_false_detections_are_marked_and_left_out_of_submissions(tmp_path):
    grid = np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1).reshape(-1, 2) * 30.0
    place = [np.vstack([grid, [[45.0, 45.0]]]) if t == 2 else grid for t in range(6)]
    counts = [len(cells) for cells in place]
    table = DetectionTable(
        np.repeat(np.arange(6), counts),
        np.concatenate([np.arange(1, n + 1) for n in counts]),
        np.concatenate(place),
    )
    lineage = Tracker.generic(n_jobs=1, cache=None).track(table)
    write_track_table(tmp_path / "tracks.csv", lineage)
    with (tmp_path / "tracks.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["false"] == "1"]
    assert [(row["frame"], row["label"]) for row in rows] == [("2", "17")]
    assert read_detections(tmp_path / "tracks.csv").user_columns is None
    _, properties, _ = make_napari_tracks(lineage)
    assert properties["label"][properties["false"] == 1].tolist() == [17]
    write_trackmate(tmp_path / "a.xml", lineage)
    cells = read_trackmate(tmp_path / "a.xml")
    marked = cells.tracks[np.isin(cells.tracks.id, cells.known_end)]
    assert marked.begin.tolist() == marked.end.tolist() == [2]
    partial = open_annotations(tmp_path / "a.xml", table, complete=False)
    false = partial.annotations.events[partial.annotations.events.is_false]
    assert set(false) == set(EventTable.of_false([2], [17], 6))
    write_geff(tmp_path / "a.geff", lineage)
    nodes = geff.core_io.read_to_memory(tmp_path / "a.geff")["node_props"]
    is_false = nodes["false"]["values"]
    assert nodes["t"]["values"][is_false].tolist() == [2]
    assert nodes["seg_id"]["values"][is_false].tolist() == [17]
    write_submission(tmp_path / "s.csv", lineage, "movie")
    with (tmp_path / "s.csv").open() as file:
        kinds = list(csv.DictReader(file))
    assert sum(row["row_type"] == "node" for row in kinds) == 16 * 6
    edges = {(int(row["source_id"]), int(row["target_id"])) for row in kinds}
    assert {(k, k + 16) for k in range(1, 81)} == edges - {(-1, -1)}

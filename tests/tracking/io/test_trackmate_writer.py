"""Files for TrackMate: read by clew and by the converter of geff."""

import warnings

import geff
import numpy as np
from geff.convert import from_trackmate_xml_to_geff

from clew.tracking.events import Event, EventTable
from clew.tracking.io.track_tables import open_lineage
from clew.tracking.io.trackmate import write_trackmate
from clew.tracking.lineage.lineage import Lineage


def make_lineage():
    """A cell that is missing in a frame, and then divides; another that moves."""
    events = EventTable.of(
        [
            (0, Event.GAP, [1], [1]),
            (2, Event.DIVIDE, [1], [2, 3]),
            (0, Event.MOVE, [5], [5]),
            (1, Event.DISAPPEAR, [5], []),
        ]
    )
    frame = np.array([0, 0, 1, 2, 3, 3])
    label = np.array([1, 5, 5, 1, 2, 3])
    position = np.array([[0.0, 0], [9, 0], [9, 1], [0, 2], [0, 3], [2, 3]])
    return Lineage(4, frame, label, position, events, np.ones(4))


def test_file_is_read_again(tmp_path):
    lineage = make_lineage()
    write_trackmate(tmp_path / "a.xml", lineage)
    found = open_lineage(tmp_path / "a.xml")
    assert np.bincount(
        found.tracks.child_count(found.tracks.parent_row())
    ).tolist() == [
        3,
        1,
        1,
    ]
    assert sorted(found.position.tolist()) == sorted(lineage.position.tolist())
    assert found.frame.tolist() == lineage.frame.tolist()


def test_converter_of_geff_reads_the_file(tmp_path):
    write_trackmate(tmp_path / "a.xml", make_lineage())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from_trackmate_xml_to_geff(tmp_path / "a.xml", tmp_path / "a.geff")
    graph, _ = geff.read(tmp_path / "a.geff", backend="networkx")
    assert sorted(graph.edges) == [(0, 3), (1, 2), (3, 4), (3, 5)]

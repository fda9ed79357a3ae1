"""The table of nodes and edges of the Biohub competition."""

import csv

import numpy as np

from clew.tracking.events import Event, EventTable
from clew.tracking.io.submission import write_submission
from clew.tracking.lineage.lineage import Lineage


def test_nodes_and_edges_are_written(tmp_path):
    events = EventTable.of(
        [
            (0, Event.DIVIDE, [4], [5, 6]),
            (1, Event.GAP, [5], [5]),
            (1, Event.DISAPPEAR, [6], []),
        ]
    )
    frame = np.array([0, 1, 1, 3])
    label = np.array([4, 5, 6, 5])
    position = np.array([[2.0, 4.0], [3.0, 4.1], [2.0, 8.0], [3.0, 4.0]])
    lineage = Lineage(4, frame, label, position, events, np.ones(3))
    write_submission(tmp_path / "s.csv", lineage, "movie", (1.0, 2.0))
    rows = list(csv.reader((tmp_path / "s.csv").open()))
    assert rows[0][:4] == ["id", "dataset", "row_type", "node_id"]
    assert rows[1] == ["0", "movie", "node", "1", "0", "0", "2", "2", "-1", "-1"]
    assert rows[3] == ["2", "movie", "node", "3", "1", "0", "2", "4", "-1", "-1"]
    # the link over a gap is left out
    assert [row[2] for row in rows[1:]] == ["node"] * 4 + ["edge"] * 2
    assert rows[5] == ["4", "movie", "edge", "-1", "-1", "-1", "-1", "-1", "1", "2"]

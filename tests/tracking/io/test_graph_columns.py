"""Columns of a graph: built part by part, they are those of the whole lineage."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clew.tracking.events import Event, EventTable
from clew.tracking.io.geff import write_geff
from clew.tracking.io.graph_columns import graph_columns
from clew.tracking.io.segments import label_components, number_segments
from clew.tracking.lineage.lineage import Lineage, LineageInParts

from ...helpers.effort import examples
from .test_geff import random_lineage


def gap_over_two_parts() -> Lineage:
    """Cell 1 moves, is missed in frame 2, comes back as 3; cell 2 divides into 4 and 5 in the end."""
    events = EventTable.of(
        [
            (0, Event.MOVE, [1], [1]),
            (0, Event.MOVE, [2], [2]),
            (1, Event.GAP, [1], [3]),
            (1, Event.MOVE, [2], [2]),
            (2, Event.DIVIDE, [2], [4, 5]),
        ]
    )
    frame, label = (
        np.array([0, 0, 1, 1, 2, 3, 3, 3]),
        np.array([1, 2, 1, 2, 2, 3, 4, 5]),
    )
    return Lineage(
        4, frame, label, np.arange(16.0).reshape(8, 2), events, np.arange(5.0)
    )


def check(lineage: Lineage, per_part: int) -> None:
    source, target, row = lineage.edges
    with tempfile.TemporaryDirectory() as folder:
        with graph_columns(Path(folder), LineageInParts(lineage, per_part)) as (
            nodes,
            edges,
        ):
            np.testing.assert_array_equal(nodes.frame, lineage.frame)
            np.testing.assert_array_equal(nodes.label, lineage.label)
            np.testing.assert_array_equal(nodes.position, lineage.position)
            np.testing.assert_array_equal(nodes.track, lineage.track)
            np.testing.assert_array_equal(nodes.segment, number_segments(lineage))
            np.testing.assert_array_equal(
                nodes.family, label_components(len(lineage.frame), source, target) + 1
            )
            kinds = lineage.events.event[row]
            expected = sorted(
                zip(source, target, kinds, lineage.confidence[row], strict=True)
            )
            assert (
                sorted(zip(*edges.ends.T, edges.event, edges.confidence, strict=True))
                == expected
            )
            for kind, cells in (
                (Event.APPEAR, lineage.targets),
                (Event.DISAPPEAR, lineage.sources),
            ):
                alone = lineage.events.event == kind
                assert set(np.flatnonzero(~nodes.accompanied[kind])) == set(
                    cells[alone, 0]
                )
                np.testing.assert_array_equal(
                    nodes.alone[kind][cells[alone, 0]], lineage.confidence[alone]
                )
        assert not list(Path(folder).iterdir())


@examples(20)
@given(
    seed=st.integers(0, 10_000),
    per_part=st.integers(1, 7),
    ndim=st.sampled_from([2, 3]),
)
def test_columns_are_those_of_the_lineage(seed, per_part, ndim):
    check(random_lineage(seed, ndim=ndim), per_part)


def test_a_gap_may_lead_over_a_part():
    for per_part in (1, 2, 3, 4):
        check(gap_over_two_parts(), per_part)


def test_a_geff_has_the_same_bytes_however_it_is_cut(tmp_path):
    for per_part in (1, 6):
        write_geff(
            tmp_path / f"{per_part}.geff", LineageInParts(random_lineage(3), per_part)
        )
    one, six = (
        {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in (tmp_path / "1.geff", tmp_path / "6.geff")
    )
    assert one == six
    assert len(one) > 10

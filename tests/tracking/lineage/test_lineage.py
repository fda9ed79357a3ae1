"""Lineages: what is refused, which tracks follow from events, and who is who after a merge."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.tracking.events import LINEAGE_KINDS, EventTable
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.lineage.tracks import check_tracks

MOVE, DIVIDE, APPEAR, DISAPPEAR, SPLIT, MERGE, GAP = LINEAGE_KINDS


def lineage(frames, events, position=None, **columns):
    """A lineage of frames given as lists of labels; positions are the labels unless given."""
    frame = np.repeat(np.arange(len(frames)), [len(labels) for labels in frames])
    label = np.array([name for labels in frames for name in labels], dtype=np.int64)
    where = (
        np.column_stack([label, np.zeros(len(label))])
        if position is None
        else np.array(position, dtype=float)
    )
    table = EventTable.of(events)
    columns = {name: np.array(column, dtype=float) for name, column in columns.items()}
    return Lineage(
        len(frames),
        frame,
        label,
        where,
        table,
        np.arange(len(table), dtype=float),
        columns,
    )


def table(result):
    return result.tracks.table().tolist()


#  frame   0    1    2    3
#
#          1 ── 1 ── 2 ── 1     1 divides into 2 and 3 after frame 1, 3 leaves after frame 2
#                └── 3 ─×
#                    ○─ 4        ... and 5 comes
FAMILY = (
    [[1], [1], [2, 3], [1, 4]],
    [
        (0, MOVE, [1], [1]),
        (1, DIVIDE, [1], [2, 3]),
        (2, MOVE, [2], [1]),
        (2, DISAPPEAR, [3], []),
        (2, APPEAR, [], [4]),
    ],
)


def test_tracks_of_a_family():
    family = lineage(*FAMILY)
    assert table(family) == [[1, 0, 1, 0], [2, 2, 3, 1], [3, 2, 2, 1], [4, 3, 3, 0]]
    assert family.track.tolist() == [1, 1, 2, 3, 2, 4]
    assert family.generations.tolist() == [0, 1, 1, 0]
    assert family.descendants(1).tolist() == [2, 3]
    assert family.descendants(4).tolist() == []
    assert family.counts().tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0],
        [1, 0, 1, 1, 0, 0, 0],
    ]
    assert family.least_certain(2).tolist() == [0, 1]
    with pytest.raises(InputError, match="no track 9"):
        family.descendants(9)


def test_edges_and_graph():
    family = lineage(*FAMILY)
    assert list(zip(*(side.tolist() for side in family.edges), strict=True)) == [
        (0, 1, 0),
        (1, 2, 1),
        (1, 3, 1),
        (2, 4, 2),
    ]
    graph = family.to_networkx()
    assert graph.number_of_nodes() == 6
    assert graph.nodes[3] == {
        "frame": 2,
        "label": 3,
        "track": 3,
        "position": [3.0, 0.0],
    }
    assert graph.edges[1, 3] == {"event": "divide", "confidence": 1.0}
    assert nx.descendants(graph, 0) == {1, 2, 3, 4}


#  a ─┐       ┌─ x
#     m ── n ─┤          the identities a and b are matched to x and y
#  b ─┘       └─ y
MEETING = (
    [[1, 2], [1], [1], [1, 2], [1, 2]],
    [
        (0, MERGE, [1, 2], [1]),
        (1, MOVE, [1], [1]),
        (2, SPLIT, [1], [1, 2]),
        (3, MOVE, [1], [1]),
        (3, MOVE, [2], [2]),
    ],
)


@pytest.mark.parametrize("by", ["volume", "intensity", "side"])
@pytest.mark.parametrize("crossed", [False, True])
def test_identities_after_a_merge(by, crossed):
    left, middle, right = [0.0, 0.0], [2.0, 0.0], [4.0, 0.0]
    if by == "side":
        after = [right, left] if crossed else [left, right]
        met = lineage(*MEETING, [left, right, middle, middle, *after, *after])
    else:  # at one place, nothing can be told from the side
        after = [20.0, 10.0] if crossed else [10.0, 20.0]
        met = lineage(
            *MEETING, [middle] * 8, **{by: [10.0, 20.0, 30.0, 30.0, *after, *after]}
        )
    tracks = met.track
    x, y = (5, 4) if crossed else (4, 5)  # where a and b come out
    assert [met.tracks.parent[tracks[node] - 1] for node in (0, 1, 2)] == [0, 0, 0]
    carrier, other = (0, 1) if tracks[2] == tracks[0] else (1, 0)
    assert tracks[[x, y][carrier]] == tracks[carrier]
    back = tracks[[x, y][other]]
    assert met.tracks.parent[back - 1] == tracks[other]
    assert met.tracks.begin[back - 1] == 3
    assert met.tracks.end[tracks[other] - 1] == 0
    assert met.generations.max() == 0
    if by != "side":
        assert carrier == 1  # 20 is nearer to 30


def test_the_cheaper_matching_wins_as_a_whole():
    """Volume says one thing, the side another: the smaller sum of both decides."""
    position = [
        [0.0, 0.0],
        [4.0, 0.0],
        [2.0, 0.0],
        [2.0, 0.0],
        *[[0.0, 0.0], [4.0, 0.0]] * 2,
    ]
    for ratio, swapped in [(1.2, False), (20.0, True)]:
        volume = [
            10.0,
            10.0 * ratio,
            10 + 10 * ratio,
            10 + 10 * ratio,
            *[10.0 * ratio, 10.0] * 2,
        ]
        met = lineage(*MEETING, position, volume=volume)
        assert (met.track[2] == met.track[1]) == (ratio > 1)
        assert (met.track[4] == met.track[1]) == swapped


def test_a_split_without_a_merge_has_no_parent():
    #        ┌─ 1
    #  1 ────┤         2 is larger, and goes on
    #        └─ 2
    split = lineage(
        [[1], [1, 2]],
        [(0, SPLIT, [1], [1, 2])],
        [[0, 0], [0, -1], [0, 1]],
        volume=[10, 2, 8],
    )
    assert split.track.tolist() == [1, 2, 1]
    assert table(split) == [[1, 0, 1, 0], [2, 1, 1, 0]]


#  1 ─┐
#     1 ─┐            ┌─ 1
#  2 ─┘  1 ─── 1 ─────┤      three cells in one detection, which come out one after the other
#  3 ── 3 ┘           └─ 2 ─┬─ 2
#                           └─ 3
def test_three_identities():
    frames = [[1, 2, 3], [1, 3], [1], [1], [1, 2], [1, 2, 3]]
    events = [
        (0, MERGE, [1, 2], [1]),
        (0, MOVE, [3], [3]),
        (1, MERGE, [1, 3], [1]),
        (2, MOVE, [1], [1]),
        (3, SPLIT, [1], [1, 2]),
        (4, MOVE, [1], [1]),
        (4, SPLIT, [2], [2, 3]),
    ]
    volume = [10, 20, 40, 30, 40, 70, 70, 10, 60, 10, 20, 40]
    three = lineage(frames, events, [[0.0, 0.0]] * 12, volume=volume)
    check_tracks(three.tracks, "three")
    names = three.track.tolist()
    family = {}
    for id, _, _, parent in table(three):
        family[id] = family.get(parent, id)
    # each cell has come back to itself, by its volume
    assert [family[names[node]] for node in (9, 10, 11)] == [
        family[names[node]] for node in (0, 1, 2)
    ]
    assert max(np.bincount(three.tracks.parent)[1:], default=0) == 1


def test_who_waits_in_a_cell_that_divides_is_not_seen_again():
    frames = [[1, 2], [1], [1, 2]]
    gone = lineage(frames, [(0, MERGE, [1, 2], [1]), (1, DIVIDE, [1], [1, 2])])
    carrier = gone.track[2]
    assert gone.tracks.parent.tolist().count(carrier) == 2
    assert len(gone.tracks) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e[1:], "frame 0, label 1 has no fate"),
        (lambda e: e[:-1], "frame 3, label 4 has no history"),
        (
            lambda e: [*e, (0, DISAPPEAR, [1], [])],
            "frame 0, label 1 must be the source of exactly one.*move 1.*disapp",
        ),
        (
            lambda e: [*e, (2, APPEAR, [], [4])],
            "frame 3, label 4 must be the target of exactly one event",
        ),
        (
            lambda e: [*e, (0, APPEAR, [], [7])],
            "appear 7 from frame 0 to 1: there is no label 7 in frame 1",
        ),
        (lambda e: [*e, (3, DISAPPEAR, [4], [])], "label 4 is in the last frame"),
        (lambda e: [*e, (-1, APPEAR, [], [1])], "label 1 is in the first frame"),
        (lambda e: [*e, (9, APPEAR, [], [1])], "no label 1 in frame 10"),
        (lambda e: [(0, MOVE, [1], []), *e[1:]], "not the number of cells"),
    ],
)
def test_what_is_no_lineage_is_refused(change, message):
    frames, events = FAMILY
    with pytest.raises(InputError, match=message):
        lineage(frames, change(events))


@pytest.mark.parametrize("frames", [[[2, 1]], [[1, 1]], [[0, 1]]])
def test_nodes_must_be_sorted(frames):
    with pytest.raises(InputError, match="sorted by frame"):
        lineage(frames, [])


def test_arrays_must_fit():
    with pytest.raises(InputError, match="column 'volume' has 2 rows where 1"):
        lineage([[1]], [], volume=[1, 2])
    with pytest.raises(InputError, match="in frames 0 to 0"):
        Lineage(
            1,
            np.array([1]),
            np.array([1]),
            np.zeros((1, 2)),
            EventTable.empty(),
            np.zeros(0),
        )


def test_nothing_at_all():
    nothing = lineage([[], []], [])
    assert len(nothing.tracks) == 0
    assert nothing.generations.tolist() == []
    assert lineage([[7]], []).tracks.table().tolist() == [[1, 0, 0, 0]]
    with pytest.raises(InputError, match="no label 1"):
        lineage([[], []], [(0, APPEAR, [], [1])])


@st.composite
def random_lineages(draw):
    """Events drawn frame by frame: whoever is not yet taken by an event takes part in the next."""
    frames, events = [list(range(1, draw(st.integers(0, 5)) + 1))], []
    for t in range(draw(st.integers(0, 6))):
        waiting = draw(st.permutations(frames[-1]))
        fresh = iter(
            range(1, 10**12, draw(st.sampled_from([1, 3, 10**9])))
        )  # labels need not be dense
        later = []
        while waiting or draw(st.booleans()):
            kinds = [MOVE, DIVIDE, DISAPPEAR, SPLIT] + [MERGE, MERGE] * (
                len(waiting) > 1
            )
            event = draw(st.sampled_from(kinds)) if waiting else APPEAR
            sources = [waiting.pop() for _ in range(event.arity[0])]
            targets = [next(fresh) for _ in range(event.arity[1])]
            events.append((t, event, sources, targets))
            later += targets
        frames.append(later)
    n = sum(map(len, frames))
    volume = draw(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, 8.0, np.nan]), min_size=n, max_size=n)
    )
    position = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=n, max_size=n
        )
    )
    order = draw(st.permutations(range(len(events))))
    where = np.array(position, dtype=float).reshape(n, 2)
    return lineage(frames, [events[i] for i in order], where, volume=volume)


@given(random_lineages())
def test_laws(some):
    tracks = some.tracks
    check_tracks(tracks, "some")
    # every track has one node in each frame of its life, and every node one track
    alive = {
        (id, t)
        for id, begin, end, _ in tracks.table().tolist()
        for t in range(begin, end + 1)
    }
    nodes = list(zip(some.track.tolist(), some.frame.tolist(), strict=True))
    assert len(set(nodes)) == len(nodes)
    assert set(nodes) == alive
    # moves stay in their track; daughters have their mother as parent; a new track comes of a division or a merge
    track = some.track
    divided = set()
    for kind, source, target in zip(
        some.events.event, some.sources, some.targets, strict=True
    ):
        if kind == MOVE:
            assert track[source[0]] == track[target[0]]
        if kind == DIVIDE:
            assert (tracks.parent[track[target] - 1] == track[source[0]]).all()
            divided.add(track[source[0]])
        if kind == MERGE:
            assert (track[source] == track[target[0]]).sum() == 1
        if kind == SPLIT:
            assert (track[target] == track[source[0]]).sum() == 1
        if kind == APPEAR:
            assert tracks.parent[track[target[0]] - 1] == 0
    children = np.bincount(tracks.parent, minlength=len(tracks) + 1)
    assert {id for id in tracks.id.tolist() if children[id] == 2} == divided
    # who comes back had merged away
    ended_by_merge = {
        track[node]
        for kind, pair in zip(some.events.event, some.sources, strict=True)
        if kind == MERGE
        for node in pair
    }
    assert {id for id in tracks.id.tolist() if children[id] == 1} <= ended_by_merge


@given(random_lineages(), st.randoms(use_true_random=False))
def test_order_of_events_makes_no_difference(some, random):
    order = list(range(len(some.events)))
    random.shuffle(order)
    events = some.events[np.array(order, dtype=np.intp)]
    again = Lineage(
        some.n_frames,
        some.frame,
        some.label,
        some.position,
        events,
        some.confidence,
        some.columns,
    )
    assert again.track.tolist() == some.track.tolist()
    assert again.tracks.table().tolist() == some.tracks.table().tolist()


@pytest.mark.parametrize("volumes", list(permutations([1.0, 3.0, 9.0])))
def test_the_best_fit_of_all_ways_comes_out(volumes):
    """Two come out of three: brute force over who does, with the carrier always one of them."""
    frames = [[1, 2, 3], [1, 3], [1], [1, 2]]
    events = [
        (0, MERGE, [1, 2], [1]),
        (0, MOVE, [3], [3]),
        (1, MERGE, [1, 3], [1]),
        (2, SPLIT, [1], [1, 2]),
    ]
    a, b, c = volumes
    volume = [a, b, c, a + b, c, a + b + c, 1.1, 9.5]
    met = lineage(frames, events, [[0.0, 0.0]] * 8, volume=volume)
    carrier = next(node for node in (0, 1, 2) if met.track[node] == met.track[5])
    cost = {
        (who, to): abs(np.log(volume[who] / volume[to]))
        for who in range(3)
        for to in (6, 7)
    }
    ways = [(to, 13 - to, who) for to in (6, 7) for who in range(3) if who != carrier]
    here, there, back = min(
        ways, key=lambda way: cost[carrier, way[0]] + cost[way[2], way[1]]
    )
    assert met.track[here] == met.track[carrier]
    assert met.tracks.parent[met.track[there] - 1] == met.track[back]

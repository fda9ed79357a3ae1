"""Columns of a user: features of learned weights, and needed again to track."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import clew
from clew.errors import DataWarning, InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.profile import describe_groups
from clew.tracking.tracker import Tracker
from clew.tracking.user_columns import (
    ColumnTable,
    SourceWithColumns,
    Standard,
    UserColumns,
    add_user_columns,
    measure_standards,
)

N_CELLS = 30
N_FRAMES = 12
REACH = 40.0


def move_of(t, source, target):
    return (t, Event.MOVE, (source,), (target,))


class Crowd:
    """Cells that step as far as their spacing, and a score that often tells links."""

    def __init__(self, seed, n_false=0):
        rng = np.random.default_rng(seed)
        steps = rng.normal(0, 7.0, (N_FRAMES, N_CELLS, 2))
        paths = rng.uniform(0, 100, (N_CELLS, 2)) + steps.cumsum(axis=0)
        noise = rng.uniform(0, 100, (N_FRAMES, n_false, 2))
        self.position = np.concatenate([paths, noise], axis=1)
        n = N_CELLS + n_false
        self.order = np.array([rng.permutation(n) for _ in range(N_FRAMES)])
        self.label = np.argsort(self.order, axis=1) + 1
        frame = np.repeat(np.arange(N_FRAMES), n)
        self.table = DetectionTable(
            frame, self.label.ravel(), self.position.reshape(-1, 2)
        )
        self.is_cell = np.arange(n) < N_CELLS
        quality = rng.normal(4.0 * self.is_cell, 1.0, (N_FRAMES, n))
        cells = ColumnTable.of(
            frame, self.label.reshape(-1, 1), {"quality": quality.ravel()}
        )
        rows = []
        self.scores = []
        for t in range(N_FRAMES - 1):
            is_true = np.eye(n, dtype=bool) & self.is_cell
            score = rng.normal(2.0 * is_true, 1.0)
            near = cdist(self.position[t], self.position[t + 1]) < REACH
            self.scores.append(np.where(near, score, -10.0))
            source, target = np.nonzero(near)
            of_target = self.label[t + 1, target]
            rows.append(
                np.column_stack(
                    [
                        np.full(len(source), t),
                        self.label[t, source],
                        of_target,
                        score[near],
                    ]
                )
            )
        columns = np.concatenate(rows)
        ids = columns[:, :3].astype(int)
        links = ColumnTable.of(ids[:, 0], ids[:, 1:], {"score": columns[:, 3]})
        self.columns = UserColumns(cells, links)

    def moves(self, cells):
        return [
            move_of(t, int(self.label[t, k]), int(self.label[t + 1, k]))
            for t in range(N_FRAMES - 1)
            for k in cells
        ]

    def count_wrong(self, events):
        """True moves that are missed, and moves that are none."""
        moves = events[events.event == Event.MOVE]
        found = set(zip(moves.frame, *moves.sources.T, *moves.targets.T, strict=True))
        true = {
            (t, source[0], 0, target[0], 0)
            for t, _, source, target in self.moves(range(N_CELLS))
        }
        return len(found ^ true)

    def solve_by_score(self):
        """The moves with the largest sum of scores."""
        moves = []
        for t, score in enumerate(self.scores):
            source, target = linear_sum_assignment(-score)
            kept = score[source, target] > 0
            moves += [
                move_of(t, int(self.label[t, i]), int(self.label[t + 1, j]))
                for i, j in zip(source[kept], target[kept], strict=True)
            ]
        return EventTable.of(moves)


@pytest.fixture(scope="module")
def crowd():
    crowd = Crowd(0)
    crowd.table.user_columns = crowd.columns
    return crowd


@pytest.fixture(scope="module")
def learned(crowd):
    ten = Annotations.of(EventTable.of(crowd.moves(range(10))))
    return Tracker(cache=None, n_jobs=1, max_gap=0).fit(crowd.table, ten)


def test_learned_scores_are_better_than_the_scores_alone(learned):
    other = Crowd(1)
    by_place = Tracker.generic(cache=None, n_jobs=1, max_gap=0).track(other.table)
    other.table.user_columns = other.columns
    by_both = other.count_wrong(learned.track(other.table).events)
    assert by_both < 0.75 * other.count_wrong(other.solve_by_score())
    assert by_both < 0.75 * other.count_wrong(by_place.events)


def test_columns_are_named_and_needed_again(learned, crowd, tmp_path):
    assert "move: link score" in learned.feature_names_
    assert "divide: lower link score" in learned.feature_names_
    assert "disappear: column quality" in learned.feature_names_
    words = describe_groups(learned.groups_, "points", crowd.table)
    assert words == "measurements: points, column quality, link score"
    learned.save(tmp_path / "w.clew")
    loaded = clew.load(tmp_path / "w.clew")
    assert loaded.standards_ == learned.standards_
    expected = learned.track(crowd.table).events
    assert set(loaded.track(crowd.table).events) == set(expected)
    without = crowd.table[0:3]
    without.user_columns = UserColumns(crowd.columns.cells)
    with pytest.raises(InputError, match="no measurements of link score"):
        loaded.track(without)


def test_a_column_of_one_movie_only_is_left_out(crowd):
    bare = Crowd(2).table
    one = Annotations.of(EventTable.of(crowd.moves([0])[:2]))
    with pytest.warns(DataWarning, match="column quality, link score"):
        tracker = Tracker(cache=None, n_jobs=1, lam=1.0).fit(
            [crowd.table, bare], [one, one[:0]]
        )
    assert tracker.groups_ == {"border"}


def test_values_are_standardized_and_follow_the_cells():
    table = DetectionTable([0, 0, 1], [2, 1, 5], np.arange(6).reshape(3, 2))
    cells = ColumnTable.of(
        np.array([1, 0, 0]), np.array([[5], [1], [2]]), {"q": np.array([3.0, 1.0, 2.0])}
    )
    links = ColumnTable.of(
        np.array([0, 0]), np.array([[2, 5], [1, 5]]), {"s": np.array([4.0, 2.0])}
    )
    table.user_columns = UserColumns(cells, links)
    groups = table.user_columns.list_groups()
    standards = measure_standards([table], groups)
    assert standards["column q"] == pytest.approx((2.0, np.sqrt(2 / 3)))
    source = add_user_columns(table, groups, standards)
    assert isinstance(source, SourceWithColumns)
    values = source.detections(0).columns["column q"]
    assert values == pytest.approx([-np.sqrt(1.5), 0.0])
    found = source.find_links(source.detections(0), source.detections(1))
    pairs = zip(found.source, found.target, found.columns["link s"], strict=True)
    assert set(pairs) == {(0, 0, -1.0), (1, 0, 1.0)}
    part = table[1:2].user_columns
    assert part.cells.frame.tolist() == [0]
    assert part.cells.columns["q"].tolist() == [3.0]
    assert source.content(0) != add_user_columns(table, ["link s"], standards).content(
        0
    )


def test_cells_that_were_drawn_later_have_the_mean():
    table = DetectionTable([0, 0, 1], [1, 3, 1], np.zeros((3, 2)))
    cells = ColumnTable.of(np.array([0]), np.array([[3]]), {"q": np.array([5.0])})
    source = SourceWithColumns(
        table, {"column q": Standard(1.0, 2.0)}, UserColumns(cells)
    )
    assert source.detections(0).columns["column q"].tolist() == [0.0, 2.0]
    assert source.detections(1).columns["column q"].tolist() == [0.0]


def test_links_between_cells_that_do_not_exist_are_refused():
    table = DetectionTable([0, 1], [1, 1], np.zeros((2, 2)))
    value = np.array([1.0])
    links = ColumnTable.of(np.array([0]), np.array([[1, 9]]), {"s": value})
    source = SourceWithColumns(
        table, {"link s": Standard(0.0, 1.0)}, UserColumns(None, links)
    )
    with pytest.raises(InputError, match="label 1 of frame 0 to label 9"):
        source.find_links(source.detections(0), source.detections(1))

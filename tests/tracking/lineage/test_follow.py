"""Ends of tracks that are followed into the image, and beginnings backwards."""

import numpy as np
import pytest

from clew.tracking.evaluation.result_events import remove_recovered
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.frames import Patch
from clew.tracking.lineage.fill import add_recovered
from clew.tracking.lineage.follow import Sighting, Trail, join_runs, reverse_links
from clew.tracking.lineage.gaps import Field, TrackLinks
from clew.tracking.movie import Movie
from clew.tracking.tracker import Tracker

from ...helpers.tracking import links_of
from .test_fill import draw, track

HOLES = {(3, 9), (5, 24), (6, 24), (7, 24)}
ENDS = {(10, 17), (11, 17), (7, 25), (8, 25), (9, 25), (10, 25), (11, 25)}
BEGINNINGS = {(0, 33), (1, 33)}


@pytest.fixture(scope="module")
def movie():
    return draw(HOLES | ENDS | BEGINNINGS, side=7)


@pytest.fixture(scope="module")
def lineage(movie):
    return track(movie)


def test_ends_and_beginnings_are_followed(movie, lineage):
    assert len(lineage.recovered) == len(HOLES | ENDS | BEGINNINGS)
    whole = draw(set(), side=7)
    filled = add_recovered(movie, lineage.recovered)
    for t in range(movie.n_frames):
        given = movie.label(t) > 0
        assert (filled.label(t)[given] == movie.label(t)[given]).all()
        overlap = (filled.label(t) > 0) & (whole.label(t) > 0)
        assert overlap.sum() > 0.95 * (whole.label(t) > 0).sum()
    assert len(lineage.tracks) == 49
    assert (lineage.events.event == Event.MOVE).all()
    assert (lineage.recovered.probability > 0.5).all()


def test_given_cells_keep_their_events(movie, lineage):
    given = lineage.without_recovered()
    assert len(given.frame) == len(track(movie, fill=False).frame)
    plain = track(movie, fill=False)
    kinds = np.bincount(given.events.event, minlength=len(Event))
    assert (kinds == np.bincount(plain.events.event, minlength=len(Event))).all()
    cells = set(
        zip(
            lineage.recovered.frame.tolist(),
            lineage.recovered.label.tolist(),
            strict=True,
        )
    )
    events = remove_recovered(lineage.events, cells)
    assert sorted(events.row_keys().tolist()) == sorted(
        given.events.row_keys().tolist()
    )


def test_cells_that_are_gone_are_not_followed(movie):
    images = movie.images.data.copy()
    whole = draw(set(), side=7)
    rng = np.random.default_rng(2)
    for t, cell in ENDS:
        inside = whole.label(t) == cell
        images[t][inside] = rng.normal(100, 2, inside.sum())
    lineage = track(Movie.from_arrays(movie.labels.data, images))
    assert len(lineage.recovered) == len(HOLES | BEGINNINGS)


@pytest.mark.parametrize("parameters", [{"fill": False}, {"max_gap": 0}])
def test_ends_stay_where_nothing_is_to_be_filled(movie, parameters):
    lineage = track(movie, **parameters)
    ends = lineage.events.event == Event.DISAPPEAR
    assert {(9, 17), (6, 25)} <= {
        (int(t), int(label))
        for t, label in zip(
            lineage.events.frame[ends], lineage.events.sources[ends, 0], strict=True
        )
    }


def test_annotated_ends_are_obeyed(movie):
    gone = Annotations.of(EventTable.of([(9, Event.DISAPPEAR, (17,), ())]))
    tracker = Tracker.generic(n_jobs=1, cache=None)
    lineage = tracker.track(movie, annotations=gone)
    assert len(lineage.recovered) == len(HOLES | ENDS | BEGINNINGS) - 2


def test_reversed_links_lead_back():
    events = EventTable.of(
        [
            (0, Event.MOVE, (1,), (1,)),
            (0, Event.MOVE, (2,), (3,)),
            (1, Event.MOVE, (1,), (2,)),
            (1, Event.DISAPPEAR, (3,), ()),
        ]
    )
    links = links_of(events, np.ones(4), np.full(4, np.nan))
    back = reverse_links(links)
    last = len(links) - 1
    behind = TrackLinks(back).successor[:-1][::-1]
    before = TrackLinks(links).predecessor
    assert (np.where(behind < 0, -1, last - behind) == before).all()
    assert (np.diff(back.first_node) == np.diff(links.first_node)[::-1]).all()
    assert (reverse_links(back).successor == links.successor).all()


def test_surer_cells_keep_their_pixels(movie):
    events = EventTable.of(
        [(t, Event.MOVE, (c,), (c,)) for t in range(3) for c in (1, 2)]
    )
    links = links_of(events, np.ones(6), np.full(6, np.nan))
    trails = [Trail(node, False, 0, node + 1, np.zeros((2, 2)), {}) for node in (0, 1)]

    def see(column, score):
        patch = Patch(0, (10, column), np.ones((4, 8), bool))
        return Sighting(patch, np.zeros(2), {}, score)

    # The first is left 5 columns of 8, and then loses all but 3 of them.
    seen = [[see(10, 1.0), see(40, 1.0)], [see(15, 2.0), see(35, 2.0), see(70, 2.0)]]
    runs = join_runs(movie, links, trails, seen)
    assert runs.cells.frame.tolist() == [1, 1, 2, 2, 3]
    seen[1][1] = see(37, 2.0)
    runs = join_runs(movie, links, trails, seen)
    assert runs.cells.frame.tolist() == [1, 1, 2, 3]
    assert runs.run.tolist() == [0, 1, 1, 1]
    assert [int(mask.sum()) for mask in runs.cells.masks] == [20, 32, 32, 32]
    assert runs.source.tolist() == [0, 1]


def test_field_ends_where_the_boxes_of_cells_do():
    field = Field(np.array([5.0, 5.0]), np.array([95.0, 45.0]), 10.0, 1.0)
    low = np.array([[0.0, 20.0], [-8.0, 20.0], [50.0, 50.0]])
    depth = field.measure_depth(low, low + 10)
    assert depth.tolist() == [5.0, -3.0, -5.0]
    assert field.describe(-5.0)["outside"] == -0.5
    assert field.describe(5.0)["rim"] == pytest.approx(np.exp(-0.5))


def test_movies_without_cells_or_ends_have_nothing_to_follow():
    empty = np.zeros((3, 20, 20), np.uint8)
    assert len(track(Movie.from_arrays(empty, empty.astype(float))).recovered) == 0
    assert len(track(draw(set(), frames=3, side=3)).recovered) == 0

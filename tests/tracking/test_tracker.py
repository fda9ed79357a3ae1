"""The tracker: what it learns holds on events that it did not see, and it says what it cannot do."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import clew
from clew.errors import InfeasibleAnnotation, InputError
from clew.tracking.candidates.features import feature_names
from clew.tracking.detections import DetectionTable
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.movie import Movie, open_movie
from clew.tracking.tracker import Tracker


def tracker(**parameters):
    return Tracker(**{"lam": 100.0, "cache": None, "n_jobs": 1} | parameters)


def positions_of(simulated, with_volume=False):
    """The movie as a table of detections."""
    found = Tracker(cache=None, n_jobs=1).measure(simulated.movie)
    frames = [found.detections(t) for t in range(found.n_frames)]
    columns = (
        {"volume": np.concatenate([frame.columns["volume"] for frame in frames])}
        if with_volume
        else {}
    )
    return DetectionTable(
        np.concatenate([np.full(len(frame), frame.frame) for frame in frames]),
        np.concatenate([frame.label for frame in frames]),
        np.concatenate([frame.position for frame in frames]),
        columns,
        n_frames=found.n_frames,
    )


def test_a_quarter_of_the_events_teaches_the_others(simulated, learned, lineage):
    unseen = ~np.isin(
        simulated.known.events.row_keys(), simulated.some.events.row_keys()
    )
    loss = compute_task_loss(simulated.known[unseen], lineage)
    assert loss.total < 0.03  # random weights miss nearly all
    assert learned.n_annotated_ == len(simulated.some)
    assert learned.n_pairs_ == len(np.unique(simulated.some.events.frame))
    assert learned.result_.converged


def test_the_lineage_is_of_the_whole_movie(simulated, lineage):
    labels = [
        np.unique(simulated.movie.label(t)) for t in range(simulated.movie.n_frames)
    ]
    n_given = len(lineage.frame) - len(lineage.recovered)
    assert n_given == sum(np.count_nonzero(found) for found in labels)
    assert set(lineage.columns) == {"volume", "intensity", "recovered"}
    assert len(lineage.confidence) == len(lineage.events)
    assert lineage.confidence.min() >= -1e-9


def test_the_same_on_any_number_of_threads(simulated, learned, lineage):
    two = clone(learned).set_params(n_jobs=2).fit(simulated.movie, simulated.some)
    assert np.array_equal(two.coef_, learned.coef_)
    other = two.track(simulated.movie)
    assert np.array_equal(lineage.events.row_keys(), other.events.row_keys())
    assert np.array_equal(lineage.confidence, other.confidence)


def test_a_path_a_movie_and_its_measurements_are_the_same(simulated, learned, lineage):
    by_movie = lineage.events.row_keys()
    assert np.array_equal(
        learned.track(str(simulated.path)).events.row_keys(), by_movie
    )
    assert np.array_equal(
        learned.track(learned.measure(simulated.path)).events.row_keys(), by_movie
    )


def test_several_movies(simulated, learned):
    first, second = simulated.movie[:7], simulated.movie[7:]
    some = simulated.some
    early, late = some[some.events.frame < 6], some[some.events.frame >= 7]
    shifted = Annotations.of(
        EventTable(
            late.events.frame - 7,
            late.events.event,
            late.events.sources,
            late.events.targets,
        )
    )
    both = tracker().fit([first, second], [early, shifted])
    assert both.n_annotated_ == len(early) + len(late)
    assert compute_task_loss(simulated.known, both.track(simulated.movie)).total < 0.03


def test_several_movies_use_what_all_of_them_have(simulated):
    bare = Movie.from_arrays(np.stack([simulated.movie.label(t) for t in range(14)]))
    both = tracker().fit([simulated.movie, bare], [simulated.some, simulated.some])
    assert "intensity" not in both.groups_
    assert both.feature_names_ == feature_names(both.groups_)


def test_three_dimensions(simulated_3d):
    fitted = tracker().fit(simulated_3d.movie, simulated_3d.known)
    lineage = fitted.track(simulated_3d.movie)
    assert lineage.position.shape[1] == 3
    assert (
        lineage.position[:, 0].max() > simulated_3d.movie.shape[0]
    )  # physical: a slice is 3 high
    assert compute_task_loss(simulated_3d.known, lineage).total < 0.1


def test_annotations_are_kept_to(simulated, learned, lineage):
    moves = np.flatnonzero(lineage.events.event == Event.MOVE)[:1]
    ((frame, _, (source,), (target,)),) = lineage.events[moves]
    ended = Annotations.of(
        EventTable.of(
            [
                (frame, Event.DISAPPEAR, [source], []),
                (frame, Event.APPEAR, [], [target]),
            ]
        )
    )
    bound = learned.track(simulated.movie, annotations=ended)
    assert np.isin(ended.events.row_keys(), bound.events.row_keys()).all()
    denied = Annotations.of(lineage.events[moves], False)
    assert not np.isin(
        denied.events.row_keys(),
        learned.track(simulated.movie, annotations=denied).events.row_keys(),
    ).any()


def test_annotations_that_no_lineage_can_keep_to_name_their_frames(
    simulated, learned, lineage
):
    last = lineage.events.frame == 3
    # every fate that cell 1 of frame 3 could have is denied
    pairs = learned.pairs(learned.measure(simulated.movie), learned.groups_)
    pair = pairs.build(3)
    label = int(pair.a.label[0])
    events = pair.candidates.table(pair.a, pair.b)
    fates = events[(events.sources == label).any(axis=1)]
    assert last.any()
    with pytest.raises(InfeasibleAnnotation, match="from frame 3 to 4"):
        learned.track(simulated.movie, annotations=Annotations.of(fates, False))


def test_a_table_of_detections(simulated):
    table = positions_of(simulated)
    fitted = tracker().fit(table, simulated.known)
    assert fitted.groups_ == {"border"}
    assert compute_task_loss(simulated.known, fitted.track(table)).total < 0.1


def test_a_movie_that_lacks_what_was_learned_is_refused(simulated, learned):
    bare = open_movie(labels=simulated.folder / "01_SEG")
    with pytest.raises(
        InputError, match="no measurements of histogram, intensity"
    ) as told:
        learned.track(bare)
    assert "give the movie's images" in str(told.value)


def test_without_images_intensity_drops_out(simulated):
    bare = open_movie(labels=simulated.folder / "01_SEG")
    fitted = tracker().fit(bare, simulated.some)
    assert {"intensity", "histogram"}.isdisjoint(fitted.groups_)
    assert compute_task_loss(simulated.known, fitted.track(bare)).total < 0.05
    assert "intensity" not in fitted.track(bare).columns


@pytest.mark.parametrize("what", ["images", "labels", "positions"])
def test_generic_weights_need_no_annotation(simulated, what):
    movies = {
        "images": simulated.movie,
        "labels": open_movie(labels=simulated.folder / "01_SEG"),
        "positions": positions_of(simulated),
    }
    generic = Tracker.generic(cache=None, n_jobs=1)
    loss = compute_task_loss(simulated.known, generic.track(movies[what]))
    assert loss.total < (0.15 if what == "positions" else 0.05)
    assert generic.n_annotated_ == 0


def test_a_warm_start_spares_passes(simulated, learned):
    again = tracker().fit(simulated.movie, simulated.some, warm_start=learned.result_)
    assert again.result_.passes < learned.result_.passes
    assert again.result_.objective == pytest.approx(learned.result_.objective, rel=0.02)


def test_reach_and_neighbours_limit_the_candidates(simulated, learned):
    source = learned.measure(simulated.movie)
    few = (
        Tracker.generic(neighbours=1, reach=1e-6, n_jobs=1)
        .pairs(source, source.has)
        .build(0)
    )
    many = (
        Tracker.generic(neighbours=6, reach=1e6, n_jobs=1)
        .pairs(source, source.has)
        .build(0)
    )
    assert len(few.candidates) < len(many.candidates) / 10
    with pytest.raises(InputError, match="reach is -1"):
        tracker(reach=-1).fit(simulated.movie, simulated.some)


@pytest.mark.parametrize(
    ("movie", "annotations", "words"),
    [
        (
            ["a", "b"],
            [Annotations.of(EventTable.empty())],
            "2 movies and annotations of 1",
        ),
        ([], [], "0 movies"),
        ("a", [1, 2], "annotations is a list"),
        ("a", Annotations.of(EventTable.empty()), "nothing is annotated"),
    ],
)
def test_what_cannot_be_learned_from(movie, annotations, words):
    with pytest.raises(InputError, match=words):
        tracker().fit(movie, annotations)


def test_a_tracker_that_learned_nothing_does_not_track(simulated):
    with pytest.raises(NotFittedError):
        tracker().track(simulated.movie)


def test_it_is_public():
    assert clew.Tracker is Tracker
    assert clew.open_movie is open_movie
    assert "Tracker" in dir(clew)
    with pytest.raises(AttributeError, match="no attribute 'tracker_of_dreams'"):
        _ = clew.tracker_of_dreams

"""Training windows: one is the pair's own problem with the rest held fixed; pseudo-labels give way to answers."""

import numpy as np
import pytest

from clew.annotation.frame_pair_cache import FramePairCache
from clew.annotation.learner import Learner
from clew.annotation.sampling import sample
from clew.annotation.training_windows import TrainingWindows, WindowSettings
from clew.learning.task import Space
from clew.tracking.assignment.assignment import assign
from clew.tracking.evaluation.truth import derive_annotations
from clew.tracking.events import FALSE_DETECTIONS, Annotations, Event, EventTable
from clew.tracking.io.ctc import open_ctc_lineage
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import open_movie
from clew.tracking.tracker import Tracker

NOTHING = Annotations.of(EventTable.empty())


SMALL = WindowSettings(window=5, pseudo_window=9)
"""Windows that are smaller than the frames of the movie."""


def pair_with(learner, frame, annotations):
    return FramePairCache(learner.pairs, 10**6).get_pair(frame, annotations)


def made(source, settings=SMALL):
    learner = Learner(source, settings=settings)
    return learner, learner.windows


@pytest.mark.parametrize("seed", range(6))
def test_a_windows_problem_is_the_pairs_with_the_guess_outside_held_fixed(
    source, simulated, seed
):
    rng = np.random.default_rng(seed)
    learner, windows = made(source)
    frame = int(rng.integers(len(learner.pairs)))
    annotations = simulated.known.select_frame(frame)[:2]
    example = windows.make_example(frame, annotations)
    pair = pair_with(learner, frame, annotations)
    window = example.window
    assert 0 < len(window.rows) < len(pair.candidates)
    guess = assign(pair.candidates, pair.scores(learner.initial)).chosen
    scores = pair.scores(learner.initial) + rng.normal(
        scale=2.0, size=len(pair.candidates)
    )
    outside = np.setdiff1d(guess, window.rows)
    whole = assign(pair.candidates, scores, dict.fromkeys(outside.tolist(), 1))
    part = assign(window.candidates, scores[window.rows])
    assert part.value + scores[outside].sum() == pytest.approx(whole.value)
    assert set(window.rows[part.chosen]) | set(outside) == set(whole.chosen)


def test_no_predicted_event_leads_out_of_a_window_and_all_that_is_annotated_is_in_it(
    source, simulated
):
    learner, windows = made(source)
    for frame in range(len(learner.pairs)):
        annotations = simulated.known.select_frame(frame)[:3]
        example = windows.make_example(frame, annotations)
        pair = pair_with(learner, frame, annotations)
        cells = pair.candidates.detections_of()
        inside = np.zeros(pair.candidates.n_detections + 1, dtype=bool)
        inside[cells[example.window.rows]] = True
        guess = cells[assign(pair.candidates, pair.scores(learner.initial)).chosen]
        for event in guess:
            assert len(set(inside[event[event >= 0]])) == 1
        assert set(pair.find_annotated(annotations)) <= set(example.window.rows)
        assert len(example.labels) >= len(annotations)


def test_what_is_told_comes_before_what_was_known(source, simulated):
    learner, windows = made(source)
    frame = windows.pseudo_frames[3]
    pseudo = windows.make_example(frame, NOTHING)
    assert pseudo.labels
    assert all(pseudo.labels.values())
    sure = pseudo.window.rows[list(pseudo.labels)]
    pair = pair_with(learner, frame, NOTHING)
    denied = Annotations.of(pair.candidates.table(pair.a, pair.b, sure[:1]), [False])
    told = windows.make_example(frame, denied)
    row, _ = told.window.select_labels({int(sure[0]): 0}).popitem()
    assert told.labels[row] == 0
    # something else happened to the cell: its pseudo-label is gone, and an output agrees with all that is known
    other = simulated.known.select_frame(frame)[:4]
    example = windows.make_example(frame, other)
    scores = pair_with(learner, frame, other).scores(learner.initial)
    window = example.window
    assert assign(window.candidates, scores[window.rows], example.labels)


@pytest.mark.parametrize("least", [0.9, 0.99, 0.9999])
def test_what_the_initial_weights_are_almost_certainly_right_about_counts(
    source, least
):
    learner, windows = made(
        source, WindowSettings(pseudo_window=1000, pseudo_probability=least)
    )
    unit = np.linalg.norm(learner.initial)
    counted = 0
    for frame in windows.pseudo_frames:
        example = windows.make_example(frame, NOTHING)
        pair = pair_with(learner, frame, NOTHING)
        answer = assign(pair.candidates, pair.scores(learner.initial))
        right = windows.calibrate().probability(
            answer.events, answer.confidence(), unit
        )
        rows = example.window.rows[list(example.labels)]
        assert set(rows) == set(answer.chosen[right >= least])
        counted += len(rows)
    assert counted


def test_a_few_annotations_do_no_harm(clew_data):
    """Of HeLa, drawn by kinds of events, so that odd ones are among them.

    With the more confident half of all predictions as pseudo-labels, 129 of 8,434 events were missed after these, where
    generic weights miss 49.
    """
    movie = open_movie(clew_data / "Fluo-N2DL-HeLa/01")
    source = measure_movie(movie, cache=None, n_jobs=1)
    known = derive_annotations(
        open_ctc_lineage(clew_data / "Fluo-N2DL-HeLa/01_GT/TRA"), movie
    )
    learner = Learner(source, tracker=Tracker.generic(n_jobs=1))

    def missed(tracker):
        return (
            ~np.isin(known.events.row_keys(), tracker.track(source).events.row_keys())
        ).sum()

    before = missed(learner.make_tracker())
    learner.learn(sample(known, rng=np.random.default_rng([4, 5]), number=25))
    assert missed(learner.make_tracker()) <= before + 15


def test_without_first_weights_there_is_nothing_to_remember_and_the_whole_pair_counts(
    source, simulated
):
    learner = Learner(source)
    windows = TrainingWindows(
        np.zeros_like(learner.initial),
        len(learner.pairs),
        lambda frame, annotations: pair_with(learner, frame, annotations),
        learner.basis,
    )
    assert not windows.pseudo_frames
    annotations = simulated.known.select_frame(2)[:3]
    example = windows.make_example(2, annotations)
    pair = pair_with(learner, 2, annotations)
    assert len(example.window.rows) == len(pair.candidates)
    assert len(example.labels) == len(annotations)


def test_an_answer_changes_the_example_of_its_own_pair_alone(source, simulated):
    learner, some = Learner(source, settings=SMALL), simulated.some

    # a move, since a first event of a rare kind would switch that kind on in all pairs
    last = np.flatnonzero(some.events.event == Event.MOVE)[-1]
    learner.learn(some[np.arange(len(some)) != last])
    before = learner.windows.make_examples(learner.annotations)
    learner.learn(some)
    new = [
        example
        for example in learner.windows.make_examples(learner.annotations)
        if example not in before
    ]
    frame = int(some.events.frame[last])
    assert new == [learner.windows.make_example(frame, some.select_frame(frame))]
    assert Space.ALL in new[0].window.solvers


def test_the_same_annotations_lead_to_the_same_weights_and_none_back_to_the_first(
    source, simulated
):
    learner = Learner(source)
    learner.learn(simulated.some)
    once = learner.w
    learner.learn(simulated.some[:5])
    learner.learn(NOTHING)
    np.testing.assert_array_equal(learner.w, learner.initial)
    learner.learn(simulated.some)
    np.testing.assert_allclose(learner.w, once, rtol=1e-6, atol=1e-9)


def test_a_false_detection_brings_features_of_its_own(source, simulated):
    learner = Learner(source)

    def count_events():
        kinds = [one.events.event for one in learner.predict_all()]
        return np.bincount(np.concatenate(kinds), minlength=len(Event))

    before = count_events()
    label = int(source.detections(5).label[0])
    of_cell = EventTable.of_false([5], [label], source.n_frames)
    learner.learn(Annotations.of(of_cell))
    assert learner.w.any()
    after = count_events()
    assert np.isin(of_cell.row_keys(), learner.predict(5).events.row_keys())[0]
    # without them, each cell in the movie was a false detection
    assert after[Event.MOVE] >= before[Event.MOVE] - 2
    tracker = learner.make_tracker()
    assert FALSE_DETECTIONS in tracker.groups_
    assert tracker.track(source).n_frames == source.n_frames

"""Frame pairs: scores by block are scores by row, and annotated events are always among the candidates."""

from dataclasses import replace

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.measurement.measure import measure
from clew.tracking.model import pairs as frame_pairs
from clew.tracking.model.features import feature_names
from clew.tracking.model.pairs import Pairs


@pytest.fixture(scope="module")
def pairs(simulated):
    source = measure(simulated.movie, cache=None)
    return Pairs.of(source, source.has)


def test_there_is_a_pair_for_each_two_frames(pairs, simulated):
    assert len(pairs) == simulated.movie.n_frames - 1
    assert len(Pairs.of(DetectionTable([0], [1], [[0, 0]]), frozenset())) == 0


def test_scores_are_the_product_of_features_and_weights(pairs):
    pair = pairs.pair(2)
    w = np.random.default_rng(0).normal(size=len(feature_names(pairs.groups)))
    features = pair.features()
    assert features.shape == (len(pair.candidates), len(w))
    assert np.allclose(pair.scores(w), features @ w)


def test_a_pair_that_was_looked_at_is_not_made_again(pairs, monkeypatch):
    w = np.random.default_rng(1).normal(size=len(feature_names(pairs.groups)))
    few = replace(pairs, events=frozenset({Event.MOVE, Event.DIVIDE, Event.APPEAR, Event.DISAPPEAR}))
    anew = few.scored(1, w)
    whole = pairs.looked_at(1, w)
    assert len(whole.candidates) > len(anew.candidates)
    made = []
    original = frame_pairs.candidates
    monkeypatch.setattr(frame_pairs, "candidates", lambda *a, **k: made.append(1) or original(*a, **k))
    again = few.scored(1, w)
    assert not made
    assert again.around is anew.around is None
    for name in ("event", "sources", "targets"):
        np.testing.assert_array_equal(getattr(again.candidates, name), getattr(anew.candidates, name))
    np.testing.assert_array_equal(again.score, anew.score)
    for other, weights in ((replace(few, reach=2 * few.reach), w), (few, 2 * w)):
        other.scored(1, weights)
        assert made.pop()
    annotated = EventTable.of([(1, Event.APPEAR, [], [int(anew.b.label[0])])])
    few.scored(1, w, annotated)
    assert made.pop()


def test_annotated_events_are_always_candidates(pairs, simulated):
    for frame in range(len(pairs)):
        here = simulated.known.at(frame)
        assert len(pairs.pair(frame, here.events).annotated(here)) == len(here)


def test_however_far_away(pairs):
    a, b = pairs.source.detections(0), pairs.source.detections(1)
    distance = np.linalg.norm(a.position[0] - b.position, axis=1)
    far = EventTable.of([(0, Event.MOVE, [a.label[0]], [b.label[np.argmax(distance)]])])
    assert distance.max() > pairs.reach
    assert pairs.pair(0).rows(far) == {}
    assert len(pairs.pair(0, far).rows(far)) == 1


def test_what_is_annotated_maps_rows_to_answers(pairs):
    pair = pairs.pair(0)
    events = pair.candidates.table(pair.a, pair.b)
    marks = Annotations.of(events[np.array([5, 2])], np.array([True, False]))
    assert pair.annotated(marks) == {5: 1, 2: 0}


@pytest.mark.parametrize("reach", [0, -1, np.nan, np.inf])
def test_a_reach_is_positive(pairs, reach):
    with pytest.raises(InputError, match="reach is"):
        Pairs.of(pairs.source, pairs.groups, reach=reach)

"""Frame pairs: scores by block are scores by row, and annotated events are always among the candidates."""

from dataclasses import replace

import numpy as np
import pytest

from clew.annotation.learner import Learner
from clew.errors import InputError
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.detections import DetectionTable
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.flow.registration import measure_strain
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.profile import estimate_profile
from clew.tracking.tracker import Tracker


@pytest.fixture(scope="module")
def pairs(simulated):
    source = measure_movie(simulated.movie, cache=None)
    return FramePairBuilder(source, estimate_profile(source, source.has))


def test_there_is_a_pair_for_each_two_frames(pairs, simulated):
    assert len(pairs) == simulated.movie.n_frames - 1
    table = DetectionTable([0], [1], [[0, 0]])
    assert len(FramePairBuilder(table, estimate_profile(table, frozenset()))) == 0


def test_scores_are_the_product_of_features_and_weights(pairs):
    pair = pairs.build(2)
    w = np.random.default_rng(0).normal(size=len(feature_names(pairs.profile.groups)))
    features = pair.features
    assert features.shape == (len(pair.candidates), len(w))
    assert np.allclose(pair.scores(w), features @ w)


def test_annotated_events_are_always_candidates(pairs, simulated):
    for frame in range(len(pairs)):
        here = simulated.known.select_frame(frame)
        assert len(pairs.build(frame, here.events).find_annotated(here)) == len(here)


def test_however_far_away(pairs):
    a, b = pairs.source.detections(0), pairs.source.detections(1)
    distance = np.linalg.norm(a.position[0] - b.position, axis=1)
    far = EventTable.of([(0, Event.MOVE, [a.label[0]], [b.label[np.argmax(distance)]])])
    assert distance.max() > pairs.profile.reach
    assert pairs.build(0).find_annotated(Annotations.of(far)) == {}
    pair = pairs.build(0, far)
    assert len(pair.find_annotated(Annotations.of(far))) == pair.n_added == 1


def test_what_is_annotated_maps_rows_to_answers(pairs):
    pair = pairs.build(0)
    events = pair.candidates.table(pair.a, pair.b)
    marks = Annotations.of(events[np.array([5, 2])], np.array([True, False]))
    assert pair.find_annotated(marks) == {5: 1, 2: 0}


def test_parts_are_ranked_among_the_cells_before(pairs):
    pair = pairs.build(0)
    rows = np.arange(len(pair.candidates.event))
    rank, before = pair.part_ranks(rows), pair.a.columns["volume"]
    for row, targets in zip(rows, pair.candidates.targets, strict=True):
        if (targets < 0).any():
            assert np.isnan(rank[row])
        else:
            smaller = pair.b.columns["volume"][targets].min()
            assert rank[row] == pytest.approx(
                np.mean((before < smaller) + (before == smaller) / 2)
            )
    assert np.isfinite(rank).any()


def test_parts_without_sizes_have_no_rank():
    points = flowing()
    pair = FramePairBuilder(points, estimate_profile(points, points.has)).build(0)
    assert np.isnan(pair.part_ranks(np.arange(len(pair.candidates.event)))).all()


@pytest.mark.parametrize("reach", [0, -1, np.nan, np.inf])
def test_a_reach_is_positive(pairs, reach):
    with pytest.raises(InputError, match="reach is"):
        FramePairBuilder(
            pairs.source,
            estimate_profile(pairs.source, pairs.profile.groups, reach=reach),
        )


def flowing(frames=6, side=9, seed=3):
    """A table of cells a spacing apart that all go by half of it, and a little on their own."""
    rng = np.random.default_rng(seed)
    grid = np.stack(
        np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    x = grid + rng.uniform(-0.2, 0.2, grid.shape)
    places = [x]
    for _ in range(frames - 1):
        places.append(places[-1] + [0.4, 0.1] + rng.normal(scale=0.03, size=x.shape))
    frame, label = (
        np.repeat(np.arange(frames), len(x)),
        np.tile(np.arange(1, len(x) + 1), frames),
    )
    return DetectionTable(frame, label, np.concatenate(places))


def moves(frame, *ways):
    return Annotations.of(
        EventTable.of([(frame, Event.MOVE, (a,), (b,)) for a, b in ways])
    )


def test_moves_that_the_flow_leads_to_leave_it_as_it_is_and_others_put_it_right():
    pairs = FramePairBuilder(flowing(), estimate_profile(flowing(), frozenset()))
    assert pairs.profile.motion.follows_flow
    usual = pairs.build(2)
    foreseen, unforeseen = (
        moves(2, (40, 40), (41, 41)),
        moves(2, (40, 40), (41, 50), (50, 41)),
    )
    assert not usual.contradicts_moves(foreseen.select_moves())
    assert not usual.contradicts_moves(EventTable.empty())
    assert usual.contradicts_moves(unforeseen.select_moves())
    same, other = (
        pairs.build(2, told.events, told.select_moves())
        for told in (foreseen, unforeseen)
    )
    np.testing.assert_array_equal(same.features.toarray(), usual.features.toarray())
    near = moves(2, (42, 42))
    (row,) = usual.find_annotated(near)
    (now,) = other.find_annotated(near)
    assert not np.allclose(other.features.toarray()[now], usual.features.toarray()[row])
    assert (
        other.key != pairs.build(2, unforeseen.events).key
    )  # two pairs that differ do not pass for one


def test_cells_that_move_on_their_own_tell_nothing_of_others(pairs):
    told = moves(0, (1, 2))
    assert not pairs.profile.motion.follows_flow
    assert not pairs.build(0).contradicts_moves(told.select_moves())


def test_a_tracker_and_a_learner_make_the_same_of_annotated_moves():
    source, told = flowing(), moves(2, (41, 50), (50, 41))
    tracker = Tracker.generic(n_jobs=1)
    learner = Learner(source, tracker=tracker)
    learner.annotate(told)
    mine, theirs = learner.build_lineage(), tracker.track(source, annotations=told)
    np.testing.assert_array_equal(mine.events.row_keys(), theirs.events.row_keys())
    np.testing.assert_allclose(mine.confidence, theirs.confidence, rtol=1e-6, atol=1e-9)
    assert set(told.events.row_keys().tolist()) <= set(mine.events.row_keys().tolist())


def test_a_known_profile_leads_to_the_same_pairs():
    source = growing()
    found = Learner(source, tracker=Tracker.generic(n_jobs=1))
    known = Learner(source, tracker=found.tracker, profile=found.pairs.profile)
    plain = replace(found.pairs, weights=None).build(0).flow.shift
    chosen = found.pairs.build(0).flow.shift
    assert not np.array_equal(chosen, plain)
    np.testing.assert_array_equal(known.pairs.build(0).flow.shift, chosen)


def test_a_pair_is_the_same_with_the_flow_of_the_pair_before():
    source = flowing()
    builder = FramePairBuilder(source, estimate_profile(source, frozenset()))
    before = builder.build(1)
    alone = builder.build(2)
    again = builder.build(2, previous=before)
    np.testing.assert_array_equal(again.features.toarray(), alone.features.toarray())
    told = moves(1, (40, 40), (41, 50), (50, 41))
    corrected = builder.build(1, told.events, told.select_moves())
    assert corrected.is_flow_corrected
    again = builder.build(2, previous=corrected)
    np.testing.assert_array_equal(again.features.toarray(), alone.features.toarray())


def growing(seed=0, growth=1.35, side=7):
    """Two frames of a colony that moves apart; every fifth cell divides."""
    rng = np.random.default_rng(seed)
    grid = np.stack(
        np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    before = 20 * (grid + rng.uniform(-0.2, 0.2, grid.shape))
    center = before.mean(axis=0)
    after = center + growth * (before - center) + rng.normal(scale=1, size=before.shape)
    divides = np.arange(len(before)) % 5 == 0
    half = np.where(divides[:, None], rng.normal(scale=1, size=before.shape), 0)
    half *= 5 / np.maximum(np.linalg.norm(half, axis=1, keepdims=True), 1e-9)
    after = np.concatenate([after + half, after[divides] - half[divides]])
    frame = np.repeat([0, 1], [len(before), len(after)])
    label = np.concatenate([1 + np.arange(len(before)), 1 + np.arange(len(after))])
    return DetectionTable(frame, label, np.concatenate([before, after]))


@pytest.mark.parametrize("seed", range(8))
def test_the_chosen_flow_scores_at_least_as_much_if_it_may_bend(seed):
    source = growing(seed)
    profile = estimate_profile(source, source.has)
    profile = replace(profile, motion=replace(profile.motion, strain=0.0))
    w = Tracker.generic().weights_for(profile)
    plain = FramePairBuilder(source, profile).build(0)
    chosen = FramePairBuilder(source, profile, w).build(0)
    assert chosen.solve(w).value >= plain.solve(w).value
    fresh = replace(chosen, solved=None).solve(w)
    np.testing.assert_array_equal(chosen.solve(w).chosen, fresh.chosen)


@pytest.mark.parametrize("seed", range(3))
def test_the_chosen_flow_hardly_bends_where_flows_hardly_bend(seed):
    source = growing(seed)
    profile = estimate_profile(source, source.has)
    w = Tracker.generic().weights_for(profile)
    strains = []
    for usual in (profile.motion.strain, 1e-9):
        stiff = replace(profile, motion=replace(profile.motion, strain=usual))
        pair = FramePairBuilder(source, stiff, w).build(0)
        strains.append(measure_strain(pair.a.position, pair.flow.shift))
    assert strains[0] > 0.01
    assert strains[1] < 1e-6


def test_a_growing_colony_is_followed_to_its_rim():
    n_missed = []
    for seed in range(8):
        source = growing(seed)
        profile = estimate_profile(source, source.has)
        w = Tracker.generic().weights_for(profile)
        for weights in (None, w):
            pair = FramePairBuilder(source, profile, weights).build(0)
            events = pair.candidates.table(pair.a, pair.b, pair.solve(w).chosen)
            first = events.targets[:, 0]
            is_right = (events.sources[:, 0] == first) & (first > 0)
            n_missed.append(len(pair.a) - np.count_nonzero(is_right))
    without, with_weights = np.reshape(n_missed, (8, 2)).sum(axis=0)
    assert with_weights < without / 2


def test_known_moves_hold_in_the_chosen_flow():
    source = flowing()
    profile = estimate_profile(source, source.has)
    w = Tracker.generic().weights_for(profile)
    builder = FramePairBuilder(source, profile, w)
    known = moves(2, (41, 50), (50, 41))
    pair = builder.build(2, known.events, known.select_moves())
    assert pair.is_flow_corrected
    assert pair.solved is None
    assert len(pair.find_annotated(known)) == 2

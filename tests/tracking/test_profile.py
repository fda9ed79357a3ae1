"""The profile of a movie: kinds of events, and whether it is like the training data."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage.morphology import disk

from clew import load
from clew.errors import DataWarning, InputError
from clew.tracking.candidates.candidates import ALL_EVENTS
from clew.tracking.candidates.features import feature_names
from clew.tracking.detections import GROUPS, OVERLAP, DetectionTable
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie
from clew.tracking.profile import (
    ECCENTRICITY,
    LEVELS,
    MASK_FAULTS,
    MIN_SAMPLES,
    RELATIVE_SIZE,
    TrainingRange,
    are_markers,
    decide_events,
    estimate_profile,
    find_informative_groups,
    masks_tile,
    median_appearance,
    parse_events,
    sample_evenly,
    sample_pair_windows,
)
from clew.tracking.tracker import Tracker
from clew.tracking.training.generic_weights import (
    GENERIC,
    GENERIC_SETS,
    POINTS_3D,
    TILED_MASKS,
    VARIANTS,
    find_generic_set,
    generic_weights,
)


def markers(movie, radius=2):
    """The same cells as small discs at their centres."""
    shape = disk(radius)
    frames = []
    for t in range(movie.n_frames):
        mask, small = movie.label(t), np.zeros(movie.shape, dtype=np.uint16)
        for label in np.setdiff1d(mask, [0]):
            y, x = (round(float(c.mean())) for c in np.nonzero(mask == label))
            y, x = np.clip([y, x], radius, np.array(movie.shape) - radius - 1)
            small[y - radius : y + radius + 1, x - radius : x + radius + 1][
                shape > 0
            ] = label
        frames.append(small)
    return Movie.from_arrays(
        np.stack(frames),
        np.stack([movie.image(t) for t in range(movie.n_frames)]),
        name="discs",
    )


def test_markers_in_place_of_whole_cells_are_told(simulated, learned):
    discs = markers(simulated.movie[:6])
    with pytest.warns(
        DataWarning,
        match=f"discs is outside the range .*{RELATIVE_SIZE}.*markers of nuclei",
    ):
        learned.track(discs)
    assert ECCENTRICITY in learned.unfamiliar_


def test_the_movie_itself_is_familiar(simulated, learned):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        learned.track(simulated.movie)
        Tracker.generic(cache=None, n_jobs=1).track(simulated.movie)
    assert learned.unfamiliar_ == ""


def test_cells_that_hardly_change_are_no_reason_to_warn(simulated):
    movie = simulated.movie
    often = [t // 3 for t in range(12)]  # as if taken three times as often
    same = Movie.from_arrays(
        np.stack([movie.label(t) for t in often]),
        np.stack([movie.image(t) for t in often]),
    )
    tracker = Tracker.generic(cache=None, n_jobs=1)
    tracker.track(same)
    assert tracker.unfamiliar_ == ""


def test_a_table_of_positions_is_judged_by_what_it_has(simulated, learned):
    lineage = learned.track(simulated.movie)
    table = DetectionTable(lineage.frame, lineage.label, lineage.position)
    tracker = Tracker.generic(n_jobs=1)
    tracker.track(table)
    assert RELATIVE_SIZE not in tracker.unfamiliar_


@given(
    st.lists(st.floats(-10, 10), min_size=MIN_SAMPLES, max_size=60),
    st.lists(st.floats(-10, 10), min_size=MIN_SAMPLES, max_size=60),
)
def test_no_movie_that_was_learned_from_is_outside(one, other):
    looks = [{RELATIVE_SIZE: np.array(one)}, {RELATIVE_SIZE: np.array(other)}]
    domain = TrainingRange.of(looks)
    assert list(domain.quantiles[RELATIVE_SIZE]) == sorted(
        domain.quantiles[RELATIVE_SIZE]
    )
    for look in looks:
        assert not domain.out_of_range(median_appearance(look))


def test_movies_count_alike_and_few_cells_tell_nothing():
    many, few = {RELATIVE_SIZE: np.zeros(10_000)}, {RELATIVE_SIZE: np.ones(MIN_SAMPLES)}
    domain = TrainingRange.of([many, few])
    assert domain.quantiles[RELATIVE_SIZE][0] == 0
    assert domain.quantiles[RELATIVE_SIZE][-1] == 1
    assert not TrainingRange.of([many]).out_of_range(
        median_appearance({RELATIVE_SIZE: np.ones(MIN_SAMPLES - 1)})
    )
    assert TrainingRange.of([many]).out_of_range(
        median_appearance({RELATIVE_SIZE: np.ones(MIN_SAMPLES)})
    )
    assert not TrainingRange.of([]).warning(median_appearance(few), "any")


def test_what_is_known_is_kept_in_a_file(learned, tmp_path):
    learned.save(tmp_path / "w.clew")
    again = load(tmp_path / "w.clew")
    assert {RELATIVE_SIZE, ECCENTRICITY, "distance"} <= set(again.domain_.quantiles)
    for name, values in learned.domain_.quantiles.items():
        assert list(again.domain_.quantiles[name]) == pytest.approx(list(values))


@pytest.mark.parametrize(
    "values", [[1.0], [2.0, 1.0, 3.0, 4.0, 5.0], [1.0] * (len(LEVELS) + 1)]
)
def test_a_file_with_other_quantiles_is_refused(learned, tmp_path, values, monkeypatch):
    monkeypatch.setattr(learned, "domain_", TrainingRange({RELATIVE_SIZE: values}))
    learned.save(tmp_path / "w.clew")
    with pytest.raises(InputError, match="ascending"):
        load(tmp_path / "w.clew")


# ---- kinds of events


def kinds_of(source, w, known=()):
    profile = estimate_profile(source, source.has)
    return decide_events(source, profile, w, known_events=frozenset(known)).event_kinds


def weights(source, **biases):
    """Generic weights with some events made likelier or less likely."""
    names = feature_names(source.has)
    w = generic_weights(names)
    for event, bias in biases.items():
        w[names.index(f"{event}: bias")] += bias
    return w


def test_a_movie_with_merges_has_splits_too(source, simulated):
    assert (simulated.known.events.event == Event.MERGE).sum() > 0
    assert kinds_of(source, weights(source)).events >= MASK_FAULTS


def test_without_a_sign_of_merges_both_are_off(source):
    decided = kinds_of(source, weights(source, merge=-50.0))
    assert not decided.events & MASK_FAULTS
    assert "split and merge off: 0 of " in str(
        decided
    ) or "split, merge and gap off: 0 of " in str(decided)


@pytest.mark.parametrize("known", [{Event.SPLIT}, {Event.MERGE}])
def test_what_was_annotated_is_on(source, known):
    assert kinds_of(source, weights(source, merge=-50.0), known).events >= MASK_FAULTS


def test_without_weights_there_is_no_evidence(source):
    basic = ALL_EVENTS - MASK_FAULTS
    assert kinds_of(source, None).events == basic
    assert kinds_of(source, None, {Event.MERGE}).events == basic | MASK_FAULTS
    assert kinds_of(source, None, {Event.MERGE, Event.GAP}).events == ALL_EVENTS


def test_kinds_that_weights_were_learned_without_are_off(source, simulated):
    """Else merges, which score 0, would be everywhere that a move scores less (16 % missed on HeLa)."""
    names = feature_names(source.has)
    w = np.where(
        [name.startswith(("split", "merge")) for name in names], 0.0, weights(source)
    )
    assert not kinds_of(source, w).events & MASK_FAULTS
    known = simulated.known
    seen = known[~np.isin(known.events.event, [*MASK_FAULTS])]
    tracker = Tracker(prior=None, lam=0.1, cache=None, n_jobs=1).fit(
        simulated.movie, seen
    )
    tracked = tracker.track(simulated.movie).events
    assert not np.isin(tracked.event, list(MASK_FAULTS)).any()
    moves = known.events[known.events.event == Event.MOVE]
    assert np.isin(moves.row_keys(), tracked.row_keys()).mean() > 0.97


def test_names_of_events():
    basic = {Event.MOVE, Event.APPEAR, Event.DISAPPEAR}
    assert parse_events("auto") is None
    assert parse_events("move, divide") == basic | {Event.DIVIDE}
    assert parse_events([Event.SPLIT, "merge"]) == basic | MASK_FAULTS
    assert parse_events([]) == basic  # every detection needs some fate
    with pytest.raises(
        InputError,
        match="there is no event 'explode'; expected 'auto', or some of move, divide",
    ):
        parse_events("explode")


def test_a_tracker_keeps_to_the_kinds_that_it_is_given(simulated):
    tracker = Tracker.generic(cache=None, n_jobs=1, events="move divide")
    events = tracker.track(simulated.movie).events
    assert not np.isin(events.event, [Event.SPLIT, Event.MERGE]).any()
    assert "as requested" in str(tracker.event_kinds_)


def test_annotated_kinds_are_possible_whatever_is_switched_off(simulated):
    merges = simulated.known[simulated.known.events.event == Event.MERGE]
    tracker = Tracker.generic(cache=None, n_jobs=1, events="move divide")
    told = tracker.track(simulated.movie, annotations=merges).events
    assert np.isin(merges.events.row_keys(), told.row_keys()).all()


# ---- annotated events among the candidates


def test_annotated_events_that_are_no_candidates_are_counted(simulated, tmp_path):
    tracker = Tracker.generic(cache=None, n_jobs=1)
    source = tracker.measure(simulated.movie)
    a, b = source.detections(0), source.detections(1)
    apart = np.linalg.norm(a.position[:, None] - b.position[None], axis=2)
    i, j = np.unravel_index(np.argmax(apart), apart.shape)
    far = EventTable.of([(0, Event.MOVE, [int(a.label[i])], [int(b.label[j])])])
    tracker.track_blocks(source, tmp_path / "far", annotations=Annotations.of(far))
    assert str(tracker.coverage_) == "candidates: 0 of 1 annotated events (1 added)"
    near = simulated.known.select_frame(0)[:5]
    tracker.track_blocks(source, tmp_path / "near", annotations=near)
    assert str(tracker.coverage_) == "candidates: all of 5 annotated events"
    tracker.track(source)
    assert str(tracker.coverage_) == "candidates: no event is annotated"


# ---- samples


@given(st.integers(0, 200), st.integers(1, 30))
def test_samples_are_evenly_spread(n, wanted):
    items = sample_evenly(range(n), wanted)
    assert len(items) <= wanted
    assert items == sorted(set(items))
    if n and wanted > 1:
        assert (items[0], items[-1]) == (0, n - 1)


@given(st.integers(0, 300))
def test_sampled_windows_are_apart(n_pairs):
    windows = sample_pair_windows(n_pairs)
    frames = [frame for window in windows for frame in window]
    assert frames == sorted(set(frames))
    assert all(later.start > earlier.stop for earlier, later in pairwise(windows))
    assert set(frames) <= set(range(n_pairs))


def test_points_have_no_splits_and_merges():
    place = np.random.default_rng(0).uniform(0, 50, (30, 2))
    frame = np.repeat([0, 1], 30)
    points = DetectionTable(frame, np.tile(np.arange(1, 31), 2), np.tile(place, (2, 1)))
    likely = weights(points, merge=50.0)
    assert not kinds_of(points, likely).events & MASK_FAULTS
    assert kinds_of(points, likely, {Event.MERGE}).events >= MASK_FAULTS


def test_masks_that_tile_the_field_have_no_splits_and_merges():
    """Where a cell vanishes and a neighbor takes its place, nothing merged."""
    row, column = np.indices((60, 60)) // 10
    before = (6 * row + column + 1).astype(np.uint16)
    after = np.where(before == 15, 16, before)
    movie = Movie.from_arrays(np.stack([before, after] * 4))
    source = Tracker(cache=None, n_jobs=1).measure(movie)
    assert not kinds_of(source, weights(source, merge=50.0)).events & MASK_FAULTS
    apart = np.where((row + column) % 2 == 0, before, 0)
    loose = Tracker(cache=None, n_jobs=1).measure(
        Movie.from_arrays(np.stack([apart] * 3))
    )
    assert not masks_tile(loose, loose.has)
    assert kinds_of(source, weights(source), {Event.MERGE}).events >= MASK_FAULTS


def discs(radii, n_frames=3):
    """A movie of one disc for each radius, which drift by a pixel a frame."""
    y, x = np.mgrid[:60, : 40 * len(radii)]
    labels = np.zeros((n_frames, *y.shape), np.int32)
    for t in range(n_frames):
        for k, (height, width) in enumerate(radii):
            inside = ((y - 30) / height) ** 2 + ((x - 40 * k - 18 - t) / width) ** 2
            labels[t][inside <= 1] = k + 1
    return measure_movie(Movie.from_arrays(labels), cache=None, n_jobs=1)


def test_markers_are_discs_of_one_size():
    markers = discs([(6, 6)] * 5)
    assert are_markers(markers)
    assert find_informative_groups(markers) == {"border"}


@pytest.mark.parametrize(
    "radii",
    [
        [(6, 6), (9, 9), (7, 7), (12, 12), (10, 10)],
        [(14, 4)] * 5,
    ],
    ids=["cells of several sizes", "rods"],
)
def test_cells_are_no_markers(radii):
    cells = discs(radii)
    assert not are_markers(cells)
    assert find_informative_groups(cells) == cells.has


def test_markers_are_tracked_as_points_and_it_is_noted():
    tracker = Tracker.generic(n_jobs=1)
    lineage = tracker.track(discs([(6, 6)] * 5))
    assert len(lineage.events) == 10
    assert tracker.measurements_.startswith("measurements: points (the masks are mark")


def test_weights_are_taken_from_the_largest_set_that_a_movie_has():
    everything = frozenset({*GROUPS, OVERLAP})
    assert find_generic_set(everything) == "masks with intensities"
    assert find_generic_set(everything - {"intensity"}) == "masks"
    assert find_generic_set({"border", "size"}) == "points"
    assert (
        find_generic_set({"border", "size", "intensity"}) == "points with intensities"
    )


def test_masks_that_tile_have_their_own_weights():
    row, column = np.indices((60, 60)) // np.array([10, 6])[:, None, None]
    tissue = (10 * row + column + 1).astype(np.uint16)
    apart = np.where((row + column) % 2 == 0, tissue, 0)
    tracker = Tracker.generic(n_jobs=1)
    for labels, name in ((tissue, TILED_MASKS), (apart, "masks")):
        source = measure_movie(
            Movie.from_arrays(np.stack([labels] * 3)), cache=None, n_jobs=1
        )
        profile = tracker.pairs(source, tracker.groups_for(source)).profile
        assert tracker.weights_for(profile).tolist() == [*GENERIC[name].values()]
        tracker.track(source)
        assert tracker.measurements_ == f"measurements: {name}"


def test_points_in_3d_have_their_own_weights():
    groups = frozenset({"border"})
    for n_axes, name in ((2, "points"), (3, POINTS_3D)):
        assert find_generic_set(groups, n_axes) == name


def test_each_set_has_a_weight_for_each_of_its_features():
    assert GENERIC.keys() == GENERIC_SETS.keys() | VARIANTS.keys()
    variants = {name: GENERIC_SETS[base] for name, base in VARIANTS.items()}
    for name, groups in (GENERIC_SETS | variants).items():
        assert list(GENERIC[name]) == feature_names(groups)

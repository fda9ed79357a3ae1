"""Movies for experiments: frames of a movie, draws, and the test task loss."""

import numpy as np
import pytest

from clew.errors import InputError
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.profile import estimate_profile
from clew.tracking.solve import solve_pairs
from clew.tracking.tracker import Tracker
from paper.dataset import Examiner, open_dataset
from paper.experiment_data import ExperimentData, Setup


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("measurements")


@pytest.fixture(scope="module")
def whole(simulated, cache):
    return open_dataset(str(simulated.path), cache)


@pytest.fixture(scope="module")
def data(simulated, cache):
    return ExperimentData(
        Setup(f"{simulated.path}[0:9]", f"{simulated.path}[8:]", str(cache), pairs=5)
    )


def test_frames_of_a_movie_are_a_movie(simulated, whole, cache):
    part = open_dataset(f"{simulated.path}[3:9]", cache)
    assert part.source.n_frames == 6
    assert part.n_pairs == 5
    assert (part.source.detections(0).label == whole.source.detections(3).label).all()
    assert part.source.detections(2).frame == 2
    assert (part.source.overlap(1).volume == whole.source.overlap(4).volume).all()
    shifted = [(frame + 3, *rest) for frame, *rest in part.truth.events]
    assert shifted == [event for event in whole.truth.events if 3 <= event[0] < 8]


@pytest.mark.parametrize("frames", ["[5:6]", "[12:]x", "[90:]"])
def test_frames_that_are_none(frames, simulated, cache):
    with pytest.raises(InputError):
        open_dataset(f"{simulated.path}{frames}", cache)


def test_a_movie_without_truth_is_refused(tmp_path):
    with pytest.raises(InputError, match="true lineage"):
        open_dataset(str(tmp_path / "01"))


def test_the_loss_is_the_share_of_missed_events(whole):
    tracker = Tracker.generic(cache=None, n_jobs=1)
    tracker.coef_ = np.where(
        np.arange(len(tracker.coef_)) % 5, 0.0, tracker.coef_
    )  # so that it makes mistakes
    examiner = Examiner(whole, whole.source.has)
    loss = examiner.loss(tracker.coef_)
    pairs = FramePairBuilder(
        whole.source, estimate_profile(whole.source, whole.source.has)
    )
    solved = solve_pairs(pairs, tracker.coef_, range(len(pairs)))
    predicted = {event for one in solved for event in one.events}
    missed = [event for event in whole.truth.events if event not in predicted]
    assert missed
    assert loss == pytest.approx(len(missed) / len(whole.truth))


def test_draws_are_stratified_repeatable_and_different(data):
    first, again, other = data.draw(0.3, 0), data.draw(0.3, 0), data.draw(0.3, 1)
    assert list(first.events) == list(again.events)
    assert list(first.events) != list(other.events)
    assert set(np.unique(first.events.event)) == set(np.unique(data.full.events.event))
    assert set(first.events.frame.tolist()) <= set(data.frames)


def test_every_true_event_can_be_learned(data):
    assert sum(map(len, data.examples(data.full)[1])) == len(data.full)
    X, Y = data.examples(data.full[:1])
    assert len(X) == len(Y) == 1


def test_too_few_frames_are_refused(simulated, cache):
    data = ExperimentData(
        Setup(f"{simulated.path}[0:5]", str(simulated.path), str(cache), pairs=20)
    )
    with pytest.raises(InputError, match="20 are needed"):
        _ = data.frames

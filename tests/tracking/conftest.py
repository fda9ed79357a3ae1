"""What several tests of learning begin with."""

import numpy as np
import pytest

from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie
from clew.tracking.profile import decide_events, estimate_profile
from clew.tracking.tracker import Tracker
from clew.tracking.training.prior import scale_prior


@pytest.fixture(scope="session")
def training_pairs(simulated):
    """The frame pairs of a movie to learn from, and the generic prior."""
    tracker = Tracker(cache=None, n_jobs=1)
    source = tracker.measure(simulated.movie)
    prior = scale_prior("generic", feature_names(source.has))
    known = simulated.some.happened_kinds()
    profile = estimate_profile(source, source.has)
    profile = decide_events(source, profile, prior, known_events=known)
    return FramePairBuilder(source, profile), prior


@pytest.fixture(scope="session")
def torn_pairs():
    """Nine round cells that stay. In frames 2, 5 and 6 one of them (1, 4, 8) is cut in two, itself and 100."""
    frames, side = 9, 24
    y, x = np.mgrid[:side, :side] - side / 2 + 0.5
    disc, tears = np.hypot(y, x) < 8, {2: 0, 5: 3, 6: 7}
    labels = np.zeros((frames, 3 * side, 3 * side), np.uint16)
    for t in range(frames):
        for k in range(9):
            inside = labels[t, k // 3 * side :, k % 3 * side :][:side, :side]
            inside[disc] = k + 1
            if tears.get(t) == k:
                inside[disc & (x > 1)] = 100
    source = measure_movie(Movie.from_arrays(labels), cache=None, n_jobs=1)
    return FramePairBuilder(source, estimate_profile(source, source.has))

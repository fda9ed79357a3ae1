"""What several tests of learning begin with."""

import pytest

from clew.tracking.model.features import feature_names
from clew.tracking.model.prior import prior_direction
from clew.tracking.tracker import Tracker


@pytest.fixture(scope="session")
def training_pairs(simulated):
    """The frame pairs of a movie to learn from, and the generic prior."""
    tracker = Tracker(cache=None, n_jobs=1)
    source = tracker.measure(simulated.movie)
    prior = prior_direction("generic", feature_names(source.has))
    return tracker._training_pairs(source, source.has, simulated.some, prior), prior

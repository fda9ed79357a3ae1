"""Earlier weights as one more feature."""

import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import InputError
from clew.tracking.candidates.features import feature_names
from clew.tracking.detections import GROUPS, OVERLAP
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.events import PAIRWISE, Event
from clew.tracking.tracker import Tracker
from clew.tracking.training.generic_weights import GENERIC
from clew.tracking.training.prior import (
    TRUST,
    add_prior_feature,
    combine_with_prior,
    generic_weights,
    scale_prior,
    weights_by_name,
)

NAMES = feature_names({*GROUPS, OVERLAP})


def test_the_generic_weights_say_something_of_every_event():
    for event in PAIRWISE:
        for weights in GENERIC.values():
            values = [w for name, w in weights.items() if name.startswith(f"{event}: ")]
            assert np.isfinite(values).all()
            assert any(values)


def test_weights_go_by_name():
    assert (
        generic_weights(NAMES[::-1]).tolist() == generic_weights(NAMES)[::-1].tolist()
    )
    points = GENERIC["points"]
    names = ["unheard of", *points]
    assert generic_weights(names).tolist() == [0.0, *points.values()]
    assert weights_by_name(Tracker.generic(), names).tolist() == [0.0, *points.values()]


def test_learning_with_the_score_is_learning_with_weights():
    rng = np.random.default_rng(0)
    features, prior, w = (
        sp.csr_array(rng.normal(size=(7, 4))),
        rng.normal(size=4),
        rng.normal(size=5),
    )
    longer = add_prior_feature(features, prior)
    assert longer.shape == (7, 5)
    assert np.allclose(longer @ w, features @ combine_with_prior(w, prior))


def test_without_a_prior_nothing_changes():
    features, w = sp.eye_array(3, format="csr"), np.arange(3.0)
    assert add_prior_feature(features, None) is features
    assert combine_with_prior(w, None) is w
    assert scale_prior(None, NAMES) is None
    assert (
        scale_prior("generic", ["unheard of"]) is None
    )  # it says nothing of these features


def test_the_direction_has_the_norm_of_trust():
    direction = scale_prior("generic", NAMES)
    assert np.linalg.norm(direction) == pytest.approx(TRUST)
    assert np.array_equal(np.sign(direction), np.sign(generic_weights(NAMES)))
    assert np.allclose(scale_prior(Tracker.generic(), NAMES), direction)


def test_what_is_no_prior():
    with pytest.raises(InputError, match="prior is 'simple'"):
        scale_prior("simple", NAMES)
    with pytest.raises(InputError, match="not fitted"):
        scale_prior(Tracker(), NAMES)


def test_a_prior_helps_where_annotations_are_few(simulated):
    few = simulated.some[np.flatnonzero(simulated.some.events.event == Event.MOVE)[:1]]
    with_it, without = (
        Tracker(prior=prior, lam=1.0, cache=None, n_jobs=1).fit(simulated.movie, few)
        for prior in ("generic", None)
    )
    losses = [
        compute_task_loss(simulated.known, one.track(simulated.movie)).total
        for one in (with_it, without)
    ]
    assert losses[0] < 0.05 < losses[1]

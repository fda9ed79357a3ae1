"""Earlier weights as one more feature."""

import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import InputError
from clew.tracking.candidates.features import feature_names
from clew.tracking.detections import GROUPS, OVERLAP
from clew.tracking.evaluation.task_loss import compute_task_loss
from clew.tracking.events import PAIRWISE, Event
from clew.tracking.profile import REQUIRED_KINDS
from clew.tracking.tracker import Tracker
from clew.tracking.training.generic_weights import (
    GENERIC,
    GENERIC_SETS,
    VARIANTS,
    generic_weights,
    weights_by_name,
)
from clew.tracking.training.prior import (
    OTHERWISE,
    TRUST,
    make_basis,
    scale_prior,
)

NAMES = feature_names({*GROUPS, OVERLAP})


def test_the_generic_weights_say_something_of_every_event():
    for event in PAIRWISE:
        for weights in GENERIC.values():
            values = [w for name, w in weights.items() if name.startswith(f"{event}: ")]
            assert np.isfinite(values).all()
            assert any(values)


@pytest.mark.parametrize("name", GENERIC)
def test_each_generic_set_has_a_weight_of_each_feature_of_its_movies(name):
    """`weights_by_name` knows a generic tracker by its having the weights of a set."""
    expected = feature_names(GENERIC_SETS[VARIANTS.get(name, name)])
    lacking = [one for one in expected if one not in GENERIC[name]]
    assert not lacking, f"add them to '{name}' in generic_weights.json, at 0.0"
    assert GENERIC[name].keys() == set(expected)


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
    basis = make_basis(prior, ["move: bias", "b", "c", "d"])
    assert np.allclose((features @ basis) @ w, features @ (w[:4] + w[4] * prior))


def test_without_a_prior_nothing_changes():
    w = np.arange(3.0)
    assert np.array_equal(make_basis(None, ["a", "b", "c"]) @ w, w)
    assert scale_prior(None, NAMES) is None
    assert (
        scale_prior("generic", ["unheard of"]) is None
    )  # it says nothing of these features


@pytest.mark.parametrize("event", OTHERWISE)
def test_events_that_are_not_annotated_keep_their_odds(event):
    rng = np.random.default_rng(int(event))
    prior = scale_prior("generic", NAMES)

    def features_of(kind):
        is_kind = np.array([name.startswith(f"{kind}: ") for name in NAMES])
        values = np.where(is_kind, rng.normal(size=len(NAMES)), 0.0)
        values[NAMES.index(f"{kind}: bias")] = 1.0
        return values

    annotated = {kind: features_of(kind) for kind in REQUIRED_KINDS}
    w = rng.normal(size=len(NAMES) + 1)
    learned = make_basis(prior, NAMES, annotated) @ w
    others = sum(annotated[kind] for kind in OTHERWISE[event])
    contrast = features_of(event) - others
    assert contrast @ learned == pytest.approx(w[-1] * contrast @ prior)
    annotated[event] = features_of(event)
    learned = make_basis(prior, NAMES, annotated) @ w
    assert contrast @ learned == pytest.approx(contrast @ (w[:-1] + w[-1] * prior))


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

"""Annotated events that the frames around explain: not learned from, and not to be lost."""

import numpy as np
import pytest

from clew.tracking.candidates.features import feature_names
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.training.context import InContext
from clew.tracking.training.examples import training_examples
from clew.tracking.training.prior import prior_direction

TORN = [(1, Event.MOVE, [1], [1]), (4, Event.MOVE, [4], [4])]
"""What two cells do whose masks come apart; between two frames they divide."""
OTHERS = [
    (1, Event.MOVE, [2], [2]),
    (2, Event.MOVE, [1], [1]),
    (4, Event.MOVE, [2], [2]),
]


@pytest.fixture(scope="module")
def prior(torn_pairs):
    return prior_direction("generic", feature_names(torn_pairs.groups))


def annotations(*events):
    return Annotations.of(EventTable.of(events))


def test_the_frames_around_explain_what_happens_to_a_torn_mask(torn_pairs, prior):
    told = annotations(*TORN, *OTHERS)
    for frame in (1, 4):
        here, found = told.select_frame(frame), InContext.of(torn_pairs, prior, frame)
        assert (
            here.contradicted_by(found.alone).tolist()
            == found.explains(here).tolist()
            == [True, False]
        )
        assert not here.contradicted_by(found.joined).any()
    assert not InContext.of(torn_pairs, prior, 2).explains(told.select_frame(2)).any()


def test_what_is_said_not_to_have_happened_is_explained_likewise(torn_pairs, prior):
    found = InContext.of(torn_pairs, prior, 1)
    (torn,) = np.flatnonzero(found.alone.targets[:, 1])
    denied = Annotations.of(found.alone[[torn]], False)
    assert denied.contradicted_by(found.alone).all()
    assert found.explains(denied).all()


def test_it_is_not_learned_from_and_weights_that_lose_it_are_found_out(
    torn_pairs, prior
):
    first, whole, second = training_examples(
        torn_pairs, annotations(*TORN, *OTHERS), prior
    )
    assert [len(one.annotated) for one in (first, whole, second)] == [1, 1, 1]
    assert whole.explained is None
    for one, cell in ((first, 1), (second, 4)):
        assert one.explained.annotations.events.sources[:, 0].tolist() == [cell]
        assert (one.explained.lost(prior), one.explained.lost(-prior)) == (0, 1)


def test_all_is_learned_from_where_there_is_no_prior_or_nothing_else(torn_pairs, prior):
    for told, w in ((annotations(*TORN), prior), (annotations(*TORN, *OTHERS), None)):
        examples = training_examples(torn_pairs, told, w)
        assert sum(len(one.annotated) for one in examples) == len(told)
        assert all(one.explained is None for one in examples)

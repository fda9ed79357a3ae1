"""Views of tasks, and tasks of users that have only some of the methods."""

from __future__ import annotations

import numpy as np
import pytest

from clew import learn
from clew.errors import InputError, MissingCapability
from clew.learning.losses import LOSSES
from clew.learning.task import Argmax, Space, Subset, Task, as_task, weight_examples
from clew.models import Chain


@pytest.fixture
def task():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(3, 2)) for _ in range(8)]
    Y = [[*rng.integers(2, size=2), None] for _ in X]
    return Chain().prepare(X, Y).task(X, Y)


class Bare:
    """A user's task: n_examples, n_features and argmax, no base class."""

    def __init__(self, task: Task) -> None:
        self.n_examples = task.n_examples
        self.n_features = task.n_features
        self.argmax = task.argmax


@pytest.mark.parametrize("loss", LOSSES)
def test_task_with_three_members_is_learned_from_like_the_whole(task, loss):
    bare = learn(Bare(task), LOSSES[loss], 0.1)
    assert bare.converged
    # where the problem is convex, both have the same minimum
    if loss == "hinge":
        full = Subset(task, np.arange(8))
        assert bare.objective <= learn(full, LOSSES[loss], 0.1).objective + 0.05


def test_object_without_an_argmax_is_no_task(task):
    for wrong in (None, 3, Chain(), Bare):
        with pytest.raises(InputError, match="expected a Task: n_examples"):
            learn(wrong, LOSSES["hinge"], 0.1)
    assert as_task(task) is task


def test_task_says_by_default_that_it_has_no_capability(task):
    plain = as_task(Bare(task))
    assert not plain.determined
    assert not plain.is_online
    assert plain.online(np.zeros(plain.n_features), LOSSES["hinge"]) is None
    assert plain.annotated_part() is plain.separated() is plain.epochs() is None
    np.testing.assert_array_equal(plain.certainty(), np.ones(8))
    with pytest.raises(MissingCapability, match="log_loss"):
        plain.log_loss(np.zeros(plain.n_features), np.ones(8))
    assert plain.ascent(0.1, np.ones(8)) is None


def test_subset_of_a_weighted_subset_is_one_view(task):
    rng = np.random.default_rng(1)
    first = np.array([6, 1, 4, 3, 0])
    weights = rng.random(5) + 0.5
    second = np.array([2, 0, 4])
    once = weight_examples(Subset(task, first), weights)
    view = Subset(Subset(once, second), weights=np.array([1.0, 2.0, 3.0]))
    assert view.task is task
    chosen = first[second]
    scale = (weights / weights.mean())[second] * [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(view.examples, chosen)
    np.testing.assert_allclose(view.weights_of_examples, scale)

    w = rng.normal(size=task.n_features)
    seen: Argmax = view.argmax(w, Space.ALL, 1.0, np.array([2, 1]))
    whole = task.argmax(w, Space.ALL, 1.0, chosen[[2, 1]])
    np.testing.assert_allclose(seen.loss, scale[[2, 1]] * whole.loss)
    features = scale[[2, 1], None] * whole.features.toarray()
    np.testing.assert_allclose(seen.features.toarray(), features)
    part = view.annotated_part()
    assert part is not None
    np.testing.assert_allclose(part.argmax(w, Space.ALL, 0.0).loss.shape, (3,))
    shares = np.full(3, 1 / 3)
    np.testing.assert_allclose(
        view.log_loss(w, shares)[0], task.log_loss(w, shares, chosen)[0]
    )


def test_keys_tell_weights_apart(task):
    heavy = weight_examples(task, np.arange(1.0, 9.0))
    keys = [task.keys, heavy.keys, Subset(heavy, weights=np.full(8, 2.0)).keys]
    assert len({key for some in keys for key in some}) == 24

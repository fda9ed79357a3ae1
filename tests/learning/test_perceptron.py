"""The structured perceptron with partial annotations."""

from __future__ import annotations

import numpy as np
import pytest

from clew import StructuredPerceptron
from clew.errors import InputError
from clew.learning.perceptron import perceptron
from clew.learning.task import Space
from clew.models import Chain

from .problems import assignment_task, chain_task, sequences


@pytest.mark.parametrize("averaged", [True, False])
@pytest.mark.parametrize("known", [1.0, 0.5])
@pytest.mark.parametrize("make", [assignment_task, chain_task])
def test_separable_data_are_learned_without_a_mistake(make, known, averaged):
    task = make(noise=0.1, n=15, known=known)
    result = perceptron(task, averaged=averaged)
    assert result.converged
    assert result.losses[-1] == 0
    assert not task.argmax(result.w, Space.ALL, 0.0).loss.any()
    assert "no mistakes" in str(result)


@pytest.mark.parametrize("averaged", [True, False])
def test_the_seed_decides_everything(averaged):
    task = assignment_task(n=10, noise=2.0)
    runs = [
        perceptron(
            task, averaged=averaged, max_epochs=5, rng=np.random.default_rng(seed)
        ).w
        for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("averaged", [True, False])
def test_the_best_epoch_is_kept(averaged):
    task = assignment_task(n=10, noise=3.0, known=1.0)
    result = perceptron(task, averaged=averaged, max_epochs=30, patience=5)
    assert not result.converged
    assert task.argmax(result.w, Space.ALL, 0.0).loss.mean() == pytest.approx(
        min(result.losses)
    )
    assert result.epochs <= 30


def test_one_update_by_hand():
    task = assignment_task(n=1, rows=3, known=1.0)
    zero = np.zeros(task.n_features)
    predicted, wanted = (
        task.argmax(zero, space, 0.0) for space in (Space.ALL, Space.COMPATIBLE)
    )
    assert predicted.loss[0] > 0
    expected = (wanted.features - predicted.features).toarray()[0]
    np.testing.assert_allclose(
        perceptron(task, averaged=False, max_epochs=1).w, expected
    )
    np.testing.assert_allclose(
        perceptron(task, averaged=True, max_epochs=1).w, expected
    )


def test_patience_ends_it_and_the_callback_hears_every_epoch():
    heard = []
    result = perceptron(
        assignment_task(n=10, noise=5.0, known=1.0),
        patience=2,
        callback=lambda epoch, loss: heard.append((epoch, loss)),
    )
    assert heard == list(enumerate(result.losses, 1))
    assert result.epochs - (int(np.argmin(result.losses)) + 1) <= 2


@pytest.mark.parametrize("wrong", [{"max_epochs": 0}, {"patience": 0}])
def test_no_epochs_are_refused(wrong):
    with pytest.raises(InputError, match="at least 1"):
        perceptron(assignment_task(n=2), **wrong)


def test_the_average_is_that_of_the_weights_after_every_step():
    task = chain_task(n=8)
    seen = []

    class Watched:
        n_examples, n_features, spaces = task.n_examples, task.n_features, task.spaces

        def argmax(self, w, space, loss_weight, examples=None):
            if examples is not None and space is Space.ALL:
                seen.append(w.copy())
            return task.argmax(w, space, loss_weight, examples)

    result = perceptron(Watched(), max_epochs=1)
    again = perceptron(task, max_epochs=1, averaged=False)
    np.testing.assert_allclose(
        result.w, np.mean([*seen[1:], again.w], axis=0), atol=1e-12
    )


@pytest.mark.parametrize("averaged", [True, False])
@pytest.mark.parametrize("known", [1.0, 0.4])
def test_compiled_epochs_take_the_same_steps(averaged, known):
    task = chain_task(n=12, known=known, noise=1.0)

    class ByArgmax:
        n_examples, n_features, spaces, argmax = (
            task.n_examples,
            task.n_features,
            task.spaces,
            task.argmax,
        )

    one, other = (
        perceptron(t, averaged=averaged, max_epochs=4, patience=4)
        for t in (task, ByArgmax())
    )
    np.testing.assert_allclose(one.w, other.w, atol=1e-9)
    np.testing.assert_allclose(one.losses, other.losses)


def test_an_estimators_callback_hears_of_every_epoch():
    X, Y, _ = sequences(n=8)
    heard = []
    fitted = StructuredPerceptron(Chain(n_states=4), random_state=0)
    fitted.fit(X, Y, callback=lambda epoch, loss: heard.append((epoch, loss)))
    assert heard == list(enumerate(fitted.result_.losses, start=1))
    with pytest.raises(InputError, match="callback is"):
        fitted.fit(X, Y, callback=3)

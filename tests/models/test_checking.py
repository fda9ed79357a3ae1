from __future__ import annotations

import numpy as np
import pytest

from clew.errors import InexactArgmaxWarning
from clew.learning.task import Space
from clew.models import Chain, check_model

from ..learning.problems import Table, table_data
from .contract import MODELS


@pytest.mark.parametrize("generate", MODELS, ids=lambda generate: generate.__name__)
def test_models_of_clew_are_without_problems(generate):
    for seed in range(3):
        model, X, Y = generate(np.random.default_rng(seed))
        assert check_model(model, X, Y, n_weights=2) == []


def test_own_model_without_a_list_of_outputs_is_without_problems():
    X, Y = table_data(np.random.default_rng(0))
    assert check_model(Table(4), X[:5], Y[:5]) == []


class Backwards(Chain):
    """A chain whose argmax takes the transitions the wrong way round."""

    def argmax(self, x, w, annotation, space, loss_weight):
        turned = w.copy()
        S = len(self.classes_)
        begin = S * (self.n_inputs_ + 1)
        turned[begin : begin + S * S] = w[begin : begin + S * S].reshape(S, S).T.ravel()
        return super().argmax(x, turned, annotation, space, loss_weight)


class Forgetful(Chain):
    """A chain whose argmax ignores the task loss."""

    def argmax(self, x, w, annotation, space, loss_weight):
        return super().argmax(x, w, annotation, space, 0.0)


class Careless(Chain):
    """A chain whose argmax in Y* ignores the annotation."""

    def argmax(self, x, w, annotation, space, loss_weight):
        is_all = space is Space.COMPATIBLE
        return super().argmax(x, w, annotation, Space.ALL if is_all else space, 0.0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Backwards, "argmax in Y with loss_weight 0 .* better one in outputs"),
        (Forgetful, "argmax in Y with loss_weight 1 .* not the best"),
        (Careless, r"argmax in Y\* with loss_weight 0 .* outside of this space"),
    ],
)
def test_argmax_that_disagrees_is_named(model, message):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(3, 2)) for _ in range(4)]
    Y = [[0, 1, None], [None, 2, 1], [0, 0, 0], [1, None, 2]]
    with pytest.warns(InexactArgmaxWarning, match=message):
        problems = check_model(model(n_states=3), X, Y)
    assert problems


def test_disagreement_is_found_among_returned_outputs():
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(3, 2)) for _ in range(4)]
    with pytest.warns(InexactArgmaxWarning, match="that it returned before"):
        check_model(Backwards(n_states=3), X, [[0, 1, 2]] * 4, max_outputs=1)

"""How annotations are split to choose λ."""

from __future__ import annotations

import numpy as np
import pytest

from clew.errors import InputError
from clew.estimators.data import TrainingData
from clew.estimators.model_selection import make_folds, split_annotations
from clew.learning.task import Space
from clew.models.assignment import Assignment
from clew.models.chain import Chain

from ..learning.problems import Table, matchings, sequences, table_data


def split(model, X, Y, n_folds=3, hold_out="auto", seed=0):
    model = model.prepare(X, Y) if hasattr(model, "prepare") else model
    asked = []

    def task(X, Y):
        from clew.estimators.data import make_task

        asked.append((X, Y))
        return make_task(model, X, Y)

    splits = split_annotations(model, Y, n_folds, hold_out, np.random.default_rng(seed))
    return make_folds(TrainingData(model, X, Y), task, task, splits), asked, model


def test_by_examples_each_is_held_out_once_and_keeps_its_annotation():
    X, Y, _ = matchings(n=10, known=1.0)
    folds, _, model = split(Assignment(), X, Y, hold_out="examples")
    whole = model.task(X, Y).keys
    held_out = [key for fold in folds for key in fold.test.keys]
    assert sorted(held_out) == sorted(whole)
    for fold in folds:
        assert sorted([*fold.train.keys, *fold.test.keys]) == sorted(whole)
        assert fold.test.n_examples in (3, 4)


def test_by_parts_each_part_is_hidden_once_and_nothing_else_is_needed():
    X, Y, _ = sequences(n=4, known=0.6)
    _, asked, model = split(Chain(n_states=4), X, Y, hold_out="parts")
    known = sum(model.n_parts(y) for y in Y)
    counts = [sum(model.n_parts(y) for y in made) for _, made in asked]
    trains, tests = counts[::2], counts[1::2]
    assert sum(tests) == known
    assert [a + b for a, b in zip(trains, tests, strict=True)] == [known] * 3
    assert max(tests) - min(tests) <= 1
    for _, made in asked:
        assert all(model.n_parts(y) > 0 for y in made)
        for y in made:  # what is annotated in a fold was annotated before
            assert any(
                len(y) == len(old)
                and all(
                    row.all() or (row == known).all()
                    for row, known in zip(
                        model.allowed(y), model.allowed(old), strict=True
                    )
                )
                for old in Y
            )


class Forgetful(Chain):
    """Hides all of an annotation by None, as a model may."""

    def hide(self, annotation, parts):
        left = super().hide(annotation, parts)
        return left if self.n_parts(left) else None


def test_by_parts_stays_by_parts_where_a_model_hides_all_of_an_example_by_none():
    X, Y, _ = sequences(n=4, known=0.6)
    Y[0] = [
        y if t == 0 else None for t, y in enumerate([0] * len(Y[0]))
    ]  # one part: none on one side of each fold
    _, expected, _ = split(Chain(n_states=4), X, Y, hold_out="parts")
    _, asked, model = split(Forgetful(n_states=4), X, Y, hold_out="parts")
    counts = [
        [[model.n_parts(y) for y in made] for _, made in tasks]
        for tasks in (expected, asked)
    ]
    assert counts[0] == counts[1]


def test_auto_takes_parts_where_examples_are_few_and_examples_where_they_are_many():
    X, Y, _ = sequences(n=35, known=0.8)
    few, _, _ = split(Chain(n_states=4), X[:6], Y[:6])
    many, _, _ = split(Chain(n_states=4), X, Y)
    assert few[0].train.n_examples > 4
    assert many[0].train.n_examples + many[0].test.n_examples == 35


def test_a_model_without_parts_is_split_by_examples():
    X, Y = table_data(np.random.default_rng(0), n=5)
    folds, _, _ = split(Table(4), X, Y)
    assert sum(fold.test.n_examples for fold in folds) == 5
    with pytest.raises(InputError, match=r"Table.*n_parts|n_parts.*Table"):
        split(Table(4), X, Y, hold_out="parts")


def test_the_seed_decides_the_split():
    X, Y, _ = matchings(n=10)
    one, same, other = (
        split(Assignment(), X, Y, seed=s, hold_out="examples")[0][0].test.keys
        for s in (0, 0, 1)
    )
    assert one == same
    assert one != other


def test_a_single_example_is_split_by_its_parts():
    X, Y, _ = matchings(n=1, known=1.0)
    folds, _, _ = split(Assignment(), X, Y)
    for fold in folds:
        assert (fold.train.n_examples, fold.test.n_examples) == (1, 1)
        assert fold.train.argmax(np.zeros(6), Space.COMPATIBLE, 0.0).found.all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_folds": 1}, "folds"),
        ({"hold_out": "all"}, "hold_out"),
        ({"n_folds": 11, "hold_out": "examples"}, "10 annotated examples.*11 folds"),
        ({"n_folds": 200, "hold_out": "parts"}, "annotated parts.*200 folds"),
    ],
)
def test_splits_that_are_not_possible_are_refused(settings, message):
    X, Y, _ = matchings(n=10)
    with pytest.raises(InputError, match=message):
        split(Assignment(), X, Y, **settings)

"""What every model promises, checked against the list of all outputs of small random instances."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from clew.errors import InputError
from clew.learning.task import Space, Subset, Task
from clew.models.base import ExampleTask
from clew.models.examples import take

from ..helpers.effort import sweep
from .contract import MODELS, instance, instances, mapped_floats

CALLS = [(space, weight) for space in Space for weight in (-1.0, 0.0, 1.0)]

every_model = pytest.mark.parametrize(
    "generate", MODELS, ids=lambda generate: generate.__name__
)


@every_model
@sweep(10, 30)
def test_task_argmax_is_as_good_as_listing_all_outputs(generate, n):
    empty = 0
    for case in instances(generate, n):
        assert isinstance(case.task, Task)
        for space, weight in CALLS:
            answer = case.task.argmax(case.w, space, weight)
            best = [listing.best(case.w, space, weight) for listing in case.listings]
            np.testing.assert_allclose(answer.values(case.w, weight), best, atol=1e-9)
            np.testing.assert_array_equal(answer.found, np.isfinite(best))
            assert answer.found.all() or space is Space.INCOMPATIBLE
            assert not answer.loss[~answer.found].any()
            assert not answer.features[np.flatnonzero(~answer.found)].sum()
            empty += (~answer.found).sum()
    assert empty > n // 3


@every_model
@sweep(10, 30)
def test_task_rows_are_features_and_loss_of_one_output_in_the_space(generate, n):
    for case in instances(generate, n):
        for space, weight in CALLS:
            answer = case.task.argmax(case.w, space, weight)
            for row, loss, found, listing in zip(
                answer.features.toarray(),
                answer.loss,
                answer.found,
                case.listings,
                strict=True,
            ):
                same = np.isclose(listing.features, row).all(axis=1) & np.isclose(
                    listing.loss, loss
                )
                assert not found or (same & listing.inside(space)).any()


@every_model
@sweep(3, 10)
def test_one_example_at_a_time_agrees_with_all_at_once(generate, n):
    for case in instances(generate, n):
        one_by_one = ExampleTask(case.model, [*case.X], [*case.Y])
        for space, weight in CALLS:
            one, batch = (
                task.argmax(case.w, space, weight) for task in (one_by_one, case.task)
            )
            found = batch.found
            np.testing.assert_array_equal(one.found, found)
            np.testing.assert_allclose(
                one.features.toarray(), batch.features.toarray(), atol=1e-12
            )
            np.testing.assert_allclose(one.loss[found], batch.loss[found], atol=1e-12)


@every_model
def test_sparse_rows_have_no_duplicates(generate):
    for case in instances(generate, 10):
        features = case.task.argmax(case.w, Space.ALL, 1.0).features
        for begin, end in zip(features.indptr[:-1], features.indptr[1:], strict=True):
            assert len(np.unique(features.indices[begin:end])) == end - begin


@every_model
@sweep(10, 30)
def test_parts_hide_and_mistakes_are_consistent(generate, n):
    rng = np.random.default_rng(0)
    for case in instances(generate, n):
        model = case.model
        for y, listing in zip(case.Y, case.listings, strict=True):
            parts = model.n_parts(y)
            marks = rng.random(parts) < 0.5
            fewer, none = (
                model.hide(y, marks),
                model.hide(y, np.ones(parts, dtype=bool)),
            )
            assert model.n_parts(model.hide(y, np.zeros(parts, dtype=bool))) == parts
            assert model.n_parts(fewer) == parts - marks.sum()
            assert model.n_parts(none) == 0
            for output, loss in list(zip(listing.outputs, listing.loss, strict=True))[
                :: 1 + len(listing.outputs) // 8
            ]:
                mistakes = model.mistakes(y, output)
                assert (mistakes == 0) == (loss == 0)
                assert 0 <= mistakes <= parts
                kept, hidden = (
                    model.mistakes(fewer, output),
                    model.mistakes(model.hide(y, ~marks), output),
                )
                assert kept + hidden == mistakes
                assert model.loss(none, output) == 0
            with pytest.raises(InputError):
                model.hide(y, np.zeros(parts + 1, dtype=bool))


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


@every_model
@sweep(3, 5)
def test_number_types_and_memory_orders_give_the_same_answers(generate, n):
    changes = [
        np.float32,
        lambda a: a.astype(np.int16),
        np.asfortranarray,
        read_only,
        lambda a: np.repeat(a, 2, 0)[::2],
    ]
    for case in instances(generate, n):
        X = mapped_floats(case.X, lambda a: np.round(3 * a))
        expected = case.model.task(X, case.Y)
        for change in changes:
            task = case.model.task(mapped_floats(X, change), case.Y)
            assert task.keys == expected.keys
            for space, weight in CALLS:
                one, other = (
                    task.argmax(case.w, space, weight),
                    expected.argmax(case.w, space, weight),
                )
                np.testing.assert_array_equal(
                    one.values(case.w, weight), other.values(case.w, weight)
                )


@every_model
@sweep(4, 10)
def test_permuted_examples_give_permuted_answers_and_subsets_choose_them(generate, n):
    rng = np.random.default_rng(0)
    for case in instances(generate, n):
        m = case.task.n_examples
        permutation, some = rng.permutation(m), rng.permutation(m)[: m // 2]
        permuted = case.model.task(take(case.X, permutation), take(case.Y, permutation))
        subset = Subset(case.task, permutation)
        assert permuted.keys == subset.keys
        for space, weight in CALLS:
            whole = case.task.argmax(case.w, space, weight)
            for answer, chosen in [
                (permuted.argmax(case.w, space, weight), permutation),
                (subset.argmax(case.w, space, weight), permutation),
                (subset.argmax(case.w, space, weight, some), permutation[some]),
                (case.task.argmax(case.w, space, weight, some[:0]), some[:0]),
            ]:
                np.testing.assert_array_equal(
                    answer.features.toarray(), whole.features.toarray()[chosen]
                )
                np.testing.assert_array_equal(answer.loss, whole.loss[chosen])
                np.testing.assert_array_equal(answer.found, whole.found[chosen])


@every_model
def test_threads_and_pickling_change_nothing(generate):
    for case in instances(generate, 5):
        for other in (
            case.model.task(case.X, case.Y, n_jobs=2),
            pickle.loads(pickle.dumps(case.task)),
        ):
            for space, weight in CALLS:
                one, two = (
                    case.task.argmax(case.w, space, weight),
                    other.argmax(case.w, space, weight),
                )
                np.testing.assert_array_equal(
                    one.features.toarray(), two.features.toarray()
                )
                np.testing.assert_array_equal(one.loss, two.loss)


@every_model
@sweep(10, 30)
def test_annotated_part_has_equal_features_on_all_compatible_outputs(generate, n):
    parts = 0
    for case in instances(generate, n):
        part = case.task.annotated_part()
        if part is None:
            continue
        parts += 1
        assert part.n_features == case.task.n_features
        assert part.n_examples == case.task.n_examples
        answers = [
            part.argmax(w, Space.COMPATIBLE, weight)
            for w in (case.w, -case.w)
            for weight in (0.0, 1.0)
        ]
        for answer in answers:
            np.testing.assert_array_equal(
                answer.features.toarray(), answers[0].features.toarray()
            )
            assert not answer.loss.any()
        # no answer to other weights may be better than the answer to these
        best = part.argmax(case.w, Space.ALL, 1.0).values(case.w, 1.0)
        for other in np.random.default_rng(0).normal(size=(10, part.n_features)):
            assert (
                part.argmax(other, Space.ALL, 1.0).values(case.w, 1.0) <= best + 1e-9
            ).all()
        # Δ stays what it was, and the identities need max over Y to reach the maximum over Y* and Y°
        both = [part.argmax(case.w, space, 1.0).values(case.w, 1.0) for space in Space]
        assert (both[0] >= np.maximum(both[1], both[2]) - 1e-9).all()
        if not getattr(part, "relaxed", False):
            np.testing.assert_allclose(both[0], np.maximum(both[1], both[2]), atol=1e-9)
    assert parts > n // 3 or all(
        case.task.annotated_part() is None for case in instances(generate, n)
    )


@every_model
def test_keys_follow_the_annotation(generate):
    for case in instances(generate, 10):
        assert case.task.keys is not None
        hidden = [
            case.model.hide(y, np.ones(case.model.n_parts(y), dtype=bool))
            for y in case.Y
        ]
        for y, key, other in zip(
            case.Y, case.task.keys, case.model.task(case.X, hidden).keys, strict=True
        ):
            assert (key == other) == (case.model.n_parts(y) == 0)


@every_model
def test_prediction_is_the_best_of_all_outputs(generate):
    for case in instances(generate, 20):
        for x, y, listing in zip(
            case.X, case.model.predict(case.X, case.w), case.listings, strict=True
        ):
            best = listing.best(case.w, Space.ALL, 0.0)
            assert case.model.joint_features(x, y) @ case.w == pytest.approx(
                best, abs=1e-9
            )


@every_model
def test_parameters_and_domain_survive_clone_and_json(generate):
    for case in instances(generate, 10):
        copy = clone(case.model)
        assert copy.get_params() == case.model.get_params()
        restored = copy.restored(json.loads(json.dumps(case.model.domain)))
        assert restored.n_features == case.model.n_features
        one, two = (case.model.task(case.X, case.Y), restored.task(case.X, case.Y))
        assert one.keys == two.keys


@every_model
def test_wrong_weights_and_lengths_are_refused(generate):
    case = instance(generate, 0)
    for w in (
        case.w[:-1],
        np.append(case.w, 0.0),
        case.w[None],
        np.full_like(case.w, np.nan),
    ):
        with pytest.raises(InputError, match="w has"):
            case.task.argmax(w, Space.ALL, 0.0)
        with pytest.raises(InputError, match="w has"):
            case.model.predict(case.X, w)
    with pytest.raises(InputError, match="examples"):
        case.model.task(case.X, case.Y[:-1])
    with pytest.raises(InputError, match="examples"):
        case.model.prepare(case.X[:0], case.Y[:0])


def forced(case, listing, x):
    """(parts, choices) by listing: what the best output loses when a part is forced, and the margins of its parts."""
    scores = listing.features @ case.w
    best = int(scores.argmax())
    # an output's choices: where its own candidates are
    choices = np.array([case.model.candidates(x, output) for output in listing.outputs])
    losses = (
        np.where(choices, scores[:, None, None], -np.inf).max(axis=0) - scores[best]
    )
    others = np.where(
        (choices & choices[best]).any(axis=2), -np.inf, scores[:, None]
    ).max(axis=0)
    return losses, scores[best] - others


@every_model
@sweep(6, 10)
def test_max_marginals_and_margins_are_those_of_the_list_of_all_outputs(generate, n):
    parts = 0
    for case in instances(generate, n):
        found = zip(
            case.model.max_marginals(case.X, case.w),
            case.model.margins(case.X, case.w),
            case.X,
            case.listings,
            strict=True,
        )
        for losses, margins, x, listing in found:
            expected, lost = forced(case, listing, x)
            parts += lost.size
            np.testing.assert_allclose(np.atleast_2d(losses), expected, atol=1e-7)
            np.testing.assert_allclose(np.atleast_1d(margins), lost, atol=1e-7)
    assert parts > 3 * n

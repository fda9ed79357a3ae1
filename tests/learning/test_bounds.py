"""The bundle: bounds stay under C, survive what they must survive, and keep to their memory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InputError
from clew.learning.bounds import (
    EXPECTED_BOUNDS,
    PEAK,
    Bundle,
    dual_value,
    group_keys,
    make_groups,
    normalize_dual_weights,
    sum_rows_by_group,
)
from clew.learning.losses import LOSSES, convex_part
from clew.learning.model_update import solve_model_update

from ..helpers.effort import examples
from .problems import (
    GENERATORS,
    as_linear,
    cases,
    check_products,
    fill,
    precision,
    random_bundle,
)


def state(bundle):
    arrays = (bundle.offsets, bundle.group, bundle.alpha, bundle.idle)
    return [bundle.slopes.toarray(), *(array.copy() for array in arrays)]


def assert_same_state(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@examples(30)
@given(
    model=st.sampled_from(list(GENERATORS)),
    loss=st.sampled_from(list(LOSSES.values())),
    number=st.integers(0, 11),
    n_groups=st.sampled_from([1, 2, 100]),
    seed=st.integers(0, 2**16),
)
def test_every_bound_lies_under_the_sum_of_its_group(
    model, loss, number, n_groups, seed
):
    case = cases(model)[number]
    task, rng = case.task, np.random.default_rng(seed)
    bundle = Bundle(task.n_features, make_groups(task.n_examples, n_groups, None, 1))
    for w in rng.normal(size=(4, task.n_features)):
        linear = convex_part(task, loss, w)
        bundle.add(linear, w)
        np.testing.assert_allclose(
            bundle.values(w), bundle.sum_by_group(linear.values), atol=precision(model)
        )
    for w in rng.normal(size=(6, task.n_features)) * 3:
        highest = bundle.sum_by_group(convex_part(task, loss, w).values)[bundle.group]
        assert (
            bundle.scores(w) <= highest + precision(model) * (1 + np.abs(highest))
        ).all()


def test_only_bounds_that_say_something_new_are_added():
    rng = np.random.default_rng(0)
    bundle, w = Bundle(3, np.arange(4)), rng.normal(size=3)
    linear = as_linear(rng.normal(size=(4, 3)), rng.normal(size=4), w)
    assert bundle.add(linear, w) == 4
    assert bundle.add(linear, w) == 0
    higher = as_linear(
        linear.features.toarray(), linear.offsets + np.array([0, 1, -1, 0]), w
    )
    assert bundle.add(higher, w) == 1
    assert (len(bundle), bundle.added, bundle.group[-1]) == (5, 5, 1)


def test_values_are_the_maximum_of_each_group_and_nothing_for_an_empty_one():
    bundle = random_bundle(np.random.default_rng(0), n_groups=3)
    bundle.keep(bundle.group != 1)
    w = np.ones(4)
    values = bundle.slopes.toarray() @ w + bundle.offsets
    np.testing.assert_allclose(
        bundle.values(w)[[0, 2]], [values[bundle.group == g].max() for g in (0, 2)]
    )
    assert bundle.values(w)[1] == -np.inf


def test_idle_counts_the_updates_without_weight():
    bundle = random_bundle(np.random.default_rng(0), n_groups=1, per_group=3)
    for alpha in ([1, 0, 0], [0.5, 0.5, 0], [1, 0, 0]):
        bundle.set_alpha(np.array(alpha, dtype=float))
    np.testing.assert_array_equal(bundle.idle, [0, 1, 3])
    bundle.prune(patience=2)
    assert len(bundle) == 2
    bundle.clear()
    assert len(bundle) == 0
    assert bundle.slopes.shape == (0, 4)


@pytest.mark.parametrize("solver", ["ascent", "interior-point"])
@pytest.mark.parametrize("n_groups", [1, 5])
@pytest.mark.parametrize("share", [10.0, 3.0, 1.5, 0.7])
def test_room_is_made_before_bounds_are_added_and_the_dual_value_survives(
    solver, n_groups, share
):
    rng = np.random.default_rng(1)
    bundle, v = (
        random_bundle(rng, n_groups, n_features=6, per_group=12),
        rng.normal(size=6),
    )
    solved = solve_model_update(bundle, v, 0.7, "l2", 1.0, 1e-9, solver)
    everything, before = bundle.copy(), len(bundle)
    bundle.memory = int(share * bundle.nbytes)
    fresh = sp.csr_array(rng.normal(size=(n_groups, 6)))
    bundle.extend(fresh, rng.normal(size=n_groups), np.arange(n_groups))
    assert bundle.nbytes <= bundle.memory
    assert (len(bundle) < before + n_groups) == (share < 2)
    np.testing.assert_allclose(bundle.slopes[-n_groups:].toarray(), fresh.toarray())
    assert set(bundle.group) == set(range(n_groups))
    old = bundle.copy()  # what was there before: its bounds are still bounds, and carry the same dual value
    old.keep(np.arange(len(bundle)) < len(bundle) - n_groups)
    assert dual_value(old, v, 0.7, old.alpha) == pytest.approx(
        solved.lower_bound, rel=1e-7, abs=1e-7
    )
    for w in rng.normal(size=(5, 6)):
        assert (old.values(w) <= everything.values(w) + 1e-9).all()
    again = solve_model_update(bundle, v, 0.7, "l2", 1.0, 1e-9, solver)
    assert again.lower_bound >= solved.lower_bound - 1e-7


def test_memory_that_holds_nothing_leaves_each_group_one_bound():
    rng = np.random.default_rng(0)
    bundle, v = (
        random_bundle(rng, n_groups=3, n_features=5, per_group=20),
        rng.normal(size=5),
    )
    solved = solve_model_update(bundle, v, 0.5, "l2", 1.0, 1e-9)
    bundle.memory = 1
    bundle.extend(sp.csr_array(np.ones((1, 5))), np.ones(1), np.array([1]))
    np.testing.assert_array_equal(np.bincount(bundle.group), [1, 2, 1])
    assert dual_value(bundle, v, 0.5, bundle.alpha) == pytest.approx(
        solved.lower_bound, abs=1e-7
    )


@examples(40)
@given(seed=st.integers(0, 2**16), n_groups=st.sampled_from([1, 4]), base=st.booleans())
def test_a_base_changes_neither_bounds_nor_minimum(seed, n_groups, base):
    rng = np.random.default_rng(seed)
    slopes, offsets = rng.normal(size=(3, n_groups, 5)), rng.normal(size=(3, n_groups))
    slopes[rng.random(slopes.shape) < 0.5] = 0.0
    shift = as_linear(slopes[1], offsets[1], np.zeros(5)) if base else None
    with_base, without = (Bundle(5, np.arange(n_groups), base=b) for b in (shift, None))
    fill(with_base, slopes, offsets)
    fill(without, slopes, offsets)
    v, w = rng.normal(size=5), rng.normal(size=5)
    np.testing.assert_allclose(with_base.scores(w), without.scores(w), atol=1e-12)
    for regulariser in ("l2", "l1"):
        for solver in ("ascent", "interior-point"):
            one, other = (
                solve_model_update(b.copy(), v, 0.5, regulariser, 50.0, 1e-9, solver)
                for b in (with_base, without)
            )
            assert one.lower_bound == pytest.approx(other.lower_bound, abs=1e-6)
            assert one.residual == pytest.approx(0, abs=1e-6)


def keyed(keys, group_of):
    """A bundle with three bounds a group, whose slopes tell the group."""
    bundle = Bundle(2, group_of, keys)
    for k in range(3):
        features = np.column_stack(
            [np.arange(len(keys)), np.full(len(keys), k)]
        ).astype(float)
        bundle.add(
            as_linear(features, np.arange(len(keys)) + 10.0 * k, np.ones(2)), np.ones(2)
        )
    bundle.set_alpha(np.full(len(bundle), 1 / 3))
    return bundle


def test_bounds_carry_over_exactly_where_the_keys_are_unchanged():
    old = keyed([b"a", b"b", b"c", b"d"], np.arange(4))
    before = state(old)
    new = old.transfer_bounds(Bundle(2, np.arange(4), [b"d", b"x", b"a", b"y"]))
    assert len(new) == 6
    for source, target in ((0, 2), (3, 0)):
        np.testing.assert_array_equal(
            old.slopes.toarray()[old.group == source],
            new.slopes.toarray()[new.group == target],
        )
        np.testing.assert_array_equal(
            old.offsets[old.group == source], new.offsets[new.group == target]
        )
    assert not np.isin(new.group, [1, 3]).any()
    assert (new.added, new.idle.max()) == (0, 0)
    new.clear()
    assert_same_state(state(old), before)


def test_a_group_carries_over_only_as_a_whole():
    old = keyed([b"a", b"b", b"c", b"d"], np.array([0, 0, 1, 1]))
    new = old.transfer_bounds(
        Bundle(2, np.array([0, 0, 1, 1]), [b"a", b"b", b"c", b"x"])
    )
    assert set(new.group) == {0}
    assert (
        len(
            old.transfer_bounds(
                Bundle(2, np.array([0, 0, 1, 1]), [b"b", b"a", b"d", b"c"])
            )
        )
        == 0
    )
    assert (
        len(old.transfer_bounds(Bundle(2, np.arange(4), [b"a", b"b", b"c", b"d"]))) == 0
    )
    assert (
        len(
            old.transfer_bounds(
                Bundle(2, np.zeros(4, dtype=int), [b"a", b"b", b"c", b"d"])
            )
        )
        == 0
    )


def test_unchanged_keys_carry_over_everything_and_leave_the_old_bundle_alone():
    keys = [b"a", b"b", b"c"]
    old = keyed(keys, np.arange(3))
    before = state(old)
    new = old.transfer_bounds(Bundle(2, np.arange(3), keys))
    assert_same_state(state(new)[:4], before[:4])
    new.add(as_linear(np.ones((3, 2)), np.full(3, 1e3), np.ones(2)), np.ones(2))
    solve_model_update(new, np.ones(2), 1.0, "l2", 1.0, 1e-6, "ascent")
    new.prune(0)
    new.memory = 1
    new.extend(sp.csr_array(np.ones((3, 2))), np.ones(3), np.arange(3))
    assert_same_state(state(old), before)


def test_examples_that_are_alike_share_their_bounds():
    old = keyed([b"a", b"a", b"b"], np.arange(3))
    new = old.transfer_bounds(Bundle(2, np.arange(2), [b"a", b"b"]))
    assert set(new.group) == {0, 1}
    assert (new.group == 0).sum() == 3  # relative to one base


@pytest.mark.parametrize(
    ("old_keys", "new_keys"), [(None, [b"a"]), ([b"a"], None), (None, None)]
)
def test_without_keys_nothing_carries_over(old_keys, new_keys):
    old = Bundle(2, np.arange(1), old_keys)
    old.add(as_linear(np.ones((1, 2)), np.ones(1), np.ones(2)), np.ones(2))
    assert len(old.transfer_bounds(Bundle(2, np.arange(1), new_keys))) == 0


def test_group_keys_depend_on_members_and_order():
    keys = [b"a", b"b", b"c"]
    assert group_keys(np.array([0, 0, 1]), keys) != group_keys(
        np.array([0, 1, 1]), keys
    )
    assert (
        group_keys(np.array([0, 0, 1]), keys)[1]
        == group_keys(np.array([0, 0, 1]), [b"x", b"y", b"c"])[1]
    )


def test_groups_are_consecutive_and_of_almost_equal_size():
    for n in (1, 2, 7, 20):
        for count in (1, 2, 3, 7, 50):
            groups = make_groups(n, count, None, 1)
            assert groups.max() + 1 == min(n, count)
            assert (np.diff(groups) >= 0).all()
            assert np.ptp(np.bincount(groups)) <= 1


def test_auto_takes_as_many_groups_as_the_memory_allows():
    plane = np.ones((50, 20))
    counts = [
        make_groups(50, "auto", plane, memory).max() + 1
        for memory in (1, 5 * 10**4, 10**6, 10**9)
    ]
    assert counts[0] == 1
    assert counts[-1] == 50
    assert 1 < counts[1] < 50
    assert counts == sorted(counts)


def test_no_more_groups_are_joined_than_the_memory_asks_for():
    # words by Zipf's law: neighbours share the frequent ones
    rng = np.random.default_rng(0)
    ranks = np.exp(rng.uniform(0, np.log(10**4), size=(2000, 30))).astype(int)
    plane = sp.csr_array(
        (np.ones(ranks.size), ranks.ravel(), np.arange(0, ranks.size + 1, 30)),
        (2000, 10**4),
    )
    plane.sum_duplicates()

    def need(group_of):
        return (
            PEAK
            * EXPECTED_BOUNDS
            * (12 * sum_rows_by_group(plane, group_of).nnz + 40 * (group_of.max() + 1))
        )

    whole = need(np.arange(2000))
    counts = []
    for share in (1.0, 0.9, 0.7, 0.5, 0.3):
        chosen = make_groups(2000, "auto", plane, int(share * whole) + 1)
        counts.append(chosen.max() + 1)
        assert need(chosen) <= share * whole + 1
        if counts[-1] < 2000:
            assert (
                need(make_groups(2000, int(2 * counts[-1]), plane, 1)) > share * whole
            )
    assert counts[0] == 2000
    assert (np.diff(counts) <= 0).all()
    assert counts[1] >= 500


@pytest.mark.parametrize("groups", [0, -1, 1.5, "many", None])
def test_a_number_of_groups_that_is_none_is_refused(groups):
    with pytest.raises(InputError, match="groups"):
        make_groups(5, groups, np.ones((5, 2)), 100)


@given(st.integers(0, 10_000))
def test_another_base_changes_nothing_but_the_differences(seed):
    rng = np.random.default_rng(seed)
    bundle = Bundle(9, np.arange(5))  # the last group has no bounds
    for _ in range(4):
        groups = np.flatnonzero(rng.random(4) < 0.6)
        slopes = rng.normal(size=(len(groups), 9)) * (
            rng.random((len(groups), 9)) < 0.5
        )
        bundle.extend(sp.csr_array(slopes), rng.normal(size=len(groups)), groups)
    bundle.alpha[:] = rng.random(len(bundle)) * (rng.random(len(bundle)) < 0.7)
    w, v = rng.normal(size=9), rng.normal(size=9)
    values, dual = (
        bundle.values(w),
        dual_value(bundle, v, 0.3, normalize_dual_weights(bundle)),
    )
    base = rng.normal(size=(5, 9)) * (rng.random((5, 9)) < 0.5)
    offsets = rng.normal(size=5)
    is_empty = np.bincount(bundle.group, minlength=5) == 0
    base[is_empty] = offsets[is_empty] = 0.0  # they count without a bound
    bundle.multiply()
    bundle.relative_to(as_linear(base, offsets, w))
    np.testing.assert_allclose(bundle.base.toarray(), base)
    np.testing.assert_allclose(bundle.values(w), values, atol=1e-12)
    assert dual_value(bundle, v, 0.3, normalize_dual_weights(bundle)) == pytest.approx(
        dual, abs=1e-10
    )
    bundle.extend(
        sp.csr_array(rng.normal(size=(2, 9))), rng.normal(size=2), np.array([0, 3])
    )
    check_products(bundle)

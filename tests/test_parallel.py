import os
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation, InputError, MissingExtra
from clew.learning.task import Space, Task
from clew.models.assignment import Assignment
from clew.models.binary_program import BinaryProgram, Program
from clew.parallel import map_examples, resolve_jobs, spread

CALLS = [(space, weight) for space in Space for weight in (-1.0, 0.0, 1.0)]


def programs(n=7):
    """Odd cycles: at most one of two neighbours; only the first half is annotated."""
    rng = np.random.default_rng(0)
    A = np.eye(5) + np.roll(np.eye(5), 1, axis=1)
    X = [
        Program(
            rng.normal((1, 0, 0), size=(5, 3)),
            sp.csr_array(A),
            np.full(5, -np.inf),
            np.ones(5),
        )
        for _ in range(n)
    ]
    return X, [{0: 1} if i < n // 2 else None for i in range(n)]


def assert_same(one, other):
    np.testing.assert_array_equal(one.features.toarray(), other.features.toarray())
    np.testing.assert_array_equal(one.loss, other.loss)
    np.testing.assert_array_equal(one.found, other.found)


def test_jobs_count_as_in_scikit_learn():
    assert (resolve_jobs(None), resolve_jobs(3)) == (1, 3)
    assert resolve_jobs(-1) >= 1
    assert resolve_jobs(-1000) == 1
    assert resolve_jobs(100_000) <= max(64, os.cpu_count() or 1)
    with pytest.raises(InputError, match="n_jobs"):
        resolve_jobs(0)


def test_order_is_kept_and_calls_nest():
    assert map_examples(
        lambda i: map_examples(lambda j: i * j, range(3), 2), range(5), 2
    ) == [[0, i, 2 * i] for i in range(5)]


def test_one_thread_and_two_give_the_same_rows():
    X, Y = programs()
    model = BinaryProgram().prepare(X, Y)
    one, two = model.task(X, Y), model.task(X, Y, n_jobs=2)
    for w in np.random.default_rng(1).normal(size=(5, 3)):
        for space, weight in CALLS:
            assert_same(one.argmax(w, space, weight), two.argmax(w, space, weight))
            twice = np.array([3, 3, 0, 3])
            assert_same(
                one.argmax(w, space, weight, twice), two.argmax(w, space, weight, twice)
            )


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_cluster_gives_the_same_rows_as_here(client):
    X, Y = programs()
    model = BinaryProgram().prepare(X, Y)
    here = model.task(X, Y)
    there = spread(client, model.task, X, Y)
    assert isinstance(there, Task)
    assert (there.n_examples, there.n_features, there.spaces) == (7, 3, here.spaces)
    assert there.keys == here.keys
    part_here, part_there = here.annotated_part(), there.annotated_part()
    assert part_there.annotated_part() is part_there
    for w in np.random.default_rng(1).normal(size=(2, 3)):
        for space, weight in CALLS:
            for examples in (None, np.array([6, 0, 3, 6, 1]), np.array([], dtype=int)):
                assert_same(
                    there.argmax(w, space, weight, examples),
                    here.argmax(w, space, weight, examples),
                )
            values = (
                task.argmax(w, space, weight).values(w, weight)
                for task in (part_here, part_there)
            )
            np.testing.assert_allclose(*values, atol=1e-12)


def test_a_cluster_without_anything_determined_has_no_annotated_part(client):
    X, _ = programs()
    model = BinaryProgram().prepare(X, [None] * 7)
    assert spread(client, model.task, X, [None] * 7, shards=3).annotated_part() is None


def test_errors_on_a_cluster_name_the_example(client):
    X = np.random.default_rng(0).normal(size=(4, 2, 2, 3))
    Y = [None, None, None, [1, 1]]
    there = spread(client, Assignment().prepare(X[:3], Y[:3]).task, X, Y)
    with pytest.raises(InfeasibleAnnotation, match="shard from example 2") as caught:
        there.argmax(np.ones(3), Space.COMPATIBLE, 0.0)
    assert (caught.value.example, caught.value.parts) == (3, (0, 1))
    with pytest.raises(InputError, match="shard from example 2"):
        spread(
            client,
            Assignment().prepare(X[:3], Y[:3]).task,
            X,
            [None, None, None, [5, 1]],
        )
    for arguments in [(X, Y[:-1]), (X[:0], Y[:0]), (X, Y, 0)]:
        with pytest.raises(InputError):
            spread(client, Assignment().task, *arguments)
    with pytest.raises(InputError, match="client"):
        spread("tcp://localhost", Assignment().task, X, Y)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"clew\[dask\]"):
        spread(None, Assignment().task, [], [])

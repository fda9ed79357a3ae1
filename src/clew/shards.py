"""The examples of a task on the workers of a Dask cluster, as one Task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Argmax, Array, Indices, Matrix, Space, Task, as_task
from clew.parallel import Client, check_client
from clew.utils.extras import require_extra

S = TypeVar("S")
T = TypeVar("T")


def distribute_task(
    client: Client,
    make_task: Callable[[Sequence[S], Sequence[T]], Task],
    X: Sequence[S],
    Y: Sequence[T],
    n_shards: int | None = None,
) -> DaskTask:
    """Distribute examples over a Dask cluster, as one Task.

    Each shard of consecutive examples stays on its worker between calls, so that its
    solvers stay warm.

    Parameters
    ----------
    client : distributed.Client
    make_task : callable
        Makes the Task of a shard; picklable, for instance ``model.task``.
    X, Y : sequences
        Inputs and annotations.
    n_shards : int or None
        One for each worker if None.
    """
    require_extra("dask", "spreading over a cluster")
    workers = check_client(client)
    if len(X) != len(Y) or not len(X):
        raise InputError(
            f"X has {len(X)} examples and Y has {len(Y)}; expected as many, and at "
            "least one"
        )
    n_shards = min(len(workers) if n_shards is None else n_shards, len(X))
    if n_shards < 1:
        raise InputError(f"n_shards is {n_shards}; expected at least 1")
    limits = np.linspace(0, len(X), n_shards + 1).astype(int)
    futures = [
        client.submit(
            Shard,
            make_task,
            X[first:last],
            Y[first:last],
            actor=True,
            pure=False,
            workers=[workers[k % len(workers)]],
        )
        for k, (first, last) in enumerate(pairwise(limits))
    ]
    shards = [
        _call_shard(future.result, int(first))
        for future, first in zip(futures, limits[:-1], strict=True)
    ]
    return DaskTask(shards, limits)


class Shard:
    """Consecutive examples on one worker, and their annotated part."""

    def __init__(
        self,
        make_task: Callable[[Sequence[S], Sequence[T]], Task],
        X: Sequence[S],
        Y: Sequence[T],
    ) -> None:
        self.task = as_task(make_task(X, Y))
        self.part: Task | None = None

    def describe(
        self, part: bool
    ) -> tuple[int, frozenset[Space], bool, Sequence[bytes] | None]:
        """Return n_features, spaces, loss_zero_iff_compatible and keys."""
        task = self.part if part else self.task
        keys = None if task is None else task.keys
        is_exact = self.task.loss_zero_iff_compatible
        return self.task.n_features, self.task.spaces, is_exact, keys

    def argmax(
        self, part: bool, w: Array, space: Space, loss_weight: float, examples: Indices
    ) -> Argmax:
        """Return the argmax of some examples, or of their annotated part."""
        if not part:
            return self.task.argmax(w, space, loss_weight, examples)
        if self.part is not None:
            return self.part.argmax(w, space, loss_weight, examples)
        # no part of this shard is determined: no features, only Δ
        argmax = self.task.argmax(np.zeros_like(w), space, loss_weight, examples)
        features = sp.csr_array((len(examples), self.task.n_features))
        return Argmax(features, argmax.loss, argmax.found)

    def make_part(self) -> bool:
        """Make the annotated part; return whether there is any."""
        self.part = self.part or self.task.annotated_part()
        return self.part is not None


class DaskTask(Task):
    """Shards on a Dask cluster as one Task.

    Parameters
    ----------
    shards : sequence of Dask actors of Shard
    limits : ndarray of shape (n_shards + 1,)
        The first example of each shard, and the number of examples.
    part : bool
        Whether to use the annotated parts.
    """

    def __init__(
        self, shards: Sequence[Any], limits: Indices, part: bool = False
    ) -> None:
        self.shards = shards
        self.limits = limits
        self.part = part
        answers = [shard.describe(part) for shard in shards]
        descriptions = [answer.result() for answer in answers]
        n_features, spaces, is_exact, keys = zip(*descriptions, strict=True)
        self.n_examples = int(limits[-1])
        self.n_features = n_features[0]
        self.spaces = frozenset.intersection(*spaces)
        self.loss_zero_iff_compatible = all(is_exact)
        if None not in keys:
            self.keys = [key for shard_keys in keys for key in shard_keys]

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Ask all shards at once; rows are in the order of the examples."""
        if examples is None:
            indices = np.arange(self.n_examples)
        else:
            indices = np.asarray(examples, dtype=np.intp)
        shard_of = np.searchsorted(self.limits, indices, side="right") - 1
        futures = []
        for k in np.unique(shard_of):
            first = int(self.limits[k])
            local = indices[shard_of == k] - first
            future = self.shards[k].argmax(self.part, w, space, loss_weight, local)
            futures.append((first, future))
        answers: list[Argmax] = [
            _call_shard(future.result, first) for first, future in futures
        ]
        if not answers:
            empty = sp.csr_array((0, self.n_features))
            return Argmax(empty, np.zeros(0), np.zeros(0, dtype=bool))
        order = np.argsort(np.argsort(shard_of, kind="stable"), kind="stable")
        features: Matrix = sp.vstack(
            [sp.csr_array(answer.features) for answer in answers], format="csr"
        )
        loss = np.concatenate([answer.loss for answer in answers])
        found = np.concatenate([answer.found for answer in answers])
        return Argmax(features[order], loss[order], found[order])

    def annotated_part(self) -> Task | None:
        """Return the annotated parts of the shards; None if there is none."""
        if self.part:
            return self
        futures = [shard.make_part() for shard in self.shards]
        has_part = [future.result() for future in futures]
        return DaskTask(self.shards, self.limits, part=True) if any(has_part) else None


def _call_shard(call: Callable[[], T], first: int) -> T:
    """Call a shard; errors name its first example, and count examples from there."""
    try:
        return call()
    except InfeasibleAnnotation as error:
        example = None if error.example is None else first + error.example
        raise InfeasibleAnnotation(
            f"shard from example {first} on: {error}", example, error.parts
        ) from error
    except InputError as error:
        raise InputError(f"shard from example {first} on: {error}") from error

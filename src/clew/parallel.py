"""Where the argmax runs: here, in threads, or on a Dask cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from clew.errors import InfeasibleAnnotation, InputError
from clew.learning.task import Argmax, Array, Indices, Matrix, Space, Task
from clew.utils.extras import require_extra
from clew.utils.validation import is_number, short_repr

S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_JOBS = 64
"""More threads than this, and than there are cores, only wait for each other and take memory."""


def resolve_jobs(n_jobs: int | None) -> int:
    """The number of threads: None is 1, negative counts from the number of cores as in scikit-learn."""
    if n_jobs is None:
        return 1
    if not is_number(n_jobs) or n_jobs == 0 or n_jobs % 1 != 0:
        raise InputError(
            f"n_jobs is {short_repr(n_jobs)}; 1 is one thread, -1 is a thread for each core"
        )
    n_jobs = int(n_jobs)
    if (
        0 < n_jobs <= MAX_JOBS
    ):  # to count the cores takes longer than to answer a small example
        return n_jobs
    cores = os.cpu_count() or 1
    return (
        min(n_jobs, max(cores, MAX_JOBS)) if n_jobs > 0 else max(1, cores + 1 + n_jobs)
    )


def map_examples(
    function: Callable[[S], T], items: Iterable[S], n_jobs: int = 1
) -> list[T]:
    """`function` of every item, in order; in threads where `n_jobs` asks for more than one."""
    jobs = resolve_jobs(n_jobs)
    if jobs == 1 or getattr(
        _thread, "is_ours", False
    ):  # a call within a call would wait for its own thread
        return [function(item) for item in items]
    return list(_pool(jobs, os.getpid()).map(function, items))


_thread = threading.local()


@cache
def _pool(jobs: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001  # threads do not survive a fork
    """Threads that are kept: making them at each call takes as long as answering a small example."""
    return ThreadPoolExecutor(
        jobs, "clew", initializer=lambda: setattr(_thread, "is_ours", True)
    )


class Promise(Protocol[T_co]):
    """What a call on a cluster gives at once; Dask's comes without types."""

    def result(self) -> T_co:
        """The result, once it is there."""
        ...


class Client(Protocol):
    """What clew asks of a `distributed.Client`."""

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, **options: Any
    ) -> Any:
        """Call a function on a worker: its future, which Dask does not type, for options decide what kind it is."""
        ...

    def scheduler_info(self, *, n_workers: int) -> dict[str, Any]:
        """Of many kinds; "workers" has an entry for each address."""
        ...

    def nthreads(self) -> dict[str, int]:
        """The threads of each worker."""
        ...

    def cancel(self, futures: Sequence[Any], *, force: bool) -> object:
        """Give up what was not begun."""
        ...


About: TypeAlias = tuple[int, frozenset[Space], bool, Sequence[bytes] | None]
"""Of a shard: its number of features, spaces, `loss_zero_iff_compatible` and keys."""


class Actor(Protocol):
    """A `Shard` on its worker, as Dask stands in for it: each call gives a promise."""

    def about(self, part: bool) -> Promise[About]:
        """See `Shard.about`."""
        ...

    def argmax(
        self, part: bool, w: Array, space: Space, loss_weight: float, examples: Indices
    ) -> Promise[Argmax]:
        """See `Shard.argmax`."""
        ...

    def make_part(self) -> Promise[bool]:
        """See `Shard.make_part`."""
        ...


def spread(
    client: Client,
    make_task: Callable[[Sequence[S], Sequence[T]], Task],
    X: Sequence[S],
    Y: Sequence[T],
    shards: int | None = None,
) -> SpreadTask:
    """The examples as one Task on a Dask cluster: every worker keeps `make_task` of a run of examples.

    `client` is a `distributed.Client`; `make_task` must be picklable, e.g. `model.task`. A shard stays on its worker
    between calls, so that solvers stay warm. There is a shard for each worker unless `shards` says otherwise.
    """
    require_extra("dask", "spreading over a cluster")
    workers = check_client(client)
    if len(X) != len(Y) or not len(X):
        raise InputError(
            f"X has {len(X)} examples and Y has {len(Y)}; expected as many, and at least one"
        )
    n = min(len(workers) if shards is None else shards, len(X))
    if n < 1:
        raise InputError(f"shards is {shards}; expected at least 1")
    limits = np.linspace(0, len(X), n + 1).astype(int)
    futures = []
    for k, (first, last) in enumerate(pairwise(limits)):
        where = workers[k % len(workers)]
        shard = client.submit(
            Shard,
            make_task,
            X[first:last],
            Y[first:last],
            actor=True,
            pure=False,
            workers=[where],
        )
        futures.append(shard)
    actors = [
        _shifted(future.result, int(first))
        for future, first in zip(futures, limits[:-1], strict=True)
    ]
    return SpreadTask(actors, limits)


def check_client(client: object) -> list[str]:
    """The addresses of a Dask client's workers, of which there is at least one; `clew-learn[dask]` must be installed."""
    import distributed

    if not isinstance(client, distributed.Client):
        raise InputError(
            f"client is a {type(client).__name__}; expected a distributed.Client"
        )
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    if not workers:
        raise InputError("the Dask cluster has no workers")
    return workers


class Shard:
    """A run of examples on one worker, and their annotated part once it was asked for."""

    def __init__(
        self,
        make_task: Callable[[Sequence[S], Sequence[T]], Task],
        X: Sequence[S],
        Y: Sequence[T],
    ) -> None:
        self.task = make_task(X, Y)
        self.part: Task | None = None

    def about(self, part: bool) -> About:
        """What the whole task must know of this one."""
        task = self.part if part else self.task
        keys = None if task is None else task.keys
        return (
            self.task.n_features,
            self.task.spaces,
            self.task.loss_zero_iff_compatible,
            keys,
        )

    def argmax(
        self, part: bool, w: Array, space: Space, loss_weight: float, examples: Indices
    ) -> Argmax:
        """The answers for some examples of the shard, or of its annotated part."""
        if not part:
            return self.task.argmax(w, space, loss_weight, examples)
        if self.part is not None:
            return self.part.argmax(w, space, loss_weight, examples)
        # nothing is determined here, though it is in another shard: no features, only Δ
        answer = self.task.argmax(np.zeros_like(w), space, loss_weight, examples)
        return Argmax(
            sp.csr_array((len(examples), self.task.n_features)),
            answer.loss,
            answer.found,
        )

    def make_part(self) -> bool:
        """Whether anything is determined here."""
        self.part = self.part or self.task.annotated_part()
        return self.part is not None


class SpreadTask:
    """Shards on a cluster as one Task; rows come back in the order of the examples."""

    def __init__(
        self, actors: Sequence[Actor], limits: Indices, part: bool = False
    ) -> None:
        self.actors, self.limits, self.part = actors, limits, part
        about = [answer.result() for answer in [actor.about(part) for actor in actors]]
        self.n_examples = int(limits[-1])
        self.n_features: int = about[0][0]
        self.spaces = frozenset.intersection(*(shard[1] for shard in about))
        self.loss_zero_iff_compatible = all(shard[2] for shard in about)
        keys = [shard[3] for shard in about]
        self.keys: Sequence[bytes] | None = (
            None if None in keys else [key for shard in keys for key in shard or ()]
        )

    def argmax(
        self,
        w: Array,
        space: Space,
        loss_weight: float,
        examples: Indices | None = None,
    ) -> Argmax:
        """Ask all shards at once."""
        indices = (
            np.arange(self.n_examples)
            if examples is None
            else np.asarray(examples, dtype=np.intp)
        )
        shard_of = np.searchsorted(self.limits, indices, side="right") - 1
        asked = []
        for k in np.unique(shard_of):
            local = indices[shard_of == k] - self.limits[k]
            asked.append(
                (
                    int(self.limits[k]),
                    self.actors[k].argmax(self.part, w, space, loss_weight, local),
                )
            )
        answers = [_shifted(answer.result, first) for first, answer in asked]
        if not answers:
            return Argmax(
                sp.csr_array((0, self.n_features)), np.zeros(0), np.zeros(0, dtype=bool)
            )
        order = np.argsort(np.argsort(shard_of, kind="stable"), kind="stable")
        features: Matrix = sp.vstack(
            [sp.csr_array(answer.features) for answer in answers], format="csr"
        )
        loss = np.concatenate([answer.loss for answer in answers])
        found = np.concatenate([answer.found for answer in answers])
        return Argmax(features[order], loss[order], found[order])

    def annotated_part(self) -> Task | None:
        """The annotated parts of the shards, where they are; None where no shard has one."""
        if self.part:
            return self
        made = [
            answer.result() for answer in [actor.make_part() for actor in self.actors]
        ]
        return SpreadTask(self.actors, self.limits, part=True) if any(made) else None


def _shifted(call: Callable[[], T], first: int) -> T:
    """The result of a call on the shard that begins at example `first`, which its errors are made to say."""
    try:
        return call()
    except InfeasibleAnnotation as error:
        example = None if error.example is None else first + error.example
        raise InfeasibleAnnotation(
            f"shard from example {first} on: {error}", example, error.parts
        ) from error
    except InputError as error:
        raise InputError(f"shard from example {first} on: {error}") from error

"""Where the blocks of a movie are computed: here in threads, or on a Dask cluster. The same calls for both.

An executor maps a function over items and gives the results in the order of the items, so that what is made of them
does not depend on who was ready first.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import time
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from clew.errors import ClewWarning, ClusterError, InputError
from clew.parallel import Client, Promise, check_client, resolve_jobs
from clew.utils.extras import require_extra

if TYPE_CHECKING:
    import distributed

S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""
RETRIES = 2
"""How often a cluster tries an item again that failed, at once, on whichever worker is free: one may see a file of
shared storage that another does not see yet."""
MOMENTARY = frozenset(
    getattr(errno, name)
    for name in (
        "EIO",
        "ESTALE",
        "ETIMEDOUT",
        "EAGAIN",
        "EBUSY",
        "ENOTCONN",
        "ECONNRESET",
        "EHOSTDOWN",
        "EREMOTEIO",
    )
    if hasattr(errno, name)
)
"""What the operating system says when storage does not answer for a while. A file that is not there is another case."""
PAUSES = (1.0, 10.0, 60.0)
"""Seconds before an item is tried again for that, one after the other."""
RESUBMITTED = 8
"""How often an item is given out anew whose worker or scheduler was lost. Dask itself gives an item up after three
workers died with it, which on a cluster where workers come and go says nothing about the item."""
PAUSE = 0.5
"""Seconds before that, times the number of losses so far, so that lost workers can come back."""
PATIENCE = 600.0
"""Seconds to wait for a worker when all are lost. Queues of a cluster take minutes to start another; a person who waits
for nothing should not wait for ever."""
LOOK = 0.05
"""Seconds between two looks at what is finished."""
COUNT = 5.0
"""Seconds without anything finished after which workers are counted, and between two counts."""

QUIET = {
    "distributed.worker.profile.enabled": False,  # workers sample what they do a hundred times a second
    "distributed.admin.tick.interval": "1s",  # and look fifty times whether their loop hangs
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.host-cpu": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.scheduler.work-stealing-interval": "1s",
}
"""What workers of this machine watch less often than Dask's own do. Two idle ones and their scheduler took 8 % of a
core, with this 1.3 %; a profile needs it all."""


class Executor(Protocol):
    """Maps functions over items, somewhere."""

    @property
    def workers(self) -> int:
        """How many items are computed at a time."""

    def map(
        self,
        function: Callable[[S], T],
        items: Sequence[S],
        progress: Progress | None = None,
    ) -> Iterator[T]:
        """`function` of every item, in order; `progress` is told how many are done."""


class Threads:
    """Threads of this process, or this thread itself where there is to be one only."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.workers = resolve_jobs(n_jobs)

    def map(
        self,
        function: Callable[[S], T],
        items: Sequence[S],
        progress: Progress | None = None,
    ) -> Iterator[T]:
        """`function` of every item, in order, two for each thread ahead of the one that is asked for."""
        function = _Patient(function)
        found: Iterator[T]
        if self.workers == 1 or len(items) < 2:
            found = map(function, items)
        else:
            found = _in_threads(function, items, self.workers)
        for done, result in enumerate(found, 1):
            if progress is not None:
                progress(done, len(items))
            yield result


def _in_threads(function: Callable[[S], T], items: Sequence[S], n: int) -> Iterator[T]:
    """Not by joblib, whose pool of threads asks for semaphores: a container's full /dev/shm has none."""
    pool = ThreadPoolExecutor(n)
    ahead: deque[Future[T]] = deque()
    try:
        for item in items:
            if len(ahead) >= 2 * n:
                yield ahead.popleft().result()
            ahead.append(pool.submit(function, item))
        while ahead:
            yield ahead.popleft().result()
    finally:  # after an error, or where nobody asks for more, what has not begun is not
        pool.shutdown(cancel_futures=True)


class Keyed(Promise[T_co], Protocol[T_co]):
    """A future of Dask's, which has a name."""

    @property
    def key(self) -> Hashable:
        """The name."""


class Completed(Protocol[T_co]):
    """Dask's `as_completed`: futures as they finish."""

    def is_empty(self) -> bool:
        """Whether there are no more."""

    def has_ready(self) -> bool:
        """Whether one is finished."""

    def __next__(self) -> Keyed[T_co]: ...


class Cluster:
    """The workers of a Dask cluster. Functions and items are pickled to them, results back.

    A worker that dies costs what it was working on; the item is given to another. Workers that come while work is under
    way take part.
    """

    def __init__(self, client: Client) -> None:
        require_extra("dask", "computing on a cluster")
        check_client(client)
        self.client = client

    @property
    def workers(self) -> int:
        """The threads of all workers that are there now."""
        return max(1, sum(int(threads) for threads in self.client.nthreads().values()))

    def map(
        self,
        function: Callable[[S], T],
        items: Sequence[S],
        progress: Progress | None = None,
    ) -> Iterator[T]:
        """`function` of every item, in order. The first error ends it, and what was not begun is not."""
        from distributed import as_completed

        function = _Forwarding(_Patient(function))
        index: dict[Hashable, int] = {}
        losses = [0] * len(items)
        ready: dict[int, T] = {}
        given = 0
        futures: list[Keyed[T] | None] = []
        for i, item in enumerate(items):
            future = self._submit(function, item)
            index[future.key] = i
            futures.append(future)
        coming = as_completed(futures)
        try:
            for future in self._finished(coming):
                i = index.pop(future.key)
                try:
                    ready[i] = future.result()
                except Exception as error:
                    again = self._after(
                        error, i, losses, len(ready) + given, function, items
                    )
                    index[again.key] = i
                    futures[i] = again
                    coming.add(again)
                    continue
                futures[i] = None  # its result need not stay on a worker
                if progress is not None:
                    progress(given + len(ready), len(items))
                while given in ready:
                    yield ready.pop(given)
                    given += 1
        finally:
            self.client.cancel(
                [future for future in futures if future is not None], force=True
            )

    def _finished(self, coming: Completed[T]) -> Iterator[Keyed[T]]:
        """Futures as they finish; a ClusterError where there was no worker for `PATIENCE` seconds."""
        quiet_since = counted = time.monotonic()
        lost_since: float | None = None
        while not coming.is_empty():
            if coming.has_ready():
                quiet_since, lost_since = time.monotonic(), None
                yield next(coming)
                continue
            time.sleep(LOOK)
            now = time.monotonic()
            if min(now - quiet_since, now - counted) < COUNT:
                continue
            counted = now
            lost_since = (
                None
                if self.client.nthreads()
                else now
                if lost_since is None
                else lost_since
            )
            if lost_since == now:
                warnings.warn(
                    f"no worker is left; waiting up to {PATIENCE:g} seconds for others",
                    ClewWarning,
                    stacklevel=4,
                )
            if lost_since is not None and now - lost_since >= PATIENCE:
                raise ClusterError(
                    f"all workers were lost, and none came back in {PATIENCE:g} seconds; expected workers that stay, "
                    "with enough memory. What is finished is kept: the same command goes on from there"
                )

    def _submit(self, function: Callable[[S], T], item: S) -> Keyed[T]:
        future: Keyed[T] = self.client.submit(
            function, item, pure=False, retries=RETRIES
        )
        return future

    def _after(
        self,
        error: Exception,
        i: int,
        losses: list[int],
        done: int,
        function: Callable[[S], T],
        items: Sequence[S],
    ) -> Keyed[T]:
        """Give an item out anew if it was lost on the way; an error of its own is raised."""
        if not _is_loss(error):
            raise error
        losses[i] += 1
        if losses[i] > RESUBMITTED:
            raise ClusterError(
                f"item {i + 1} of {len(items)} was lost with its worker again and again ({error}); expected workers "
                f"with enough memory for it, that stay. {done} items were finished"
            ) from error
        time.sleep(PAUSE * losses[i])
        return self._submit(function, items[i])


def local_cluster(
    workers: int, memory: int | None = None, profile: bool = False
) -> distributed.LocalCluster:
    """Workers on this machine, each with one thread: array operations of several threads would share one lock.

    `memory` is in bytes, of each; None for its share of the machine's, 0 for no limit. With `profile` they watch what
    they do, which costs some percent.
    """
    require_extra("dask", "computing on a cluster")
    import dask
    import distributed

    with dask.config.set({} if profile else QUIET):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit="auto" if memory is None else memory,
            dashboard_address=":0" if profile else None,
            silence_logs=logging.CRITICAL,
        )


@dataclass(frozen=True)
class _Patient(Generic[S, T]):
    """A function that is tried again after a while where storage did not answer."""

    function: Callable[[S], T]

    def __call__(self, item: S) -> T:
        for pause in PAUSES:
            try:
                return self.function(item)
            except Exception as error:
                if not _is_momentary(error):
                    raise
                warnings.warn(
                    f"{error}; tried again in {pause:g} seconds",
                    ClewWarning,
                    stacklevel=2,
                )
            time.sleep(pause)
        return self.function(item)


def _is_momentary(error: BaseException | None) -> bool:
    """Whether an error comes of storage that did not answer; readers tell in words of their own what went wrong."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in MOMENTARY:
            return True
        error = error.__cause__
    return False


@dataclass(frozen=True)
class _Forwarding(Generic[S, T]):
    """A function whose clew warnings are shown where its results are asked for, not in the log of a worker."""

    function: Callable[[S], T]
    home: tuple[str, int] = field(
        default_factory=lambda: (platform.node(), os.getpid())
    )

    def __call__(self, item: S) -> T:
        if (platform.node(), os.getpid()) != self.home:
            warnings.showwarning = _tell_client
        return self.function(item)


def _tell_client(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    """Send a warning of clew's to the clients, which warn in turn; others are of no use to them."""
    if issubclass(category, ClewWarning):
        from distributed import get_worker, protocol

        told = {
            name: protocol.pickle.dumps(each)
            for name, each in (("message", message), ("category", category))
        }
        get_worker().log_event(
            "warn", told
        )  # as distributed.warn does, without warning here


def _is_loss(error: Exception) -> bool:
    """Whether a worker or the scheduler went away, rather than the function failing."""
    from concurrent.futures import CancelledError

    from distributed import CancelledError as DaskCancelledError
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return isinstance(
        error, KilledWorker | CommClosedError | CancelledError | DaskCancelledError
    )


def executor_for(
    where: Threads | Cluster | Client | None, n_jobs: int | None
) -> Executor:
    """An executor as it is, a Dask client as one, and threads for None."""
    if where is None:
        return Threads(n_jobs)
    if isinstance(where, Threads | Cluster):
        return where
    if hasattr(where, "submit"):
        return Cluster(where)
    raise InputError(
        f"client is a {type(where).__name__}; expected a distributed.Client"
    )

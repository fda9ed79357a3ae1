"""Run functions on many items: here, in threads, or on a Dask cluster.

Executors return results in the order of the items, so that nothing depends on which
finished first. `clew.shards` keeps the examples of a task on the workers of a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from clew.errors import ClewWarning, ClusterError, InputError
from clew.utils.extras import require_extra
from clew.utils.validation import is_number, short_repr

if TYPE_CHECKING:
    import distributed

    Client: TypeAlias = distributed.Client
else:
    Client = object

S = TypeVar("S")
T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with the number of finished items and the number of all."""
MAX_JOBS = 64
"""Most threads on a machine with fewer cores."""
RETRIES = 2
"""How often Dask repeats an item that failed, on any worker: one may see a file on
shared storage that another does not see yet."""
ALLOWED_FAILURES = 8
"""How many workers may die with an item on a local cluster (Dask's default: 3)."""
STORAGE_ERRORS = frozenset(
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
"""Error numbers of storage that does not answer for a while."""
STORAGE_PAUSES = (1.0, 10.0, 60.0)
"""Seconds before each retry after such an error."""
WORKER_TIMEOUT = 600.0
"""Seconds to wait for another worker when all are lost: queues take minutes."""
WORKER_CHECK_INTERVAL = 5.0
"""Seconds without a result before workers are counted."""
POLL_INTERVAL = 0.05
"""Seconds between two checks for finished items."""
CONNECT_TIMEOUT = 15.0
"""Seconds in which a scheduler must answer."""
DISTRIBUTION = "clew-learn"
"""Name of the package that workers must have."""
LOCAL_CONFIG = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.host-cpu": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.scheduler.work-stealing-interval": "1s",
}
"""Less monitoring: two idle workers and their scheduler take 1.3 instead of 8 % of a
core."""


def resolve_jobs(n_jobs: int | None) -> int:
    """Return the number of threads.

    Parameters
    ----------
    n_jobs : int or None
        None is 1; negative numbers count from the number of cores, as in scikit-learn.
    """
    if n_jobs is None:
        return 1
    if not is_number(n_jobs) or n_jobs == 0 or n_jobs % 1 != 0:
        raise InputError(
            f"n_jobs is {short_repr(n_jobs)}; 1 is one thread, -1 is a thread for each "
            "core"
        )
    n_jobs = int(n_jobs)
    if 0 < n_jobs <= MAX_JOBS:  # counting the cores would take longer
        return n_jobs
    n_cores = os.cpu_count() or 1
    if n_jobs > 0:
        return min(n_jobs, max(n_cores, MAX_JOBS))
    return max(1, n_cores + 1 + n_jobs)


def map_examples(
    function: Callable[[S], T], items: Iterable[S], n_jobs: int = 1
) -> list[T]:
    """Apply a function to each item, in `n_jobs` threads, and return a list."""
    return list(_map_in_threads(function, items, resolve_jobs(n_jobs)))


def _map_in_threads(
    function: Callable[[S], T], items: Iterable[S], n_threads: int
) -> Iterator[T]:
    """Yield results in order; two items a thread are computed ahead.

    joblib's threads need semaphores, which a container with a full /dev/shm lacks.
    """
    if n_threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(n_threads, "clew")
    pending: deque[Future[T]] = deque()
    try:
        for item in items:
            if len(pending) >= 2 * n_threads:
                yield pending.popleft().result()
            pending.append(pool.submit(function, item))
        while pending:
            yield pending.popleft().result()
    finally:  # also when the caller stops early
        pool.shutdown(cancel_futures=True)


class Executor(Protocol):
    """Applies functions to items."""

    @property
    def workers(self) -> int:
        """How many items are computed at a time."""

    def map(
        self,
        function: Callable[[S], T],
        items: Sequence[S],
        progress: Progress | None = None,
    ) -> Iterator[T]:
        """Yield the result of each item in order; `progress` counts the finished."""


class ThreadExecutor:
    """Computes in threads of this process, or without any if `n_jobs` is 1."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.workers = resolve_jobs(n_jobs)

    def map(
        self,
        function: Callable[[S], T],
        items: Sequence[S],
        progress: Progress | None = None,
    ) -> Iterator[T]:
        """Yield the result of each item in order."""
        n_threads = min(self.workers, max(len(items), 1))
        results = _map_in_threads(_StorageRetry(function), items, n_threads)
        for n_done, result in enumerate(results, 1):
            if progress is not None:
                progress(n_done, len(items))
            yield result


class DaskExecutor:
    """Computes on the workers of a Dask cluster.

    Functions, items and results are pickled. If a worker dies, Dask repeats its items
    on others; workers that join later take part.
    """

    def __init__(self, client: Client) -> None:
        require_extra("dask", "computing on a cluster")
        check_client(client)
        self.client: Any = client

    @property
    def workers(self) -> int:
        """The number of threads of all workers."""
        return max(1, sum(map(int, self.client.nthreads().values())))

    def map(
        self,
        function: Callable[[S], T],
        items: Sequence[S],
        progress: Progress | None = None,
    ) -> Iterator[T]:
        """Yield the result of each item in order; the first error cancels the rest.

        Warnings of clew on the workers are repeated here.
        """
        task = _WarningRecorder(_StorageRetry(function))
        futures = [
            self.client.submit(task, item, pure=False, retries=RETRIES)
            for item in items
        ]
        index = {future.key: i for i, future in enumerate(futures)}
        results: dict[int, T] = {}
        n_yielded = 0
        try:
            for future in self._iterate_completed(futures):
                i = index[future.key]
                results[i], messages = _get_result(future, i, len(items))
                futures[i] = None  # lets the worker drop the result
                for message in messages:
                    warnings.warn(message, stacklevel=2)
                if progress is not None:
                    progress(n_yielded + len(results), len(items))
                while n_yielded in results:
                    yield results.pop(n_yielded)
                    n_yielded += 1
        finally:
            unfinished = [future for future in futures if future is not None]
            with report_lost_scheduler():
                self.client.cancel(unfinished, force=True)

    def _iterate_completed(self, futures: Sequence[Any]) -> Iterator[Any]:
        """Yield futures as they finish; raise ClusterError if no worker comes back."""
        from distributed import as_completed

        completed = as_completed(futures)
        last_check = time.monotonic()
        last_seen: float | None = None
        while not completed.is_empty():
            if completed.has_ready():
                yield next(completed)
                last_check = time.monotonic()
                last_seen = None
                continue
            time.sleep(POLL_INTERVAL)
            now = time.monotonic()
            if now - last_check < WORKER_CHECK_INTERVAL:
                continue
            last_check = now
            with report_lost_scheduler():
                n_threads = self.client.nthreads()
            if n_threads:
                last_seen = None
            elif last_seen is None:
                last_seen = now
                warnings.warn(
                    f"no worker is left; waiting up to {WORKER_TIMEOUT:g} seconds for "
                    "others",
                    ClewWarning,
                    stacklevel=3,
                )
            elif now - last_seen >= WORKER_TIMEOUT:
                raise ClusterError(
                    "all workers were lost, and none came back in "
                    f"{WORKER_TIMEOUT:g} seconds; expected workers with enough memory. "
                    "The same command continues from what is finished"
                )


@contextlib.contextmanager
def report_lost_scheduler() -> Iterator[None]:
    """Raise ClusterError if the scheduler of a Dask cluster ends in a with block."""
    from distributed.comm import CommClosedError

    try:
        yield
    except CommClosedError as error:
        raise ClusterError(
            f"the connection to the Dask scheduler was lost ({error}). The same command "
            "continues from what is finished"
        ) from error


def _get_result(future: Any, i: int, n_items: int) -> Any:
    """Return a future's result; raise ClusterError if its workers were lost."""
    from distributed import CancelledError as DaskCancelledError
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        return future.result()
    except (
        KilledWorker,
        CommClosedError,
        CancelledError,
        DaskCancelledError,
    ) as error:
        raise ClusterError(
            f"item {i + 1} of {n_items} was lost with its workers ({error}); expected "
            "workers with enough memory. If workers come and go, raise Dask's "
            "distributed.scheduler.allowed-failures. The same command continues from "
            "what is finished"
        ) from error


@dataclass(frozen=True)
class _StorageRetry(Generic[S, T]):
    """Repeats a function after a pause if storage did not answer."""

    function: Callable[[S], T]

    def __call__(self, item: S) -> T:
        for pause in STORAGE_PAUSES:
            try:
                return self.function(item)
            except Exception as error:
                if not _is_storage_error(error):
                    raise
                warnings.warn(
                    f"{error}; tried again in {pause:g} seconds",
                    ClewWarning,
                    stacklevel=2,
                )
            time.sleep(pause)
        return self.function(item)


def _is_storage_error(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is of storage."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
            return True
        error = error.__cause__
    return False


@dataclass(frozen=True)
class _WarningRecorder(Generic[S, T]):
    """Returns the warnings of clew beside the result of a function."""

    function: Callable[[S], T]

    def __call__(self, item: S) -> tuple[T, list[ClewWarning]]:
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always", ClewWarning)
            result = self.function(item)
        messages = [record.message for record in records]
        return result, [m for m in messages if isinstance(m, ClewWarning)]


def make_executor(
    client: ThreadExecutor | DaskExecutor | Client | None, n_jobs: int | None
) -> Executor:
    """Return an executor: threads for None, and one for a Dask client."""
    if client is None:
        return ThreadExecutor(n_jobs)
    if isinstance(client, ThreadExecutor | DaskExecutor):
        return client
    if hasattr(client, "submit"):
        return DaskExecutor(client)
    raise InputError(
        f"client is a {type(client).__name__}; expected a distributed.Client"
    )


def check_client(client: object) -> list[str]:
    """Return the addresses of a Dask client's workers; refuse a client without any."""
    import distributed

    if not isinstance(client, distributed.Client):
        raise InputError(
            f"client is a {type(client).__name__}; expected a distributed.Client"
        )
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    if not workers:
        raise InputError("the Dask cluster has no workers")
    return workers


def start_local_cluster(
    workers: int, memory: int | None = None, profile: bool = False
) -> distributed.LocalCluster:
    """Start workers on this machine, with one thread each.

    Parameters
    ----------
    workers : int
    memory : int or None
        Bytes of each worker; None for its share of the machine, 0 for no limit.
    profile : bool
        Record what the workers do, which costs a few percent.
    """
    require_extra("dask", "computing on a cluster")
    import dask
    import distributed

    config: dict[str, Any] = {} if profile else dict(LOCAL_CONFIG)
    config["distributed.scheduler.allowed-failures"] = ALLOWED_FAILURES
    with dask.config.set(config):
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit="auto" if memory is None else memory,
            dashboard_address=":0" if profile else None,
            silence_logs=logging.CRITICAL,
        )


def connect_to_cluster(address: str, timeout: float = CONNECT_TIMEOUT) -> Client:
    """Connect to a Dask cluster.

    Parameters
    ----------
    address : str
        tcp://HOST:PORT of the scheduler, or the path of a scheduler file (.json).
    timeout : float
        Seconds in which the scheduler must answer.

    Raises
    ------
    ClusterError
        If there is no Dask scheduler, or it has no workers.
    """
    require_extra("dask", "computing on a cluster")
    import distributed

    try:
        if address.endswith(".json"):
            content = json.loads(Path(address).read_text(encoding="utf-8"))
            scheduler = content["address"]
        else:
            scheduler = address
        # in a thread, since a notebook has a running event loop
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, _exchange_greetings(scheduler, timeout)).result()
        client = distributed.Client(scheduler, timeout=timeout)
    except Exception as error:  # files, addresses and TLS raise many types
        raise ClusterError(
            f"{address}: no Dask scheduler answers there "
            f"({type(error).__name__}: {error}); expected tcp://HOST:PORT or a "
            "scheduler file"
        ) from error
    try:
        _check_workers(client, address)
    except BaseException:
        client.close()
        raise
    return client


def _check_workers(client: Any, address: str) -> None:
    """Refuse a cluster without workers, or with workers of other versions.

    Pickled functions of another clew or Python fail with every kind of error, or
    after ten minutes of retries.
    """
    if not client.scheduler_info(n_workers=-1)["workers"]:
        raise ClusterError(
            f"{address}: the scheduler has no workers yet; expected at least one"
        )
    versions = client.get_versions(packages=[DISTRIBUTION])
    expected = _read_versions(versions["client"])
    for worker, reply in sorted(versions["workers"].items()):
        actual = _read_versions(reply)
        if actual != expected:
            raise ClusterError(
                f"{address}: the worker {worker} has {_describe_versions(actual)}; "
                f"expected {_describe_versions(expected)}, as here. Start workers "
                "from the same environment"
            )


def _read_versions(reply: Any) -> dict[str, str]:
    """Versions that must agree, from a process of Dask that answered or did not."""
    packages = reply.get("packages", {}) if isinstance(reply, dict) else {}
    python = str(packages.get("python")).split(".")[:2]
    return {"Python": ".".join(python), "clew": str(packages.get(DISTRIBUTION))}


def _describe_versions(versions: dict[str, str]) -> str:
    return " and ".join(
        f"no {name}" if version == "None" else f"{name} {version}"
        for name, version in versions.items()
    )


async def _exchange_greetings(address: str, timeout: float) -> None:
    """Refuse an address at which no Dask scheduler greets within the timeout.

    `distributed.Client` waits for minutes at a port that accepts and is silent, and
    leaves threads behind if it cannot use an address.
    """
    import distributed
    from distributed.comm import connect

    certificates = distributed.Security().get_connection_args("client")
    connection = await asyncio.wait_for(connect(address, **certificates), timeout)
    connection.abort()

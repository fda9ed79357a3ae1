"""Executors keep the order and pass errors on; a Dask cluster gives the same rows."""

import asyncio
import errno
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

from clew.errors import (
    ClewWarning,
    ClusterError,
    DataWarning,
    InfeasibleAnnotation,
    InputError,
    MissingExtra,
)
from clew.learning.task import Space, Task
from clew.models.assignment import Assignment
from clew.models.binary_program import BinaryProgram
from clew.models.highs_solver import Program
from clew.parallel import (
    DaskExecutor,
    ThreadExecutor,
    _check_workers,
    connect_to_cluster,
    make_executor,
    map_examples,
    resolve_jobs,
    start_local_cluster,
)
from clew.shards import distribute_task

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
    there = distribute_task(client, model.task, X, Y)
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
    assert (
        distribute_task(client, model.task, X, [None] * 7, n_shards=3).annotated_part()
        is None
    )


def test_errors_on_a_cluster_name_the_example(client):
    X = np.random.default_rng(0).normal(size=(4, 2, 2, 3))
    Y = [None, None, None, [1, 1]]
    there = distribute_task(client, Assignment().prepare(X[:3], Y[:3]).task, X, Y)
    with pytest.raises(InfeasibleAnnotation, match="shard from example 2") as caught:
        there.argmax(np.ones(3), Space.COMPATIBLE, 0.0)
    assert (caught.value.example, caught.value.parts) == (3, (0, 1))
    with pytest.raises(InputError, match="shard from example 2"):
        distribute_task(
            client,
            Assignment().prepare(X[:3], Y[:3]).task,
            X,
            [None, None, None, [5, 1]],
        )
    for arguments in [(X, Y[:-1]), (X[:0], Y[:0]), (X, Y, 0)]:
        with pytest.raises(InputError):
            distribute_task(client, Assignment().task, *arguments)
    with pytest.raises(InputError, match="client"):
        distribute_task("tcp://localhost", Assignment().task, X, Y)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"clew-learn\[dask\]"):
        distribute_task(None, Assignment().task, [], [])


@pytest.fixture(params=["here", "threads", "cluster"])
def executor(request):
    if request.param == "cluster":
        return DaskExecutor(request.getfixturevalue("client"))
    return ThreadExecutor(1 if request.param == "here" else 3)


def test_results_are_in_order_and_progress_is_told(executor):
    told = []
    assert list(
        executor.map(lambda i: i * i, list(range(20)), lambda *done: told.append(done))
    ) == [i * i for i in range(20)]
    assert told == [(k, 20) for k in range(1, 21)]
    assert list(executor.map(str, [])) == []
    assert executor.workers >= 1


def test_an_error_is_the_functions_own(executor):
    def fails(i):
        if i == 3:
            raise InfeasibleAnnotation("frame 3 cannot be", 3, ("a", "b"))
        return i

    with pytest.raises(InfeasibleAnnotation, match="frame 3") as caught:
        list(executor.map(fails, list(range(8))))
    assert (caught.value.example, caught.value.parts) == (3, ("a", "b"))
    assert list(executor.map(abs, [-1])) == [1]  # and it can be used again


def test_threads_need_no_semaphores(monkeypatch):
    """Which a container whose /dev/shm is full does not have."""

    def none_left(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", none_left)
    assert list(ThreadExecutor(3).map(abs, range(-9, 0))) == list(range(9, 0, -1))


def test_what_nobody_asks_for_is_not_begun():
    begun = []
    results = ThreadExecutor(2).map(begun.append, range(100))
    next(results)
    results.close()
    assert len(begun) < 10


def test_a_file_that_cannot_be_read_for_a_moment_is_read_again(client, tmp_path):
    def read(i):
        mark = tmp_path / str(i)
        if not mark.exists():
            mark.touch()
            raise InputError("not yet")
        return i

    assert list(DaskExecutor(client).map(read, [0, 1, 2])) == [0, 1, 2]


@pytest.mark.parametrize(("code", "expected"), [(errno.EIO, 4), (errno.ENOENT, 1)])
def test_storage_that_does_not_answer_is_asked_again_after_a_while(
    executor, tmp_path, monkeypatch, code, expected
):
    monkeypatch.setattr("clew.parallel.STORAGE_PAUSES", (0.001,) * 3)
    monkeypatch.setattr("clew.parallel.RETRIES", 0)

    def asked():
        return len(list(tmp_path.iterdir()))

    def read(i):
        (tmp_path / str(asked())).touch()  # on a cluster the function is a copy
        if asked() < 4:
            try:
                raise OSError(code, "no answer")
            except OSError as error:
                raise InputError("frame 7 cannot be read") from error
        return i

    if expected == 1:
        with pytest.raises(InputError, match="frame 7"):
            list(executor.map(read, [5]))
    else:
        with pytest.warns(
            ClewWarning, match=r"frame 7 cannot be read; tried again in 0\.001 seconds"
        ):
            assert list(executor.map(read, [5])) == [5]
    assert asked() == expected


def test_what_is_no_client_is_refused(client, monkeypatch):
    assert make_executor(None, 2).workers == 2
    assert isinstance(make_executor(client, 1), DaskExecutor)
    threads = ThreadExecutor(2)
    assert make_executor(threads, 1) is threads
    with pytest.raises(InputError, match="expected a distributed"):
        make_executor("tcp://127.0.0.1:8786", 1)
    with pytest.raises(InputError, match="expected a distributed"):
        make_executor(type("Pool", (), {"submit": None})(), 1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr("clew.utils.extras._can_be_found", lambda package: False)
    with pytest.raises(MissingExtra, match="dask"):
        DaskExecutor(client)


@pytest.mark.parametrize("name", ["CancelledError", "CommClosedError"])
def test_item_lost_with_its_workers_is_a_cluster_error(client, name, monkeypatch):
    from distributed import CancelledError
    from distributed.comm import CommClosedError

    error = CancelledError if name == "CancelledError" else CommClosedError

    def lose(i):
        if i == 1:
            raise error("gone")
        return i

    monkeypatch.setattr("clew.parallel.RETRIES", 0)
    with pytest.raises(ClusterError, match=r"item 2 of 3 was lost.*allowed-"):
        list(DaskExecutor(client).map(lose, [0, 1, 2]))


@pytest.mark.posix
def test_items_of_a_killed_worker_are_repeated(tmp_path):
    pytest.importorskip("distributed")
    import distributed

    def kill_worker_twice(i):
        marks = len(list(tmp_path.iterdir()))
        if i == 2 and marks < 2:
            (tmp_path / str(marks)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    with start_local_cluster(2) as cluster, distributed.Client(cluster) as client:
        results = DaskExecutor(client).map(kill_worker_twice, list(range(4)))
        assert list(results) == [0, 1, 2, 3]


def test_without_workers_it_ends_and_warnings_reach_the_client(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("clew.parallel.WORKER_CHECK_INTERVAL", 0.1)
    monkeypatch.setattr("clew.parallel.WORKER_TIMEOUT", 0.5)

    def last(i):
        import warnings

        from clew.errors import DataWarning

        if i == 0:
            warnings.warn("frame 7 looks odd", DataWarning, stacklevel=1)
            return i
        while not (tmp_path / "stop").exists():
            time.sleep(0.05)
        return i

    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        results = DaskExecutor(client).map(last, [0, 1])
        with pytest.warns(DataWarning, match="frame 7"):
            assert next(results) == 0
        cluster.scale(0)
        with (
            pytest.warns(ClewWarning, match="no worker is left"),
            pytest.raises(ClusterError, match="none came back"),
        ):
            next(results)
        (tmp_path / "stop").touch()


@pytest.fixture(params=["silent", "web server"])
def foreign_address(request):
    """A port that accepts connections and is no Dask scheduler."""
    if request.param == "silent":
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        return
    handler = http.server.BaseHTTPRequestHandler
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_address_of_no_scheduler_is_refused_soon(foreign_address):
    pytest.importorskip("distributed")
    start = time.monotonic()
    with pytest.raises(ClusterError, match="no Dask scheduler answers there"):
        connect_to_cluster(foreign_address, timeout=1)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    "content", ["{}", "[]", "", '{"address": 5}', '{"address": "tcp://127.0.0.1:1"}']
)
def test_scheduler_file_without_scheduler_is_refused(tmp_path, content):
    pytest.importorskip("distributed")
    path = tmp_path / "scheduler.json"
    path.write_text(content)
    with pytest.raises(ClusterError, match="no Dask scheduler answers there"):
        connect_to_cluster(str(path), timeout=1)


@pytest.mark.parametrize("address", ["tls://127.0.0.1:1", "what://x", "tcp://", "a b"])
def test_address_that_cannot_be_used_is_refused(address):
    pytest.importorskip("distributed")
    with pytest.raises(ClusterError, match="no Dask scheduler answers there"):
        connect_to_cluster(address, timeout=1)


def test_scheduler_is_connected_to(client):
    with connect_to_cluster(client.scheduler.address) as other:
        assert make_executor(other, 1).workers == 2


def test_cluster_is_connected_to_from_a_running_event_loop(client):
    """As in a notebook."""

    async def connect():
        connect_to_cluster(client.scheduler.address).close()

    asyncio.run(connect())


class VersionReport:
    """A client whose worker has other versions."""

    def __init__(self, python, clew_version):
        self.worker = {"python": python, "clew-learn": clew_version}

    def scheduler_info(self, n_workers):
        return {"workers": {"tcp://w": {}}}

    def get_versions(self, packages):
        here = {"python": "3.13.1.final.0", "clew-learn": "0.2.0"}
        return {
            "client": {"packages": here},
            "workers": {"tcp://w": {"packages": self.worker}},
        }


@pytest.mark.parametrize(
    ("python", "version", "words"),
    [
        ("3.12.1.final.0", "0.2.0", "tcp://w has Python 3.12 and clew 0.2.0"),
        ("3.13.7.final.0", "0.1.0", "has Python 3.13 and clew 0.1.0"),
        ("3.13.1.final.0", None, "has Python 3.13 and no clew"),
    ],
)
def test_worker_of_other_versions_is_refused(python, version, words):
    with pytest.raises(ClusterError, match=f"{words}; expected Python 3.13 and clew"):
        _check_workers(VersionReport(python, version), "tcp://s")


def test_worker_of_the_same_versions_is_accepted():
    _check_workers(VersionReport("3.13.9.final.0", "0.2.0"), "tcp://s")


SCHEDULER = """
import asyncio, sys
from distributed import Scheduler, Worker

async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        async with Worker(scheduler.address, nthreads=1):
            print(scheduler.address, flush=True)
            await scheduler.finished()

asyncio.run(main())
"""


@pytest.mark.posix
def test_scheduler_killed_in_a_run_is_a_cluster_error():
    pytest.importorskip("distributed")
    process = subprocess.Popen(
        [sys.executable, "-c", SCHEDULER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    client = connect_to_cluster(process.stdout.readline().strip())
    try:
        results = DaskExecutor(client).map(time.sleep, [0, 600])
        next(results)
        process.kill()
        with pytest.raises(ClusterError, match="lost"):
            next(results)
    finally:
        process.kill()
        process.communicate()
        client.close()

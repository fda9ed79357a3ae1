"""Threads and clusters map in order, pass errors on."""

import errno
import sys
import time

import pytest

from clew.errors import (
    ClewWarning,
    ClusterError,
    DataWarning,
    InfeasibleAnnotation,
    InputError,
    MissingExtra,
)
from clew.executors import RESUBMITTED, Cluster, Threads, executor_for


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(params=["here", "threads", "cluster"])
def executor(request):
    if request.param == "cluster":
        return Cluster(request.getfixturevalue("client"))
    return Threads(1 if request.param == "here" else 3)


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
    assert list(Threads(3).map(abs, range(-9, 0))) == list(range(9, 0, -1))


def test_what_nobody_asks_for_is_not_begun():
    begun = []
    results = Threads(2).map(begun.append, range(100))
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

    assert list(Cluster(client).map(read, [0, 1, 2])) == [0, 1, 2]


@pytest.mark.parametrize(("code", "expected"), [(errno.EIO, 4), (errno.ENOENT, 1)])
def test_storage_that_does_not_answer_is_asked_again_after_a_while(
    executor, tmp_path, monkeypatch, code, expected
):
    monkeypatch.setattr("clew.executors.PAUSES", (0.001,) * 3)
    monkeypatch.setattr("clew.executors.RETRIES", 0)

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
    assert executor_for(None, 2).workers == 2
    assert isinstance(executor_for(client, 1), Cluster)
    threads = Threads(2)
    assert executor_for(threads, 1) is threads
    with pytest.raises(InputError, match="expected a distributed"):
        executor_for("tcp://127.0.0.1:8786", 1)
    with pytest.raises(InputError, match="expected a distributed"):
        executor_for(type("Pool", (), {"submit": None})(), 1)
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setattr("clew.utils.extras._can_be_found", lambda package: False)
    with pytest.raises(MissingExtra, match="dask"):
        Cluster(client)


@pytest.mark.parametrize("losses", [3, 100])
def test_an_item_that_was_lost_is_given_out_anew_but_not_for_ever(
    client, losses, tmp_path, monkeypatch
):
    from distributed import CancelledError
    from distributed.comm import CommClosedError

    monkeypatch.setattr("clew.executors.PAUSE", 0.001)
    kinds = [CancelledError, lambda: CommClosedError("gone")]

    def lost(i):
        tries = len(list(tmp_path.glob("*")))
        if i == 1 and tries < losses:
            (tmp_path / str(tries)).touch()
            raise kinds[tries % 2]()
        return i

    monkeypatch.setattr("clew.executors.RETRIES", 0)
    if losses > RESUBMITTED:
        with pytest.raises(
            ClusterError, match="item 2 of 3 was lost with its worker again and again"
        ):
            list(Cluster(client).map(lost, [0, 1, 2]))
        assert len(list(tmp_path.glob("*"))) == RESUBMITTED + 1
    else:
        assert list(Cluster(client).map(lost, [0, 1, 2])) == [0, 1, 2]


def test_without_workers_it_ends_and_warnings_reach_the_client(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("clew.executors.COUNT", 0.1)
    monkeypatch.setattr("clew.executors.PATIENCE", 0.5)

    def last(i):
        import warnings

        from clew.errors import DataWarning

        if i == 0:
            warnings.warn("frame 7 looks odd", DataWarning, stacklevel=1)
            return i
        while not (tmp_path / "stop").exists():
            time.sleep(0.05)
        return i

    def first(results):
        assert next(results) == 0
        time.sleep(2)  # events take their own way

    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        results = Cluster(client).map(last, [0, 1])
        with pytest.warns(DataWarning, match="frame 7"):
            first(results)
        cluster.scale(0)
        with (
            pytest.warns(ClewWarning, match="no worker is left"),
            pytest.raises(ClusterError, match="none came back"),
        ):
            next(results)
        (tmp_path / "stop").touch()

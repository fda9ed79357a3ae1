"""A Dask cluster gives the bytes that one process gives, also when its workers are killed."""

import hashlib
import os
import signal
import threading
import time

import numpy as np
import pytest

from clew.parallel import DaskExecutor, ThreadExecutor
from clew.tracking.blocks import MovieProblem, StoredLineage
from clew.tracking.io import names
from clew.tracking.io.checkpoints import Checkpoints
from clew.tracking.io.results import write_results
from clew.tracking.tracker import Tracker

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def digest(folder):
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and ".blocks" not in path.parts
    )
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in files
    }


def test_tracking_and_writing_on_a_cluster_give_the_same_bytes(
    simulated, client, tmp_path
):
    tracker = Tracker.generic(cache=None, n_jobs=1)
    here, there = tmp_path / "here", tmp_path / "there"
    lineage = tracker.track(simulated.movie)
    write_results(here, lineage, simulated.movie, ["ctc", "csv", "parquet", "zarr"])
    tracked = tracker.track_blocks(simulated.movie, there, client=client, memory=2**31)
    write_results(
        there,
        tracked,
        simulated.movie,
        ["ctc", "csv", "parquet", "zarr"],
        executor=DaskExecutor(client),
    )
    assert digest(here) == digest(there)
    again = tracker.track(simulated.movie, client=client)
    assert np.array_equal(again.events.row_keys(), lineage.events.row_keys())
    assert np.array_equal(again.confidence, lineage.confidence)


def test_learning_on_a_cluster_gives_the_same_weights(simulated, client):
    def learned(client):
        tracker = Tracker(lam=10.0, cache=None, n_jobs=1)
        return tracker.fit(simulated.movie, simulated.some, client=client).coef_

    np.testing.assert_array_equal(learned(None), learned(client))


def alive(cluster):
    """Processes of workers that are up: a nanny whose worker dies while it starts gives up."""
    processes = [nanny.process for nanny in cluster.workers.values()]
    return {
        process.pid
        for process in processes
        if process is not None and process.status.name == "running"
    }


class Killer(threading.Thread):
    """Kills a worker whenever another of some numbers of blocks is there, and sees whether any is written twice."""

    def __init__(self, cluster, folder, at):
        super().__init__(daemon=True)
        self.cluster, self.folder, self.at = cluster, folder, list(at)
        self.seen, self.rewritten, self.killed, self.over = {}, [], set(), False

    def run(self):
        while not self.over:
            for path in self.folder.glob("*.clew") if self.folder.is_dir() else ():
                when = path.stat().st_mtime_ns
                if self.seen.setdefault(path.name, when) != when:
                    self.rewritten.append(path.name)
            pids = alive(self.cluster) - self.killed
            if self.at and len(self.seen) >= self.at[0] and pids:
                self.killed.add(pid := min(pids))
                os.kill(pid, signal.SIGKILL)
                self.at.pop(0)
            time.sleep(0.02)


@pytest.mark.posix
@pytest.mark.parametrize("at", [(2,), pytest.param((1, 4, 8), marks=pytest.mark.slow)])
def test_killed_workers_cost_no_finished_block_and_no_byte(simulated, tmp_path, at):
    tracker = Tracker.generic(cache=tmp_path / "cache", n_jobs=1)
    source = tracker.measure(simulated.movie)
    groups = tracker.groups_for(source)
    pairs = tracker.pairs(source, groups)
    work = MovieProblem(pairs, tracker.coef_, None, 1)
    expected = StoredLineage.of(
        work, ThreadExecutor(1), Checkpoints.for_output(tmp_path / "here")
    )
    kept = Checkpoints.for_output(tmp_path / "there")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killer = Killer(cluster, kept.folder, at=at)
        killer.start()
        found = StoredLineage.of(work, DaskExecutor(client), kept)
        killer.over = True
        killer.join()
    assert len(killer.killed) == len(at)
    assert killer.rewritten == []
    for a, b in ((expected, tmp_path / "a"), (found, tmp_path / "b")):
        write_results(b, a, simulated.movie, ["csv", "parquet"])
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert names.MANIFEST in digest(tmp_path / "a")

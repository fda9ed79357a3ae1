"""--workers, --cluster, --memory-per-worker and --profile: the same bytes as without, and errors that say what fits."""

import hashlib

import pytest
from typer.testing import CliRunner

from clew.cli import app
from clew.cli.options import ComputeOptions, open_client
from clew.errors import InputError
from clew.tracking.io import names

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def address():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        yield cluster.scheduler_address


def run(*arguments):
    return CliRunner().invoke(
        app, [str(argument) for argument in arguments], prog_name="clew"
    )


def tables(folder):
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in (names.EVENTS, names.TRACKS)
    }


def test_a_movie_is_tracked_and_measured_on_a_cluster(simulated, address, tmp_path):
    common = (
        "track",
        simulated.path,
        "--no-cache",
        "--format",
        "ctc,csv",
        "--no-report",
    )
    here = run(*common, "-o", tmp_path / "here", "--jobs", 1)
    assert here.exit_code == 0, here.output
    there = run(
        *common,
        "-o",
        tmp_path / "there",
        "--cluster",
        address,
        "--profile",
        tmp_path / "profile.html",
        "--memory-per-worker",
        "2GB",
    )
    assert there.exit_code == 0, there.output
    assert tables(tmp_path / "here") == tables(tmp_path / "there")
    assert not (tmp_path / "there/.blocks").exists()
    assert "<html" in (tmp_path / "profile.html").read_text()[:500].lower()
    scores = [
        run("evaluate", tmp_path / "there", "--truth", simulated.truth, "--json", *more)
        for more in ((), ("--cluster", address))
    ]
    assert scores[0].exit_code == 0
    assert scores[0].stdout == scores[1].stdout


def test_a_run_that_was_cut_short_goes_on(simulated, tmp_path, monkeypatch):
    from clew.tracking import blocks

    common = (
        "track",
        simulated.path,
        "--no-cache",
        "--format",
        "csv",
        "--no-report",
        "--jobs",
        1,
    )
    monkeypatch.setattr("clew.tracking.tracker.PAIRS_PER_BLOCK", 4)
    assert blocks.PAIRS_PER_BLOCK != 4
    solve, solved = blocks.BlockProblem.solve, []

    def interrupted(self):
        if len(solved) == 2:
            raise KeyboardInterrupt
        solved.append(self.pairs)
        return solve(self)

    monkeypatch.setattr(blocks.BlockProblem, "solve", interrupted)
    assert run(*common, "-o", tmp_path / "a").exit_code != 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".blocks"]
    monkeypatch.setattr(blocks.BlockProblem, "solve", solve)
    again = run(*common, "-o", tmp_path / "a")
    assert again.exit_code == 0
    assert "2 of 4 blocks come from" in again.output
    assert run(*common, "-o", tmp_path / "b").exit_code == 0
    assert tables(tmp_path / "a") == tables(tmp_path / "b")


def test_too_little_memory_is_told_before_anything_is_written(simulated, tmp_path):
    told = run(
        "track",
        simulated.path,
        "--no-cache",
        "-o",
        tmp_path / "out",
        "--memory-per-worker",
        "1MB",
    )
    assert told.exit_code == 2
    assert "expected more than the 450 MiB" in " ".join(told.output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", 2, "--cluster", "tcp://127.0.0.1:1"), "expected one of them"),
        (("--profile", "p.html"), "--profile needs --workers or --cluster"),
        (("--memory-per-worker", "lots"), "expected bytes"),
        (("--workers", 1, "--memory-per-worker", "100MB"), "expected more than the"),
        (("--cluster", "tcp://127.0.0.1:1"), "no Dask scheduler answers there"),
        (("--cluster", "nowhere.json"), "no Dask scheduler answers there"),
    ],
)
def test_what_does_not_fit_is_refused(simulated, tmp_path, options, message):
    told = run("track", simulated.path, "--no-cache", "-o", tmp_path / "out", *options)
    assert told.exit_code == 2
    assert message in " ".join(told.output.split())
    assert not (tmp_path / "out").exists()


def test_a_cluster_without_workers_is_refused(tmp_path):
    with distributed.LocalCluster(
        n_workers=0, processes=False, dashboard_address=":0"
    ) as cluster:
        told = run(
            "evaluate",
            tmp_path,
            "--truth",
            tmp_path,
            "--cluster",
            cluster.scheduler_address,
        )
    assert told.exit_code == 2
    assert "no workers yet" in told.output


def test_workers_of_this_machine_are_processes():
    with open_client(ComputeOptions.of(1, None)) as client:
        assert len(client.nthreads()) == 1
        assert client.submit(sum, [1, 2]).result() == 3
    with open_client(ComputeOptions.of(None, None)) as nobody:
        assert nobody is None
    with pytest.raises(InputError, match="expected one of them"):
        ComputeOptions.of(1, "tcp://127.0.0.1:1")

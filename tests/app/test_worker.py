"""The worker process, the command around it, and how both end."""

import contextlib
import http.client
import importlib
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from clew.app.messages import Asked, Failed, Learn, Learned, Predicted, WorkerMovie
from clew.app.supervisor import Supervisor
from typer.testing import CliRunner

from clew.annotation.learner import Learner
from clew.app import worker
from clew.app.launch import bind_as_before
from clew.app.settings import WorkerSettings
from clew.cli import app
from clew.tracking.events import Annotations, Event, EventTable
from tests.app.conftest import no_loop

NOTHING = Annotations.of(EventTable.empty())
CLEW = [sys.executable, "-m", "clew.cli"]
PATIENCE = 90


class News:
    """What a worker says, to be waited for."""

    def __init__(self):
        self.replies, self.lives = queue.Queue(), queue.Queue()

    def until(self, kind):
        """The next reply of a kind, and those before it."""
        before = []
        while True:
            reply = self.replies.get(timeout=PATIENCE)
            if isinstance(reply, kind):
                return reply, before
            before.append(reply)


@pytest.fixture
def news():
    return News()


@pytest.fixture
def supervisor(source, news):
    made = Supervisor(
        [WorkerMovie(source, None)],
        news.replies.put,
        lambda *life: news.lives.put(life),
    )
    made.start()
    assert news.lives.get(timeout=PATIENCE) == (True, "")
    yield made
    made.close()
    assert made.process.exitcode is not None


def test_the_worker_learns_predicts_and_asks(supervisor, news, simulated):
    supervisor.send(Learn(0, 0, NOTHING, (6,)))
    asked, before = news.until(Asked)
    assert isinstance(before[0], Learned)
    frames = [
        frame for reply in before[1:] for frame in (one.frame for one in reply.pairs)
    ]
    assert (frames[0], sorted(frames)) == (
        6,
        list(range(13)),
    )  # the nearest first, and all of them
    assert len(asked.questions) > 10
    assert len({question.frame for question in asked.questions}) > 5

    supervisor.send(Learn(0, 1, simulated.some, (3,)))
    learned, _ = news.until(Learned)
    assert (learned.revision, learned.version) == (1, 1)
    first, _ = news.until(Predicted)
    solved = first.pairs[0]
    here = simulated.some.at(solved.frame)
    assert (solved.frame, solved.key, solved.version) == (3, here.content_key(), 1)
    assert solved.assignment is None  # it would be long on its way
    assert np.isin(
        here.events.row_keys()[here.happened], solved.events.row_keys()
    ).all()
    asked, _ = news.until(Asked)
    assert asked.revision == 1


def test_a_dead_worker_is_noticed_and_followed_by_another(supervisor, news):
    first = supervisor.process.pid
    os.kill(first, signal.SIGKILL)
    alive, why = news.lives.get(timeout=PATIENCE)
    assert not alive
    assert "-9" in why
    assert news.lives.get(timeout=PATIENCE) == (True, "")
    assert supervisor.process.pid != first
    supervisor.send(Learn(0, 0, NOTHING, (0,)))
    news.until(Asked)


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """A module that the worker's process can import: workers that cannot live, or do not hear."""
    (tmp_path / "bad_workers.py").write_text(
        "import signal, sys, time\n"
        "def fail(connection, movies):\n"
        "    sys.exit(3)\n"
        "def hang(connection, movies):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    connection.send('here')\n"
        "    time.sleep(1000)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("bad_workers")


def test_a_worker_that_always_dies_is_given_up(news, workers):
    supervisor = Supervisor(
        [], news.replies.put, lambda *life: news.lives.put(life), main=workers.fail
    )
    supervisor.start()
    told = [news.lives.get(timeout=PATIENCE) for _ in range(6)]
    assert [alive for alive, _ in told] == [True, False] * 3
    assert "code 3, 3 times in a row" in told[-1][1]
    supervisor.close()


def test_a_worker_that_does_not_hear_is_ended_by_force(news, workers):
    supervisor = Supervisor(
        [], news.replies.put, lambda *life: news.lives.put(life), main=workers.hang
    )
    supervisor.start()
    assert news.replies.get(timeout=PATIENCE) == "here"
    supervisor.close()
    assert (
        supervisor.process.exitcode == -signal.SIGKILL
    )  # it did not end by itself, and nobody waited for that


class Told:
    """An inbox that a test fills."""

    def __init__(self, *commands):
        self.commands = list(commands)

    def take(self):
        taken, self.commands = self.commands, []
        return taken

    def wait(self):
        pass


def replies(workers, inbox, n):
    return [reply for _ in range(n) for reply in worker.turn(workers, inbox)]


def test_newer_annotations_come_before_old_predictions(source, simulated):
    working = worker.MovieWorker(
        0,
        WorkerMovie(source, None),
        WorkerSettings(turn_seconds=0.0, learn_seconds=60.0),
    )
    # one frame a turn, and however busy the machine, what is learned is learned to the end
    inbox = Told(Learn(0, 0, NOTHING, (0,)))
    assert isinstance(replies([working], inbox, 1)[0], Learned)
    replies([working], inbox, 3)
    inbox.commands = [Learn(0, 1, simulated.some, (9,))]
    learned, *predicted = replies([working], inbox, 6)
    assert learned.revision == 1
    assert [reply.pairs[0].frame for reply in predicted] in (
        [9, 10, 8, 11, 7],
        [9, 8, 10, 7, 11],
    )
    later = replies([working], inbox, 20)
    assert any(isinstance(reply, Asked) for reply in later)
    assert not working.is_behind


def test_other_kinds_of_events_are_learned_again(source, simulated):
    working = worker.MovieWorker(0, WorkerMovie(source, None))
    moves = frozenset({Event.MOVE, Event.APPEAR, Event.DISAPPEAR})
    replies([working], Told(Learn(0, 1, simulated.some, (0,))), 30)
    assert not working.is_behind
    found = replies([working], Told(Learn(0, 1, simulated.some, (0,), moves)), 30)
    assert isinstance(found[0], Learned)
    kinds = {
        int(kind)
        for reply in found
        if isinstance(reply, Predicted)
        for one in reply.pairs
        for kind in one.events.event
    }
    annotated = set(simulated.some.events.event[simulated.some.happened].tolist())
    assert kinds <= {int(event) for event in moves} | annotated


def test_questions_come_even_if_answers_never_pause(source):
    working = worker.MovieWorker(
        0,
        WorkerMovie(source, None),
        WorkerSettings(turn_seconds=0.0, learn_seconds=60.0),
    )
    # one frame a turn, and however busy the machine, what is learned is learned to the end
    inbox, found = Told(), []
    for revision in range(30):
        inbox.commands = [Learn(0, revision, NOTHING, (0,))]
        found += replies([working], inbox, 1)  # the next answer is always there already
    assert any(isinstance(reply, Asked) for reply in found)


def test_trouble_with_a_movie_is_told_and_passes(source, monkeypatch):
    working = worker.MovieWorker(0, WorkerMovie(source, None))
    learn = Learner.learn
    monkeypatch.setattr(Learner, "learn", lambda *_: 1 / 0)
    (failed,) = replies([working], Told(Learn(0, 0, NOTHING, (0,))), 1)
    assert isinstance(failed, Failed)
    assert "ZeroDivisionError" in failed.problem
    assert not working.is_behind
    monkeypatch.setattr(Learner, "learn", learn)
    assert isinstance(
        replies([working], Told(Learn(0, 1, NOTHING, (0,))), 1)[0], Learned
    )


def test_predictions_that_lag_keep_to_the_annotations(source, simulated):
    learner = Learner(source, may_lag=True)
    old = learner.solved(3)
    known = (
        simulated.some.to_pairwise()
    )  # a gap from frame 2 says something of frame 3, too
    learner.learn(known[known.events.frame != 3])
    assert learner.solved(3) is old  # of weights that are one version old
    assert learner.renew(3) is not old
    here = simulated.some.at(3)[simulated.some.at(3).happened]
    learner.annotate(here)
    assert np.isin(here.events.row_keys(), learner.solved(3).events.row_keys()).all()
    assert learner.build_lineage().n_frames == 14


# the command in a process of its own


@contextlib.contextmanager
def running(*arguments, **others):
    """The command, until it says its address; ended by force at last."""
    process = subprocess.Popen(
        [*CLEW, "annotate", *arguments, "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        **others,
    )
    try:
        line = process.stdout.readline()
        assert "token=" in line, process.stderr.read()
        process.port = int(line.split("127.0.0.1:")[1].split("/")[0])
        process.token = line.strip().split("token=")[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process, path, method="GET", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
    headers = {"X-Clew-Token": process.token, "Content-Type": "application/json"}
    connection.request(
        method, path, None if body is None else json.dumps(body), headers
    )
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def movie(simulated, tmp_path):
    """A copy of the movie that may be written beside."""
    shutil.copytree(
        simulated.folder, tmp_path / "movie", ignore=shutil.ignore_patterns(".clew")
    )
    return tmp_path / "movie/01"


@pytest.mark.linux
def test_the_whole_page_in_a_process(movie):
    with running(movie) as process:
        answer_one(process)
        until = time.monotonic() + PATIENCE
        while not json.loads(ask(process, "/api/movies/0/questions")[1])["questions"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        refuse_what_only_a_socket_can_send(process)
        listening = [
            row.split()[1]
            for row in Path("/proc/net/tcp").read_text().splitlines()[1:]
            if " 0A " in row
        ]
        port = f"{process.port:04X}"
        assert [address for address in listening if address.endswith(port)] == [
            f"0100007F:{port}"
        ]
        one_line(annotate(movie), "has it open")  # one writer at a time
        stream = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)
        stream.request("GET", f"/api/events?token={process.token}")
        assert (
            b"retry" in stream.getresponse().readline()
        )  # an open stream does not hold the end up
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0
        assert "all answers are kept" in process.stderr.read()
    assert [path.name for path in movie.parent.glob("*clewdb*")] == [
        "01.annotations.clewdb"
    ]


def answer_one(process):
    pair = json.loads(ask(process, "/api/movies/0/pair/0")[1])
    move = next(event for event in pair["events"] if event["event"] == "move")
    body = {
        "key": "k",
        "revision": 0,
        "frame": 0,
        **{k: move[k] for k in ("event", "sources", "targets")},
    }
    assert ask(process, "/api/movies/0/answers", "POST", body)[0] == 200


def refuse_what_only_a_socket_can_send(process):
    """Paths and bodies that no client would send."""

    def status(text, body=b""):
        with socket.create_connection(
            ("127.0.0.1", process.port), timeout=30
        ) as connection:
            connection.sendall(
                text.format(port=process.port, token=process.token).encode() + body
            )
            return int(connection.recv(65536).split()[1])

    head = "Host: 127.0.0.1:{port}\r\nX-Clew-Token: {token}\r\n"
    for path in (
        "/static/../security.py",
        "/static/%2e%2e/security.py",
        "/static/%00",
        "/static/..%2fserver.py",
    ):
        assert status(f"GET {path} HTTP/1.1\r\n{head}\r\n") == 404
    assert (
        status(
            "GET /api/movies HTTP/1.1\r\nHost: evil.example\r\nX-Clew-Token: {token}\r\n\r\n"
        )
        == 403
    )
    assert (
        status("GET /api/movies HTTP/1.0\r\nX-Clew-Token: {token}\r\n\r\n") == 403
    )  # no host at all
    large = f"POST /api/movies/0/answers HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
    assert (
        status(large + "Content-Length: 104857600\r\n\r\n", b"{}") == 413
    )  # though the rest never comes
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    assert status(large + "Transfer-Encoding: chunked\r\n\r\n", chunk * 17) == 413
    assert ask(process, "/api/movies")[0] == 200


def annotate(*arguments):
    with no_loop():
        return CliRunner().invoke(
            app, ["annotate", *map(str, arguments), "--no-browser"]
        )


def one_line(result, words):
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr.splitlines()[-1]


def test_mistakes_are_told_in_a_line(movie, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one_line(
            annotate(movie, "--port", port), f"port {port} of 127.0.0.1 cannot be used"
        )
    one_line(annotate(movie, "--host", "no such host"), "no such address")
    one_line(annotate(tmp_path / "none"), "does not exist")
    one_line(annotate(movie, movie), "twice")
    one_line(annotate(movie, movie.parent, "--labels", movie), "is for one movie")
    one_line(annotate(movie, "--images", movie), "--images")
    one_line(annotate(movie, "--store", tmp_path), "is not a file")
    one_line(annotate(movie, "--weights", tmp_path / "none"), "no such file")
    assert not list(movie.parent.glob("*clewdb*"))


def test_a_movies_page_is_where_it_was_last_so_that_unsent_answers_find_it():
    """They wait in the browser under the page's address; a random port each time would leave them there."""
    with contextlib.closing(bind_as_before("127.0.0.1", None)) as first:
        port = first.getsockname()[1]
        with contextlib.closing(bind_as_before("127.0.0.1", port)) as other:
            assert (
                other.getsockname()[1] != port
            )  # it is taken, and the command says what to do
    with contextlib.closing(bind_as_before("127.0.0.1", port)) as again:
        assert again.getsockname()[1] == port


def test_a_closed_pipe_no_terminal_and_a_path_that_is_no_unicode(movie):
    odd = Path(os.fsdecode(os.fsencode(movie.parent.parent) + b"/m\xff"))
    movie.parent.rename(odd)
    away = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    with running(os.fsencode(odd / "01"), **away) as process:
        assert "?" in json.loads(ask(process, "/api/movies")[1])[0]["name"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(
        [*CLEW, "annotate", os.fsencode(odd / "01"), "--no-browser"],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
        **away,
    )
    os.close(write)
    assert found.returncode in (0, 1)
    assert b"Traceback" not in found.stderr


def test_a_simulated_movie_is_made_once(tmp_path, monkeypatch):
    from clew.cli import annotate as module
    from clew.simulation import write as written

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    made = []

    def write(folder, settings, sequence, progress):
        made.append((folder, settings.frames, settings.cells))
        (folder / sequence).mkdir(parents=True)

    monkeypatch.setattr(written, "write_simulation", write)
    assert module._example() == module._example() == tmp_path / "clew/example/01"
    assert made == [(tmp_path / "clew/example", 60, 40)]


def test_learning_that_was_cut_short_goes_on_when_nobody_answers(source, simulated):
    working = worker.MovieWorker(
        0, WorkerMovie(source, None), WorkerSettings(learn_seconds=1e-9)
    )
    found = replies([working], Told(Learn(0, 1, simulated.some, (3,))), 3)
    assert sum(isinstance(reply, Learned) for reply in found) >= 1
    assert working.learner.is_cut_short
    assert working.is_behind
    working.learner.seconds = None
    replies([working], Told(), 60)
    assert not working.learner.is_cut_short
    assert not working.is_behind
    whole = Learner(source)
    whole.learn(simulated.some)
    assert working.learner.result.objective == pytest.approx(
        whole.result.objective, rel=1e-2
    )

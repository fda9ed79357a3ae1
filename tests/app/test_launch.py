"""The command in a process of its own: its socket, its token, and how it ends."""

import contextlib
import http.client
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
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from clew.app import launch
from clew.app.launch import bind, bind_default, read_token
from clew.cli import app
from clew.cli.annotate import _open_browser
from tests.app.conftest import TOKEN, no_loop

CLEW = [sys.executable, "-m", "clew.cli"]
PATIENCE = 90


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
        assert "all answers are stored" in process.stderr.read()
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
    one_line(annotate(movie, movie.parent, "--labels", movie), "one movie only")
    one_line(annotate(movie, "--images", movie), "--images")
    one_line(annotate(movie, "--store", tmp_path), "is not a file")
    one_line(annotate(movie, "--weights", tmp_path / "none"), "no such file")
    assert not list(movie.parent.glob("*clewdb*"))


def test_port_is_fixed_so_that_unsent_answers_find_the_page():
    """They wait in the browser under the page's address."""
    with contextlib.closing(bind()) as taken:
        port = taken.getsockname()[1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "DEFAULT_PORT", port)
            with contextlib.closing(bind_default("127.0.0.1")) as other:
                assert other.getsockname()[1] != port
            taken.close()
            with contextlib.closing(bind_default("127.0.0.1")) as again:
                assert again.getsockname()[1] == port


@pytest.mark.posix
def test_token_stays_and_only_the_user_can_read_it(tmp_path):
    token = read_token(tmp_path / "state")
    path = tmp_path / "state/token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(tmp_path / "state") == token
    path.chmod(0o644)  # others may have read it
    assert read_token(tmp_path / "state") != token
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").touch()
    assert len(read_token(tmp_path / "file")) >= 32  # nowhere to keep it


@pytest.mark.linux
def test_learning_process_ends_with_a_killed_server(movie):
    with running(movie) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until = time.monotonic() + PATIENCE
        while json.loads(ask(process, "/api/movies/0/status")[1])["learned"] < 0:
            assert time.monotonic() < until
            time.sleep(0.1)
        workers = [int(pid) for pid in children.read_text().split()]
        assert workers
        process.kill()
        while any(_is_running(pid) for pid in workers):
            assert time.monotonic() < until
            time.sleep(0.1)


def _is_running(pid):
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


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
    assert (
        module._make_example() == module._make_example() == tmp_path / "clew/example/01"
    )
    assert made == [(tmp_path / "clew/example", 60, 40)]


def test_browser_is_started_without_the_token(page, monkeypatch):
    """Other users of the machine see its arguments."""
    opened = queue.Queue()
    browser = SimpleNamespace(open_new_tab=opened.put)
    monkeypatch.setattr("webbrowser.get", lambda: browser)
    _open_browser("http://127.0.0.1:8017/", page.server)
    address = opened.get(timeout=30)
    assert TOKEN not in address
    del page.client.headers["X-Clew-Token"]
    reply = page.client.get(address, follow_redirects=False)
    assert reply.headers["location"] == f"?token={TOKEN}"

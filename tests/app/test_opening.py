"""The server while its movies are opened."""

import threading
import time

import numpy as np
import pytest
from starlette.testclient import TestClient

from clew.app.launch import bind, run
from clew.app.server import OpeningStopped, Server
from clew.app.session import PageSession
from clew.errors import InputError
from clew.tracking.segmentation import DetectionSettings
from tests.app.conftest import HOST, PATIENCE, TOKEN, IdleWorker, no_loop

ADDRESSES = [f"http://{HOST}"]


def make_server(open_sessions, addresses=ADDRESSES):
    return Server(
        open_sessions, token=TOKEN, addresses=addresses, make_worker=IdleWorker
    )


def client_of(server):
    client = TestClient(server.app, f"http://{HOST}", raise_server_exceptions=False)
    client.headers["X-Clew-Token"] = TOKEN
    return client


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_progress_is_shown_until_the_movies_are_open(simulated, source, tmp_path):
    go_on = threading.Event()

    def open_sessions(report):
        report("Measuring the cells of 01: frame 3 of 14", 3, 14)
        assert go_on.wait(PATIENCE)
        return [PageSession.open(0, simulated.movie, source, tmp_path / "store")]

    server = make_server(open_sessions)
    with client_of(server) as client:
        until(lambda: client.get("/api/movies").json()["total"])
        waiting = client.get("/api/movies")
        assert waiting.status_code == 503
        assert (waiting.json()["kind"], waiting.json()["done"]) == ("opening", 3)
        assert "frame 3 of 14" in waiting.json()["doing"]
        assert client.post("/api/movies/0/answers", json={}).status_code == 503
        assert "<title>clew</title>" in client.get("/").text
        assert client.get("/static/main.js").status_code == 200
        assert client.get("/", headers={"X-Clew-Token": "wrong"}).status_code == 403
        go_on.set()
        until(lambda: client.get("/api/movies").status_code == 200)
        assert client.get("/api/movies/0/pair/0").status_code == 200
    assert server.failure is None
    assert not list(tmp_path.glob("store.lock"))  # the store was closed


def test_frames_are_shown_while_they_are_measured(simulated, source, tmp_path):
    go_on = threading.Event()

    def open_sessions(report):
        server.preview(simulated.movie)
        assert go_on.wait(PATIENCE)
        return [PageSession.open(0, simulated.movie, source, tmp_path / "store")]

    server = make_server(open_sessions)
    with client_of(server) as client:
        until(lambda: client.get("/api/movies").json()["frames"])
        shown = client.get("/api/opening/3.png")
        assert client.get("/api/opening/99.png").status_code == 404
        go_on.set()
        until(lambda: client.get("/api/movies").status_code == 200)
        assert shown.content == client.get("/api/movies/0/image/3.png").content


def test_cells_are_detected_as_a_person_chose(simulated):
    chosen = []

    def open_sessions(report):
        images = simulated.movie.images
        chosen.append(server.choose_detection(images, DetectionSettings()))
        raise OpeningStopped

    server = make_server(open_sessions)
    with client_of(server) as client:
        until(lambda: client.get("/api/movies").json()["detection"])
        before = client.get("/api/movies").json()["detection"]
        assert before["frames"] == simulated.movie.n_frames
        assert before["cells"] is None
        picture = client.get(
            f"/api/opening/2.png?diameter={before['diameter']}&sensitivity=.5"
        )
        n_cells = client.get("/api/movies").json()["detection"]["cells"]
        assert n_cells == pytest.approx(len(np.unique(simulated.movie.label(2))), abs=5)
        other = client.get("/api/opening/2.png?diameter=200&sensitivity=.5")
        assert picture.content != other.content
        refused = {"diameter": 20, "sensitivity": 1}
        assert client.post("/api/detection", json=refused).status_code == 400
        assert not chosen
        wanted = {"diameter": 21.5, "sensitivity": 0.4}
        assert client.post("/api/detection", json=wanted).status_code == 200
        until(server.is_settled.is_set)
        assert client.post("/api/detection", json=wanted).status_code == 409
    assert (chosen[0].diameter, chosen[0].sensitivity) == (21.5, 0.4)


def test_choice_ends_with_the_server(simulated):
    def open_sessions(report):
        server.choose_detection(simulated.movie.images, DetectionSettings())

    server = make_server(open_sessions)
    with client_of(server) as client:
        until(lambda: client.get("/api/movies").json()["detection"])
        server.end()
        until(server.is_settled.is_set)
    assert server.failure is None


def test_opening_that_is_ended_stops_at_the_next_frame():
    reports = []

    def open_sessions(report):
        while True:
            report("Measuring", len(reports), 10**9)
            reports.append(time.sleep(0.001))

    server = make_server(open_sessions)
    with client_of(server) as client:
        until(lambda: client.get("/api/movies").json()["total"])
        server.end()
        until(server.is_settled.is_set)
    assert server.failure is None


@pytest.mark.parametrize("error", [InputError("no such movie"), OpeningStopped()])
def test_error_of_opening_ends_the_server(error):
    def open_sessions(report):
        raise error

    bound = bind()
    server = make_server(open_sessions, [f"http://127.0.0.1:{bound.getsockname()[1]}"])
    if isinstance(error, OpeningStopped):
        with no_loop():
            run(server, bound)
    else:
        with no_loop(), pytest.raises(InputError, match="no such movie"):
            run(server, bound)

"""The page while its movies are opened."""

import threading
import time

import pytest
from clew.app.opening import Opening, Stopped
from starlette.testclient import TestClient

from clew.annotation.store.store import noted_in
from clew.app.launch import bind, make_server, open_session, run
from clew.errors import InputError
from tests.app.conftest import HOST, TOKEN, Idle, no_loop

ADDRESSES = [f"http://{HOST}"]
PATIENCE = 60


def client_of(opening):
    client = TestClient(opening.app, f"http://{HOST}", raise_server_exceptions=False)
    client.headers["X-Clew-Token"] = TOKEN
    return client


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_page_says_what_is_being_done_and_then_the_server_takes_over(
    simulated, source, tmp_path
):
    go_on = threading.Event()

    def open_server(report):
        report("Measuring the cells of 01: frame 3 of 14", 3, 14)
        assert go_on.wait(PATIENCE)
        session = open_session(0, simulated.movie, source, tmp_path / "store")
        session.store.note("port", 8017)
        return make_server([session], ADDRESSES, TOKEN, supervisor=Idle)[0]

    opening = Opening(open_server, TOKEN, ADDRESSES)
    with client_of(opening) as client:
        until(lambda: client.get("/api/movies").json()["total"])
        waiting = client.get("/api/movies")
        assert (
            waiting.status_code,
            waiting.json()["kind"],
            waiting.json()["done"],
        ) == (503, "opening", 3)
        assert "frame 3 of 14" in waiting.json()["doing"]
        assert client.post("/api/movies/0/answers", json={}).status_code == 503
        assert "<title>clew</title>" in client.get("/").text
        assert client.get("/static/main.js").status_code == 200
        assert client.get("/", headers={"X-Clew-Token": "wrong"}).status_code == 403
        go_on.set()
        until(lambda: client.get("/api/movies").status_code == 200)
        assert client.get("/api/movies/0/pair/0").status_code == 200
    assert opening.failure is None
    assert noted_in(tmp_path / "store", "port") == 8017  # the store was closed
    assert noted_in(tmp_path / "store", "else") is None
    assert noted_in(tmp_path / "none", "port") is None


def test_an_opening_that_is_ended_stops_at_the_next_frame():
    reports = []

    def open_server(report):
        while True:
            report("Measuring", len(reports), 10**9)
            reports.append(time.sleep(0.001))

    opening = Opening(open_server, TOKEN, ADDRESSES)
    with client_of(opening) as client:
        until(lambda: client.get("/api/movies").json()["total"])
        opening.end()
        until(opening.settled.is_set)
    assert opening.failure is None


@pytest.mark.parametrize("error", [InputError("no such movie"), Stopped()])
def test_why_movies_cannot_be_opened_ends_the_serving(error):
    def open_server(report):
        raise error

    bound = bind()
    opening = Opening(
        open_server, TOKEN, [f"http://127.0.0.1:{bound.getsockname()[1]}"]
    )
    if isinstance(error, Stopped):
        with no_loop():
            run(opening, bound)
    else:
        with no_loop(), pytest.raises(InputError, match="no such movie"):
            run(opening, bound)

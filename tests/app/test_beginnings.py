"""Weights of another movie, and what was learned of one movie for the others."""

import numpy as np
import pytest
from clew.app.messages import Learned
from starlette.testclient import TestClient

from clew.app.launch import make_server, open_session
from tests.app.conftest import HOST, TOKEN, Idle
from tests.app.test_server import MOVIE, get, moves, send


@pytest.fixture
def two(simulated, source, tmp_path):
    """A server of two movies, which look alike, and its client."""
    sessions = [
        open_session(n, simulated.movie, source, tmp_path / f"{n}.clewdb")
        for n in (0, 1)
    ]
    server, _ = make_server(sessions, [f"http://{HOST}"], TOKEN, supervisor=Idle)
    with TestClient(
        server.app, f"http://{HOST}", raise_server_exceptions=False
    ) as client:
        client.headers["X-Clew-Token"] = TOKEN
        yield client, sessions, server.supervisor


def test_what_was_learned_of_a_movie_is_applied_to_the_others(
    two, simulated, source, tmp_path
):
    client, (first, other), worker = two
    w = first.predictor.weights.values * np.linspace(
        0.5, 2, len(first.predictor.weights.values)
    )
    client.portal.call(first.take, Learned(0, 0, 3, w, True))
    for t in range(13):
        client.get(f"/api/movies/1/pair/{t}")
    before = client.get("/api/overview").json()[1]
    assert (
        before["weights"],
        before["before"],
        before["tracked"],
        before["pairs"],
    ) == (None, None, 13, 13)
    assert client.post("/api/movies/0/apply").json() == {"applied": 1, "problems": []}
    assert np.allclose(other.predictor.weights.values, w)
    told = worker.sent[-1]
    assert (told.movie, told.start, np.allclose(told.tracker.coef_, w)) == (1, 1, True)
    client.portal.call(
        other.take, Learned(1, 0, 9, -w, True)
    )  # from before: no longer of interest
    assert np.allclose(other.predictor.weights.values, w)
    after = client.get("/api/overview").json()
    assert [one["weights"] for one in after] == [None, simulated.movie.name]
    assert (after[1]["before"], after[1]["wrong"]) == (
        before["wrong"],
        None,
    )  # to be tracked anew
    client.portal.call(other.store.close)
    again = open_session(1, simulated.movie, source, tmp_path / "1.clewdb")
    assert np.allclose(again.predictor.weights.values, w)
    again.close()
    chosen = open_session(
        1,
        simulated.movie,
        source,
        tmp_path / "1.clewdb",
        first.tracker,
        as_before=False,
    )
    assert (chosen.beginning, np.allclose(chosen.predictor.weights.values, w)) == (
        None,
        False,
    )
    chosen.close()


def test_weights_of_another_movie_come_from_a_file(page):
    (move, *_) = moves(get(page, "/pair/0"))
    send(page, move)
    page.client.portal.call(
        page.session.take,
        Learned(0, 1, 1, 2 * page.session.predictor.weights.values, True),
    )
    weights = page.client.get(MOVIE + "/export/weights").content
    reply = page.client.post(
        MOVIE + "/import?key=w&file=other.weights.clew", content=weights
    )
    assert reply.json() == {"weights": "other.weights.clew"}
    assert page.server.supervisor.sent[-1].start == 1
    assert [
        one["pinned"]
        for one in moves(get(page, "/pair/0"))
        if one["sources"] == move["sources"]
    ] == [True]
    bad = page.client.post(MOVIE + "/import?key=x&file=bad.clew", content=b"no weights")
    assert bad.status_code == 400
    assert page.session.start == 1


def test_kinds_of_events_are_looked_for_once(simulated, source, tmp_path, monkeypatch):
    from clew.tracking import tracker as module
    from clew.tracking.tracker import Tracker

    looked, look = [], module.decide_events
    monkeypatch.setattr(
        module,
        "decide_events",
        lambda *given, **others: looked.append(1) or look(*given, **others),
    )
    found = []
    for tracker in (
        Tracker.generic(),
        Tracker.generic(),
        Tracker.generic().set_params(events="divide"),
    ):
        session = open_session(0, simulated.movie, source, tmp_path / "store", tracker)
        found.append((len(looked), session.event_names(), session.tracker.events))
        session.close()
    (first, second, named) = found
    assert first == second == (1, first[1], "auto")  # what is exported looks for itself
    assert named == (1, ["appear", "disappear", "divide", "move"], "divide")

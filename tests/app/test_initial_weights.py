"""Weights of another movie, and weights of one movie for the others."""

import numpy as np
import pytest

from clew.annotation.worker import Fit, _MovieLearner
from clew.app.session import PageSession
from clew.tracking.events import Event
from tests.app.conftest import serve_sessions, use_weights
from tests.app.test_server import MOVIE, get, moves, send


@pytest.fixture
def two(simulated, source, tmp_path):
    """A server of two movies, which look alike."""

    def open_sessions(_):
        return [
            PageSession.open(n, simulated.movie, source, tmp_path / f"{n}.clewdb")
            for n in (0, 1)
        ]

    with serve_sessions(open_sessions) as page:
        yield page


def test_weights_of_a_movie_are_applied_to_the_others(two, simulated, source, tmp_path):
    client = two.client
    first, other = two.server.sessions
    values = first.predictions.weights.values
    w = values * np.linspace(0.5, 2, len(values))
    use_weights(two, w)
    for t in range(13):
        client.get(f"/api/movies/1/pair/{t}")
    before = client.get("/api/overview").json()[1]
    assert (before["weights"], before["before"]) == (None, None)
    assert (before["tracked"], before["pairs"]) == (13, 13)
    old_task = other.loop.task
    assert client.post("/api/movies/0/apply").json() == {"applied": 1, "problems": []}
    assert np.allclose(other.predictions.weights.values, w)
    assert np.allclose(other.loop.task.tracker.coef_, w)
    assert other.loop.task.tracker is not old_task.tracker
    # a fit that began before is not used
    late = Fit(-w, True)
    client.portal.call(other.loop.use_fit, old_task, late)
    assert np.allclose(other.predictions.weights.values, w)
    after = client.get("/api/overview").json()
    assert [one["weights"] for one in after] == [None, simulated.movie.name]
    assert (after[1]["before"], after[1]["wrong"]) == (before["wrong"], None)
    client.portal.call(other.store.close)
    again = PageSession.open(1, simulated.movie, source, tmp_path / "1.clewdb")
    assert np.allclose(again.predictions.weights.values, w)
    again.close()
    chosen = PageSession.open(
        1,
        simulated.movie,
        source,
        tmp_path / "1.clewdb",
        first.tracker,
        use_stored_weights=False,
    )
    assert chosen.initial_weights is None
    assert not np.allclose(chosen.predictions.weights.values, w)
    chosen.close()


def test_weights_of_another_movie_come_from_a_file(page):
    (move, *_) = moves(get(page, "/pair/0"))
    send(page, move)
    use_weights(page, 2 * page.session.predictions.weights.values)
    before = page.session.loop.task.tracker
    weights = page.client.get(MOVIE + "/export/weights").content
    reply = page.client.post(
        MOVIE + "/import?key=w&file=other.weights.clew", content=weights
    )
    assert reply.json() == {"weights": "other.weights.clew"}
    tracker = page.session.loop.task.tracker
    assert tracker is not before
    pinned = [
        one["pinned"]
        for one in moves(get(page, "/pair/0"))
        if one["sources"] == move["sources"]
    ]
    assert pinned == [True]
    bad = page.client.post(MOVIE + "/import?key=x&file=bad.clew", content=b"no weights")
    assert bad.status_code == 400
    assert page.session.loop.task.tracker is tracker


def test_movie_is_profiled_once(simulated, source, tmp_path, monkeypatch):
    from clew.tracking import tracker as module
    from clew.tracking.tracker import Tracker

    profiled = []
    estimate_profile = module.estimate_profile

    def count(*arguments, **options):
        profiled.append(1)
        return estimate_profile(*arguments, **options)

    monkeypatch.setattr(module, "estimate_profile", count)
    found = []
    for tracker in (
        Tracker.generic(),
        Tracker.generic(),
        Tracker.generic().set_params(events="divide"),
    ):
        session = PageSession.open(
            0, simulated.movie, source, tmp_path / "store", tracker
        )
        profile = session.predictions.cache.pairs.profile
        found.append((len(profiled), profile, session.tracker.events))
        # The learning process does not profile the movie again.
        working = _MovieLearner(session.unedited_source)
        assert working.prepare(session._make_task()).pairs.profile == profile
        session.close()
    first, again, named = found
    assert first[0] == again[0] == 1
    assert first[1] == again[1]
    assert first[1].medians == again[1].medians
    assert again[2] == "auto"  # what is exported profiles other movies
    assert (named[0], named[2]) == (2, "divide")
    assert Event.SPLIT not in named[1].events

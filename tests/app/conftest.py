"""Servers over a simulated movie, without a process and without a worker."""

import asyncio
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

TOKEN = "a-token-for-tests"
HOST = "127.0.0.1:8017"


@contextmanager
def no_loop():
    """A thread without a running loop: the browser of other tests leaves its own in this one, between two calls."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


class Idle:
    """Stands for the worker: it hears what it is told, and says what the test lets it say."""

    def __init__(self, movies, on_reply, on_life):
        self.movies, self.on_reply, self.on_life = movies, on_reply, on_life
        self.sent = []

    def start(self):
        self.on_life(True, "")

    def send(self, command):
        self.sent.append(command)

    def close(self):
        pass


@contextmanager
def serving(movie, measured, store, **others):
    """A server with a client that knows the token, and what is behind it."""
    from clew.app.launch import make_server, open_session

    session = open_session(0, movie, measured, store)
    server, _ = make_server(
        [session],
        [f"http://{HOST}", "http://localhost:8017"],
        TOKEN,
        supervisor=Idle,
        **others,
    )
    with TestClient(
        server.app, f"http://{HOST}", raise_server_exceptions=False
    ) as client:
        client.headers["X-Clew-Token"] = TOKEN
        yield SimpleNamespace(
            client=client, server=server, session=session, app=server.app
        )


@pytest.fixture(scope="session")
def source(simulated, tmp_path_factory):
    """The measured cells of `simulated`."""
    from clew.tracking.measurement.measure import measure_movie

    return measure_movie(
        simulated.movie, cache=tmp_path_factory.mktemp("cache"), n_jobs=1
    )


@pytest.fixture
def serve(simulated, source, tmp_path):
    """Makes servers, one after the other on the same store."""
    return partial(
        serving,
        **{
            "movie": simulated.movie,
            "measured": source,
            "store": tmp_path / "answers.clewdb",
        },
    )


@pytest.fixture
def page(serve):
    """A server."""
    with serve() as served:
        yield served


@pytest.fixture(scope="module")
def still(simulated, source, tmp_path_factory):
    """A server that many tests share: nothing that they do may change anything."""
    with serving(
        simulated.movie, source, tmp_path_factory.mktemp("still") / "answers.clewdb"
    ) as served:
        yield served
        assert served.session.store.revision == 0

"""Servers over a simulated movie, in this process and without a learning process."""

import asyncio
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

TOKEN = "a-token-for-tests"
HOST = "127.0.0.1:8017"
PATIENCE = 120


@contextmanager
def no_loop():
    """A thread without a running loop: the browser of other tests leaves its own."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


class IdleWorker:
    """Stands for the learning process: its calls never return."""

    is_given_up = False

    def __init__(self, sources, on_status):
        on_status(True, "")

    async def fit(self, *_):
        await asyncio.Event().wait()

    async def predict(self, *_):
        await asyncio.Event().wait()

    def interrupt(self):
        pass

    def close(self):
        pass


@contextmanager
def serve_sessions(open_sessions, **options):
    """A server whose movies are open, with a client that has the token."""
    from clew.app.server import Server

    server = Server(
        open_sessions,
        token=TOKEN,
        addresses=[f"http://{HOST}", "http://localhost:8017"],
        make_worker=IdleWorker,
        **options,
    )
    with TestClient(
        server.app, f"http://{HOST}", raise_server_exceptions=False
    ) as client:
        assert server.is_settled.wait(PATIENCE)
        if server.failure is not None:
            raise server.failure
        client.headers["X-Clew-Token"] = TOKEN
        yield SimpleNamespace(
            client=client,
            server=server,
            session=server.sessions[0],
            app=server.app,
        )


@contextmanager
def serving(movie, measured, store, **options):
    """A server of one movie."""
    from clew.app.session import PageSession

    def open_sessions(_):
        return [PageSession.open(0, movie, measured, store)]

    with serve_sessions(open_sessions, **options) as page:
        yield page


def use_weights(page, weights, is_complete=True, session=None):
    """Let a session take new weights over, as if they had been learned."""
    from clew.annotation.worker import Fit

    loop = (session or page.session).loop
    page.client.portal.call(loop.use_fit, loop.task, Fit(weights, is_complete))


def finish_learning(page, session=None):
    """Let a session hear that all predictions are renewed."""

    def finish(loop):
        loop.is_busy = False
        loop.listener("questions", {"revision": loop.task.revision})

    page.client.portal.call(finish, (session or page.session).loop)


@pytest.fixture(scope="session")
def source(simulated, tmp_path_factory):
    """The measured cells of `simulated`."""
    from clew.tracking.measurement.measure import measure_movie

    cache = tmp_path_factory.mktemp("cache")
    return measure_movie(simulated.movie, cache=cache, n_jobs=1)


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

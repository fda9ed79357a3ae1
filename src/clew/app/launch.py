"""Running the page: a socket on this machine, the server on it, and a clean end."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol
from urllib.parse import urlsplit

import uvicorn

from clew.annotation.cell_positions import Positions
from clew.annotation.learner import Learner
from clew.annotation.predictions import Predictor, Weights
from clew.annotation.store.movie_identity import MovieIdentity
from clew.annotation.store.store import Store
from clew.app.beginnings import Beginning, as_looked_at, decided, keep_kinds
from clew.app.masks import Masks
from clew.app.messages import WorkerMovie
from clew.app.opening import Opening
from clew.app.security import new_token
from clew.app.server import Server
from clew.app.session import Session
from clew.app.settings import SESSION
from clew.errors import InputError
from clew.tracking.detections import Source
from clew.tracking.movie import Movie
from clew.tracking.tracker import Tracker

Bound = socket.socket
LOOPBACK = "127.0.0.1"
LAST_SECONDS = 2
"""That requests under way have when the server ends."""
SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP")
    if hasattr(signal, name)
]


def bind(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"--host {host}: there is no such address ({error})"
        ) from error
    try:
        if sys.platform == "win32":  # elsewhere this would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"port {port} of {host} cannot be used ({reason}); choose another --port, or leave it out for a free one"
        ) from error
    return bound


def bind_as_before(host: str, last: int | None) -> socket.socket:
    """The port that a movie's page had last, if it is free: another one is another origin to a browser.

    Answers that could not be sent wait in the browser under the page's address, and would not be found there.
    """
    with contextlib.suppress(InputError):
        return bind(host, last or 0)
    return bind(host)


def addresses_of(
    bound: socket.socket, host: str = LOOPBACK, scheme: str = "http", public: str = ""
) -> list[str]:
    """The addresses under which a browser may ask for the page: its own ones, and one that leads to it."""
    port = bound.getsockname()[1]
    names = {LOOPBACK, "localhost", "[::1]", _bracketed(host)}
    address = bound.getsockname()[0]
    if ipaddress.ip_address(
        address.partition("%")[0]
    ).is_unspecified:  # all addresses of this machine
        names |= {socket.gethostname(), socket.getfqdn()}
        with contextlib.suppress(OSError):
            names |= {
                _bracketed(str(info[4][0]))
                for info in socket.getaddrinfo(socket.gethostname(), None)
            }
    own = [f"{scheme}://{name}:{port}" for name in sorted(names)]
    return [*own, public] if public else own


def check_public(address: str) -> str:
    """An address under which another server, or the end of a tunnel, hands requests on to the page."""
    parts = urlsplit(address)
    if (
        parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise InputError(
            f"--public {address}: expected an address as in https://lab.example/clew/"
        )
    return address if address.endswith("/") else f"{address}/"


@dataclass(frozen=True)
class Address:
    """Where the page is."""

    base: str
    scheme: str
    port: int
    token: str

    @classmethod
    def of(
        cls, bound: Bound, host: str, scheme: str, public: str, token: str
    ) -> Address:
        """That of a socket; `public` if browsers reach it under another one."""
        name, port = (
            host if host not in ("0.0.0.0", "::") else "localhost",
            bound.getsockname()[1],
        )
        return cls(
            public or f"{scheme}://{_bracketed(name)}:{port}/", scheme, port, token
        )

    def __str__(self) -> str:
        """As it is opened."""
        return f"{self.base}?token={self.token}"


@dataclass(frozen=True)
class Certificate:
    """Files for TLS, in PEM."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Refuse files that are none, before anything is served."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.certificate, self.key
            )
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                f"--tls-cert {self.certificate} with --tls-key {self.key}: {error}"
            ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def open_session(
    number: int,
    movie: Movie,
    source: Source,
    store: Path,
    tracker: Tracker | None = None,
    as_before: bool = True,
) -> Session:
    """A movie ready to be annotated; its store is opened for writing.

    It begins with the weights of `tracker`; `as_before`, with those of another movie that a person chose on its page.
    """
    opened = Store.open(
        store,
        movie=MovieIdentity.of(movie),
        holds=Positions(source, movie.spacing).holds,
    )
    try:
        masks = Masks.of(movie, source, opened.edits())
        chosen = Beginning.kept(opened) if as_before else None
        tracker = (tracker or Tracker.generic()) if chosen is None else chosen.tracker()
        learner = Learner(
            masks.positions.source, tracker=as_looked_at(opened, source, tracker)
        )
        keep_kinds(opened, source, tracker, learner.pairs.events)
        predictor = Predictor(
            learner.pairs, Weights(learner.version, learner.w), SESSION.kept_candidates
        )
        return Session(number, masks, opened, predictor, tracker, chosen)
    except BaseException:
        opened.close()
        raise


def make_server(
    sessions: Sequence[Session],
    addresses: Sequence[str],
    token: str | None = None,
    **others: Any,
) -> tuple[Server, str]:
    """The server of some sessions, and its token."""
    token = token or new_token()
    movies = [
        WorkerMovie(
            session.changes.masks.source,
            decided(session.tracker, session.predictor.events),
        )
        for session in sessions
    ]
    return Server(sessions, movies, token=token, addresses=addresses, **others), token


class Served(Protocol):
    """What can be served: a server, or the opening of one."""

    @property
    def app(self) -> Any:
        """The ASGI application."""

    def end(self) -> None:
        """Let go of what would go on forever."""


def run(
    server: Served,
    bound: socket.socket,
    on_start: Callable[[], None] = lambda: None,
    tls: Certificate | None = None,
) -> None:
    """Serve until Ctrl-C or a signal to end; then everything is closed. Why movies could not be opened is raised."""
    config = uvicorn.Config(
        server.app,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        interface="asgi3",
        timeout_graceful_shutdown=LAST_SECONDS,
        timeout_keep_alive=60,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    uvicorn_server = _Uvicorn(config, server, on_start)
    if isinstance(server, Opening):
        server.stop = uvicorn_server.stop
    uvicorn_server.run(sockets=[bound])
    if isinstance(server, Opening) and server.failure is not None:
        raise server.failure


class _Uvicorn(uvicorn.Server):
    """Uvicorn that ends the streams of news when it is to end, and returns instead of dying of the signal."""

    def __init__(
        self, config: uvicorn.Config, served: Served, on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._served, self._on_start = served, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does, then tell."""
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as long as the server runs; a second one ends it at once."""
        former = {which: signal.signal(which, self.handle_exit) for which in SIGNALS}
        try:
            yield
        finally:
            for which, handler in former.items():
                signal.signal(which, handler)

    def stop(self) -> None:
        """End without a signal."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End: first the streams, that would go on forever."""
        self._served.end()
        super().handle_exit(sig, frame)

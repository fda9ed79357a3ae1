"""Running the page: a socket on this machine, the server on it, and a clean end."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import uvicorn

from clew.app.security import make_token
from clew.app.server import Server
from clew.errors import InputError
from clew.utils.storage import user_folder

Socket = socket.socket
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8637
"""Fixed, since answers that could not be sent wait in the browser under the page's
address."""
SHUTDOWN_SECONDS = 2
"""That running requests have when the server ends."""
SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP")
    if hasattr(signal, name)
]


def bind(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"--host {host}: there is no such address ({error})"
        ) from error
    try:
        if sys.platform == "win32":
            # SO_REUSEADDR would let two servers share a port there.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"port {port} of {host} cannot be used ({reason}); choose another --port, "
            "or omit it for a free one"
        ) from error
    return bound


def bind_default(host: str) -> socket.socket:
    """Return a socket on the default port, or on a free one if that is taken."""
    with contextlib.suppress(InputError):
        return bind(host, DEFAULT_PORT)
    return bind(host)


def read_token(folder: Path | None = None) -> str:
    """Return the token of this user's pages, the same for each run.

    A tab that was open when the server was killed can then connect again. The file is
    readable by the user alone; one that others can read is replaced. If no file can be
    written, the token is new.
    """
    path = (folder or user_folder("state")) / "token"
    with contextlib.suppress(OSError, UnicodeError):
        is_private = os.name != "posix" or not path.stat().st_mode & 0o077
        token = path.read_text("ascii").strip()
        if is_private and len(token) >= 32:
            return token
    token = make_token()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
    return token


def allowed_addresses(
    bound: socket.socket, host: str = LOOPBACK, scheme: str = "http", public: str = ""
) -> list[str]:
    """Return the addresses under which a browser may ask for the page.

    Parameters
    ----------
    bound : socket
    host : str
        As the user gave it.
    scheme : str
    public : str
        Another address that leads to the page, of a proxy or a tunnel.
    """
    address, port = bound.getsockname()[:2]
    names = {LOOPBACK, "localhost", "[::1]", _add_brackets(host)}
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        # All addresses of this machine.
        names |= {socket.gethostname(), socket.getfqdn()}
        with contextlib.suppress(OSError):
            own = socket.getaddrinfo(socket.gethostname(), None)
            names |= {_add_brackets(str(info[4][0])) for info in own}
    addresses = [f"{scheme}://{name}:{port}" for name in sorted(names)]
    return [*addresses, public] if public else addresses


def check_public(address: str) -> str:
    """Validate the address of a proxy or a tunnel that leads to the page."""
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
        cls, bound: socket.socket, host: str, scheme: str, public: str, token: str
    ) -> Address:
        """Return the address of a socket, or the public one."""
        name = "localhost" if host in ("0.0.0.0", "::") else _add_brackets(host)
        port = bound.getsockname()[1]
        return cls(public or f"{scheme}://{name}:{port}/", scheme, port, token)

    def __str__(self) -> str:
        """Return the address to open, with the token."""
        return f"{self.base}?token={self.token}"


@dataclass(frozen=True)
class Certificate:
    """Files for TLS, in PEM."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise InputError if the files cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                f"--tls-cert {self.certificate} with --tls-key {self.key}: {error}"
            ) from error


def _add_brackets(host: str) -> str:
    """Return a host as it stands in an address."""
    return f"[{host}]" if ":" in host else host


def run(
    server: Server,
    bound: socket.socket,
    on_start: Callable[[], None] = lambda: None,
    tls: Certificate | None = None,
) -> None:
    """Serve until Ctrl-C or a signal; raise whatever kept movies from opening."""
    config = uvicorn.Config(
        server.app,
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        interface="asgi3",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        timeout_keep_alive=60,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    uvicorn_server = _UvicornServer(config, server, on_start)
    server.stop = uvicorn_server.stop
    uvicorn_server.run(sockets=[bound])
    if server.failure is not None:
        raise server.failure


class _UvicornServer(uvicorn.Server):
    """Uvicorn that ends event streams on a signal, and returns instead of dying."""

    def __init__(
        self, config: uvicorn.Config, server: Server, on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._server = server
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then call `on_start`."""
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs; a second one ends it at once."""
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
        """End; event streams first, since they would go on forever."""
        self._server.end()
        super().handle_exit(sig, frame)

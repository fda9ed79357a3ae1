"""Access control: only the page itself, on this machine, with its token.

A page on the web can make a browser send requests to this machine. It does not know
the token, its Origin is another one, and a host name that it points at this machine
(DNS rebinding) is not among the allowed hosts.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 2**20
"""Bytes of a request; an answer has a few hundred."""
MAX_FILE = 2**26
"""Bytes of an uploaded file."""
UPLOAD_PATH = "/import"
"""The end of the addresses that take files."""
MAX_PATH = 1000
"""Characters of a path; the page's have fewer than 100."""
MAX_FIELDS = 20
"""Fields of a query string."""
TOKEN_HEADER = "x-clew-token"
TOKEN_QUERY = "token"
TICKET_QUERY = "ticket"
PUBLIC_PATH = "/static/"
"""The page's own scripts and styles are no secret."""
CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # the address has the token
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
OWN_SITES = ("same-origin", "none")
"""Sec-Fetch-Site of requests by the page itself, and of addresses that were typed."""


def make_token() -> str:
    """Return a random secret that fits into an address."""
    return secrets.token_urlsafe(24)


def reject(status: int, message: str) -> JSONResponse:
    """Return an error for the page."""
    return JSONResponse({"error": message}, status)


class BodyTooLarge(Exception):
    """A request has more bytes than allowed; the rest is not read."""


class SecurityMiddleware:
    """Checks every request, and adds the security headers to every response.

    Parameters
    ----------
    app : ASGIApp
    token : str
    addresses : collection of str
        Under which browsers reach the page, as in http://127.0.0.1:8017.
    """

    def __init__(self, app: ASGIApp, token: str, addresses: Collection[str]) -> None:
        parts = [urlsplit(address.lower()) for address in addresses]
        self.app = app
        self.token = token
        self.hosts = frozenset(part.netloc for part in parts)
        self.origins = frozenset(f"{part.scheme}://{part.netloc}" for part in parts)
        self._ticket = ""
        self._is_ticket_used = False

    def make_ticket(self) -> str:
        """Return what opens the page in place of the token until the page is open.

        The browser is started with it, since all users of a machine see the arguments
        of programs, and the token is the same for all pages.
        """
        self._ticket = make_token()
        self._is_ticket_used = False
        return self._ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        reply = self._check_access(scope) or _check_length(scope) or self.app
        limit = _body_limit(scope)
        await reply(scope, _limit_body(receive, limit), _add_headers(send))

    def _check_access(self, scope: Scope) -> Response | None:
        """Return the reply to a request that may not be served as it is."""
        headers = Headers(scope=scope)
        path = scope["path"]
        if not _is_single_member(headers.getlist("host"), self.hosts):
            return reject(403, "this page answers under its own address only")
        origins = headers.getlist("origin")
        if origins and not _is_single_member(origins, self.origins):
            return reject(403, "other sites may not use this page")
        if path.startswith(PUBLIC_PATH) and scope["method"] in ("GET", "HEAD"):
            return None
        # A link may lead to the page; anything else must be asked for by the page.
        site = headers.get("sec-fetch-site", "none")
        if path != "/" and site not in OWN_SITES:
            return reject(403, "other sites may not use this page")
        query = _parse_query(scope)
        tickets = query.get(TICKET_QUERY, [])
        if path == "/" and self._ticket and _are_all(tickets, self._ticket):
            self._is_ticket_used = True
            return RedirectResponse(f"?{TOKEN_QUERY}={self.token}", 303)
        header_tokens = headers.getlist(TOKEN_HEADER)
        if not _are_all([*header_tokens, *query.get(TOKEN_QUERY, [])], self.token):
            return reject(
                403,
                "the token is missing or wrong; open the address that clew annotate "
                "printed",
            )
        if header_tokens and self._is_ticket_used:  # the page is open
            self._ticket = ""
        return None


def _parse_query(scope: Scope) -> dict[str, list[str]]:
    """Return the fields of an address; none if there are more than the page sends."""
    try:
        text = scope["query_string"].decode("latin-1")
        return parse_qs(text, max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}


def _are_all(values: list[str], secret: str) -> bool:
    """Return whether a secret is present and nothing else is, in constant time."""
    expected = secret.encode()
    are_right = [
        secrets.compare_digest(value.encode("utf-8", "replace"), expected)
        for value in values
    ]
    return bool(are_right) and all(are_right)


def _is_single_member(values: list[str], allowed: frozenset[str]) -> bool:
    """Return whether a header is present once, with an allowed value."""
    return len(values) == 1 and values[0].lower() in allowed


def _body_limit(scope: Scope) -> int:
    """Return how many bytes a request may have."""
    return MAX_FILE if scope["path"].endswith(UPLOAD_PATH) else MAX_BODY


def reject_large_body() -> JSONResponse:
    """Return the reply to a body that is too large."""
    content = {
        "error": f"a request may have {MAX_BODY >> 20} MB, a file {MAX_FILE >> 20} MB"
    }
    # The rest of the body is still to come: the connection cannot be used again.
    return JSONResponse(content, 413, {"connection": "close"})


def _check_length(scope: Scope) -> JSONResponse | None:
    """Reject a long path, and a body by its declared length, before it is read."""
    if len(scope["path"]) > MAX_PATH:
        return reject(414, f"a path may have {MAX_PATH} characters")
    length = Headers(scope=scope).get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        return reject(400, "the content length is not a number")
    if len(length) > 12 or int(length) > _body_limit(scope):
        return reject_large_body()
    return None


def _limit_body(receive: Receive, limit: int) -> Receive:
    """Count the bytes of a body while they arrive; chunks declare no length."""
    n_bytes = 0

    async def receive_counted() -> Message:
        nonlocal n_bytes
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if n_bytes > limit:
            raise BodyTooLarge
        return message

    return receive_counted


def _add_headers(send: Send) -> Send:
    """Add the security headers to a response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers

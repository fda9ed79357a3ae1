"""Who may speak to the page: the holder of its token, from this machine, through the page itself.

A page on the web can make a browser send requests to this machine. It does not know the token, its Origin is another,
and a name that it points at this machine (DNS rebinding) is not among the hosts.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 2**20
"""Bytes that a request may carry; an answer has some hundred."""
MAX_FILE, FILES = 2**26, "/import"
"""Bytes of a file, and the end of the address where one may be sent."""
TOKEN_HEADER, TOKEN_QUERY = "x-clew-token", "token"
OPEN = "/static/"
"""What lies under it is no secret: the page's own scripts and styles."""
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # the address holds the token
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
OWN_SITE = ("same-origin", "none")
"""What a browser says of requests by the page itself, and of addresses that a person typed."""


def new_token() -> str:
    """A secret that nobody guesses, fit for an address."""
    return secrets.token_urlsafe(24)


def refusal(status: int, message: str) -> JSONResponse:
    """An error as the page gets it."""
    return JSONResponse({"error": message}, status)


class JSONText(JSONResponse):
    """JSON in plain ASCII: also names that are no valid Unicode get through."""

    def render(self, content: Any) -> bytes:
        """The bytes of the content."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Guard:
    """Stands before the application: checks every request, and marks every response with the page's policy."""

    def __init__(self, app: ASGIApp, token: str, addresses: Collection[str]) -> None:
        """`addresses` are those under which browsers reach the page, as in http://127.0.0.1:8017."""
        parts = [urlsplit(address.lower()) for address in addresses]
        self.app, self.token = app, token
        self.hosts = frozenset(part.netloc for part in parts)
        self.origins = frozenset(f"{part.scheme}://{part.netloc}" for part in parts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application do so."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._refuse(scope) or _refuse_length(scope) or self.app
        await answer(scope, _counted(receive, _most(scope)), _marked(send))

    def _refuse(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if not _is_one_of(headers.getlist("host"), self.hosts):
            return refusal(403, "this page answers under its own address only")
        if "origin" in headers and not _is_one_of(
            headers.getlist("origin"), self.origins
        ):
            return refusal(403, "another site may not ask this page")
        if scope["path"].startswith(OPEN) and scope["method"] in ("GET", "HEAD"):
            return None
        # a person may follow a link to the page; what asks for anything else is a page, and must be this one
        if (
            scope["path"] != "/"
            and headers.get("sec-fetch-site", "none") not in OWN_SITE
        ):
            return refusal(403, "another site may not ask this page")
        if not self._has_token(scope, headers):
            return refusal(
                403,
                "the token is missing or wrong; open the address that clew annotate printed",
            )
        return None

    def _has_token(self, scope: Scope, headers: Headers) -> bool:
        query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=20)
        given = [*headers.getlist(TOKEN_HEADER), *query.get(TOKEN_QUERY, [])]
        return len(given) > 0 and all(
            secrets.compare_digest(one.encode("utf-8", "replace"), self.token.encode())
            for one in given
        )


def _is_one_of(values: list[str], own: frozenset[str]) -> bool:
    """Whether a header is there once, and names this server."""
    return len(values) == 1 and values[0].lower() in own


class TooLarge(Exception):
    """A body of more bytes came than may; it is not read to its end."""


def _most(scope: Scope) -> int:
    """How many bytes a request may carry."""
    return MAX_FILE if scope["path"].endswith(FILES) else MAX_BODY


def too_large() -> JSONResponse:
    """The answer to it."""
    headers = {"connection": "close"}  # for the rest of the body is still to come
    return JSONResponse(
        {
            "error": f"a request may carry {MAX_BODY >> 20} MB at most, a file {MAX_FILE >> 20} MB"
        },
        413,
        headers,
    )


def _refuse_length(scope: Scope) -> JSONResponse | None:
    """A body that says itself that it is too large is not read at all."""
    length = Headers(scope=scope).get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        return refusal(400, "the length of the body is no number")
    return too_large() if len(length) > 12 or int(length) > _most(scope) else None


def _counted(receive: Receive, most: int) -> Receive:
    """The body of a request, counted as it comes: one that is sent in chunks does not say how long it is."""
    n_bytes = 0

    async def counted() -> Message:
        nonlocal n_bytes
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if n_bytes > most:
            raise TooLarge
        return message

    return counted


def _marked(send: Send) -> Send:
    """Adds the page's policy to a response."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return marked

"""The page while its movies are opened, which takes minutes the first time: what is being done, and how far it is.

The address works from the start. What opens the movies runs in a thread; when it is through, its server takes over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from clew.app.security import Guard, JSONText
from clew.app.server import REVALIDATE, STATIC, PageFiles, Server

Report = Callable[[str, int, int], None]
"""Called with what is being done, and how many parts of how many are."""


class Stopped(Exception):
    """The person ended it meanwhile."""


class Opening:
    """Serves the page itself, and answers all else by how far the opening is, until there is a server."""

    def __init__(
        self,
        open_server: Callable[[Report], Server],
        token: str,
        addresses: Sequence[str],
        announce: Callable[[Server], None] = lambda _: None,
        static: Path = STATIC,
    ) -> None:
        """`announce` is called when the server has taken over."""
        self._open_server, self._announce, self._static = open_server, announce, static
        self.failure: BaseException | None = None
        """Why the movies could not be opened."""
        self.stop: Callable[[], None] = _nothing
        """Ends the serving; called when the movies cannot be opened."""
        self.settled = threading.Event()
        """Whether they are open, or it is known that they cannot be."""
        self._doing: tuple[str, int, int] = ("Opening the movie", 0, 0)
        self._server: Server | None = None
        self._ended, self._through = threading.Event(), asyncio.Event()
        self._life = AsyncExitStack()
        routes = [
            Route("/", self._index),
            Mount("/static", PageFiles(directory=static)),
            Route("/{rest:path}", self._wait, methods=["GET", "POST"]),
        ]
        self._page = Guard(Starlette(routes=routes), token, addresses)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The server's application as soon as there is one."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._server is not None:
            await self._server.app(scope, receive, send)
        else:
            await self._page(scope, receive, send)

    def end(self) -> None:
        """Let go of what would go on forever: streams of events, and the opening itself."""
        self._ended.set()
        if self._server is not None:
            self._server.end()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start at once, open meanwhile; at the end, whatever was opened is closed."""
        await receive()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._open, args=(loop,), daemon=True, name="clew-opening"
        )
        thread.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._ended.set()
        await self._through.wait()
        await self._life.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own."""
        try:
            server = self._open_server(self._report)
            asyncio.run_coroutine_threadsafe(self._take_over(server), loop).result()
            self._announce(server)
        except (
            BaseException
        ) as error:  # all of it is told by who waits for the end of the serving
            self.failure = None if isinstance(error, Stopped) else error
            loop.call_soon_threadsafe(self.stop)
        finally:
            self.settled.set()
            loop.call_soon_threadsafe(self._through.set)

    async def _take_over(self, server: Server) -> None:
        await self._life.enter_async_context(server.life())
        self._server = server

    def _report(self, doing: str, done: int, total: int) -> None:
        if self._ended.is_set():
            raise Stopped
        self._doing = doing, done, total

    async def _index(self, _: Request) -> Response:
        return FileResponse(self._static / "index.html", headers=REVALIDATE)

    async def _wait(self, _: Request) -> Response:
        """How far the opening is; the page asks again."""
        doing, done, total = self._doing
        content: dict[str, Any] = {
            "error": "the movie is being opened",
            "kind": "opening",
            "doing": doing,
        }
        return JSONText(
            {**content, "done": done, "total": total}, 503, headers={"retry-after": "1"}
        )


def _nothing() -> None:
    """As long as nothing is served."""

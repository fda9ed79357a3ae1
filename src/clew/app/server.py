"""The page's interface: addresses in, JSON and pictures out. All that is known of a request's address are numbers."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from clew.annotation.store.history import Act, Contradiction, StaleRevision
from clew.app import summaries
from clew.app.api_models import (
    AskedEdit,
    Sent,
    author_of,
    body_of,
    filter_of,
    flag,
    key_of,
    number,
    query_number,
)
from clew.app.beginnings import Beginning
from clew.app.broadcast import EventsStream
from clew.app.exports import FileName, Kind
from clew.app.messages import Reply, WorkerMovie
from clew.app.security import Guard, JSONText, TooLarge, refusal, too_large
from clew.app.session import Session
from clew.app.supervisor import Supervisor
from clew.errors import ClewError, InfeasibleAnnotation, InputError

STATIC = Path(__file__).parent / "static"
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
"""Pictures of a movie never change, or their address does: it has the revision of the masks, and the token."""
REVALIDATE = {"cache-control": "no-cache"}
"""The page's own files: a changed one is seen on reloading."""
mimetypes.add_type(
    "text/javascript", ".js"
)  # some machines have it wrong, and browsers then refuse modules
MakeSupervisor = Callable[
    [Sequence[WorkerMovie], Callable[[Reply], None], Callable[[bool, str], None]], Any
]


class PageFiles(StaticFiles):
    """The page's scripts and styles; what is hidden stays so."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Where a file is on the disk, if it may be seen."""
        hidden = "\0" in path or any(part.startswith(".") for part in Path(path).parts)
        return ("", None) if hidden else super().lookup_path(path)

    def file_response(self, *arguments: Any, **others: Any) -> Response:
        """As Starlette makes it, to be asked for again each time."""
        response = super().file_response(*arguments, **others)
        response.headers.update(REVALIDATE)
        return response


class Server:
    """The sessions, the worker, and the routes to them."""

    def __init__(
        self,
        sessions: Sequence[Session],
        movies: Sequence[WorkerMovie],
        *,
        token: str,
        addresses: Sequence[str],
        supervisor: MakeSupervisor = Supervisor,
        static: Path = STATIC,
    ) -> None:
        self.sessions, self.worker_movies, self.stream = (
            sessions,
            movies,
            EventsStream(),
        )
        self._make_supervisor, self._static = supervisor, static
        self.supervisor: Any = None
        self._tasks = set[asyncio.Task[None]]()
        movie = "/api/movies/{m:int}"
        routes = [
            Route("/", self.index),
            Mount("/static", PageFiles(directory=static)),
            Route("/api/movies", self.movies),
            Route("/api/events", self.events),
            Route("/api/overview", self.overview),
            Route(movie + "/image/{t:int}.png", self.image),
            Route(movie + "/labels/{t:int}.png", self.labels),
            Route(movie + "/pair/{t:int}", self.pair),
            Route(movie + "/questions", self.questions),
            Route(movie + "/status", self.status),
            Route(movie + "/tree", self.tree),
            Route(movie + "/frames/{t:int}/cells", self.cells),
            Route(movie + "/export/{kind}", self.export),
            Route(movie + "/answers", self.answers, methods=["POST"]),
            Route(movie + "/edits", self.edits, methods=["POST"]),
            Route(movie + "/undo", self.undo, methods=["POST"]),
            Route(movie + "/redo", self.redo, methods=["POST"]),
            Route(movie + "/place", self.place, methods=["POST"]),
            Route(movie + "/doubts", self.doubts),
            Route(movie + "/events", self.switch_events, methods=["POST"]),
            Route(movie + "/track", self.track, methods=["POST"]),
            Route(movie + "/import", self.import_file, methods=["POST"]),
            Route(movie + "/apply", self.apply, methods=["POST"]),
        ]
        handlers: Any = {
            HTTPException: _on_http,
            TooLarge: _on_large,
            ClewError: _on_error,
            500: _on_fault,
        }
        # around all, so that also the answer to a fault is marked
        self.app = Guard(
            Starlette(routes=routes, lifespan=self.life, exception_handlers=handlers),
            token,
            addresses,
        )

    def end(self) -> None:
        """End the streams of events, that would go on forever."""
        self.stream.close()

    @asynccontextmanager
    async def life(self, _: Starlette | None = None) -> AsyncIterator[None]:
        """From the start of the worker to the end of the sessions."""
        loop = asyncio.get_running_loop()
        supervisor = self.supervisor = self._make_supervisor(
            self.worker_movies,
            lambda reply: _in_loop(loop, self._on_reply, reply),
            lambda alive, why: _in_loop(loop, self._on_life, alive, why),
        )
        for session in self.sessions:
            session.publish = _publisher(self.stream, session.number)
            session.send = supervisor.send
        supervisor.start()
        for session in self.sessions:
            self._start(session.warm_up())
        try:
            yield
        finally:
            self.stream.close()
            await asyncio.to_thread(supervisor.close)
            self._on_life(False, "the server ends")
            for session in self.sessions:
                await asyncio.to_thread(session.close)

    # the page

    async def index(self, _: Request) -> Response:
        """The page itself."""
        return FileResponse(self._static / "index.html", headers=REVALIDATE)

    async def events(self, request: Request) -> Response:
        """What happens, as it happens; as long as a page listens it is open."""
        page = request.query_params.get("page", "")
        unbuffered = {
            "x-accel-buffering": "no"
        }  # a proxy that collects events would hold them up
        return StreamingResponse(
            self._listen(page), media_type="text/event-stream", headers=unbuffered
        )

    async def _listen(self, page: str) -> AsyncIterator[bytes]:
        for session in self.sessions:
            session.open_pages[page] += 1
        try:
            async for event in self.stream.listen():
                yield event
        finally:
            for session in self.sessions:
                session.open_pages[page] -= 1

    # one movie

    async def movies(self, _: Request) -> Response:
        """All movies."""
        return JSONText([summaries.about(session) for session in self.sessions])

    async def image(self, request: Request) -> Response:
        """The raw frame."""
        return await self._picture(request, self._session(request).pictures.image)

    async def labels(self, request: Request) -> Response:
        """The label image."""
        return await self._picture(request, self._session(request).pictures.labels)

    async def _picture(
        self, request: Request, draw: Callable[[int, int | None], bytes]
    ) -> Response:
        session, frame, z = (
            self._session(request),
            self._frame(request),
            query_number(request, "z"),
        )
        asked, before = query_number(request, "v", 0), session.state
        content = await asyncio.to_thread(draw, frame, z)
        lasting = before is session.state and asked == before.masks.get(
            frame, 0
        )  # else of other masks than asked for
        return Response(
            content, media_type="image/png", headers=FOREVER if lasting else REVALIDATE
        )

    async def pair(self, request: Request) -> Response:
        """A frame pair with its predicted events."""
        return JSONText(await self._session(request).pair(self._frame(request, 1)))

    async def questions(self, request: Request) -> Response:
        """What to ask next."""
        session, n = self._session(request), query_number(request, "n", 20) or 0
        common = {
            "revision": session.state.revision,
            "version": session.predictor.weights.version,
        }
        questions = await session.ask_about(n, filter_of(request))
        return JSONText({**common, "ready": session.asked >= 0, "questions": questions})

    async def status(self, request: Request) -> Response:
        """How far things are."""
        page, target = (
            request.query_params.get("page", ""),
            query_number(request, "target", 0) or 0,
        )
        return JSONText(summaries.status(self._session(request), page, target))

    async def tree(self, request: Request) -> Response:
        """The family of a cell."""
        frame, label = query_number(request, "frame"), query_number(request, "label")
        if frame is None or label is None:
            raise InputError("the family of a cell is asked for by frame and label")
        return JSONText(await self._session(request).family(frame, label))

    async def cells(self, request: Request) -> Response:
        """The cells of a frame."""
        cells = await asyncio.to_thread(
            self._session(request).cells, self._frame(request)
        )
        return JSONText(cells.view())

    async def answers(self, request: Request) -> Response:
        """An answer."""
        session = self._session(request)
        return JSONText(await session.answer(Sent.of(await body_of(request))))

    async def undo(self, request: Request) -> Response:
        """Take the last answer back."""
        session, body = self._session(request), await body_of(request)
        return JSONText(
            await session.move(
                Act.UNDO, key_of(body), number(body, "revision"), author_of(body)
            )
        )

    async def redo(self, request: Request) -> Response:
        """Bring an answer back."""
        session, body = self._session(request), await body_of(request)
        return JSONText(
            await session.move(
                Act.REDO, key_of(body), number(body, "revision"), author_of(body)
            )
        )

    async def edits(self, request: Request) -> Response:
        """An edit of the masks."""
        session = self._session(request)
        return JSONText(await session.edit(AskedEdit.of(await body_of(request))))

    async def place(self, request: Request) -> Response:
        """Where the person is."""
        session, body = self._session(request), await body_of(request)
        label = None if body.get("label") is None else number(body, "label")
        await session.look(number(body, "frame"), label)
        return JSONText({"place": session.place})

    async def doubts(self, request: Request) -> Response:
        """Where in the movie predictions are in doubt."""
        return JSONText(summaries.doubts(self._session(request)))

    async def switch_events(self, request: Request) -> Response:
        """Which kinds of events can happen in this movie."""
        names = (await body_of(request)).get("events")
        if not isinstance(names, list) or not all(
            isinstance(name, str) for name in names
        ):
            raise InputError(
                "events is no list; expected the names of the kinds that can happen"
            )
        return JSONText(await self._session(request).switch_events(names))

    async def track(self, request: Request) -> Response:
        """All that is predicted of a track is so, or it is wrong from a cell on."""
        session, body = self._session(request), await body_of(request)
        frame, label, right = (
            number(body, "frame"),
            number(body, "label"),
            flag(body, "right", True),
        )
        return JSONText(
            await session.judge_track(
                frame, label, right, key_of(body), author_of(body)
            )
        )

    async def import_file(self, request: Request) -> Response:
        """Earlier annotations; what is said about the file stands in the address."""
        session, said = self._session(request), dict(request.query_params)
        content = await request.body()
        return JSONText(
            await session.import_file(
                said.get("file", ""), content, key_of(said), author_of(said)
            )
        )

    async def overview(self, _: Request) -> Response:
        """All movies with about how many of their events are wrong."""
        return JSONText([summaries.overview(session) for session in self.sessions])

    async def apply(self, request: Request) -> Response:
        """Let all other movies begin with what was learned of this one; which of them cannot, and why."""
        session = self._session(request)
        with tempfile.TemporaryDirectory(prefix="clew-") as folder:
            await session.export(Kind.WEIGHTS, Path(folder) / "weights")
            learned = Beginning(
                summaries.name_of(session), (Path(folder) / "weights").read_bytes()
            )
        problems = []
        for other in self.sessions:
            try:
                if other is not session:
                    await other.begin_with(learned)
            except ClewError as error:
                problems.append({"movie": other.number, "problem": str(error)})
        return JSONText(
            {"applied": len(self.sessions) - 1 - len(problems), "problems": problems}
        )

    async def export(self, request: Request) -> Response:
        """A file to download."""
        session = self._session(request)
        try:
            kind = Kind(request.path_params["kind"])
        except ValueError:
            raise HTTPException(
                404, f"there is no such export; there are {', '.join(Kind)}"
            ) from None
        folder = tempfile.TemporaryDirectory(prefix="clew-")
        path = Path(folder.name) / "export"
        try:
            await session.export(kind, path)
        except BaseException:
            folder.cleanup()
            raise
        name = FileName.of(kind, session.movie.name)
        done = BackgroundTask(folder.cleanup)
        return FileResponse(
            path, media_type=name.media_type, filename=name.name, background=done
        )

    def _session(self, request: Request) -> Session:
        movie: int = request.path_params["m"]
        if movie >= len(self.sessions):
            raise HTTPException(404, f"there is no movie {movie}")
        return self.sessions[movie]

    def _frame(self, request: Request, following: int = 0) -> int:
        """The frame of a request; one that others must follow is none of the last."""
        frame: int = request.path_params["t"]
        if frame >= self._session(request).movie.n_frames - following:
            raise HTTPException(404, f"there is no frame {frame + following}")
        return frame

    # the worker

    def _on_reply(self, reply: Reply) -> None:
        """What the worker says, in the event loop's thread."""
        self.sessions[reply.movie].take(reply)

    def _on_life(self, alive: bool, problem: str) -> None:
        """A worker began or ended."""
        self.stream.publish("worker", {"alive": alive, "problem": problem})
        for session in self.sessions:
            session.take_life(alive, problem)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something be done meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # or it could be thrown away before its end
        task.add_done_callback(self._tasks.discard)


def _publisher(
    stream: EventsStream, movie: int
) -> Callable[[str, dict[str, Any]], None]:
    return lambda event, data: stream.publish(event, {"movie": movie, **data})


def _in_loop(
    loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any
) -> None:
    """From another thread; after the end, there is nobody to tell."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, *arguments)


async def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, str(error.detail))


async def _on_large(_: Request, __: Exception) -> Response:
    return too_large()


async def _on_error(_: Request, error: Exception) -> Response:
    """What clew raises on purpose, as the page understands it."""
    if isinstance(error, StaleRevision):
        return JSONText(
            {"error": str(error), "kind": "stale", "revision": error.present}, 409
        )
    if isinstance(error, Contradiction):
        return JSONText({"error": str(error), "kind": "contradiction"}, 422)
    if isinstance(error, InfeasibleAnnotation):
        return JSONText({"error": str(error), "kind": "infeasible"}, 422)
    if isinstance(error, InputError):
        return JSONText({"error": str(error), "kind": "input"}, 400)
    return JSONText({"error": str(error), "kind": "store"}, 500)


async def _on_fault(_: Request, error: Exception) -> Response:
    return JSONText(
        {"error": f"unexpected {type(error).__name__}", "kind": "fault"}, 500
    )

"""The server of the annotation page: opening movies, news, and what is about all movies.

The server answers from the start. While movies are opened, which takes minutes the
first time, requests about them are answered by 503 with the progress.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from clew.annotation.changes import StaleMasks
from clew.annotation.files import ExportKind
from clew.annotation.initial_weights import InitialWeights
from clew.annotation.store.history import Contradiction, StaleRevision
from clew.annotation.worker import LearningWorker
from clew.app import views
from clew.app.api_models import (
    DetectionQuery,
    DetectionRequest,
    read_body,
    read_query,
)
from clew.app.broadcast import EventsStream
from clew.app.images import Pictures
from clew.app.movie_routes import GET_ROUTES, POST_ROUTES, REVALIDATE, MakeReply
from clew.app.security import (
    BodyTooLarge,
    SecurityMiddleware,
    reject,
    reject_large_body,
)
from clew.app.session import PageSession
from clew.errors import ClewError, InfeasibleAnnotation, InputError
from clew.tracking.detections import Source
from clew.tracking.frames import Frames
from clew.tracking.movie import Movie

if TYPE_CHECKING:  # segmentation takes a while to import, and few movies need it
    from clew.app.detection import DetectionChoice
    from clew.tracking.segmentation import DetectionSettings

STATIC = Path(__file__).parent / "static"
# Some machines have another type for scripts; browsers then reject modules.
mimetypes.add_type("text/javascript", ".js")

Report = Callable[[str, int, int], None]
"""Called with a description of the work, the parts done, and their total."""
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
MakeWorker = Callable[[Sequence[Source], Callable[[bool, str], None]], Any]


class OpeningStopped(Exception):
    """The server ended while movies were opened."""


class StillOpening(Exception):
    """A request came before the movies were open."""


class PageFiles(StaticFiles):
    """The page's scripts and styles; hidden files are not served."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Return where a file is, unless it is hidden."""
        parts = Path(path).parts
        if "\0" in path or any(part.startswith(".") for part in parts):
            return "", None
        return super().lookup_path(path)

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        """Return a file that browsers revalidate each time."""
        response = super().file_response(*arguments, **options)
        response.headers.update(REVALIDATE)
        return response


class Server:
    """The movies, the learning process, and the routes to them.

    Parameters
    ----------
    open_sessions : callable
        Opens the movies, in a thread; it is called with a `Report`.
    token : str
        The secret of the page.
    addresses : sequence of str
        Under which browsers reach the page.
    on_open : callable, optional
        Called when the movies are open.
    make_worker : callable
        Makes the `LearningWorker`.
    static : Path
        The folder of the page's files.

    Attributes
    ----------
    sessions : list of PageSession
        Empty until the movies are open.
    detection : DetectionChoice or None
        While a person chooses how the cells of a movie are detected.
    failure : BaseException or None
        Why the movies could not be opened.
    is_settled : threading.Event
        Set when the movies are open, or cannot be opened.
    stop : callable
        Ends serving; set by whoever serves `app`.
    """

    def __init__(
        self,
        open_sessions: Callable[[Report], list[PageSession]],
        *,
        token: str,
        addresses: Sequence[str],
        on_open: Callable[[Server], None] = lambda _: None,
        make_worker: MakeWorker = LearningWorker,
        static: Path = STATIC,
    ) -> None:
        self.sessions: list[PageSession] = []
        self.detection: DetectionChoice | None = None
        self.failure: BaseException | None = None
        self.is_settled = threading.Event()
        self.stop: Callable[[], None] = lambda: None
        self.stream = EventsStream()
        self.open_pages: Counter[str] = Counter()
        self.worker: Any = None
        self._open_sessions = open_sessions
        self._on_open = on_open
        self._make_worker = make_worker
        self._static = static
        self._progress = ("Opening the movie", 0, 0)
        self._preview: Pictures | None = None
        self._is_ending = threading.Event()
        self._tasks = set[asyncio.Task[None]]()
        handlers: Any = {
            HTTPException: _handle_http_error,
            BodyTooLarge: _handle_large_body,
            ClewError: _handle_clew_error,
            StillOpening: self._handle_still_opening,
            500: _handle_fault,
        }
        starlette = Starlette(
            routes=self._make_routes(),
            lifespan=self._run_lifespan,
            exception_handlers=handlers,
        )
        # Outermost, so that replies to faults have the security headers too.
        self.app = SecurityMiddleware(starlette, token, addresses)
        self.make_ticket = self.app.make_ticket

    def _make_routes(self) -> list[Route | Mount]:
        movie = "/api/movies/{movie:int}"
        post = ["POST"]
        return [
            Route("/", self.get_page),
            Mount("/static", PageFiles(directory=self._static)),
            Route("/api/movies", self.get_movies),
            Route("/api/events", self.get_events),
            Route("/api/overview", self.get_overview),
            Route("/api/opening/{frame:int}.png", self.get_opening_picture),
            Route("/api/detection", self.post_detection, methods=post),
            *[
                Route(f"{movie}/{path}", self._serve_movie(make_reply))
                for path, make_reply in GET_ROUTES.items()
            ],
            *[
                Route(f"{movie}/{path}", self._serve_movie(make_reply), methods=post)
                for path, make_reply in POST_ROUTES.items()
            ],
            Route(movie + "/apply", self.post_apply, methods=post),
        ]

    # Opening and closing

    def end(self) -> None:
        """End what would go on forever: streams of events, and the opening."""
        self._is_ending.set()
        self.stream.close()

    @asynccontextmanager
    async def _run_lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Open the movies in the background; at the end, close them."""
        opening = asyncio.create_task(self._open_movies())
        try:
            yield
        finally:
            self.end()
            await opening
            for task in list(self._tasks):
                task.cancel()
            if self.worker is not None:
                self.worker.close()
            for session in self.sessions:
                await asyncio.to_thread(session.close)

    async def _open_movies(self) -> None:
        """Open the movies, and start learning."""
        try:
            sessions = await asyncio.to_thread(
                self._open_sessions, self._report_progress
            )
            self._start_learning(sessions)
            self.sessions = sessions
            await asyncio.to_thread(self._on_open, self)
        except OpeningStopped:
            self.stop()
        except BaseException as error:
            # Raised again by whoever serves the application.
            self.failure = error
            self.stop()
        finally:
            self.is_settled.set()

    def preview(self, movie: Movie) -> None:
        """Show the frames of a movie while it is opened."""
        self._preview = Pictures(movie)

    def choose_detection(
        self, images: Frames, settings: DetectionSettings
    ) -> DetectionSettings:
        """Wait until a person chose how cells are detected; called while opening.

        Parameters
        ----------
        images : Frames
        settings : DetectionSettings
            To begin with.
        """
        from clew.app.detection import DetectionChoice

        choice = DetectionChoice(images, settings)
        self.detection = choice
        while not choice.is_made.wait(0.1):
            if self._is_ending.is_set():
                raise OpeningStopped
        self.detection = None
        return choice.settings

    def _report_progress(self, what: str, done: int, total: int) -> None:
        if self._is_ending.is_set():
            raise OpeningStopped
        self._progress = (what, done, total)

    def _start_learning(self, sessions: Sequence[PageSession]) -> None:
        sources = [session.unedited_source for session in sessions]
        loop = asyncio.get_running_loop()

        def on_status(is_alive: bool, problem: str) -> None:
            loop.call_soon_threadsafe(self._on_worker_status, is_alive, problem)

        self.worker = self._make_worker(sources, on_status)
        for session in sessions:
            session.publish = self._make_publisher(session.number)
            session.open_pages = self.open_pages
            self._run_in_background(session.start_learning(self.worker).run())
            self._run_in_background(session.warm_up())

    def _make_publisher(self, number: int) -> Callable[[str, dict[str, Any]], None]:
        def publish(event: str, data: dict[str, Any]) -> None:
            self.stream.publish(event, {"movie": number, **data})

        return publish

    def _on_worker_status(self, is_alive: bool, problem: str) -> None:
        self.stream.publish("worker", {"alive": is_alive, "problem": problem})
        for session in self.sessions:
            session.on_worker_status(is_alive, problem)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # a task without a reference may be collected
        task.add_done_callback(self._tasks.discard)

    async def _handle_still_opening(self, _: Request, __: Exception) -> Response:
        what, done, total = self._progress
        content = {
            "error": "the movie is being opened",
            "kind": "opening",
            "doing": what,
            "done": done,
            "total": total,
            "frames": 0 if self._preview is None else self._preview.movie.n_frames,
            "detection": None if self.detection is None else self.detection.to_json(),
        }
        return JSONResponse(content, 503, {"retry-after": "1"})

    async def get_opening_picture(self, request: Request) -> Response:
        """Return a frame of the movie that is opened, with the cells to be detected."""
        frame: int = request.path_params["frame"]
        choice = self.detection
        n_frames = 0
        draw: Callable[[], bytes]
        if choice is not None:
            query = read_query(request, DetectionQuery)
            n_frames = len(choice.images)
            draw = partial(choice.draw, frame, query.diameter, query.sensitivity)
        elif self._preview is not None:
            n_frames = self._preview.movie.n_frames
            draw = partial(self._preview.image, frame)
        if frame >= n_frames:
            raise HTTPException(404, f"there is no frame {frame}")
        content = await asyncio.to_thread(draw)
        return Response(content, media_type="image/png", headers=REVALIDATE)

    async def post_detection(self, request: Request) -> Response:
        """Detect cells with the settings that a person chose."""
        body = await read_body(request, DetectionRequest)
        if self.detection is None:
            raise HTTPException(409, "no cells are to be detected")
        self.detection.choose(body.diameter, body.sensitivity)
        return JSONResponse({})

    # The page

    async def get_page(self, _: Request) -> Response:
        """Return the page itself."""
        return FileResponse(self._static / "index.html", headers=REVALIDATE)

    async def get_events(self, request: Request) -> Response:
        """Stream news to a page, which counts as open while it listens."""
        page = request.query_params.get("page", "")
        headers = {"x-accel-buffering": "no"}  # proxies must not collect events
        return StreamingResponse(
            self._listen(page), media_type="text/event-stream", headers=headers
        )

    async def _listen(self, page: str) -> AsyncIterator[bytes]:
        self.open_pages[page] += 1
        try:
            async for event in self.stream.listen():
                yield event
        finally:
            self.open_pages[page] -= 1

    async def get_movies(self, _: Request) -> Response:
        """Return all movies."""
        self._require_open()
        return JSONResponse([views.view_movie(session) for session in self.sessions])

    async def get_overview(self, _: Request) -> Response:
        """Return all movies, with the estimated numbers of wrong events."""
        self._require_open()
        overview = [views.view_overview(session) for session in self.sessions]
        return JSONResponse(overview)

    # One movie

    async def post_apply(self, request: Request) -> Response:
        """Start all other movies with the weights learned here."""
        session = self._find_session(request)
        with tempfile.TemporaryDirectory(prefix="clew-") as folder:
            path = Path(folder) / "weights"
            await session.export(ExportKind.WEIGHTS, path)
            weights = InitialWeights(views.printable_name(session), path.read_bytes())
        problems = []
        others = [other for other in self.sessions if other is not session]
        for other in others:
            try:
                await other.start_with(weights)
            except ClewError as error:
                problems.append({"movie": other.number, "problem": str(error)})
        n_applied = len(others) - len(problems)
        return JSONResponse({"applied": n_applied, "problems": problems})

    def _serve_movie(self, make_reply: MakeReply) -> Endpoint:
        """Return what replies to requests about one movie."""

        async def serve(request: Request) -> Response:
            reply = await make_reply(self._find_session(request), request)
            return reply if isinstance(reply, Response) else JSONResponse(reply)

        return serve

    def _require_open(self) -> None:
        if not self.sessions:
            raise StillOpening

    def _find_session(self, request: Request) -> PageSession:
        """Return the session of the movie in the address."""
        self._require_open()
        number: int = request.path_params["movie"]
        if number >= len(self.sessions):
            raise HTTPException(404, f"there is no movie {number}")
        return self.sessions[number]


async def _handle_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return reject(error.status_code, str(error.detail))


async def _handle_large_body(_: Request, __: Exception) -> Response:
    return reject_large_body()


async def _handle_clew_error(_: Request, error: Exception) -> Response:
    """Return an error that clew raised, with a code for the page."""
    content: dict[str, Any] = {"error": str(error)}
    if isinstance(error, StaleRevision):
        content["kind"] = "stale"
        content["revision"] = error.present
        return JSONResponse(content, 409)
    codes: list[tuple[type[ClewError], str, int]] = [
        (StaleMasks, "masks", 409),
        (Contradiction, "contradiction", 422),
        (InfeasibleAnnotation, "infeasible", 422),
        (InputError, "input", 400),
        (ClewError, "store", 500),
    ]
    for kind, code, status in codes:
        if isinstance(error, kind):
            return JSONResponse({**content, "kind": code}, status)
    raise error


async def _handle_fault(_: Request, error: Exception) -> Response:
    content = {"error": f"unexpected {type(error).__name__}", "kind": "fault"}
    return JSONResponse(content, 500)

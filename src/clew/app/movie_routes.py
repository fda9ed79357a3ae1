"""What pages ask about one movie, and what they change: JSON, pictures and files."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from clew.annotation.files import ExportKind, FileName
from clew.app import views
from clew.app.api_models import (
    AnswerRequest,
    CellQuery,
    ChangeRequest,
    EventKindsRequest,
    ImportQuery,
    MaskEditRequest,
    PictureQuery,
    PositionRequest,
    QuestionQuery,
    RequestBody,
    SectionsQuery,
    StatusQuery,
    TrackReviewRequest,
    read_body,
    read_query,
)
from clew.app.session import PageSession
from clew.app.views import Json

CACHE_FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
"""For pictures: their address has the revision of the masks."""
REVALIDATE = {"cache-control": "no-cache"}
"""For what may change under its address."""
MakeReply = Callable[[PageSession, Request], Awaitable[Any]]
"""Returns a Response, or what JSON can hold."""


def find_frame(session: PageSession, request: Request, n_following: int = 0) -> int:
    """Return the frame in the address; so many frames must follow it."""
    frame: int = request.path_params["frame"]
    if frame >= session.movie.n_frames - n_following:
        raise HTTPException(404, f"there is no frame {frame + n_following}")
    return frame


async def get_image(session: PageSession, request: Request) -> Response:
    """Return the raw frame."""
    query = read_query(request, PictureQuery)
    return await _draw(session, request, query.v, session.pictures.image, query.z)


async def get_labels(session: PageSession, request: Request) -> Response:
    """Return the label image."""
    query = read_query(request, PictureQuery)
    return await _draw(session, request, query.v, session.pictures.labels, query.z)


async def get_sections(session: PageSession, request: Request) -> Response:
    """Return sections through a cell of a 3D movie."""
    query = read_query(request, SectionsQuery)
    return await _draw(session, request, query.v, session.pictures.sections, query.cell)


async def _draw(
    session: PageSession,
    request: Request,
    revision: int,
    draw: Callable[..., bytes],
    what: Any,
) -> Response:
    frame = find_frame(session, request)
    before = session.state
    content = await asyncio.to_thread(draw, frame, what)
    # Otherwise the picture may show other masks than the address says.
    is_of_address = revision == before.masks.get(frame, 0)
    is_lasting = before is session.state and is_of_address
    headers = CACHE_FOREVER if is_lasting else REVALIDATE
    return Response(content, media_type="image/png", headers=headers)


async def get_pair(session: PageSession, request: Request) -> Json:
    """Return a frame pair with its predicted events."""
    return await session.view_pair(find_frame(session, request, 1))


async def get_cells(session: PageSession, request: Request) -> list[Json]:
    """Return the cells of a frame."""
    frame = find_frame(session, request)
    cells = await asyncio.to_thread(session.get_cells, frame)
    return cells.to_json()


async def get_questions(session: PageSession, request: Request) -> Json:
    """Return what to ask next."""
    query = read_query(request, QuestionQuery)
    revision = session.state.revision
    version = session.predictions.weights.version
    questions = await session.view_questions(query)
    return {"revision": revision, "version": version, "questions": questions}


async def get_status(session: PageSession, request: Request) -> Json:
    """Return the state of annotation and learning."""
    query = read_query(request, StatusQuery)
    return views.view_status(session, query.page, query.target)


async def get_family(session: PageSession, request: Request) -> Json:
    """Return the family of a cell."""
    cell = read_query(request, CellQuery)
    return await session.view_family(cell.frame, cell.label)


async def get_doubts(session: PageSession, _: Request) -> Json:
    """Return where in the movie predictions are unsure."""
    return views.view_doubts(session)


async def get_export(session: PageSession, request: Request) -> Response:
    """Return a file to download."""
    try:
        kind = ExportKind(request.path_params["kind"])
    except ValueError:
        kinds = ", ".join(ExportKind)
        raise HTTPException(404, f"no such export; expected {kinds}") from None
    folder = tempfile.TemporaryDirectory(prefix="clew-")
    path = Path(folder.name) / "export"
    try:
        state = await session.export(kind, path)
    except BaseException:
        folder.cleanup()
        raise
    name = FileName.of(kind, session.movie.name)
    return FileResponse(
        path,
        media_type=name.media_type,
        filename=name.name,
        headers={"x-clew-learned": "yes" if state["learned"] else "no"},
        background=BackgroundTask(folder.cleanup),
    )


async def post_import(session: PageSession, request: Request) -> Json:
    """Import a file of annotations or weights."""
    query = read_query(request, ImportQuery)
    content = await request.body()
    return await session.import_file(query.file, content, query.key, query.author)


def serve_change(
    model: type[RequestBody], change: Callable[[PageSession, Any], Awaitable[Json]]
) -> MakeReply:
    """Return what reads the body of a request, and makes the change."""

    async def post(session: PageSession, request: Request) -> Json:
        return await change(session, await read_body(request, model))

    return post


GET_ROUTES: dict[str, MakeReply] = {
    "image/{frame:int}.png": get_image,
    "labels/{frame:int}.png": get_labels,
    "sections/{frame:int}.png": get_sections,
    "pair/{frame:int}": get_pair,
    "frames/{frame:int}/cells": get_cells,
    "questions": get_questions,
    "status": get_status,
    "tree": get_family,
    "doubts": get_doubts,
    "export/{kind}": get_export,
}
POST_ROUTES: dict[str, MakeReply] = {
    "answers": serve_change(AnswerRequest, PageSession.answer),
    "edits": serve_change(MaskEditRequest, PageSession.edit_masks),
    "undo": serve_change(ChangeRequest, PageSession.undo),
    "redo": serve_change(ChangeRequest, PageSession.redo),
    "place": serve_change(PositionRequest, PageSession.move_to),
    "events": serve_change(EventKindsRequest, PageSession.choose_events),
    "track": serve_change(TrackReviewRequest, PageSession.review_track),
    "import": post_import,
}

"""What pages send: pydantic models of request bodies and query strings."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from starlette.requests import Request

from clew.annotation.answers import Answer
from clew.annotation.changes import AnswerChange, MaskChange
from clew.annotation.mask_edits import EditKind
from clew.annotation.mask_state import MaskStroke
from clew.annotation.store.history import Author
from clew.annotation.store.store import MAX_KEY
from clew.errors import InputError
from clew.tracking.events import BY_NAME, Event

MAX_POINTS = 10_000
MAX_PIXEL = 1e6
MAX_EXACT_INTEGER = 2**53
"""Up to which JavaScript counts exactly."""

Model = TypeVar("Model", bound=BaseModel)
Count = Annotated[int, Field(ge=0, lt=MAX_EXACT_INTEGER)]
Key = Annotated[str, Field(min_length=1, max_length=MAX_KEY, pattern=r"^[ -~]+$")]
Name = Annotated[str, Field(max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$")]
Labels = Annotated[list[Count], Field(max_length=2)]
Coordinate = Annotated[float, Field(gt=-MAX_PIXEL, lt=MAX_PIXEL, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
Side = Annotated[float, Field(allow_inf_nan=False)]


def _parse_event(name: Any) -> Any:
    """Return the event with a name."""
    if not isinstance(name, str) or name not in BY_NAME:
        raise ValueError(f"expected one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


EventName = Annotated[Event, BeforeValidator(_parse_event)]


class RequestBody(BaseModel):
    """A JSON object; types are not converted."""

    model_config = ConfigDict(strict=True, frozen=True)


class EventRequest(RequestBody):
    """An event without its frame."""

    event: EventName
    sources: Labels = []
    targets: Labels = []


class AuthoredRequest(RequestBody):
    """A change; `key` makes it count once, however often it is sent."""

    key: Key
    name: Name = ""
    """Of the person."""
    page: Name = ""
    """Of the browser tab."""

    @property
    def author(self) -> Author:
        """Who makes the change."""
        return Author(self.name, self.page)


class ChangeRequest(AuthoredRequest):
    """A change of the state that the page knows."""

    revision: Count


class AnswerRequest(ChangeRequest, EventRequest):
    """An answer about one event."""

    frame: Count
    happened: bool = True
    replace: bool = False
    """Whether it corrects what it contradicts."""
    asked: EventRequest | None = None
    """The event in question; None if the person chose what to annotate."""
    masks: tuple[Count, Count] | None = None
    """The revisions of the masks that the page showed, of both frames."""

    def to_change(self) -> AnswerChange:
        """Return the answer, checked."""
        asked = self.asked
        question = None
        if asked is not None:
            question = Answer.of(self.frame, asked.event, asked.sources, asked.targets)
        return AnswerChange(
            Answer.of(
                self.frame, self.event, self.sources, self.targets, self.happened
            ),
            self.key,
            self.revision,
            self.author,
            question,
            self.masks,
            self.replace,
        )


class MaskEditRequest(ChangeRequest):
    """An edit of masks: what was clicked or drawn, and in which picture."""

    frame: Count
    kind: EditKind = Field(strict=False)
    cells: Labels = []
    """Labels that were clicked."""
    points: list[Point] = Field(default=[], max_length=MAX_POINTS, strict=False)
    """x and y in pixels of what was drawn; one point is a click."""
    z: Count | None = None
    """The slice that was shown; None for the projection, or in 2D."""
    masks: Count
    """The revision of the frame's masks that the page showed."""

    def to_change(self) -> MaskChange:
        """Return the edit, to be made of the present masks."""
        stroke = MaskStroke(self.frame, self.kind, self.cells, self.points, self.z)
        return MaskChange(
            self.frame,
            lambda masks, used_labels: masks.make_edit(stroke, used_labels),
            self.key,
            self.revision,
            self.masks,
            self.author,
        )


class TrackReviewRequest(AuthoredRequest):
    """The track of a cell is right, or wrong from this cell on."""

    frame: Count
    label: Count
    right: bool = True


class PositionRequest(RequestBody):
    """Where the person is."""

    frame: Count
    label: Count | None = None


class EventKindsRequest(RequestBody):
    """The kinds of events that can happen in the movie."""

    events: list[str]


class Query(BaseModel):
    """The query string of an address; empty values count as missing."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, values: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in values.items() if value != ""}


class QuestionQuery(Query):
    """How many questions, and which events may be asked about."""

    n: Count = 20
    page: Name = ""
    """The browser tab; open tabs receive different questions."""
    event: EventName | None = None
    first: Count | None = Field(default=None, alias="from")
    last: Count | None = Field(default=None, alias="to")
    box: Annotated[
        tuple[Side, Side, Side, Side] | None,
        BeforeValidator(lambda text: text and text.split(",")),
    ] = None
    """Left, top, right, bottom in pixels."""
    frame: Count | None = None
    label: Count | None = None
    """With the frame: a cell whose track is asked about."""


class PictureQuery(Query):
    """The slice, and the revision of the masks."""

    z: Count | None = None
    v: Count = 0


class SectionsQuery(Query):
    """The cell, and the revision of the masks."""

    cell: Count
    v: Count = 0


class DetectionQuery(Query):
    """Settings by which cells are detected."""

    diameter: float = Field(ge=1, le=1e5)
    sensitivity: float = Field(gt=0, lt=1)


class DetectionRequest(RequestBody):
    """The settings that a person chose."""

    diameter: float = Field(ge=1, le=1e5)
    sensitivity: float = Field(gt=0, lt=1)


class StatusQuery(Query):
    """The browser tab, and the acceptable number of wrong events."""

    page: Name = ""
    target: Count = 0


class CellQuery(Query):
    """A cell."""

    frame: Count
    label: Count


class ImportQuery(Query):
    """What a page says about an uploaded file."""

    key: Key
    file: str = ""
    name: Name = ""
    page: Name = ""

    @property
    def author(self) -> Author:
        """Who uploads the file."""
        return Author(self.name, self.page)


async def read_body(request: Request, model: type[Model]) -> Model:
    """Validate the JSON body of a request; raise InputError naming the field."""
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type.strip().lower() != "application/json":
        raise InputError(
            f"the content type is {media_type!r}; expected application/json"
        )
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        raise _to_input_error(error) from error


def read_query(request: Request, model: type[Model]) -> Model:
    """Validate the query string of a request; raise InputError naming the field."""
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise _to_input_error(error) from error


def _to_input_error(error: ValidationError) -> InputError:
    """Name the first invalid field, its value, and what was expected."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the body"
    value = repr(first["input"])
    short = value if len(value) <= 40 else f"{value[:40]}…"
    return InputError(f"{field} is {short}: {first['msg']}")

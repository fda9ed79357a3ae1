"""What pages send, checked: each thing is of its kind, or an InputError says what is wrong with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from clew.annotation.answers import Answer
from clew.annotation.mask_edits import EditKind
from clew.annotation.store.history import Author
from clew.annotation.store.store import MAX_KEY
from clew.app.open_events import Filter
from clew.errors import InputError
from clew.tracking.events import BY_NAME

MAX_NAME = 80
MAX_POINTS = 10_000
"""Of a stroke."""
MAX_PIXEL = 1e6
"""Beyond which no picture reaches."""
MAX_NUMBER = 2**53
"""Up to which JavaScript counts exactly."""


@dataclass(frozen=True)
class Sent:
    """An answer with what a page says around it."""

    key: str
    revision: int
    """The state of the annotations that the person saw."""
    answer: Answer
    replace: bool
    """Whether it corrects what it contradicts."""
    author: Author
    asked: Answer | None = None
    """The event that the page had asked about; None if the person chose what to answer."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Sent:
        """Read one from JSON; whether its cells exist is not known here."""
        answer, asked = _answer(body, flag(body, "happened", True)), body.get("asked")
        if asked is not None:
            if not isinstance(asked, dict):
                raise InputError(
                    f"asked is {_short(asked)}; expected an event with its cells"
                )
            asked = _answer({"frame": body["frame"], **asked})
        replace = flag(body, "replace", False)
        return cls(
            key_of(body),
            number(body, "revision"),
            answer,
            replace,
            author_of(body),
            asked,
        )


def _answer(body: Mapping[str, Any], happened: bool = True) -> Answer:
    """An event and its cells."""
    name = body.get("event")
    if not isinstance(name, str) or name not in BY_NAME:
        raise InputError(
            f"event is {_short(name)}; expected one of {', '.join(BY_NAME)}"
        )
    sources, targets = _cells(body, "sources"), _cells(body, "targets")
    return Answer.of(number(body, "frame"), BY_NAME[name], sources, targets, happened)


@dataclass(frozen=True)
class AskedEdit:
    """An edit of masks as a page asks for it: what was clicked or drawn, and in which picture."""

    key: str
    revision: int
    frame: int
    kind: EditKind
    cells: tuple[int, ...]
    """Labels, for what is clicked."""
    points: tuple[tuple[float, float], ...]
    """x and y in pixels, for what is drawn; a single one is a click."""
    z: int | None
    """The slice that was shown; None for the projection, or in 2D."""
    masks: int
    """The revision of the frame's masks that the person saw."""
    author: Author

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> AskedEdit:
        """Read one from JSON; whether there is anything to be edited so is not known here."""
        kind = body.get("kind")
        if not isinstance(kind, str) or kind not in set(EditKind):
            raise InputError(
                f"kind is {_short(kind)}; expected one of {', '.join(EditKind)}"
            )
        z = None if body.get("z") is None else number(body, "z")
        return cls(
            key_of(body),
            number(body, "revision"),
            number(body, "frame"),
            EditKind(kind),
            tuple(_cells(body, "cells")),
            _points(body),
            z,
            number(body, "masks"),
            author_of(body),
        )


def _points(body: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """What was drawn."""
    value = body.get("points", [])
    if not isinstance(value, list) or len(value) > MAX_POINTS:
        raise InputError(
            f"points is {_short(value)}; expected a list of up to {MAX_POINTS} pairs of numbers"
        )
    for point in value:
        numbers = (
            isinstance(point, list)
            and len(point) == 2
            and all(type(part) in (int, float) for part in point)
        )
        if not numbers or not all(abs(part) < MAX_PIXEL for part in point):
            raise InputError(f"a point is {_short(point)}; expected x and y in pixels")
    return tuple((float(x), float(y)) for x, y in value)


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that a request carries."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InputError(
            f"the body's content type is {_short(kind)}; expected application/json"
        )
    try:
        content = json.loads(await request.body(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON ({error})") from error
    if not isinstance(content, dict):
        raise InputError("the body is no JSON object")
    return content


def key_of(body: Mapping[str, Any]) -> str:
    """The name that a page gives what it sends, so that it counts once however often it comes."""
    key = body.get("key")
    if (
        not isinstance(key, str)
        or not 0 < len(key) <= MAX_KEY
        or not (key.isascii() and key.isprintable())
    ):
        raise InputError(
            f"key is {_short(key)}; expected 1 to {MAX_KEY} plain letters, new for each answer"
        )
    return key


def filter_of(request: Request) -> Filter:
    """Which questions a page asks for, in the request's address.

    event, from and to (frames), box (four numbers), and the frame and label of a cell whose track is meant.
    """
    name, box = (
        request.query_params.get("event") or None,
        request.query_params.get("box") or None,
    )
    if name is not None and name not in BY_NAME:
        raise InputError(
            f"event is {_short(name)}; expected one of {', '.join(BY_NAME)}"
        )
    try:
        sides = None if box is None else tuple(float(part) for part in box.split(","))
    except ValueError:
        sides = ()
    if sides is not None and (
        len(sides) != 4 or not all(math.isfinite(side) for side in sides)
    ):
        raise InputError(
            f"box is {_short(box)}; expected left, top, right and bottom in pixels"
        )
    event = None if name is None else BY_NAME[name]
    first, last = query_number(request, "from"), query_number(request, "to")
    frame, label = query_number(request, "frame"), query_number(request, "label")
    track = None if frame is None or label is None else (frame, label)
    return Filter(
        event,
        first,
        last,
        None if sides is None else (sides[0], sides[1], sides[2], sides[3]),
        track,
    )


def author_of(body: Mapping[str, Any]) -> Author:
    """Who says so: a person's name and a page's own, both if they are told."""
    found = [body.get(name, "") for name in ("name", "page")]
    if not all(
        isinstance(one, str) and len(one) <= MAX_NAME and (one.isprintable() or not one)
        for one in found
    ):
        raise InputError(
            f"name and page are {_short(found)}; expected up to {MAX_NAME} printable characters each"
        )
    return Author(*found)


def number(body: Mapping[str, Any], name: str) -> int:
    """A whole number, not negative."""
    value = body.get(name)
    if type(value) is not int or not 0 <= value < MAX_NUMBER:  # True is an int, too
        raise InputError(
            f"{name} is {_short(value)}; expected a whole number from 0 on"
        )
    return value


def query_number(request: Request, name: str, default: int | None = None) -> int | None:
    """A whole number in a request's address, not negative."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InputError(f"{name} is {_short(text)}; expected a whole number from 0 on")
    return int(text)


def _cells(body: Mapping[str, Any], name: str) -> list[int]:
    value = body.get(name, [])
    if not isinstance(value, list) or len(value) > 2:
        raise InputError(
            f"{name} is {_short(value)}; expected a list of up to two labels"
        )
    return [number({name: label}, name) for label in value]


def flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    """True or false."""
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise InputError(f"{name} is {_short(value)}; expected true or false")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")

"""Annotation in a notebook or a script: questions with pictures, answered in a loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from clew.annotation.annotator import Annotator, AskedQuestion
from clew.annotation.answers import Answer
from clew.errors import InputError
from clew.tracking.events import BY_NAME
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.movie import Movie, open_movie
from clew.tracking.tracker import Tracker

STORE = ".annotations.clewdb"
REACH = 3.0
"""Cell diameters around the cells in question."""
HEIGHT = 300
"""Pixels of a picture, about."""
SOURCE_COLOR = (0, 208, 255)
TARGET_COLOR = (255, 176, 0)
WAIT_SECONDS = 0.05


@dataclass(frozen=True)
class PicturedQuestion:
    """A question about an event; a notebook shows its picture.

    The left half is the first frame with the cell before the event, the right half
    the next frame with the cells after it.
    """

    annotator: Annotator
    asked: AskedQuestion

    @property
    def frame(self) -> int:
        """The first frame of the event."""
        return self.asked.question.frame

    @property
    def event(self) -> str:
        """The name of the event."""
        return str(self.asked.question.event)

    @property
    def sources(self) -> tuple[int, ...]:
        """Labels of the cells before."""
        return self.asked.question.sources

    @property
    def targets(self) -> tuple[int, ...]:
        """Labels of the cells after."""
        return self.asked.question.targets

    def yes(self) -> None:
        """Answer that the event happened."""
        self.annotator.confirm(self.asked)

    def no(self) -> None:
        """Answer that it did not happen."""
        self.annotator.deny(self.asked)

    def skip(self) -> None:
        """Do not ask again."""
        self.annotator.skip(self.asked)

    def say(self, event: str, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Answer what happened instead, from this frame to the next."""
        if event not in BY_NAME:
            raise InputError(
                f"event is {event!r}; expected one of {', '.join(BY_NAME)}"
            )
        answer = Answer.of(self.frame, BY_NAME[event], sources, targets)
        self.annotator.say(answer, self.asked, replace=True)

    def draw(self) -> NDArray[np.uint8]:
        """Return the picture, (height, width, 3)."""
        question = self.asked.question
        session = self.annotator.session
        positions = session.positions
        before = positions.cells(self.frame).of_labels(self.sources)
        after = positions.cells(self.frame + 1).of_labels(self.targets)
        places = np.vstack([before, after])
        masks = session.changes.masks
        reach = REACH * masks.diameter / session.movie.spacing[-1]
        low = np.maximum(places[:, -2:].min(axis=0) - reach, 0).astype(int)
        high = (places[:, -2:].max(axis=0) + reach).astype(int) + 1
        crop = (slice(low[0], high[0]), slice(low[1], high[1]))
        halves = []
        for frame, labels, color in (
            (self.frame, question.sources, SOURCE_COLOR),
            (self.frame + 1, question.targets, TARGET_COLOR),
        ):
            index: tuple[Any, ...] = crop
            if session.movie.ndim == 3:
                index = (round(float(places[:, 0].mean())), *crop)
            cells = session.movie.label(frame)[index]
            raw = session.movie.image(frame)
            gray = stretch_contrast((cells > 0) if raw is None else raw[index])
            halves.append(_outline_cells(gray, cells, labels, color))
        gap = np.full((halves[0].shape[0], 4, 3), 255, dtype=np.uint8)
        picture = np.hstack([halves[0], gap, halves[1]])
        zoom = max(1, HEIGHT // picture.shape[0])
        return picture.repeat(zoom, axis=0).repeat(zoom, axis=1)

    def _repr_png_(self) -> bytes:
        return bytes(imagecodecs.png_encode(self.draw()))

    def __str__(self) -> str:
        return f"{self.asked}?"


def stretch_contrast(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return (y, x, 3) gray values from black to white."""
    low, high = np.percentile(image, [1, 99.8])
    share = (image.astype(float) - low) / max(float(high - low), 1e-9)
    gray = (255 * np.clip(share, 0, 1)).astype(np.uint8)
    return np.repeat(gray[:, :, None], 3, axis=2)


def _outline_cells(
    picture: NDArray[np.uint8],
    cells: NDArray[Any],
    labels: Sequence[int],
    color: tuple[int, int, int],
) -> NDArray[np.uint8]:
    """Return a picture with the outlines of cells."""
    outlined = picture.copy()
    for label in labels:
        mask = cells == label
        outlined[mask & ~ndimage.binary_erosion(mask)] = color
    return outlined


class QuestionLoop:
    """Questions about a movie, the best one first; clew learns from each answer.

    Iterating yields questions until nothing is left to ask. A question that got no
    answer is asked again.

    Attributes
    ----------
    annotator : Annotator
    """

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator

    def __iter__(self) -> Iterator[PicturedQuestion]:
        while True:
            # Looked at first: predictions may be completed while questions are ranked.
            is_tracked = self.annotator.is_tracked
            asked = self.annotator.list_questions()
            if asked:
                yield PicturedQuestion(self.annotator, asked[0])
            elif is_tracked:
                return
            else:
                time.sleep(WAIT_SECONDS)  # the first predictions are computed

    def undo(self) -> None:
        """Undo the last answer."""
        self.annotator.undo()

    def estimate_errors(self) -> dict[str, Any] | None:
        """Return about how many events are wrong; None until all are predicted."""
        return self.annotator.estimate_errors()

    def build_lineage(self) -> Lineage:
        """Return the lineage that follows from the answers so far."""
        while not self.annotator.is_tracked:
            time.sleep(WAIT_SECONDS)
        return self.annotator.build_lineage()

    def close(self) -> None:
        """End learning; all answers are stored."""
        self.annotator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def annotate(
    movie: Movie | str | Path,
    store: str | Path | None = None,
    tracker: Tracker | None = None,
) -> QuestionLoop:
    """Ask questions about a movie, in a notebook or a script.

    Parameters
    ----------
    movie : Movie or path
        A path is that of a sequence folder, as `open_movie` reads it.
    store : path, optional
        Where answers are stored; by default beside the movie, as ``clew annotate``
        does.
    tracker : Tracker, optional
        Has the initial weights; generic ones by default.

    Returns
    -------
    questions : QuestionLoop
        Close it in the end, or use it in a ``with`` statement.

    Examples
    --------
    >>> with clew.tracking.annotate("movie/01") as questions:  # doctest: +SKIP
    ...     for question in questions:
    ...         display(question)
    ...         question.yes() if input(f"{question} y/n ") == "y" else question.no()
    ...         if questions.annotator.n_answers == 25:
    ...             break
    ...     lineage = questions.build_lineage()
    """
    if store is None and isinstance(movie, Movie):
        raise InputError("store is missing; expected a file for the answers")
    if not isinstance(movie, Movie):
        path = Path(movie).absolute()
        store = store or path.with_name(path.name + STORE)
        movie = open_movie(path)
    return QuestionLoop(Annotator.open(movie, Path(str(store)), tracker))

"""What the server and its worker say to each other, over a pipe."""

from __future__ import annotations

from dataclasses import dataclass

from clew.annotation.edited_movie import Edits
from clew.annotation.questions import Question
from clew.learning.task import Array
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, Event
from clew.tracking.solve import SolvedPair
from clew.tracking.tracker import Tracker


@dataclass(frozen=True)
class WorkerMovie:
    """A movie that the worker learns to track."""

    source: Source
    tracker: Tracker | None
    """Whose weights it begins with; None for those that come with clew."""


@dataclass(frozen=True)
class Learn:
    """To the worker: learn from these annotations; a newer one takes the place of one that still waits."""

    movie: int
    revision: int
    annotations: Annotations
    frames: tuple[int, ...]
    """Where the person is and will be next: their predictions come first."""
    events: frozenset[Event] | None = None
    """The kinds of events that can happen in this movie; None for those that the worker began with."""
    edits: Edits = ()
    """All edits of its masks that hold: the worker has the movie as it was before them."""
    start: int = 0
    """How often the person has let the movie begin with other weights; replies tell which of them they follow from."""
    tracker: Tracker | None = None
    """With the weights of that; None for those that the worker began with."""


@dataclass(frozen=True)
class Learned:
    """From the worker: the weights changed, or are the first."""

    movie: int
    revision: int
    version: int
    weights: Array
    complete: bool
    """Whether the fit reached its precision; otherwise it goes on when nobody answers."""
    start: int = 0


@dataclass(frozen=True)
class Predicted:
    """From the worker: predictions of some frame pairs."""

    movie: int
    pairs: tuple[SolvedPair, ...]
    revision: int
    """Of the annotations and masks that they follow from."""
    start: int = 0


@dataclass(frozen=True)
class Asked:
    """From the worker: what to ask next, the best question first."""

    movie: int
    revision: int
    questions: tuple[Question, ...]
    start: int = 0


@dataclass(frozen=True)
class Failed:
    """From the worker: learning from a revision went wrong."""

    movie: int
    revision: int
    problem: str
    start: int = 0


Reply = Learned | Predicted | Asked | Failed

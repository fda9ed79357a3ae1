"""Which events to ask about next.

A question is about an open event: one that is predicted and that no annotation
settles. `collect_open_events` takes the least certain ones that pass a
`QuestionFilter`, `rank_events` gives each a value, and `diversify` spreads the
questions over frames, places and kinds of events.

`MovieSession.rank_questions` (`session.py`) is the one place that calls
`next_questions`: for the page, napari and notebooks. The page's filter comes from its
menu (`steering.js`), as a `QuestionQuery`, through `view_questions` (`app/session.py`).

To rank events differently, change `rank_events`; it gets the least certain events
only. To ask about some events first, such as those of a track, let `rank_questions`
call `next_questions` with a filter for them, and for the other questions without. The
page leaves the order as it is. While a filter is set it ignores the questions that come
with the reply to an answer, which are unfiltered (`takeReply` in `movie.js`).

The ranking is expected model change (Settles et al. 2008): the chance that a
prediction is wrong times the length of the step that the weights would take.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from clew.annotation.answers import Answer, Fact
from clew.annotation.predictions import Prediction
from clew.errors import InputError
from clew.learning.task import Array, Indices, Mask
from clew.tracking.detections import Detections, Source
from clew.tracking.events import NONE, Annotations, Event, EventTable, Labels

CANDIDATES_PER_QUESTION = 12
MIN_CANDIDATES = 200
"""Only the least certain events are ranked: so many for each question."""
TIE = 0.1
UNSURE = 0.4
"""Confidence, as a share of the typical one of the movie, below which two
explanations almost tie, and below which the model is unsure."""
RARE = 0.05
"""A kind of event is rare below this share of the annotations."""
SAME_PAIR = 0.7
SAME_PLACE = 0.2
SAME_KIND = 0.97
"""What a question is still worth after another one about the same frame pair, the
same place, the same kind of event."""
NEAR_FRAMES = 1
NEAR_DIAMETERS = 2.0
"""Events within so many frames and cell diameters are about the same place."""


class Reason(StrEnum):
    """Why a question is asked; the page has the words."""

    FIRST_OF_KIND = "first-of-kind"
    RARE_KIND = "rare-kind"
    TIE = "tie"
    CLOSE_CALL = "close-call"
    INFORMATIVE = "informative"
    CHANGED_CELL = "changed-cell"
    RANDOM = "random"


class Certainty(StrEnum):
    """How certain a prediction is, relative to the others of its movie."""

    UNSURE = "unsure"
    FAIR = "fair"
    SURE = "sure"


@dataclass(frozen=True)
class Question:
    """Did this event happen?"""

    frame: int
    event: Event
    sources: tuple[int, ...]
    """Labels in `frame`."""
    targets: tuple[int, ...]
    """Labels in the next frame."""
    value: float
    """Its rank; comparable within one list only."""
    reasons: tuple[Reason, ...]
    """Why it is asked, the most important first."""

    @property
    def fact(self) -> Fact:
        """The event in question."""
        return self.frame, self.event, self.sources, self.targets


@dataclass(frozen=True)
class QuestionFilter:
    """Which events may be asked about; None for all."""

    event: Event | None = None
    first_frame: int | None = None
    last_frame: int | None = None
    """The last frame that an event may start from."""
    box: tuple[float, float, float, float] | None = None
    """Left, top, right, bottom in the unit of the spacing; the center of the event's
    cells is inside."""
    track: Collection[tuple[int, int]] | None = None
    """Cells (frame, label); the event is about one of them."""


NO_FILTER = QuestionFilter()


@dataclass(frozen=True)
class OpenEvents:
    """Predicted events that no annotation settles."""

    events: EventTable
    confidence: Array
    """(n,) the score lost when the event is forbidden; finite."""
    step_length: Array
    """(n,) how far the weights would move if the event were wrong."""
    typical_confidence: float
    """The median confidence of the movie."""
    n_annotated: NDArray[np.int64]
    """(kinds,) annotated events of each kind."""

    def __len__(self) -> int:
        return len(self.events)

    @property
    def chance_wrong(self) -> Array:
        """(n,) how likely each prediction is wrong: 1/2 for a tie, down to 0."""
        exponent = 4.0 * self.confidence / self.typical_confidence
        return np.asarray(1.0 / (1.0 + np.exp(np.minimum(exponent, 700.0))))

    @property
    def rarity(self) -> Array:
        """(n,) larger for kinds of events with few annotations."""
        n_kinds = len(self.n_annotated)
        share = (1.0 + self.n_annotated) / (n_kinds + self.n_annotated.sum())
        return np.asarray(1.0 / np.sqrt(share[self.events.event]))


def rank_events(open_events: OpenEvents) -> Array:
    """Return (n,) how much each open event is worth asking about; larger is first.

    Without the square root, events of odd cells, whose steps are long, come too early.
    """
    gain = open_events.step_length * open_events.rarity
    return np.asarray(open_events.chance_wrong * np.sqrt(gain))


def next_questions(
    predictions: Sequence[Prediction],
    annotations: Annotations,
    source: Source,
    n: int,
    *,
    diameter: float,
    chosen: QuestionFilter = NO_FILTER,
    seed: int = 0,
) -> list[Question]:
    """Return the questions to ask next, the best one first.

    Parameters
    ----------
    predictions : sequence of Prediction
        Of the frame pairs that were predicted so far.
    annotations : Annotations
        What was answered.
    source : Source
        The detections, for the places of events.
    n : int
        The number of questions; fewer are returned if fewer events are open.
    diameter : float
        Of a typical cell, in the unit of the spacing.
    chosen : QuestionFilter
        Which events may be asked about.
    seed : int
        For weights that are all zero, which know nothing: they ask at random.
    """
    if n < 1:
        raise InputError(f"n is {n}; expected at least one question")
    knows_nothing = not any(prediction.weight_norm for prediction in predictions)
    limit = max(CANDIDATES_PER_QUESTION * n, MIN_CANDIDATES)
    open_events = collect_open_events(
        predictions, annotations, source, None if knows_nothing else limit, chosen
    )
    if knows_nothing:
        value = np.random.default_rng(seed).random(len(open_events))
        rows = np.argsort(-value, kind="stable")[:n].tolist()
    else:
        value = rank_events(open_events)
        places = locate_events(open_events.events, source)
        rows = diversify(
            value, open_events.events, places, NEAR_DIAMETERS * diameter, n
        )
    return [
        Question(
            *_event_at(open_events.events, row),
            float(value[row]),
            (Reason.RANDOM,) if knows_nothing else find_reasons(open_events, row),
        )
        for row in rows
    ]


def find_reasons(open_events: OpenEvents, row: int) -> tuple[Reason, ...]:
    """Return why an event is asked about: at most two reasons."""
    event = Event(open_events.events.event[row])
    counts = open_events.n_annotated
    share = float(open_events.confidence[row]) / open_events.typical_confidence
    reasons = []
    if event is not Event.MOVE and not counts[event]:
        reasons.append(Reason.FIRST_OF_KIND)
    elif event is not Event.MOVE and counts[event] < RARE * counts.sum():
        reasons.append(Reason.RARE_KIND)
    if share < TIE:
        reasons.append(Reason.TIE)
    elif share < UNSURE:
        reasons.append(Reason.CLOSE_CALL)
    return tuple([*reasons, Reason.INFORMATIVE][:2])


def classify_certainty(confidence: Array, typical_confidence: float) -> list[Certainty]:
    """Return how certain predictions are, by their share of the typical confidence."""
    share = confidence / typical_confidence
    classes = [Certainty.UNSURE, Certainty.FAIR, Certainty.SURE]
    index = np.digitize(share, [TIE, UNSURE])
    return [classes[i] for i in index.tolist()]


def typical_confidence(predictions: Sequence[Prediction]) -> float:
    """Return the median finite confidence of a movie; 1 if there is none."""
    parts = [prediction.confidence for prediction in predictions]
    return _median_confidence(np.concatenate([np.zeros(0), *parts]))


def _median_confidence(confidence: Array) -> float:
    finite = confidence[np.isfinite(confidence)]
    return (float(np.median(finite)) if len(finite) else 0.0) or 1.0


def collect_open_events(
    predictions: Sequence[Prediction],
    annotations: Annotations,
    source: Source,
    limit: int | None = None,
    chosen: QuestionFilter = NO_FILTER,
) -> OpenEvents:
    """Return the least certain open events of a movie, in the order of the movie.

    Parameters
    ----------
    predictions : sequence of Prediction
    annotations : Annotations
    source : Source
        Used only if the filter has a box.
    limit : int, optional
        The largest number of events; all if None.
    chosen : QuestionFilter
    """
    parts = [one.confidence for one in predictions]
    confidence = np.concatenate([np.zeros(0), *parts])
    sizes = [len(part) for part in parts]
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
    allowed = np.isfinite(confidence)
    if chosen != NO_FILTER:
        kept = [_matches(chosen, one, source) for one in predictions]
        allowed &= np.concatenate([np.zeros(0, bool), *kept])
    rows = np.flatnonzero(allowed)
    # A few of the least certain events may be settled: take twice as many.
    if limit is not None and 2 * limit < len(rows):
        least = np.argpartition(confidence[rows], 2 * limit)[: 2 * limit]
        rows = np.sort(rows[least])

    owner = np.searchsorted(begins, rows, side="right") - 1
    tables = []
    lengths = [np.zeros(0)]
    for index in np.unique(owner).tolist():
        own = rows[owner == index] - begins[index]
        tables.append(predictions[index].events[own])
        length = predictions[index].step_length
        lengths.append(np.full(len(own), np.nan) if length is None else length[own])
    events = EventTable.join(tables)
    is_open = find_open(events, annotations)
    if limit is not None and limit < np.count_nonzero(is_open):
        cut = np.partition(confidence[rows][is_open], limit)[limit]
        is_open &= confidence[rows] < cut

    step_length = np.concatenate(lengths)[is_open]
    measured = step_length[np.isfinite(step_length)]
    default = float(np.median(measured)) if len(measured) else 1.0
    happened = annotations.events.event[annotations.happened]
    return OpenEvents(
        events[np.flatnonzero(is_open)],
        confidence[rows][is_open],
        np.where(np.isfinite(step_length), step_length, default),
        _median_confidence(confidence),
        np.bincount(happened, minlength=len(Event)),
    )


def _matches(chosen: QuestionFilter, prediction: Prediction, source: Source) -> Mask:
    """Return (n,) whether the events of a frame pair pass a filter."""
    events = prediction.events
    frame = prediction.frame
    first = chosen.first_frame or 0
    if frame < first or (chosen.last_frame is not None and frame > chosen.last_frame):
        return np.zeros(len(events), dtype=bool)
    allowed = np.ones(len(events), dtype=bool)
    if chosen.event is not None:
        allowed &= events.event == chosen.event
    if chosen.track is not None:
        before = [label for t, label in chosen.track if t == frame]
        after = [label for t, label in chosen.track if t == frame + 1]
        on_track = np.isin(events.sources, before) | np.isin(events.targets, after)
        allowed &= on_track.any(axis=1)
    if chosen.box is not None and allowed.any():
        y, x = locate_events(events, source)[:, -2:].T
        left, top, right, bottom = chosen.box
        allowed &= (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
    return allowed


def diversify(
    value: Array, events: EventTable, places: Array, near: float, n: int
) -> list[int]:
    """Choose rows greedily; each one lowers the value of those that are like it.

    This is maximal marginal relevance (Carbonell & Goldstein 1998), with a factor
    for each likeness.

    Parameters
    ----------
    value : ndarray of shape (m,)
    events : EventTable
        With m events.
    places : ndarray of shape (m, ndim)
    near : float
        Events within this distance and `NEAR_FRAMES` are about the same place.
    n : int
        The largest number of rows.

    Returns
    -------
    rows : list of int
        The most valuable first.
    """
    left = np.array(value, dtype=float)
    frame = events.frame
    kind = events.event
    rows: list[int] = []
    for _ in range(min(n, len(left))):
        row = int(np.argmax(left))
        rows.append(row)
        is_close = np.abs(frame - frame[row]) <= NEAR_FRAMES
        is_close &= ((places - places[row]) ** 2).sum(axis=1) <= near**2
        left *= np.where(frame == frame[row], SAME_PAIR, 1.0)
        left *= np.where(kind == kind[row], SAME_KIND, 1.0)
        left *= np.where(is_close, SAME_PLACE, 1.0)
        left[rows] = -np.inf
    return rows


def questions_about_changed_cells(
    predictions: dict[int, Prediction],
    annotations: Annotations,
    outdated: Sequence[Answer],
    n: int,
) -> list[Question]:
    """Return questions about cells whose masks changed after they were annotated.

    Parameters
    ----------
    predictions : dict of int to Prediction
        By first frame.
    annotations : Annotations
        Those that still hold.
    outdated : sequence of Answer
        Answers about cells that changed; the last one is asked about first.
    n : int
        The largest number of questions.
    """
    questions: dict[Fact, Question] = {}
    for answer in reversed(outdated):
        prediction = predictions.get(answer.frame)
        if prediction is None:
            continue
        events = prediction.events
        same_source = np.isin(events.sources, answer.sources)
        same_target = np.isin(events.targets, answer.targets)
        is_asked = (same_source | same_target).any(axis=1)
        is_asked &= np.isfinite(prediction.confidence)
        is_asked &= find_open(events, annotations)
        for row in np.flatnonzero(is_asked).tolist():
            fact = _event_at(events, row)
            question = Question(*fact, 0.0, (Reason.CHANGED_CELL,))
            questions.setdefault(fact, question)
        if len(questions) >= n:
            break
    return list(questions.values())[:n]


def find_open(events: EventTable, annotations: Annotations) -> Mask:
    """Return (n,) whether each event is neither annotated nor settled."""
    is_annotated = np.isin(events.row_keys(), annotations.events.row_keys())
    return np.asarray(~is_annotated & ~find_settled(events, annotations))


def find_settled(events: EventTable, annotations: Annotations) -> Mask:
    """Return (n,) whether a cell of the event has an annotated fate or history.

    The fate counts for sources, the history for targets.
    """
    known = annotations.events[annotations.happened]
    known_fates = _cell_numbers(known, known.sources)
    known_histories = _cell_numbers(known, known.targets)
    fates = _cell_numbers(events, events.sources)
    histories = _cell_numbers(events, events.targets)
    has_fate = np.isin(fates, known_fates[known_fates >= 0])
    has_history = np.isin(histories, known_histories[known_histories >= 0])
    return np.asarray((has_fate | has_history).any(axis=1))


def _cell_numbers(events: EventTable, labels: Labels) -> Labels:
    """Return (n, 2) one number for each cell of the movie; −1 for no cell."""
    return np.where(labels == NONE, -1, (events.frame[:, None] << 40) + labels)


def locate_events(events: EventTable, source: Source) -> Array:
    """Return (n, ndim) the center of the cells of each event."""
    places = np.zeros((len(events), source.ndim))
    for frame in np.unique(events.frame).tolist():
        rows = np.flatnonzero(events.frame == frame)
        before = _find_positions(source.detections(frame), events.sources[rows])
        after = _find_positions(source.detections(frame + 1), events.targets[rows])
        cells = np.concatenate([before, after], axis=1)
        places[rows] = np.nanmean(cells, axis=1)
    return places


def _find_positions(detections: Detections, labels: Labels) -> Array:
    """Return (n, 2, ndim) the positions of labels, NaN for no cell."""
    ndim = detections.position.shape[1]
    known = np.vstack([detections.position, np.full((1, ndim), np.nan)])
    return np.asarray(known[detections.rows(labels)])


def _event_at(events: EventTable, row: int) -> Fact:
    """Return one event of a table."""
    (event,) = events[row : row + 1]
    return event


def answer_from_truth(question: Question, truth: Annotations) -> Indices:
    """Return the rows of a truth that answer a question.

    They are the true fate of the question's sources, or, if a cell appears, the true
    history of that cell. None are returned if the truth does not know.
    """
    events = truth.events
    if question.sources:
        is_about_cell = np.isin(events.sources, question.sources).any(axis=1)
    else:
        is_about_cell = np.isin(events.targets, question.targets).any(axis=1)
    is_in_frame = events.frame == question.frame
    return np.flatnonzero(is_in_frame & truth.happened & is_about_cell)

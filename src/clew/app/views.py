"""What the page receives, as JSON: cells, frame pairs, questions, families, status."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clew.annotation.cell_positions import DIGITS, CellPositions
from clew.annotation.predictions import Prediction
from clew.annotation.questions import TIE, Question, classify_certainty
from clew.tracking.events import (
    LINEAGE_KINDS,
    Annotations,
    Event,
    EventIndex,
    EventTable,
)
from clew.tracking.lineage.lineage import Lineage

if TYPE_CHECKING:
    from clew.app.session import PageSession

Json = dict[str, Any]


def view_event(event: str, sources: Sequence[int], targets: Sequence[int]) -> Json:
    """Return an event, without its frame."""
    return {"event": event, "sources": list(sources), "targets": list(targets)}


def view_pair(
    prediction: Prediction,
    before: CellPositions,
    after: CellPositions,
    annotations: Annotations,
    typical_confidence: float,
) -> Json:
    """Return a frame pair with its predicted and denied events.

    Parameters
    ----------
    prediction : Prediction
    before, after : CellPositions
        The cells of both frames.
    annotations : Annotations
        Of this pair.
    typical_confidence : float
        Of the movie, see `classify_certainty`.
    """
    table = prediction.events
    happened = annotations.events.row_keys()[annotations.happened]
    is_pinned = np.isin(table.row_keys(), happened).tolist()
    confidence = prediction.confidence
    certainty = classify_certainty(confidence, typical_confidence)
    events = []
    for row, (_, event, sources, targets) in enumerate(table):
        view = view_event(str(event), sources, targets)
        value = float(confidence[row])
        view["confidence"] = value if math.isfinite(value) else None
        view["certainty"] = certainty[row]
        view["pinned"] = True if is_pinned[row] else None
        events.append(view)
    denied = [
        view_event(str(event), sources, targets)
        for _, event, sources, targets in annotations.events[~annotations.happened]
    ]
    return {
        "frame": prediction.frame,
        "version": prediction.version,
        "a": before.to_json(),
        "b": after.to_json(),
        "events": events,
        "denied": denied,
    }


def view_question(
    question: Question,
    before: CellPositions,
    after: CellPositions,
    prediction: Prediction | None,
) -> Json:
    """Return a question with its place in the picture."""
    cells = [before.of_labels(question.sources), after.of_labels(question.targets)]
    positions = np.vstack(cells)
    center = [0.0, 0.0]
    if len(positions):
        center = np.round(positions.mean(axis=0)[::-1][:2], DIGITS).tolist()
    return {
        "frame": question.frame,
        **view_event(str(question.event), question.sources, question.targets),
        "reasons": question.reasons,
        "confidence": _find_confidence(question, prediction),
        "centre": center,
    }


def _find_confidence(question: Question, prediction: Prediction | None) -> float | None:
    """Return the confidence of the event in question, if it is predicted."""
    if prediction is None:
        return None
    is_asked = prediction.events.row_keys() == EventTable.of([question.fact]).row_keys()
    confidence = prediction.confidence[is_asked & np.isfinite(prediction.confidence)]
    return float(confidence[0]) if len(confidence) else None


def view_family(
    lineage: Lineage, frame: int, label: int, typical_confidence: float
) -> Json:
    """Return the tracks of a cell's family, from its first ancestor on.

    Each cell is [frame, label, certainty of its next event]; None in the last frame.
    """
    is_cell = (lineage.frame == frame) & (lineage.label == label)
    rows = np.flatnonzero(is_cell)
    if not len(rows):
        return {"tracks": [], "selected": None}
    tracks = lineage.tracks
    own_id = int(lineage.track[rows[0]])
    parents = tracks.parent_row()
    root = int(np.flatnonzero(tracks.id == own_id)[0])
    while parents[root] >= 0:
        root = int(parents[root])
    root_id = int(tracks.id[root])
    in_family = np.isin(tracks.id, [root_id, *lineage.descendants(root_id)])

    members = np.flatnonzero(np.isin(lineage.track, tracks.id[in_family]))
    frames = lineage.frame[members]
    labels = lineage.label[members]
    is_target = np.zeros(len(members), dtype=bool)
    next_event = EventIndex(lineage.events).find_cell(frames, is_target, labels)
    certainty = classify_certainty(lineage.confidence, typical_confidence)
    cells: dict[int, list[list[Any]]] = {}
    for row, event in zip(members.tolist(), next_event.tolist(), strict=True):
        cell = [
            int(lineage.frame[row]),
            int(lineage.label[row]),
            None if event < 0 else certainty[event],
        ]
        cells.setdefault(int(lineage.track[row]), []).append(cell)
    views = [
        {
            "id": track_id,
            "begin": begin,
            "end": end,
            "parent": parent,
            "cells": cells.get(track_id, []),
        }
        for track_id, begin, end, parent in tracks[in_family].table().tolist()
    ]
    return {"tracks": views, "selected": {"track": own_id, "frame": frame}}


def printable_name(session: PageSession) -> str:
    """Return the movie's name; bytes that are no valid Unicode are replaced."""
    return os.fsencode(session.movie.name).decode("utf-8", "replace")


def view_movie(session: PageSession) -> Json:
    """Return the movie for the list of movies."""
    movie = session.movie
    return {
        "id": session.number,
        "name": printable_name(session),
        "n_frames": movie.n_frames,
        "ndim": movie.ndim,
        "shape": list(movie.shape),
        "spacing": list(movie.spacing),
        "has_images": movie.images is not None,
        "annotated": len(session.state.annotations),
        "store": session.store.id,
    }


def view_status(session: PageSession, page: str = "", target: int = 0) -> Json:
    """Return the state of annotation and learning.

    Parameters
    ----------
    session : PageSession
    page : str
        The browser tab that asks; it can undo its own answers.
    target : int
        An acceptable number of wrong events.
    """
    state = session.state
    happened = state.annotations.happened
    kinds = state.annotations.events.event[happened]
    counts = np.bincount(kinds, minlength=len(Event)).tolist()
    n_edits = len(session.changes.masks.edits)
    return {
        "revision": state.revision,
        "version": session.predictions.weights.version,
        "annotated": len(happened),
        **session.undo_state(page),
        "outdated": len(state.outdated),
        "events": session.event_names(),
        "masks": dict(state.masks),
        "edits": n_edits,
        "set_aside": len(session.store.edits()) - n_edits,
        "learning": session.is_learning,
        "learned": session.learned_revision,
        "counts": {str(event): counts[event] for event in LINEAGE_KINDS},
        "denied": int((~happened).sum()),
        "wrong": session.progress.estimate_errors(target),
        "curve": session.progress.curve,
        **_view_tracking(session),
        "predicted": session.predictions.count_events(),
        "place": session.position,
        "worker": session.worker_status,
    }


def view_overview(session: PageSession) -> Json:
    """Return the movie for the overview of all movies."""
    weights = session.initial_weights
    return {
        "id": session.number,
        "name": printable_name(session),
        "annotated": len(session.state.annotations),
        "weights": None if weights is None else weights.name,
        "wrong": session.progress.estimate_errors(),
        "before": session.errors_before,
        **_view_tracking(session),
    }


def _view_tracking(session: PageSession) -> Json:
    """Return how many of the frame pairs are predicted."""
    return {
        "tracked": len(session.predictions.by_frame),
        "pairs": session.predictions.n_pairs,
    }


def view_doubts(session: PageSession) -> Json:
    """Return the number of unsure events of each frame pair; None if not predicted."""
    threshold = TIE * session.typical_confidence
    counts: list[int | None] = []
    for frame in range(session.predictions.n_pairs):
        prediction = session.predictions.by_frame.get(frame)
        if prediction is None:
            counts.append(None)
        else:
            counts.append(int((prediction.confidence < threshold).sum()))
    return {"doubtful": counts}

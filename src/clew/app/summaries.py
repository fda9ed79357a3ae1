"""A movie in figures, as pages show it: what it is, how far its annotation is, where it is in doubt."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from clew.annotation.questions import TIE
from clew.app.views import Json
from clew.tracking.events import Event

if TYPE_CHECKING:
    from clew.app.session import Session


def name_of(session: Session) -> str:
    """The movie's name; what is no valid Unicode is marked so."""
    return os.fsencode(session.movie.name).decode("utf-8", "replace")


def about(session: Session) -> Json:
    """The movie in the list of movies."""
    movie = session.movie
    return {
        "id": session.number,
        "name": name_of(session),
        "n_frames": movie.n_frames,
        "ndim": movie.ndim,
        "shape": list(movie.shape),
        "spacing": list(movie.spacing),
        "has_images": movie.images is not None,
        "annotated": len(session.state.annotations),
        "store": session.store.id,
    }


def status(session: Session, page: str = "", target: int = 0) -> Json:
    """How far things are, as a page sees it; `target` is how many wrong events it would put up with."""
    state, happened = session.state, session.state.annotations.happened
    annotated = np.bincount(
        state.annotations.events.event[happened], minlength=len(Event)
    ).tolist()
    edits = session.changes.masks.edits
    return {
        "revision": state.revision,
        "version": session.predictor.weights.version,
        "annotated": len(happened),
        **session.ways(page),
        "outdated": len(state.outdated),
        "events": session.event_names(),
        "masks": dict(state.masks),
        "edits": len(edits),
        "set_aside": len(session.store.edits()) - len(edits),
        "learning": session.is_learning,
        "learned": session.learned,
        "counts": {str(event): annotated[event] for event in Event},
        "denied": int((~happened).sum()),
        "wrong": session.progress.wrong(target),
        "curve": session.progress.curve,
        **_tracked(session),
        "predicted": session.predictor.counts(),
        "place": session.place,
        "worker": session.worker,
    }


def overview(session: Session) -> Json:
    """The movie among others: with which weights it began, and about how many of its events are wrong."""
    return {
        "id": session.number,
        "name": name_of(session),
        "annotated": len(session.state.annotations),
        "weights": None if session.beginning is None else session.beginning.name,
        "wrong": session.progress.wrong(),
        "before": session.before,
        **_tracked(session),
    }


def _tracked(session: Session) -> Json:
    """How much of the movie is tracked, in frame pairs."""
    return {
        "tracked": len(session.predictor.solved),
        "pairs": session.predictor.n_pairs,
    }


def doubts(session: Session) -> Json:
    """How many events of each frame pair have another explanation that is almost as good; None where unknown."""
    solved = (
        session.predictor.solved.get(frame)
        for frame in range(session.predictor.n_pairs)
    )
    counts = [
        None if one is None else int((one.confidence < TIE * session.scale).sum())
        for one in solved
    ]
    return {"doubtful": counts}

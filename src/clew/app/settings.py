"""Every switch of the annotation page's server and worker, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerSettings:
    """When the worker does what, in seconds and frame pairs."""

    learn_seconds: float = 0.8
    """For one fit, before predictions are renewed; what is left then is learned with the next answer, or when nobody
    answers. New predictions are to be there within a second."""
    turn_seconds: float = 0.15
    """Of predictions between two looks for new annotations."""
    neighbours: int = 2
    """Frame pairs to both sides of the last answer that are predicted anew right after what the person sees."""
    questions: int = 40
    """That are kept ready: a fast hand must not run out of them while the next are chosen."""
    most_unasked: int = 6
    """Fits after which new questions are due, even if annotations wait and not all predictions have been renewed."""
    last_seconds: float = 0.3
    """To come to an end when the server has."""
    niceness: int = 5
    """The person's own browser comes first; at 10, a busy machine leaves the worker next to nothing."""


@dataclass(frozen=True)
class SessionSettings:
    """What one movie's part of the server keeps."""

    kept_candidates: int = 1_000_000
    """Candidates whose features stay in memory, at about 100 bytes each."""
    most_questions: int = 100
    """That a page may ask for at once."""
    questions_after_answer: int = 20
    """That a page gets with the reply to an answer."""
    questions_ahead: int = 3
    """Whose frames the worker predicts before others."""
    picture_bytes: int = 256 * 2**20
    """Of encoded pictures that stay in memory."""


WORKER = WorkerSettings()
SESSION = SessionSettings()

"""Settings of a movie that is being annotated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SessionSettings:
    """What a session keeps for one movie."""

    cached_candidates: int = 1_000_000
    """Candidates whose features stay in memory, at about 100 bytes each."""
    max_questions: int = 100
    """That a page may ask for at once."""
    questions_after_answer: int = 20
    """That a page receives with the reply to an answer."""
    questions_ahead: int = 3
    """Whose frame pairs are predicted before others."""
    picture_bytes: int = 256 * 2**20
    """Of encoded pictures that stay in memory."""
    export_wait: float = 1.0
    """Seconds that an export waits for weights which follow from the last answers."""


SESSION = SessionSettings()

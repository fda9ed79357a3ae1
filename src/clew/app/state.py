"""What a movie's store holds at a moment, as far as it is still about the cells that the movie has now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clew.annotation.answers import Answer
from clew.annotation.cell_positions import Positions
from clew.annotation.store.store import Store
from clew.tracking.events import Annotations


@dataclass(frozen=True)
class State:
    """What the store holds at a moment."""

    revision: int
    annotations: Annotations
    """Those whose cells still look as they did when they were answered about."""
    outdated: tuple[Answer, ...]
    """The others: they are kept in the history, and asked about again."""
    masks: Mapping[int, int]
    """The last revision that changed the masks of a frame, for frames in which there was one."""

    @classmethod
    def of(cls, store: Store, positions: Positions) -> State:
        """The present one."""
        annotations, entries = store.annotations(), store.holding()
        holds = np.array([positions.holds(entry) for entry in entries], dtype=bool)
        outdated = tuple(
            entry.answer for entry, good in zip(entries, holds, strict=True) if not good
        )
        held = annotations[holds] if outdated else annotations
        return cls(store.revision, held, outdated, store.mask_revisions())

"""The difference of features between a prediction and its best alternative: what an answer would be about."""

from __future__ import annotations

import numpy as np

from clew.annotation.learner import Learner
from clew.annotation.strategies.pool import Pool
from clew.learning.task import Array, Indices
from clew.tracking.candidates.frame_pairs import FramePair
from clew.tracking.events import Event


def feature_differences(learner: Learner, pool: Pool) -> Array:
    """(n, d) φ(y) − φ(y') for each event: y is the prediction of its frame pair, y' the best one without the event."""
    found = np.zeros((len(pool), len(learner.w)))
    for frame in np.unique(pool.events.frame).tolist():
        here = np.flatnonzero(pool.events.frame == frame)
        pair, answer = learner.pair(frame), learner.solved(frame).assignment
        assert answer is not None  # learners keep it
        of_row = pair.rows(pool.events[here])
        rows = np.fromiter(of_row, dtype=np.intp)
        at = here[np.fromiter(of_row.values(), dtype=np.intp)]
        _, added, removed = answer.alternatives(rows)
        found[at] = _summed(pair, removed, len(learner.w)) - _summed(
            pair, added, len(learner.w)
        )
    return found


def _summed(pair: FramePair, columns: Indices, d: int) -> Array:
    """(m, d) the features of some candidates, added up for each row of `columns`, where −1 stands for none."""
    total = np.zeros((len(columns), d))
    begin = 0
    for event in Event:
        block, of_event = pair.blocks[event], pair.candidates.of_event(event)
        row, place = np.nonzero((columns >= of_event.start) & (columns < of_event.stop))
        part = slice(begin, begin + block.shape[1])
        np.add.at(total[:, part], row, block[columns[row, place] - of_event.start])
        begin = part.stop
    return total

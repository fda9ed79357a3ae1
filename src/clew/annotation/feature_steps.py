"""How the weights would move if a predicted event were wrong.

A perceptron step for a wrong event is φ(y') − φ(y): y is the prediction of its frame
pair and y' the best one without the event. Its length says how much an answer would
teach (expected model change, Settles et al. 2008).
"""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.assignment.assignment import Assignment
from clew.tracking.candidates.frame_pairs import FramePair
from clew.tracking.events import Event


def feature_steps(pair: FramePair, assignment: Assignment, rows: Indices) -> Array:
    """Return φ(y) − φ(y') for some chosen candidates of a frame pair.

    Parameters
    ----------
    pair : FramePair
    assignment : Assignment
        The best assignment of the pair.
    rows : ndarray of shape (m,)
        Candidates of the pair that the assignment chose.

    Returns
    -------
    steps : ndarray of shape (m, n_features)
    """
    _, added, removed = assignment.alternatives(rows)
    return _sum_features(pair, removed) - _sum_features(pair, added)


def _sum_features(pair: FramePair, candidates: Indices) -> Array:
    """Sum the features of the candidates in each row, where −1 is no candidate."""
    blocks = [pair.blocks[event] for event in Event]
    total = np.zeros((len(candidates), sum(block.shape[1] for block in blocks)))
    first_column = 0
    for event, block in zip(Event, blocks, strict=True):
        rows = pair.candidates.of_event(event)
        is_of_event = (candidates >= rows.start) & (candidates < rows.stop)
        row, place = np.nonzero(is_of_event)
        columns = slice(first_column, first_column + block.shape[1])
        added = block[candidates[row, place] - rows.start]
        np.add.at(total[:, columns], row, added)
        first_column = columns.stop
    return total

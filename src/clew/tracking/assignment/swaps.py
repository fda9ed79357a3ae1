"""Swaps: two moves that trade their targets.

Among near cells this is the likeliest mistake, and its margin does not show how likely:
it is small wherever two cells are close, however clear their moves. What does is how
their relative position changes. From d to d' the moves change it by ‖d' − d‖, and the
swapped ones by ‖d' + d‖. The logarithm of the ratio of both has no unit: 0 if nothing
speaks for either, and alike for any speed, frame rate and distance of the cells.
"""

from __future__ import annotations

import numpy as np

from clew.learning.task import Array
from clew.tracking.assignment.assignment import Assignment, look_up
from clew.tracking.events import Event

TOLERANCE = 1e-9
"""Of the largest score, up to which a swap is the best alternative to a move."""
SMALLEST = 1e-9
"""Least displacement, in units of the positions."""
LEAST_CLEARNESS = 1e-3
"""Of a move that a swap may replace; others have 0."""


def measure_clearness(
    answer: Assignment, confidence: Array, before: Array, after: Array
) -> Array:
    """Measure how clear the moves are that two cells might swap.

    Parameters
    ----------
    answer : Assignment
    confidence : ndarray of shape (m,)
        Score lost if a chosen candidate is forbidden.
    before, after : ndarray of shape (n, ndim)
        Positions of the sources, shifted by the flow, and of the targets.

    Returns
    -------
    ndarray of shape (m,)
        For chosen moves whose best alternative is a swap, the logarithm of ‖d' + d‖
        over ‖d' − d‖, at least `LEAST_CLEARNESS`; 0 for others.
    """
    candidates = answer.candidates
    moves = candidates.of_event(Event.MOVE)
    source = candidates.sources[moves, 0]
    target = candidates.targets[moves, 0]
    keys = source * np.int64(candidates.n_targets) + target  # ascending
    scores = answer.scores[moves]
    clearness = np.zeros(len(answer.chosen))
    place = np.flatnonzero(answer.events == Event.MOVE)
    chosen = answer.chosen[place] - moves.start

    # Of each candidate, the chosen moves of its source and of its target.
    move_from = np.full(candidates.n_sources, -1)
    move_from[source[chosen]] = np.arange(len(chosen))
    move_to = np.full(candidates.n_targets, -1)
    move_to[target[chosen]] = np.arange(len(chosen))
    first = move_from[source]
    second = move_to[target]
    there = np.flatnonzero((first >= 0) & (second >= 0) & (first != second))
    first = chosen[first[there]]
    second = chosen[second[there]]
    n_targets = np.int64(candidates.n_targets)
    back, exists = look_up(keys, source[second] * n_targets + target[first])
    there, back, first, second = (rows[exists] for rows in (there, back, first, second))

    loss = scores[first] + scores[second] - scores[there] - scores[back]
    limit = np.full(len(source), np.nan)
    size = np.abs(scores[chosen]).max(initial=0.0)
    limit[chosen] = confidence[place] + TOLERANCE * size
    is_best = loss <= limit[first]
    first = first[is_best]
    second = second[is_best]
    d = before[source[first]] - before[source[second]]
    d_after = after[target[first]] - after[target[second]]
    swapped = np.maximum(np.linalg.norm(d_after + d, axis=1), SMALLEST)
    kept = np.maximum(np.linalg.norm(d_after - d, axis=1), SMALLEST)
    of_move = np.zeros(len(source))
    of_move[first] = np.maximum(np.log(swapped / kept), LEAST_CLEARNESS)
    clearness[place] = of_move[chosen]
    return clearness

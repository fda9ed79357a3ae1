"""Probabilities of learned weights, from annotations that were held out.

Generic coefficients turn margins into probabilities (`probability.py`). How many events of this kind of cells are wrong
is told by the mistakes on held-out annotations, against as many as were to be expected of the same events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clew.learning.task import Array
from clew.tracking.model.assignment import takes_part
from clew.tracking.model.domain import some
from clew.tracking.model.probability import GENERIC_CALIBRATION, Calibration, MovieMargins
from clew.tracking.model.solve import SolvedPair, solve
from clew.tracking.model.training import TrainingExample


def expected_mistakes(examples: Sequence[TrainingExample], w: Array) -> float:
    """How many annotations of some frame pairs weights `w` are expected to miss."""
    solved = [solve(example.pair, w) for example in examples]
    seen = MovieMargins.sum(one.margins() for one in solved)
    calibration = GENERIC_CALIBRATION.of_movie(seen)
    return sum(_mistakes(example, one, calibration) for example, one in zip(examples, solved, strict=True))


def _mistakes(example: TrainingExample, solved: SolvedPair, calibration: Calibration) -> float:
    """How many annotations of a frame pair are expected to be missed.

    An annotated event is missed if what is predicted for its first cell is wrong; one that did not happen, if it is
    predicted, and right.
    """
    assert solved.assignment is not None
    wrong = 1 - solved.probability(calibration)
    parts = takes_part(example.pair.candidates)
    predicted = np.full(int(parts.max(initial=0)) + 1, -1)
    chosen = solved.assignment.chosen
    for side in range(parts.shape[1]):
        rows = np.flatnonzero(parts[chosen, side] >= 0)
        predicted[parts[chosen[rows], side]] = rows  # every detection takes part in one event
    total = 0.0
    for row, happened in example.annotated.items():
        instead = predicted[parts[row][parts[row] >= 0][0]]
        is_predicted = chosen[instead] == row
        total += wrong[instead] if happened else float(is_predicted) * (1 - wrong[instead])
    return float(total)


def recalibrate(examples: Sequence[TrainingExample], w: Array, mistakes: float | None) -> Calibration:
    """The calibration of weights that made so many mistakes on held-out annotations; generic if that is not known.

    Expectations are taken from some of the examples, as margins take time.
    """
    looked_at = some(examples)
    annotated = sum(len(one.annotated) for one in looked_at)
    if mistakes is None or not annotated:
        return GENERIC_CALIBRATION
    whole = sum(len(one.annotated) for one in examples)
    expected = expected_mistakes(looked_at, w) * whole / annotated
    return GENERIC_CALIBRATION.recalibrated(expected, mistakes)

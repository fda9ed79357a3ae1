"""Pseudo-labels: what the weights that learning begins with are almost certainly right about counts as annotated.

Pseudo-labels (Lee 2013, "Pseudo-label: the simple and efficient semi-supervised learning method") say what annotations
of a few events leave open. Odd events are annotated as often as others or oftener, and weights that explain a few of
those alone explain little else: one cell that vanishes in the middle of HeLa led to weights by which fifty others do.
So predictions that are almost certainly right, by their calibrated probabilities, are learned from too, unless an
annotation says otherwise. They are no evidence: what is held out to judge weights by is annotated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from clew.learning.task import Array, Indices
from clew.models.binary_program import Program
from clew.models.examples import Annotation, Examples
from clew.tracking.candidates.frame_pairs import FramePair, Pairs
from clew.tracking.profiling.domain import some_pairs
from clew.tracking.profiling.scales import Over
from clew.tracking.solve import SolvedPair, solve, solve_pair
from clew.tracking.training.calibration import Calibration, MovieMargins

PROBABILITY = 0.99
"""Predictions that are right with this probability, or a higher one, are pseudo-labels."""
SHARE, LEAST = 0.9, 0.9
"""Where they are fewer than this share of a movie's predictions, as among fast cells, and fewer events are annotated
than there are weights, little keeps these from leaving what they knew: then the likeliest predictions are
pseudo-labels, up to this share, down to this probability. Not on the page, where people answer what is doubtful, nor
with more annotations: there they would keep weights from learning what they are told."""


@dataclass(frozen=True)
class PseudoLabelled(Program):
    """A programme of events, and which of them are almost certain."""

    sure: Indices
    """(m,) variables that are 1 unless an annotation says otherwise, no two of them about the same cell."""


def with_all(X: Sequence[Program], Y: Examples) -> list[Annotation]:
    """What is told of some programmes, with their pseudo-labels."""
    return [
        with_pseudo_labels(x, x.sure, y) if isinstance(x, PseudoLabelled) else y
        for x, y in zip(X, Y, strict=True)
    ]


def with_pseudo_labels(
    x: Program, sure: Indices, told: Mapping[int, int]
) -> dict[int, int]:
    """What is told of a programme of events, and pseudo-labels for the cells that it says nothing about.

    Of an event that is told to have happened, that is its cells. If one did not happen that was almost certain, all
    cells that might have taken its cells' place are open again; so are all that a cell might go to or come from which
    is open, and is told not to end. Any other open cell can end, so that some output agrees with all of this.
    """
    happened = _cells(x, [variable for variable, value in told.items() if value])
    denied = np.array(
        [variable for variable, value in told.items() if not value], dtype=np.intp
    )
    surprises = _cells(x, denied[np.isin(denied, sure)].tolist())
    cannot_end = _cells(x, denied[np.diff(x.A.tocsc().indptr)[denied] == 1].tolist())
    open_again = happened + _reached(x, surprises)
    while True:
        free = sure[x.A[:, sure].T @ open_again == 0]
        stuck = (cannot_end > 0) & (happened == 0) & (_cells(x, free.tolist()) == 0)
        reached = open_again + _reached(x, stuck.astype(float))
        if not ((reached > 0) & (open_again == 0)).any():
            return {int(variable): 1 for variable in free} | dict(told)
        open_again = reached


def _reached(x: Program, cells: Array) -> Array:
    """(n_cells,) how many of the events that these cells might take part in each cell might take part in."""
    return np.asarray(x.A @ (x.A.T @ cells > 0).astype(float))


def _cells(x: Program, variables: list[int]) -> Array:
    """(n_cells,) how many of some events each cell takes part in."""
    return np.asarray(x.A[:, variables].sum(axis=1), dtype=float)


def almost_certain(
    chosen: Indices, probability: Array, least: float = PROBABILITY
) -> Indices:
    """(m,) of some chosen variables those that are almost certainly right."""
    return chosen[probability >= least]


def least_probability(probability: Array) -> float:
    """The probability from which on predictions are pseudo-labels, by those (n,) of some frame pairs of a movie."""
    likely = (
        float(np.quantile(probability, 1 - SHARE)) if len(probability) else PROBABILITY
    )
    return min(max(likely, LEAST), PROBABILITY)


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """What weights are almost certain about in the frame pairs of a movie."""

    w: Array
    calibration: Calibration
    """For this movie."""
    least: float = PROBABILITY
    """What is right with this probability, or a higher one, is a pseudo-label."""

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        w: Array,
        calibration: Calibration,
        n_annotated: int,
        over: Over = map,
    ) -> Self:
        """By weights `w` and their `calibration`; `over` maps over the frame pairs that tell how sure they are here.

        Those are evenly spread, not the annotated ones, so that they tell the same whatever is annotated.
        """
        solved = list(over(partial(_solved, w), some_pairs(pairs)))
        of_movie = calibration.of_movie(
            MovieMargins.sum(one.margins() for one in solved)
        )
        known = np.concatenate(
            [np.zeros(0), *(one.probability(of_movie) for one in solved)]
        )
        return cls(
            w,
            of_movie,
            least_probability(known) if n_annotated < len(w) else PROBABILITY,
        )

    def added(self, program: Program, pair: FramePair) -> Program:
        """The programme of a frame pair, with its pseudo-labels."""
        solved = solve(pair, self.w)
        assert solved.assignment is not None
        sure = almost_certain(
            solved.assignment.chosen, solved.probability(self.calibration), self.least
        )
        return PseudoLabelled(
            program.features, program.A, program.lower, program.upper, sure
        )


def _solved(w: Array, item: tuple[Pairs, int]) -> SolvedPair:
    pairs, frame = item
    return solve_pair(pairs, w, frame)

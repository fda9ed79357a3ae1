"""Pseudo-labels: almost certain predictions of the prior count as annotated.

Pseudo-labels (Lee 2013) fill in what a few annotations leave open. Odd events are
annotated as often as others, and weights that explain a few of those explain little
else: one cell that vanishes in the middle of HeLa led to weights by which fifty others
do. Predictions that are almost certainly right are learned from too, unless an
annotation contradicts them. They are no evidence: weights are judged by annotations.
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
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.profile import sample_pairs
from clew.tracking.scales import MapFunction
from clew.tracking.solve import PairSolution, solve_frame_pair, solve_pairs
from clew.tracking.training.calibration import Calibration, MovieMargins

PROBABILITY = 0.99
"""Predictions that are right with at least this probability are pseudo-labels."""


@dataclass(frozen=True)
class PseudoLabeledProgram(Program):
    """A program of events, and which of them are almost certain."""

    certain: Indices
    """(m,) variables that are 1 unless annotated otherwise; no two share a cell."""


def add_pseudo_labels(X: Sequence[Program], Y: Examples) -> list[Annotation]:
    """Add the pseudo-labels of programs to their annotations."""
    return [
        fill_pseudo_labels(x, x.certain, y)
        if isinstance(x, PseudoLabeledProgram)
        else y
        for x, y in zip(X, Y, strict=True)
    ]


def fill_pseudo_labels(
    x: Program, certain: Indices, annotated: Mapping[int, int]
) -> dict[int, int]:
    """Add pseudo-labels for cells that annotations leave open.

    An annotated event fixes its cells. If an almost certain event did not happen, all
    cells that might take the place of its cells are open again. So are all that an open
    cell might go to or come from if it is annotated not to end. Any other open cell can
    end, so that some output agrees with all labels.

    Parameters
    ----------
    x : Program
    certain : ndarray of shape (m,)
        Variables that are almost certain.
    annotated : mapping of int to int
        {variable: 1 if it happened, 0 if not}.

    Returns
    -------
    dict of int to int
        The annotations with pseudo-labels.
    """
    happened = _count_cells(x, [row for row, value in annotated.items() if value])
    denied = np.array(
        [row for row, value in annotated.items() if not value], dtype=np.intp
    )
    surprising = _count_cells(x, denied[np.isin(denied, certain)].tolist())
    n_cells = np.diff(x.A.tocsc().indptr)
    cannot_end = _count_cells(x, denied[n_cells[denied] == 1].tolist())
    is_open = happened + _reachable_cells(x, surprising)
    while True:
        free = certain[x.A[:, certain].T @ is_open == 0]
        is_stuck = (cannot_end > 0) & (happened == 0)
        is_stuck &= _count_cells(x, free.tolist()) == 0
        reached = is_open + _reachable_cells(x, is_stuck.astype(float))
        if not ((reached > 0) & (is_open == 0)).any():
            return {int(variable): 1 for variable in free} | dict(annotated)
        is_open = reached


def _reachable_cells(x: Program, cells: Array) -> Array:
    """How many events of some cells each cell might take part in, (n_cells,)."""
    return np.asarray(x.A @ (x.A.T @ cells > 0).astype(float))


def _count_cells(x: Program, variables: list[int]) -> Array:
    """How many of some events each cell takes part in, (n_cells,)."""
    return np.asarray(x.A[:, variables].sum(axis=1), dtype=float)


def select_certain(
    chosen: Indices, probability: Array, least: float = PROBABILITY
) -> Indices:
    """Return the chosen variables with at least this probability, (m,)."""
    return chosen[probability >= least]


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Almost certain predictions of weights in one movie."""

    w: Array
    calibration: Calibration
    """Of this movie."""

    @classmethod
    def of(
        cls,
        builder: FramePairBuilder,
        w: Array,
        calibration: Calibration,
        map_function: MapFunction = map,
    ) -> Self:
        """Calibrate the predictions of weights on a movie.

        Evenly spread frame pairs are solved for it, not the annotated ones, so that the
        result does not depend on the annotations.
        """
        solve = partial(_solve_sampled_pair, w)
        solutions = map_function(solve, sample_pairs(builder))
        margins = MovieMargins.sum(pair.margins() for pair in solutions)
        return cls(w, calibration.of_movie(margins))

    def add_to(self, program: Program, pair: FramePair) -> Program:
        """Return the program of a frame pair with its pseudo-labels."""
        solution = solve_frame_pair(pair, self.w)
        assert solution.assignment is not None
        probability = solution.probability(self.calibration)
        certain = select_certain(solution.assignment.chosen, probability)
        return PseudoLabeledProgram(
            program.features, program.A, program.lower, program.upper, certain
        )


def _solve_sampled_pair(w: Array, item: tuple[FramePairBuilder, int]) -> PairSolution:
    """Solve a frame pair."""
    builder, frame = item
    return solve_pairs(builder, w, [frame])[0]

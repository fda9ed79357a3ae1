"""Assignment with conservation: each detection takes part in exactly one event.

Section 5 of the paper. Every candidate is a 0/1 variable with a score; the best choice
maximizes the sum of scores such that each cell has one fate and one history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array, Indices, Mask, Matrix
from clew.models.highs_solver import Program, WarmStartedProgram
from clew.tracking.assignment.margins import compute_margins, find_alternatives
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.events import Event

SWAP_TOLERANCE = 1e-9
"""Of the largest score, up to which a swap is the best alternative to a move."""
LEAST_DISPLACEMENT = 1e-9
"""Least displacement, in units of the positions."""
LEAST_CLEARNESS = 1e-3
"""Of a move that a swap may replace; others have 0."""


@dataclass(frozen=True)
class Assignment:
    """The best choice among the candidates of a frame pair."""

    candidates: Candidates
    scores: Array
    """(n,) −inf for candidates that contradict pinned ones."""
    chosen: Indices
    """(m,) rows of the candidates, ascending."""
    reduced: Array
    """(n,) reduced score: the score less the LP's prices of the candidate's detections.
    0 for chosen candidates; for others at most 0 if the LP is integral, and then a
    bound of what choosing them would cost."""

    @property
    def events(self) -> NDArray[np.int8]:
        """(m,) the kinds of the chosen events."""
        kinds: NDArray[np.int8] = self.candidates.event[self.chosen]
        return kinds

    @property
    def value(self) -> float:
        """The score of the choice."""
        return float(self.scores[self.chosen].sum())

    def confidence(self, rows: Indices | None = None) -> Array:
        """Compute the margins of candidates.

        Parameters
        ----------
        rows : ndarray of shape (m,), optional
            Candidates; the chosen ones by default.

        Returns
        -------
        ndarray of shape (m,)
            The score lost if an event is forbidden (if chosen) or forced (if not); inf
            if that is impossible.
        """
        return compute_margins(
            self.candidates.detections_of(),
            self.candidates.n_detections,
            self.chosen,
            self.reduced,
            self.chosen if rows is None else rows,
        )

    def alternatives(self, rows: Indices) -> tuple[Array, Indices, Indices]:
        """Find the best alternative to each of some candidates.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Candidates, chosen or not.

        Returns
        -------
        margins : ndarray of shape (m,)
        added : ndarray of shape (m, a)
            Candidates that the alternative adds, padded with −1.
        removed : ndarray of shape (m, b)
            Candidates that it removes, padded with −1.
        """
        return find_alternatives(
            self.candidates.detections_of(),
            self.candidates.n_detections,
            self.chosen,
            self.reduced,
            rows,
        )


def build_incidence(candidates: Candidates, rows: Any = slice(None)) -> Any:
    """Build the incidence matrix of detections and candidates.

    Parameters
    ----------
    candidates : Candidates
    rows : index, optional
        Of the candidates; all by default.

    Returns
    -------
    csr_array of shape (n_detections, n)
        1 where a detection takes part in a candidate.
    """
    detections = candidates.detections_of(rows)
    candidate, place = np.nonzero(detections >= 0)
    entries = (detections[candidate, place], candidate)
    shape = (candidates.n_detections, len(detections))
    return sp.csr_array((np.ones(len(candidate)), entries), shape=shape)


def make_program(candidates: Candidates, features: Matrix) -> Program:
    """Make the program whose outputs are the consistent choices.

    Parameters
    ----------
    candidates : Candidates
    features : matrix of shape (n, d)

    Returns
    -------
    Program
    """
    A = build_incidence(candidates)
    one = np.ones(A.shape[0])
    return Program(features, A, one, one)


def assign(
    candidates: Candidates, scores: Array, pinned: Mapping[int, int] | None = None
) -> Assignment:
    """Find the best consistent choice of candidates.

    Parameters
    ----------
    candidates : Candidates
    scores : ndarray of shape (n,)
    pinned : mapping of int to int, optional
        Rows of candidates that are known to happen (1) or not to happen (0).

    Returns
    -------
    Assignment

    Raises
    ------
    InfeasibleAnnotation
        If no consistent choice agrees with the pinned candidates.
    """
    scores = np.where(_find_possible(candidates, pinned or {}), scores, -np.inf)
    kept = np.flatnonzero(find_undominated(candidates, scores))
    A = build_incidence(candidates, kept)
    n, m = A.shape
    program = WarmStartedProgram(A, np.ones(n), np.ones(n), np.zeros(m), np.ones(m))
    solution = program.solve(scores[kept])
    if solution is None:
        raise InfeasibleAnnotation(
            "no assignment agrees with what is annotated in this frame pair"
        )
    chosen = kept[solution.y == 1]
    prices = raise_prices(
        solution.duals, candidates.detections_of(chosen), scores[chosen]
    )
    # exact for dominated candidates too: right prices of the others price them out
    detections = candidates.detections_of()
    reduced = scores - np.append(prices, 0.0)[detections].sum(axis=1)
    return Assignment(candidates, scores, chosen, reduced)


def raise_prices(prices: Array, detections: Indices, scores: Array) -> Array:
    """Raise prices until no chosen candidate scores more than its detections' prices.

    The LP prices the bounds y ≤ 1 separately. As prices of detections, these hold for
    dominated candidates too. `detections` (m, 4) are those of the chosen.
    """
    exists = detections >= 0
    size = exists.sum(axis=1)
    prices = np.append(prices, 0.0)  # −1 refers to the last one
    excess = np.maximum(scores - prices[detections].sum(axis=1), 0.0)
    prices[detections[exists]] += np.repeat(excess / size, size)
    return prices[:-1]


def find_undominated(candidates: Candidates, scores: Array) -> Mask:
    """Find the candidates that may be part of a best choice.

    A move that scores no more than its source's disappearance and its target's
    appearance is never needed; nor is a division, split or merge that scores no more
    than one of its moves with the remaining cell appearing or disappearing. Prices of
    the others price these out, so that the LP keeps its optimum and its duals.

    Returns
    -------
    ndarray of bool of shape (n,)
    """
    sources = candidates.sources
    targets = candidates.targets
    disappear = np.full(candidates.n_sources, -np.inf)
    rows = candidates.of_event(Event.DISAPPEAR)
    disappear[sources[rows, 0]] = scores[rows]
    appear = np.full(candidates.n_targets, -np.inf)
    rows = candidates.of_event(Event.APPEAR)
    appear[targets[rows, 0]] = scores[rows]

    moves = candidates.of_event(Event.MOVE)
    n_targets = np.int64(candidates.n_targets)
    # ascending, as the candidates are
    move_keys = sources[moves, 0] * n_targets + targets[moves, 0]

    def score_move(source: Indices, target: Indices) -> Array:
        place, exists = look_up(move_keys, source * n_targets + target)
        score = np.full(len(source), -np.inf)
        score[exists] = scores[moves][place[exists]]
        return score

    instead = np.full(len(scores), -np.inf)
    instead[moves] = disappear[sources[moves, 0]] + appear[targets[moves, 0]]
    for event in (Event.DIVIDE, Event.SPLIT):
        rows = candidates.of_event(event)
        whole = sources[rows, 0]
        first = targets[rows, 0]
        second = targets[rows, 1]
        instead[rows] = np.maximum.reduce(
            [
                score_move(whole, first) + appear[second],
                score_move(whole, second) + appear[first],
                disappear[whole] + appear[first] + appear[second],
            ]
        )
    rows = candidates.of_event(Event.MERGE)
    whole = targets[rows, 0]
    first = sources[rows, 0]
    second = sources[rows, 1]
    instead[rows] = np.maximum.reduce(
        [
            score_move(first, whole) + disappear[second],
            score_move(second, whole) + disappear[first],
            disappear[first] + disappear[second] + appear[whole],
        ]
    )
    return np.asarray((scores > instead) & (scores > -np.inf))


def split_score_margins(assignment: Assignment) -> Array:
    """Compute how much more chosen splits and divisions score as splits.

    Returns
    -------
    ndarray of shape (m,)
        NaN for other events, and where only one of both is possible.
    """
    candidates = assignment.candidates
    chosen = assignment.chosen
    margin = np.full(len(chosen), np.nan)
    splits = candidates.of_event(Event.SPLIT)
    divisions = candidates.of_event(Event.DIVIDE)
    for rows, others, sign in ((splits, divisions, 1.0), (divisions, splits, -1.0)):
        mine = np.flatnonzero((chosen >= rows.start) & (chosen < rows.stop))
        keys = _family_keys(candidates, chosen[mine])
        place, exists = look_up(_family_keys(candidates, others), keys)
        score = assignment.scores[chosen[mine[exists]]]
        other_score = assignment.scores[others][place[exists]]
        margin[mine[exists]] = sign * (score - other_score)
    # the other kind may be ruled out by an annotation
    return np.where(np.isfinite(margin), margin, np.nan)


def _family_keys(candidates: Candidates, rows: Any) -> Indices:
    """Return one number for a source and two targets, ascending like candidates."""
    n = np.int64(max(candidates.n_targets, 1))
    sources = candidates.sources[rows, 0]
    first, second = candidates.targets[rows].T
    keys: Indices = (sources * n + first) * n + second
    return keys


def look_up(known: Indices, keys: Indices) -> tuple[Indices, Mask]:
    """Return (n,) each: where keys are among ascending ones, and whether they are."""
    if not len(known):
        return np.zeros(len(keys), np.intp), np.zeros(len(keys), dtype=bool)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return place, known[place] == keys


def _find_possible(candidates: Candidates, pinned: Mapping[int, int]) -> Mask:
    """Return (n,) which candidates agree with the pinned ones.

    One that happens excludes all others of its detections.
    """
    is_possible = np.ones(len(candidates), dtype=bool)
    if not pinned:
        return is_possible
    rows = np.array(list(pinned), dtype=np.intp)
    happens = np.array(list(pinned.values()), dtype=bool)
    detections = candidates.detections_of()
    # −1, which stands for no detection, refers to the last place
    is_taken = np.zeros(candidates.n_detections + 1, dtype=bool)
    is_taken[detections[rows[happens]]] = True
    is_taken[-1] = False
    is_possible[is_taken[detections].any(axis=1)] = False
    is_possible[rows[happens]] = True
    is_possible[rows[~happens]] = False
    return is_possible


def measure_clearness(
    answer: Assignment, confidence: Array, before: Array, after: Array
) -> Array:
    """Measure how clear the moves are that two cells might swap.

    Among near cells, a swap of targets is the likeliest mistake. Its margin does not
    show how likely: it is small wherever two cells are close, however clear their
    moves. What does is how their relative position changes: from d to d', the moves
    change it by ‖d' − d‖, and the swapped ones by ‖d' + d‖. The logarithm of the ratio
    has no unit. It is 0 if nothing speaks for either, and independent of speed, frame
    rate and distance.

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
    limit[chosen] = confidence[place] + SWAP_TOLERANCE * size
    is_best = loss <= limit[first]
    first = first[is_best]
    second = second[is_best]
    d = before[source[first]] - before[source[second]]
    d_after = after[target[first]] - after[target[second]]
    swapped = np.maximum(np.linalg.norm(d_after + d, axis=1), LEAST_DISPLACEMENT)
    kept = np.maximum(np.linalg.norm(d_after - d, axis=1), LEAST_DISPLACEMENT)
    of_move = np.zeros(len(source))
    of_move[first] = np.maximum(np.log(swapped / kept), LEAST_CLEARNESS)
    clearness[place] = of_move[chosen]
    return clearness

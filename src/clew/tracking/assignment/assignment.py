"""Assignment with conservation: every detection has one fate and one history (section 5 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array, Indices, Mask, Matrix
from clew.models.binary_program import Program
from clew.models.highs_solver import KeptProgram
from clew.tracking.assignment.margins import alternatives, margins
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.events import Event


@dataclass(frozen=True)
class Assignment:
    """The best choice among the candidates of a frame pair."""

    candidates: Candidates
    scores: Array
    """(n,) −inf where a candidate is ruled out by what is pinned."""
    chosen: Indices
    """(m,) rows of the candidates, ascending."""
    reduced: Array
    """(n,) score minus the LP's prices of the detections that the candidate takes part in: at most 0 where the LP's
    answer is integral, and what choosing the candidate would cost at least; 0 for those that are chosen."""

    @property
    def events(self) -> NDArray[np.int8]:
        """(m,) the kinds of the chosen events."""
        kinds: NDArray[np.int8] = self.candidates.event[self.chosen]
        return kinds

    @property
    def value(self) -> float:
        """The score of the choice."""
        return float(self.scores[self.chosen].sum())

    def among(self, kept: Mask) -> Assignment | None:
        """The best choice among some of the candidates, (n,), if it is this one: if all that is chosen is kept.

        What is best among all is best among some, and prices that no candidate exceeds are exceeded by none of these.
        """
        if not kept[self.chosen].all():
            return None
        place = np.cumsum(kept) - 1
        return Assignment(
            self.candidates[kept],
            self.scores[kept],
            place[self.chosen],
            self.reduced[kept],
        )

    def confidence(self, rows: Indices | None = None) -> Array:
        """(m,) the score that is lost when an event is forbidden (if chosen) or forced (if not); inf if impossible.

        For the chosen events unless other `rows` of the candidates are asked for.
        """
        asked = self.chosen if rows is None else np.asarray(rows, dtype=np.intp)
        return margins(
            takes_part(self.candidates),
            n_detections(self.candidates),
            self.chosen,
            self.reduced,
            asked,
        )

    def alternatives(self, rows: Indices) -> tuple[Array, Indices, Indices]:
        """The confidence of `rows`, (m,), and the candidates that come, (m, a), and go, (m, b), if one is otherwise.

        −1 is filled in; there are none where nothing else is possible.
        """
        asked = np.asarray(rows, dtype=np.intp)
        return alternatives(
            takes_part(self.candidates),
            n_detections(self.candidates),
            self.chosen,
            self.reduced,
            asked,
        )


def n_detections(candidates: Candidates) -> int:
    """The rows of the programme: the detections of both frames."""
    return candidates.n_sources + candidates.n_targets


def takes_part(candidates: Candidates, which: Any = slice(None)) -> Indices:
    """(n, 4) the detections of each candidate as rows of the programme, −1 filled in: sources first, then targets."""
    targets = candidates.targets[which]
    targets = np.where(targets >= 0, targets + candidates.n_sources, -1)
    return np.column_stack([candidates.sources[which], targets]).astype(np.intp)


def incidence(candidates: Candidates, which: Any = slice(None)) -> Any:
    """(n_sources + n_targets, n) CSR with a 1 where a detection takes part in a candidate."""
    rows = takes_part(candidates, which)
    candidate, place = np.nonzero(rows >= 0)
    shape = (n_detections(candidates), len(rows))
    return sp.csr_array(
        (np.ones(len(candidate)), (rows[candidate, place], candidate)), shape=shape
    )


def make_program(candidates: Candidates, features: Matrix) -> Program:
    """The programme whose outputs are the consistent choices: each detection takes part in exactly one event."""
    A = incidence(candidates)
    one = np.ones(A.shape[0])
    return Program(features, A, one, one)


def assign(
    candidates: Candidates, scores: Array, pinned: Mapping[int, int] | None = None
) -> Assignment:
    """The best consistent choice; `pinned` maps rows of the candidates to whether they happen.

    Candidates that cannot be part of a best choice are left out of the programme (`undominated`).
    """
    scores = np.where(_possible(candidates, pinned or {}), scores, -np.inf)
    kept = np.flatnonzero(undominated(candidates, scores))
    answer = _solve(
        incidence(candidates, kept), takes_part(candidates, kept), scores[kept]
    )
    if answer is None:
        raise InfeasibleAnnotation(
            "no assignment agrees with what is annotated in this frame pair"
        )
    chosen, prices = answer
    # Exact for those that were left out too: prices that are right for the others price them out.
    reduced = scores - np.append(prices, 0.0)[takes_part(candidates)].sum(axis=1)
    return Assignment(candidates, scores, kept[chosen], reduced)


def _solve(A: Any, rows: Indices, scores: Array) -> tuple[Mask, Array] | None:
    """Choose columns of `A` that cover each row once: (m,) which, and (n,) the prices.

    None where there is no such choice. `rows` (m, 4) are the rows of each column, −1 filled in.
    """
    n, m = A.shape
    program = KeptProgram(A, np.ones(n), np.ones(n), np.zeros(m), np.ones(m))
    answer = program.maximise_with_prices(scores)
    if answer is None:
        return None
    chosen = answer[0] == 1
    return chosen, _raise_prices(answer[1], rows[chosen], scores[chosen])


def _raise_prices(prices: Array, rows: Indices, scores: Array) -> Array:
    """Raise prices until no chosen column scores more than those of its rows.

    The LP prices its bounds y ≤ 1 apart from its rows. Prices of rows alone hold for all columns, also for those that
    were left out since others are at least as good. Each row is in one chosen column.
    """
    there = rows >= 0
    size = there.sum(axis=1)
    prices = np.append(prices, 0.0)  # −1 leads to the last place
    excess = np.maximum(scores - prices[rows].sum(axis=1), 0.0)
    prices[rows[there]] += np.repeat(excess / size, size)
    return prices[:-1]


def undominated(candidates: Candidates, scores: Array) -> Mask:
    """(n,) which candidates could be part of a best choice.

    A move that scores no more than its source's disappearing and its target's appearing is never needed; nor is a
    division, split or merge that scores no more than one of its own moves with what is left appearing or disappearing.
    Since prices of the rest price these out as well, the LP of the rest has the same optimum and the same duals.
    """
    event, sources, targets = candidates.event, candidates.sources, candidates.targets
    vanish = _by_detection(
        candidates.n_sources, sources[:, 0], scores, event == Event.DISAPPEAR
    )
    emerge = _by_detection(
        candidates.n_targets, targets[:, 0], scores, event == Event.APPEAR
    )
    moves = candidates.of_event(Event.MOVE)
    n = np.int64(candidates.n_targets)
    known, move_scores = (
        sources[moves, 0] * n + targets[moves, 0],
        scores[moves],
    )  # sorted, as all candidates are

    def move(source: Indices, target: Indices) -> Array:
        asked = source * n + target
        if not len(known):
            return np.full(len(asked), -np.inf)
        at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        return np.where(known[at] == asked, move_scores[at], -np.inf)

    instead = np.full(len(scores), -np.inf)
    instead[moves] = vanish[sources[moves, 0]] + emerge[targets[moves, 0]]
    twos = np.flatnonzero((event == Event.DIVIDE) | (event == Event.SPLIT))
    s, a, b = sources[twos, 0], targets[twos, 0], targets[twos, 1]
    instead[twos] = np.maximum.reduce(
        [
            move(s, a) + emerge[b],
            move(s, b) + emerge[a],
            vanish[s] + emerge[a] + emerge[b],
        ]
    )
    merges = np.flatnonzero(event == Event.MERGE)
    s, r, a = sources[merges, 0], sources[merges, 1], targets[merges, 0]
    instead[merges] = np.maximum.reduce(
        [
            move(s, a) + vanish[r],
            move(r, a) + vanish[s],
            vanish[s] + vanish[r] + emerge[a],
        ]
    )
    return np.asarray((scores > instead) & (scores > -np.inf))


def split_lead(answer: Assignment) -> Array:
    """(m,) by how much chosen splits and divisions score more as a split; NaN where only one of them is possible."""
    candidates, chosen = answer.candidates, answer.chosen
    lead = np.full(len(chosen), np.nan)
    kinds = {event: candidates.of_event(event) for event in (Event.SPLIT, Event.DIVIDE)}
    families = {event: _families(candidates, rows) for event, rows in kinds.items()}
    for event, other in ((Event.SPLIT, Event.DIVIDE), (Event.DIVIDE, Event.SPLIT)):
        mine = np.flatnonzero(candidates.event[chosen] == event)
        asked = families[event][chosen[mine] - kinds[event].start]
        if not len(mine) or not len(families[other]):
            continue
        at = np.minimum(
            np.searchsorted(families[other], asked), len(families[other]) - 1
        )
        there = families[other][at] == asked
        difference = (
            answer.scores[chosen[mine]] - answer.scores[kinds[other].start + at]
        )
        lead[mine] = np.where(
            there, difference if event is Event.SPLIT else -difference, np.nan
        )
    return np.where(
        np.isfinite(lead), lead, np.nan
    )  # the other kind may be ruled out by an annotation


def _families(candidates: Candidates, rows: slice) -> Indices:
    """One number for a source and two targets, ascending as the candidates are."""
    n = np.int64(max(candidates.n_targets, 1))
    return (
        candidates.sources[rows, 0] * n + candidates.targets[rows, 0]
    ) * n + candidates.targets[rows, 1]


def _by_detection(n: int, detection: Indices, scores: Array, which: Mask) -> Array:
    """(n,) the score of each detection's only candidate among `which`; −inf where there is none."""
    values = np.full(n, -np.inf)
    values[detection[which]] = scores[which]
    return values


def _possible(candidates: Candidates, pinned: Mapping[int, int]) -> Mask:
    """(n,) which candidates agree with what is pinned: a pinned event excludes all others of its detections."""
    possible = np.ones(len(candidates.event), dtype=bool)
    if not pinned:
        return possible
    happened = np.array([row for row, yes in pinned.items() if yes], dtype=np.intp)
    taken = np.zeros(
        n_detections(candidates) + 1, dtype=bool
    )  # the last place is for −1, which stands for no detection
    rows = takes_part(candidates)
    taken[rows[happened]] = True
    taken[-1] = False
    possible &= ~taken[rows].any(axis=1)
    possible[happened] = True
    possible[[row for row, yes in pinned.items() if not yes]] = False
    return possible

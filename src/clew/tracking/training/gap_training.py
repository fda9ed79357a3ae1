"""Training examples for gaps: the gaps over a frame are one example, a 0/1 programme like that of a frame pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clew.learning.task import Array, Indices
from clew.tracking.assignment.assignment import make_program
from clew.tracking.assignment.gaps import GapFrame, annotated_choices
from clew.tracking.assignment.loose_ends import Ends, Surroundings, carried
from clew.tracking.candidates.frame_pairs import FramePair
from clew.tracking.detections import Detections
from clew.tracking.events import Annotations, Event, EventTable, Labels
from clew.tracking.training.examples import TrainingExample
from clew.tracking.training.prior import with_prior


@dataclass(frozen=True, eq=False)
class GapExample(TrainingExample):
    """A training example about the gaps over a frame; `annotated` is of their candidates, `pair` the one before."""

    problem: GapFrame

    def mistakes(self, w: Array) -> int:
        """Δ: how many annotations the best gaps by weights `w`, (d,), contradict."""
        chosen = set(
            self.problem.solve(
                w[len(w) - self.problem.features.shape[1] :], {}
            ).chosen.tolist()
        )
        return sum(
            (row in chosen) != happened for row, happened in self.annotated.items()
        )


def gap_examples(
    examples: Sequence[TrainingExample],
    annotations: Annotations,
    prior: Array | None = None,
) -> list[GapExample]:
    """One example for each frame over which gaps may be, between annotated ends of two frame pairs with examples.

    Who annotates gaps calls nothing else a gap, so that annotated appearances and disappearances are none. Where no gap
    was annotated they may well be, and there is nothing to learn from.
    """
    if not len(annotations.select_gaps()):
        return []
    pairs = {example.pair.a.frame: example.pair for example in examples}
    found = [
        _example(pairs[t], pairs[t + 1], annotations, prior)
        for t in sorted(pairs)
        if t + 1 in pairs
    ]
    return [example for example in found if example is not None]


def _example(
    before: FramePair, after: FramePair, annotations: Annotations, prior: Array | None
) -> GapExample | None:
    """Of two pairs that share a frame; None where nothing is annotated to be gone before it, or to be back after it.

    Cells that are there all the time take part as well, as many as there are ends: over them there is no gap, however
    well they fit. From these is learned that where a cell is missing its place is free.
    """
    around, later = before.around, after.around
    if around is None or later is None:
        return None
    t, told = before.a.frame, annotated_choices(annotations, before.a.frame)
    gone, back = told.events.sources[:, 0], told.events.targets[:, 0]
    n = (
        int(max(np.count_nonzero(gone), np.count_nonzero(back)))
        if gone.any() and back.any()
        else 0
    )
    if not n:
        return None
    there = _spread(_seen_throughout(annotations, t), n)
    stay = EventTable.of(
        [
            *((t, Event.DISAPPEAR, (int(label),), ()) for label in there[:, 0]),
            *((t, Event.APPEAR, (), (int(label),)) for label in there[:, 1]),
        ]
    )
    told = Annotations.of(
        EventTable.join([told.events, stay]),
        np.concatenate([told.happened, np.ones(len(stay), dtype=bool)]),
    )
    known = told.events[told.happened & (told.events.event == Event.MOVE)]
    problem = GapFrame.of(
        _ends(
            carried(before.a, before.b, around.shift)[0],
            Event.DISAPPEAR,
            told.events.sources,
            around,
        ),
        _ends(
            carried(after.a, after.b, later.shift)[1],
            Event.APPEAR,
            told.events.targets,
            later,
        ),
        around,
        known,
    )
    n_weights = sum(block.shape[1] for block in before.blocks.values())
    program = make_program(
        problem.candidates, with_prior(problem.design(n_weights), prior)
    )
    return GapExample(before, program, problem.rows(told), problem)


def _ends(
    cells: Detections, event: Event, labels: Labels, around: Surroundings
) -> Ends:
    """The cells of these labels, as they are carried into the other frame."""
    return Ends.of(
        cells,
        event,
        around.alone[event],
        around.groups,
        np.setdiff1d(cells.rows(labels[:, 0]), [-1]),
    )


def _seen_throughout(annotations: Annotations, frame: int) -> Labels:
    """(n, 2) the labels, in a frame and two frames later, of cells that are annotated to move twice."""
    moves = annotations.events[
        annotations.happened & (annotations.events.event == Event.MOVE)
    ]
    first, second = moves[moves.frame == frame], moves[moves.frame == frame + 1]
    _, one, two = np.intersect1d(
        first.targets[:, 0], second.sources[:, 0], return_indices=True
    )
    return np.column_stack([first.sources[one, 0], second.targets[two, 0]])


def _spread(cells: Labels, n: int) -> Labels:
    """Some rows, evenly spread."""
    rows: Indices = np.unique(
        np.linspace(0, len(cells) - 1, min(n, len(cells))).round().astype(np.intp)
    )
    return cells[rows]

"""What a learner is shown of a frame pair: the surroundings of what is annotated, and what it knew before.

A person annotates a few cells of a frame, perhaps of thousands. How the others move says little about those few, but
makes every fit dearer. So a lesson is about a window: the cells nearest to what is annotated, while the first weights'
prediction stands for all others. The window is closed under that prediction (no predicted event leads out of it), and
events that would lead out of it are no candidates, so that the lesson is the pair's own problem with the rest of the
choice held fixed; what the rest scores is the same in every output and cancels in each loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clew.learning.task import Array, Indices, Mask
from clew.tracking.events import Annotations
from clew.tracking.model.assignment import assign, n_detections, takes_part
from clew.tracking.model.candidates import Candidates
from clew.tracking.model.pairs import FramePair

AROUND = 40
"""Cells of either frame, those nearest to an annotated event, that its lesson is about."""
ANCHORED_PAIRS, ANCHORED_AROUND = 8, 120
"""Frame pairs, evenly spread over the movie, that have a lesson though nobody annotated anything, and of how many cells
of either frame."""
SUREST = 0.5
"""The share of the first weights' predictions of each kind, the most certain ones, that count as annotated."""


@dataclass(frozen=True, eq=False)
class Window:
    """A part of a frame pair."""

    rows: Indices
    """(m,) the pair's candidates that are about the window's cells alone, ascending."""
    candidates: Candidates
    """The same, as if there were no other cells."""

    @classmethod
    def of(cls, pair: FramePair, inside: Mask) -> Window:
        """Of the cells that are marked in the order of the programme's rows: (n_sources + n_targets,)."""
        whole, n = pair.candidates, pair.candidates.n_sources
        rows = np.flatnonzero(np.append(inside, True)[takes_part(whole)].all(axis=1))  # the last is for no cell
        new_a, new_b = (np.append(np.cumsum(side) - 1, -1) for side in (inside[:n], inside[n:]))
        return cls(
            rows,
            Candidates(
                whole.event[rows], new_a[whole.sources[rows]], new_b[whole.targets[rows]],
                int(inside[:n].sum()), int(inside[n:].sum()),
            ),
        )  # fmt: skip

    def known(self, of_pair: dict[int, int]) -> dict[int, int]:
        """Annotations of the pair's candidates as those of the window's; what is outside is left out."""
        if not of_pair:
            return {}
        asked = np.fromiter(of_pair, dtype=np.intp)
        at = np.minimum(np.searchsorted(self.rows, asked), len(self.rows) - 1)
        return {int(at[k]): of_pair[int(row)] for k, row in enumerate(asked) if self.rows[at[k]] == row}


@dataclass(frozen=True, eq=False)
class Lesson:
    """One example for the learner."""

    pair: FramePair
    window: Window
    known: dict[int, int]
    """Of the window's candidates: 1 if it happened, 0 if not; annotated, or taken as such."""


class Lessons:
    """The lessons of one movie, by what the weights predict that the learner began with.

    People are asked about odd events. Weights that explain a few of those alone explain little else: without anchors,
    one answer about HeLa nuclei led to weights that miss a fifth of all events. So what the first weights are surest
    of counts as annotated too, unless an answer says otherwise.
    """

    def __init__(self, first: Array, n_pairs: int, pair: Callable[[int], FramePair]) -> None:
        self.first, self._pair = first, pair
        spread = np.linspace(0, n_pairs - 1, ANCHORED_PAIRS).round().astype(int)
        self.anchored: list[int] = sorted(set(spread.tolist())) if first.any() else []
        """Frames with a lesson in any case: none if there is nothing to remember."""
        self._guesses: dict[int, tuple[FramePair, Indices]] = {}
        self._windows: dict[int, tuple[FramePair, bytes, Window]] = {}
        self._anchors: dict[int, tuple[Window, Indices, Array]] = {}
        self._least: dict[int, float] | None = None

    def frames(self, annotations: Annotations) -> list[int]:
        """Frames with a lesson when these are the annotations, ascending."""
        return sorted({*annotations.events.frame.tolist(), *self.anchored})

    def lesson(self, frame: int, annotations: Annotations, known: Annotations) -> Lesson:
        """Of one frame pair: a window around the `annotations` of it and those in `known`, which alone are told."""
        pair, least = self._pair(frame), self._thresholds()  # these first, for they make windows of their own
        told = pair.annotated(known)
        around = told if known is annotations else pair.annotated(annotations) | told
        window = self._window(frame, pair, around)
        told = window.known(told)
        return Lesson(pair, window, self._with_anchors(frame, pair, window, told, least))

    def _window(self, frame: int, pair: FramePair, annotated: dict[int, int]) -> Window:
        cells = takes_part(pair.candidates)
        inside = np.zeros(n_detections(pair.candidates) + 1, dtype=bool)  # the last is for no cell
        if self.first.any():
            for row in annotated:
                inside[cells[row]] = True
                inside[_nearest(pair, cells[row], AROUND)] = True
            if frame in self.anchored and len(inside) > 1:
                inside[_nearest(pair, _somewhere(pair, frame), ANCHORED_AROUND)] = True
            closed = cells[self._guess(frame, pair)]
            inside[-1] = False
            inside[closed[inside[closed].any(axis=1)]] = True
        else:
            inside[:] = True
        key = np.packbits(inside[:-1]).tobytes()
        known = self._windows.get(frame)
        if known is None or known[0] is not pair or known[1] != key:
            known = self._windows[frame] = (pair, key, Window.of(pair, inside[:-1]))
        return known[2]

    def _guess(self, frame: int, pair: FramePair) -> Indices:
        """(m,) the candidates that the first weights choose."""
        known = self._guesses.get(frame)
        if known is None or known[0] is not pair:
            known = self._guesses[frame] = (pair, assign(pair.candidates, pair.scores(self.first)).chosen)
        return known[1]

    def _with_anchors(
        self, frame: int, pair: FramePair, window: Window, told: dict[int, int], least: dict[int, float]
    ) -> dict[int, int]:
        """What is told of a window, and of the rest what the first weights are surest of."""
        if not self.first.any():
            return told
        chosen, confidence = self._surest(frame, pair, window)
        kinds = window.candidates.event[chosen].tolist()
        sure = chosen[confidence >= np.array([least.get(kind, np.inf) for kind in kinds])]
        cells = takes_part(window.candidates)
        taken = cells[[row for row, happened in told.items() if happened]]
        free = ~np.isin(cells[sure], taken[taken >= 0]).any(axis=1)
        return {int(row): 1 for row in sure[free]} | told

    def _surest(self, frame: int, pair: FramePair, window: Window) -> tuple[Indices, Array]:
        """The first weights' choice within a window, and how certain they are."""
        known = self._anchors.get(frame)
        if known is None or known[0] is not window:
            answer = assign(window.candidates, pair.scores(self.first)[window.rows])
            known = self._anchors[frame] = (window, answer.chosen, answer.confidence())
        return known[1], known[2]

    def _thresholds(self) -> dict[int, float]:
        """The confidence from which on a prediction counts as annotated, for each kind of event."""
        if not self.anchored:
            return {}
        if self._least is None:
            kinds, confidences = [], []
            for frame in self.anchored:
                pair = self._pair(frame)
                window = self._window(frame, pair, {})
                chosen, confidence = self._surest(frame, pair, window)
                kinds.append(window.candidates.event[chosen])
                confidences.append(confidence)
            kind, value = np.concatenate(kinds), np.concatenate(confidences)
            self._least = {
                k: float(np.quantile(value[kind == k], 1 - SUREST, method="higher")) for k in np.unique(kind).tolist()
            }
        return self._least


def _places(pair: FramePair) -> Array:
    """(n_sources + n_targets, ndim) where the cells are."""
    return np.concatenate([pair.a.position, pair.b.position])


def _nearest(pair: FramePair, cells: Indices, n: int) -> Indices:
    """The cells nearest to the middle of some, `n` of either frame, as rows of the programme."""
    places = _places(pair)
    apart = ((places - places[cells[cells >= 0]].mean(axis=0)) ** 2).sum(axis=1)
    first = len(pair.a)
    sides = np.arange(first), np.arange(first, len(places))
    return np.concatenate([side[np.argsort(apart[side], kind="stable")[:n]] for side in sides])


def _somewhere(pair: FramePair, seed: int) -> Indices:
    """(1,) any cell of a pair, always the same one."""
    return np.random.default_rng(seed).integers(len(pair.a) + len(pair.b), size=1)

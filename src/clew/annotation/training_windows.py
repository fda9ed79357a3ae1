"""Training examples for incremental fits: local windows around annotated events, with pseudo-labels.

This is all in which the page differs from the recipe of `tracking/training/examples.py`.

**Windows.** A person annotates a few cells of a frame, perhaps of thousands. How the others move says little about
those few, but makes every fit dearer. So an example is about a window: the cells nearest to what is annotated, while
the initial weights' prediction stands for all others. The window is closed under it (no predicted event leads
out of it), and events that would lead out of it are no candidates, so that the example is the pair's own problem with
the rest of the choice held fixed; what the rest scores is the same in every output and cancels in each loss.

**Pseudo-labels** (`tracking/training/pseudo_labels.py`) are those of windows, and of some frame pairs where nothing is
annotated. People are asked about odd events: without pseudo-labels, one answer about HeLa nuclei led to weights that
miss a fifth of all events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

import numpy as np

from clew.annotation.settings import DEFAULT, LearnerSettings
from clew.learning.task import Array, Indices, Mask
from clew.models.binary_program import Program
from clew.tracking.assignment.assignment import (
    Assignment,
    assign,
    make_program,
)
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.candidates.frame_pairs import FramePair
from clew.tracking.events import Annotations
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    Calibration,
    MovieMargins,
)
from clew.tracking.training.examples import TrainingExample
from clew.tracking.training.prior import with_prior
from clew.tracking.training.pseudo_labels import almost_certain, with_pseudo_labels
from clew.utils.cache import Cache


@dataclass(frozen=True, eq=False)
class TrainingWindow:
    """A part of a frame pair, as if there were no other cells."""

    key: Hashable
    """The same exactly for the same cells of the same candidates."""
    rows: Indices
    """(m,) the pair's candidates that are about the window's cells alone, ascending."""
    candidates: Candidates

    @classmethod
    def of(cls, pair: FramePair, inside: Mask) -> TrainingWindow:
        """Of the cells that are marked in the order of the programme's rows: (n_sources + n_targets,)."""
        whole, n = pair.candidates, pair.candidates.n_sources
        rows = np.flatnonzero(
            np.append(inside, True)[whole.detections_of()].all(axis=1)
        )  # the last is for no cell
        new_a, new_b = (
            np.append(np.cumsum(side) - 1, -1) for side in (inside[:n], inside[n:])
        )
        part = Candidates(
            whole.event[rows],
            new_a[whole.sources[rows]],
            new_b[whole.targets[rows]],
            int(inside[:n].sum()),
            int(inside[n:].sum()),
        )
        return cls(window_key(pair, inside), rows, part)

    def annotated(self, of_pair: dict[int, int]) -> dict[int, int]:
        """Annotations of the pair's candidates as those of the window's; what is outside is left out."""
        if not of_pair:
            return {}
        asked = np.fromiter(of_pair, dtype=np.intp)
        at = np.minimum(np.searchsorted(self.rows, asked), len(self.rows) - 1)
        return {
            int(at[k]): of_pair[int(row)]
            for k, row in enumerate(asked)
            if self.rows[at[k]] == row
        }


def window_key(pair: FramePair, inside: Mask) -> Hashable:
    """Which cells of which candidates."""
    return pair.extra, np.packbits(inside).tobytes()


@dataclass(frozen=True, eq=False)
class WindowExample(TrainingExample):
    """A training example about a part of its frame pair; `annotated` is of its candidates, pseudo-labels with them."""

    window: TrainingWindow


class TrainingWindows:
    """The training examples of one movie, by what the initial weights predict."""

    def __init__(
        self,
        initial: Array,
        n_pairs: int,
        pair: Callable[[int], FramePair],
        prior: Array | None = None,
        settings: LearnerSettings = DEFAULT,
        calibration: Calibration = GENERIC_CALIBRATION,
    ) -> None:
        """`calibration` is of the `initial` weights."""
        self.initial, self.prior, self.settings, self._pair = (
            initial,
            prior,
            settings,
            pair,
        )
        self._calibration, self._unit = calibration, float(np.linalg.norm(initial))
        spread = np.linspace(0, n_pairs - 1, settings.pseudo_pairs).round().astype(int)
        self.pseudo_frames: list[int] = (
            sorted(set(spread.tolist())) if initial.any() and n_pairs else []
        )
        """Frames with an example in any case: none if the initial weights are zero and predict nothing."""
        self._predictions: Cache[Indices] = Cache()
        self._windows: Cache[TrainingWindow] = Cache()
        self._assignments: Cache[tuple[Indices, Array]] = Cache()
        self._programs: Cache[Program] = Cache()
        self._of_movie: Calibration | None = None

    def frames(self, annotations: Annotations) -> list[int]:
        """Frames with an example when these are the annotations, ascending."""
        return sorted({*annotations.annotated_frames(), *self.pseudo_frames})

    def forget(self, frames: Collection[int]) -> None:
        """Make the examples of some frame pairs anew: their cells are others now."""
        self._predictions = self._predictions.without(lambda frame: frame in frames)
        self._windows = self._windows.without(lambda frame: frame in frames)
        self._assignments = self._assignments.without(lambda frame: frame in frames)
        self._programs = self._programs.without(lambda frame: frame in frames)

    def example(
        self, frame: int, around: Annotations, told: Annotations
    ) -> WindowExample:
        """Of one frame pair: the window is around both annotations, but the learner is told the second alone."""
        pair = self._pair(frame)
        annotated = pair.annotated(told)
        window = self._window(frame, pair, pair.annotated(around) | annotated)
        program = self._programs.get(
            frame, lambda: self._program(pair, window), window.key
        )
        labels = with_pseudo_labels(
            program, self._sure(frame, pair, window), window.annotated(annotated)
        )
        return WindowExample(pair, program, labels, window)

    def calibration(self) -> Calibration:
        """The calibration for this movie, from what the initial weights predict in the pseudo-labelled frame pairs."""
        if self._of_movie is None:
            parts = []
            for frame in self.pseudo_frames:
                pair = self._pair(frame)
                window = self._window(frame, pair, {})
                chosen, confidence = self._predicted(frame, pair, window)
                parts.append(
                    MovieMargins.of(
                        window.candidates.event[chosen], confidence, self._unit
                    )
                )
            self._of_movie = self._calibration.of_movie(MovieMargins.sum(parts))
        return self._of_movie

    def _program(self, pair: FramePair, window: TrainingWindow) -> Program:
        return make_program(
            window.candidates, with_prior(pair.features()[window.rows], self.prior)
        )

    def _window(
        self, frame: int, pair: FramePair, annotated: dict[int, int]
    ) -> TrainingWindow:
        """The cells around what is annotated, and in some frames around a cell drawn at random."""
        cells, settings = pair.candidates.detections_of(), self.settings
        inside = np.zeros(
            pair.candidates.n_detections + 1, dtype=bool
        )  # the last is for no cell
        if self.initial.any():
            for row in annotated:
                inside[cells[row]] = True
                inside[_nearest(pair, cells[row], settings.window)] = True
            if frame in self.pseudo_frames and len(inside) > 1:
                inside[
                    _nearest(pair, _random_cell(pair, frame), settings.pseudo_window)
                ] = True
            # closed under the initial prediction, so that what is outside can be held fixed
            predicted = cells[self._prediction(frame, pair)]
            inside[-1] = False
            inside[predicted[inside[predicted].any(axis=1)]] = True
        else:  # there is no prediction to hold the rest fixed with
            inside[:] = True
        key = window_key(pair, inside[:-1])
        return self._windows.get(
            frame, lambda: TrainingWindow.of(pair, inside[:-1]), key
        )

    def _prediction(self, frame: int, pair: FramePair) -> Indices:
        """(m,) the candidates that the initial weights choose."""

        def choose() -> Indices:
            return assign(pair.candidates, pair.scores(self.initial)).chosen

        return self._predictions.get(frame, choose, pair.extra)

    def _sure(self, frame: int, pair: FramePair, window: TrainingWindow) -> Indices:
        """(m,) the candidates of a window that the initial weights choose, and are almost certainly right about."""
        if not self.initial.any():
            return np.zeros(0, dtype=np.intp)
        chosen, confidence = self._predicted(frame, pair, window)
        probability = self.calibration().probability(
            window.candidates.event[chosen], confidence, self._unit
        )
        return almost_certain(chosen, probability, self.settings.pseudo_probability)

    def _predicted(
        self, frame: int, pair: FramePair, window: TrainingWindow
    ) -> tuple[Indices, Array]:
        """The initial weights' choice within a window, and how confident they are."""

        def solve() -> tuple[Indices, Array]:
            answer: Assignment = assign(
                window.candidates, pair.scores(self.initial)[window.rows]
            )
            return answer.chosen, answer.confidence()

        return self._assignments.get(frame, solve, window.key)


def _nearest(pair: FramePair, cells: Indices, n: int) -> Indices:
    """The cells nearest to the middle of some, `n` of either frame, as rows of the programme."""
    places = np.concatenate([pair.a.position, pair.b.position])
    apart = ((places - places[cells[cells >= 0]].mean(axis=0)) ** 2).sum(axis=1)
    first = len(pair.a)
    sides = np.arange(first), np.arange(first, len(places))
    return np.concatenate(
        [side[np.argsort(apart[side], kind="stable")[:n]] for side in sides]
    )


def _random_cell(pair: FramePair, seed: int) -> Indices:
    """(1,) any cell of a pair, always the same one."""
    return np.random.default_rng(seed).integers(len(pair.a) + len(pair.b), size=1)

"""Training examples for incremental fits: windows around annotated events.

A person annotates a few cells of a frame, perhaps of thousands. How the
others move says little about those few, but makes every fit slower. So an example has
a window: the cells nearest to what is annotated, while the prediction of the initial
weights stands for all others. The window is closed under that prediction (no predicted
event leads out of it), and events that would lead out of it are no candidates. The
example is then the problem of the pair with the rest of the choice fixed; the score of
the rest is the same in every output and cancels in each loss.

**Pseudo-labels** (`pseudo_labels.py`) are added in windows, and in some frame pairs
without annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from clew.annotation.pseudo_labels import fill_pseudo_labels
from clew.learning.task import Array, Indices, Mask, Space
from clew.models.highs_solver import Program, WarmStartedProgram
from clew.tracking.assignment.assignment import Assignment, assign, make_program
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.candidates.frame_pairs import FramePair
from clew.tracking.events import Annotations, EventTable
from clew.tracking.training.calibration import (
    GENERIC_CALIBRATION,
    Calibration,
    MovieMargins,
)
from clew.tracking.training.examples import change_basis
from clew.utils.cache import Cache


@dataclass(frozen=True)
class WindowSettings:
    """How large windows are, and which pseudo-labels they have."""

    window: int = 40
    """Cells of either frame in the training example around an annotated event."""
    pseudo_pairs: int = 8
    """Frame pairs, evenly spread over the movie, that are training examples by their
    pseudo-labels alone."""
    pseudo_window: int = 120
    """Cells of either frame in these examples."""
    pseudo_probability: float = 0.99
    """Predictions of the initial weights with at least this probability are
    pseudo-labels."""


DEFAULT = WindowSettings()


@dataclass(frozen=True, eq=False)
class TrainingWindow:
    """A part of a frame pair, as if there were no other cells."""

    rows: Indices
    """(m,) the pair's candidates that involve only cells of the window, ascending."""
    candidates: Candidates
    program: Program
    """A variable for each candidate."""
    assignment: Assignment
    """The choice of the initial weights."""
    solvers: dict[Space, WarmStartedProgram] = field(default_factory=dict)
    """Those of the last fit."""

    @classmethod
    def of(cls, pair: FramePair, is_inside: Mask, initial: Array, basis: Any) -> Self:
        """Return the window of some cells.

        Parameters
        ----------
        pair : FramePair
        is_inside : ndarray of shape (n_sources + n_targets,)
            Which cells it has, in the order of the program's rows.
        initial : ndarray of shape (n_features,)
        basis : csr_array of shape (n_features, k)
        """
        whole = pair.candidates
        n_sources = whole.n_sources
        is_allowed = np.append(is_inside, True)  # the last entry is for no cell
        rows = np.flatnonzero(is_allowed[whole.detections_of()].all(axis=1))
        new_source = _renumber(is_inside[:n_sources])
        new_target = _renumber(is_inside[n_sources:])
        candidates = Candidates(
            whole.event[rows],
            new_source[whole.sources[rows]],
            new_target[whole.targets[rows]],
            int(is_inside[:n_sources].sum()),
            int(is_inside[n_sources:].sum()),
        )
        program = make_program(candidates, pair.features[rows])
        assignment = assign(candidates, pair.scores(initial)[rows])
        return cls(rows, candidates, change_basis(program, basis), assignment)

    def select_labels(self, pair_labels: dict[int, int]) -> dict[int, int]:
        """Return labels of the pair's candidates as labels of the window's."""
        row_of = {int(row): n for n, row in enumerate(self.rows)} if pair_labels else {}
        return {
            row_of[row]: value for row, value in pair_labels.items() if row in row_of
        }


def _renumber(is_inside: Mask) -> Indices:
    """Return the new number of each cell of a frame; −1 for no cell at the end."""
    return np.append(np.cumsum(is_inside) - 1, -1)


@dataclass(frozen=True, eq=False)
class WindowExample:
    """The training example of a window."""

    window: TrainingWindow
    labels: dict[int, int]
    """{candidate: 1 if it happened, 0 if not}, pseudo-labels included."""


class TrainingWindows:
    """The training examples of one movie.

    Parameters
    ----------
    initial : ndarray of shape (n_features,)
        The initial weights, whose predictions stand for the rest of a frame pair.
    n_pairs : int
        Of the movie.
    get_pair : callable
        Returns a frame pair; called with its first frame and its annotations.
    basis : csr_array of shape (n_features, k)
        See `make_basis`.
    settings : WindowSettings
    calibration : Calibration
        Of the initial weights.
    """

    def __init__(
        self,
        initial: Array,
        n_pairs: int,
        get_pair: Callable[[int, Annotations], FramePair],
        basis: Any,
        settings: WindowSettings = DEFAULT,
        calibration: Calibration = GENERIC_CALIBRATION,
    ) -> None:
        self.initial = initial
        self.basis = basis
        self.settings = settings
        self.pseudo_frames: list[int] = []
        """Frames with an example in any case; none for weights that are zero."""
        if initial.any() and n_pairs:
            spread = np.linspace(0, n_pairs - 1, settings.pseudo_pairs)
            self.pseudo_frames = sorted(set(spread.round().astype(int).tolist()))
        self._get_pair = get_pair
        self._calibration = calibration
        self._weight_norm = float(np.linalg.norm(initial))
        # By frame: what the initial weights predict, its window, and its example.
        self._predictions: Cache[Indices] = Cache()
        self._windows: Cache[TrainingWindow] = Cache()
        self._examples: Cache[WindowExample] = Cache()
        self._movie_calibration: Calibration | None = None

    def forget(self, frames: Collection[int]) -> None:
        """Make the examples of some frame pairs again: their cells changed."""

        def is_changed(frame: int) -> bool:
            return frame in frames

        self._predictions = self._predictions.without(is_changed)
        self._windows = self._windows.without(is_changed)
        self._examples = self._examples.without(is_changed)

    def make_examples(self, annotations: Annotations) -> list[WindowExample]:
        """Return the training examples of all annotated frame pairs, and some more.

        Those whose annotations did not change are the same as before.
        """
        frames = sorted({*annotations.annotated_frames(), *self.pseudo_frames})
        return [
            self.make_example(frame, annotations.select_frame(frame))
            for frame in frames
        ]

    def make_example(self, frame: int, annotations: Annotations) -> WindowExample:
        """Return the training example of one frame pair, with its annotations."""

        def make() -> WindowExample:
            pair = self._get_pair(frame, annotations)
            annotated = pair.find_annotated(annotations)
            window = self._find_window(frame, pair, annotated)
            # Outputs that agree with other labels need another solver.
            window.solvers.pop(Space.COMPATIBLE, None)
            certain = self._find_certain(window)
            labels = window.select_labels(annotated)
            return WindowExample(
                window, fill_pseudo_labels(window.program, certain, labels)
            )

        return self._examples.get(frame, make, annotations.content_key())

    def calibrate(self) -> Calibration:
        """Return the calibration for this movie, from its pseudo-labeled pairs."""
        if self._movie_calibration is None:
            nothing = Annotations.of(EventTable.empty())
            margins = []
            for frame in self.pseudo_frames:
                window = self._find_window(frame, self._get_pair(frame, nothing), {})
                assignment = window.assignment
                confidence = assignment.confidence()
                margins.append(
                    MovieMargins.of(assignment.events, confidence, self._weight_norm)
                )
            total = MovieMargins.sum(margins)
            self._movie_calibration = self._calibration.of_movie(total)
        return self._movie_calibration

    def _find_window(
        self, frame: int, pair: FramePair, annotated: dict[int, int]
    ) -> TrainingWindow:
        """Return the window around annotated events, and perhaps a random cell."""
        is_inside = self._mark_cells(frame, pair, annotated)
        return self._windows.get(
            frame,
            lambda: TrainingWindow.of(pair, is_inside, self.initial, self.basis),
            (pair.key, is_inside.tobytes()),
        )

    def _mark_cells(
        self, frame: int, pair: FramePair, annotated: dict[int, int]
    ) -> Mask:
        """Return (n_sources + n_targets,) the cells of a window."""
        n_cells = pair.candidates.n_detections
        if not self.initial.any():
            # There is no prediction that could fix the rest.
            return np.ones(n_cells, dtype=bool)
        settings = self.settings
        cells = pair.candidates.detections_of()
        is_inside = np.zeros(n_cells + 1, dtype=bool)  # the last entry is for no cell
        for row in annotated:
            is_inside[cells[row]] = True
            is_inside[_find_nearest(pair, cells[row], settings.window)] = True
        if frame in self.pseudo_frames and n_cells:
            center = _draw_cell(pair, frame)
            is_inside[_find_nearest(pair, center, settings.pseudo_window)] = True
        # Close it under the initial prediction, so that the rest can be fixed.
        predicted = cells[self._predict(frame, pair)]
        is_inside[-1] = False
        is_inside[predicted[is_inside[predicted].any(axis=1)]] = True
        return is_inside[:-1]

    def _predict(self, frame: int, pair: FramePair) -> Indices:
        """Return (m,) the candidates that the initial weights choose."""
        return self._predictions.get(
            frame,
            lambda: assign(pair.candidates, pair.scores(self.initial)).chosen,
            pair.key,
        )

    def _find_certain(self, window: TrainingWindow) -> Indices:
        """Return (m,) candidates of a window that are almost certainly right."""
        if not self.initial.any():
            return np.zeros(0, dtype=np.intp)
        assignment = window.assignment
        probability = self.calibrate().probability(
            assignment.events, assignment.confidence(), self._weight_norm
        )
        return assignment.chosen[probability >= self.settings.pseudo_probability]


def _find_nearest(pair: FramePair, cells: Indices, n: int) -> Indices:
    """Return the `n` cells of either frame nearest to the center of some cells."""
    positions = np.concatenate([pair.a.position, pair.b.position])
    center = positions[cells[cells >= 0]].mean(axis=0)
    distance = ((positions - center) ** 2).sum(axis=1)
    n_sources = len(pair.a)
    before = np.argsort(distance[:n_sources], kind="stable")[:n]
    after = np.argsort(distance[n_sources:], kind="stable")[:n]
    return np.concatenate([before, n_sources + after])


def _draw_cell(pair: FramePair, seed: int) -> Indices:
    """Return (1,) a random cell of a pair, always the same one."""
    n_cells = len(pair.a) + len(pair.b)
    return np.random.default_rng(seed).integers(n_cells, size=1)

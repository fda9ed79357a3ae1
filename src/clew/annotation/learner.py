"""Learner: learns and tracks one movie again and again while its annotations grow, and redoes only what changed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from sklearn.base import clone

from clew.annotation.training_windows import Lessons, Window
from clew.errors import NotConvergedWarning
from clew.learning.cccp import Algorithm, learn
from clew.learning.losses import get_loss
from clew.learning.result import Result, Status
from clew.learning.start import Start
from clew.learning.task import Array, Space
from clew.models.highs import KeptProgram
from clew.models.linear import LinearTask
from clew.models.program import Program
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, EventTable
from clew.tracking.lineage import Lineage
from clew.tracking.model.assignment import Assignment, assign, make_program
from clew.tracking.model.features import feature_names
from clew.tracking.model.pairs import FramePair, Pairs
from clew.tracking.model.prior import joined, prior_direction, weights_by_name, with_prior
from clew.tracking.model.solve import Step, join_steps, solve
from clew.tracking.tracker import MODEL, Tracker

KEPT_CANDIDATES = 3_000_000
"""Candidates whose features stay in memory, at about 100 bytes each; those of other frame pairs are made again."""
STIFFNESS = 5.0
"""λ times the number of annotated frame pairs: the weight of ‖w‖²/2 against one missed event. On real movies the λ that
cross-validation chooses is near this or above, whether 2 % or 25 % of the events are annotated; with a prior, less is
better."""
FOLDS, FEWEST = 3, 12
"""For the estimated error: folds, and how many annotations it takes."""


class Learner:
    """One movie, the annotations so far, the weights that they lead to, and what those predict.

    The weights are those of `tracker` (generic ones if there is none) until enough is annotated to improve on them.
    Bounds and solvers of frame pairs whose annotations did not change are used again.
    """

    def __init__(self, source: Source, *, tracker: Tracker | None = None, seconds: float | None = None) -> None:
        self.tracker = tracker or Tracker.generic()
        self.groups = self.tracker.groups_for(source)
        names = feature_names(self.groups)
        self.prior = prior_direction(self.tracker, names)
        self.first: Array = weights_by_name(self.tracker, names)
        """(d,) the weights that the learner began with."""
        self.w: Array = self.first
        """(d,) the present weights."""
        self.pairs: Pairs = self.tracker.pairs(source, self.groups)
        self.source, self.names, self.seconds = source, names, seconds
        self.version = 0
        """Grows whenever the weights change."""
        self.annotations = Annotations.of(EventTable.empty())
        self.result: Result | None = None
        self._made: dict[int, tuple[bytes, FramePair]] = {}
        self.lessons = Lessons(self.first, len(self.pairs), self.pair)
        self._programs: dict[int, tuple[Window, Program]] = {}
        self._solvers: dict[tuple[int, Space], tuple[bytes, KeptProgram]] = {}
        self._answers: dict[int, tuple[tuple[int, bytes], Assignment, Step]] = {}

    def annotate(self, annotations: Annotations) -> None:
        """Take new annotations over; predictions keep to them at once, the weights learn from them with `learn`."""
        self.annotations = annotations

    def learn(self, annotations: Annotations | None = None) -> None:
        """Fit the weights to the annotations, with the bounds and solvers of the last fit."""
        if annotations is not None:
            self.annotate(annotations)
        if not len(self.annotations):  # all was undone: back to the beginning
            if self.result is not None:
                self.w, self.result = self.first, None
                self.version += 1
            return
        frames = self.lessons.frames(self.annotations)
        task = self._task(frames, self.annotations)
        self.result = self._fit(task, self.result)
        for (n, space), solver in task.kept.items():
            self._solvers[frames[n], space] = (self._here(frames[n])[1], solver)
        self.w = joined(self.result.w, self.prior)
        self.version += 1

    @property
    def is_cut_short(self) -> bool:
        """Whether the last fit ended at its time limit: learning again goes on with its bounds."""
        return self.result is not None and self.result.status is Status.TIME_LIMIT

    def estimated_error(self, seed: int = 0) -> tuple[float, float] | None:
        """The share of annotations that weights learned from the others miss, and its standard error.

        By three-fold cross-validation with the present λ; None where too little is annotated to tell.
        """
        *_, found = self.error_by_fold(seed)
        return found

    def error_by_fold(self, seed: int = 0) -> Iterator[tuple[float, float] | None]:
        """`estimated_error` in steps of one fold, for those who may break off: None each, and last the error."""
        n = len(self.annotations)
        if n < FEWEST:
            yield None
            return
        fold = np.random.default_rng(seed).permutation(n) % FOLDS
        wrong = 0
        for k in range(FOLDS):
            yield None
            rest, held = self.annotations[fold != k], self.annotations[fold == k]
            w = self.weights_from(rest)
            wrong += sum(self._missed(w, held, frame) for frame in np.unique(held.events.frame).tolist())
        share = wrong / n
        yield share, float(np.sqrt(max(share * (1 - share), 1 / n) / n))

    def weights_from(self, annotations: Annotations) -> Array:
        """(d,) the weights that a part of the annotations would lead to; the learner itself stays as it is.

        They start where the learner began: its present weights know of all annotations.
        """
        task = self._task(self.lessons.frames(annotations), annotations)
        return joined(self._fit(task, None).w, self.prior)

    def step(self, frame: int) -> Step:
        """What happens from a frame to the next, by the present weights and in accord with the annotations."""
        return self._answer(frame)[1]

    def assignment(self, frame: int) -> tuple[FramePair, Assignment]:
        """The candidates of a frame pair and the choice among them, for questions about the alternatives."""
        return self.pair(frame), self._answer(frame)[0]

    def is_fresh(self, frame: int) -> bool:
        """Whether the predictions of a frame pair are up to date, so that `step` costs nothing."""
        known = self._answers.get(frame)
        return known is not None and known[0] == (self.version, self._here(frame)[1])

    def lineage(self) -> Lineage:
        """The whole movie."""
        return join_steps(self.source, [self.step(frame) for frame in range(len(self.pairs))])

    def as_tracker(self) -> Tracker:
        """A tracker with the present weights, to track other movies with or to save."""
        tracker: Tracker = clone(self.tracker)
        tracker.groups_, tracker.feature_names_, tracker.coef_ = self.groups, self.names, self.w
        tracker.n_annotated_ = len(self.annotations)
        tracker.n_pairs_ = len(np.unique(self.annotations.events.frame))
        return tracker

    def pair(self, frame: int) -> FramePair:
        """The candidates and features of a frame pair, among them all that is annotated in it."""
        here, key = self._here(frame)
        known = self._made.get(frame)
        # what is annotated rarely changes the candidates: it is among them already
        if known is not None and (known[0] == key or len(known[1].rows(here.events)) == len(here)):
            return known[1]
        pair = self.pairs.pair(frame, here.events)
        self._made[frame] = (key, pair)
        while sum(len(other.candidates) for _, other in self._made.values()) > KEPT_CANDIDATES and len(self._made) > 1:
            del self._made[next(iter(self._made))]
        return pair

    def _here(self, frame: int) -> tuple[Annotations, bytes]:
        """The annotations of a frame pair, and a key that is the same for the same ones."""
        here = self.annotations[self.annotations.events.frame == frame]
        return here, _key(here)

    def _answer(self, frame: int) -> tuple[Assignment, Step]:
        here, key = self._here(frame)
        known = self._answers.get(frame)
        if known is not None and known[0] == (self.version, key):
            return known[1], known[2]
        answer, step = solve(self.pair(frame), self.w, here)
        self._answers[frame] = ((self.version, key), answer, step)
        return answer, step

    def _task(self, frames: Sequence[int], annotations: Annotations) -> LinearTask:
        """The learning problem of some annotated pairs, with the solvers that are still good."""
        X: list[Program] = []
        Y: list[dict[int, int]] = []
        solvers: dict[tuple[int, Space], KeptProgram] = {}
        for n, frame in enumerate(frames):
            around = self._here(frame)[0]
            here = around if annotations is self.annotations else annotations[annotations.events.frame == frame]
            lesson = self.lessons.lesson(frame, around, here)
            known = self._programs.get(frame)
            if known is None or known[0] is not lesson.window:
                features = with_prior(lesson.pair.features()[lesson.window.rows], self.prior)
                known = (lesson.window, make_program(lesson.window.candidates, features))
                self._programs[frame] = known
                self._solvers = {at: kept for at, kept in self._solvers.items() if at[0] != frame}
            X.append(known[1])
            Y.append(lesson.known)
            for space in (Space.ALL, Space.COMPATIBLE):
                at = (frame, space)
                if at in self._solvers and (space is Space.ALL or self._solvers[at][0] == _key(here)):
                    solvers[n, space] = self._solvers[at][1]
        model = MODEL.prepare(X, Y)
        task = model.task(X, Y)
        task.kept.update(solvers)
        return task

    def _fit(self, task: LinearTask, warm: Result | None) -> Result:
        """Learn at the fixed stiffness, from the weights that the learner began with.

        The problem is not convex: from weights that odd answers led to, later fits would not find back. `warm` has
        bounds only. The precision is that for one event, of which an answer is about one: for all that counts as
        annotated it would let weights pass that are worse than the first (1 % instead of 0.5 on HeLa).
        """
        algorithm = Algorithm(time_limit=self.seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)  # the next fit goes on with the bounds of this one
            return learn(
                task, get_loss("bridge"), STIFFNESS / task.n_examples, algorithm=algorithm,
                start=self._start(task, warm), warm_start=warm,
            )  # fmt: skip

    def _start(self, task: LinearTask, warm: Result | None) -> Array | None:
        """The first weights; if those are zero, the last ones, or what the annotations themselves point to."""
        if not self.first.any():
            return None if warm is not None else Start(task, get_loss("bridge")).at(STIFFNESS / task.n_examples)
        if self.prior is None:
            return self.first
        w = np.zeros(task.n_features)
        w[-1] = np.linalg.norm(self.first) / np.linalg.norm(self.prior)
        return w

    def _missed(self, w: Array, held: Annotations, frame: int) -> int:
        """How many annotations of a frame pair weights get wrong that know of no annotation there."""
        here = held[held.events.frame == frame]
        pair = self.pair(frame)
        chosen = set(assign(pair.candidates, pair.scores(w)).chosen.tolist())
        return sum((row in chosen) != bool(happened) for row, happened in pair.annotated(here).items())


def _key(annotations: Annotations) -> bytes:
    """The same for the same annotations."""
    events = annotations.events
    return b"".join(
        np.ascontiguousarray(part).tobytes()
        for part in (events.event, events.sources, events.targets, annotations.happened)
    )

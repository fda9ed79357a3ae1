"""Learner: learns and tracks one movie again and again while its annotations grow, and redoes only what changed."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable
from dataclasses import replace

import numpy as np

from clew.annotation.frame_pair_cache import KeptPairs
from clew.annotation.settings import DEFAULT, Adaptation
from clew.annotation.training_windows import TrainingWindows, WindowExample
from clew.errors import NotConvergedWarning
from clew.learning.cccp import Algorithm, learn
from clew.learning.initialization import Start
from clew.learning.losses import get_loss
from clew.learning.result import Result, Status
from clew.learning.task import Array, Space
from clew.models.highs_solver import WarmStartedProgram
from clew.models.linear_program import LinearTask
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePair, Pairs
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.profiling.event_kinds import with_annotated
from clew.tracking.solve import SolvedPair, join_pairs, solve
from clew.tracking.tracker import Origin, Tracker
from clew.tracking.training.examples import MODEL
from clew.tracking.training.prior import joined, prior_direction, weights_by_name
from clew.utils.cache import Cache
from clew.utils.parameters import clone


class Learner:
    """One movie, the annotations so far, the weights that they lead to, and what those predict.

    The weights are those of `tracker` (generic ones if there is none) until something is annotated. Bounds and solvers
    of frame pairs whose annotations did not change are used again.

    With `may_lag`, predictions may be of earlier weights, as long as they agree with the annotations: new weights
    change little after the first answers, so that questions can be chosen by predictions that are renewed one after
    the other (`renew`), while answers keep coming.
    """

    def __init__(
        self,
        source: Source,
        *,
        tracker: Tracker | None = None,
        settings: Adaptation = DEFAULT,
        seconds: float | None = None,
        may_lag: bool = False,
    ) -> None:
        self.source, self.settings, self.seconds, self.may_lag = (
            source,
            settings,
            seconds,
            may_lag,
        )
        self.tracker = tracker or Tracker.generic()
        self.groups = self.tracker.groups_for(source)
        self.names = feature_names(self.groups)
        self.prior = prior_direction(self.tracker, self.names, settings.trust)
        self.initial: Array = weights_by_name(self.tracker, self.names)
        """(d,) the weights that the learner began with."""
        self.w: Array = self.initial
        """(d,) the present weights."""
        self.version = 0
        """Grows whenever the weights change."""
        self.annotations = Annotations.of(EventTable.empty())
        self.result: Result | None = None
        self._use(self.tracker.pairs(source, self.groups))

    def _use(self, pairs: Pairs) -> None:
        """Begin with frame pairs of these kinds of events; what was made of others is dropped."""
        self.pairs = pairs
        self._kept = KeptPairs(pairs, self.settings.kept_candidates)
        self.windows = TrainingWindows(
            self.initial,
            len(pairs),
            self._training_pair,
            self.prior,
            self.settings,
            self.tracker.calibration_,
        )
        self._solvers: Cache[WarmStartedProgram] = Cache()
        self._solved: dict[int, SolvedPair] = {}

    def use_events(self, events: frozenset[Event]) -> None:
        """Let these kinds of events happen in the movie."""
        if events != self.pairs.events:
            self.result = None
            self._use(replace(self.pairs, events=events))

    def use_source(self, source: Source, frames: Collection[int]) -> None:
        """Go on with a movie in which the cells of some frame pairs, named by their first frames, are others.

        Its units, and all that is known of other pairs, stay.
        """
        self.source, self._kept = source, self._kept.edited(source, frames)
        self.pairs = self._kept.pairs
        self.windows.forget(frames)
        self._solvers = self._solvers.without(lambda slot: slot[0] in frames)
        self._solved = {
            frame: solved
            for frame, solved in self._solved.items()
            if frame not in frames
        }

    def annotate(self, annotations: Annotations) -> None:
        """Take new annotations over; predictions keep to them at once, the weights learn from them with `learn`."""
        self.annotations = annotations
        if (
            not annotations.happened_kinds() <= self.pairs.events
        ):  # a kind that was off happens in this movie after all
            self._use(
                replace(
                    self.pairs,
                    events=with_annotated(
                        self.pairs.events, annotations.happened_kinds()
                    ),
                )
            )

    def learn(self, annotations: Annotations | None = None) -> None:
        """Fit the weights to the annotations, with the bounds and solvers of the last fit."""
        if annotations is not None:
            self.annotate(annotations)
        if not len(self.annotations):  # all was undone: back to the beginning
            if self.result is not None:
                self.w, self.result = self.initial, None
                self.version += 1
            return
        examples = self._examples(self.annotations)
        task = self._task(examples)
        self.result = self._fit(task, self.result)
        for (n, space), solver in task.programs.items():
            self._solvers.put(*_solver_key(examples[n], space), solver)
        self.w = joined(self.result.w, self.prior)
        self.version += 1

    @property
    def is_cut_short(self) -> bool:
        """Whether the last fit ended at its time limit: learning again goes on with its bounds."""
        return self.result is not None and self.result.status is Status.TIME_LIMIT

    def weights_from(self, annotations: Annotations) -> Array:
        """(d,) the weights that a part of the annotations would lead to; the learner itself stays as it is.

        They start where the learner began: its present weights know of all annotations.
        """
        return joined(
            self._fit(self._task(self._examples(annotations)), None).w, self.prior
        )

    def pair(self, frame: int) -> FramePair:
        """The candidates and features of a frame pair, among them all that is annotated in it."""
        return self._kept.told(frame, self.annotations.select_frame(frame))

    def _training_pair(self, frame: int) -> FramePair:
        """The same to learn from."""
        return self._kept.pair(frame, self.annotations.select_frame(frame))

    def solved(self, frame: int) -> SolvedPair:
        """What happens from a frame to the next, in accord with the annotations, with candidates and alternatives."""
        known = self._solved.get(frame)
        if (
            self.may_lag
            and known is not None
            and known.key == self.annotations.select_frame(frame).content_key()
        ):
            return known
        return self.renew(frame)

    def renew(self, frame: int) -> SolvedPair:
        """The same by the present weights."""
        known, here = self._solved.get(frame), self.annotations.select_frame(frame)
        if known is None or (known.version, known.key) != (
            self.version,
            here.content_key(),
        ):
            known = self._solved[frame] = solve(
                self.pair(frame), self.w, here, version=self.version
            )
        return known

    def lineage(self) -> Lineage:
        """The whole movie, by the present weights."""
        return join_pairs(
            self.source,
            [self.renew(frame) for frame in range(len(self.pairs))],
            self.annotations,
        )

    def as_tracker(self) -> Tracker:
        """A tracker with the present weights, to track other movies with or to save."""
        return adapted_tracker(self.tracker, self.groups, self.w, self.annotations)

    def _examples(self, told: Annotations) -> list[WindowExample]:
        """The training examples when these annotations are told; windows are around all that is annotated."""
        return [
            self.windows.example(
                frame, self.annotations.select_frame(frame), told.select_frame(frame)
            )
            for frame in self.windows.frames(told)
        ]

    def _task(self, examples: list[WindowExample]) -> LinearTask:
        """The learning problem of some training examples, with the solvers that are still good."""
        X, Y = [one.program for one in examples], [one.annotated for one in examples]
        task = MODEL.prepare(X, Y).task(X, Y)
        for n, example in enumerate(examples):
            for space in (Space.ALL, Space.COMPATIBLE):
                if (
                    solver := self._solvers.peek(*_solver_key(example, space))
                ) is not None:
                    task.programs[n, space] = solver
        return task

    def _fit(self, task: LinearTask, warm: Result | None) -> Result:
        """Learn at the fixed stiffness, from the weights that the learner began with.

        The problem is not convex: from weights that odd answers led to, later fits would not find back. `warm` has
        bounds only. The precision is that for one event, of which an answer is about one: for all that counts as
        annotated it would let weights pass that are worse than the first (1 % instead of 0.5 on HeLa).
        """
        algorithm = Algorithm(time_limit=self.seconds)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", NotConvergedWarning
            )  # the next fit goes on with the bounds of this one
            return learn(
                task,
                get_loss("bridge"),
                self._lam(task),
                algorithm=algorithm,
                start=self._start(task, warm),
                warm_start=warm,
            )

    def _lam(self, task: LinearTask) -> float:
        return self.settings.stiffness / task.n_examples

    def _start(self, task: LinearTask, warm: Result | None) -> Array | None:
        """The initial weights; if those are zero, the last ones, or what the annotations themselves point to."""
        if not self.initial.any():
            return (
                None
                if warm is not None
                else Start(task, get_loss("bridge")).at(self._lam(task))
            )
        if self.prior is None:
            return self.initial
        w = np.zeros(task.n_features)
        w[-1] = np.linalg.norm(self.initial) / np.linalg.norm(self.prior)
        return w


def adapted_tracker(
    initial: Tracker, groups: frozenset[str], w: Array, annotations: Annotations
) -> Tracker:
    """A tracker with weights that were adapted from those of another one; without annotations they are its own."""
    tracker: Tracker = clone(initial)
    tracker.calibration_ = initial.calibration_
    tracker.events_, tracker.domain_ = (
        initial.events_ | annotations.happened_kinds(),
        initial.domain_,
    )
    tracker.groups_, tracker.feature_names_, tracker.coef_ = (
        groups,
        feature_names(groups),
        w,
    )
    if len(annotations):
        tracker.n_annotated_, tracker.n_pairs_ = (
            len(annotations),
            len(annotations.annotated_frames()),
        )
        tracker.origin_ = Origin.ADAPTED
    else:
        tracker.n_annotated_, tracker.n_pairs_ = initial.n_annotated_, initial.n_pairs_
        tracker.origin_ = initial.origin_
    return tracker


def _solver_key(example: WindowExample, space: Space) -> tuple[Hashable, Hashable]:
    """The slot and the key of a solver: outputs that agree with the annotation depend on it, all outputs do not."""
    annotation = (
        tuple(sorted(example.annotated.items())) if space is Space.COMPATIBLE else None
    )
    return (example.pair.a.frame, space), (example.window.key, annotation)

"""Learns and tracks one movie while its annotations grow.

Bounds and solvers of frame pairs whose annotations did not change are used again, so
that a fit after one more answer takes a fraction of a second.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from clew.annotation.feature_steps import feature_steps
from clew.annotation.frame_pair_cache import FramePairCache
from clew.annotation.predictions import Prediction
from clew.annotation.training_windows import (
    DEFAULT,
    TrainingWindows,
    WindowExample,
    WindowSettings,
)
from clew.errors import NotConvergedWarning
from clew.learning.cccp import Algorithm, learn
from clew.learning.initialization import Initializer
from clew.learning.losses import get_loss
from clew.learning.result import Result, Status
from clew.learning.task import Array
from clew.models.linear_program import LinearTask
from clew.tracking.candidates.features import feature_names
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.detections import Source
from clew.tracking.events import Annotations, Event, EventTable
from clew.tracking.lineage.build import build_lineage
from clew.tracking.lineage.lineage import Lineage
from clew.tracking.profile import MovieProfile, add_annotated_kinds
from clew.tracking.solve import PairSolution, solve_frame_pair
from clew.tracking.tracker import Origin, Tracker
from clew.tracking.training.examples import MODEL
from clew.tracking.training.prior import make_basis, scale_prior
from clew.tracking.user_columns import add_user_columns
from clew.utils.parameters import clone

STIFFNESS = 5.0
"""λ times the number of annotated frame pairs: the weight of ‖w‖²/2 against one missed
event. Cross-validation chooses a λ near this or above on real movies, whether 2 % or
25 % of the events are annotated."""
KEPT_CANDIDATES = 3_000_000
"""Candidates whose features stay in memory, at about 100 bytes each."""
MIN_STEPS = 10
"""Events of a frame pair, the least certain ones, whose step length is measured; at
least a quarter of them."""


class Learner:
    """One movie, its annotations, and the weights learned from them.

    Parameters
    ----------
    source : Source
        The detections of the movie.
    tracker : Tracker, optional
        Has the initial weights; generic ones by default.
    settings : WindowSettings
    profile : MovieProfile, optional
        Of the movie, if it is known: finding it takes seconds.

    Attributes
    ----------
    w : ndarray of shape (n_features,)
        The present weights.
    initial : ndarray of shape (n_features,)
        The weights without annotations.
    annotations : Annotations
    result : Result or None
        Of the last fit.
    """

    def __init__(
        self,
        source: Source,
        *,
        tracker: Tracker | None = None,
        settings: WindowSettings = DEFAULT,
        profile: MovieProfile | None = None,
    ) -> None:
        self.source = source
        self.settings = settings
        self.tracker = tracker or Tracker.generic()
        self.annotations = Annotations.of(EventTable.empty())
        if profile is None:
            groups = self.tracker.groups_for(source)
            profile = self.tracker.pairs(source, groups).profile
        self._use_features(profile)

    def _use_features(self, profile: MovieProfile) -> None:
        """Start with the features of a profile, at the initial weights."""
        self.groups = profile.groups
        self.names = feature_names(profile.groups)
        self.prior = scale_prior(
            self.tracker, self.names, generic_set=profile.generic_set
        )
        self.basis = make_basis(self.prior, self.names)
        self.initial: Array = self.tracker.weights_for(profile)
        self.w: Array = self.initial
        self.result: Result | None = None
        source = self._add_columns(self.source)
        self._use_pairs(FramePairBuilder(source, profile, self.initial))

    def _add_columns(self, source: Source) -> Source:
        """Return the movie with the columns of its users that the weights know."""
        return add_user_columns(source, self.groups, self.tracker.standards_)

    def _use_pairs(self, pairs: FramePairBuilder) -> None:
        """Start with other frame pairs; drop all that was made of the old ones."""
        self.pairs = pairs
        self._cache = FramePairCache(pairs, KEPT_CANDIDATES)
        self.windows = TrainingWindows(
            self.initial,
            len(pairs),
            # The flow of a pair to learn from ignores the annotations.
            lambda frame, own: self._cache.get_pair(frame, own),
            self.basis,
            self.settings,
            self.tracker.calibration_,
        )
        self._squared_steps: dict[int, tuple[Array, int]] = {}

    def use_events(self, events: frozenset[Event]) -> None:
        """Allow these kinds of events."""
        profile = self.pairs.profile.with_events(events)
        if profile.groups != self.groups:
            self._use_features(profile)
        elif events != self.pairs.profile.events:
            self._use_pairs(replace(self.pairs, profile=profile))

    def use_source(self, source: Source, frames: Collection[int]) -> None:
        """Continue with edited masks.

        Parameters
        ----------
        source : Source
            The movie with the edits.
        frames : collection of int
            First frames of the pairs that changed; what is known of others stays.
        """
        self.source = source
        self._cache = self._cache.with_source(self._add_columns(source), frames)
        self.pairs = self._cache.pairs
        self.windows.forget(frames)

    def annotate(self, annotations: Annotations) -> None:
        """Use other annotations: predictions follow at once, weights with `learn`."""
        self.annotations = annotations
        kinds = annotations.happened_kinds()
        self.use_events(add_annotated_kinds(self.pairs.profile.events, kinds))

    def learn(
        self,
        annotations: Annotations | None = None,
        *,
        time_limit: float | None = None,
        is_interrupted: Callable[[], bool] | None = None,
    ) -> None:
        """Fit the weights to the annotations.

        Parameters
        ----------
        annotations : Annotations, optional
            By default those of `annotate`.
        time_limit : float, optional
            Seconds; a fit that was cut short continues from its bounds.
        is_interrupted : callable, optional
            Called after each model update; True ends the fit.
        """
        if annotations is not None:
            self.annotate(annotations)
        if not len(self.annotations):
            self.w = self.initial
            self.result = None
            return
        examples = self.windows.make_examples(self.annotations)
        task = make_task(examples)
        self.result = self._fit(task, self.result, time_limit, is_interrupted)
        for (n, space), solver in task.programs.items():
            examples[n].window.solvers[space] = solver
        self.w = self.basis @ self.result.w

    @property
    def is_cut_short(self) -> bool:
        """Whether the last fit ended before it converged."""
        stopped = (Status.TIME_LIMIT, Status.INTERRUPTED)
        return self.result is not None and self.result.status in stopped

    def get_pair(self, frame: int) -> FramePair:
        """Return a frame pair, whose candidates include its annotated events."""
        return self._cache.get_pair_with_known_moves(
            frame, self.annotations.select_frame(frame)
        )

    def solve(self, frame: int, version: int = 0) -> PairSolution:
        """Return the events of a frame pair, with its candidates."""
        annotations = self.annotations.select_frame(frame)
        pair = self.get_pair(frame)
        return solve_frame_pair(pair, self.w, annotations, version=version)

    def predict(self, frame: int, version: int = 0) -> Prediction:
        """Return the events of a frame pair, and the effect of corrections.

        Parameters
        ----------
        frame : int
            First frame of the pair.
        version : int
            Of the present weights, as the caller counts them.
        """
        solution = self.solve(frame, version)
        return Prediction.from_solution(solution, self._measure_steps(solution))

    def predict_all(self) -> list[Prediction]:
        """Return the predictions of all frame pairs."""
        return [self.predict(frame) for frame in range(len(self.pairs))]

    def _measure_steps(self, solution: PairSolution) -> Array:
        """Return (n,) the step lengths of the least certain events, NaN for others.

        Each feature counts in units of its typical size in the steps of this movie.
        """
        length = np.full(len(solution.events), np.nan)
        assignment = solution.assignment
        n_finite = np.count_nonzero(np.isfinite(solution.confidence))
        n_measured = min(n_finite, max(MIN_STEPS, n_finite // 4))
        if assignment is None or not n_measured:
            return length
        rows = np.argsort(solution.confidence, kind="stable")[:n_measured]
        pair = self.get_pair(solution.frame)
        steps = feature_steps(pair, assignment, assignment.chosen[rows])
        self._squared_steps[solution.frame] = (steps**2).sum(axis=0), len(steps)
        sums, counts = zip(*self._squared_steps.values(), strict=True)
        typical = np.sqrt(np.sum(sums, axis=0) / sum(counts))
        scaled = steps / np.where(typical > 0, typical, 1.0)
        length[rows] = np.linalg.norm(scaled, axis=1)
        return length

    def build_lineage(self) -> Lineage:
        """Return the lineage of the whole movie by the present weights."""
        solutions = [self.solve(frame) for frame in range(len(self.pairs))]
        return build_lineage(self.source, solutions, self.annotations)

    def make_tracker(self) -> Tracker:
        """Return a tracker with the present weights, for other movies or a file."""
        return make_adapted_tracker(self.tracker, self.groups, self.w, self.annotations)

    def _fit(
        self,
        task: LinearTask,
        previous: Result | None,
        time_limit: float | None = None,
        is_interrupted: Callable[[], bool] | None = None,
    ) -> Result:
        """Learn with fixed stiffness, starting from the initial weights.

        The problem is not convex: from weights that odd answers led to, later fits
        would not return. `previous` contributes its bounds only. The precision is
        that for one event, since an answer is about one; a precision for all that
        counts as annotated allows weights that are worse than the initial ones (1 %
        instead of 0.5 on HeLa).
        """

        def stop_if_interrupted(_: object) -> None:
            if is_interrupted is not None and is_interrupted():
                raise KeyboardInterrupt

        with warnings.catch_warnings():
            # The next fit continues with the bounds of this one.
            warnings.simplefilter("ignore", NotConvergedWarning)
            return learn(
                task,
                get_loss("bridge"),
                self._lam(task),
                algorithm=Algorithm(time_limit=time_limit),
                start=self._start(task, previous),
                warm_start=previous,
                callback=None if is_interrupted is None else stop_if_interrupted,
            )

    def _lam(self, task: LinearTask) -> float:
        """Return λ for a number of examples."""
        return STIFFNESS / task.n_examples

    def _start(self, task: LinearTask, previous: Result | None) -> Array | None:
        """Return the initial weights, as features of the task.

        If they are zero, the last weights or those that the annotations suggest.
        """
        if not self.initial.any():
            if previous is not None:
                return None
            return Initializer(task, get_loss("bridge")).weights_for(self._lam(task))
        if self.prior is None:
            return self.initial
        w = np.zeros(task.n_features)
        w[-1] = np.linalg.norm(self.initial) / np.linalg.norm(self.prior)
        return w


def make_task(examples: list[WindowExample]) -> LinearTask:
    """Return the learning problem, with the solvers of the last fit."""
    programs = [example.window.program for example in examples]
    labels = [example.labels for example in examples]
    task = MODEL.prepare(programs, labels).task(programs, labels)
    for n, example in enumerate(examples):
        for space, solver in example.window.solvers.items():
            task.programs[n, space] = solver
    return task


def make_adapted_tracker(
    initial: Tracker, groups: frozenset[str], w: Array, annotations: Annotations
) -> Tracker:
    """Return a tracker with weights that were adapted from those of another one.

    Parameters
    ----------
    initial : Tracker
    groups : frozenset of str
        The groups of measurements that the features use.
    w : ndarray of shape (n_features,)
    annotations : Annotations
        What was learned from; if there are none, the weights count as the initial ones.
    """
    tracker: Tracker = clone(initial)
    tracker.calibration_ = initial.calibration_
    tracker.events_ = initial.events_ | annotations.happened_kinds()
    tracker.domain_ = initial.domain_
    tracker.standards_ = initial.standards_
    tracker.groups_ = groups
    tracker.feature_names_ = feature_names(groups)
    tracker.coef_ = w
    if len(annotations):
        tracker.n_annotated_ = len(annotations)
        tracker.n_pairs_ = len(annotations.annotated_frames())
        tracker.origin_ = Origin.ADAPTED
    else:
        tracker.n_annotated_ = initial.n_annotated_
        tracker.n_pairs_ = initial.n_pairs_
        tracker.origin_ = initial.origin_
    return tracker

"""What the present weights predict of each frame pair of a movie."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from clew.annotation.answers import Answer
from clew.annotation.frame_pair_cache import FramePairCache
from clew.errors import InfeasibleAnnotation
from clew.learning.task import Array
from clew.tracking.candidates.frame_pairs import FramePairBuilder
from clew.tracking.events import LINEAGE_KINDS, Annotations, Event, EventTable
from clew.tracking.profile import MovieProfile
from clew.tracking.solve import PairSolution, solve_frame_pair

KEPT_CANDIDATES = 1_000_000
"""Candidates whose features stay in memory, at about 100 bytes each."""


@dataclass(frozen=True, eq=False)
class Prediction(PairSolution):
    """The predicted events of a frame pair, and the effect of corrections."""

    step_length: Array | None = None
    """(n,) how far the weights would move if an event were wrong, in units of a
    typical step; NaN where it was not measured. See `feature_steps`."""

    @classmethod
    def from_solution(
        cls, solution: PairSolution, step_length: Array | None = None
    ) -> Self:
        """Attach step lengths to a solved frame pair, and drop its candidates."""
        content = {
            field.name: getattr(solution, field.name) for field in fields(PairSolution)
        }
        content["assignment"] = None
        return cls(**content, step_length=step_length)

    def known_step_length(self, events: EventTable) -> Array:
        """Return (n,) the step lengths of some events, NaN where not measured."""
        length = np.full(len(events), np.nan)
        if self.step_length is not None:
            _, new, old = np.intersect1d(
                events.row_keys(), self.events.row_keys(), return_indices=True
            )
            length[new] = self.step_length[old]
        return length


@dataclass(frozen=True)
class Weights:
    """Learned weights; `version` grows with each change."""

    version: int
    values: Array


def add_answer(annotations: Annotations, answer: Answer) -> Annotations:
    """Return the annotations of a frame pair after an answer.

    The answer replaces what contradicts it.
    """
    added = EventTable.of([answer.fact])
    events = annotations.events
    clashes = events.row_keys() == added.row_keys()
    if answer.happened:
        same_source = np.isin(events.sources, answer.sources)
        same_target = np.isin(events.targets, answer.targets)
        shares_cell = (same_source | same_target).any(axis=1)
        clashes |= annotations.happened & shares_cell
    kept = annotations[~clashes]
    return Annotations.of(
        EventTable.join([kept.events, added]),
        [*kept.happened.tolist(), answer.happened],
    )


def split_into_pairs(answer: Answer) -> list[Answer]:
    """Return an answer as answers about single frame pairs.

    Across a gap, a cell disappears before it and appears after it.
    """
    if answer.event is not Event.GAP or not answer.happened:
        return [answer]
    frame = answer.frame
    return [
        Answer.of(frame, Event.DISAPPEAR, answer.sources, ()),
        Answer.of(frame + 1, Event.APPEAR, (), answer.targets),
    ]


class Predictions:
    """The present weights and the predicted events of every frame pair.

    Several threads may read and solve at once.

    Parameters
    ----------
    pairs : FramePairBuilder
        Builds the frame pairs of the movie.
    weights : ndarray of shape (n_features,)
        Initial weights.
    """

    def __init__(self, pairs: FramePairBuilder, weights: Array) -> None:
        self.n_pairs = len(pairs)
        self._reset(pairs, Weights(0, weights))

    def restart(self, pairs: FramePairBuilder, weights: Array) -> None:
        """Continue with other initial weights, possibly of other features."""
        self._reset(pairs, Weights(self.weights.version + 1, weights))

    def _reset(self, pairs: FramePairBuilder, weights: Weights) -> None:
        self.by_frame: dict[int, Prediction] = {}
        """The latest predictions, by the first frame of the pair."""
        self._initial_version = weights.version
        self._initial_margin = 0.0
        # One tuple, replaced as a whole: other threads may be solving, and weights
        # and features belong together.
        self._model = weights, FramePairCache(pairs, KEPT_CANDIDATES)

    @property
    def weights(self) -> Weights:
        """The present weights."""
        return self._model[0]

    @property
    def cache(self) -> FramePairCache:
        """The frame pairs with the present masks."""
        return self._model[1]

    @property
    def events(self) -> frozenset[Event]:
        """The kinds of events that can happen."""
        return self.cache.pairs.profile.events

    @property
    def is_complete(self) -> bool:
        """Whether every frame pair has a prediction."""
        return len(self.by_frame) == self.n_pairs

    def set_weights(self, values: Array) -> None:
        """Use new weights from now on; the predictions are renewed one by one."""
        if np.array_equal(values, self.weights.values):
            return
        if self.weights.version == self._initial_version:
            self._initial_margin = self._typical_margin()
        version = self.weights.version + 1
        self._model = Weights(version, values), self.cache
        # Until they are renewed, old predictions stand beside new ones: they need
        # the same scale of scores.
        norm = float(np.linalg.norm(values))
        self.by_frame = {
            frame: prediction.rescale(norm)
            for frame, prediction in self.by_frame.items()
        }

    @property
    def margin_scale(self) -> float:
        """The factor by which margins compare with those of the initial weights.

        Probabilities are calibrated for margins in norms of the generic weights.
        Learning may change the norm more than the margins, or less; without this
        factor a few answers would make all events more or less certain.
        """
        if not self._initial_margin:
            return 1.0
        return self._initial_margin / (self._typical_margin() or 1.0)

    def _typical_margin(self) -> float:
        """Return the median margin of open events, in norms of the weights."""
        predictions = list(self.by_frame.values())
        margins = [one.confidence / (one.weight_norm or 1.0) for one in predictions]
        joined = np.concatenate([np.zeros(0), *margins])
        finite = joined[np.isfinite(joined)]
        return float(np.median(finite)) if len(finite) else 0.0

    def use_profile(self, profile: MovieProfile) -> None:
        """Allow other kinds of events; all predictions are dropped."""
        weights, cache = self._model
        self.by_frame = {}
        pairs = replace(cache.pairs, profile=profile)
        self._model = weights, FramePairCache(pairs, cache.limit)

    def use_cache(self, cache: FramePairCache, frames: Collection[int]) -> None:
        """Continue with edited masks; drop the predictions of the changed pairs."""
        self._model = self.weights, cache
        self.by_frame = {
            frame: prediction
            for frame, prediction in self.by_frame.items()
            if frame not in frames
        }

    def solve(
        self,
        frame: int,
        annotations: Annotations,
        cache: FramePairCache | None = None,
    ) -> Prediction:
        """Return the best events of a frame pair that agree with its annotations.

        Events that were predicted before keep their confidence, which is renewed by
        the learner later.

        Parameters
        ----------
        frame : int
            First frame of the pair.
        annotations : Annotations
            The annotations of this pair.
        cache : FramePairCache, optional
            Frame pairs of other masks than the present ones.

        Raises
        ------
        InfeasibleAnnotation
            If no assignment agrees with the annotations.
        """
        weights, present = self._model
        previous = self.by_frame.get(frame)
        try:
            pairs = present if cache is None else cache
            pair = pairs.get_pair_with_known_moves(frame, annotations)
            before = previous if cache is None else None
            solution = solve_frame_pair(
                pair, weights.values, annotations, before, weights.version
            )
        except InfeasibleAnnotation as error:
            raise InfeasibleAnnotation(
                f"frames {frame} to {frame + 1}: the answers leave no assignment in "
                "which every cell has one fate and one history; undo a denied event",
                frame,
            ) from error
        length = None
        if previous is not None:
            length = previous.known_step_length(solution.events)
        return Prediction.from_solution(solution, length)

    def get_current(self, frame: int, annotations: Annotations) -> Prediction:
        """Return the prediction by the present weights; solve it if necessary."""
        known = self.by_frame.get(frame)
        if (
            known is None
            or known.key != annotations.content_key()
            or known.version < self.weights.version
        ):
            return self.solve(frame, annotations)
        return known

    def update(
        self, predictions: Iterable[Prediction], annotations: Annotations
    ) -> list[Prediction]:
        """Take over predictions that agree with the annotations; return those."""
        agreeing = [
            one
            for one in predictions
            if one.key == annotations.select_frame(one.frame).content_key()
        ]
        self.by_frame |= {one.frame: one for one in agreeing}
        return agreeing

    def solve_missing(self, annotations: Annotations) -> list[Prediction]:
        """Return predictions of the whole movie that agree with the annotations.

        Predictions of earlier weights are kept, so that this takes little time.
        """
        predictions = []
        for frame in range(self.n_pairs):
            known = self.by_frame.get(frame)
            pair_annotations = annotations.select_frame(frame)
            if known is None or known.key != pair_annotations.content_key():
                known = self.solve(frame, pair_annotations)
            predictions.append(known)
        return predictions

    def count_events(self) -> dict[str, int]:
        """Return how many events of each kind are predicted."""
        counts = np.zeros(len(Event), dtype=int)
        for prediction in self.by_frame.values():
            counts += np.bincount(prediction.events.event, minlength=len(Event))
        return {str(event): int(counts[event]) for event in LINEAGE_KINDS}

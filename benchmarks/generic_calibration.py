"""What is fitted to simulated movies besides the generic weights: probabilities, the odds of splits, false merges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import LogisticRegression

from clew.learning.task import Array
from clew.tracking.events import Annotations, Event, EventIndex, EventTable
from clew.tracking.linking.counts import merged_before
from clew.tracking.measurement.measure import Measured
from clew.tracking.model.candidates import ALL_EVENTS
from clew.tracking.model.gaps import find_gaps
from clew.tracking.model.probability import LARGEST, Calibration
from clew.tracking.model.solve import solve_pair
from clew.tracking.tracker import Tracker


@dataclass(frozen=True)
class Sequence:
    """A measured movie with all of its true events."""

    kind: str
    name: str
    source: Measured
    truth: Annotations


@dataclass(frozen=True)
class Judged:
    """Events of a movie whose truth is known, in frame pairs that were not learned from."""

    kind: str
    event: NDArray[np.int8]
    margin: Array
    right: NDArray[np.bool_]


EVERY = 3
"""One frame pair in so many is learned from: neighbouring ones tell little that is new. They are taken in twos that
share a frame, so that gaps over it are learned too."""


def learned_from(frame: NDArray[np.int64]) -> NDArray[np.bool_]:
    return frame % (2 * EVERY) < 2


def in_twos(truth: Annotations) -> Annotations:
    """What is known of the frame pairs that are learned from; of gaps those over the frame that two of them share."""
    gap = truth.events.event == Event.GAP
    whole = truth[gap & (truth.events.frame % (2 * EVERY) == 0)]
    rest = truth[~gap | (truth.events.frame % (2 * EVERY) != 0)].pairwise()
    rest = rest[learned_from(rest.events.frame)]
    return Annotations.of(EventTable.join([rest.events, whole.events]))


def judge(tracker: Tracker, movie: Sequence, learned: bool) -> Judged:
    """An event that takes a cell whose true event is another one is wrong; where the truth is silent, so is this."""
    lineage = tracker.track(movie.source)
    told, true = lineage.events, movie.truth.events
    index = EventIndex(true)
    right = index.find(told) >= 0
    known = right.copy()
    for cells, frame, is_target in ((told.sources, told.frame, False), (told.targets, told.ends(), True)):
        for labels in cells.T:
            known |= (index(frame, np.full(len(told), is_target), labels) >= 0) & (labels > 0)
    used = known & np.isfinite(lineage.confidence) & (~learned_from(told.frame) | (not learned))
    margin = lineage.confidence / np.linalg.norm(tracker.coef_)
    return Judged(movie.kind, told.event[used], np.minimum(margin[used], LARGEST), right[used])


def platt(judged: list[Judged]) -> Calibration:
    """Platt scaling over movies that count alike, however many events they have."""
    rows = np.concatenate([np.column_stack([each.margin, np.eye(len(Event))[each.event]]) for each in judged])
    weight = np.concatenate([np.full(len(each.right), 1 / len(each.right)) for each in judged])
    model = LogisticRegression(C=10.0, max_iter=5000)
    model.fit(rows, np.concatenate([each.right for each in judged]), sample_weight=weight * len(weight) / weight.sum())
    slope, *by_kind = model.coef_[0].tolist()
    return Calibration(slope, np.array(by_kind) + model.intercept_[0], 0.0)


def calibrate(judged: list[Judged], console: Console) -> Calibration:
    """The scaling from all kinds; its spread is that of expected over counted errors on kinds left out."""
    ratios = []
    for kind in sorted({each.kind for each in judged}):
        others = platt([each for each in judged if each.kind != kind])
        mine = [each for each in judged if each.kind == kind]
        expected = sum(float((1 - others.probability(each.event, each.margin, 1.0)).sum()) for each in mine)
        counted = sum(int((~each.right).sum()) for each in mine)
        ratios.append(np.log((expected + 0.5) / (counted + 0.5)))
        console.print(f"{kind}, left out: {expected:.0f} wrong events expected, {counted} counted")
    return replace(platt(judged), spread=float(np.sqrt(np.mean(np.square(ratios)))))


EITHER = (Event.SPLIT, Event.DIVIDE)


class SplitOdds(NamedTuple):
    """Whether an event with one source and two targets is a split: the log-odds are slope × (lead + shift)."""

    merged: float
    """The shift if the source is known to hold several cells"""
    not_merged: float
    """and if it is not."""
    slope: float


class FalseShares(NamedTuple):
    """The shares of events that are taken for merges and gaps in movies without."""

    merges: float
    gaps: float


def split_odds(tracker: Tracker, movies: list[Sequence], console: Console) -> tuple[SplitOdds, FalseShares]:
    """By logistic regression on all movies with splits; and what is taken for merges and gaps in movies without."""
    seen: list[Array] = []
    false, total = {Event.MERGE: 0, Event.GAP: 0}, {Event.MERGE: 0, Event.GAP: 0}
    for movie in movies:
        true = movie.truth.events
        pairs = replace(tracker.pairs(movie.source, movie.source.has), events=ALL_EVENTS)
        solved = [solve_pair(pairs, tracker.coef_, frame) for frame in range(len(pairs))]
        told = EventTable.join([one.events for one in solved])
        ends = [(one.frame, one.ends) for one in solved if one.ends is not None]
        found = {Event.MERGE: int((told.event == Event.MERGE).sum()), Event.GAP: len(find_gaps(ends)[0])}
        for kind, number in found.items():
            if not (true.event == kind).any():
                false[kind], total[kind] = false[kind] + number, total[kind] + len(told)
        if (true.event == Event.SPLIT).any():
            lead = np.concatenate([one.lead for one in solved]) / np.linalg.norm(tracker.coef_)
            merged = merged_before(told, lead)
            # the same cells under both names
            as_split, as_division = (replace(told, event=np.full_like(told.event, kind)).keys() for kind in EITHER)
            is_split, divides = (np.isin(keys, true.keys()) for keys in (as_split, as_division))
            known = np.isfinite(lead) & (is_split | divides)
            seen.append(np.column_stack([lead, merged, is_split])[known])
    rows = np.concatenate(seen)
    model = LogisticRegression(C=100.0).fit(rows[:, :2], rows[:, 2])
    slope, merged_adds = model.coef_[0].tolist()
    base = float(model.intercept_[0])
    odds = SplitOdds((merged_adds + base) / slope, base / slope, slope)
    shares = FalseShares(*((false[kind] + 1) / total[kind] for kind in false))  # one more than seen: never 0
    console.print(f"splits against divisions, from {len(rows)}: {odds}; false merges and gaps: {false} of {total}")
    return odds, shares

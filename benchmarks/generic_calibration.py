"""What is fitted to simulated movies besides the generic weights: probabilities, and the rate of false merges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import expit

from clew.learning.task import Array
from clew.tracking.candidates.candidates import ALL_EVENTS
from clew.tracking.candidates.features import feature_names
from clew.tracking.events import Annotations, Event, EventIndex, EventTable
from clew.tracking.lineage.build import (
    SolvedBlock,
    join_events,
    join_movie,
    measure_margins,
)
from clew.tracking.lineage.splits import TEARING, find_torn_events
from clew.tracking.measurement.measure import MeasuredMovie
from clew.tracking.solve import solve_pairs
from clew.tracking.tracker import Tracker
from clew.tracking.training.calibration import (
    ENDS,
    INTERVAL,
    MAX_MARGIN,
    Calibration,
    MovieMargins,
    expected_wrong,
)
from clew.tracking.training.generic_weights import weights_by_name


@dataclass(frozen=True)
class Sequence:
    """A measured movie with all of its true events."""

    kind: str
    name: str
    source: MeasuredMovie
    truth: Annotations


@dataclass(frozen=True)
class Judged:
    """Events of a movie whose truth is known, in frame pairs that were not learned from; (n,) each."""

    kind: str
    name: str
    event: NDArray[np.int8]
    margin: Array
    context: Array
    """See `Calibration.probability`."""
    right: NDArray[np.bool_]
    seen: MovieMargins
    """Of all events but those of torn masks."""


EVERY = 3
"""One frame pair in so many is learned from: neighbouring ones tell little that is new. They are taken in twos that
share a frame, so that gaps over it are learned too."""


def learned_from(frame: NDArray[np.int64]) -> NDArray[np.bool_]:
    return frame % (2 * EVERY) < 2


def in_twos(truth: Annotations) -> Annotations:
    """What is known of the frame pairs that are learned from; of gaps those over the frame that two of them share."""
    gap = truth.events.event == Event.GAP
    whole = truth[gap & (truth.events.frame % (2 * EVERY) == 0)]
    rest = truth[~gap | (truth.events.frame % (2 * EVERY) != 0)].to_pairwise()
    rest = rest[learned_from(rest.events.frame)]
    return Annotations.of(EventTable.join([rest.events, whole.events]))


def judge(
    tracker: Tracker, movie: Sequence, learned: bool, given: Annotations | None = None
) -> Judged:
    """An event that takes a cell whose true event is another one is wrong; where the truth is silent, so is this.

    What is `given` was learned from: events whose first cell it tells about do not count.
    """
    pairs = tracker.pairs(movie.source, tracker.groups_for(movie.source))
    w = weights_by_name(tracker, feature_names(pairs.profile.groups))
    source = pairs.source
    solutions = solve_pairs(pairs, w, range(len(pairs)))
    block = SolvedBlock.of(source, range(source.n_frames), solutions)
    joined = join_movie([block])
    unit = float(np.linalg.norm(w))
    events, confidence, context, _ = joined.readers()[0].list_events()
    links = join_events([block])
    torn = find_torn_events(
        links.others.kind, links.others.sources, links.others.targets
    )
    seen = measure_margins(links, torn.is_torn)
    index = EventIndex(movie.truth.events)
    right = index.find(events) >= 0
    known = right | (index.find_by_cells(events) >= 0).any(axis=1)
    used = (
        known & np.isfinite(confidence) & (~learned_from(events.frame) | (not learned))
    )
    if given is not None:
        is_target = events.sources[:, 0] <= 0
        first = np.where(is_target, events.targets[:, 0], events.sources[:, 0])
        used &= (
            EventIndex(given.events).find_cell(
                np.where(is_target, events.end_frames(), events.frame), is_target, first
            )
            < 0
        )
    margin = np.minimum(confidence[used] / unit, MAX_MARGIN)
    return Judged(
        movie.kind,
        movie.name,
        events.event[used],
        margin,
        context[used],
        right[used],
        seen,
    )


LEAST_SWAPS = 100
"""Moves that two cells might swap, of a kind that tells about them."""
RIDGE = 10.0
"""On the coefficients; of 1, 3, 10 and 30 this had the least log loss on kinds left out, by 0.2 to 1.6 %."""


def platt(judged: list[Judged], beyond_margins: bool = True) -> Calibration:
    """Platt scaling over kinds of cells that count alike, however many events they have; `beyond_margins` or without.

    What an event counts is the same in all movies of its kind, so that the number of wrong events is right.
    """
    total = Counter[str]()
    for each in judged:
        total[each.kind] += len(each.right)
    weight = np.concatenate(
        [np.full(len(each.right), 1 / total[each.kind]) for each in judged]
    )
    right = np.concatenate([each.right for each in judged])
    share, rows = float(beyond_margins), []
    usual = share * np.mean([each.seen.log_share for each in judged], axis=0)
    for each in judged:
        columns = [*np.eye(len(Event))[each.event].T, each.margin]
        if beyond_margins:
            beside = [
                np.where(np.isin(each.event, kinds), each.context, 0.0)
                for kinds in (ENDS, TEARING)
            ]
            columns += [each.seen.steepness * each.margin, *beside]
        rows.append(np.column_stack([np.ones(len(each.right)), *columns]))
    known = np.concatenate(
        [(share * each.seen.log_share - usual)[each.event] for each in judged]
    )
    both, *found = _logistic(
        np.concatenate(rows), right, weight * len(weight) / weight.sum(), known
    )
    intercept, (slope, *further) = (
        np.array(found[: len(Event)]) + both - usual,
        found[len(Event) :],
    )
    growth, border, torn = further or (0.0, 0.0, 0.0)
    swap, clearness = _fit_swaps(judged) if beyond_margins else (0.0, 0.0)
    return Calibration(
        slope, intercept, 0.0, growth, share, border, torn, swap, clearness
    )


def _fit_swaps(judged: list[Judged]) -> list[float]:
    """Log-odds of moves that two cells might swap by their clearness alone; the surer of this and the margin counts."""
    mine = [(each, (each.event == Event.MOVE) & (each.context > 0)) for each in judged]
    number = Counter[str]()
    for each, is_swap in mine:
        number[each.kind] += int(is_swap.sum())
    known = [(each, rows) for each, rows in mine if number[each.kind] >= LEAST_SWAPS]
    if not known:
        return [0.0, 0.0]
    context = np.concatenate([each.context[rows] for each, rows in known])
    right = np.concatenate([each.right[rows] for each, rows in known])
    weight = np.concatenate(
        [np.full(rows.sum(), 1 / number[each.kind]) for each, rows in known]
    )
    X = np.column_stack([np.ones(len(context)), context])
    scaled = weight * len(weight) / weight.sum()
    return _logistic(X, right, scaled, np.zeros(len(right)))


def _logistic(
    X: Array, y: NDArray[np.bool_], weight: Array, known: Array
) -> list[float]:
    """Logistic regression by Newton's method, with log-odds that are `known`; the first column is free of the ridge."""
    ridge = np.full(X.shape[1], RIDGE)
    ridge[0] = 0.0

    def loss(w: Array) -> float:
        return float(
            weight @ np.logaddexp(0, np.where(y, -1, 1) * (X @ w + known))
            + ridge @ w**2 / 2
        )

    w, before = np.zeros(X.shape[1]), np.inf
    while before - loss(w) > 1e-6:
        before, p = loss(w), expit(X @ w + known)
        curvature = (X * (weight * p * (1 - p))[:, None]).T @ X + np.diag(ridge)
        step = np.linalg.solve(curvature, X.T @ (weight * (p - y)) + ridge * w)
        w = next(new for k in range(60) if loss(new := w - step / 2**k) <= before)
    return list(w.tolist())


def usual_rank(judged: list[Judged]) -> float:
    """How far up doubtful margins are in the mean over movies."""
    return float(
        np.mean(
            [
                each.seen.mean_rank(prior_count=0)
                for each in judged
                if each.seen.small.any()
            ]
        )
    )


def probability(calibration: Calibration, each: Judged) -> Array:
    """(n,) that the events of a movie are right."""
    return calibration.of_movie(each.seen).probability(
        each.event, each.margin, 1.0, each.context
    )


def held_by(expected: Sequence_[tuple[Array, int]], spread: float) -> float:
    """The share of movies whose wrong events are as many as the interval says, given probabilities and counts."""
    found = [expected_wrong(p, spread) for p, _ in expected]
    return float(
        np.mean(
            [
                one.low <= n <= one.high
                for one, (_, n) in zip(found, expected, strict=True)
            ]
        )
    )


def calibrate(judged: list[Judged]) -> Calibration:
    """The scaling from all kinds; with its spread the interval holds a share `INTERVAL` of movies of kinds left out."""
    tried: list[tuple[Array, int]] = []
    for kind in sorted({each.kind for each in judged}):
        others = platt([each for each in judged if each.kind != kind])
        tried += [
            (probability(others, each), int((~each.right).sum()))
            for each in judged
            if each.kind == kind
        ]
    spread = next(
        (s for s in np.arange(0.05, 2.0, 0.01) if held_by(tried, s) >= INTERVAL), 2.0
    )
    return replace(platt(judged), spread=float(spread))


def false_share_of_merges(
    tracker: Tracker, movies: list[Sequence], console: Console
) -> float:
    """What is taken for merges, with all kinds of events switched on, in movies without."""
    false = total = 0
    for movie in movies:
        if (movie.truth.events.event == Event.MERGE).any():
            continue
        pairs = tracker.pairs(movie.source, movie.source.has).with_events(ALL_EVENTS)
        solved = solve_pairs(pairs, tracker.coef_, range(len(pairs)))
        every = EventTable.join([one.events for one in solved])
        false += int((every.event == Event.MERGE).sum())
        total += len(every)
    console.print(f"false merges: {false} of {total}")
    return (false + 1) / total  # one more than seen: never 0

"""Profile of a movie: what is measured once, before its events are predicted.

Markers in place of cells are discs of one size: their areas, shapes and overlaps say
nothing about cells. Scales, motion and reach come from sampled frames. Weights then predict the events of
sampled frame pairs, which shows two things. First, whether the masks have splits,
merges and gaps: a movie without these is tracked better if they are disabled, since a
division looks much like a split. A merge looks like nothing else, and a split is a
merge run backwards, so that merges are counted for both. Second, whether the cells
look like those that the weights were learned from: weights extrapolate badly outside
the range of their training data (covariate shift, Shimodaira 2000).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self, TypeVar

import numpy as np
from scipy.spatial import ConvexHull
from scipy.special import pdtrc

from clew.errors import InputError
from clew.learning.task import Array
from clew.tracking.assignment.assignment import Assignment
from clew.tracking.candidates.candidates import (
    ALL_EVENTS,
    MAX_NEIGHBOURS,
    NEIGHBOURS,
    estimate_reach,
)
from clew.tracking.candidates.features import feature_names, features_of
from clew.tracking.candidates.frame_pairs import FramePair, FramePairBuilder
from clew.tracking.detections import Detections, Source
from clew.tracking.events import (
    BY_NAME,
    END_OF_FALSE,
    FALSE_DETECTIONS,
    LINEAGE_KINDS,
    Event,
)
from clew.tracking.flow.motion import Motion, estimate_motion
from clew.tracking.measurement.regions import support_directions
from clew.tracking.scales import (
    MapFunction,
    Scales,
    ball_diameter,
    estimate_scales,
    nearest_distances,
    sample_frames,
)
from clew.tracking.training.generic_weights import (
    FALSE_MERGES,
    OF_MASKS,
    QUANTILES,
    find_generic_set,
)
from clew.tracking.user_columns import get_user_columns, is_user_group
from clew.utils.validation import check_int, check_list, is_number, short_repr

Item = TypeVar("Item")

MASK_FAULTS = frozenset({Event.SPLIT, Event.MERGE})
OPTIONAL_KINDS = {
    "splits or merges": MASK_FAULTS,
    FALSE_DETECTIONS: frozenset(END_OF_FALSE),
}
REQUIRED_KINDS = frozenset({Event.MOVE, Event.APPEAR, Event.DISAPPEAR})
"""Every detection needs a fate and a history, whatever else is disabled."""
MAX_SAMPLED_PAIRS = 60
"""Frame pairs at most in which merges and gaps are counted, in evenly spread twos."""
N_SAMPLED_EVENTS = 3_000
"""Events after which no more frame pairs are sampled: of these, chance explains up to 10
merges and 4 gaps."""
SIGNIFICANCE = 0.01
"""A movie without merges or gaps shows as many as were counted with at most this
probability, if merges or gaps are to be enabled."""
N_EVENLY_SAMPLED = 10
"""Frame pairs, evenly spread, that represent a movie where a few are enough."""
CELLS_PER_PAIR = 200
"""Cells and moves of each sampled frame pair whose appearance is compared."""

LEVELS = (0.02, 0.25, 0.5, 0.75, 0.98)
"""Quantiles that describe the training data; the first and last bound its range."""
MIN_SAMPLES = 30
"""Cells or moves needed to judge a property."""
RELATIVE_SIZE = "size against the distance to the next cell"
ECCENTRICITY = "eccentricity"
MASK_PROPERTIES = (RELATIVE_SIZE, ECCENTRICITY)
MOVE_PREFIX = f"{Event.MOVE}: "

N_SAMPLED_FRAMES = 10
MAX_AREA_SPREAD = 0.2
"""Quartile range of the volumes of markers at most, in medians. Markers of PSC have 0
and those of DIC .15; cells .16 (bacteria) to .63, simulated tissue of discs from .11."""
MAX_ECCENTRICITY = 0.35
"""Upper quartile of the eccentricities of markers at most. Set by hand: discs of a few
pixels are not quite round, and rods of one size are no markers."""
MIN_TILED = 0.75
"""Share of the hull that masks cover if they tile it. Epidermis has .83, the densest
simulated tissue .5, colonies of rods .6."""
MIN_TILES = 30
"""Cells of a frame at least in which masks can be seen to tile."""

Appearance = Mapping[str, Array]
"""Values (n,) of each property of sampled cells and moves."""


@dataclass(frozen=True)
class EventKinds:
    """The kinds of events that are enabled in a movie, and why."""

    events: frozenset[Event]
    reason: str

    def __str__(self) -> str:
        enabled = ", ".join(str(event) for event in Event if event in self.events)
        disabled = [str(event) for event in LINEAGE_KINDS if event not in self.events]
        if not disabled:
            return f"events: {enabled} ({self.reason})"
        names = " and ".join(filter(None, [", ".join(disabled[:-1]), disabled[-1]]))
        return f"events: {enabled} ({names} off: {self.reason})"


@dataclass(frozen=True)
class MovieProfile:
    """What tracking needs to know about a movie as a whole."""

    groups: frozenset[str]
    """Groups of measurements that features are computed from."""
    motion: Motion
    scales: Scales
    reach: float
    """How far a cell may move from one frame to the next, in physical units."""
    neighbours: int = NEIGHBOURS
    """Cells of the next frame that each cell is compared with."""
    events: frozenset[Event] = ALL_EVENTS
    """Kinds of events that are enabled."""
    reason: str = field(default="", compare=False)
    """Why these kinds are enabled."""
    tiles: bool = False
    """Whether the masks tile the field."""
    generic_set: str = "points"
    """Name of the generic weights that suit the movie."""
    medians: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Median appearance of sampled cells and moves; empty without weights."""

    @property
    def event_kinds(self) -> EventKinds:
        """The enabled kinds of events, and why."""
        return EventKinds(self.events, self.reason)

    def with_events(self, events: frozenset[Event]) -> Self:
        """Enable these kinds of events; false detections have features of their own."""
        groups = self.groups
        if events & END_OF_FALSE.keys():
            groups = groups | {FALSE_DETECTIONS}
        return replace(self, events=events, groups=groups)


def estimate_profile(
    source: Source,
    groups: frozenset[str],
    *,
    neighbours: int = NEIGHBOURS,
    reach: float | None = None,
    events: frozenset[Event] = ALL_EVENTS,
    map_function: MapFunction = map,
) -> MovieProfile:
    """Estimate the scales, motion and reach of a movie from sampled frames.

    Parameters
    ----------
    source : Source
    groups : frozenset of str
        Groups of measurements that features are computed from.
    neighbours : int
    reach : float, optional
        Estimated unless given.
    events : frozenset of Event
        Kinds of events that are enabled.
    map_function : callable
        Applies a function to sampled frames, in threads or on a cluster.

    Returns
    -------
    MovieProfile
    """
    if reach is not None and not (is_number(reach) and 0 < reach <= sys.float_info.max):
        raise InputError(
            f"reach is {short_repr(reach)}; expected a positive length in the unit of "
            "the movie's spacing"
        )
    neighbours = check_int(neighbours, "neighbours", 1, MAX_NEIGHBOURS)
    motion = estimate_motion(source, map_function)
    scales = estimate_scales(source, motion.median_step, map_function, groups)
    far = estimate_reach(motion, scales) if reach is None else float(reach)
    tiles = masks_tile(source, groups)
    generic_set = find_generic_set(groups, source.ndim, tiles)
    return MovieProfile(
        groups,
        motion,
        scales,
        far,
        neighbours,
        events,
        tiles=tiles,
        generic_set=generic_set,
    )


def decide_events(
    source: Source,
    profile: MovieProfile,
    weights: Array | None,
    *,
    events: frozenset[Event] | None = None,
    known_events: frozenset[Event] = frozenset(),
    map_function: MapFunction = map,
) -> MovieProfile:
    """Add the kinds of events and the appearance of a movie to its profile.

    Splits and merges are enabled if they are in `known_events`, or if the weights
    predict more merges than they do in movies without any. Without weights, for kinds
    that all weights of are zero, where masks tile the field, and for points, there is
    no evidence.

    Parameters
    ----------
    source : Source
    profile : MovieProfile
        See `estimate_profile`.
    weights : ndarray of shape (d,), optional
        Predict the events of sampled frame pairs.
    events : frozenset of Event, optional
        Kinds of events to enable; decided from the movie unless given.
    known_events : frozenset of Event
        Kinds that are annotated or were learned, and are always enabled.
    map_function : callable
        Applies a function to sampled frames, in threads or on a cluster.

    Returns
    -------
    MovieProfile
    """
    annotated = {
        name: kinds for name, kinds in OPTIONAL_KINDS.items() if kinds & known_events
    }
    reasons = [f"{name} were annotated" for name in annotated]
    optional = frozenset().union(*OPTIONAL_KINDS.values())
    default = (ALL_EVENTS - optional).union(*annotated.values())
    scored = default
    if weights is not None:
        scored = (scored_events(weights, profile.groups) & MASK_FAULTS) | default
    decided: EventKinds | None = None
    if events is not None:
        decided = EventKinds(events | known_events, "as requested")
    elif scored == default:
        decided = EventKinds(default, ", ".join(reasons) or "none was annotated")
    elif "size" not in profile.groups:
        decided = EventKinds(default, ", ".join([*reasons, "points have no masks"]))
    elif profile.tiles:
        decided = EventKinds(default, ", ".join([*reasons, "the masks tile the field"]))
    if weights is None:
        assert decided is not None
        return _set_events(profile, decided)

    n_pairs = N_EVENLY_SAMPLED
    if decided is None:
        n_pairs = count_pairs_to_sample(source)
    builder = FramePairBuilder(source, replace(profile, events=scored))
    windows = [
        (builder.window(frames.start, frames.stop), frames)
        for frames in sample_pair_windows(len(builder), n_pairs)
    ]
    samples = list(map_function(partial(_inspect_window, weights), windows))
    if decided is None:
        counts = FaultCounts.sum(sample[0] for sample in samples)
        events = default | MASK_FAULTS if counts.has_merges() else default
        decided = EventKinds(events, ", ".join([*reasons, str(counts)]))
    appearance = pool_appearance([sample[1] for sample in samples])
    profile = replace(profile, medians=median_appearance(appearance))
    return _set_events(profile, decided)


def _set_events(profile: MovieProfile, kinds: EventKinds) -> MovieProfile:
    """Enable some kinds of events."""
    return replace(profile, events=kinds.events, reason=kinds.reason)


def parse_events(events: str | Iterable[str | Event]) -> frozenset[Event] | None:
    """Return the kinds of events that a user names; None for "auto"."""
    if isinstance(events, str):
        if events == "auto":
            return None
        events = events.replace(",", " ").split()
    names = [events] if isinstance(events, Event) else check_list(events, "events")
    kinds = set()
    for event in names:
        if not isinstance(event, Event) and str(event) not in BY_NAME:
            raise InputError(
                f"there is no event {short_repr(event)}; expected 'auto', or some of "
                f"{', '.join(BY_NAME)}"
            )
        kinds.add(event if isinstance(event, Event) else BY_NAME[str(event)])
    return REQUIRED_KINDS | kinds


def add_annotated_kinds(
    events: frozenset[Event], annotated: frozenset[Event]
) -> frozenset[Event]:
    """Enable annotated kinds of events; splits and merges are enabled together."""
    groups = [kinds for kinds in OPTIONAL_KINDS.values() if kinds & annotated]
    return events.union(annotated, *groups)


def scored_events(w: Array, groups: frozenset[str]) -> frozenset[Event]:
    """Return the kinds of events with a weight other than zero."""
    widths = [len(features_of(event, groups)) for event in Event]
    blocks = np.split(w, np.cumsum(widths)[:-1])
    return frozenset(
        event for event, block in zip(Event, blocks, strict=True) if block.any()
    )


def sample_evenly(items: Sequence[Item], n: int = N_EVENLY_SAMPLED) -> list[Item]:
    """Return at most `n` evenly spread items."""
    if not len(items):
        return []
    places = np.unique(np.linspace(0, len(items) - 1, n).round().astype(int))
    return [items[place] for place in places.tolist()]


def count_pairs_to_sample(source: Source) -> int:
    """Return how many frame pairs have about `N_SAMPLED_EVENTS` events."""
    samples = sample_frames(source, 1, N_EVENLY_SAMPLED)
    counts = [len(sample.read()[0]) for sample in samples]
    n_pairs = N_SAMPLED_EVENTS / max(float(np.mean(counts or [0])), 1.0)
    return int(np.clip(np.ceil(n_pairs), N_EVENLY_SAMPLED, MAX_SAMPLED_PAIRS))


def sample_pair_windows(
    n_pairs: int, n_sampled: int = MAX_SAMPLED_PAIRS
) -> list[range]:
    """Return ranges of frame pairs, evenly spread in twos that share a frame.

    Twos that touch or overlap are one range.
    """
    if not n_pairs:
        return []
    starts = np.linspace(0, max(n_pairs - 2, 0), n_sampled // 2).round().astype(int)
    frames = np.unique(np.minimum(np.concatenate([starts, starts + 1]), n_pairs - 1))
    runs = np.split(frames, np.flatnonzero(np.diff(frames) > 1) + 1)
    return [range(int(run[0]), int(run[-1]) + 1) for run in runs]


class FaultCounts(NamedTuple):
    """Events of sampled frame pairs that look like merges and gaps."""

    n_pairs: int
    n_events: int
    merges: int

    @classmethod
    def sum(cls, parts: Iterable[FaultCounts]) -> FaultCounts:
        """Add up the counts of several parts of a movie."""
        return cls(*np.sum([cls(0, 0, 0), *parts], axis=0).tolist())

    def has_merges(self) -> bool:
        """Whether a movie without merges would hardly show as many."""
        return _exceeds_chance(self.merges, FALSE_MERGES * self.n_events)

    def __str__(self) -> str:
        return (
            f"{self.merges} of {self.n_events} events in {self.n_pairs} frame pairs "
            "look like merges"
        )


def _exceeds_chance(count: int, expected: float) -> bool:
    """Whether a Poisson variable of this mean is significantly below the count."""
    return count > 0 and bool(pdtrc(count - 1, expected) < SIGNIFICANCE)


def _inspect_window(
    w: Array, item: tuple[FramePairBuilder, range]
) -> tuple[FaultCounts, Appearance]:
    """Count faults in frame pairs that share frames, and sample their appearance."""
    builder, frames = item
    n_events = 0
    n_merges = 0
    samples = []
    pair = None
    for frame in frames:
        pair = builder.build(frame, previous=pair)
        answer = pair.solve(w)
        n_events += len(answer.chosen)
        n_merges += int((answer.events == Event.MERGE).sum())
        samples.append(sample_appearance(pair, answer))
    counts = FaultCounts(len(frames), n_events, n_merges)
    return counts, pool_appearance(samples)


def sample_appearance(pair: FramePair, answer: Assignment) -> Appearance:
    """Return properties of sampled cells and predicted moves of a frame pair."""
    groups = pair.profile.groups
    moves = pair.candidates.of_event(Event.MOVE)
    chosen = answer.chosen[answer.events == Event.MOVE] - moves.start
    rows = sample_evenly(chosen, CELLS_PER_PAIR)
    names = [
        name.removeprefix(MOVE_PREFIX)
        for name in feature_names(groups)
        if name.startswith(MOVE_PREFIX)
    ]
    columns = zip(names, pair.blocks[Event.MOVE][rows].T, strict=True)
    moves_appearance = {name: column for name, column in columns if name != "bias"}
    return moves_appearance | mask_properties(pair.a, groups)


def appearance_of_pairs(pairs: Sequence[FramePair], w: Array) -> Appearance:
    """Return properties of sampled cells and moves that weights `w` predict."""
    return pool_appearance(
        [sample_appearance(pair, pair.solve(w)) for pair in sample_evenly(pairs)]
    )


def mask_properties(cells: Detections, groups: frozenset[str]) -> dict[str, Array]:
    """Return dimensionless properties of sampled masks, (n,) each."""
    rows = sample_evenly(range(len(cells)), CELLS_PER_PAIR)
    properties: dict[str, Array] = {}
    if "size" in groups:
        properties[RELATIVE_SIZE] = np.zeros(0)
        if len(cells) > 1:
            volume = cells.columns["volume"]
            diameter = ball_diameter(volume, cells.position.shape[1])
            distance = np.maximum(nearest_distances(cells), 1e-9 * diameter)
            properties[RELATIVE_SIZE] = (diameter / distance)[rows]
    if "shape" in groups:
        eccentricity = np.asarray(cells.columns["eccentricity"], dtype=float)
        properties[ECCENTRICITY] = eccentricity[rows]
    return properties


def pool_appearance(samples: Sequence[Appearance]) -> Appearance:
    """Concatenate samples."""
    names = samples[0] if samples else ()
    return {name: np.concatenate([part[name] for part in samples]) for name in names}


def median_appearance(appearance: Appearance) -> dict[str, float]:
    """Return the median of each property with enough samples."""
    return {
        name: float(np.median(values))
        for name, values in appearance.items()
        if len(values) >= MIN_SAMPLES
    }


@dataclass(frozen=True)
class OutOfRangeFeature:
    """A property of a movie that lies outside the range of the training data."""

    name: str
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.name} {self.median:.2g} (training {self.low:.2g} to {self.high:.2g})"


@dataclass(frozen=True)
class TrainingRange:
    """Quantiles of each property in the data that weights were learned from."""

    quantiles: Mapping[str, Sequence[float]]
    """At `LEVELS`, by property."""

    @classmethod
    def of(cls, samples: Iterable[Appearance]) -> Self:
        """Return the range of several movies, which count alike whatever their size."""
        columns: dict[str, list[Array]] = {}
        for sample in samples:
            for name, values in sample.items():
                if len(values) >= MIN_SAMPLES:
                    evenly = np.quantile(values, np.linspace(0, 1, 201))
                    columns.setdefault(name, []).append(evenly)
        return cls(
            {
                name: np.quantile(np.concatenate(parts), LEVELS).tolist()
                for name, parts in columns.items()
            }
        )

    @classmethod
    def generic(cls) -> Self:
        """Return the range of the movies that the generic weights were learned from."""
        return cls(QUANTILES)

    def out_of_range(self, medians: Mapping[str, float]) -> list[OutOfRangeFeature]:
        """Return the properties whose median is out of range, those of masks first.

        A move that changes less than those of the training data is easier to predict,
        so that only the upper bound counts for moves.
        """
        outside = []
        for name in sorted(
            self.quantiles, key=lambda name: name not in MASK_PROPERTIES
        ):
            if name not in medians:
                continue
            median = medians[name]
            low, *_, high = self.quantiles[name]
            is_below = median < low and name in MASK_PROPERTIES
            if median > high or is_below:
                outside.append(OutOfRangeFeature(name, median, low, high))
        return outside

    def warning(self, medians: Mapping[str, float], name: str) -> str:
        """Return a warning about a movie out of range; empty if it is within."""
        outside = self.out_of_range(medians)
        if not outside:
            return ""
        hint = ""
        if any(item.name in MASK_PROPERTIES for item in outside):
            hint = " Are the masks of another kind, such as markers of nuclei?"
        values = ", ".join(map(str, outside[:3]))
        return (
            f"{name} is outside the range of the training data: median {values}.{hint} "
            "Expect more errors; annotate some events of this movie"
        )


def are_markers(source: Source) -> bool:
    """Whether the masks of a movie are discs of one size."""
    if not source.has >= {"size", "shape"}:
        return False
    volumes = [np.zeros(0)]
    eccentricities = [np.zeros(0)]
    for sample in sample_frames(source, 1, N_SAMPLED_FRAMES):
        columns = sample.read()[0].columns
        volumes.append(np.asarray(columns["volume"], dtype=float))
        eccentricities.append(np.asarray(columns["eccentricity"], dtype=float))
    volume = np.concatenate(volumes)
    if len(volume) < 2:
        return False
    low, median, high = np.quantile(volume, [0.25, 0.5, 0.75])
    roundest = np.quantile(np.concatenate(eccentricities), 0.75)
    return bool(high - low <= MAX_AREA_SPREAD * median and roundest <= MAX_ECCENTRICITY)


def find_informative_groups(source: Source) -> frozenset[str]:
    """Return the groups of a movie's measurements without those of markers.

    The columns of the user are among them.
    """
    measured = source.has - OF_MASKS if are_markers(source) else source.has
    return measured | get_user_columns(source).list_groups()


def masks_tile(source: Source, groups: Set[str]) -> bool:
    """Whether the masks cover the convex hull of the cells but for narrow gaps.

    Where a cell of such a tissue vanishes, its neighbors take its place, which looks
    like a merge.
    """
    if "size" not in groups:
        return False
    directions = support_directions(source.ndim)
    covered = []
    for sample in sample_frames(source, 1, N_SAMPLED_FRAMES):
        cells = sample.read()[0]
        if len(cells) < MIN_TILES:
            continue
        volume = np.asarray(cells.columns["volume"], dtype=float)
        radius = ball_diameter(volume, source.ndim) / 2
        outline = cells.position[:, None] + radius[:, None, None] * directions
        hull = ConvexHull(outline.reshape(-1, source.ndim))
        covered.append(volume.sum() / hull.volume)
    return bool(covered) and float(np.median(covered)) > MIN_TILED


def describe_groups(groups: Set[str], generic_set: str, source: Source) -> str:
    """Describe which weights a movie takes, for notes."""
    note = ""
    if "size" in source.has and "size" not in groups:
        note = " (the masks are markers: their size and shape are left out)"
    given = "".join(f", {group}" for group in sorted(filter(is_user_group, groups)))
    return f"measurements: {generic_set}{given}{note}"

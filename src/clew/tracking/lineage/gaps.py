"""Gap closing: link ends of tracks to beginnings of tracks some frames later.

This is a second pass, after all frame pairs are solved. Each track that ends stays ended
or continues in one of those that begin later, so that all gaps of a movie are one
assignment (Jaqaman et al., Nature Methods 2008) with learned scores. Distances, sizes
and intensities are compared in units of the movie: how much those of its unbroken
tracks change over as many frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import expit, logit

from clew.learning.task import Array, Indices, Mask
from clew.tracking.assignment.assignment import assign
from clew.tracking.candidates.candidates import Candidates
from clew.tracking.events import Annotations, Event
from clew.tracking.lineage.links import NO_NODE, MovieLinks, NodeIds
from clew.tracking.training.generic_weights import load_generic

FILE = "gap_weights.json"
LONGEST_GAP = 32
"""Frames of the longest gap that the weights were learned from."""
N_NEIGHBOURS = 6
"""Cells around a cell by whose tracks its motion is predicted."""
N_NEAREST = 4
"""Beginnings in a frame that each end is compared with."""
N_SAMPLED_FRAMES = 40
N_SAMPLED_CELLS = 60
"""Cells of each sampled frame from which the scales of a movie are measured."""
MIN_TRACKS = 20
"""Tracks that are needed to measure a scale."""
FAR_QUANTILE = 0.98
"""Quantile of the deviation from the predicted place that bounds the search."""
RIM_QUANTILE = 0.0005
"""Of the positions of cells, beyond which there is no field."""
RIM_SHARE = 0.1
"""Largest share of the cells that are at the rim."""
SMALLEST_CHANGE = 0.05
"""Lower bound of the typical change of the logarithm of a size."""
N_STEPS = 3
"""Steps of a cell within which the rim of the field is near."""
SIZE = "size"
INTENSITY = "intensity"


@dataclass(frozen=True, eq=False)
class GapLinks:
    """Gaps that were closed; (n,) each."""

    source: NodeIds
    """The last node before each gap."""
    target: NodeIds
    """The first node after it."""
    confidence: Array
    """Score lost if the gap stays open."""
    probability: Array
    """That the link is right."""

    @classmethod
    def empty(cls) -> Self:
        """No gaps."""
        nodes = np.zeros(0, np.int32)
        return cls(nodes, nodes, np.zeros(0), np.zeros(0))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate parts and sort them by source."""
        columns = (
            np.concatenate([getattr(part, item.name) for part in parts])
            for item in fields(cls)
        )
        whole = cls(*columns)
        return whole[np.argsort(whole.source, kind="stable")]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(*(getattr(self, item.name)[rows] for item in fields(self)))

    def renumber(self, place: NodeIds) -> Self:
        """Return the same with nodes at new places."""
        return replace(self, source=place[self.source], target=place[self.target])


class GapWeights(NamedTuple):
    """Learned weights of the features of gaps, by the measurements that a movie has."""

    by_groups: Mapping[frozenset[str], Mapping[str, float]]
    evidence: Mapping[str, float]
    """Of what images show, see `fill`."""
    follow: Mapping[str, float]
    """Of cells beyond the ends of tracks, see `follow`."""

    @classmethod
    def generic(cls) -> Self:
        """Read the weights that come with clew."""
        content = load_generic(FILE)
        links = {
            frozenset(item["groups"]): item["weights"] for item in content["links"]
        }
        return cls(links, content["evidence"], content["follow"])

    def score(self, features: Mapping[str, Array], groups: frozenset[str]) -> Array:
        """Return the log odds of gaps, (n,)."""
        weights = self.by_groups[groups]
        terms = [weight * features[name] for name, weight in weights.items()]
        return np.asarray(np.sum(terms, axis=0))


class PredictedPaths(NamedTuple):
    """Where cells would be after 1 to H frames; (n, H, ndim)."""

    flow: Array
    """Mean displacement of the tracks around each cell."""
    own_step: Array
    """(n, ndim) the last step of the cell less that of the tracks around it."""


class GapMotion(NamedTuple):
    """How the cells of a movie move over some frames."""

    flow_share: float
    """Share of the motion around it that a cell follows."""
    persistence: float
    """Share of its own step that a cell repeats."""

    def predict(self, paths: PredictedPaths) -> Array:
        """Return displacements, (n, H, ndim)."""
        horizon = np.arange(1, paths.flow.shape[1] + 1)
        repeated = np.cumsum(self.persistence**horizon)[:, None]
        steps = repeated * paths.own_step[:, None]
        return np.asarray(self.flow_share * paths.flow + steps)


@dataclass(frozen=True, eq=False)
class GapScales:
    """How much unbroken tracks of a movie change over 1 to H frames."""

    motion: GapMotion
    deviation: Array
    """(H,) median distance from the predicted place."""
    reach: Array
    """(H,) distance that few exceed."""
    size: Array
    """(H,) median change of the logarithm of the volume."""
    intensity: Array
    """(H,) median change of the intensity."""
    spacing: float
    """Median distance to the nearest cell."""


class TrackLinks:
    """Links of a movie in both directions."""

    def __init__(self, links: MovieLinks) -> None:
        self.links = links
        self.position = links.position
        self.successor = np.append(links.successor, NO_NODE)
        """(n + 1,) so that `NO_NODE` leads to itself."""
        self.predecessor = np.full(len(links), NO_NODE, dtype=np.int32)
        moves = np.flatnonzero(links.successor != NO_NODE)
        self.predecessor[links.successor[moves]] = moves

    @cached_property
    def frame(self) -> NDArray[np.int32]:
        """(n,)"""
        return self.links.frame()

    def nodes_in(self, frame: int) -> NodeIds:
        """Return the nodes of a frame."""
        start, stop = self.links.first_node[frame : frame + 2]
        return np.arange(start, stop, dtype=np.int32)

    def follow(self, nodes: NodeIds, n_frames: int) -> NodeIds:
        """Return the nodes after 1 to n frames, (n, n_frames), or `NO_NODE`."""
        path = np.empty((n_frames, *nodes.shape), dtype=np.int32)
        for step in range(n_frames):
            nodes = self.successor[nodes]
            path[step] = nodes
        return np.moveaxis(path, 0, -1)

    def predict_paths(
        self, frame: int, nodes: NodeIds, n_frames: int
    ) -> PredictedPaths:
        """Predict the paths of nodes of a frame from the tracks around them."""
        everyone = self.nodes_in(frame)
        ndim = self.position.shape[1]
        flow = np.zeros((len(nodes), n_frames, ndim))
        before = self.predecessor[nodes]
        has_step = before != NO_NODE
        own_step = np.where(
            has_step[:, None], self.position[nodes] - self.position[before], 0.0
        )
        n_around = min(N_NEIGHBOURS + 1, len(everyone))
        if n_around > 1:
            tree = cKDTree(self.position[everyone])
            nearest = tree.query(self.position[nodes], k=np.arange(2, n_around + 1))[1]
            around = everyone[nearest]
            path = self.follow(around, n_frames)
            start = self.position[around][:, :, None]
            flow = _mean_known(self.position[path] - start, path != NO_NODE)
            earlier = self.predecessor[around]
            step = self.position[around] - self.position[earlier]
            last = _mean_known(step[:, :, None], (earlier != NO_NODE)[:, :, None])
            own_step = np.where(has_step[:, None], own_step - last[:, 0], 0.0)
        return PredictedPaths(flow, own_step)


def _mean_known(values: Array, known: Mask) -> Array:
    """Means over the second axis; the last known one where none is known."""
    count = known.sum(axis=1)
    total = np.where(known[..., None], values, 0.0).sum(axis=1)
    mean = total / np.maximum(count, 1)[..., None]
    for step in range(1, mean.shape[1]):
        is_unknown = count[:, step] == 0
        mean[is_unknown, step] = mean[is_unknown, step - 1]
    return np.asarray(mean)


def measure_gap_scales(tracks: TrackLinks, horizon: int) -> GapScales:
    """Measure how much unbroken tracks change over 1 to `horizon` frames."""
    links = tracks.links
    chosen = np.linspace(0, links.n_frames - 1, N_SAMPLED_FRAMES).round().astype(int)
    flows = []
    steps = []
    true_paths = []
    spacings = []
    starts = []
    for frame in np.unique(chosen).tolist():
        nodes = tracks.nodes_in(frame)
        if len(nodes) > 1:
            place = tracks.position[nodes]
            spacings.append(cKDTree(place).query(place, k=[2])[0].ravel())
        nodes = nodes[links.successor[nodes] != NO_NODE]
        if not len(nodes):
            continue
        rows = np.linspace(0, len(nodes) - 1, N_SAMPLED_CELLS).round().astype(int)
        nodes = nodes[np.unique(rows)]
        flow, own_step = tracks.predict_paths(frame, nodes, horizon)
        flows.append(flow)
        steps.append(own_step)
        true_paths.append(tracks.follow(nodes, horizon))
        starts.append(nodes)
    spacing = float(np.median(np.concatenate(spacings))) if spacings else 1.0
    ndim = tracks.position.shape[1]
    path = np.concatenate([np.zeros((0, horizon), np.int32), *true_paths])
    start = np.concatenate([np.zeros(0, np.int32), *starts])
    paths = PredictedPaths(
        np.concatenate([np.zeros((0, horizon, ndim)), *flows]),
        np.concatenate([np.zeros((0, ndim)), *steps]),
    )
    known = path != NO_NODE
    moved = tracks.position[path] - tracks.position[start][:, None]
    first = known[:, 0]
    flow_share = _fit_share(paths.flow[first, 0], moved[first, 0])
    left = moved[first, 0] - flow_share * paths.flow[first, 0]
    motion = GapMotion(flow_share, _fit_share(paths.own_step[first], left))
    distance = np.asarray(np.linalg.norm(moved - motion.predict(paths), axis=2))
    volume = links.columns.get("volume")
    intensity = links.columns.get("intensity")
    size = np.zeros_like(distance)
    if volume is not None:
        size = np.abs(_log(volume)[path] - _log(volume)[start][:, None])
    look = np.zeros_like(distance)
    if intensity is not None:
        look = np.abs(intensity[path] - intensity[start][:, None])
    tiny = 1e-3 * spacing
    usual_look = 1.0
    if intensity is not None and len(intensity):
        usual_look = float(np.median(np.abs(intensity))) or 1.0
    return GapScales(
        motion,
        _quantiles(distance, known, 0.5, tiny, spacing / 8),
        _quantiles(distance, known, FAR_QUANTILE, tiny, spacing / 2),
        _quantiles(size, known, 0.5, SMALLEST_CHANGE, 0.2),
        _quantiles(look, known, 0.5, 1e-3 * usual_look, 0.2 * usual_look),
        spacing,
    )


def _log(volume: NDArray[Any]) -> Array:
    """Logarithms of volumes, which may be 0 in a table."""
    smallest = np.finfo(np.float32).tiny
    return np.asarray(np.log(np.maximum(volume, smallest, dtype=np.float64)))


def _fit_share(predicted: Array, true: Array) -> float:
    """Fit ``true = share * predicted`` by least squares without far outliers."""
    if len(predicted) < MIN_TRACKS:
        return 0.0
    length = np.linalg.norm(true, axis=1)
    usual = length <= 4 * np.median(length) + np.finfo(float).tiny
    square = float((predicted[usual] ** 2).sum())
    if not square:
        return 0.0
    return float(np.clip((predicted[usual] * true[usual]).sum() / square, 0.0, 1.0))


def _quantiles(
    values: Array, known: Mask, level: float, floor: float, default: float
) -> Array:
    """(H,) quantiles of known values, growing; extrapolated where few are known."""
    result = np.empty(values.shape[1])
    last = floor
    for step in range(values.shape[1]):
        sample = values[known[:, step], step]
        if len(sample) >= MIN_TRACKS:
            last = max(last, float(np.quantile(sample, level)))
        elif step:
            last = last * np.sqrt((step + 1) / step)
        else:
            last = default
        result[step] = last
    return result


@dataclass(frozen=True, eq=False)
class GapCandidates:
    """Pairs of an end and a beginning that may be the same cell."""

    ends: NodeIds
    """(n,) nodes before which a track ends."""
    beginnings: NodeIds
    """(m,)"""
    end_row: Indices
    """(p,) rows of `ends`, one for each pair."""
    beginning_row: Indices
    features: Mapping[str, Array]
    """(p,) each."""
    groups: frozenset[str]
    """Measurements that the movie has: "size", "intensity"."""

    @property
    def source(self) -> NodeIds:
        """(p,) last node before each gap."""
        return self.ends[self.end_row]

    @property
    def target(self) -> NodeIds:
        """(p,) first node after each gap."""
        return self.beginnings[self.beginning_row]

    @classmethod
    def find(
        cls,
        links: MovieLinks,
        max_gap: int | None = None,
        excluded: Mask | None = None,
    ) -> GapCandidates:
        """Find the candidates of a movie.

        Parameters
        ----------
        links : MovieLinks
        max_gap : int, optional
            Frames that a cell may be missing; `LONGEST_GAP` unless given.
        excluded : ndarray of shape (n,), optional
            Nodes at which no gap begins or ends.

        Returns
        -------
        GapCandidates
        """
        others = links.others
        ends = np.unique(others.sources[others.kind == Event.DISAPPEAR, 0])
        beginnings = np.unique(others.targets[others.kind == Event.APPEAR, 0])
        if excluded is not None:
            ends = ends[~excluded[ends]]
            beginnings = beginnings[~excluded[beginnings]]
        tracks = TrackLinks(links)
        longest = LONGEST_GAP if max_gap is None else max_gap
        longest = min(longest, links.n_frames - 2)
        groups = frozenset(
            name
            for name, column in ((SIZE, "volume"), (INTENSITY, "intensity"))
            if column in links.columns
        )
        if INTENSITY in groups and SIZE not in groups:
            groups = frozenset()
        if longest < 1 or not len(ends) or not len(beginnings):
            none = np.zeros(0, np.intp)
            return cls(ends, beginnings, none, none, {}, groups)
        scales = measure_gap_scales(tracks, longest + 1)
        pairs = _find_pairs(tracks, scales, ends, beginnings, longest)
        features = _compute_features(tracks, scales, ends, beginnings, pairs)
        return cls(ends, beginnings, pairs.end, pairs.beginning, features, groups)


class _Pairs(NamedTuple):
    """Ends and beginnings that are near the predicted place; (p,) each."""

    end: Indices
    beginning: Indices
    deviation: Array
    """Distance from the predicted place."""


def _find_pairs(
    tracks: TrackLinks,
    scales: GapScales,
    ends: NodeIds,
    beginnings: NodeIds,
    longest: int,
) -> _Pairs:
    """Pairs within reach, at most `N_NEAREST` for each end and frame."""
    end_frame = tracks.frame[ends]
    bounds = np.searchsorted(
        tracks.frame[beginnings], np.arange(tracks.links.n_frames + 1)
    )
    trees: dict[int, cKDTree] = {}
    columns: list[tuple[Indices, Indices, Array]] = []
    for frame in np.unique(end_frame).tolist():
        rows = np.arange(*np.searchsorted(end_frame, [frame, frame + 1]))
        paths = tracks.predict_paths(frame, ends[rows], longest + 1)
        place = tracks.position[ends[rows]][:, None] + scales.motion.predict(paths)
        trees.pop(frame + 1, None)
        for gap in range(1, longest + 1):
            later = frame + gap + 1
            if later >= tracks.links.n_frames:
                break
            first, stop = bounds[later : later + 2]
            if first == stop:
                continue
            if later not in trees:
                trees[later] = cKDTree(tracks.position[beginnings[first:stop]])
            near, nearest = trees[later].query(
                place[:, gap],
                k=np.arange(1, min(N_NEAREST, stop - first) + 1),
                distance_upper_bound=max(scales.reach[gap], scales.spacing / 2),
            )
            row, rank = np.nonzero(np.isfinite(near))
            columns.append((rows[row], first + nearest[row, rank], near[row, rank]))
    if not columns:
        return _Pairs(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))
    end, beginning, deviation = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((beginning, end))
    return _Pairs(end[order], beginning[order], deviation[order])


def _compute_features(
    tracks: TrackLinks,
    scales: GapScales,
    ends: NodeIds,
    beginnings: NodeIds,
    pairs: _Pairs,
) -> dict[str, Array]:
    """Features of pairs by name, (p,) each."""
    links = tracks.links
    source = ends[pairs.end]
    target = beginnings[pairs.beginning]
    span = (tracks.frame[target] - tracks.frame[source]).astype(np.intp)
    scale = span - 1
    ndim = tracks.position.shape[1]
    relative = pairs.deviation / scales.spacing
    n_beginnings = np.bincount(tracks.frame[beginnings], minlength=links.n_frames)
    share = (n_beginnings.sum() + 1) / max(len(links), 1)
    rims = (measure_rim(links, source), measure_rim(links, target))
    frames = np.log(span - 1.0)
    features = {
        "bias": np.ones(len(source)),
        "deviation": np.log1p((pairs.deviation / scales.deviation[scale]) ** 2),
        "chance": np.log(share * relative**ndim + 1e-4),
        "frames": frames,
        "rim": np.maximum(*rims),
        "both at the rim": np.minimum(*rims),
        "frames at the rim": np.minimum(*rims) * frames,
        "covered": _measure_cover(tracks, scales, source, target),
        "track before": np.log(measure_run_length(tracks, source, forward=False)),
        "track after": np.log(measure_run_length(tracks, target, forward=True)),
    }
    volume = links.columns.get("volume")
    if volume is not None:
        change = np.abs(_log(volume[target]) - _log(volume[source]))
        change = change / scales.size[scale]
        features["size"] = np.log1p(change**2)
    intensity = links.columns.get("intensity")
    if intensity is not None:
        change = np.abs(intensity[target] - intensity[source]) / scales.intensity[scale]
        features["intensity"] = np.log1p(change**2)
    return features


def measure_rim(links: MovieLinks, nodes: NodeIds) -> Array:
    """Return how near nodes are to the rim of the field, (n,): exp(−distance).

    The field is where the centers of cells are. It ends at the border of the images, or
    inside of it if the cells there were left out. The unit is the diameter of a cell,
    but no more than the distance within which a tenth of the cells are: where cells are
    large beside the field, most of them are not at its rim.
    """
    levels = (RIM_QUANTILE, 1 - RIM_QUANTILE)
    low, high = np.quantile(links.position, levels, axis=0)
    depth = np.minimum(links.position - low, high - links.position).min(axis=1)
    depth = np.maximum(depth, 0.0)
    diameter = links.typical_volume ** (1 / links.position.shape[1])
    unit = min(diameter, float(np.quantile(depth, RIM_SHARE)))
    return np.asarray(np.exp(-depth[nodes] / max(unit, 1e-3 * diameter)))


class Field(NamedTuple):
    """The part of the images in which cells have masks.

    It ends at the border of the images, or inside of it. A cell has a mask as long as a
    part of it is inside.
    """

    low: Array
    """(ndim,) least coordinates at which the box of a cell ends."""
    high: Array
    """Largest ones at which it begins."""
    diameter: float
    """Of a typical cell."""
    step: float
    """Median step of a cell from one frame to the next."""

    @classmethod
    def of(cls, links: MovieLinks) -> Self:
        """Return the field of a movie."""
        moves = np.flatnonzero(links.successor != NO_NODE)
        diameter = links.typical_volume ** (1 / links.position.shape[1])
        step = 0.0
        if len(moves):
            way = links.position[links.successor[moves]] - links.position[moves]
            step = float(np.median(np.linalg.norm(way, axis=1)))
        low, high = links.limits
        return cls(low, high, diameter, max(step, SMALLEST_CHANGE * diameter))

    def measure_depth(self, low_end: Array, high_end: Array) -> Array:
        """Return how far cells are from leaving, (n,); negative outside.

        Parameters
        ----------
        low_end, high_end : ndarray of shape (n, ndim)
            Of the box of each cell.
        """
        inside = np.minimum(high_end - self.low, self.high - low_end)
        return np.asarray(inside.min(axis=-1))

    def describe(self, depth: float) -> dict[str, float]:
        """Return features of a cell at a depth."""
        inside = max(depth, 0.0)
        return {
            "rim": float(np.exp(-inside / self.diameter)),
            "rim in steps": float(np.exp(-inside / (N_STEPS * self.step))),
            "outside": min(depth, 0.0) / self.diameter,
        }


RUN_LENGTH = 8
"""Frames over which a track before or after a gap is followed."""


def measure_run_length(tracks: TrackLinks, nodes: NodeIds, forward: bool) -> Array:
    """(n,) how many frames a track lasts from nodes on, up to `RUN_LENGTH`."""
    following = tracks.successor
    if not forward:
        following = np.append(tracks.predecessor, NO_NODE)
    length = np.ones(len(nodes))
    for _ in range(RUN_LENGTH - 1):
        nodes = following[nodes]
        length += nodes != NO_NODE
    return length


def _measure_cover(
    tracks: TrackLinks, scales: GapScales, source: NodeIds, target: NodeIds
) -> Array:
    """(p,) distance of the middle of gaps to the nearest cell, in spacings, up to 2."""
    middle = (tracks.position[source] + tracks.position[target]) / 2
    frame = (tracks.frame[source] + tracks.frame[target]) // 2
    distance = np.full(len(source), 2.0)
    for t in np.unique(frame).tolist():
        nodes = tracks.nodes_in(t)
        rows = np.flatnonzero(frame == t)
        if len(nodes):
            near = cKDTree(tracks.position[nodes]).query(middle[rows])[0]
            distance[rows] = np.minimum(near / scales.spacing, 2.0)
    return distance


def find_gaps(
    links: MovieLinks,
    max_gap: int | None = None,
    annotations: Annotations | None = None,
    weights: GapWeights | None = None,
    least_probability: float = 0.5,
) -> GapLinks:
    """Close the gaps of a movie.

    Parameters
    ----------
    links : MovieLinks
    max_gap : int, optional
        Frames that a cell may be missing; `LONGEST_GAP` unless given. 0 closes
        annotated gaps alone.
    annotations : Annotations, optional
        Annotated gaps, disappearances and appearances are obeyed.
    weights : GapWeights, optional
        Those that come with clew unless given.
    least_probability : float
        Of a gap that is closed.

    Returns
    -------
    GapLinks
        By source.
    """
    known = GapLinks.empty()
    forbidden: set[tuple[int, int]] = set()
    if annotations is not None:
        known, forbidden = _read_annotated(links, annotations)
    excluded = find_fixed(links, annotations)
    candidates = GapCandidates.find(links, max_gap, excluded)
    if not len(candidates.end_row):
        return known
    weights = GapWeights.generic() if weights is None else weights
    score = weights.score(candidates.features, candidates.groups)
    offset = float(logit(least_probability))
    keep = score > offset
    if forbidden:
        pairs = zip(candidates.source.tolist(), candidates.target.tolist(), strict=True)
        keep &= np.array([pair not in forbidden for pair in pairs])
    found = _assign_gaps(candidates, score, np.flatnonzero(keep), offset)
    return GapLinks.join([known, found])


def _assign_gaps(
    candidates: GapCandidates, score: Array, rows: Indices, offset: float = 0.0
) -> GapLinks:
    """The best consistent choice among candidates with scores above the offset."""
    if not len(rows):
        return GapLinks.empty()
    ends, end = np.unique(candidates.end_row[rows], return_inverse=True)
    starts, start = np.unique(candidates.beginning_row[rows], return_inverse=True)
    choices = Candidates.from_columns(
        {
            Event.MOVE: (end, start),
            Event.APPEAR: (np.arange(len(starts)),),
            Event.DISAPPEAR: (np.arange(len(ends)),),
        },
        len(ends),
        len(starts),
    )
    # Rows are sorted by end, then beginning, as the candidates are.
    scores = np.zeros(len(choices))
    scores[: len(rows)] = score[rows] - offset
    answer = assign(choices, scores)
    is_gap = answer.events == Event.MOVE
    confidence = answer.confidence(answer.chosen[is_gap])
    chosen = rows[answer.chosen[is_gap]]
    return GapLinks(
        candidates.source[chosen],
        candidates.target[chosen],
        confidence,
        expit(confidence + offset),
    )


def _read_annotated(
    links: MovieLinks, annotations: Annotations
) -> tuple[GapLinks, set[tuple[int, int]]]:
    """Annotated gaps that happened, and pairs of nodes that are known to be none."""
    is_gap = annotations.events.event == Event.GAP
    gaps = annotations[is_gap]
    sources, targets = links.event_nodes(gaps.events)
    source = sources[:, 0]
    target = targets[:, 0]
    exists = (source != NO_NODE) & (target != NO_NODE)
    happened = exists & gaps.happened
    rejected = exists & ~gaps.happened
    n = int(happened.sum())
    known = GapLinks(source[happened], target[happened], np.full(n, np.inf), np.ones(n))
    pairs: Sequence[Any] = list(
        zip(source[rejected].tolist(), target[rejected].tolist(), strict=True)
    )
    return known, set(pairs)


def find_fixed(links: MovieLinks, annotations: Annotations | None) -> Mask:
    """(n,) nodes that are annotated to appear, disappear, or be the end of a gap."""
    fixed = np.zeros(len(links) + 1, dtype=bool)
    if annotations is None:
        return fixed[:-1]
    pairwise = annotations.to_pairwise()
    kinds = (Event.APPEAR, Event.DISAPPEAR)
    is_end = np.isin(pairwise.events.event, kinds) & pairwise.happened
    sources, targets = links.event_nodes(pairwise.events[is_end])
    fixed[sources] = True
    fixed[targets] = True
    return fixed[:-1]

"""Follow ends of tracks into the image, where a cell goes on without a mask.

A track that ends within the movie is followed frame by frame: its last mask is moved to
where the next frame looks most like the cell, near the place that the tracks around it
lead to. A logistic regression stops it, which knows the movie's rate of holes: where
hardly any cell is missing within tracks, an end is the end of a cell. Beginnings are
followed likewise, backwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from clew.learning.task import Array, Mask
from clew.tracking.events import Event
from clew.tracking.frames import Patch
from clew.tracking.lineage.fill import (
    MIN_FREE_SHARE,
    RecoveredRuns,
    Template,
    add_masks,
    add_recovered,
    cut_templates,
    find_cell,
    number_cells,
)
from clew.tracking.lineage.gaps import (
    Field,
    GapWeights,
    TrackLinks,
    measure_gap_scales,
    measure_run_length,
)
from clew.tracking.lineage.lineage import RecoveredCells
from clew.tracking.lineage.links import NO_NODE, MovieLinks
from clew.tracking.movie import Movie
from clew.tracking.scales import MapFunction

N_FOLLOWED = 8
"""Frames that an end is followed."""
FRAMES_PER_JOB = 16
PERFECT = {
    "frames": 0.0,
    "least correlation": 1.0,
    "least contrast": 1.0,
    "odd contrast": 0.0,
    "room": 1.0,
    "rim": 0.0,
    "rim in steps": 0.0,
    "outside": 0.0,
}
"""Features of a cell that looks as before."""


class Trail(NamedTuple):
    """An end of a track, and where the cell would be in the next frames."""

    node: int
    is_backward: bool
    """Whether it is a beginning; frames are counted from the last one then."""
    frame: int
    label: int
    steps: Array
    """(K, ndim) displacements from frame to frame, in pixels."""
    context: Mapping[str, float]
    """What the movie says about ends, by the names of features."""


class Sighting(NamedTuple):
    """A cell where it was followed to."""

    patch: Patch
    place: Array
    """In pixels."""
    features: Mapping[str, float]
    score: float
    """Log odds that the cell is there, and was in the frames before."""


@dataclass(frozen=True, eq=False)
class FollowJob:
    """Ends in some frames, to be followed from there on."""

    movie: Movie
    field: Field
    trails: Sequence[Trail]
    """By frame, then label; all of them ends, or all beginnings."""
    weights: Mapping[str, float] | None
    """None to follow ends for as long as there is room."""

    def run(self) -> list[list[Sighting]]:
        """Follow all; a trail has a sighting in each frame that it reaches."""
        n_frames = self.movie.n_frames
        seen: list[list[Sighting]] = [[] for _ in self.trails]
        templates: dict[int, Template] = {}
        active: list[int] = []
        frames = np.array([trail.frame for trail in self.trails])
        for t in range(frames[0], min(frames[-1] + N_FOLLOWED + 1, n_frames)):
            starting = np.flatnonzero(frames == t).tolist()
            if not starting and not active:
                continue
            number = n_frames - 1 - t if self.trails[0].is_backward else t
            labels = self.movie.label(number)
            image = self.movie.image(number)
            assert image is not None
            free = labels == 0
            remaining = []
            for row in active:
                sighting = self._look(row, templates[row], seen[row], image, free)
                if sighting is None:
                    continue
                sighting.patch.claim(free)
                seen[row].append(sighting)
                if len(seen[row]) < len(self.trails[row].steps):
                    remaining.append(row)
            active = remaining
            if starting:
                wanted = np.array([self.trails[row].label for row in starting])
                cut = cut_templates(labels, image, wanted)
                templates |= dict(zip(starting, cut, strict=True))
                active += starting
        return seen

    def _look(
        self,
        row: int,
        template: Template,
        seen: Sequence[Sighting],
        image: NDArray[Any],
        free: Mask,
    ) -> Sighting | None:
        """Look for a cell in the next frame; None if it is not there."""
        trail = self.trails[row]
        last = seen[-1].place if seen else template.center
        near = last + trail.steps[len(seen)]
        cell = find_cell([(template, 1.0)], template, near, image, free)
        if cell is None:
            return None
        patch = cell.patch
        spacing = np.array(self.movie.spacing)
        filled = np.argwhere(patch.mask) + patch.corner
        low_end = (filled.min(axis=0) - 0.5) * spacing
        high_end = (filled.max(axis=0) + 0.5) * spacing
        depth = self.field.measure_depth(low_end, high_end)
        features = {
            **trail.context,
            **self.field.describe(float(depth)),
            "frames": float(np.log(len(seen) + 1)),
            "least correlation": cell.correlation,
            "least contrast": cell.contrast,
            "odd contrast": abs(cell.contrast - 1),
            "room": float(patch.mask.sum() / template.mask.sum()),
        }
        if seen:
            for name in ("least correlation", "least contrast"):
                features[name] = min(features[name], seen[-1].features[name])
        score = 0.0
        if self.weights is not None:
            score = compute_score(self.weights, features)
            score = min(score, seen[-1].score if seen else np.inf)
            if score <= 0:
                return None
        return Sighting(patch, cell.place, features, score)


def compute_score(weights: Mapping[str, float], features: Mapping[str, float]) -> float:
    """Return the log odds that a cell is there."""
    return sum(weight * features[name] for name, weight in weights.items())


def follow_ends(
    movie: Movie,
    links: MovieLinks,
    filled: RecoveredRuns,
    excluded: Mask,
    map_function: MapFunction,
    max_gap: int | None = None,
    weights: Mapping[str, float] | None = None,
) -> RecoveredRuns:
    """Recover the cells beyond the ends and before the beginnings of tracks.

    Parameters
    ----------
    movie : Movie
        With images.
    links : MovieLinks
        With the cells in gaps.
    filled : RecoveredRuns
        These cells.
    excluded : ndarray of shape (n,)
        Nodes that are not followed.
    map_function : callable
        Applies a function to jobs, in threads or on a cluster.
    max_gap : int, optional
        Frames that a cell may be missing.
    weights : mapping, optional
        Those that come with clew unless given.

    Returns
    -------
    RecoveredRuns
    """
    weights = GapWeights.generic().follow if weights is None else weights
    n_followed = N_FOLLOWED if max_gap is None else min(N_FOLLOWED, max_gap)
    movie = add_recovered(movie, filled.cells)
    rate = float(np.log((len(filled.cells) + 0.5) / max(len(links), 1)))
    trails = [
        trail
        for trail in find_trails(links, movie, rate, excluded, n_followed)
        if compute_score(weights, PERFECT | dict(trail.context)) > 0
    ]
    seen = follow_trails(movie, Field.of(links), trails, map_function, weights)
    return join_runs(movie, links, trails, seen)


def follow_trails(
    movie: Movie,
    field: Field,
    trails: Sequence[Trail],
    map_function: MapFunction,
    weights: Mapping[str, float] | None,
) -> list[list[Sighting]]:
    """Return the cells that are seen on trails; without weights, wherever there is room.

    Parameters
    ----------
    movie : Movie
    field : Field
    trails : sequence of Trail
        Ends before beginnings, in the order of `find_trails`.
    map_function : callable
    weights : mapping or None

    Returns
    -------
    list of list of Sighting
        Of each trail, from frame to frame.
    """
    jobs = []
    for is_backward in (False, True):
        chosen = [trail for trail in trails if trail.is_backward == is_backward]
        jobs += list_jobs(movie, field, chosen, weights)
    return [seen for items in map_function(FollowJob.run, jobs) for seen in items]


def find_trails(
    links: MovieLinks, movie: Movie, rate: float, excluded: Mask, n_followed: int
) -> list[Trail]:
    """Return the trails of ends, then of beginnings, each by frame, then label.

    Parameters
    ----------
    links : MovieLinks
    movie : Movie
    rate : float
        Logarithm of the share of the cells that are missing in gaps.
    excluded : ndarray of shape (n,)
        Nodes that are not followed.
    n_followed : int
        Frames.
    """
    others = links.others
    ends = others.sources[others.kind == Event.DISAPPEAR, 0]
    beginnings = others.targets[others.kind == Event.APPEAR, 0]
    if not n_followed:
        return []
    last = len(links) - 1
    backward = (last - beginnings[~excluded[beginnings]]).astype(np.int32)
    trails = []
    for view, nodes in (
        (links, ends[~excluded[ends]]),
        (reverse_links(links), backward),
    ):
        is_backward = view is not links
        tracks = TrackLinks(view)
        frame = tracks.frame[nodes]
        order = np.lexsort((view.label[nodes], frame))
        nodes = nodes[order]
        frame = frame[order]
        if not len(nodes):
            continue
        motion = measure_gap_scales(tracks, n_followed).motion
        length = np.log(measure_run_length(tracks, nodes, forward=False))
        for t in np.unique(frame).tolist():
            rows = np.flatnonzero(frame == t)
            moved = motion.predict(tracks.predict_paths(t, nodes[rows], n_followed))
            steps = np.diff(moved / movie.spacing, axis=1, prepend=0.0)
            for row, step in zip(rows.tolist(), steps, strict=True):
                node = int(nodes[row])
                label = int(view.label[node])
                node = last - node if is_backward else node
                context = {
                    "bias": 1.0,
                    "track": float(length[row]),
                    "rate of holes": rate,
                }
                trails.append(Trail(node, is_backward, t, label, step, context))
    return trails


def reverse_links(links: MovieLinks) -> MovieLinks:
    """Return the moves of the movie that runs backwards; other events are wrong."""
    last = len(links) - 1
    successor = np.full(len(links), NO_NODE, dtype=np.int32)
    moves = np.flatnonzero(links.successor != NO_NODE)
    successor[last - links.successor[moves]] = last - moves
    return replace(
        links,
        first_node=len(links) - links.first_node[::-1],
        label=links.label[::-1],
        position=links.position[::-1],
        columns={name: column[::-1] for name, column in links.columns.items()},
        successor=successor,
    )


def list_jobs(
    movie: Movie,
    field: Field,
    trails: Sequence[Trail],
    weights: Mapping[str, float] | None,
) -> list[FollowJob]:
    """Jobs of the trails that end in as many frames as a block has."""
    last = movie.n_frames - 1
    frames = np.array([trail.frame for trail in trails], dtype=np.intp)
    jobs = []
    for first in range(0, last, FRAMES_PER_JOB):
        rows = slice(*np.searchsorted(frames, [first, first + FRAMES_PER_JOB]).tolist())
        if not len(frames[rows]):
            continue
        stop = min(first + FRAMES_PER_JOB + N_FOLLOWED, last)
        window = (first, stop)
        if trails[0].is_backward:
            window = (last - stop, last - first)
        jobs.append(FollowJob(movie.window(*window), field, trails[rows], weights))
    return jobs


def join_runs(
    movie: Movie,
    links: MovieLinks,
    trails: Sequence[Trail],
    seen: Sequence[Sequence[Sighting]],
) -> RecoveredRuns:
    """Make runs of cells of what was seen; no pixel belongs to two cells.

    Parameters
    ----------
    movie : Movie
    links : MovieLinks
    trails : sequence of Trail
    seen : sequence of sequence of Sighting
        Of each trail.

    Returns
    -------
    RecoveredRuns
    """
    last = links.n_frames - 1
    frame = np.array(
        [
            last - trail.frame - k if trail.is_backward else trail.frame + k
            for trail, sightings in zip(trails, seen, strict=True)
            for k in range(1, len(sightings) + 1)
        ],
        dtype=np.int64,
    )
    run = np.repeat(np.arange(len(trails)), [len(items) for items in seen])
    sightings = [sighting for items in seen for sighting in items]
    is_kept = _claim_pixels(movie, frame, run, sightings)
    order = np.flatnonzero(is_kept)
    order = order[np.argsort(frame[order], kind="stable")]
    kept_runs, run_number = np.unique(run[order], return_inverse=True)
    node = np.array([trails[row].node for row in run[order]], dtype=np.intp)
    score = np.array([sightings[row].score for row in order], dtype=np.float64)
    ndim = links.position.shape[1]
    cells = RecoveredCells(
        frame[order],
        number_cells(links, frame[order]),
        np.zeros((len(order), ndim)),
        {
            name: column[node].astype(np.float64)
            for name, column in links.columns.items()
        },
        expit(score),
        np.zeros((len(order), ndim), np.intp),
        [],
    )
    cells = add_masks(cells, [sightings[row].patch for row in order], movie.spacing)
    ends = np.array([trails[row].node for row in kept_runs], dtype=np.int32)
    is_forward = np.array([not trails[row].is_backward for row in kept_runs], bool)
    confidence = np.full(len(kept_runs), np.inf)
    np.minimum.at(confidence, run_number, score)
    return RecoveredRuns(
        cells,
        run_number,
        np.where(is_forward, ends, NO_NODE).astype(np.int32),
        np.where(is_forward, NO_NODE, ends).astype(np.int32),
        confidence,
    )


def _claim_pixels(
    movie: Movie,
    frame: NDArray[np.int64],
    run: NDArray[np.intp],
    sightings: list[Sighting],
) -> Mask:
    """Give each pixel to one cell, the surest first; which cells have enough left.

    A run ends with its first cell that has not. Masks in `sightings` lose pixels.
    """
    is_kept = np.ones(len(frame), dtype=bool)
    for t in np.flatnonzero(np.bincount(frame) > 1).tolist():
        rows = np.flatnonzero(frame == t)
        free = np.ones(movie.shape, dtype=bool)
        for row in sorted(rows.tolist(), key=lambda row: -sightings[row].score):
            patch = sightings[row].patch
            left = patch.mask & free[patch.box]
            if left.sum() < MIN_FREE_SHARE * patch.mask.sum():
                is_kept[row] = False
                continue
            free[patch.box] &= ~left
            sightings[row] = sightings[row]._replace(patch=patch._replace(mask=left))
    number_lost = np.cumsum(~is_kept)
    first = np.searchsorted(run, run)
    return np.asarray(
        is_kept & (number_lost - number_lost[first] + ~is_kept[first] == 0)
    )

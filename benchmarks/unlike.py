"""Cells that are like none of the simulated kinds, some with faults of masks: generic weights beside plain trackers.

    python benchmarks/unlike.py [--kinds amoeboid torn …] [--draws 3]

Discs, or cells that fill the field, that move, divide and are segmented well or badly; all is drawn here, and nothing
in clew was learned from it. laptrack is tuned on the truth of another draw, and "overlap" links each cell to the one of
the frame before that it shares most with. Missed events in %, and false divisions in brackets, of all draws together.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass

import numpy as np
import peer_laptrack
from kinds_movies import TUNED_ON, Scene
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from clew.tracking.evaluation.evaluate import Evaluation
from clew.tracking.frames import ArrayFrames
from clew.tracking.io.ctc import CtcLineage
from clew.tracking.lineage.tracks import Tracks
from clew.tracking.measurement.measure import measure_movie
from clew.tracking.movie import Movie
from clew.tracking.tracker import Tracker

MARGIN = 30
"""Of the world around the field, in pixels."""
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """What the cells of a movie are like; lengths in pixels, times in frames."""

    cells: int
    """In the field and its margin."""
    radius: tuple[float, float] | None
    """The least and the largest; None for cells that fill the field."""
    speed: float
    persistence: float = 0.3
    """Correlation of a cell's velocity from one frame to the next."""
    stream: float = 0.0
    """Half of the cells go one way by so much in a frame, and half the other way."""
    rate: float = 0.0
    """Divisions of a cell in a frame."""
    fused: bool = False
    """Whether cells that touch are segmented as one."""
    torn: float = 0.0
    """The share of masks that are cut in two."""
    field: int = 240
    frames: int = 25


KINDS = {
    "amoeboid": Kind(60, (8, 8), 16, persistence=0.9, field=340),
    "tiny and fast": Kind(90, (1.4, 1.9), 3, persistence=0.8, field=128),
    "streams": Kind(80, (6, 6), 0.8, stream=6.0),
    "five sizes": Kind(60, (3, 15), 2.5, rate=0.003),
    "epithelium": Kind(150, None, 3.0, rate=0.006),
    "sticky": Kind(55, (8, 8), 3.0, rate=0.004, fused=True, field=200),
    "torn": Kind(60, (8, 8), 2.5, rate=0.006, torn=0.05),
}


def movie(kind: Kind, seed: int) -> tuple[list[Labels], list[Labels], Tracks]:
    """Frames as they are segmented, true ones with the ids of cells, and the true tracks."""
    rng = np.random.default_rng([seed, *map(ord, repr(kind))])
    world = kind.field + 2 * MARGIN
    place = rng.uniform(0, world, (kind.cells, 2))
    way = rng.normal(scale=kind.speed / np.sqrt(2), size=place.shape)
    radius = np.exp(rng.uniform(*np.log(kind.radius or (1, 1)), kind.cells))
    side, id = rng.choice([-1.0, 1.0], kind.cells), np.arange(1, kind.cells + 1)
    full, parent, n = radius.copy(), dict.fromkeys(id.tolist(), 0), kind.cells
    frames = []
    for t in range(-5, kind.frames):
        if t >= 0:
            frames.append(_drawn(kind, place - MARGIN, radius, id))
        fresh = rng.normal(scale=kind.speed / np.sqrt(2), size=way.shape)
        way = kind.persistence * way + np.sqrt(1 - kind.persistence**2) * fresh
        place = _apart(
            place + way + np.column_stack([0 * side, kind.stream * side]), kind, radius
        )
        left, place = (place != place % world).any(axis=1), place % world
        radius = np.minimum(full, 1.05 * radius)
        divides = (rng.random(len(id)) < kind.rate) & ~left & (radius == full)
        id = id.copy()
        for k in np.flatnonzero(
            left | divides
        ):  # another cell enters, or a daughter is left
            n += 1
            parent[n], id[k] = (0 if left[k] else int(id[k])), n
        mothers = [parent[i] for i in id[divides].tolist()]
        parent |= {n + 1 + k: mother for k, mother in enumerate(mothers)}
        half = (0.6 * radius if kind.radius else np.full(len(id), 5.0))[
            divides, None
        ] * _unit(rng, int(divides.sum()))
        radius[divides] *= np.sqrt(0.5) if kind.radius else 1.0
        place[divides] -= half
        id = np.append(id, n + 1 + np.arange(len(mothers)))
        n += len(mothers)
        place, way = (
            np.vstack([place, place[divides] + 2 * half]),
            np.vstack([way, way[divides]]),
        )
        radius, full, side = (
            np.append(column, column[divides]) for column in (radius, full, side)
        )
    true, tracks = _tracks(frames, parent)
    return [_segmented(kind, frame, rng) for frame in true], true, tracks


def _unit(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def _apart(
    place: NDArray[np.float64], kind: Kind, radius: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Places of cells that push each other away."""
    size = (
        radius
        if kind.radius
        else np.full(len(place), 0.4 * (kind.field + 2 * MARGIN) / np.sqrt(kind.cells))
    )
    place = place.copy()
    for _ in range(3):
        a, b = cKDTree(place).query_pairs(2 * size.max(), output_type="ndarray").T
        between = place[a] - place[b]
        far = np.maximum(np.sqrt((between**2).sum(axis=1)), 1e-9)
        push = (np.maximum(0.97 * (size[a] + size[b]) - far, 0) / far / 2)[
            :, None
        ] * between
        np.add.at(place, a, push)
        np.add.at(place, b, -push)
    return place


def _drawn(
    kind: Kind, place: NDArray[np.float64], radius: NDArray[np.float64], id: Labels
) -> Labels:
    """A frame: each pixel is of the cell whose outline it lies deepest in."""
    pixels = np.stack(np.mgrid[: kind.field, : kind.field], axis=-1).reshape(-1, 2)
    k = min(8, len(id)) if kind.radius else 1
    far, near = (
        found.reshape(len(pixels), k) for found in cKDTree(place).query(pixels, k)
    )
    depth = far / radius[near] if kind.radius else np.zeros(far.shape)
    best = np.argmin(depth, axis=1)[:, None]
    inside = np.take_along_axis(depth, best, 1) < 1
    return np.where(inside, id[np.take_along_axis(near, best, 1)], 0).reshape(
        kind.field, kind.field
    )


def _tracks(
    frames: list[Labels], parent: dict[int, int]
) -> tuple[list[Labels], Tracks]:
    """Tracks of what is seen: who was out of view is another cell afterwards, and an only daughter has no mother."""
    true, rows, last, n = [], {}, {}, 0
    for t, frame in enumerate(frames):
        cells = np.unique(frame[frame > 0]).tolist()
        kept = {i: last[i] for i in cells if i in last}
        mothers = [parent[i] for i in cells if i not in last]
        for i in (i for i in cells if i not in last):
            n += 1
            known = parent[i] in last and mothers.count(parent[i]) == 2
            kept[i], rows[n] = n, [n, t, t, last[parent[i]] if known else 0]
        for i in kept.values():
            rows[i][2] = t
        table = np.zeros(int(frame.max()) + 1, np.int64)
        table[list(kept)] = list(kept.values())
        true.append(table[frame])
        last = kept
    return true, Tracks.of(list(rows.values()))


def _segmented(kind: Kind, frame: Labels, rng: np.random.Generator) -> Labels:
    """A frame with the faults of its kind, labelled anew."""
    found = frame.copy()
    if kind.fused:
        pairs = [(frame[1:], frame[:-1]), (frame[:, 1:], frame[:, :-1])]
        touching = {
            (int(i), int(j))
            for a, b in pairs
            for i, j in zip(a[a != b], b[a != b], strict=True)
            if i and j
        }
        used: set[int] = set()
        for i, j in sorted({(min(both), max(both)) for both in touching}):
            if not used & {i, j}:
                found[frame == j] = i
                used |= {i, j}
    for i in np.unique(frame[frame > 0]):
        if rng.random() < kind.torn:
            y, x = np.nonzero(frame == i)
            across = np.column_stack([y - y.mean(), x - x.mean()]) @ _unit(rng, 1)[0]
            cut = across > rng.uniform(-0.15, 0.15) * np.sqrt(len(y))
            found[y[cut], x[cut]] = found.max() + 1
    cells, index = np.unique(found, return_inverse=True)
    label = (
        np.append(0, rng.permutation(len(cells) - 1) + 1)
        if cells[0] == 0
        else rng.permutation(len(cells)) + 1
    )
    return label[index].reshape(frame.shape)


def scene(kind: Kind, seed: int) -> Scene:
    """A movie with its truth, by its masks alone."""
    masks, true, tracks = movie(kind, seed)
    seen = Movie.from_arrays(masks, name=f"draw {seed}")
    truth = CtcLineage(tracks, ArrayFrames.from_data(true, "the truth"), "the truth")
    return Scene(seen, measure_movie(seen, cache=None, n_jobs=1), truth)


def overlap_links(one: Scene) -> NDArray[np.int64]:
    """(k, 2) each cell and the one before that it shares most with."""
    links = []
    for t, (before, after) in enumerate(
        zip(one.points.frames[:-1], one.points.frames[1:], strict=True)
    ):
        shared = one.source.overlap(t, None)
        order = np.argsort(-shared.volume, kind="stable")
        target, first = np.unique(shared.target[order], return_index=True)
        links.append(
            np.column_stack([before[shared.source[order][first]], after[target]])
        )
    whole = np.concatenate(links)
    return whole[np.lexsort(whole.T[::-1])]


def shown(found: list[Evaluation]) -> str:
    """Of some movies together."""
    missed, n = (
        sum(int(getattr(one.loss, name).sum()) for one in found)
        for name in ("missed", "annotated")
    )
    return f"{100 * missed / n:.2f} ({sum(one.divisions[0].false for one in found)})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # cells that weights do not know
    tracker = Tracker.generic(n_jobs=1)
    print(
        "| kind (events) | clew, generic | laptrack | overlap |\n| --- | --- | --- | --- |"
    )
    for name in options.kinds:
        tuned = peer_laptrack.tune(scene(KINDS[name], TUNED_ON))
        scenes = [scene(KINDS[name], draw) for draw in range(options.draws)]
        clew = [one.evaluate(tracker.track(one.source)) for one in scenes]
        peers = [
            [one.evaluate(one.lineage_of(links(one))) for one in scenes]
            for links in (
                lambda one: peer_laptrack.links(one.points, **tuned),
                overlap_links,
            )
        ]
        events = int(np.mean([one.loss.annotated.sum() for one in clew]))
        print(
            f"| {name} ({events:,}) | " + " | ".join(map(shown, [clew, *peers])) + " |",
            flush=True,
        )


if __name__ == "__main__":
    main()

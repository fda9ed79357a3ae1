"""Simulated points that come close, cross and divide, at any frame rate.

The kinds of `clew.simulation` have bodies, which keep apart. Points of a manual
annotation do not: cells crawl over each other, and pairs are much nearer than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from golden_tables import write_tables
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rng = np.random.Generator
MARGIN = 3.0
"""Spacings around the field in which cells live, too."""
WARM_UP = 10
"""Steps before the movie begins."""


@dataclass(frozen=True)
class CrowdSettings:
    """Settings of a crowd; lengths in spacings, 1 / density^(1 / dims), times in frames."""

    dims: int
    cells: int
    frames: int
    step: float
    """Root mean square displacement from frame to frame."""
    persistence: float
    """Correlation of the velocity from one step to the next."""
    every: int
    """Steps from frame to frame."""
    pace: float
    """Standard deviation of the logarithm of the speed among cells."""
    repulsion: float
    """Distance below which cells push each other apart."""
    clustering: float
    """Share of cells that follow another cell."""
    cycle: float
    arms: float
    """Distance of daughters when they part."""
    loss: float
    """Share of cells that end in a frame."""
    missed: float
    noise: float
    """Standard deviation of positions."""
    drift: float
    shake: float


def draw_settings(rng: Rng) -> CrowdSettings:
    """Draw the settings of a crowd."""

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def sometimes(share: float, low: float, high: float) -> float:
        return between(low, high) if rng.random() < share else 0.0

    return CrowdSettings(
        dims=3 if rng.random() < 0.4 else 2,
        cells=round(between(40, 200)),
        frames=round(between(10, 25)),
        step=between(0.02, 0.35),
        persistence=rng.uniform(0.0, 0.9),
        every=int(rng.integers(1, 6)),
        pace=rng.uniform(0.1, 0.8),
        repulsion=sometimes(0.8, 0.05, 0.9),
        clustering=rng.uniform(0.0, 0.4),
        cycle=between(15, 200),
        arms=between(0.15, 0.6),
        loss=sometimes(0.7, 0.0005, 0.02),
        missed=sometimes(0.4, 0.0005, 0.02),
        noise=between(0.01, 0.06),
        drift=sometimes(0.3, 0.02, 0.5),
        shake=sometimes(0.3, 0.02, 0.3),
    )


@dataclass
class Crowd:
    """The state of n cells."""

    position: Array
    velocity: Array
    pace: Array
    age: Array
    cycle: Array
    leader: NDArray[np.int64]
    """Ids of the cells that they follow; 0 for none."""
    id: NDArray[np.int64]
    mother: NDArray[np.int64]

    def select(self, rows: NDArray[np.bool_]) -> Crowd:
        """Return some of the cells."""
        return Crowd(**{name: value[rows] for name, value in vars(self).items()})

    def join(self, other: Crowd) -> Crowd:
        """Return both."""
        theirs = vars(other)
        return Crowd(
            **{
                name: np.concatenate([value, theirs[name]])
                for name, value in vars(self).items()
            }
        )


class World:
    """Cells in a periodic box around the field of view."""

    def __init__(self, settings: CrowdSettings, rng: Rng) -> None:
        self.settings = settings
        self.rng = rng
        self.extent = settings.cells ** (1 / settings.dims)
        self.size = self.extent + 2 * MARGIN
        n = round(self.size**settings.dims)
        position = rng.random((n, settings.dims)) * self.size
        self.n_ids = n
        ids = np.arange(1, n + 1)
        leader = np.where(rng.random(n) < settings.clustering, rng.permutation(ids), 0)
        has_leader = leader > 0
        near = 0.4 * rng.standard_normal((has_leader.sum(), settings.dims))
        position[has_leader] = position[leader[has_leader] - 1] + near
        cycle = self._draw_cycles(n)
        self.cells = Crowd(
            position % self.size,
            np.zeros_like(position),
            np.exp(settings.pace * rng.standard_normal(n)),
            rng.random(n) * cycle,
            cycle,
            leader,
            ids,
            np.zeros(n, np.int64),
        )
        for _ in range(WARM_UP):
            self._move()

    def _draw_cycles(self, n: int) -> Array:
        cycle = self.settings.cycle * np.exp(0.3 * self.rng.standard_normal(n))
        return np.maximum(cycle, 4.0)

    def advance(self) -> None:
        """Advance by one frame."""
        settings = self.settings
        steps = int(self.rng.integers(1, settings.every + 1))
        for k in range(settings.every):
            self._move()
            if k == steps - 1:
                self._divide()
                self._lose()
        shift = settings.shake * self.rng.standard_normal(settings.dims)
        shift[-1] += settings.drift
        self.cells.position = (self.cells.position + shift) % self.size

    def _move(self) -> None:
        settings = self.settings
        cells = self.cells
        rho = settings.persistence
        k = settings.every
        # the variance of a sum of k correlated steps
        lags = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
        sigma = settings.step / np.sqrt((rho**lags).sum() * settings.dims)
        noise = self.rng.standard_normal(cells.position.shape)
        cells.velocity = rho * cells.velocity + sigma * np.sqrt(1 - rho**2) * noise
        still = np.where(cells.cycle - cells.age < 1.0, 0.4, 1.0)
        step = (cells.pace * still)[:, None] * cells.velocity
        cells.position = (cells.position + step + self._push()) % self.size

    def _push(self) -> Array:
        """Displacements by which near cells part."""
        from scipy.spatial import cKDTree

        cells = self.cells
        push = np.zeros_like(cells.position)
        reach = self.settings.repulsion
        if reach == 0:
            return push
        tree = cKDTree(cells.position, boxsize=self.size)
        first, second = tree.query_pairs(reach, output_type="ndarray").T
        apart = cells.position[first] - cells.position[second]
        apart -= self.size * np.round(apart / self.size)
        distance = np.maximum(np.linalg.norm(apart, axis=1), 1e-9)
        way = apart * (0.25 * (reach / distance - 1) / 2).clip(max=0.5)[:, None]
        np.add.at(push, first, way)
        np.add.at(push, second, -way)
        return push

    def _divide(self) -> None:
        cells = self.cells
        cells.age += 1
        ripe = cells.age >= cells.cycle
        mothers = cells.select(ripe)
        n = int(ripe.sum())
        axis = self.rng.standard_normal(mothers.position.shape)
        axis /= np.linalg.norm(axis, axis=1, keepdims=True)
        reach = self.settings.arms * np.exp(0.25 * self.rng.standard_normal((n, 1)))
        cells = cells.select(~ripe)
        for sign in (1, -1):
            offset = sign * axis * reach / 2
            jitter = 0.15 * reach * self.rng.standard_normal(axis.shape)
            cells = cells.join(
                Crowd(
                    (mothers.position + offset + jitter) % self.size,
                    mothers.velocity * 0.3,
                    np.exp(self.settings.pace * self.rng.standard_normal(n)),
                    np.zeros(n),
                    self._draw_cycles(n),
                    np.zeros(n, np.int64),
                    self.n_ids + 1 + np.arange(n),
                    mothers.id,
                )
            )
            self.n_ids += n
        self.cells = cells

    def _lose(self) -> None:
        wanted = round(self.size**self.settings.dims)
        share = self.settings.loss + max(len(self.cells.id) / wanted - 1.3, 0) / 4
        self.cells = self.cells.select(self.rng.random(len(self.cells.id)) >= share)

    def see(self) -> NDArray[np.bool_]:
        """Whether each cell is in view."""
        inside = (self.cells.position >= MARGIN) & (
            self.cells.position < MARGIN + self.extent
        )
        return np.asarray(inside.all(axis=1))


def write_crowd(folder: Path, seed: int) -> None:
    """Write points.csv and tracks.csv of a crowd with settings drawn at random.

    Cells that leave the field and return are other tracks.
    """
    rng = np.random.default_rng([seed, 31])
    settings = draw_settings(rng)
    world = World(settings, rng)
    scale = float(np.exp(rng.uniform(np.log(5), np.log(60))))
    tracks: dict[int, int] = {}
    parents: dict[int, int] = {}
    last_seen: dict[int, int] = {}
    rows = []
    for frame in range(settings.frames):
        if frame:
            world.advance()
        cells = world.cells
        n = len(cells.id)
        is_found = rng.random(n) >= settings.missed
        jitter = settings.noise * rng.standard_normal(cells.position.shape)
        place = (cells.position + jitter - MARGIN) * scale
        label = 0
        for k in np.flatnonzero(world.see()).tolist():
            cell = int(cells.id[k])
            if last_seen.get(cell) != frame - 1 or cell not in tracks:
                is_new = cell not in tracks
                tracks[cell] = len(parents) + 1
                mother = int(cells.mother[k]) if is_new else 0
                born_here = last_seen.get(mother) == frame - 1
                parents[tracks[cell]] = tracks[mother] if born_here else 0
            last_seen[cell] = frame
            if is_found[k]:
                label += 1
                axes = "zyx"[-settings.dims :]
                rows.append(
                    {
                        "frame": str(frame),
                        "label": str(label),
                        "track": str(tracks[cell]),
                        "parent": str(parents[tracks[cell]]),
                    }
                    | {a: f"{x:.3f}" for a, x in zip(axes, place[k], strict=True)}
                )
    found = {row["track"] for row in rows}
    for row in rows:
        if row["parent"] not in found:
            row["parent"] = "0"
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(folder, rows)

"""A colony of rod-shaped bacteria that grow, push each other apart and divide.

Each rod is a capsule without inertia. It grows exponentially and divides after it has
added its share of length (the adder rule, Taheri-Araghi et al. 2015). Overlapping rods
shift and rotate apart, so the colony expands as it grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clew.simulation.bodies import Bodies, kernel, make_bodies, make_spine
from clew.simulation.optics import Optics
from clew.simulation.rows import (
    Array,
    Rng,
    Rows,
    draw_unit_vectors,
    find_pairs,
    rotate_randomly,
)
from clew.simulation.settings import (
    NON_NEGATIVE,
    POSITIVE,
    SHARE,
    BodySettings,
    draw_between,
    draw_body_settings,
    draw_sometimes,
)

SUBSTEP = 0.02
"""Largest relative growth between two rounds of pushing."""
WARM_UP = 8
"""Steps per doubling before the first frame."""
WASHED = 0.5
"""Rods this many fields of view outside are removed."""
ROUNDS = 40
"""Largest number of passes over all pairs in a round of pushing."""
SIDE = np.array([1.0, -1.0])
"""Signs that rotate a vector by 90°, after swapping its coordinates."""
TOLERANCE = 0.08
"""Tolerated overlap, relative to the radius."""


@dataclass(frozen=True)
class RodSettings(BodySettings):
    """Settings of a colony that has about `cells` rods in the last frame."""

    kind: ClassVar[str] = "rods"
    ranges: ClassVar[dict[str, tuple[float, float]]] = BodySettings.ranges | {
        "dims": (2, 2),
        "aspect": (1.5, 20.0),
        "doubling": (2.0, math.inf),
        "colonies": (1, 1000),
        "jitter": NON_NEGATIVE,
        "kink": NON_NEGATIVE,
        "spread": SHARE,
        "contrast": (-10.0, 10.0),
        "halo": NON_NEGATIVE,
        "bend": SHARE,
        "grip": POSITIVE,
    }

    frames: int = 40
    cells: int = 60
    radius: float = 7.0
    """Half the width of a rod."""
    shake: float = 3.0
    density: float = 0.25
    """The share of the field that rods cover in the last frame."""
    aspect: float = 5.5
    """Length of a rod over its width, in the mean between birth and division."""
    doubling: float = 7.0
    """Frames in which a rod doubles its length."""
    colonies: int = 1
    """From so many cells all descend."""
    jitter: float = 0.35
    """Random way of a rod in a frame, in radii: more along its axis, less across; it turns as much."""
    kink: float = 0.06
    """Daughters turn by about this angle when they part, in radians."""
    spread: float = 0.12
    """Standard deviation of the logarithm of growth and of the length at division."""
    contrast: float = -0.75
    """Signal of a rod as a share of the background: below 0 in phase contrast, above in fluorescence."""
    halo: float = 0.6
    """Brightness of the ring about a rod, as a share of the background."""
    bend: float = 0.04
    """How far the middle of a rod lies beside its axis, as a share of its length."""
    grip: float = 1.0
    """How hard it is to turn a rod against shifting it."""

    @property
    def size(self) -> float:
        """Area of an average rod."""
        return 4 * self.radius**2 * (self.aspect - 1) + math.pi * self.radius**2

    @property
    def founders(self) -> int:
        """Number of cells in the first frame."""
        return math.ceil(self.cells / 2 ** ((self.frames - 1) / self.doubling))


def draw_settings(rng: Rng) -> dict[str, Any]:
    """Draw random values of the settings."""
    bright = rng.random() < 0.4  # fluorescence
    return draw_body_settings(rng) | {
        "radius": draw_between(rng, 3.5, 9.0, log=True),
        "density": draw_between(rng, 0.1, 0.6),
        "aspect": draw_between(rng, 2.2, 7.0),
        "doubling": draw_between(rng, 5.0, 30.0, log=True),
        "colonies": int(rng.integers(1, 6)),
        "jitter": draw_between(rng, 0.03, 0.6, log=True),
        "kink": draw_between(rng, 0.02, 0.25, log=True),
        "spread": rng.uniform(0.05, 0.2),
        "contrast": draw_between(rng, 0.3, 2.0, log=True)
        if bright
        else -draw_between(rng, 0.2, 0.85),
        "halo": 0.0 if bright else draw_between(rng, 0.05, 0.8),
        "bend": rng.uniform(0, 0.08),
        "blur": draw_between(rng, 0.7, 2.0),
        "grip": draw_between(rng, 0.5, 2.0, log=True),
        "drift": draw_sometimes(rng, 0.3, 0.1, 4.0),
    }


@dataclass
class Rods(Rows):
    """All n rods."""

    position: Array
    """(n, 2)"""
    axis: Array
    """(n, 2) unit vector"""
    length: Array
    """(n,) of the segment, without the caps"""
    rate: Array
    """(n,) growth of the logarithm of length in a frame"""
    ripe: Array
    """(n,) the length at which it divides"""
    bend: Array
    """(n,) how far its middle lies beside its axis"""
    tone: Array
    """(n,) factor on the contrast"""
    texture: Array
    """(n, 3)"""


class Colony:
    """All rods, from one frame to the next."""

    cells: Rods

    def __init__(self, settings: RodSettings, rng: Rng) -> None:
        self.settings = settings
        self.rng = rng
        n = min(settings.colonies, settings.founders)
        extent = np.array(settings.extent)
        self.cells = self._make_newborn(
            extent * (0.5 + 0.5 * rng.uniform(-0.5, 0.5, (n, 2)) * (n > 1))
        )
        while len(self.cells) < settings.founders:
            self._grow_cells(settings.doubling / WARM_UP)

    def step(self) -> None:
        """Advance by one frame: slide, grow, divide and separate rods; remove those far outside."""
        cells = self.cells
        settings = self.settings
        rng = self.rng
        n = len(cells)
        jitter = settings.jitter
        # rods slide past each other along their axis more easily than they move across it
        along, across = (
            jitter * settings.radius * share * rng.standard_normal((n, 1))
            for share in (1.6, 0.5)
        )
        cells.position = (
            cells.position + along * cells.axis + across * cells.axis[:, ::-1] * SIDE
        )
        cells.axis = rotate_randomly(rng, cells.axis, jitter * 2 / settings.aspect)
        self._grow_cells(1.0)
        extent = np.array(settings.extent)
        beyond = np.maximum(-self.cells.position, self.cells.position - extent) / extent
        self.cells = self.cells[(beyond < WASHED).all(axis=1)]

    def _grow_cells(self, frames: float) -> None:
        """Grow, divide and separate rods in small steps of time."""
        cap = 2 * self.settings.radius
        steps = max(
            1, math.ceil(math.log(2) * frames / self.settings.doubling / SUBSTEP)
        )
        for _ in range(steps):
            # the caps grow with it, so that a rod of twice the length takes as long whatever its width
            self.cells.length = (self.cells.length + cap) * np.exp(
                self.cells.rate * (frames / steps)
            ) - cap
            self._divide_ripe()
            self._separate_overlapping()

    def shift(self, way: Array) -> None:
        """Shift all rods by (2,); nothing enters from outside."""
        self.cells.position = self.cells.position + way

    def make_bodies(self) -> Bodies:
        """Return the outlines."""
        cells = self.cells
        settings = self.settings
        across = cells.axis[:, ::-1] * SIDE
        half = (cells.length / 2)[:, None] * cells.axis
        aside = (cells.bend * (cells.length + 2 * settings.radius))[:, None] * across
        spine = make_spine(cells.position, half, aside)
        n = len(cells)
        return make_bodies(
            cells,
            spine,
            np.full((n, 3), settings.radius),
            settings.background * settings.contrast * cells.tone,
            settings.background * settings.halo,
        )

    def make_optics(self) -> Optics:
        """Return the parameters of the microscope."""
        settings = self.settings
        return Optics(
            settings,
            grain=0.06,
            grain_size=1.5,
            halo_width=settings.radius if settings.halo else 0.0,
            dirt=0.012 if settings.contrast < 0 else 0.0,
        )

    def _make_newborn(self, position: Array) -> Rods:
        """Make unrelated rods of all ages at (n, 2) positions."""
        n = len(position)
        rng = self.rng
        none = np.zeros(n, np.int64)
        born = self._birth_length
        rods = Rods(
            none,
            none,
            position,
            draw_unit_vectors(rng, n, 2),
            np.full(n, born),
            np.zeros(n),
            np.zeros(n),
            np.zeros(n),
            np.ones(n),
            np.zeros((n, 3)),
        )
        self._draw_individual(rods)
        rods.length = (born + 2 * self.settings.radius) * np.exp2(
            rng.random(n)
        ) - 2 * self.settings.radius
        rods.ripe = np.maximum(rods.ripe, rods.length)
        return rods

    @property
    def _birth_length(self) -> float:
        """Of the segment: rods double from birth to division, and have their mean length between."""
        radius = self.settings.radius
        return max(0.0, 2 * radius * self.settings.aspect * math.log(2) - 2 * radius)

    def _draw_individual(self, rods: Rods) -> None:
        """Draw what rods do not inherit: growth, length at division, and look."""
        n = len(rods)
        rng = self.rng
        settings = self.settings
        cap = 2 * settings.radius
        rods.rate = (
            math.log(2)
            / settings.doubling
            * np.exp(settings.spread * rng.standard_normal(n))
        )
        added = (self._birth_length + cap) * np.exp(
            settings.spread * rng.standard_normal(n)
        )
        rods.ripe = np.maximum(
            rods.length + added, 2.2 * cap
        )  # each half is a rod, with a segment left
        rods.bend = settings.bend * rng.standard_normal(n) / 2
        rods.tone = np.exp(0.1 * rng.standard_normal(n))
        rods.texture = rng.uniform(0, 1000, (n, 3))

    def _divide_ripe(self) -> None:
        """Divide ripe rods in the middle; both halves lie where the whole was."""
        ripe = self.cells.length >= self.cells.ripe
        if not ripe.any():
            return
        mothers = self.cells[ripe]
        rng = self.rng
        cap = 2 * self.settings.radius
        n = len(mothers)
        share = 0.5 + 0.04 * np.clip(rng.standard_normal(n), -2, 2)
        sides = []
        for sign, part in ((1.0, share), (-1.0, 1 - share)):
            whole = mothers.length + cap
            away = sign * (1 - part) / 2 * whole
            half = mothers.make_daughters(
                position=mothers.position + away[:, None] * mothers.axis,
                length=part * whole - cap,
                axis=rotate_randomly(rng, mothers.axis, self.settings.kink),
            )
            self._draw_individual(half)
            sides.append(half)
        self.cells = self.cells[~ripe] + (sides[0] + sides[1])

    def _separate_overlapping(self) -> None:
        """Push overlapping rods apart until none overlaps by much."""
        cells = self.cells
        radius = self.settings.radius
        if len(cells) < 2:
            return
        reach = float(cells.length.max()) + 2.5 * radius
        first, second, _, _ = find_pairs(cells.position, reach)
        position = cells.position.copy()
        axis = cells.axis.copy()
        _push_overlapping(
            position,
            axis,
            cells.length,
            radius,
            self.settings.grip,
            np.column_stack([first, second]),
            TOLERANCE * radius,
            ROUNDS,
        )
        cells.position = position
        cells.axis = axis


@kernel  # type: ignore[untyped-decorator]
def _push_overlapping(
    position: Any,
    axis: Any,
    length: Any,
    radius: float,
    grip: float,
    pairs: Any,
    tolerance: float,
    rounds: int,
) -> None:
    """Move and turn overlapping capsules apart, pair by pair, until all overlaps are small.

    A push p at a point a from the centre moves a rod by p and turns it by a × p / (grip · length² / 12), as if it were
    a thin plate on a viscous ground; both rods of a pair take the same push, weighted by 1 / their lengths.
    """
    for _ in range(rounds):
        worst = 0.0
        for k in range(len(pairs)):
            i, j = pairs[k]
            s, t = _closest_points(
                position[i], axis[i], length[i] / 2, position[j], axis[j], length[j] / 2
            )
            dy = position[i, 0] + s * axis[i, 0] - position[j, 0] - t * axis[j, 0]
            dx = position[i, 1] + s * axis[i, 1] - position[j, 1] - t * axis[j, 1]
            distance = math.sqrt(dy * dy + dx * dx)
            overlap = 2 * radius - distance
            if overlap <= 0.0:
                continue
            worst = max(worst, overlap)
            if distance < 1e-9:
                dy = axis[i, 1]
                dx = -axis[i, 0]
                distance = 1.0
            ny = dy / distance
            nx = dx / distance
            # how much a unit push moves the contact point of either: shift and turn
            li = length[i] + 2 * radius
            lj = length[j] + 2 * radius
            ci = s * (axis[i, 1] * ny - axis[i, 0] * nx)
            cj = t * (axis[j, 1] * ny - axis[j, 0] * nx)
            ti = ci / (grip * li * li / 12) / li
            tj = cj / (grip * lj * lj / 12) / lj
            push = overlap / (1 / li + 1 / lj + ci * ti + cj * tj)
            for row, sign, turn, size in ((i, 1.0, ti, li), (j, -1.0, tj, lj)):
                position[row, 0] += sign * push * ny / size
                position[row, 1] += sign * push * nx / size
                angle = sign * push * turn
                y = axis[row, 0]
                x = axis[row, 1]
                cos = math.cos(angle)
                sin = math.sin(angle)
                axis[row, 0], axis[row, 1] = cos * y + sin * x, cos * x - sin * y
        if worst < tolerance:
            break


@kernel  # type: ignore[untyped-decorator]
def _closest_points(p: Any, u: Any, half: float, q: Any, v: Any, other: float) -> Any:
    """Where on two segments, from their centres along unit vectors, the closest points lie (Ericson 2005, 5.1.9)."""
    ry = p[0] - q[0]
    rx = p[1] - q[1]
    b = u[0] * v[0] + u[1] * v[1]
    c = u[0] * ry + u[1] * rx
    f = v[0] * ry + v[1] * rx
    denominator = 1.0 - b * b
    if denominator > 1e-4:
        s = min(max((b * f - c) / denominator, -half), half)
    else:  # parallel: in the middle of where they lie side by side, so that they do not turn
        s = min(max((max(-half, -c - other) + min(half, other - c)) / 2, -half), half)
    t = b * s + f
    if t < -other or t > other:
        t = min(max(t, -other), other)
        s = min(max(b * t - c, -half), half)
    return s, t

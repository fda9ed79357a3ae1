"""Images and masks of nuclei; each nucleus is drawn in its bounding box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import ndimage

from clew.simulation.cells import Cells
from clew.simulation.settings import NucleiSettings

kernel = njit(cache=True, nogil=True)
Floats = NDArray[np.floating[Any]]
Owners = NDArray[np.int32]

ROUGHNESS = 0.045
"""Amplitude of each wave of the outline, relative to the radius."""
TABLE = 64
"""Size of the periodic texture, in pixels."""
SOFT = 3.0
"""Extent of the blurred edge, in standard deviations of the point spread function."""
LOOSEST = 1.08
"""Largest factor between a detected and the true outline."""


@dataclass(frozen=True)
class View:
    """The pixels of n nuclei in one frame, without noise."""

    light: NDArray[np.float32]
    """(z, y, x) signal above the background; one slice in 2D"""
    owner: NDArray[np.int32]
    """(z, y, x) row + 1 of the cell that owns a pixel; 0 far from all"""
    depth: NDArray[np.float32]
    """(z, y, x) depth: 0 at the center of the owner, 1 on its outline"""
    whole: NDArray[np.int64]
    """(n,) pixels within a cell's outline and the field of view"""
    kept: NDArray[np.int64]
    """(n,) pixels that a cell owns; more than half of the whole, or none"""


class Camera:
    """Draw nuclei; texture and background are constant over a movie."""

    def __init__(self, settings: NucleiSettings, rng: np.random.Generator) -> None:
        self.settings = settings
        flat = settings.dims == 2
        self.shape = (1, *settings.shape) if flat else settings.shape
        self.spacing = np.array((1.0, *settings.spacing) if flat else settings.spacing)
        noise = rng.standard_normal((1 if flat else TABLE, TABLE, TABLE))
        texture = ndimage.gaussian_filter(
            noise, [0 if flat else 2.2, 2.2, 2.2], mode="wrap"
        )
        self.texture = (texture / texture.std()).astype(np.float32)
        self.background = self._make_background(rng)

    def take_view(self, cells: Cells) -> View:
        """Draw one frame."""
        settings = self.settings
        n = len(cells)
        light = np.zeros(self.shape, np.float32)
        owner = np.empty(self.shape, np.int32)
        depth = np.empty(self.shape, np.float32)
        along, across = cells.semi_axes(settings.dims)
        amplitude = cells.mass / (cells.size * cells.condensation)
        look = Chromatin(
            amplitude, cells.grain, cells.texture, self.texture, 18 / settings.radius
        )
        grid = Grid(
            self.spacing, np.array([3.0, 1.0, 1.0]) * settings.blur, settings.dims == 3
        )
        claim = np.ones(n)
        shape = Shape(
            pad_to_3d(cells.position),
            pad_to_3d(cells.axis),
            along,
            across,
            cells.wave,
            claim,
        )
        for attempt in range(5):
            owner.fill(0)
            depth.fill(np.inf)
            whole = np.zeros(n, np.int64)
            _draw(shape, look, grid, attempt == 0, Canvas(light, owner, depth, whole))
            kept = _count_pixels(owner, depth, claim)
            buried = (2 * kept <= whole) & (whole > 0)
            if not buried.any():
                break
            claim[buried] *= 0.75  # a nucleus that lies over another is drawn over it
        return View(light, owner, depth, whole, np.where(buried, 0, kept))

    def expose(
        self, light: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[np.uint16]:
        """Add background, shot noise and read noise; return gray values, (z, y, x)."""
        image = np.empty(self.shape, np.uint16)
        noise = rng.standard_normal(self.shape, dtype=np.float32)
        _expose_pixels(
            light, self.background, noise, np.float32(self.settings.noise), image
        )
        return image

    def _make_background(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Make a background, (z, y, x), that is brightest near the middle."""
        field = np.zeros(self.shape, np.float32)
        for axis, n in enumerate(self.shape):
            x = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
            curve = -((x - rng.uniform(-0.4, 0.4)) ** 2) + rng.uniform(-0.4, 0.4) * x
            field += curve.astype(np.float32).reshape(
                [-1 if a == axis else 1 for a in range(3)]
            )
        field -= field.mean()
        return np.float32(self.settings.background) * (
            1 + np.float32(self.settings.unevenness) * field
        )


def pad_to_3d(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Prepend a zero to vectors of two coordinates; return (n, 3)."""
    return np.ascontiguousarray(np.pad(vectors, ((0, 0), (3 - vectors.shape[1], 0))))


class Shape(NamedTuple):
    """Outlines of n nuclei: ellipsoids about an axis, with waves."""

    position: Floats
    """(n, 3)"""
    axis: Floats
    """(n, 3) unit vectors"""
    along: Floats
    """(n,) semi-axis along it"""
    across: Floats
    """(n,) and across it"""
    wave: Floats
    """(n, WAVES, 4) direction and phase of the waves of the outline"""
    claim: Floats
    """(n,) factor on depths: below 1 for nuclei that lie over others"""


class Chromatin(NamedTuple):
    """Texture and brightness of n nuclei."""

    amplitude: Floats
    """(n,) mean signal"""
    grain: Floats
    """(n,) contrast of the texture"""
    offset: Floats
    """(n, 3) offset in the common texture"""
    texture: Floats
    """(z, y, x) periodic"""
    scale: float
    """Pixels of the texture to the unit of length"""


class Canvas(NamedTuple):
    """Arrays to draw onto; see `View`."""

    light: Floats
    owner: Owners
    depth: Floats
    whole: NDArray[np.int64]


class Grid(NamedTuple):
    """Pixel grid and resolution."""

    spacing: Floats
    """(3,) between pixels"""
    blur: Floats
    """(3,) standard deviations of the point spread function"""
    solid: bool
    """Whether there is more than one slice"""


@kernel  # type: ignore[untyped-decorator]
def _draw(shape: Shape, look: Chromatin, grid: Grid, lit: bool, canvas: Canvas) -> None:
    """Assign each pixel to the nucleus in which it lies deepest; add light if `lit`."""
    first = np.empty(3, np.int64)
    last = np.empty(3, np.int64)
    soft = SOFT * grid.blur
    roughest = 1 + ROUGHNESS * shape.wave.shape[1]
    widest = soft[0] if grid.solid else soft[1]
    for c in range(len(shape.position)):
        # only the box that the nucleus and its blurred edge can reach
        longest = max(shape.along[c], shape.across[c])
        for k in range(3):
            reach = longest * LOOSEST * roughest + soft[k]
            first[k] = max(
                0, math.ceil((shape.position[c, k] - reach) / grid.spacing[k])
            )
            last[k] = min(
                canvas.light.shape[k] - 1,
                math.floor((shape.position[c, k] + reach) / grid.spacing[k]),
            )
        if not grid.solid:
            first[0] = 0
            last[0] = 0
        for z in range(first[0], last[0] + 1):
            dz = z * grid.spacing[0] - shape.position[c, 0] if grid.solid else 0.0
            for y in range(first[1], last[1] + 1):
                dy = y * grid.spacing[1] - shape.position[c, 1]
                for x in range(first[2], last[2] + 1):
                    dx = x * grid.spacing[2] - shape.position[c, 2]
                    square = dz * dz + dy * dy + dx * dx
                    lengthwise = (
                        dz * shape.axis[c, 0]
                        + dy * shape.axis[c, 1]
                        + dx * shape.axis[c, 2]
                    )
                    q = math.sqrt(
                        (lengthwise / shape.along[c]) ** 2
                        + max(square - lengthwise * lengthwise, 0.0)
                        / shape.across[c] ** 2
                    )
                    distance = math.sqrt(square) + 1e-9
                    edge = distance / (
                        q + 1e-9
                    )  # from the centre to the outline, this way
                    if q > LOOSEST * roughest and (q - roughest) * edge > widest:
                        continue
                    outline = _outline_distance(
                        shape.wave[c], dz / distance, dy / distance, dx / distance
                    )
                    q /= outline
                    if q <= 1.0:
                        canvas.whole[c] += 1
                    if q <= LOOSEST and q * shape.claim[c] < canvas.depth[z, y, x]:
                        canvas.depth[z, y, x] = q * shape.claim[c]
                        canvas.owner[z, y, x] = c + 1
                    if lit:
                        steep = (
                            dz * dz * grid.blur[0] + (dy * dy + dx * dx) * grid.blur[1]
                        ) / (square + 1e-9) + 1e-3
                        inside = (
                            (1.0 - q) * outline * edge / steep
                        )  # deviations of the blur from the outline inwards
                        if inside > -SOFT:
                            canvas.light[z, y, x] += _add_light(look, c, dz, dy, dx) / (
                                1.0 + math.exp(-1.7 * inside)
                            )


@kernel  # type: ignore[untyped-decorator]
def _outline_distance(wave: Floats, z: float, y: float, x: float) -> float:
    """The factor on an ellipsoid's radius in a direction: 1, and a wave for each row of (WAVES, 4)."""
    outline = 1.0
    for k in range(len(wave)):
        outline += ROUGHNESS * math.sin(
            z * wave[k, 0] + y * wave[k, 1] + x * wave[k, 2] + wave[k, 3]
        )
    return outline


@kernel  # type: ignore[untyped-decorator]
def _add_light(look: Chromatin, c: int, dz: float, dy: float, dx: float) -> float:
    """The signal of a nucleus at a point relative to its centre; a flat texture has one slice."""
    depth = look.texture.shape[0]
    table = look.texture.shape[2]
    i = int((dz * look.scale + look.offset[c, 0]) * (1.0 if depth > 1 else 0.0)) % depth
    j = int(dy * look.scale + look.offset[c, 1]) % table
    k = int(dx * look.scale + look.offset[c, 2]) % table
    shade: float = look.amplitude[c] * max(
        1.0 + look.grain[c] * look.texture[i, j, k], 0.4
    )
    return shade


@kernel  # type: ignore[untyped-decorator]
def _count_pixels(owner: Owners, depth: Floats, claim: Floats) -> NDArray[np.int64]:
    """Count pixels inside each outline, (n,), and undo the factors on depths."""
    kept = np.zeros(len(claim), np.int64)
    owners = owner.ravel()
    depths = depth.ravel()
    for p in range(owners.size):
        if owners[p]:
            depths[p] /= claim[owners[p] - 1]
            kept[owners[p] - 1] += depths[p] <= 1.0
    return kept


@kernel  # type: ignore[untyped-decorator]
def _expose_pixels(
    light: Floats,
    background: Floats,
    noise: Floats,
    factor: float,
    image: NDArray[np.uint16],
) -> None:
    """Fill `image` with gray values; shot noise is approximated as normal."""
    lights = light.ravel()
    backgrounds = background.ravel()
    noises = noise.ravel()
    images = image.ravel()
    for p in range(lights.size):
        level = lights[p] + backgrounds[p]
        grey = level + factor * noises[p] * math.sqrt(36.0 + 0.2 * level)
        images[p] = int(min(max(grey + 0.5, 0.0), 65535.0))

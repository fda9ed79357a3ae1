"""Images of bodies: fluorescence, and phase contrast with halos."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from clew.simulation.bodies import Bodies, BodyView, kernel
from clew.simulation.rows import Array
from clew.simulation.settings import BodySettings

TABLE = 64
"""Size of the periodic texture, in pixels."""
READ_NOISE = 36.0
"""Variance of the read noise, in squared gray values."""
SHOT_NOISE = 0.2
"""Variance of the shot noise, relative to the gray value."""


@dataclass(frozen=True)
class Optics:
    """Parameters of the image formation; lengths in the unit of the spacing."""

    settings: BodySettings
    grain: float
    """Contrast of the texture within cells."""
    grain_size: float
    """Length of one pixel of the texture."""
    halo_width: float = 0.0
    """Width of the halo in phase contrast."""
    dirt: float = 0.0
    """Contrast of dirt on the glass, relative to the background."""

    @property
    def reach(self) -> float:
        """Largest distance from an outline at which a cell changes the image."""
        return 3 * self.settings.blur + 4 * self.halo_width


class Microscope:
    """Render images; texture, dirt and background are constant over a movie."""

    def __init__(
        self,
        optics: Optics,
        shape: tuple[int, ...],
        spacing: Array,
        rng: np.random.Generator,
    ) -> None:
        self.optics = optics
        self.shape = shape
        self.spacing = spacing
        noise = rng.standard_normal((TABLE, TABLE))
        texture = ndimage.gaussian_filter(noise, 2.2, mode="wrap")
        self.texture = (texture / texture.std()).astype(np.float32)
        self.background = self._make_background(rng)

    def expose(
        self, bodies: Bodies, view: BodyView, rng: np.random.Generator
    ) -> NDArray[np.uint16]:
        """Return the gray values of one frame, (z, y, x)."""
        optics = self.optics
        image = self.background.copy()
        centre = np.ascontiguousarray(
            np.pad(bodies.spine[:, 1], ((0, 0), (3 - bodies.spine.shape[2], 0)))
        )
        looks = np.column_stack([bodies.level, bodies.halo, bodies.inset])
        _add_light(
            view.owner,
            view.distance,
            looks,
            centre,
            bodies.texture,
            self.texture,
            self.spacing,
            np.array(
                [
                    optics.settings.blur,
                    optics.halo_width,
                    optics.grain,
                    1 / optics.grain_size,
                ]
            ),
            image,
        )
        deviation = optics.settings.noise * np.sqrt(
            READ_NOISE + SHOT_NOISE * np.maximum(image, 0)
        )
        image += deviation * rng.standard_normal(self.shape, dtype=np.float32)
        return np.clip(np.rint(image), 0, 65535).astype(np.uint16)

    def _make_background(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Make a background, (z, y, x), that is brightest near the middle, with dirt."""
        field = np.zeros(self.shape, np.float32)
        for axis, n in enumerate(self.shape):
            x = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
            curve = -((x - rng.uniform(-0.4, 0.4)) ** 2)
            field += curve.astype(np.float32).reshape(
                [-1 if a == axis else 1 for a in range(3)]
            )
        factor = 1 + self.optics.settings.unevenness * (field - field.mean())
        if self.optics.dirt:
            spots = ndimage.gaussian_filter(rng.standard_normal(self.shape), [0, 3, 3])
            factor += self.optics.dirt * spots / spots.std()
        background: NDArray[np.float32] = (
            self.optics.settings.background * factor
        ).astype(np.float32)
        return background


@kernel  # type: ignore[untyped-decorator]
def _add_light(
    owner: Any,
    distance: Any,
    looks: Any,
    centre: Any,
    offset: Any,
    texture: Any,
    spacing: Any,
    optics: Any,
    image: Any,
) -> None:
    """Add the light of bodies to an image: a plateau inside, halo rings outside."""
    blur, width, grain, scale = optics
    table = texture.shape[0]
    for z in range(image.shape[0]):
        for y in range(image.shape[1]):
            for x in range(image.shape[2]):
                c = owner[z, y, x] - 1
                if c < 0:
                    continue
                level, halo, inset = looks[c]
                inwards = distance[z, y, x] - inset
                slices = z * spacing[0] - centre[c, 0]
                j = (
                    int((y * spacing[1] - centre[c, 1] + slices) * scale + offset[c, 1])
                    % table
                )
                i = (
                    int((x * spacing[2] - centre[c, 2] - slices) * scale + offset[c, 2])
                    % table
                )
                shade = level * max(1.0 + grain * texture[j, i], 0.3)
                image[z, y, x] += shade / (
                    1.0 + math.exp(-1.7 * inwards / (blur + 1e-3))
                )
                if halo != 0.0:
                    # phase contrast adds a bright ring, and a weaker dark one further out
                    ring = math.exp(-(((inwards + width) / width) ** 2))
                    image[z, y, x] += halo * (
                        ring
                        - 0.25 * math.exp(-(((inwards + 2.5 * width) / width) ** 2))
                    )
